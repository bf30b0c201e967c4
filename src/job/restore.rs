//! A dataflow put together from a checkpoint: store, threads, jobs planned anew, first barrier.
//!
//! ```text
//!   newest intact checkpoint ─> live store ─> jobs planned anew, restored ─> first barrier
//!                                             jobs that it lacks are filled again
//! ```
//! What the catalog no longer names is dropped on the way; an operator whose shape changed since is an
//! error that names it.

use super::committers::Committers;
use super::edges::fills;
use super::incarnation::{Incarnation, Lasting};
use super::manager::JobError;
use super::restart::replace_failed;
use super::running::{Ground, JobSpec, Parallelism, RestoredState, Running};
use super::storing::{ManifestFacts, Store, Storing};
use super::tail::Tails;
use crate::checkpoint::ahead::Ahead;
use crate::checkpoint::channel;
use crate::checkpoint::coordinator::{Coordinator, CoordinatorHandle, Overtaker, Start, Visible};
use crate::checkpoint::manifest::Manifest;
use crate::checkpoint::participant::{ChannelState, CommitHandle};
use crate::clock;
use crate::dataflow::chain::StateSource;
use crate::dataflow::exchange::channel_bytes;
use crate::state::StateError;
use crate::state::apply::ApplyHandle;
use crate::state::budget::Budget;
use crate::state::store::{StateRead, StateStore};
use crate::state::table::TableLayout;
use crate::state::writes::RunPool;
use crate::stream::Epoch;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use weir_catalog::{CatalogChange, CatalogSnapshot, JobId, Object, ObjectId, ObjectState, SqlState, TableId};
use weir_sql::plan::StreamPlan;

/// What a start waits for.
pub struct Prepared {
    /// The dataflow; its first barrier is under way.
    pub incarnation: Arc<Incarnation>,
    /// Answers when the first epoch is visible.
    pub first: tokio::sync::oneshot::Receiver<Result<Epoch, String>>,
    /// Jobs that the checkpoint lacks.
    pub filling: Vec<ObjectId>,
    /// The restored epoch.
    pub restored: Epoch,
    /// How long it took so far.
    pub steps: Steps,
}

/// Time in the steps of a restore.
#[derive(Clone, Copy, Debug, Default)]
pub struct Steps {
    /// Choosing the newest intact checkpoint, downloading what the disk lacks of it.
    pub choose: Duration,
    /// Opening the store with it.
    pub restore: Duration,
    /// Planning and building the jobs.
    pub build: Duration,
}

/// Puts a dataflow together that starts from the newest intact checkpoint.
pub fn prepare(lasting: &Arc<Lasting>) -> Result<Prepared, JobError> {
    let mut steps = Steps::default();
    let mut step = Instant::now();
    let mut took = || std::mem::replace(&mut step, Instant::now()).elapsed();
    let manifest = newest_checkpoint(lasting)?;
    steps.choose = took();
    let store = open_store(lasting, manifest.as_ref())?;
    steps.restore = took();
    let restored = manifest.as_ref().map_or(Epoch::ZERO, |m| m.epoch);
    let dml_position = manifest.as_ref().map_or(0, |m| m.dml_position);
    // A checkpoint older than the last one may be all that is intact: it replays more.
    lasting.dml.rewind(dml_position).map_err(|e| JobError::io("read the DML log", &e))?;
    let apply = start_apply(lasting, store, restored, dml_position)
        .map_err(|e| JobError::io("start the state store", &e))?;
    let published = apply.published();
    let state = newest(&apply);
    let (sender, messages) = mpsc::channel();
    let coordinator = CoordinatorHandle::new(sender);
    let handles = take_up_promises(lasting, manifest.as_ref())?;
    // What a lost disk would take back is not to be in any target: the next checkpoint carries it.
    let wait = manifest.as_ref().is_some_and(|manifest| !lasting.storage.lock().is_kept(manifest));
    let committers = Arc::new(committers(lasting, &coordinator, (restored, handles.clone()), wait));
    let ground = Ground {
        workers: lasting.config.parallelism,
        parallelism: parallelism(lasting),
        channel_bytes: channel_bytes(lasting.config.memory_limit),
        state,
        coordinator: coordinator.clone(),
        shown: lasting.shown.clone(),
        moved: Arc::default(),
        tails: tails(lasting),
        layouts: layouts(lasting),
    };
    let moved = ground.moved.clone();
    let running = Running::start(ground).map_err(|e| JobError::io("start the workers", &e))?;
    running.room().limit(Budget::new(lasting.config.memory_limit).dirty().1, false);
    let fingerprints: super::storing::Fingerprints = Arc::default();
    let storing = Arc::new(Storing::new(running.tables_of()));
    let facts = manifest_facts(lasting, &fingerprints);
    let store = Store::start(apply, coordinator.clone(), storing.clone(), committers.clone(), facts)
        .map_err(|e| JobError::io("start the checkpoint writer", &e))?;
    let overtake = running.overtaker();
    let start = coordinator_start(lasting, manifest.as_ref(), handles, store, (moved, overtake))?;
    let thread =
        Coordinator::spawn(start, messages).map_err(|e| JobError::io("start the coordinator", &e))?;
    let incarnation = Arc::new(Incarnation {
        running,
        storing,
        committers,
        fingerprints,
        coordinator_thread: Mutex::new(Some(thread)),
    });
    let specs = specs(lasting, &incarnation, manifest.as_ref())?;
    let filling = refilling(lasting, &specs)?;
    let from = RestoredState {
        channels: channels_of(manifest.as_ref(), &*published.state)?,
        state: published.state,
        offsets: manifest.map_or_else(HashMap::new, |m| m.offsets.into_iter().collect()),
        epoch: restored,
        dml_position,
    };
    crate::failpoint::hit("restart.before_jobs").map_err(|e| JobError::internal(e.to_string()))?;
    let first = incarnation.running.change(specs, &[], Some(&from))?;
    steps.build = took();
    Ok(Prepared { incarnation, first, filling, restored, steps })
}

