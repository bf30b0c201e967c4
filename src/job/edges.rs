//! How a job hangs together with the others: what it reads, the edges that it gains, the barriers
//! that its roots get, and the state that its actors start from.

use super::assemble::NewActor;
use super::manager::JobError;
use super::running::RestoredState;
use crate::checkpoint::coordinator::Inject;
use crate::dataflow::exchange::{Edge, Routing, Sender};
use crate::dataflow::operator::{OperatorError, Restored};
use crate::stream::{ActorId, Message};
use crate::work;
use std::sync::Arc;
use weir_catalog::{JobId, ObjectId};
use weir_sql::plan::{PlanNode, PlanOp, StreamPlan};

/// Sends barriers to a root actor.
pub fn inject(control: Sender) -> Inject {
    Arc::new(move |barrier| control.send(Message::Barrier(Arc::clone(barrier))))
}

/// Every actor takes up its state, or that it has some, several at a time.
pub fn restore_actors(actors: &mut [NewActor], restored: &RestoredState) -> Result<(), JobError> {
    let restore = |new: &mut NewActor| {
        let restored = Restored {
            state: &restored.state,
            vnodes: &new.vnodes,
            offsets: &restored.offsets,
            epoch: restored.epoch,
        };
        new.actor.chain_mut().restore(&restored)
    };
    let panicked = |_| Err(OperatorError::Internal("restoring panicked".to_owned()));
    work::each(actors, restore)
        .into_iter()
        .map(|result| result.unwrap_or_else(panicked))
        .collect::<Result<(), _>>()
        .map_err(|e| JobError::internal(format!("could not restore: {e}")))
}

/// The outputs that an upstream job's actors (`outputs`, routed by `key`) gain: to the reading fragment's actors, whose
/// channels are `senders` (by reading actor, then by upstream actor).
pub fn edges_to(
    job: JobId,
    (outputs, key): (&[ActorId], &[usize]),
    senders: Vec<Vec<Sender>>,
) -> Vec<(ActorId, Edge)> {
    let readers = senders.len();
    let forward = |sender: Sender| Edge { job, routing: Routing::Forward(sender) };
    if outputs.len() == readers {
        let pairs = outputs.iter().zip(senders);
        return pairs.flat_map(|(actor, s)| s.into_iter().map(|s| (*actor, forward(s)))).collect();
    }
    let of_actor = |index: usize| senders.iter().map(|s| s[index].clone()).collect::<Vec<_>>();
    outputs
        .iter()
        .enumerate()
        .map(|(index, actor)| (*actor, Edge { job, routing: Routing::Hash(key.to_vec(), of_actor(index)) }))
        .collect()
}

/// Whether a job of this plan has a past to catch up with: one that reads nothing (a query that is
/// known to be empty, VALUES) has none.
pub fn fills(plan: Option<&StreamPlan>) -> bool {
    plan.is_some_and(|plan| !reads(&plan.root).is_empty())
}

/// The relations and sources that a plan reads, with the columns; once for each scan.
pub fn reads(root: &PlanNode) -> Vec<(ObjectId, Vec<usize>)> {
    let mut found = Vec::new();
    let mut nodes = vec![root];
    while let Some(node) = nodes.pop() {
        match &node.op {
            PlanOp::Source { source, columns } => found.push((*source, columns.clone())),
            PlanOp::Scan { relation, columns } => found.push((*relation, columns.clone())),
            _ => {}
        }
        nodes.extend(&node.inputs);
    }
    found
}
