//! The coordinator's decisions: event in, actions out. No I/O, no clock.
//!
//! ```text
//!   barrier:     inject ──> (all actors report) sealed ──> submit ──> visible
//!   checkpoint:                                            └────────> durable | failed
//! ```
//! **Invariants:** epochs are injected in order, each after the one before; at most
//! [`Settings::ticks_max`] barriers are in flight (injected, not visible) and at most
//! [`Settings::max_concurrent`] checkpoints are pending; epochs are submitted in order; a mutation always
//! goes with a checkpoint, none being pending; a storage that fails restarts nothing;
//! a barrier is overtaken only if it is a checkpoint's, carries no mutation and is the oldest in flight; its
//! epoch is never visible, the barrier after it is a tick, and the next checkpoint is not overtaken: sinks get
//! what they promised, however long every barrier takes; while barriers may be overtaken, a checkpoint that all
//! actors have not reported is alone in flight;
//! the first barrier carries the first mutation, which brings the restored jobs in (an earlier one
//! would let the replayed changes of tables pass before their readers are there); after `Restart`
//! nothing more is decided.

use crate::stream::{BarrierKind, Epoch};
use std::collections::VecDeque;

/// What the decisions depend on. Times in microseconds.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Between ticks.
    pub barrier_interval_us: i64,
    /// Between checkpoint triggers; 0: only on demand.
    pub checkpoint_interval_us: i64,
    /// Where in the interval, by the clock, they are triggered.
    pub phase_us: i64,
    /// Checkpoints pending at most.
    pub max_concurrent: usize,
    /// After which a pending checkpoint is aborted.
    pub checkpoint_timeout_us: i64,
    /// From one checkpoint's end to the next one's trigger, at least.
    pub min_pause_us: i64,
    /// After which a checkpoint's barrier is no more waited for; 0: it always is.
    pub aligned_timeout_us: i64,
    /// Barriers in flight at most.
    pub ticks_max: usize,
    /// Failed checkpoints in a row after which the dataflow restarts; those that the storage is to
    /// blame for don't count.
    pub tolerable_failures: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            barrier_interval_us: 100_000,
            checkpoint_interval_us: 1_000_000,
            phase_us: 0,
            max_concurrent: 1,
            checkpoint_timeout_us: 600_000_000,
            min_pause_us: 0,
            aligned_timeout_us: 0,
            ticks_max: 2,
            tolerable_failures: 10,
        }
    }
}

/// Whose fault it is that a checkpoint could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The dataflow's, or its state store's: a restart may help.
    Dataflow,
    /// That of the place where checkpoints are kept: a restart would change nothing, and cost what was
    /// computed since the last one. It is tried again with the next checkpoint.
    Storage,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Time passed.
    Time,
    /// Something moved since the last barrier.
    Moved,
    /// Somebody waits for a tick.
    WantTick,
    /// Somebody waits for a checkpoint.
    WantCheckpoint,
    /// Somebody waits for a checkpoint that is not overtaken.
    WantAligned,
    /// Somebody waits for a last checkpoint, which is not overtaken: unless it fails, no barrier comes
    /// after it.
    WantLast,
    /// A mutation waits to be injected.
    WantMutation,
    /// Whether some job is filling: barriers then wait for the snapshot before them, since a
    /// backfill reads exactly that.
    Backfilling(bool),
    /// All actors reported this epoch.
    Sealed(Epoch),
    /// This epoch was published.
    Visible(Epoch),
    /// This epoch's manifest was written.
    Durable(Epoch),
    /// This epoch's checkpoint could not be made.
    CheckpointFailed(Epoch, Fault, String),
    /// An actor can't go on.
    ActorFailed(String),
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Send a barrier to every root, with all waiting mutations merged if `mutate`.
    Inject {
        /// Its epoch.
        epoch: Epoch,
        /// The epoch before.
        previous: Epoch,
        /// What it makes of its epoch.
        kind: BarrierKind,
        /// Whether the next waiting mutation goes with it.
        mutate: bool,
    },
    /// Let all actors handle this barrier before it comes.
    Overtake(Epoch),
    /// Hand a sealed epoch to the store; `store`: make its checkpoint too.
    Submit {
        /// Which.
        epoch: Epoch,
        /// Whether readers may see it.
        visible: bool,
        /// Whether to make a checkpoint of it.
        store: bool,
    },
    /// A checkpoint is complete: tell sinks and waiters.
    Complete(Epoch),
    /// A checkpoint is aborted: tell waiters why, clean up.
    Abort(Epoch, String),
    /// Restart the dataflow from its last checkpoint.
    Restart(String),
}

