//! How a job hangs together with the others: what it reads, the edges that it gains, the barriers
//! that its roots get, and the state that its actors start from.

use super::assemble::NewActor;
use super::graph::{Fragment, FragmentInput};
use super::manager::JobError;
use super::running::RestoredState;
use crate::checkpoint::coordinator::Inject;
use crate::checkpoint::participant::ChannelState;
use crate::dataflow::actor::Replay;
use crate::dataflow::dispatch;
use crate::dataflow::exchange::{Edge, Routing, Sender};
use crate::dataflow::operator::{OperatorError, Restored};
use crate::stream::{ActorId, Message};
use crate::work;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
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
        .try_for_each(|result| result.unwrap_or_else(panicked))
        .map_err(|e| JobError::internal(format!("could not restore: {e}")))
}

/// Gives actors what lay before the barrier of the restored checkpoint on their inputs: to those that have
/// it now, if there are more or fewer. `inputs` are those of the job's plan, `key_of` tells by which
/// columns the rows of a relation are placed.
pub fn replay(
    actors: &mut [NewActor],
    fragments: &[Fragment],
    inputs: &[(u32, usize)],
    channels: &[ChannelState],
    key_of: &dyn Fn(ObjectId) -> Vec<usize>,
) -> Result<(), JobError> {
    for ChannelState { input, batches } in channels {
        let unknown =
            || JobError::internal(format!("the checkpoint has rows for input {input}, which is none"));
        let (operator, port) = *inputs.get(*input as usize).ok_or_else(unknown)?;
        let of = |fragment: &Fragment| fragment.nodes.iter().position(|n| n.node.id == operator);
        let found = fragments.iter().enumerate().find_map(|(f, fragment)| Some((f, of(fragment)?, port)));
        // An exchange that is the root of the plan is there for several actors only: behind it is the tail.
        let last = fragments.len() - 1;
        let (fragment, node, port) = found.unwrap_or((last, fragments[last].nodes.len(), 0));
        let feeds = fragments[fragment].inputs.iter().find(|(_, target)| *target == (node, port));
        let columns = match feeds {
            Some((FragmentInput::Fragment { columns, .. }, _)) => columns.clone(),
            Some((FragmentInput::Relation(relation), _)) => key_of(*relation),
            None => Vec::new(),
        };
        let mut actors: Vec<&mut NewActor> = actors.iter_mut().filter(|a| a.fragment == fragment).collect();
        for batch in batches {
            let parts = dispatch::partition(batch, &columns, actors.len())
                .map_err(|e| JobError::internal(format!("could not place rows of a channel: {e}")))?;
            for (new, batch) in actors.iter_mut().zip(parts) {
                if let Some(batch) = batch {
                    new.actor.replay(Replay { node, port, input: *input, batch });
                }
            }
        }
    }
    Ok(())
}

/// The outputs that an upstream job's actors (`outputs`) gain: to the reading fragment's actors, whose
/// channels are `senders` (by reading actor, then by upstream actor). Where those are not as many, rows
/// go by their `key`; without one (a source's) they may go to any actor.
pub fn edges_to(
    job: JobId,
    (outputs, key): (&[ActorId], Option<&[usize]>),
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
        .map(|(index, actor)| {
            let routing = match key {
                Some(key) => Routing::Hash(key.to_vec(), of_actor(index)),
                // Not all of them begin with the same reader.
                None => Routing::InTurn(Arc::new(AtomicUsize::new(index)), of_actor(index)),
            };
            (*actor, Edge { job, routing })
        })
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
