//! After a failure, and at every start: how soon a dataflow runs again, and what it still lacks then.
//!
//! ```text
//!   failure ─> end the old one ─> pause ─> restore ─> RUNNING ─> settle: drops, fills, what is new
//! ```
//! A start that fails is tried again with growing pauses; meanwhile SELECT shows the last visible
//! epoch, and jobs can be dropped.

use super::incarnation::{Incarnation, Lasting};
use super::manager::JobError;
use super::memory;
use super::restart_policy::Verdict;
use super::restore::{Prepared, prepare, show};
use crate::checkpoint::coordinator::Message;
use crate::clock;
use crate::state::budget::Budget;
use crate::threads::ThreadKind;
use crate::work;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_catalog::system::facts::RecoveryFact;
use weir_catalog::{Object, ObjectId, ObjectState};

/// A dataflow that stopped for want of space starts again when there is so much: a few small epochs' worth.
const SPACE_BYTES: u64 = 8 << 20;
/// How often to look.
const SPACE_PAUSE: Duration = Duration::from_millis(500);
/// How often it is tried to make durable that something has filled.
const FINISH_PAUSE: Duration = Duration::from_secs(1);

/// Starts the dataflow for the first time in this process. What can't start is left to
/// [`recover`]: the server answers meanwhile, says why, and a job that is at fault can be dropped.
pub async fn start(lasting: &Arc<Lasting>) {
    let _restarting = lasting.restart_lock.lock().await;
    let reason = lasting.came_back.as_deref().unwrap_or("the server started");
    if let Err(error) = begin(lasting, reason).await {
        tracing::error!(%error, "could not start the dataflow");
        tokio::spawn(recover(Arc::clone(lasting), error.to_string(), lasting.life()));
    }
}

/// Starts none: the database is stopped, all of it in a savepoint. What there was can be read.
pub async fn stay_stopped(lasting: &Arc<Lasting>, savepoint: &str) {
    tracing::warn!(savepoint, "the database is stopped; RECOVER lets it go on");
    lasting.dml.close().await;
    let stopped = Arc::clone(lasting);
    let shown = super::savepoint::blocking(move || show(&stopped)).await;
    if let Err(error) = shown.and_then(|shown| shown) {
        tracing::error!(%error, "no relation can be read before RECOVER");
    }
}

/// Replaces the dataflow by one that starts from the last checkpoint, now, whatever failed before.
pub async fn restart(lasting: &Arc<Lasting>, reason: &str) -> Result<(), JobError> {
    let _restarting = lasting.restart_lock.lock().await;
    lasting.forgive();
    let restarted = replace(lasting, reason).await;
    if let Err(error) = &restarted {
        tokio::spawn(recover(Arc::clone(lasting), error.to_string(), lasting.life()));
    }
    restarted
}

/// Ends the dataflow, waits for `between`, and starts one again, whatever came of that: unless the
/// database is stopped.
pub async fn restart_with<T>(
    lasting: &Arc<Lasting>,
    reason: &str,
    between: impl Future<Output = Result<T, JobError>>,
) -> Result<T, JobError> {
    let _restarting = lasting.restart_lock.lock().await;
    lasting.forgive();
    tracing::warn!(reason, "ending the dataflow");
    end(lasting).await?;
    let outcome = between.await;
    if lasting.catalog().stopped.is_some() {
        return outcome;
    }
    let begun = begin(lasting, reason).await;
    if let Err(error) = &begun {
        tokio::spawn(recover(Arc::clone(lasting), error.to_string(), lasting.life()));
    }
    outcome.and_then(|done| begun.map(|()| done))
}

/// Somebody changed something: a dataflow that was given up starts once more before this returns.
/// If it can't, that is no fault of the change.
pub async fn retry(lasting: &Arc<Lasting>) {
    if let Some(reason) = lasting.degraded()
        && let Err(error) = restart(lasting, &reason).await
    {
        tracing::error!(%error, "could not restart the dataflow");
    }
}

async fn replace(lasting: &Arc<Lasting>, reason: &str) -> Result<(), JobError> {
    tracing::warn!(reason, "restarting the dataflow from its last checkpoint");
    end(lasting).await?;
    begin(lasting, reason).await
}

