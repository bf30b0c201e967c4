//! `ARRAY(query)` as an expression that DataFusion reads. Of no rows it is empty, and not NULL.
//!
//! ```text
//!   ARRAY(SELECT unnest(a))                        a
//!   ARRAY(SELECT f(x) FROM unnest(a) x)            array_transform(a, x -> f(x))
//!   ARRAY(SELECT e FROM … ORDER BY o)              (SELECT array_agg(e ORDER BY o) FROM …)
//!   ARRAY(any other query)                         (SELECT array_agg(x) FROM (query) t (x))
//! ```

use super::rewrite::call;
use super::sets::{Lists, lists_of};
use crate::error::SqlError;
use crate::functions::array::OR_EMPTY;
use crate::functions::{aggregate_functions, window_functions};
use crate::parser::fold;
use sqlparser::ast::{
    self, Distinct, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName, ObjectNamePart,
    Query, Select, SelectItem, SetExpr, TableFactor, Value,
};
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::LazyLock;

/// `ARRAY(query)`.
pub(super) fn array_of_query(query: Box<Query>) -> Result<Expr, SqlError> {
    let array = match list(&query) {
        Some(list) => list,
        None => Expr::Subquery(collected(query)?),
    };
    Ok(call(OR_EMPTY, vec![array]))
}

fn collected(query: Box<Query>) -> Result<Box<Query>, SqlError> {
    let query = match aggregated(query) {
        Ok(aggregated) => return Ok(aggregated),
        Err(query) => query,
    };
    let mut outer =
        crate::parser::parse_query("SELECT array_agg(weir_item) FROM (SELECT 1) AS weir_array (weir_item)")?;
    if let SetExpr::Select(select) = outer.body.as_mut()
        && let Some(TableFactor::Derived { subquery, .. }) = select.from.first_mut().map(|t| &mut t.relation)
    {
        *subquery = query;
    }
    Ok(outer)
}

/// The only item of a SELECT without GROUP BY, and what it is called.
fn only_item(select: &Select) -> Option<(&Expr, Option<&Ident>)> {
    let plain = select.having.is_none()
        && matches!(&select.group_by, ast::GroupByExpr::Expressions(by, _) if by.is_empty());
    match select.projection.as_slice() {
        [SelectItem::UnnamedExpr(expr)] if plain => Some((expr, None)),
        [SelectItem::ExprWithAlias { expr, alias }] if plain => Some((expr, Some(alias))),
        _ => None,
    }
}

/// Whether an expression's value is not that of one row: it has aggregates, window functions or
/// functions that give rows.
fn is_of_many_rows(expr: &Expr) -> bool {
    static NAMES: LazyLock<HashSet<String>> = LazyLock::new(|| {
        let aggregates = aggregate_functions();
        let aggregates = aggregates.iter().flat_map(|f| f.aliases().iter().cloned().chain([f.name().into()]));
        let windows = window_functions();
        let windows = windows.iter().map(|f| f.name().to_owned());
        aggregates.chain(windows).collect()
    });
    let mut found = false;
    let _ = ast::visit_expressions(expr, |expr| {
        if let Expr::Function(function) = expr {
            let name = name_of(&function.name);
            let many = |name: &str| {
                NAMES.contains(name) || name.ends_with("_agg") || lists_of(name, Vec::new()).is_some()
            };
            found |= function.over.is_some() || name.as_deref().is_some_and(many);
        }
        ControlFlow::<()>::Continue(())
    });
    found
}

fn name_of(name: &ObjectName) -> Option<String> {
    match name.0.last()? {
        ObjectNamePart::Identifier(ident) => Some(fold(ident)),
        ObjectNamePart::Function(_) => None,
    }
}

