//! Catalog queries of `psql` and drivers, in a form that DataFusion can run.
//!
//! Only SELECTs over system tables are touched; a user's own query passes unchanged.
//!
//! ```text
//!   SELECT … FROM pg_policy …            →  SELECT NULL … WHERE false   a table that never has rows
//!   ARRAY(SELECT x FROM pg_…)            →  coalesce((SELECT array_agg(x) FROM pg_…), ARRAY[])
//!   SELECT (SELECT x FROM pg_… WHERE outer …)   →  (SELECT max(x) FROM pg_… WHERE …)
//!   SELECT EXISTS (SELECT … FROM pg_…)   →  (SELECT count(*) FROM pg_… ) > 0
//!   SELECT t.tableoid FROM pg_class t    →  1259          the hidden column that tells a row's table
//! ```
//! The third says the same where there is at most one row, as in those queries.

use super::pg_keywords::KEYWORDS;
use super::pg_relations::system_oid;
use super::system::SYSTEM_TABLES;
use sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArguments, GroupByExpr, Ident, ObjectName, ObjectNamePart, Query,
    Select, SelectItem, SetExpr, TableFactor, Value, VisitMut, VisitorMut, visit_expressions,
    visit_expressions_mut,
};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use std::collections::HashSet;
use std::convert::Infallible;
use std::ops::ControlFlow;
use weir_sql::parser::statement::{Parsed, Statement};

/// Rewrites a SELECT in place; other statements are left alone.
pub fn adapt(parsed: &mut Parsed) {
    if let Statement::Query(query) = &mut parsed.statement {
        let _: ControlFlow<Infallible> = query.visit(&mut Adapter);
    }
}

struct Adapter;

