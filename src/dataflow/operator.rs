//! The Operator contract.
//!
//! An operator answers one question: given my state and this change, which change comes out?
//! It is a synchronous value: no channels, no clock, no threads, no I/O on the path of a row.
//!
//! ```text
//!            ┌──────────────────────────── per epoch ───────────────────────────┐
//!   restore ─┤ (wanted → supply)? → on_change → resume*   | on_watermark → resume* | poll ├─ on_barrier → resume* → seal ─┐
//!            └──────────────────────────────────────────────────────────────────┘                                │
//!                 ▲──────────────────────────────── next epoch ───────────────────────────────────────────────────┘
//! ```
//!
//! The operator must:
//! 1. return [`Progress::More`] when the output is full and it has more to say, keeping what is
//!    left; it is called by `resume` until it returns `Done`, and with nothing else before;
//! 2. emit, between two barriers, the change of its result over that epoch, in any cut and order
//!    (equal rows with opposite diffs may both be emitted);
//! 3. at `seal`, hand over every state write since the last seal of that kind: relations' rows at
//!    each barrier, internal state at checkpoints (and what of it is ready, before);
//! 4. give the same result from restored state as from the state it sealed; one that can read through
//!    ([`Operator::keyed`]) takes up nothing at `restore` and is incomplete from then on;
//! 5. fail only of what a restart may mend; bad data is not an error (see [`super::super::operators::expr`]).
//!
//! The caller (the actor loop, or a test) must:
//! 1. offer rows of the declared schema only, on ports that exist;
//! 2. call `on_barrier` only at `Done`, and `seal` right after `on_barrier` is done;
//! 3. call `wanted` before `on_change` while [`Operator::complete`] is false, and `supply` what it
//!    asked for, whole.

use super::fill::Keyed;
use crate::checkpoint::participant::{Offset, OffsetKey, Sealed};
use crate::state::store::StateRead;
use crate::stream::{Barrier, BarrierKind, ChangeBatch, Epoch, VnodeSet, Watermark};
use crate::work;
use arrow::error::ArrowError;
use std::collections::HashMap;
use std::sync::Arc;
use weir_catalog::TableId;

/// Rows an output takes before it is full.
pub const OUTPUT_ROWS_MAX: usize = 8192;
/// Bytes an output takes before it is full: so much of rows of a few hundred bytes, and no more of
/// those that are longer.
pub const OUTPUT_BYTES_MAX: usize = 2 << 20;
/// Rows of an operator's first batch, before it is known how long they are.
pub const FIRST_ROWS: usize = 512;

/// What an operator emits into: ordered, with a budget of rows and bytes.
#[derive(Debug, Default)]
pub struct Output {
    items: Vec<OutputItem>,
    rows: usize,
    bytes: usize,
    /// Bytes of a row, as its operator's last batch had them; 0: not known.
    row_bytes: usize,
}

/// One thing emitted.
#[derive(Debug)]
pub enum OutputItem {
    /// Rows that change.
    Changes(ChangeBatch),
    /// A promise about event time.
    Watermark(Watermark),
}

impl Output {
    /// Emits `batch`; an empty one is dropped.
    pub fn push(&mut self, batch: ChangeBatch) {
        if !batch.is_empty() {
            let bytes = batch.slice_memory();
            self.rows += batch.num_rows();
            self.bytes += bytes;
            self.row_bytes = bytes.div_ceil(batch.num_rows());
            self.items.push(OutputItem::Changes(batch));
        }
    }

    /// Emits a watermark, after the batches so far.
    pub fn push_watermark(&mut self, watermark: Watermark) {
        self.items.push(OutputItem::Watermark(watermark));
    }

    /// Whether the operator should return [`Progress::More`] if it has more to say. An operator
    /// may overshoot by one batch.
    pub fn is_full(&self) -> bool {
        self.rows >= work::bound(OUTPUT_ROWS_MAX) || self.bytes >= OUTPUT_BYTES_MAX
    }

    /// How many rows it still takes before it is full, if they are as long as those of its
    /// operator's last batch. At least one: an operator that was not told to stop goes on.
    pub fn room(&self) -> usize {
        let by_rows = work::bound(OUTPUT_ROWS_MAX).saturating_sub(self.rows);
        let left = OUTPUT_BYTES_MAX.saturating_sub(self.bytes);
        let by_bytes = left.checked_div(self.row_bytes).unwrap_or(FIRST_ROWS);
        by_rows.min(by_bytes).max(1)
    }

    /// What comes next is of an operator whose rows had `row_bytes` when it emitted last.
    pub fn expect(&mut self, row_bytes: usize) {
        self.row_bytes = row_bytes;
    }

    /// Bytes of a row, as the last batch had them; 0: not known.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Bytes emitted so far.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nothing was emitted.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Takes what was emitted, in order; the budget is whole again.
    pub fn take(&mut self) -> Vec<OutputItem> {
        (self.rows, self.bytes) = (0, 0);
        std::mem::take(&mut self.items)
    }
}

/// Whether an operator has said all that it has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All is said.
    Done,
    /// The output is full; call `resume` with room.
    More,
}

/// What `poll` found to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polled {
    /// It emitted something, or could go on at once.
    Busy,
    /// Nothing to do until input, a waker, or this time ([`crate::clock::steady_us`]) comes.
    Idle {
        /// When to poll again, if known.
        until_us: Option<i64>,
    },
}

