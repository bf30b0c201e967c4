//! Accumulator: the running value of an aggregate, a column indexed by group.
//!
//! ```text
//!   rows of a batch          accumulator (sum)
//!   group │ value │ diff     group │ sum │ count
//!       0 │     5 │   +1         0 │   5 │     1      retraction is addition of the negative:
//!       2 │     7 │   -1         1 │   … │     …      order does not matter, counts may be
//!                                2 │  -7 │    -1      negative within an epoch
//! ```
//! Every accumulator works on whole columns, writes its state as columns (one row a group in the
//! state table) and takes it up again. What needs all values and not only a running one is in
//! [`super::multiset`] and [`super::distinct`].

use crate::dataflow::operator::OperatorError;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{DataType, Int64Type};
use std::sync::Arc;
use weir_sql::plan::AggregateFunction;

/// Which rows of a batch count, for which groups, how often.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// The group of each row.
    pub groups: &'a [u32],
    /// The diff of each row; none: all are +1.
    pub diffs: Option<&'a [i64]>,
    /// The rows that pass the call's FILTER; none: all do.
    pub keep: Option<&'a BooleanBuffer>,
}

impl Rows<'_> {
    /// Calls `take(row, group, diff)` for each row that counts and is not NULL.
    #[inline]
    pub fn for_each(&self, nulls: Option<&NullBuffer>, mut take: impl FnMut(usize, usize, i64)) {
        let nulls = nulls.filter(|n| n.null_count() > 0);
        let both;
        let mask = match (self.keep, nulls) {
            (None, None) => None,
            (Some(keep), None) => Some(keep),
            (None, Some(nulls)) => Some(nulls.inner()),
            (Some(keep), Some(nulls)) => {
                both = keep & nulls.inner();
                Some(&both)
            }
        };
        match (mask, self.diffs) {
            (None, None) => {
                for (row, group) in self.groups.iter().enumerate() {
                    take(row, *group as usize, 1);
                }
            }
            (None, Some(diffs)) => {
                for (row, (group, diff)) in self.groups.iter().zip(diffs).enumerate() {
                    take(row, *group as usize, *diff);
                }
            }
            (Some(mask), None) => {
                for row in mask.set_indices() {
                    take(row, self.groups[row] as usize, 1);
                }
            }
            (Some(mask), Some(diffs)) => {
                for row in mask.set_indices() {
                    take(row, self.groups[row] as usize, diffs[row]);
                }
            }
        }
    }
}

/// What an aggregate call wants of an accumulator that may serve several.
#[derive(Clone, Debug)]
pub struct Wish {
    /// The function.
    pub function: AggregateFunction,
    /// The type of its result.
    pub data_type: DataType,
}

/// A running value a group.
pub trait Accumulator: Send {
    /// Makes room for groups below `groups`; new ones are empty.
    fn grow(&mut self, groups: usize);

    /// Makes a group empty again.
    fn clear(&mut self, group: u32);

    /// Keeps only these groups, which become 0, 1, … in this order, and gives memory back.
    fn keep(&mut self, groups: &[u32]);

    /// Adds the rows that count. `column` is the argument, if the function has one.
    fn update(&mut self, rows: Rows<'_>, column: Option<&ArrayRef>) -> Result<(), OperatorError>;

    /// An epoch ends, in which `groups` changed: counts are no longer negative.
    fn settle(&mut self, _groups: &[u32]) {}

    /// The results for `groups`.
    fn output(&self, wish: &Wish, groups: &[u32]) -> Result<ArrayRef, OperatorError>;

    /// The types of the columns that [`Accumulator::state`] gives.
    fn state_types(&self) -> Vec<DataType>;

    /// What must be remembered of `groups`.
    fn state(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, OperatorError>;

    /// Takes up what was remembered of `groups`, which are empty.
    fn load(&mut self, groups: &[u32], state: &[ArrayRef]);

    /// Bytes held, roughly.
    fn memory(&self) -> usize;
}

/// The values of the groups that are kept, in their new order.
pub(super) fn kept<T: Clone>(values: &[T], groups: &[u32]) -> Vec<T> {
    groups.iter().map(|g| values[*g as usize].clone()).collect()
}

/// A column of numbers by group.
pub(super) fn gather(values: &[i64], groups: &[u32]) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(groups.iter().map(|g| values[*g as usize])))
}

