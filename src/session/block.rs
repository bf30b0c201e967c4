//! BEGIN, COMMIT, ROLLBACK, savepoints, and the settings that end with a transaction.

use super::settings::Settings;
use super::transaction::{Block, Savepoint, Transaction};
use super::{Notice, Outcome, Session, SessionError};
use weir_catalog::SqlState;
use weir_sql::parser::statement::{CopyWhat, Statement};

impl Session {
    pub(super) fn begin(&mut self, modes: &[(String, String)]) -> Result<Outcome, SessionError> {
        match &mut self.transaction {
            Transaction::Open(block) if block.explicit => {
                let message = "there is already a transaction in progress";
                self.notice(Notice::warning(SqlState::ACTIVE_SQL_TRANSACTION, message));
            }
            // Statements that were sent together with BEGIN, before it, are in its block.
            Transaction::Open(block) => block.explicit = true,
            Transaction::Idle | Transaction::Failed(_) => {
                self.transaction = Transaction::Open(Block::new(true, &self.settings));
            }
        }
        modes.iter().try_for_each(|(name, value)| self.set_local(name, Some(value)))?;
        Ok(Outcome::Done("BEGIN".to_owned()))
    }

    pub(super) async fn commit(&mut self) -> Result<Outcome, SessionError> {
        self.warn_without_transaction();
        match std::mem::take(&mut self.transaction) {
            Transaction::Idle => {}
            Transaction::Open(block) => self.commit_block(block).await?,
            Transaction::Failed(block) => {
                self.end_cursors(false);
                self.restore(block.settings)?;
                return Ok(Outcome::Done("ROLLBACK".to_owned()));
            }
        }
        Ok(Outcome::Done("COMMIT".to_owned()))
    }

    pub(super) fn rollback(&mut self) -> Result<Outcome, SessionError> {
        self.warn_without_transaction();
        match std::mem::take(&mut self.transaction) {
            Transaction::Idle => {}
            Transaction::Open(block) | Transaction::Failed(block) => {
                self.end_cursors(false);
                self.restore(block.settings)?;
            }
        }
        Ok(Outcome::Done("ROLLBACK".to_owned()))
    }

    fn warn_without_transaction(&mut self) {
        if !self.transaction.is_explicit() {
            let message = "there is no transaction in progress";
            self.notice(Notice::warning(SqlState::NO_ACTIVE_SQL_TRANSACTION, message));
        }
    }

    /// What SET did within a block that is rolled back never was.
    pub(super) fn restore(&mut self, before: Settings) -> Result<(), SessionError> {
        self.change_settings(|settings| {
            *settings = before;
            Ok(())
        })
    }

    pub(super) fn savepoint(&mut self, name: &str) -> Result<Outcome, SessionError> {
        let (settings, cursors) = (self.settings.clone(), self.cursors_declared);
        let block = self.explicit_block("SAVEPOINT")?;
        block.savepoints.push(Savepoint {
            name: name.to_owned(),
            writes: block.writes.len(),
            done: block.done.len(),
            settings,
            local: block.local.clone(),
            cursors,
        });
        Ok(Outcome::Done("SAVEPOINT".to_owned()))
    }

    pub(super) fn release(&mut self, name: &str) -> Result<Outcome, SessionError> {
        let block = self.explicit_block("RELEASE SAVEPOINT")?;
        let at = block.savepoint(name)?;
        block.savepoints.truncate(at);
        Ok(Outcome::Done("RELEASE".to_owned()))
    }

    /// Forgets what came after a savepoint, which stays. Heals a block that has failed since.
    pub(super) fn rollback_to(&mut self, name: &str) -> Result<Outcome, SessionError> {
        let block = self.explicit_block("ROLLBACK TO SAVEPOINT")?;
        let at = block.savepoint(name)?;
        block.savepoints.truncate(at + 1);
        let savepoint = block.savepoints[at].clone();
        block.writes.truncate(savepoint.writes);
        block.done.truncate(savepoint.done);
        block.local = savepoint.local;
        self.cursors.retain(|_, cursor| cursor.held || cursor.number <= savepoint.cursors);
        self.restore(savepoint.settings)?;
        self.transaction = match std::mem::take(&mut self.transaction) {
            Transaction::Failed(block) => Transaction::Open(block),
            other => other,
        };
        Ok(Outcome::Done("ROLLBACK".to_owned()))
    }

