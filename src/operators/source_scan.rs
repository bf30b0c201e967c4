//! A job's view of a shared source: its own columns, and the past that it missed.
//!
//! ```text
//!   shared reader   ──────────────────┬── rows after the job's first barrier ──>┐
//!   private reader  start ──> offsets ┘ at that barrier (per split)    ────────>┴─> the job
//! ```
//! A source's rows are insertions, so the two need no order between them: each row of the source
//! comes by exactly one of them. Watermarks are held back until the past has been read.

use crate::checkpoint::participant::BackfillReport;
use crate::checkpoint::participant::Sealed;
use crate::connectors::source::{Source, SplitPoll, SplitReader, Waker};
use crate::dataflow::operator::{Operator, OperatorError, Output, Polled, Progress, Restored};
use crate::operators::source::SourceShared;
use crate::stream::{Barrier, ChangeBatch, Watermark};
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use std::collections::VecDeque;
use std::sync::Arc;
use weir_catalog::JobId;

/// Rows asked of a split at a time.
const POLL_ROWS_MAX: usize = 4096;

/// What a source scan is made of.
pub struct SourceScanSpec {
    /// The job that reads.
    pub job: JobId,
    /// The source's connector.
    pub source: Arc<dyn Source>,
    /// What the shared reader tells.
    pub shared: Arc<SourceShared>,
    /// The index of this actor, the same as that of the shared reader's actor that feeds it.
    pub actor: usize,
    /// The declared columns that it reads, ascending, and their schema.
    pub columns: Vec<usize>,
    /// The schema of what it emits.
    pub schema: SchemaRef,
    /// Wakes the actor.
    pub waker: Waker,
}

/// Picks columns, and reads the past.
pub struct SourceScan {
    spec: SourceScanSpec,

    started: bool,
    past: VecDeque<Box<dyn SplitReader>>,
    past_rows: u64,
    held_watermark: Option<Watermark>,
}

impl SourceScan {
    /// Starts with the past at its first barrier, unless it is restored.
    pub fn new(spec: SourceScanSpec) -> Self {
        Self { spec, started: false, past: VecDeque::new(), past_rows: 0, held_watermark: None }
    }

    fn pick(&self, rows: &RecordBatch) -> Result<RecordBatch, OperatorError> {
        let columns = self
            .spec
            .schema
            .fields()
            .iter()
            .map(|field| {
                rows.column_by_name(field.name()).cloned().ok_or_else(|| {
                    OperatorError::Internal(format!("the source does not read column {}", field.name()))
                })
            })
            .collect::<Result<Vec<ArrayRef>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.spec.schema), columns, &options)?)
    }

    fn pass_watermark(&mut self, out: &mut Output) {
        if self.past.is_empty()
            && let Some(watermark) = self.held_watermark.take()
        {
            out.push_watermark(watermark);
        }
    }
}

impl Operator for SourceScan {
    fn name(&self) -> &'static str {
        "source scan"
    }

    fn restore(&mut self, _restored: &Restored<'_>) -> Result<(), OperatorError> {
        // A job is in a checkpoint's list only when it has caught up.
        self.started = true;
        Ok(())
    }

    fn on_change(
        &mut self,
        _: usize,
        batch: ChangeBatch,
        out: &mut Output,
    ) -> Result<Progress, OperatorError> {
        out.push(batch.with_rows(self.pick(batch.rows())?));
        Ok(Progress::Done)
    }

    fn on_watermark(
        &mut self,
        _: usize,
        mark: Watermark,
        out: &mut Output,
    ) -> Result<Progress, OperatorError> {
        if let Some(column) = self.spec.columns.iter().position(|c| *c == mark.column) {
            self.held_watermark = Some(Watermark { column, time_us: mark.time_us });
            self.pass_watermark(out);
        }
        Ok(Progress::Done)
    }

    fn on_barrier(&mut self, barrier: &Barrier, _: &mut Output) -> Result<Progress, OperatorError> {
        if !self.started {
            self.started = true;
            for (split, offset) in self.spec.shared.positions_at(self.spec.actor, barrier.epoch) {
                let reader = self
                    .spec
                    .source
                    .reader(&split, None, offset.as_ref(), &self.spec.columns, Arc::clone(&self.spec.waker))
                    .map_err(|e| OperatorError::Source(format!("{}: {e}", split.name)))?;
                self.past.push_back(reader);
            }
        }
        Ok(Progress::Done)
    }

    fn poll(&mut self, now_us: i64, out: &mut Output) -> Result<Polled, OperatorError> {
        let mut until_us = None;
        for _ in 0..self.past.len() {
            let Some(mut reader) = self.past.pop_front() else { break };
            match reader.poll(POLL_ROWS_MAX, now_us).map_err(|e| OperatorError::Source(e.to_string()))? {
                SplitPoll::Rows(rows, _dead_already_kept) => {
                    match reader.between() {
                        true => self.past.push_back(reader),
                        false => self.past.push_front(reader),
                    }
                    self.past_rows += rows.num_rows() as u64;
                    out.push(ChangeBatch::insertions(self.pick(&rows)?));
                    return Ok(Polled::Busy);
                }
                SplitPoll::Idle { until_us: split_us } => {
                    until_us = [until_us, split_us].into_iter().flatten().min();
                    self.past.push_back(reader);
                }
                SplitPoll::Finished => {
                    self.pass_watermark(out);
                    return Ok(Polled::Busy);
                }
            }
        }
        Ok(Polled::Idle { until_us })
    }

    fn seal(&mut self, _: &Barrier, sealed: &mut Sealed) -> Result<(), OperatorError> {
        let done = self.started && self.past.is_empty();
        sealed.backfills.push(BackfillReport { job: self.spec.job, rows: self.past_rows, done });
        Ok(())
    }
}