/// `SELECT e FROM … ORDER BY o` as `SELECT array_agg(e ORDER BY o) FROM …`; the query itself if it is
/// not so simple.
fn aggregated(mut query: Box<Query>) -> Result<Box<Query>, Box<Query>> {
    let bare = query.with.is_none() && query.limit_clause.is_none();
    let order = match query.order_by.take() {
        None => Vec::new(),
        Some(ast::OrderBy { kind: ast::OrderByKind::Expressions(order), .. }) => order,
        other => {
            query.order_by = other;
            return Err(query);
        }
    };
    let simple = match query.body.as_mut() {
        SetExpr::Select(select) if bare => aggregated_item(select, &order),
        _ => None,
    };
    match (simple, query.body.as_mut()) {
        (Some(item), SetExpr::Select(select)) => {
            select.distinct = None;
            select.projection = vec![SelectItem::UnnamedExpr(item)];
            Ok(query)
        }
        _ => {
            let kind = ast::OrderByKind::Expressions(order);
            query.order_by = match &kind {
                ast::OrderByKind::Expressions(order) if order.is_empty() => None,
                _ => Some(ast::OrderBy { kind, interpolate: None }),
            };
            Err(query)
        }
    }
}

/// The items of a SELECT in an order as one item.
fn aggregated_item(select: &Select, order: &[ast::OrderByExpr]) -> Option<Expr> {
    let distinct = match select.distinct {
        None | Some(Distinct::All) => None,
        Some(Distinct::Distinct) => Some(ast::DuplicateTreatment::Distinct),
        Some(Distinct::On(_)) => return None,
    };
    let (item, alias) = only_item(select)?;
    if is_of_many_rows(item) || order.iter().any(|by| is_of_many_rows(&by.expr)) {
        return None;
    }
    let mut collected = call("array_agg", vec![item.clone()]);
    if let Expr::Function(ast::Function { args: FunctionArguments::List(list), .. }) = &mut collected {
        list.duplicate_treatment = distinct;
        // The only column can be named by its position, or by its name.
        let named = |by: &ast::OrderByExpr| {
            let own = match &by.expr {
                Expr::Value(value) => matches!(value.value, Value::Number(..)),
                Expr::Identifier(ident) => alias.is_some_and(|alias| fold(alias) == fold(ident)),
                _ => false,
            };
            ast::OrderByExpr { expr: if own { item.clone() } else { by.expr.clone() }, ..by.clone() }
        };
        if !order.is_empty() {
            list.clauses.push(ast::FunctionArgumentClause::OrderBy(order.iter().map(named).collect()));
        }
    }
    Some(collected)
}

/// The list that the query's rows are the elements of, where a function gives them.
fn list(query: &Query) -> Option<Expr> {
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    let bare = query.with.is_none() && query.order_by.is_none() && query.limit_clause.is_none();
    if !bare || select.selection.is_some() || select.distinct.is_some() {
        return None;
    }
    let (body, _) = only_item(select)?;
    if select.from.is_empty() {
        let Expr::Function(function) = body else { return None };
        let FunctionArguments::List(list) = &function.args else { return None };
        return list_of_call(&name_of(&function.name)?, &list.args);
    }
    let [ast::TableWithJoins { relation, joins }] = select.from.as_slice() else { return None };
    let TableFactor::Table { name, alias, args: Some(args), with_ordinality: false, .. } = relation else {
        return None;
    };
    if !joins.is_empty() {
        return None;
    }
    let function = name_of(name)?;
    let array = list_of_call(&function, &args.args)?;
    let item = match alias {
        None => Ident::new(function),
        Some(alias) => match alias.columns.as_slice() {
            [] => alias.name.clone(),
            [column] => column.name.clone(),
            _ => return None,
        },
    };
    if matches!(body, Expr::Identifier(ident) if fold(ident) == fold(&item)) {
        return Some(array);
    }
    if is_of_many_rows(body) {
        return None;
    }
    let lambda = Expr::Lambda(ast::LambdaFunction {
        params: ast::OneOrManyWithParens::One(ast::LambdaFunctionParameter { name: item, data_type: None }),
        body: Box::new(body.clone()),
        syntax: ast::LambdaSyntax::Arrow,
    });
    Some(call("array_transform", vec![array, lambda]))
}

fn list_of_call(function: &str, args: &[FunctionArg]) -> Option<Expr> {
    let plain = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    let args = args.iter().map(plain).collect::<Option<Vec<_>>>()?;
    let Lists { mut exprs, .. } = lists_of(function, args)?;
    if exprs.len() == 1 { exprs.pop() } else { None }
}
