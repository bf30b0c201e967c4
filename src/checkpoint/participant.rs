//! The two contracts of a checkpoint's participants: acknowledge a barrier, and commit what was
//! promised.
//!
//! A source promises to be able to read on from an [`Offset`]. A sink promises a
//! [`CommitHandle`]: bytes that go into the manifest, from which a process that never wrote the
//! data can commit it. `commit` is idempotent: a second one of the same handle changes nothing.

use crate::stream::Epoch;
use serde::{Deserialize, Serialize};
use weir_catalog::ObjectId;

/// Whose offset it is: a reader of a source (the source's shared one, or a job's private one
/// while it catches up with the past) and the split.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OffsetKey {
    /// The source, for the shared reader; the job, for a private one.
    pub reader: ObjectId,
    /// The scan's number within the job's plan; 0 for the shared reader.
    pub scan: u32,
    /// The split's name, as its connector gives it.
    pub split: String,
}

/// A position in a split, in the words of its connector.
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
