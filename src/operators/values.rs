//! Values: a constant relation, once.
//!
//! A new job's copy emits its rows before its first barrier, so every restorable epoch has them: a
//! restored copy has nothing to say.

use crate::dataflow::operator::{Operator, OperatorError, Output, Polled, Progress, Restored};
use crate::stream::{Barrier, ChangeBatch};
use arrow::array::RecordBatch;

/// Rows at most in one batch.
const BATCH_ROWS_MAX: usize = 4096;

/// Emits constant rows, once in the life of its job.
#[derive(Debug)]
pub struct Values {
    rows: RecordBatch,
    emitted: usize,
}

impl Values {
    /// Emits `rows`.
    pub fn new(rows: RecordBatch) -> Self {
        Self { rows, emitted: 0 }
    }

    fn emit(&mut self, out: &mut Output) -> Progress {
        while self.emitted < self.rows.num_rows() {
            if out.is_full() {
                return Progress::More;
            }
            let rows = (self.rows.num_rows() - self.emitted).min(BATCH_ROWS_MAX).min(out.room());
            out.push(ChangeBatch::insertions(self.rows.slice(self.emitted, rows)));
            self.emitted += rows;
        }
        Progress::Done
    }
}

impl Operator for Values {
    fn name(&self) -> &'static str {
        "values"
    }

    fn restore(&mut self, _restored: &Restored<'_>) -> Result<(), OperatorError> {
        self.emitted = self.rows.num_rows();
        Ok(())
    }

    fn on_change(
        &mut self,
        port: usize,
        _batch: ChangeBatch,
        _out: &mut Output,
    ) -> Result<Progress, OperatorError> {
        Err(OperatorError::Internal(format!("values has no input {port}")))
    }

    fn poll(&mut self, _now_us: i64, out: &mut Output) -> Result<Polled, OperatorError> {
        if self.emitted == self.rows.num_rows() {
            return Ok(Polled::Idle { until_us: None });
        }
        self.emit(out);
        Ok(Polled::Busy)
    }

    fn on_barrier(&mut self, _barrier: &Barrier, out: &mut Output) -> Result<Progress, OperatorError> {
        Ok(self.emit(out))
    }

    fn resume(&mut self, out: &mut Output) -> Result<Progress, OperatorError> {
        Ok(self.emit(out))
    }

    fn memory(&self) -> usize {
        self.rows.get_array_memory_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::script::{check, schema};
    use arrow::array::Int64Array;
    use arrow::datatypes::DataType;
    use std::sync::Arc;

    fn values(rows: Vec<Option<i64>>) -> Values {
        let schema = schema(&[("a", DataType::Int64)]);
        Values::new(RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(rows))]).unwrap())
    }

    #[test]
    fn once_and_not_again_after_a_restore() {
        check(
            &|| Box::new(values(vec![Some(1), None, Some(1)])),
            &[],
            "barrier
             barrier",
            "+2 1
             +1 NULL
             barrier
             barrier",
        );
    }

    #[test]
    fn many_rows_are_cut_at_the_budget() {
        let mut values = values((0..20_000).map(Some).collect());
        let mut out = Output::default();
        let mut progress = values.emit(&mut out);
        let mut rows = 0;
        loop {
            let emitted: usize = out
                .take()
                .iter()
                .map(|item| match item {
                    crate::dataflow::operator::OutputItem::Changes(batch) => batch.num_rows(),
                    crate::dataflow::operator::OutputItem::Watermark(_) => 0,
                })
                .sum();
            assert!(emitted <= crate::dataflow::operator::OUTPUT_ROWS_MAX + BATCH_ROWS_MAX);
            rows += emitted;
            if progress == Progress::Done {
                break;
            }
            progress = values.resume(&mut out).unwrap();
        }
        assert_eq!(rows, 20_000);
    }
}
