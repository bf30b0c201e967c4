//! SELECT to a DataFusion logical plan, with PostgreSQL's names and types for its columns.

use super::column_name::MARK;
use super::context::{Provider, relation_source};
use super::rewrite;
use super::types::canonical;
use super::{BindContext, locate, optimize, report, using};
use crate::error::SqlError;
use crate::parser::Text;
use arrow::datatypes::{Field, FieldRef};
use datafusion_common::{Column as DfColumn, DFSchema, TableReference};
use datafusion_expr::expr::Cast;
use datafusion_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Projection};
use datafusion_sql::planner::{NullOrdering, ParserOptions, PlannerContext, SqlToRel};
use sqlparser::ast;
use std::collections::HashMap;
use std::sync::Arc;
use weir_catalog::relation::View;
use weir_catalog::{Object, ObjectId, SqlState};

/// A planned query.
pub(super) struct Planned {
    /// Analyzed, not optimized.
    pub(super) plan: LogicalPlan,
    /// What it reads, through plain views and with them, in order of id.
    pub(super) reads: Vec<ObjectId>,
}

/// Plans a query. Its AST's locations are in `text`.
pub(super) fn plan_query(query: &ast::Query, context: &BindContext, text: &str) -> Result<Planned, SqlError> {
    let provider = Provider::new(context);
    let plan = plan_with(query.clone(), &provider, text)?;
    let reads = provider.reads();
    Ok(Planned { plan, reads })
}

/// Plans a query whose columns are to be written into others: names and types are as they come, so
/// that literals and parameters can still take the type of their column.
pub(super) fn plan_rows(
    query: &ast::Query,
    context: &BindContext,
    text: &str,
) -> Result<LogicalPlan, SqlError> {
    planned(query.clone(), &Provider::new(context), text)
}

/// The plan of a plain view, with the view's column names.
pub(super) fn plan_view(view: &View, provider: &Provider<'_>) -> Result<LogicalPlan, SqlError> {
    let query = crate::parser::parse_query(&view.query)?;
    let plan = plan_with(*query, provider, &view.query)?;
    let names: Vec<String> = view.columns.iter().map(|c| c.name.clone()).collect();
    rename(plan, &names)
}

fn plan_with(query: ast::Query, provider: &Provider<'_>, text: &str) -> Result<LogicalPlan, SqlError> {
    finish(planned(query, provider, text)?)
}

/// The plan of a query. Where an item of a SELECT repeats the name of a column of `*`, which only
/// planning tells, it is planned again with such items set apart.
fn planned(query: ast::Query, provider: &Provider<'_>, text: &str) -> Result<LogicalPlan, SqlError> {
    match planned_once(query.clone(), provider, text, false) {
        Err(error) if [SqlState::AMBIGUOUS_COLUMN, SqlState::DUPLICATE_COLUMN].contains(&error.state) => {
            planned_once(query, provider, text, true).or(Err(error))
        }
        done => done,
    }
}

fn planned_once(
    mut query: ast::Query,
    provider: &Provider<'_>,
    text: &str,
    set_apart: bool,
) -> Result<LogicalPlan, SqlError> {
    rewrite::rewrite(&mut query, set_apart, provider.context)?;
    let statement = ast::Statement::Query(Box::new(query));
    let report = |error| {
        let text = Text::new(text);
        locate::located(report::sql_error(error, Some(&text)), &statement, Some(&text))
    };
    let mut state = planner_context(provider.context);
    let plan = planner(provider)
        .sql_statement_to_plan_with_context(statement.clone(), &mut state)
        .map_err(report)?;
    using::without_marks(plan).and_then(optimize::analyze).map_err(report)
}

/// DataFusion's SQL planner over a provider.
pub(super) fn planner<'p, 'a>(provider: &'p Provider<'a>) -> SqlToRel<'p, Provider<'a>> {
    let options = ParserOptions::new()
        .with_parse_float_as_decimal(true)
        .with_enable_ident_normalization(true)
        .with_support_varchar_with_length(true)
        .with_map_string_types_to_utf8view(false)
        .with_collect_spans(true)
        .with_default_null_ordering(NullOrdering::NullsMax);
    SqlToRel::new_with_options(provider, options)
}

/// The planner's state at the start of a statement: the declared parameters.
pub(super) fn planner_context(context: &BindContext) -> PlannerContext {
    let field = |t: &Option<arrow::datatypes::DataType>| -> Option<FieldRef> {
        t.as_ref().map(|t| Arc::new(Field::new("", t.clone(), true)))
    };
    PlannerContext::new().with_prepare_param_data_types(context.parameter_types.iter().map(field).collect())
}

