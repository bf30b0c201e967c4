//! Errors as PostgreSQL says them.

use super::*;
use arrow::array::{
    ArrayRef, Decimal128Array, Float64Array, Int16Array, Int32Array, Int64Array, StringArray,
};
use arrow::compute::CastOptions;
use arrow::compute::kernels::{cast::cast_with_options, numeric};
use arrow::datatypes::{DataType, TimeUnit};
use std::sync::Arc;

fn said(error: impl Into<ServeError>) -> (&'static str, String) {
    let error = error.into();
    (error.state.0, error.message)
}

fn cast_error(array: ArrayRef, to: DataType) -> ArrowError {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(&array, &to, &options).expect_err("not castable")
}

#[test]
fn arithmetic() {
    let (int, one) = (Int32Array::from(vec![i32::MAX]), Int32Array::from(vec![1]));
    let (big, ten) = (Int64Array::from(vec![i64::MAX]), Int64Array::from(vec![10]));
    let (small, zero) = (Int16Array::from(vec![i16::MIN]), Int16Array::from(vec![0]));
    assert_eq!(
        said(numeric::add(&int, &one).expect_err("overflow")),
        ("22003", "integer out of range".into())
    );
    assert_eq!(
        said(numeric::mul(&big, &ten).expect_err("overflow")),
        ("22003", "bigint out of range".into())
    );
    assert_eq!(
        said(numeric::sub(&small, &Int16Array::from(vec![1])).expect_err("overflow")),
        ("22003", "smallint out of range".into())
    );
    assert_eq!(said(numeric::div(&small, &zero).expect_err("zero")), ("22012", "division by zero".into()));
}

#[test]
fn casts() {
    let text: ArrayRef = Arc::new(StringArray::from(vec!["x'y"]));
    for (to, name) in [
        (DataType::Int32, "integer"),
        (DataType::Float64, "double precision"),
        (DataType::Boolean, "boolean"),
        (DataType::Date32, "date"),
        (DataType::Timestamp(TimeUnit::Microsecond, None), "timestamp"),
    ] {
        let expected = format!("invalid input syntax for type {name}: \"x'y\"");
        let (state, message) = said(cast_error(Arc::clone(&text), to));
        assert_eq!(state, "22P02", "{message}");
        if name != "timestamp" {
            assert_eq!(message, expected);
        }
    }
    let wide: ArrayRef = Arc::new(Int64Array::from(vec![1 << 40]));
    assert_eq!(said(cast_error(wide, DataType::Int32)), ("22003", "integer out of range".into()));
    let float: ArrayRef = Arc::new(Float64Array::from(vec![1e30]));
    assert_eq!(said(cast_error(float, DataType::Int64)), ("22003", "bigint out of range".into()));
    let decimal: ArrayRef =
        Arc::new(Decimal128Array::from(vec![123_456]).with_precision_and_scale(10, 0).expect("valid"));
    assert_eq!(
        said(cast_error(decimal, DataType::Decimal128(4, 1))),
        ("22003", "numeric field overflow".into())
    );
}

#[test]
fn known_errors_pass_through_any_wrapping() {
    let error = SqlError::new(SqlState::NOT_NULL_VIOLATION, "null value").hint("Don't.");
    let wrapped =
        DataFusionError::Context("in a scan".into(), Box::new(DataFusionError::External(Box::new(error))));
    let error = ServeError::from(wrapped);
    assert_eq!((error.state.0, error.hint.as_deref()), ("23502", Some("Don't.")));

    let memory = DataFusionError::ResourcesExhausted("Failed to allocate".into());
    assert_eq!(said(memory).0, "53200");
    let shared = DataFusionError::Shared(Arc::new(ServeError::canceled().into()));
    assert_eq!(said(shared).0, "57014");
}
