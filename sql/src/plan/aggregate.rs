//! GROUP BY and DISTINCT to aggregate nodes; grouping sets are in [`super::grouping`]. Group
//! expressions, arguments and filters become columns of the input first, so that the operator only
//! picks columns.
//!
//! The value of a subquery's only row is the least of its values and the count of its rows, with a
//! projection that fails where there are several.

use super::exprs::{Computed, check_keys, passed, plan_error, project, select, with_columns};
use super::lower::Lowering;
use super::node::{AggregateCall, AggregateFunction, PlanNode, PlanOp};
use crate::error::SqlError;
use crate::functions::single::{SINGLE_VALUE, single_row};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion_common::DFSchema;
use datafusion_expr::expr::{AggregateFunction as AggregateExpr, AggregateFunctionParams};
use datafusion_expr::{Aggregate, Expr, LogicalPlan};
use datafusion_physical_expr::ScalarFunctionExpr;
use std::sync::Arc;

/// An aggregate call as written, before its columns are placed.
pub(super) struct Parsed<'a> {
    pub(super) function: AggregateFunction,
    pub(super) argument: Option<&'a Expr>,
    pub(super) distinct: bool,
    pub(super) filter: Option<&'a Expr>,
    /// The value of the only row: the least one, where there is one row.
    single: bool,
}

impl Lowering<'_> {
    pub(super) fn lower_aggregate(&self, aggregate: &Aggregate) -> Result<PlanNode, SqlError> {
        if matches!(aggregate.group_expr.first(), Some(Expr::GroupingSet(_))) {
            return self.lower_grouping_sets(aggregate);
        }
        let parsed: Vec<Parsed<'_>> = aggregate.aggr_expr.iter().map(parse_call).collect::<Result<_, _>>()?;
        let mut exprs: Vec<&Expr> = aggregate.group_expr.iter().collect();
        exprs.extend(parsed.iter().filter_map(|p| p.argument));
        exprs.extend(parsed.iter().filter_map(|p| p.filter));
        let input = self.node(&aggregate.input)?;
        let (input, places) = with_columns(input, &exprs, aggregate.input.schema())?;
        let place = |wanted: &Expr| exprs.iter().position(|e| *e == wanted).map(|i| places[i]);
        let group: Vec<usize> = places[..aggregate.group_expr.len()].to_vec();
        check_keys(&input, &group, "the grouping")?;
        let mut calls: Vec<AggregateCall> = parsed
            .iter()
            .enumerate()
            .map(|(i, call)| AggregateCall {
                function: call.function,
                argument: call.argument.and_then(place),
                distinct: call.distinct,
                filter: call.filter.and_then(place),
                output: aggregate.schema.field(group.len() + i).as_ref().clone(),
            })
            .collect();
        check_arguments(&input, &calls)?;
        let singles: Vec<usize> = (0..parsed.len()).filter(|i| parsed[*i].single).collect();
        if singles.is_empty() {
            return Ok(aggregate_node(input, group, calls, &aggregate.schema));
        }
        calls.push(row_count());
        let node = aggregate_node(input, group.clone(), calls, &aggregate.schema);
        let singles: Vec<usize> = singles.into_iter().map(|i| group.len() + i).collect();
        single_values(node, &singles)
    }

    /// SELECT DISTINCT: groups without calls.
    pub(super) fn lower_distinct(&self, input: &LogicalPlan) -> Result<PlanNode, SqlError> {
        let node = self.node(input)?;
        let group: Vec<usize> = (0..input.schema().fields().len()).collect();
        check_keys(&node, &group, "the DISTINCT")?;
        Ok(aggregate_node(node, group, Vec::new(), input.schema()))
    }
}

fn row_count() -> AggregateCall {
    AggregateCall {
        function: AggregateFunction::Count,
        argument: None,
        distinct: false,
        filter: None,
        output: Field::new("rows", DataType::Int64, false),
    }
}

