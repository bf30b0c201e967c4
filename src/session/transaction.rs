//! Transactions of one session: what a block has written, and what its statements see.
//!
//! ```text
//!   Idle ── BEGIN, or a statement that is not alone ──> Open ── COMMIT: checked, one record of the log
//!    ▲                                                   │ └─ ROLLBACK: forgotten
//!    └────────── ROLLBACK, COMMIT (which rolls back) ── Failed
//! ```
//! A block holds no lock: what it wrote is checked again at COMMIT, under the lock that makes DML
//! run one at a time ([`super::commit`]).

use crate::dml::log::{Basis, Transaction as Logged};
use crate::job::manager::{Database, Visible};
use crate::serve::{Overlay, snapshot::ReadPoint};
use crate::session::SessionError;
use crate::session::settings::Settings;
use crate::stream::ChangeBatch;
use arrow::array::RecordBatch;
use datafusion::common::ScalarValue;
use std::sync::Arc;
use std::time::Duration;
use weir_catalog::{ObjectId, SqlState};
use weir_sql::binder::Dml;

/// Where a session is between BEGIN and COMMIT.
#[derive(Debug, Default)]
pub enum Transaction {
    /// Every statement is its own transaction.
    #[default]
    Idle,
    /// Within a block.
    Open(Block),
    /// A statement of an explicit block failed: only its end is accepted.
    Failed(Block),
}

/// What a client is told with ReadyForQuery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// No block.
    Idle,
    /// In a block.
    Open,
    /// In a block that failed.
    Failed,
}

/// Settings of a transaction alone, with what was the session's own before.
pub type Local = Vec<(String, Option<String>)>;

/// SAVEPOINT: how far the block was.
#[derive(Clone, Debug)]
pub struct Savepoint {
    /// Its name; the newest of a name counts.
    pub name: String,
    /// How many writes there were.
    pub writes: usize,
    /// How many statements had made them.
    pub done: usize,
    /// The settings then.
    pub settings: Settings,
    /// Those of the transaction alone.
    pub local: Local,
    /// The number of the newest cursor.
    pub cursors: u64,
}

/// A transaction block.
#[derive(Debug)]
pub struct Block {
    /// By BEGIN, rather than by several statements sent together.
    pub explicit: bool,
    /// What SET goes back to if the block is rolled back.
    pub settings: Settings,
    /// What was set for the transaction alone: the names, and what was the session's own before.
    pub local: Local,
    /// Where ROLLBACK TO may go back to, oldest first.
    pub savepoints: Vec<Savepoint>,
    /// What a block above READ COMMITTED reads, from its first statement on.
    pub snapshot: Option<ReadPoint>,
    /// The number of the RESTORE before its first write.
    pub restored: Option<u64>,
    /// What it wrote, in order.
    pub writes: Vec<(ObjectId, ChangeBatch)>,
    /// The statements that wrote it.
    pub done: Vec<Done>,
}

/// A DML statement of a block.
#[derive(Debug)]
pub struct Done {
    /// What it was bound to.
    pub dml: Arc<Dml>,
    /// Its rows.
    pub input: Input,
    /// What its client was told: how many rows, and with RETURNING which ones.
    pub rows: usize,
    /// The rows behind RETURNING.
    pub returned: Option<RecordBatch>,
}

/// Where a DML statement's rows come from.
#[derive(Clone, Debug)]
pub enum Input {
    /// Its plan, with these parameters.
    Plan(Vec<ScalarValue>),
    /// They are here: what its plan would give.
    Rows(Vec<RecordBatch>),
}

impl Block {
    /// An empty one.
    pub fn new(explicit: bool, settings: &Settings) -> Self {
        Self {
            explicit,
            settings: settings.clone(),
            local: Local::new(),
            savepoints: Vec::new(),
            snapshot: None,
            restored: None,
            writes: Vec::new(),
            done: Vec::new(),
        }
    }

    /// The place of the newest savepoint of this name.
    pub fn savepoint(&self, name: &str) -> Result<usize, SessionError> {
        self.savepoints.iter().rposition(|savepoint| savepoint.name == name).ok_or_else(|| {
            SessionError::new(SqlState("3B001"), format!("savepoint \"{name}\" does not exist"))
        })
    }
}

impl Transaction {
    /// What ReadyForQuery says.
    pub fn status(&self) -> Status {
        match self {
            Transaction::Open(block) if block.explicit => Status::Open,
            Transaction::Idle | Transaction::Open(_) => Status::Idle,
            Transaction::Failed(_) => Status::Failed,
        }
    }

