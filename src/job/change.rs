//! A change of the graph on its way to a barrier: what is added, what ends, and what the new actors begin
//! with.

use super::assemble::NewActor;
use super::running::{Parallelism, RunningJob};
use crate::checkpoint::coordinator::Begin;
use crate::dataflow::start::{Handover, Start};
use crate::stream::{ActorId, Mutation};
use std::collections::HashMap;
use std::sync::Arc;
use weir_catalog::JobId;

/// A change of the graph while it is put together.
#[derive(Default)]
pub struct Change {
    pub(super) mutation: Mutation,
    pub(super) actors: Vec<NewActor>,
    pub(super) removed_actors: Vec<ActorId>,
    pub(super) filling: Vec<JobId>,
    /// Where its actors replace others: what they wait for, and the jobs as they were.
    pub(super) start: Option<Arc<Start>>,
    /// What is not in the catalog yet.
    pub(super) parallelism: Option<Parallelism>,
    pub(super) replaced: HashMap<JobId, RunningJob>,
}

/// Lets the actors that wait for `start` begin with what the coordinator tells.
pub fn begin(start: Arc<Start>) -> Begin {
    Box::new(move |visible, offsets| {
        let offsets = offsets.into_iter().collect();
        start.begin(Handover { epoch: visible.epoch, state: visible.state, offsets });
    })
}
