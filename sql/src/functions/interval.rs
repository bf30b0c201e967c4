//! Arithmetic of intervals, as PostgreSQL does it: months, days and time are apart; fractions of
//! months spill into days of 30 a month, fractions of days into time.

use super::numeric::PRECISION;
use super::scalar::{Function, Kernel, exactly};
use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, Decimal128Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::ScalarUDF;
use std::sync::{Arc, LazyLock};

/// Nanoseconds a day.
pub const DAY_NS: i64 = 86_400_000_000_000;

/// `a + sign * b`, part by part; `None` if a part overflows.
pub fn add(a: IntervalMonthDayNano, b: IntervalMonthDayNano, sign: i8) -> Option<IntervalMonthDayNano> {
    Some(IntervalMonthDayNano::new(
        a.months.checked_add(b.months.checked_mul(i32::from(sign))?)?,
        a.days.checked_add(b.days.checked_mul(i32::from(sign))?)?,
        a.nanoseconds.checked_add(b.nanoseconds.checked_mul(i64::from(sign))?)?,
    ))
}

/// `interval * factor`. `None` if a part overflows.
pub fn multiply(interval: IntervalMonthDayNano, factor: f64) -> Option<IntervalMonthDayNano> {
    scale(interval, |part| part * factor)
}

/// `interval / divisor`; the divisor is not zero.
pub fn divide(interval: IntervalMonthDayNano, divisor: f64) -> IntervalMonthDayNano {
    scale(interval, |part| part / divisor).unwrap_or(IntervalMonthDayNano::new(0, 0, 0))
}

fn scale(interval: IntervalMonthDayNano, by: impl Fn(f64) -> f64) -> Option<IntervalMonthDayNano> {
    let months = by(f64::from(interval.months));
    let days = by(f64::from(interval.days));
    let whole_months = months.trunc();
    // Fractions of a month are days of 30 a month, to the microsecond.
    let month_days = round_us((months - whole_months) * 30.0);
    let whole_days = days.trunc();
    // What is left of days is seconds, to the microsecond.
    let seconds = round_us((month_days.fract() + (days - whole_days)) * 86_400.0);
    let carried = (seconds / 86_400.0).trunc();
    let total_days = whole_days + month_days.trunc() + carried;
    let rest_us = (seconds - carried * 86_400.0) * 1_000_000.0;
    let time_us = (by(interval.nanoseconds as f64 / 1_000.0) + rest_us).round_ties_even();
    if !in_range(whole_months, f64::from(i32::MAX))
        || !in_range(total_days, f64::from(i32::MAX))
        || !in_range(time_us, i64::MAX as f64 / 1_000.0)
    {
        return None;
    }
    Some(IntervalMonthDayNano::new(whole_months as i32, total_days as i32, time_us as i64 * 1_000))
}

fn in_range(value: f64, limit: f64) -> bool {
    value.is_finite() && value.abs() <= limit
}

/// PostgreSQL's TSROUND: to six digits, so that 1/3 * 30 is 10.
fn round_us(value: f64) -> f64 {
    (value * 1_000_000.0).round_ties_even() / 1_000_000.0
}

/// What PostgreSQL compares of an interval: a month counts 30 days, a day 24 hours.
pub fn length_ns(v: IntervalMonthDayNano) -> i128 {
    (i128::from(v.months) * 30 + i128::from(v.days)) * i128::from(DAY_NS) + i128::from(v.nanoseconds)
}

/// The lengths of a column of intervals.
pub(super) fn lengths(intervals: &ArrayRef) -> ArrayRef {
    let values = intervals.as_primitive::<IntervalMonthDayNanoType>();
    let lengths = values.unary::<_, Decimal128Type>(length_ns);
    Arc::new(lengths.with_data_type(DataType::Decimal128(PRECISION, 0)))
}

/// `interval_length(i)`: the length in nanoseconds.
pub(super) static LENGTH: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    let coerce = |t: &[DataType]| exactly(t, &[DataType::Interval(IntervalUnit::MonthDayNano)]);
    let output = |_: &[DataType], _: &[Option<&ScalarValue>]| DataType::Decimal128(PRECISION, 0);
    let kernel = |args: &[ArrayRef], output: &DataType| -> Result<ArrayRef> {
        debug_assert_eq!(*output, DataType::Decimal128(PRECISION, 0));
        Ok(lengths(&args[0]))
    };
    Function::new("interval_length", coerce, output, Kernel::Columns(kernel)).udf()
});

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(months: i32, days: i32, us: i64) -> IntervalMonthDayNano {
        IntervalMonthDayNano::new(months, days, us * 1_000)
    }

    #[test]
    fn fractions_spill_downwards() {
        assert_eq!(multiply(interval(1, 0, 0), 0.5), Some(interval(0, 15, 0)));
        assert_eq!(multiply(interval(0, 1, 0), 1.5), Some(interval(0, 1, 43_200_000_000)));
        assert_eq!(divide(interval(1, 0, 0), 3.0), interval(0, 10, 0));
        assert_eq!(divide(interval(0, 0, 3_600_000_000), 4.0), interval(0, 0, 900_000_000));
        assert_eq!(divide(interval(0, 1, 0), 3.0), interval(0, 0, 28_800_000_000));
        assert_eq!(multiply(interval(i32::MAX, 0, 0), 2.0), None);
    }

    #[test]
    fn parts_add_apart() {
        assert_eq!(add(interval(1, 2, 3), interval(1, 1, 1), -1), Some(interval(0, 1, 2)));
        assert_eq!(add(interval(i32::MAX, 0, 0), interval(1, 0, 0), 1), None);
    }
}
