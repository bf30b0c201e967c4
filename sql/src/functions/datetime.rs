//! Parts and truncation of dates, times and intervals: `extract`, `date_part`, `date_trunc`,
//! `date_bin`.

use super::calendar::{self, DAY_US};
use super::error::failure;
use super::scalar::{Function, Kernel};
use super::type_name;
use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Float64Array, PrimitiveArray};
use arrow::datatypes::{
    DataType, Date32Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
    Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::planner::{ExprPlanner, PlannerResult};
use datafusion_expr::{Expr, ScalarUDF};
use std::sync::{Arc, LazyLock};
use weir_catalog::SqlState;

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);
const TIME: DataType = DataType::Time64(TimeUnit::Microsecond);

/// A field of `infinity`.
const INFINITE: i128 = i128::MAX;

/// `timestamptz`.
pub fn timestamptz() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into()))
}

static EXTRACT: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| extract_function().udf());

/// Plans `extract(field FROM value)`.
#[derive(Debug)]
pub struct ExtractPlanner;

impl ExprPlanner for ExtractPlanner {
    fn plan_extract(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        let call = ScalarFunction::new_udf(Arc::clone(&EXTRACT), args);
        Ok(PlannerResult::Planned(Expr::ScalarFunction(call)))
    }
}

fn extract_function() -> Function {
    Function::new("extract", coerce_part, extract_type, Kernel::Columns(extract))
}

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    vec![
        extract_function(),
        Function::new("date_part", coerce_part, |_, _| DataType::Float64, Kernel::Columns(date_part))
            .aliases(&["datepart"]),
        Function::new("date_trunc", coerce_trunc, |types, _| types[1].clone(), Kernel::Columns(date_trunc))
            .aliases(&["datetrunc"]),
        Function::new("date_bin", coerce_bin, |types, _| types[1].clone(), Kernel::Columns(date_bin)),
    ]
}

/// A date, time, timestamp or interval, in the form that we compute with.
fn time_like(data_type: &DataType) -> Option<DataType> {
    Some(match data_type {
        DataType::Date32 => DataType::Date32,
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
        DataType::Time64(_) | DataType::Time32(_) => TIME,
        DataType::Interval(_) | DataType::Duration(_) => INTERVAL,
        DataType::Null => TIMESTAMP,
        _ => return None,
    })
}

fn coerce_part(types: &[DataType]) -> Option<Vec<DataType>> {
    match types {
        [DataType::Utf8 | DataType::Null, from] => Some(vec![DataType::Utf8, time_like(from)?]),
        _ => None,
    }
}

fn coerce_trunc(types: &[DataType]) -> Option<Vec<DataType>> {
    let mut types = coerce_part(types)?;
    match types[1] {
        // PostgreSQL prefers timestamptz.
        DataType::Date32 => types[1] = timestamptz(),
        DataType::Time64(_) => types[1] = INTERVAL,
        _ => {}
    }
    Some(types)
}

fn coerce_bin(types: &[DataType]) -> Option<Vec<DataType>> {
    let at = match types.get(1)? {
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
        DataType::Date32 | DataType::Null => TIMESTAMP,
        _ => return None,
    };
    matches!(types.len(), 2 | 3).then(|| [INTERVAL, at.clone(), at][..types.len()].to_vec())
}

/// `extract` gives numeric: whole, but for the fields that have fractions.
fn extract_type(types: &[DataType], values: &[Option<&ScalarValue>]) -> DataType {
    let Some(Some(ScalarValue::Utf8(Some(field)))) = values.first() else {
        return DataType::Decimal128(20, 6);
    };
    match field.to_lowercase().as_str() {
        "epoch" if types.get(1) == Some(&DataType::Date32) => DataType::Decimal128(20, 0),
        "epoch" | "second" | "seconds" => DataType::Decimal128(20, 6),
        "millisecond" | "milliseconds" => DataType::Decimal128(20, 3),
        _ => DataType::Decimal128(20, 0),
    }
}

/// A value taken apart.
enum Moment {
    /// Days since 1970, microseconds of the day; without the latter for dates.
    Day(i64, Option<i64>),
    Time(i64),
    Interval(IntervalMonthDayNano),
}