/// Puts a column back where [`gather`] found it.
pub(super) fn scatter(values: &mut [i64], groups: &[u32], column: &ArrayRef) {
    for (group, value) in groups.iter().zip(column.as_primitive::<Int64Type>().values()) {
        values[*group as usize] = *value;
    }
}

/// An error for a wish that an accumulator does not grant: a fault of the planner.
pub(super) fn refused(name: &str, wish: &Wish) -> OperatorError {
    OperatorError::Internal(format!("{name} can't give {:?} as {}", wish.function, wish.data_type))
}

/// count(x), count(*) with FILTER, count(DISTINCT x).
#[derive(Debug, Default)]
pub struct Counts {
    counts: Vec<i64>,
}

impl Accumulator for Counts {
    fn grow(&mut self, groups: usize) {
        self.counts.resize(groups, 0);
    }

    fn clear(&mut self, group: u32) {
        self.counts[group as usize] = 0;
    }

    fn keep(&mut self, groups: &[u32]) {
        self.counts = kept(&self.counts, groups);
    }

    fn update(&mut self, rows: Rows<'_>, column: Option<&ArrayRef>) -> Result<(), OperatorError> {
        let nulls = column.and_then(|c| c.logical_nulls());
        rows.for_each(nulls.as_ref(), |_, group, diff| self.counts[group] += diff);
        Ok(())
    }

    fn output(&self, wish: &Wish, groups: &[u32]) -> Result<ArrayRef, OperatorError> {
        match wish.function {
            AggregateFunction::Count => Ok(gather(&self.counts, groups)),
            _ => Err(refused("a count", wish)),
        }
    }

    fn state_types(&self) -> Vec<DataType> {
        vec![DataType::Int64]
    }

    fn state(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        Ok(vec![gather(&self.counts, groups)])
    }

    fn load(&mut self, groups: &[u32], state: &[ArrayRef]) {
        scatter(&mut self.counts, groups, &state[0]);
    }

    fn memory(&self) -> usize {
        self.counts.capacity() * 8
    }
}

/// bool_and and bool_or: how many are true, how many false.
#[derive(Debug, Default)]
pub struct Truths {
    trues: Vec<i64>,
    falses: Vec<i64>,
}

impl Accumulator for Truths {
    fn grow(&mut self, groups: usize) {
        self.trues.resize(groups, 0);
        self.falses.resize(groups, 0);
    }

    fn clear(&mut self, group: u32) {
        self.trues[group as usize] = 0;
        self.falses[group as usize] = 0;
    }

    fn keep(&mut self, groups: &[u32]) {
        self.trues = kept(&self.trues, groups);
        self.falses = kept(&self.falses, groups);
    }

    fn update(&mut self, rows: Rows<'_>, column: Option<&ArrayRef>) -> Result<(), OperatorError> {
        let Some(column) = column.and_then(|c| c.as_boolean_opt()) else {
            return Err(OperatorError::Internal("bool_and and bool_or take a boolean".to_owned()));
        };
        let values = column.values();
        rows.for_each(column.nulls(), |row, group, diff| match values.value(row) {
            true => self.trues[group] += diff,
            false => self.falses[group] += diff,
        });
        Ok(())
    }

    fn output(&self, wish: &Wish, groups: &[u32]) -> Result<ArrayRef, OperatorError> {
        let counts = groups.iter().map(|g| (self.trues[*g as usize], self.falses[*g as usize]));
        let values: BooleanArray = match wish.function {
            AggregateFunction::BoolAnd => counts.map(|(t, f)| (t + f > 0).then_some(f == 0)).collect(),
            AggregateFunction::BoolOr => counts.map(|(t, f)| (t + f > 0).then_some(t > 0)).collect(),
            _ => return Err(refused("a count of truths", wish)),
        };
        Ok(Arc::new(values))
    }

    fn state_types(&self) -> Vec<DataType> {
        vec![DataType::Int64, DataType::Int64]
    }

    fn state(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        Ok(vec![gather(&self.trues, groups), gather(&self.falses, groups)])
    }

    fn load(&mut self, groups: &[u32], state: &[ArrayRef]) {
        scatter(&mut self.trues, groups, &state[0]);
        scatter(&mut self.falses, groups, &state[1]);
    }

    fn memory(&self) -> usize {
        (self.trues.capacity() + self.falses.capacity()) * 8
    }
}
