//! Trigonometry in degrees, exact where the result is: `sind`, `cosd`, `tand`, `cotd`, `asind`,
//! `acosd`, `atand`, `atan2d`.

use super::error::arrow_failure;
use super::scalar::{Function, Kernel, exactly};
use arrow::array::{ArrayRef, AsArray, PrimitiveArray};
use arrow::compute::kernels::arity;
use arrow::datatypes::{DataType, Float64Type};
use arrow::error::ArrowError;
use datafusion_common::Result;
use std::sync::Arc;
use weir_catalog::SqlState;

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    let of_one = |name, kernel| {
        let coerce = |types: &[DataType]| exactly(types, &[DataType::Float64]);
        Function::new(name, coerce, |_, _| DataType::Float64, Kernel::Columns(kernel))
    };
    let of_two = |types: &[DataType]| exactly(types, &[DataType::Float64, DataType::Float64]);
    vec![
        of_one("sind", |args, _| each(args, |x| Ok(sine(finite(x)?)))),
        of_one("cosd", |args, _| each(args, |x| Ok(sine(90.0 - finite(x)?.abs() % 360.0)))),
        of_one("tand", |args, _| each(args, |x| Ok(tangent(finite(x)?)))),
        of_one("cotd", |args, _| each(args, |x| Ok(1.0 / tangent(finite(x)?)))),
        of_one("asind", |args, _| each(args, |x| within(x).map(|x| neat(x.asin().to_degrees())))),
        of_one("acosd", |args, _| each(args, |x| within(x).map(|x| neat(x.acos().to_degrees())))),
        of_one("atand", |args, _| each(args, |x| Ok(neat(x.atan().to_degrees())))),
        Function::new("atan2d", of_two, |_, _| DataType::Float64, Kernel::Columns(atan2)),
    ]
}

fn each(args: &[ArrayRef], f: impl Fn(f64) -> Result<f64, ArrowError>) -> Result<ArrayRef> {
    Ok(Arc::new(args[0].as_primitive::<Float64Type>().try_unary::<_, Float64Type, _>(f)?))
}

fn out_of_range() -> ArrowError {
    arrow_failure(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "input is out of range")
}

fn finite(degrees: f64) -> Result<f64, ArrowError> {
    if degrees.is_infinite() { Err(out_of_range()) } else { Ok(degrees) }
}

fn within(value: f64) -> Result<f64, ArrowError> {
    if (-1.0..=1.0).contains(&value) || value.is_nan() { Ok(value) } else { Err(out_of_range()) }
}

/// Degrees that are whole but for rounding, whole.
fn neat(degrees: f64) -> f64 {
    let whole = degrees.round();
    if (degrees - whole).abs() < 1e-12 { whole } else { degrees }
}

fn sine(degrees: f64) -> f64 {
    let degrees = degrees % 360.0;
    let (sign, degrees) = if degrees < 0.0 { (-1.0, -degrees) } else { (1.0, degrees) };
    let (sign, degrees) = if degrees > 180.0 { (-sign, 360.0 - degrees) } else { (sign, degrees) };
    let degrees = if degrees > 90.0 { 180.0 - degrees } else { degrees };
    let value = match degrees {
        30.0 => 0.5,
        90.0 => 1.0,
        other => other.to_radians().sin(),
    };
    sign * value
}

fn tangent(degrees: f64) -> f64 {
    let (sine, cosine) = (sine(degrees), sine(90.0 - degrees.abs() % 360.0));
    if sine.abs() == cosine.abs() || degrees.abs() % 90.0 == 45.0 {
        return if (sine < 0.0) == (cosine < 0.0) { 1.0 } else { -1.0 };
    }
    sine / cosine
}

fn atan2(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let (y, x) = (args[0].as_primitive::<Float64Type>(), args[1].as_primitive::<Float64Type>());
    let angles: PrimitiveArray<Float64Type> = arity::binary(y, x, |y, x| neat(y.atan2(x).to_degrees()))?;
    Ok(Arc::new(angles))
}
