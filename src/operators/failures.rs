//! What a failing expression leaves behind: a count, and a dead letter of the row that came.
//!
//! ```text
//!   evaluate ── row fails ──> count (all of them), kept (rows that appear, up to a bound)
//!   seal ──> rows of weir_catalog.dead_letters, in the epoch's writes
//! ```
//! A dead letter is written with the epoch in which its row came, as state like any other: after a
//! crash it is as durable as the row, and the replay writes it again and not twice. A retraction of
//! a row that failed is counted and not kept.

use super::expr::ErrorCounter;
use crate::checkpoint::participant::Sealed;
use crate::connectors::dead_letter;
use crate::connectors::source::DeadLetter;
use crate::dataflow::operator::OperatorError;
use crate::state::table::StateTable;
use crate::stream::Barrier;
use arrow::array::RecordBatch;
use datafusion::error::DataFusionError;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_catalog::JobId;

/// Dead letters that one operator keeps of one epoch; what fails beyond is only counted.
const KEPT_MAX: usize = 1000;

/// Whose expressions they are.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The view or sink.
    pub job: JobId,
    /// Its name.
    pub name: Arc<str>,
    /// The operator within it: plan node and actor.
    pub operator: (u32, usize),
}

/// Takes what fails in one operator. Without an origin it only counts.
#[derive(Debug, Default)]
pub struct Failures {
    counter: ErrorCounter,
    origin: Option<Origin>,

    kept: Mutex<Vec<DeadLetter>>,
}

impl Failures {
    /// Counts in `counter`, and keeps the rows.
    pub fn new(counter: ErrorCounter, origin: Origin) -> Self {
        Self { counter, origin: Some(origin), kept: Mutex::default() }
    }

    /// Only counts.
    pub fn counted(counter: ErrorCounter) -> Self {
        Self { counter, ..Self::default() }
    }

    /// The expression failed for a `row` (of one): one that appears, or one that goes.
    pub fn take(&self, row: &RecordBatch, appears: bool, error: &DataFusionError) {
        self.counter.fetch_add(1, Ordering::Relaxed);
        let Some(origin) = self.origin.as_ref().filter(|_| appears) else { return };
        let mut kept = self.kept.lock();
        if kept.len() < KEPT_MAX {
            let (node, actor) = origin.operator;
            kept.push(DeadLetter {
                split: format!("operator {node}, actor {actor}"),
                offset: String::new(),
                payload: dead_letter::payload(row),
                reason: dead_letter::reason(error),
            });
        }
    }

    /// A function of all `rows`, which appear, failed: the first of them stands for the others.
    pub fn take_all(&self, rows: &RecordBatch, error: &DataFusionError) {
        if rows.num_rows() > 0 {
            self.counter.fetch_add(rows.num_rows() as u64 - 1, Ordering::Relaxed);
            self.take(&rows.slice(0, 1), true, error);
        }
    }

    /// Hands over the dead letters of the epoch that `barrier` ends.
    pub fn seal(&self, barrier: &Barrier, sealed: &mut Sealed) -> Result<(), OperatorError> {
        let mut kept = std::mem::take(&mut *self.kept.lock());
        let Some(origin) = self.origin.as_ref().filter(|_| !kept.is_empty()) else { return Ok(()) };
        for (number, letter) in kept.iter_mut().enumerate() {
            letter.offset = format!("{}.{number}", barrier.epoch.0);
        }
        let mut table = StateTable::new(Arc::new(dead_letter::layout()));
        table.put(&dead_letter::rows(origin.job, &origin.name, barrier.epoch, &kept)?);
        sealed.runs.push(table.seal());
        Ok(())
    }
}
