//! Aggregates told apart by name: DataFusion calls `sum(x)` and `sum(x::numeric)` the same, and can't
//! have both. Where a SELECT does, the casts are marked, until the names are no longer needed.

use super::rewrite::call;
use crate::functions::system::MARKED;
use sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Query, Select, Value, VisitMut, VisitorMut,
    visit_expressions_mut,
};
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

/// Marks the arguments of calls that differ by their casts alone.
pub(super) fn rewrite_select(select: &mut Select) {
    let mut calls = Calls::default();
    // Its break is never taken.
    let _ = select.projection.visit(&mut calls);
    let alike: HashSet<String> =
        calls.written.into_iter().filter(|(_, written)| written.len() > 1).map(|(name, _)| name).collect();
    if !alike.is_empty() {
        let mut marker = Marker { alike, subqueries: 0 };
        let _ = select.projection.visit(&mut marker);
        let _ = select.having.visit(&mut marker);
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

/// What calls there are: each without its casts, and how it is written with them.
#[derive(Default)]
struct Calls {
    written: HashMap<String, HashSet<String>>,
    subqueries: usize,
}

impl VisitorMut for Calls {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.subqueries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.subqueries -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.subqueries == 0
            && let Some(bare) = without_casts(expr)
        {
            self.written.entry(bare).or_default().insert(expr.to_string());
        }
        ControlFlow::Continue(())
    }
}

struct Marker {
    alike: HashSet<String>,
    subqueries: usize,
}

impl VisitorMut for Marker {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.subqueries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.subqueries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let alike =
            self.subqueries == 0 && without_casts(expr).is_some_and(|bare| self.alike.contains(&bare));
        if let Expr::Function(function) = expr
            && alike
            && let FunctionArguments::List(list) = &mut function.args
        {
            for arg in &mut list.args {
                if let FunctionArg::Unnamed(FunctionArgExpr::Expr(arg @ Expr::Cast { .. })) = arg {
                    let text = Value::SingleQuotedString(arg.to_string()).with_empty_span();
                    *arg = call(MARKED, vec![arg.clone(), Expr::Value(text)]);
                }
            }
        }
        ControlFlow::Continue(())
    }
}
