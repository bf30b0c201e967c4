//! Sums and averages: exact, retractable, at their limits.

use super::*;
use arrow::array::Float64Array;

fn sums(data_type: DataType) -> (Box<dyn Accumulator>, ErrorCounter) {
    let errors = ErrorCounter::default();
    let mut sums = sums_of(&data_type, &errors).unwrap();
    sums.grow(1);
    (sums, errors)
}

fn add(sums: &mut dyn Accumulator, column: ArrayRef, diffs: &[i64]) {
    let groups = vec![0; column.len()];
    sums.update(Rows { groups: &groups, diffs: Some(diffs), keep: None }, Some(&column)).unwrap();
}

fn text(sums: &dyn Accumulator, function: AggregateFunction, data_type: DataType) -> String {
    let column = sums.output(&Wish { function, data_type }, &[0]).unwrap();
    if column.is_null(0) {
        return "NULL".to_owned();
    }
    arrow::util::display::array_value_to_string(&column, 0).unwrap()
}

#[test]
fn averages_round_half_away_from_zero() {
    assert_eq!(divide(5, 0, 2), Some(3));
    assert_eq!(divide(-5, 0, 2), Some(-3));
    assert_eq!(divide(4, 0, 3), Some(1));
    assert_eq!(divide(-2, 1, 3), Some(-7));
    assert_eq!(divide(10i128.pow(37), 16, 10i64.pow(17)), Some(10i128.pow(36)));
    assert_eq!(divide(-(10i128.pow(37)) - 5, 16, 10i64.pow(17)), Some(-(10i128.pow(36)) - 1));
    assert_eq!(divide(10i128.pow(37), 16, 1), None);
}

#[test]
fn integers() {
    let (mut narrow, _) = sums(DataType::Int32);
    let column: ArrayRef = Arc::new(arrow::array::Int32Array::from(vec![Some(i32::MAX), None, Some(2)]));
    add(&mut *narrow, column, &[3, 1, -1]);
    assert_eq!(text(&*narrow, AggregateFunction::Sum, DataType::Int64), "6442450939");
    assert_eq!(text(&*narrow, AggregateFunction::Count, DataType::Int64), "2");
    let numeric = DataType::Decimal128(38, 16);
    assert_eq!(text(&*narrow, AggregateFunction::Avg, numeric.clone()), "3221225469.5000000000000000");
    let (mut wide, _) = sums(DataType::Int64);
    let column: ArrayRef = Arc::new(Int64Array::from(vec![i64::MAX, i64::MAX, i64::MIN]));
    add(&mut *wide, column, &[1000, 1, -5]);
    let sum = text(&*wide, AggregateFunction::Sum, DataType::Decimal128(38, 0));
    assert_eq!(sum, (i128::from(i64::MAX) * 1001 - i128::from(i64::MIN) * 5).to_string());
}

#[test]
fn a_sum_beyond_all_digits_is_null_until_it_fits_again() {
    let decimal = DataType::Decimal128(38, 2);
    let (mut sums, errors) = sums(decimal.clone());
    let big = DECIMAL_END - 1;
    let column: ArrayRef =
        Arc::new(Decimal128Array::from(vec![big, 1]).with_precision_and_scale(38, 2).unwrap());
    add(&mut *sums, Arc::clone(&column), &[5, 3]);
    assert_eq!(text(&*sums, AggregateFunction::Sum, decimal.clone()), "NULL");
    assert_eq!(errors.load(Ordering::Relaxed), 1);
    let state = sums.state(&[0]).unwrap();
    let (mut restored, _) = self::sums(decimal.clone());
    restored.load(&[0], &state);
    for sums in [&mut sums, &mut restored] {
        add(&mut **sums, column.slice(0, 1), &[-4]);
        assert_eq!(text(&**sums, AggregateFunction::Sum, decimal.clone()), "NULL", "three too many");
        add(&mut **sums, column.slice(1, 1), &[-3]);
        let expected = format!("{}.99", "9".repeat(36));
        assert_eq!(text(&**sums, AggregateFunction::Sum, decimal.clone()), expected);
    }
}

#[test]
fn floats_leave_no_residue() {
    let (mut sums, _) = sums(DataType::Float64);
    let column: ArrayRef = Arc::new(Float64Array::from(vec![1e14, 0.1, 3.7, -2e13]));
    add(&mut *sums, Arc::clone(&column), &[1, 1, 2, 1]);
    add(&mut *sums, Arc::clone(&column), &[-1, 1, -2, -1]);
    assert_eq!(text(&*sums, AggregateFunction::Sum, DataType::Float64), "0.2");
    add(&mut *sums, column.slice(1, 1), &[-2]);
    assert_eq!(text(&*sums, AggregateFunction::Sum, DataType::Float64), "NULL");
}

#[test]
fn infinities_and_nan_go_as_they_came() {
    let (mut sums, _) = sums(DataType::Float64);
    let column: ArrayRef =
        Arc::new(Float64Array::from(vec![f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1.5]));
    let sum = |sums: &dyn Accumulator| text(sums, AggregateFunction::Sum, DataType::Float64);
    add(&mut *sums, Arc::clone(&column), &[1, 1, 1, 2]);
    assert_eq!(sum(&*sums), "NaN");
    add(&mut *sums, column.slice(2, 1), &[-1]);
    assert_eq!(sum(&*sums), "NaN", "both infinities");
    add(&mut *sums, column.slice(1, 1), &[-1]);
    assert_eq!(sum(&*sums), "inf");
    add(&mut *sums, column.slice(0, 1), &[-1]);
    assert_eq!(sum(&*sums), "3.0");
    assert_eq!(text(&*sums, AggregateFunction::Avg, DataType::Float64), "1.5");
}
