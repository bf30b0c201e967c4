//! Walks the decision function through all event orders of a small job, to a bounded depth, and
//! checks its invariants after every step.

use super::*;
use std::collections::HashSet;

/// What the outside knows: enough to offer only events that can happen.
#[derive(Clone)]
struct World {
    decider: Decider,
    now_us: i64,
    injected: Vec<(Epoch, BarrierKind, bool)>,
    sealed: HashSet<Epoch>,
    submitted: Vec<(Epoch, bool)>,
    visible: usize,
    stored: HashSet<Epoch>,
    ended: HashSet<Epoch>,
    mutations_wanted: usize,
    restarted: bool,
}

impl World {
    fn new() -> Self {
        let settings = Settings {
            barrier_interval_us: 10,
            checkpoint_interval_us: 20,
            checkpoint_timeout_us: 60,
            tolerable_failures: 1,
            ..Settings::default()
        };
        Self {
            decider: Decider::new(settings, Epoch(7), 0),
            now_us: 0,
            injected: Vec::new(),
            sealed: HashSet::new(),
            submitted: Vec::new(),
            visible: 0,
            stored: HashSet::new(),
            ended: HashSet::new(),
            mutations_wanted: 0,
            restarted: false,
        }
    }

    fn possible(&self) -> Vec<Event> {
        let mut events = vec![Event::Time, Event::Moved, Event::WantTick, Event::WantCheckpoint];
        if self.mutations_wanted < 2 {
            events.push(Event::WantMutation);
        }
        for (epoch, ..) in self.injected.iter().filter(|(e, ..)| !self.sealed.contains(e)) {
            events.push(Event::Sealed(*epoch));
        }
        if let Some((epoch, _)) = self.submitted.get(self.visible) {
            events.push(Event::Visible(*epoch));
        }
        for (epoch, store) in &self.submitted[..self.visible] {
            if *store && !self.stored.contains(epoch) {
                events.push(Event::Durable(*epoch));
                events.push(Event::CheckpointFailed(*epoch, "disk full".into()));
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
            Event::Visible(_) => self.visible += 1,
            Event::Durable(e) | Event::CheckpointFailed(e, _) => drop(self.stored.insert(*e)),
            Event::WantMutation => self.mutations_wanted += 1,
            _ => {}
        }
        let was_restarted = self.restarted;
        for action in self.decider.decide(event, self.now_us) {
            assert!(!was_restarted, "nothing is decided after a restart");
            self.check(action);
        }
        let in_flight = self.injected.len() - self.visible;
        assert!(in_flight <= 2, "{in_flight} barriers in flight");
    }

    fn check(&mut self, action: Action) {
        match action {
            Action::Inject { epoch, previous, kind, mutate } => {
                let last = self.injected.last().map_or(Epoch(7), |(e, ..)| *e);
                assert_eq!((previous, epoch), (last, last.next()), "epochs follow each other");
                assert!(!mutate || kind == BarrierKind::Checkpoint, "a mutation goes with a checkpoint");
                assert!(mutate || !self.injected.is_empty(), "the first barrier brings the jobs in");
                let open = self
                    .injected
                    .iter()
                    .filter(|(e, k, _)| *k == BarrierKind::Checkpoint && !self.ended.contains(e))
                    .count();
                assert!(kind == BarrierKind::Tick || open == 0, "one checkpoint at a time");
                self.injected.push((epoch, kind, mutate));
                let mutated = self.injected.iter().filter(|(.., m)| *m).count();
                assert!(mutated <= self.mutations_wanted, "no mutation that nobody asked for");
            }
            Action::Submit { epoch, store } => {
                let next = self.injected[self.submitted.len()];
                assert_eq!(epoch, next.0, "submitted in order, once");
                assert!(self.sealed.contains(&epoch), "sealed before submitted");
                assert!(!store || next.1 == BarrierKind::Checkpoint);
                self.submitted.push((epoch, store));
            }
            Action::Complete(epoch) => {
                assert!(self.stored.contains(&epoch), "durable before complete");
                assert!(self.ended.insert(epoch), "a checkpoint ends once");
            }
            Action::Abort(epoch, _) => assert!(self.ended.insert(epoch), "a checkpoint ends once"),
            Action::Restart(_) => self.restarted = true,
        }
    }
}

fn walk(world: &World, depth: usize, visited: &mut usize) {
    *visited += 1;
    if depth == 0 {
        return;
    }
    for event in world.possible() {
        let mut next = world.clone();
        next.step(event);
        walk(&next, depth - 1, visited);
    }
}

#[test]
fn every_order_of_events_keeps_the_invariants() {
    let mut visited = 0;
    walk(&World::new(), 6, &mut visited);
    let mut begun = World::new();
    begun.step(Event::WantMutation);
    walk(&begun, 6, &mut visited);
    assert!(visited > 50_000, "only {visited} states were visited");
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
    let late = decider.decide(Event::Time, 600_000_000);
    assert!(late.contains(&Action::Abort(Epoch(1), "checkpoint timed out".into())));
    let sealed = decider.decide(Event::Sealed(Epoch(1)), 600_000_001);
    assert!(sealed.contains(&Action::Submit { epoch: Epoch(1), store: false }));
    assert_eq!(decider.decide(Event::Durable(Epoch(1)), 600_000_002), vec![]);
}
