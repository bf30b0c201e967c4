//! What of a savepoint fits: the objects that there are going to be, planned, against the state that it
//! holds.
//!
//! ```text
//!   the savepoint's objects, or those of now │ planned ── the same stateful operators ── its state is restored
//!                                                      └─ others: error │ filled anew, with what reads it │ dropped
//! ```
//! State is matched by the object and the fingerprints of its operators. An operator alone is never
//! given up: without its state what comes after it would be wrong.

use super::incarnation::Lasting;
use super::manager::JobError;
use super::replace_ids::Ids;
use super::restore::{fits, mismatch, plan};
use crate::checkpoint::manifest::ManifestJob;
use crate::checkpoint::savepoint::Savepoint;
use crate::connectors::registry;
use std::collections::BTreeSet;
use std::sync::Arc;
use weir_catalog::sink::Sink;
use weir_catalog::{CatalogChange, CatalogSnapshot, Object, ObjectBody, ObjectId, ObjectState, SqlState};
use weir_sql::parser::statement::{OnMismatch, RestoreOptions, RestoredSinks};
use weir_sql::plan::fingerprint::{fingerprints, fingerprints_as};

/// What is restored of a savepoint.
pub struct Fitted {
    /// The catalog.
    pub catalog: CatalogSnapshot,
    /// Which objects are which.
    pub ids: Ids,
    /// The jobs whose state is restored, as they are called in this catalog.
    pub jobs: Vec<ManifestJob>,
    /// What the client is to be told.
    pub notices: Vec<String>,
}

impl Fitted {
    /// Whether the state of `object` is restored.
    pub fn has_state(&self, object: ObjectId) -> bool {
        object < ObjectId::FIRST_USER || self.jobs.iter().any(|job| job.job == object)
    }

    /// What an object of the savepoint is called here, if its state is restored.
    pub fn restored(&self, saved: ObjectId) -> Option<ObjectId> {
        self.ids.now(saved).filter(|id| self.has_state(*id))
    }
}

/// Decides what is restored.
pub fn fit(lasting: &Lasting, savepoint: &Savepoint, options: RestoreOptions) -> Result<Fitted, JobError> {
    let saved = finished(CatalogSnapshot::from_image(savepoint.catalog.clone()))?;
    let own = savepoint.database == lasting.data_dir.database();
    let (catalog, ids) = match options.current_definitions {
        true => {
            let now = (*lasting.catalog()).clone();
            let ids = Ids::between(&saved, &now, own);
            (now, ids)
        }
        false => (saved.clone(), Ids::same(&saved)),
    };
    let mut fitted = Fitted { catalog, ids, jobs: Vec::new(), notices: Vec::new() };
    let Examined { jobs, misfits, notices } = examine(lasting, &fitted, &saved, savepoint)?;
    (fitted.jobs, fitted.notices) = (jobs, notices);
    // What gets another number gets one that nobody's target knows.
    fitted.catalog.next_id = fitted.catalog.next_id.max(lasting.catalog().next_id);
    let mut rebuilt = BTreeSet::new();
    for misfit in misfits {
        // What the savepoint does not have is new: that it is filled needs no word.
        match options.on_mismatch {
            _ if misfit.new => rebuild(&mut fitted, &misfit, options.sinks, &mut rebuilt)?,
            OnMismatch::Error => return Err(misfit.error),
            OnMismatch::Drop => drop_misfit(&mut fitted, &misfit)?,
            OnMismatch::Rebuild => rebuild(&mut fitted, &misfit, options.sinks, &mut rebuilt)?,
        }
    }
    // Nobody reads them before they are filled.
    fitted.catalog = fitted.catalog.refilling(&rebuilt);
    let catalog = &fitted.catalog;
    fitted.jobs.retain(|job| catalog.by_id(job.job).is_some() && !rebuilt.contains(&job.job));
    Ok(fitted)
}

