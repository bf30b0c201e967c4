//! Multisets: a group's values in order, each with how often it is there.
//!
//! What min and max need once rows can go: when the extremum goes, the next one must be known. One
//! multiset serves all calls with the same argument and filter. Its state table has one entry a
//! (group, value): the count.

use super::accumulator::Rows;
use super::aggregate_expiry::retained;
use super::ordered::{Order, with_order};
use crate::dataflow::operator::OperatorError;
use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::compute::filter;
use arrow::datatypes::DataType;
use std::collections::BTreeMap;

/// Entries of a multiset that changed, as columns.
pub struct ChangedValues {
    /// The group of each.
    pub groups: Vec<u32>,
    /// The value of each.
    pub values: ArrayRef,
    /// How often each is there now; zero: it is gone.
    pub counts: Vec<i64>,
}

impl ChangedValues {
    /// Those where `mask` is true; none: all.
    pub fn filtered(self, mask: Option<BooleanArray>) -> Result<Self, OperatorError> {
        let Some(mask) = mask else { return Ok(self) };
        let values = filter(&self.values, &mask)?;
        Ok(Self { groups: retained(self.groups, &mask), values, counts: retained(self.counts, &mask) })
    }
}

/// A group's values in order, each with how often it is there.
pub trait Multiset: Send {
    /// Makes room for groups below `groups`; new ones are empty.
    fn grow(&mut self, groups: usize);

    /// Makes a group empty.
    fn clear(&mut self, group: u32);

    /// Keeps only these groups, which become 0, 1, … in this order, and gives memory back.
    /// Others have not changed since [`Multiset::take_changed`]. `renamed`: by old number, the new.
    fn keep(&mut self, groups: &[u32], renamed: &[u32]);

    /// Adds the rows that count.
    fn update(&mut self, rows: Rows<'_>, column: &ArrayRef);

    /// The least or greatest values of `groups`.
    fn extremes(&self, groups: &[u32], greatest: bool) -> Result<ArrayRef, OperatorError>;

    /// The entries that changed since this was asked last.
    fn take_changed(&mut self) -> Result<ChangedValues, OperatorError>;

    /// Takes up entries of groups that lack them.
    fn load(&mut self, groups: &[u32], values: &ArrayRef, counts: &[i64]);

    /// Bytes held, roughly.
    fn memory(&self) -> usize;
}

/// A multiset of values of `data_type`.
pub fn multiset_of(data_type: &DataType) -> Box<dyn Multiset> {
    with_order!(data_type, order => Box::new(OrderedMultiset::new(order)))
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    count: i64,
    /// Whether it is in the list of what changed.
    listed: bool,
}

struct OrderedMultiset<O: Order> {
    order: O,

    groups: Vec<BTreeMap<O::Key, Entry>>,
    /// What changed since the last checkpoint. An entry that went and came back is there twice.
    changed: Vec<(u32, O::Key)>,
    entries: usize,
    heap: usize,
}

impl<O: Order> OrderedMultiset<O> {
    fn new(order: O) -> Self {
        Self { order, groups: Vec::new(), changed: Vec::new(), entries: 0, heap: 0 }
    }

    fn add(&mut self, group: usize, key: &O::Ref, diff: i64) {
        let values = &mut self.groups[group];
        let Some(entry) = values.get_mut(key) else {
            let key = O::own(key);
            self.changed.push((group as u32, key.clone()));
            self.entries += 1;
            self.heap += O::heap(&key);
            values.insert(key, Entry { count: diff, listed: true });
            return;
        };
        entry.count += diff;
        if !entry.listed {
            entry.listed = true;
            self.changed.push((group as u32, O::own(key)));
        }
        if entry.count == 0
            && let Some((key, _)) = values.remove_entry(key)
        {
            self.entries -= 1;
            self.heap -= O::heap(&key);
        }
    }

    fn extreme(&self, group: u32, greatest: bool) -> Option<&O::Ref> {
        let mut there = self.groups[group as usize].iter().filter(|(_, entry)| entry.count > 0);
        let found = if greatest { there.next_back() } else { there.next() };
        found.map(|(key, _)| std::borrow::Borrow::borrow(key))
    }
}

impl<O: Order> Multiset for OrderedMultiset<O> {
    fn grow(&mut self, groups: usize) {
        self.groups.resize_with(groups, BTreeMap::new);
    }

    fn clear(&mut self, group: u32) {
        let values = std::mem::take(&mut self.groups[group as usize]);
        self.entries -= values.len();
        self.heap -= values.keys().map(O::heap).sum::<usize>();
    }

    fn keep(&mut self, groups: &[u32], renamed: &[u32]) {
        let mut all = std::mem::take(&mut self.groups);
        self.groups = groups.iter().map(|g| std::mem::take(&mut all[*g as usize])).collect();
        let gone: usize = all.iter().map(BTreeMap::len).sum();
        self.entries -= gone;
        self.heap -= all.iter().flat_map(BTreeMap::keys).map(O::heap).sum::<usize>();
        for (group, _) in &mut self.changed {
            *group = renamed[*group as usize];
        }
    }

    fn update(&mut self, rows: Rows<'_>, column: &ArrayRef) {
        let order = self.order.view(column);
        rows.for_each(column.nulls(), |row, group, diff| self.add(group, O::get(&order, row), diff));
    }

    fn extremes(&self, groups: &[u32], greatest: bool) -> Result<ArrayRef, OperatorError> {
        self.order.column(groups.iter().map(|group| self.extreme(*group, greatest)))
    }

    fn take_changed(&mut self) -> Result<ChangedValues, OperatorError> {
        let mut changed = std::mem::take(&mut self.changed);
        let mut counts = Vec::with_capacity(changed.len());
        changed.retain(|(group, key)| {
            let entry = self.groups[*group as usize].get_mut(std::borrow::Borrow::<O::Ref>::borrow(key));
            let count = match entry {
                None => Some(0),
                // It went and came back: it was here before.
                Some(entry) if !entry.listed => None,
                Some(entry) => {
                    entry.listed = false;
                    Some(entry.count)
                }
            };
            counts.extend(count);
            count.is_some()
        });
        let values =
            self.order.column(changed.iter().map(|(_, key)| Some(std::borrow::Borrow::borrow(key))))?;
        Ok(ChangedValues { groups: changed.iter().map(|(group, _)| *group).collect(), values, counts })
    }

    fn load(&mut self, groups: &[u32], values: &ArrayRef, counts: &[i64]) {
        let order = self.order.view(values);
        for (row, group) in groups.iter().enumerate() {
            let key = O::own(O::get(&order, row));
            self.entries += 1;
            self.heap += O::heap(&key);
            self.groups[*group as usize].insert(key, Entry { count: counts[row], listed: false });
        }
    }

    fn memory(&self) -> usize {
        let entry = size_of::<O::Key>() + size_of::<Entry>();
        // A B-tree's nodes are about two thirds full.
        self.entries * entry * 3 / 2
            + self.heap
            + self.groups.capacity() * size_of::<BTreeMap<O::Key, Entry>>()
            + self.changed.capacity() * size_of::<(u32, O::Key)>()
    }
}
