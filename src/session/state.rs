//! One connection's session: its settings, its transaction, its prepared statements.

use super::limits::{CancelSlot, Limits};
use super::prepared::Prepared;
use super::settings::{REPORTED, Settings};
use super::transaction::{Status, Transaction};
use super::{Notice, Session, SessionError, SessionManager};
use crate::job::manager::Database;
use crate::serve::{ServeContext, SessionInfo};
use arrow::datatypes::DataType;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use weir_catalog::SqlState;
use weir_catalog::system::facts::SessionFact;
use weir_sql::binder::BindContext;

/// What a session may want to tell its client besides results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// NOTICE, WARNING.
    Notice(Notice),
    /// A reported setting has a new value.
    Parameter(&'static str, String),
}

impl Session {
    /// A session of `user`, whose connection is number `pid`.
    pub fn new(manager: &Arc<SessionManager>, user: String, pid: i32, slot: Arc<CancelSlot>) -> Self {
        Self {
            serve: Arc::clone(manager.serve()),
            manager: Arc::clone(manager),
            settings: Settings::new(Arc::clone(manager.serve().config())),
            limits: Limits::start(&slot, None),
            user,
            pid,
            slot,
            transaction: Transaction::Idle,
            prepared: HashMap::new(),
            cursors: HashMap::new(),
            cursors_declared: 0,
            messages: Vec::new(),
            last_dml: 0,
        }
    }

    /// The database.
    pub(super) fn db(&self) -> &Arc<Database> {
        self.serve.database()
    }

    /// The read path.
    pub(super) fn serve(&self) -> &Arc<ServeContext> {
        &self.serve
    }

    /// The database's own settings.
    pub(super) fn database_settings(&self) -> BTreeMap<String, String> {
        self.db().catalog().settings.clone()
    }

    /// What binding a statement of this session may know.
    pub(super) fn bind_context(&self, parameter_types: Vec<Option<DataType>>) -> BindContext {
        self.serve.bind_context(&self.info(parameter_types))
    }

    /// What reading needs to know of this session.
    pub(super) fn info(&self, parameter_types: Vec<Option<DataType>>) -> SessionInfo {
        let database = self.database_settings();
        SessionInfo {
            user: self.user.clone(),
            database: self.manager.database_name().to_owned(),
            search_path: self.settings.search_path(&self.user, &database),
            pid: self.pid,
            settings: Arc::clone(self.settings.values()),
            parameter_types,
        }
    }

    /// A statement starts: from now on it can be cancelled, and its time runs.
    pub fn start_statement(&mut self) {
        let timeout = self.settings.statement_timeout(&self.database_settings());
        self.limits = Limits::start(&self.slot, timeout);
    }

    /// Adds the session to `pg_stat_activity`.
    pub fn note_connected(&self, client: Option<String>) {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        self.serve.sessions().set(SessionFact {
            pid: self.pid,
            user: self.user.clone(),
            application_name: self.application_name(),
            client,
            state: "idle".to_owned(),
            query: String::new(),
            started_at_us: now.as_micros() as i64,
        });
    }

    /// Says in `pg_stat_activity` what runs.
    pub(super) fn note_statement(&self, text: &str) {
        self.serve.sessions().update(self.pid, |fact| {
            fact.state = "active".to_owned();
            fact.query = text.to_owned();
        });
    }

    /// Says in `pg_stat_activity` that nothing runs.
    pub fn note_idle(&self) {
        let state = match self.status() {
            Status::Idle => "idle",
            Status::Open => "idle in transaction",
            Status::Failed => "idle in transaction (aborted)",
        };
        let application_name = self.application_name();
        self.serve.sessions().update(self.pid, |fact| {
            fact.state = state.to_owned();
            fact.application_name = application_name;
        });
    }

    fn application_name(&self) -> String {
        self.settings.value("application_name", &self.database_settings())
    }

    /// The limits of the statement that runs.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What ReadyForQuery says of the transaction.
    pub fn status(&self) -> Status {
        self.transaction.status()
    }

    /// What the client is to be told since the last call.
    pub fn take_messages(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.messages)
    }

    /// Tells the client something, if it wants to hear it.
    pub(super) fn notice(&mut self, notice: Notice) {
        let least = self.settings.value("client_min_messages", &self.database_settings());
        let wanted = match least.as_str() {
            "error" => false,
            "warning" => notice.warning,
            _ => true,
        };
        if wanted {
            self.messages.push(Message::Notice(notice));
        }
    }

    /// The zone that `timestamptz` is printed in.
    pub fn time_zone(&self) -> String {
        self.settings.value("TimeZone", &self.database_settings())
    }

    /// A setting of the startup message.
    pub fn set_initial(&mut self, name: &str, value: &str) -> Result<(), SessionError> {
        self.settings.set_initial(name, value)
    }

    /// The reported settings as they are now.
    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        let database = self.database_settings();
        REPORTED.iter().map(|name| (*name, self.settings.value(name, &database))).collect()
    }

    /// Replaces the settings, and reports what changes by it.
    pub(super) fn change_settings(
        &mut self,
        change: impl FnOnce(&mut Settings) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        let before = self.parameters();
        change(&mut self.settings)?;
        let after = self.parameters();
        let changed = after.into_iter().zip(before).filter(|(after, before)| after != before);
        self.messages.extend(changed.map(|((name, value), _)| Message::Parameter(name, value)));
        Ok(())
    }

    /// The prepared statement of this name.
    pub(super) fn prepared(&self, name: &str) -> Result<Arc<Prepared>, SessionError> {
        self.prepared.get(name).cloned().ok_or_else(|| {
            let message = if name.is_empty() {
                "unnamed prepared statement does not exist".to_owned()
            } else {
                format!("prepared statement \"{name}\" does not exist")
            };
            SessionError::new(SqlState::INVALID_SQL_STATEMENT_NAME, message)
        })
    }
}
