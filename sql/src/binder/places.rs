//! What may not stand where it does, and is refused before the planner sees it: window functions
//! outside of the select list and ORDER BY, limits below zero.

use crate::error::SqlError;
use sqlparser::ast::{self, Expr, Query, Select, UnaryOperator, Value, Visit, Visitor};
use std::ops::ControlFlow;
use weir_catalog::SqlState;

/// Refuses window functions in WHERE, GROUP BY, HAVING and join conditions.
pub(super) fn check_windows(select: &Select) -> Result<(), SqlError> {
    refuse_in(&select.selection, "WHERE")?;
    refuse_in(&select.group_by, "GROUP BY")?;
    refuse_in(&select.having, "HAVING")?;
    for join in select.from.iter().flat_map(|from| &from.joins) {
        refuse_in(&join.join_operator, "JOIN conditions")?;
    }
    Ok(())
}

fn refuse_in(part: &impl Visit, place: &str) -> Result<(), SqlError> {
    match part.visit(&mut Windows::default()) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => {
            let message = format!("window functions are not allowed in {place}");
            Err(SqlError::new(SqlState("42P20"), message))
        }
    }
}

/// Finds window functions, outside of subqueries.
#[derive(Default)]
struct Windows {
    depth: usize,
}

impl Visitor for Windows {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(function) if function.over.is_some() && self.depth == 0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Refuses `LIMIT -1` and `OFFSET -1`.
pub(super) fn check_limits(query: &Query) -> Result<(), SqlError> {
    let Some(ast::LimitClause::LimitOffset { limit, offset, .. }) = &query.limit_clause else {
        return Ok(());
    };
    if limit.as_ref().is_some_and(is_negative) {
        return Err(SqlError::new(SqlState("2201W"), "LIMIT must not be negative"));
    }
    if offset.as_ref().is_some_and(|offset| is_negative(&offset.value)) {
        return Err(SqlError::new(SqlState("2201X"), "OFFSET must not be negative"));
    }
    Ok(())
}

fn is_negative(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_negative(inner),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match expr.as_ref() {
            Expr::Value(value) => {
                matches!(&value.value, Value::Number(n, _) if n.bytes().any(|b| (b'1'..=b'9').contains(&b)))
            }
            _ => false,
        },
        _ => false,
    }
}
