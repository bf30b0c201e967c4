//! Distinct: which values of an argument a group has, for the aggregates over DISTINCT values.
//!
//! ```text
//!   rows             table                                   transitions, for each filter
//!   group value diff group value │ count, per filter         group row diff
//!       0     7   +1     0     7 │  2 → 3    0 → 1               0   0   +1   (second filter)
//!       0     9   -1     0     9 │  1 → 0    0 → 0               0   1   -1   (first filter)
//! ```
//! One table serves all calls with the same argument: a count for each of their filters. A value
//! enters a call's set when its count becomes positive and leaves when it no longer is; these
//! transitions feed the call's accumulator (a count, a sum) as rows do without DISTINCT.
//! Of input that only grows nothing is counted: a value, once seen, stays.

use super::accumulator::kept;
use super::aggregate_expiry::{Written, retained};
use super::distinct_counts::DistinctCounts;
use super::group_keys::CopiedKeys;
use super::groups::{Groups, Lookup, NO_GROUP};
use crate::dataflow::operator::OperatorError;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, UInt32Array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{filter, take};
use arrow::datatypes::{DataType, Int64Type, UInt32Type};
use arrow::error::ArrowError;
use std::ops::Range;
use std::sync::Arc;

/// The values that entered and left the set of one filter.
#[derive(Debug, Default)]
pub struct Transitions {
    /// The group of each.
    pub groups: Vec<u32>,
    /// +1 entered, -1 left.
    pub diffs: Vec<i64>,
    /// The row of the batch that has the value.
    pub rows: Vec<u32>,
}

/// Entries of [`Distinct`] that changed, as they lay in it.
pub(super) struct ChangedEntries {
    /// The group of each.
    pub groups: Vec<u32>,
    /// Group and value of each.
    keys: CopiedKeys,
    counts: DistinctCounts,
}

impl ChangedEntries {
    /// The values of the entries `range`.
    pub fn values(&self, range: Range<usize>) -> Result<ArrayRef, ArrowError> {
        Ok(self.keys.columns(range)?.swap_remove(1))
    }

    /// The counts of `filter`.
    pub fn counts(&self, filter: usize) -> impl Iterator<Item = i64> {
        (0..self.groups.len()).map(move |entry| self.counts.get(entry, filter))
    }

    /// Whether an entry's value is in no set any more.
    pub fn is_gone(&self, entry: usize) -> bool {
        self.counts.is_gone(entry)
    }
}

/// An entry that changed, and its group.
#[derive(Clone, Copy, Debug)]
struct Changed {
    entry: u32,
    group: u32,
}

/// The values of one argument, by group, with a count for each filter.
#[derive(Debug)]
pub struct Distinct {
    /// The input column.
    pub argument: usize,
    /// The filters, as indices into the operator's masks; none: all rows.
    pub filters: Vec<Option<usize>>,
    append_only: bool,

    /// Keys are (group, value).
    entries: Groups,
    counts: DistinctCounts,
    /// By entry: whether it is in the list of what changed.
    listed: Vec<bool>,
    changed: Vec<Changed>,
    lookup: Lookup,
    transitions: Vec<Transitions>,
}

impl Distinct {
    /// For an argument of `data_type`.
    pub fn new(argument: usize, data_type: &DataType, append_only: bool) -> Result<Self, OperatorError> {
        Ok(Self {
            argument,
            filters: Vec::new(),
            append_only,
            entries: Groups::new(&[DataType::UInt32, data_type.clone()])?,
            counts: DistinctCounts::new(append_only),
            listed: Vec::new(),
            changed: Vec::new(),
            lookup: Lookup::default(),
            transitions: Vec::new(),
        })
    }

    /// Whether values, once seen, stay.
    pub fn append_only(&self) -> bool {
        self.append_only
    }

