//! Expand: each row once for each projection, as grouping sets want it.
//!
//! ```text
//!   a b x        (a, b, 0, x), (a, NULL, 1, x)         +1 a1 b1   0 x1
//!   +1 a1 b1 x1  ───────────────────────────────>      +1 a1 NULL 1 x1
//! ```
//! Linear, so it needs no state.

use super::expr::{evaluate_all, nullable};
use super::failures::Failures;
use crate::checkpoint::participant::Sealed;
use crate::dataflow::operator::{Operator, OperatorError, Output, Progress};
use crate::stream::{Barrier, ChangeBatch};
use arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;
use std::collections::VecDeque;
use std::sync::Arc;

/// Makes several rows of each.
#[derive(Debug)]
pub struct Expand {
    projections: Vec<Vec<Arc<dyn PhysicalExpr>>>,
    schema: SchemaRef,
    failures: Failures,

    /// What is left of the batch in hand, and the next projection of it.
    rest: VecDeque<(ChangeBatch, usize)>,
}

impl Expand {
    /// Each of `projections` computes the columns of `schema`.
    pub fn new(projections: Vec<Vec<Arc<dyn PhysicalExpr>>>, schema: SchemaRef, failures: Failures) -> Self {
        let fits = projections.iter().all(|exprs| exprs.len() == schema.fields().len());
        assert!(fits, "an expression for each column");
        Self { projections, schema: nullable(&schema), failures, rest: VecDeque::new() }
    }

    fn emit(&mut self, out: &mut Output) -> Result<Progress, OperatorError> {
        while let Some((batch, next)) = self.rest.pop_front() {
            if out.is_full() {
                self.rest.push_front((batch, next));
                return Ok(Progress::More);
            }
            let Some(exprs) = self.projections.get(next) else { continue };
            let appears = |row| batch.diff(row) > 0;
            let rows = evaluate_all(exprs, batch.rows(), &appears, &self.schema, &self.failures)?;
            out.push(batch.with_rows(rows));
            self.rest.push_front((batch, next + 1));
        }
        Ok(Progress::Done)
    }
}

impl Operator for Expand {
    fn name(&self) -> &'static str {
        "expand"
    }

    fn on_change(
        &mut self,
        _port: usize,
        batch: ChangeBatch,
        out: &mut Output,
    ) -> Result<Progress, OperatorError> {
        self.rest.push_back((batch, 0));
        self.emit(out)
    }

    fn resume(&mut self, out: &mut Output) -> Result<Progress, OperatorError> {
        self.emit(out)
    }

    fn seal(&mut self, barrier: &Barrier, sealed: &mut Sealed) -> Result<(), OperatorError> {
        self.failures.seal(barrier, sealed)
    }

    fn memory(&self) -> usize {
        self.rest.iter().map(|(batch, _)| batch.memory()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::script::{check, schema};
    use arrow::datatypes::DataType;
    use datafusion::common::ScalarValue;
    use datafusion::physical_expr::expressions::{col, lit};

    #[test]
    fn each_row_comes_once_for_each_projection() {
        let input = schema(&[("a", DataType::Utf8), ("x", DataType::Int64)]);
        let output = schema(&[("a", DataType::Utf8), ("set", DataType::Int64), ("x", DataType::Int64)]);
        let (a, x) = (col("a", &input).unwrap(), col("x", &input).unwrap());
        check(
            &|| {
                let all = vec![a.clone(), lit(0i64), x.clone()];
                let total = vec![lit(ScalarValue::Utf8(None)), lit(1i64), x.clone()];
                Box::new(Expand::new(vec![all, total], output.clone(), Failures::default()))
            },
            &[input],
            "+1 k 3
             -2 l 4
             watermark 1 5
             barrier",
            "+1 NULL 1 3
             +1 k 0 3
             -2 NULL 1 4
             -2 l 0 4
             barrier",
        );
    }
}
