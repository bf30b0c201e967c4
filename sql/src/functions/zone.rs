//! `AT TIME ZONE`: a timestamptz as its wall clock in a zone, a timestamp as the moment when a zone's
//! clock shows it. The parser's form becomes `timezone(zone, value)`.

use super::calendar::is_finite;
use super::error::failure;
use super::scalar::{Function, Kernel};
use arrow::array::timezone::Tz;
use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};
use chrono::{DateTime, Offset, TimeZone};
use datafusion_common::{DataFusionError, Result};
use std::sync::Arc;
use weir_catalog::SqlState;

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    vec![Function::new("timezone", coerce, |types, _| output(&types[1]), Kernel::Columns(at_time_zone))]
}

fn coerce(types: &[DataType]) -> Option<Vec<DataType>> {
    let [DataType::Utf8 | DataType::Null, value] = types else {
        return None;
    };
    let value = match value {
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
        DataType::Date32 | DataType::Null => super::datetime::timestamptz(),
        _ => return None,
    };
    Some(vec![DataType::Utf8, value])
}

fn output(value: &DataType) -> DataType {
    match value {
        DataType::Timestamp(_, Some(_)) => DataType::Timestamp(TimeUnit::Microsecond, None),
        _ => super::datetime::timestamptz(),
    }
}

fn at_time_zone(args: &[ArrayRef], output: &DataType) -> Result<ArrayRef> {
    let names = args[0].as_string::<i32>();
    let values = args[1].as_primitive::<TimestampMicrosecondType>();
    let zoned = matches!(values.data_type(), DataType::Timestamp(_, Some(_)));
    let mut last: Option<(usize, Tz)> = None;
    let mut out = Vec::with_capacity(values.len());
    for row in 0..values.len() {
        if names.is_null(row) || values.is_null(row) {
            out.push(None);
            continue;
        }
        let zone = match &last {
            Some((known, zone)) if names.value(*known) == names.value(row) => *zone,
            _ => zone_named(names.value(row))?,
        };
        last = Some((row, zone));
        let value = values.value(row);
        if !is_finite(value) {
            out.push(Some(value));
            continue;
        }
        out.push(Some(if zoned { to_wall_clock(value, zone) } else { from_wall_clock(value, zone) }?));
    }
    let out: PrimitiveArray<TimestampMicrosecondType> = out.into_iter().collect();
    Ok(Arc::new(out.with_data_type(output.clone())))
}

fn zone_named(name: &str) -> Result<Tz> {
    let known = match name.to_ascii_lowercase().as_str() {
        "utc" | "z" | "gmt" => "+00:00".parse(),
        _ => name.parse::<Tz>(),
    };
    known.map_err(|_| {
        failure(SqlState::INVALID_PARAMETER_VALUE, format!("time zone \"{name}\" not recognized"))
    })
}

fn out_of_range() -> DataFusionError {
    failure(SqlState("22008"), "timestamp out of range")
}

fn to_wall_clock(us: i64, zone: Tz) -> Result<i64> {
    let at = DateTime::from_timestamp_micros(us).ok_or_else(out_of_range)?.naive_utc();
    Ok(us + i64::from(zone.offset_from_utc_datetime(&at).fix().local_minus_utc()) * 1_000_000)
}

/// Where a clock is set forward there is no such moment, and the offset before counts; where it is
/// set back there are two, and the first counts.
fn from_wall_clock(us: i64, zone: Tz) -> Result<i64> {
    let at = DateTime::from_timestamp_micros(us).ok_or_else(out_of_range)?.naive_utc();
    let offset = match zone.offset_from_local_datetime(&at).earliest() {
        Some(offset) => offset.fix().local_minus_utc(),
        None => {
            let before = at - chrono::Duration::hours(3);
            zone.offset_from_utc_datetime(&before).fix().local_minus_utc()
        }
    };
    Ok(us - i64::from(offset) * 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_and_moments() {
        let hour = 3_600_000_000i64;
        let berlin = zone_named("Europe/Berlin").expect("a zone");
        let winter = super::super::parse::timestamp("2024-01-15 12:00", false).expect("a time");
        assert_eq!(to_wall_clock(winter, berlin).ok(), Some(winter + hour));
        assert_eq!(from_wall_clock(winter, berlin).ok(), Some(winter - hour));
        let summer = super::super::parse::timestamp("2024-07-15 12:00", false).expect("a time");
        assert_eq!(from_wall_clock(summer, berlin).ok(), Some(summer - 2 * hour));
        let skipped = super::super::parse::timestamp("2024-03-31 02:30", false).expect("a time");
        assert_eq!(from_wall_clock(skipped, berlin).ok(), Some(skipped - hour));
        assert!(zone_named("Middle/Earth").is_err());
    }
}
