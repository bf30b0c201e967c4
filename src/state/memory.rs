//! The reference store: an ordered map, copied when it is written while a snapshot of it lives.
//! For tests and small state, and the oracle of the store that counts.
//!
//! ```text
//!   checkpoint  a file of entries: key length (u32, little endian) │ key │ value length │ value
//! ```

use super::StateError;
use super::durable::{sync_dir, sync_file};
use super::store::{StateRead, StateStore, Visit, WriteOp, WriteRun, is_absent};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use weir_catalog::TableId;

/// The name of the file in a checkpoint's directory. Like RocksDB's it names immutable state.
const FILE: &str = "memory.sst";

/// A store in memory, and a snapshot of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryStore {
    entries: Arc<BTreeMap<Vec<u8>, Vec<u8>>>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies the writes of `run`, in order; ranges go last.
    pub fn apply(&mut self, run: &WriteRun) {
        self.write(run);
        self.remove_ranges(run);
    }

    fn remove_ranges(&mut self, run: &WriteRun) {
        let entries = Arc::make_mut(&mut self.entries);
        for (_, lower, upper) in run.iter().filter(|(op, ..)| *op == WriteOp::DeleteRange) {
            entries.retain(|key, _| !(lower..upper).contains(&key.as_slice()));
        }
    }

    fn write(&mut self, run: &WriteRun) {
        let entries = Arc::make_mut(&mut self.entries);
        for (op, key, value) in run.iter() {
            match op {
                WriteOp::Put => {
                    entries.insert(key.to_vec(), value.to_vec());
                }
                WriteOp::Delete => {
                    entries.remove(key);
                }
                WriteOp::AddCount => {
                    let sum = entries.entry(key.to_vec()).or_insert_with(|| vec![0; 8]);
                    *sum = (count(sum).wrapping_add(count(value))).to_le_bytes().to_vec();
                }
                WriteOp::DeleteRange => {}
            }
        }
    }

    /// Removes all of `table`.
    pub fn drop_table(&mut self, table: TableId) {
        Arc::make_mut(&mut self.entries).retain(|key, _| !key.starts_with(&table.0.to_be_bytes()));
    }

    /// The store that `checkpoint` holds.
    pub fn restore(checkpoint: &Path) -> Result<Self, StateError> {
        let bytes = std::fs::read(checkpoint.join(FILE))?;
        let mut rest = bytes.as_slice();
        let mut take = || -> Option<Vec<u8>> {
            let (length, after) = rest.split_at_checked(4)?;
            let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
            let (piece, after) = after.split_at_checked(length)?;
            rest = after;
            Some(piece.to_vec())
        };
        let mut entries = BTreeMap::new();
        while let Some(key) = take() {
            let value = take().ok_or_else(|| StateError::Store(format!("{FILE} ends early")))?;
            entries.insert(key, value);
        }
        if rest.is_empty() {
            Ok(Self { entries: Arc::new(entries) })
        } else {
            Err(StateError::Store(format!("{FILE} ends early")))
        }
    }

    /// How many keys it has.
    pub fn len(&self) -> usize {
        self.entries.values().filter(|v| !is_absent(v)).count()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn count(bytes: &[u8]) -> i64 {
    bytes.try_into().map_or(0, i64::from_le_bytes)
}

impl StateStore for MemoryStore {
    fn apply(&mut self, run: &WriteRun) -> Result<(), StateError> {
        MemoryStore::apply(self, run);
        Ok(())
    }

    fn apply_all(&mut self, runs: &[WriteRun]) -> Result<(), StateError> {
        runs.iter().for_each(|run| self.write(run));
        runs.iter().for_each(|run| self.remove_ranges(run));
        Ok(())
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
        let mut out = BufWriter::new(File::create_new(dir.join(FILE))?);
        for (key, value) in self.entries.iter().filter(|(_, v)| !is_absent(v)) {
            for piece in [key, value] {
                out.write_all(&(piece.len() as u32).to_le_bytes())?;
                out.write_all(piece)?;
            }
        }
        let file = out.into_inner().map_err(|e| e.into_error())?;
        sync_file(&file)?;
        Ok(sync_dir(dir)?)
    }
}

impl StateRead for MemoryStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StateError> {
        Ok(self.entries.get(key).filter(|v| !is_absent(v)).cloned())
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, StateError> {
        keys.iter().map(|key| self.get(key)).collect()
    }

    fn scan(&self, lower: &[u8], upper: &[u8], visit: Visit<'_>) -> Result<(), StateError> {
        if lower >= upper {
            return Ok(());
        }
        let range = (Bound::Included(lower), Bound::Excluded(upper));
        for (key, value) in self.entries.range::<[u8], _>(range).filter(|(_, v)| !is_absent(v)) {
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