#[derive(Clone, Debug, PartialEq)]
struct InFlight {
    epoch: Epoch,
    kind: BarrierKind,
    injected_us: i64,
    mutates: bool,
    /// Whether it is not to be overtaken.
    aligned: bool,
    overtaken: bool,
    sealed: bool,
    submitted: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct PendingCheckpoint {
    epoch: Epoch,
    since_us: i64,
    /// All actors have done their part: what is waited for is the storage.
    submitted: bool,
}

/// The coordinator's state.
#[derive(Clone, Debug)]
pub struct Decider {
    settings: Settings,

    last: Epoch,
    in_flight: VecDeque<InFlight>,
    /// Oldest first.
    pending: VecDeque<PendingCheckpoint>,
    injected_us: i64,
    visible_us: i64,
    checkpoint_us: i64,
    checkpoint_end_us: i64,
    failures: u32,
    moved: bool,
    moved_since_checkpoint: bool,
    want_tick: bool,
    want_checkpoint: bool,
    /// Whether the next checkpoint is not to be overtaken.
    want_aligned: bool,
    /// Whether the next checkpoint is to be the last.
    want_last: bool,
    /// The last one, once it is injected.
    last_checkpoint: Option<Epoch>,
    mutations: usize,
    backfilling: bool,
    /// Whether the first barrier was injected.
    begun: bool,
    /// Whether what was restored is unaligned: it is not visible before what it lacks was replayed.
    restored_unaligned: bool,
    /// Whether the last epoch is not visible: the next barrier makes it so.
    hidden: bool,
    /// Whether the last checkpoint was overtaken: what sinks promised in it is released by one that is not, and
    /// that is the next one, also where nothing moves any more.
    unreleased: bool,
    stopped: bool,
}

impl Decider {
    /// Starts above `last`; nothing is injected before the first mutation is wanted.
    pub fn new(settings: Settings, last: Epoch, now_us: i64) -> Self {
        Self {
            settings,
            last,
            in_flight: VecDeque::new(),
            pending: VecDeque::new(),
            injected_us: now_us,
            visible_us: now_us,
            checkpoint_us: now_us,
            checkpoint_end_us: now_us,
            failures: 0,
            moved: false,
            moved_since_checkpoint: true,
            want_tick: false,
            want_checkpoint: false,
            want_aligned: false,
            want_last: false,
            last_checkpoint: None,
            mutations: 0,
            backfilling: false,
            begun: false,
            restored_unaligned: false,
            hidden: false,
            unreleased: false,
            stopped: false,
        }
    }

    /// It starts from an unaligned checkpoint: the first epoch is not visible either.
    pub fn after_unaligned(mut self) -> Self {
        self.restored_unaligned = true;
        self
    }

    /// The newest epoch injected.
    pub fn last(&self) -> Epoch {
        self.last
    }

    /// Changes the settings.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Decides what to do about `event` at `now_us`.
    pub fn decide(&mut self, event: Event, now_us: i64) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.stopped {
            return actions;
        }
        self.not_after(now_us);
        match event {
            Event::Time => self.check_timeout(now_us, &mut actions),
            Event::Moved => (self.moved, self.moved_since_checkpoint) = (true, true),
            Event::WantTick => self.want_tick = true,
            Event::WantCheckpoint => self.want_checkpoint = true,
            Event::WantAligned => (self.want_checkpoint, self.want_aligned) = (true, true),
            Event::WantLast => {
                (self.want_checkpoint, self.want_aligned, self.want_last) = (true, true, true);
            }
            Event::WantMutation => self.mutations += 1,
            Event::Backfilling(on) => self.backfilling = on,
            Event::Sealed(epoch) => self.sealed(epoch, &mut actions),
            Event::Visible(epoch) => self.visible(epoch, now_us),
            Event::Durable(epoch) => self.durable(epoch, now_us, &mut actions),
            Event::CheckpointFailed(epoch, fault, reason) => {
                self.failed(epoch, fault, reason, now_us, &mut actions);
            }
            Event::ActorFailed(reason) => self.restart(reason, &mut actions),
        }
        if !self.stopped {
            self.overtake(now_us, &mut actions);
            self.inject(now_us, &mut actions);
        }
        actions
    }

