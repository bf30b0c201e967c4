//! Joins that end with their query: a query ends by being dropped, which waits for the poll it is in.
//!
//! A join stays in one poll until it has rows to give. One whose condition refuses every pair stays for
//! as many pairs as there are, so its condition looks whether anybody still waits for the answer.

use arrow::array::RecordBatch;
use arrow::datatypes::{FieldRef, Schema};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr_common::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    HashJoinExec, HashJoinExecBuilder, NestedLoopJoinExec, NestedLoopJoinExecBuilder,
};
use std::fmt::{Display, Formatter};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Somebody waits for a query's answer, until this is dropped.
#[derive(Debug, Default)]
pub struct Waiting(Arc<AtomicBool>);

impl Waiting {
    /// What tells that nobody waits any more.
    pub fn ended(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// `plan`, whose joins fail once `ended`.
pub fn interruptible(
    plan: Arc<dyn ExecutionPlan>,
    ended: &Arc<AtomicBool>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let condition = |filter: &JoinFilter| {
        let condition = Condition { inner: Arc::clone(filter.expression()), ended: Arc::clone(ended) };
        let (columns, schema) = (filter.column_indices().to_vec(), Arc::clone(filter.schema()));
        Some(JoinFilter::new(Arc::new(condition), columns, schema))
    };
    plan.transform_up(|node| {
        if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>()
            && let Some(filter) = join.filter()
        {
            let join = NestedLoopJoinExecBuilder::from(join).with_filter(condition(filter)).build()?;
            return Ok(Transformed::yes(Arc::new(join) as Arc<dyn ExecutionPlan>));
        }
        if let Some(join) = node.downcast_ref::<HashJoinExec>()
            && let Some(filter) = join.filter()
        {
            let join = HashJoinExecBuilder::from(join).with_filter(condition(filter)).build()?;
            return Ok(Transformed::yes(Arc::new(join) as Arc<dyn ExecutionPlan>));
        }
        Ok(Transformed::no(node))
    })
    .data()
}

/// A join's condition.
#[derive(Debug)]
struct Condition {
    inner: Arc<dyn PhysicalExpr>,
    ended: Arc<AtomicBool>,
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.inner.as_ref() == other.inner.as_ref()
    }
}

impl Eq for Condition {}

impl Hash for Condition {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl Display for Condition {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl PhysicalExpr for Condition {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        if self.ended.load(Ordering::Relaxed) {
            return Err(DataFusionError::Execution("nobody waits for the answer".to_owned()));
        }
        self.inner.evaluate(batch)
    }

    fn return_field(&self, input_schema: &Schema) -> Result<FieldRef> {
        self.inner.return_field(input_schema)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.inner]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let inner = children.pop().unwrap_or_else(|| Arc::clone(&self.inner));
        Ok(Arc::new(Condition { inner, ended: Arc::clone(&self.ended) }))
    }

    fn fmt_sql(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt_sql(f)
    }
}
