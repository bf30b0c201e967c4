//! The database as the session sees it: create, drop, wait, read.
//!
//! What outlives a failure of the dataflow is here: the catalog and its log, the DML log, the
//! newest visible epoch. The dataflow itself is an incarnation ([`super::incarnation`]) that
//! [`super::restart`] replaces when it fails.

pub use super::committers::DeliveryStatus;
use super::incarnation::{Incarnation, Lasting};
use crate::checkpoint::coordinator::Message;
pub use crate::checkpoint::coordinator::Visible;
use crate::checkpoint::history::History;
use crate::clock;
use crate::dml::log::DmlLog;
pub use crate::operators::source::SourceCounts;
use crate::stream::Epoch;
use crate::work;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use weir_catalog::system::facts::{JobFact, SplitFact, TransactionFact};
use weir_catalog::{
    CatalogChange, CatalogSnapshot, ClientError, JobId, Object, ObjectId, ObjectState, SqlState,
};
use weir_sql::binder::{BindContext, Create};

/// What creating or changing a job can fail of.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct JobError {
    /// The SQLSTATE.
    pub state: SqlState,
    /// The primary message.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

impl JobError {
    pub(super) fn new(state: SqlState, message: impl Into<String>) -> Self {
        Self { state, message: message.into(), hint: None }
    }

    /// Something that never should be.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(SqlState::INTERNAL_ERROR, message)
    }

    /// More than Weir can do.
    pub fn limit(message: impl Into<String>) -> Self {
        Self::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
    }

    /// A file could not be read or written.
    pub fn io(what: &str, error: &std::io::Error) -> Self {
        let full = error.kind() == std::io::ErrorKind::StorageFull;
        let state = if full { SqlState::DISK_FULL } else { SqlState::IO_ERROR };
        Self::new(state, format!("could not {what}: {error}"))
    }

    /// Another area's error.
    pub fn from_client(error: impl ClientError) -> Self {
        Self { state: error.sql_state(), hint: error.hint(), message: error.to_string() }
    }

    /// A checkpoint could not be read or written.
    pub fn from_checkpoint(error: std::io::Error) -> Self {
        Self::io("read the checkpoints", &error)
    }

    /// An operator can't be built.
    pub fn from_operator(error: crate::dataflow::OperatorError) -> Self {
        Self::internal(error.to_string())
    }

    /// State could not be read or written.
    pub fn from_state(error: crate::state::StateError) -> Self {
        Self::new(SqlState::IO_ERROR, error.to_string())
    }

    /// Another session's DDL came between: the statement is to be bound anew.
    pub(super) fn overtaken() -> Self {
        let message = "the catalog was changed by another session meanwhile";
        Self::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
    }

    /// The dataflow is restarting or failed meanwhile.
    pub fn interrupted(reason: &str) -> Self {
        let mut error = Self::new(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("the dataflow was interrupted: {reason}"),
        );
        error.hint = Some("It restarts from its last checkpoint by itself; try again.".to_owned());
        error
    }
}

impl JobError {
    /// A checkpoint that was asked for came to nothing.
    pub(super) fn not_durable(reason: &str) -> Self {
        let message = format!("the checkpoint failed: {reason}");
        let mut error = Self::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message);
        error.hint = Some("Results go on, and so do checkpoints: try again.".to_owned());
        error
    }

    /// An object that is not there to be changed yet.
    pub fn being_created(object: &Object) -> Self {
        let message = format!("{} \"{}\" is still being created", object.kind(), object.name.name);
        Self::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
    }

    /// The dataflow waits for space on the disk.
    pub fn disk_full(reason: &str) -> Self {
        let mut error = Self::new(SqlState::DISK_FULL, format!("the disk is full: {reason}"));
        error.hint = Some("The dataflow goes on by itself when there is space again.".to_owned());
        error
    }

    /// The database was stopped, its state in a savepoint.
    pub(super) fn stopped(savepoint: &str) -> Self {
        let mut error = Self::new(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("the database is stopped: everything is in the savepoint at \"{savepoint}\""),
        );
        error.hint = Some(
            "RECOVER lets it go on here, which is for when the savepoint is restored nowhere else."
                .to_owned(),
        );
        error
    }

    /// The dataflow failed too often and was given up.
    pub fn degraded(reason: &str) -> Self {
        let mut error = Self::new(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("the dataflow is degraded: {reason}"),
        );
        error.hint = Some(weir_catalog::system::alerts::DEGRADED_HINT.to_owned());
        error
    }
}

impl ClientError for JobError {
    fn sql_state(&self) -> SqlState {
        self.state
    }
    fn hint(&self) -> Option<String> {
        self.hint.clone()
    }
}

