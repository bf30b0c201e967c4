//! What catalog queries of `psql` say that a plan has no form for. Only SELECTs over system tables
//! are touched; a user's own query passes unchanged.
//!
//! ```text
//!   SELECT t.tableoid FROM pg_class t    →  1259           the hidden column that tells a row's table
//!   SELECT EXISTS (SELECT … FROM pg_…)   →  (SELECT count(*) FROM pg_… ) > 0
//! ```

use super::pg_relations::system_oid;
use super::system::SYSTEM_TABLES;
use sqlparser::ast::{
    Expr, Function, FunctionArguments, GroupByExpr, ObjectName, ObjectNamePart, Query, Select, SelectItem,
    SetExpr, TableFactor, Value, VisitMut, VisitorMut, visit_expressions, visit_expressions_mut,
};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use std::convert::Infallible;
use std::ops::ControlFlow;
use weir_sql::parser::statement::{Parsed, Statement};

/// Rewrites a SELECT in place; other statements are left alone.
pub fn adapt(parsed: &mut Parsed) {
    match &mut parsed.statement {
        Statement::Query(query) => {
            let _: ControlFlow<Infallible> = query.visit(&mut Adapter);
        }
        Statement::Prepare { statement, .. } => adapt(statement),
        _ => {}
    }
}

struct Adapter;

impl VisitorMut for Adapter {
    type Break = Infallible;

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<Infallible> {
        table_oids(select);
        for item in &mut select.projection {
            let expr = match item {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => expr,
                _ => continue,
            };
            let _: ControlFlow<()> = visit_expressions_mut(expr, |expr| {
                exists_as_count(expr);
                ControlFlow::Continue(())
            });
        }
        ControlFlow::Continue(())
    }
}

/// An expression written as SQL.
fn parsed(sql: &str) -> Option<Expr> {
    Parser::new(&PostgreSqlDialect {}).try_with_sql(sql).ok()?.parse_expr().ok()
}

fn last_name(name: &ObjectName) -> String {
    match name.0.last() {
        Some(ObjectNamePart::Identifier(ident)) if ident.quote_style.is_none() => ident.value.to_lowercase(),
        Some(ObjectNamePart::Identifier(ident)) => ident.value.clone(),
        _ => String::new(),
    }
}

/// Schema and name of a system table that `name` means.
fn system_table(name: &ObjectName) -> Option<&'static super::system::TableSpec> {
    let table = last_name(name);
    let schema = match name.0.as_slice() {
        [_] => "pg_catalog".to_owned(),
        [.., ObjectNamePart::Identifier(schema), _] => schema.value.to_lowercase(),
        _ => return None,
    };
    SYSTEM_TABLES.iter().find(|t| t.schema == schema && t.name == table)
}

fn table_of(factor: &TableFactor) -> Option<(&'static super::system::TableSpec, String)> {
    let TableFactor::Table { name, alias, args: None, .. } = factor else { return None };
    let table = system_table(name)?;
    let alias = alias.as_ref().map_or_else(|| table.name.clone(), |a| a.name.value.to_lowercase());
    Some((table, alias))
}

/// Whether all that `select` reads are system tables, at least one.
fn reads_system_only(select: &Select) -> bool {
    let mut factors = select
        .from
        .iter()
        .flat_map(|f| std::iter::once(&f.relation).chain(f.joins.iter().map(|j| &j.relation)));
    !select.from.is_empty() && factors.all(|f| table_of(f).is_some())
}

/// `t.tableoid`, the hidden column that tells a row's table, is the number of a system table.
fn table_oids(select: &mut Select) {
    let factors = select
        .from
        .iter()
        .flat_map(|f| std::iter::once(&f.relation).chain(f.joins.iter().map(|j| &j.relation)));
    let tables: Vec<(String, i64)> = factors
        .filter_map(table_of)
        .map(|(table, alias)| (alias, system_oid(table.schema, &table.name)))
        .collect();
    if tables.is_empty() {
        return;
    }
    let _: ControlFlow<()> = visit_expressions_mut(select, |expr| {
        let table = match &*expr {
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [alias, column] if column.value == "tableoid" => {
                    tables.iter().find(|(known, _)| *known == alias.value.to_lowercase())
                }
                _ => None,
            },
            Expr::Identifier(column) if column.value == "tableoid" && tables.len() == 1 => tables.first(),
            _ => None,
        };
        if let Some((_, oid)) = table {
            *expr = Expr::Value(Value::Number(oid.to_string(), false).into());
        }
        ControlFlow::Continue(())
    });
}

/// Whether it gives a row even without input.
fn aggregates(select: &Select) -> bool {
    let grouped = match &select.group_by {
        GroupByExpr::All(_) => true,
        GroupByExpr::Expressions(exprs, _) => !exprs.is_empty(),
    };
    let mut found = false;
    for item in &select.projection {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            found |= calls_aggregate(expr);
        }
    }
    grouped || found
}

fn calls_aggregate(expr: &Expr) -> bool {
    const NAMES: &[&str] = &[
        "count",
        "sum",
        "min",
        "max",
        "avg",
        "array_agg",
        "string_agg",
        "bool_and",
        "bool_or",
        "json_agg",
        "jsonb_agg",
    ];
    // A subquery's aggregates are its own.
    if matches!(expr, Expr::Subquery(_)) {
        return false;
    }
    let mut found = false;
    let _: ControlFlow<()> = visit_expressions(expr, |e| {
        if let Expr::Function(function) = e {
            found |= NAMES.contains(&last_name(&function.name).as_str());
        }
        ControlFlow::Continue(())
    });
    found && !contains_subquery(expr)
}

fn contains_subquery(expr: &Expr) -> bool {
    let mut found = false;
    let _: ControlFlow<()> = visit_expressions(expr, |e| {
        found |= matches!(e, Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. })
            || matches!(e, Expr::Function(Function { args: FunctionArguments::Subquery(_), .. }));
        ControlFlow::Continue(())
    });
    found
}

fn simple_select(query: &mut Query) -> Option<&mut Select> {
    let plain = query.with.is_none() && query.limit_clause.is_none() && query.fetch.is_none();
    match &mut *query.body {
        SetExpr::Select(select) if plain && select.distinct.is_none() && select.projection.len() == 1 => {
            Some(select)
        }
        _ => None,
    }
}

/// EXISTS among the items of a SELECT.
fn exists_as_count(expr: &mut Expr) {
    let Expr::Exists { subquery, negated } = expr else { return };
    let Some(select) = simple_select(subquery) else { return };
    if !reads_system_only(select) || aggregates(select) {
        return;
    }
    let Some(count) = parsed("count(*)") else { return };
    select.projection = vec![SelectItem::UnnamedExpr(count)];
    let compared = if *negated { "= 0" } else { "> 0" };
    if let Some(replaced) = parsed(&format!("(({subquery}) {compared})")) {
        *expr = replaced;
    }
}