/// Shows what the newest checkpoint holds, where no dataflow is to run: the database is stopped.
pub fn show(lasting: &Lasting) -> Result<(), JobError> {
    let Some(manifest) = newest_checkpoint(lasting)? else { return Ok(()) };
    let logged = lasting.dml.position();
    if manifest.dml_position != logged {
        let at = manifest.dml_position;
        let message = format!("the newest checkpoint holds DML position {at}, of {logged}");
        return Err(JobError::new(SqlState::DATA_CORRUPTED, message));
    }
    let state = open_store(lasting, Some(&manifest))?.snapshot();
    let (epoch, dml_position) = (manifest.epoch, manifest.dml_position);
    lasting.shown.visible.send_replace(Visible { epoch, dml_position, state });
    Ok(())
}

/// The sinks' committers, which go on from `promised`.
fn committers(
    lasting: &Arc<Lasting>,
    coordinator: &CoordinatorHandle,
    promised: (Epoch, Vec<CommitHandle>),
    wait: bool,
) -> Committers {
    Committers::new(
        (lasting.data_dir.database().to_string(), lasting.data_dir.generation()),
        lasting.epochs.lock().last,
        (lasting.sink_logs.clone(), lasting.leftovers.clone()),
        coordinator.clone(),
        promised,
        wait,
        super::pause::LogLimit::of(lasting),
    )
}

/// Opens the sinks' logs; the promises that the checkpoint released. What it promised and did not release
/// is left to the sinks' writers.
fn take_up_promises(lasting: &Lasting, manifest: Option<&Manifest>) -> Result<Vec<CommitHandle>, JobError> {
    let handles = manifest.map_or_else(Vec::new, |m| kept_handles(m, &lasting.catalog()));
    open_sink_logs(lasting, &handles, manifest)?;
    let hidden = manifest.filter(|m| m.unaligned).map(|m| m.epoch);
    let (carried, released) = handles.into_iter().partition(|handle| Some(handle.epoch) == hidden);
    lasting.sink_logs.carry(carried);
    Ok(released)
}

/// The rows that lay before the checkpoint's barrier, by job.
fn channels_of(
    manifest: Option<&Manifest>,
    state: &dyn StateRead,
) -> Result<HashMap<JobId, Vec<ChannelState>>, JobError> {
    let mut channels: HashMap<JobId, Vec<ChannelState>> = HashMap::new();
    if let Some(manifest) = manifest.filter(|m| m.unaligned) {
        for (job, found) in channel::read(state, manifest.epoch).map_err(JobError::from_state)? {
            channels.entry(job).or_default().push(found);
        }
    }
    Ok(channels)
}

/// The newest published snapshot.
fn newest(apply: &ApplyHandle) -> StateSource {
    let watch = apply.watch();
    Arc::new(move || {
        let published = watch.borrow();
        (published.epoch, Arc::clone(&published.state))
    })
}

