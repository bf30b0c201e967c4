//! A stored relation as a stream: what is there, then its changes, joined at an epoch.
//!
//! It scans in key order, in bounded chunks, and never holds back a barrier:
//!
//! ```text
//!   keys     ├── scanned ──────────────┤position├── not yet ──────────┤
//!   changes  forwarded at the barrier           dropped: the next snapshot has them
//! ```
//! **Invariant:** in the epoch that follows barrier N chunks are read from the snapshot of N and of
//! no other epoch; so at the next barrier the rows up to the position are exactly those of N, and
//! that epoch's changes at or before the position bring them to the next one. Watermarks are held
//! back until all is scanned: what is scanned may be of any time.

use crate::checkpoint::participant::{BackfillReport, Sealed};
use crate::dataflow::chain::StateSource;
use crate::dataflow::operator::{Operator, OperatorError, Output, Polled, Progress, Restored};
use crate::state::rows::KeyRange;
use crate::state::store::full_key;
use crate::state::table::TableLayout;
use crate::stream::{Barrier, ChangeBatch, Epoch, Vnode, VnodeSet, Watermark};
use crate::work;
use arrow::array::BooleanArray;
use std::collections::VecDeque;
use std::sync::Arc;
use weir_catalog::JobId;

/// Rows read at a time.
const CHUNK_ROWS: usize = 4096;

/// What a backfill is made of.
pub struct BackfillSpec {
    /// The job that fills.
    pub job: JobId,
    /// The relation that it reads.
    pub layout: Arc<TableLayout>,
    /// The columns that it passes on.
    pub columns: Vec<usize>,
    /// The vnodes of this actor.
    pub vnodes: VnodeSet,
    /// The newest published snapshot.
    pub state: StateSource,
}

/// The part of the key space that is still to be scanned.
enum Position {
    /// Before the job's first barrier.
    NotStarted,
    /// In a vnode: the rest of its range; later vnodes wait.
    Scanning { vnode: Vnode, rest: KeyRange, later: VecDeque<Vnode> },
    /// All is scanned.
    Done,
}

/// Scans, then forwards.
pub struct Backfill {
    spec: BackfillSpec,

    position: Position,
    /// The epoch whose snapshot chunks are read from now: that of the last barrier.
    epoch: Epoch,
    /// This epoch's changes, which wait for the barrier to know the position.
    held: VecDeque<ChangeBatch>,
    /// Watermarks that wait: by column, the last.
    watermarks: Vec<Watermark>,
    rows: u64,
}

impl Backfill {
    /// Starts to scan at its first barrier, unless it is restored.
    pub fn new(spec: BackfillSpec) -> Self {
        Self {
            spec,
            position: Position::NotStarted,
            epoch: Epoch::ZERO,
            held: VecDeque::new(),
            watermarks: Vec::new(),
            rows: 0,
        }
    }

    fn forward(&self, batch: &ChangeBatch) -> Result<ChangeBatch, OperatorError> {
        Ok(batch.with_rows(batch.rows().project(&self.spec.columns)?))
    }

    /// The rows of `batch` at or before the position.
    fn scanned(&self, batch: &ChangeBatch) -> Result<ChangeBatch, OperatorError> {
        let Position::Scanning { vnode, rest, .. } = &self.position else { return Ok(batch.clone()) };
        let layout = &self.spec.layout;
        let vnodes = layout.vnodes(batch.rows());
        let keys = layout.keys(batch.rows());
        let keep: BooleanArray = (0..batch.num_rows())
            .map(|row| {
                let before = vnodes[row].0 < vnode.0
                    || (vnodes[row] == *vnode && full_key(layout.id, keys.get(row)) < rest.lower);
                Some(before)
            })
            .collect();
        Ok(batch.filter(&keep)?)
    }

    /// Passes watermarks on once nothing that came before them waits.
    fn pass_watermarks(&mut self, out: &mut Output) {
        if matches!(self.position, Position::Done) && self.held.is_empty() {
            self.watermarks.drain(..).for_each(|watermark| out.push_watermark(watermark));
        }
    }

    fn next_vnode(&mut self, mut later: VecDeque<Vnode>) {
        self.position = match later.pop_front() {
            Some(vnode) => Position::Scanning { vnode, rest: self.spec.layout.range(vnode, &[]), later },
            None => Position::Done,
        };
    }
}

impl Operator for Backfill {
    fn name(&self) -> &'static str {
        "scan"
    }

    fn restore(&mut self, _restored: &Restored<'_>) -> Result<(), OperatorError> {
        // A job is in a checkpoint's list only when it has caught up.
        self.position = Position::Done;
        Ok(())
    }

    fn on_change(
        &mut self,
        _: usize,
        batch: ChangeBatch,
        out: &mut Output,
    ) -> Result<Progress, OperatorError> {
        if matches!(self.position, Position::Done) {
            out.push(self.forward(&batch)?);
        } else {
            self.held.push_back(batch);
        }
        Ok(Progress::Done)
    }

    fn on_watermark(
        &mut self,
        _: usize,
        mark: Watermark,
        out: &mut Output,
    ) -> Result<Progress, OperatorError> {
        if let Some(column) = self.spec.columns.iter().position(|c| *c == mark.column) {
            self.watermarks.retain(|w| w.column != column);
            self.watermarks.push(Watermark { column, ..mark });
            self.pass_watermarks(out);
        }
        Ok(Progress::Done)
    }

    fn on_barrier(&mut self, barrier: &Barrier, out: &mut Output) -> Result<Progress, OperatorError> {
        self.epoch = barrier.epoch;
        self.resume(out)
    }

    fn resume(&mut self, out: &mut Output) -> Result<Progress, OperatorError> {
        while let Some(batch) = self.held.pop_front() {
            let scanned = self.scanned(&batch)?;
            out.push(self.forward(&scanned)?);
            if out.is_full() && !self.held.is_empty() {
                return Ok(Progress::More);
            }
        }
        if matches!(self.position, Position::NotStarted) {
            self.next_vnode(self.spec.vnodes.iter().collect());
        }
        self.pass_watermarks(out);
        Ok(Progress::Done)
    }

    fn poll(&mut self, now_us: i64, out: &mut Output) -> Result<Polled, OperatorError> {
        if !matches!(self.position, Position::Scanning { .. }) {
            return Ok(Polled::Idle { until_us: None });
        }
        let (epoch, state) = (self.spec.state)();
        if epoch != self.epoch {
            return Ok(Polled::Idle { until_us: Some(now_us + 1_000) });
        }
        crate::failpoint::hit("backfill.chunk")?;
        let mut rows = 0;
        let chunk_rows = work::bound(CHUNK_ROWS);
        while rows < chunk_rows && !out.is_full() {
            let Position::Scanning { vnode, rest, later } =
                std::mem::replace(&mut self.position, Position::Done)
            else {
                break;
            };
            let chunk = self.spec.layout.scan(&*state, &rest, chunk_rows.min(out.room()))?;
            match chunk.next {
                Some(rest) => self.position = Position::Scanning { vnode, rest, later },
                None => self.next_vnode(later),
            }
            let changes = chunk.rows.into_changes();
            rows += changes.num_rows();
            out.push(self.forward(&changes)?);
        }
        self.rows += rows as u64;
        Ok(Polled::Busy)
    }

    fn seal(&mut self, _: &Barrier, sealed: &mut Sealed) -> Result<(), OperatorError> {
        // What is scanned is passed on with the barrier that this report belongs to.
        let done = matches!(self.position, Position::Done);
        sealed.backfills.push(BackfillReport { job: self.spec.job, rows: self.rows, done });
        Ok(())
    }
}
