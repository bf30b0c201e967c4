//! One life of the database's dataflow, from a checkpoint to its end; and what lasts beyond it.
//!
//! ```text
//!   Lasting       data directory lock, generation, catalog + log, DML log, visible epoch, storage
//!     └─ Incarnation   live store, apply thread, coordinator, workers, committers      (replaceable)
//! ```

use super::arrival::Opened;
use super::committers::Committers;
use super::leftovers::{CatalogNow, Leftovers};
use super::manager::{Binding, JobError};
use super::opening::{Checkpoints, open_checkpoints, require_backend, take_over};
use super::restart_policy::{Failures, Verdict};
use super::running::Running;
use super::storing::{Fingerprints, Storing};
use super::tail::SinkLogs;
use crate::checkpoint::coordinator::{Message, Shown, Visible};
use crate::checkpoint::decide::Settings;
use crate::checkpoint::storage::{self, CheckpointStorage};
use crate::clock;
use crate::config::{Config, DatabaseConfig};
use crate::dml::log::DmlLog;
use crate::state::backend::{Backend, BackendMemory};
use crate::state::catalog_log::FileCatalogLog;
use crate::state::data_dir::{DataDir, EpochBlocks};
use crate::state::rocks::RocksMemory;
use crate::state::store::StateStore;
use crate::stream::Epoch;
use crate::work::{self, Thread};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use weir_catalog::log::CatalogLog;
use weir_catalog::{CatalogChange, CatalogSnapshot, JobId, Object, ObjectId, ObjectState, SqlState};
use weir_sql::plan::StreamPlan;

/// Where live stores are, below the data directory.
const LIVE: &str = "live";

/// Where stores are that a savepoint is read from, or made for, below the data directory.
const SCRATCH: &str = "scratch";

/// How often it is asked whether the data directory is still this process's, where nothing else asks.
const OWNERSHIP_ASKED: std::time::Duration = std::time::Duration::from_secs(1);

/// What lasts beyond an incarnation.
pub struct Lasting {
    /// The server's settings.
    pub config: Arc<Config>,
    /// Binds stored queries.
    pub binding: Binding,
    /// The locked data directory: identity, generation.
    pub data_dir: Arc<DataDir>,
    /// Numbers of epochs, never given twice.
    pub epochs: Arc<Mutex<Epochs>>,
    /// Checkpoints.
    pub storage: Arc<Mutex<CheckpointStorage>>,
    /// The DML log.
    pub dml: Arc<DmlLog>,
    /// Makes DML run one at a time.
    pub dml_lock: tokio::sync::Mutex<()>,
    /// Makes changes of the catalog run one at a time.
    pub ddl_lock: tokio::sync::Mutex<()>,
    /// Makes starts and ends of the dataflow happen one at a time.
    pub restart_lock: tokio::sync::Mutex<()>,
    /// What is shown to readers, across incarnations.
    pub shown: Arc<Shown>,
    /// RocksDB's share of memory.
    pub rocks: RocksMemory,
    /// The logs of sinks.
    pub sink_logs: Arc<SinkLogs>,
    /// Cleans up after dropped sinks.
    pub leftovers: Arc<Leftovers>,
    /// The savepoint that an empty data directory is to be filled with.
    pub arrives: Option<String>,
    /// What is to be said of where the database came back from.
    pub came_back: Option<String>,

    catalog: RwLock<Arc<CatalogSnapshot>>,
    log: Mutex<FileCatalogLog>,
    incarnation: RwLock<Option<Arc<Incarnation>>>,
    failures: Mutex<Failures>,
    /// Why the dataflow was given up, if it was.
    degraded: RwLock<Option<String>>,
    /// What could not be written, while the dataflow waits for space on the disk.
    disk_full: RwLock<Option<String>>,
    /// How many incarnations there were: names their live directories.
    lives: std::sync::atomic::AtomicU64,
    scratches: std::sync::atomic::AtomicU64,
}

