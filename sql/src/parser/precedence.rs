//! What sqlparser binds otherwise than PostgreSQL: `IS [NOT] DISTINCT FROM` takes everything to
//! its right, also what follows an AND or OR.
//!
//! ```text
//!   a IS DISTINCT FROM b AND c     parsed   a IS DISTINCT FROM (b AND c)
//!                                  meant    (a IS DISTINCT FROM b) AND c
//! ```
//! Parentheses that are written are nodes of their own, so the two can be told apart.

use sqlparser::ast::{BinaryOperator, Expr, Ident, UnaryOperator, VisitMut, visit_expressions_mut};
use std::ops::ControlFlow;

/// Binds the expressions of `node` as PostgreSQL does.
pub(crate) fn mend<T: VisitMut>(mut node: T) -> T {
    // The visitor only ever continues.
    let _ = visit_expressions_mut(&mut node, |expr| {
        mend_expr(expr);
        ControlFlow::<()>::Continue(())
    });
    node
}

fn mend_expr(expr: &mut Expr) {
    match expr {
        Expr::IsDistinctFrom(_, right) | Expr::IsNotDistinctFrom(_, right) if binds(right).is_some() => {
            sink(expr);
        }
        // What sank below lifted a connective to where the parser puts none.
        Expr::UnaryOp { op: UnaryOperator::Not, expr: inner } if binds(inner).is_some() => sink(expr),
        Expr::BinaryOp { op, right, .. } => {
            let looser = matches!((strength(op), binds(right)), (Some(own), Some(other)) if other <= own);
            if looser {
                sink(expr);
            }
        }
        _ => {}
    }
}

/// Makes `expr`, whose last operand is a connective, the left end of that connective.
fn sink(expr: &mut Expr) {
    let Some(last) = last_operand(expr) else { return };
    let mut whole = std::mem::replace(last, nothing());
    let mut leaf = &mut whole;
    while binds(leaf).is_some() {
        let Expr::BinaryOp { left, .. } = leaf else { break };
        leaf = left;
    }
    let end = std::mem::replace(leaf, nothing());
    let mut own = std::mem::replace(expr, nothing());
    if let Some(last) = last_operand(&mut own) {
        *last = end;
    }
    *leaf = own;
    *expr = whole;
}

fn last_operand(expr: &mut Expr) -> Option<&mut Expr> {
    match expr {
        Expr::IsDistinctFrom(_, right) | Expr::IsNotDistinctFrom(_, right) => Some(right),
        Expr::UnaryOp { expr, .. } => Some(expr),
        Expr::BinaryOp { right, .. } => Some(right),
        _ => None,
    }
}

fn nothing() -> Expr {
    Expr::Identifier(Ident::new(""))
}

/// How tight a connective binds.
fn strength(op: &BinaryOperator) -> Option<u8> {
    match op {
        BinaryOperator::Or => Some(1),
        BinaryOperator::Xor => Some(2),
        BinaryOperator::And => Some(3),
        _ => None,
    }
}

fn binds(expr: &Expr) -> Option<u8> {
    match expr {
        Expr::BinaryOp { op, .. } => strength(op),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::parser::parse_expr;

    #[test]
    fn distinct_from_binds_tighter_than_and() {
        for (written, meant) in [
            ("a IS DISTINCT FROM b AND c", "(a IS DISTINCT FROM b) AND c"),
            ("a IS NOT DISTINCT FROM b OR c AND d", "(a IS NOT DISTINCT FROM b) OR (c AND d)"),
            ("a IS DISTINCT FROM b AND c OR d", "((a IS DISTINCT FROM b) AND c) OR d"),
            ("x AND a IS DISTINCT FROM true AND k = 3", "(x AND (a IS DISTINCT FROM true)) AND (k = 3)"),
            ("x AND a IS DISTINCT FROM b OR c", "(x AND (a IS DISTINCT FROM b)) OR c"),
            ("x OR a IS DISTINCT FROM b AND c", "x OR ((a IS DISTINCT FROM b) AND c)"),
            ("NOT a IS DISTINCT FROM b AND c", "(NOT (a IS DISTINCT FROM b)) AND c"),
            ("a IS DISTINCT FROM (b AND c)", "a IS DISTINCT FROM (b AND c)"),
            (
                "a IS DISTINCT FROM b IS DISTINCT FROM c AND d",
                "(a IS DISTINCT FROM b IS DISTINCT FROM c) AND d",
            ),
        ] {
            let plain = |sql: &str| parse_expr(sql).expect("it parses").to_string().replace(['(', ')'], "");
            assert_eq!(plain(written), plain(meant));
            let shape = |sql: &str| format!("{:?}", strip(parse_expr(sql).expect("it parses")));
            assert_eq!(shape(written), shape(meant), "{written}");
        }
    }

    /// The text with every operation in parentheses.
    fn strip(expr: sqlparser::ast::Expr) -> String {
        use sqlparser::ast::Expr;
        match expr {
            Expr::Nested(inner) => strip(*inner),
            Expr::BinaryOp { left, op, right } => format!("({} {op} {})", strip(*left), strip(*right)),
            Expr::UnaryOp { op, expr } => format!("({op} {})", strip(*expr)),
            Expr::IsDistinctFrom(l, r) => format!("({} IS DISTINCT FROM {})", strip(*l), strip(*r)),
            Expr::IsNotDistinctFrom(l, r) => format!("({} IS NOT DISTINCT FROM {})", strip(*l), strip(*r)),
            other => other.to_string(),
        }
    }
}
