//! Logged but not yet visible changes, as DML and its reader see them.
//!
//! ```text
//!   rows of the snapshot ── merge ──> less what was deleted or replaced  ┐
//!   transactions after it ──────────> what they inserted                 ┴─> the table as it will be
//! ```
//! A keyed table's net effect is the last row (or none) of each key that changed; a table without
//! key has a count that is added to each row that changed.

use super::log::Transaction;
use crate::state::StateError;
use crate::state::table::{Rows, TableLayout};
use crate::stream::ChangeBatch;
use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::{filter_record_batch, interleave_record_batch};
use std::collections::HashMap;
use std::sync::Arc;
use weir_catalog::ObjectId;

/// Where a row of the overlay is.
type RowAt = (usize, usize);

/// The net effect of transactions on one table.
#[derive(Debug)]
pub struct Overlay {
    layout: Arc<TableLayout>,
    batches: Vec<RecordBatch>,
    /// Keyed tables: the row that each changed key has now, if any.
    rows: HashMap<Vec<u8>, Option<RowAt>>,
    /// Tables without key: how much more often each changed row occurs.
    counts: HashMap<Vec<u8>, (i64, RowAt)>,
}

impl Overlay {
    /// Of `transactions`, in order, on the table of `layout`.
    pub fn new(layout: Arc<TableLayout>, transactions: &[Arc<Transaction>]) -> Self {
        let table = ObjectId(layout.id.0);
        let mut overlay = Self { layout, batches: Vec::new(), rows: HashMap::new(), counts: HashMap::new() };
        for transaction in transactions {
            let own = transaction.changes.iter().filter(|(id, _)| *id == table).map(|(_, batch)| batch);
            overlay.apply(own);
        }
        overlay
    }

    /// Adds one more transaction, or one more statement of an open one: consolidated changes.
    pub fn apply<'a>(&mut self, changes: impl Iterator<Item = &'a ChangeBatch>) {
        let changes: Vec<_> = changes.filter(|batch| !batch.is_empty()).collect();
        let keys: Vec<_> = changes.iter().map(|batch| self.layout.keys(batch.rows())).collect();
        // An update is a deletion and an insertion of one key, in any order: deletions first.
        for sign in [-1, 1] {
            for (index, (batch, keys)) in changes.iter().zip(&keys).enumerate() {
                for row in (0..batch.num_rows()).filter(|row| batch.diff(*row).signum() == sign) {
                    let at = (self.batches.len() + index, row);
                    if self.layout.counted {
                        self.counts.entry(keys.get(row).to_vec()).or_insert((0, at)).0 += batch.diff(row);
                    } else {
                        self.rows.insert(keys.get(row).to_vec(), (sign > 0).then_some(at));
                    }
                }
            }
        }
        self.batches.extend(changes.iter().map(|batch| batch.rows().clone()));
    }

    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.counts.is_empty()
    }

    /// What became of a key of a keyed table (vnode and key columns, as the layout encodes it):
    /// nothing, if the snapshot's row counts; else the row that it has now, or none.
    pub fn row(&self, key: &[u8]) -> Option<Option<RecordBatch>> {
        let row = self.rows.get(key)?;
        Some(row.map(|(batch, row)| self.batches[batch].slice(row, 1)))
    }

    /// Rows of the snapshot, any part of it, less what was deleted or replaced. The rest of the
    /// table as it is now is [`Overlay::inserted_rows`].
    pub fn merge(&self, rows: Rows) -> Result<Rows, StateError> {
        if self.is_empty() {
            return Ok(rows);
        }
        let keys = self.layout.keys(&rows.rows);
        let (keep, counts): (Vec<bool>, Option<Vec<i64>>) = match rows.counts {
            None => (keys.iter().map(|key| !self.rows.contains_key(key)).collect(), None),
            Some(counts) => {
                // What was added shows among the inserted rows.
                let gone = |key: &[u8]| self.counts.get(key).map_or(0, |(delta, _)| (*delta).min(0));
                let counts: Vec<i64> = counts.iter().zip(keys.iter()).map(|(c, key)| c + gone(key)).collect();
                (
                    counts.iter().map(|c| *c != 0).collect(),
                    Some(counts.into_iter().filter(|c| *c != 0).collect()),
                )
            }
        };
        let rows = filter_record_batch(&rows.rows, &BooleanArray::from(keep)).map_err(compute)?;
        Ok(Rows { rows, counts })
    }

    /// The rows that were added and are still there, in order of key.
    pub fn inserted_rows(&self) -> Result<Rows, StateError> {
        let mut added: Vec<(&Vec<u8>, RowAt, i64)> = match self.layout.counted {
            false => self.rows.iter().filter_map(|(key, at)| Some((key, (*at)?, 1))).collect(),
            true => {
                self.counts.iter().filter(|(_, (c, _))| *c > 0).map(|(k, (c, at))| (k, *at, *c)).collect()
            }
        };
        added.sort_unstable();
        let indices: Vec<RowAt> = added.iter().map(|(_, at, _)| *at).collect();
        let rows = match indices.is_empty() {
            true => RecordBatch::new_empty(self.layout.schema.clone()),
            false => interleave_record_batch(&self.batches.iter().collect::<Vec<_>>(), &indices)
                .map_err(compute)?,
        };
        let counts = self.layout.counted.then(|| added.iter().map(|(_, _, count)| *count).collect());
        Ok(Rows { rows, counts })
    }
}

fn compute(error: arrow::error::ArrowError) -> StateError {
    StateError::Decode(error.to_string())
}

#[cfg(test)]
#[path = "tests/overlay.rs"]
mod tests;
