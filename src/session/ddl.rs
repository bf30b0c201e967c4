//! CREATE, ALTER, DROP: a catalog change and, where needed, a job.
//!
//! A statement is bound over a catalog snapshot and carried out on the catalog of then; where
//! another session's DDL came between, it is bound anew.

use super::rows::text_rows;
use super::show::explain_schema;
use super::{Notice, Outcome, Session, SessionError};
use crate::config::check_database;
use crate::job::manager::Database;
use weir_catalog::{CatalogChange, ObjectState, SqlState};
use weir_sql::binder::{Bound, Create, bind};
use weir_sql::parser::statement::{Parsed, Statement};

/// How often a statement is bound anew because another session's DDL came between.
const REBINDS_MAX: usize = 10;

impl Session {
    /// Runs a DDL statement.
    pub(super) async fn ddl(&mut self, parsed: &Parsed) -> Result<Outcome, SessionError> {
        if self.transaction.is_explicit() {
            let message = "DDL in a transaction block is not supported";
            return Err(SessionError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .hint("COMMIT first, or switch your driver to autocommit."));
        }
        // DDL is not part of a transaction: what was sent before it is committed first.
        self.end_implicit().await?;
        let db = self.db().clone();
        for attempt in 0.. {
            let context = self.bind_context(Vec::new());
            let version = context.catalog.version;
            let bound = bind(parsed, &context)?;
            match self.carry_out(bound, version).await {
                Err(error) if attempt < REBINDS_MAX && is_of_catalog(&error) && raced(&db, version) => {
                    tracing::debug!(attempt, "catalog changed between binding and DDL, binding anew");
                }
                done => return done,
            }
        }
        unreachable!("the loop ends by its last attempt")
    }

    async fn carry_out(&mut self, bound: Bound, version: u64) -> Result<Outcome, SessionError> {
        let db = self.db().clone();
        let (tag, notices) = match bound {
            Bound::Create(create) => {
                let (tag, mut notices) = (create.tag.clone(), create.notices.clone());
                notices.extend(self.limits.run(db.check(&create)).await?);
                let replaces = create.object.state == ObjectState::Filling;
                if create.plan.is_some() && self.is_background() {
                    self.create_in_background(create).await?;
                } else if replaces {
                    // What it replaces is gone once it is logged: it goes on whoever waits for it.
                    let filling = self.limits.run(db.create_in_background(create)).await?;
                    let filled = async { filling.await.unwrap_or(Ok(())) };
                    self.limits.run(filled).await?;
                } else {
                    self.limits.run_undoing(|cancel| db.create(create, cancel)).await?;
                }
                (tag, notices)
            }
            Bound::Change { changes, tag, mut notices } => {
                let changes = changes.into_iter().map(checked).collect::<Result<Vec<_>, _>>()?;
                for change in &changes {
                    db.check_place(change).await?;
                }
                if !changes.is_empty() {
                    notices.extend(self.limits.run(db.change(changes, version)).await?);
                }
                (tag, notices)
            }
            Bound::Skip { tag, notice } => (tag, vec![notice]),
            Bound::Explain(text) | Bound::ExplainJob(text) => {
                let rows = text.lines().map(|line| vec![Some(line.to_owned())]).collect();
                return text_rows(explain_schema(), rows, "EXPLAIN");
            }
            Bound::Query(_) | Bound::Dml(_) | Bound::ExplainQuery(_) | Bound::Session(_) => {
                return Err(super::rows::internal("a statement was bound to what it is not"));
            }
        };
        for notice in notices {
            self.notice(Notice::info(notice));
        }
        Ok(Outcome::Done(tag))
    }

    /// COMMIT PREPARED, ROLLBACK PREPARED: of a sink's transaction, in its target.
    pub(super) async fn finish_prepared(
        &mut self,
        transaction: &str,
        commit: bool,
    ) -> Result<Outcome, SessionError> {
        let tag = if commit { "COMMIT PREPARED" } else { "ROLLBACK PREPARED" };
        if self.transaction.is_explicit() {
            let message = format!("{tag} cannot run inside a transaction block");
            return Err(SessionError::new(SqlState::ACTIVE_SQL_TRANSACTION, message));
        }
        self.end_implicit().await?;
        let db = self.db().clone();
        self.limits.run(db.finish_transaction(transaction, commit)).await?;
        Ok(Outcome::Done(tag.to_owned()))
    }

    /// ALTER SINK … RESUME.
    pub(super) fn resume_sink(&mut self, parsed: &Parsed) -> Result<Outcome, SessionError> {
        let context = self.bind_context(Vec::new());
        let Bound::Session(Statement::ResumeSink { name, at_least_once }) = bind(parsed, &context)? else {
            return Err(super::rows::internal("ALTER SINK was bound to something else"));
        };
        if let Some(sink) = context.catalog.get(&name) {
            self.db().resume_sink(sink, at_least_once)?;
        }
        Ok(Outcome::Done("ALTER SINK".to_owned()))
    }

    /// EXPLAIN.
    pub(super) async fn explain(&mut self, parsed: &Parsed) -> Result<Outcome, SessionError> {
        let text = match bind(parsed, &self.bind_context(Vec::new()))? {
            Bound::Explain(text) => text,
            Bound::ExplainJob(text) => format!("{text}\nParallelism {}", self.db().parallelism()),
            Bound::ExplainQuery(plan) => self.explain_query(plan).await?,
            _ => return Err(super::rows::internal("EXPLAIN was bound to something else")),
        };
        let rows = text.lines().map(|line| vec![Some(line.to_owned())]).collect();
        text_rows(explain_schema(), rows, "EXPLAIN")
    }

    fn is_background(&self) -> bool {
        self.settings.value("background_ddl", &self.database_settings()) == "on"
    }

    /// Starts a CREATE; returns when the catalog has the object.
    async fn create_in_background(&mut self, create: Create) -> Result<(), SessionError> {
        let db = self.db().clone();
        let filling = self.limits.run(db.create_in_background(create)).await?;
        let guard = self.manager.start_background();
        tokio::spawn(async move {
            let _guard = guard;
            // How it ends is in the log and in the catalog.
            let _ = filling.await;
        });
        Ok(())
    }
}

/// Whether an error tells of what the catalog has or lacks: names, dependencies, states of objects. What else
/// a statement fails of, once it is logged, is no other session's doing, though the catalog has changed by it.
fn is_of_catalog(error: &SessionError) -> bool {
    let SqlState(state) = error.fault().state;
    ["42", "55", "2B"].iter().any(|class| state.starts_with(class))
}

/// Whether another session's DDL came between binding and now.
fn raced(db: &Database, version: u64) -> bool {
    db.catalog().version != version
}

/// A setting's value as SHOW prints it; the binder doesn't know the settings.
fn checked(change: CatalogChange) -> Result<CatalogChange, SessionError> {
    Ok(match change {
        CatalogChange::Set(name, Some(value)) => {
            let (spec, value) = check_database(&name, &value)?;
            CatalogChange::Set(spec.name.to_owned(), Some(value))
        }
        CatalogChange::Set(name, None) => {
            CatalogChange::Set(crate::config::find(&name)?.name.to_owned(), None)
        }
        other => other,
    })
}