/// Binds over a catalog: what `serve` provides, for planning stored queries at a start.
pub type Binding = Arc<dyn Fn(Arc<CatalogSnapshot>) -> BindContext + Send + Sync>;

/// One database: its catalog, its dataflow, its state. Cheap to share.
pub struct Database {
    pub(super) lasting: Arc<Lasting>,
}

impl Database {
    /// Opens the database in the data directory of `config`, or makes it. Returns when its first
    /// epoch is visible (acknowledged DML is replayed before anything can be read), or when its
    /// dataflow could not start: then no relation can be read until it does.
    pub async fn open(
        config: Arc<crate::config::Config>,
        binding: Binding,
    ) -> Result<Arc<Database>, JobError> {
        let lasting = work::blocking(move || Lasting::open(config, binding))
            .await
            .map_err(|e| JobError::internal(format!("could not open the database: {e}")))??;
        if let Some(url) = &lasting.arrives {
            super::arrival::fill(&lasting, url).await?;
        }
        match &lasting.catalog().stopped {
            Some(savepoint) => super::restart::stay_stopped(&lasting, savepoint).await,
            None => super::restart::start(&lasting).await,
        }
        let cleaned = lasting.leftovers.clean_all(&lasting.catalog(), &[]);
        cleaned.map_err(|e| JobError::io("read the sinks' directory", &e))?;
        super::attempts::clean(&lasting).map_err(|e| JobError::io("read the savepoints' directory", &e))?;
        lasting.search_targets();
        Ok(Arc::new(Database { lasting }))
    }

    /// The catalog now.
    pub fn catalog(&self) -> Arc<CatalogSnapshot> {
        self.lasting.catalog()
    }

    /// The newest visible epoch, zero if there is none yet.
    pub fn visible(&self) -> Visible {
        self.lasting.shown.visible.borrow().clone()
    }

    /// The newest visible epoch, for reading relations. An error while the dataflow has not started
    /// in this process: acknowledged DML would be missing.
    pub fn readable(&self) -> Result<Visible, JobError> {
        let visible = self.visible();
        if visible.epoch > Epoch::ZERO {
            return Ok(visible);
        }
        self.lasting.incarnation().map(|_| visible)
    }

    /// Tells what a CREATE would fail of outside: options that its connector does not take, a
    /// target that rows can't be delivered to. Returns what the client is to be told.
    pub async fn check(&self, create: &Create) -> Result<Option<String>, JobError> {
        super::committers::check(&self.lasting.data_dir, &create.object).await
    }

    /// Creates an object; returns when it is caught up and logged `Created`. Cancelled before that,
    /// by `cancel` or by dropping the future, it leaves nothing behind; by `cancel` it returns when that is so.
    pub async fn create(&self, create: Create, cancel: CancellationToken) -> Result<(), JobError> {
        let _cancel_when_dropped = cancel.clone().drop_guard();
        let lasting = Arc::clone(&self.lasting);
        // A task of its own, so that what it began is undone even if nobody waits any more.
        let task = tokio::spawn(async move { super::create::create(&lasting, create, &cancel).await });
        task.await.map_err(|e| JobError::internal(format!("create failed: {e}")))?
    }

    /// Creates an object whose job fills in the background: returns when it is logged, with what
    /// ends when it is filled. A crash before that starts its filling anew.
    pub async fn create_in_background(
        &self,
        create: Create,
    ) -> Result<tokio::task::JoinHandle<Result<(), JobError>>, JobError> {
        let lasting = Arc::clone(&self.lasting);
        let task = tokio::spawn(async move { super::create::create_in_background(&lasting, create).await });
        task.await.map_err(|e| JobError::internal(format!("create failed: {e}")))?
    }

    /// Applies catalog changes that start no job; jobs of dropped objects end. New names are given to
    /// the catalog of `version` only: who else uses the old ones was looked up there.
    /// Returns what the client is to be told.
    pub async fn change(&self, changes: Vec<CatalogChange>, version: u64) -> Result<Vec<String>, JobError> {
        let lasting = Arc::clone(&self.lasting);
        let changes: Arc<[CatalogChange]> = changes.into();
        let task = tokio::spawn(async move {
            let (dropped, mut rescaling) = {
                let _ddl = lasting.ddl_lock.lock().await;
                let before = lasting.catalog();
                let renames = |c: &CatalogChange| {
                    matches!(c, CatalogChange::Rename(..) | CatalogChange::RenameColumn(..))
                };
                if before.version != version && changes.iter().any(renames) {
                    return Err(JobError::overtaken());
                }
                let dropped = dropped_jobs(&before, &changes)?;
                (dropped, super::rescale::log(&lasting, &changes).await?)
            };
            for change in changes.iter() {
                if let CatalogChange::Set(..) = change {
                    lasting.settings_changed();
                }
            }
            let notices = std::mem::take(&mut rescaling.notices);
            super::rescale::wait(rescaling).await;
            let ended = end_jobs(&lasting, &dropped).await;
            super::restart::retry(&lasting).await;
            ended.map(|()| notices)
        });
        task.await.map_err(|e| JobError::internal(format!("change failed: {e}")))?
    }

