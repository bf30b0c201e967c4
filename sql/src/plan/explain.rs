//! A stream plan as text, for EXPLAIN and for tests: one operator a line, inputs indented below.
//!
//! ```text
//!   0 Aggregate group (channel) calls (count(*)) | key (channel) | hash (channel)
//!     1 Exchange hash (channel) | hash (channel) | append-only
//!       2 Source bid (channel) | any | append-only
//! ```
//! The text is the same for the same plan: tests and scripts may compare it.

use super::node::{AggregateCall, AggregateFunction, JoinKind, PlanNode, PlanOp, SortKey, StreamPlan};
use super::property::{Distribution, Properties};
use arrow::datatypes::Schema;
use datafusion_physical_expr::PhysicalExpr;
use std::fmt::Write;
use std::sync::Arc;
use weir_catalog::{CatalogSnapshot, ObjectId};

/// The plan as text.
pub fn explain(plan: &StreamPlan, catalog: &CatalogSnapshot) -> String {
    let mut text = String::new();
    write_node(&plan.root, 0, catalog, &mut text);
    text
}

fn write_node(node: &PlanNode, depth: usize, catalog: &CatalogSnapshot, text: &mut String) {
    let indent = "  ".repeat(depth);
    let what = describe(node, catalog);
    let known = properties(&node.properties, &node.schema);
    // Writing to a String can't fail.
    let _ = writeln!(text, "{indent}{} {what}{known}", node.id);
    for input in &node.inputs {
        write_node(input, depth + 1, catalog, text);
    }
}

/// An operator and its parameters, in terms of its input's column names.
pub fn describe(node: &PlanNode, catalog: &CatalogSnapshot) -> String {
    let relation =
        |id: &ObjectId| catalog.by_id(*id).map_or_else(|| format!("#{id}"), |o| o.name.to_string());
    let input = node.inputs.first().map_or(&node.schema, |i| &i.schema);
    match &node.op {
        PlanOp::Source { source, .. } => format!("Source {} ({})", relation(source), all_names(&node.schema)),
        PlanOp::Scan { relation: id, .. } => format!("Scan {} ({})", relation(id), all_names(&node.schema)),
        PlanOp::Values { rows } => format!("Values {} rows ({})", rows.num_rows(), all_names(&node.schema)),
        PlanOp::Filter { predicate } => format!("Filter {predicate}"),
        PlanOp::Project { exprs } => format!("Project {}", computed(exprs, &node.schema)),
        PlanOp::Expand { projections } => {
            let all: Vec<String> =
                projections.iter().map(|exprs| format!("({})", computed(exprs, &node.schema))).collect();
            format!("Expand {}", all.join(", "))
        }
        PlanOp::Union => "Union".to_owned(),
        PlanOp::Aggregate { group, calls } if calls.is_empty() => {
            format!("Distinct ({})", names(group, input))
        }
        PlanOp::Aggregate { group, calls } => {
            let calls: Vec<String> = calls.iter().map(|c| call(c, input)).collect();
            format!("Aggregate group ({}) calls ({})", names(group, input), calls.join(", "))
        }
        PlanOp::Join { kind, left_keys, right_keys, null_equal, residual } => {
            let right = node.inputs.get(1).map_or(&node.schema, |i| &i.schema);
            let on: Vec<String> = left_keys
                .iter()
                .zip(right_keys)
                .map(|(l, r)| format!("{} = {}", name(*l, input), name(*r, right)))
                .collect();
            let nulls = if *null_equal { " nulls equal" } else { "" };
            let residual = residual.as_ref().map_or_else(String::new, |r| format!(" residual {r}"));
            format!("Join {} on ({}){nulls}{residual}", join_kind(*kind), on.join(", "))
        }
        PlanOp::TopN { group, order, offset, limit, rank } => {
            let limit = limit.map_or_else(|| "all".to_owned(), |l| l.to_string());
            let rank = if *rank { " with rank" } else { "" };
            let order = sort_keys(order, input);
            format!(
                "TopN group ({}) order ({order}) offset {offset} limit {limit}{rank}",
                names(group, input)
            )
        }
        PlanOp::Over { group, order, calls } => {
            let calls: Vec<String> = calls.iter().map(|c| c.output.name().clone()).collect();
            let order = sort_keys(order, input);
            format!("Over group ({}) order ({order}) calls ({})", names(group, input), calls.join(", "))
        }
        PlanOp::Window { kind, time } => format!("Window {kind} by {}", name(*time, input)),
        PlanOp::EmitOnClose { time } => format!("EmitOnClose by {}", name(*time, input)),
        PlanOp::Exchange { to } => format!("Exchange {}", distribution(to, &node.schema)),
    }
}

