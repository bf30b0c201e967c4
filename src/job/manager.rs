//! The database's dataflow as the session sees it: create, drop, wait, read.

use crate::dml::log::DmlLog;
use crate::state::store::StateRead;
use crate::stream::Epoch;
use std::sync::Arc;
use weir_catalog::{CatalogChange, CatalogSnapshot, ClientError, SqlState};
use weir_sql::binder::Create;

/// What a reader sees: one epoch of everything.
#[derive(Clone)]
pub struct Visible {
    /// The epoch.
    pub epoch: Epoch,
    /// The DML position that it holds.
    pub dml_position: u64,
    /// The rows of tables, views and indexes as of the epoch.
    pub state: Arc<dyn StateRead>,
}

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

impl ClientError for JobError {
    fn sql_state(&self) -> SqlState {
        self.state
    }
    fn hint(&self) -> Option<String> {
        self.hint.clone()
    }
}

/// One database: its catalog, its dataflow, its state. Cheap to share.
pub struct Database {}

impl Database {
    /// The catalog now.
    pub fn catalog(&self) -> Arc<CatalogSnapshot> {
        unimplemented!()
    }

    /// The newest visible epoch.
    pub fn visible(&self) -> Visible {
        unimplemented!()
    }

    /// Creates an object; returns when it is caught up and logged `Created`. Dropping the future
    /// before that cancels it and leaves nothing behind.
    pub async fn create(&self, _create: Create) -> Result<(), JobError> {
        unimplemented!()
    }

    /// Applies catalog changes that start no job; jobs of dropped objects end.
    pub async fn change(&self, _changes: Vec<CatalogChange>) -> Result<(), JobError> {
        unimplemented!()
    }

    /// Hastens a tick; returns when everything acknowledged before is visible.
    pub async fn flush(&self) -> Result<Epoch, JobError> {
        unimplemented!()
    }

    /// Takes a checkpoint; returns when it is durable.
    pub async fn checkpoint(&self) -> Result<Epoch, JobError> {
        unimplemented!()
    }

    /// Returns when the DML position is visible, hastening a tick. `visible()` then shows it.
    pub async fn wait_visible(&self, _dml_position: u64) -> Result<(), JobError> {
        unimplemented!()
    }

    /// The DML log. Hold [`Database::dml_lock`] from the first check to the append.
    pub fn dml(&self) -> &Arc<DmlLog> {
        unimplemented!()
    }

    /// Makes DML run one at a time.
    pub fn dml_lock(&self) -> &tokio::sync::Mutex<()> {
        unimplemented!()
    }

    /// Restarts the dataflow from its last checkpoint.
    pub async fn recover(&self) -> Result<(), JobError> {
        unimplemented!()
    }

    /// A clean end: a last checkpoint, then everything stops.
    pub async fn shutdown(&self) -> Result<(), JobError> {
        unimplemented!()
    }

    /// Jobs as they run now.
    pub fn job_facts(&self) -> Vec<weir_catalog::system::facts::JobFact> {
        unimplemented!()
    }

    /// The last few hundred checkpoints, oldest first.
    pub fn checkpoint_facts(&self) -> Vec<weir_catalog::system::facts::CheckpointFact> {
        unimplemented!()
    }

    /// Splits and their durable offsets.
    pub fn split_facts(&self) -> Vec<weir_catalog::system::facts::SplitFact> {
        unimplemented!()
    }

    /// Rows that could not be decoded are in `weir_catalog.dead_letters`, a relation of this id.
    pub fn is_ready(&self) -> bool {
        unimplemented!()
    }
}
