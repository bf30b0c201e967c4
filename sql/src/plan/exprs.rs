//! Logical expressions to physical ones over a node's columns, and the projections around them.
//!
//! **Invariant:** a lowered node's columns start with those of its logical plan, in order; it has
//! at least one column (a logical plan may have none), and may have more at the end.

use super::node::{PlanNode, PlanOp};
use super::{column_index, key_type};
use crate::error::SqlError;
use crate::functions::error::sql_error;
use arrow::datatypes::{DataType, Field, Schema};
use datafusion_common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion_common::{DFSchema, DataFusionError, ScalarValue};
use datafusion_expr::execution_props::ExecutionProps;
use datafusion_expr::{Expr, Volatility};
use datafusion_physical_expr::expressions::{CastExpr, Column, Literal};
use datafusion_physical_expr::utils::collect_columns;
use datafusion_physical_expr::{PhysicalExpr, create_physical_expr};
use std::sync::Arc;
use weir_catalog::SqlState;

/// A computed column and what it is called.
pub(super) type Computed = (Arc<dyn PhysicalExpr>, Field);

/// `expr` over columns of `schema`.
pub(super) fn physical(expr: &Expr, schema: &DFSchema) -> Result<Arc<dyn PhysicalExpr>, SqlError> {
    check_supported(expr)?;
    create_physical_expr(expr, schema, &ExecutionProps::new(), &Default::default()).map_err(plan_error)
}

/// An error of DataFusion's planner as the client sees it.
pub(super) fn plan_error(error: DataFusionError) -> SqlError {
    if let Some(error) = sql_error(&error) {
        return error;
    }
    match error.find_root() {
        DataFusionError::NotImplemented(message) => {
            SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message.clone())
        }
        other => SqlError::new(SqlState::INTERNAL_ERROR, format!("could not plan the view: {other}")),
    }
}

