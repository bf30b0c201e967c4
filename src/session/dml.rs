//! INSERT, UPDATE, DELETE: exact changes over the newest rows, checked, logged, acknowledged.
//!
//! ```text
//!   alone     lock ─ latest rows ─ changes ─ queued ─ unlock ─ durable (fsync) ─ acknowledged
//!             (an INSERT finds its rows before; without a key it takes no lock at all)
//!   in block          newest rows ─ changes ─ kept │ COMMIT: lock ─ checked again ─ queued ─ unlock ─ durable
//! ```
//! The lock is not held over the fsync: the next statement is checked against what is queued, and
//! many sessions' records share one. What a statement found in rows that were not durable yet, an
//! error or nothing to do included, is told when they are. Once a record is queued it is not
//! cancelled: nobody could tell whether it happened.

use super::changes::{Changes, Target};
use super::current::CurrentRows;
use super::prepared::returning_schema;
use super::rows::{internal, one_batch};
use super::transaction::{Block, Done, Input, Transaction, View};
use super::{CommandTag, Outcome, Session, SessionError};
use crate::dml::log::{Appending, Basis};
use crate::state::key::EncodedKeys;
use crate::stream::ChangeBatch;
use arrow::array::{Array, RecordBatch, RecordBatchOptions};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::SchemaRef;
use datafusion::common::ScalarValue;
use std::sync::Arc;
use weir_catalog::{ObjectId, SqlState};
use weir_sql::binder::{Dml, DmlKind};
use weir_sql::parser::statement::Statement;

impl Session {
    /// Runs a DML statement.
    pub(super) async fn dml(
        &mut self,
        dml: &Arc<Dml>,
        statement: &Statement,
        parameters: &[ScalarValue],
        alone: bool,
    ) -> Result<Outcome, SessionError> {
        let changes = self.write(dml, Input::Plan(parameters.to_vec()), alone).await?;
        acknowledge(dml, statement, &changes)
    }

    /// Does what a statement does to its table: logged at once, or kept in the block.
    pub(super) async fn write(
        &mut self,
        dml: &Arc<Dml>,
        input: Input,
        alone: bool,
    ) -> Result<Changes, SessionError> {
        if alone && matches!(self.transaction, Transaction::Idle) {
            return self.write_alone(dml, input).await;
        }
        if matches!(self.transaction, Transaction::Idle) {
            self.transaction = Transaction::Open(Block::new(false, &self.settings));
        }
        if self.last_dml > self.db().visible().dml_position && !self.is_read_committed() {
            let db = self.db().clone();
            self.limits.run(db.wait_visible(self.last_dml)).await?;
        }
        self.fix_snapshot()?;
        let own = self.transaction.writes();
        let view = match self.transaction.snapshot() {
            Some(at) => View::of_snapshot(at, own),
            None => self.limits.run(View::newest(self.db(), own)).await?,
        };
        let restored = view.at.catalog.restored;
        let changes = self.compute(dml, &input, view).await?;
        if let Transaction::Open(block) = &mut self.transaction {
            block.restored.get_or_insert(restored);
            if !changes.batch.is_empty() {
                block.writes.push((dml.table, changes.batch.clone()));
            }
            let returned = dml.returning.is_some().then(|| changes.returned.clone());
            block.done.push(Done {
                dml: Arc::clone(dml),
                input,
                rows: changes.returned.num_rows(),
                returned,
            });
        }
        Ok(changes)
    }

    /// A statement that is a transaction of its own.
    async fn write_alone(&mut self, dml: &Arc<Dml>, mut input: Input) -> Result<Changes, SessionError> {
        let db = self.db().clone();
        if matches!(dml.kind, DmlKind::Insert(_)) {
            // An INSERT's rows are those of the statement's start, as in PostgreSQL.
            let view = self.limits.run(View::newest(&db, &[])).await?;
            if let Input::Plan(parameters) = &input {
                input = Input::Rows(self.collect(dml.input.clone(), parameters, Some(view.clone())).await?);
            }
            if !self.target(dml.table)?.is_keyed() {
                let restored = view.at.catalog.restored;
                let changes = self.compute(dml, &input, view).await?;
                let queued = self.queue(vec![(dml.table, changes.batch.clone())], None, restored)?;
                self.wait_durable(queued, None).await?;
                return Ok(changes);
            }
        }
        let guard = self.limits.run(async { Ok::<_, SessionError>(db.dml_lock().lock().await) }).await?;
        let (view, basis) = self.limits.run(View::latest(&db, &[])).await?;
        let restored = view.at.catalog.restored;
        let changes = self.compute(dml, &input, view).await;
        let queued = match &changes {
            Ok(changes) => self.queue(vec![(dml.table, changes.batch.clone())], Some(basis), restored)?,
            Err(_) => None,
        };
        drop(guard);
        self.wait_durable(queued, Some(basis)).await?;
        changes
    }

    /// What the statement changes, over what `view` shows.
    pub(super) async fn compute(
        &self,
        dml: &Dml,
        input: &Input,
        view: View,
    ) -> Result<Changes, SessionError> {
        let target = self.target(dml.table)?;
        let input = match input {
            Input::Plan(parameters) => {
                self.collect(dml.input.clone(), parameters, Some(view.clone())).await?
            }
            Input::Rows(rows) => rows.clone(),
        };
        let arity = target.schema().fields().len();
        match dml.kind {
            DmlKind::Insert(on_conflict) => {
                let rows = rows_of(target.schema(), &input, 0)?;
                let current = self.current(&target, view, &rows).await?;
                target.insert(rows, &current, on_conflict)
            }
            DmlKind::Update => {
                let old = rows_of(target.schema(), &input, 0)?;
                let new = rows_of(target.schema(), &input, arity)?;
                let current = self.current(&target, view, &new).await?;
                target.update(old, new, &current)
            }
            DmlKind::Delete => target.delete(rows_of(target.schema(), &input, 0)?),
        }
    }

