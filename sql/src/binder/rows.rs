//! Comparisons of rows, as comparisons of their members: `(a, b) < (c, d)`.
//!
//! DataFusion compares rows as values, where a NULL member is like any other. In PostgreSQL a NULL
//! makes the comparison NULL, unless the members before it have decided:
//!
//! ```text
//!   (a, b) = (c, d)    a = c AND b = d
//!   (a, b) <> (c, d)   a <> c OR b <> d
//!   (a, b) < (c, d)    a < c OR (a = c AND b < d)
//!   (a, b) IS NULL     a IS NULL AND b IS NULL
//! ```

use super::predicates;
use super::rewrite::call;
use crate::error::SqlError;
use crate::functions::json_build;
use crate::functions::overlap::OVERLAPS;
use crate::parser::fold;
use sqlparser::ast::{
    self, BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectNamePart, Value,
};
use weir_catalog::SqlState;

/// The same without comparisons of rows; other expressions as they are.
pub(super) fn rewrite(expr: &mut Expr) -> Result<(), SqlError> {
    let changed = match expr {
        Expr::BinaryOp { left, op, right } => match (members(left), members(right)) {
            (Some(left), Some(right)) => compared(&left, op, &right)?,
            _ => None,
        },
        Expr::IsDistinctFrom(left, right) => distinct(left, right, true)?,
        Expr::IsNotDistinctFrom(left, right) => distinct(left, right, false)?,
        Expr::IsNull(row) => each(row, |member| Expr::IsNull(Box::new(member))),
        Expr::IsNotNull(row) => each(row, |member| Expr::IsNotNull(Box::new(member))),
        Expr::InList { expr: row, list, negated } => in_list(row, list, *negated)?,
        Expr::InSubquery { expr: row, subquery, negated } => {
            members(row).and_then(|members| predicates::row_in(&members, subquery, *negated))
        }
        _ => None,
    };
    if let Some(changed) = changed {
        *expr = Expr::Nested(Box::new(changed));
    }
    Ok(())
}

/// `ROW(a, b)` as a value: a record of members f1, f2, ….
pub(super) fn record(expr: &Expr) -> Option<Expr> {
    let members = match expr {
        Expr::Function(_) | Expr::Tuple(_) => members(expr)?,
        _ => return None,
    };
    let named = members.into_iter().enumerate().flat_map(|(i, member)| {
        let member = record(&member).unwrap_or(member);
        [Expr::Value(Value::SingleQuotedString(format!("f{}", i + 1)).with_empty_span()), member]
    });
    Some(call(json_build::RECORD, named.collect()))
}

/// The members of `(a, b)` or `ROW(a, b)`.
fn members(expr: &Expr) -> Option<Vec<Expr>> {
    match expr {
        Expr::Tuple(members) => Some(members.clone()),
        Expr::Nested(inner) => members(inner),
        Expr::Function(function) => {
            let FunctionArguments::List(list) = &function.args else { return None };
            let is_row =
                matches!(function.name.0.as_slice(), [ObjectNamePart::Identifier(i)] if fold(i) == "row");
            let member = |arg: &FunctionArg| match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
                _ => None,
            };
            is_row.then(|| list.args.iter().map(member).collect())?
        }
        _ => None,
    }
}

fn pairs(left: &[Expr], right: &[Expr]) -> Result<Vec<(Expr, Expr)>, SqlError> {
    if left.len() != right.len() {
        let message = "unequal number of entries in row expressions";
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
    }
    Ok(left.iter().cloned().zip(right.iter().cloned()).collect())
}

