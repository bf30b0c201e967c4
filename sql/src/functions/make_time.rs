//! Dates, times and intervals made of numbers: `make_date`, `make_time`, `make_timestamp`,
//! `make_timestamptz`, `make_interval`; and whether a time is finite.

use super::calendar::{self, DAY_US};
use super::error::failure;
use super::scalar::{Function, Kernel, exactly};
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, PrimitiveArray};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Float64Type, Int64Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, IntervalUnit, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
};
use datafusion_common::Result;
use std::sync::Arc;
use weir_catalog::SqlState;

const INTEGER: DataType = DataType::Int64;
const SECONDS: DataType = DataType::Float64;
const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);
const TIME: DataType = DataType::Time64(TimeUnit::Microsecond);

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    vec![
        Function::new("make_date", three_integers, |_, _| DataType::Date32, Kernel::Columns(make_date)),
        Function::new("make_time", coerce_time, |_, _| TIME, Kernel::Columns(make_time)),
        Function::new("make_timestamp", coerce_timestamp, |_, _| TIMESTAMP, Kernel::Columns(make_timestamp)),
        Function::new(
            "make_timestamptz",
            coerce_timestamp,
            |_, _| super::datetime::timestamptz(),
            Kernel::Columns(make_timestamp),
        ),
        Function::new("make_interval", coerce_interval, |_, _| INTERVAL, Kernel::Columns(make_interval)),
        Function::new("isfinite", coerce_finite, |_, _| DataType::Boolean, Kernel::Columns(is_finite)),
    ]
}

fn three_integers(types: &[DataType]) -> Option<Vec<DataType>> {
    let integer = |t: &DataType| t.is_integer() || *t == DataType::Null;
    (types.len() == 3 && types.iter().all(integer)).then(|| vec![DataType::Int64; 3])
}

fn coerce_time(types: &[DataType]) -> Option<Vec<DataType>> {
    exactly(types, &[INTEGER, INTEGER, SECONDS])
}

fn coerce_timestamp(types: &[DataType]) -> Option<Vec<DataType>> {
    exactly(types, &[INTEGER, INTEGER, INTEGER, INTEGER, INTEGER, SECONDS])
}

fn coerce_interval(types: &[DataType]) -> Option<Vec<DataType>> {
    exactly(types, [INTEGER, INTEGER, INTEGER, INTEGER, INTEGER, INTEGER, SECONDS].get(..types.len())?)
}

fn coerce_finite(types: &[DataType]) -> Option<Vec<DataType>> {
    match types {
        [DataType::Date32 | DataType::Timestamp(TimeUnit::Microsecond, _) | DataType::Interval(_)] => {
            Some(types.to_vec())
        }
        _ => None,
    }
}

fn make_date(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let part = |i: usize| args[i].as_primitive::<arrow::datatypes::Int64Type>();
    let (years, months, days) = (part(0), part(1), part(2));
    let dates: PrimitiveArray<Date32Type> = (0..years.len())
        .map(|row| {
            if years.is_null(row) || months.is_null(row) || days.is_null(row) {
                return Ok(None);
            }
            let (y, m, d) = (years.value(row), months.value(row), days.value(row));
            let found = u32::try_from(m).ok().zip(u32::try_from(d).ok());
            let found = found.and_then(|(m, d)| calendar::checked_days(y, m, d));
            let date = found.and_then(|days| i32::try_from(days).ok());
            date.map(Some).ok_or_else(|| {
                failure(SqlState("22008"), format!("date field value out of range: {y}-{m:02}-{d:02}"))
            })
        })
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .collect();
    Ok(Arc::new(dates))
}

/// A value a row, NULL if an argument is.
fn rows<T: ArrowPrimitiveType>(
    args: &[ArrayRef],
    output: &DataType,
    f: impl Fn(&dyn Fn(usize) -> i64, &dyn Fn(usize) -> f64) -> Result<T::Native>,
) -> Result<ArrayRef> {
    let count = args.first().map_or(1, |arg| arg.len());
    let value = |row: usize| {
        if args.iter().any(|arg| arg.is_null(row)) {
            return Ok(None);
        }
        let integer = |i: usize| args.get(i).map_or(0, |a| a.as_primitive::<Int64Type>().value(row));
        let float = |i: usize| args.get(i).map_or(0.0, |a| a.as_primitive::<Float64Type>().value(row));
        f(&integer, &float).map(Some)
    };
    let values = (0..count).map(value).collect::<Result<Vec<_>>>()?;
    let values: PrimitiveArray<T> = values.into_iter().collect();
    Ok(Arc::new(values.with_data_type(output.clone())))
}

/// The microseconds of a time of day.
fn time_us(hour: i64, minute: i64, second: f64) -> Result<i64> {
    let us = (second * 1_000_000.0).round();
    let whole_day = hour == 24 && minute == 0 && us == 0.0;
    let fits = (0..24).contains(&hour) && (0..60).contains(&minute) && (0.0..=60_000_000.0).contains(&us);
    if !fits && !whole_day {
        let message = format!("time field value out of range: {hour}:{minute:02}:{second:02}");
        return Err(failure(SqlState("22008"), message));
    }
    Ok((hour * 60 + minute) * 60_000_000 + us as i64)
}

fn make_time(args: &[ArrayRef], output: &DataType) -> Result<ArrayRef> {
    rows::<Time64MicrosecondType>(args, output, |integer, float| time_us(integer(0), integer(1), float(2)))
}

fn make_timestamp(args: &[ArrayRef], output: &DataType) -> Result<ArrayRef> {
    rows::<TimestampMicrosecondType>(args, output, |integer, float| {
        let (year, month, day) = (integer(0), integer(1), integer(2));
        let found = u32::try_from(month).ok().zip(u32::try_from(day).ok());
        let days =
            found.and_then(|(month, day)| calendar::checked_days(year, month, day)).ok_or_else(|| {
                let message = format!("date field value out of range: {year}-{month:02}-{day:02}");
                failure(SqlState("22008"), message)
            })?;
        Ok(days * DAY_US + time_us(integer(3), integer(4), float(5))?)
    })
}

fn make_interval(args: &[ArrayRef], output: &DataType) -> Result<ArrayRef> {
    rows::<IntervalMonthDayNanoType>(args, output, |integer, float| {
        let months = integer(0).checked_mul(12).and_then(|m| m.checked_add(integer(1)));
        let days = integer(2).checked_mul(7).and_then(|d| d.checked_add(integer(3)));
        let minutes = integer(4).checked_mul(60).and_then(|m| m.checked_add(integer(5)));
        let ns = minutes.and_then(|m| m.checked_mul(60_000_000_000));
        let ns = ns.and_then(|ns| ns.checked_add((float(6) * 1_000_000.0).round() as i64 * 1_000));
        let parts = months.and_then(|m| i32::try_from(m).ok()).zip(days.and_then(|d| i32::try_from(d).ok()));
        let interval = parts.zip(ns).map(|((months, days), ns)| IntervalMonthDayNano::new(months, days, ns));
        interval.ok_or_else(|| failure(SqlState("22008"), "interval out of range"))
    })
}

fn is_finite(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let finite = |row: usize| {
        args[0].is_valid(row).then(|| match args[0].data_type() {
            DataType::Date32 => calendar::is_finite_date(args[0].as_primitive::<Date32Type>().value(row)),
            DataType::Timestamp(..) => {
                calendar::is_finite(args[0].as_primitive::<TimestampMicrosecondType>().value(row))
            }
            _ => true,
        })
    };
    Ok(Arc::new((0..args[0].len()).map(finite).collect::<BooleanArray>()))
}
