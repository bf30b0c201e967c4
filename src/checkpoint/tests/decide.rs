//! Walks the decision function through all event orders of a small job, to a bounded depth, and
//! checks its invariants after every step.

use super::*;
use std::collections::HashSet;

/// What the outside knows: enough to offer only events that can happen.
#[derive(Clone)]
struct World {
    max_concurrent: usize,
    decider: Decider,
    now_us: i64,
    injected: Vec<(Epoch, BarrierKind, bool)>,
    sealed: HashSet<Epoch>,
    /// Epoch, whether its checkpoint is made, whether it is shown.
    submitted: Vec<(Epoch, bool, bool)>,
    overtaken: HashSet<Epoch>,
    /// How many of the submitted ones are applied.
    visible: usize,
    stored: HashSet<Epoch>,
    ended: HashSet<Epoch>,
    mutations_wanted: usize,
    restarted: bool,
    most_open: usize,
    /// How many barriers there were when the last checkpoint was asked for.
    last_wanted: Option<usize>,
}

impl World {
    fn new(max_concurrent: usize, aligned_timeout_us: i64) -> Self {
        let settings = Settings {
            max_concurrent,
            barrier_interval_us: 10,
            checkpoint_interval_us: 20,
            checkpoint_timeout_us: 60,
            aligned_timeout_us,
            tolerable_failures: 1,
            ..Settings::default()
        };
        Self {
            max_concurrent,
            decider: Decider::new(settings, Epoch(7), 0),
            now_us: 0,
            injected: Vec::new(),
            sealed: HashSet::new(),
            submitted: Vec::new(),
            overtaken: HashSet::new(),
            visible: 0,
            stored: HashSet::new(),
            ended: HashSet::new(),
            mutations_wanted: 0,
            restarted: false,
            most_open: 0,
            last_wanted: None,
        }
    }

    fn possible(&self) -> Vec<Event> {
        let mut events = vec![Event::Time, Event::Moved, Event::WantTick, Event::WantCheckpoint];
        if self.mutations_wanted < 2 {
            events.push(Event::WantMutation);
        }
        if self.last_wanted.is_none() {
            events.push(Event::WantLast);
        }
        for (epoch, ..) in self.injected.iter().filter(|(e, ..)| !self.sealed.contains(e)) {
            events.push(Event::Sealed(*epoch));
        }
        if let Some((epoch, ..)) = self.submitted.get(self.visible) {
            events.push(Event::Visible(*epoch));
        }
        for (epoch, store, _) in &self.submitted[..self.visible] {
            if *store && !self.stored.contains(epoch) {
                events.push(Event::Durable(*epoch));
                for fault in [Fault::Dataflow, Fault::Storage] {
                    events.push(Event::CheckpointFailed(*epoch, fault, "disk full".into()));
                }
            }
        }
        events.push(Event::ActorFailed("broken".into()));
        events
    }

    fn step(&mut self, event: Event) {
        if event == Event::Time {
            self.now_us += 15;
        }
        match &event {
            Event::Sealed(e) => drop(self.sealed.insert(*e)),
            Event::Visible(_) => {
                self.visible += 1;
                self.apply_hidden();
            }
            Event::Durable(e) | Event::CheckpointFailed(e, ..) => drop(self.stored.insert(*e)),
            Event::WantMutation => self.mutations_wanted += 1,
            Event::WantLast => self.last_wanted = Some(self.injected.len()),
            _ => {}
        }
        let was_restarted = self.restarted;
        let of_storage = matches!(event, Event::CheckpointFailed(_, Fault::Storage, _));
        for action in self.decider.decide(event, self.now_us) {
            assert!(!was_restarted, "nothing is decided after a restart");
            assert!(!of_storage || !matches!(action, Action::Restart(_)), "the storage restarts nothing");
            self.check(action);
        }
        self.apply_hidden();
        let in_flight = self.injected.len() - self.visible;
        assert!(in_flight <= 2, "{in_flight} barriers in flight");
    }

    /// What nobody is shown is applied without a word.
    fn apply_hidden(&mut self) {
        while self.submitted.get(self.visible).is_some_and(|(.., shown)| !shown) {
            self.visible += 1;
        }
    }