async fn end(lasting: &Arc<Lasting>) -> Result<(), JobError> {
    if let Some(old) = lasting.set_incarnation(None) {
        old.end(false).await?;
    }
    lasting.sink_logs.close();
    Ok(())
}

/// The running dataflow failed. One that fails while it starts is its starter's business.
pub(super) async fn replace_failed(lasting: Arc<Lasting>, reason: String, life: u64) {
    let starting = lasting.restart_lock.lock().await;
    if lasting.life() != life || lasting.incarnation().is_err() {
        return;
    }
    if let Err(error) = end(&lasting).await {
        tracing::error!(%error, "could not end the dataflow");
    }
    drop(starting);
    recover(lasting, reason, life).await;
}

/// Restarts until it succeeds, or until [`super::restart_policy`] says that it is enough. `life`
/// tells which dataflow failed: one that was replaced meanwhile is no reason to restart.
async fn recover(lasting: Arc<Lasting>, mut reason: String, mut life: u64) {
    loop {
        let verdict = if is_disk_full(&reason) {
            // That is nobody's fault, and no number of restarts mends it.
            wait_for_space(&lasting, &reason, life).await;
            Verdict::Again(Duration::ZERO)
        } else {
            lasting.failed(clock::steady_us())
        };
        if let Verdict::Again(pause) = verdict {
            clock::sleep(pause).await;
        }
        let _restarting = lasting.restart_lock.lock().await;
        if lasting.life() != life {
            return;
        }
        if verdict == Verdict::GiveUp {
            tracing::error!(reason, "the dataflow failed too often: it is left degraded");
            if let Err(error) = end(&lasting).await {
                tracing::error!(%error, "could not end the dataflow");
            }
            lasting.degrade(reason);
            return;
        }
        match replace(&lasting, &reason).await {
            Ok(()) => return,
            Err(error) => {
                tracing::error!(%error, "could not restart the dataflow");
                reason = error.to_string();
                life = lasting.life();
            }
        }
    }
}

/// How the system says it, and RocksDB after it.
fn is_disk_full(reason: &str) -> bool {
    reason.contains("No space left on device") || reason.contains("Disk quota exceeded")
}

/// Returns when there is space, or when somebody has replaced the dataflow meanwhile.
async fn wait_for_space(lasting: &Arc<Lasting>, reason: &str, life: u64) {
    tracing::error!(reason, "the disk is full: the dataflow waits for space");
    lasting.set_disk_full(Some(reason.to_owned()));
    loop {
        clock::sleep(SPACE_PAUSE).await;
        let free = lasting.data_dir.free_bytes().unwrap_or(0);
        if free >= SPACE_BYTES || lasting.life() != life {
            lasting.set_disk_full(None);
            return;
        }
    }
}

/// Starts a dataflow, and notes how that went.
async fn begin(lasting: &Arc<Lasting>, reason: &str) -> Result<(), JobError> {
    let mut fact =
        RecoveryFact { started_at_us: clock::now_us(), reason: reason.to_owned(), ..RecoveryFact::default() };
    let started = Instant::now();
    let begun = begin_with(lasting, &mut fact).await;
    fact.total_us = us(started.elapsed());
    fact.error = begun.as_ref().err().map(ToString::to_string);
    if begun.is_ok() {
        tracing::info!(
            epoch = fact.epoch,
            elapsed_ms = fact.total_us / 1000,
            choose_ms = fact.choose_us / 1000,
            restore_ms = fact.restore_us / 1000,
            build_ms = fact.build_us / 1000,
            first_barrier_ms = fact.first_barrier_us / 1000,
            replay_ms = fact.replay_us / 1000,
            "dataflow is running"
        );
    }
    lasting.shown.history().recovered(fact);
    begun
}

fn us(duration: Duration) -> u64 {
    duration.as_micros() as u64
}

