//! Actor: one running copy of a fragment. Receives, processes, reports barriers, forwards.
//!
//! An actor has turns. A turn takes rows from its inputs (or lets a source read), runs them
//! through its chain, and sends what comes out; it ends when there is nothing to do, when an
//! output is full, or when its budget is spent. At a barrier it hands over its operators' part of
//! the epoch and sends the barrier on; that is all a barrier costs it.

use super::align::{Aligned, Aligner};
use super::chain::{Chain, Effect};
use super::dispatch;
use super::exchange::{ActorSignal, Edge, Pending, Routing};
use super::operator::{OperatorError, OutputItem, Polled};
use crate::checkpoint::participant::{ActorReport, Sealed};
use crate::stream::{ActorId, Barrier, ChangeBatch, Message};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_catalog::JobId;

/// Steps that a turn may take before the worker goes to the next actor.
const TURN_STEPS_MAX: usize = 64;

/// Takes what actors report: acknowledgements and failures.
pub trait ActorEvents: Send + Sync {
    /// An actor has handed over its part of an epoch.
    fn reported(&self, report: ActorReport);
    /// An actor can't go on.
    fn failed(&self, actor: ActorId, job: JobId, error: OperatorError);
}

/// What all actors of a dataflow share.
pub struct ActorShared {
    /// Where reports go.
    pub events: Arc<dyn ActorEvents>,
    /// Edges that barriers attach.
    pub pending: Arc<Pending>,
    /// Set when anything but a barrier has moved since it was last cleared.
    pub moved: Arc<AtomicBool>,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// There is more to do at once.
    Busy,
    /// Nothing until a signal, or this time (microseconds since 1970).
    Idle(Option<i64>),
    /// It got its last barrier.
    Ended,
}

/// One running copy of a fragment.
pub struct Actor {
    /// Its identity.
    pub id: ActorId,
    /// The job that it belongs to.
    pub job: JobId,
    /// Wakes it.
    pub signal: Arc<ActorSignal>,
    shared: Arc<ActorShared>,
    aligner: Aligner,
    chain: Chain,

    edges: Vec<Edge>,
    ended: bool,
}

impl Actor {
    /// With its inputs, operators and the outputs that it has from the start.
    pub fn new(
        id: ActorId,
        job: JobId,
        signal: Arc<ActorSignal>,
        shared: Arc<ActorShared>,
        aligner: Aligner,
        chain: Chain,
        edges: Vec<Edge>,
    ) -> Self {
        for sender in edges.iter().flat_map(|e| e.routing.senders()) {
            sender.set_sender(Arc::clone(&signal));
        }
        Self { id, job, signal, shared, aligner, chain, edges, ended: false }
    }

    /// The operators, for restoring.
    pub fn chain_mut(&mut self) -> &mut Chain {
        &mut self.chain
    }

    /// Works for a while.
    pub fn turn(&mut self, now_us: i64) -> Result<Turn, OperatorError> {
        for _ in 0..TURN_STEPS_MAX {
            if !self.has_room() {
                // A full channel signals when it has room.
                return Ok(Turn::Idle(None));
            }
            if self.chain.is_busy() {
                let effect = self.chain.step()?;
                self.handle(effect)?;
                if self.ended {
                    return Ok(Turn::Ended);
                }
                continue;
            }
            match self.aligner.take() {
                Aligned::Changes(input, batch) => {
                    self.shared.moved.store(true, Ordering::Release);
                    self.chain.change(input, batch);
                }
                Aligned::Watermark(input, watermark) => self.chain.watermark(input, watermark),
                Aligned::Barrier(barrier) => self.chain.barrier(&barrier),
                Aligned::Empty => match self.chain.poll(now_us)? {
                    Polled::Busy => self.shared.moved.store(true, Ordering::Release),
                    Polled::Idle { until_us } => return Ok(Turn::Idle(until_us)),
                },
            }
        }
        Ok(Turn::Busy)
    }

    fn has_room(&self) -> bool {
        // Every channel is asked, so that each full one knows to signal.
        self.edges.iter().flat_map(|e| e.routing.senders()).filter(|s| !s.has_room()).count() == 0
    }

    fn handle(&mut self, effect: Effect) -> Result<(), OperatorError> {
        match effect {
            Effect::None => {}
            Effect::Output(OutputItem::Changes(batch)) => self.send_changes(batch)?,
            Effect::Output(OutputItem::Watermark(watermark)) => {
                self.send_all(&Message::Watermark(watermark));
            }
            Effect::Sealed(barrier, sealed) => self.finish_barrier(&barrier, sealed),
        }
        Ok(())
    }

    fn send_changes(&mut self, batch: ChangeBatch) -> Result<(), OperatorError> {
        for edge in &self.edges {
            match &edge.routing {
                Routing::Forward(sender) => sender.send(Message::Changes(batch.clone())),
                Routing::Hash(columns, senders) => {
                    let parts = dispatch::partition(&batch, columns, senders.len())?;
                    for (sender, part) in senders.iter().zip(parts) {
                        if let Some(part) = part {
                            sender.send(Message::Changes(part));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn send_all(&self, message: &Message) {
        for sender in self.edges.iter().flat_map(|e| e.routing.senders()) {
            sender.send(message.clone());
        }
    }

    /// Sends the barrier on, to edges that it ends and edges that it attaches too, and reports.
    fn finish_barrier(&mut self, barrier: &Arc<Barrier>, sealed: Sealed) {
        if let Some(mutation) = &barrier.mutation {
            for number in mutation.attach.get(&self.id).into_iter().flatten() {
                if let Some(edge) = self.shared.pending.take(*number) {
                    edge.routing.senders().iter().for_each(|s| s.set_sender(Arc::clone(&self.signal)));
                    self.edges.push(edge);
                }
            }
        }
        self.send_all(&Message::Barrier(Arc::clone(barrier)));
        self.edges.retain(|edge| !barrier.stops(edge.job));
        self.ended = barrier.stops(self.job);
        self.shared.events.reported(ActorReport { actor: self.id, epoch: barrier.epoch, sealed });
    }
}

#[cfg(test)]
#[path = "tests/actor.rs"]
mod tests;
