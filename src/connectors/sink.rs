//! The Sink contract, in two styles. In both a sink's actors append their epoch's changes to a sink log
//! ([`super::sink_log`]), and a committer outside the dataflow takes them to the target from there: a
//! barrier never waits for the outside world.
//!
//! Logged, to a [`SinkTarget`]: durable epochs are delivered, in order.
//!
//! ```text
//!   actor ── changes ──> sink log ══ manifest names it ══> committer ── deliver(epoch) ──> target
//!                                                             ▲ marker (generation, epoch) in the target itself
//! ```
//! Prepared, to a [`PreparedTarget`]: an epoch is written and prepared while its checkpoint is made,
//! one transaction an actor, and committed once that is durable.
//!
//! ```text
//!   actor ── changes ──> sink log ── sealed ──> committer ── begin, write, prepare ──> target
//!                           └── manifest ── durable ──────── commit ───────────────────^
//! ```
//! What the manifest names is the part of the log in both, so that whatever becomes of a transaction
//! that is not committed, its rows can be written again.
//!
//! A [`SinkTarget`] promises: 1. `open` tells the marker of what it holds; 2. `deliver` makes all of a
//! delivery and its marker visible, or nothing of it (or of each chunk, whose number is in the
//! marker); 3. delivering again what the marker covers changes nothing; 4. a delivery with a lower
//! generation than the target's marker fails.

use super::error::ConnectorError;
use super::transaction::{Fate, TransactionName};
use crate::stream::{ChangeBatch, Epoch};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How far a target has come: what it stores beside the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    /// The generation of the server that wrote it.
    pub generation: u64,
    /// The last epoch delivered whole.
    pub epoch: Epoch,
    /// The range of epochs after it that is delivered in part.
    pub partial: Option<Partial>,
}

/// A range of epochs of which the first chunks are delivered. It is gone on with as it was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partial {
    /// The last epoch of the range.
    pub until: Epoch,
    /// How many of its chunks are delivered.
    pub chunks: u32,
}

/// Why a delivery did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// Might work next time: the target is down, slow, full.
    #[error("{0}")]
    Retry(String),
    /// The target answers, and does not take what it is given until somebody changes it: a row that
    /// breaks a rule of its, a table that is gone, a right that is missing.
    #[error("{0}")]
    Refused(String),
    /// Never will by itself: a newer generation, a target that is ahead.
    #[error("{0}")]
    Fatal(String),
}

/// One chunk of a durable range of epochs of one sink, consolidated over the range. Keyed sinks are
/// cut by key, so that a key's changes are in one chunk; the diffs are all 1 or -1.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The last epoch of the range.
    pub until: Epoch,
    /// Which chunk, from 0.
    pub chunk: u32,
    /// What the target holds after it.
    pub marker: Marker,
    /// The changes. Append-only: insertions. Upsert: an insertion replaces the row of its key, a
    /// deletion removes it, one of them a key. Debezium: a deletion followed by an insertion of
    /// the same key is an update.
    pub batches: Vec<ChangeBatch>,
}

/// Where a sink delivers to.
#[async_trait]
pub trait SinkTarget: Send {
    /// Tells what would keep rows from ever being delivered. CREATE SINK asks before it is
    /// acknowledged. Leaves nothing behind in the target.
    async fn check(&mut self) -> Result<(), ConnectorError> {
        Ok(())
    }

    /// Why it can't take each change exactly once, where what `check` or `open` found is so.
    fn degraded(&self) -> Option<String> {
        None
    }

    /// Connects, checks that rows will fit, creates what is needed, finishes what a crash left
    /// half done, and tells how far the target has come. Called again after a failure.
    async fn open(&mut self) -> Result<Option<Marker>, SinkError>;

    /// Delivers and commits. What the target refuses is told with the row, as far as it says which.
    async fn deliver(&mut self, delivery: Delivery) -> Result<(), SinkError>;
}

/// What a [`PreparedTarget`] holds of a sink.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PreparedHeld {
    /// The last epoch committed, by actor.
    pub epochs: BTreeMap<u32, Epoch>,
    /// What is prepared and neither committed nor rolled back.
    pub transactions: Vec<TransactionName>,
}

/// Where a sink commits in two phases. It promises: 1. what is prepared survives its own crash, and
/// ours; 2. a commit makes the rows and the actor's epoch visible together; 3. an epoch that its actor
/// has committed is not prepared again; 4. after `take_over` a lower generation can't prepare.
///
/// ```text
///   open ── commit or roll back what is found ── take_over ──┬─ begin ── write … ── prepare ─┬─> …
///    ^ after any failure                                     └─ commit ──────────────────────┘
/// ```
#[async_trait]
pub trait PreparedTarget: Send {
    /// Tells what would keep rows from ever being delivered. CREATE SINK asks before it is
    /// acknowledged. Leaves nothing behind in the target.
    async fn check(&mut self) -> Result<(), ConnectorError>;

    /// Connects, checks that rows will fit, creates what is needed, and tells what is there.
    async fn open(&mut self) -> Result<PreparedHeld, SinkError>;

    /// Keeps lower generations from preparing.
    async fn take_over(&mut self) -> Result<(), SinkError>;

    /// Lowers the epochs of all actors to `epoch` where they are above it: the target is ahead, and somebody
    /// chose to have the rows again.
    async fn lower(&mut self, epoch: Epoch) -> Result<(), SinkError>;

    /// Begins a transaction. It ends when the connection does.
    async fn begin(&mut self, name: &TransactionName) -> Result<(), SinkError>;

    /// Writes to it: what [`Delivery::batches`] has.
    async fn write(&mut self, batches: &[ChangeBatch]) -> Result<(), SinkError>;

    /// Prepares it under its name.
    async fn prepare(&mut self, name: &TransactionName) -> Result<(), SinkError>;

    /// Commits a prepared transaction, or rolls it back.
    async fn finish(&mut self, name: &TransactionName, commit: bool) -> Result<(), SinkError>;

    /// The same for a client, by a connection of its own. The error says if there is none of this name.
    async fn finish_for_client(&mut self, name: &TransactionName, commit: bool)
    -> Result<(), ConnectorError>;

    /// Rolls back all that is prepared, by whatever generation, and forgets the sink: it is dropped.
    /// Returns the names of what was rolled back.
    async fn forget(&mut self) -> Result<Vec<TransactionName>, SinkError>;

    /// Looks at what is prepared there under the database's name, whichever sink's it is, and does what
    /// `fate` says; nothing is committed. By a connection of its own. Returns what was rolled back, and what
    /// was to be and is there still, or is a stranger's, with the reason.
    async fn sweep(&mut self, fate: &FateOf) -> Result<Vec<(TransactionName, Option<String>)>, SinkError>;
}

/// Tells what becomes of a transaction.
pub type FateOf = dyn Fn(&TransactionName) -> Fate + Send + Sync;

/// A target of either style.
pub enum Target {
    /// Durable epochs are delivered.
    Logged(Box<dyn SinkTarget>),
    /// Epochs are prepared, and committed once they are durable.
    Prepared(Box<dyn PreparedTarget>),
}

impl Target {
    /// Tells what would keep rows from ever being delivered, or why exactly once does not hold.
    pub async fn check(&mut self) -> Result<Option<String>, ConnectorError> {
        match self {
            Target::Logged(target) => target.check().await.map(|()| target.degraded()),
            Target::Prepared(target) => target.check().await.map(|()| None),
        }
    }
}
