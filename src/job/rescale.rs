//! Rescale: another number of actors for jobs that run, by ALTER … SET PARALLELISM.
//!
//! ```text
//!   plan anew ── build new actors ── log the number ── mutation barrier: old ones end, new ones begin
//!       │ refused: nothing happened         │ crash, restart: begins with that number
//! ```
//! State is keyed by vnode, so nothing is moved: each new actor reads the part that is its own, all of
//! it published at the barrier. Without a running dataflow the number is what the next start goes by.
//! A job that is still filling can't be replaced, nor what it reads: who asks for one of these is refused
//! (55000), who asks for all of them gets those when it has filled.

use super::incarnation::{Incarnation, Lasting};
use super::manager::{Database, JobError};
use super::restore;
use super::running::{JobSpec, Parallelism};
use super::takeover::{Replacing, Waiting};
use crate::clock;
use crate::config::Config;
use crate::connectors::retry::Backoff;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use weir_catalog::{CatalogChange, CatalogSnapshot, JobId};
use weir_sql::plan::fingerprint::fingerprints;

impl Database {
    /// How many actors the fragments of a new job have.
    pub fn parallelism(&self) -> usize {
        self.lasting.settings().parallelism
    }
}

/// The setting that says how many actors the fragments of a job have that has no number of its own.
const SETTING: &str = "parallelism";

/// Whose parallelism a change is about.
enum Targets {
    Nobody,
    Jobs(Vec<JobId>),
    All,
}

impl Targets {
    fn of(changes: &[CatalogChange]) -> Self {
        let mut jobs = Vec::new();
        for change in changes {
            match change {
                CatalogChange::Parallelism(id, _) => jobs.push(*id),
                CatalogChange::Set(name, _) if name == SETTING => return Self::All,
                _ => {}
            }
        }
        if jobs.is_empty() { Self::Nobody } else { Self::Jobs(jobs) }
    }

    fn in_incarnation(self, incarnation: &Incarnation) -> Vec<JobId> {
        match self {
            Self::Nobody => Vec::new(),
            Self::Jobs(jobs) => jobs,
            Self::All => incarnation.running.job_ids(),
        }
    }
}

/// What becomes of a change of parallelism.
#[derive(Default)]
pub struct Rescaling {
    /// Answers when the jobs have other actors, if there are any to be replaced.
    replacing: Option<Replacing>,
    /// What the client is to be told.
    pub notices: Vec<String>,
}

/// Logs `changes`, and begins to give jobs the parallelism that they say. The caller holds the DDL lock.
pub async fn log(lasting: &Arc<Lasting>, changes: &Arc<[CatalogChange]>) -> Result<Rescaling, JobError> {
    let (targets, incarnation) = match (Targets::of(changes), lasting.incarnation()) {
        // The next dataflow starts with the numbers of the catalog.
        (Targets::Nobody, _) | (_, Err(_)) => {
            return lasting.log_changes(changes).map(|()| Rescaling::default());
        }
        (targets, Ok(incarnation)) => (targets, incarnation),
    };
    let next = lasting.changed(changes)?;
    let (logging, changes) = (Arc::clone(lasting), Arc::clone(changes));
    replace(lasting, incarnation, targets, next, move || {
        logging.log_changes(&changes)?;
        // Only to die here: it is done.
        let _ = crate::failpoint::hit("rescale.logged");
        Ok(())
    })
    .await
}

/// Gives jobs the parallelism that they have in the catalog `next`.
async fn replace(
    lasting: &Arc<Lasting>,
    incarnation: Arc<Incarnation>,
    targets: Targets,
    next: CatalogSnapshot,
    log: impl FnOnce() -> Result<(), JobError> + Send + 'static,
) -> Result<Rescaling, JobError> {
    let all = matches!(targets, Targets::All);
    let mut targets = targets.in_incarnation(&incarnation);
    let lasting = Arc::clone(lasting);
    let replaced = crate::work::blocking(move || {
        let next = Arc::new(next);
        let parallelism = parallelism(&lasting, &next);
        let running = &incarnation.running;
        let waits = if all { running.held_by_filling(&targets, &parallelism) } else { Waiting::default() };
        targets.retain(|job| !waits.jobs.contains(job));
        let specs = specs(&lasting, &incarnation, &next, running.affected(&targets, &parallelism))?;
        let replacing = running.replace((&targets, &parallelism), &specs, log)?;
        Ok(Rescaling { replacing, notices: waiting(&next, &waits).into_iter().collect() })
    });
    replaced.await.map_err(|e| JobError::internal(format!("could not rescale: {e}")))?
}

