//! What is known of a node's output, from its operator and its inputs: schema aside, the
//! [`Properties`] of every operator are proved here.
//!
//! **Invariant:** a `key` is unique in the accumulated output at every barrier, with NULLs taken as
//! equal. Where nothing is proved there is none, and the relation is stored by the whole row.

use super::monotone::rises_with;
use super::node::{JoinKind, PlanNode, PlanOp, WindowKind};
use super::property::{Distribution, Properties};
use arrow::datatypes::SchemaRef;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::Column;
use std::sync::Arc;

impl PlanNode {
    /// A node over inputs, with what can be proved of it. Its number is given later.
    pub fn over(op: PlanOp, inputs: Vec<PlanNode>, schema: SchemaRef) -> Self {
        let properties = properties(&op, &inputs, &schema);
        Self { id: 0, op, inputs, schema, properties }
    }

    /// A node that reads from outside.
    pub fn leaf(op: PlanOp, schema: SchemaRef, properties: Properties) -> Self {
        Self { id: 0, op, inputs: Vec::new(), schema, properties }
    }

    /// How many columns it has.
    pub fn arity(&self) -> usize {
        self.schema.fields().len()
    }
}

/// The properties of an operator over inputs. Leaves know their own.
pub fn properties(op: &PlanOp, inputs: &[PlanNode], schema: &SchemaRef) -> Properties {
    match op {
        PlanOp::Source { .. } | PlanOp::Scan { .. } => unreachable!("leaves bring their own properties"),
        PlanOp::Values { rows } => Properties {
            append_only: true,
            key: (rows.num_rows() <= 1).then(Vec::new),
            watermarks: Vec::new(),
            distribution: Distribution::Single,
        },
        PlanOp::Filter { .. } => inputs[0].properties.clone(),
        PlanOp::Project { exprs } => of_project(exprs, &inputs[0].properties),
        PlanOp::Expand { .. } => Properties {
            append_only: inputs[0].properties.append_only,
            key: None,
            watermarks: Vec::new(),
            // Rows change their columns, not their place.
            distribution: match inputs[0].properties.distribution {
                Distribution::Single => Distribution::Single,
                Distribution::Hash(_) | Distribution::Any => Distribution::Any,
            },
        },
        PlanOp::Union => of_union(inputs),
        PlanOp::Aggregate { group, calls } => of_aggregate(group, calls.is_empty(), &inputs[0].properties),
        PlanOp::Join { kind, left_keys, right_keys, .. } => {
            of_join(*kind, left_keys, right_keys, &inputs[0], &inputs[1])
        }
        PlanOp::TopN { group, limit, rank, .. } => {
            of_top_n(group, *limit, rank.then(|| schema.fields().len() - 1), &inputs[0].properties)
        }
        PlanOp::Over { group, .. } => of_top_n(group, None, None, &inputs[0].properties),
        PlanOp::Window { kind, time } => of_window(*kind, *time, schema, &inputs[0].properties),
        // What is held is not below the watermark of the time column; of others nothing is known.
        PlanOp::EmitOnClose { time } => {
            Properties { append_only: true, watermarks: vec![*time], ..inputs[0].properties.clone() }
        }
        PlanOp::Exchange { to } => Properties { distribution: to.clone(), ..inputs[0].properties.clone() },
    }
}

/// The output column of each input column that `exprs` pass on.
fn passed_on(exprs: &[Arc<dyn PhysicalExpr>], column: usize) -> Option<usize> {
    exprs.iter().position(|e| e.downcast_ref::<Column>().is_some_and(|c| c.index() == column))
}

/// `columns` as they are called after a mapping, if all are left.
fn mapped(columns: &[usize], to: impl Fn(usize) -> Option<usize>) -> Option<Vec<usize>> {
    columns.iter().map(|c| to(*c)).collect()
}

