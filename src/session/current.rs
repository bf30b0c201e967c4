//! The rows that a table has now, by key: a snapshot's, then what is pending on top.

use super::changes::Target;
use super::rows::internal;
use super::transaction::View;
use super::SessionError;
use crate::serve::Overlay;
use crate::serve::layout::StoredRows;
use crate::stream::ChangeBatch;
use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::error::ArrowError;
use arrow::row::{RowConverter, Rows, SortField};
use std::collections::HashMap;
use std::sync::Arc;

/// The rows of some keys.
#[derive(Debug)]
pub struct CurrentRows {
    rows: RecordBatch,
    /// Keyed tables: full key → row.
    at: HashMap<Vec<u8>, u32>,
    /// Counted tables: full key → how often.
    counts: HashMap<Vec<u8>, i64>,
}

/// Whether rows are the same ones, value for value.
pub struct Comparison {
    ours: Rows,
    theirs: Rows,
}

impl Comparison {
    /// Whether row `ours` of the compared batch is the current row `theirs`.
    pub fn is_same(&self, ours: usize, theirs: u32) -> bool {
        self.ours.row(ours) == self.theirs.row(theirs as usize)
    }
}

impl CurrentRows {
    /// No row of any key.
    pub fn none(target: &Target) -> Self {
        let rows = RecordBatch::new_empty(Arc::clone(target.schema()));
        Self { rows, at: HashMap::new(), counts: HashMap::new() }
    }

    /// The rows of `keys` (full keys) in `view`. Reads the state store: call it where blocking is
    /// allowed.
    pub fn read(target: &Target, view: &View, mut keys: Vec<Vec<u8>>) -> Result<Self, SessionError> {
        keys.sort_unstable();
        keys.dedup();
        let stored = view.at.state.multi_get(&keys).map_err(crate::serve::ServeError::from)?;
        let pending = view.pending.changes(target.id);
        if target.is_keyed() {
            Self::keyed(target, &keys, &stored, &pending)
        } else {
            Self::counted(target, keys, &stored, &pending)
        }
    }

    fn keyed(
        target: &Target,
        keys: &[Vec<u8>],
        stored: &[Option<Vec<u8>>],
        pending: &[ChangeBatch],
    ) -> Result<Self, SessionError> {
        let mut entries = StoredRows::default();
        let mut at: HashMap<Vec<u8>, u32> = HashMap::new();
        for (key, value) in keys.iter().zip(stored) {
            if let Some(value) = value {
                at.insert(key.clone(), entries.len() as u32);
                entries.push(key, value);
            }
        }
        let mut batches = vec![Self::decode(target, &entries)?];
        let mut first = entries.len() as u32;
        for batch in pending {
            let batch_keys = target.keys(batch.rows());
            // Within one transaction a key's old row goes before its new row comes.
            for sign in [-1, 1] {
                for (row, key) in batch_keys.iter().enumerate().filter(|(row, _)| batch.diff(*row).signum() == sign) {
                    if keys.binary_search(key).is_err() {
                        continue;
                    }
                    if sign < 0 {
                        at.remove(key);
                    } else {
                        at.insert(key.clone(), first + row as u32);
                    }
                }
            }
            first += batch.num_rows() as u32;
            batches.push(batch.rows().clone());
        }
        let rows = concat_batches(target.schema(), &batches).map_err(internal)?;
        Ok(Self { rows, at, counts: HashMap::new() })
    }

    fn decode(target: &Target, entries: &StoredRows) -> Result<RecordBatch, SessionError> {
        let wanted = vec![true; target.schema().fields().len()];
        let decoded = target.layout.decode(entries, &wanted).map_err(crate::serve::ServeError::from)?;
        let columns = decoded.columns.into_iter().collect::<Option<Vec<_>>>();
        let columns = columns.ok_or_else(|| internal("a stored row lacks a column"))?;
        RecordBatch::try_new(Arc::clone(target.schema()), columns).map_err(internal)
    }

    fn counted(
        target: &Target,
        keys: Vec<Vec<u8>>,
        stored: &[Option<Vec<u8>>],
        pending: &[ChangeBatch],
    ) -> Result<Self, SessionError> {
        let count = |value: &Option<Vec<u8>>| match value.as_deref().map(<[u8; 8]>::try_from) {
            Some(Ok(bytes)) => i64::from_le_bytes(bytes),
            Some(Err(_)) | None => 0,
        };
        let mut counts: HashMap<Vec<u8>, i64> = keys.into_iter().zip(stored.iter().map(count)).collect();
        for batch in pending {
            for (row, key) in target.keys(batch.rows()).iter().enumerate() {
                if let Some(count) = counts.get_mut(key) {
                    *count += batch.diff(row);
                }
            }
        }
        Ok(Self { counts, ..Self::none(target) })
    }

    /// All rows that were read; [`Self::row_of`] tells which one is a key's.
    pub fn rows(&self) -> &RecordBatch {
        &self.rows
    }

    /// The row of a key, if the table has one.
    pub fn row_of(&self, key: &[u8]) -> Option<u32> {
        self.at.get(key).copied()
    }

    /// How often a counted table has a row.
    pub fn count_of(&self, key: &[u8]) -> i64 {
        self.counts.get(key).copied().unwrap_or(0)
    }

    /// Compares the rows of `ours` with these.
    pub fn comparison(&self, ours: &RecordBatch) -> Result<Comparison, ArrowError> {
        let fields = self.rows.schema_ref().fields().iter();
        let converter = RowConverter::new(fields.map(|f| SortField::new(f.data_type().clone())).collect())?;
        Ok(Comparison {
            ours: converter.convert_columns(ours.columns())?,
            theirs: converter.convert_columns(self.rows.columns())?,
        })
    }
}
