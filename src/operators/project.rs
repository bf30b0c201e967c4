//! Project: computes columns.
//!
//! Linear, so it needs no state. A watermark goes on for every output column that is the input
//! column itself.

use super::expr::{evaluate_all, nullable};
use super::failures::Failures;
use crate::checkpoint::participant::Sealed;
use crate::dataflow::operator::{Operator, OperatorError, Output, Progress};
use crate::stream::{Barrier, ChangeBatch, Watermark};
use arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use std::sync::Arc;

/// Computes columns from each row.
#[derive(Debug)]
pub struct Project {
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    schema: SchemaRef,
    failures: Failures,
}

impl Project {
    /// Computes `exprs` as the columns of `schema`; rows for which one fails go to `failures`.
    pub fn new(exprs: Vec<Arc<dyn PhysicalExpr>>, schema: SchemaRef, failures: Failures) -> Self {
        assert_eq!(exprs.len(), schema.fields().len(), "an expression for each column");
        Self { exprs, schema: nullable(&schema), failures }
    }
}

impl Operator for Project {
    fn name(&self) -> &'static str {
        "project"
    }

    fn on_change(
        &mut self,
        _port: usize,
        batch: ChangeBatch,
        out: &mut Output,
    ) -> Result<Progress, OperatorError> {
        let rows = evaluate_all(
            &self.exprs,
            batch.rows(),
            &|row| batch.diff(row) > 0,
            &self.schema,
            &self.failures,
        )?;
        out.push(batch.with_rows(rows));
        Ok(Progress::Done)
    }

    fn on_watermark(
        &mut self,
        _port: usize,
        watermark: Watermark,
        out: &mut Output,
    ) -> Result<Progress, OperatorError> {
        for (index, expr) in self.exprs.iter().enumerate() {
            let column = expr.downcast_ref::<Column>();
            if column.is_some_and(|c| c.index() == watermark.column) {
                out.push_watermark(Watermark { column: index, ..watermark });
            }
        }
        Ok(Progress::Done)
    }

    fn seal(&mut self, barrier: &Barrier, sealed: &mut Sealed) -> Result<(), OperatorError> {
        self.failures.seal(barrier, sealed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::script::{check, schema};
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::logical_expr::Operator as BinaryOperator;
    use datafusion::physical_expr::expressions::{binary, col, lit};

    #[test]
    fn computes_columns_and_maps_watermarks() {
        let input = schema(&[("a", DataType::Int64), ("b", DataType::Int64)]);
        let (a, b) = (col("a", &input).unwrap(), col("b", &input).unwrap());
        let quotient = binary(lit(12i64), BinaryOperator::Divide, Arc::clone(&a), &input).unwrap();
        // The plan may have proved a column not null; a failed row is NULL all the same.
        let output = Arc::new(Schema::new(vec![
            Field::new("b", DataType::Int64, true),
            Field::new("q", DataType::Int64, false),
            Field::new("b2", DataType::Int32, true),
            Field::new("c", DataType::Utf8, false),
        ]));
        check(
            &|| {
                let exprs = vec![Arc::clone(&b), Arc::clone(&quotient), Arc::clone(&b), lit("x")];
                Box::new(Project::new(exprs, output.clone(), Failures::default()))
            },
            std::slice::from_ref(&input),
            "+1 3 1
             -1 0 2
             +2 NULL NULL
             watermark 1 5
             watermark 0 5
             barrier",
            "+1 1 4 1 x
             +2 NULL NULL NULL x
             -1 2 NULL 2 x
             watermark 0 5
             watermark 2 5
             barrier",
        );
    }
}