    /// The number of `filter` among its filters, which it becomes if it is new.
    pub fn add_filter(&mut self, filter: Option<usize>) -> usize {
        if let Some(known) = self.filters.iter().position(|f| *f == filter) {
            return known;
        }
        self.filters.push(filter);
        self.counts.add_filter();
        self.transitions.push(Transitions::default());
        self.filters.len() - 1
    }

    /// Adds rows; afterwards [`Distinct::transitions`] says what entered and left.
    pub fn update(
        &mut self,
        groups: &[u32],
        column: &ArrayRef,
        diffs: Option<&[i64]>,
        masks: &[BooleanBuffer],
    ) -> Result<(), OperatorError> {
        for transitions in &mut self.transitions {
            transitions.groups.clear();
            transitions.diffs.clear();
            transitions.rows.clear();
        }
        let relevant = self.relevant(column, masks);
        let all_groups: ArrayRef = Arc::new(UInt32Array::from(groups.to_vec()));
        let (keys, rows): (Vec<ArrayRef>, Option<Vec<u32>>) = match relevant {
            None => (vec![all_groups, Arc::clone(column)], None),
            Some(relevant) => {
                let rows = relevant.set_indices().map(|row| row as u32).collect();
                let mask = BooleanArray::new(relevant, None);
                (vec![filter(&all_groups, &mask)?, filter(column, &mask)?], Some(rows))
            }
        };
        let mut lookup = std::mem::take(&mut self.lookup);
        self.entries.find_or_insert(&keys, keys[0].len(), &mut lookup)?;
        self.counts.grow(self.entries.slots());
        self.listed.resize(self.entries.slots(), false);
        for (index, entry) in lookup.groups.iter().enumerate() {
            let row = rows.as_ref().map_or(index, |rows| rows[index] as usize);
            let diff = diffs.map_or(1, |d| d[row]);
            for filter in 0..self.filters.len() {
                if self.filters[filter].is_none_or(|mask| masks[mask].value(row)) {
                    self.add(filter, *entry, groups[row], row, diff);
                }
            }
        }
        self.lookup = lookup;
        Ok(())
    }

    /// The rows that have a value and pass any filter; none: all do.
    fn relevant(&self, column: &ArrayRef, masks: &[BooleanBuffer]) -> Option<BooleanBuffer> {
        let mut any: Option<BooleanBuffer> = None;
        if self.filters.iter().all(Option::is_some) {
            for mask in self.filters.iter().flatten() {
                any = Some(any.map_or_else(|| masks[*mask].clone(), |any| &any | &masks[*mask]));
            }
        }
        let valid = column.logical_nulls().filter(|n| n.null_count() > 0).map(|n| n.into_inner());
        match (any, valid) {
            (Some(any), Some(valid)) => Some(&any & &valid),
            (any, valid) => any.or(valid),
        }
    }

    #[inline]
    fn add(&mut self, filter: usize, entry: u32, group: u32, row: usize, diff: i64) {
        let (old, new) = self.counts.add(entry as usize, filter, diff);
        if old == new {
            return;
        }
        if !self.listed[entry as usize] {
            self.listed[entry as usize] = true;
            self.changed.push(Changed { entry, group });
        }
        if (old > 0) != (new > 0) {
            let transitions = &mut self.transitions[filter];
            transitions.groups.push(group);
            transitions.diffs.push(if new > 0 { 1 } else { -1 });
            transitions.rows.push(row as u32);
        }
    }

    /// What entered and left the set of `filter` with the last batch.
    pub fn transitions(&self, filter: usize) -> &Transitions {
        &self.transitions[filter]
    }

    /// The values of [`Transitions::rows`], of the batch's argument.
    pub fn values(transitions: &Transitions, column: &ArrayRef) -> Result<ArrayRef, OperatorError> {
        Ok(take(column, &UInt32Array::from(transitions.rows.clone()), None)?)
    }

    /// How many entries [`Distinct::take_changed`] would say.
    pub fn changed(&self) -> usize {
        self.changed.len()
    }