fn compared(left: &[Expr], op: &BinaryOperator, right: &[Expr]) -> Result<Option<Expr>, SqlError> {
    use BinaryOperator::{And, Eq, Gt, GtEq, Lt, LtEq, NotEq, Or, Overlaps};
    let each = |op: &BinaryOperator, joined| -> Result<Option<Expr>, SqlError> {
        let parts = pairs(left, right)?.into_iter().map(|(l, r)| binary(l, op.clone(), r));
        Ok(chain(parts.collect(), joined))
    };
    match op {
        Overlaps if left.len() == 2 && right.len() == 2 => {
            Ok(Some(call(OVERLAPS, left.iter().chain(right).cloned().collect())))
        }
        Overlaps => {
            let side = if left.len() == 2 { "right" } else { "left" };
            let message = format!("wrong number of parameters on {side} side of OVERLAPS expression");
            Err(SqlError::new(SqlState::SYNTAX_ERROR, message))
        }
        Eq => each(op, And),
        NotEq => each(op, Or),
        Lt | Gt | LtEq | GtEq => {
            let strict = if matches!(op, Lt | LtEq) { Lt } else { Gt };
            let mut pairs = pairs(left, right)?.into_iter().rev();
            let Some((l, r)) = pairs.next() else { return Ok(None) };
            let last = binary(l, op.clone(), r);
            Ok(Some(pairs.fold(last, |rest, (l, r)| {
                let before = binary(l.clone(), strict.clone(), r.clone());
                let tie = binary(binary(l, Eq, r), And, rest);
                binary(before, Or, tie)
            })))
        }
        _ => Ok(None),
    }
}

fn distinct(left: &Expr, right: &Expr, distinct: bool) -> Result<Option<Expr>, SqlError> {
    let (Some(left), Some(right)) = (members(left), members(right)) else { return Ok(None) };
    let part = |(l, r): (Expr, Expr)| match distinct {
        true => Expr::IsDistinctFrom(Box::new(l), Box::new(r)),
        false => Expr::IsNotDistinctFrom(Box::new(l), Box::new(r)),
    };
    let joined = if distinct { BinaryOperator::Or } else { BinaryOperator::And };
    Ok(chain(pairs(&left, &right)?.into_iter().map(part).collect(), joined))
}

/// A test that holds of a row if it holds of each member.
fn each(row: &Expr, test: impl Fn(Expr) -> Expr) -> Option<Expr> {
    chain(members(row)?.into_iter().map(test).collect(), BinaryOperator::And)
}

fn in_list(row: &Expr, list: &[Expr], negated: bool) -> Result<Option<Expr>, SqlError> {
    let Some(row) = members(row) else { return Ok(None) };
    let mut alternatives = Vec::with_capacity(list.len());
    for item in list {
        let Some(item) = members(item) else { return Ok(None) };
        alternatives.extend(compared(&row, &BinaryOperator::Eq, &item)?);
    }
    let found = chain(alternatives, BinaryOperator::Or);
    Ok(found.map(|found| match negated {
        true => Expr::UnaryOp { op: ast::UnaryOperator::Not, expr: Box::new(Expr::Nested(Box::new(found))) },
        false => found,
    }))
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

/// All of them, joined by an operator in halves, so that many don't nest deep.
fn chain(mut parts: Vec<Expr>, op: BinaryOperator) -> Option<Expr> {
    if parts.len() <= 1 {
        return parts.pop();
    }
    let right = parts.split_off(parts.len() / 2);
    Some(binary(chain(parts, op.clone())?, op.clone(), chain(right, op)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(sql: &str) -> String {
        let mut expr = crate::parser::parse_expr(sql).expect("an expression");
        rewrite(&mut expr).expect("rows of one length");
        expr.to_string()
    }

    #[test]
    fn rows_compare_member_by_member() {
        assert_eq!(rewritten("(a, b) = ROW(c, d)"), "(a = c AND b = d)");
        assert_eq!(rewritten("(a, b) <> (c, d)"), "(a <> c OR b <> d)");
        assert_eq!(rewritten("(a, b) <= (c, d)"), "(a < c OR a = c AND b <= d)");
        assert_eq!(rewritten("(a, b) IN ((1, 2), (3, 4))"), "(a = 1 AND b = 2 OR a = 3 AND b = 4)");
        assert_eq!(rewritten("ROW(a, b) IS NULL"), "(a IS NULL AND b IS NULL)");
        assert_eq!(rewritten("a = b"), "a = b");
        assert_eq!(rewritten("(a) = (b)"), "(a) = (b)");
    }
}
