//! SELECT: a plan over one visible epoch, streamed.

use super::prepared::Plan;
use super::rows::internal;
use super::transaction::{Block, Transaction, View};
use super::{CommandTag, Outcome, ResultRows, Session, SessionError};
use crate::serve::snapshot::{ReadPoint, reads_state};
use crate::serve::{QueryOptions, ServeError};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{FieldRef, SchemaRef};
use datafusion::common::{ParamValues, ScalarValue};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::LogicalPlan;
use futures::StreamExt;
use weir_catalog::SqlState;
use weir_sql::functions::cast::cast_column;

impl Session {
    /// Runs a SELECT; its rows come as the client reads them, who keeps to the statement's limits:
    /// a portal that is read in several steps has new ones at each.
    pub(super) async fn select(
        &mut self,
        plan: LogicalPlan,
        schema: SchemaRef,
        parameters: &[ScalarValue],
    ) -> Result<Outcome, SessionError> {
        let view = self.reading_view(&plan).await?;
        let stream = self.start_query(plan, parameters, view).await?;
        let stream = stream.map(|batch| batch.map_err(|error| ServeError::from(error).into()));
        Ok(Outcome::Rows(ResultRows { schema, stream: stream.boxed(), tag: CommandTag::counted("SELECT") }))
    }

    /// Starts a plan, over `view` or else the newest visible epoch.
    pub(super) async fn start_query(
        &self,
        plan: LogicalPlan,
        parameters: &[ScalarValue],
        view: Option<View>,
    ) -> Result<SendableRecordBatchStream, SessionError> {
        let params = (!parameters.is_empty()).then(|| ParamValues::from(parameters.to_vec()));
        let (at, pending) = view.map(|view| (view.at, view.pending)).unzip();
        let options = QueryOptions {
            at,
            params,
            overlay: pending.map(|pending| pending as _),
            timeout: None,
            cancel: self.limits.token().clone(),
            memory_limit: Some(self.settings.query_memory(&self.database_settings())),
            session: self.info(Vec::new()),
        };
        self.limits.run(self.serve().execute(plan, options)).await
    }

    /// What this session's SELECT has to see: its own acknowledged DML, and within a block what
    /// the block wrote. What a system table says needs none of that, and is wanted most where it can't
    /// be had.
    async fn reading_view(&mut self, plan: &LogicalPlan) -> Result<Option<View>, SessionError> {
        let db = self.db().clone();
        if !reads_state(plan) && self.is_read_committed() {
            return Ok(None);
        }
        if self.last_dml > db.visible().dml_position {
            self.limits.run(db.wait_visible(self.last_dml)).await?;
        }
        self.fix_snapshot()?;
        match &self.transaction {
            Transaction::Open(Block { snapshot: Some(at), writes, .. }) => {
                Ok(Some(View::of_snapshot(at, writes)))
            }
            Transaction::Open(block) if !block.writes.is_empty() => {
                Ok(Some(self.limits.run(View::newest(&db, &block.writes)).await?))
            }
            _ => Ok(None),
        }
    }

    /// What a block above READ COMMITTED reads is fixed by its first statement.
    pub(super) fn fix_snapshot(&mut self) -> Result<(), SessionError> {
        if self.is_read_committed() {
            return Ok(());
        }
        let catalog = self.db().catalog();
        let now = ReadPoint { catalog, visible: self.db().readable()? };
        if let Transaction::Open(block) = &mut self.transaction
            && block.explicit
        {
            block.snapshot.get_or_insert(now);
        }
        Ok(())
    }

    /// Runs a plan to its end. The rows are held here, so they are bounded by the query's memory.
    pub(super) async fn collect(
        &self,
        plan: LogicalPlan,
        parameters: &[ScalarValue],
        view: Option<View>,
    ) -> Result<Vec<RecordBatch>, SessionError> {
        let mut stream = self.start_query(plan, parameters, view).await?;
        let bytes_max = self.settings.query_memory(&self.database_settings());
        let work = async {
            let (mut batches, mut bytes) = (Vec::new(), 0);
            while let Some(batch) = stream.next().await {
                let batch = batch.map_err(ServeError::from)?;
                bytes += batch.get_array_memory_size();
                if bytes > bytes_max {
                    let detail = format!("The statement's rows take more than {bytes_max} bytes.");
                    return Err(SessionError::new(SqlState::OUT_OF_MEMORY, "out of memory")
                        .detail(detail)
                        .hint("Write fewer rows with one statement, or raise query.memory_limit."));
                }
                batches.push(batch);
            }
            Ok(batches)
        };
        self.limits.run(work).await
    }

    /// How a query is run, of the rows of its explanation: what it reads and how, below what is done.
    pub(super) async fn explain_query(&mut self, plan: LogicalPlan) -> Result<String, SessionError> {
        let view = self.reading_view(&plan).await?;
        let batches = self.collect(plan, &[], view).await?;
        // The last row: the physical plan, as it is or with what was measured.
        let text = batches.last().and_then(|batch| {
            let plans = batch.column(1).as_string_opt::<i32>()?;
            Some(plans.value(plans.len().checked_sub(1)?).to_owned())
        });
        text.ok_or_else(|| internal("a plan was explained by nothing"))
    }

    /// The values of a SELECT of one row, cast to `types`.
    pub(super) async fn evaluate(
        &mut self,
        select: &str,
        wanted: &[FieldRef],
    ) -> Result<Vec<ScalarValue>, SessionError> {
        let parsed = self.parse(select)?.pop().ok_or_else(|| internal("a SELECT parsed to nothing"))?;
        let Plan::Query(plan) = self.prepare(parsed, Vec::new())?.plan else {
            return Err(internal("a SELECT was bound to something else"));
        };
        let batches = self.collect(plan, &[], None).await?;
        let Some(row) = batches.iter().find(|batch| batch.num_rows() > 0) else {
            return Err(internal("a SELECT without FROM gave no row"));
        };
        let value = |(column, wanted): (&ArrayRef, &FieldRef)| {
            ScalarValue::try_from_array(&cast_column(&column.slice(0, 1), wanted)?, 0)
        };
        let values = row.columns().iter().zip(wanted).map(value).collect::<Result<Vec<_>, _>>();
        Ok(values.map_err(ServeError::from)?)
    }
}