/// Numbers of epochs, never given twice: neither by this process nor by one before it.
pub struct Epochs {
    blocks: EpochBlocks,
    /// The newest that was given, or that a dead process may have given.
    pub last: Epoch,
}

impl Epochs {
    /// Takes `epoch`.
    pub fn reserve(&mut self, epoch: Epoch) -> std::io::Result<()> {
        assert!(epoch > self.last, "epoch {epoch} was given before");
        self.blocks.reserve(epoch)?;
        self.last = epoch;
        Ok(())
    }
}

impl Lasting {
    /// Opens everything in the data directory that `config` names, or makes it.
    pub fn open(config: Arc<Config>, binding: Binding) -> Result<Arc<Lasting>, JobError> {
        let io = |what: &'static str| move |e: std::io::Error| JobError::io(what, &e);
        super::places::check_config(&config)?;
        let Opened { mut data_dir, savepoint, came_back } = super::arrival::data_dir(&config)?;
        // Live directories of dead processes are scratch.
        let remove = |scratch: &&str| drop(std::fs::remove_dir_all(data_dir.root().join(scratch)));
        [LIVE, SCRATCH].iter().for_each(remove);
        let of_catalog = data_dir.subdirectory("catalog").map_err(io("make a directory"))?;
        let (log, catalog) = FileCatalogLog::open(&of_catalog).map_err(io("open the catalog"))?;
        let log = log.guarded(data_dir.ownership());
        // What arrives brings its own settings.
        let (settings, arrives) = (config.of_database(&catalog.settings).storage, savepoint.is_some());
        if config.take_over() && !arrives {
            take_over(&mut data_dir, &settings).map_err(io("take over checkpoint.storage"))?;
        }
        let sub = |name: &str| data_dir.subdirectory(name).map_err(io("make a directory"));
        let Checkpoints { storage, newest, history, dml_position: least } =
            open_checkpoints(&data_dir, &catalog, &settings, arrives)?;
        require_backend(&config, newest.as_ref())?;
        let position = newest.as_ref().map_or(0, |m| m.dml_position);
        let dml = DmlLog::open(&sub("dml")?, position, least, Some(Arc::clone(data_dir.ownership())))
            .map_err(io("open the DML log"))?;
        let blocks = data_dir.epoch_blocks().map_err(io("reserve epochs"))?;
        let known = storage.list().next().map_or(Epoch::ZERO, |m| m.epoch);
        let last = Epoch(blocks.first_free(known).0.saturating_sub(1));
        let sink_logs = Arc::new(SinkLogs::new(sub("sinks")?, data_dir.generation()));
        let data_dir = Arc::new(data_dir);
        let leftovers = Arc::new(Leftovers::new(Arc::clone(&data_dir), Arc::clone(&sink_logs)));
        let cache = config.memory_limit / 8;
        let nothing: Arc<dyn crate::state::store::StateRead> =
            crate::state::memory::MemoryStore::default().snapshot();
        let visible = Visible { epoch: Epoch::ZERO, dml_position: 0, state: nothing };
        let lasting = Arc::new(Lasting {
            rocks: RocksMemory::new(cache, cache / 2),
            epochs: Arc::new(Mutex::new(Epochs { blocks, last })),
            storage: Arc::new(Mutex::new(storage)),
            dml,
            dml_lock: tokio::sync::Mutex::default(),
            ddl_lock: tokio::sync::Mutex::default(),
            restart_lock: tokio::sync::Mutex::default(),
            shown: Arc::new(Shown::new(visible, history)),
            sink_logs,
            leftovers,
            arrives: savepoint,
            came_back,
            catalog: RwLock::new(Arc::new(catalog)),
            log: Mutex::new(log),
            incarnation: RwLock::new(None),
            failures: Mutex::default(),
            degraded: RwLock::default(),
            disk_full: RwLock::default(),
            lives: std::sync::atomic::AtomicU64::new(0),
            scratches: std::sync::atomic::AtomicU64::new(0),
            data_dir,
            config,
            binding,
        });
        lasting.remove_unfinished()?;
        Ok(lasting)
    }

