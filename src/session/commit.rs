//! COMMIT: what a block wrote, checked against the rows of now, as one record of the DML log.
//!
//! ```text
//!   lock ─ newest rows ─ checked ──────────────────────────────── append (fsync) ─ unlock
//!                          └ changed by others ─ statements again ─┘ │ told otherwise: 40001
//! ```
//! Another session may have changed the rows meanwhile. PostgreSQL would have made it wait for the
//! row; here the block's statements run again over the newest rows, which is what they would have
//! found after waiting. Where a client was told something else than they say now, and above READ
//! COMMITTED, the COMMIT fails with 40001.

use super::changes::Target;
use super::rows::internal;
use super::transaction::{Block, Done, View};
use super::{Session, SessionError};
use crate::stream::ChangeBatch;
use crate::stream::builder::ChangeBuilder;
use std::sync::Arc;
use weir_catalog::{ObjectId, SqlState};

/// What a block does to each table in sum.
type Net = Vec<(Target, ChangeBatch)>;

impl Session {
    /// Commits a block; its settings are taken back if that fails.
    pub(super) async fn commit_block(&mut self, block: Block) -> Result<(), SessionError> {
        let may_run_again = self.is_read_committed();
        let settings = block.settings.clone();
        let done = self.try_commit(block, may_run_again).await;
        match &done {
            Ok(()) => {
                self.change_settings(|settings| settings.set("transaction_isolation", None).map(drop))?
            }
            Err(_) => self.restore(settings)?,
        }
        done
    }

    async fn try_commit(&mut self, block: Block, may_run_again: bool) -> Result<(), SessionError> {
        if block.writes.is_empty() {
            return Ok(());
        }
        let db = self.db().clone();
        let guard = self.limits.run(async { Ok::<_, SessionError>(db.dml_lock().lock().await) }).await?;
        let written = self.net_writes(block.writes)?;
        let written = match self.check_again(&written).await {
            Ok(()) => written,
            Err(conflict) if may_run_again && is_conflict(&conflict) => {
                tracing::debug!(%conflict, "block's statements run again");
                self.run_again(&block.done).await?
            }
            Err(error) => return Err(error),
        };
        self.append(written.into_iter().map(|(target, batch)| (target.id, batch)).collect()).await?;
        drop(guard);
        Ok(())
    }

    fn is_read_committed(&self) -> bool {
        let database = self.database_settings();
        let level = match self.settings.values().get("transaction_isolation") {
            Some(level) => level.clone(),
            None => self.settings.value("default_transaction_isolation", &database),
        };
        matches!(level.as_str(), "read committed" | "read uncommitted")
    }

    /// Checks what the block wrote against the rows of now.
    async fn check_again(&self, written: &Net) -> Result<(), SessionError> {
        let view = self.limits.run(View::newest(self.db(), &[])).await?;
        for (target, batch) in written {
            // Dropped meanwhile: an error, rather than a record that nobody can apply.
            self.target(target.id)?;
            let current = self.read_current(target, view.clone(), target.keys(batch.rows())).await?;
            target.check_again(batch, &current)?;
        }
        Ok(())
    }

    /// What the statements write now.
    async fn run_again(&self, statements: &[Done]) -> Result<Net, SessionError> {
        let mut writes: Vec<(ObjectId, ChangeBatch)> = Vec::new();
        for done in statements {
            let changes = self.compute(&done.dml, &done.input, &writes).await?;
            let same_rows = done.returned.as_ref().is_none_or(|told| *told == changes.returned);
            if changes.returned.num_rows() != done.rows || !same_rows {
                let message = "could not serialize access due to concurrent update";
                return Err(SessionError::new(SqlState("40001"), message).hint("Run the transaction again."));
            }
            writes.push((done.dml.table, changes.batch));
        }
        self.net_writes(writes)
    }

    /// What a block did to each table in sum.
    fn net_writes(&self, writes: Vec<(ObjectId, ChangeBatch)>) -> Result<Net, SessionError> {
        let mut builders: Vec<(Target, ChangeBuilder)> = Vec::new();
        for (table, batch) in writes {
            match builders.iter_mut().find(|(target, _)| target.id == table) {
                Some((_, builder)) => builder.push(batch),
                None => {
                    let target = self.target(table)?;
                    let mut builder = ChangeBuilder::new(Arc::clone(target.schema()));
                    builder.push(batch);
                    builders.push((target, builder));
                }
            }
        }
        let net = |(target, mut builder): (Target, ChangeBuilder)| {
            Ok((target, builder.consolidate().map_err(internal)?))
        };
        builders.into_iter().map(net).collect()
    }
}

/// Whether another session was first.
fn is_conflict(error: &SessionError) -> bool {
    matches!(error.fault().state, SqlState("40001") | SqlState::UNIQUE_VIOLATION)
}
