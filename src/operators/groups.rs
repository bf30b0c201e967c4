//! Groups: from key columns to dense numbers, and back.
//!
//! A key gets the least free number; accumulators are columns indexed by it. Keys whose columns
//! all fit in a word (integers, dates, times, floats, booleans) are kept as words:
//!
//! ```text
//!   words   │ column 0 │ column 1 │ … │ NULL mask │     one such row a group
//!   bytes   arrow-row's encoding, in an arena          for everything else
//! ```
//! The hash is that of [`crate::stream::vnode`], computed once for the table and the placement.
//! Equal is as GROUP BY means it: NULL equals NULL, -0.0 equals 0.0, NaN equals NaN.

use crate::dataflow::operator::OperatorError;
use crate::stream::Vnode;
use crate::stream::vnode::hash_columns;
use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use hashbrown::HashTable;

use super::accumulator::kept;
use super::group_keys::{ByteKeys, CopiedKeys, WordKeys};

/// What [`Groups::find`] gives for a key that has no group.
pub const NO_GROUP: u32 = u32::MAX;

/// Scratch space of lookups, kept between batches.
#[derive(Debug, Default)]
pub struct Lookup {
    /// The group of each row.
    pub groups: Vec<u32>,
    /// The hash of each row's key.
    pub hashes: Vec<u64>,
}

/// A set of keys, numbered.
pub struct Groups {
    keys: Keys,

    table: HashTable<u32>,
    /// By group, also for those that are free.
    hashes: Vec<u64>,
    free: Vec<u32>,
}

enum Keys {
    /// No key columns: one group, number 0.
    None,
    Words(WordKeys),
    Bytes(ByteKeys),
}

/// The hash as the table takes it: the top bits choose the vnode, so all keys of an actor share
/// some of them, and the table's tags must come from others.
#[inline]
fn table_hash(hash: u64) -> u64 {
    hash.rotate_left(8)
}

impl Groups {
    /// For key columns of `types`; none means one group, which always exists.
    pub fn new(types: &[DataType]) -> Result<Self, OperatorError> {
        let keys = if types.is_empty() {
            Keys::None
        } else if WordKeys::supports(types) {
            Keys::Words(WordKeys::new(types))
        } else {
            Keys::Bytes(ByteKeys::new(types)?)
        };
        let hashes = if types.is_empty() { vec![0] } else { Vec::new() };
        Ok(Self { keys, table: HashTable::new(), hashes, free: Vec::new() })
    }

    /// One more than the greatest number ever given.
    pub fn slots(&self) -> usize {
        self.hashes.len()
    }