    /// The entries that changed since this was asked last, as far as they are to be written; those
    /// without counts are forgotten.
    pub(super) fn take_changed(&mut self, written: &Written<'_>) -> ChangedEntries {
        let all = std::mem::take(&mut self.changed);
        let is_gone = |changed: &Changed| self.counts.is_gone(changed.entry as usize);
        let mut groups: Vec<u32> = all.iter().map(|changed| changed.group).collect();
        let mut entries: Vec<u32> = all.iter().map(|changed| changed.entry).collect();
        let gone: Vec<u32> = match self.append_only {
            true => Vec::new(),
            false => all.iter().filter(|changed| is_gone(changed)).map(|changed| changed.entry).collect(),
        };
        if let Some(mask) = written.mask(&groups, |index| is_gone(&all[index])) {
            (groups, entries) = (retained(groups, &mask), retained(entries, &mask));
        }
        let (keys, counts) = (self.entries.copied(&entries), self.counts.copied(&entries));
        all.iter().for_each(|changed| self.listed[changed.entry as usize] = false);
        gone.into_iter().for_each(|entry| self.entries.remove(entry));
        ChangedEntries { groups, keys, counts }
    }

    /// Keeps only the entries of groups that have a new number in `renamed` (by the old one), and
    /// gives memory back. Others have not changed since [`Distinct::take_changed`].
    pub fn keep(&mut self, renamed: &[u32]) -> Result<(), OperatorError> {
        let all: Vec<u32> = self.entries.iter().collect();
        let owners = self.owners(&all)?;
        let new_owner = |index: &usize| renamed[owners[*index] as usize];
        let stay: Vec<usize> = (0..all.len()).filter(|i| new_owner(i) != NO_GROUP).collect();
        let old: Vec<u32> = stay.iter().map(|index| all[*index]).collect();
        let mut keys = self.entries.keys(&old)?;
        keys[0] = Arc::new(UInt32Array::from_iter_values(stay.iter().map(new_owner)));
        let types: Vec<DataType> = keys.iter().map(|k| k.data_type().clone()).collect();
        let mut entries = Groups::new(&types)?;
        entries.find_or_insert(&keys, old.len(), &mut self.lookup)?;

        // They were inserted in order, so the new numbers are 0, 1, ….
        self.counts = self.counts.copied(&old);
        self.listed = kept(&self.listed, &old);
        let listed = (0..old.len()).filter(|entry| self.listed[*entry]);
        self.changed =
            listed.map(|entry| Changed { entry: entry as u32, group: new_owner(&stay[entry]) }).collect();
        self.entries = entries;
        Ok(())
    }

    /// The group of each of these entries.
    fn owners(&self, entries: &[u32]) -> Result<Vec<u32>, OperatorError> {
        let keys = self.entries.keys(entries)?;
        Ok(keys[0].as_primitive::<UInt32Type>().values().to_vec())
    }

    /// Takes up entries that it lacks. Of input that only grows a value may come several times, with more
    /// filters each time.
    pub fn load(
        &mut self,
        groups: &[u32],
        values: &ArrayRef,
        counts: &[ArrayRef],
    ) -> Result<(), OperatorError> {
        let keys: [ArrayRef; 2] = [Arc::new(UInt32Array::from(groups.to_vec())), Arc::clone(values)];
        let mut lookup = std::mem::take(&mut self.lookup);
        self.entries.find_or_insert(&keys, groups.len(), &mut lookup)?;
        self.counts.grow(self.entries.slots());
        self.listed.resize(self.entries.slots(), false);
        for (filter, column) in counts.iter().enumerate() {
            let column = column.as_primitive::<Int64Type>();
            for (entry, count) in lookup.groups.iter().zip(column.values()) {
                self.counts.load(*entry as usize, filter, *count);
            }
        }
        self.lookup = lookup;
        Ok(())
    }

    /// Bytes held, roughly.
    pub fn memory(&self) -> usize {
        self.entries.memory()
            + self.counts.memory()
            + self.listed.capacity()
            + self.changed.capacity() * size_of::<Changed>()
    }
}