async fn begin_with(lasting: &Arc<Lasting>, fact: &mut RecoveryFact) -> Result<(), JobError> {
    let of_thread = Arc::clone(lasting);
    let runtime = tokio::runtime::Handle::current();
    let prepared = work::blocking(move || {
        let _entered = runtime.enter();
        // The store's own threads are started here.
        ThreadKind::Stream.apply();
        let prepared = prepare(&of_thread);
        ThreadKind::Client.apply();
        prepared
    })
    .await
    .map_err(|e| JobError::internal(format!("could not start the dataflow: {e}")))??;
    let Prepared { incarnation, first, filling, restored, steps } = prepared;
    (fact.epoch, fact.choose_us, fact.restore_us, fact.build_us) =
        (restored.0, us(steps.choose), us(steps.restore), us(steps.build));
    let waiting = Instant::now();
    let mut visible = first.await.unwrap_or_else(|_| Err("the first barrier was lost".to_owned()));
    fact.first_barrier_us = us(waiting.elapsed());
    if visible.is_ok() {
        let waiting = Instant::now();
        // Acknowledged DML that the checkpoint lacks is replayed before anything is read.
        visible = incarnation.running.coordinator().ask(Message::Tick).await;
        fact.replay_us = us(waiting.elapsed());
    }
    if let Err(reason) = visible {
        incarnation.end(false).await?;
        return Err(JobError::interrupted(&reason));
    }
    let delivers = |o: &&Arc<Object>| matches!(o.state, ObjectState::Created | ObjectState::Paused);
    for object in lasting.catalog().objects().filter(delivers) {
        incarnation.committers.go_on(object, restored);
    }
    for object in lasting.catalog().objects().filter(|o| o.state == ObjectState::Filling) {
        // What the checkpoint has, or has nothing to fill from, lacks only the record of it.
        if !filling.contains(&object.id) {
            tokio::spawn(finished(Arc::clone(lasting), Arc::clone(&incarnation), object.id));
        }
    }
    for object in filling {
        tokio::spawn(refill(Arc::clone(lasting), Arc::clone(&incarnation), object));
    }
    tokio::spawn(memory::keep_budget(Arc::downgrade(&incarnation), Budget::new(lasting.config.memory_limit)));
    lasting.set_incarnation(Some(Arc::clone(&incarnation)));
    lasting.remove_old_lives();
    settle(lasting, &incarnation).await?;
    tokio::spawn(super::rescale::settle(Arc::clone(lasting)));
    Ok(())
}

/// Catches up with what was dropped, or became complete, while the dataflow was put together: there was
/// none then that could be told.
async fn settle(lasting: &Arc<Lasting>, incarnation: &Incarnation) -> Result<(), JobError> {
    let (catalog, running) = (lasting.catalog(), incarnation.running.job_ids());
    let dropped: Vec<ObjectId> = running.iter().copied().filter(|id| catalog.by_id(*id).is_none()).collect();
    if !dropped.is_empty() {
        super::manager::end_in(incarnation, &dropped).await?;
    }
    // A sink that was dropped while no dataflow ran had no committer that could.
    if let Err(error) = lasting.leftovers.clean_all(&catalog, &running) {
        tracing::warn!(%error, "could not read the sinks' directory");
    }
    let mut due = catalog.objects().filter(|o| o.has_job() && o.state == ObjectState::Created);
    if due.any(|o| !running.contains(&o.id)) {
        again(Arc::clone(lasting));
    }
    Ok(())
}

/// Starts over with what the catalog has now.
fn again(lasting: Arc<Lasting>) {
    tokio::spawn(async move {
        if let Err(error) = restart(&lasting, "an object was created while the dataflow started").await {
            tracing::error!(%error, "could not restart the dataflow");
        }
    });
}

/// A job that the restored checkpoint lacks fills again, in the background.
async fn refill(lasting: Arc<Lasting>, incarnation: Arc<Incarnation>, object: ObjectId) {
    if incarnation.wait_filled(&lasting, object).await.is_err() {
        return;
    }
    incarnation.running.coordinator().send(Message::Filled(object));
    finished(lasting, incarnation, object).await;
}

/// An object of a CREATE in the background is filled, or filled again. Where that can't be made durable, it
/// is tried again as long as this dataflow runs: the next one fills it anew.
async fn finished(lasting: Arc<Lasting>, incarnation: Arc<Incarnation>, object: ObjectId) {
    while let Err(error) = super::create::finish(&lasting, &incarnation, object).await {
        tracing::warn!(%object, %error, "an object that has filled again is not ready");
        clock::sleep(FINISH_PAUSE).await;
        if !lasting.is_running(&incarnation) {
            return;
        }
    }
}
