//! What a statement can fail of, whoever found it: one shape for the wire to report.

use weir_catalog::{ClientError, ObjectName, Severity, SqlState};

/// Why a statement failed.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.message)]
pub struct SessionError(Box<Fault>);

/// What is told of it.
#[derive(Debug)]
pub struct Fault {
    /// The SQLSTATE.
    pub state: SqlState,
    /// How loud.
    pub severity: Severity,
    /// The primary message.
    pub message: String,
    /// A sentence with particulars.
    pub detail: Option<String>,
    /// A sentence that says what to do.
    pub hint: Option<String>,
    /// Where in the statement's text, in characters from 1.
    pub position: Option<usize>,
    /// The relation whose rule was broken.
    pub relation: Option<ObjectName>,
    /// The column, if it is about one.
    pub column: Option<String>,
    /// The constraint, if one was broken.
    pub constraint: Option<String>,
}

impl SessionError {
    /// An error without particulars.
    pub fn new(state: SqlState, message: impl Into<String>) -> Self {
        Self(Box::new(Fault {
            state,
            severity: Severity::Error,
            message: message.into(),
            detail: None,
            hint: None,
            position: None,
            relation: None,
            column: None,
            constraint: None,
        }))
    }

    /// The user said stop.
    pub fn canceled() -> Self {
        Self::new(SqlState::QUERY_CANCELED, "canceling statement due to user request")
    }

    /// `statement_timeout` passed.
    pub fn timed_out() -> Self {
        Self::new(SqlState::QUERY_CANCELED, "canceling statement due to statement timeout")
    }

    /// The server goes down: the connection ends.
    pub fn shutdown() -> Self {
        let mut error =
            Self::new(SqlState::ADMIN_SHUTDOWN, "terminating connection due to administrator command");
        error.0.severity = Severity::Fatal;
        error
    }

    /// A bug of ours: what it was is in the server's log, never on the wire.
    pub fn internal() -> Self {
        Self::new(SqlState::INTERNAL_ERROR, "internal error").hint("The server's log says more.")
    }

    /// A statement in a transaction that failed before.
    pub fn in_failed_transaction() -> Self {
        Self::new(
            SqlState::IN_FAILED_SQL_TRANSACTION,
            "current transaction is aborted, commands ignored until end of transaction block",
        )
    }

    /// With a hint: a sentence.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// With a detail: a sentence.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    /// The connection ends.
    #[must_use]
    pub fn fatal(mut self) -> Self {
        self.0.severity = Severity::Fatal;
        self
    }

    /// About a column of a relation.
    #[must_use]
    pub fn of_column(mut self, relation: &ObjectName, column: &str) -> Self {
        self.0.relation = Some(relation.clone());
        self.0.column = Some(column.to_owned());
        self
    }

    /// About a constraint of a relation.
    #[must_use]
    pub fn of_constraint(mut self, relation: &ObjectName, constraint: &str) -> Self {
        self.0.relation = Some(relation.clone());
        self.0.constraint = Some(constraint.to_owned());
        self
    }

    /// The statement starts `offset` characters into what the client sent.
    #[must_use]
    pub fn shifted(mut self, offset: usize) -> Self {
        self.0.position = self.0.position.map(|position| position + offset);
        self
    }

    /// The position is of no use to the client.
    #[must_use]
    pub fn without_position(mut self) -> Self {
        self.0.position = None;
        self
    }

    /// Whether the connection ends with it.
    pub fn is_fatal(&self) -> bool {
        matches!(self.0.severity, Severity::Fatal)
    }

    /// What is told of it.
    pub fn fault(&self) -> &Fault {
        &self.0
    }
}

impl<E: ClientError> From<E> for SessionError {
    fn from(error: E) -> Self {
        let mut made = Self::new(error.sql_state(), error.to_string());
        made.0.severity = error.severity();
        made.0.detail = error.detail();
        made.0.hint = error.hint();
        made.0.position = error.position();
        made
    }
}
