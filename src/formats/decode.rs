//! The Decoder contract: blocks of bytes in, rows of the wanted columns and bad records out.
//!
//! ```text
//!   block ┌ record ┐┌ record ┐┌ rec          a block may start with any record and end within one
//!         └──────── consumed ─┘              the rest is offered again, with more behind it
//! ```

use super::column::{ColumnBuilder, excerpt};
use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use std::sync::Arc;
use weir_catalog::Column;
use weir_catalog::column::arrow_schema;

/// A record that could not be decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct BadRecord {
    /// Where it starts in the block.
    pub at: usize,
    /// It, as it was.
    pub payload: Vec<u8>,
    /// Why.
    pub reason: String,
}

/// What a block gave.
#[derive(Debug)]
pub struct Decoded {
    /// Rows of the wanted columns.
    pub rows: RecordBatch,
    /// What could not be decoded.
    pub bad: Vec<BadRecord>,
    /// Bytes of the block that are done with; the rest starts with a record.
    pub consumed: usize,
}

/// Decodes text records of one source.
pub trait Decoder: Send {
    /// The first line of the text, which names the fields of the records. `Err`: why they are not
    /// the columns; every record is bad then.
    fn header(&mut self, line: &[u8]) -> Result<(), String> {
        let _ = line;
        Ok(())
    }

    /// Decodes whole records from the start of `block`, about `rows_max` at most. `at_end`: nothing
    /// follows the block, so that what is left is a record. Consumes nothing where no record ends.
    fn decode(&mut self, block: &[u8], at_end: bool, rows_max: usize) -> Result<Decoded, ArrowError>;
}

/// What one record gave.
pub enum Step {
    /// It ends at this position (its end of line included).
    Record(usize),
    /// So, but there was nothing in it.
    Blank(usize),
    /// So, but it is bad.
    Bad(usize, String),
    /// It does not end in the block.
    Incomplete,
}

/// The wanted columns in the making: whole records or nothing.
pub struct RowBuilder {
    schema: SchemaRef,
    columns: Vec<Column>,
    builders: Vec<ColumnBuilder>,
    rows: usize,
}

impl RowBuilder {
    /// For the columns `wanted` of `declared`.
    pub fn new(declared: &[Column], wanted: &[usize]) -> Result<Self, String> {
        let columns: Vec<Column> = wanted.iter().map(|w| declared[*w].clone()).collect();
        let builders = columns.iter().map(|c| {
            ColumnBuilder::new(&c.data_type, &c.sql_type).map_err(|e| format!("column \"{}\": {e}", c.name))
        });
        let builders = builders.collect::<Result<_, _>>()?;
        Ok(Self { schema: arrow_schema(&columns), columns, builders, rows: 0 })
    }

    /// The builder of the wanted column `index`, without a value for this record: a second one
    /// takes the place of the first.
    #[inline]
    pub fn column(&mut self, index: usize) -> &mut ColumnBuilder {
        let builder = &mut self.builders[index];
        if builder.len() > self.rows {
            builder.truncate(self.rows);
        }
        builder
    }

    /// The name of the wanted column `index`.
    pub fn name(&self, index: usize) -> &str {
        &self.columns[index].name
    }

    /// Ends a record: columns without a value are NULL, which some must not be.
    fn end_record(&mut self) -> Result<(), String> {
        for (builder, column) in self.builders.iter_mut().zip(&self.columns) {
            if builder.len() == self.rows {
                builder.push_null();
            }
            if !column.nullable && builder.last_is_null() {
                return Err(format!("null value in column \"{}\" violates not-null constraint", column.name));
            }
        }
        self.rows += 1;
        Ok(())
    }

    fn undo_record(&mut self) {
        let rows = self.rows;
        self.builders.iter_mut().for_each(|b| b.truncate(rows));
    }

    /// Runs `record` over `block` until it has `rows_max` rows or bad ones, or is at the end.
    /// Text is checked to be UTF-8, without a zero byte, as a whole; where it isn't, once more record by
    /// record.
    pub fn run(
        &mut self,
        block: &[u8],
        rows_max: usize,
        mut record: impl FnMut(&mut Self, usize) -> Step,
    ) -> Result<Decoded, ArrowError> {
        for check in [false, true] {
            let (consumed, bad) = self.run_once(block, rows_max, check, &mut record);
            let arrays: Result<Vec<_>, _> = self.builders.iter_mut().map(ColumnBuilder::finish).collect();
            let rows = std::mem::take(&mut self.rows);
            match arrays {
                Ok(arrays) => {
                    let rows = RecordBatchOptions::new().with_row_count(Some(rows));
                    let rows = RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &rows)?;
                    return Ok(Decoded { rows, bad, consumed });
                }
                Err(error) if check => return Err(error),
                Err(_) => self.builders.iter_mut().for_each(|b| b.truncate(0)),
            }
        }
        Err(ArrowError::ParseError("a block was not decoded".into()))
    }

    fn run_once(
        &mut self,
        block: &[u8],
        rows_max: usize,
        check: bool,
        record: &mut impl FnMut(&mut Self, usize) -> Step,
    ) -> (usize, Vec<BadRecord>) {
        let mut bad = Vec::new();
        let mut at = 0;
        while at < block.len() && self.rows + bad.len() < rows_max {
            let (end, outcome) = match record(self, at) {
                Step::Incomplete => {
                    self.undo_record();
                    break;
                }
                Step::Blank(end) => {
                    self.undo_record();
                    at = end;
                    continue;
                }
                Step::Bad(end, reason) => (end, Err(reason)),
                Step::Record(end) if check && std::str::from_utf8(&block[at..end]).is_err() => {
                    (end, Err("it is not UTF-8".to_owned()))
                }
                Step::Record(end) if check && block[at..end].contains(&0) => {
                    (end, Err("it has a zero byte".to_owned()))
                }
                Step::Record(end) => (end, self.end_record()),
            };
            if let Err(reason) = outcome {
                self.undo_record();
                bad.push(BadRecord { at, payload: block[at..end].trim_ascii_end().to_vec(), reason });
            }
            at = end;
        }
        (at, bad)
    }
}

/// Why a field of a column can't be read.
pub fn column_reason(column: &str, reason: &str) -> String {
    format!("column \"{column}\": {reason}")
}

/// Why something unexpected is no field.
pub fn unexpected(what: &[u8], wanted: &str) -> String {
    format!("\"{}\" where {wanted} should be", excerpt(what))
}