impl VisitorMut for Adapter {
    type Break = Infallible;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Infallible> {
        if let SetExpr::Select(select) = &mut *query.body
            && empty(select)
        {
            query.order_by = None;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Infallible> {
        // The only function in FROM that is a table here.
        if let TableFactor::Table { name, args, .. } = factor
            && args.as_ref().is_some_and(|args| args.args.is_empty())
            && last_name(name) == KEYWORDS
        {
            *args = None;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Infallible> {
        // The members of a UNION are not queries of their own.
        empty(select);
        ControlFlow::Continue(())
    }

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

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
        let replaced = match expr {
            Expr::Function(function) => array_of_query(function),
            Expr::Subquery(query) => scalar(query),
            Expr::BinaryOp { left, op: BinaryOperator::StringConcat, right } if is_unknown_array(right) => {
                Some(std::mem::replace(&mut **left, Expr::Value(Value::Null.into())))
            }
            _ => None,
        };
        if let Some(replaced) = replaced {
            *expr = replaced;
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

/// Makes a SELECT that can't have rows one without tables. Says whether it did.
fn empty(select: &mut Select) -> bool {
    use sqlparser::ast::JoinOperator::{CrossJoin, Inner, Join};
    let never = |factor: &TableFactor| table_of(factor).is_some_and(|(table, _)| table.is_always_empty());
    let without_rows = select.from.iter().any(|from| {
        let kept = |op| matches!(op, &Inner(_) | &Join(_) | &CrossJoin(_));
        let preserved = from.joins.iter().all(|j| {
            !matches!(
                j.join_operator,
                sqlparser::ast::JoinOperator::RightOuter(_)
                    | sqlparser::ast::JoinOperator::Right(_)
                    | sqlparser::ast::JoinOperator::FullOuter(_)
            )
        });
        preserved
            && (never(&from.relation)
                || from.joins.iter().any(|j| kept(&j.join_operator) && never(&j.relation)))
    });
    let wildcard =
        |item: &SelectItem| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
    if !without_rows || select.projection.iter().any(wildcard) || aggregates(select) {
        return false;
    }
    // Without a type, so that it fits what a UNION has beside it.
    let null = parsed("NULL");
    for item in &mut select.projection {
        let Some(null) = null.clone() else { return false };
        match item {
            SelectItem::ExprWithAlias { expr, .. } => *expr = null,
            SelectItem::UnnamedExpr(expr) => {
                let name = match &*expr {
                    Expr::Identifier(ident) => Some(ident.value.clone()),
                    Expr::CompoundIdentifier(parts) => parts.last().map(|p| p.value.clone()),
                    Expr::Function(function) => Some(last_name(&function.name)),
                    _ => None,
                };
                *item = match name {
                    Some(name) => {
                        SelectItem::ExprWithAlias { expr: null, alias: Ident::with_quote('"', name) }
                    }
                    None => SelectItem::UnnamedExpr(null),
                };
            }
            _ => {}
        }
    }
    select.from.clear();
    select.selection = Some(Expr::Value(Value::Boolean(false).into()));
    true
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

fn only_item(select: &Select) -> Option<&Expr> {
    match select.projection.as_slice() {
        [SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }] => Some(expr),
        _ => None,
    }
}

/// `ARRAY(SELECT …)` over system tables.
fn array_of_query(function: &mut Function) -> Option<Expr> {
    let FunctionArguments::Subquery(query) = &mut function.args else { return None };
    if !last_name(&function.name).eq_ignore_ascii_case("array") {
        return None;
    }
    let select = simple_select(query)?;
    let item = only_item(select)?.to_string();
    if !reads_system_only(select) {
        // Options of relations, which have none here.
        let of_options = !select.from.is_empty()
            && select.from.iter().all(|from| from.relation.to_string().contains("options"));
        return if of_options { parsed("CAST(NULL AS TEXT[])") } else { None };
    }
    let order = query.order_by.take().map(|order| order.to_string());
    let select = simple_select(query)?;
    // ORDER BY 1 counts the items of the SELECT; inside an aggregate it would be a constant.
    let order = match order.as_deref() {
        Some("ORDER BY 1") => format!(" ORDER BY {item}"),
        Some(order) => format!(" {order}"),
        None => String::new(),
    };
    select.projection = vec![SelectItem::UnnamedExpr(parsed(&format!("array_agg({item}{order})"))?)];
    parsed(&format!("coalesce(({query}), CAST(ARRAY[] AS TEXT[]))"))
}

fn is_unknown_array(expr: &Expr) -> bool {
    expr.to_string() == "CAST(NULL AS TEXT[])" || expr.to_string() == "NULL::TEXT[]"
}

/// Qualifiers that an expression's columns have.
fn qualifiers(expr: &Expr) -> HashSet<Option<String>> {
    let mut found = HashSet::new();
    let _: ControlFlow<()> = visit_expressions(expr, |e| {
        match e {
            Expr::Identifier(_) => drop(found.insert(None)),
            Expr::CompoundIdentifier(parts) if parts.len() > 1 => {
                found.insert(Some(parts[0].value.to_lowercase()));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    });
    found
}

fn conjuncts(expr: &Expr) -> Vec<&Expr> {
    match expr {
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            let mut all = conjuncts(left);
            all.extend(conjuncts(right));
            all
        }
        Expr::Nested(inner) => conjuncts(inner),
        other => vec![other],
    }
}

fn joined(conjuncts: &[&Expr]) -> String {
    conjuncts.iter().map(|e| format!("({e})")).collect::<Vec<_>>().join(" AND ")
}

/// A scalar subquery over system tables that refers to an outer one: DataFusion wants it to
/// aggregate, and to compare with the outer query by `=` only.
fn scalar(query: &mut Query) -> Option<Expr> {
    let select = simple_select(query)?;
    if !reads_system_only(select) || aggregates(select) {
        return None;
    }
    let local: HashSet<String> = select
        .from
        .iter()
        .flat_map(|f| std::iter::once(&f.relation).chain(f.joins.iter().map(|j| &j.relation)))
        .filter_map(|f| table_of(f).map(|(_, alias)| alias))
        .collect();
    let selection = select.selection.clone()?;
    let outer = |e: &&Expr| {
        let used = qualifiers(e);
        !used.is_empty() && used.iter().all(|q| q.as_ref().is_some_and(|q| !local.contains(q)))
    };
    let touches_outer = qualifiers(&selection).iter().any(|q| q.as_ref().is_some_and(|q| !local.contains(q)));
    if !touches_outer {
        return None;
    }
    let item = only_item(select)?.to_string();
    if item.ends_with("collname") {
        // A collation other than the type's own: there is none.
        return parsed("CAST(NULL AS TEXT)");
    }
    let (outside, inside): (Vec<&Expr>, Vec<&Expr>) = conjuncts(&selection).into_iter().partition(outer);
    select.projection = vec![SelectItem::UnnamedExpr(parsed(&format!("max({item})"))?)];
    select.selection = if inside.is_empty() { None } else { parsed(&joined(&inside)) };
    match outside.is_empty() {
        true => parsed(&format!("({query})")),
        false => parsed(&format!("CASE WHEN {} THEN ({query}) END", joined(&outside))),
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
