//! From a statement to its handler, within the session's transaction.

use super::copy::CopyIn;
use super::prepared::{Plan, Prepared};
use super::rows::internal;
use super::transaction::Transaction;
use super::{Session, SessionError};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::ScalarValue;
use futures::stream::BoxStream;
use std::sync::Arc;
use weir_catalog::SqlState;
use weir_sql::binder::types::sql_type_to_arrow;
use weir_sql::binder::{Bound, bind};
use weir_sql::parser::parse;
use weir_sql::parser::statement::{CopyOptions, Parsed, Statement};

/// What a statement gives.
pub enum Outcome {
    /// Rows, then a command tag.
    Rows(ResultRows),
    /// A command tag.
    Done(String),
    /// Rows that go out as lines: COPY TO STDOUT.
    CopyOut(ResultRows, CopyOptions),
    /// The client's lines become rows: COPY FROM STDIN.
    CopyIn(Box<CopyIn>),
}

/// Rows on their way.
pub struct ResultRows {
    /// Their columns.
    pub schema: SchemaRef,
    /// The rows. An error ends them, and fails the statement.
    pub stream: BoxStream<'static, Result<RecordBatch, SessionError>>,
    /// What is said after the last one.
    pub tag: CommandTag,
}

/// The tag of a statement that returns rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandTag {
    verb: String,
    counted: bool,
}

impl CommandTag {
    /// `SELECT n`, `UPDATE n`.
    pub fn counted(verb: &str) -> Self {
        Self { verb: verb.to_owned(), counted: true }
    }

    /// `SHOW`.
    pub fn plain(tag: &str) -> Self {
        Self { verb: tag.to_owned(), counted: false }
    }

    /// The tag after `rows` rows.
    pub fn after(&self, rows: u64) -> String {
        if self.counted { format!("{} {rows}", self.verb) } else { self.verb.clone() }
    }
}

impl Session {
    /// Parses what a client sent: every statement of it, before any of them runs.
    pub fn parse(&self, sql: &str) -> Result<Vec<Parsed>, SessionError> {
        let mut all = parse(sql)?;
        all.iter_mut().for_each(crate::serve::pg_rewrite::adapt);
        Ok(all)
    }

    /// Runs a statement without parameters. `alone`: it is all that its client sent, so that it is
    /// a transaction of its own.
    pub async fn run(&mut self, parsed: &Parsed, alone: bool) -> Result<Outcome, SessionError> {
        let prepared = self.prepare(parsed.clone(), Vec::new())?;
        if !prepared.parameters.is_empty() {
            return Err(SessionError::new(SqlState("42P02"), "there is no parameter $1"));
        }
        self.execute_prepared(&Arc::new(prepared), &[], alone).await
    }

    /// Runs a prepared statement with values of the types of its parameters.
    pub async fn execute(
        &mut self,
        prepared: &Arc<Prepared>,
        parameters: &[ScalarValue],
        alone: bool,
    ) -> Result<Outcome, SessionError> {
        self.refuse_in_failed(&prepared.parsed.statement)?;
        let prepared = self.refresh(prepared)?;
        self.execute_prepared(&prepared, parameters, alone).await
    }

    pub(super) async fn execute_prepared(
        &mut self,
        prepared: &Arc<Prepared>,
        parameters: &[ScalarValue],
        alone: bool,
    ) -> Result<Outcome, SessionError> {
        crate::telemetry::METRICS.statements.inc();
        self.note_statement(&prepared.parsed.text);
        self.refuse_in_read_only(&prepared.parsed.statement)?;
        match (&prepared.plan, &prepared.parsed.statement) {
            (Plan::Query(plan), Statement::Declare(declare)) => {
                self.declare(declare, plan.clone(), parameters).await
            }
            (Plan::Query(plan), _) => {
                let schema = prepared.columns.clone().unwrap_or_else(|| Arc::clone(plan.schema().inner()));
                self.select(plan.clone(), schema, parameters).await
            }
            (Plan::Dml(dml), _) => self.dml(dml, &prepared.parsed.statement, parameters, alone).await,
            (Plan::Late, _) => self.dispatch(&prepared.parsed, alone).await,
        }
    }