    /// A directory for the live store of the next incarnation.
    pub fn live_dir(&self) -> std::io::Result<std::path::PathBuf> {
        let life = self.lives.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let dir = self.data_dir.subdirectory(LIVE)?.join(life.to_string());
        std::fs::create_dir_all(&dir)?;
        Ok(dir)
    }

    /// An empty directory for other stores than the live one; whoever asks for it removes it.
    pub fn scratch_dir(&self, name: &str) -> std::io::Result<std::path::PathBuf> {
        let number = self.scratches.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let dir = self.data_dir.subdirectory(SCRATCH)?.join(format!("{name}-{number}"));
        std::fs::create_dir_all(&dir)?;
        Ok(dir)
    }

    /// Returns once another process may use the data directory: this one has to end.
    pub async fn lost(&self) -> std::io::Error {
        let ownership = Arc::clone(self.data_dir.ownership());
        loop {
            tokio::select! {
                error = ownership.lost() => return error,
                // What is idle promises nothing, and asks nothing.
                () = tokio::time::sleep(OWNERSHIP_ASKED) => drop(ownership.check()),
            }
        }
    }

    /// What holds the state.
    pub fn backend(&self) -> Backend {
        Backend::of_setting(self.config.state_backend())
    }

    /// What it may use.
    pub fn backend_memory(&self) -> BackendMemory {
        BackendMemory { rocks: self.rocks.clone(), memory_bytes: self.config.memory_limit / 10 * 7 }
    }

    /// The catalog now.
    pub fn catalog(&self) -> Arc<CatalogSnapshot> {
        Arc::clone(&self.catalog.read())
    }

    /// Searches targets of sinks, those that were not yet, for what unknown sinks left prepared there.
    pub fn search_targets(self: &Arc<Self>) {
        let lasting = Arc::downgrade(self);
        let catalog: CatalogNow = Arc::new(move || lasting.upgrade().map(|lasting| lasting.catalog()));
        self.leftovers.search(&catalog);
    }

    /// The catalog as it would be after `changes`.
    pub fn changed(&self, changes: &[CatalogChange]) -> Result<CatalogSnapshot, JobError> {
        let now = (*self.catalog()).clone();
        changes.iter().try_fold(now, |next, change| next.apply(change)).map_err(JobError::from_client)
    }

    /// Makes `changes` durable, together, and then theirs the catalog. The caller holds the DDL
    /// lock unless the changes concern only an object that it is creating.
    pub fn log_changes(&self, changes: &[CatalogChange]) -> Result<(), JobError> {
        let mut log = self.log.lock();
        let next = self.changed(changes)?;
        log.append(changes, &next).map_err(|e| JobError::io("write the catalog", &e))?;
        *self.catalog.write() = Arc::new(next);
        // A storage elsewhere gets it with the next checkpoint, also where nothing else moves.
        if self.settings().storage.url.is_some()
            && let Ok(incarnation) = self.incarnation()
        {
            incarnation.running.coordinator().send(Message::CatalogChanged);
        }
        Ok(())
    }

    /// Whether this is the dataflow that runs.
    pub fn is_running(&self, incarnation: &Arc<Incarnation>) -> bool {
        self.incarnation().is_ok_and(|now| Arc::ptr_eq(&now, incarnation))
    }

    /// The dataflow that runs.
    pub fn incarnation(&self) -> Result<Arc<Incarnation>, JobError> {
        let running = self.incarnation.read().clone();
        running.ok_or_else(|| match (&self.catalog().stopped, self.degraded(), self.disk_full()) {
            (Some(savepoint), ..) => JobError::stopped(savepoint),
            (None, Some(reason), _) => JobError::degraded(&reason),
            (None, None, Some(reason)) => JobError::disk_full(&reason),
            (None, None, None) => JobError::interrupted("it is restarting"),
        })
    }

    /// What could not be written, while the dataflow waits for space on the disk.
    pub fn disk_full(&self) -> Option<String> {
        self.disk_full.read().clone()
    }

