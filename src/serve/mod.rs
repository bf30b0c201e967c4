//! The read path: a bound SELECT in, rows of one visible epoch out.
//!
//! ```text
//!   session ── bind_context ──> binder ── LogicalPlan ──┐
//!                                                       ▼
//!   Database::visible ── snapshot ──> provider ──> execute ── batches ──> session
//!   catalog, facts ── system, pg_catalog ──┘
//! ```
//! In: logical plans whose scans are the binder's sources. Out: streams of batches.
//! **Invariants:** a query reads one visible epoch of everything; queries run on their own threads
//! at a lower priority, so that no query starves the streams; what a query may hold is bounded.

pub mod access;
pub mod error;
pub mod execute;
pub mod layout;
pub mod overlay;
pub mod provider;
pub mod scan;
pub mod snapshot;
pub mod system;

pub use error::ServeError;

use crate::config::Config;
use crate::job::manager::{Database, Visible};
use crate::stream::ChangeBatch;
use arrow::datatypes::DataType;
use datafusion::common::ParamValues;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use system::SystemTables;
use tokio_util::sync::CancellationToken;
use weir_catalog::connector::ConnectorSpec;
use weir_catalog::source::Options;
use weir_catalog::{Column, ObjectId};
use weir_sql::binder::{BindContext, SystemSchemas};

/// What reading needs to know of a session.
#[derive(Clone, Debug, Default)]
pub struct SessionInfo {
    /// Who is connected.
    pub user: String,
    /// To which database.
    pub database: String,
    /// Schemas that unqualified names are looked up in.
    pub search_path: Vec<String>,
    /// The number that CancelRequest and `pg_backend_pid()` use.
    pub pid: i32,
    /// Session settings that differ from their defaults, by name.
    pub settings: Arc<BTreeMap<String, String>>,
    /// Types of `$1`, `$2`, … that the client declared.
    pub parameter_types: Vec<Option<DataType>>,
}

/// Changes that one reader sees on top of a snapshot: what DML has logged and is not visible yet,
/// and a transaction's own writes.
pub trait Overlay: Send + Sync {
    /// The changes to the rows of `relation`, whole rows, in order. Empty: none.
    fn changes(&self, relation: ObjectId) -> Vec<ChangeBatch>;
}

/// How to run a query.
#[derive(Clone, Default)]
pub struct QueryOptions {
    /// What to read; `None`: the newest visible epoch. Whoever gives an overlay gives the snapshot
    /// that it was made for.
    pub at: Option<Visible>,
    /// Values of `$1`, `$2`, …
    pub params: Option<ParamValues>,
    /// What the reader sees beyond the snapshot.
    pub overlay: Option<Arc<dyn Overlay>>,
    /// When to give up (57014), if ever.
    pub timeout: Option<Duration>,
    /// Cancels the query (57014).
    pub cancel: CancellationToken,
    /// How many bytes it may hold; the default is `query.memory_limit`.
    pub memory_limit: Option<usize>,
    /// Who asks.
    pub session: SessionInfo,
}

/// What the binder may know of connectors, as the registry tells it.
#[derive(Clone)]
pub struct Connectors {
    /// The connectors that exist.
    pub specs: Arc<Vec<ConnectorSpec>>,
    /// The columns of a source declared without any, by connector and options.
    pub columns: Arc<dyn Fn(&str, &Options) -> Option<Vec<Column>> + Send + Sync>,
}

impl Default for Connectors {
    fn default() -> Self {
        Self { specs: Arc::default(), columns: Arc::new(|_, _| None) }
    }
}

/// What all queries share.
pub struct ServeContext {
    db: Arc<Database>,
    config: Arc<Config>,
    connectors: Connectors,
    system: Arc<SystemTables>,
    engine: execute::QueryEngine,
}

impl ServeContext {
    /// For queries on `db`. Starts the threads that run them.
    pub fn new(db: Arc<Database>, config: Arc<Config>) -> std::io::Result<Self> {
        let engine = execute::QueryEngine::new(&config)?;
        let system = Arc::new(SystemTables);
        Ok(Self { db, config, connectors: Connectors::default(), system, engine })
    }

    /// With connectors that CREATE SOURCE and CREATE SINK know.
    #[must_use]
    pub fn with_connectors(mut self, connectors: Connectors) -> Self {
        self.connectors = connectors;
        self
    }

    /// The database that is read.
    pub fn database(&self) -> &Arc<Database> {
        &self.db
    }

    /// The server's settings.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// What binding a statement of `session` may know: the catalog of now.
    pub fn bind_context(&self, session: &SessionInfo) -> BindContext {
        BindContext {
            catalog: self.db.catalog(),
            search_path: session.search_path.clone(),
            system: Arc::clone(&self.system) as Arc<dyn SystemSchemas>,
            connectors: Arc::clone(&self.connectors.specs),
            functions: Arc::default(),
            parameter_types: session.parameter_types.clone(),
            connector_columns: Arc::clone(&self.connectors.columns),
        }
    }
}
