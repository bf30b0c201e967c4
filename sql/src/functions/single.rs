//! The value of a subquery's only row: as an aggregate for a batch, and as a function of the rows'
//! count and least value for a stream. Both fail of several rows, as PostgreSQL does.

use super::error::{external, failure};
use super::scalar::{Function, Kernel};
use crate::error::SqlError;
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, ScalarUDF, Signature, Volatility};
use std::sync::Arc;
use weir_catalog::SqlState;

/// The aggregate's name.
pub const SINGLE_VALUE: &str = "single_value";

/// The aggregate.
pub fn single_value() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(SingleValue { signature: Signature::any(1, Volatility::Immutable) }))
}

/// `single_row(rows, value)`: the value, if there is at most one row.
pub fn single_row() -> Arc<ScalarUDF> {
    let coerce = |types: &[DataType]| Some(types.to_vec());
    let output = |types: &[DataType], _: &[Option<&ScalarValue>]| types[1].clone();
    Function::new("single_row", coerce, output, Kernel::Columns(single_row_kernel)).udf()
}

fn single_row_kernel(columns: &[ArrayRef], _: &DataType) -> Result<ArrayRef> {
    let rows = columns[0].as_primitive::<Int64Type>();
    match rows.values().iter().any(|rows| *rows > 1) {
        true => Err(several()),
        false => Ok(Arc::clone(&columns[1])),
    }
}

fn several() -> datafusion_common::DataFusionError {
    let message = "more than one row returned by a subquery used as an expression";
    failure(SqlState::CARDINALITY_VIOLATION, message)
}

/// The value of the only row, NULL of none.
#[derive(Debug, PartialEq, Eq, Hash)]
struct SingleValue {
    signature: Signature,
}

impl AggregateUDFImpl for SingleValue {
    fn name(&self) -> &str {
        SINGLE_VALUE
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
            return Err(several());
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
