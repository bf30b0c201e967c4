//! RETURNING: expressions over a written row.

use super::bound::Returning;
use super::dml::{Target, select_mut};
use super::{BindContext, query, report};
use crate::error::SqlError;
use arrow::datatypes::Field;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{DFSchema, DataFusionError};
use datafusion_expr::execution_props::ExecutionProps;
use datafusion_expr::{Expr, LogicalPlan};
use datafusion_physical_expr::create_physical_expr;
use sqlparser::ast::SelectItem;
use std::sync::Arc;
use weir_catalog::SqlState;

/// The items over the table's row, and the columns that they make.
pub(super) fn returning(
    target: &Target<'_>,
    items: &[SelectItem],
    context: &BindContext,
    text: &str,
) -> Result<Returning, SqlError> {
    let mut select = target.select()?;
    select_mut(&mut select)?.projection = items.to_vec();
    let plan = query::plan_query(&select, context, text)?.plan;
    let fields: Vec<Field> = plan.schema().fields().iter().map(|f| f.as_ref().clone()).collect();
    let (exprs, schema) = over_row(plan)?;
    let physical = |expr: &Expr| {
        create_physical_expr(expr, &schema, &ExecutionProps::new(), &Default::default()).map_err(reported)
    };
    exprs.iter().zip(fields).map(|(expr, field)| Ok((physical(expr)?, field))).collect()
}

/// The projections of a plan as one, over the columns of the table below them.
fn over_row(plan: LogicalPlan) -> Result<(Vec<Expr>, DFSchema), SqlError> {
    match plan {
        LogicalPlan::Projection(projection) => {
            let inner_schema = Arc::clone(projection.input.schema());
            let (inner, schema) = over_row(Arc::unwrap_or_clone(projection.input))?;
            let outer = projection.expr.into_iter().map(|expr| inlined(expr, &inner, &inner_schema));
            Ok((outer.collect::<Result<_, _>>().map_err(reported)?, schema))
        }
        LogicalPlan::SubqueryAlias(_) | LogicalPlan::TableScan(_) => {
            let schema = plan.schema().as_ref().clone();
            Ok((schema.columns().into_iter().map(Expr::Column).collect(), schema))
        }
        LogicalPlan::Aggregate(_) => {
            Err(SqlError::new(SqlState::GROUPING_ERROR, "aggregate functions are not allowed in RETURNING"))
        }
        LogicalPlan::Window(_) => {
            Err(SqlError::new(SqlState("42P20"), "window functions are not allowed in RETURNING"))
        }
        _ => Err(SqlError::not_supported("this expression in RETURNING")),
    }
}

/// `expr` with the columns of `schema` replaced by the expressions that compute them.
fn inlined(expr: Expr, inner: &[Expr], schema: &DFSchema) -> Result<Expr, DataFusionError> {
    let replaced = expr.transform_up(|e| match &e {
        Expr::Column(column) => match schema.maybe_index_of_column(column) {
            Some(i) => Ok(Transformed::yes(inner[i].clone().unalias())),
            None => Ok(Transformed::no(e)),
        },
        Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) => {
            let error = SqlError::not_supported("a subquery in RETURNING");
            Err(crate::functions::error::external(error))
        }
        _ => Ok(Transformed::no(e)),
    })?;
    Ok(replaced.data.unalias())
}

fn reported(error: DataFusionError) -> SqlError {
    report::sql_error(error, None)
}
