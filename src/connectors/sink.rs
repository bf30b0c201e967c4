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

use crate::stream::{ChangeBatch, Epoch};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// How far a target has come: what it stores beside the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Marker {
    /// The generation of the server that wrote it.
    pub generation: u64,
    /// The last epoch delivered whole.
    pub epoch: Epoch,
}

/// Why a delivery did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// Might work next time: the target is down, slow, full.
    #[error("{0}")]
    Retry(String),
    /// Never will: wrong options, wrong schema, a newer generation.
    #[error("{0}")]
    Fatal(String),
}

/// One durable range of epochs of one sink, consolidated.
#[derive(Debug)]
pub struct Delivery {
    /// What the target holds after it.
    pub marker: Marker,
    /// The changes, in order; per key a deletion comes before the insertion.
    pub batches: Vec<ChangeBatch>,
}

/// Where a sink delivers to.
#[async_trait]
pub trait SinkTarget: Send {
    /// Connects, creates what is needed, and tells how far the target has come.
    async fn open(&mut self) -> Result<Option<Marker>, SinkError>;

    /// Delivers and commits.
    async fn deliver(&mut self, delivery: Delivery) -> Result<(), SinkError>;
}
