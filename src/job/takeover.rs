//! Jobs that go on with other actors, from a barrier on.
//!
//! ```text
//!   table ─┬─> view a ──> view b ──> sink        rescaled: a. Replaced: a, b, sink, for what they
//!          └─> view c                            read comes through other channels. c never notices
//! ```
//! At one barrier the old actors get their last message, and the new ones, which wait for what the
//! old ones hand over ([`crate::dataflow::start`]), their first. **Invariant:** either all of these jobs
//! go on with other actors, or all of them with those that they have.

use super::change::Change;
use super::manager::JobError;
use super::running::{JobSpec, Parallelism, Running, RunningJob};
use crate::stream::Epoch;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use tokio::sync::oneshot;
use weir_catalog::{JobId, Object, ObjectKind};

/// Answers, when jobs have other actors, with the epoch from which on.
pub type Replacing = oneshot::Receiver<Result<Epoch, String>>;

type Jobs = HashMap<JobId, RunningJob>;

/// Jobs that can't be replaced yet.
#[derive(Debug, Default)]
pub struct Waiting {
    /// They are read by what still fills, or fill.
    pub jobs: BTreeSet<JobId>,
    /// What fills.
    pub filling: BTreeSet<JobId>,
}

impl Running {
    /// The jobs that have to be replaced, inputs first, so that those among `targets` that have another
    /// parallelism than they should get it.
    pub fn affected(&self, targets: &[JobId], parallelism: &Parallelism) -> BTreeSet<JobId> {
        affected_of(&self.jobs.lock(), targets, parallelism)
    }

    /// Those of `targets` that should have another parallelism, and can't while what reads them fills.
    pub fn held_by_filling(&self, targets: &[JobId], parallelism: &Parallelism) -> Waiting {
        let jobs = self.jobs.lock();
        let mut waiting = Waiting::default();
        for target in targets {
            let replaced = affected_of(&jobs, &[*target], parallelism);
            let filling: Vec<JobId> = replaced.into_iter().filter(|id| self.fills(*id).is_some()).collect();
            if !filling.is_empty() {
                waiting.jobs.insert(*target);
                waiting.filling.extend(filling);
            }
        }
        waiting
    }

    /// The object of a job that is still filling.
    fn fills(&self, id: JobId) -> Option<Arc<Object>> {
        let object = (self.ground.tails.objects)(id)?;
        let filling = object.state.is_filling() || self.ground.shown.filling.borrow().contains_key(&id);
        filling.then_some(object)
    }

    /// An error that names a job which is still filling, if one of these is: what it has read of the
    /// past is known to its actors only.
    fn require_filled(&self, ids: &BTreeSet<JobId>) -> Result<(), JobError> {
        match ids.iter().find_map(|id| self.fills(*id)) {
            Some(object) => Err(still_filling(&object)),
            None => Ok(()),
        }
    }

    /// Replaces the actors of those among `targets` that have another parallelism than they should, and
    /// of what reads them. `specs` are of all [`Running::affected`], inputs first; a job without one was
    /// dropped, and ends. `log` is called when nothing can fail any more but itself. `None`: there is
    /// nothing to replace.
    pub fn replace(
        &self,
        (targets, parallelism): (&[JobId], &Parallelism),
        specs: &[JobSpec],
        log: impl FnOnce() -> Result<(), JobError>,
    ) -> Result<Option<Replacing>, JobError> {
        let mut jobs = self.jobs.lock();
        let ids = affected_of(&jobs, targets, parallelism);
        if ids.is_empty() {
            return log().map(|()| None);
        }
        self.require_filled(&ids)?;
        let planned: HashSet<JobId> = specs.iter().map(|spec| spec.object.id).collect();
        let unplanned = |id: &JobId| {
            let object = (self.ground.tails.objects)(*id);
            !planned.contains(id) && object.is_some_and(|object| object.kind() != ObjectKind::Source)
        };
        if ids.iter().any(unplanned) {
            return Err(JobError::overtaken());
        }
        let (start, parallelism) = (Some(Arc::default()), Some(parallelism.clone()));
        let mut change = Change { start, parallelism, ..Change::default() };
        change.replaced = ids.iter().filter_map(|id| jobs.remove_entry(id)).collect();
        // What the restored checkpoint did not release is with the writers that were restored from it.
        self.ground.tails.sink_logs.carry(Vec::new());
        let due = specs.iter().filter(|spec| ids.contains(&spec.object.id));
        if let Err(error) = self.rebuild(&mut jobs, &mut change, due).and_then(|()| log()) {
            // Nothing was sent: the channels of what was built close.
            for id in &ids {
                self.forget(&mut jobs, *id);
            }
            jobs.extend(change.replaced);
            return Err(error);
        }
        change.removed_actors = change.replaced.values().flat_map(|job| &job.actors).copied().collect();
        change.mutation.removed = ids.into_iter().collect();
        self.drop_unread_sources(&mut jobs, &mut change);
        Ok(Some(self.send(change)))
    }

    fn rebuild<'a>(
        &self,
        jobs: &mut Jobs,
        change: &mut Change,
        specs: impl Iterator<Item = &'a JobSpec>,
    ) -> Result<(), JobError> {
        for spec in specs {
            self.build(jobs, change, spec, None)?;
            crate::failpoint::hit("rescale.built").map_err(|e| JobError::internal(e.to_string()))?;
        }
        Ok(())
    }
}

fn affected_of(jobs: &Jobs, targets: &[JobId], parallelism: &Parallelism) -> BTreeSet<JobId> {
    let is_due = |id: &&JobId| jobs.get(id).is_some_and(|job| job.parallelism != parallelism(**id));
    with_readers(jobs, targets.iter().filter(is_due).copied())
}

/// These jobs, and all that reads them.
fn with_readers(jobs: &Jobs, roots: impl Iterator<Item = JobId>) -> BTreeSet<JobId> {
    let mut found: BTreeSet<JobId> = roots.collect();
    let mut next: Vec<JobId> = found.iter().copied().collect();
    while let Some(read) = next.pop() {
        let readers = jobs.iter().filter(|(_, job)| job.reads.iter().any(|(id, _)| *id == read));
        next.extend(readers.filter_map(|(id, _)| found.insert(*id).then_some(*id)));
    }
    found
}

fn still_filling(object: &Object) -> JobError {
    let mut error = JobError::being_created(object);
    error.hint = Some("Change the parallelism when it is done: SHOW JOBS tells how far it is.".to_owned());
    error
}
