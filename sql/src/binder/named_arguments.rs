//! `make_interval(days => 10)`: arguments by their names, in the order of the function's parameters.

use crate::parser::fold;
use sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgOperator, FunctionArguments,
    ObjectNamePart, Value,
};

/// A function whose parameters PostgreSQL names.
struct Named {
    parameters: &'static [&'static str],
    /// How many have to be given; the others are what is said here, where it matters.
    required: usize,
    default: &'static str,
}

fn named(function: &str) -> Option<Named> {
    let (parameters, required, default): (&[&str], usize, &str) = match function {
        "make_interval" => (&["years", "months", "weeks", "days", "hours", "mins", "secs"], 0, "0"),
        "make_date" => (&["year", "month", "day"], 3, ""),
        "make_time" => (&["hour", "min", "sec"], 3, ""),
        "make_timestamp" => (&["year", "month", "mday", "hour", "min", "sec"], 6, ""),
        "make_timestamptz" => (&["year", "month", "mday", "hour", "min", "sec", "timezone"], 6, ""),
        "jsonb_set" => (&["jsonb_in", "path", "replacement", "create_if_missing"], 3, "true"),
        "jsonb_insert" => (&["jsonb_in", "path", "replacement", "insert_after"], 3, "false"),
        _ => return None,
    };
    Some(Named { parameters, required, default })
}

/// The call with its arguments in order, if some are named and all fit.
pub(super) fn rewrite(function: &mut Function) {
    let Some(ObjectNamePart::Identifier(name)) = function.name.0.last() else { return };
    let FunctionArguments::List(list) = &mut function.args else { return };
    list.args.iter_mut().for_each(assigned);
    if !list.args.iter().any(|arg| matches!(arg, FunctionArg::Named { .. } | FunctionArg::ExprNamed { .. })) {
        return;
    }
    let Some(named) = named(&fold(name)) else { return };
    let Some(given) = placed(&list.args, named.parameters) else { return };
    if given.iter().take(named.required).any(Option::is_none) {
        return;
    }
    let last = given.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    let unnamed = |expr: Option<Expr>| {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr.unwrap_or_else(|| constant(named.default))))
    };
    list.args = given.into_iter().take(last).map(unnamed).collect();
}

/// `days := 10`, which is read as an operator.
fn assigned(arg: &mut FunctionArg) {
    if let FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::BinaryOp { left, op, right })) = arg
        && *op == BinaryOperator::Assignment
        && let Expr::Identifier(name) = left.as_ref()
    {
        *arg = FunctionArg::Named {
            name: name.clone(),
            arg: FunctionArgExpr::Expr(right.as_ref().clone()),
            operator: FunctionArgOperator::Assignment,
        };
    }
}

fn constant(text: &str) -> Expr {
    let value = match text {
        "true" => Value::Boolean(true),
        "false" => Value::Boolean(false),
        number => Value::Number(number.to_owned(), false),
    };
    Expr::Value(value.with_empty_span())
}

/// The arguments in the parameters' order; none if one is there twice or has no place.
fn placed(args: &[FunctionArg], parameters: &[&str]) -> Option<Vec<Option<Expr>>> {
    let mut given: Vec<Option<Expr>> = vec![None; parameters.len()];
    for (i, arg) in args.iter().enumerate() {
        let (place, expr) = match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => (i, expr),
            FunctionArg::Named { name, arg: FunctionArgExpr::Expr(expr), .. } => {
                (parameters.iter().position(|parameter| *parameter == fold(name))?, expr)
            }
            FunctionArg::ExprNamed {
                name: Expr::Identifier(name), arg: FunctionArgExpr::Expr(expr), ..
            } => (parameters.iter().position(|parameter| *parameter == fold(name))?, expr),
            _ => return None,
        };
        let place = given.get_mut(place)?;
        if place.is_some() {
            return None;
        }
        *place = Some(expr.clone());
    }
    Some(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(sql: &str) -> String {
        let Ok(Expr::Function(mut function)) = crate::parser::parse_expr(sql) else { panic!("a call") };
        rewrite(&mut function);
        function.to_string()
    }

    #[test]
    fn names_give_places() {
        assert_eq!(rewritten("make_interval(days => 10)"), "make_interval(0, 0, 0, 10)");
        assert_eq!(rewritten("make_interval(1, secs := 2.5)"), "make_interval(1, 0, 0, 0, 0, 0, 2.5)");
        assert_eq!(rewritten("make_date(day => 3, year => 2020, month => 2)"), "make_date(2020, 2, 3)");
        assert_eq!(rewritten("make_date(2020, day => 3)"), "make_date(2020, day => 3)");
        assert_eq!(rewritten("make_interval(1, years => 2)"), "make_interval(1, years => 2)");
    }
}
