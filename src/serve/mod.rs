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
pub mod binding;
pub mod error;
pub mod execute;
pub mod http;
pub mod information_schema;
mod interrupt;
pub mod layout;
mod lookup;
pub mod overlay;
mod pg_bodies;
pub mod pg_catalog;
pub mod pg_functions;
mod pg_keywords;
pub mod pg_relations;
pub mod pg_rewrite;
pub mod pg_static;
pub mod pg_types;
pub mod pg_views;
pub mod provider;
pub mod scan;
mod sleep;
pub mod snapshot;
pub mod system;
pub(crate) mod window;

pub use binding::{Binding, Connectors};
pub use error::ServeError;

use crate::config::Config;
use crate::job::manager::Database;
use crate::stream::ChangeBatch;
use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
use datafusion::common::ParamValues;
use parking_lot::Mutex;
use snapshot::ReadPoint;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use system::SystemInput;
use tokio_util::sync::CancellationToken;
use weir_catalog::system::facts::{DeliveryFact, RuntimeFacts, SessionFact, SourceFact};
use weir_catalog::{CatalogSnapshot, ObjectId};
use weir_sql::binder::BindContext;

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
    pub at: Option<ReadPoint>,
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

/// What all queries share.
pub struct ServeContext {
    db: Arc<Database>,
    config: Arc<Config>,
    binding: Binding,
    engine: execute::QueryEngine,
    sessions: Arc<Sessions>,
}

/// Who is connected, for `pg_stat_activity`.
#[derive(Default)]
pub struct Sessions {
    facts: Mutex<BTreeMap<i32, SessionFact>>,
}

impl Sessions {
    /// Adds a connection, or says what it does now.
    pub fn set(&self, fact: SessionFact) {
        self.facts.lock().insert(fact.pid, fact);
    }

    /// Changes what is known of a connection.
    pub fn update(&self, pid: i32, change: impl FnOnce(&mut SessionFact)) {
        if let Some(fact) = self.facts.lock().get_mut(&pid) {
            change(fact);
        }
    }

    /// Removes a connection.
    pub fn remove(&self, pid: i32) {
        self.facts.lock().remove(&pid);
    }

    /// Everybody, in order of number.
    pub fn facts(&self) -> Vec<SessionFact> {
        self.facts.lock().values().cloned().collect()
    }
}

impl ServeContext {
    /// For queries on `db`. Starts the threads that run them.
    pub fn new(db: Arc<Database>, config: Arc<Config>) -> std::io::Result<Self> {
        let engine = execute::QueryEngine::new(&config)?;
        let binding = Binding::new(Arc::clone(&config), Connectors::default());
        Ok(Self { db, config, binding, engine, sessions: Arc::default() })
    }

    /// With connectors that CREATE SOURCE and CREATE SINK know.
    #[must_use]
    pub fn with_connectors(mut self, connectors: Connectors) -> Self {
        self.binding = Binding::new(Arc::clone(&self.config), connectors);
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

    fn system_rows<'a>(&'a self, session: &'a SessionInfo) -> SessionRows<'a> {
        SessionRows { serve: self, session }
    }

    /// What is running now.
    pub fn facts(&self) -> RuntimeFacts {
        let (checkpoints, recoveries) = {
            let history = self.db.history();
            (history.checkpoints(), history.recoveries())
        };
        RuntimeFacts {
            now_us: self.db.now_us(),
            checkpoint_interval_us: self.db.checkpoint_interval().as_micros() as i64,
            degraded: self.db.degraded(),
            disk_full: self.db.disk_full(),
            jobs: self.db.job_facts(),
            checkpoints,
            recoveries,
            splits: self.db.split_facts(),
            sessions: self.sessions.facts(),
            expression_errors: self.db.expression_errors(),
            sources: self.source_facts(),
            deliveries: self.delivery_facts(),
            transactions: self.db.transaction_facts(),
            connectors: self.binding.connectors().specs.to_vec(),
        }
    }

    fn source_facts(&self) -> Vec<SourceFact> {
        let counts = self.db.source_counts().into_iter();
        counts
            .map(|(id, counts)| SourceFact {
                id,
                rows: counts.rows,
                late_rows: counts.late,
                dead_letters: counts.dead,
            })
            .collect()
    }

    fn delivery_facts(&self) -> Vec<DeliveryFact> {
        let statuses = self.db.delivery_status().into_iter();
        statuses
            .map(|(id, status)| DeliveryFact {
                id,
                committed_epoch: status.committed.map(|epoch| epoch.0),
                error: status.error,
                state: status.state,
                degraded: status.degraded,
            })
            .collect()
    }

    /// Who is connected.
    pub fn sessions(&self) -> &Arc<Sessions> {
        &self.sessions
    }

    /// What binding a statement of `session` may know: the catalog of now.
    pub fn bind_context(&self, session: &SessionInfo) -> BindContext {
        self.binding.context(self.db.catalog(), session)
    }
}

/// The system tables as one session sees them now.
struct SessionRows<'a> {
    serve: &'a ServeContext,
    session: &'a SessionInfo,
}

impl snapshot::SystemRows for SessionRows<'_> {
    fn rows(&self, schema: &str, name: &str, catalog: &CatalogSnapshot) -> Result<RecordBatch, ServeError> {
        let facts = self.serve.facts();
        let input = SystemInput { catalog, facts: &facts, session: self.session, config: &self.serve.config };
        self.serve.binding.system().rows(schema, name, &input)
    }
}

#[cfg(test)]
#[path = "tests/psql.rs"]
mod psql;