    /// The dataflow waits for space, or no more.
    pub fn set_disk_full(&self, reason: Option<String>) {
        *self.disk_full.write() = reason;
    }

    /// Removes the directories of live stores before the newest. Who still reads one has its files open.
    pub fn remove_old_lives(&self) {
        let newest = self.life().saturating_sub(1).to_string();
        let Ok(lives) = std::fs::read_dir(self.data_dir.root().join(LIVE)) else { return };
        for life in lives.flatten().filter(|life| life.file_name() != newest.as_str()) {
            if let Err(error) = std::fs::remove_dir_all(life.path()) {
                tracing::warn!(path = %life.path().display(), %error, "could not remove an old live store");
            }
        }
    }

    /// Which incarnation is, or was, the newest.
    pub fn life(&self) -> u64 {
        self.lives.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Counts a failure of the dataflow and decides what follows.
    pub fn failed(&self, now_us: i64) -> Verdict {
        self.failures.lock().failed(&self.settings().restart, now_us)
    }

    /// Why the dataflow was given up, if it was.
    pub fn degraded(&self) -> Option<String> {
        self.degraded.read().clone()
    }

    /// Gives the dataflow up until [`Lasting::forgive`].
    pub fn degrade(&self, reason: String) {
        *self.degraded.write() = Some(reason);
    }

    /// What failed before no longer counts.
    pub fn forgive(&self) {
        self.failures.lock().forgive();
        *self.degraded.write() = None;
    }

    /// Replaces the dataflow that runs.
    pub fn set_incarnation(&self, incarnation: Option<Arc<Incarnation>>) -> Option<Arc<Incarnation>> {
        std::mem::replace(&mut *self.incarnation.write(), incarnation)
    }

    /// The settings of the database.
    pub fn settings(&self) -> DatabaseConfig {
        self.config.of_database(&self.catalog().settings)
    }

    /// The coordinator's part of them.
    pub fn decide_settings(&self) -> Settings {
        let config = self.settings();
        let us = |duration: std::time::Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        let checkpoint_interval_us = us(config.checkpoint_interval);
        // Spread by what tells databases apart.
        let place = i128::from(self.data_dir.database().as_fields().0);
        let part = (place * i128::from(checkpoint_interval_us)) >> 32;
        Settings {
            barrier_interval_us: us(config.barrier_interval),
            checkpoint_interval_us,
            phase_us: config.checkpoint_phase.map_or(part as i64, us),
            max_concurrent: config.checkpoint_max_concurrent,
            checkpoint_timeout_us: us(config.checkpoint_timeout),
            min_pause_us: us(config.checkpoint_min_pause),
            aligned_timeout_us: us(config.checkpoint_aligned_timeout),
            ticks_max: 2,
            tolerable_failures: u32::try_from(config.checkpoint_tolerable_failures).unwrap_or(u32::MAX),
        }
    }

    /// Tells the coordinator, and the storage, of changed settings.
    pub fn settings_changed(&self) {
        self.storage.lock().set(&self.settings().storage);
        if let Ok(incarnation) = self.incarnation() {
            let settings = self.decide_settings();
            incarnation.running.coordinator().send(Message::Settings(settings));
        }
    }

    /// Removes checkpoints beyond those to keep, and what only they needed.
    pub fn retain_checkpoints(&self) -> std::io::Result<()> {
        let keep = self.settings().checkpoint_max_retained.max(1);
        let retained = storage::retain(&self.storage, keep);
        let position = self.storage.lock().oldest_dml_position();
        retained?;
        position.map_or(Ok(()), |position| self.dml.cut(position))
    }

    /// Ends the dataflow, after its sinks' targets took what is durable.
    pub async fn stop(&self) -> Result<(), JobError> {
        match self.set_incarnation(None) {
            Some(incarnation) => incarnation.end(true).await.map(drop),
            None => Ok(()),
        }
    }

    /// Objects that were being created when the process died are removed, readers first.
    fn remove_unfinished(&self) -> Result<(), JobError> {
        let catalog = self.catalog();
        let unfinished = catalog.objects().filter(|o| o.state == ObjectState::Creating);
        let mut drops: Vec<_> = unfinished.map(|o| o.id).collect();
        drops.sort_unstable_by(|a, b| b.cmp(a));
        for id in &drops {
            tracing::info!(object = %id, "removing an object whose creation was not acknowledged");
        }
        if drops.is_empty() {
            return Ok(());
        }
        self.log_changes(&drops.into_iter().map(CatalogChange::Drop).collect::<Vec<_>>())
    }
}

/// One life of the dataflow.
pub struct Incarnation {
    /// Jobs and workers.
    pub running: Running,
    /// Where epochs go.
    pub storing: Arc<Storing>,
    /// The sinks' committers.
    pub committers: Arc<Committers>,
    /// Fingerprints of the stateful operators of each job, for manifests.
    pub fingerprints: Fingerprints,
    /// The coordinator's thread.
    pub coordinator_thread: Mutex<Option<Thread>>,
}

impl Incarnation {
    /// Keeps what identifies the stateful operators of a job.
    pub fn note_fingerprints(&self, job: JobId, plan: &StreamPlan) {
        self.fingerprints.lock().insert(job, weir_sql::plan::fingerprint::fingerprints(plan));
    }

