//! Aggregates told apart by name: DataFusion calls `sum(x)` and `sum(x::numeric)` the same, and can't
//! have both. Where a SELECT does, the casts are marked, until the names are no longer needed.

use super::own_exprs;
use super::rewrite::call;
use crate::functions::system::MARKED;
use sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Select, Value, visit_expressions_mut,
};
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

/// Marks the arguments of calls that differ by their casts alone.
pub(super) fn rewrite_select(select: &mut Select) {
    // Each call without its casts, and how it is written with them.
    let mut written: HashMap<String, HashSet<String>> = HashMap::new();
    own_exprs::leaves_first(&mut select.projection, |expr| {
        if let Some(bare) = without_casts(expr) {
            written.entry(bare).or_default().insert(expr.to_string());
        }
    });
    let alike: HashSet<String> =
        written.into_iter().filter(|(_, written)| written.len() > 1).map(|(name, _)| name).collect();
    if !alike.is_empty() {
        let mut marked = |expr: &mut Expr| {
            if without_casts(expr).is_some_and(|bare| alike.contains(&bare)) {
                mark(expr);
            }
        };
        own_exprs::roots_first(&mut select.projection, &mut marked);
        own_exprs::roots_first(&mut select.having, &mut marked);
    }
}

/// Marks the casts that are arguments of a call.
fn mark(expr: &mut Expr) {
    let Expr::Function(function) = expr else { return };
    let FunctionArguments::List(list) = &mut function.args else { return };
    for arg in &mut list.args {
        if let FunctionArg::Unnamed(FunctionArgExpr::Expr(arg @ Expr::Cast { .. })) = arg {
            let text = Value::SingleQuotedString(arg.to_string()).with_empty_span();
            *arg = call(MARKED, vec![arg.clone(), Expr::Value(text)]);
        }
    }
}

/// A call without its casts, if it has any arguments.
fn without_casts(expr: &Expr) -> Option<String> {
    let Expr::Function(function) = expr else { return None };
    if function.over.is_some() || !matches!(function.args, FunctionArguments::List(_)) {
        return None;
    }
    let mut bare = expr.clone();
    let _ = visit_expressions_mut(&mut bare, |expr| {
        if let Expr::Cast { expr: inner, .. } = expr {
            let inner = std::mem::replace(inner.as_mut(), Expr::Value(Value::Null.with_empty_span()));
            *expr = inner;
        }
        ControlFlow::<()>::Continue(())
    });
    Some(bare.to_string())
}