    fn check_inject(&self, kind: BarrierKind) {
        let unsealed = self.injected.iter().filter(|(e, ..)| !self.sealed.contains(e));
        if self.decider.settings.aligned_timeout_us > 0 {
            let behind = unsealed.clone().any(|(_, k, _)| *k == BarrierKind::Checkpoint);
            assert!(!behind, "nothing is behind a checkpoint that may be overtaken");
            let before = self.injected.len() > self.visible;
            assert!(kind == BarrierKind::Tick || !before, "nothing is before one");
        }
        let after_hidden = self.injected.last().is_some_and(|(e, ..)| self.overtaken.contains(e));
        assert!(!after_hidden || kind == BarrierKind::Tick, "what was hidden is shown first");
    }

    fn check(&mut self, action: Action) {
        match action {
            Action::Inject { epoch, previous, kind, mutate } => {
                let last = self.injected.last().map_or(Epoch(7), |(e, ..)| *e);
                assert_eq!((previous, epoch), (last, last.next()), "epochs follow each other");
                assert!(!mutate || kind == BarrierKind::Checkpoint, "a mutation goes with a checkpoint");
                assert!(mutate || !self.injected.is_empty(), "the first barrier brings the jobs in");
                self.check_inject(kind);
                let after = self.last_wanted.map_or(&[][..], |from| &self.injected[from..]);
                let last = after.iter().find(|(_, kind, _)| *kind == BarrierKind::Checkpoint);
                assert!(last.is_none(), "{epoch} comes after the last checkpoint, {last:?}");
                let open = self
                    .injected
                    .iter()
                    .filter(|(e, k, _)| *k == BarrierKind::Checkpoint && !self.ended.contains(e))
                    .count();
                assert!(!mutate || open == 0, "a mutation while a checkpoint is pending");
                let most = self.max_concurrent;
                assert!(kind == BarrierKind::Tick || open < most, "{open} checkpoints are pending");
                self.most_open = self.most_open.max(open + usize::from(kind == BarrierKind::Checkpoint));
                self.injected.push((epoch, kind, mutate));
                let mutated = self.injected.iter().filter(|(.., m)| *m).count();
                assert!(mutated <= self.mutations_wanted, "no mutation that nobody asked for");
            }
            Action::Overtake(epoch) => {
                let (_, kind, mutates) = *self.injected.iter().find(|(e, ..)| *e == epoch).expect("injected");
                assert!(kind == BarrierKind::Checkpoint && !mutates && !self.sealed.contains(&epoch));
                let after = self.last_wanted.map_or(&[][..], |from| &self.injected[from..]);
                assert!(after.iter().all(|(e, ..)| *e != epoch), "the last one is not overtaken");
                let before = self.injected.iter().rev().skip_while(|(e, ..)| *e >= epoch);
                let before = before.into_iter().find(|(_, kind, _)| *kind == BarrierKind::Checkpoint);
                assert!(before.is_none_or(|(e, ..)| !self.overtaken.contains(e)), "one of two is waited for");
                let oldest = self.injected[self.visible].0;
                assert!(oldest == epoch && self.overtaken.insert(epoch), "the oldest in flight, once");
            }
            Action::Submit { epoch, visible, store } => {
                let next = self.injected[self.submitted.len()];
                assert_eq!(epoch, next.0, "submitted in order, once");
                assert!(self.sealed.contains(&epoch), "sealed before submitted");
                assert!(!store || next.1 == BarrierKind::Checkpoint);
                assert_eq!(visible, !self.overtaken.contains(&epoch), "hidden if overtaken");
                self.submitted.push((epoch, store, visible));
            }
            Action::Complete(epoch) => {
                assert!(self.stored.contains(&epoch), "durable before complete");
                assert!(self.ended.insert(epoch), "a checkpoint ends once");
            }
            Action::Abort(epoch, _) => {
                assert!(self.ended.insert(epoch), "a checkpoint ends once");
                let after = self.last_wanted.map_or(&[][..], |from| &self.injected[from..]);
                if after.iter().any(|(e, ..)| *e == epoch) {
                    // There was no last one: everything goes on.
                    self.last_wanted = None;
                }
            }
            Action::Restart(_) => self.restarted = true,
        }
    }
}

