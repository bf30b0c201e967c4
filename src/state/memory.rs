//! The reference store: an ordered map, copied for each snapshot. For tests, and as the oracle of
//! the store that counts.

use super::StateError;
use super::store::{StateRead, WriteOp, WriteRun, is_absent};
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use weir_catalog::TableId;

/// A store in memory, and a snapshot of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryStore {
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies the writes of `run`, in order.
    pub fn apply(&mut self, run: &WriteRun) {
        for (op, key, value) in run.iter() {
            match op {
                WriteOp::Put => {
                    self.entries.insert(key.to_vec(), value.to_vec());
                }
                WriteOp::Delete => {
                    self.entries.remove(key);
                }
                WriteOp::AddCount => {
                    let sum = self.entries.entry(key.to_vec()).or_insert_with(|| vec![0; 8]);
                    *sum = (count(sum).wrapping_add(count(value))).to_le_bytes().to_vec();
                }
            }
        }
    }

    /// Removes all of `table`.
    pub fn drop_table(&mut self, table: TableId) {
        self.entries.retain(|key, _| !key.starts_with(&table.0.to_be_bytes()));
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

impl StateRead for MemoryStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StateError> {
        Ok(self.entries.get(key).filter(|v| !is_absent(v)).cloned())
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, StateError> {
        keys.iter().map(|key| self.get(key)).collect()
    }

    fn scan(
        &self,
        lower: &[u8],
        upper: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StateError> {
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
