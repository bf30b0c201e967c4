//! INTERSECT and EXCEPT, whose two sides get common types; with ALL each row counts as often as it
//! is there.
//!
//! ```text
//!   a INTERSECT ALL b   →   Projection without the number
//!                             Semi join on all columns and the number
//!                               row_number() over all columns of a
//!                               row_number() over all columns of b
//! ```
//! DataFusion plans both as semi and anti joins in which NULLs are equal, with the left side's rows
//! made distinct unless ALL was said; at this point no other join has equal NULLs.

use super::column_name::MARK;
use super::common_type::{adopted_inputs, common_types};
use crate::functions::ranking::row_number;
use datafusion_common::{Column, JoinType, NullEquality, Result};
use datafusion_expr::expr::{WindowFunction, WindowFunctionParams};
use datafusion_expr::{
    Distinct, Expr, Join, LogicalPlan, LogicalPlanBuilder, WindowFrame, WindowFunctionDefinition,
};
use std::sync::Arc;

/// Whether a join stands for INTERSECT or EXCEPT.
pub(super) fn is_set_operation(join: &Join) -> bool {
    matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNull
        && join.on.len() == join.left.schema().fields().len()
}

/// The same with sides of common types, and with ALL meant.
pub(super) fn rewritten(join: Join) -> Result<LogicalPlan> {
    let name = if join.join_type == JoinType::LeftSemi { "INTERSECT" } else { "EXCEPT" };
    let (distinct, left) = match Arc::unwrap_or_clone(join.left) {
        LogicalPlan::Distinct(Distinct::All(input)) => (true, Arc::unwrap_or_clone(input)),
        other => (false, other),
    };
    let right = Arc::unwrap_or_clone(join.right);
    let columns = left.schema().columns();
    let types = common_types(name, &[&left, &right])?;
    let mut sides = adopted_inputs(vec![left, right], &types)?.into_iter();
    let (Some(left), Some(right)) = (sides.next(), sides.next()) else {
        return datafusion_common::internal_err!("a set operation has two sides");
    };
    let (left, right) = match distinct {
        true => (LogicalPlanBuilder::from(left).distinct()?.build()?, right),
        false => (numbered(left)?, numbered(right)?),
    };
    let pairs = left.schema().columns().into_iter().zip(right.schema().columns());
    let on = pairs.map(|(l, r)| (Expr::Column(l), Expr::Column(r))).collect();
    let joined = Join::try_new(
        Arc::new(left),
        Arc::new(right),
        on,
        None,
        join.join_type,
        join.join_constraint,
        join.null_equality,
        false,
    )?;
    let plan = LogicalPlan::Join(joined);
    match distinct {
        true => Ok(plan),
        false => LogicalPlanBuilder::from(plan).project(columns.into_iter().map(Expr::Column))?.build(),
    }
}

/// The rows, each with a number among its equals.
fn numbered(plan: LogicalPlan) -> Result<LogicalPlan> {
    let columns: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
    let number = Expr::WindowFunction(Box::new(WindowFunction {
        fun: WindowFunctionDefinition::WindowUDF(row_number()),
        params: WindowFunctionParams {
            args: Vec::new(),
            partition_by: columns.clone(),
            order_by: Vec::new(),
            window_frame: WindowFrame::new(None),
            filter: None,
            null_treatment: None,
            distinct: false,
        },
    }));
    let name = number.schema_name().to_string();
    let number_column = Expr::Column(Column::from_name(name)).alias(format!("{MARK}number"));
    LogicalPlanBuilder::from(plan)
        .window(vec![number])?
        .project(columns.into_iter().chain([number_column]))?
        .build()
}
