//! What could not be decoded, kept: the rows of `weir_catalog.dead_letters`.
//!
//! They are state like any other: written at the barrier of the epoch in which they were read,
//! keyed by where they came from, so that reading the same message again adds nothing.

use super::source::DeadLetter;
use crate::stream::Epoch;
use arrow::array::{ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use std::sync::Arc;
use weir_catalog::ObjectId;

/// The built-in relation that holds them.
pub const RELATION: ObjectId = ObjectId(1);

/// The key: source, split and offset.
pub const KEY: [usize; 3] = [0, 1, 2];

/// Its columns.
pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("source", DataType::Int64, false),
        Field::new("split", DataType::Utf8, false),
        Field::new("position", DataType::Utf8, false),
        Field::new("epoch", DataType::Int64, false),
        Field::new("reason", DataType::Utf8, false),
        Field::new("payload", DataType::Binary, true),
    ]))
}

/// The rows of `letters` that `source` read in `epoch`.
pub fn rows(source: ObjectId, epoch: Epoch, letters: &[DeadLetter]) -> Result<RecordBatch, ArrowError> {
    let text = |of: fn(&DeadLetter) -> &str| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(letters.iter().map(of)))
    };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_value(i64::from(source.0), letters.len())),
        text(|l| &l.split),
        text(|l| &l.offset),
        Arc::new(Int64Array::from_value(epoch.0 as i64, letters.len())),
        text(|l| &l.reason),
        Arc::new(BinaryArray::from_iter_values(letters.iter().map(|l| &l.payload))),
    ];
    RecordBatch::try_new(schema(), columns)
}
