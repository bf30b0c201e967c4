//! GROUPING SETS, ROLLUP and CUBE: each row once for each set, and one aggregate over all of them.
//!
//! ```text
//!   Project group columns, set, calls                     the set's number in DataFusion's type
//!     Aggregate by group columns, set
//!       Union                                             only where a set is empty:
//!         Expand (a, NULL, 1, args…), (NULL, NULL, 3, …)
//!         Values (NULL, NULL, 3, NULL…)                   its row is there without input, too
//! ```
//! The row of the empty set is made by a constant row that no aggregate sees: its arguments are
//! NULL, and `count(*)` counts a column of its own that is NULL only there.

use super::aggregate::{Parsed, check_arguments, parse_call};
use super::exprs::{check_keys, passed, plan_error, project, with_columns};
use super::lower::Lowering;
use super::node::{AggregateCall, AggregateFunction, PlanNode, PlanOp};
use crate::error::SqlError;
use arrow::array::{ArrayRef, Int64Array, RecordBatch, new_null_array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion_common::ScalarValue;
use datafusion_expr::expr::GroupingSet;
use datafusion_expr::utils::{enumerate_grouping_sets, grouping_set_to_exprlist};
use datafusion_expr::{Aggregate, Expr};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{CastExpr, Column, Literal};
use std::sync::Arc;

/// More sets than this are refused: each row is multiplied by their number.
const SETS_MAX: usize = 256;

/// A set's number has a bit for each expression.
const EXPRS_MAX: usize = 32;

/// Where the pieces of an expanded row are: group columns, the set, arguments, `present`.
struct Expanded {
    groups: usize,
    /// Columns of the input that calls read, in the order in which they follow the set.
    read: Vec<usize>,
    schema: SchemaRef,
}

impl Expanded {
    fn new(input: &PlanNode, groups: &[usize], mut read: Vec<usize>) -> Self {
        read.sort_unstable();
        read.dedup();
        let field = |c: &usize| input.schema.field(*c).clone().with_nullable(true);
        let mut fields: Vec<Field> = groups.iter().map(field).collect();
        fields.push(Field::new("set", DataType::Int64, false));
        fields.extend(read.iter().map(field));
        fields.push(Field::new("present", DataType::Boolean, true));
        Self { groups: groups.len(), read, schema: Arc::new(Schema::new(fields)) }
    }

    fn present(&self) -> usize {
        self.schema.fields().len() - 1
    }

    fn place(&self, column: usize) -> Option<usize> {
        self.read.iter().position(|c| *c == column).map(|i| self.groups + 1 + i)
    }

    /// What one set makes of a row.
    fn projection(&self, input: &PlanNode, groups: &[usize], set: &Set) -> Vec<Arc<dyn PhysicalExpr>> {
        let mut exprs: Vec<Arc<dyn PhysicalExpr>> = Vec::with_capacity(self.schema.fields().len());
        for (i, column) in groups.iter().enumerate() {
            exprs.push(match set.columns.contains(&i) {
                true => passed(input, *column).0,
                false => Arc::new(Literal::new(null_of(self.schema.field(i).data_type()))),
            });
        }
        exprs.push(Arc::new(Literal::new(ScalarValue::Int64(Some(set.number)))));
        exprs.extend(self.read.iter().map(|column| passed(input, *column).0));
        exprs.push(Arc::new(Literal::new(ScalarValue::Boolean(Some(true)))));
        exprs
    }

    /// A row that no aggregate sees, for each of these sets.
    fn unseen(&self, sets: &[&Set]) -> Result<PlanNode, SqlError> {
        let column = |(i, field): (usize, &Arc<Field>)| -> ArrayRef {
            match i == self.groups {
                true => Arc::new(Int64Array::from_iter_values(sets.iter().map(|set| set.number))),
                false => new_null_array(field.data_type(), sets.len()),
            }
        };
        let columns = self.schema.fields().iter().enumerate().map(column).collect();
        let rows =
            RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(|e| plan_error(e.into()))?;
        Ok(PlanNode::over(PlanOp::Values { rows }, Vec::new(), Arc::clone(&self.schema)))
    }
}

fn null_of(data_type: &DataType) -> ScalarValue {
    ScalarValue::try_from(data_type).unwrap_or(ScalarValue::Null)
}

/// One grouping set: which of the group expressions, and the number that DataFusion gives it.
struct Set {
    columns: Vec<usize>,
    number: i64,
}

impl Lowering<'_> {
    pub(super) fn lower_grouping_sets(&self, aggregate: &Aggregate) -> Result<PlanNode, SqlError> {
        let group_exprs = grouping_set_to_exprlist(&aggregate.group_expr).map_err(plan_error)?;
        let sets = sets_of(&aggregate.group_expr, &group_exprs)?;
        let parsed: Vec<Parsed<'_>> = aggregate.aggr_expr.iter().map(parse_call).collect::<Result<_, _>>()?;
        let mut exprs = group_exprs.clone();
        exprs.extend(parsed.iter().filter_map(|p| p.argument));
        exprs.extend(parsed.iter().filter_map(|p| p.filter));
        let input = self.node(&aggregate.input)?;
        let (input, places) = with_columns(input, &exprs, aggregate.input.schema())?;
        let groups = places[..group_exprs.len()].to_vec();
        check_keys(&input, &groups, "the grouping")?;
        let expanded = Expanded::new(&input, &groups, places[groups.len()..].to_vec());
        let empty: Vec<&Set> = sets.iter().filter(|set| set.columns.is_empty()).collect();
        let place =
            |wanted: &Expr| exprs.iter().position(|e| *e == wanted).and_then(|i| expanded.place(places[i]));
        let offset = groups.len() + 1;
        let calls: Vec<AggregateCall> = parsed
            .iter()
            .enumerate()
            .map(|(i, call)| AggregateCall {
                function: call.function,
                argument: match call.argument {
                    Some(argument) => place(argument),
                    None if call.function == AggregateFunction::Count && !empty.is_empty() => {
                        Some(expanded.present())
                    }
                    None => None,
                },
                distinct: call.distinct,
                filter: call.filter.and_then(place),
                output: aggregate.schema.field(offset + i).as_ref().clone(),
            })
            .collect();
        let projections = sets.iter().map(|set| expanded.projection(&input, &groups, set)).collect();
        let op = PlanOp::Expand { projections };
        let mut node = PlanNode::over(op, vec![input], Arc::clone(&expanded.schema));
        if !empty.is_empty() {
            let unseen = expanded.unseen(&empty)?;
            node = PlanNode::over(PlanOp::Union, vec![node, unseen], Arc::clone(&expanded.schema));
        }
        check_arguments(&node, &calls)?;
        Ok(aggregated(node, offset, calls, aggregate))
    }
}

