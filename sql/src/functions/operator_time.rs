//! Arithmetic with dates, times and intervals: the half of [`super::operator`] that is not numbers.

use super::operator::{Op, division_by_zero};
use super::{calendar, interval, type_name};
use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::compute::kernels::arity;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Float64Type, Int32Type, IntervalMonthDayNanoType,
    Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow::error::ArrowError;
use datafusion_common::{Result, internal_err};
use std::sync::Arc;
use weir_catalog::SqlState;

/// Operands of which one is a time or an interval.
pub(super) fn times(op: Op, left: &ArrayRef, right: &ArrayRef, output: &DataType) -> Result<ArrayRef> {
    use DataType::{Date32, Float64, Int32, Interval, Time64, Timestamp};
    // Where the operator is commutative the interval, or the number, goes second.
    let (l, r) = match (left.data_type(), right.data_type()) {
        (Interval(_), Timestamp(_, _) | Time64(_))
        | (Int32, Date32)
        | (Float64, Interval(_))
        | (Time64(_), Date32) => (right, left),
        _ => (left, right),
    };
    let sign: i8 = if op == Op::Minus { -1 } else { 1 };
    let out_of_range = || out_of_range(output);
    match (l.data_type(), r.data_type()) {
        (Date32, Int32) => rows::<Date32Type, Int32Type, Date32Type>(l, r, |a, b| {
            days_later(a, b, sign).ok_or_else(out_of_range)
        }),
        (Date32, Date32) => rows::<Date32Type, Date32Type, Int32Type>(l, r, days_between),
        (Date32, Time64(_)) => {
            rows::<Date32Type, Time64MicrosecondType, TimestampMicrosecondType>(l, r, |a, b| {
                let start = calendar::start_of_day(a);
                Ok(if calendar::is_finite(start) { start + b } else { start })
            })
        }
        (Timestamp(_, _), Interval(_)) => {
            let shifted = rows::<TimestampMicrosecondType, IntervalMonthDayNanoType, TimestampMicrosecondType>(
                l,
                r,
                |a, b| calendar::add_interval(a, b, sign).ok_or_else(out_of_range),
            )?;
            Ok(Arc::new(
                shifted.as_primitive::<TimestampMicrosecondType>().clone().with_data_type(output.clone()),
            ))
        }
        (Timestamp(_, _), Timestamp(_, _)) => {
            rows::<TimestampMicrosecondType, TimestampMicrosecondType, IntervalMonthDayNanoType>(
                l,
                r,
                |a, b| match calendar::is_finite(a) && calendar::is_finite(b) {
                    true => a.checked_sub(b).and_then(calendar::interval_between).ok_or_else(out_of_range),
                    false => Err(infinite_operand("timestamps")),
                },
            )
        }
        (Time64(_), Interval(_)) => {
            rows::<Time64MicrosecondType, IntervalMonthDayNanoType, Time64MicrosecondType>(l, r, |a, b| {
                Ok((a + i64::from(sign) * (b.nanoseconds / 1_000)).rem_euclid(calendar::DAY_US))
            })
        }
        (Time64(_), Time64(_)) => {
            rows::<Time64MicrosecondType, Time64MicrosecondType, IntervalMonthDayNanoType>(l, r, |a, b| {
                Ok(arrow::datatypes::IntervalMonthDayNano::new(0, 0, (a - b) * 1_000))
            })
        }
        (Interval(_), Interval(_)) => {
            rows::<IntervalMonthDayNanoType, IntervalMonthDayNanoType, IntervalMonthDayNanoType>(
                l,
                r,
                |a, b| interval::add(a, b, sign).ok_or_else(out_of_range),
            )
        }
        (Interval(_), Float64) => {
            rows::<IntervalMonthDayNanoType, Float64Type, IntervalMonthDayNanoType>(l, r, |a, b| match op {
                Op::Divide if b == 0.0 => Err(division_by_zero()),
                Op::Divide => Ok(interval::divide(a, b)),
                _ => interval::multiply(a, b).ok_or_else(out_of_range),
            })
        }
        (l, r) => internal_err!("no operator {op:?} for {l} and {r}"),
    }
}

fn rows<A: ArrowPrimitiveType, B: ArrowPrimitiveType, O: ArrowPrimitiveType>(
    left: &ArrayRef,
    right: &ArrayRef,
    f: impl Fn(A::Native, B::Native) -> Result<O::Native, ArrowError>,
) -> Result<ArrayRef> {
    let result: PrimitiveArray<O> =
        arity::try_binary(left.as_primitive::<A>(), right.as_primitive::<B>(), f)?;
    Ok(Arc::new(result))
}

/// `date + sign * days`; an infinite date stays.
fn days_later(date: i32, days: i32, sign: i8) -> Option<i32> {
    match calendar::is_finite_date(date) {
        true => date.checked_add(days.checked_mul(i32::from(sign))?),
        false => Some(date),
    }
}

fn days_between(a: i32, b: i32) -> Result<i32, ArrowError> {
    match calendar::is_finite_date(a) && calendar::is_finite_date(b) {
        true => a.checked_sub(b).ok_or_else(|| out_of_range(&DataType::Date32)),
        false => Err(infinite_operand("dates")),
    }
}

fn infinite_operand(what: &str) -> ArrowError {
    super::error::arrow_failure(SqlState("22008"), format!("cannot subtract infinite {what}"))
}

fn out_of_range(data_type: &DataType) -> ArrowError {
    let name = match data_type {
        DataType::Timestamp(_, _) => "timestamp".to_owned(),
        other => type_name(other),
    };
    super::error::arrow_failure(SqlState("22008"), format!("{name} out of range"))
}
