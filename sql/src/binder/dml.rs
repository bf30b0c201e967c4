//! INSERT, UPDATE, DELETE and TRUNCATE to the rows that they write.
//!
//! ```text
//!   INSERT   VALUES or query ── defaults, assignment casts ──> all columns of the table
//!   UPDATE   SELECT old columns, new columns FROM t[, others] WHERE …
//!   DELETE   SELECT all columns FROM t[, others] WHERE …
//! ```

use super::assign::{assign_columns, assigned, null_of, single_assignments};
use super::column_name::MARK;
use super::names::plain;
use super::returning::returning;
use super::{BindContext, Dml, DmlKind, at, query, report};
use crate::error::SqlError;
use crate::parser::{Text, fold, name_of, parse_expr, parse_query};
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{Column as DfColumn, DFSchema};
use datafusion_expr::logical_plan::Values;
use datafusion_expr::{EmptyRelation, Expr, LogicalPlan, Union};
use sqlparser::ast::{self, Ident, SelectItem, SetExpr, Spanned};
use std::sync::Arc;
use weir_catalog::column::arrow_schema;
use weir_catalog::name::quote_identifier;
use weir_catalog::relation::{OnConflict, RowKey, Table};
use weir_catalog::{Column, Object, ObjectBody, ObjectName, SqlState};

/// The table that a statement writes.
pub(super) struct Target<'a> {
    pub(super) object: &'a Arc<Object>,
    pub(super) table: &'a Table,
    /// What its columns may be qualified with.
    pub(super) alias: String,
}

impl<'a> Target<'a> {
    fn find(
        name: &ObjectName,
        alias: Option<&Ident>,
        verb: &str,
        context: &'a BindContext,
    ) -> Result<Self, SqlError> {
        let Some(object) = context.resolve(name) else {
            return Err(super::names::not_found(context, &plain(name), &name.name));
        };
        let ObjectBody::Table(table) = &object.body else {
            return Err(super::names::wrong_kind(object, verb, "Only tables can be written."));
        };
        let alias = alias.map_or_else(|| object.name.name.clone(), fold);
        Ok(Self { object, table, alias })
    }