/// Visits all that can follow `world`; returns the most checkpoints that were pending at once.
fn walk(world: &World, depth: usize, visited: &mut usize) -> usize {
    *visited += 1;
    let mut most = world.most_open;
    if depth > 0 {
        for event in world.possible() {
            let mut next = world.clone();
            next.step(event);
            most = most.max(walk(&next, depth - 1, visited));
        }
    }
    most
}

#[test]
fn every_order_of_events_keeps_the_invariants() {
    for (max_concurrent, aligned_timeout_us) in [(1, 0), (2, 0), (1, 15), (2, 15)] {
        let mut visited = 0;
        walk(&World::new(max_concurrent, aligned_timeout_us), 6, &mut visited);
        let mut begun = World::new(max_concurrent, aligned_timeout_us);
        begun.step(Event::WantMutation);
        let most = walk(&begun, 6, &mut visited);
        assert!(visited > 50_000, "only {visited} states were visited");
        assert!(most == max_concurrent || aligned_timeout_us > 0, "{most}");
    }
}

/// A decider whose first barrier is over, and that overtakes after 15 us.
fn overtaking() -> World {
    let mut world = World::new(1, 15);
    for event in
        [Event::WantMutation, Event::Sealed(Epoch(8)), Event::Visible(Epoch(8)), Event::Durable(Epoch(8))]
    {
        world.step(event);
    }
    world
}

#[test]
fn every_order_of_events_around_an_overtaken_barrier_keeps_the_invariants() {
    let mut world = overtaking();
    world.step(Event::WantCheckpoint);
    let mut visited = 0;
    walk(&world, 6, &mut visited);
    world.step(Event::Time);
    assert!(world.overtaken.contains(&Epoch(9)), "{:?}", world.decider);
    walk(&world, 6, &mut visited);
    assert!(visited > 20_000, "only {visited} states were visited");
}

#[test]
fn an_overtaken_checkpoint_completes_and_the_tick_after_it_shows_it() {
    let mut world = overtaking();
    world.step(Event::WantCheckpoint);
    // It is woken for it.
    assert!(world.decider.wake_us(world.now_us) <= world.now_us + 15);
    world.step(Event::Time);
    world.step(Event::Sealed(Epoch(9)));
    assert_eq!(world.submitted.last(), Some(&(Epoch(9), true, false)));
    assert_eq!(world.injected.last(), Some(&(Epoch(10), BarrierKind::Tick, false)));
    world.step(Event::Durable(Epoch(9)));
    assert!(world.ended.contains(&Epoch(9)));
    // The tick itself is waited for, however long it takes, and so is the next checkpoint, which releases what
    // sinks promised; then another may be overtaken.
    world.step(Event::Moved);
    world.step(Event::WantCheckpoint);
    for _ in 0..5 {
        world.step(Event::Time);
    }
    assert_eq!(world.injected.last(), Some(&(Epoch(10), BarrierKind::Tick, false)));
    world.step(Event::Sealed(Epoch(10)));
    world.step(Event::Visible(Epoch(10)));
    assert_eq!(world.injected.last(), Some(&(Epoch(11), BarrierKind::Checkpoint, false)));
    world.step(Event::Time);
    assert!(!world.overtaken.contains(&Epoch(11)));
    for event in [Event::Sealed(Epoch(11)), Event::Visible(Epoch(11)), Event::Durable(Epoch(11))] {
        world.step(event);
    }
    world.step(Event::Moved);
    world.step(Event::WantCheckpoint);
    assert_eq!(world.injected.last(), Some(&(Epoch(12), BarrierKind::Checkpoint, false)));
    world.step(Event::Time);
    assert!(world.overtaken.contains(&Epoch(12)));
}

