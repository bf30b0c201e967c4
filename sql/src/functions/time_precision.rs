//! Times held to what their type says of precision: `timestamp(0)`, `time(3)`,
//! `interval day to minute`. Rounded is half away from zero, which for a timestamp is the start of
//! 2000; what an interval's fields leave out is cut off.

use super::calendar;
use arrow::array::{ArrayRef, AsArray, PrimitiveArray};
use arrow::datatypes::{
    DataType, IntervalMonthDayNano, IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
};
use datafusion_common::Result;
use std::sync::Arc;

/// 2000-01-01 in microseconds since 1970.
const ZERO_US: i64 = 946_684_800_000_000;
const SECOND_NS: i64 = 1_000_000_000;

/// A column of times as `held`, PostgreSQL's spelling of the type, has them.
pub(super) fn held(column: &ArrayRef, held: &str) -> Result<ArrayRef> {
    let digits =
        held.split_once('(').and_then(|(_, rest)| rest.split_once(')')?.0.trim().parse::<u32>().ok());
    let unit = 10i64.pow(6 - digits.unwrap_or(6).min(6));
    Ok(match column.data_type() {
        DataType::Timestamp(..) => {
            let times = column.as_primitive::<TimestampMicrosecondType>();
            let rounded = times.unary::<_, TimestampMicrosecondType>(|us| match calendar::is_finite(us) {
                true => rounded(us.saturating_sub(ZERO_US), unit).saturating_add(ZERO_US),
                false => us,
            });
            Arc::new(rounded.with_data_type(column.data_type().clone()))
        }
        DataType::Time64(_) => {
            let times = column.as_primitive::<Time64MicrosecondType>();
            Arc::new(times.unary::<_, Time64MicrosecondType>(|us| rounded(us, unit)))
        }
        DataType::Interval(_) => {
            let fields =
                held.split('(').next().and_then(|held| held.strip_prefix("interval ")).map(str::trim);
            let values = column.as_primitive::<IntervalMonthDayNanoType>();
            let values: PrimitiveArray<IntervalMonthDayNanoType> = values.unary(|value| {
                let cut = cut(value, fields.unwrap_or_default());
                let us = rounded(cut.nanoseconds / 1_000, unit);
                IntervalMonthDayNano { nanoseconds: us.saturating_mul(1_000), ..cut }
            });
            Arc::new(values)
        }
        _ => Arc::clone(column),
    })
}

/// The nearest multiple of `unit`; of two the one that is farther from zero.
fn rounded(value: i64, unit: i64) -> i64 {
    if unit == 1 {
        return value;
    }
    let half = unit / 2;
    match value >= 0 {
        true => value.saturating_add(half) / unit * unit,
        false => value.saturating_sub(half) / unit * unit,
    }
}

/// An interval without what is smaller than the last of its fields.
fn cut(v: IntervalMonthDayNano, fields: &str) -> IntervalMonthDayNano {
    let whole = |unit_ns: i64| v.nanoseconds / unit_ns * unit_ns;
    match fields.rsplit(' ').next().unwrap_or_default() {
        "year" => IntervalMonthDayNano::new(v.months / 12 * 12, 0, 0),
        "month" => IntervalMonthDayNano::new(v.months, 0, 0),
        "day" => IntervalMonthDayNano::new(v.months, v.days, 0),
        "hour" => IntervalMonthDayNano::new(v.months, v.days, whole(3_600 * SECOND_NS)),
        "minute" => IntervalMonthDayNano::new(v.months, v.days, whole(60 * SECOND_NS)),
        _ => v,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_go_away_from_zero() {
        assert_eq!(rounded(1_500_000, 1_000_000), 2_000_000);
        assert_eq!(rounded(-1_500_000, 1_000_000), -2_000_000);
        assert_eq!(rounded(-1_499_999, 1_000_000), -1_000_000);
        assert_eq!(rounded(1_234_567, 1), 1_234_567);
    }

    #[test]
    fn fields_cut_what_is_smaller() {
        let value = IntervalMonthDayNano::new(27, 3, 7_384 * SECOND_NS);
        let shown = |fields: &str| {
            let v = cut(value, fields);
            (v.months, v.days, v.nanoseconds / SECOND_NS)
        };
        assert_eq!(shown("year"), (24, 0, 0));
        assert_eq!(shown("year to month"), (27, 0, 0));
        assert_eq!(shown("day to hour"), (27, 3, 7_200));
        assert_eq!(shown("minute"), (27, 3, 7_380));
        assert_eq!(shown("day to second"), (27, 3, 7_384));
        assert_eq!(shown(""), (27, 3, 7_384));
    }
}
