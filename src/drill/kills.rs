//! When and where the server dies: at random moments, and inside every step of a checkpoint and of the
//! sinks, by the server's fail points. Decided before the first kill, from the seed.

use super::script::Script;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::time::Duration;

/// One kill.
#[derive(Clone, Debug, PartialEq)]
pub enum Kill {
    /// SIGKILL so long after it was RUNNING.
    Moment(Duration),
    /// Inside a step: the fail point, and at which hit.
    Step(&'static str, u32),
}

/// The steps of a checkpoint, of its clean-up and of a restart, and how often they are passed before
/// some hit is likely within seconds.
const STEPS: &[(&str, u32)] = &[
    ("apply.before_writes", 20),
    ("apply.after_writes", 20),
    ("apply.before_checkpoint", 3),
    ("apply.after_checkpoint", 3),
    ("checkpoint.before_manifest", 3),
    ("manifest.before_rename", 3),
    ("manifest.after_rename", 3),
    ("gc.before_manifest", 2),
    ("gc.after_manifest", 2),
    ("gc.between_files", 2),
    ("gc.after_directory", 2),
    ("restart.before_jobs", 1),
];

const FILES_STEPS: &[(&str, u32)] = &[
    ("files_sink.before_write", 3),
    ("files_sink.before_commit", 3),
    ("files_sink.before_publish", 3),
    ("files_sink.after_publish", 3),
];

const PROGRESS_STEPS: &[(&str, u32)] =
    &[("postgres_sink.before_commit", 3), ("postgres_sink.after_commit", 3)];

const TWO_PHASE_STEPS: &[(&str, u32)] = &[
    ("two_phase.before_prepare", 4),
    ("two_phase.after_prepare", 4),
    ("two_phase.before_commit", 4),
    ("two_phase.after_commit", 4),
];

/// The kills of a drill. Every other one is inside a step; each step has its turn before one comes
/// again.
pub fn plan(seed: u64, kills: usize, script: &Script) -> Vec<Kill> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut steps = STEPS.to_vec();
    let sinks = [
        (script.sinks.iter().any(|s| s.place.is_files()), FILES_STEPS),
        (script.sinks.iter().any(|s| !s.place.is_files() && !s.two_phase), PROGRESS_STEPS),
        (script.sinks.iter().any(|s| s.two_phase), TWO_PHASE_STEPS),
    ];
    for (_, of_sinks) in sinks.iter().filter(|(there, _)| *there) {
        steps.extend_from_slice(of_sinks);
    }
    let mut turn: Vec<(&'static str, u32)> = Vec::new();
    (0..kills)
        .map(|i| {
            if i % 2 == 0 {
                return Kill::Moment(Duration::from_millis(rng.random_range(50..2500)));
            }
            if turn.is_empty() {
                turn = steps.clone();
                turn.shuffle(&mut rng);
            }
            match turn.pop() {
                Some((step, hits)) => Kill::Step(step, rng.random_range(1..=hits)),
                None => Kill::Moment(Duration::from_millis(500)),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_kills_and_every_step_has_its_turn() {
        let script = Script::default();
        let kills = plan(7, 100, &script);
        assert_eq!(kills, plan(7, 100, &script));
        assert_ne!(kills, plan(8, 100, &script));
        for (step, _) in STEPS {
            let turns = kills.iter().filter(|k| matches!(k, Kill::Step(s, _) if s == step)).count();
            assert!((4..=5).contains(&turns), "{step}: {turns}");
        }
        assert_eq!(kills.iter().filter(|k| matches!(k, Kill::Moment(_))).count(), 50);
    }
}
