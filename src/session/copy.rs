//! COPY: a query's rows for lines that go out; lines that come in as rows of an INSERT. All lines
//! of a COPY are one transaction.
//!
//! Values are read column by column, as casts from text read them; columns that lines don't have
//! get their defaults.

use super::input::parse_column;
use super::prepared::Plan;
use super::rows::internal;
use super::transaction::Input;
use super::{Outcome, Session, SessionError};
use arrow::array::{ArrayRef, RecordBatch, StringArray, new_null_array};
use arrow::compute::concat_batches;
use arrow::datatypes::FieldRef;
use datafusion::common::ScalarValue;
use std::sync::Arc;
use weir_catalog::column::arrow_schema;
use weir_catalog::name::quote_identifier;
use weir_catalog::{Column, ObjectName, SqlState};
use weir_sql::binder::Dml;
use weir_sql::parser::statement::{Copy, CopyOptions, CopyWhat};

/// A COPY FROM STDIN on its way.
pub struct CopyIn {
    /// How lines are written.
    pub options: CopyOptions,
    /// The columns that each line has.
    pub columns: Vec<String>,

    /// The INSERT that it is.
    dml: Arc<Dml>,
    table: Vec<Column>,
    alone: bool,
    rows: Vec<RecordBatch>,
    bytes: usize,
}

impl CopyIn {
    /// The copied columns, in the order of the lines' values.
    pub fn fields(&self) -> Vec<FieldRef> {
        let field = |name: &String| {
            let column = self.table.iter().find(|column| column.name == *name);
            column.map(|column| Arc::new(column.field().with_nullable(true)))
        };
        self.columns.iter().filter_map(field).collect()
    }
}

impl Session {
    /// Starts a COPY.
    pub(super) async fn copy(&mut self, copy: &Copy, alone: bool) -> Result<Outcome, SessionError> {
        match &copy.what {
            CopyWhat::Out { query } => {
                let Plan::Query(plan) = self.plan_text(query)? else {
                    return Err(internal("the query of a COPY was bound to something else"));
                };
                let schema = Arc::clone(plan.schema().inner());
                match self.select(plan, schema, &[]).await? {
                    Outcome::Rows(rows) => Ok(Outcome::CopyOut(rows, copy.options.clone())),
                    _ => Err(internal("a SELECT gave no rows")),
                }
            }
            CopyWhat::In { relation, columns } => self.start_copy_in(copy, relation, columns, alone),
        }
    }

    /// Binds an INSERT of one row of NULLs: it tells the table, and what is wrong with the columns.
    fn start_copy_in(
        &self,
        copy: &Copy,
        relation: &ObjectName,
        columns: &[String],
        alone: bool,
    ) -> Result<Outcome, SessionError> {
        let context = self.bind_context(Vec::new());
        let object = context.resolve(relation).ok_or_else(|| {
            let message = format!("relation \"{}\" does not exist", relation.name);
            SessionError::new(SqlState::UNDEFINED_TABLE, message)
        })?;
        let columns = match columns {
            [] => object.columns().iter().map(|column| column.name.clone()).collect(),
            some => some.to_vec(),
        };
        let quoted: Vec<String> = columns.iter().map(|column| quote_identifier(column)).collect();
        let nulls = vec!["NULL"; columns.len()].join(", ");
        let (schema, name) = (quote_identifier(&object.name.schema), quote_identifier(&object.name.name));
        let insert = format!("INSERT INTO {schema}.{name} ({}) VALUES ({nulls})", quoted.join(", "));
        let Plan::Dml(dml) = self.plan_text(&insert)? else {
            return Err(internal("an INSERT was bound to something else"));
        };
        Ok(Outcome::CopyIn(Box::new(CopyIn {
            options: copy.options.clone(),
            columns,
            dml,
            table: object.columns().to_vec(),
            alone,
            rows: Vec::new(),
            bytes: 0,
        })))
    }

    /// Plans a statement of our own making, or a part of the client's: positions mean nothing.
    fn plan_text(&self, sql: &str) -> Result<Plan, SessionError> {
        let parsed = self.parse(sql)?.pop().ok_or_else(|| internal("a statement parsed to nothing"))?;
        Ok(self.prepare(parsed, Vec::new()).map_err(SessionError::without_position)?.plan)
    }