    /// When to be called with [`Event::Time`] at the latest. Where a barrier is due but nothing has
    /// moved, a look now and then is enough: an idle database costs nothing.
    pub fn wake_us(&self, now_us: i64) -> i64 {
        // Where somebody set the clock back, the last barrier may be of later.
        let due_us = self.injected_us.min(now_us) + self.settings.barrier_interval_us;
        let look_us = (self.settings.barrier_interval_us / 4).clamp(1_000, 25_000);
        let next_us = if due_us > now_us { due_us } else { now_us + look_us };
        let overtake_us =
            self.waited_for().map(|barrier| barrier.injected_us + self.settings.aligned_timeout_us);
        let timeout_us = self.settings.checkpoint_timeout_us;
        let timeout_us = self.pending.front().map(|pending| pending.since_us.saturating_add(timeout_us));
        let earlier = [overtake_us, timeout_us].into_iter().flatten();
        earlier.fold(next_us, |next_us, at_us| next_us.min(at_us.max(now_us)))
    }

    /// The barrier that may be overtaken if it takes too long.
    fn waited_for(&self) -> Option<&InFlight> {
        let may = |b: &&InFlight| {
            let waits = b.sealed || b.mutates || b.aligned || b.overtaken || self.backfilling;
            b.kind == BarrierKind::Checkpoint && !waits
        };
        self.in_flight.front().filter(|_| self.settings.aligned_timeout_us > 0).filter(may)
    }

    fn overtake(&mut self, now_us: i64, actions: &mut Vec<Action>) {
        let timeout_us = self.settings.aligned_timeout_us;
        if self.waited_for().is_some_and(|barrier| now_us - barrier.injected_us >= timeout_us)
            && let Some(barrier) = self.in_flight.front_mut()
        {
            barrier.overtaken = true;
            actions.push(Action::Overtake(barrier.epoch));
        }
    }

    /// Nothing happened later than now: where somebody set the clock back, what is due by the time since
    /// would otherwise be due when the clock is there again.
    fn not_after(&mut self, now_us: i64) {
        let times = [
            &mut self.injected_us,
            &mut self.visible_us,
            &mut self.checkpoint_us,
            &mut self.checkpoint_end_us,
        ];
        let times = times.into_iter().chain(self.pending.iter_mut().map(|p| &mut p.since_us));
        times.for_each(|time| *time = (*time).min(now_us));
    }

    fn sealed(&mut self, epoch: Epoch, actions: &mut Vec<Action>) {
        if let Some(barrier) = self.in_flight.iter_mut().find(|b| b.epoch == epoch) {
            barrier.sealed = true;
        }
        // In order: an epoch that was sealed early waits for those before it.
        for barrier in self.in_flight.iter_mut().take_while(|b| b.sealed) {
            if !barrier.submitted {
                barrier.submitted = true;
                let pending = self.pending.iter_mut().find(|p| p.epoch == barrier.epoch);
                let store = barrier.kind == BarrierKind::Checkpoint && pending.is_some();
                if let Some(pending) = pending {
                    pending.submitted = true;
                }
                let visible = !barrier.overtaken;
                self.unreleased &= !(store && visible);
                actions.push(Action::Submit { epoch: barrier.epoch, visible, store });
            }
        }
        // One that is not visible is over with its submission.
        let before = self.in_flight.len();
        self.in_flight.retain(|b| !(b.overtaken && b.submitted));
        if self.in_flight.len() < before {
            (self.hidden, self.unreleased) = (true, true);
        }
    }

    fn visible(&mut self, epoch: Epoch, now_us: i64) {
        while self.in_flight.front().is_some_and(|b| b.epoch <= epoch) {
            self.in_flight.pop_front();
            self.visible_us = now_us;
        }
    }

    /// Whether the checkpoint of `epoch` was pending; it is no more.
    fn end(&mut self, epoch: Epoch) -> bool {
        let before = self.pending.len();
        self.pending.retain(|pending| pending.epoch != epoch);
        self.pending.len() < before
    }

    fn durable(&mut self, epoch: Epoch, now_us: i64, actions: &mut Vec<Action>) {
        if self.end(epoch) {
            self.failures = 0;
            self.checkpoint_end_us = now_us;
            actions.push(Action::Complete(epoch));
        }
    }

    fn failed(&mut self, epoch: Epoch, fault: Fault, reason: String, now_us: i64, actions: &mut Vec<Action>) {
        if self.end(epoch) {
            self.failures += u32::from(fault == Fault::Dataflow);
            self.checkpoint_end_us = now_us;
            self.moved_since_checkpoint = true;
            if self.last_checkpoint == Some(epoch) {
                // Who wanted it learns that there is none: everything goes on.
                (self.last_checkpoint, self.want_last) = (None, false);
            }
            actions.push(Action::Abort(epoch, reason.clone()));
            if fault == Fault::Dataflow && self.failures > self.settings.tolerable_failures {
                self.restart(format!("{} checkpoints failed in a row: {reason}", self.failures), actions);
            }
        }
    }