impl Moment {
    fn at(column: &ArrayRef, row: usize) -> Self {
        match column.data_type() {
            DataType::Date32 => Moment::Day(i64::from(column.as_primitive::<Date32Type>().value(row)), None),
            DataType::Timestamp(_, _) => {
                let us = column.as_primitive::<TimestampMicrosecondType>().value(row);
                Moment::Day(us.div_euclid(DAY_US), Some(us.rem_euclid(DAY_US)))
            }
            DataType::Time64(_) => Moment::Time(column.as_primitive::<Time64MicrosecondType>().value(row)),
            _ => Moment::Interval(column.as_primitive::<IntervalMonthDayNanoType>().value(row)),
        }
    }

    /// The value of a field, in microseconds where it has fractions (`epoch`, `second`, …: scaled
    /// by 10^6), and whether it is scaled.
    fn field(&self, field: &str) -> Option<(i128, bool)> {
        let whole = |v: i64| Some((i128::from(v), false));
        let time_of_day = match self {
            Moment::Day(_, time) => *time,
            Moment::Time(us) => Some(*us),
            Moment::Interval(interval) => Some(interval.nanoseconds / 1_000),
        };
        match (field, time_of_day) {
            ("hour" | "hours", Some(us)) => return whole(us / 3_600_000_000),
            ("minute" | "minutes", Some(us)) => return whole(us / 60_000_000 % 60),
            ("second" | "seconds", Some(us)) => return Some((i128::from(us % 60_000_000), true)),
            ("millisecond" | "milliseconds", Some(us)) => {
                return Some((i128::from(us % 60_000_000) * 1_000, true));
            }
            ("microsecond" | "microseconds", Some(us)) => return whole(us % 60_000_000),
            _ => {}
        }
        match self {
            Moment::Day(days, time) => day_field(*days, time.unwrap_or(0), field),
            Moment::Time(us) => (field == "epoch").then(|| (i128::from(*us), true)),
            Moment::Interval(interval) => interval_field(*interval, field),
        }
    }
}

fn day_field(days: i64, time_us: i64, field: &str) -> Option<(i128, bool)> {
    let (year, month, day) = calendar::civil(days);
    let value = match field {
        "year" | "years" => {
            if year > 0 {
                year
            } else {
                year - 1
            }
        }
        "month" | "months" => i64::from(month),
        "day" | "days" => i64::from(day),
        "quarter" => i64::from((month - 1) / 3 + 1),
        "week" | "weeks" => calendar::iso_week(days).1,
        "isoyear" => calendar::iso_week(days).0,
        "dow" => calendar::iso_weekday(days) % 7,
        "isodow" => calendar::iso_weekday(days),
        "doy" => calendar::day_of_year(days),
        "decade" | "decades" => year.div_euclid(10),
        "century" | "centuries" => {
            if year > 0 {
                (year + 99) / 100
            } else {
                -((99 - (year - 1)) / 100)
            }
        }
        "millennium" | "millenniums" => {
            if year > 0 {
                (year + 999) / 1000
            } else {
                -((999 - (year - 1)) / 1000)
            }
        }
        "julian" => days + 2_440_588,
        "timezone" | "timezone_hour" | "timezone_minute" => 0,
        "epoch" => return Some((i128::from(days) * i128::from(DAY_US) + i128::from(time_us), true)),
        _ => return None,
    };
    Some((i128::from(value), false))
}

fn interval_field(interval: IntervalMonthDayNano, field: &str) -> Option<(i128, bool)> {
    let months = i128::from(interval.months);
    let value = match field {
        "year" | "years" => months / 12,
        "month" | "months" => months % 12,
        "day" | "days" => i128::from(interval.days),
        "quarter" => months % 12 / 3 + 1,
        "decade" | "decades" => months / 120,
        "century" | "centuries" => months / 1200,
        "millennium" | "millenniums" => months / 12_000,
        "epoch" => {
            // A year has 365.25 days here, a month 30.
            let us = (months / 12) * 31_557_600_000_000
                + (months % 12) * 30 * i128::from(DAY_US)
                + i128::from(interval.days) * i128::from(DAY_US)
                + i128::from(interval.nanoseconds / 1_000);
            return Some((us, true));
        }
        _ => return None,
    };
    Some((value, false))
}

