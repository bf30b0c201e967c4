//! Operators with state: what their constructors need beyond the plan node.

use super::build::BuildContext;
use super::graph::NodeInput;
use super::manager::JobError;
use crate::dataflow::operator::Operator;
use crate::operators::aggregate::Aggregate;
use crate::operators::join::{HashJoin, JoinInput, JoinSpec};
use crate::operators::over::Over;
use crate::operators::top_n_spec::{self, TopNSpec};
use weir_catalog::TableId;
use weir_sql::plan::derive::expires_by_first_key;
use weir_sql::plan::{AggregateCall, PlanNode, PlanOp, Properties};

/// Whether a node may forget what is below the watermark of its first key column.
fn expires(node: &PlanNode, inputs: &[NodeInput]) -> bool {
    let known: Vec<&Properties> = inputs.iter().map(|i| &i.properties).collect();
    expires_by_first_key(&node.op, &known)
}

/// A hash join.
pub fn join(
    node: &PlanNode,
    inputs: &[NodeInput],
    tables: &[TableId],
    context: &BuildContext,
) -> Result<Box<dyn Operator>, JobError> {
    let PlanOp::Join { kind, left_keys, right_keys, null_equal, residual } = &node.op else {
        return Err(JobError::internal("a join is built from a join node"));
    };
    let input = |side: usize, keys: &[usize]| JoinInput {
        schema: inputs[side].schema.clone(),
        keys: keys.to_vec(),
        append_only: inputs[side].properties.append_only,
        unique: inputs[side].properties.key.clone(),
        table: tables[side],
    };
    let spec = JoinSpec {
        kind: *kind,
        inputs: [input(0, left_keys), input(1, right_keys)],
        null_equal: *null_equal,
        residual: residual.clone(),
        schema: node.schema.clone(),
        expires: expires(node, inputs),
    };
    Ok(Box::new(HashJoin::new(spec, context.failures(node.id))))
}

/// A top-n.
pub fn top_n(
    node: &PlanNode,
    inputs: &[NodeInput],
    tables: &[TableId],
) -> Result<Box<dyn Operator>, JobError> {
    let PlanOp::TopN { group, order, offset, limit, rank } = &node.op else {
        return Err(JobError::internal("a top-n is built from a top-n node"));
    };
    let spec = TopNSpec {
        input: inputs[0].schema.clone(),
        group: group.clone(),
        order: order.clone(),
        offset: *offset,
        limit: *limit,
        rank: *rank,
        append_only: inputs[0].properties.append_only,
        table: tables[0],
        schema: node.schema.clone(),
        expires: expires(node, inputs),
    };
    Ok(top_n_spec::top_n(spec))
}

/// Window functions.
pub fn over(
    node: &PlanNode,
    inputs: &[NodeInput],
    tables: &[TableId],
    context: &BuildContext,
) -> Result<Box<dyn Operator>, JobError> {
    let PlanOp::Over { group, order, calls } = &node.op else {
        return Err(JobError::internal("window functions are built from an over node"));
    };
    let spec = TopNSpec {
        input: inputs[0].schema.clone(),
        group: group.clone(),
        order: order.clone(),
        offset: 0,
        limit: None,
        rank: false,
        append_only: inputs[0].properties.append_only,
        table: tables[0],
        schema: inputs[0].schema.clone(),
        expires: expires(node, inputs),
    };
    let over = Over::new(spec, calls, &node.schema, context.failures(node.id));
    Ok(Box::new(over.map_err(JobError::from_operator)?))
}

/// How many internal tables an aggregate needs.
pub fn aggregate_tables(node: &PlanNode, calls: &[AggregateCall]) -> Result<usize, JobError> {
    let input = &node.inputs[0];
    Aggregate::table_count(calls, &input.schema, input.properties.append_only)
        .map_err(JobError::from_operator)
}

/// A grouped aggregation.
pub fn aggregate(
    node: &PlanNode,
    inputs: &[NodeInput],
    tables: &[TableId],
    context: &BuildContext,
) -> Result<Box<dyn Operator>, JobError> {
    let PlanOp::Aggregate { group, calls } = &node.op else {
        return Err(JobError::internal("an aggregate is built from an aggregate node"));
    };
    let aggregate = Aggregate::new(
        group.clone(),
        calls,
        &inputs[0].schema,
        node.schema.clone(),
        inputs[0].properties.append_only,
        tables,
        context.failures(node.id),
    );
    let aggregate = aggregate.map_err(JobError::from_operator)?;
    Ok(Box::new(if expires(node, inputs) { aggregate.expiring() } else { aggregate }))
}
