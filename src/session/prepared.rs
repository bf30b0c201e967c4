//! Prepared statements: a statement bound once and run many times, until the catalog changes.

use super::show::{explain_schema, show_schema};
use super::{Session, SessionError};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::logical_expr::LogicalPlan;
use std::collections::HashMap;
use std::sync::Arc;
use weir_catalog::SqlState;
use weir_sql::binder::{Bound, Dml, bind};
use weir_sql::parser::statement::{Parsed, Statement};

/// More parameters than the protocol can count are refused.
const PARAMETERS_MAX: usize = u16::MAX as usize;

/// A statement that is ready to run.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// What it says.
    pub parsed: Parsed,
    /// The types of `$1`, `$2`, …
    pub parameters: Vec<DataType>,
    /// The columns of its rows, if it returns any.
    pub columns: Option<SchemaRef>,

    pub(super) plan: Plan,
    declared: Vec<Option<DataType>>,
    /// The catalog and the search path that it was bound with.
    version: u64,
    search_path: Vec<String>,
}

/// What was bound.
#[derive(Clone, Debug)]
pub(super) enum Plan {
    /// A SELECT.
    Query(LogicalPlan),
    /// INSERT, UPDATE, DELETE.
    Dml(Arc<Dml>),
    /// What is bound when it runs: DDL, and what the session does itself.
    Late,
}

impl Session {
    /// Binds a statement whose parameters the client declares to be of these types.
    pub fn prepare(&self, parsed: Parsed, declared: Vec<Option<DataType>>) -> Result<Prepared, SessionError> {
        let context = self.bind_context(declared.clone());
        let (version, search_path) = (context.catalog.version, context.search_path.clone());
        let prepared = |plan, parameters, columns| Prepared {
            parsed: parsed.clone(),
            parameters,
            columns,
            plan,
            declared: declared.clone(),
            version,
            search_path,
        };
        if !is_planned(&parsed.statement) {
            let columns = self.late_columns(&parsed.statement)?;
            return Ok(prepared(Plan::Late, Vec::new(), columns));
        }
        let mut plan = plan_of(bind(&parsed, &context)?);
        let types = parameter_types(&plan, &declared)?;
        if types.iter().any(Option::is_none) || types.len() > declared.len() {
            // What nothing tells the type of is text, as in PostgreSQL; the result may depend on it.
            let types: Vec<_> = types.iter().map(|t| Some(t.clone().unwrap_or(DataType::Utf8))).collect();
            plan = plan_of(bind(&parsed, &self.bind_context(types))?);
        }
        let parameters = types.into_iter().map(|t| t.unwrap_or(DataType::Utf8)).collect();
        let columns = columns_of(&plan);
        Ok(prepared(plan, parameters, columns))
    }

    /// The statement bound anew, if what it was bound with has changed.
    pub(super) fn refresh(&self, prepared: &Arc<Prepared>) -> Result<Arc<Prepared>, SessionError> {
        let catalog = self.db().catalog();
        let same_path =
            prepared.search_path == self.settings.search_path(&self.user, &self.database_settings());
        if matches!(prepared.plan, Plan::Late) || (prepared.version == catalog.version && same_path) {
            return Ok(Arc::clone(prepared));
        }
        let again = self.prepare(prepared.parsed.clone(), prepared.declared.clone())?;
        let types = |columns: &Option<SchemaRef>| -> Option<Vec<(String, DataType)>> {
            let columns = columns.as_ref()?;
            Some(columns.fields().iter().map(|f| (f.name().clone(), f.data_type().clone())).collect())
        };
        if types(&again.columns) != types(&prepared.columns) || again.parameters != prepared.parameters {
            let message = "cached plan must not change result type";
            return Err(SessionError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        Ok(Arc::new(again))
    }

    /// Keeps a prepared statement under a name; the empty name may be taken again.
    pub fn store(&mut self, name: &str, prepared: Prepared) -> Result<(), SessionError> {
        if !name.is_empty() && self.prepared.contains_key(name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(SessionError::new(SqlState("42P05"), message));
        }
        self.prepared.insert(name.to_owned(), Arc::new(prepared));
        Ok(())
    }

    /// The prepared statement of this name, as its client sees it now.
    pub fn lookup(&self, name: &str) -> Result<Arc<Prepared>, SessionError> {
        self.prepared(name)
    }

    /// Forgets a prepared statement; none of that name is no error.
    pub fn forget(&mut self, name: &str) {
        self.prepared.remove(name);
    }

    /// The columns of what is bound late.
    fn late_columns(&self, statement: &Statement) -> Result<Option<SchemaRef>, SessionError> {
        Ok(match statement {
            Statement::Show(target) => Some(show_schema(target)),
            Statement::Describe(name) => {
                use weir_sql::parser::statement::ShowTarget;
                Some(show_schema(&ShowTarget::Columns(name.clone())))
            }
            Statement::Explain { .. } => Some(explain_schema()),
            Statement::Execute { name, .. } => self.prepared(name)?.columns.clone(),
            _ => None,
        })
    }
}

/// Whether the statement is bound when it is prepared.
fn is_planned(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::Query(_)
            | Statement::Insert(_)
            | Statement::Update(_)
            | Statement::Delete(_)
            | Statement::Truncate(_)
    )
}

fn plan_of(bound: Bound) -> Plan {
    match bound {
        Bound::Query(plan) => Plan::Query(plan),
        Bound::Dml(dml) => Plan::Dml(Arc::new(dml)),
        _ => Plan::Late,
    }
}

fn columns_of(plan: &Plan) -> Option<SchemaRef> {
    match plan {
        Plan::Query(plan) => Some(Arc::clone(plan.schema().inner())),
        Plan::Dml(dml) => returning_schema(dml),
        Plan::Late => None,
    }
}

/// The columns of RETURNING.
pub(super) fn returning_schema(dml: &Dml) -> Option<SchemaRef> {
    let returning = dml.returning.as_ref()?;
    Some(Arc::new(Schema::new(returning.iter().map(|(_, field)| field.clone()).collect::<Vec<Field>>())))
}

/// The types of `$1`, `$2`, …: as declared, else as the planner tells them, else unknown.
fn parameter_types(
    plan: &Plan,
    declared: &[Option<DataType>],
) -> Result<Vec<Option<DataType>>, SessionError> {
    let found = match plan {
        Plan::Query(plan) => plan.get_parameter_types(),
        Plan::Dml(dml) => dml.input.get_parameter_types(),
        Plan::Late => Ok(HashMap::new()),
    }
    .map_err(crate::serve::ServeError::from)?;
    let mut types = declared.to_vec();
    for (name, data_type) in found {
        let index = name.trim_start_matches('$').parse::<usize>().unwrap_or(0);
        if index == 0 || index > PARAMETERS_MAX {
            let message = format!("there is no parameter {name}");
            return Err(SessionError::new(SqlState("42P02"), message));
        }
        if types.len() < index {
            types.resize(index, None);
        }
        let slot = &mut types[index - 1];
        if slot.is_none() {
            *slot = data_type.filter(|t| *t != DataType::Null);
        }
    }
    Ok(types)
}