    /// What is bound when it runs: DDL, and what the session does itself.
    async fn dispatch(&mut self, parsed: &Parsed, alone: bool) -> Result<Outcome, SessionError> {
        match &parsed.statement {
            Statement::Show(_) | Statement::Describe(_) => {
                // The binder finds the names in them.
                match bind(parsed, &self.bind_context(Vec::new()))? {
                    Bound::Session(Statement::Show(target)) => self.show(&target),
                    Bound::Session(Statement::Describe(name)) => self.describe(&name),
                    _ => Err(internal("SHOW was bound to something else")),
                }
            }
            Statement::Copy(copy) => self.copy(copy, alone).await,
            Statement::Explain { .. } => self.explain(parsed).await,
            Statement::Set { name, value, local } => self.set(name, value.as_deref(), *local),
            Statement::SetTransaction(modes) => self.set_transaction(modes),
            Statement::ResetAll => self.reset_all(),
            Statement::Discard(what) => self.discard(what),
            Statement::Unlisten => Ok(Outcome::Done("UNLISTEN".to_owned())),
            Statement::Begin(modes) => self.begin(modes),
            Statement::Commit => self.commit().await,
            Statement::Rollback => self.rollback(),
            Statement::Savepoint(name) => self.savepoint(name),
            Statement::Release(name) => self.release(name),
            Statement::RollbackTo(name) => self.rollback_to(name),
            Statement::Fetch { name, place, rows } => self.fetch(name, *place, *rows).await,
            Statement::Close(name) => self.close_cursor(name.as_deref()),
            Statement::Prepare { name, statement, types } => {
                let types = types.iter().map(|t| sql_type_to_arrow(t).map(Some)).collect::<Result<_, _>>()?;
                let prepared = self.prepare((**statement).clone(), types);
                let prepared = prepared.map_err(|error| error.shifted(parsed.offset))?;
                self.store(name, prepared)?;
                Ok(Outcome::Done("PREPARE".to_owned()))
            }
            Statement::Execute { name, arguments } => {
                let prepared = self.prepared(name)?;
                let prepared = self.refresh(&prepared)?;
                let values = self.arguments(name, &prepared, arguments).await?;
                Box::pin(self.execute_prepared(&prepared, &values, alone)).await
            }
            Statement::Deallocate(name) => self.deallocate(name.as_deref()),
            Statement::Flush => self.flush().await,
            Statement::Checkpoint => self.checkpoint().await,
            Statement::Wait => self.wait().await,
            Statement::Recover => self.recover().await,
            Statement::SavepointTo { url, stop } => self.savepoint_to(url, *stop).await,
            Statement::Restore { database, url, options } => {
                self.restore_database(database, url, *options).await
            }
            Statement::AlterDatabase { database, .. } => {
                self.refuse_other_database(database)?;
                self.ddl(parsed).await
            }
            Statement::ResumeSink { .. } => self.resume_sink(parsed),
            Statement::FinishPrepared { transaction, commit } => {
                self.finish_prepared(transaction, *commit).await
            }
            _ => self.ddl(parsed).await,
        }
    }

    pub(super) fn refuse_in_failed(&self, statement: &Statement) -> Result<(), SessionError> {
        let ends = matches!(statement, Statement::Commit | Statement::Rollback | Statement::RollbackTo(_));
        if matches!(self.transaction, Transaction::Failed(_)) && !ends {
            return Err(SessionError::in_failed_transaction());
        }
        Ok(())
    }

    /// Ends what several statements sent together were: their one transaction commits.
    pub async fn end_implicit(&mut self) -> Result<(), SessionError> {
        match &self.transaction {
            Transaction::Open(block) if !block.explicit => {
                let Transaction::Open(block) = std::mem::take(&mut self.transaction) else { return Ok(()) };
                self.commit_block(block).await
            }
            _ => Ok(()),
        }
    }

    /// A statement failed: the block that it was in has failed.
    pub fn fail(&mut self) {
        self.transaction = match std::mem::take(&mut self.transaction) {
            Transaction::Open(block) if block.explicit => Transaction::Failed(block),
            Transaction::Open(block) => {
                // The settings it began with were valid, so they can be set again.
                let _ = self.restore(block.settings);
                self.end_cursors(false);
                Transaction::Idle
            }
            other => other,
        };
    }

    fn deallocate(&mut self, name: Option<&str>) -> Result<Outcome, SessionError> {
        match name {
            Some(name) => {
                self.prepared(name)?;
                self.forget(name);
                Ok(Outcome::Done("DEALLOCATE".to_owned()))
            }
            None => {
                self.prepared.clear();
                Ok(Outcome::Done("DEALLOCATE ALL".to_owned()))
            }
        }
    }

    /// The arguments of EXECUTE as values: evaluated as a SELECT of them, each cast to its
    /// parameter's type.
    async fn arguments(
        &mut self,
        name: &str,
        prepared: &Prepared,
        arguments: &[sqlparser::ast::Expr],
    ) -> Result<Vec<ScalarValue>, SessionError> {
        let wanted = prepared.parameters.len();
        if arguments.len() != wanted {
            let message = format!("wrong number of parameters for prepared statement \"{name}\"");
            let detail = format!("Expected {wanted} parameters but got {}.", arguments.len());
            return Err(SessionError::new(SqlState::SYNTAX_ERROR, message).detail(detail));
        }
        if wanted == 0 {
            return Ok(Vec::new());
        }
        let list: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        self.evaluate(&format!("SELECT {}", list.join(", ")), &prepared.parameters).await
    }
}
