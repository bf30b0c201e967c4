//! Expressions in GROUPING SETS, ROLLUP and CUBE under the names that what is above them knows.
//!
//! A rewrite that changes an expression gives it its old name as an alias, but a grouping set has no
//! name, so those in it would lose theirs. They get their aliases first.

use datafusion_common::Result;
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_expr::expr::GroupingSet;
use datafusion_expr::{Aggregate, Expr, LogicalPlan};
use datafusion_optimizer::AnalyzerRule;

/// Runs before anything changes expressions.
#[derive(Debug)]
pub(super) struct GroupedNames;

impl AnalyzerRule for GroupedNames {
    fn name(&self) -> &str {
        "grouped_names"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let named = plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Aggregate(aggregate)
                if aggregate.group_expr.iter().any(|e| matches!(e, Expr::GroupingSet(_))) =>
            {
                let groups = aggregate.group_expr.into_iter().map(with_names).collect();
                let calls = aggregate.aggr_expr.into_iter().map(grouping_of_names);
                let calls = calls.collect::<Result<Vec<_>>>()?;
                Ok(Transformed::yes(LogicalPlan::Aggregate(Aggregate::try_new(
                    aggregate.input,
                    groups,
                    calls,
                )?)))
            }
            other => Ok(Transformed::no(other)),
        });
        Ok(named?.data)
    }
}

fn with_names(expr: Expr) -> Expr {
    let all = |exprs: Vec<Expr>| exprs.into_iter().map(named).collect();
    match expr {
        Expr::GroupingSet(GroupingSet::Rollup(exprs)) => Expr::GroupingSet(GroupingSet::Rollup(all(exprs))),
        Expr::GroupingSet(GroupingSet::Cube(exprs)) => Expr::GroupingSet(GroupingSet::Cube(all(exprs))),
        Expr::GroupingSet(GroupingSet::GroupingSets(sets)) => {
            Expr::GroupingSet(GroupingSet::GroupingSets(sets.into_iter().map(all).collect()))
        }
        other => named(other),
    }
}

fn named(expr: Expr) -> Expr {
    match expr {
        Expr::Column(_) | Expr::Alias(_) => expr,
        other => {
            let name = other.schema_name().to_string();
            other.alias(name)
        }
    }
}

/// The arguments of `grouping()` are the grouped expressions.
fn grouping_of_names(expr: Expr) -> Result<Expr> {
    let name = expr.schema_name().to_string();
    let changed = expr.transform_up(|expr| match expr {
        Expr::AggregateFunction(mut call) if call.func.name() == "grouping" => {
            call.params.args = call.params.args.into_iter().map(named).collect();
            Ok(Transformed::yes(Expr::AggregateFunction(call)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(match changed.transformed {
        true => changed.data.alias(name),
        false => changed.data,
    })
}
