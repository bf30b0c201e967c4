//! What one connection is doing: a statement's text in, rows and tags out.
//!
//! ```text
//!   wire ── parse ──> run ──┬─ query   SELECT: plan, snapshot, stream rows
//!                           ├─ dml     INSERT, UPDATE, DELETE: exact changes, checked, logged
//!                           ├─ copy    COPY: lines to rows, rows to lines
//!                           ├─ ddl     CREATE, DROP, …: a catalog change, where needed a job
//!                           ├─ show    SHOW, DESCRIBE, EXPLAIN
//!                           ├─ flush   FLUSH, CHECKPOINT, WAIT, RECOVER
//!                           └─ savepoint  SAVEPOINT TO, RESTORE DATABASE
//! ```
//! In: text, parameters. Out: [`Outcome`]s, [`Message`]s; [`SessionError`]s.
//! **Invariants:** DML is acknowledged after the fsync of its record; a statement that fails leaves
//! nothing behind; what a session wrote, its next statement sees.

mod block;
mod changes;
mod commit;
mod copy;
mod current;
mod cursor;
mod ddl;
mod dispatch;
mod dml;
mod error;
mod flush;
pub mod input;
mod limits;
mod manager;
mod prepared;
mod query;
mod rows;
mod savepoint;
mod settings;
mod show;
mod state;
mod transaction;

pub use crate::formats::text;
pub use copy::CopyIn;
pub use dispatch::{CommandTag, Outcome, ResultRows};
pub use error::{Fault, SessionError};
pub use limits::{CancelSlot, Limits, Stop};
pub use manager::{DEFAULT_DATABASE, Seat, SessionManager};
pub use prepared::Prepared;
pub use settings::REPORTED;
pub use state::Message;
pub use transaction::Status;

use crate::serve::ServeContext;
use settings::Settings;
use std::collections::HashMap;
use std::sync::Arc;
use transaction::Transaction;

/// What a client is told beside a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// WARNING rather than NOTICE.
    pub warning: bool,
    /// The SQLSTATE.
    pub state: weir_catalog::SqlState,
    /// The message.
    pub message: String,
}

impl Notice {
    /// A NOTICE.
    pub fn info(message: impl Into<String>) -> Self {
        Self { warning: false, state: weir_catalog::SqlState::SUCCESSFUL_COMPLETION, message: message.into() }
    }

    /// A WARNING.
    pub fn warning(state: weir_catalog::SqlState, message: impl Into<String>) -> Self {
        Self { warning: true, state, message: message.into() }
    }
}

/// What one connection is doing.
pub struct Session {
    serve: Arc<ServeContext>,
    manager: Arc<SessionManager>,
    user: String,
    pid: i32,
    slot: Arc<CancelSlot>,

    settings: Settings,
    transaction: Transaction,
    prepared: HashMap<String, Arc<Prepared>>,
    cursors: HashMap<String, cursor::Cursor>,
    /// How many cursors were declared so far.
    cursors_declared: u64,
    messages: Vec<Message>,
    limits: Limits,
    /// The position of its newest acknowledged DML: later reads wait for it.
    last_dml: u64,
}