    fn refuse_append_only(&self, verb: &str) -> Result<(), SqlError> {
        if !self.table.append_only {
            return Ok(());
        }
        let message = format!("cannot {verb} append-only table \"{}\"", plain(&self.object.name));
        Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message).hint("Only INSERT is allowed."))
    }

    fn ordinal(&self, column: &str) -> Result<usize, SqlError> {
        self.table.columns.iter().position(|c| c.name == column).ok_or_else(|| {
            let message =
                format!("column \"{column}\" of relation \"{}\" does not exist", self.object.name.name);
            let error = SqlError::new(SqlState::UNDEFINED_COLUMN, message);
            match super::names::nearest(column, self.table.columns.iter().map(|c| c.name.as_str())) {
                Some(near) => error.hint(format!("Perhaps you meant the column \"{near}\".")),
                None => error,
            }
        })
    }

    /// `SELECT … FROM table AS alias`, its items to be replaced.
    pub(super) fn select(&self) -> Result<Box<ast::Query>, SqlError> {
        let name = &self.object.name;
        let (schema, table) = (quoted(&name.schema), quoted(&name.name));
        parse_query(&format!("SELECT 1 FROM {schema}.{table} AS {}", quoted(&self.alias)))
    }

    /// The same with `others` beside the table: a row of the table that joins several of theirs
    /// is there once, with one of them.
    fn select_joined(&self, others: &[ast::TableWithJoins]) -> Result<Box<ast::Query>, SqlError> {
        if others.is_empty() {
            return self.select();
        }
        let name = &self.object.name;
        let (schema, table, alias) = (quoted(&name.schema), quoted(&name.name), quoted(&self.alias));
        let column = |name: &str| format!("{alias}.{}", quoted(name));
        let (from, once) = match &self.table.key {
            RowKey::Columns(key) => {
                let key = key.iter().map(|c| column(&self.table.columns[*c].name));
                (format!("{schema}.{table}"), key.collect::<Vec<_>>().join(", "))
            }
            RowKey::WholeRow => {
                let number = quoted(&format!("{MARK}row"));
                let numbered = format!("(SELECT *, row_number() OVER () AS {number} FROM {schema}.{table})");
                (numbered, column(&format!("{MARK}row")))
            }
        };
        let mut query = parse_query(&format!("SELECT DISTINCT ON ({once}) 1 FROM {from} AS {alias}"))?;
        select_mut(&mut query)?.from.extend(others.iter().cloned());
        Ok(query)
    }

    /// A column of the table in an AST.
    fn column(&self, ordinal: usize) -> ast::Expr {
        let quoted = |name: &str| Ident::with_quote('"', name);
        ast::Expr::CompoundIdentifier(vec![quoted(&self.alias), quoted(&self.table.columns[ordinal].name)])
    }

    /// All its columns, named by ordinal.
    fn items(&self) -> Vec<SelectItem> {
        (0..self.table.columns.len()).map(|i| item(self.column(i), &format!("old{i}"))).collect()
    }

    fn dml(
        self,
        kind: DmlKind,
        input: LogicalPlan,
        items: Option<&[SelectItem]>,
        context: &BindContext,
        text: &str,
    ) -> Result<Dml, SqlError> {
        let returning = match items {
            Some(items) => Some(returning(&self, items, context, text)?),
            None => None,
        };
        Ok(Dml { table: self.object.id, kind, input, returning })
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn item(expr: ast::Expr, alias: &str) -> SelectItem {
    SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', alias) }
}

/// The query's SELECT.
pub(super) fn select_mut(query: &mut ast::Query) -> Result<&mut ast::Select, SqlError> {
    match query.body.as_mut() {
        SetExpr::Select(select) => Ok(select),
        _ => Err(SqlError::new(SqlState::INTERNAL_ERROR, "a SELECT was parsed to something else")),
    }
}

/// INSERT.
pub(super) fn insert(insert: &ast::Insert, context: &BindContext, text: &str) -> Result<Dml, SqlError> {
    let ast::TableObject::TableName(name) = &insert.table else {
        return Err(SqlError::not_supported("INSERT into other than a table"));
    };
    if insert.overwrite
        || insert.replace_into
        || insert.partitioned.is_some()
        || !insert.assignments.is_empty()
    {
        return Err(SqlError::not_supported("this form of INSERT"));
    }
    let alias = insert.table_alias.as_ref().map(|a| &a.alias);
    let target = Target::find(&name_of(name)?, alias, "insert into", context)
        .map_err(|e| at(e, &Text::new(text), name.span()))?;
    let columns = target_columns(&target, &insert.columns, text)?;
    let explicit = !insert.columns.is_empty();
    let input = match &insert.source {
        None => values(&target, &[], &[vec![]], context, text)?,
        Some(source) => match plain_values(source) {
            Some(rows) => {
                let columns =
                    arity_checked(&columns, rows.iter().map(Vec::len).max().unwrap_or(0), explicit)?;
                if rows.iter().any(|row| row.len() != columns.len()) {
                    let message = "VALUES lists must all be the same length";
                    return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
                }
                values(&target, columns, &rows, context, text)?
            }
            None => {
                let plan = query::plan_rows(source, context, text)?;
                let columns = arity_checked(&columns, plan.schema().fields().len(), explicit)?;
                from_query(&target, columns, plan, context)?
            }
        },
    };
    let kind = DmlKind::Insert(on_conflict(&target, insert.on.as_ref())?);
    target.dml(kind, input, insert.returning.as_deref(), context, text)
}

/// The ordinals that an INSERT names; all of them if it names none.
fn target_columns(
    target: &Target<'_>,
    named: &[ast::ObjectName],
    text: &str,
) -> Result<Vec<usize>, SqlError> {
    if named.is_empty() {
        return Ok((0..target.table.columns.len()).collect());
    }
    let mut columns = Vec::with_capacity(named.len());
    for name in named {
        let column = name_of(name)?.name;
        let ordinal = target.ordinal(&column).map_err(|e| at(e, &Text::new(text), name.span()))?;
        if columns.contains(&ordinal) {
            let message = format!("column \"{column}\" specified more than once");
            return Err(at(
                SqlError::new(SqlState::DUPLICATE_COLUMN, message),
                &Text::new(text),
                name.span(),
            ));
        }
        columns.push(ordinal);
    }
    Ok(columns)
}

/// As many of the target's columns as there are expressions.
fn arity_checked(columns: &[usize], exprs: usize, explicit: bool) -> Result<&[usize], SqlError> {
    if exprs > columns.len() {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "INSERT has more expressions than target columns"));
    }
    if explicit && exprs < columns.len() {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "INSERT has more target columns than expressions"));
    }
    Ok(&columns[..exprs])
}

