//! Filter: keeps rows for which a predicate is true.
//!
//! Linear, so it needs no state: the change of the result is the filtered change. A row for which
//! the predicate fails is not kept, and counted (see [`super::expr`]).

use super::expr::evaluate_predicate;
use super::failures::Failures;
use crate::checkpoint::participant::Sealed;
use crate::dataflow::operator::{Operator, OperatorError, Output, Progress};
use crate::stream::{Barrier, ChangeBatch, Watermark};
use datafusion::physical_expr::PhysicalExpr;
use std::sync::Arc;

/// Keeps rows for which the predicate is true.
#[derive(Debug)]
pub struct Filter {
    predicate: Arc<dyn PhysicalExpr>,
    failures: Failures,
}

impl Filter {
    /// Keeps what `predicate` is true of; rows for which it fails go to `failures`.
    pub fn new(predicate: Arc<dyn PhysicalExpr>, failures: Failures) -> Self {
        Self { predicate, failures }
    }
}

impl Operator for Filter {
    fn name(&self) -> &'static str {
        "filter"
    }

    fn on_change(
        &mut self,
        _port: usize,
        batch: ChangeBatch,
        out: &mut Output,
    ) -> Result<Progress, OperatorError> {
        let keep =
            evaluate_predicate(&self.predicate, batch.rows(), &|row| batch.diff(row) > 0, &self.failures)?;
        match keep.true_count() {
            0 => {}
            all if all == batch.num_rows() => out.push(batch),
            _ => out.push(batch.filter(&keep)?),
        }
        Ok(Progress::Done)
    }

    fn on_watermark(
        &mut self,
        _port: usize,
        watermark: Watermark,
        out: &mut Output,
    ) -> Result<Progress, OperatorError> {
        out.push_watermark(watermark);
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
    use arrow::datatypes::DataType;
    use datafusion::logical_expr::Operator as BinaryOperator;
    use datafusion::physical_expr::expressions::{binary, col, lit};

    #[test]
    fn keeps_what_is_true_with_its_diff() {
        let input = schema(&[("k", DataType::Utf8), ("v", DataType::Int64)]);
        let column = col("v", &input).unwrap();
        let predicate = binary(column, BinaryOperator::Gt, lit(2i64), &input).unwrap();
        check(
            &|| Box::new(Filter::new(Arc::clone(&predicate), Failures::default())),
            &[input],
            "+1 a 3
             +1 a 2
             -2 b 9
             +1 NULL NULL
             +2 NULL 3
             watermark 1 7
             barrier
             +1 a 1
             barrier",
            "+1 a 3
             +2 NULL 3
             -2 b 9
             watermark 1 7
             barrier
             barrier",
        );
    }
}
