//! Joins: keys become columns of both sides, the rest of the condition the residual.

use super::derive::promised_keys;
use super::exprs::{check_keys, passed, physical, plan_error, project, select, trim, with_columns};
use super::lower::Lowering;
use super::node::{JoinKind, PlanNode, PlanOp};
use crate::error::SqlError;
use arrow::datatypes::{DataType, Field, Schema};
use datafusion_common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion_common::{Column as NamedColumn, DFSchema, JoinType, NullEquality, ScalarValue};
use datafusion_expr::{Expr, Join, LogicalPlan};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{Column, Literal};
use std::sync::Arc;

/// One side: its logical plan, and the node with the key columns.
struct Side<'a> {
    plan: &'a LogicalPlan,
    node: PlanNode,
    keys: Vec<usize>,
}

impl Side<'_> {
    /// How many columns the logical plan has.
    fn logical_arity(&self) -> usize {
        self.plan.schema().fields().len()
    }
}

impl Lowering<'_> {
    pub(super) fn lower_join(&self, join: &Join) -> Result<PlanNode, SqlError> {
        match join.join_type {
            JoinType::Inner => self.two_sided(join, JoinKind::Inner),
            JoinType::Left => self.two_sided(join, JoinKind::Left),
            JoinType::Right => self.two_sided(join, JoinKind::Right),
            JoinType::Full => self.two_sided(join, JoinKind::Full),
            JoinType::LeftSemi => self.one_sided(join, JoinKind::LeftSemi, false),
            JoinType::RightSemi => self.one_sided(join, JoinKind::LeftSemi, true),
            JoinType::LeftAnti if join.null_aware => self.one_sided(join, JoinKind::NullAwareAnti, false),
            JoinType::LeftAnti => self.one_sided(join, JoinKind::LeftAnti, false),
            JoinType::RightAnti => self.one_sided(join, JoinKind::LeftAnti, true),
            JoinType::LeftMark => self.mark(join, false),
            JoinType::RightMark => self.mark(join, true),
        }
    }

    fn two_sided(&self, join: &Join, kind: JoinKind) -> Result<PlanNode, SqlError> {
        let (left, right) = self.sides(join, false)?;
        let (lefts, rights) = (left.logical_arity(), right.logical_arity());
        let offset = left.node.arity();
        let node = join_node(join, kind, left, right)?;
        let keep: Vec<usize> = (0..lefts).chain((0..rights).map(|r| offset + r)).collect();
        Ok(select(node, &keep))
    }

    fn one_sided(&self, join: &Join, kind: JoinKind, swapped: bool) -> Result<PlanNode, SqlError> {
        let (left, right) = self.sides(join, swapped)?;
        let arity = left.logical_arity();
        if kind == JoinKind::NullAwareAnti && (join.on.len() != 1 || join.filter.is_some()) {
            return Err(SqlError::not_supported(
                "NOT IN with a correlated subquery in a materialized view or sink",
            )
            .hint("Write NOT EXISTS, and say what NULLs should mean."));
        }
        let node = join_node(join, kind, left, right)?;
        Ok(trim(node, arity))
    }

    /// A mark join says of each row whether it has a match: the rows that have one, and those that
    /// have none.
    fn mark(&self, join: &Join, swapped: bool) -> Result<PlanNode, SqlError> {
        let mut marked = Vec::with_capacity(2);
        for (kind, mark) in [(JoinKind::LeftSemi, true), (JoinKind::LeftAnti, false)] {
            let (left, right) = self.sides(join, swapped)?;
            let arity = left.logical_arity();
            let node = trim(join_node(join, kind, left, right)?, arity);
            let mut columns: Vec<_> = (0..arity).map(|i| passed(&node, i)).collect();
            let mark: Arc<dyn PhysicalExpr> = Arc::new(Literal::new(ScalarValue::Boolean(Some(mark))));
            columns.push((mark, Field::new("mark", DataType::Boolean, false)));
            marked.push(project(node, columns));
        }
        let schema = marked[0].schema.clone();
        Ok(PlanNode::over(PlanOp::Union, marked, schema))
    }

    /// The side whose rows are asked about, then the other one.
    fn sides<'j>(&self, join: &'j Join, swapped: bool) -> Result<(Side<'j>, Side<'j>), SqlError> {
        let left_keys: Vec<&Expr> = join.on.iter().map(|(l, _)| l).collect();
        let right_keys: Vec<&Expr> = join.on.iter().map(|(_, r)| r).collect();
        let left = self.side(&join.left, &left_keys)?;
        let right = self.side(&join.right, &right_keys)?;
        for (l, r) in left.keys.iter().zip(&right.keys) {
            let (l, r) = (left.node.schema.field(*l).data_type(), right.node.schema.field(*r).data_type());
            if l != r {
                let (l, r) = (crate::functions::type_name(l), crate::functions::type_name(r));
                let error = SqlError::not_supported(format!("a join of {l} with {r}"));
                return Err(error.hint("Cast both sides to the same type."));
            }
        }
        Ok(if swapped { (right, left) } else { (left, right) })
    }

    fn side<'j>(&self, plan: &'j LogicalPlan, keys: &[&Expr]) -> Result<Side<'j>, SqlError> {
        let node = self.node(plan)?;
        let (node, keys) = with_columns(node, keys, plan.schema())?;
        check_keys(&node, &keys, "the joined")?;
        Ok(Side { plan, node, keys })
    }
}

