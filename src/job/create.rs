//! CREATE of an object with a job: logged, filled, made readable.
//!
//! ```text
//!   log Creating ── mutation barrier ── backfill ── log Created ── acknowledged
//!       │ crash, cancel, failure: dropped
//!   log Filling ── acknowledged ── mutation barrier ── backfill ── log Created      background_ddl
//!       │ crash, restart of the dataflow: filled anew                failure: dropped
//!   log Drop of the old, Filling of the new ── … ALTER SINK … REBUILD goes on as the one above
//! ```

use super::edges::fills;
use super::incarnation::{Incarnation, Lasting};
use super::manager::{JobError, end_jobs};
use super::running::JobSpec;
use crate::checkpoint::coordinator::Message;
use std::sync::Arc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use weir_catalog::{CatalogChange, CatalogSnapshot, Object, ObjectBody, ObjectId, ObjectState, SqlState};
use weir_sql::binder::Create;
use weir_sql::plan::StreamPlan;

/// Creates an object; returns when it is caught up and logged `Created`. Cancelled or failed before
/// that, it leaves nothing behind.
pub(super) async fn create(
    lasting: &Arc<Lasting>,
    create: Create,
    cancel: &CancellationToken,
) -> Result<(), JobError> {
    let Create { object, plan, renames, .. } = create;
    let (object, incarnation) = log(lasting, object, renames).await?;
    let Some(incarnation) = incarnation else { return Ok(()) };
    crate::failpoint::hit("create.logged").map_err(|e| JobError::internal(e.to_string()))?;
    let filled = tokio::select! {
        biased;
        filled = fill(lasting, &incarnation, &object, plan) => filled,
        () = cancel.cancelled() => Err(cancelled()),
    };
    if let Err(error) = filled.and_then(|()| log_created(lasting, &incarnation, &object)) {
        lasting.log_changes(&[CatalogChange::Drop(object.id)])?;
        end_jobs(lasting, &[object]).await?;
        return Err(error);
    }
    go_on(lasting, &incarnation, &object)
}

/// Logs that an object has filled. What its sink needs to be dropped again is there before.
fn log_created(lasting: &Lasting, incarnation: &Arc<Incarnation>, object: &Object) -> Result<(), JobError> {
    incarnation.keep_target(object)?;
    lasting.log_changes(&[CatalogChange::Created(object.id)])
}

/// What follows once an object is created.
fn go_on(
    lasting: &Arc<Lasting>,
    incarnation: &Arc<Incarnation>,
    object: &Arc<Object>,
) -> Result<(), JobError> {
    // What waited until it has filled.
    tokio::spawn(super::rescale::settle(Arc::clone(lasting)));
    lasting.search_targets();
    incarnation.start_sink(object)
}

/// Logs an object as filling, and fills it in a task of its own.
pub(super) async fn create_in_background(
    lasting: &Arc<Lasting>,
    create: Create,
) -> Result<JoinHandle<Result<(), JobError>>, JobError> {
    let Create { mut object, plan, renames, .. } = create;
    object.state = ObjectState::Filling;
    let (object, incarnation) = log(lasting, object, renames).await?;
    crate::failpoint::hit("create.logged").map_err(|e| JobError::internal(e.to_string()))?;
    let lasting = Arc::clone(lasting);
    Ok(tokio::spawn(async move {
        let Some(incarnation) = incarnation else { return Ok(()) };
        let filled = match fill(&lasting, &incarnation, &object, plan).await {
            Ok(()) => finish(&lasting, &incarnation, object.id).await,
            failed => failed,
        };
        match filled {
            Ok(()) => Ok(()),
            Err(error) => {
                // A dataflow that has restarted meanwhile fills it anew; a DROP was first.
                let same = lasting.is_running(&incarnation);
                if same && lasting.catalog().by_id(object.id).is_some() {
                    tracing::warn!(name = %object.name, %error, "CREATE in the background failed");
                    lasting.log_changes(&[CatalogChange::Drop(object.id)])?;
                }
                if same {
                    // A DROP that was faster than the job had nothing to end.
                    end_jobs(&lasting, &[object]).await?;
                }
                Err(error)
            }
        }
    }))
}