fn of_project(exprs: &[Arc<dyn PhysicalExpr>], input: &Properties) -> Properties {
    let to = |c| passed_on(exprs, c);
    Properties {
        append_only: input.append_only,
        key: input.key.as_ref().and_then(|key| mapped(key, to)),
        watermarks: (0..exprs.len())
            .filter(|i| rises_with(&exprs[*i]).is_some_and(|c| input.watermarks.contains(&c)))
            .collect(),
        distribution: match &input.distribution {
            Distribution::Hash(columns) => mapped(columns, to).map_or(Distribution::Any, Distribution::Hash),
            other => other.clone(),
        },
    }
}

fn of_union(inputs: &[PlanNode]) -> Properties {
    let first = &inputs[0].properties;
    let alike = inputs.iter().all(|i| i.properties.distribution == first.distribution);
    Properties {
        append_only: inputs.iter().all(|i| i.properties.append_only),
        key: if inputs.len() == 1 { first.key.clone() } else { None },
        watermarks: first
            .watermarks
            .iter()
            .copied()
            .filter(|c| inputs.iter().all(|i| i.properties.watermarks.contains(c)))
            .collect(),
        distribution: if alike { first.distribution.clone() } else { Distribution::Any },
    }
}

fn of_aggregate(group: &[usize], distinct: bool, input: &Properties) -> Properties {
    Properties {
        // DISTINCT over insertions only ever adds; a running aggregate retracts its last value.
        append_only: distinct && input.append_only,
        key: Some((0..group.len()).collect()),
        watermarks: (0..group.len()).filter(|i| input.watermarks.contains(&group[*i])).collect(),
        distribution: if group.is_empty() {
            Distribution::Single
        } else {
            Distribution::Hash((0..group.len()).collect())
        },
    }
}

fn of_join(
    kind: JoinKind,
    left_keys: &[usize],
    right_keys: &[usize],
    left: &PlanNode,
    right: &PlanNode,
) -> Properties {
    let arity = left.arity();
    let shifted = |columns: &[usize]| -> Vec<usize> { columns.iter().map(|c| c + arity).collect() };
    let both = left.properties.append_only && right.properties.append_only;
    let left_only = matches!(kind, JoinKind::LeftSemi | JoinKind::LeftAnti | JoinKind::NullAwareAnti);
    let distribution = match kind {
        _ if left_keys.is_empty() || kind == JoinKind::NullAwareAnti => Distribution::Single,
        JoinKind::Full => Distribution::Any,
        JoinKind::Right => Distribution::Hash(shifted(right_keys)),
        _ => Distribution::Hash(left_keys.to_vec()),
    };
    Properties {
        append_only: both && matches!(kind, JoinKind::Inner | JoinKind::LeftSemi),
        key: if left_only {
            left.properties.key.clone()
        } else {
            join_key(kind, left_keys, right_keys, left, right)
        },
        watermarks: join_watermarks(kind, left_keys, right_keys, left, right),
        distribution,
    }
}

/// A kept row may come out at any time, whatever its own time is; but only where its key is not
/// below what both sides promise of it.
fn join_watermarks(
    kind: JoinKind,
    left_keys: &[usize],
    right_keys: &[usize],
    left: &PlanNode,
    right: &PlanNode,
) -> Vec<usize> {
    let both = promised_keys(left_keys, right_keys, &left.properties, &right.properties);
    let pairs = both.map(|key| (left_keys[key], left.arity() + right_keys[key]));
    match kind {
        JoinKind::NullAwareAnti => Vec::new(),
        JoinKind::LeftSemi | JoinKind::LeftAnti => pairs.map(|(left, _)| left).collect(),
        JoinKind::Inner | JoinKind::Left | JoinKind::Right | JoinKind::Full => {
            pairs.flat_map(|(left, right)| [left, right]).collect()
        }
    }
}

/// The join keys that carry a watermark on both sides.
pub(super) fn promised_keys(
    left_keys: &[usize],
    right_keys: &[usize],
    left: &Properties,
    right: &Properties,
) -> impl Iterator<Item = usize> {
    (0..left_keys.len()).filter(move |key| {
        left.watermarks.contains(&left_keys[*key]) && right.watermarks.contains(&right_keys[*key])
    })
}

