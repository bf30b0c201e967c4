//! Over: window functions over partitions that change.
//!
//! ```text
//!   partition key ──> rows, sorted, as a top-n keeps them (all of them)
//!   barrier: of each partition that changed, the functions of all its rows as they were (-1)
//!            and as they are (+1); what is equal cancels out
//! ```
//! Ties of the order are broken by the whole row, so the result never depends on who came first.
//! A change costs the size of its partition: any function and frame that a batch knows is known
//! here, computed by the same code. A function that fails gives NULL for its partition, and counts.
//! State: that of the top-n.

use super::expr::nullable;
use super::failures::Failures;
use super::top_n::TopN;
use super::top_n_spec::TopNSpec;
use super::top_n_window::Window;
use crate::checkpoint::participant::Sealed;
use crate::dataflow::operator::{Fetched, Operator, OperatorError, Output, Progress, Restored, Wanted};
use crate::stream::builder::{ChangeBuilder, batch_of};
use crate::stream::{Barrier, ChangeBatch, Epoch, Watermark};
use arrow::array::{ArrayRef, RecordBatch, new_null_array};
use arrow::compute::cast;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::DFSchema;
use datafusion::error::DataFusionError;
use datafusion::execution::context::ExecutionProps;
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_planner::create_window_expr;
use std::collections::VecDeque;
use std::sync::Arc;
use weir_sql::plan::OverCall;

/// Computes window functions.
pub struct Over {
    calls: Vec<Arc<dyn WindowExpr>>,
    schema: SchemaRef,
    failures: Failures,

    rows: TopN,
    /// What is still to be said.
    saying: VecDeque<ChangeBatch>,
}

impl Over {
    /// Computes `calls` over the groups of `spec` (all rows, without rank); `schema` is the
    /// output's: the input's columns, then the calls'.
    pub fn new(
        spec: TopNSpec,
        calls: &[OverCall],
        schema: &SchemaRef,
        failures: Failures,
    ) -> Result<Self, OperatorError> {
        let numbered = |(i, field): (usize, &Arc<arrow::datatypes::Field>)| {
            field.as_ref().clone().with_name(i.to_string()).with_nullable(true)
        };
        let fields: Vec<_> = spec.input.fields().iter().enumerate().map(numbered).collect();
        let input = DFSchema::try_from(Schema::new(fields))?;
        let planned = |call: &OverCall| {
            create_window_expr(&call.function, &input, &ExecutionProps::new(), &Default::default())
        };
        let calls = calls.iter().map(planned).collect::<Result<Vec<_>, DataFusionError>>()?;
        let schema = nullable(schema);
        Ok(Self { calls, schema, failures, rows: TopN::new(spec), saying: VecDeque::new() })
    }

    /// The rows of a partition with what the functions make of them.
    fn computed(&self, rows: &RecordBatch, appear: bool) -> Result<RecordBatch, OperatorError> {
        let mut columns: Vec<ArrayRef> = rows.columns().to_vec();
        for call in &self.calls {
            let wanted = self.schema.field(columns.len()).data_type();
            columns.push(match call.evaluate(rows) {
                Ok(column) if column.data_type() == wanted => column,
                Ok(column) => cast(&column, wanted)?,
                Err(error) => {
                    if appear {
                        self.failures.take_all(rows, &error);
                    }
                    new_null_array(wanted, rows.num_rows())
                }
            });
        }
        Ok(batch_of(&self.schema, columns, rows.num_rows())?)
    }

    fn changed(&self, group: u32, before: &Window, after: &Window) -> Result<ChangeBatch, OperatorError> {
        let mut changes = ChangeBuilder::new(Arc::clone(&self.schema));
        for (window, appears) in [(before, false), (after, true)] {
            if window.is_empty() {
                continue;
            }
            let rows = self.rows.rows_of(group, window)?;
            let computed = ChangeBatch::insertions(self.computed(&rows, appears)?);
            changes.push(if appears { computed } else { computed.negated() });
        }
        Ok(changes.consolidate()?)
    }

    fn say(&mut self, out: &mut Output) -> Result<Progress, OperatorError> {
        loop {
            while let Some(batch) = self.saying.pop_front() {
                if out.is_full() {
                    self.saying.push_front(batch);
                    return Ok(Progress::More);
                }
                let rows = batch.num_rows().min(out.room());
                if rows < batch.num_rows() {
                    self.saying.push_front(batch.slice(rows, batch.num_rows() - rows));
                }
                out.push(batch.slice(0, rows));
            }
            let Some((group, before, after)) = self.rows.take_changed() else {
                self.rows.pass_watermarks(out);
                return Ok(Progress::Done);
            };
            let changes = self.changed(group, &before, &after)?;
            self.saying.push_back(changes);
        }
    }
}

impl Operator for Over {
    fn name(&self) -> &'static str {
        "over"
    }

    fn restore(&mut self, restored: &Restored<'_>) -> Result<(), OperatorError> {
        self.rows.restore(restored)
    }

    fn complete(&self) -> bool {
        self.rows.complete()
    }

    fn wanted(&self, port: usize, batch: &ChangeBatch, wanted: &mut Wanted) -> Result<(), OperatorError> {
        self.rows.wanted(port, batch, wanted)
    }

    fn supply(&mut self, wanted: &Wanted, entries: Vec<Fetched>) -> Result<(), OperatorError> {
        self.rows.supply(wanted, entries)
    }

    fn on_change(
        &mut self,
        port: usize,
        batch: ChangeBatch,
        out: &mut Output,
    ) -> Result<Progress, OperatorError> {
        self.rows.on_change(port, batch, out)
    }

    fn on_watermark(
        &mut self,
        port: usize,
        mark: Watermark,
        out: &mut Output,
    ) -> Result<Progress, OperatorError> {
        self.rows.on_watermark(port, mark, out)
    }

    fn on_barrier(&mut self, _barrier: &Barrier, out: &mut Output) -> Result<Progress, OperatorError> {
        self.say(out)
    }

    fn resume(&mut self, out: &mut Output) -> Result<Progress, OperatorError> {
        self.say(out)
    }

    fn seal(&mut self, barrier: &Barrier, sealed: &mut Sealed) -> Result<(), OperatorError> {
        self.failures.seal(barrier, sealed)?;
        self.rows.seal(barrier, sealed)
    }

    fn state_entries(&self) -> usize {
        self.rows.state_entries()
    }

    fn memory(&self) -> usize {
        self.rows.memory() + self.saying.iter().map(ChangeBatch::memory).sum::<usize>()
    }

    fn evict(&mut self, applied: Epoch, bytes: usize) -> usize {
        if self.saying.is_empty() { self.rows.evict(applied, bytes) } else { 0 }
    }
}
