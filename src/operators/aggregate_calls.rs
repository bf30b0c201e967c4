//! The calls of an aggregate: which accumulators they need, and how they share them.
//!
//! ```text
//!   sum(x), avg(x), count(x)                 one sum               by (argument, filter)
//!   min(x), max(x)                           one multiset          by (argument, filter)
//!                                            or an extremum each   if the input only grows
//!   count(DISTINCT x), sum(DISTINCT x)       one distinct table    by argument, a count a filter,
//!                                            feeding a count and a sum
//!   count(*)                                 the group's rows
//! ```
//! min, max, bool_and and bool_or don't care for DISTINCT.

use super::accumulator::{Accumulator, Counts, Rows, Truths, Wish};
use super::distinct::Distinct;
use super::expr::ErrorCounter;
use super::extreme::extremes_of;
use super::multiset::{Multiset, multiset_of};
use super::sum::sums_of;
use crate::dataflow::operator::OperatorError;
use crate::stream::ChangeBatch;
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::BooleanBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, SchemaRef};
use weir_sql::plan::{AggregateCall, AggregateFunction};

/// What kind of accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Count,
    Sum,
    Least,
    Greatest,
    Truth,
}

/// Where an accumulator's rows come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Feed {
    /// The input, where this mask (if any) is true.
    Input(Option<usize>),
    /// The transitions of a distinct table's filter.
    Distinct { table: usize, filter: usize },
}

/// An accumulator and what it reads.
struct Slot {
    class: Class,
    argument: Option<usize>,
    feed: Feed,
    accumulator: Box<dyn Accumulator>,
}

/// A multiset and what it reads.
struct MultisetSlot {
    argument: usize,
    mask: Option<usize>,
    multiset: Box<dyn Multiset>,
}

/// Where a call's result comes from.
#[derive(Clone, Copy, Debug)]
enum Origin {
    Rows,
    Slot(usize),
    Multiset { index: usize, greatest: bool },
}

/// The calls of one aggregate and all that they keep.
pub(super) struct Calls {
    append_only: bool,
    errors: ErrorCounter,
    /// The boolean input columns that are filters.
    masks: Vec<usize>,
    slots: Vec<Slot>,
    multisets: Vec<MultisetSlot>,
    distincts: Vec<Distinct>,
    outputs: Vec<(Origin, Wish)>,
}

impl Calls {
    /// For `calls` over rows of `input`.
    pub fn new(
        calls: &[AggregateCall],
        input: &SchemaRef,
        append_only: bool,
        errors: ErrorCounter,
    ) -> Result<Self, OperatorError> {
        let mut this = Self {
            append_only,
            errors,
            masks: Vec::new(),
            slots: Vec::new(),
            multisets: Vec::new(),
            distincts: Vec::new(),
            outputs: Vec::new(),
        };
        for call in calls {
            let origin = this.origin(call, input)?;
            let wish = Wish { function: call.function, data_type: call.output.data_type().clone() };
            this.outputs.push((origin, wish));
        }
        Ok(this)
    }

    fn origin(&mut self, call: &AggregateCall, input: &SchemaRef) -> Result<Origin, OperatorError> {
        use AggregateFunction::{Avg, BoolAnd, BoolOr, Count, Max, Min, Sum};
        let mask = call.filter.map(|column| position(&mut self.masks, column));
        let Some(argument) = call.argument else {
            return match (call.function, mask) {
                (Count, None) => Ok(Origin::Rows),
                (Count, Some(_)) => self.slot(Class::Count, None, Feed::Input(mask), input),
                (other, _) => Err(OperatorError::Internal(format!("{other:?} without an argument"))),
            };
        };
        let plain = Feed::Input(mask);
        match call.function {
            Count | Sum | Avg => {
                let class = if call.function == Count { Class::Count } else { Class::Sum };
                let feed = if call.distinct { self.distinct(argument, mask, input)? } else { plain };
                self.slot(class, Some(argument), feed, input)
            }
            Min | Max if !self.append_only => {
                let index = self.multiset(argument, mask, input);
                Ok(Origin::Multiset { index, greatest: call.function == Max })
            }
            Min => self.slot(Class::Least, Some(argument), plain, input),
            Max => self.slot(Class::Greatest, Some(argument), plain, input),
            BoolAnd | BoolOr => self.slot(Class::Truth, Some(argument), plain, input),
        }
    }

