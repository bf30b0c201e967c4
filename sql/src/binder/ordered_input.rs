//! Aggregates and window functions that go by the order of their input, where a subquery gives it:
//! `SELECT array_agg(x) FROM (SELECT x FROM t ORDER BY y) q`.
//!
//! ```text
//!   Aggregate array_agg(x)         Aggregate array_agg(x ORDER BY key)
//!     SubqueryAlias q                SubqueryAlias q
//!       Projection x          →        Projection x, key
//!         Sort y                         Projection …, y AS key
//! ```
//! A Sort that nothing asks for is DataFusion's to drop, and its threads' to mix. In PostgreSQL the rows
//! come in that order, and it is documented that one may rely on it for aggregates.

use super::column_name::MARK;
use datafusion_common::Result;
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_expr::expr::Sort as SortExpr;
use datafusion_expr::{
    Aggregate, Expr, LogicalPlan, LogicalPlanBuilder, Projection, Sort, SubqueryAlias, Window,
};
use datafusion_optimizer::AnalyzerRule;
use std::sync::Arc;

/// What goes by the order of its input. Ranks do not: without ORDER BY all rows are peers.
const ORDERED: [&str; 9] = [
    "array_agg",
    "string_agg",
    "first_value",
    "last_value",
    "nth_value",
    "row_number",
    "ntile",
    "lag",
    "lead",
];

/// Runs before anything changes the plan.
#[derive(Debug)]
pub(super) struct OrderedInput;

impl AnalyzerRule for OrderedInput {
    fn name(&self) -> &str {
        "ordered_input"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Aggregate(aggregate) if aggregate.aggr_expr.iter().any(unordered) => {
                match ordered(&aggregate.input)? {
                    Some(input) => Ok(Transformed::yes(aggregate_over(input, aggregate)?)),
                    None => Ok(Transformed::no(LogicalPlan::Aggregate(aggregate))),
                }
            }
            LogicalPlan::Window(window) if window.window_expr.iter().any(unordered) => {
                match ordered(&window.input)? {
                    Some(input) => Ok(Transformed::yes(window_over(input, window)?)),
                    None => Ok(Transformed::no(LogicalPlan::Window(window))),
                }
            }
            other => Ok(Transformed::no(other)),
        });
        Ok(changed?.data)
    }
}

/// Whether a call goes by the order of its input and says nothing of it.
fn unordered(expr: &Expr) -> bool {
    match expr {
        Expr::Alias(alias) => unordered(&alias.expr),
        Expr::AggregateFunction(call) => {
            let params = &call.params;
            ORDERED.contains(&call.func.name()) && params.order_by.is_empty() && !params.distinct
        }
        Expr::WindowFunction(call) => {
            ORDERED.contains(&call.fun.name()) && call.params.order_by.is_empty() && !call.params.distinct
        }
        _ => false,
    }
}

/// The call in this order, under the name that it had.
fn with_order(expr: Expr, order: &[SortExpr]) -> Result<Expr> {
    if !unordered(&expr) {
        return Ok(expr);
    }
    let (qualifier, name) = expr.qualified_name();
    let changed = expr.transform_up(|expr| match expr {
        Expr::AggregateFunction(mut call) if call.params.order_by.is_empty() => {
            call.params.order_by = order.to_vec();
            Ok(Transformed::yes(Expr::AggregateFunction(call)))
        }
        Expr::WindowFunction(mut call) if call.params.order_by.is_empty() => {
            call.params.order_by = order.to_vec();
            Ok(Transformed::yes(Expr::WindowFunction(call)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(changed.data.unalias().alias_qualified(qualifier, name))
}

fn aggregate_over(ordered: Ordered, aggregate: Aggregate) -> Result<LogicalPlan> {
    let order = ordered.order();
    let calls = aggregate.aggr_expr.into_iter().map(|call| with_order(call, &order));
    let calls = calls.collect::<Result<Vec<_>>>()?;
    Ok(LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(ordered.plan), aggregate.group_expr, calls)?))
}

/// The window without the keys among its columns.
fn window_over(ordered: Ordered, window: Window) -> Result<LogicalPlan> {
    let order = ordered.order();
    let columns = window.schema.columns().into_iter().map(Expr::Column).collect();
    let calls = window.window_expr.into_iter().map(|call| with_order(call, &order));
    let calls = calls.collect::<Result<Vec<_>>>()?;
    let window = LogicalPlan::Window(Window::try_new(calls, Arc::new(ordered.plan))?);
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(window))?))
}

/// A plan whose last columns are the keys of its order.
struct Ordered {
    plan: LogicalPlan,
    /// Of each key: whether it ascends, and whether NULLs come first.
    directions: Vec<(bool, bool)>,
}

impl Ordered {
    fn keys(&self) -> Vec<Expr> {
        let columns = self.plan.schema().columns();
        let first = columns.len() - self.directions.len();
        columns.into_iter().skip(first).map(Expr::Column).collect()
    }

    fn order(&self) -> Vec<SortExpr> {
        let keys = self.keys().into_iter().zip(&self.directions);
        keys.map(|(key, (asc, nulls_first))| SortExpr::new(key, *asc, *nulls_first)).collect()
    }
}

/// The plan with the keys of its order as columns, if it has an order.
fn ordered(plan: &LogicalPlan) -> Result<Option<Ordered>> {
    let above = |input: &LogicalPlan, build: &dyn Fn(&Ordered) -> Result<LogicalPlan>| {
        let Some(input) = ordered(input)? else { return Ok(None) };
        let plan = build(&input)?;
        Ok(Some(Ordered { plan, ..input }))
    };
    match plan {
        LogicalPlan::Sort(sort) => sorted(sort).map(Some),
        LogicalPlan::Limit(limit) => above(&limit.input, &|input| {
            let sorted = LogicalPlanBuilder::from(input.plan.clone()).sort(input.order())?.build()?;
            Ok(LogicalPlan::Limit(datafusion_expr::Limit { input: Arc::new(sorted), ..limit.clone() }))
        }),
        LogicalPlan::SubqueryAlias(alias) => above(&alias.input, &|input| {
            let alias = SubqueryAlias::try_new(Arc::new(input.plan.clone()), alias.alias.clone())?;
            Ok(LogicalPlan::SubqueryAlias(alias))
        }),
        LogicalPlan::Projection(projection) => above(&projection.input, &|input| {
            let items = projection.expr.iter().cloned().chain(input.keys()).collect();
            Ok(LogicalPlan::Projection(Projection::try_new(items, Arc::new(input.plan.clone()))?))
        }),
        LogicalPlan::Filter(filter) => above(&filter.input, &|input| {
            let input = Arc::new(input.plan.clone());
            Ok(LogicalPlan::Filter(datafusion_expr::Filter::try_new(filter.predicate.clone(), input)?))
        }),
        _ => Ok(None),
    }
}

fn sorted(sort: &Sort) -> Result<Ordered> {
    let input = match sort.fetch {
        None => Arc::unwrap_or_clone(Arc::clone(&sort.input)),
        Some(_) => LogicalPlan::Sort(sort.clone()),
    };
    let columns = input.schema().columns().into_iter().map(Expr::Column);
    let keys = sort.expr.iter().enumerate().map(|(i, by)| by.expr.clone().alias(format!("{MARK}order{i}")));
    let items: Vec<Expr> = columns.chain(keys).collect();
    let directions = sort.expr.iter().map(|by| (by.asc, by.nulls_first)).collect();
    Ok(Ordered { plan: LogicalPlanBuilder::from(input).project(items)?.build()?, directions })
}