/// Whether an operator may forget what it remembers of keys whose first column is below its
/// watermark: no change of them comes any more. The planner puts such a column first.
pub fn expires_by_first_key(op: &PlanOp, inputs: &[&Properties]) -> bool {
    let carries = |group: &[usize]| group.first().is_some_and(|c| inputs[0].watermarks.contains(c));
    match op {
        PlanOp::Aggregate { group, .. } | PlanOp::TopN { group, .. } | PlanOp::Over { group, .. } => {
            carries(group)
        }
        PlanOp::Join { kind, left_keys, right_keys, .. } => {
            *kind != JoinKind::NullAwareAnti
                && promised_keys(left_keys, right_keys, inputs[0], inputs[1]).next() == Some(0)
        }
        _ => false,
    }
}

fn join_key(
    kind: JoinKind,
    left_keys: &[usize],
    right_keys: &[usize],
    left: &PlanNode,
    right: &PlanNode,
) -> Option<Vec<usize>> {
    let arity = left.arity();
    let (of_left, of_right) = (left.properties.key.as_ref()?, right.properties.key.as_ref()?);
    let right_unique = of_right.iter().all(|c| right_keys.contains(c));
    let left_unique = of_left.iter().all(|c| left_keys.contains(c));
    let shifted = of_right.iter().map(|c| c + arity);
    match kind {
        JoinKind::Inner | JoinKind::Left if right_unique => Some(of_left.clone()),
        JoinKind::Inner | JoinKind::Right if left_unique => Some(shifted.collect()),
        JoinKind::Inner | JoinKind::Left => {
            // A right column that the join equates with a left one of the key adds nothing.
            let repeats =
                |c: &usize| right_keys.iter().zip(left_keys).any(|(r, l)| r == c && of_left.contains(l));
            Some(
                of_left
                    .iter()
                    .copied()
                    .chain(of_right.iter().filter(|c| !repeats(c)).map(|c| c + arity))
                    .collect(),
            )
        }
        JoinKind::Right => Some(of_left.iter().copied().chain(shifted).collect()),
        JoinKind::Full => {
            // A row alone on the left and one alone on the right must differ: one of them has a
            // key column that can't be NULL, and is NULL in the other.
            let certain = of_left.iter().any(|c| !left.schema.field(*c).is_nullable())
                || of_right.iter().any(|c| !right.schema.field(*c).is_nullable());
            certain.then(|| of_left.iter().copied().chain(shifted).collect())
        }
        JoinKind::LeftSemi | JoinKind::LeftAnti | JoinKind::NullAwareAnti => Some(of_left.clone()),
    }
}

fn of_top_n(group: &[usize], limit: Option<u64>, rank: Option<usize>, input: &Properties) -> Properties {
    let key = if limit == Some(1) {
        Some(group.to_vec())
    } else if input.key.is_some() {
        input.key.clone()
    } else {
        rank.map(|rank| group.iter().copied().chain([rank]).collect())
    };
    Properties {
        append_only: false,
        key,
        watermarks: input.watermarks.iter().copied().filter(|c| group.contains(c)).collect(),
        distribution: if group.is_empty() {
            Distribution::Single
        } else {
            Distribution::Hash(group.to_vec())
        },
    }
}

fn of_window(kind: WindowKind, time: usize, schema: &SchemaRef, input: &Properties) -> Properties {
    let (start, end) = (schema.fields().len() - 2, schema.fields().len() - 1);
    let (size, slide, _) = kind.parts();
    let mut watermarks = input.watermarks.clone();
    if watermarks.contains(&time) {
        watermarks.extend([start, end]);
    }
    Properties {
        append_only: input.append_only,
        key: input.key.as_ref().map(|key| {
            let start = (size > slide).then_some(start);
            key.iter().copied().chain(start).collect()
        }),
        watermarks,
        distribution: input.distribution.clone(),
    }
}