fn properties(known: &Properties, schema: &Schema) -> String {
    let mut text = String::new();
    if let Some(key) = &known.key {
        let _ = write!(text, " | key ({})", names(key, schema));
    }
    let _ = write!(text, " | {}", distribution(&known.distribution, schema));
    if known.append_only {
        text.push_str(" | append-only");
    }
    if !known.watermarks.is_empty() {
        let _ = write!(text, " | watermark ({})", names(&known.watermarks, schema));
    }
    text
}

fn distribution(distribution: &Distribution, schema: &Schema) -> String {
    match distribution {
        Distribution::Any => "any".to_owned(),
        Distribution::Hash(columns) => format!("hash ({})", names(columns, schema)),
        Distribution::Single => "single".to_owned(),
    }
}

/// A column's name, with its ordinal where the name alone doesn't tell.
fn name(column: usize, schema: &Schema) -> String {
    let name = schema.field(column).name();
    let repeats = schema.fields().iter().filter(|f| f.name() == name).count() > 1;
    if repeats { format!("{name}@{column}") } else { name.clone() }
}

fn names(columns: &[usize], schema: &Schema) -> String {
    columns.iter().map(|c| name(*c, schema)).collect::<Vec<_>>().join(", ")
}

fn all_names(schema: &Schema) -> String {
    names(&(0..schema.fields().len()).collect::<Vec<_>>(), schema)
}

fn computed(exprs: &[Arc<dyn PhysicalExpr>], schema: &Schema) -> String {
    let columns: Vec<String> = exprs
        .iter()
        .zip(schema.fields())
        .map(|(expr, field)| {
            let text = expr.to_string();
            if text.rsplit_once('@').is_some_and(|(n, _)| n == field.name()) {
                text
            } else {
                format!("{text} as {}", field.name())
            }
        })
        .collect();
    columns.join(", ")
}

fn call(call: &AggregateCall, input: &Schema) -> String {
    let function = match call.function {
        AggregateFunction::Count => "count",
        AggregateFunction::Sum => "sum",
        AggregateFunction::Avg => "avg",
        AggregateFunction::Min => "min",
        AggregateFunction::Max => "max",
        AggregateFunction::BoolAnd => "bool_and",
        AggregateFunction::BoolOr => "bool_or",
    };
    let distinct = if call.distinct { "distinct " } else { "" };
    let argument = call.argument.map_or_else(|| "*".to_owned(), |c| name(c, input));
    let filter = call.filter.map_or_else(String::new, |c| format!(" filter {}", name(c, input)));
    format!("{function}({distinct}{argument}){filter}")
}

fn join_kind(kind: JoinKind) -> &'static str {
    match kind {
        JoinKind::Inner => "inner",
        JoinKind::Left => "left",
        JoinKind::Right => "right",
        JoinKind::Full => "full",
        JoinKind::LeftSemi => "semi",
        JoinKind::LeftAnti => "anti",
        JoinKind::NullAwareAnti => "null-aware anti",
    }
}

fn sort_keys(order: &[SortKey], schema: &Schema) -> String {
    let keys: Vec<String> = order
        .iter()
        .map(|key| {
            let direction = if key.descending { " desc" } else { "" };
            // PostgreSQL's default: NULL is greatest.
            let nulls = match (key.descending, key.nulls_first) {
                (false, true) => " nulls first",
                (true, false) => " nulls last",
                _ => "",
            };
            format!("{}{direction}{nulls}", name(key.column, schema))
        })
        .collect();
    keys.join(", ")
}