/// Gives the output its names, where the rewriting had to make them differ, and Weir's types.
fn finish(plan: LogicalPlan) -> Result<LogicalPlan, SqlError> {
    let schema = plan.schema();
    let plain = schema
        .fields()
        .iter()
        .all(|f| !f.name().contains(MARK) && canonical(f.data_type()) == *f.data_type());
    if plain {
        return Ok(plan);
    }
    let bare = |name: &str| name.split(MARK).next().unwrap_or_default().to_owned();
    let mut times: HashMap<String, usize> = HashMap::new();
    for field in schema.fields() {
        *times.entry(bare(field.name())).or_default() += 1;
    }
    let exprs = schema.iter().enumerate().map(|(i, (qualifier, field))| {
        let column = Expr::Column(DfColumn::from((qualifier, field)));
        let (name, to) = (bare(field.name()), canonical(field.data_type()));
        let expr = match to == *field.data_type() {
            true => column,
            false => Expr::Cast(Cast::new(Box::new(column), to)),
        };
        // A qualifier of its own lets the plan's schema repeat a name.
        let qualifier = match qualifier {
            Some(qualifier) if name == *field.name() => Some(qualifier.clone()),
            _ if times.get(&name).is_some_and(|n| *n > 1) => {
                Some(TableReference::bare(format!("{MARK}item{i}")))
            }
            _ => None,
        };
        expr.alias_qualified(qualifier, name)
    });
    let exprs = exprs.collect();
    project(plan, exprs)
}

/// A projection, with its error reported.
pub(super) fn project(plan: LogicalPlan, exprs: Vec<Expr>) -> Result<LogicalPlan, SqlError> {
    Projection::try_new(exprs, Arc::new(plan))
        .map(LogicalPlan::Projection)
        .map_err(|error| report::sql_error(error, None))
}

/// The plan with other column names: the first ones, as in `CREATE VIEW v (a, b)`.
pub(super) fn rename(plan: LogicalPlan, names: &[String]) -> Result<LogicalPlan, SqlError> {
    let fields: Vec<_> = plan.schema().iter().map(|(q, f)| (q.cloned(), Arc::clone(f))).collect();
    if names.len() > fields.len() {
        return Err(SqlError::new(
            SqlState::SYNTAX_ERROR,
            "CREATE VIEW specifies more column names than columns",
        ));
    }
    let exprs = fields.iter().enumerate().map(|(i, (qualifier, field))| {
        let column = Expr::Column(DfColumn::from((qualifier.as_ref(), field)));
        column.alias(names.get(i).unwrap_or(field.name()))
    });
    let exprs: Vec<Expr> = exprs.collect();
    let mut seen = std::collections::HashSet::new();
    for expr in &exprs {
        if let Expr::Alias(alias) = expr
            && !seen.insert(alias.name.clone())
        {
            let message = format!("column \"{}\" specified more than once", alias.name);
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
        }
    }
    project(plan, exprs)
}

/// A scan of all columns of an object, under the name that its columns may be qualified with.
pub(super) fn scan(object: &Arc<Object>, name: &str) -> Result<LogicalPlan, SqlError> {
    LogicalPlanBuilder::scan(TableReference::bare(name), relation_source(object), None)
        .and_then(LogicalPlanBuilder::build)
        .map_err(|error| report::sql_error(error, None))
}

/// Plans expressions outside of queries, one after the other.
pub(super) struct ExprPlanner<'a> {
    provider: Provider<'a>,
}

impl<'a> ExprPlanner<'a> {
    pub(super) fn new(context: &'a BindContext) -> Self {
        Self { provider: Provider::new(context) }
    }

    /// Plans an expression over `schema`. Its AST's locations are in `text`.
    pub(super) fn plan(
        &self,
        expr: &ast::Expr,
        schema: &DFSchema,
        text: Option<&Text<'_>>,
    ) -> Result<Expr, SqlError> {
        let mut expr = expr.clone();
        rewrite::rewrite_expr(&mut expr, self.provider.context)?;
        let mut state = planner_context(self.provider.context);
        planner(&self.provider)
            .sql_to_expr(expr.clone(), schema, &mut state)
            .map_err(|error| locate::located(report::sql_error(error, text), &expr, text))
    }
}
