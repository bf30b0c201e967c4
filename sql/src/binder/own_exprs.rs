//! The expressions of a part of a query that are its own, not those of the subqueries in it.

use sqlparser::ast::{Expr, Query, VisitMut, VisitorMut};
use std::ops::ControlFlow;

/// Calls `each` with every one of them, an expression after what it is made of.
pub(super) fn leaves_first(part: &mut impl VisitMut, each: impl FnMut(&mut Expr)) {
    visit(part, true, each);
}

/// The same, an expression before what it is made of.
pub(super) fn roots_first(part: &mut impl VisitMut, each: impl FnMut(&mut Expr)) {
    visit(part, false, each);
}

fn visit(part: &mut impl VisitMut, leaves_first: bool, each: impl FnMut(&mut Expr)) {
    // Its break is never taken.
    let _ = part.visit(&mut OwnExprs { subqueries: 0, leaves_first, each });
}

struct OwnExprs<F> {
    subqueries: usize,
    leaves_first: bool,
    each: F,
}

impl<F: FnMut(&mut Expr)> VisitorMut for OwnExprs<F> {
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
        if self.subqueries == 0 && !self.leaves_first {
            (self.each)(expr);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.subqueries == 0 && self.leaves_first {
            (self.each)(expr);
        }
        ControlFlow::Continue(())
    }
}