fn check_supported(expr: &Expr) -> Result<(), SqlError> {
    let mut found = None;
    let walked = expr.apply(|e| {
        found = match e {
            Expr::ScalarFunction(call) => match call.func.signature().volatility {
                Volatility::Immutable => None,
                Volatility::Stable => Some(clock_refused(call.func.name())),
                Volatility::Volatile => Some(volatile_refused(call.func.name())),
            },
            Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_) => Some(
                SqlError::not_supported("this correlated subquery in a materialized view")
                    .hint("Write it as a join with a grouped subquery."),
            ),
            Expr::OuterReferenceColumn(_, column) => Some(
                SqlError::not_supported(format!("the outer reference \"{}\" at this place", column.name))
                    .hint("Write the subquery as a join."),
            ),
            Expr::Placeholder(_) => Some(SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "a materialized view can't have parameters",
            )),
            _ => None,
        };
        Ok(if found.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    walked.map_err(plan_error)?;
    found.map_or(Ok(()), Err)
}

fn clock_refused(name: &str) -> SqlError {
    SqlError::not_supported(format!("{name}() in a materialized view or sink")).hint(
        "Its value would change without a change of the input: compare with the time when reading the view.",
    )
}

fn volatile_refused(name: &str) -> SqlError {
    SqlError::not_supported(format!("the volatile function {name}() in a materialized view or sink"))
        .hint("Compute it when the row is inserted, into a column of its own.")
}

/// A literal NULL has no type; as a column it is text, as in PostgreSQL.
fn typed(expr: Arc<dyn PhysicalExpr>, data_type: DataType) -> (Arc<dyn PhysicalExpr>, DataType) {
    if data_type == DataType::Null {
        (Arc::new(Literal::new(ScalarValue::Utf8(None))), DataType::Utf8)
    } else {
        (expr, data_type)
    }
}

/// `expr` as a column of `node` called like `field`: a column passed on keeps its nullability, a
/// computed one may be NULL where it fails.
pub(super) fn computed(
    expr: &Expr,
    node: &PlanNode,
    schema: &DFSchema,
    field: &Field,
) -> Result<Computed, SqlError> {
    let lowered = physical(expr, schema)?;
    if let Some(index) = column_index(&lowered) {
        let input = node.schema.field(index);
        let field = Field::new(field.name(), input.data_type().clone(), input.is_nullable());
        return Ok((lowered, field.with_metadata(input.metadata().clone())));
    }
    let data_type = lowered.data_type(&node.schema).map_err(plan_error)?;
    let (mut lowered, mut data_type) = typed(lowered, data_type);
    let declared = field.data_type();
    if *declared != data_type && *declared != DataType::Null {
        // What is declared is what readers were promised; folding constants may have told more.
        lowered = Arc::new(CastExpr::new(lowered, declared.clone(), None));
        data_type = declared.clone();
    }
    Ok((lowered, Field::new(field.name(), data_type, true).with_metadata(field.metadata().clone())))
}

/// Column `index` of `node`, passed on.
pub(super) fn passed(node: &PlanNode, index: usize) -> Computed {
    let field = node.schema.field(index).clone();
    (Arc::new(Column::new(field.name(), index)), field)
}

/// A projection. Where it only passes all columns on, it is left out and the node gets the names;
/// over another projection the two become one, if nothing is computed twice by that.
pub(super) fn project(mut node: PlanNode, mut columns: Vec<Computed>) -> PlanNode {
    if let PlanOp::Project { exprs: below } = &node.op
        && let Some(merged) = merged(&columns, below)
    {
        columns = merged;
        node = node.inputs.swap_remove(0);
    }
    let (exprs, fields): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    let schema = Arc::new(Schema::new(fields));
    let all =
        exprs.len() == node.arity() && exprs.iter().enumerate().all(|(i, e)| column_index(e) == Some(i));
    let leaf = node.inputs.is_empty();
    let same_names = || schema.fields().iter().zip(node.schema.fields()).all(|(a, b)| a.name() == b.name());
    if all && (!leaf || same_names()) {
        // What a leaf calls its columns is the relation's business.
        return if leaf { node } else { PlanNode { schema, ..node } };
    }
    PlanNode::over(PlanOp::Project { exprs }, vec![node], schema)
}

/// `columns` over the input of the projection `below` that they are over.
fn merged(columns: &[Computed], below: &[Arc<dyn PhysicalExpr>]) -> Option<Vec<Computed>> {
    let mut uses = vec![0usize; below.len()];
    for (expr, _) in columns {
        for column in collect_columns(expr) {
            uses[column.index()] += 1;
        }
    }
    let inlined = |i: usize| column_index(&below[i]).is_some();
    let passed = |i: usize| columns.iter().filter(|(e, _)| column_index(e) == Some(i)).count();
    // A computed column may move up only as it is, and only once.
    let fits = (0..below.len()).all(|i| inlined(i) || uses[i] == 0 || (uses[i] == 1 && passed(i) == 1));
    if !fits {
        return None;
    }
    let over = |expr: &Arc<dyn PhysicalExpr>| {
        let moved = Arc::clone(expr).transform(|e: Arc<dyn PhysicalExpr>| match column_index(&e) {
            Some(index) => Ok(Transformed::new(Arc::clone(&below[index]), true, TreeNodeRecursion::Jump)),
            None => Ok(Transformed::no(e)),
        });
        moved.data().ok()
    };
    columns.iter().map(|(expr, field)| Some((over(expr)?, field.clone()))).collect()
}

/// The columns of `node` that `keep` names, in its order. At least one is kept.
pub(super) fn select(node: PlanNode, keep: &[usize]) -> PlanNode {
    let keep = if keep.is_empty() { &[0] } else { keep };
    let columns = keep.iter().map(|i| passed(&node, *i)).collect();
    project(node, columns)
}

/// The first `arity` columns of `node`: drops what a helper has appended.
pub(super) fn trim(node: PlanNode, arity: usize) -> PlanNode {
    if node.arity() <= arity.max(1) {
        return node;
    }
    let keep: Vec<usize> = (0..arity).collect();
    select(node, &keep)
}

/// `node` with `exprs` among its columns, and where each is: those that aren't columns yet are
/// appended. `schema` is the logical plan's.
pub(super) fn with_columns(
    node: PlanNode,
    exprs: &[&Expr],
    schema: &DFSchema,
) -> Result<(PlanNode, Vec<usize>), SqlError> {
    let mut columns: Vec<Computed> = (0..node.arity()).map(|i| passed(&node, i)).collect();
    let mut places = Vec::with_capacity(exprs.len());
    for expr in exprs {
        let name = expr.schema_name().to_string();
        let (lowered, field) = computed(expr, &node, schema, &Field::new(name, DataType::Null, true))?;
        let place = match columns.iter().position(|(known, _)| known.eq(&lowered)) {
            Some(place) => place,
            None => {
                columns.push((lowered, field));
                columns.len() - 1
            }
        };
        places.push(place);
    }
    Ok((project(node, columns), places))
}

/// Refuses columns whose values can't be compared in state keys.
pub(super) fn check_keys(node: &PlanNode, columns: &[usize], what: &str) -> Result<(), SqlError> {
    for column in columns {
        let field = node.schema.field(*column);
        if !key_type(field.data_type()) {
            let kind = crate::functions::type_name(field.data_type());
            let error = SqlError::not_supported(format!("{what} column \"{}\" of type {kind}", field.name()));
            return Err(error.hint("Cast it to a type that can be compared, such as text."));
        }
    }
    Ok(())
}