/// The aggregate over expanded rows, with the set's number in the type that it is declared with.
fn aggregated(node: PlanNode, keys: usize, calls: Vec<AggregateCall>, aggregate: &Aggregate) -> PlanNode {
    let mut fields: Vec<Field> = (0..keys).map(|i| node.schema.field(i).clone()).collect();
    fields.extend(calls.iter().map(|c| c.output.clone()));
    let op = PlanOp::Aggregate { group: (0..keys).collect(), calls };
    let node = PlanNode::over(op, vec![node], Arc::new(Schema::new(fields)));
    let declared = aggregate.schema.field(keys - 1);
    let columns = (0..node.arity()).map(|i| {
        let (column, field) = passed(&node, i);
        if i + 1 != keys {
            return (column, field);
        }
        let number: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), i));
        let cast: Arc<dyn PhysicalExpr> = Arc::new(CastExpr::new(number, declared.data_type().clone(), None));
        (cast, Field::new(declared.name(), declared.data_type().clone(), true))
    });
    let columns = columns.collect();
    project(node, columns)
}

/// The sets, numbered as DataFusion numbers them: a bit for each expression that is left out, the
/// leftmost one's highest, and above those how often the same set came before.
fn sets_of(group: &[Expr], exprs: &[&Expr]) -> Result<Vec<Set>, SqlError> {
    if exprs.len() > EXPRS_MAX {
        let what =
            format!("grouping sets of more than {EXPRS_MAX} expressions in a materialized view or sink");
        return Err(SqlError::not_supported(what));
    }
    let enumerated = enumerate_grouping_sets(group.to_vec()).map_err(plan_error)?;
    let Some(Expr::GroupingSet(grouping)) = enumerated.first() else {
        return Err(SqlError::not_supported("this GROUP BY in a materialized view or sink"));
    };
    let place = |e: &Expr| exprs.iter().position(|known| *known == e);
    let columns: Vec<Vec<usize>> = match grouping {
        GroupingSet::GroupingSets(sets) => {
            sets.iter().map(|set| set.iter().filter_map(place).collect()).collect()
        }
        GroupingSet::Rollup(all) => {
            (0..=all.len()).rev().map(|n| all[..n].iter().filter_map(place).collect()).collect()
        }
        GroupingSet::Cube(all) if all.len() <= 8 => (0..1usize << all.len())
            .map(|bits| {
                let chosen = all.iter().enumerate().filter(|(i, _)| bits & (1 << i) == 0);
                chosen.filter_map(|(_, e)| place(e)).collect()
            })
            .collect(),
        GroupingSet::Cube(_) => Vec::new(),
    };
    if columns.len() > SETS_MAX || columns.is_empty() {
        let what = format!("more than {SETS_MAX} grouping sets in a materialized view or sink");
        return Err(SqlError::not_supported(what));
    }
    let mut sets: Vec<Set> = Vec::with_capacity(columns.len());
    for columns in columns {
        let left_out = (0..exprs.len()).filter(|i| !columns.contains(i));
        let mask = left_out.fold(0i64, |mask, i| mask | 1 << (exprs.len() - 1 - i));
        let before = sets.iter().filter(|s| s.number & ((1 << exprs.len()) - 1) == mask).count() as i64;
        sets.push(Set { columns, number: mask | before << exprs.len() });
    }
    Ok(sets)
}
