//! COPY: a query's rows for lines that go out; for lines that come in an INSERT of their values as
//! text, so that casts, defaults and checks are INSERT's own. All lines are one transaction.

use super::prepared::Plan;
use super::rows::internal;
use super::transaction::Input;
use super::{Outcome, Session, SessionError};
use arrow::array::RecordBatch;
use std::fmt::Write;
use std::sync::Arc;
use weir_catalog::name::quote_identifier;
use weir_catalog::{ObjectName, SqlState};
use weir_sql::binder::Dml;
use weir_sql::parser::statement::{Copy, CopyOptions, CopyWhat};

/// A COPY FROM STDIN on its way.
pub struct CopyIn {
    /// How lines are written.
    pub options: CopyOptions,
    /// The columns that each line has.
    pub columns: Vec<String>,

    /// `INSERT INTO t (a, b) VALUES`.
    insert: String,
    alone: bool,
    /// The INSERT, from the first chunk on.
    dml: Option<Arc<Dml>>,
    rows: Vec<RecordBatch>,
    bytes: usize,
}

impl Session {
    /// Starts a COPY.
    pub(super) async fn copy(&mut self, copy: &Copy, alone: bool) -> Result<Outcome, SessionError> {
        match &copy.what {
            CopyWhat::Out { query } => {
                let parsed = self.parse(query)?.pop().ok_or_else(|| internal("COPY of nothing"))?;
                let prepared = self.prepare(parsed, Vec::new())?;
                let (Plan::Query(plan), Some(schema)) = (prepared.plan, prepared.columns) else {
                    return Err(internal("the query of a COPY was bound to something else"));
                };
                match self.select(plan, schema, &[]).await? {
                    Outcome::Rows(rows) => Ok(Outcome::CopyOut(rows, copy.options.clone())),
                    _ => Err(internal("a SELECT gave no rows")),
                }
            }
            CopyWhat::In { relation, columns } => {
                let columns = self.copied_columns(relation, columns)?;
                let schema = match relation.schema.as_str() {
                    "" => String::new(),
                    schema => format!("{}.", quote_identifier(schema)),
                };
                let list: Vec<String> = columns.iter().map(|column| quote_identifier(column)).collect();
                let name = quote_identifier(&relation.name);
                Ok(Outcome::CopyIn(Box::new(CopyIn {
                    options: copy.options.clone(),
                    insert: format!("INSERT INTO {schema}{name} ({}) VALUES ", list.join(", ")),
                    columns,
                    alone,
                    dml: None,
                    rows: Vec::new(),
                    bytes: 0,
                })))
            }
        }
    }

    /// The columns that lines have: as written, else the table's.
    fn copied_columns(&self, relation: &ObjectName, columns: &[String]) -> Result<Vec<String>, SessionError> {
        if !columns.is_empty() {
            return Ok(columns.to_vec());
        }
        let context = self.bind_context(Vec::new());
        let object = context.resolve(relation).ok_or_else(|| {
            let message = format!("relation \"{}\" does not exist", relation.name);
            SessionError::new(SqlState::UNDEFINED_TABLE, message)
        })?;
        Ok(object.columns().iter().map(|column| column.name.clone()).collect())
    }

    /// Takes lines' values, as many in each line as there are columns; `None` is NULL.
    pub async fn copy_rows(
        &mut self,
        copy: &mut CopyIn,
        lines: &[Vec<Option<String>>],
    ) -> Result<(), SessionError> {
        let mut sql = copy.insert.clone();
        for (i, line) in lines.iter().enumerate() {
            sql.push_str(if i == 0 { "(" } else { ", (" });
            for (j, value) in line.iter().enumerate() {
                let comma = if j == 0 { "" } else { ", " };
                // Writing to a String fails never.
                let _ = match value {
                    Some(text) => write!(sql, "{comma}'{}'", text.replace('\'', "''")),
                    None => write!(sql, "{comma}NULL"),
                };
            }
            sql.push(')');
        }
        let parsed = self.parse(&sql)?.pop().ok_or_else(|| internal("an INSERT parsed to nothing"))?;
        // Its position is in a text that the client has never seen.
        let Plan::Dml(dml) = self.prepare(parsed, Vec::new()).map_err(SessionError::without_position)?.plan
        else {
            return Err(internal("an INSERT was bound to something else"));
        };
        let rows = self.collect(dml.input.clone(), &[], None).await?;
        copy.bytes += rows.iter().map(RecordBatch::get_array_memory_size).sum::<usize>();
        let bytes_max = self.settings.query_memory(&self.database_settings());
        if copy.bytes > bytes_max {
            return Err(SessionError::new(SqlState::OUT_OF_MEMORY, "out of memory")
                .detail(format!("The lines of one COPY take more than {bytes_max} bytes."))
                .hint("Copy in several pieces, or raise query.memory_limit."));
        }
        copy.rows.extend(rows);
        copy.dml = Some(dml);
        Ok(())
    }

    /// All lines are here: writes them. Returns the command tag.
    pub async fn copy_done(&mut self, copy: CopyIn) -> Result<String, SessionError> {
        let Some(dml) = copy.dml else { return Ok("COPY 0".to_owned()) };
        let changes = self.write(&dml, Input::Rows(copy.rows), copy.alone).await?;
        Ok(format!("COPY {}", changes.returned.num_rows()))
    }
}
