//! EXISTS and IN with a subquery as values, and IN of rows: as subqueries that DataFusion can join.
//!
//! ```text
//!   SELECT EXISTS (SELECT … WHERE …)      SELECT (SELECT count(*) FROM … WHERE …) > 0
//!   SELECT x IN (q)                       SELECT CASE WHEN how many of q are x > 0 THEN true
//!                                           WHEN q is empty THEN false
//!                                           WHEN x or one of q is NULL THEN NULL ELSE false END
//!   WHERE (a, b) IN (q)                   WHERE EXISTS (SELECT 1 FROM (q) t (x, y) WHERE a = x AND b = y)
//! ```
//! In WHERE a subquery is a join, where NULL is as good as false, and stays what it is.

use super::column_name::MARK;
use super::own_exprs;
use crate::parser::parse_query;
use sqlparser::ast::{self, BinaryOperator, Expr, Ident, Query, Select, SelectItem, SetExpr, TableFactor};
use std::ops::ControlFlow;

/// Rewrites the values of a SELECT: its items.
pub(super) fn rewrite_items(select: &mut Select) {
    own_exprs::leaves_first(&mut select.projection, |expr| {
        let changed = match &*expr {
            Expr::Exists { subquery, negated } => exists(subquery, *negated),
            Expr::InSubquery { expr, subquery, negated } => is_in(expr, subquery, *negated),
            _ => None,
        };
        if let Some(changed) = changed {
            *expr = Expr::Nested(Box::new(changed));
        }
    });
}

fn template(sql: &str) -> Option<Expr> {
    crate::parser::parse_expr(sql).ok()
}

/// `(SELECT count(*) FROM …) > 0`, where the rows can be counted in place of the subquery's own items.
fn exists(subquery: &Query, negated: bool) -> Option<Expr> {
    let SetExpr::Select(select) = subquery.body.as_ref() else { return None };
    let ungrouped = matches!(&select.group_by, ast::GroupByExpr::Expressions(by, modifiers) if by.is_empty() && modifiers.is_empty());
    let plain = ungrouped && select.having.is_none() && subquery.limit_clause.is_none();
    if !plain || subquery.with.is_some() || select.projection.iter().any(aggregates) {
        return None;
    }
    let mut counted = subquery.clone();
    counted.order_by = None;
    if let SetExpr::Select(select) = counted.body.as_mut() {
        select.distinct = None;
        select.projection = vec![SelectItem::UnnamedExpr(template("count(*)")?)];
    }
    compared(counted, if negated { BinaryOperator::Eq } else { BinaryOperator::Gt })
}

fn compared(counted: Query, op: BinaryOperator) -> Option<Expr> {
    Some(Expr::BinaryOp {
        left: Box::new(Expr::Subquery(Box::new(counted))),
        op,
        right: Box::new(template("0")?),
    })
}

/// Whether an item may make one row of all: it calls something.
fn aggregates(item: &SelectItem) -> bool {
    let expr = match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => expr,
        _ => return false,
    };
    let mut calls = false;
    let _ = ast::visit_expressions(expr, |expr| {
        calls |= matches!(expr, Expr::Function(_));
        ControlFlow::<()>::Continue(())
    });
    calls
}

/// How many rows of `(subquery) t (x)` there are for which a condition over `x` and `value` holds.
fn counted_where(subquery: &Query, columns: usize, condition: Option<Expr>) -> Option<Query> {
    let names: Vec<String> = (0..columns).map(column).collect();
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    let mut query =
        parse_query(&format!("SELECT count(*) FROM (SELECT 1) AS \"{MARK}in\" ({})", quoted.join(", ")))
            .ok()?;
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    let TableFactor::Derived { subquery: derived, .. } = &mut select.from.first_mut()?.relation else {
        return None;
    };
    **derived = subquery.clone();
    select.selection = condition;
    Some(*query)
}

fn column(i: usize) -> String {
    format!("{MARK}in{i}")
}

fn reference(i: usize) -> Expr {
    let quoted = |name: String| Ident::with_quote('"', name);
    Expr::CompoundIdentifier(vec![quoted(format!("{MARK}in")), quoted(column(i))])
}

fn is_in(value: &Expr, subquery: &Query, negated: bool) -> Option<Expr> {
    if matches!(value, Expr::Tuple(_)) {
        return None;
    }
    let equal = Expr::BinaryOp {
        left: Box::new(reference(0)),
        op: BinaryOperator::Eq,
        right: Box::new(Expr::Nested(Box::new(value.clone()))),
    };
    let found = compared(counted_where(subquery, 1, Some(equal))?, BinaryOperator::Gt)?;
    let empty = compared(counted_where(subquery, 1, None)?, BinaryOperator::Eq)?;
    let nulls = counted_where(subquery, 1, Some(Expr::IsNull(Box::new(reference(0)))))?;
    let unknown = Expr::BinaryOp {
        left: Box::new(Expr::IsNull(Box::new(Expr::Nested(Box::new(value.clone()))))),
        op: BinaryOperator::Or,
        right: Box::new(compared(nulls, BinaryOperator::Gt)?),
    };
    let when = |condition, result: &str| Some(ast::CaseWhen { condition, result: template(result)? });
    let (yes, no) = if negated { ("false", "true") } else { ("true", "false") };
    Some(Expr::Case {
        case_token: ast::helpers::attached_token::AttachedToken::empty(),
        end_token: ast::helpers::attached_token::AttachedToken::empty(),
        operand: None,
        conditions: vec![when(found, yes)?, when(empty, no)?, when(unknown, "NULL::boolean")?],
        else_result: Some(Box::new(template(no)?)),
    })
}

/// `(a, b) IN (q)` as EXISTS, which is as good where NULL is as good as false; NOT IN holds where
/// the comparison with every row is false.
pub(super) fn row_in(members: &[Expr], subquery: &Query, negated: bool) -> Option<Expr> {
    let equal = members.iter().enumerate().map(|(i, member)| Expr::BinaryOp {
        left: Box::new(reference(i)),
        op: BinaryOperator::Eq,
        right: Box::new(Expr::Nested(Box::new(member.clone()))),
    });
    let all = equal.reduce(|left, right| Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::And,
        right: Box::new(right),
    })?;
    let condition = if negated { Expr::IsNotFalse(Box::new(Expr::Nested(Box::new(all)))) } else { all };
    let mut query = counted_where(subquery, members.len(), Some(condition))?;
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.projection = vec![SelectItem::UnnamedExpr(template("1")?)];
    }
    Some(Expr::Exists { subquery: Box::new(query), negated })
}
