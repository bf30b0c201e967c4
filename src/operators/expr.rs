//! Planned expressions evaluated over a change batch.
//!
//! Bad data is not an error of the dataflow: a row for which an expression fails (division by zero,
//! overflow, a text that is no number) gets NULL, is counted, and is kept where it appears (see
//! [`super::failures`]). The whole column is computed at once; only when that fails is the batch
//! halved until the failing rows stand alone, so that one bad row costs a few evaluations and not
//! one a row.
//!
//! **Invariant:** the outcome for a row depends on that row alone, so a row's retraction fails as
//! its insertion did.

use super::failures::Failures;
use crate::dataflow::operator::OperatorError;
use crate::stream::builder::batch_of;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, new_null_array};
use arrow::compute::{cast, concat};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::error::DataFusionError;
use datafusion::physical_expr::PhysicalExpr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// How many rows of a job's expressions failed and became NULL.
pub type ErrorCounter = Arc<AtomicU64>;

/// Whether each row appears, rather than goes.
pub type Appears<'a> = &'a dyn Fn(usize) -> bool;

/// The column that `expr` makes of `rows`; NULL where it fails.
pub fn evaluate(
    expr: &Arc<dyn PhysicalExpr>,
    rows: &RecordBatch,
    appears: Appears<'_>,
    failures: &Failures,
) -> Result<ArrayRef, OperatorError> {
    let error = match evaluate_whole(expr, rows) {
        Ok(column) => return Ok(column),
        Err(error) => error,
    };
    let data_type = expr.data_type(&rows.schema())?;
    let mut halving = Halving { expr, data_type: &data_type, appears, failures, parts: Vec::new() };
    halving.failed(rows, 0, &error);
    let parts = halving.parts;
    let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
    Ok(concat(&parts)?)
}

/// Whether `predicate` is true of each row: not false, not NULL, not failed. NULLs are kept.
pub fn evaluate_predicate(
    predicate: &Arc<dyn PhysicalExpr>,
    rows: &RecordBatch,
    appears: Appears<'_>,
    failures: &Failures,
) -> Result<BooleanArray, OperatorError> {
    let column = evaluate(predicate, rows, appears, failures)?;
    match column.data_type() {
        DataType::Boolean => Ok(column.as_boolean().clone()),
        // A bare NULL has no type.
        _ => Ok(cast(&column, &DataType::Boolean)?.as_boolean().clone()),
    }
}

fn evaluate_whole(expr: &Arc<dyn PhysicalExpr>, rows: &RecordBatch) -> Result<ArrayRef, DataFusionError> {
    expr.evaluate(rows)?.into_array(rows.num_rows())
}

/// Evaluates a batch that fails as a whole, by halves.
struct Halving<'a> {
    expr: &'a Arc<dyn PhysicalExpr>,
    data_type: &'a DataType,
    appears: Appears<'a>,
    failures: &'a Failures,
    parts: Vec<ArrayRef>,
}

impl Halving<'_> {
    /// `rows`, which start at row `start` of the batch, fail as a whole.
    fn failed(&mut self, rows: &RecordBatch, start: usize, error: &DataFusionError) {
        if rows.num_rows() <= 1 {
            self.parts.push(new_null_array(self.data_type, rows.num_rows()));
            if rows.num_rows() == 1 {
                self.failures.take(rows, (self.appears)(start), error);
            }
            return;
        }
        let half = rows.num_rows() / 2;
        for (offset, length) in [(0, half), (half, rows.num_rows() - half)] {
            let part = rows.slice(offset, length);
            match evaluate_whole(self.expr, &part) {
                Ok(column) => self.parts.push(column),
                Err(error) => self.failed(&part, start + offset, &error),
            }
        }
    }
}

/// The columns that `exprs` make of `rows`, as a batch of `schema`.
pub fn evaluate_all(
    exprs: &[Arc<dyn PhysicalExpr>],
    rows: &RecordBatch,
    appears: Appears<'_>,
    schema: &SchemaRef,
    failures: &Failures,
) -> Result<RecordBatch, OperatorError> {
    let mut columns = Vec::with_capacity(exprs.len());
    for (expr, field) in exprs.iter().zip(schema.fields()) {
        let column = evaluate(expr, rows, appears, failures)?;
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