/// The newest intact checkpoint, once what is left to do of a RESTORE is done.
fn newest_checkpoint(lasting: &Lasting) -> Result<Option<Manifest>, JobError> {
    super::replace::settle(lasting).map_err(|e| JobError::io("put the savepoint in place", &e))?;
    let mut newest = lasting.storage.lock().newest_intact().map_err(JobError::from_checkpoint)?;
    if let Some(manifest) = &mut newest {
        super::opening::leave_out_what_lacks_inputs(&mut manifest.jobs, &lasting.catalog());
    }
    Ok(newest)
}

fn start_apply(
    lasting: &Lasting,
    store: Box<dyn StateStore>,
    epoch: Epoch,
    dml_position: u64,
) -> std::io::Result<ApplyHandle> {
    ApplyHandle::start(store, epoch, dml_position, RunPool::within(lasting.config.memory_limit))
}

/// Opens the sinks' logs, and removes from them what nobody promised. No target may hold more than what was
/// restored, nor what it must not have held before: whoever opens it looks, also after later checkpoints. Of
/// what was known before RESTORE only what the savepoint has counts.
fn open_sink_logs(
    lasting: &Lasting,
    handles: &[CommitHandle],
    manifest: Option<&Manifest>,
) -> Result<(), JobError> {
    let io = |e: std::io::Error| JobError::io("open the sink log", &e);
    let began = lasting.epochs.lock().last;
    lasting.sink_logs.begin(began);
    for object in lasting.catalog().objects().filter(|o| o.has_job() && !o.is_stored()) {
        let of_sink: Vec<_> = handles.iter().filter(|h| h.sink == object.id).cloned().collect();
        let log = lasting.sink_logs.restore(object.id, &of_sink).map_err(io)?;
        // One that the checkpoint lacks is filled anew.
        let restored = manifest.filter(|m| has_sink(m, object)).map_or(Epoch::ZERO, |m| m.epoch);
        match manifest.and_then(|m| Some((m, m.savepoint?))) {
            Some((manifest, savepoint)) => {
                let before = manifest.ahead.iter().find(|(sink, _)| *sink == object.id);
                let ahead = Ahead::of(savepoint.min(restored));
                let ahead = before.map_or(ahead.clone(), |(_, before)| ahead.or(before));
                log.unopened().must_only_not_hold(ahead, began);
            }
            None => log.unopened().must_not_hold(&Ahead::of(restored), began),
        }
    }
    Ok(())
}

/// Whether a checkpoint has what a sink needs to go on. One that was filling has not.
fn has_sink(manifest: &Manifest, sink: &Object) -> bool {
    sink.state == ObjectState::Paused || manifest.jobs.iter().any(|j| j.job == sink.id)
}

/// What the sinks of a checkpoint's jobs promised. One that was filling then fills anew, and promises
/// all of it again.
fn kept_handles(manifest: &Manifest, catalog: &CatalogSnapshot) -> Vec<CommitHandle> {
    let has = |handle: &&CommitHandle| catalog.by_id(handle.sink).is_some_and(|o| has_sink(manifest, o));
    manifest.handles.iter().filter(has).cloned().collect()
}

/// The live store: a fresh directory, linked from the checkpoint, without what is no longer named.
fn open_store(lasting: &Lasting, manifest: Option<&Manifest>) -> Result<Box<dyn StateStore>, JobError> {
    let dir = lasting.live_dir().map_err(|e| JobError::io("make the live directory", &e))?;
    let (backend, memory) = (lasting.backend(), lasting.backend_memory());
    let opened = match manifest {
        Some(manifest) => {
            let checkpoint = lasting.storage.lock().directory(manifest.epoch);
            backend.restore(&checkpoint, &dir, &memory)
        }
        None => backend.create(&dir, &memory),
    };
    let mut store = opened.map_err(JobError::from_state)?;
    let catalog = lasting.catalog();
    let kept = |object: ObjectId| {
        let restored = manifest.is_some_and(|m| m.jobs.iter().any(|j| j.job == object));
        object < ObjectId::FIRST_USER || (restored && catalog.by_id(object).is_some())
    };
    drop_leftovers(&mut *store, kept).map_err(JobError::from_state)?;
    Ok(store)
}

/// Drops the tables of objects that are not `kept`: what the catalog no longer names, and what a job
/// left that was still filling at the checkpoint and fills anew.
fn drop_leftovers(store: &mut dyn StateStore, kept: impl Fn(ObjectId) -> bool) -> Result<(), StateError> {
    let snapshot = store.snapshot();
    let mut from = Some(0u32);
    while let Some(least) = from {
        // One look finds the next table that has anything.
        let mut found = None;
        snapshot.scan(&least.to_be_bytes(), &[u8::MAX; 5], &mut |key, _| {
            found = key.first_chunk().map(|id| TableId(u32::from_be_bytes(*id)));
            std::ops::ControlFlow::Break(())
        })?;
        if let Some(table) = found.filter(|table| !kept(table.object())) {
            tracing::info!(?table, "dropping state that no job has");
            store.drop_table(table)?;
        }
        from = found.and_then(|table| table.0.checked_add(1));
    }
    Ok(())
}

