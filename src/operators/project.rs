//! Project: computes columns.
//!
//! Linear, so it needs no state. A watermark goes on for every output column that is the input
//! column itself, or goes up with it ([`rises_with`]): then with the value computed of it.

use super::expr::{evaluate_all, nullable};
use super::failures::Failures;
use crate::checkpoint::participant::Sealed;
use crate::dataflow::operator::{Operator, OperatorError, Output, Progress};
use crate::stream::watermark::END_US;
use crate::stream::{Barrier, ChangeBatch, Watermark};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, TimestampMicrosecondArray, new_null_array};
use arrow::datatypes::{DataType, SchemaRef, TimestampMicrosecondType};
use datafusion::physical_expr::PhysicalExpr;
use std::sync::Arc;
use weir_sql::plan::{column_index, rises_with};

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
            if rises_with(expr) != Some(watermark.column) {
                continue;
            }
            let time_us = if column_index(expr).is_some() || watermark.time_us == END_US {
                Some(watermark.time_us)
            } else {
                computed(expr, watermark, self.schema.field(index).data_type())
            };
            if let Some(time_us) = time_us {
                out.push_watermark(Watermark { column: index, time_us });
            }
        }
        Ok(Progress::Done)
    }

    fn seal(&mut self, barrier: &Barrier, sealed: &mut Sealed) -> Result<(), OperatorError> {
        self.failures.seal(barrier, sealed)
    }
}

/// The value of `expr` where its one column has the watermark's time. `data_type`: of both. Where it
/// fails (a time out of range) there is no promise.
fn computed(expr: &Arc<dyn PhysicalExpr>, watermark: Watermark, data_type: &DataType) -> Option<i64> {
    let time = TimestampMicrosecondArray::from(vec![watermark.time_us]).with_data_type(data_type.clone());
    let time: ArrayRef = Arc::new(time);
    let others = (0..watermark.column).map(|i| (i.to_string(), new_null_array(&DataType::Null, 1)));
    let columns = others.chain([(watermark.column.to_string(), time)]);
    let row = RecordBatch::try_from_iter(columns).ok()?;
    let value = expr.evaluate(&row).ok()?.into_array(1).ok()?;
    let value = value.as_primitive_opt::<TimestampMicrosecondType>()?;
    value.is_valid(0).then(|| value.value(0))
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