    /// Returns when the job has caught up with what existed before it.
    pub async fn wait_filled(&self, lasting: &Lasting, job: JobId) -> Result<(), JobError> {
        let mut filling = lasting.shown.filling.subscribe();
        let coordinator = self.running.coordinator();
        loop {
            if filling.borrow_and_update().get(&job).is_some_and(|f| f.done) {
                return Ok(());
            }
            if lasting.catalog().by_id(job).is_none() {
                let message = "the object was dropped while it was being created";
                return Err(JobError::new(SqlState::QUERY_CANCELED, message));
            }
            // Each tick lets it read on; a restart ends the wait by an error here.
            tokio::select! {
                biased;
                changed = filling.changed() => {
                    changed.map_err(|_| JobError::interrupted("the server is stopping"))?;
                }
                tick = async {
                    clock::sleep(std::time::Duration::from_millis(500)).await;
                    coordinator.ask(Message::Tick).await
                } => {
                    tick.map_err(|e| JobError::interrupted(&e))?;
                }
            }
        }
    }

    /// Keeps what a sink that is about to be created needs kept.
    pub fn keep_target(&self, object: &Object) -> Result<(), JobError> {
        self.committers.keep_target(object)
    }

    /// Starts the committer of a sink that was just created.
    pub fn start_sink(&self, object: &Object) -> Result<(), JobError> {
        self.committers.start(object, Epoch::ZERO)
    }

    /// Drops the state of objects whose jobs have ended.
    pub fn drop_state(&self, ids: &[ObjectId]) {
        for id in ids {
            self.fingerprints.lock().remove(id);
            self.committers.remove(*id);
            self.storing.drop_state(*id);
        }
    }

    /// Ends it: committers (after `drain`ing them), coordinator, workers. Returns the sinks that were not
    /// drained.
    pub async fn end(self: &Arc<Self>, drain: bool) -> Result<Vec<ObjectId>, JobError> {
        let left = self.committers.stop(drain).await;
        let incarnation = Arc::clone(self);
        let ended = work::blocking(move || incarnation.end_threads()).await;
        ended.map_err(|e| JobError::internal(format!("could not end the dataflow: {e}")))?;
        Ok(left)
    }

    fn end_threads(&self) {
        self.running.coordinator().send(Message::Stop);
        let thread = self.coordinator_thread.lock().take();
        if let Some(mut thread) = thread
            && !thread.join()
        {
            tracing::error!("coordinator panicked");
        }
        self.running.stop();
    }
}

impl Drop for Incarnation {
    fn drop(&mut self) {
        // One that was put together in part ends as well: its threads keep each other.
        self.running.coordinator().send(Message::Stop);
    }
}
