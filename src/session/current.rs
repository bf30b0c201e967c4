//! The rows that a table has now, by key: a snapshot's, then what is pending on top.

use super::SessionError;
use super::changes::{Target, each};
use super::rows::internal;
use super::transaction::View;
use crate::serve::{Overlay, ServeError};
use crate::state::key::EncodedKeys;
use crate::state::rows::Found;
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

    /// The rows of `keys` in `view`. Reads the state store: call it where blocking is allowed.
    pub fn read(target: &Target, view: &View, keys: &EncodedKeys) -> Result<Self, SessionError> {
        let mut wanted: Vec<&[u8]> = each(keys).map(|(_, key)| key).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let found = target.layout.get_rows(view.at.visible.state.as_ref(), wanted.iter().copied());
        let found = found.map_err(ServeError::from)?;
        let pending = view.pending.changes(target.id);
        if target.is_keyed() {
            Self::keyed(target, &wanted, found, &pending)
        } else {
            Ok(Self::counted(target, &wanted, &found, &pending))
        }
    }

    fn keyed(
        target: &Target,
        wanted: &[&[u8]],
        found: Found,
        pending: &[ChangeBatch],
    ) -> Result<Self, SessionError> {
        let place = found.indices.iter().enumerate();
        let mut at: HashMap<Vec<u8>, u32> = place.map(|(row, i)| (wanted[*i].to_vec(), row as u32)).collect();
        let mut first = found.rows.rows.num_rows() as u32;
        let mut batches = vec![found.rows.rows];
        for batch in pending {
            let keys = target.keys(batch.rows());
            // Within one transaction a key's old row goes before its new row comes.
            for sign in [-1, 1] {
                let of_sign = each(&keys).filter(|(row, _)| batch.diff(*row).signum() == sign);
                for (row, key) in of_sign.filter(|(_, key)| wanted.binary_search(key).is_ok()) {
                    if sign < 0 {
                        at.remove(key);
                    } else {
                        at.insert(key.to_vec(), first + row as u32);
                    }
                }
            }
            first += batch.num_rows() as u32;
            batches.push(batch.rows().clone());
        }
        let rows = concat_batches(target.schema(), &batches).map_err(internal)?;
        Ok(Self { rows, at, counts: HashMap::new() })
    }

    fn counted(target: &Target, wanted: &[&[u8]], found: &Found, pending: &[ChangeBatch]) -> Self {
        let mut counts: HashMap<Vec<u8>, i64> = wanted.iter().map(|key| (key.to_vec(), 0)).collect();
        for (row, i) in found.indices.iter().enumerate() {
            counts.insert(wanted[*i].to_vec(), found.rows.counts.as_ref().map_or(1, |counts| counts[row]));
        }
        for batch in pending {
            for (row, key) in each(&target.keys(batch.rows())) {
                if let Some(count) = counts.get_mut(key) {
                    *count += batch.diff(row);
                }
            }
        }
        Self { counts, ..Self::none(target) }
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
