//! Barrier: the marker that ends an epoch in a stream.

use super::epoch::Epoch;
use std::collections::HashMap;
use std::sync::Arc;
use weir_catalog::JobId;

/// What a barrier makes of its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarrierKind {
    /// Makes it visible.
    Tick,
    /// Makes it visible and durable, and commits sinks.
    Checkpoint,
}

/// The identity of an actor: unique in the life of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ActorId(pub u64);

/// A change of the graph that takes effect at a barrier. The actors that it adds get this barrier
/// as their first message, the ones that it stops get it as their last. A job that is both added and
/// removed goes on with other actors.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mutation {
    /// Jobs whose actors start with this barrier.
    pub added: Vec<JobId>,
    /// Jobs whose actors end with this barrier.
    pub removed: Vec<JobId>,
    /// By sending actor: the outputs that it gains. The channels themselves wait in the graph's
    /// [`crate::dataflow::exchange::Pending`] under these numbers.
    pub attach: HashMap<ActorId, Vec<u64>>,
    /// Stop everything: the last barrier of a clean shutdown.
    pub stop: bool,
}

/// The marker that ends an epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct Barrier {
    /// The epoch that it ends.
    pub epoch: Epoch,
    /// The epoch before.
    pub previous: Epoch,
    /// What it makes of its epoch.
    pub kind: BarrierKind,
    /// The DML log position up to which tables inject with this barrier, and none beyond.
    pub dml_position: u64,
    /// What `now()` is in this epoch: microseconds since 1970, never going back.
    pub now_us: i64,
    /// A change of the graph.
    pub mutation: Option<Arc<Mutation>>,
    /// Whether the actor that handles it has not waited for it: what lies before it in the actor's
    /// channels becomes part of the checkpoint.
    pub unaligned: bool,
    /// Whether the barrier before was not waited for: what sinks promised with it is released with their
    /// next promise only.
    pub after_unaligned: bool,
}

impl Barrier {
    /// Whether this barrier starts a checkpoint.
    pub fn is_checkpoint(&self) -> bool {
        self.kind == BarrierKind::Checkpoint
    }

    /// Whether the actors of `job` end with this barrier.
    pub fn stops(&self, job: JobId) -> bool {
        self.mutation.as_ref().is_some_and(|m| m.stop || m.removed.contains(&job))
    }

    /// Whether `job` ends with this barrier, for good.
    pub fn ends(&self, job: JobId) -> bool {
        self.stops(job) && self.mutation.as_ref().is_none_or(|m| !m.added.contains(&job))
    }
}