    fn slot(
        &mut self,
        class: Class,
        argument: Option<usize>,
        feed: Feed,
        input: &SchemaRef,
    ) -> Result<Origin, OperatorError> {
        let serves = |slot: &Slot| {
            let same = slot.class == class || (class == Class::Count && slot.class == Class::Sum);
            same && slot.argument == argument && slot.feed == feed
        };
        if let Some(known) = self.slots.iter().position(serves) {
            return Ok(Origin::Slot(known));
        }
        let data_type = argument.map_or(DataType::Null, |a| input.field(a).data_type().clone());
        let accumulator: Box<dyn Accumulator> = match class {
            Class::Count => Box::new(Counts::default()),
            Class::Truth => Box::new(Truths::default()),
            Class::Least => extremes_of(&data_type, false),
            Class::Greatest => extremes_of(&data_type, true),
            Class::Sum => sums_of(&data_type, &self.errors)
                .ok_or_else(|| OperatorError::Internal(format!("no sum of {data_type}")))?,
        };
        self.slots.push(Slot { class, argument, feed, accumulator });
        Ok(Origin::Slot(self.slots.len() - 1))
    }

    fn distinct(
        &mut self,
        argument: usize,
        mask: Option<usize>,
        input: &SchemaRef,
    ) -> Result<Feed, OperatorError> {
        let table = match self.distincts.iter().position(|d| d.argument == argument) {
            Some(known) => known,
            None => {
                let data_type = input.field(argument).data_type();
                self.distincts.push(Distinct::new(argument, data_type, self.append_only)?);
                self.distincts.len() - 1
            }
        };
        Ok(Feed::Distinct { table, filter: self.distincts[table].add_filter(mask) })
    }

    fn multiset(&mut self, argument: usize, mask: Option<usize>, input: &SchemaRef) -> usize {
        let serves = |slot: &MultisetSlot| slot.argument == argument && slot.mask == mask;
        if let Some(known) = self.multisets.iter().position(serves) {
            return known;
        }
        let multiset = multiset_of(input.field(argument).data_type());
        self.multisets.push(MultisetSlot { argument, mask, multiset });
        self.multisets.len() - 1
    }

    /// Whether there are none: the aggregate is a DISTINCT.
    pub fn is_empty(&self) -> bool {
        self.outputs.is_empty()
    }

    /// Makes room for groups below `groups`; new ones are empty.
    pub fn grow(&mut self, groups: usize) {
        for slot in &mut self.slots {
            slot.accumulator.grow(groups);
        }
        for slot in &mut self.multisets {
            slot.multiset.grow(groups);
        }
    }

    /// Makes a group empty again.
    pub fn clear(&mut self, group: u32) {
        for slot in &mut self.slots {
            slot.accumulator.clear(group);
        }
        for slot in &mut self.multisets {
            slot.multiset.clear(group);
        }
    }

    /// Keeps only these groups, which become 0, 1, … in this order. `renamed`: by old number, the
    /// new one.
    pub fn keep(&mut self, groups: &[u32], renamed: &[u32]) -> Result<(), OperatorError> {
        for slot in &mut self.slots {
            slot.accumulator.keep(groups);
        }
        for slot in &mut self.multisets {
            slot.multiset.keep(groups, renamed);
        }
        self.distincts.iter_mut().try_for_each(|distinct| distinct.keep(renamed))
    }

