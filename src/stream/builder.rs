//! Builds change batches: concatenates them, and sums equal rows (consolidation).
//!
//! ```text
//!   a 3 │ +1                    a 3 │ +2
//!   b 1 │ -1   consolidated →
//!   a 3 │ +1
//!   b 1 │ +1
//! ```
//! Rows are equal when all their values are (NULL equals NULL, and -0.0 differs from 0.0: a row is
//! taken back exactly as it was given). The first occurrence of a row keeps its place.

use super::ChangeBatch;
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::row::{RowConverter, SortField};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// Collects change batches of one schema and gives them back as one.
pub struct ChangeBuilder {
    schema: SchemaRef,
    converter: Option<RowConverter>,

    batches: Vec<ChangeBatch>,
    rows: usize,
}

impl ChangeBuilder {
    /// An empty builder for rows of `schema`.
    pub fn new(schema: SchemaRef) -> Self {
        Self { schema, converter: None, batches: Vec::new(), rows: 0 }
    }

    /// The schema of its rows.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Adds `batch`; an empty one is dropped.
    pub fn push(&mut self, batch: ChangeBatch) {
        if !batch.is_empty() {
            self.rows += batch.num_rows();
            self.batches.push(batch);
        }
    }

    /// How many rows were added since the last `concat` or `consolidate`.
    pub fn num_rows(&self) -> usize {
        self.rows
    }

    /// Whether none were.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Bytes held.
    pub fn memory(&self) -> usize {
        self.batches.iter().map(ChangeBatch::memory).sum()
    }

    /// Takes everything as one batch.
    pub fn concat(&mut self) -> Result<ChangeBatch, ArrowError> {
        self.rows = 0;
        let batches = std::mem::take(&mut self.batches);
        concat(&self.schema, batches)
    }

    /// Takes everything as one batch in which each row occurs once, with the sum of its diffs;
    /// rows that sum to zero are gone.
    pub fn consolidate(&mut self) -> Result<ChangeBatch, ArrowError> {
        let batch = self.concat()?;
        if batch.num_rows() <= 1 {
            return Ok(batch);
        }
        if self.schema.fields().is_empty() {
            return Ok(consolidate_empty(&batch));
        }
        let converter = match &self.converter {
            Some(converter) => converter,
            None => self.converter.insert(row_converter(&self.schema)?),
        };
        consolidate_with(converter, batch)
    }
}

impl std::fmt::Debug for ChangeBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChangeBuilder").field("rows", &self.rows).finish_non_exhaustive()
    }
}

/// Batches of `schema` as one, in order.
pub fn concat(schema: &SchemaRef, mut batches: Vec<ChangeBatch>) -> Result<ChangeBatch, ArrowError> {
    if batches.len() == 1
        && let Some(only) = batches.pop()
    {
        return Ok(only);
    }
    let rows = concat_batches(schema, batches.iter().map(ChangeBatch::rows))?;
    if batches.iter().all(|b| b.diffs().is_none()) {
        return Ok(ChangeBatch::insertions(rows));
    }
    let mut diffs = Vec::with_capacity(rows.num_rows());
    for batch in &batches {
        match batch.diffs() {
            Some(d) => diffs.extend_from_slice(d),
            None => diffs.resize(diffs.len() + batch.num_rows(), 1),
        }
    }
    Ok(ChangeBatch::new(rows, diffs))
}

/// Sums the diffs of equal rows and drops the rows that sum to zero. A batch whose diffs all have
/// one sign is given back as it is: nothing in it can cancel.
pub fn consolidate(batch: ChangeBatch) -> Result<ChangeBatch, ArrowError> {
    let Some(diffs) = batch.diffs() else { return Ok(batch) };
    if diffs.iter().all(|d| *d > 0) || diffs.iter().all(|d| *d < 0) {
        return Ok(batch);
    }
    let schema = batch.schema();
    if schema.fields().is_empty() {
        return Ok(consolidate_empty(&batch));
    }
    consolidate_with(&row_converter(&schema)?, batch)
}

fn row_converter(schema: &SchemaRef) -> Result<RowConverter, ArrowError> {
    RowConverter::new(schema.fields().iter().map(|f| SortField::new(f.data_type().clone())).collect())
}

/// Rows without columns are all equal.
fn consolidate_empty(batch: &ChangeBatch) -> ChangeBatch {
    let sum: i64 = (0..batch.num_rows()).map(|row| batch.diff(row)).sum();
    if sum == 0 {
        return batch.slice(0, 0);
    }
    let one = batch.rows().slice(0, 1);
    ChangeBatch::new(one, vec![sum])
}

fn consolidate_with(converter: &RowConverter, batch: ChangeBatch) -> Result<ChangeBatch, ArrowError> {
    let rows = converter.convert_columns(batch.rows().columns())?;
    let hashes: Vec<u64> = rows.iter().map(|row| xxh3_64(row.data())).collect();
    // For each row, the sum over all rows equal to it, kept at the first of them.
    let mut sums = vec![0i64; hashes.len()];
    let mut firsts: HashTable<u32> = HashTable::with_capacity(hashes.len());
    for row in 0..hashes.len() {
        let hash = hashes[row];
        let equal = |first: &u32| {
            hashes[*first as usize] == hash && rows.row(*first as usize).data() == rows.row(row).data()
        };
        let first = match firsts.entry(hash, equal, |first| hashes[*first as usize]) {
            Entry::Occupied(entry) => *entry.get() as usize,
            Entry::Vacant(entry) => {
                entry.insert(row as u32);
                row
            }
        };
        sums[first] += batch.diff(row);
    }
    if firsts.len() == hashes.len() {
        return Ok(batch);
    }
    let kept: Vec<u32> = (0..sums.len() as u32).filter(|row| sums[*row as usize] != 0).collect();
    let diffs: Vec<i64> = kept.iter().map(|row| sums[*row as usize]).collect();
    let rows = take_rows(batch.rows(), &UInt32Array::from(kept))?;
    Ok(ChangeBatch::new(rows, diffs))
}

/// The rows at `indices`; unlike Arrow's kernel also of a batch without columns.
pub fn take_rows(rows: &RecordBatch, indices: &UInt32Array) -> Result<RecordBatch, ArrowError> {
    let columns: Vec<ArrayRef> = rows
        .columns()
        .iter()
        .map(|column| arrow::compute::take(column, indices, None))
        .collect::<Result<_, _>>()?;
    batch_of(&rows.schema(), columns, arrow::array::Array::len(indices))
}

/// A record batch of `columns`, which may be none, with `rows` rows.
pub fn batch_of(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, ArrowError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}

#[cfg(test)]
#[path = "tests/builder.rs"]
mod tests;
