//! Queries that a key answers: planned with the few rules that they need, in one partition.
//!
//! A lookup costs less than its planning: all of DataFusion's rules, logical and physical, take ten
//! times what the read takes. A plan of filters and projections over one relation needs three of them.
//! What turns out to read more than some keys is planned again with all.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{Expr, LogicalPlan, Operator};
use datafusion::optimizer::OptimizerRule;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::physical_plan::{ExecutionPlanProperties, execute_stream};
use datafusion::prelude::SessionConfig;
use std::sync::Arc;
use weir_sql::functions::analyzer_rules;

/// Plans lookups.
pub struct LookupPlanner {
    state: SessionState,
}

impl LookupPlanner {
    /// With the settings of all queries.
    pub fn new(mut session: SessionConfig) -> Self {
        session.options_mut().optimizer.max_passes = 1;
        let rules: Vec<Arc<dyn OptimizerRule + Send + Sync>> = vec![
            Arc::new(SimplifyExpressions::new()),
            Arc::new(PushDownFilter::new()),
            Arc::new(OptimizeProjections::new()),
        ];
        let state = SessionStateBuilder::new()
            .with_optimizer_rules(rules)
            .with_physical_optimizer_rules(Vec::new())
            .with_config(session)
            .with_analyzer_rules(analyzer_rules())
            .build();
        Self { state }
    }

    /// The rows of `plan`, if it is one that a key answers. It holds a batch or two at a time.
    pub async fn execute(
        &self,
        plan: &LogicalPlan,
    ) -> Result<Option<SendableRecordBatchStream>, DataFusionError> {
        let asks = match plan {
            LogicalPlan::Explain(explain) => asks_by_key(&explain.plan)?,
            LogicalPlan::Analyze(analyze) => asks_by_key(&analyze.input)?,
            plan => asks_by_key(plan)?,
        };
        if !asks {
            return Ok(None);
        }
        let physical = self.state.create_physical_plan(plan).await?;
        if physical.output_partitioning().partition_count() != 1 {
            return Ok(None);
        }
        execute_stream(physical, self.state.task_ctx()).map(Some)
    }
}

/// Whether the plan is filters, an equation among them, and projections over one relation, of
/// expressions that mean the same whenever they are evaluated.
fn asks_by_key(plan: &LogicalPlan) -> Result<bool, DataFusionError> {
    let (mut plain, mut equation) = (true, false);
    plan.apply(|node| {
        plain &= match node {
            LogicalPlan::Filter(filter) => {
                equation |= has_equation(&filter.predicate)?;
                true
            }
            LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::TableScan(_) => true,
            _ => false,
        };
        for expr in node.expressions() {
            plain &= !expr.exists(|part| Ok(!is_plain(part)))?;
        }
        Ok(if plain { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(plain && equation)
}

fn has_equation(predicate: &Expr) -> Result<bool, DataFusionError> {
    predicate.exists(|part| {
        Ok(matches!(part, Expr::BinaryExpr(binary) if binary.op == Operator::Eq)
            || matches!(part, Expr::InList(_)))
    })
}

fn is_plain(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::Alias(_)
            | Expr::Column(_)
            | Expr::Literal(..)
            | Expr::BinaryExpr(_)
            | Expr::Cast(_)
            | Expr::InList(_)
            | Expr::IsNull(_)
            | Expr::IsNotNull(_)
            | Expr::Not(_)
    )
}