    fn explicit_block(&mut self, what: &str) -> Result<&mut Block, SessionError> {
        match &mut self.transaction {
            Transaction::Open(block) | Transaction::Failed(block) if block.explicit => Ok(block),
            _ => {
                let message = format!("{what} can only be used in transaction blocks");
                Err(SessionError::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, message))
            }
        }
    }

    pub(super) fn set(
        &mut self,
        name: &str,
        value: Option<&str>,
        local: bool,
    ) -> Result<Outcome, SessionError> {
        // These are of a transaction, whoever sets them.
        if local || name.starts_with("transaction_") {
            self.set_local(name, value)?;
        } else {
            self.change_settings(|settings| settings.set(name, value).map(drop))?;
            if let Transaction::Open(block) = &mut self.transaction {
                block.local.retain(|(set, _)| !set.eq_ignore_ascii_case(name));
            }
        }
        Ok(Outcome::Done(if value.is_some() { "SET" } else { "RESET" }.to_owned()))
    }

    pub(super) fn set_transaction(&mut self, modes: &[(String, String)]) -> Result<Outcome, SessionError> {
        for (name, value) in modes {
            self.set(name, Some(value), false)?;
        }
        Ok(Outcome::Done("SET".to_owned()))
    }

    /// Sets until the end of the transaction.
    fn set_local(&mut self, name: &str, value: Option<&str>) -> Result<(), SessionError> {
        if !self.transaction.is_explicit() {
            let message = match name.starts_with("transaction_") {
                true => "SET TRANSACTION can only be used in transaction blocks",
                false => "SET LOCAL can only be used in transaction blocks",
            };
            self.notice(Notice::warning(SqlState::NO_ACTIVE_SQL_TRANSACTION, message));
            return Ok(());
        }
        let before = self.settings.own(name).map(str::to_owned);
        self.change_settings(|settings| settings.set(name, value).map(drop))?;
        if let Transaction::Open(block) = &mut self.transaction
            && !block.local.iter().any(|(set, _)| set.eq_ignore_ascii_case(name))
        {
            block.local.push((name.to_owned(), before));
        }
        Ok(())
    }

    /// The transaction commits: what was set for it alone ends.
    pub(super) fn end_local(&mut self, local: &[(String, Option<String>)]) -> Result<(), SessionError> {
        self.change_settings(|settings| {
            local.iter().try_for_each(|(name, before)| settings.put_back(name, before.as_deref()))
        })
    }

    pub(super) fn reset_all(&mut self) -> Result<Outcome, SessionError> {
        self.change_settings(|settings| {
            settings.reset_all();
            Ok(())
        })?;
        Ok(Outcome::Done("RESET".to_owned()))
    }

    /// DISCARD: Weir has neither sequences nor temporary tables, and plans follow the catalog.
    pub(super) fn discard(&mut self, what: &str) -> Result<Outcome, SessionError> {
        if what == "ALL" {
            if self.transaction.is_explicit() {
                let message = "DISCARD ALL cannot run inside a transaction block";
                return Err(SessionError::new(SqlState::ACTIVE_SQL_TRANSACTION, message));
            }
            self.cursors.clear();
            self.prepared.clear();
            self.reset_all()?;
        }
        Ok(Outcome::Done(format!("DISCARD {what}")))
    }

    /// Whether the transaction, or a statement of its own, may write.
    pub(super) fn refuse_in_read_only(&self, statement: &Statement) -> Result<(), SessionError> {
        let Some(verb) = written_by(statement) else { return Ok(()) };
        let database = self.database_settings();
        let read_only = match self.settings.own("transaction_read_only") {
            Some(own) => own == "on",
            None => self.settings.value("default_transaction_read_only", &database) == "on",
        };
        if !read_only {
            return Ok(());
        }
        let message = format!("cannot execute {verb} in a read-only transaction");
        Err(SessionError::new(SqlState("25006"), message))
    }
}

/// What a statement that writes is called, as its command tag says.
fn written_by(statement: &Statement) -> Option<&'static str> {
    Some(match statement {
        Statement::Insert(_) => "INSERT",
        Statement::Update(_) => "UPDATE",
        Statement::Delete(_) => "DELETE",
        Statement::Truncate(_) => "TRUNCATE TABLE",
        Statement::Copy(copy) if matches!(copy.what, CopyWhat::In { .. }) => "COPY FROM",
        Statement::CreateTable(_) => "CREATE TABLE",
        Statement::CreateSource(_) => "CREATE SOURCE",
        Statement::CreateMaterializedView(_) => "CREATE MATERIALIZED VIEW",
        Statement::CreateView(_) => "CREATE VIEW",
        Statement::CreateIndex(_) => "CREATE INDEX",
        Statement::CreateSink(_) => "CREATE SINK",
        Statement::CreateSchema { .. } => "CREATE SCHEMA",
        Statement::Drop { .. } | Statement::DropSchema { .. } => "DROP",
        Statement::Rename { .. }
        | Statement::RenameColumn { .. }
        | Statement::SetParallelism { .. }
        | Statement::AlterDatabase { .. }
        | Statement::RebuildSink(_) => "ALTER",
        Statement::Comment { .. } => "COMMENT",
        Statement::Restore { .. } => "RESTORE DATABASE",
        Statement::SavepointTo { stop: true, .. } => "SAVEPOINT TO",
        _ => return None,
    })
}
