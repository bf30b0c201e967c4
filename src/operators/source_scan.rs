//! A job's view of a shared source: its own columns, and the past that it missed.
//!
//! ```text
//!   shared reader   ──────────────────┬── rows after the job's first barrier ──>┐
//!   private reader  start ──> offsets ┘ at that barrier (per split)    ────────>┴─> the job
//! ```
//! A source's rows are insertions, so the two need no order between them: each row of the source
//! comes by exactly one of them. Watermarks are held back until the past has been read. Of the past
//! the same rows are late as when the shared reader read them ([`super::lateness`]).

use crate::checkpoint::participant::BackfillReport;
use crate::checkpoint::participant::Sealed;
use crate::connectors::source::{Source, SplitPoll, SplitReader, Waker};
use crate::dataflow::operator::{Operator, OperatorError, Output, Polled, Progress, Restored};
use crate::operators::lateness::Mark;
use crate::operators::source::SourceShared;
use crate::stream::{Barrier, ChangeBatch, Watermark};
use arrow::array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{SchemaRef, TimestampMicrosecondType};
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
    /// The index of this actor, and how many there are. Where the shared reader has as many, the one
    /// of this index feeds it; else all of them do.
    pub actor: (usize, usize),
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
    past: VecDeque<(Box<dyn SplitReader>, Mark)>,
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

    /// The declared columns that are read of the past: event time, too.
    fn past_columns(&self) -> Vec<usize> {
        let mut columns = self.spec.columns.clone();
        let time = self.spec.shared.watermark.as_ref().map(|w| w.column);
        if let Some(time) = time
            && let Err(at) = columns.binary_search(&time)
        {
            columns.insert(at, time);
        }
        columns
    }

    /// The rows of the past that were in time.
    fn in_time(&self, rows: RecordBatch, mark: &mut Mark) -> Result<RecordBatch, OperatorError> {
        let Some(watermark) = &self.spec.shared.watermark else { return Ok(rows) };
        let columns = self.past_columns();
        let Ok(at) = columns.binary_search(&watermark.column) else { return Ok(rows) };
        let times = rows.column(at).as_primitive::<TimestampMicrosecondType>();
        Ok(match mark.pass(times, watermark.delay_us) {
            Some(in_time) => filter_record_batch(&rows, &in_time)?,
            None => rows,
        })
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
            let columns = self.past_columns();
            for (split, offset, mark) in self.spec.shared.positions_at(self.spec.actor, barrier.epoch) {
                let reader = self
                    .spec
                    .source
                    .reader(&split, None, offset.as_ref(), &columns, Arc::clone(&self.spec.waker))
                    .map_err(|e| OperatorError::Source(format!("{}: {e}", split.name)))?;
                self.past.push_back((reader, mark));
            }
        }
        Ok(Progress::Done)
    }

    fn poll(&mut self, now_us: i64, out: &mut Output) -> Result<Polled, OperatorError> {
        let mut until_us = None;
        for _ in 0..self.past.len() {
            let Some((mut reader, mut mark)) = self.past.pop_front() else { break };
            match reader
                .poll(POLL_ROWS_MAX.min(out.room()), now_us)
                .map_err(|e| OperatorError::Source(e.to_string()))?
            {
                SplitPoll::Rows(rows, _dead_already_kept) => {
                    self.past_rows += rows.num_rows() as u64;
                    let rows = self.in_time(rows, &mut mark)?;
                    match reader.between() {
                        true => self.past.push_back((reader, mark)),
                        false => self.past.push_front((reader, mark)),
                    }
                    out.push(ChangeBatch::insertions(self.pick(&rows)?));
                    return Ok(Polled::Busy);
                }
                SplitPoll::Idle { until_us: split_us } => {
                    until_us = [until_us, split_us].into_iter().flatten().min();
                    self.past.push_back((reader, mark));
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