/// The rows of a source that is VALUES and nothing else.
fn plain_values(source: &ast::Query) -> Option<Vec<Vec<ast::Expr>>> {
    let bare = source.with.is_none() && source.order_by.is_none() && source.limit_clause.is_none();
    match source.body.as_ref() {
        SetExpr::Values(values) if bare && source.fetch.is_none() => {
            Some(values.rows.iter().map(|row| row.content.clone()).collect())
        }
        _ => None,
    }
}

/// One expression a column of the table: given, default or NULL.
fn values(
    target: &Target<'_>,
    columns: &[usize],
    rows: &[Vec<ast::Expr>],
    context: &BindContext,
    text: &str,
) -> Result<LogicalPlan, SqlError> {
    let empty = DFSchema::empty();
    let defaults = defaults(target, context)?;
    let (planner, text) = (query::ExprPlanner::new(context), Text::new(text));
    let mut planned = Vec::with_capacity(rows.len());
    for row in rows {
        let mut exprs = defaults.clone();
        for (ordinal, expr) in columns.iter().zip(row) {
            if is_default(expr) {
                continue;
            }
            let column = &target.table.columns[*ordinal];
            exprs[*ordinal] = planner
                .plan(expr, &empty, Some(&text))
                .and_then(|planned| assigned(planned, &empty, column))
                .map_err(|e| if e.position.is_none() { at(e, &text, expr.span()) } else { e })?;
        }
        planned.push(exprs);
    }
    let schema = DFSchema::try_from(arrow_schema(&nullable(&target.table.columns))).map_err(reported)?;
    let plan = rows_plan(planned, schema)?;
    super::optimize::analyze(plan).map_err(reported)
}

/// VALUES, or where a row has a subquery, a union of SELECTs.
fn rows_plan(rows: Vec<Vec<Expr>>, schema: DFSchema) -> Result<LogicalPlan, SqlError> {
    let schema = Arc::new(schema);
    if !rows.iter().flatten().any(has_subquery) {
        return Ok(LogicalPlan::Values(Values { schema, values: rows }));
    }
    let mut inputs = Vec::with_capacity(rows.len());
    for row in rows {
        let one = EmptyRelation { produce_one_row: true, schema: Arc::new(DFSchema::empty()) };
        let named = row.into_iter().zip(schema.fields()).map(|(expr, field)| expr.alias(field.name()));
        inputs.push(Arc::new(query::project(LogicalPlan::EmptyRelation(one), named.collect())?));
    }
    if inputs.len() == 1 {
        return Ok(Arc::unwrap_or_clone(inputs.remove(0)));
    }
    Union::try_new(inputs).map(LogicalPlan::Union).map_err(reported)
}