/// An object has filled: it can be read, or delivers, from now on.
pub(super) async fn finish(
    lasting: &Arc<Lasting>,
    incarnation: &Arc<Incarnation>,
    id: ObjectId,
) -> Result<(), JobError> {
    let catalog = lasting.catalog();
    let Some(object) = catalog.by_id(id).filter(|o| o.state == ObjectState::Filling) else { return Ok(()) };
    incarnation
        .running
        .coordinator()
        .ask(Message::Checkpoint)
        .await
        .map_err(|e| JobError::interrupted(&e))?;
    log_created(lasting, incarnation, object)?;
    tracing::info!(name = %object.name, "CREATE in the background is done");
    go_on(lasting, incarnation, object)
}

/// Gives the object its id and logs it. Objects without a job have no incarnation to run in.
async fn log(
    lasting: &Arc<Lasting>,
    mut object: Object,
    renames: u64,
) -> Result<(Arc<Object>, Option<Arc<Incarnation>>), JobError> {
    let _ddl = lasting.ddl_lock.lock().await;
    let catalog = lasting.catalog();
    if catalog.renames != renames {
        return Err(JobError::overtaken());
    }
    check_inputs(&catalog, &object)?;
    object.id = catalog.next_id;
    let incarnation = if object.has_job() { Some(lasting.incarnation()?) } else { None };
    let replaced = match &object.body {
        ObjectBody::Sink(sink) if object.state == ObjectState::Filling => sink.replaces,
        _ => None,
    };
    let replaced = replaced.and_then(|id| catalog.by_id(id)).cloned();
    let mut changes: Vec<CatalogChange> = replaced.iter().map(|o| CatalogChange::Drop(o.id)).collect();
    changes.push(CatalogChange::Create(object.clone()));
    lasting.log_changes(&changes)?;
    if let Some(replaced) = replaced {
        end_jobs(lasting, &[replaced]).await?;
    }
    Ok((Arc::new(object), incarnation))
}

/// What a plan reads must be there still.
fn check_inputs(catalog: &CatalogSnapshot, object: &Object) -> Result<(), JobError> {
    for input in object.inputs() {
        match catalog.by_id(input) {
            None => {
                return Err(JobError::new(
                    SqlState::UNDEFINED_TABLE,
                    format!(
                        "a relation that {} \"{}\" reads does not exist any more",
                        object.kind(),
                        object.name.name
                    ),
                ));
            }
            Some(read) if read.state.is_filling() => {
                return Err(JobError::being_created(read));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Starts the job and waits until it is caught up and durable.
async fn fill(
    lasting: &Arc<Lasting>,
    incarnation: &Arc<Incarnation>,
    object: &Arc<Object>,
    plan: Option<StreamPlan>,
) -> Result<(), JobError> {
    let id = object.id;
    let planned = plan.is_some();
    let fills = fills(plan.as_ref());
    if let Some(plan) = &plan {
        incarnation.note_fingerprints(id, plan);
    }
    let spec = JobSpec { object: Arc::clone(object), plan, restored: false };
    let answer = incarnation.running.change(vec![spec], &[], None)?;
    answer
        .await
        .unwrap_or_else(|_| Err("the dataflow is restarting".to_owned()))
        .map_err(|e| JobError::interrupted(&e))?;
    if !planned {
        return Ok(());
    }
    let coordinator = incarnation.running.coordinator();
    if fills {
        incarnation.wait_filled(lasting, id).await?;
        coordinator.send(Message::Filled(id));
    }
    coordinator.ask(Message::Checkpoint).await.map_err(|e| JobError::interrupted(&e))?;
    Ok(())
}

fn cancelled() -> JobError {
    JobError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request")
}