    /// The table of this id, as it is now.
    pub(super) fn target(&self, table: ObjectId) -> Result<Target, SessionError> {
        let catalog = self.db().catalog();
        catalog.by_id(table).and_then(|object| Target::of(object)).ok_or_else(|| {
            SessionError::new(SqlState::UNDEFINED_TABLE, "the table was dropped while it was written")
        })
    }

    /// The current rows of the keys of `rows`; a table without a key needs none.
    async fn current(
        &self,
        target: &Target,
        view: View,
        rows: &RecordBatch,
    ) -> Result<CurrentRows, SessionError> {
        if !target.is_keyed() || rows.num_rows() == 0 {
            return Ok(CurrentRows::none(target));
        }
        self.read_current(target, view, target.keys(rows)).await
    }

    pub(super) async fn read_current(
        &self,
        target: &Target,
        view: View,
        keys: EncodedKeys,
    ) -> Result<CurrentRows, SessionError> {
        let target = target.clone();
        let reading = tokio::task::spawn_blocking(move || CurrentRows::read(&target, &view, &keys));
        self.limits.run(async { reading.await.map_err(internal)? }).await
    }

    /// Queues one transaction, which was checked against what `basis` says (hold the DML lock then) and computed
    /// after the RESTORE of this number: what comes later is another database.
    pub(super) fn queue(
        &self,
        changes: Vec<(ObjectId, ChangeBatch)>,
        basis: Option<Basis>,
        restored: u64,
    ) -> Result<Option<Appending>, SessionError> {
        self.require_same_database(restored)?;
        self.db().dml().begin(changes, basis).map_err(|e| match e.kind() {
            std::io::ErrorKind::ResourceBusy => self.db().write_refused().into(),
            _ => log_failed(&e),
        })
    }

    /// An error if there was a RESTORE after that of this number.
    pub(super) fn require_same_database(&self, restored: u64) -> Result<(), SessionError> {
        if self.db().catalog().restored == restored {
            return Ok(());
        }
        let message = "a savepoint was put in the place of the database while the transaction ran";
        Err(SessionError::new(SqlState("40001"), message).hint("Run the transaction again."))
    }

    /// Returns when what was queued is durable, and all that it was checked against.
    pub(super) async fn wait_durable(
        &mut self,
        queued: Option<Appending>,
        basis: Option<Basis>,
    ) -> Result<(), SessionError> {
        match (queued, basis) {
            // The log is in order: what is before it is durable, too.
            (Some(queued), _) => self.last_dml = queued.durable().await.map_err(|e| log_failed(&e))?,
            (None, Some(basis)) => self.db().dml().wait_durable(basis).await.map_err(|e| log_failed(&e))?,
            (None, None) => {}
        }
        Ok(())
    }
}

fn log_failed(error: &std::io::Error) -> SessionError {
    tracing::error!(%error, "DML log could not be written");
    let full = error.kind() == std::io::ErrorKind::StorageFull;
    let state = if full { SqlState::DISK_FULL } else { SqlState::IO_ERROR };
    SessionError::new(state, format!("could not write the DML log: {error}"))
}

/// The columns of `batches` from `first` on, as rows of a table.
fn rows_of(schema: &SchemaRef, batches: &[RecordBatch], first: usize) -> Result<RecordBatch, SessionError> {
    let rows = |batch: &RecordBatch| {
        let column = |(i, field): (usize, &Arc<arrow::datatypes::Field>)| {
            let array = batch.column(first + i);
            match array.data_type() == field.data_type() {
                true => Ok(Arc::clone(array)),
                false => cast(array, field.data_type()),
            }
        };
        let columns = schema.fields().iter().enumerate().map(column).collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        // NULLs where the table has none are reported in PostgreSQL's words, later.
        RecordBatch::try_new_with_options(nullable(schema), columns, &options)
    };
    let batches = batches.iter().map(rows).collect::<Result<Vec<_>, _>>().map_err(internal)?;
    concat_batches(&nullable(schema), &batches).map_err(internal)
}

fn nullable(schema: &SchemaRef) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    Arc::new(arrow::datatypes::Schema::new(fields.collect::<Vec<_>>()))
}

/// The command tag, and the rows of RETURNING.
fn acknowledge(dml: &Dml, statement: &Statement, changes: &Changes) -> Result<Outcome, SessionError> {
    let verb = match (statement, dml.kind) {
        (Statement::Truncate(_), _) => return Ok(Outcome::Done("TRUNCATE TABLE".to_owned())),
        (_, DmlKind::Insert(_)) => "INSERT 0",
        (_, DmlKind::Update) => "UPDATE",
        (_, DmlKind::Delete) => "DELETE",
    };
    let tag = CommandTag::counted(verb);
    let rows = changes.returned.num_rows();
    let (Some(schema), Some(returning)) = (returning_schema(dml), &dml.returning) else {
        return Ok(Outcome::Done(tag.after(rows as u64)));
    };
    let column = |expr: &Arc<dyn datafusion::physical_expr::PhysicalExpr>| {
        expr.evaluate(&changes.returned)?.into_array(rows)
    };
    let columns = returning.iter().map(|(expr, _)| column(expr)).collect::<Result<Vec<_>, _>>();
    let columns = columns.map_err(crate::serve::ServeError::from)?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(nullable(&schema), columns, &options).map_err(internal)?;
    Ok(Outcome::Rows(one_batch(schema, batch, tag)))
}