/// Without what was being created: nobody was told that it is there.
fn finished(catalog: CatalogSnapshot) -> Result<CatalogSnapshot, JobError> {
    let creating = |o: &&Arc<Object>| o.state == ObjectState::Creating;
    let unfinished: Vec<ObjectId> = catalog.objects().filter(creating).map(|o| o.id).collect();
    unfinished.into_iter().try_fold(catalog, |catalog, id| without(&catalog, id))
}

/// An object whose state is not restored.
struct Misfit {
    object: Arc<Object>,
    /// Whether the savepoint does not know it.
    new: bool,
    /// Whether it can be planned at all.
    planned: bool,
    error: JobError,
}

struct Examined {
    /// The jobs that fit.
    jobs: Vec<ManifestJob>,
    misfits: Vec<Misfit>,
    notices: Vec<String>,
}

fn examine(
    lasting: &Lasting,
    fitted: &Fitted,
    saved: &CatalogSnapshot,
    savepoint: &Savepoint,
) -> Result<Examined, JobError> {
    let catalog = Arc::new(fitted.catalog.clone());
    let mut examined = Examined { jobs: Vec::new(), misfits: Vec::new(), notices: Vec::new() };
    for object in catalog.objects().filter(|o| o.has_job()) {
        let before = fitted.ids.saved(object.id).and_then(|id| saved.by_id(id));
        let stored = before.and_then(|before| savepoint.jobs.iter().find(|job| job.job == before.id));
        let plan = plan(lasting, &catalog, object);
        let planned = plan.is_ok();
        let now = plan.as_ref().ok().and_then(Option::as_ref).map(|plan| {
            let as_saved = |id: ObjectId| fitted.ids.saved(id).unwrap_or(id);
            (fingerprints(plan), fingerprints_as(plan, &as_saved))
        });
        let (now, as_saved) = now.unwrap_or_default();
        let error = match (plan, before, stored) {
            (Err(error), ..) => error,
            (_, None, _) => JobError::internal(format!("{} is not in the savepoint", described(object))),
            // It was filling, or paused.
            (_, Some(_), None) => continue,
            (_, Some(before), Some(_)) if !fitted.ids.same_rows(before, object) => JobError::internal(
                format!("{} has other columns or keys than in the savepoint", described(object)),
            ),
            (_, Some(before), Some(stored)) if fits(&stored.fingerprints, &as_saved) => {
                examined.jobs.push(ManifestJob { job: object.id, fingerprints: now, ..stored.clone() });
                examined.notices.extend(redefined(before, object));
                continue;
            }
            (_, _, Some(stored)) => mismatch(object, "savepoint", &stored.fingerprints, &as_saved),
        };
        let new = before.is_none() && planned;
        examined.misfits.push(Misfit { object: Arc::clone(object), new, planned, error: hinted(error) });
    }
    Ok(examined)
}

fn hinted(error: JobError) -> JobError {
    let hint = "WITH (on_mismatch = 'rebuild') fills it from its inputs anew, 'drop' drops it; both also what reads it.";
    JobError { state: SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, hint: Some(hint.to_owned()), ..error }
}

fn described(object: &Object) -> String {
    format!("{} \"{}\"", object.kind(), object.name.name)
}

/// Whoever gives old state to a new query is told what that means.
fn redefined(before: &Object, object: &Object) -> Option<String> {
    let changed = match (&before.body, &object.body) {
        (ObjectBody::MaterializedView(before), ObjectBody::MaterializedView(now)) => {
            before.query != now.query
        }
        (ObjectBody::Sink(before), ObjectBody::Sink(now)) => before.query != now.query,
        _ => false,
    };
    changed.then(|| {
        let which = described(object);
        format!("{which} goes on with the state of another query: what was computed before stays as it was")
    })
}

