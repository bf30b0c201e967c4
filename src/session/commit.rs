//! COMMIT: what a block wrote, checked against the rows of now, as one record of the DML log.
//!
//! ```text
//!   lock ─ latest rows ─ checked ──────────────────────────────── queued ─ unlock ─ durable (fsync)
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
        let (settings, local) = (block.settings.clone(), block.local.clone());
        let done = self.try_commit(block, may_run_again).await;
        self.end_cursors(done.is_ok());
        match &done {
            Ok(()) => self.end_local(&local)?,
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
        let restored = block.restored.unwrap_or(db.catalog().restored);
        self.require_same_database(restored)?;
        let written = self.net_writes(block.writes)?;
        let (view, basis) = self.limits.run(View::latest(&db, &[])).await?;
        let checked = match self.check_again(&written, &view).await {
            Ok(()) => Ok(written),
            Err(conflict) if may_run_again && is_conflict(&conflict) => {
                tracing::debug!(%conflict, "block's statements run again");
                self.run_again(&block.done).await
            }
            Err(error) => Err(error),
        };
        let changes = |net: Net| net.into_iter().map(|(target, batch)| (target.id, batch)).collect();
        let queued = match checked {
            Ok(written) => self.queue(changes(written), Some(basis), restored),
            Err(error) => Err(error),
        };
        drop(guard);
        match queued {
            Ok(queued) => self.wait_durable(queued, Some(basis)).await,
            Err(error) => self.wait_durable(None, Some(basis)).await.and(Err(error)),
        }
    }

    /// Whether each statement of a block reads the newest rows.
    pub(super) fn is_read_committed(&self) -> bool {
        let database = self.database_settings();
        let level = match self.settings.values().get("transaction_isolation") {
            Some(level) => level.clone(),
            None => self.settings.value("default_transaction_isolation", &database),
        };
        matches!(level.as_str(), "read committed" | "read uncommitted")
    }

    /// Checks what the block wrote against the rows of now.
    async fn check_again(&self, written: &Net, view: &View) -> Result<(), SessionError> {
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
            // The lock is held, so what is queued is what it was.
            let (view, _) = self.limits.run(View::latest(self.db(), &writes)).await?;
            let changes = self.compute(&done.dml, &done.input, view).await?;
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
