//! Aggregates that are made of the list of their input.
//!
//! ```text
//!   jsonb_agg(x ORDER BY y)                          collected array_agg(to_jsonb(x) ORDER BY y)
//!   jsonb_object_agg(k, v)                           collected array_agg(k::text), array_agg(to_jsonb(v))
//!   json_agg(x), json_object_agg(k, v)               the same of to_json
//!   percentile_disc(f) WITHIN GROUP (ORDER BY x)     percentile of array_agg(x ORDER BY x), f
//! ```

use super::rewrite::{call, cast_to};
use crate::functions::{json_build, percentile};
use crate::parser::fold;
use sqlparser::ast::{
    self, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments,
    ObjectNamePart,
};

/// The same without such an aggregate; other expressions as they are.
pub(super) fn rewrite(expr: &mut Expr) {
    let Expr::Function(function) = &*expr else { return };
    let Some(ObjectNamePart::Identifier(ident)) = function.name.0.last() else { return };
    let Some(args) = arguments(function) else { return };
    let of = |converts: &str, value: &Expr| collected(function, call(converts, vec![value.clone()]));
    let name_of = |name: &Expr| collected(function, cast_to(name.clone(), ast::DataType::Text));
    let changed = match (fold(ident).as_str(), args.as_slice()) {
        ("jsonb_agg", [value]) => call(json_build::COLLECT_ARRAY, vec![of("to_jsonb", value)]),
        ("json_agg", [value]) => call(json_build::COLLECT_JSON_ARRAY, vec![of(json_build::JSON_ITEM, value)]),
        ("jsonb_object_agg", [name, value]) => {
            call(json_build::COLLECT_OBJECT, vec![name_of(name), of("to_jsonb", value)])
        }
        ("json_object_agg", [name, value]) => {
            call(json_build::COLLECT_JSON_OBJECT, vec![name_of(name), of("to_json", value)])
        }
        ("percentile_cont", [fraction]) => ordered(function, percentile::PERCENTILE_CONT, Some(fraction)),
        ("percentile_disc", [fraction]) => ordered(function, percentile::PERCENTILE_DISC, Some(fraction)),
        ("mode", []) => ordered(function, percentile::MODE, None),
        _ => return,
    };
    *expr = changed;
}

fn arguments(function: &Function) -> Option<Vec<Expr>> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let plain = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    list.args.iter().map(plain).collect()
}

/// `array_agg(item)` with all that the aggregate says of order, DISTINCT, FILTER and OVER.
fn collected(function: &Function, item: Expr) -> Expr {
    let mut aggregate = call("array_agg", vec![item]);
    if let (Expr::Function(aggregate), FunctionArguments::List(list)) = (&mut aggregate, &function.args)
        && let FunctionArguments::List(own) = &mut aggregate.args
    {
        own.clauses = list.clauses.clone();
        own.duplicate_treatment = list.duplicate_treatment;
        aggregate.filter = function.filter.clone();
        aggregate.over = function.over.clone();
    }
    aggregate
}

/// `name(array_agg(x ORDER BY x), fraction)`.
fn ordered(function: &Function, name: &str, fraction: Option<&Expr>) -> Expr {
    let [by] = function.within_group.as_slice() else { return Expr::Function(function.clone()) };
    let mut aggregate = collected(function, by.expr.clone());
    if let Expr::Function(aggregate) = &mut aggregate
        && let FunctionArguments::List(list) = &mut aggregate.args
    {
        list.clauses = vec![FunctionArgumentClause::OrderBy(vec![by.clone()])];
    }
    call(name, std::iter::once(aggregate).chain(fraction.cloned()).collect())
}
