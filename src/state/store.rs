//! StateStore: bytes by table and vnode, sealed by epoch.
//!
//! ```text
//!   key    = table id (u32, big endian) │ vnode (u8) │ encoded key        see key.rs
//!   value  = encoded row, versioned                                      see value.rs
//!          | count (i64, little endian)  in tables of counted rows; eight zero bytes are no row
//! ```
//! Writes of an epoch come as [`WriteRun`]s, are applied in epoch order by one thread
//! ([`super::apply`]) and become readable as a published snapshot ([`StateRead`]) that is exactly
//! one epoch. Nobody else writes.

use super::StateError;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use weir_catalog::TableId;

/// What a write does to its key. **Invariant:** a key is either put and deleted, or only counted;
/// a put value is never eight zero bytes; what a range removes is not written later in its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOp {
    /// Sets the value.
    Put,
    /// Removes the key.
    Delete,
    /// Adds the value, an i64 (little endian), to the count that the key has; a count of zero
    /// counts as absent.
    AddCount,
    /// Removes all keys from the key on, up to the full key that is the value, which stays. It
    /// holds against every write of its epoch, wherever it stands among them.
    DeleteRange,
}

/// Writes to one table in the order in which they were made; a later one of a key wins.
#[derive(Clone, Debug)]
pub struct WriteRun {
    table: TableId,
    data: Vec<u8>,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    end_of_key: u32,
    end_of_value: u32,
    op: WriteOp,
}

impl WriteRun {
    /// An empty run for `table`.
    pub fn new(table: TableId) -> Self {
        Self { table, data: Vec::new(), entries: Vec::new() }
    }

    /// The table written to.
    pub fn table(&self) -> TableId {
        self.table
    }

    /// How many writes it holds.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of keys and values.
    pub fn content_bytes(&self) -> usize {
        self.data.len()
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.data.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    /// Whether its writes take `bytes`, whatever memory is reserved for more.
    pub fn is_full(&self, bytes: usize) -> bool {
        self.data.len() + self.entries.len() * size_of::<Entry>() >= bytes
    }

    /// Makes room for `bytes` bytes of keys and values in all.
    pub fn reserve(&mut self, bytes: usize) {
        self.data.reserve_exact(bytes.saturating_sub(self.data.len()));
    }

    /// Adds a write. `key` is the vnode byte and the encoded key; `value` is ignored by Delete.
    pub fn write(&mut self, op: WriteOp, key: &[u8], value: &[u8]) {
        self.write_with(op, |data| data.extend_from_slice(key), |data| data.extend_from_slice(value));
    }

    /// Adds the removal of the keys in `lower..upper`, which are vnode bytes and encoded keys.
    pub fn delete_range(&mut self, lower: &[u8], upper: &[u8]) {
        let upper = full_key(self.table, upper);
        self.write(WriteOp::DeleteRange, lower, &upper);
    }

    /// Adds a write whose key and value are appended in place by the two closures.
    pub fn write_with(
        &mut self,
        op: WriteOp,
        key: impl FnOnce(&mut Vec<u8>),
        value: impl FnOnce(&mut Vec<u8>),
    ) {
        self.data.extend_from_slice(&self.table.0.to_be_bytes());
        key(&mut self.data);
        let end_of_key = self.data.len();
        if op != WriteOp::Delete {
            value(&mut self.data);
        }
        assert!(self.data.len() <= u32::MAX as usize, "a run is sealed before it reaches 4 GiB");
        self.entries.push(Entry { end_of_key: end_of_key as u32, end_of_value: self.data.len() as u32, op });
    }

    /// The writes: op, full key (with table id), value.
    pub fn iter(&self) -> impl Iterator<Item = (WriteOp, &[u8], &[u8])> {
        (0..self.entries.len()).map(|index| self.get(index))
    }

    /// Write number `index`: op, full key (with table id), value.
    pub fn get(&self, index: usize) -> (WriteOp, &[u8], &[u8]) {
        let entry = self.entries[index];
        let start = index.checked_sub(1).map_or(0, |before| self.entries[before].end_of_value as usize);
        let (end_of_key, end) = (entry.end_of_key as usize, entry.end_of_value as usize);
        (entry.op, &self.data[start..end_of_key], &self.data[end_of_key..end])
    }

    /// Empties the run, for writes to `table` into the same memory.
    pub fn reset(&mut self, table: TableId) {
        self.table = table;
        self.data.clear();
        self.entries.clear();
    }

    /// Takes the run, leaving an empty one for the same table.
    pub fn take(&mut self) -> WriteRun {
        std::mem::replace(self, WriteRun::new(self.table))
    }
}

/// Bytes that a store has written to its files since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WrittenBytes {
    /// For what was applied.
    pub applied: u64,
    /// For merging files that were written before.
    pub merged: u64,
}

