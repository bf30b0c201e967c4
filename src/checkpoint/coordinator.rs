//! Performs the coordinator's actions: injects barriers, gathers reports, publishes epochs, and
//! tells who waits. One thread a database; the decisions are [`super::decide`]'s.
//!
//! ```text
//!   handles ── requests ──┐                       ┌── inject ──> root actors
//!   actors ── reports ────┼──> events ─> decide ──┼── submit ──> store (apply, publish, checkpoint)
//!   store ── outcomes ────┘                       └── complete ─> sinks' committers, waiters
//! ```

use super::channel;
use super::decide::{Action, Decider, Event, Settings};
use super::history::History;
use super::in_flight::{Changing, InFlight};
pub use super::message::*;
use super::participant::{ActorReport, CommitHandle, Sealed};
use super::waiters::{Waiter, answer, refuse};
use crate::state::store::StateRead;
use crate::stream::{ActorId, Barrier, BarrierKind, Epoch};
use crate::work::{self, Step, Thread, Work};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::oneshot;
use weir_catalog::JobId;
use weir_catalog::system::facts::ActorFact;

/// What a coordinator starts with.
pub struct Start {
    /// Settings of the database.
    pub settings: Settings,
    /// Above which epochs are numbered.
    pub last_epoch: Epoch,
    /// `now()` never goes below this.
    pub now_us: i64,
    /// The DML position of the restored checkpoint: the first barrier carries it, so that what was
    /// logged since flows through a graph whose edges are all attached.
    pub restored_dml_position: u64,
    /// Readers are shown nothing that lacks what the DML log had up to here: it was acknowledged, and may
    /// have been seen.
    pub shown_from_dml_position: u64,
    /// Sinks' promises of the restored checkpoint, released ones.
    pub handles: Vec<CommitHandle>,
    /// Whether the restored checkpoint is unaligned.
    pub unaligned: bool,
    /// Lets actors handle a barrier before it comes.
    pub overtake: Overtaker,
    /// Where epochs go.
    pub store: Box<dyn EpochStore>,
    /// What is shown.
    pub shown: Arc<Shown>,
    /// Set by actors when something moved.
    pub moved: Arc<AtomicBool>,
    /// The newest durable DML position.
    pub dml_position: Box<dyn Fn() -> u64 + Send>,
    /// Makes sure that an epoch's number is reserved durably.
    pub reserve: Box<dyn FnMut(Epoch) -> std::io::Result<()> + Send>,
    /// Microseconds since 1970.
    pub clock: Box<dyn Fn() -> i64 + Send>,
    /// Called once when the dataflow has to restart.
    pub restart: Box<dyn FnOnce(String) + Send>,
}

/// The doer.
pub struct Coordinator {
    messages: Receiver<Message>,
    start: Start,
    restart: Option<Box<dyn FnOnce(String) + Send>>,

    /// Received while it waited.
    received: Option<Message>,
    /// When to look at the time again.
    wake_us: i64,
    /// Why nothing is decided any more.
    given_up: Option<String>,
    decider: Decider,
    actors: BTreeSet<ActorId>,
    jobs: Arc<BTreeSet<JobId>>,
    roots: BTreeMap<ActorId, Inject>,
    mutations: VecDeque<MutationRequest>,
    in_flight: VecDeque<InFlight>,
    /// Submitted checkpoints whose outcome is not known.
    storing: BTreeMap<Epoch, (CheckpointContents, i64)>,
    uncommitted: Vec<CommitHandle>,
    /// Completed checkpoints that sinks have not committed yet.
    committing: BTreeSet<Epoch>,
    tick_waiters: Vec<Waiter>,
    checkpoint_waiters: Vec<Waiter>,
    filling: BTreeSet<JobId>,
    /// Whether the last epoch that was injected is not shown.
    hidden: bool,
    /// Whether the store has rows of channels, which the next epoch removes.
    channels_stored: bool,
    /// The DML position that the last barrier carried.
    carried: u64,
    now_us: i64,
}

