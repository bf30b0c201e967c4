//! Where in a statement the name is that an error complains of, if DataFusion did not say.

use crate::error::SqlError;
use crate::parser::{Text, fold};
use sqlparser::ast::{Expr, Ident, ObjectName, ObjectNamePart, Spanned, Visit, Visitor};
use sqlparser::tokenizer::Span;
use std::ops::ControlFlow;
use weir_catalog::SqlState;

/// `error` with the position of the first use of the name that it quotes.
pub(super) fn located(error: SqlError, node: &impl Visit, text: Option<&Text<'_>>) -> SqlError {
    let (None, Some(text)) = (error.position, text) else { return error };
    let Some(name) = name_in(&error) else { return error };
    let mut finder = Finder { name, state: error.state };
    match node.visit(&mut finder) {
        ControlFlow::Break(span) if span.start.line > 0 => {
            let position = text.char(span.start) + 1;
            error.at(position)
        }
        _ => error,
    }
}

/// The unqualified name that an error complains of.
fn name_in(error: &SqlError) -> Option<String> {
    let message = &error.message;
    let quoted = || message.split('"').nth(1).map(str::to_owned);
    match error.state {
        SqlState::UNDEFINED_FUNCTION => {
            let call = message.strip_prefix("function ")?;
            Some(call.split(['(', ' ']).next()?.to_owned())
        }
        SqlState::UNDEFINED_COLUMN => {
            quoted().or_else(|| Some(message.strip_prefix("column ")?.split(' ').next()?.to_owned()))
        }
        SqlState::AMBIGUOUS_COLUMN | SqlState::UNDEFINED_TABLE | SqlState::GROUPING_ERROR => quoted(),
        _ => None,
    }
    .map(|name| name.rsplit('.').next().unwrap_or_default().to_owned())
}

struct Finder {
    name: String,
    state: SqlState,
}

impl Finder {
    fn is(&self, ident: &Ident) -> bool {
        fold(ident) == self.name
    }

    fn last(&self, name: &ObjectName) -> bool {
        matches!(name.0.last(), Some(ObjectNamePart::Identifier(ident)) if self.is(ident))
    }
}

impl Visitor for Finder {
    type Break = Span;

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<Span> {
        match self.state == SqlState::UNDEFINED_TABLE && self.last(relation) {
            true => ControlFlow::Break(relation.span()),
            false => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Span> {
        let found = match expr {
            Expr::Function(call) => self.state == SqlState::UNDEFINED_FUNCTION && self.last(&call.name),
            Expr::Identifier(ident) => self.state != SqlState::UNDEFINED_FUNCTION && self.is(ident),
            Expr::CompoundIdentifier(parts) if self.state == SqlState::UNDEFINED_TABLE => {
                parts.iter().rev().nth(1).is_some_and(|table| self.is(table))
            }
            Expr::CompoundIdentifier(parts) => {
                self.state != SqlState::UNDEFINED_FUNCTION
                    && parts.last().is_some_and(|column| self.is(column))
            }
            _ => false,
        };
        match (found, expr) {
            (true, Expr::Function(call)) => ControlFlow::Break(call.name.span()),
            (true, _) => ControlFlow::Break(expr.span()),
            _ => ControlFlow::Continue(()),
        }
    }
}