fn layouts(lasting: &Arc<Lasting>) -> super::build::Lookup<Arc<TableLayout>> {
    let lasting = Arc::downgrade(lasting);
    Arc::new(move |id| {
        let lasting = lasting.upgrade().ok_or_else(|| JobError::internal("the server is stopping"))?;
        let catalog = lasting.catalog();
        let object = catalog.by_id(id).ok_or_else(|| JobError::internal(format!("object {id} is gone")))?;
        let layout = TableLayout::of_object(object, |relation| catalog.by_id(relation));
        layout.map(Arc::new).ok_or_else(|| JobError::internal(format!("object {id} has no rows")))
    })
}

fn tails(lasting: &Arc<Lasting>) -> Tails {
    let objects = Arc::downgrade(lasting);
    Tails {
        dml: lasting.dml.clone(),
        objects: Arc::new(move |id| objects.upgrade()?.catalog().by_id(id).cloned()),
        sink_logs: lasting.sink_logs.clone(),
    }
}

fn manifest_facts(lasting: &Arc<Lasting>, fingerprints: &super::storing::Fingerprints) -> ManifestFacts {
    let of_catalog = Arc::downgrade(lasting);
    let dml = lasting.dml.clone();
    let of_retain = Arc::downgrade(lasting);
    let empty = Arc::new(CatalogSnapshot::default());
    ManifestFacts {
        storage: lasting.storage.clone(),
        database: lasting.data_dir.database(),
        generation: lasting.data_dir.generation(),
        sink_logs: lasting.sink_logs.clone(),
        catalog: Arc::new(move || of_catalog.upgrade().map_or_else(|| empty.clone(), |l| l.catalog())),
        fingerprints: fingerprints.clone(),
        completed: Arc::new(move |contents| dml.forget(contents.dml_position)),
        retain: Arc::new(move || {
            let Some(lasting) = of_retain.upgrade() else { return };
            if let Err(error) = lasting.retain_checkpoints() {
                tracing::warn!(%error, "could not clean up old checkpoints");
            }
        }),
    }
}

fn coordinator_start(
    lasting: &Arc<Lasting>,
    manifest: Option<&Manifest>,
    handles: Vec<CommitHandle>,
    store: Store,
    (moved, overtake): (Arc<std::sync::atomic::AtomicBool>, Overtaker),
) -> Result<Start, JobError> {
    let epochs = lasting.epochs.clone();
    let last_epoch = epochs.lock().last;
    let dml = lasting.dml.clone();
    let of_restart = Arc::downgrade(lasting);
    let runtime = tokio::runtime::Handle::current();
    let life = lasting.life();
    Ok(Start {
        settings: lasting.decide_settings(),
        last_epoch,
        restored_dml_position: manifest.map_or(0, |m| m.dml_position),
        shown_from_dml_position: dml.position(),
        now_us: manifest.map_or(0, |m| m.now_us),
        handles,
        unaligned: manifest.is_some_and(|m| m.unaligned),
        overtake,
        store: Box::new(store),
        shown: lasting.shown.clone(),
        moved,
        dml_position: Box::new(move || dml.position()),
        reserve: Box::new(move |epoch| epochs.lock().reserve(epoch)),
        clock: Box::new(clock::now_us),
        restart: Box::new(move |reason| {
            if let Some(lasting) = of_restart.upgrade() {
                runtime.spawn(replace_failed(lasting, reason, life));
            }
        }),
    })
}

/// The jobs of all acknowledged objects, inputs first, planned anew.
fn specs(
    lasting: &Lasting,
    incarnation: &Incarnation,
    manifest: Option<&Manifest>,
) -> Result<Vec<JobSpec>, JobError> {
    let catalog = lasting.catalog();
    let mut specs = Vec::new();
    let runs = |o: &&Arc<Object>| matches!(o.state, ObjectState::Created | ObjectState::Filling);
    for object in catalog.objects().filter(|o| o.has_job()).filter(runs) {
        let plan = plan(lasting, &catalog, object)?;
        let stored = manifest.and_then(|m| m.jobs.iter().find(|j| j.job == object.id));
        if let Some(plan) = &plan {
            incarnation.note_fingerprints(object.id, plan);
        }
        if let (Some(stored), Some(now)) = (stored, incarnation.fingerprints.lock().get(&object.id)) {
            require_same(object, &stored.fingerprints, now)?;
        }
        specs.push(JobSpec { object: Arc::clone(object), plan, restored: stored.is_some() });
    }
    Ok(specs)
}

