//! Barriers under way, and what actors have handed over for them so far.

use super::message::{Begin, Filling};
use super::participant::{ChannelState, Offset, OffsetKey, Sealed};
use crate::stream::{ActorId, Barrier, Epoch};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use tokio::sync::oneshot;
use weir_catalog::JobId;

/// A barrier whose epoch is not visible yet.
pub(super) struct InFlight {
    pub(super) barrier: Arc<Barrier>,
    pub(super) waiting: BTreeSet<ActorId>,
    pub(super) sealed: Sealed,
    /// Rows that lay before the barrier where it was not waited for.
    pub(super) channels: Vec<(JobId, ChannelState)>,
    pub(super) triggered_us: i64,
    /// The jobs that go on after its barrier.
    pub(super) jobs: Arc<BTreeSet<JobId>>,
    pub(super) filling: HashMap<JobId, Filling>,
    pub(super) mutation_done: Option<oneshot::Sender<Result<Epoch, String>>>,
    /// Told of its epoch, and the offsets at its barrier.
    pub(super) begin: Option<Begin>,
    pub(super) offsets: Vec<(OffsetKey, Offset)>,
}

/// What becomes of a change of the graph after its barrier was sent.
#[derive(Default)]
pub(super) struct Changing {
    pub(super) removed: Vec<ActorId>,
    /// Actors that replace others: those others report this barrier.
    pub(super) from_next: Vec<ActorId>,
    pub(super) done: Option<oneshot::Sender<Result<Epoch, String>>>,
    pub(super) begin: Option<Begin>,
}