#[test]
fn an_overtaken_checkpoint_is_followed_by_another_where_nothing_moves() {
    let mut world = overtaking();
    world.step(Event::WantCheckpoint);
    world.step(Event::Time);
    for event in [
        Event::Sealed(Epoch(9)),
        Event::Durable(Epoch(9)),
        Event::Sealed(Epoch(10)),
        Event::Visible(Epoch(10)),
    ] {
        world.step(event);
    }
    world.now_us += 10_000_000;
    world.step(Event::Time);
    assert_eq!(world.injected.last(), Some(&(Epoch(11), BarrierKind::Checkpoint, false)));
    world.step(Event::Time);
    assert!(!world.overtaken.contains(&Epoch(11)), "it is waited for");
    for event in [Event::Sealed(Epoch(11)), Event::Visible(Epoch(11)), Event::Durable(Epoch(11))] {
        world.step(event);
    }
    world.now_us += 10_000_000;
    world.step(Event::Time);
    assert_eq!(world.injected.len(), 4, "everything is released");
}

#[test]
fn a_start_from_an_unaligned_checkpoint_shows_nothing_before_it_is_replayed() {
    let mut decider = Decider::new(Settings::default(), Epoch(7), 0).after_unaligned();
    decider.decide(Event::WantMutation, 0);
    let sealed = decider.decide(Event::Sealed(Epoch(8)), 1);
    assert_eq!(sealed[0], Action::Submit { epoch: Epoch(8), visible: false, store: true });
    assert!(
        matches!(sealed[1], Action::Inject { epoch: Epoch(9), kind: BarrierKind::Tick, .. }),
        "{sealed:?}"
    );
    let sealed = decider.decide(Event::Sealed(Epoch(9)), 2);
    assert_eq!(sealed[0], Action::Submit { epoch: Epoch(9), visible: true, store: false });
}

#[test]
fn checkpoints_are_triggered_in_their_phase() {
    let settings = Settings { phase_us: 300_000, barrier_interval_us: 50_000, ..Settings::default() };
    let mut decider = Decider::new(settings, Epoch::ZERO, 0);
    decider.decide(Event::WantMutation, 0);
    let mut triggers = Vec::new();
    for ms in (0..5000).step_by(10) {
        for event in [Event::Moved, Event::Time] {
            for action in decider.decide(event, ms * 1000) {
                let Action::Inject { epoch, kind, .. } = action else { continue };
                decider.decide(Event::Sealed(epoch), ms * 1000);
                decider.decide(Event::Visible(epoch), ms * 1000);
                if kind == BarrierKind::Checkpoint {
                    triggers.push(ms);
                    decider.decide(Event::Durable(epoch), ms * 1000);
                }
            }
        }
        if ms == 0 {
            decider.decide(Event::Sealed(Epoch(1)), 0);
            decider.decide(Event::Visible(Epoch(1)), 0);
            decider.decide(Event::Durable(Epoch(1)), 0);
        }
    }
    // At most a tick late, and not later each time.
    let late: Vec<i64> = triggers.iter().map(|ms| ms - ms.div_euclid(1000) * 1000 - 300).collect();
    assert!(triggers.len() == 5 && late.iter().all(|late| (0..=50).contains(late)), "{triggers:?}");
}

#[test]
fn an_idle_database_gets_no_barriers() {
    let mut decider = Decider::new(Settings::default(), Epoch::ZERO, 0);
    // However long the jobs take to be put together: nothing before them.
    assert_eq!((0..40).flat_map(|i| decider.decide(Event::Time, i * 100_000)).count(), 0);
    let first = decider.decide(Event::WantMutation, 4_000_000);
    assert!(matches!(first[..], [Action::Inject { mutate: true, .. }]), "{first:?}");
    decider.decide(Event::Sealed(Epoch(1)), 4_000_000);
    decider.decide(Event::Visible(Epoch(1)), 4_000_000);
    decider.decide(Event::Durable(Epoch(1)), 4_000_000);
    for i in 41..200 {
        assert_eq!(decider.decide(Event::Time, i * 100_000), vec![]);
    }
}

#[test]
fn a_late_checkpoint_times_out_and_its_epoch_is_not_stored() {
    let mut decider = Decider::new(Settings::default(), Epoch::ZERO, 0);
    let injected = decider.decide(Event::WantMutation, 0);
    assert!(matches!(injected[..], [Action::Inject { kind: BarrierKind::Checkpoint, .. }]));
    // However far apart barriers are, it is looked at in time.
    decider.set(Settings { barrier_interval_us: 3_600_000_000, ..Settings::default() });
    assert_eq!(decider.wake_us(0), 600_000_000);
    let late = decider.decide(Event::Time, 600_000_000);
    assert!(late.contains(&Action::Abort(Epoch(1), "checkpoint timed out".into())));
    let sealed = decider.decide(Event::Sealed(Epoch(1)), 600_000_001);
    assert!(sealed.contains(&Action::Submit { epoch: Epoch(1), visible: true, store: false }));
    assert_eq!(decider.decide(Event::Durable(Epoch(1)), 600_000_002), vec![]);
}

