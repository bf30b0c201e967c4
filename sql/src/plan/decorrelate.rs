//! Subqueries of predicates as joins, once a node.
//!
//! DataFusion's rule looks into the subqueries of a node itself, and its optimizer looks into them
//! again: each level of EXISTS in EXISTS doubled the work. Here the rule alone does.

use datafusion_common::Result;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_expr::LogicalPlan;
use datafusion_optimizer::decorrelate_predicate_subquery::DecorrelatePredicateSubquery;
use datafusion_optimizer::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// DataFusion's rule with its own recursion only.
#[derive(Debug, Default)]
pub struct Decorrelate {
    inner: DecorrelatePredicateSubquery,
}

impl OptimizerRule for Decorrelate {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        None
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        plan.transform_down(|plan| self.inner.rewrite(plan, config))
    }
}