/// Why an operator can't go on. The database's dataflow is restarted from its last checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// A kernel failed.
    #[error("could not compute: {0}")]
    Arrow(#[from] ArrowError),
    /// An expression failed as a whole.
    #[error("could not evaluate: {0}")]
    Expression(#[from] datafusion::error::DataFusionError),
    /// State could not be read.
    #[error("could not read state: {0}")]
    State(#[from] crate::state::StateError),
    /// A source could not go on.
    #[error("could not read source: {0}")]
    Source(String),
    /// A sink log or other local file could not be written.
    #[error("could not write: {0}")]
    Io(#[from] std::io::Error),
    /// Something that never should be.
    #[error("{0}")]
    Internal(String),
}

/// Keys of an operator's state that are cold: each a prefix (vnode byte, then encoded group key)
/// below which all entries of one of its tables are wanted.
#[derive(Debug, Default)]
pub struct Wanted {
    /// (table, prefix without the table id).
    pub prefixes: Vec<(TableId, Vec<u8>)>,
}

/// One entry fetched for a wanted prefix: the index into [`Wanted::prefixes`], the key without the
/// table id, and the value.
#[derive(Debug)]
pub struct Fetched {
    /// Which wanted prefix it was found below.
    pub wanted: usize,
    /// Vnode byte and encoded key.
    pub key: Vec<u8>,
    /// Encoded value.
    pub value: Vec<u8>,
}

/// What an operator starts from.
pub struct Restored<'a> {
    /// The state as of the restored epoch.
    pub state: &'a Arc<dyn StateRead>,
    /// The vnodes of this actor.
    pub vnodes: &'a VnodeSet,
    /// Offsets in the restored checkpoint, of all actors.
    pub offsets: &'a HashMap<OffsetKey, Offset>,
    /// The restored epoch; [`Epoch::ZERO`] for a new job.
    pub epoch: Epoch,
}

/// A step of a plan. See the module's doc for the contract.
pub trait Operator: Send {
    /// Its kind, for metrics and errors.
    fn name(&self) -> &'static str;

    /// Takes up restored state, or that there is some to be read through. Called once, first; not
    /// called for a new job.
    fn restore(&mut self, _restored: &Restored<'_>) -> Result<(), OperatorError> {
        Ok(())
    }

    /// Whether everything in its tables is also in memory, so that `wanted` need not be asked.
    fn complete(&self) -> bool {
        true
    }

    /// Adds the cold keys that `batch` will touch.
    fn wanted(&self, _port: usize, _batch: &ChangeBatch, _wanted: &mut Wanted) -> Result<(), OperatorError> {
        Ok(())
    }

    /// Takes up all entries below the wanted prefixes; a prefix without entries is known empty.
    fn supply(&mut self, _wanted: &Wanted, _entries: Vec<Fetched>) -> Result<(), OperatorError> {
        Ok(())
    }

    /// How what it keeps lies in its tables, if it can read through.
    fn keyed(&self) -> Option<Keyed> {
        None
    }

    /// Of prefixes of `table` (vnode and key, ascending, each once): which are not in memory, so that
    /// a change would want them.
    fn cold(&self, _table: TableId, prefixes: &[&[u8]]) -> Result<Vec<bool>, OperatorError> {
        Ok(vec![false; prefixes.len()])
    }

    /// Every entry of its vnodes was supplied, or was in memory, and nothing was evicted meanwhile:
    /// it is complete from now on.
    fn filled(&mut self) {}

    /// A change on input `port`.
    fn on_change(
        &mut self,
        port: usize,
        batch: ChangeBatch,
        out: &mut Output,
    ) -> Result<Progress, OperatorError>;

    /// A watermark on input `port`. By default it ends here; an operator passes it on only where
    /// its output keeps the promise.
    fn on_watermark(
        &mut self,
        _port: usize,
        _watermark: Watermark,
        _out: &mut Output,
    ) -> Result<Progress, OperatorError> {
        Ok(Progress::Done)
    }

    /// All inputs have reached the barrier.
    fn on_barrier(&mut self, _barrier: &Barrier, _out: &mut Output) -> Result<Progress, OperatorError> {
        Ok(Progress::Done)
    }

    /// Goes on after [`Progress::More`].
    fn resume(&mut self, _out: &mut Output) -> Result<Progress, OperatorError> {
        Ok(Progress::Done)
    }

    /// Work that needs no input: reading a split, a backfill's next chunk. `now_us` is the
    /// worker's clock.
    fn poll(&mut self, _now_us: i64, _out: &mut Output) -> Result<Polled, OperatorError> {
        Ok(Polled::Idle { until_us: None })
    }

    /// Which barrier takes away what changes leave behind: none, if they leave nothing.
    fn held_until(&self) -> Option<BarrierKind> {
        self.keyed().map(|_| BarrierKind::Checkpoint)
    }

    /// Hands over what belongs to the epoch that `barrier` ends.
    fn seal(&mut self, _barrier: &Barrier, _sealed: &mut Sealed) -> Result<(), OperatorError> {
        Ok(())
    }

    /// Groups or rows that it remembers in memory.
    fn state_entries(&self) -> usize {
        0
    }

    /// Bytes of memory it holds, roughly.
    fn memory(&self) -> usize {
        0
    }

    /// Forgets about `bytes` of cold state that `applied` (the newest published epoch) holds, and
    /// is incomplete from then on. Returns the bytes freed.
    fn evict(&mut self, _applied: Epoch, _bytes: usize) -> usize {
        0
    }
}
