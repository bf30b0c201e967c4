//! Changes on top of a snapshot, as one reader sees them: deletions take rows out of the scan,
//! insertions follow it.

use super::layout::RowLayout;
use crate::stream::ChangeBatch;
use arrow::array::{ArrayRef, Int64Array, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::error::ArrowError;
use arrow::row::{OwnedRow, RowConverter, SortField};
use std::collections::HashMap;
use std::sync::Arc;

/// The net changes of one relation.
pub struct OverlayRows {
    fields: Vec<SortField>,
    deletions: HashMap<OwnedRow, i64>,
    insertions: RecordBatch,
}

impl OverlayRows {
    /// Sums up `changes` (whole rows of `layout`'s relation); `None` if they cancel out.
    pub fn new(layout: &RowLayout, changes: &[ChangeBatch]) -> Result<Option<Self>, ArrowError> {
        let schema = &layout.schema;
        let fields: Vec<SortField> =
            schema.fields().iter().map(|f| SortField::new(f.data_type().clone())).collect();
        let converter = RowConverter::new(fields.clone())?;
        let batches: Vec<&RecordBatch> = changes.iter().map(ChangeBatch::rows).collect();
        let all =
            concat_batches(&batches.first().map_or_else(|| Arc::clone(schema), |b| b.schema()), batches)?;
        let rows = converter.convert_columns(all.columns())?;
        let diffs = changes.iter().flat_map(|c| (0..c.num_rows()).map(|row| c.diff(row)));
        let mut net: HashMap<OwnedRow, (u32, i64)> = HashMap::new();
        for (row, diff) in diffs.enumerate() {
            net.entry(rows.row(row).owned()).or_insert((row as u32, 0)).1 += diff;
        }
        let mut inserted: Vec<u32> = Vec::new();
        let mut deletions = HashMap::new();
        for (key, (row, diff)) in net {
            match diff {
                1.. => inserted.extend(std::iter::repeat_n(row, diff as usize)),
                0 => {}
                _ => drop(deletions.insert(key, -diff)),
            }
        }
        if inserted.is_empty() && deletions.is_empty() {
            return Ok(None);
        }
        inserted.sort_unstable();
        let insertions = take_record_batch(&all, &UInt32Array::from(inserted))?;
        Ok(Some(Self { fields, deletions, insertions }))
    }

    /// The rows that follow the scan.
    pub fn insertions(&self) -> &RecordBatch {
        &self.insertions
    }

    /// What takes deleted rows out of one partition's scan. All occurrences of a row lie in one
    /// partition, so each may count by itself.
    pub fn filter(self: &Arc<Self>) -> OverlayFilter {
        OverlayFilter { overlay: Arc::clone(self), left: self.deletions.clone() }
    }
}

/// Takes deleted rows out of a scan.
pub struct OverlayFilter {
    overlay: Arc<OverlayRows>,
    left: HashMap<OwnedRow, i64>,
}

impl OverlayFilter {
    /// How often each of these rows still occurs. `columns` are all columns of the relation.
    pub fn apply(
        &mut self,
        columns: &[ArrayRef],
        rows: usize,
        counts: Option<Arc<Int64Array>>,
    ) -> Result<Option<Arc<Int64Array>>, ArrowError> {
        if self.left.is_empty() {
            return Ok(counts);
        }
        let converter = RowConverter::new(self.overlay.fields.clone())?;
        let keys = converter.convert_columns(columns)?;
        let mut kept: Vec<i64> = counts.map_or_else(|| vec![1; rows], |c| c.values().to_vec());
        for (row, count) in kept.iter_mut().enumerate() {
            if let Some(deleted) = self.left.get_mut(&keys.row(row).owned()) {
                let gone = (*deleted).min(*count);
                *count -= gone;
                *deleted -= gone;
            }
        }
        Ok(Some(Arc::new(Int64Array::from(kept))))
    }
}
