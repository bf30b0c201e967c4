//! SAVEPOINT TO and RESTORE DATABASE: the whole database to somewhere else, and back.

use super::{Notice, Outcome, Session, SessionError};
use weir_catalog::SqlState;
use weir_sql::parser::statement::RestoreOptions;

impl Session {
    /// SAVEPOINT TO: everything acknowledged is at the URL when it returns.
    pub(super) async fn savepoint_to(&mut self, url: &str, stop: bool) -> Result<Outcome, SessionError> {
        self.refuse_in_block("SAVEPOINT TO")?;
        self.end_implicit().await?;
        let db = self.db().clone();
        let notices = self.limits.run(db.savepoint(url, stop)).await?;
        self.tell(notices);
        Ok(Outcome::Done("SAVEPOINT".to_owned()))
    }

    /// RESTORE DATABASE: the database is what the savepoint holds, and runs, when it returns.
    pub(super) async fn restore_database(
        &mut self,
        database: &str,
        url: &str,
        options: RestoreOptions,
    ) -> Result<Outcome, SessionError> {
        self.refuse_in_block("RESTORE DATABASE")?;
        self.end_implicit().await?;
        self.refuse_other_database(database)?;
        let db = self.db().clone();
        let notices = self.limits.run(db.restore(url, options)).await?;
        self.tell(notices);
        Ok(Outcome::Done("RESTORE".to_owned()))
    }

    /// Refuses the name of a database that there is not.
    pub(super) fn refuse_other_database(&self, database: &str) -> Result<(), SessionError> {
        let own = self.manager.database_name();
        if database == own {
            return Ok(());
        }
        let message = format!("database \"{database}\" does not exist");
        Err(SessionError::new(SqlState::INVALID_CATALOG_NAME, message)
            .hint(format!("This server has the database \"{own}\".")))
    }

    fn tell(&mut self, notices: Vec<String>) {
        notices.into_iter().for_each(|notice| self.notice(Notice::info(notice)));
    }
}