fn join_node(join: &Join, kind: JoinKind, left: Side<'_>, right: Side<'_>) -> Result<PlanNode, SqlError> {
    let residual = join.filter.as_ref().map(|f| residual(f, &left, &right)).transpose()?;
    let nullable = |fields: &Schema, to: bool| -> Vec<Field> {
        fields.fields().iter().map(|f| f.as_ref().clone().with_nullable(to || f.is_nullable())).collect()
    };
    let (left_alone, right_alone) = match kind {
        JoinKind::Left => (true, false),
        JoinKind::Right => (false, true),
        JoinKind::Full => (true, true),
        _ => (false, false),
    };
    let mut fields = nullable(&left.node.schema, right_alone);
    if matches!(kind, JoinKind::Inner | JoinKind::Left | JoinKind::Right | JoinKind::Full) {
        fields.extend(nullable(&right.node.schema, left_alone));
    }
    let (mut left_keys, mut right_keys) = (left.keys, right.keys);
    // What both sides promise goes first: rows below it expire.
    let promised =
        promised_keys(&left_keys, &right_keys, &left.node.properties, &right.node.properties).next();
    if let Some(key) = promised {
        left_keys[..=key].rotate_right(1);
        right_keys[..=key].rotate_right(1);
    }
    let op = PlanOp::Join {
        kind,
        left_keys,
        right_keys,
        null_equal: join.null_equality == NullEquality::NullEqualsNull,
        residual,
    };
    Ok(PlanNode::over(op, vec![left.node, right.node], Arc::new(Schema::new(fields))))
}

/// The condition over (left columns, right columns) of the nodes. Names may repeat on both sides of
/// a semi join, so columns are looked up side by side and called by their ordinals meanwhile.
fn residual(filter: &Expr, left: &Side<'_>, right: &Side<'_>) -> Result<Arc<dyn PhysicalExpr>, SqlError> {
    let offset = left.node.arity();
    let numbered = filter
        .clone()
        .transform(|e| {
            let Expr::Column(column) = &e else {
                return Ok(Transformed::no(e));
            };
            let index = match left.plan.schema().maybe_index_of_column(column) {
                Some(index) => index,
                None => offset + right.plan.schema().index_of_column(column)?,
            };
            Ok(Transformed::yes(Expr::Column(NamedColumn::from_name(index.to_string()))))
        })
        .data()
        .map_err(plan_error)?;
    let fields: Vec<Field> = left
        .node
        .schema
        .fields()
        .iter()
        .chain(right.node.schema.fields())
        .map(|f| f.as_ref().clone())
        .collect();
    let by_number: Vec<Field> =
        fields.iter().enumerate().map(|(i, f)| f.clone().with_name(i.to_string())).collect();
    let schema = DFSchema::try_from(Schema::new(by_number)).map_err(plan_error)?;
    let lowered = physical(&numbered, &schema)?;
    lowered
        .transform(|e: Arc<dyn PhysicalExpr>| match e.downcast_ref::<Column>() {
            Some(column) => {
                let named = Column::new(fields[column.index()].name(), column.index());
                Ok(Transformed::yes(Arc::new(named) as Arc<dyn PhysicalExpr>))
            }
            None => Ok(Transformed::no(e)),
        })
        .data()
        .map_err(plan_error)
}