fn has_subquery(expr: &Expr) -> bool {
    let mut found = false;
    // The closure gives no error.
    let _ = expr.apply(|e| {
        found |= matches!(e, Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_));
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    found
}

fn nullable(columns: &[Column]) -> Vec<Column> {
    columns.iter().map(|c| Column { nullable: true, ..c.clone() }).collect()
}

/// The default of each column, cast to its type.
fn defaults(target: &Target<'_>, context: &BindContext) -> Result<Vec<Expr>, SqlError> {
    let (empty, planner) = (DFSchema::empty(), query::ExprPlanner::new(context));
    let default = |column: &Column| match &column.default {
        Some(text) => assigned(planner.plan(&parse_expr(text)?, &empty, None)?, &empty, column),
        None => Ok(null_of(column)),
    };
    target.table.columns.iter().map(default).collect()
}

fn is_default(expr: &ast::Expr) -> bool {
    matches!(expr, ast::Expr::Identifier(i) if i.quote_style.is_none() && i.value.eq_ignore_ascii_case("default"))
}

/// The table's columns from the output of a query.
fn from_query(
    target: &Target<'_>,
    columns: &[usize],
    plan: LogicalPlan,
    context: &BindContext,
) -> Result<LogicalPlan, SqlError> {
    let targets: Vec<(usize, &Column)> =
        columns.iter().enumerate().map(|(i, ordinal)| (i, &target.table.columns[*ordinal])).collect();
    let plan = assign_columns(plan, &targets)?;
    let mut exprs = defaults(target, context)?;
    for (i, ordinal) in columns.iter().enumerate() {
        exprs[*ordinal] = Expr::Column(DfColumn::from(plan.schema().qualified_field(i)));
    }
    let named = exprs.into_iter().zip(&target.table.columns).map(|(expr, column)| expr.alias(&column.name));
    let plan = query::project(plan, named.collect())?;
    super::optimize::analyze(plan).map_err(reported)
}

/// What a duplicate key does: the statement's clause, or else the table's.
fn on_conflict(target: &Target<'_>, on: Option<&ast::OnInsert>) -> Result<OnConflict, SqlError> {
    let Some(on) = on else { return Ok(target.table.on_conflict) };
    let ast::OnInsert::OnConflict(clause) = on else {
        return Err(SqlError::not_supported("ON DUPLICATE KEY UPDATE").hint("Use ON CONFLICT."));
    };
    let key: Option<Vec<&str>> = match &target.table.key {
        RowKey::Columns(key) => Some(key.iter().map(|c| target.table.columns[*c].name.as_str()).collect()),
        RowKey::WholeRow => None,
    };
    match &clause.conflict_target {
        None => {}
        Some(ast::ConflictTarget::Columns(columns)) => {
            let mut named: Vec<String> = columns.iter().map(fold).collect();
            let mut wanted: Vec<String> = key.iter().flatten().map(|c| (*c).to_owned()).collect();
            named.sort();
            wanted.sort();
            if named != wanted || key.is_none() {
                let message =
                    "there is no unique or exclusion constraint matching the ON CONFLICT specification";
                return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message));
            }
        }
        Some(ast::ConflictTarget::OnConstraint(name)) => {
            return Err(SqlError::not_supported(format_args!("ON CONFLICT ON CONSTRAINT {name}"))
                .hint("Name the key's columns."));
        }
    }
    match &clause.action {
        // Without a key no row is a duplicate.
        ast::OnConflictAction::DoNothing if key.is_none() => Ok(OnConflict::Error),
        ast::OnConflictAction::DoNothing => Ok(OnConflict::DoNothing),
        ast::OnConflictAction::DoUpdate(update) => {
            if clause.conflict_target.is_none() {
                let message = "ON CONFLICT DO UPDATE requires inference specification or constraint name";
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
            full_update(target, update, &key.unwrap_or_default())?;
            Ok(OnConflict::DoUpdateFull)
        }
    }
}

/// Whether DO UPDATE takes the whole new row: `SET b = EXCLUDED.b, …` for each column but the key's.
fn full_update(target: &Target<'_>, update: &ast::DoUpdate, key: &[&str]) -> Result<(), SqlError> {
    let refused = || {
        let others = target.table.columns.iter().filter(|c| !key.contains(&c.name.as_str()));
        let sets: Vec<String> =
            others.map(|c| quote_identifier(&c.name)).map(|c| format!("{c} = EXCLUDED.{c}")).collect();
        SqlError::not_supported("ON CONFLICT DO UPDATE of less than the whole row")
            .hint(format!("Write DO UPDATE SET {}.", sets.join(", ")))
    };
    if update.selection.is_some() {
        return Err(refused());
    }
    let mut set = Vec::new();
    for assignment in &update.assignments {
        let ast::AssignmentTarget::ColumnName(name) = &assignment.target else { return Err(refused()) };
        let column = name_of(name)?.name;
        target.ordinal(&column)?;
        match &assignment.value {
            ast::Expr::CompoundIdentifier(parts)
                if parts.len() == 2 && fold(&parts[0]) == "excluded" && fold(&parts[1]) == column => {}
            _ => return Err(refused()),
        }
        set.push(column);
    }
    let all = target.table.columns.iter().all(|c| key.contains(&c.name.as_str()) || set.contains(&c.name));
    if all { Ok(()) } else { Err(refused()) }
}

