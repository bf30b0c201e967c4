//! A Sink as the end of a stream: every change goes to the sink's log, and at a checkpoint the
//! log's part of the epoch is promised. Delivery is the committer's, outside the dataflow. A sink
//! that discards everything delivers nothing, and needs no log.

use crate::checkpoint::participant::Sealed;
use crate::connectors::sink_log::SinkLogWriter;
use crate::dataflow::operator::{Operator, OperatorError, Output, Progress};
use crate::stream::{Barrier, ChangeBatch};
use arrow::array::BooleanArray;

/// Appends changes to the sink's log.
pub struct SinkWriter {
    log: SinkLogWriter,
    /// Whether deletions are left out: an append-only sink over an input that retracts.
    insertions_only: bool,
}

impl SinkWriter {
    /// Writes to `log`.
    pub fn new(log: SinkLogWriter, insertions_only: bool) -> Self {
        Self { log, insertions_only }
    }
}

impl Operator for SinkWriter {
    fn name(&self) -> &'static str {
        "sink"
    }

    fn on_change(&mut self, _: usize, batch: ChangeBatch, _: &mut Output) -> Result<Progress, OperatorError> {
        if self.insertions_only && batch.diffs().is_some() {
            let keep: BooleanArray = (0..batch.num_rows()).map(|row| Some(batch.diff(row) > 0)).collect();
            self.log.append(&batch.filter(&keep)?)?;
        } else {
            self.log.append(&batch)?;
        }
        Ok(Progress::Done)
    }

    fn seal(&mut self, barrier: &Barrier, sealed: &mut Sealed) -> Result<(), OperatorError> {
        match barrier.after_unaligned {
            true => self.log.take_back(),
            false => self.log.confirm(),
        }
        if barrier.is_checkpoint() {
            sealed.handles.extend(self.log.seal(barrier.epoch)?);
        }
        Ok(())
    }

    fn memory(&self) -> usize {
        self.log.memory()
    }
}

/// Takes changes and forgets them.
pub struct Discard;

impl Operator for Discard {
    fn name(&self) -> &'static str {
        "sink"
    }

    fn on_change(&mut self, _: usize, _: ChangeBatch, _: &mut Output) -> Result<Progress, OperatorError> {
        Ok(Progress::Done)
    }
}
