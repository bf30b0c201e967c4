//! The two contracts of a checkpoint's participants: acknowledge a barrier, and commit what was
//! promised.
//!
//! A source promises to be able to read on from an [`Offset`]. A sink promises a
//! [`CommitHandle`]: bytes that go into the manifest, from which a process that never wrote the
//! data can commit it. `commit` is idempotent: a second one of the same handle changes nothing.

use crate::state::writes::Writes;
use crate::stream::{ActorId, ChangeBatch, Epoch};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use weir_catalog::{JobId, ObjectId};

/// Whose offset it is: a reader of a source (the source's shared one, or a job's private one
/// while it catches up with the past) and the split.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OffsetKey {
    /// The source, for the shared reader; the job, for a private one.
    pub reader: ObjectId,
    /// The scan's number within the job's plan; 0 for the shared reader; [`OffsetKey::MARK`] and
    /// [`OffsetKey::PROMISE`] for what it has shown of event time.
    pub scan: u32,
    /// The split's name, as its connector gives it; the actor's index for a promise.
    pub split: String,
}

impl OffsetKey {
    /// A scan's number that stands for a split's mark: what its rows have shown of event time.
    pub const MARK: u32 = u32::MAX;
    /// A scan's number that stands for the watermark that an actor has given out.
    pub const PROMISE: u32 = u32::MAX - 1;
}

/// A position in a split, in the words of its connector; a mark or a promise as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Offset(pub String);

/// What a sink actor promised at a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitHandle {
    /// The sink.
    pub sink: ObjectId,
    /// The actor's index within the sink.
    pub actor: u32,
    /// The checkpoint's epoch.
    pub epoch: Epoch,
    /// What to commit, in the words of its sink: JSON.
    pub payload: String,
}

/// What an actor hands over at a barrier: its operators' part of the checkpoint.
#[derive(Debug, Default)]
pub struct Sealed {
    /// State writes of this epoch.
    pub runs: Writes,
    /// Where splits were read up to (checkpoints only).
    pub offsets: Vec<(OffsetKey, Offset)>,
    /// What sinks promised (checkpoints only).
    pub handles: Vec<CommitHandle>,
    /// Backfills of this actor, and whether each has caught up.
    pub backfills: Vec<BackfillReport>,
}

/// How far one backfill has come.
#[derive(Clone, Debug, PartialEq)]
pub struct BackfillReport {
    /// The job that fills.
    pub job: JobId,
    /// Rows read so far by this actor.
    pub rows: u64,
    /// Whether it has caught up.
    pub done: bool,
}

/// What a barrier took at an actor.
#[derive(Clone, Copy, Debug, Default)]
pub struct BarrierTimes {
    /// From its arrival on the first channel to that on the last.
    pub align: Duration,
    /// The work of the operators to bring out what the epoch changed, as at any tick.
    pub flush: Duration,
    /// The hand-over of their state: what a checkpoint adds to that.
    pub seal: Duration,
}

/// Rows on their way to an operator when its actor handled a barrier before it came: part of that
/// checkpoint, for the operator to take first after a restore.
#[derive(Clone, Debug)]
pub struct ChannelState {
    /// The number of the input in the job's plan, cut for more than one actor.
    pub input: u32,
    /// The rows, in order channel by channel.
    pub batches: Vec<ChangeBatch>,
}

/// An actor's acknowledgement of a barrier.
#[derive(Debug)]
pub struct ActorReport {
    /// Who.
    pub actor: ActorId,
    /// The job that it belongs to.
    pub job: JobId,
    /// What it took.
    pub times: BarrierTimes,
    /// Which barrier.
    pub epoch: Epoch,
    /// What its operators handed over.
    pub sealed: Sealed,
    /// What lay before the barrier in its channels, if it did not wait for it.
    pub channels: Vec<ChannelState>,
}
