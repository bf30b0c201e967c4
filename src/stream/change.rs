//! ChangeBatch: an Arrow batch with a signed multiplicity a row. The unit that flows.
//!
//! ```text
//!   auction  price │ diff
//!   -------  ----- │ ----
//!      1000    101 │   +1      a row appears
//!      1000     99 │   -1      a row goes; an update is a -1 and a +1
//!      1007     12 │   +3      three equal rows appear
//! ```

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, UInt32Array};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use std::sync::Arc;

/// Rows and how often each appears (+) or goes (-). **Invariant:** no diff is zero, and there are
/// as many diffs as rows.
#[derive(Clone, Debug)]
pub struct ChangeBatch {
    rows: RecordBatch,
    /// Absent: all +1, the append-only fast path.
    diffs: Option<Arc<[i64]>>,
}

impl ChangeBatch {
    /// All rows appear once.
    pub fn insertions(rows: RecordBatch) -> Self {
        Self { rows, diffs: None }
    }

    /// Each row with its diff. All +1 becomes the fast path.
    pub fn new(rows: RecordBatch, diffs: impl Into<Arc<[i64]>>) -> Self {
        let diffs = diffs.into();
        assert_eq!(rows.num_rows(), diffs.len(), "a diff for each row");
        debug_assert!(diffs.iter().all(|d| *d != 0), "zero diffs are dropped before");
        let plain = diffs.iter().all(|d| *d == 1);
        Self { rows, diffs: (!plain).then_some(diffs) }
    }

    /// The rows.
    pub fn rows(&self) -> &RecordBatch {
        &self.rows
    }

    /// The diffs; `None` says that all are +1.
    pub fn diffs(&self) -> Option<&[i64]> {
        self.diffs.as_deref()
    }

    /// The diff of row `row`.
    pub fn diff(&self, row: usize) -> i64 {
        self.diffs.as_ref().map_or(1, |d| d[row])
    }

    /// How many rows it has, counting a row once whatever its diff.
    pub fn num_rows(&self) -> usize {
        self.rows.num_rows()
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.num_rows() == 0
    }

    /// The column `index`.
    pub fn column(&self, index: usize) -> &ArrayRef {
        self.rows.column(index)
    }

    /// The schema of the rows.
    pub fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }

    /// Other columns, same diffs. `rows` must have as many rows.
    pub fn with_rows(&self, rows: RecordBatch) -> Self {
        assert_eq!(rows.num_rows(), self.num_rows(), "a diff for each row");
        Self { rows, diffs: self.diffs.clone() }
    }

    /// The rows for which `keep` is true (not false, not NULL).
    pub fn filter(&self, keep: &BooleanArray) -> Result<Self, ArrowError> {
        let rows = filter_record_batch(&self.rows, keep)?;
        let diffs = self.diffs.as_ref().map(|diffs| {
            use arrow::array::Array;
            (0..keep.len())
                .filter(|i| keep.is_valid(*i) && keep.value(*i))
                .map(|i| diffs[i])
                .collect::<Arc<[i64]>>()
        });
        Ok(Self { rows, diffs })
    }

    /// The rows at `indices`, in that order.
    pub fn take(&self, indices: &UInt32Array) -> Result<Self, ArrowError> {
        let rows = super::builder::take_rows(&self.rows, indices)?;
        let diffs = self
            .diffs
            .as_ref()
            .map(|diffs| indices.values().iter().map(|i| diffs[*i as usize]).collect::<Arc<[i64]>>());
        Ok(Self { rows, diffs })
    }

    /// `len` rows from `offset`, without copying columns.
    pub fn slice(&self, offset: usize, len: usize) -> Self {
        Self {
            rows: self.rows.slice(offset, len),
            diffs: self.diffs.as_ref().map(|d| d[offset..offset + len].into()),
        }
    }

    /// The same rows with all diffs negated.
    pub fn negated(&self) -> Self {
        let diffs: Arc<[i64]> = (0..self.num_rows()).map(|i| -self.diff(i)).collect();
        Self { rows: self.rows.clone(), diffs: Some(diffs) }
    }

    /// Bytes of its own rows, where it is a slice of others'.
    pub fn slice_memory(&self) -> usize {
        use arrow::array::Array;
        let of_column = |column: &ArrayRef| {
            let data = column.to_data();
            data.get_slice_memory_size().unwrap_or_else(|_| column.get_array_memory_size())
        };
        let columns: usize = self.rows.columns().iter().map(of_column).sum();
        columns + self.diffs.as_ref().map_or(0, |d| d.len() * 8)
    }

    /// Bytes held, as Arrow counts them.
    pub fn memory(&self) -> usize {
        self.rows.get_array_memory_size() + self.diffs.as_ref().map_or(0, |d| d.len() * 8)
    }
}
