//! What is wrong with a statement: position, hint, SQLSTATE.

use weir_catalog::{ClientError, SqlState};

/// An error in a statement.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct SqlError {
    /// The SQLSTATE.
    pub state: SqlState,
    /// The primary message: lower case, no full stop.
    pub message: String,
    /// A sentence with particulars.
    pub detail: Option<String>,
    /// A sentence that says what to do.
    pub hint: Option<String>,
    /// Where in the statement's text, in characters from 1.
    pub position: Option<usize>,
}

impl SqlError {
    /// An error without particulars.
    pub fn new(state: SqlState, message: impl Into<String>) -> Self {
        Self { state, message: message.into(), detail: None, hint: None, position: None }
    }

    /// Something PostgreSQL or a peer can do and Weir can't.
    pub fn not_supported(what: impl std::fmt::Display) -> Self {
        Self::new(SqlState::FEATURE_NOT_SUPPORTED, format!("{what} is not supported"))
    }

    /// With a hint: a sentence.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// With a detail: a sentence.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// At a position, in characters from 1.
    #[must_use]
    pub fn at(mut self, position: usize) -> Self {
        self.position = Some(position);
        self
    }
}

impl ClientError for SqlError {
    fn sql_state(&self) -> SqlState {
        self.state
    }
    fn detail(&self) -> Option<String> {
        self.detail.clone()
    }
    fn hint(&self) -> Option<String> {
        self.hint.clone()
    }
    fn position(&self) -> Option<usize> {
        self.position
    }
}