impl Coordinator {
    /// Starts the thread; `messages` is the other end of what is sent to it.
    pub fn spawn(mut start: Start, messages: Receiver<Message>) -> std::io::Result<Thread> {
        let now_us = (start.clock)();
        let restart = std::mem::replace(&mut start.restart, Box::new(|_| {}));
        let coordinator = Coordinator {
            messages,
            restart: Some(restart),
            received: None,
            wake_us: now_us,
            given_up: None,
            decider: match start.unaligned {
                true => Decider::new(start.settings.clone(), start.last_epoch, now_us).after_unaligned(),
                false => Decider::new(start.settings.clone(), start.last_epoch, now_us),
            },
            actors: BTreeSet::new(),
            jobs: Arc::default(),
            roots: BTreeMap::new(),
            mutations: VecDeque::new(),
            in_flight: VecDeque::new(),
            storing: BTreeMap::new(),
            uncommitted: std::mem::take(&mut start.handles),
            committing: BTreeSet::new(),
            tick_waiters: Vec::new(),
            checkpoint_waiters: Vec::new(),
            filling: BTreeSet::new(),
            hidden: false,
            channels_stored: start.unaligned,
            carried: start.restored_dml_position,
            now_us: start.now_us,
            start,
        };
        work::start(work::Spec::named("weir-coordinator"), coordinator)
    }

    fn receive(&mut self, message: Message) -> Vec<Event> {
        if let Some(reason) = &self.given_up {
            refuse(message, reason);
            return Vec::new();
        }
        match message {
            Message::Report(report) => self.report(report).into_iter().map(Event::Sealed).collect(),
            Message::Failed(reason) => vec![Event::ActorFailed(reason)],
            Message::Visible(epoch, state) => {
                self.visible(epoch, state);
                vec![Event::Visible(epoch)]
            }
            Message::Durable(epoch, stored) => {
                self.history().completed(epoch, (self.start.clock)(), &stored);
                vec![Event::Durable(epoch)]
            }
            Message::CheckpointFailed(epoch, fault, reason) => {
                vec![Event::CheckpointFailed(epoch, fault, reason)]
            }
            Message::Committed(sink, epoch) => {
                self.uncommitted.retain(|h| h.sink != sink || h.epoch > epoch);
                self.note_commits();
                Vec::new()
            }
            Message::Tick(answer) => {
                self.tick_waiters.push(Waiter { from: self.decider.last().next(), answer });
                vec![Event::WantTick]
            }
            Message::Checkpoint(answer) => self.promise(answer, Event::WantCheckpoint),
            Message::AlignedCheckpoint(answer) => self.promise(answer, Event::WantAligned),
            Message::LastCheckpoint(answer) => self.promise(answer, Event::WantLast),
            Message::Mutate(request) => {
                self.mutations.push_back(request);
                vec![Event::WantMutation]
            }
            Message::Filled(job) => self.stop_filling(&[job]).into_iter().collect(),
            Message::CatalogChanged => vec![Event::Moved],
            Message::Settings(settings) => {
                self.decider.set(settings);
                Vec::new()
            }
            Message::Stop => Vec::new(),
        }
    }

    /// Somebody waits for the next checkpoint.
    fn promise(&mut self, answer: oneshot::Sender<Result<Epoch, String>>, event: Event) -> Vec<Event> {
        self.checkpoint_waiters.push(Waiter { from: self.decider.last().next(), answer });
        vec![event]
    }