    /// Whether BEGIN was said and no end yet.
    pub fn is_explicit(&self) -> bool {
        matches!(self, Transaction::Open(block) | Transaction::Failed(block) if block.explicit)
    }

    /// What a block above READ COMMITTED reads.
    pub fn snapshot(&self) -> Option<&ReadPoint> {
        match self {
            Transaction::Open(block) => block.snapshot.as_ref(),
            Transaction::Idle | Transaction::Failed(_) => None,
        }
    }

    /// What the block has written so far.
    pub fn writes(&self) -> &[(ObjectId, ChangeBatch)] {
        match self {
            Transaction::Open(block) => &block.writes,
            Transaction::Idle | Transaction::Failed(_) => &[],
        }
    }
}

/// Changes on top of a snapshot: what is logged and not visible yet, then a block's own.
#[derive(Default)]
pub struct Pending {
    logged: Vec<Arc<Logged>>,
    own: Vec<(ObjectId, ChangeBatch)>,
}

impl Pending {
    /// Only a block's own writes.
    #[cfg(test)]
    pub fn of(own: Vec<(ObjectId, ChangeBatch)>) -> Self {
        Self { logged: Vec::new(), own }
    }
}

impl Overlay for Pending {
    fn changes(&self, relation: ObjectId) -> Vec<ChangeBatch> {
        let logged = self.logged.iter().flat_map(|transaction| &transaction.changes);
        logged.chain(&self.own).filter(|(id, _)| *id == relation).map(|(_, batch)| batch.clone()).collect()
    }
}

/// What a DML statement, or a SELECT of a block that wrote, reads.
#[derive(Clone)]
pub struct View {
    /// A visible epoch.
    pub at: ReadPoint,
    /// What comes on top.
    pub pending: Arc<Pending>,
}

/// How often, and how long between, a snapshot and the log are asked to fit together.
const ATTEMPTS: usize = 200;
const PAUSE: Duration = Duration::from_millis(10);

impl View {
    /// The rows of a block's snapshot, and `own`.
    pub fn of_snapshot(at: &ReadPoint, own: &[(ObjectId, ChangeBatch)]) -> View {
        let pending = Pending { logged: Vec::new(), own: own.to_vec() };
        View { at: at.clone(), pending: Arc::new(pending) }
    }

    /// The newest rows that are durable, and `own`.
    pub async fn newest(db: &Database, own: &[(ObjectId, ChangeBatch)]) -> Result<View, SessionError> {
        let found = |at: &Visible| {
            let newest = db.dml().position();
            (db.dml().range(at.dml_position, newest), newest)
        };
        Self::found(db, own, found).await.map(|(view, _)| view)
    }

    /// The newest rows, those on their way into the log too, and `own`. What is found by them may be
    /// told, or logged, only together with them. Hold the DML lock.
    pub async fn latest(
        db: &Database,
        own: &[(ObjectId, ChangeBatch)],
    ) -> Result<(View, Basis), SessionError> {
        Self::found(db, own, |at: &Visible| db.dml().newest(at.dml_position)).await
    }

    /// A visible epoch and what comes after it, which `logged` finds.
    async fn found<B: Reach>(
        db: &Database,
        own: &[(ObjectId, ChangeBatch)],
        logged: impl Fn(&Visible) -> (Vec<Arc<Logged>>, B),
    ) -> Result<(View, B), SessionError> {
        for attempt in 0..ATTEMPTS {
            let catalog = db.catalog();
            let at = ReadPoint { catalog, visible: db.readable()? };
            let visible = at.visible.dml_position;
            let (logged, reach) = logged(&at.visible);
            // A tick between the two calls makes the log forget what is visible by then.
            // Positions have no gaps, so their number tells whether all are here.
            if logged.len() as u64 == reach.position().saturating_sub(visible) {
                return Ok((View { at, pending: Arc::new(Pending { logged, own: own.to_vec() }) }, reach));
            }
            if attempt > 2 {
                tokio::time::sleep(PAUSE).await;
            }
        }
        Err(SessionError::new(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            "the database's dataflow is restarting",
        )
        .hint("Try again in a moment."))
    }
}

/// Up to where the log was looked at.
trait Reach {
    fn position(&self) -> u64;
}

impl Reach for u64 {
    fn position(&self) -> u64 {
        *self
    }
}

impl Reach for Basis {
    fn position(&self) -> u64 {
        self.position
    }
}
