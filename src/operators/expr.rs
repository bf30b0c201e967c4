//! Planned expressions evaluated over a change batch.
//!
//! Bad data is not an error of the dataflow: a row for which an expression fails (division by zero,
//! overflow, a text that is no number) gets NULL, and is counted. The whole column is computed at
//! once; only when that fails is the batch halved until the failing rows stand alone, so that one
//! bad row costs a few evaluations and not one a row.
//!
//! **Invariant:** the outcome for a row depends on that row alone, so a row's retraction fails as
//! its insertion did.

use crate::dataflow::operator::OperatorError;
use crate::stream::builder::batch_of;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, new_null_array};
use arrow::compute::{cast, concat};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::error::DataFusionError;
use datafusion::physical_expr::PhysicalExpr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many rows of a job's expressions failed and became NULL.
pub type ErrorCounter = Arc<AtomicU64>;

/// The column that `expr` makes of `rows`; NULL where it fails.
pub fn evaluate(
    expr: &Arc<dyn PhysicalExpr>,
    rows: &RecordBatch,
    errors: &ErrorCounter,
) -> Result<ArrayRef, OperatorError> {
    if let Ok(column) = evaluate_whole(expr, rows) {
        return Ok(column);
    }
    let data_type = expr.data_type(&rows.schema())?;
    let mut parts = Vec::new();
    let failed = halve(expr, rows, &data_type, &mut parts);
    errors.fetch_add(failed, Ordering::Relaxed);
    let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
    Ok(concat(&parts)?)
}

/// Whether `predicate` is true of each row: not false, not NULL, not failed. NULLs are kept.
pub fn evaluate_predicate(
    predicate: &Arc<dyn PhysicalExpr>,
    rows: &RecordBatch,
    errors: &ErrorCounter,
) -> Result<BooleanArray, OperatorError> {
    let column = evaluate(predicate, rows, errors)?;
    match column.data_type() {
        DataType::Boolean => Ok(column.as_boolean().clone()),
        // A bare NULL has no type.
        _ => Ok(cast(&column, &DataType::Boolean)?.as_boolean().clone()),
    }
}

fn evaluate_whole(expr: &Arc<dyn PhysicalExpr>, rows: &RecordBatch) -> Result<ArrayRef, DataFusionError> {
    expr.evaluate(rows)?.into_array(rows.num_rows())
}

/// Evaluates a batch that fails as a whole, by halves. Returns how many rows failed.
fn halve(
    expr: &Arc<dyn PhysicalExpr>,
    rows: &RecordBatch,
    data_type: &DataType,
    parts: &mut Vec<ArrayRef>,
) -> u64 {
    if rows.num_rows() <= 1 {
        parts.push(new_null_array(data_type, rows.num_rows()));
        return rows.num_rows() as u64;
    }
    let half = rows.num_rows() / 2;
    let mut failed = 0;
    for part in [rows.slice(0, half), rows.slice(half, rows.num_rows() - half)] {
        match evaluate_whole(expr, &part) {
            Ok(column) => parts.push(column),
            Err(_) => failed += halve(expr, &part, data_type, parts),
        }
    }
    failed
}

/// The columns that `exprs` make of `rows`, as a batch of `schema`.
pub fn evaluate_all(
    exprs: &[Arc<dyn PhysicalExpr>],
    rows: &RecordBatch,
    schema: &SchemaRef,
    errors: &ErrorCounter,
) -> Result<RecordBatch, OperatorError> {
    let mut columns = Vec::with_capacity(exprs.len());
    for (expr, field) in exprs.iter().zip(schema.fields()) {
        let column = evaluate(expr, rows, errors)?;
        columns.push(if column.data_type() == field.data_type() {
            column
        } else {
            cast(&column, field.data_type())?
        });
    }
    Ok(batch_of(schema, columns, rows.num_rows())?)
}

/// The same columns, all nullable: a failed expression is NULL whatever the plan proved.
pub fn nullable(schema: &SchemaRef) -> SchemaRef {
    if schema.fields().iter().all(|f| f.is_nullable()) {
        return Arc::clone(schema);
    }
    let fields: Vec<_> = schema.fields().iter().map(|f| f.as_ref().clone().with_nullable(true)).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

#[cfg(test)]
#[path = "tests/expr.rs"]
mod tests;