    /// Hastens a tick; returns when everything acknowledged before is visible.
    pub async fn flush(&self) -> Result<Epoch, JobError> {
        self.ask(Message::Tick).await
    }

    /// Takes a checkpoint; returns when it is durable.
    pub async fn checkpoint(&self) -> Result<Epoch, JobError> {
        let incarnation = self.lasting.incarnation()?;
        let asked = incarnation.running.coordinator().ask(Message::Checkpoint).await;
        asked.map_err(|reason| JobError::not_durable(&reason))
    }

    async fn ask(
        &self,
        message: impl FnOnce(tokio::sync::oneshot::Sender<Result<Epoch, String>>) -> Message,
    ) -> Result<Epoch, JobError> {
        let incarnation = self.lasting.incarnation()?;
        incarnation.running.coordinator().ask(message).await.map_err(|e| JobError::interrupted(&e))
    }

    /// Returns when the DML position is visible, hastening a tick. `visible()` then shows it.
    pub async fn wait_visible(&self, dml_position: u64) -> Result<(), JobError> {
        let mut visible = self.lasting.shown.visible.subscribe();
        if visible.borrow().dml_position >= dml_position {
            return Ok(());
        }
        // A restart loses the tick that was asked for, not the position: it is replayed.
        let asked = self.flush().await;
        if let Some(reason) = self.degraded() {
            return Err(JobError::degraded(&reason));
        }
        let reached = visible.wait_for(|v| v.dml_position >= dml_position);
        match clock::timeout(std::time::Duration::from_secs(60), reached).await {
            Some(Ok(_)) => Ok(()),
            _ => Err(asked
                .err()
                .unwrap_or_else(|| JobError::internal("a logged change did not become visible"))),
        }
    }

    /// The DML log. Hold [`Database::dml_lock`] from the first check until the record is queued.
    pub fn dml(&self) -> &Arc<DmlLog> {
        &self.lasting.dml
    }

    /// Makes DML run one at a time.
    pub fn dml_lock(&self) -> &tokio::sync::Mutex<()> {
        &self.lasting.dml_lock
    }

