//! Actor: one running copy of a fragment. Receives, processes, reports barriers, forwards.
//!
//! An actor has turns. A turn takes rows from its inputs (or lets a source read), runs them
//! through its chain, and sends what comes out; it ends when there is nothing to do, when an
//! output is full, or when its budget is spent. At a barrier it hands over its operators' part of
//! the epoch and sends the barrier on; that is all a barrier costs it. An output that is attached
//! later is told the watermarks that were sent before.
//!
//! A barrier that takes too long is overtaken ([`Overtake`]): the actor finishes what it has in hand,
//! however full its outputs are, hands over as at any barrier, and reports once it knows what lay before
//! the barrier in its channels. These rows go on as if nothing had happened; after a restore they are
//! replayed before anything else.

use super::align::{Aligned, Aligner};
use super::chain::{Chain, Effect, Filled};
use super::dispatch;
use super::exchange::{ActorSignal, Edge, Pending, Routing};
use super::operator::{OUTPUT_ROWS_MAX, OperatorError, OutputItem, Polled};
use super::overtake::Overtake;
use super::room::Room;
use super::start::Start;
use crate::checkpoint::participant::{ActorReport, BarrierTimes, ChannelState, Sealed};
use crate::clock;
use crate::failpoint;
use crate::stream::{ActorId, Barrier, ChangeBatch, Epoch, Message, VnodeSet, Watermark};
use crate::work;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_catalog::JobId;

/// Steps that a turn may take before the worker goes to the next actor.
const TURN_STEPS_MAX: usize = 64;
/// After so long a turn ends with the step that it is at: where a step is slow, others wait for one only.
const TURN_TIME_MAX: Duration = Duration::from_millis(5);

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
    /// The barrier that is not waited for.
    pub overtake: Arc<Overtake>,
    /// By actor: groups and rows that its operators remembered at the last checkpoint.
    pub state_entries: Mutex<HashMap<ActorId, usize>>,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// There is more to do at once.
    Busy,
    /// Nothing until a signal, or this time ([`crate::clock::steady_us`]).
    Idle(Option<i64>),
    /// It got its last barrier.
    Ended,
}

