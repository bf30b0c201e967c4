//! Functions in FROM that read the relations before them: `FROM t, unnest(t.a) u`.
//!
//! ```text
//!   Join t, lateral { Unnest { Project outer t.a } }    becomes    Unnest { Project t.*, t.a { t } }
//! ```
//! DataFusion plans the former and can't run it. The rows are the same: each row of `t` once for each
//! element.

use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{JoinType, Result, ScalarValue};
use datafusion_expr::{Expr, Join, LogicalPlan, LogicalPlanBuilder};
use datafusion_optimizer::AnalyzerRule;

/// Runs before anything changes the plan.
#[derive(Debug)]
pub(super) struct LateralUnnest;

impl AnalyzerRule for LateralUnnest {
    fn name(&self) -> &str {
        "lateral_unnest"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Join(join) if join.join_type == JoinType::Inner && join.on.is_empty() => {
                match unnested(&join)? {
                    Some(plan) => Ok(Transformed::yes(plan)),
                    None => Ok(Transformed::no(LogicalPlan::Join(join))),
                }
            }
            other => Ok(Transformed::no(other)),
        });
        Ok(rewritten?.data)
    }
}

fn unnested(join: &Join) -> Result<Option<LogicalPlan>> {
    let LogicalPlan::SubqueryAlias(alias) = join.right.as_ref() else { return Ok(None) };
    let LogicalPlan::Subquery(subquery) = alias.input.as_ref() else { return Ok(None) };
    let Some(plan) = over(&subquery.subquery, &join.left)? else { return Ok(None) };
    let columns = plan.schema().columns();
    let (left, right) = columns.split_at(join.left.schema().fields().len());
    let renamed = right.iter().zip(alias.schema.fields()).map(|(column, field)| {
        Expr::Column(column.clone()).alias_qualified(Some(alias.alias.clone()), field.name())
    });
    let items = left.iter().cloned().map(Expr::Column).chain(renamed).collect::<Vec<_>>();
    let plan = LogicalPlanBuilder::from(plan).project(items)?;
    match &join.filter {
        None | Some(Expr::Literal(ScalarValue::Boolean(Some(true)), _)) => Ok(Some(plan.build()?)),
        Some(condition) => Ok(Some(plan.filter(condition.clone())?.build()?)),
    }
}

/// What a plan over one row with nothing in it gives for each row of `left`, behind its columns.
fn over(plan: &LogicalPlan, left: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    match plan {
        LogicalPlan::EmptyRelation(empty) if empty.produce_one_row => Ok(Some(left.clone())),
        LogicalPlan::Projection(projection) => {
            let Some(input) = over(&projection.input, left)? else { return Ok(None) };
            let mut items: Vec<Expr> = left.schema().columns().into_iter().map(Expr::Column).collect();
            for item in &projection.expr {
                items.push(inner(item.clone())?);
            }
            Ok(Some(LogicalPlanBuilder::from(input).project(items)?.build()?))
        }
        LogicalPlan::Unnest(unnest) => {
            let Some(input) = over(&unnest.input, left)? else { return Ok(None) };
            let builder = LogicalPlanBuilder::from(input);
            let columns = unnest.exec_columns.clone();
            Ok(Some(builder.unnest_columns_with_options(columns, unnest.options.clone())?.build()?))
        }
        _ => Ok(None),
    }
}

/// An expression whose outer columns are columns now, under the name that it had.
fn inner(expr: Expr) -> Result<Expr> {
    let name = expr.schema_name().to_string();
    let qualifier = expr.qualified_name().0;
    let changed = expr.transform_up(|expr| match expr {
        Expr::OuterReferenceColumn(_, column) => Ok(Transformed::yes(Expr::Column(column))),
        other => Ok(Transformed::no(other)),
    })?;
    Ok(match changed.transformed && !matches!(changed.data, Expr::Alias(_)) {
        true => changed.data.alias_qualified(qualifier, name),
        false => changed.data,
    })
}