/// The fields of all rows, with `None` for NULL.
fn fields(args: &[ArrayRef]) -> Result<Vec<Option<(i128, bool)>>> {
    let names = args[0].as_string::<i32>();
    let mut known: (Option<usize>, String) = (None, String::new());
    (0..args[1].len())
        .map(|row| {
            if names.is_null(row) || args[1].is_null(row) {
                return Ok(None);
            }
            let same = known.0.is_some_and(|k| names.value(k) == names.value(row));
            if !same {
                known = (Some(row), names.value(row).to_lowercase());
            }
            if let Some(positive) = infinite_at(&args[1], row) {
                return Ok(infinite_field(&known.1, positive));
            }
            match Moment::at(&args[1], row).field(&known.1) {
                Some(value) => Ok(Some(value)),
                None => Err(unit_refused(&known.1, args[1].data_type())),
            }
        })
        .collect()
}

/// Whether an infinite date or timestamp is `infinity` rather than `-infinity`.
fn infinite_at(column: &ArrayRef, row: usize) -> Option<bool> {
    match column.data_type() {
        DataType::Date32 => {
            let days = column.as_primitive::<Date32Type>().value(row);
            (!calendar::is_finite_date(days)).then_some(days > 0)
        }
        DataType::Timestamp(_, _) => {
            let us = column.as_primitive::<TimestampMicrosecondType>().value(row);
            (!calendar::is_finite(us)).then_some(us > 0)
        }
        _ => None,
    }
}

/// A field of an infinite time: infinite itself if it grows for ever, NULL if it comes round.
fn infinite_field(field: &str, positive: bool) -> Option<(i128, bool)> {
    let grows = ["epoch", "julian", "isoyear", "year", "decade", "centur", "millennium"];
    let infinite = if positive { INFINITE } else { -INFINITE };
    grows.iter().any(|g| field.starts_with(g)).then_some((infinite, false))
}

fn unit_refused(unit: &str, data_type: &DataType) -> datafusion_common::DataFusionError {
    let message = format!("unit \"{unit}\" not recognized for type {}", type_name(data_type));
    failure(SqlState::INVALID_PARAMETER_VALUE, message)
}

fn extract(args: &[ArrayRef], output: &DataType) -> Result<ArrayRef> {
    let scale = if let DataType::Decimal128(_, scale) = output { *scale } else { 0 };
    let scaled = |(value, micro): (i128, bool)| {
        let from = if micro { 6 } else { 0 };
        match value.abs() {
            INFINITE => Err(failure(SqlState::FEATURE_NOT_SUPPORTED, "cannot convert infinity to numeric")),
            _ => Ok(super::numeric::rescale(value, from, scale).unwrap_or(0)),
        }
    };
    let values = fields(args)?.into_iter().map(|v| v.map(scaled).transpose());
    let values = values.collect::<Result<Decimal128Array>>()?;
    Ok(Arc::new(values.with_data_type(output.clone())))
}

fn date_part(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let float = |(value, micro): (i128, bool)| match value {
        INFINITE => f64::INFINITY,
        value if value == -INFINITE => f64::NEG_INFINITY,
        value if micro => value as f64 / 1e6,
        value => value as f64,
    };
    let values: Float64Array = fields(args)?.into_iter().map(|v| v.map(float)).collect();
    Ok(Arc::new(values))
}

fn date_trunc(args: &[ArrayRef], output: &DataType) -> Result<ArrayRef> {
    let units = args[0].as_string::<i32>();
    let unit =
        |row: usize| (!units.is_null(row) && !args[1].is_null(row)).then(|| units.value(row).to_lowercase());
    let refused = |unit: &str| unit_refused(unit, output);
    if *output == INTERVAL {
        let values = args[1].as_primitive::<IntervalMonthDayNanoType>();
        let truncated: PrimitiveArray<IntervalMonthDayNanoType> = (0..values.len())
            .map(|row| match unit(row) {
                Some(unit) => {
                    truncate_interval(values.value(row), &unit).map(Some).ok_or_else(|| refused(&unit))
                }
                None => Ok(None),
            })
            .collect::<Result<Vec<_>>>()?
            .into_iter()
            .collect();
        return Ok(Arc::new(truncated));
    }
    let values = args[1].as_primitive::<TimestampMicrosecondType>();
    let truncated: PrimitiveArray<TimestampMicrosecondType> = (0..values.len())
        .map(|row| match unit(row) {
            Some(unit) => truncate(values.value(row), &unit).map(Some).ok_or_else(|| refused(&unit)),
            None => Ok(None),
        })
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .collect();
    Ok(Arc::new(truncated.with_data_type(output.clone())))
}