/// Rows that an operator takes first after a restore.
pub struct Replay {
    /// The operator's place in the chain.
    pub node: usize,
    /// Which of its inputs.
    pub port: usize,
    /// The number of that input in the plan.
    pub input: u32,
    /// The rows.
    pub batch: ChangeBatch,
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
    /// What the barrier took that the operators are at.
    times: Option<BarrierTimes>,
    /// By input: its number in the plan. Empty for a root, whose barriers come from the coordinator and
    /// need not be waited for.
    inputs: Vec<u32>,
    /// What lay before a restored checkpoint's barrier, to be taken before anything else.
    replay: VecDeque<Replay>,
    /// The last barrier that was handled.
    last: Epoch,
    /// A report that waits for what lay before its barrier.
    unaligned: Option<ActorReport>,
    /// What it waits for with its first barrier, if it replaces another; and its vnodes.
    start: Option<(Arc<Start>, VnodeSet)>,
    /// Whether it has begun so, and its first barrier is still to come.
    begins: bool,
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
            times: None,
            inputs: Vec::new(),
            replay: VecDeque::new(),
            last: Epoch::ZERO,
            unaligned: None,
            start: None,
            begins: false,
            filled_us: 0,
            filled_rows: 0,
            polled_us: 0,
        }
    }

    /// The operators, for restoring.
    pub fn chain_mut(&mut self) -> &mut Chain {
        &mut self.chain
    }

    /// Numbers its inputs: it may then handle barriers that have not come on all of them.
    pub fn with_inputs(mut self, inputs: Vec<u32>) -> Self {
        self.inputs = inputs;
        self
    }

    /// Adds rows that are taken before all others.
    pub fn replay(&mut self, replay: Replay) {
        self.replay.push_back(replay);
    }

    /// It replaces an actor, or its part: it begins with what `start` brings.
    pub fn wait_for(&mut self, start: Arc<Start>, vnodes: VnodeSet) {
        start.wake(Arc::clone(&self.signal));
        self.start = Some((start, vnodes));
    }

    /// Takes up what it waited for. False if that is not there yet.
    fn begin(&mut self) -> Result<bool, OperatorError> {
        let Some((start, vnodes)) = self.start.take() else { return Ok(true) };
        match start.handover() {
            Some(handover) => {
                crate::failpoint::hit("actor.begins")?;
                self.chain.restore(&handover.restored(&vnodes))?;
            }
            None => self.start = Some((start, vnodes)),
        }
        self.begins = self.start.is_none();
        Ok(self.begins)
    }

    /// Works for a while.
    pub fn turn(&mut self, now_us: i64) -> Result<Turn, OperatorError> {
        if self.start.is_some() && !self.begin()? {
            return Ok(Turn::Idle(None));
        }
        let begun = clock::monotonic();
        for _ in 0..work::bound(TURN_STEPS_MAX) {
            if clock::monotonic() - begun > TURN_TIME_MAX {
                break;
            }
            self.report_unaligned();
            let overtake = self.shared.overtake.due(self.last);
            if overtake.is_none() && !self.has_room() {
                // A full channel signals when it has room.
                return Ok(Turn::Idle(None));
            }
            if self.chain.is_busy() {
                self.step()?;
                if self.ended {
                    return Ok(Turn::Ended);
                }
                continue;
            }
            if let Some(barrier) = overtake.filter(|_| !self.inputs.is_empty()) {
                self.overtake(&barrier);
                continue;
            }
            if now_us - self.filled_us >= FILL_PAUSE_US || self.filled_rows >= FILL_ROWS {
                (self.filled_us, self.filled_rows) = (now_us, 0);
                self.chain.fill(&self.shared.room)?;
            }
            // Edges to other jobs are attached by the first barrier.
            if self.last > Epoch::ZERO
                && let Some(Replay { node, port, batch, .. }) = self.replay.pop_front()
            {
                self.shared.moved.store(true, Ordering::Release);
                self.be_slow()?;
                self.chain.change_at(node, port, batch);
                continue;
            }
            match self.aligner.take() {
                Aligned::Changes(input, batch) => {
                    self.shared.moved.store(true, Ordering::Release);
                    self.filled_rows += batch.num_rows();
                    self.be_slow()?;
                    self.chain.change(input, batch);
                }
                Aligned::Watermark(input, watermark) => self.chain.watermark(input, watermark),
                Aligned::Barrier(barrier) => {
                    self.times = Some(BarrierTimes { align: self.aligner.took(), ..BarrierTimes::default() });
                    self.chain.barrier(&barrier);
                }
                Aligned::Empty => {
                    if let Some(turn) = self.work_without_input(now_us)? {
                        return Ok(turn);
                    }
                }
            }
        }
        Ok(Turn::Busy)
    }

    /// Where tests make it so.
    fn be_slow(&self) -> Result<(), OperatorError> {
        if failpoint::any() {
            let hit = failpoint::hit(&format!("batch.of_job_{}", self.job));
            hit.map_err(|e| OperatorError::Internal(e.to_string()))?;
        }
        Ok(())
    }

    /// Handles a barrier that has not come on all channels.
    fn overtake(&mut self, barrier: &Barrier) {
        self.aligner.overtake(barrier);
        self.times = Some(BarrierTimes { align: self.aligner.took(), ..BarrierTimes::default() });
        self.chain.barrier(&Arc::new(Barrier { unaligned: true, ..barrier.clone() }));
    }

    /// Reports a barrier that was not waited for, once all that lay before it is known.
    fn report_unaligned(&mut self) {
        if self.unaligned.is_some()
            && let Some(records) = self.aligner.take_records()
            && let Some(mut report) = self.unaligned.take()
        {
            let of_inputs = self.inputs.iter().zip(records);
            let of_inputs = of_inputs.map(|(&input, batches)| ChannelState { input, batches });
            report.channels.extend(of_inputs.filter(|state| !state.batches.is_empty()));
            self.shared.events.reported(report);
        }
    }

    /// What is still to be replayed.
    fn to_replay(&self) -> Vec<ChannelState> {
        let state = |r: &Replay| ChannelState { input: r.input, batches: vec![r.batch.clone()] };
        self.replay.iter().map(state).collect()
    }

    /// One step of the operators.
    fn step(&mut self) -> Result<(), OperatorError> {
        let begun = self.times.is_some().then(Instant::now);
        let sealing = self.chain.is_sealing();
        let effect = self.chain.step()?;
        self.shared.room.changed(self.chain.take_changed());
        if let (Some(times), Some(begun)) = (&mut self.times, begun) {
            *(if sealing { &mut times.seal } else { &mut times.flush }) += begun.elapsed();
        }
        self.handle(effect)
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
            Effect::Sealed(barrier, sealed) => self.finish_barrier(&barrier, sealed)?,
        }
        Ok(())
    }

    fn send_changes(&mut self, batch: ChangeBatch) -> Result<(), OperatorError> {
        for edge in &self.edges {
            match &edge.routing {
                Routing::Forward(sender) => sender.send(Message::Changes(batch.clone())),
                Routing::InTurn(turn, senders) => {
                    let next = turn.fetch_add(1, Ordering::Relaxed) % senders.len();
                    senders[next].send(Message::Changes(batch.clone()));
                }
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

    /// Sends the barrier on, to edges that it ends and edges that it attaches too, and reports. The
    /// barrier at which it begins is the last one of those that it replaces: they report it.
    fn finish_barrier(&mut self, barrier: &Arc<Barrier>, mut sealed: Sealed) -> Result<(), OperatorError> {
        let begins = std::mem::take(&mut self.begins);
        if begins && (sealed.runs.tables().next().is_some() || !sealed.handles.is_empty()) {
            return Err(OperatorError::Internal("an actor wrote before it began".to_owned()));
        }
        if barrier.is_checkpoint() {
            crate::failpoint::hit("actor.sealed")?;
        }
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
        // Those that are new lead to what replaces what ends.
        let gained = self.edges.split_off(if begins { 0 } else { old_edges });
        self.edges.retain(|edge| !barrier.stops(edge.job));
        self.edges.extend(gained);
        self.ended = barrier.stops(self.job) && !begins;
        if self.ended {
            self.shared.state_entries.lock().remove(&self.id);
        } else if barrier.is_checkpoint() {
            self.shared.state_entries.lock().insert(self.id, self.chain.state_entries());
        }
        let times = self.times.take().unwrap_or_default();
        let (actor, job, epoch) = (self.id, self.job, barrier.epoch);
        self.last = epoch;
        let mut report = ActorReport { actor, job, times, epoch, sealed, channels: Vec::new() };
        if begins {
            return Ok(());
        }
        if barrier.unaligned {
            report.channels = self.to_replay();
            self.unaligned = Some(report);
            self.report_unaligned();
        } else {
            self.shared.events.reported(report);
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "tests/actor.rs"]
mod tests;