    /// How many groups there are.
    pub fn len(&self) -> usize {
        self.hashes.len() - self.free.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The group of each row's key, which is made if there is none.
    pub fn find_or_insert(
        &mut self,
        columns: &[ArrayRef],
        rows: usize,
        lookup: &mut Lookup,
    ) -> Result<(), OperatorError> {
        lookup.groups.clear();
        if matches!(self.keys, Keys::None) {
            lookup.groups.resize(rows, 0);
            return Ok(());
        }
        hash_columns(columns, rows, &mut lookup.hashes);
        lookup.groups.reserve(rows);
        let Self { keys, table, hashes, free } = self;
        let mut slots = Slots { table, hashes, free };
        match keys {
            Keys::None => {}
            Keys::Words(keys) => keys.find_or_insert(columns, &mut slots, lookup),
            Keys::Bytes(keys) => keys.find_or_insert(columns, &mut slots, lookup)?,
        }
        Ok(())
    }

    /// The group of each row's key, or [`NO_GROUP`].
    pub fn find(&self, columns: &[ArrayRef], rows: usize, lookup: &mut Lookup) -> Result<(), OperatorError> {
        lookup.groups.clear();
        if matches!(self.keys, Keys::None) {
            lookup.groups.resize(rows, 0);
            return Ok(());
        }
        hash_columns(columns, rows, &mut lookup.hashes);
        match &self.keys {
            Keys::None => {}
            Keys::Words(keys) => keys.find(columns, &self.table, lookup),
            Keys::Bytes(keys) => keys.find(columns, &self.table, lookup)?,
        }
        Ok(())
    }

    /// The key columns of `groups`.
    pub fn keys(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        Ok(self.copied(groups).columns(0..groups.len())?)
    }

    /// The keys of `groups`, to be made columns of later.
    pub(super) fn copied(&self, groups: &[u32]) -> CopiedKeys {
        match &self.keys {
            Keys::None => CopiedKeys::None,
            Keys::Words(keys) => keys.copied(groups),
            Keys::Bytes(keys) => keys.copied(groups),
        }
    }

    /// Where the group's key is placed.
    pub fn vnode(&self, group: u32) -> Vnode {
        match self.keys {
            Keys::None => Vnode::SINGLE,
            _ => Vnode::of_hash(self.hashes[group as usize]),
        }
    }

    /// Forgets a group's key; its number will be given again. The group without key stays.
    pub fn remove(&mut self, group: u32) {
        if matches!(self.keys, Keys::None) {
            return;
        }
        let hash = table_hash(self.hashes[group as usize]);
        if let Ok(entry) = self.table.find_entry(hash, |g| *g == group) {
            entry.remove();
            self.free.push(group);
            if let Keys::Bytes(keys) = &mut self.keys {
                keys.remove(group);
            }
        }
    }

    /// Keeps only these groups, which become 0, 1, … in this order, and gives memory back.
    pub fn keep(&mut self, groups: &[u32]) {
        match &mut self.keys {
            Keys::None => return,
            Keys::Words(keys) => keys.keep(groups),
            Keys::Bytes(keys) => keys.keep(groups),
        }
        self.hashes = kept(&self.hashes, groups);
        self.free = Vec::new();
        self.table = HashTable::with_capacity(groups.len());
        let hashes = &self.hashes;
        for (group, hash) in hashes.iter().enumerate() {
            self.table.insert_unique(table_hash(*hash), group as u32, |g| table_hash(hashes[*g as usize]));
        }
    }

    /// The groups there are, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        let mut all: Vec<u32> = match self.keys {
            Keys::None => vec![0],
            _ => self.table.iter().copied().collect(),
        };
        all.sort_unstable();
        all.into_iter()
    }

    /// Bytes held, roughly.
    pub fn memory(&self) -> usize {
        let keys = match &self.keys {
            Keys::None => 0,
            Keys::Words(keys) => keys.memory(),
            Keys::Bytes(keys) => keys.memory(),
        };
        keys + self.table.allocation_size() + self.hashes.capacity() * 8 + self.free.capacity() * 4
    }
}

impl std::fmt::Debug for Groups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Groups").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// The parts of [`Groups`] that both kinds of keys work on.
pub(super) struct Slots<'a> {
    table: &'a mut HashTable<u32>,
    hashes: &'a mut Vec<u64>,
    free: &'a mut Vec<u32>,
}

impl Slots<'_> {
    /// The group with this hash for which `equal` holds.
    #[inline]
    pub fn find(&self, hash: u64, equal: impl Fn(u32) -> bool) -> Option<u32> {
        find(self.table, hash, equal)
    }

    /// A number for a key that has none; whether it is beyond all others.
    pub fn insert(&mut self, hash: u64) -> (u32, bool) {
        let reused = self.free.pop();
        let group = reused.unwrap_or(self.hashes.len() as u32);
        match reused {
            Some(group) => self.hashes[group as usize] = hash,
            None => self.hashes.push(hash),
        }
        assert!(group != NO_GROUP, "an actor holds fewer than 2^32 - 1 groups");
        let hashes = &*self.hashes;
        self.table.insert_unique(table_hash(hash), group, |g| table_hash(hashes[*g as usize]));
        (group, reused.is_none())
    }
}

/// The group in `table` with this hash for which `equal` holds.
#[inline]
pub(super) fn find(table: &HashTable<u32>, hash: u64, equal: impl Fn(u32) -> bool) -> Option<u32> {
    table.find(table_hash(hash), |g| equal(*g)).copied()
}

#[cfg(test)]
#[path = "tests/groups.rs"]
mod tests;