    fn act(&mut self, event: Event) {
        let now_us = (self.start.clock)();
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for action in self.decider.decide(event, now_us) {
                match action {
                    Action::Inject { epoch, previous, kind, mutate } => {
                        events.extend(self.inject(epoch, previous, kind, mutate, now_us));
                    }
                    Action::Overtake(epoch) => self.overtake(epoch),
                    Action::Submit { epoch, visible, store } => self.submit(epoch, visible, store),
                    Action::Complete(epoch) => self.complete(epoch),
                    Action::Abort(epoch, reason) => self.abort(epoch, &reason),
                    Action::Restart(reason) => self.give_up(reason),
                }
            }
        }
    }

    fn inject(
        &mut self,
        epoch: Epoch,
        previous: Epoch,
        kind: BarrierKind,
        mutate: bool,
        now_us: i64,
    ) -> Vec<Event> {
        if let Err(error) = (self.start.reserve)(epoch) {
            return vec![Event::ActorFailed(format!("could not reserve epoch {epoch}: {error}"))];
        }
        self.now_us = self.now_us.max(now_us);
        let mut barrier = Barrier {
            epoch,
            previous,
            kind,
            dml_position: if previous > self.start.last_epoch {
                (self.start.dml_position)()
            } else {
                self.start.restored_dml_position
            },
            now_us: self.now_us,
            mutation: None,
            // The first one after an unaligned checkpoint comes before what is replayed.
            unaligned: self.start.unaligned && previous == self.start.last_epoch,
            after_unaligned: std::mem::take(&mut self.hidden),
        };
        self.carried = barrier.dml_position;
        let request = if mutate { self.mutations.pop_front() } else { None };
        let mut events = Vec::new();
        let changing =
            request.map(|request| self.mutate(request, &mut barrier, &mut events)).unwrap_or_default();
        let barrier = Arc::new(barrier);
        self.roots.values().for_each(|inject| inject(&barrier));
        let waiting = self.actors.clone();
        for actor in changing.removed {
            self.actors.remove(&actor);
            self.roots.remove(&actor);
        }
        if kind == BarrierKind::Checkpoint {
            self.history().begin(epoch, now_us, &self.actors);
        }
        self.actors.extend(changing.from_next);
        let nobody = waiting.is_empty();
        self.in_flight.push_back(InFlight {
            barrier,
            waiting,
            sealed: Sealed::default(),
            channels: Vec::new(),
            triggered_us: now_us,
            jobs: self.jobs.clone(),
            filling: HashMap::new(),
            mutation_done: changing.done,
            begin: changing.begin,
            offsets: Vec::new(),
        });
        events.extend(nobody.then_some(Event::Sealed(epoch)));
        events
    }

    /// Puts a change of the graph on `barrier`.
    fn mutate(
        &mut self,
        request: MutationRequest,
        barrier: &mut Barrier,
        events: &mut Vec<Event>,
    ) -> Changing {
        let replaces = request.begin.is_some();
        self.actors.extend(request.added.iter().filter(|_| !replaces));
        self.roots.extend(request.roots);
        self.filling.extend(&request.filling);
        let jobs = Arc::make_mut(&mut self.jobs);
        jobs.retain(|job| !request.mutation.removed.contains(job));
        jobs.extend(&request.mutation.added);
        if !request.filling.is_empty() {
            events.push(Event::Backfilling(true));
        }
        events.extend(self.stop_filling(&request.mutation.removed));
        barrier.mutation = Some(Arc::new(request.mutation));
        Changing {
            removed: request.removed,
            from_next: if replaces { request.added } else { Vec::new() },
            done: Some(request.done),
            begin: request.begin,
        }
    }

    /// Jobs that are done with filling, or given up.
    fn stop_filling(&mut self, jobs: &[JobId]) -> Option<Event> {
        let before = self.filling.len();
        self.filling.retain(|job| !jobs.contains(job));
        self.start.shown.filling.send_if_modified(|filling| {
            let before = filling.len();
            filling.retain(|job, _| !jobs.contains(job));
            filling.len() < before
        });
        (self.filling.len() < before).then_some(Event::Backfilling(!self.filling.is_empty()))
    }

    /// Adds a report to its epoch; returns the epoch when it is the last one.
    fn report(&mut self, report: ActorReport) -> Option<Epoch> {
        let flight = self.in_flight.iter_mut().find(|f| f.barrier.epoch == report.epoch)?;
        if !flight.waiting.remove(&report.actor) {
            return None;
        }
        flight.sealed.runs.extend(report.sealed.runs);
        flight.sealed.offsets.extend(report.sealed.offsets);
        flight.sealed.handles.extend(report.sealed.handles);
        flight.channels.extend(report.channels.into_iter().map(|channel| (report.job, channel)));
        for backfill in report.sealed.backfills {
            let entry = flight.filling.entry(backfill.job).or_insert(Filling { rows: 0, done: true });
            entry.rows += backfill.rows;
            entry.done &= backfill.done;
        }
        let last = flight.waiting.is_empty();
        if flight.barrier.is_checkpoint() {
            let now_us = (self.start.clock)();
            let us = |duration: Duration| duration.as_micros() as u64;
            let mut history = self.start.shown.history();
            let actor = ActorFact {
                actor: report.actor.0,
                job: Some(report.job),
                acknowledged_us: Some((now_us - flight.triggered_us).max(0) as u64),
                align_us: us(report.times.align),
                flush_us: us(report.times.flush),
                seal_us: us(report.times.seal),
            };
            history.acknowledged(report.epoch, actor);
            if last {
                history.sealed(report.epoch, now_us);
            }
        }
        last.then_some(report.epoch)
    }

    fn overtake(&mut self, epoch: Epoch) {
        if let Some(flight) = self.in_flight.iter().find(|f| f.barrier.epoch == epoch) {
            (self.start.overtake)(&flight.barrier);
        }
    }

    fn submit(&mut self, epoch: Epoch, visible: bool, store: bool) {
        let Some(flight) = self.in_flight.iter_mut().find(|f| f.barrier.epoch == epoch) else { return };
        let mut sealed = std::mem::take(&mut flight.sealed);
        let channels = std::mem::take(&mut flight.channels);
        if self.channels_stored {
            sealed.runs.push(channel::forget(epoch));
        }
        self.channels_stored = !visible && store;
        if self.channels_stored {
            channel::store(epoch, channels, &mut sealed.runs);
            self.start.shown.history().unaligned(epoch);
        }
        self.hidden = !visible;
        // A promise is kept in every manifest until its commit is known, stored epoch or not. What is not
        // shown is not released: the next promise has it too.
        let mut handles = self.uncommitted.clone();
        handles.extend(sealed.handles);
        if visible {
            self.uncommitted.clone_from(&handles);
        }
        if flight.begin.is_some() {
            flight.offsets.clone_from(&sealed.offsets);
        }
        let contents = store.then(|| CheckpointContents {
            epoch,
            dml_position: flight.barrier.dml_position,
            now_us: flight.barrier.now_us,
            offsets: sealed.offsets,
            handles,
            unaligned: !visible,
            jobs: flight.jobs.iter().filter(|job| !self.filling.contains(job)).copied().collect(),
        });
        if let Some(contents) = &contents {
            self.storing.insert(epoch, (contents.clone(), flight.triggered_us));
        }
        let dml_position = flight.barrier.dml_position;
        self.start.store.submit(EpochParts { epoch, dml_position, visible }, sealed.runs, contents);
    }

    fn visible(&mut self, epoch: Epoch, state: Arc<dyn StateRead>) {
        while self.in_flight.front().is_some_and(|f| f.barrier.epoch <= epoch) {
            let Some(flight) = self.in_flight.pop_front() else { break };
            let dml_position = flight.barrier.dml_position;
            let visible = Visible { epoch, dml_position, state: Arc::clone(&state) };
            if let Some(begin) = flight.begin {
                assert_eq!(epoch, flight.barrier.epoch, "no epoch follows that some actors begin with");
                begin(visible.clone(), flight.offsets);
            }
            if dml_position >= self.start.shown_from_dml_position {
                self.start.shown.visible.send_replace(visible);
            }
            let filling: Vec<_> =
                flight.filling.into_iter().filter(|(job, _)| self.filling.contains(job)).collect();
            if !filling.is_empty() {
                self.start.shown.filling.send_modify(|shown| shown.extend(filling));
            }
            if let Some(done) = flight.mutation_done {
                let _ = done.send(Ok(epoch));
            }
        }
        answer(&mut self.tick_waiters, epoch);
    }

    fn complete(&mut self, epoch: Epoch) {
        if let Some((contents, _)) = self.storing.remove(&epoch) {
            self.start.store.complete(&contents);
            *lock(&self.start.shown.offsets) = contents.offsets;
            if !contents.unaligned && contents.handles.iter().any(|handle| handle.epoch == epoch) {
                self.committing.insert(epoch);
            }
        }
        answer(&mut self.checkpoint_waiters, epoch);
    }

    fn abort(&mut self, epoch: Epoch, reason: &str) {
        self.storing.remove(&epoch);
        self.history().aborted(epoch, (self.start.clock)(), reason);
        for waiter in std::mem::take(&mut self.checkpoint_waiters) {
            if waiter.from <= epoch {
                let _ = waiter.answer.send(Err(reason.to_owned()));
            } else {
                self.checkpoint_waiters.push(waiter);
            }
        }
    }

    /// Everyone who waits learns that it was in vain.
    fn give_up(&mut self, reason: String) {
        for waiter in self.tick_waiters.drain(..).chain(self.checkpoint_waiters.drain(..)) {
            let _ = waiter.answer.send(Err(reason.clone()));
        }
        let flying = self.in_flight.drain(..).filter_map(|f| f.mutation_done);
        for done in self.mutations.drain(..).map(|m| m.done).chain(flying) {
            let _ = done.send(Err(reason.clone()));
        }
        self.given_up = Some(reason.clone());
        if let Some(restart) = self.restart.take() {
            restart(reason);
        }
    }

    fn history(&self) -> std::sync::MutexGuard<'_, History> {
        self.start.shown.history()
    }

    /// Notes checkpoints of which no sink has anything left to commit.
    fn note_commits(&mut self) {
        let oldest = self.uncommitted.iter().map(|handle| handle.epoch).min();
        while let Some(epoch) = self.committing.first().filter(|epoch| oldest.is_none_or(|o| o > **epoch)) {
            let epoch = *epoch;
            self.committing.remove(&epoch);
            self.history().committed(epoch, (self.start.clock)());
        }
    }
}

