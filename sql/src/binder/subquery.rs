//! Scalar subqueries that look at the outer row and may have several rows.
//!
//! PostgreSQL runs them and fails if one has. DataFusion wants an aggregate there, so they get one:
//! `single_value`, which fails at a second row.

use crate::error::SqlError;
use crate::functions::error::{external, failure};
use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, Result, ScalarValue};
use datafusion_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Expr, LogicalPlan, LogicalPlanBuilder, Signature, Subquery,
    Volatility,
};
use datafusion_optimizer::AnalyzerRule;
use std::sync::Arc;
use weir_catalog::SqlState;

/// Runs before the plan's subqueries are checked.
#[derive(Debug)]
pub(super) struct SingleRow;

impl AnalyzerRule for SingleRow {
    fn name(&self) -> &str {
        "single_row"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let rewrite = |plan: LogicalPlan| {
            plan.map_expressions(|expr| {
                expr.transform_up(|expr| match expr {
                    Expr::ScalarSubquery(subquery) if may_repeat(&subquery) => {
                        Ok(Transformed::yes(Expr::ScalarSubquery(single(subquery)?)))
                    }
                    other => Ok(Transformed::no(other)),
                })
            })
        };
        Ok(plan.transform_up_with_subqueries(rewrite)?.data)
    }
}

fn may_repeat(subquery: &Subquery) -> bool {
    let columns = subquery.subquery.schema().fields().len();
    columns == 1 && !subquery.outer_ref_columns.is_empty() && !has_one_row(&subquery.subquery)
}

fn has_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => has_one_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_one_row(&alias.input),
        LogicalPlan::Filter(filter) => has_one_row(&filter.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        other => other.max_rows().is_some_and(|rows| rows <= 1),
    }
}

fn single(subquery: Subquery) -> Result<Subquery> {
    let plan = Arc::unwrap_or_clone(subquery.subquery);
    let (qualifier, field) = plan.schema().qualified_field(0);
    let (qualifier, name) = (qualifier.cloned(), field.name().clone());
    let column = Expr::Column(Column::from(plan.schema().qualified_field(0)));
    let call = Expr::AggregateFunction(AggregateFunction {
        func: Arc::new(AggregateUDF::from(SingleValue {
            signature: Signature::any(1, Volatility::Immutable),
        })),
        params: AggregateFunctionParams {
            args: vec![column],
            distinct: false,
            filter: None,
            order_by: Vec::new(),
            null_treatment: None,
        },
    });
    let value = call.schema_name().to_string();
    let plan = LogicalPlanBuilder::from(plan)
        .aggregate(Vec::<Expr>::new(), vec![call])?
        .project(vec![Expr::Column(Column::from_name(value)).alias_qualified(qualifier, name)])?
        .build()?;
    Ok(Subquery { subquery: Arc::new(plan), ..subquery })
}

/// The value of the only row, NULL of none.
#[derive(Debug, PartialEq, Eq, Hash)]
struct SingleValue {
    signature: Signature,
}

impl AggregateUDFImpl for SingleValue {
    fn name(&self) -> &str {
        "single_value"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [one] => Ok(one.clone()),
            _ => Err(external(SqlError::new(SqlState::INTERNAL_ERROR, "single_value takes one argument"))),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Single { value: ScalarValue::try_from(args.return_field.data_type())?, seen: false }))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let value = Field::new(format!("{}[value]", args.name), args.return_field.data_type().clone(), true);
        let seen = Field::new(format!("{}[seen]", args.name), DataType::Boolean, false);
        Ok(vec![Arc::new(value), Arc::new(seen)])
    }
}

#[derive(Debug)]
struct Single {
    value: ScalarValue,
    seen: bool,
}

impl Single {
    fn take(&mut self, values: &ArrayRef, row: usize) -> Result<()> {
        if self.seen {
            let message = "more than one row returned by a subquery used as an expression";
            return Err(failure(SqlState::CARDINALITY_VIOLATION, message));
        }
        self.value = ScalarValue::try_from_array(values, row)?;
        self.seen = true;
        Ok(())
    }
}

impl Accumulator for Single {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        (0..values[0].len()).try_for_each(|row| self.take(&values[0], row))
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(self.value.clone())
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.value.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.value.clone(), ScalarValue::Boolean(Some(self.seen))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for row in 0..states[0].len() {
            if ScalarValue::try_from_array(&states[1], row)? == ScalarValue::Boolean(Some(true)) {
                self.take(&states[0], row)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::Int32Array;

    #[test]
    fn a_second_row_is_an_error() {
        let mut single = Single { value: ScalarValue::Int32(None), seen: false };
        let rows = |values: Vec<Option<i32>>| -> Vec<ArrayRef> { vec![Arc::new(Int32Array::from(values))] };
        single.update_batch(&rows(vec![])).expect("no row");
        assert_eq!(single.evaluate().expect("a value"), ScalarValue::Int32(None));
        single.update_batch(&rows(vec![None])).expect("one row, even of NULL");
        let error = single.update_batch(&rows(vec![Some(1)])).expect_err("the second row");
        let error = crate::functions::error::sql_error(&error).expect("carried");
        assert_eq!(error.state, SqlState::CARDINALITY_VIOLATION);
    }
}