    /// Adds the rows of `batch`, whose groups are `groups`.
    pub fn update(&mut self, groups: &[u32], batch: &ChangeBatch) -> Result<(), OperatorError> {
        let diffs = batch.diffs();
        let masks: Vec<BooleanBuffer> = self.masks.iter().map(|c| truths(batch.column(*c))).collect();
        for distinct in &mut self.distincts {
            distinct.update(groups, batch.column(distinct.argument), diffs, &masks)?;
        }
        for slot in &mut self.slots {
            let column = slot.argument.map(|a| batch.column(a));
            match slot.feed {
                Feed::Input(mask) => {
                    let rows = Rows { groups, diffs, keep: mask.map(|m| &masks[m]) };
                    slot.accumulator.update(rows, column)?;
                }
                Feed::Distinct { table, filter } => {
                    let moved = self.distincts[table].transitions(filter);
                    let rows = Rows { groups: &moved.groups, diffs: Some(&moved.diffs), keep: None };
                    // A count need not see the values: none of them is NULL.
                    let values = match (slot.class, column) {
                        (Class::Count, _) | (_, None) => None,
                        (_, Some(column)) => Some(Distinct::values(moved, column)?),
                    };
                    slot.accumulator.update(rows, values.as_ref())?;
                }
            }
        }
        for slot in &mut self.multisets {
            let rows = Rows { groups, diffs, keep: slot.mask.map(|m| &masks[m]) };
            slot.multiset.update(rows, batch.column(slot.argument));
        }
        Ok(())
    }

    /// An epoch ends, in which `groups` changed.
    pub fn settle(&mut self, groups: &[u32]) {
        for slot in &mut self.slots {
            slot.accumulator.settle(groups);
        }
    }

    /// The calls' results for `groups`, which have `rows` (by group) rows.
    pub fn output(&self, groups: &[u32], rows: &[i64]) -> Result<Vec<ArrayRef>, OperatorError> {
        let column = |(origin, wish): &(Origin, Wish)| {
            let column = match *origin {
                Origin::Rows => super::accumulator::gather(rows, groups),
                Origin::Slot(index) => self.slots[index].accumulator.output(wish, groups)?,
                Origin::Multiset { index, greatest } => {
                    self.multisets[index].multiset.extremes(groups, greatest)?
                }
            };
            if *column.data_type() == wish.data_type {
                return Ok(column);
            }
            Ok(cast(&column, &wish.data_type)?)
        };
        self.outputs.iter().map(column).collect()
    }

    /// The types of the columns that [`Calls::state`] gives.
    pub fn state_types(&self) -> Vec<DataType> {
        self.slots.iter().flat_map(|slot| slot.accumulator.state_types()).collect()
    }

    /// What must be remembered of `groups`, beside multisets and distinct tables.
    pub fn state(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        let mut columns = Vec::new();
        for slot in &self.slots {
            columns.extend(slot.accumulator.state(groups)?);
        }
        Ok(columns)
    }

    /// Takes up what was remembered of `groups`, which are empty.
    pub fn load(&mut self, groups: &[u32], mut state: &[ArrayRef]) {
        for slot in &mut self.slots {
            let (own, rest) = state.split_at(slot.accumulator.state_types().len());
            slot.accumulator.load(groups, own);
            state = rest;
        }
    }

    /// The multisets, each with its argument.
    pub fn multisets(&mut self) -> impl Iterator<Item = (usize, &mut (dyn Multiset + 'static))> {
        self.multisets.iter_mut().map(|slot| (slot.argument, &mut *slot.multiset))
    }

    /// The distinct tables.
    pub fn distincts(&mut self) -> &mut [Distinct] {
        &mut self.distincts
    }

    /// How many state tables multisets and distinct tables need.
    pub fn table_count(&self) -> usize {
        self.multisets.len() + self.distincts.len()
    }

    /// Bytes held, roughly.
    pub fn memory(&self) -> usize {
        self.slots.iter().map(|slot| slot.accumulator.memory()).sum::<usize>()
            + self.multisets.iter().map(|slot| slot.multiset.memory()).sum::<usize>()
            + self.distincts.iter().map(Distinct::memory).sum::<usize>()
    }
}

/// The place of `value` in `values`, to which it is added if it is new.
fn position(values: &mut Vec<usize>, value: usize) -> usize {
    values.iter().position(|v| *v == value).unwrap_or_else(|| {
        values.push(value);
        values.len() - 1
    })
}

/// Where a boolean column is true, not NULL.
fn truths(column: &ArrayRef) -> BooleanBuffer {
    let column = column.as_boolean();
    match column.nulls() {
        Some(nulls) => column.values() & nulls.inner(),
        None => column.values().clone(),
    }
}