    fn check_timeout(&mut self, now_us: i64, actions: &mut Vec<Action>) {
        while let Some(pending) = self.pending.front()
            && now_us - pending.since_us >= self.settings.checkpoint_timeout_us
        {
            let epoch = pending.epoch;
            let fault = if pending.submitted { Fault::Storage } else { Fault::Dataflow };
            self.failed(epoch, fault, "checkpoint timed out".to_owned(), now_us, actions);
        }
    }

    fn restart(&mut self, reason: String, actions: &mut Vec<Action>) {
        let aborted = self.pending.drain(..).map(|pending| Action::Abort(pending.epoch, reason.clone()));
        actions.extend(aborted);
        self.stopped = true;
        actions.push(Action::Restart(reason));
    }

    /// Whether a checkpoint interval has begun since the last trigger. They begin at whole multiples of
    /// the interval, moved by the phase: a late trigger does not put off those after it.
    fn interval_has_begun(&self, now_us: i64) -> bool {
        let Settings { checkpoint_interval_us, phase_us, .. } = self.settings;
        let number = |us: i64| us.saturating_sub(phase_us).checked_div_euclid(checkpoint_interval_us);
        checkpoint_interval_us > 0 && number(now_us) > number(self.checkpoint_us)
    }

    fn inject(&mut self, now_us: i64, actions: &mut Vec<Action>) {
        let ticks_max = if self.backfilling { 1 } else { self.settings.ticks_max };
        if self.in_flight.len() >= ticks_max || self.last_checkpoint.is_some() {
            return;
        }
        // Behind a checkpoint that may be overtaken nothing is sent: what follows is told how it went.
        let alone = self.settings.aligned_timeout_us > 0 || self.in_flight.iter().any(|b| b.overtaken);
        if alone && self.in_flight.iter().any(|b| b.kind == BarrierKind::Checkpoint && !b.sealed) {
            return;
        }
        let checkpoint_free = self.pending.len() < self.settings.max_concurrent && !self.hidden;
        // A backfill relies on the change before its own being over.
        let mutate = self.mutations > 0 && self.pending.is_empty() && !self.hidden;
        if !self.begun && !mutate {
            return;
        }
        let checkpoint_due = self.interval_has_begun(now_us)
            && now_us - self.checkpoint_end_us >= self.settings.min_pause_us
            && (self.moved_since_checkpoint || self.moved || self.unreleased);
        let checkpoint = checkpoint_free && (mutate || self.want_checkpoint || checkpoint_due);
        if alone && checkpoint && !self.in_flight.is_empty() {
            return;
        }
        let asked = checkpoint && (mutate || self.want_checkpoint) || self.want_tick || self.hidden;
        // While a job fills, each barrier leaves its backfill time to read the snapshot before it.
        let since_us =
            if self.backfilling { self.visible_us.max(self.injected_us) } else { self.injected_us };
        let due = now_us - since_us >= self.settings.barrier_interval_us;
        let idle = !(self.moved || checkpoint || self.backfilling);
        if !asked && (!due || idle) {
            return;
        }
        let overtaken = !self.begun && self.restored_unaligned;
        self.begun = true;
        self.hidden = false;
        let (previous, epoch) = (self.last, self.last.next());
        let kind = if checkpoint { BarrierKind::Checkpoint } else { BarrierKind::Tick };
        self.last = epoch;
        self.injected_us = now_us;
        self.moved = false;
        self.want_tick = false;
        let mut aligned = false;
        if checkpoint {
            let (wanted, releases) =
                (std::mem::take(&mut self.want_aligned), std::mem::take(&mut self.unreleased));
            aligned = wanted || releases;
            self.checkpoint_us = now_us;
            self.moved_since_checkpoint = false;
            self.want_checkpoint = false;
            self.last_checkpoint = self.want_last.then_some(epoch);
            self.mutations -= usize::from(mutate);
            self.pending.push_back(PendingCheckpoint { epoch, since_us: now_us, submitted: false });
        }
        self.in_flight.push_back(InFlight {
            epoch,
            kind,
            injected_us: now_us,
            mutates: mutate,
            aligned,
            overtaken,
            sealed: false,
            submitted: false,
        });
        actions.push(Action::Inject { epoch, previous, kind, mutate });
    }
}

#[cfg(test)]
#[path = "tests/decide.rs"]
mod tests;