fn drop_misfit(fitted: &mut Fitted, misfit: &Misfit) -> Result<(), JobError> {
    for id in fitted.catalog.cascade(misfit.object.id) {
        // It may have gone with another one.
        let Some(object) = fitted.catalog.by_id(id).cloned() else { continue };
        fitted.notices.push(match id == misfit.object.id {
            true => format!("{} is dropped: {}", described(&object), misfit.error.message),
            false => format!("{}, which reads it, is dropped", described(&object)),
        });
        fitted.catalog = without(&fitted.catalog, id)?;
    }
    Ok(())
}

fn rebuild(
    fitted: &mut Fitted,
    misfit: &Misfit,
    sinks: RestoredSinks,
    rebuilt: &mut BTreeSet<ObjectId>,
) -> Result<(), JobError> {
    let Misfit { object, planned, error, .. } = misfit;
    if !planned {
        return Err(error.clone());
    }
    let affected = fitted.catalog.cascade(object.id);
    let affected = affected.iter().filter_map(|id| fitted.catalog.by_id(*id)).filter(|o| o.has_job());
    let affected: Vec<Arc<Object>> = affected.cloned().collect();
    for affected in affected {
        let which = described(&affected);
        // A new sink has a target that knows nothing of the savepoint.
        let new_sink = misfit.new && affected.id == object.id;
        if let ObjectBody::Sink(sink) = &affected.body
            && !new_sink
            && affected.state != ObjectState::Filling
        {
            if sinks != RestoredSinks::Rebuild || !empties(sink) {
                return Err(not_rebuilt(&which, sink, error));
            }
            fitted
                .notices
                .push(format!("{which} is rebuilt: its target is emptied, and gets everything anew"));
            fitted.catalog = emptying(&fitted.catalog, &affected, sink)?;
            continue;
        }
        if rebuilt.insert(affected.id) {
            fitted.notices.push(match affected.id == object.id {
                true => format!("{which} is rebuilt: {}", error.message),
                false => format!("{which}, which reads what is rebuilt, is rebuilt"),
            });
        }
    }
    Ok(())
}

/// Whether the target of a sink can be emptied and filled anew.
fn empties(sink: &Sink) -> bool {
    registry::empties_target(sink) && sink.snapshot
}

/// A sink reads what is rebuilt: what its target holds is of what was before.
fn not_rebuilt(which: &str, sink: &Sink, error: &JobError) -> JobError {
    let message =
        format!("{which} can't be rebuilt: its target would get everything again ({})", error.message);
    let mut error = JobError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message);
    error.hint = Some(match empties(sink) {
        true => "WITH (on_mismatch = 'rebuild', sinks = 'rebuild') empties its target and delivers everything anew; \
                 on_mismatch = 'drop' drops it."
            .to_owned(),
        false => "on_mismatch = 'drop' drops it; create it again after.".to_owned(),
    });
    error
}

/// The catalog in which a sink that empties its target has taken the place of one, as by ALTER SINK … REBUILD.
fn emptying(catalog: &CatalogSnapshot, object: &Object, sink: &Sink) -> Result<CatalogSnapshot, JobError> {
    let body = ObjectBody::Sink(Sink { replaces: Some(object.id), ..sink.clone() });
    let again = Object { id: catalog.next_id, state: ObjectState::Filling, body, ..object.clone() };
    let dropped = catalog.apply(&CatalogChange::Drop(object.id)).map_err(JobError::from_client)?;
    dropped.apply(&CatalogChange::Create(again)).map_err(JobError::from_client)
}

/// The catalog without an object and all that reads it.
fn without(catalog: &CatalogSnapshot, id: ObjectId) -> Result<CatalogSnapshot, JobError> {
    let there = |id: &ObjectId| catalog.by_id(*id).is_some();
    let mut rest = catalog.clone();
    for id in catalog.cascade(id).into_iter().filter(there) {
        rest = rest.apply(&CatalogChange::Drop(id)).map_err(JobError::from_client)?;
    }
    Ok(rest)
}