/// Where state is written. Only [`super::apply`]'s thread does.
///
/// A store must: 1. apply writes in their order; 2. give snapshots that no later write changes and
/// that outlive it; 3. put into a checkpoint all that was applied before, durably, and nothing
/// that is applied later; 4. hide from readers what is absent ([`is_absent`]).
pub trait StateStore: Send {
    /// Applies the writes of `run`, in order.
    fn apply(&mut self, run: &WriteRun) -> Result<(), StateError>;

    /// Applies many runs, in order. A store that has a faster way for many writes takes it here.
    fn apply_all(&mut self, runs: &[WriteRun]) -> Result<(), StateError> {
        runs.iter().try_for_each(|run| self.apply(run))
    }

    /// Removes all of `table`.
    fn drop_table(&mut self, table: TableId) -> Result<(), StateError>;

    /// What it holds now.
    fn snapshot(&self) -> Arc<dyn StateRead>;

    /// Makes the directory `dir`, which does not exist, hold what the store holds now.
    fn checkpoint(&self, dir: &Path) -> Result<(), StateError>;

    /// What it has written so far. A store without files of its own has nothing to tell.
    fn written(&self) -> WrittenBytes {
        WrittenBytes::default()
    }
}

/// What a scan calls with each key and value, until it breaks.
pub type Visit<'a> = &'a mut (dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a);

/// What [`StateRead::scan_prefixes`] calls with the number of a prefix, a key and its value.
pub type VisitPrefix<'a> = &'a mut (dyn FnMut(usize, &[u8], &[u8]) + 'a);

/// An immutable view of the state at one epoch.
pub trait StateRead: Send + Sync {
    /// The value of a full key.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StateError>;

    /// The values of full keys, in their order. Sorted keys are faster.
    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, StateError>;

    /// Calls `visit` with each key in `[lower, upper)`, in order, until it breaks. Counted rows
    /// whose count is zero are left out.
    fn scan(&self, lower: &[u8], upper: &[u8], visit: Visit<'_>) -> Result<(), StateError>;

    /// Calls `visit` with every key that starts with one of `prefixes`, and the number of that
    /// prefix. Sorted prefixes are faster.
    fn scan_prefixes(&self, prefixes: &[Vec<u8>], visit: VisitPrefix<'_>) -> Result<(), StateError> {
        prefixes.iter().enumerate().try_for_each(|(number, prefix)| {
            self.scan(prefix, &prefix_end(prefix), &mut |key, value| {
                visit(number, key, value);
                ControlFlow::Continue(())
            })
        })
    }
}

/// Whether a stored value stands for no row: a count of zero, waiting to be compacted away.
pub fn is_absent(value: &[u8]) -> bool {
    value == [0; 8]
}

/// The full key of `vnode_and_key` in `table`.
pub fn full_key(table: TableId, vnode_and_key: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(4 + vnode_and_key.len());
    key.extend_from_slice(&table.0.to_be_bytes());
    key.extend_from_slice(vnode_and_key);
    key
}

/// The least key above every key that starts with `prefix`.
pub fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.last_mut() {
        if *last < u8::MAX {
            *last += 1;
            return end;
        }
        end.pop();
    }
    vec![u8::MAX; prefix.len() + 1]
}
