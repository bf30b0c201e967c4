//! When and where the server dies: at random moments, and inside every step of a checkpoint, of a restart
//! and of the sinks, by the server's fail points; and what else befalls it then. Decided before the first
//! kill, from the seed.

use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::time::Duration;

/// One kill.
#[derive(Clone, Debug, PartialEq)]
pub struct Kill {
    /// When.
    pub place: Place,
    /// Before it a job gets another parallelism: a number that chooses the job, the parallelism, and so long
    /// after it was RUNNING.
    pub rescale: Option<(usize, u16, Duration)>,
    /// With it the local checkpoints are lost.
    pub loses_checkpoints: bool,
}

/// When a server is killed.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// SIGKILL so long after it was RUNNING.
    Moment(Duration),
    /// Inside a step, at this hit.
    Step(Step, u32),
}

/// A place in the server's code that has a name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The fail point.
    pub name: &'static str,
    /// Up to which hit of a life it is tried.
    hits: u32,
    /// Roughly how long there is from one hit to the next.
    every: Duration,
}

impl Step {
    /// How long it takes to come to hit number `hit`.
    pub fn reached_after(&self, hit: u32) -> Duration {
        self.every * hit
    }
}

const fn step(name: &'static str, hits: u32, every_ms: u64) -> Step {
    Step { name, hits, every: Duration::from_millis(every_ms) }
}

/// The steps of a checkpoint, of its clean-up and of a restart.
const STEPS: &[Step] = &[
    step("actor.sealed", 30, 100),
    step("apply.before_writes", 20, 100),
    step("apply.after_writes", 20, 100),
    step("apply.before_checkpoint", 3, 1000),
    step("apply.after_checkpoint", 3, 1000),
    step("checkpoint.before_manifest", 3, 1000),
    step("manifest.before_rename", 3, 1000),
    step("manifest.after_rename", 3, 1000),
    step("gc.before_manifest", 2, 1000),
    step("gc.after_manifest", 2, 1000),
    step("gc.between_files", 2, 1000),
    step("gc.after_directory", 2, 1000),
    step("restart.before_jobs", 1, 100),
];

const FILES_STEPS: &[Step] = &[
    step("files_sink.before_write", 3, 1000),
    step("files_sink.before_commit", 3, 1000),
    step("files_sink.before_publish", 3, 1000),
    step("files_sink.after_publish", 3, 1000),
];

const PROGRESS_STEPS: &[Step] =
    &[step("postgres_sink.before_commit", 3, 1000), step("postgres_sink.after_commit", 3, 1000)];

const TWO_PHASE_STEPS: &[Step] = &[
    step("two_phase.before_prepare", 6, 500),
    step("two_phase.after_prepare", 6, 500),
    step("two_phase.before_commit", 6, 500),
    step("two_phase.after_commit", 6, 500),
];

/// Of what is written to tables.
const WRITES_STEPS: &[Step] = &[
    step("dml_log.before_write", 20, 50),
    step("dml_log.mid_write", 20, 50),
    step("dml_log.before_sync", 20, 50),
    step("dml_log.after_sync", 20, 50),
    step("dml_log.before_cut", 1, 1000),
];

/// Of checkpoints that go elsewhere.
const STORAGE_STEPS: &[Step] = &[
    step("storage.before_take", 1, 100),
    step("storage.after_take", 1, 100),
    step("storage.before_shared", 6, 500),
    step("storage.after_shared", 6, 500),
    step("storage.before_small", 3, 1000),
    step("storage.after_small", 3, 1000),
    step("storage.before_publish", 3, 1000),
    step("storage.after_publish", 3, 1000),
    step("storage.before_forget", 2, 1000),
    step("storage.after_forget", 2, 1000),
    step("storage.before_remove", 2, 1000),
];

/// Of a restart without local checkpoints.
const DOWNLOAD_STEPS: &[Step] = &[
    step("restore.between_files", 2, 100),
    step("restore.before_rename", 1, 100),
    step("restore.after_rename", 1, 100),
];

/// Of a job that gets another parallelism.
const RESCALE_STEPS: &[Step] =
    &[step("rescale.built", 2, 300), step("rescale.logged", 1, 300), step("actor.begins", 2, 300)];

/// What a drill has that can be in the middle of something.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scene {
    /// Sinks into files.
    pub files: bool,
    /// Sinks into tables, with a row of progress.
    pub progress: bool,
    /// Sinks into tables, in two phases.
    pub two_phase: bool,
    /// Clients write to tables.
    pub writes: bool,
    /// Checkpoints go to a storage elsewhere as well.
    pub storage: bool,
    /// Jobs get other parallelisms.
    pub rescales: bool,
}

