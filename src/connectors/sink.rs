//! The Sink contract, logged style: a sink's actors append their epoch's changes to a sink log
//! ([`super::sink_log`]); a committer outside the dataflow delivers durable epochs to a
//! [`SinkTarget`], in order.
//!
//! ```text
//!   actor ── changes ──> sink log ══ manifest names it ══> committer ── deliver(epoch) ──> target
//!                                                             ▲ marker (generation, epoch) in the target itself
//! ```
//! A target promises: 1. `open` tells the marker of what it holds; 2. `deliver` makes all of a
//! delivery and its marker visible, or nothing of it (or of each chunk, whose number is in the
//! marker); 3. delivering again what the marker covers changes nothing; 4. a delivery with a lower
//! generation than the target's marker fails.

use super::error::ConnectorError;
use crate::stream::{ChangeBatch, Epoch};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

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

    /// Connects, checks that rows will fit, creates what is needed, finishes what a crash left
    /// half done, and tells how far the target has come. Called again after a failure.
    async fn open(&mut self) -> Result<Option<Marker>, SinkError>;

    /// Delivers and commits. What the target refuses is told with the row, as far as it says which.
    async fn deliver(&mut self, delivery: Delivery) -> Result<(), SinkError>;
}