/// The jobs that the checkpoint lacks, and that have a past to fill from. Nobody reads them before they are
/// filled, also if they were created once: their rows, and those of what reads them, are as good as none.
fn refilling(lasting: &Lasting, specs: &[JobSpec]) -> Result<Vec<ObjectId>, JobError> {
    let filling = |spec: &&JobSpec| !spec.restored && fills(spec.plan.as_ref());
    let lacking: Vec<&JobSpec> = specs.iter().filter(filling).collect();
    let created = lacking.iter().filter(|spec| spec.object.state == ObjectState::Created);
    let refill: Vec<CatalogChange> = created.map(|spec| CatalogChange::Refill(spec.object.id)).collect();
    if !refill.is_empty() {
        tracing::warn!(
            jobs = refill.len(),
            "the checkpoint lacks jobs that were created after it: they are filled anew"
        );
        lasting.log_changes(&refill)?;
    }
    Ok(lacking.iter().map(|spec| spec.object.id).collect())
}

/// How many actors the fragments of an object's job are to have, as the catalog has it now.
fn parallelism(lasting: &Arc<Lasting>) -> Parallelism {
    let lasting = Arc::downgrade(lasting);
    Arc::new(move |id| {
        let lasting = lasting.upgrade();
        lasting.map_or(1, |lasting| super::rescale::actors_of(&lasting.config, &lasting.catalog(), id))
    })
}

/// Whether operators `now` are those that state was `stored` by. Which numbers they have does not count:
/// where a relation's column got another name, its readers have a projection more, and their state in
/// the same order.
pub(super) fn fits(stored: &[(u32, String)], now: &[(u32, String)]) -> bool {
    stored.iter().map(|(_, hash)| hash).eq(now.iter().map(|(_, hash)| hash))
}

/// The plan of an object's job; none for a table.
pub fn plan(
    lasting: &Lasting,
    catalog: &Arc<CatalogSnapshot>,
    object: &Object,
) -> Result<Option<StreamPlan>, JobError> {
    if object.kind() == weir_catalog::ObjectKind::Table {
        return Ok(None);
    }
    let replan = || {
        let context = (lasting.binding)(Arc::clone(catalog));
        weir_sql::binder::replan(object, &context).map_err(|error| {
            let mut error = JobError::from_client(error);
            error.message =
                format!("could not plan {} \"{}\": {}", object.kind(), object.name, error.message);
            error
        })
    };
    #[cfg(test)]
    if crate::work::testing::is_simulated() {
        return super::simulation::oracle::planned_once(object, catalog, replan).map(Some);
    }
    replan().map(Some)
}

/// An error where the operators that state was `stored` by are not those of a plan `now`.
pub fn require_same(
    object: &Object,
    stored: &[(u32, String)],
    now: &[(u32, String)],
) -> Result<(), JobError> {
    if fits(stored, now) { Ok(()) } else { Err(mismatch(object, "checkpoint", stored, now)) }
}

/// Never a misread byte: an operator whose shape changed is named.
pub(super) fn mismatch(
    object: &Object,
    of: &str,
    stored: &[(u32, String)],
    now: &[(u32, String)],
) -> JobError {
    let differs = stored.iter().zip(now).find(|(a, b)| a != b);
    let which = differs.map_or_else(
        || "number of operators".to_owned(),
        |(a, b)| format!("operator {}: the {of} has {}, the plan {}", a.0, a.1, b.1),
    );
    JobError::internal(format!(
        "the state of {} \"{}\" in the {of} does not fit its plan ({which})",
        object.kind(),
        object.name
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::memory::MemoryStore;
    use crate::state::store::{WriteOp, WriteRun};

    #[test]
    fn state_of_jobs_that_are_not_restored_goes() {
        let mut store = MemoryStore::new();
        let (gone, stays) = (ObjectId(20_000), ObjectId(20_001));
        for table in [ObjectId(1).table(), gone.table(), gone.internal_table(255), stays.table()] {
            let mut run = WriteRun::new(table);
            run.write(WriteOp::Put, &[0, 1], b"value");
            store.apply(&run);
        }
        let before = store.clone();
        drop_leftovers(&mut store, |object| object != gone).expect("memory does not fail");
        assert_eq!((before.len(), store.len()), (4, 2));
    }
}