    /// What the delivery of a sink failed of is mended: it tries again at once. `at_least_once`: if it is
    /// that the target is ahead of the restored checkpoint, it goes on all the same.
    pub fn resume_sink(&self, sink: &Object, at_least_once: bool) -> Result<(), JobError> {
        if self.lasting.incarnation()?.committers.resume(sink.id, at_least_once) {
            return Ok(());
        }
        let message = format!("sink \"{}\" does not deliver yet", sink.name);
        Err(JobError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message))
    }

    /// What there is of the sinks' transactions.
    pub fn transaction_facts(&self) -> Vec<TransactionFact> {
        let mut facts = self.lasting.incarnation().map(|i| i.committers.transactions()).unwrap_or_default();
        facts.extend(self.lasting.leftovers.facts());
        facts
    }

    /// Commits or rolls back a prepared transaction in a sink's target.
    pub async fn finish_transaction(&self, transaction: &str, commit: bool) -> Result<(), JobError> {
        let (catalog, facts) = (self.catalog(), self.transaction_facts());
        self.lasting.leftovers.finish(&catalog, &facts, transaction, commit).await
    }

    /// Why DML is refused, when it is.
    pub fn write_refused(&self) -> JobError {
        match &self.lasting.catalog().stopped {
            Some(savepoint) => JobError::stopped(savepoint),
            None => JobError::interrupted("it is being stopped, or its state replaced"),
        }
    }

    /// Restarts the dataflow from its last checkpoint, also where it was stopped.
    pub async fn recover(&self) -> Result<(), JobError> {
        {
            let _ddl = self.lasting.ddl_lock.lock().await;
            if self.lasting.catalog().stopped.is_some() {
                self.lasting.log_changes(&[CatalogChange::Stop(None)])?;
                self.lasting.dml.reopen();
            }
        }
        super::restart::restart(&self.lasting, "RECOVER was asked for").await
    }

    /// A clean end: a last checkpoint, then everything stops.
    pub async fn shutdown(&self) -> Result<(), JobError> {
        let last = match self.catalog().stopped {
            Some(_) => Ok(Epoch::ZERO),
            None => self.checkpoint().await,
        };
        self.lasting.stop().await?;
        last.map(drop)
    }

    /// Jobs as they run now.
    pub fn job_facts(&self) -> Vec<JobFact> {
        let status = match (&self.catalog().stopped, self.degraded()) {
            (Some(_), _) => "stopped",
            (None, Some(_)) => "degraded",
            (None, None) => "restarting",
        };
        let restarting = |object: &Arc<Object>| JobFact {
            id: object.id,
            status: status.to_owned(),
            backfilled_rows: 0,
            backfill_total_rows: None,
            parallelism: 0,
            actors: 0,
            state_entries: 0,
        };
        match self.lasting.incarnation() {
            Ok(incarnation) => incarnation.running.job_facts(),
            Err(_) => self.catalog().objects().filter(|o| o.has_job()).map(restarting).collect(),
        }
    }

    /// The last few hundred checkpoints and recoveries.
    pub fn history(&self) -> std::sync::MutexGuard<'_, History> {
        self.lasting.shown.history()
    }

    /// Splits and their durable offsets.
    pub fn split_facts(&self) -> Vec<SplitFact> {
        let offsets = self.lasting.shown.offsets.lock();
        let offsets = offsets.unwrap_or_else(std::sync::PoisonError::into_inner);
        offsets
            .iter()
            .filter(|(key, _)| key.scan == 0)
            .map(|(key, offset)| SplitFact {
                source: key.reader,
                split: key.split.clone(),
                offset: offset.0.clone(),
            })
            .collect()
    }

    /// Rows of which an expression failed, by job, since the last start.
    pub fn expression_errors(&self) -> Vec<(JobId, u64)> {
        self.lasting.incarnation().map(|i| i.running.expression_errors()).unwrap_or_default()
    }

    /// What was read of each source since the dataflow started.
    pub fn source_counts(&self) -> Vec<(ObjectId, SourceCounts)> {
        self.lasting.incarnation().map(|i| i.running.source_counts()).unwrap_or_default()
    }

    /// What each sink's delivery is doing.
    pub fn delivery_status(&self) -> std::collections::BTreeMap<ObjectId, DeliveryStatus> {
        self.lasting.incarnation().map(|i| i.committers.status()).unwrap_or_default()
    }

    /// Bytes of memory that operators hold.
    pub fn operator_memory(&self) -> usize {
        self.lasting.incarnation().map_or(0, |i| i.running.memory())
    }

    /// Microseconds since 1970, as checkpoints are dated.
    pub fn now_us(&self) -> i64 {
        clock::now_us()
    }

    /// `checkpoint.interval` as it is set now.
    pub fn checkpoint_interval(&self) -> std::time::Duration {
        self.lasting.settings().checkpoint_interval
    }

    /// Why the dataflow was given up after failing too often, if it was.
    pub fn degraded(&self) -> Option<String> {
        self.lasting.degraded()
    }

    /// What could not be written, while the dataflow waits for space on the disk.
    pub fn disk_full(&self) -> Option<String> {
        self.lasting.disk_full()
    }

    /// How many operators are incomplete (they read through to the state store), vnodes of theirs that
    /// were gone through to complete them, and all their vnodes.
    pub fn filling(&self) -> [usize; 3] {
        self.lasting.incarnation().map(|i| i.running.filling()).unwrap_or_default()
    }

    /// Whether the dataflow runs. While it does not, SELECT shows the last visible epoch.
    pub fn is_ready(&self) -> bool {
        self.lasting.incarnation().is_ok()
    }
}

/// The jobs that `changes` end. Refuses to drop what is still being created.
fn dropped_jobs(before: &CatalogSnapshot, changes: &[CatalogChange]) -> Result<Vec<Arc<Object>>, JobError> {
    let mut dropped = Vec::new();
    for change in changes {
        let CatalogChange::Drop(id) = change else { continue };
        let Some(object) = before.by_id(*id) else { continue };
        if object.state == ObjectState::Creating {
            return Err(JobError::being_created(object));
        }
        if object.has_job() {
            dropped.push(Arc::clone(object));
        }
    }
    Ok(dropped)
}

/// Ends the jobs of objects that the catalog no longer names, and drops their state.
pub(super) async fn end_jobs(lasting: &Arc<Lasting>, dropped: &[Arc<Object>]) -> Result<(), JobError> {
    if dropped.is_empty() {
        return Ok(());
    }
    let ids: Vec<ObjectId> = dropped.iter().map(|o| o.id).collect();
    // Without a dataflow there is nothing to end: the next one starts without them.
    let Ok(incarnation) = lasting.incarnation() else { return Ok(()) };
    end_in(&incarnation, &ids).await
}

/// Ends jobs of one incarnation, and drops their state.
pub(super) async fn end_in(incarnation: &Incarnation, ids: &[ObjectId]) -> Result<(), JobError> {
    let ended = incarnation.running.change(Vec::new(), ids, None)?.await;
    if matches!(ended, Ok(Ok(_))) {
        incarnation.drop_state(ids);
    }
    Ok(())
}