/// The start of the unit that a timestamp is in.
pub fn truncate(us: i64, unit: &str) -> Option<i64> {
    if !calendar::is_finite(us) {
        return Some(us);
    }
    let floor = |size: i64| Some(us - us.rem_euclid(size));
    let days = us.div_euclid(DAY_US);
    let (year, month, _) = calendar::civil(days);
    let start_of = |year: i64, month: u32| Some(calendar::days_of(year, month, 1) * DAY_US);
    match unit {
        "microseconds" | "microsecond" => Some(us),
        "milliseconds" | "millisecond" => floor(1_000),
        "second" | "seconds" => floor(1_000_000),
        "minute" | "minutes" => floor(60_000_000),
        "hour" | "hours" => floor(3_600_000_000),
        "day" | "days" => floor(DAY_US),
        "week" | "weeks" => Some((days - calendar::iso_weekday(days) + 1) * DAY_US),
        "month" | "months" => start_of(year, month),
        "quarter" => start_of(year, (month - 1) / 3 * 3 + 1),
        "year" | "years" => start_of(year, 1),
        "decade" | "decades" => start_of(year.div_euclid(10) * 10, 1),
        "century" | "centuries" => start_of((year - 1).div_euclid(100) * 100 + 1, 1),
        "millennium" | "millenniums" => start_of((year - 1).div_euclid(1000) * 1000 + 1, 1),
        _ => None,
    }
}

fn truncate_interval(v: IntervalMonthDayNano, unit: &str) -> Option<IntervalMonthDayNano> {
    let time = |ns: i64| Some(IntervalMonthDayNano::new(v.months, v.days, v.nanoseconds / ns * ns));
    let months = |m: i32| Some(IntervalMonthDayNano::new(v.months / m * m, 0, 0));
    match unit {
        "microseconds" | "microsecond" => time(1_000),
        "milliseconds" | "millisecond" => time(1_000_000),
        "second" | "seconds" => time(1_000_000_000),
        "minute" | "minutes" => time(60_000_000_000),
        "hour" | "hours" => time(3_600_000_000_000),
        "day" | "days" => Some(IntervalMonthDayNano::new(v.months, v.days, 0)),
        "month" | "months" => months(1),
        "quarter" => months(3),
        "year" | "years" => months(12),
        "decade" | "decades" => months(120),
        "century" | "centuries" => months(1_200),
        "millennium" | "millenniums" => months(12_000),
        _ => None,
    }
}

fn date_bin(args: &[ArrayRef], output: &DataType) -> Result<ArrayRef> {
    let strides = args[0].as_primitive::<IntervalMonthDayNanoType>();
    let values = args[1].as_primitive::<TimestampMicrosecondType>();
    let origins = args.get(2).map(|a| a.as_primitive::<TimestampMicrosecondType>());
    let binned: PrimitiveArray<TimestampMicrosecondType> = (0..values.len())
        .map(|row| {
            if strides.is_null(row) || values.is_null(row) || origins.is_some_and(|o| o.is_null(row)) {
                return Ok(None);
            }
            let stride = strides.value(row);
            if stride.months != 0 {
                let message = "timestamps cannot be binned into intervals containing months or years";
                return Err(failure(SqlState::FEATURE_NOT_SUPPORTED, message));
            }
            let size = i64::from(stride.days) * DAY_US + stride.nanoseconds / 1_000;
            if size <= 0 {
                return Err(failure(SqlState("22008"), "stride must be greater than zero"));
            }
            let origin = origins.map_or(0, |o| o.value(row));
            if !calendar::is_finite(values.value(row)) {
                return Ok(Some(values.value(row)));
            }
            Ok(Some(values.value(row) - (values.value(row) - origin).rem_euclid(size)))
        })
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .collect();
    Ok(Arc::new(binned.with_data_type(output.clone())))
}