impl Work for Coordinator {
    fn step(&mut self) -> Step {
        let now_us = (self.start.clock)();
        // Somebody may set the clock back.
        self.wake_us = self.wake_us.min(self.decider.wake_us(now_us));
        let message = self.received.take().map_or_else(|| self.messages.try_recv(), Ok);
        let events = match message {
            Ok(Message::Stop) | Err(TryRecvError::Disconnected) => return Step::Ended,
            Ok(message) => self.receive(message),
            Err(TryRecvError::Empty) if now_us < self.wake_us => return Step::Idle(Some(self.wake_us)),
            Err(TryRecvError::Empty) => vec![Event::Time],
        };
        // What was logged moves the dataflow with the next barrier: nobody else may do so. The
        // first barrier brings the jobs that it is for.
        let begun = self.decider.last() > self.start.last_epoch;
        let logged = begun && (self.start.dml_position)() > self.carried;
        if self.start.moved.swap(false, Ordering::AcqRel) || logged {
            self.act(Event::Moved);
        }
        events.into_iter().for_each(|event| self.act(event));
        self.wake_us = self.decider.wake_us((self.start.clock)());
        Step::More
    }

    fn wait(&mut self, until_us: Option<i64>) {
        let until_us = until_us.unwrap_or(self.wake_us);
        let timeout = Duration::from_micros((until_us - (self.start.clock)()).max(0) as u64);
        // That nobody is left to send anything is found by the next step.
        self.received = self.messages.recv_timeout(timeout).ok();
    }
}

/// A poisoned lock holds plain data that is whole after every statement.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
