//! Intervals between times, and intervals in other parts: `age`, `justify_days`, `justify_hours`,
//! `justify_interval`.

use super::calendar::{self, DAY_US};
use super::interval::DAY_NS;
use super::scalar::{Function, Kernel, exactly};
use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::datatypes::{
    DataType, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion_common::Result;
use std::sync::Arc;

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    vec![
        Function::new("age", coerce_age, |_, _| INTERVAL, Kernel::Columns(age)),
        Function::new("justify_hours", one_interval, |_, _| INTERVAL, Kernel::Columns(justify_hours)),
        Function::new("justify_days", one_interval, |_, _| INTERVAL, Kernel::Columns(justify_days)),
        Function::new("justify_interval", one_interval, |_, _| INTERVAL, Kernel::Columns(justify_interval)),
    ]
}

fn one_interval(types: &[DataType]) -> Option<Vec<DataType>> {
    exactly(types, &[INTERVAL])
}

fn coerce_age(types: &[DataType]) -> Option<Vec<DataType>> {
    match types {
        [DataType::Timestamp(_, z), DataType::Timestamp(_, _) | DataType::Date32 | DataType::Null] => {
            Some(vec![DataType::Timestamp(TimeUnit::Microsecond, z.clone()); 2])
        }
        [DataType::Date32 | DataType::Null, DataType::Timestamp(_, z)] => {
            Some(vec![DataType::Timestamp(TimeUnit::Microsecond, z.clone()); 2])
        }
        [DataType::Date32, DataType::Date32] => Some(vec![TIMESTAMP; 2]),
        _ => None,
    }
}

/// `age(a, b)`: years, months, days and time from b to a.
fn age(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let (a, b) = (
        args[0].as_primitive::<TimestampMicrosecondType>(),
        args[1].as_primitive::<TimestampMicrosecondType>(),
    );
    let ages: PrimitiveArray<IntervalMonthDayNanoType> = (0..a.len())
        .map(|row| (a.is_valid(row) && b.is_valid(row)).then(|| age_between(a.value(row), b.value(row))))
        .collect();
    Ok(Arc::new(ages))
}

fn age_between(a: i64, b: i64) -> IntervalMonthDayNano {
    if a < b {
        let age = age_between(b, a);
        return IntervalMonthDayNano::new(-age.months, -age.days, -age.nanoseconds);
    }
    let (a_days, b_days) = (a.div_euclid(DAY_US), b.div_euclid(DAY_US));
    let ((ay, am, ad), (by, bm, bd)) = (calendar::civil(a_days), calendar::civil(b_days));
    let mut months = (ay - by) * 12 + i64::from(am) - i64::from(bm);
    let mut days = i64::from(ad) - i64::from(bd);
    let mut us = a.rem_euclid(DAY_US) - b.rem_euclid(DAY_US);
    if us < 0 {
        us += DAY_US;
        days -= 1;
    }
    if days < 0 {
        // The days of the month that the earlier one is in.
        days += i64::from(calendar::days_in_month(by, bm));
        months -= 1;
    }
    IntervalMonthDayNano::new(months as i32, days as i32, us * 1_000)
}

fn justify_hours(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let day = super::interval::DAY_NS;
    let values = args[0].as_primitive::<IntervalMonthDayNanoType>();
    Ok(Arc::new(values.unary::<_, IntervalMonthDayNanoType>(|v| {
        IntervalMonthDayNano::new(v.months, v.days + (v.nanoseconds / day) as i32, v.nanoseconds % day)
    })))
}

fn justify_days(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let values = args[0].as_primitive::<IntervalMonthDayNanoType>();
    Ok(Arc::new(values.unary::<_, IntervalMonthDayNanoType>(|v| {
        IntervalMonthDayNano::new(v.months + v.days / 30, v.days % 30, v.nanoseconds)
    })))
}

/// Days to months and time to days, all with one sign.
fn justify_interval(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let values = args[0].as_primitive::<IntervalMonthDayNanoType>();
    Ok(Arc::new(values.unary::<_, IntervalMonthDayNanoType>(justified)))
}

fn justified(v: IntervalMonthDayNano) -> IntervalMonthDayNano {
    let mut days = i64::from(v.days) + v.nanoseconds / DAY_NS;
    let mut ns = v.nanoseconds % DAY_NS;
    let mut months = i64::from(v.months) + days / 30;
    days %= 30;
    if months > 0 && (days < 0 || (days == 0 && ns < 0)) {
        (months, days) = (months - 1, days + 30);
    } else if months < 0 && (days > 0 || (days == 0 && ns > 0)) {
        (months, days) = (months + 1, days - 30);
    }
    if days > 0 && ns < 0 {
        (days, ns) = (days - 1, ns + DAY_NS);
    } else if days < 0 && ns > 0 {
        (days, ns) = (days + 1, ns - DAY_NS);
    }
    IntervalMonthDayNano::new(months as i32, days as i32, ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn justified_parts_have_one_sign() {
        let ns = |hours: i64| hours * 3_600_000_000_000;
        let of = |m, d, h| justified(IntervalMonthDayNano::new(m, d, ns(h)));
        assert_eq!(of(1, 0, -1), IntervalMonthDayNano::new(0, 29, ns(23)));
        assert_eq!(of(0, 400, 30), IntervalMonthDayNano::new(13, 11, ns(6)));
        assert_eq!(of(-1, 0, 1), IntervalMonthDayNano::new(0, -29, ns(-23)));
    }
}
