//! Actor: one running copy of a fragment. Receives, processes, reports barriers, forwards.
//!
//! An actor has turns. A turn takes rows from its inputs (or lets a source read), runs them
//! through its chain, and sends what comes out; it ends when there is nothing to do, when an
//! output is full, or when its budget is spent. At a barrier it hands over its operators' part of
//! the epoch and sends the barrier on; that is all a barrier costs it. An output that is attached
//! later is told the watermarks that were sent before.

use super::align::{Aligned, Aligner};
use super::chain::{Chain, Effect, Filled};
use super::dispatch;
use super::exchange::{ActorSignal, Edge, Pending, Routing};
use super::operator::{OUTPUT_ROWS_MAX, OperatorError, OutputItem, Polled};
use super::room::Room;
use crate::checkpoint::participant::{ActorReport, Sealed};
use crate::stream::{ActorId, Barrier, ChangeBatch, Message, Watermark};
use crate::work;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_catalog::JobId;

/// Steps that a turn may take before the worker goes to the next actor.
const TURN_STEPS_MAX: usize = 64;

/// While there is input, a piece of a fill is taken up for so many rows of it, or after so long: the
/// sooner an operator is complete, the sooner its rows cost no more lookups.
const FILL_ROWS: usize = 4096;
const FILL_PAUSE_US: i64 = 10_000;
/// While memory is short a source reads this many rows, this often, so that it never stands still for
/// good.
const PRESSED_ROWS: usize = 1024;
const PRESSED_POLL_US: i64 = 250_000;
/// When to look again whether memory is still short.
const PRESSED_WAIT_US: i64 = 10_000;
/// When to look again whether there is memory for a fill.
const FILL_WAIT_US: i64 = 500_000;

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
    /// What memory is left for operators to be complete again.
    pub room: Arc<Room>,
    /// By actor: groups and rows that its operators remembered at the last checkpoint.
    pub state_entries: Mutex<HashMap<ActorId, usize>>,
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
    /// What was promised so far: by column, the last watermark.
    watermarks: Vec<Watermark>,
    ended: bool,
    /// When the last piece of a fill was taken up, and how many rows have come since.
    filled_us: i64,
    filled_rows: usize,
    /// When a source last read.
    polled_us: i64,
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
        Self {
            id,
            job,
            signal,
            shared,
            aligner,
            chain,
            edges,
            watermarks: Vec::new(),
            ended: false,
            filled_us: 0,
            filled_rows: 0,
            polled_us: 0,
        }
    }

    /// The operators, for restoring.
    pub fn chain_mut(&mut self) -> &mut Chain {
        &mut self.chain
    }

    /// Works for a while.
    pub fn turn(&mut self, now_us: i64) -> Result<Turn, OperatorError> {
        for _ in 0..work::bound(TURN_STEPS_MAX) {
            if !self.has_room() {
                // A full channel signals when it has room.
                return Ok(Turn::Idle(None));
            }
            if self.chain.is_busy() {
                let effect = self.chain.step()?;
                self.shared.room.changed(self.chain.take_changed());
                self.handle(effect)?;
                if self.ended {
                    return Ok(Turn::Ended);
                }
                continue;
            }
            if now_us - self.filled_us >= FILL_PAUSE_US || self.filled_rows >= FILL_ROWS {
                (self.filled_us, self.filled_rows) = (now_us, 0);
                self.chain.fill(&self.shared.room)?;
            }
            match self.aligner.take() {
                Aligned::Changes(input, batch) => {
                    self.shared.moved.store(true, Ordering::Release);
                    self.filled_rows += batch.num_rows();
                    self.chain.change(input, batch);
                }
                Aligned::Watermark(input, watermark) => self.chain.watermark(input, watermark),
                Aligned::Barrier(barrier) => self.chain.barrier(&barrier),
                Aligned::Empty => {
                    if let Some(turn) = self.work_without_input(now_us)? {
                        return Ok(turn);
                    }
                }
            }
        }
        Ok(Turn::Busy)
    }

    /// Lets sources read, or an operator become complete. Says how the turn ends, if it does.
    fn work_without_input(&mut self, now_us: i64) -> Result<Option<Turn>, OperatorError> {
        if self.chain.polls() {
            let paused = self.shared.room.is_full() && now_us - self.polled_us < PRESSED_POLL_US;
            if paused || self.shared.room.must_wait() {
                return Ok(Some(Turn::Idle(Some(now_us + PRESSED_WAIT_US))));
            }
            self.polled_us = now_us;
        }
        let rows = if self.shared.room.is_full() { PRESSED_ROWS } else { OUTPUT_ROWS_MAX };
        let until_us = match self.chain.poll(now_us, rows)? {
            Polled::Busy => {
                self.shared.moved.store(true, Ordering::Release);
                return Ok(None);
            }
            Polled::Idle { until_us } => until_us,
        };
        Ok(Some(match self.chain.fill(&self.shared.room)? {
            Filled::Piece => Turn::Busy,
            Filled::Nothing => Turn::Idle(until_us),
            Filled::NoRoom => {
                let again_us = now_us + FILL_WAIT_US;
                Turn::Idle(Some(until_us.map_or(again_us, |until| until.min(again_us))))
            }
        }))
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
                self.watermarks.retain(|w| w.column != watermark.column);
                self.watermarks.push(watermark);
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
    fn finish_barrier(&mut self, barrier: &Arc<Barrier>, mut sealed: Sealed) {
        let old_edges = self.edges.len();
        if let Some(mutation) = &barrier.mutation {
            for number in mutation.attach.get(&self.id).into_iter().flatten() {
                if let Some(edge) = self.shared.pending.take(*number) {
                    edge.routing.senders().iter().for_each(|s| s.set_sender(Arc::clone(&self.signal)));
                    self.edges.push(edge);
                }
            }
        }
        sealed.runs.hold(self.shared.room.sealed(self.chain.take_sealed(barrier.kind)));
        self.send_all(&Message::Barrier(Arc::clone(barrier)));
        for sender in self.edges[old_edges..].iter().flat_map(|e| e.routing.senders()) {
            self.watermarks.iter().for_each(|watermark| sender.send(Message::Watermark(*watermark)));
        }
        self.edges.retain(|edge| !barrier.stops(edge.job));
        self.ended = barrier.stops(self.job);
        if self.ended {
            self.shared.state_entries.lock().remove(&self.id);
        } else if barrier.is_checkpoint() {
            self.shared.state_entries.lock().insert(self.id, self.chain.state_entries());
        }
        self.shared.events.reported(ActorReport { actor: self.id, epoch: barrier.epoch, sealed });
    }
}

#[cfg(test)]
#[path = "tests/actor.rs"]
mod tests;