/// UPDATE.
pub(super) fn update(statement: &ast::Statement, context: &BindContext, text: &str) -> Result<Dml, SqlError> {
    let ast::Statement::Update(update) = statement else {
        return Err(SqlError::new(SqlState::INTERNAL_ERROR, "an UPDATE was parsed to something else"));
    };
    if !update.table.joins.is_empty() {
        return Err(SqlError::not_supported("UPDATE of a join").hint("Name the other tables in FROM."));
    }
    let others = match &update.from {
        Some(ast::UpdateTableFromKind::BeforeSet(from) | ast::UpdateTableFromKind::AfterSet(from)) => from,
        None => &Vec::new(),
    };
    if update.limit.is_some() || !update.order_by.is_empty() {
        return Err(SqlError::not_supported("ORDER BY and LIMIT in UPDATE"));
    }
    let target = table_factor(&update.table.relation, "update", context, text)?;
    target.refuse_append_only("update")?;
    let arity = target.table.columns.len();
    let mut new: Vec<ast::Expr> = (0..arity).map(|i| target.column(i)).collect();
    let mut set = Vec::new();
    for (name, value) in single_assignments(&update.assignments)? {
        let column = name_of(name)?.name;
        let ordinal = target.ordinal(&column).map_err(|e| at(e, &Text::new(text), name.span()))?;
        if set.contains(&ordinal) {
            let message = format!("multiple assignments to same column \"{column}\"");
            return Err(at(SqlError::new(SqlState::SYNTAX_ERROR, message), &Text::new(text), name.span()));
        }
        set.push(ordinal);
        new[ordinal] = match (value, &target.table.columns[ordinal].default) {
            (value, Some(default)) if is_default(value) => parse_expr(default)?,
            (value, None) if is_default(value) => ast::Expr::Value(ast::Value::Null.with_empty_span()),
            (value, _) => value.clone(),
        };
    }
    let mut query = target.select_joined(others)?;
    let select = select_mut(&mut query)?;
    select.projection = target.items();
    select.projection.extend(new.into_iter().enumerate().map(|(i, expr)| item(expr, &format!("new{i}"))));
    select.selection = update.selection.clone();
    let plan = query::plan_rows(&query, context, text)?;
    let targets: Vec<(usize, &Column)> = set.iter().map(|o| (arity + o, &target.table.columns[*o])).collect();
    let plan = super::optimize::analyze(assign_columns(plan, &targets)?).map_err(reported)?;
    target.dml(DmlKind::Update, plan, update.returning.as_deref(), context, text)
}

/// DELETE.
pub(super) fn delete(delete: &ast::Delete, context: &BindContext, text: &str) -> Result<Dml, SqlError> {
    if !delete.tables.is_empty() {
        return Err(SqlError::not_supported("DELETE from several tables"));
    }
    if delete.limit.is_some() || !delete.order_by.is_empty() {
        return Err(SqlError::not_supported("ORDER BY and LIMIT in DELETE"));
    }
    let (ast::FromTable::WithFromKeyword(from) | ast::FromTable::WithoutKeyword(from)) = &delete.from;
    let [table] = from.as_slice() else {
        return Err(SqlError::not_supported("DELETE from several tables"));
    };
    if !table.joins.is_empty() {
        return Err(SqlError::not_supported("DELETE from a join"));
    }
    let target = table_factor(&table.relation, "delete from", context, text)?;
    target.refuse_append_only("delete from")?;
    let mut query = target.select_joined(delete.using.as_deref().unwrap_or_default())?;
    let select = select_mut(&mut query)?;
    select.projection = target.items();
    select.selection = delete.selection.clone();
    let plan = query::plan_rows(&query, context, text)?;
    target.dml(DmlKind::Delete, plan, delete.returning.as_deref(), context, text)
}

/// TRUNCATE: DELETE of all rows.
pub(super) fn truncate(name: &ObjectName, context: &BindContext) -> Result<Dml, SqlError> {
    let target = Target::find(name, None, "truncate", context)?;
    target.refuse_append_only("truncate")?;
    let input = query::scan(target.object, &target.alias)?;
    target.dml(DmlKind::Delete, input, None, context, "")
}

fn table_factor<'a>(
    factor: &ast::TableFactor,
    verb: &str,
    context: &'a BindContext,
    text: &str,
) -> Result<Target<'a>, SqlError> {
    let ast::TableFactor::Table { name, alias, args: None, .. } = factor else {
        return Err(SqlError::not_supported("a write to other than a table"));
    };
    let alias = alias.as_ref().map(|a| &a.name);
    Target::find(&name_of(name)?, alias, verb, context).map_err(|e| at(e, &Text::new(text), name.span()))
}

fn reported(error: datafusion_common::DataFusionError) -> SqlError {
    report::sql_error(error, None)
}