/// Tells what is done later, and when.
fn waiting(catalog: &CatalogSnapshot, waits: &Waiting) -> Option<String> {
    let of = |id: &JobId| catalog.by_id(*id).map(|o| format!("{} \"{}\"", o.kind(), o.name.name));
    let named = |ids: &BTreeSet<JobId>| ids.iter().filter_map(of).collect::<Vec<_>>().join(", ");
    (!waits.jobs.is_empty()).then(|| {
        format!("{} get the new parallelism when {} is created", named(&waits.jobs), named(&waits.filling))
    })
}

/// How many actors the fragments of an object's job have by this catalog.
pub(super) fn actors_of(config: &Config, catalog: &CatalogSnapshot, id: JobId) -> usize {
    let own = catalog.by_id(id).and_then(|object| object.parallelism);
    own.map_or_else(|| config.of_database(&catalog.settings).parallelism, usize::from)
}

/// The same for any object.
fn parallelism(lasting: &Lasting, catalog: &Arc<CatalogSnapshot>) -> Parallelism {
    let (config, catalog) = (Arc::clone(&lasting.config), Arc::clone(catalog));
    Arc::new(move |id| actors_of(&config, &catalog, id))
}

/// The jobs that get other actors, planned anew.
fn specs(
    lasting: &Lasting,
    incarnation: &Incarnation,
    catalog: &Arc<CatalogSnapshot>,
    ids: BTreeSet<JobId>,
) -> Result<Vec<JobSpec>, JobError> {
    let mut specs = Vec::new();
    for id in ids {
        let Some(object) = catalog.by_id(id).filter(|object| object.has_job()) else { continue };
        let plan = restore::plan(lasting, catalog, object)?;
        if let (Some(plan), Some(running)) = (&plan, incarnation.fingerprints.lock().get(&id)) {
            restore::require_same(object, running, &fingerprints(plan))?;
        }
        specs.push(JobSpec { object: Arc::clone(object), plan, restored: true });
    }
    Ok(specs)
}

/// Waits until the jobs have other actors. If the dataflow restarts meanwhile, it does so with them.
pub async fn wait(rescaling: Rescaling) {
    let Some(replacing) = rescaling.replacing else { return };
    let done = replacing.await.unwrap_or_else(|_| Err("the dataflow is restarting".to_owned()));
    match done {
        Ok(epoch) => tracing::info!(%epoch, "jobs go on with another parallelism"),
        Err(reason) => tracing::warn!(reason, "interrupted while jobs got another parallelism"),
    }
}

/// Catches up with what was logged while a dataflow was put together with what was known before, or while
/// something filled. Where that fails it is tried again as long as this dataflow runs: the next one begins
/// with what the catalog says.
pub async fn settle(lasting: Arc<Lasting>) {
    let Ok(incarnation) = lasting.incarnation() else { return };
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60), 0);
    while lasting.is_running(&incarnation) {
        let Err(error) = try_to_settle(&lasting, &incarnation).await else { return };
        tracing::error!(%error, "could not give jobs the parallelism that they should have");
        clock::sleep(backoff.wait()).await;
    }
}

async fn try_to_settle(lasting: &Arc<Lasting>, incarnation: &Arc<Incarnation>) -> Result<(), JobError> {
    let _ddl = lasting.ddl_lock.lock().await;
    let now = (*lasting.catalog()).clone();
    // What still waits is seen to when that has filled.
    let rescaling = replace(lasting, Arc::clone(incarnation), Targets::All, now, || Ok(())).await?;
    wait(rescaling).await;
    Ok(())
}
