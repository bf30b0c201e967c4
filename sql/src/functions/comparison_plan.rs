//! Rows grouped, joined, sorted and told apart by values that are compared by a key
//! ([`super::comparison`]).
//!
//! ```text
//!   GROUP BY i          GROUP BY key(i), of whose values one stands for the group
//!   SELECT DISTINCT i   the same, without aggregates
//!   JOIN … USING (i)    on key(i) = key(i)
//!   ORDER BY i          ORDER BY key(i)
//! ```
//! PostgreSQL shows any one of the values that are equal. Here it is the first or last of them in the
//! order of their own form, so that a view shows the same one whatever came first.

use super::comparison::{Keys, keyed, ordered};
use super::json::{is_jsonb, jsonb};
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::Transformed;
use datafusion_common::{Column, Result};
use datafusion_expr::expr::{AggregateFunction, Cast, ScalarFunction};
use datafusion_expr::{Aggregate, Distinct, Expr, Join, LogicalPlan, Projection};
use datafusion_optimizer::AnalyzerRule;
use std::cmp::Ordering;
use std::sync::Arc;

/// Before type coercion.
#[derive(Debug)]
pub struct ComparedRows(pub Keys);

impl AnalyzerRule for ComparedRows {
    fn name(&self) -> &str {
        "weir_compared_rows"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(|plan| by_keys(plan, self.0))?.data)
    }
}

fn by_keys(plan: LogicalPlan, keys: Keys) -> Result<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Aggregate(aggregate) => grouped(aggregate, keys),
        LogicalPlan::Distinct(Distinct::All(input)) => {
            let columns = input.schema().columns().into_iter().map(Expr::Column);
            let columns: Vec<Expr> = columns.collect();
            if columns.iter().all(|column| keys.function(column, input.schema()).is_none()) {
                return Ok(Transformed::no(LogicalPlan::Distinct(Distinct::All(input))));
            }
            grouped(Aggregate::try_new(input, columns, Vec::new())?, keys)
        }
        LogicalPlan::Distinct(Distinct::On(mut on)) => {
            let schema = Arc::clone(on.input.schema());
            for expr in &mut on.on_expr {
                *expr = keyed(std::mem::take(expr), keys, &schema);
            }
            ordered(on.sort_expr.as_deref_mut().unwrap_or_default(), keys, &schema);
            Ok(Transformed::yes(LogicalPlan::Distinct(Distinct::On(on))))
        }
        LogicalPlan::Join(join) => Ok(Transformed::yes(LogicalPlan::Join(joined(join, keys)))),
        LogicalPlan::Sort(mut sort) => {
            ordered(&mut sort.expr, keys, sort.input.schema());
            Ok(Transformed::yes(LogicalPlan::Sort(sort)))
        }
        other => Ok(Transformed::no(other)),
    }
}

fn joined(mut join: Join, keys: Keys) -> Join {
    for (left, right) in &mut join.on {
        let functions = (keys.function(left, join.left.schema()), keys.function(right, join.right.schema()));
        if let (Some(l), Some(r)) = functions
            && l == r
        {
            *left = Expr::ScalarFunction(ScalarFunction::new_udf(l, vec![std::mem::take(left)]));
            *right = Expr::ScalarFunction(ScalarFunction::new_udf(r, vec![std::mem::take(right)]));
        }
    }
    join
}

/// The aggregate by keys, below a projection that gives the groups their values back.
fn grouped(aggregate: Aggregate, keys: Keys) -> Result<Transformed<LogicalPlan>> {
    let schema = Arc::clone(aggregate.input.schema());
    let is_keyed = |expr: &Expr| keys.function(expr, &schema).is_some();
    let sets = matches!(aggregate.group_expr.first(), Some(Expr::GroupingSet(_)));
    if sets || !aggregate.group_expr.iter().any(is_keyed) {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let groups = aggregate.group_expr.len();
    let mut calls = aggregate.aggr_expr;
    let (mut by, mut output) = (Vec::with_capacity(groups), Vec::with_capacity(groups));
    for (i, expr) in aggregate.group_expr.into_iter().enumerate() {
        let (qualifier, field) = aggregate.schema.qualified_field(i);
        if !is_keyed(&expr) {
            output.push(Expr::Column(Column::from((qualifier, field))));
            by.push(expr);
            continue;
        }
        let value = format!("\u{1}group{i}");
        calls.push(shown(expr.clone().unalias(), is_jsonb(field)).alias(&value));
        let value = typed(Expr::Column(Column::from_name(value)), is_jsonb(field));
        output.push(value.alias_qualified(qualifier.cloned(), field.name()));
        by.push(keyed(expr.unalias(), keys, &schema).alias(format!("\u{1}key{i}")));
    }
    let rest = aggregate.schema.iter().skip(groups);
    output.extend(rest.map(|(qualifier, field)| Expr::Column(Column::from((qualifier, field)))));
    let aggregate = LogicalPlan::Aggregate(Aggregate::try_new(aggregate.input, by, calls)?);
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(output, Arc::new(aggregate))?)))
}

/// The value that stands for a group: the least text of jsonb, the interval of the most months, any zero.
fn shown(expr: Expr, is_jsonb: bool) -> Expr {
    let extreme = super::extreme::of(if is_jsonb { Ordering::Less } else { Ordering::Greater });
    Expr::AggregateFunction(AggregateFunction::new_udf(extreme, vec![expr], false, None, Vec::new(), None))
}

/// A text of jsonb is jsonb again.
fn typed(value: Expr, is_jsonb: bool) -> Expr {
    match is_jsonb {
        true => Expr::Cast(Cast::new_from_field(Box::new(value), jsonb())),
        false => value,
    }
}
