//! Scalar subqueries that may have several rows.
//!
//! PostgreSQL runs them and fails if one has. DataFusion wants an aggregate there if they look at
//! the outer row, and a stream has to count in any case: so they get one, `single_value`, which
//! fails at a second row.

use crate::functions::single::single_value;
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, Result};
use datafusion_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Subquery};
use datafusion_optimizer::AnalyzerRule;
use std::sync::Arc;

/// Runs before the plan's subqueries are checked.
#[derive(Debug)]
pub(super) struct SingleRow;

impl AnalyzerRule for SingleRow {
    fn name(&self) -> &str {
        "single_row"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let rewrite = |plan: LogicalPlan| {
            plan.map_expressions(|expr| {
                expr.transform_up(|expr| match expr {
                    Expr::ScalarSubquery(subquery) if may_repeat(&subquery) => {
                        Ok(Transformed::yes(Expr::ScalarSubquery(single(subquery)?)))
                    }
                    other => Ok(Transformed::no(other)),
                })
            })
        };
        Ok(plan.transform_up_with_subqueries(rewrite)?.data)
    }
}

fn may_repeat(subquery: &Subquery) -> bool {
    let columns = subquery.subquery.schema().fields().len();
    columns == 1 && !has_one_row(&subquery.subquery)
}

fn has_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => has_one_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_one_row(&alias.input),
        LogicalPlan::Filter(filter) => has_one_row(&filter.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        other => other.max_rows().is_some_and(|rows| rows <= 1),
    }
}

fn single(subquery: Subquery) -> Result<Subquery> {
    let plan = Arc::unwrap_or_clone(subquery.subquery);
    let (qualifier, field) = plan.schema().qualified_field(0);
    let (qualifier, name) = (qualifier.cloned(), field.name().clone());
    let column = Expr::Column(Column::from(plan.schema().qualified_field(0)));
    let call = Expr::AggregateFunction(AggregateFunction {
        func: single_value(),
        params: AggregateFunctionParams {
            args: vec![column],
            distinct: false,
            filter: None,
            order_by: Vec::new(),
            null_treatment: None,
        },
    });
    let value = call.schema_name().to_string();
    let plan = LogicalPlanBuilder::from(plan)
        .aggregate(Vec::<Expr>::new(), vec![call])?
        .project(vec![Expr::Column(Column::from_name(value)).alias_qualified(qualifier, name)])?
        .build()?;
    Ok(Subquery { subquery: Arc::new(plan), ..subquery })
}
