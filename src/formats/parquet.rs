//! Parquet files to the wanted columns of a source: found by name, cast to the declared types.

use super::decode::BadRecord;
use super::encode::json_line;
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::compute::{CastOptions, cast_with_options, concat_batches};
use arrow::datatypes::{DataType, Field, SchemaRef};
use arrow::error::ArrowError;
use datafusion::parquet::arrow::ProjectionMask;
use datafusion::parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use std::fs::File;
use std::sync::Arc;
use weir_catalog::Column;
use weir_catalog::column::{TYPE_KEY, arrow_schema};
use weir_sql::functions::cast::cast_column;

/// Rows of a Parquet file, batch by batch.
pub struct ParquetRows {
    reader: ParquetRecordBatchReader,
    /// The wanted columns.
    schema: SchemaRef,
    /// By wanted column: its ordinal in what the reader gives.
    found: Vec<Option<usize>>,
}

/// A batch of them.
#[derive(Debug)]
pub struct ParquetBatch {
    /// Rows of the wanted columns.
    pub rows: RecordBatch,
    /// Rows that don't fit; each is `at` its number in the batch as it was in the file.
    pub bad: Vec<BadRecord>,
    /// How many rows of the file these are.
    pub count: usize,
}

impl ParquetRows {
    /// Reads the columns `wanted` of `declared` from `file`: rows `skip` on, at most `limit`, in
    /// batches of `batch_rows`. Columns that the file lacks are NULL.
    pub fn open(
        file: File,
        declared: &[Column],
        wanted: &[usize],
        (skip, limit): (usize, Option<usize>),
        batch_rows: usize,
    ) -> Result<Self, String> {
        let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| e.to_string())?;
        let fields = builder.schema().fields();
        let columns: Vec<Column> = wanted.iter().map(|w| declared[*w].clone()).collect();
        let roots: Vec<Option<usize>> = columns
            .iter()
            .map(|column| {
                let exact = fields.iter().position(|f| *f.name() == column.name);
                exact.or_else(|| fields.iter().position(|f| f.name().eq_ignore_ascii_case(&column.name)))
            })
            .collect();
        let mut read: Vec<usize> = roots.iter().flatten().copied().collect();
        read.sort_unstable();
        read.dedup();
        let found = roots.iter().map(|root| root.and_then(|root| read.binary_search(&root).ok())).collect();
        let mask = ProjectionMask::roots(builder.parquet_schema(), read);
        let mut builder = builder.with_projection(mask).with_offset(skip).with_batch_size(batch_rows);
        if let Some(limit) = limit {
            builder = builder.with_limit(limit);
        }
        let reader = builder.build().map_err(|e| e.to_string())?;
        Ok(Self { reader, schema: arrow_schema(&columns), found })
    }

    /// `batch` in the declared columns and types.
    fn fit(&self, batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let arrays = self.found.iter().zip(self.schema.fields()).map(|(found, field)| {
            Ok(match found {
                None => new_null_array(field.data_type(), batch.num_rows()),
                Some(at) if batch.column(*at).data_type() == field.data_type() => {
                    held(batch.column(*at), field)?
                }
                Some(at) => held(&cast_with_options(batch.column(*at), field.data_type(), &options)?, field)?,
            })
        });
        let arrays = arrays.collect::<Result<Vec<ArrayRef>, ArrowError>>()?;
        let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &rows)
    }

    /// The same row by row, so that one that doesn't fit takes no others along.
    fn fit_by_row(&self, batch: &RecordBatch) -> Result<(RecordBatch, Vec<BadRecord>), ArrowError> {
        let (mut rows, mut bad) = (Vec::new(), Vec::new());
        for at in 0..batch.num_rows() {
            let row = batch.slice(at, 1);
            match self.fit(&row) {
                Ok(row) => rows.push(row),
                Err(error) => {
                    // Not everything that a file may hold has a form in JSON.
                    let payload = json_line(&row).unwrap_or_default();
                    bad.push(BadRecord { at, payload, reason: error.to_string() })
                }
            }
        }
        Ok((concat_batches(&self.schema, &rows)?, bad))
    }

    fn fitted(&self, batch: &RecordBatch) -> Result<ParquetBatch, ArrowError> {
        let count = batch.num_rows();
        match self.fit(batch) {
            Ok(rows) => Ok(ParquetBatch { rows, bad: Vec::new(), count }),
            Err(_) => self.fit_by_row(batch).map(|(rows, bad)| ParquetBatch { rows, bad, count }),
        }
    }
}

/// What a column keeps of text that is no plain text: jsonb, uuid, or of a length.
fn held(values: &ArrayRef, field: &Field) -> Result<ArrayRef, ArrowError> {
    if *field.data_type() != DataType::Utf8 || !field.metadata().contains_key(TYPE_KEY) {
        return Ok(Arc::clone(values));
    }
    cast_column(values, field).map_err(|e| ArrowError::CastError(e.find_root().to_string()))
}

impl Iterator for ParquetRows {
    type Item = Result<ParquetBatch, String>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.reader.next()?;
        Some(batch.and_then(|batch| self.fitted(&batch)).map_err(|e| e.to_string()))
    }
}

#[cfg(test)]
#[path = "tests/parquet.rs"]
mod tests;