/// The aggregates `node` with the row count at its end: without it, and with `columns` failing
/// where there are several rows.
fn single_values(node: PlanNode, columns: &[usize]) -> Result<PlanNode, SqlError> {
    let rows = node.arity() - 1;
    let mut computed: Vec<Computed> = Vec::with_capacity(rows);
    for i in 0..rows {
        let (value, field) = passed(&node, i);
        if !columns.contains(&i) {
            computed.push((value, field));
            continue;
        }
        let arguments = vec![passed(&node, rows).0, value];
        let call = ScalarFunctionExpr::try_new(single_row(), arguments, &node.schema, Arc::default());
        computed.push((Arc::new(call.map_err(plan_error)?), field.with_nullable(true)));
    }
    Ok(project(node, computed))
}

fn aggregate_node(
    input: PlanNode,
    group: Vec<usize>,
    calls: Vec<AggregateCall>,
    schema: &DFSchema,
) -> PlanNode {
    let groups = group.iter().zip(schema.fields()).map(|(column, field)| {
        let input = input.schema.field(*column);
        Field::new(field.name(), input.data_type().clone(), input.is_nullable())
            .with_metadata(input.metadata().clone())
    });
    let mut fields: Vec<Field> = groups.chain(calls.iter().map(|c| c.output.clone())).collect();
    // A column that carries a watermark goes first: groups below it expire. Above, nobody sees it.
    let first = group.iter().position(|c| input.properties.watermarks.contains(c)).unwrap_or(0);
    let mut group = group;
    if first > 0 {
        group[..=first].rotate_right(1);
        fields[..=first].rotate_right(1);
    }
    let arity = fields.len();
    let node = PlanNode::over(PlanOp::Aggregate { group, calls }, vec![input], Arc::new(Schema::new(fields)));
    if first == 0 {
        return node;
    }
    let as_written: Vec<usize> = (1..=first).chain([0]).chain(first + 1..arity).collect();
    select(node, &as_written)
}

pub(super) fn parse_call(expr: &Expr) -> Result<Parsed<'_>, SqlError> {
    let call = match expr {
        Expr::Alias(alias) => return parse_call(&alias.expr),
        Expr::AggregateFunction(call) => call,
        other => return Err(SqlError::not_supported(format!("the aggregate {other}"))),
    };
    let AggregateExpr {
        func,
        params: AggregateFunctionParams { args, distinct, filter, null_treatment, .. },
    } = call;
    let function = match func.name() {
        "count" => AggregateFunction::Count,
        "sum" => AggregateFunction::Sum,
        "avg" => AggregateFunction::Avg,
        "min" | SINGLE_VALUE => AggregateFunction::Min,
        "max" => AggregateFunction::Max,
        "bool_and" | "every" => AggregateFunction::BoolAnd,
        "bool_or" => AggregateFunction::BoolOr,
        other => {
            let error =
                SqlError::not_supported(format!("the aggregate {other}() in a materialized view or sink"));
            return Err(error.hint("Views know count, sum, avg, min, max, bool_and and bool_or."));
        }
    };
    if null_treatment.is_some() {
        return Err(SqlError::not_supported(format!("IGNORE NULLS of {}() in a view", func.name())));
    }
    let argument = match args.as_slice() {
        [] => None,
        // count(*) arrives as count of a constant.
        [Expr::Literal(value, _)]
            if function == AggregateFunction::Count && !value.is_null() && !*distinct =>
        {
            None
        }
        [argument] => Some(argument),
        _ => {
            return Err(SqlError::not_supported(format!("{}() of several arguments in a view", func.name())));
        }
    };
    // The least of distinct values is the least of all.
    let idempotent =
        !matches!(function, AggregateFunction::Count | AggregateFunction::Sum | AggregateFunction::Avg);
    let distinct = *distinct && !idempotent;
    let single = func.name() == SINGLE_VALUE;
    Ok(Parsed { function, argument, distinct, filter: filter.as_deref(), single })
}

/// What is kept in order or told apart must have an order.
pub(super) fn check_arguments(input: &PlanNode, calls: &[AggregateCall]) -> Result<(), SqlError> {
    for call in calls {
        let ordered = matches!(call.function, AggregateFunction::Min | AggregateFunction::Max);
        if let Some(argument) = call.argument.filter(|_| ordered || call.distinct) {
            check_keys(input, &[argument], "the aggregated")?;
        }
    }
    Ok(())
}