/// One checkpoint that the storage, or the dataflow, is to blame for not being there.
fn fail(decider: &mut Decider, fault: Fault, now_us: i64) -> Vec<Action> {
    let Some(Action::Inject { epoch, .. }) = decider.decide(Event::WantCheckpoint, now_us).pop() else {
        panic!("a checkpoint begins")
    };
    decider.decide(Event::Sealed(epoch), now_us);
    decider.decide(Event::Visible(epoch), now_us);
    decider.decide(Event::CheckpointFailed(epoch, fault, "no route".into()), now_us)
}

#[test]
fn an_unavailable_storage_never_restarts_the_dataflow() {
    let settings = Settings { tolerable_failures: 2, ..Settings::default() };
    let mut decider = Decider::new(settings, Epoch::ZERO, 0);
    decider.decide(Event::WantMutation, 0);
    decider.decide(Event::Sealed(Epoch(1)), 0);
    decider.decide(Event::Visible(Epoch(1)), 0);
    decider.decide(Event::Durable(Epoch(1)), 0);
    for _ in 0..100 {
        let failed = fail(&mut decider, Fault::Storage, 1);
        assert!(matches!(failed[..], [Action::Abort(..)]), "{failed:?}");
    }
    // What the dataflow is to blame for still counts.
    for _ in 0..2 {
        assert!(matches!(fail(&mut decider, Fault::Dataflow, 2)[..], [Action::Abort(..)]));
    }
    let failed = fail(&mut decider, Fault::Dataflow, 3);
    assert!(matches!(failed[..], [Action::Abort(..), Action::Restart(_)]), "{failed:?}");
}

#[test]
fn a_checkpoint_that_is_late_in_the_storage_is_the_storages_fault() {
    let settings = Settings { tolerable_failures: 0, ..Settings::default() };
    let mut decider = Decider::new(settings, Epoch::ZERO, 0);
    decider.decide(Event::WantMutation, 0);
    decider.decide(Event::Sealed(Epoch(1)), 1);
    let late = decider.decide(Event::Time, 600_000_000);
    assert!(late.contains(&Action::Abort(Epoch(1), "checkpoint timed out".into())), "{late:?}");
    assert!(!late.iter().any(|action| matches!(action, Action::Restart(_))), "{late:?}");
}

#[test]
fn a_clock_that_is_set_back_delays_nothing() {
    let (hour_us, second_us) = (3_600_000_000, 1_000_000);
    let mut decider = Decider::new(Settings::default(), Epoch(7), hour_us);
    let injected = |actions: &[Action]| {
        actions.iter().find_map(|action| match action {
            Action::Inject { epoch, kind, .. } => Some((*epoch, *kind)),
            _ => None,
        })
    };
    let first = decider.decide(Event::WantMutation, hour_us);
    assert_eq!(injected(&first), Some((Epoch(8), BarrierKind::Checkpoint)));
    for event in [Event::Sealed(Epoch(8)), Event::Visible(Epoch(8)), Event::Durable(Epoch(8))] {
        decider.decide(event, hour_us);
    }
    // It is an hour earlier all at once.
    decider.decide(Event::Moved, 0);
    assert!(decider.wake_us(0) <= 100_000, "it would sleep for an hour");
    let tick = decider.decide(Event::Time, 100_000);
    assert_eq!(injected(&tick), Some((Epoch(9), BarrierKind::Tick)));
    for event in [Event::Sealed(Epoch(9)), Event::Visible(Epoch(9)), Event::Moved] {
        decider.decide(event, 100_000);
    }
    let next = decider.decide(Event::Time, second_us);
    assert_eq!(
        injected(&next),
        Some((Epoch(10), BarrierKind::Checkpoint)),
        "a checkpoint interval has begun"
    );
}
