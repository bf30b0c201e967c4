//! Prepared statements: a statement bound once and run many times, until the catalog changes.

use super::show::{explain_schema, show_schema};
use super::{Session, SessionError};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::logical_expr::LogicalPlan;
use sqlparser::ast;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use weir_catalog::SqlState;
use weir_sql::binder::types::sql_field;
use weir_sql::binder::{Bound, Dml, bind};
use weir_sql::parser::statement::{Parsed, Statement};

/// More parameters than the protocol can count are refused.
const PARAMETERS_MAX: usize = u16::MAX as usize;

/// A statement that is ready to run.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// What it says.
    pub parsed: Parsed,
    /// `$1`, `$2`, …: their types, and the SQL type where the field's metadata names one.
    pub parameters: Vec<FieldRef>,
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
        self.refuse_in_failed(&parsed.statement)?;
        if let Statement::Declare(declare) = &parsed.statement {
            // Its query's plan and parameters; rows come by FETCH.
            let query = self.prepare(declare.query.clone(), declared);
            let query = query.map_err(|error| error.shifted(parsed.offset))?;
            return Ok(Prepared { parsed, columns: None, ..query });
        }
        let casts = cast_parameters(&parsed.statement)?;
        let told = with_casts(&declared, &casts);
        let context =
            self.bind_context(told.iter().map(|field| Some(field.as_ref()?.data_type().clone())).collect());
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
        let types = parameter_types(&plan, told)?;
        let unknown = types.iter().any(Option::is_none);
        let text = || Arc::new(Field::new("text", DataType::Utf8, true));
        let parameters: Vec<FieldRef> = types.into_iter().map(|t| t.unwrap_or_else(text)).collect();
        if unknown {
            // What nothing tells the type of is text, as in PostgreSQL; the result may depend on it.
            let types = parameters.iter().map(|field| Some(field.data_type().clone())).collect();
            plan = plan_of(bind(&parsed, &self.bind_context(types))?);
        }
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
        let type_list =
            |fields: &[FieldRef]| fields.iter().map(|f| f.data_type().clone()).collect::<Vec<_>>();
        let types = |columns: &Option<SchemaRef>| -> Option<Vec<(String, DataType)>> {
            let columns = columns.as_ref()?;
            Some(columns.fields().iter().map(|f| (f.name().clone(), f.data_type().clone())).collect())
        };
        if types(&again.columns) != types(&prepared.columns)
            || type_list(&again.parameters) != type_list(&prepared.parameters)
        {
            let message = "cached plan must not change result type";
            return Err(SessionError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        Ok(Arc::new(again))
    }

    /// Whether it writes a table: whoever runs it says whether it is alone.
    pub fn writes(prepared: &Prepared) -> bool {
        matches!(prepared.plan, Plan::Dml(_))
            || matches!(prepared.parsed.statement, Statement::Execute { .. })
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
            Statement::Fetch { name, rows: true, .. } => Some(self.cursor_columns(name)?),
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

/// The parameters that stand in a cast, `$1::int`: the cast tells their type. They count from 1.
fn cast_parameters(statement: &Statement) -> Result<Vec<(usize, FieldRef)>, SessionError> {
    let mut found = Vec::new();
    let mut zero = false;
    let number = |expr: &ast::Expr| match expr {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::Placeholder(name) => name.trim_start_matches('$').parse::<usize>().ok(),
            _ => None,
        },
        _ => None,
    };
    let mut look = |expr: &ast::Expr| {
        zero |= number(expr) == Some(0);
        if let ast::Expr::Cast { expr, data_type, .. } = expr
            && let Some(index) = number(expr.as_ref())
            && let Ok(field) = sql_field("parameter", data_type)
        {
            found.push((index, Arc::new(field)));
        }
        ControlFlow::<()>::Continue(())
    };
    // The visitor never breaks.
    let _ = match statement {
        Statement::Query(query) => ast::visit_expressions(query.as_ref(), &mut look),
        Statement::Insert(insert) => ast::visit_expressions(insert.as_ref(), &mut look),
        Statement::Update(update) => ast::visit_expressions(update.as_ref(), &mut look),
        Statement::Delete(delete) => ast::visit_expressions(delete.as_ref(), &mut look),
        _ => ControlFlow::Continue(()),
    };
    if zero { Err(no_parameter("$0")) } else { Ok(found) }
}

fn no_parameter(name: &str) -> SessionError {
    SessionError::new(SqlState("42P02"), format!("there is no parameter {name}"))
}

/// What is known of the parameters before planning: as declared, else as cast.
fn with_casts(declared: &[Option<DataType>], casts: &[(usize, FieldRef)]) -> Vec<Option<FieldRef>> {
    let of_type = |data_type: &DataType| Arc::new(Field::new("parameter", data_type.clone(), true));
    let mut known: Vec<Option<FieldRef>> = declared.iter().map(|d| d.as_ref().map(of_type)).collect();
    for (index, field) in casts.iter().filter(|(index, _)| (1..=PARAMETERS_MAX).contains(index)) {
        if known.len() < *index {
            known.resize(*index, None);
        }
        known[index - 1].get_or_insert_with(|| Arc::clone(field));
    }
    known
}

/// The types of `$1`, `$2`, …: as known before, else as the planner tells them, else unknown.
fn parameter_types(
    plan: &Plan,
    mut types: Vec<Option<FieldRef>>,
) -> Result<Vec<Option<FieldRef>>, SessionError> {
    let found = match plan {
        Plan::Query(plan) => plan.get_parameter_fields(),
        Plan::Dml(dml) => dml.input.get_parameter_fields(),
        Plan::Late => Ok(HashMap::new()),
    }
    .map_err(crate::serve::ServeError::from)?;
    for (name, field) in found {
        let index = name.trim_start_matches('$').parse::<usize>().unwrap_or(0);
        if index == 0 || index > PARAMETERS_MAX {
            return Err(no_parameter(&name));
        }
        if types.len() < index {
            types.resize(index, None);
        }
        let slot = &mut types[index - 1];
        if slot.is_none() {
            *slot = field.filter(|field| *field.data_type() != DataType::Null);
        }
    }
    Ok(types)
}