    /// Takes lines' values, as many in each line as there are columns; `None` is NULL.
    pub async fn copy_rows(
        &mut self,
        copy: &mut CopyIn,
        lines: &[Vec<Option<String>>],
    ) -> Result<(), SessionError> {
        let column = |(place, field): (usize, FieldRef)| {
            let texts: StringArray = lines.iter().map(|line| line[place].as_deref()).collect();
            parse_column(&field, texts)
        };
        let arrays = copy.fields().into_iter().enumerate().map(column).collect::<Result<Vec<_>, _>>()?;
        self.copy_columns(copy, &arrays, lines.len()).await
    }

    /// Takes rows of values of the columns' types.
    pub async fn copy_values(
        &mut self,
        copy: &mut CopyIn,
        rows: &[Vec<ScalarValue>],
    ) -> Result<(), SessionError> {
        let column = |place: usize| ScalarValue::iter_to_array(rows.iter().map(|row| row[place].clone()));
        let arrays = (0..copy.columns.len()).map(column).collect::<Result<Vec<_>, _>>();
        let arrays = arrays.map_err(crate::serve::ServeError::from)?;
        self.copy_columns(copy, &arrays, rows.len()).await
    }

    /// Takes `count` rows of the copied columns; the others get their defaults.
    async fn copy_columns(
        &mut self,
        copy: &mut CopyIn,
        copied: &[ArrayRef],
        count: usize,
    ) -> Result<(), SessionError> {
        let schema = arrow_schema(
            &copy.table.iter().map(|c| Column { nullable: true, ..c.clone() }).collect::<Vec<_>>(),
        );
        let mut arrays: Vec<Option<ArrayRef>> = vec![None; copy.table.len()];
        let mut missing = Vec::new();
        for (ordinal, column) in copy.table.iter().enumerate() {
            match copy.columns.iter().position(|name| *name == column.name) {
                Some(place) => arrays[ordinal] = Some(Arc::clone(&copied[place])),
                None if column.default.is_some() => missing.push((ordinal, column)),
                None => arrays[ordinal] = Some(new_null_array(&column.data_type, count)),
            }
        }
        if !missing.is_empty() {
            let defaults = self.defaults(&missing, count).await?;
            for ((ordinal, _), array) in missing.iter().zip(defaults.columns()) {
                arrays[*ordinal] = Some(Arc::clone(array));
            }
        }
        let rows = RecordBatch::try_new(schema, arrays.into_iter().flatten().collect()).map_err(internal)?;
        copy.bytes += rows.get_array_memory_size();
        let bytes_max = self.settings.query_memory(&self.database_settings());
        if copy.bytes > bytes_max {
            return Err(SessionError::new(SqlState::OUT_OF_MEMORY, "out of memory")
                .detail(format!("The lines of one COPY take more than {bytes_max} bytes."))
                .hint("Copy in several pieces, or raise query.memory_limit."));
        }
        copy.rows.push(rows);
        Ok(())
    }

    /// The defaults of columns, each evaluated `rows` times.
    async fn defaults(&self, columns: &[(usize, &Column)], rows: usize) -> Result<RecordBatch, SessionError> {
        let expression = |(_, column): &(usize, &Column)| {
            format!("({})::{}", column.default.as_deref().unwrap_or("NULL"), column.sql_type)
        };
        let list: Vec<String> = columns.iter().map(expression).collect();
        let values = vec!["(1)"; rows].join(", ");
        let select = format!("SELECT {} FROM (VALUES {values}) AS line (n)", list.join(", "));
        let Plan::Query(plan) = self.plan_text(&select)? else {
            return Err(internal("a SELECT was bound to something else"));
        };
        let schema = Arc::clone(plan.schema().inner());
        let batches = self.collect(plan, &[], None).await?;
        concat_batches(&schema, &batches).map_err(internal)
    }

    /// All lines are here: writes them. Returns the command tag.
    pub async fn copy_done(&mut self, copy: CopyIn) -> Result<String, SessionError> {
        let changes = self.write(&copy.dml, Input::Rows(copy.rows), copy.alone).await?;
        Ok(format!("COPY {}", changes.returned.num_rows()))
    }
}
