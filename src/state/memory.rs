//! The store in memory: for small state, and the oracle of the store that counts.
//!
//! ```text
//!   the map   a persistent B-tree: a snapshot shares all of it, and a write copies the few nodes on its path
//!   checkpoint/memory.sst    all entries, as entries.rs writes them
//! ```
//! A checkpoint writes everything. What the state may take is bounded: beyond it, writes fail.

use super::StateError;
use super::durable::{sync_dir, sync_file};
use super::entries::{EntryWriter, read_entries};
use super::store::{StateRead, StateStore, Visit, WriteOp, WriteRun, is_absent, prefix_end};
use imbl::OrdMap;
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use weir_catalog::TableId;

/// The name of the file in a checkpoint's directory. Like RocksDB's it names immutable state.
pub const FILE: &str = "memory.sst";

/// Bytes that an entry takes beside its key and value: counters, lengths, its place in a node.
const ENTRY_BYTES: usize = 80;

type Entries = OrdMap<Arc<[u8]>, Arc<[u8]>>;

/// A store in memory, and a snapshot of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryStore {
    bytes_max: usize,

    entries: Entries,
    bytes: usize,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self { bytes_max: usize::MAX, entries: Entries::new(), bytes: 0 }
    }
}

impl MemoryStore {
    /// An empty store, of any size.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store that holds no more than so many bytes.
    pub fn within(bytes_max: usize) -> Self {
        Self::default().limited(bytes_max)
    }

    /// The same, which holds no more than so many bytes from now on.
    #[must_use]
    pub fn limited(self, bytes_max: usize) -> Self {
        Self { bytes_max, ..self }
    }

    /// Applies the writes of `run`, in order; ranges go last.
    pub fn apply(&mut self, run: &WriteRun) {
        self.write(run);
        self.remove_ranges(run);
    }

    fn remove_ranges(&mut self, run: &WriteRun) {
        for (_, lower, upper) in run.iter().filter(|(op, ..)| *op == WriteOp::DeleteRange) {
            self.remove_range(lower, upper);
        }
    }

    fn remove_range(&mut self, lower: &[u8], upper: &[u8]) {
        let keys: Vec<Arc<[u8]>> = self.range(lower, upper).map(|(key, _)| Arc::clone(key)).collect();
        keys.iter().for_each(|key| self.remove(key));
    }

    fn range<'a>(
        &'a self,
        lower: &'a [u8],
        upper: &'a [u8],
    ) -> impl Iterator<Item = (&'a Arc<[u8]>, &'a Arc<[u8]>)> {
        // A range that ends before it begins has nothing.
        let upper = upper.max(lower);
        self.entries.range::<_, [u8]>((Bound::Included(lower), Bound::Excluded(upper)))
    }

    fn write(&mut self, run: &WriteRun) {
        for (op, key, value) in run.iter() {
            match op {
                WriteOp::Put => self.put(key, value),
                WriteOp::Delete => self.remove(key),
                WriteOp::AddCount => {
                    let before = self.entries.get(key).map_or(0, |sum| count(sum));
                    match before.wrapping_add(count(value)) {
                        0 => self.remove(key),
                        sum => self.put(key, &sum.to_le_bytes()),
                    }
                }
                WriteOp::DeleteRange => {}
            }
        }
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.bytes += value.len();
        match self.entries.get_mut(key) {
            Some(old) => {
                self.bytes -= old.len();
                *old = value.into();
            }
            None => {
                self.bytes += key.len() + ENTRY_BYTES;
                self.entries.insert(key.into(), value.into());
            }
        }
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(old) = self.entries.remove(key) {
            self.bytes -= key.len() + old.len() + ENTRY_BYTES;
        }
    }

    /// Removes all of `table`.
    pub fn drop_table(&mut self, table: TableId) {
        let prefix = table.0.to_be_bytes();
        self.remove_range(&prefix, &prefix_end(&prefix));
    }

    /// The store that `checkpoint` holds.
    pub fn restore(checkpoint: &Path) -> Result<Self, StateError> {
        let mut store = Self::new();
        let file = BufReader::with_capacity(1 << 20, File::open(checkpoint.join(FILE))?);
        read_entries(file, &mut |key, value| {
            store.put(key, value);
            Ok(())
        })?;
        Ok(store)
    }

    /// How many keys it has.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn require_room(&self) -> Result<(), StateError> {
        if self.bytes <= self.bytes_max {
            return Ok(());
        }
        Err(StateError::Store(format!(
            "state of {} bytes is more than the {} bytes that memory.limit leaves for state.backend = 'memory'; \
             raise memory.limit, or move to state.backend = 'rocksdb' by a savepoint",
            self.bytes, self.bytes_max
        )))
    }
}

fn count(bytes: &[u8]) -> i64 {
    bytes.try_into().map_or(0, i64::from_le_bytes)
}

impl StateStore for MemoryStore {
    fn apply(&mut self, run: &WriteRun) -> Result<(), StateError> {
        MemoryStore::apply(self, run);
        self.require_room()
    }

    fn apply_all(&mut self, runs: &[WriteRun]) -> Result<(), StateError> {
        runs.iter().for_each(|run| self.write(run));
        runs.iter().for_each(|run| self.remove_ranges(run));
        self.require_room()
    }

    fn drop_table(&mut self, table: TableId) -> Result<(), StateError> {
        MemoryStore::drop_table(self, table);
        Ok(())
    }

    fn snapshot(&self) -> Arc<dyn StateRead> {
        Arc::new(self.clone())
    }

    fn checkpoint(&self, dir: &Path) -> Result<(), StateError> {
        std::fs::create_dir(dir)?;
        let file = BufWriter::with_capacity(1 << 20, File::create_new(dir.join(FILE))?);
        let mut writer = EntryWriter::new(file)?;
        for (key, value) in &self.entries {
            writer.write(key, value)?;
        }
        let file = writer.finish()?.into_inner().map_err(|e| e.into_error())?;
        sync_file(&file)?;
        Ok(sync_dir(dir)?)
    }
}

impl StateRead for MemoryStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StateError> {
        Ok(self.entries.get(key).filter(|v| !is_absent(v)).map(|v| v.to_vec()))
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, StateError> {
        keys.iter().map(|key| self.get(key)).collect()
    }

    fn scan(&self, lower: &[u8], upper: &[u8], visit: Visit<'_>) -> Result<(), StateError> {
        for (key, value) in self.range(lower, upper).filter(|(_, v)| !is_absent(v)) {
            if visit(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "tests/memory.rs"]
mod tests;
