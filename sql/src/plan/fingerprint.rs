//! What identifies the state of an operator: a checkpoint holds the fingerprint of each stateful
//! node, so that a plan that came out otherwise (a new version, a changed rule) is noticed before
//! its bytes are misread.
//!
//! A fingerprint is the FNV-1a hash of the node's operator, its parameters and the types of its
//! input and output columns. Names of columns and of relations don't count: they may change.

use super::node::{PlanNode, PlanOp, StreamPlan};
use arrow::datatypes::Schema;
use std::fmt::Write;
use weir_catalog::ObjectId;

/// The fingerprints of the nodes that keep state, by node number.
pub fn fingerprints(plan: &StreamPlan) -> Vec<(u32, String)> {
    fingerprints_as(plan, &|relation| relation)
}

/// The same of a plan over relations that have other ids.
pub fn fingerprints_as(plan: &StreamPlan, id: &dyn Fn(ObjectId) -> ObjectId) -> Vec<(u32, String)> {
    fn visit(node: &PlanNode, id: &dyn Fn(ObjectId) -> ObjectId, found: &mut Vec<(u32, String)>) {
        if let Some(text) = state_of(node, id) {
            found.push((node.id, format!("{:016x}", fnv(text.as_bytes()))));
        }
        for input in &node.inputs {
            visit(input, id, found);
        }
    }
    let mut found = Vec::new();
    visit(&plan.root, id, &mut found);
    found
}

/// What the state of a node depends on; `None` if it has none.
fn state_of(node: &PlanNode, id: &dyn Fn(ObjectId) -> ObjectId) -> Option<String> {
    let mut text = match &node.op {
        PlanOp::Source { .. }
        | PlanOp::Filter { .. }
        | PlanOp::Project { .. }
        | PlanOp::Expand { .. }
        | PlanOp::Union
        | PlanOp::Window { .. }
        | PlanOp::Exchange { .. } => return None,
        PlanOp::Scan { relation, columns } => format!("scan {} {columns:?}", id(*relation)),
        PlanOp::Values { rows } => format!("values {}", rows.num_rows()),
        PlanOp::Aggregate { group, calls } => {
            let mut text = format!("aggregate {group:?}");
            for call in calls {
                let output = call.output.data_type();
                let parameters = (call.function, call.argument, call.distinct, call.filter);
                // Writing to a String can't fail.
                let _ = write!(text, " {parameters:?} {output:?}");
            }
            text
        }
        PlanOp::Join { kind, left_keys, right_keys, null_equal, residual } => {
            let residual = residual.as_ref().map(|r| nameless(&r.to_string()));
            format!("join {kind:?} {left_keys:?} {right_keys:?} {null_equal} {residual:?}")
        }
        PlanOp::Over { group, order, calls } => {
            let calls: Vec<String> = calls.iter().map(|c| c.function.to_string()).collect();
            format!("over {group:?} {order:?} {calls:?}")
        }
        PlanOp::TopN { group, order, offset, limit, rank } => {
            format!("top_n {group:?} {order:?} {offset} {limit:?} {rank}")
        }
        PlanOp::EmitOnClose { time } => format!("emit_on_close {time}"),
    };
    for input in &node.inputs {
        types(&input.schema, &mut text);
        let _ = write!(text, " append-only {}", input.properties.append_only);
        let shares = matches!(node.op, PlanOp::Join { .. } | PlanOp::Aggregate { .. } | PlanOp::TopN { .. });
        if shares && input.properties.append_only {
            // Since what only grows shares entries in the state of these.
            text.push_str(" packed");
        }
    }
    types(&node.schema, &mut text);
    Some(text)
}

fn types(schema: &Schema, text: &mut String) {
    text.push_str(" (");
    for field in schema.fields() {
        let _ = write!(text, "{:?},", field.data_type());
    }
    text.push(')');
}

/// An expression's text without its columns' names: `price@2 > 10` is `@2 > 10`.
fn nameless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut parts = text.split('@').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_some() {
            out.push_str(part.trim_end_matches(|c: char| c.is_alphanumeric() || c == '_'));
            out.push('@');
        } else {
            out.push_str(part);
        }
    }
    out
}

fn fnv(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
