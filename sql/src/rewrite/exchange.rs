//! Exchanges: where rows must move before an operator can keep its state by vnode.
//!
//! ```text
//!   Aggregate by k          needs Hash(k)      its input is Any      →  Exchange Hash(k) in between
//!   Join on l = r           needs Hash(l), Hash(r)
//!   TopN, cross join        need Single where they have no group or key
//! ```
//! **Invariant:** the operators between two exchanges are all single or all spread, and a stateful
//! one's input is distributed by exactly the columns, in order, that its state's vnode is hashed of.

use crate::plan::node::{JoinKind, PlanNode, PlanOp, StreamPlan};
use crate::plan::property::Distribution;
use crate::plan::{derive, key_type};

/// Inserts the exchanges that the operators need, and numbers the nodes.
pub fn place_exchanges(root: PlanNode) -> StreamPlan {
    numbered(place(root))
}

/// The plan with its output spread as `to` says: what a materialize or sink needs. No columns to
/// hash by means all rows at one actor.
pub fn with_output_distribution(plan: StreamPlan, to: Distribution) -> StreamPlan {
    let to = match to {
        Distribution::Hash(columns) if columns.is_empty() => Distribution::Single,
        other => other,
    };
    numbered(require(plan.root, &to))
}

/// Numbers the nodes in pre-order from the root.
pub fn numbered(mut root: PlanNode) -> StreamPlan {
    fn visit(node: &mut PlanNode, next: &mut u32) {
        node.id = *next;
        *next += 1;
        for input in &mut node.inputs {
            visit(input, next);
        }
    }
    visit(&mut root, &mut 0);
    StreamPlan { root }
}

fn place(node: PlanNode) -> PlanNode {
    if node.inputs.is_empty() {
        return node;
    }
    let needs = needs(&node);
    let inputs: Vec<PlanNode> = node.inputs.into_iter().map(place).collect();
    let mut inputs: Vec<PlanNode> =
        inputs.into_iter().zip(&needs).map(|(input, need)| require(input, need)).collect();
    if matches!(node.op, PlanOp::Union) {
        inputs = spread_alike(inputs);
    }
    let properties = derive::properties(&node.op, &inputs, &node.schema);
    PlanNode { inputs, properties, ..node }
}

/// What each input of a node must be distributed by; `Any`: as it comes.
fn needs(node: &PlanNode) -> Vec<Distribution> {
    let by = |columns: &[usize]| {
        if columns.is_empty() { Distribution::Single } else { Distribution::Hash(columns.to_vec()) }
    };
    match &node.op {
        PlanOp::Aggregate { group, .. } | PlanOp::TopN { group, .. } | PlanOp::Over { group, .. } => {
            vec![by(group)]
        }
        PlanOp::Join { kind: JoinKind::NullAwareAnti, .. } => vec![Distribution::Single; 2],
        PlanOp::Join { left_keys, right_keys, .. } => vec![by(left_keys), by(right_keys)],
        _ => vec![Distribution::Any; node.inputs.len()],
    }
}

/// `node`, behind an exchange unless its rows are already where `need` wants them.
fn require(node: PlanNode, need: &Distribution) -> PlanNode {
    let satisfied = match need {
        Distribution::Any => true,
        Distribution::Single => node.properties.distribution == Distribution::Single,
        Distribution::Hash(columns) => delivers(&node, columns),
    };
    if satisfied {
        return known(node, need);
    }
    // One exchange after another would only move rows twice.
    let node = match node.op {
        PlanOp::Exchange { .. } => node.inputs.into_iter().next().expect("an exchange has an input"),
        _ => node,
    };
    let schema = node.schema.clone();
    PlanNode::over(PlanOp::Exchange { to: need.clone() }, vec![node], schema)
}

/// `node`, whose rows are where `need` wants them: what stands above it may count on that, where the
/// columns that its own distribution names are gone.
fn known(mut node: PlanNode, need: &Distribution) -> PlanNode {
    if *need != Distribution::Any {
        node.properties.distribution = need.clone();
    }
    node
}

/// Whether the rows of `node` are where the hash of `columns` sends them. Beyond what its
/// distribution says, the key columns of an inner join's two sides are equal.
fn delivers(node: &PlanNode, columns: &[usize]) -> bool {
    if matches!(&node.properties.distribution, Distribution::Hash(by) if by == columns) {
        return true;
    }
    match &node.op {
        PlanOp::Filter { .. } => delivers(&node.inputs[0], columns),
        PlanOp::Project { exprs } => {
            let below: Option<Vec<usize>> =
                columns.iter().map(|c| crate::plan::column_index(&exprs[*c])).collect();
            below.is_some_and(|below| delivers(&node.inputs[0], &below))
        }
        PlanOp::Join { kind: JoinKind::Inner, left_keys, right_keys, .. } => {
            let arity = node.inputs[0].arity();
            columns.len() == left_keys.len()
                && !columns.is_empty()
                && columns
                    .iter()
                    .zip(left_keys.iter().zip(right_keys))
                    .all(|(c, (l, r))| c == l || *c == r + arity)
        }
        _ => false,
    }
}

/// Inputs of a union are all single or all spread.
fn spread_alike(inputs: Vec<PlanNode>) -> Vec<PlanNode> {
    let single = |n: &PlanNode| n.properties.distribution == Distribution::Single;
    if inputs.iter().all(single) || !inputs.iter().any(single) {
        return inputs;
    }
    let spread = |input: PlanNode| {
        if !single(&input) {
            return input;
        }
        let columns: Vec<usize> =
            (0..input.arity()).filter(|c| key_type(input.schema.field(*c).data_type())).collect();
        if columns.is_empty() { input } else { require(input, &Distribution::Hash(columns)) }
    };
    let inputs: Vec<PlanNode> = inputs.into_iter().map(spread).collect();
    if inputs.iter().any(single) {
        // Nothing to hash by: gather them all instead.
        return inputs.into_iter().map(|i| require(i, &Distribution::Single)).collect();
    }
    inputs
}
