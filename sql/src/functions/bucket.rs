//! Numbers sorted into buckets, and arguments counted: `width_bucket`, `num_nulls`, `num_nonnulls`.

use super::error::failure;
use super::numeric;
use super::scalar::{Function, Kernel};
use arrow::array::{Array, ArrayRef, AsArray, Int32Array, make_comparator};
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Decimal128Type, Field, Float64Type, Int32Type, i256};
use datafusion_common::Result;
use std::sync::Arc;
use weir_catalog::SqlState;

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    let any = |types: &[DataType]| Some(types.to_vec());
    vec![
        Function::new("width_bucket", coerce, |_, _| DataType::Int32, Kernel::Columns(width_bucket)),
        Function::new("num_nulls", any, |_, _| DataType::Int32, Kernel::Columns(nulls)),
        Function::new("num_nonnulls", any, |_, _| DataType::Int32, Kernel::Columns(non_nulls)),
    ]
}

/// `(operand, low, high, count)` of floats or numerics, or `(operand, thresholds)`.
fn coerce(types: &[DataType]) -> Option<Vec<DataType>> {
    let number = |t: &DataType| t.is_numeric() || *t == DataType::Null;
    match types {
        [operand, low, high, count] if types.iter().all(number) && !count.is_floating() => {
            let float = [operand, low, high].iter().any(|t| t.is_floating());
            let common = if float { DataType::Float64 } else { DataType::Decimal128(numeric::PRECISION, 10) };
            Some(vec![common.clone(), common.clone(), common, DataType::Int32])
        }
        [operand, DataType::List(item)] => {
            let common = match operand == item.data_type() {
                true => operand.clone(),
                false if number(operand) && number(item.data_type()) => DataType::Float64,
                false => item.data_type().clone(),
            };
            Some(vec![common.clone(), DataType::List(Arc::new(Field::new_list_field(common, true)))])
        }
        _ => None,
    }
}

fn refused(message: &str) -> datafusion_common::DataFusionError {
    failure(SqlState("2201G"), message)
}

fn width_bucket(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    if args.len() == 2 {
        return among_thresholds(args);
    }
    let counts = args[3].as_primitive::<Int32Type>();
    let bucket = |row: usize| {
        if args.iter().any(|arg| arg.is_null(row)) {
            return Ok(None);
        }
        let count = counts.value(row);
        if count <= 0 {
            return Err(refused("count must be greater than zero"));
        }
        match args[0].data_type() {
            DataType::Float64 => {
                let value = |i: usize| args[i].as_primitive::<Float64Type>().value(row);
                of_floats(value(0), value(1), value(2), count)
            }
            _ => {
                let value = |i: usize| args[i].as_primitive::<Decimal128Type>().value(row);
                of_decimals(value(0), value(1), value(2), count)
            }
        }
        .map(Some)
    };
    Ok(Arc::new((0..args[0].len()).map(bucket).collect::<Result<Int32Array>>()?))
}

const EQUAL_BOUNDS: &str = "lower bound cannot equal upper bound";

fn of_floats(operand: f64, low: f64, high: f64, count: i32) -> Result<i32> {
    if operand.is_nan() || low.is_nan() || high.is_nan() {
        return Err(refused("operand, lower bound, and upper bound cannot be NaN"));
    }
    if low.is_infinite() || high.is_infinite() {
        return Err(refused("lower and upper bounds must be finite"));
    }
    if low == high {
        return Err(refused(EQUAL_BOUNDS));
    }
    let along = if low < high { operand - low } else { low - operand };
    let width = (high - low).abs();
    Ok(match along {
        along if along < 0.0 => 0,
        along if along >= width => count.saturating_add(1),
        along => (f64::from(count) * (along / width)).floor() as i32 + 1,
    })
}

fn of_decimals(operand: i128, low: i128, high: i128, count: i32) -> Result<i32> {
    if low == high {
        return Err(refused(EQUAL_BOUNDS));
    }
    let (along, width) = if low < high { (operand - low, high - low) } else { (low - operand, low - high) };
    Ok(match along {
        along if along < 0 => 0,
        along if along >= width => count.saturating_add(1),
        along => {
            let scaled = i256::from_i128(along).wrapping_mul(i256::from_i128(i128::from(count)));
            let bucket = scaled.checked_div(i256::from_i128(width)).and_then(i256::to_i128).unwrap_or(0);
            bucket as i32 + 1
        }
    })
}

/// How many thresholds, which are in order, the operand reaches.
fn among_thresholds(args: &[ArrayRef]) -> Result<ArrayRef> {
    let lists = args[1].as_list::<i32>();
    let bucket = |row: usize| {
        if args.iter().any(|arg| arg.is_null(row)) {
            return Ok(None);
        }
        let thresholds = lists.value(row);
        if thresholds.null_count() > 0 {
            return Err(failure(SqlState("22004"), "thresholds array must not contain NULLs"));
        }
        let compare = make_comparator(&args[0], &thresholds, SortOptions::default())?;
        let reached = (0..thresholds.len()).filter(|at| compare(row, *at).is_ge()).count();
        Ok(Some(reached as i32))
    };
    Ok(Arc::new((0..lists.len()).map(bucket).collect::<Result<Int32Array>>()?))
}

fn counted(args: &[ArrayRef], counts: impl Fn(bool) -> bool) -> ArrayRef {
    let rows = args.first().map_or(1, |arg| arg.len());
    let is_null = |arg: &ArrayRef, row| arg.is_null(row) || *arg.data_type() == DataType::Null;
    let count = |row: usize| args.iter().filter(|arg| counts(is_null(arg, row))).count() as i32;
    Arc::new((0..rows).map(|row| Some(count(row))).collect::<Int32Array>())
}

fn nulls(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    Ok(counted(args, |null| null))
}

fn non_nulls(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    Ok(counted(args, |null| !null))
}
