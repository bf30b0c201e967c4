//! FLUSH, CHECKPOINT, WAIT, RECOVER: waiting until what is acknowledged is visible, durable, done.

use super::{Outcome, Session, SessionError};
use crate::job::manager::JobError;
use std::time::Duration;
use weir_catalog::SqlState;

/// How often WAIT looks.
const WAIT_PAUSE: Duration = Duration::from_millis(20);

impl Session {
    /// FLUSH: everything acknowledged is visible when it returns.
    pub(super) async fn flush(&mut self) -> Result<Outcome, SessionError> {
        self.end_implicit().await?;
        let db = self.db().clone();
        self.limits.run(db.flush()).await?;
        Ok(Outcome::Done("FLUSH".to_owned()))
    }

    /// CHECKPOINT: everything acknowledged is durable in a checkpoint when it returns.
    pub(super) async fn checkpoint(&mut self) -> Result<Outcome, SessionError> {
        self.refuse_in_block("CHECKPOINT")?;
        self.end_implicit().await?;
        let db = self.db().clone();
        self.limits.run(db.checkpoint()).await?;
        Ok(Outcome::Done("CHECKPOINT".to_owned()))
    }

    /// WAIT: no CREATE runs in the background any more when it returns.
    pub(super) async fn wait(&mut self) -> Result<Outcome, SessionError> {
        self.refuse_in_block("WAIT")?;
        let (db, manager) = (self.db().clone(), self.manager.clone());
        let done = async {
            let creating = || db.catalog().objects().any(|object| object.state.is_filling());
            while manager.has_background() || creating() {
                tokio::time::sleep(WAIT_PAUSE).await;
            }
            Ok::<_, JobError>(())
        };
        self.limits.run(done).await?;
        Ok(Outcome::Done("WAIT".to_owned()))
    }

    /// RECOVER: the dataflow has restarted from its last checkpoint when it returns.
    pub(super) async fn recover(&mut self) -> Result<Outcome, SessionError> {
        self.refuse_in_block("RECOVER")?;
        let db = self.db().clone();
        self.limits.run(db.recover()).await?;
        Ok(Outcome::Done("RECOVER".to_owned()))
    }

    /// PostgreSQL's answer for what can't be taken back.
    pub(super) fn refuse_in_block(&self, what: &str) -> Result<(), SessionError> {
        if self.transaction.is_explicit() {
            let message = format!("{what} cannot run inside a transaction block");
            return Err(SessionError::new(SqlState::ACTIVE_SQL_TRANSACTION, message));
        }
        Ok(())
    }
}
