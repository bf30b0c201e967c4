//! `ARRAY(query)` as an expression that DataFusion reads.

use super::rewrite::call;
use crate::error::SqlError;
use crate::parser::fold;
use sqlparser::ast::{self, Expr, FunctionArguments, ObjectNamePart, Query, SelectItem, Value};

/// `ARRAY(SELECT f(x) FROM unnest(a) x)` is a transformation of `a`, any other `ARRAY(query)` the
/// aggregation of its rows.
pub(super) fn array_of_query(query: Box<Query>) -> Result<Expr, SqlError> {
    if let Some(transformed) = transformed_array(&query) {
        return Ok(transformed);
    }
    let query = match aggregated(query) {
        Ok(aggregated) => return Ok(Expr::Subquery(aggregated)),
        Err(query) => query,
    };
    let mut outer =
        crate::parser::parse_query("SELECT array_agg(weir_item) FROM (SELECT 1) AS weir_array (weir_item)")?;
    if let ast::SetExpr::Select(select) = outer.body.as_mut()
        && let Some(ast::TableFactor::Derived { subquery, .. }) =
            select.from.first_mut().map(|t| &mut t.relation)
    {
        *subquery = query;
    }
    Ok(Expr::Subquery(outer))
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
    let ast::SetExpr::Select(select) = query.body.as_mut() else { return Err(query) };
    let plain = select.distinct.is_none()
        && select.having.is_none()
        && matches!(&select.group_by, ast::GroupByExpr::Expressions(by, _) if by.is_empty());
    let item = match select.projection.as_slice() {
        [SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }] if bare && plain => {
            expr.clone()
        }
        _ => return Err(query),
    };
    let mut item_call = call("array_agg", vec![item.clone()]);
    if let Expr::Function(ast::Function { args: FunctionArguments::List(list), .. }) = &mut item_call
        && !order.is_empty()
    {
        // The only column can be named by its position.
        let named = |mut by: ast::OrderByExpr| {
            if matches!(&by.expr, Expr::Value(v) if matches!(v.value, Value::Number(..))) {
                by.expr = item.clone();
            }
            by
        };
        list.clauses.push(ast::FunctionArgumentClause::OrderBy(order.into_iter().map(named).collect()));
    }
    select.projection = vec![SelectItem::UnnamedExpr(item_call)];
    Ok(query)
}

fn transformed_array(query: &Query) -> Option<Expr> {
    let ast::SetExpr::Select(select) = query.body.as_ref() else { return None };
    let bare = query.with.is_none() && query.order_by.is_none() && query.limit_clause.is_none();
    let [
        ast::TableWithJoins {
            relation: ast::TableFactor::Table { name, alias, args: Some(args), .. },
            joins,
        },
    ] = select.from.as_slice()
    else {
        return None;
    };
    let unnest = matches!(name.0.last(), Some(ObjectNamePart::Identifier(i)) if fold(i) == "unnest");
    let [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(array))] = args.args.as_slice() else {
        return None;
    };
    if !bare || !unnest || !joins.is_empty() || select.selection.is_some() || select.distinct.is_some() {
        return None;
    }
    let [SelectItem::UnnamedExpr(body) | SelectItem::ExprWithAlias { expr: body, .. }] =
        select.projection.as_slice()
    else {
        return None;
    };
    let item = alias.as_ref()?.name.clone();
    let lambda = Expr::Lambda(ast::LambdaFunction {
        params: ast::OneOrManyWithParens::One(ast::LambdaFunctionParameter { name: item, data_type: None }),
        body: Box::new(body.clone()),
        syntax: ast::LambdaSyntax::Arrow,
    });
    Some(call("array_transform", vec![array.clone(), lambda]))
}
