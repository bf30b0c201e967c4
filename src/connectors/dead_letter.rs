//! What could not be decoded or evaluated, or came below the watermark, kept: the rows of
//! `weir_catalog.dead_letters`.
//!
//! They are state like any other: written at the barrier of the epoch in which they were read,
//! keyed by where they came from, so that reading the same message again adds nothing. Of a view
//! the "source" is the view, the split the operator whose expression failed, and the payload the
//! row, as JSON.

use super::source::DeadLetter;
use crate::formats::encode::json_line;
use crate::state::table::TableLayout;
use crate::stream::Epoch;
use arrow::array::{ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use std::sync::Arc;
use weir_catalog::ClientError;
use weir_catalog::ObjectId;
use weir_catalog::relation::RowKey;
use weir_sql::SqlError;

/// The built-in relation that holds them.
pub const RELATION: ObjectId = ObjectId(1);

/// The key: source, split and offset.
pub const KEY: [usize; 3] = [0, 2, 3];

/// Why a late row is one.
pub const LATE: &str = "late: the row came below the watermark";

/// Its name in `weir_catalog`.
pub const NAME: &str = "dead_letters";

/// How its rows are stored.
pub fn layout() -> TableLayout {
    TableLayout::relation(RELATION.table(), schema(), &RowKey::Columns(KEY.to_vec()))
}

/// Its columns.
pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("source_id", DataType::Int64, false),
        Field::new("source", DataType::Utf8, false),
        Field::new("split", DataType::Utf8, false),
        Field::new("position", DataType::Utf8, false),
        Field::new("epoch", DataType::Int64, false),
        Field::new("reason", DataType::Utf8, false),
        Field::new("payload", DataType::Binary, true),
    ]))
}

/// A row (of one) as a dead letter's payload: a JSON object.
pub fn payload(row: &RecordBatch) -> Vec<u8> {
    let mut line = json_line(row).unwrap_or_default();
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    line
}

/// Letters for rows of `split` that came below the watermark; `numbers`: which of the split's late
/// rows each is, from 1. Where a row was in its split is not known, but its number is always the
/// same, so that reading it again adds nothing.
pub fn late(split: &str, numbers: impl Iterator<Item = u64>, rows: &RecordBatch) -> Vec<DeadLetter> {
    let letter = |(row, number): (usize, u64)| DeadLetter {
        split: split.to_owned(),
        offset: format!("late {number}"),
        payload: payload(&rows.slice(row, 1)),
        reason: LATE.to_owned(),
    };
    (0..rows.num_rows()).zip(numbers).map(letter).collect()
}

/// Why an expression failed, as a client would be told: `22012: division by zero`.
pub fn reason(error: &DataFusionError) -> String {
    match weir_sql::functions::error::sql_error(error) {
        Some(error) => reason_of(&error),
        None => error.strip_backtrace(),
    }
}

fn reason_of(error: &SqlError) -> String {
    format!("{}: {error}", error.sql_state().0)
}

/// The rows of `letters` that the source `id`, named `source`, read in `epoch`.
pub fn rows(
    id: ObjectId,
    source: &str,
    epoch: Epoch,
    letters: &[DeadLetter],
) -> Result<RecordBatch, ArrowError> {
    let text = |of: fn(&DeadLetter) -> &str| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(letters.iter().map(of)))
    };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_value(i64::from(id.0), letters.len())),
        Arc::new(StringArray::from_iter_values(letters.iter().map(|_| source))),
        text(|l| &l.split),
        text(|l| &l.offset),
        Arc::new(Int64Array::from_value(epoch.0 as i64, letters.len())),
        text(|l| &l.reason),
        Arc::new(BinaryArray::from_iter_values(letters.iter().map(|l| &l.payload))),
    ];
    RecordBatch::try_new(schema(), columns)
}
