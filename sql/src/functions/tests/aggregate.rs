//! `sum` and `avg`: types, rounding, DISTINCT, merging, overflow.

use super::*;
use arrow::array::{Decimal128Array, Float32Array, Int32Array, Int64Array};

fn accumulate(name: &str, batches: &[ArrayRef], distinct: bool) -> Result<ScalarValue> {
    let function = functions().into_iter().find(|f| f.name() == name).expect("it exists");
    let input = batches[0].data_type().clone();
    let output = function.return_type(std::slice::from_ref(&input)).expect("a type");
    let field: FieldRef = Arc::new(Field::new("x", input, true));
    let schema = arrow::datatypes::Schema::new(vec![Arc::clone(&field)]);
    let make = || {
        function.accumulator(AccumulatorArgs {
            return_field: Arc::new(Field::new("r", output.clone(), true)),
            schema: &schema,
            ignore_nulls: false,
            order_bys: &[],
            is_reversed: false,
            name: "r",
            is_distinct: distinct,
            exprs: &[],
            expr_fields: std::slice::from_ref(&field),
        })
    };
    let mut whole = make()?;
    for batch in batches {
        let mut part = make()?;
        part.update_batch(std::slice::from_ref(batch))?;
        let state: Vec<ArrayRef> = part.state()?.iter().map(|v| v.to_array()).collect::<Result<_>>()?;
        whole.merge_batch(&state)?;
    }
    whole.evaluate()
}

fn ints(values: &[Option<i32>]) -> ArrayRef {
    Arc::new(Int32Array::from(values.to_vec()))
}

fn bigints(values: &[Option<i64>]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

#[test]
fn sums_have_postgresql_types() {
    let sum = accumulate("sum", &[ints(&[Some(1), None]), ints(&[Some(2)])], false).expect("a sum");
    assert_eq!(sum, ScalarValue::Int64(Some(3)));
    let sum = accumulate("sum", &[bigints(&[Some(i64::MAX), Some(i64::MAX)])], false).expect("a sum");
    assert_eq!(sum, ScalarValue::Decimal128(Some(2 * i128::from(i64::MAX)), 38, 0));
    let reals: ArrayRef = Arc::new(Float32Array::from(vec![1.5, 2.0]));
    assert_eq!(accumulate("sum", &[reals], false).expect("a sum"), ScalarValue::Float32(Some(3.5)));
    let sum = accumulate("sum", &[ints(&[None])], false).expect("a sum");
    assert_eq!(sum, ScalarValue::Int64(None));
}

#[test]
fn averages_round_half_away_from_zero() {
    let third = accumulate("avg", &[bigints(&[Some(1), Some(0), Some(0)])], false).expect("an average");
    assert_eq!(third, ScalarValue::Decimal128(Some(3_333_333_333_333_333), 38, 16));
    let minus = accumulate("avg", &[ints(&[Some(-2), Some(0), Some(0)])], false).expect("an average");
    assert_eq!(minus, ScalarValue::Decimal128(Some(-6_666_666_666_666_667), 38, 16));
    assert_eq!(average(1, 2, 0, 0), Some(1));
    assert_eq!(average(-1, 2, 0, 0), Some(-1));
    assert_eq!(average(-3, 7, 0, 0), Some(0));
    assert_eq!(average(i128::MAX, 1, 0, 16), None);
    let cents: ArrayRef = Arc::new(
        Decimal128Array::from(vec![Some(110), Some(120)]).with_precision_and_scale(10, 2).expect("it fits"),
    );
    let average = accumulate("avg", &[cents], false).expect("an average");
    assert_eq!(average, ScalarValue::Decimal128(Some(11_500_000_000_000_000), 38, 16));
}

#[test]
fn distinct_values_count_once_over_batches() {
    let batches = [ints(&[Some(1), Some(1), Some(2)]), ints(&[Some(2), None])];
    assert_eq!(accumulate("sum", &batches, true).expect("a sum"), ScalarValue::Int64(Some(3)));
    let average = accumulate("avg", &batches, true).expect("an average");
    assert_eq!(average, ScalarValue::Decimal128(Some(15_000_000_000_000_000), 38, 16));
}

#[test]
fn an_overflow_is_out_of_range() {
    let big = 9 * 10i128.pow(37);
    let values: ArrayRef =
        Arc::new(Decimal128Array::from(vec![big, big]).with_precision_and_scale(38, 0).expect("it fits"));
    let error = accumulate("sum", &[values], false).expect_err("too large");
    assert_eq!(
        crate::functions::error::sql_error(&error).map(|e| e.state),
        Some(SqlState::NUMERIC_VALUE_OUT_OF_RANGE)
    );
}
