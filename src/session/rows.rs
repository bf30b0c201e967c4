//! Result rows that the session makes itself: SHOW, EXPLAIN, RETURNING.

use super::{CommandTag, Outcome, ResultRows, SessionError};
use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use futures::StreamExt;
use std::sync::Arc;

/// Columns of text.
pub fn text_schema(names: &[&str]) -> SchemaRef {
    let fields: Vec<Field> = names.iter().map(|name| Field::new(*name, DataType::Utf8, true)).collect();
    Arc::new(Schema::new(fields))
}

/// Rows of text.
pub fn text_rows(
    schema: SchemaRef,
    rows: Vec<Vec<Option<String>>>,
    tag: &str,
) -> Result<Outcome, SessionError> {
    let column = |i: usize| {
        let values: StringArray = rows.iter().map(|row| row.get(i).cloned().flatten()).collect();
        Arc::new(values) as ArrayRef
    };
    let columns = (0..schema.fields().len()).map(column).collect();
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns).map_err(internal)?;
    Ok(Outcome::Rows(one_batch(schema, batch, CommandTag::plain(tag))))
}

/// Rows that are all here.
pub fn one_batch(schema: SchemaRef, batch: RecordBatch, tag: CommandTag) -> ResultRows {
    ResultRows { schema, stream: futures::stream::iter([Ok(batch)]).boxed(), tag }
}

/// What must not fail did: a bug of ours, logged here.
pub fn internal(error: impl std::fmt::Display) -> SessionError {
    tracing::error!(%error, "statement failed by a bug");
    SessionError::internal()
}