impl Scene {
    fn steps(&self) -> Vec<Step> {
        let parts = [
            (true, STEPS),
            (self.files, FILES_STEPS),
            (self.progress, PROGRESS_STEPS),
            (self.two_phase, TWO_PHASE_STEPS),
            (self.writes, WRITES_STEPS),
            (self.storage, STORAGE_STEPS),
            (self.storage, DOWNLOAD_STEPS),
            (self.rescales, RESCALE_STEPS),
        ];
        parts.iter().filter(|(there, _)| *there).flat_map(|(_, steps)| *steps).copied().collect()
    }
}

/// The kills of a drill. Every other one is inside a step; each step has its turn before one comes
/// again.
pub fn plan(seed: u64, kills: usize, scene: Scene) -> Vec<Kill> {
    let mut rng = StdRng::seed_from_u64(seed);
    let steps = scene.steps();
    let mut turn: Vec<Step> = Vec::new();
    let mut place = |i: usize, rng: &mut StdRng| {
        if i.is_multiple_of(2) {
            return Place::Moment(Duration::from_millis(rng.random_range(50..2500)));
        }
        if turn.is_empty() {
            turn = steps.clone();
            turn.shuffle(rng);
        }
        match turn.pop() {
            Some(step) => Place::Step(step, rng.random_range(1..=step.hits)),
            None => Place::Moment(Duration::from_millis(500)),
        }
    };
    let mut planned: Vec<Kill> = Vec::with_capacity(kills);
    for i in 0..kills {
        let place = place(i, &mut rng);
        let is_of = |steps: &[Step]| matches!(place, Place::Step(step, _) if steps.contains(&step));
        let rescale = (scene.rescales && (is_of(RESCALE_STEPS) || rng.random_bool(0.5))).then(|| {
            (
                rng.random_range(0..1000),
                rng.random_range(1..5),
                Duration::from_millis(rng.random_range(0..600)),
            )
        });
        // What is downloaded is what was lost with the kill before.
        if is_of(DOWNLOAD_STEPS)
            && let Some(before) = planned.last_mut()
        {
            before.loses_checkpoints = true;
        }
        let loses_checkpoints = scene.storage && rng.random_bool(0.2);
        planned.push(Kill { place, rescale, loses_checkpoints });
    }
    planned
}

/// How long the server runs in all before it has died of all of them.
pub fn running(kills: &[Kill]) -> Duration {
    let each = |kill: &Kill| match &kill.place {
        Place::Moment(after) => *after,
        Place::Step(step, hit) => step.reached_after(*hit),
    };
    kills.iter().map(each).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn everything() -> Scene {
        Scene { files: true, progress: true, two_phase: true, writes: true, storage: true, rescales: true }
    }

    #[test]
    fn the_same_seed_gives_the_same_kills_and_every_step_has_its_turn() {
        for scene in [Scene::default(), everything()] {
            let steps = scene.steps();
            let kills = plan(7, 8 * steps.len(), scene);
            assert_eq!(kills, plan(7, 8 * steps.len(), scene));
            assert_ne!(kills, plan(8, 8 * steps.len(), scene));
            for step in &steps {
                let of_step = |k: &&Kill| matches!(k.place, Place::Step(s, _) if s == *step);
                assert_eq!(kills.iter().filter(of_step).count(), 4, "{}", step.name);
            }
            let moments = kills.iter().filter(|k| matches!(k.place, Place::Moment(_))).count();
            assert_eq!(moments, kills.len() / 2);
        }
    }

    #[test]
    fn what_else_befalls_it_is_where_it_can_be() {
        let plain = plan(7, 200, Scene::default());
        assert!(plain.iter().all(|k| k.rescale.is_none() && !k.loses_checkpoints));
        let kills = plan(7, 400, everything());
        let rescales = kills.iter().filter(|k| k.rescale.is_some()).count();
        assert!((150..300).contains(&rescales), "{rescales}");
        for pair in kills.windows(2) {
            if let Place::Step(step, _) = pair[1].place {
                assert!(!DOWNLOAD_STEPS.contains(&step) || pair[0].loses_checkpoints, "{}", step.name);
                assert!(!RESCALE_STEPS.contains(&step) || pair[1].rescale.is_some(), "{}", step.name);
            }
        }
        assert!(running(&kills) > Duration::from_secs(300) && running(&kills) < Duration::from_secs(800));
    }
}
