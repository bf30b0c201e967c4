//! `to_char` of an interval: the pattern's fields of its years, months, days and time, each as many as
//! there are. What an interval has not (names of months, eras, weekdays) is refused.

use super::error::failure;
use super::time_pattern::{Field, Piece, pieces};
use super::to_char::{cased, write_ordinal};
use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::datatypes::{IntervalMonthDayNano, IntervalMonthDayNanoType};
use datafusion_common::Result;
use std::fmt::Write;
use std::sync::Arc;
use weir_catalog::SqlState;

/// Intervals by patterns.
pub(super) fn to_char(values: &ArrayRef, patterns: &ArrayRef) -> Result<ArrayRef> {
    let (values, patterns) = (values.as_primitive::<IntervalMonthDayNanoType>(), patterns.as_string::<i32>());
    let row = |row: usize| match values.is_null(row) || patterns.is_null(row) {
        true => Ok(None),
        false => shown(values.value(row), &pieces(patterns.value(row))).map(Some),
    };
    Ok(Arc::new((0..values.len()).map(row).collect::<Result<StringArray>>()?))
}

fn shown(value: IntervalMonthDayNano, pieces: &[Piece]) -> Result<String> {
    let mut out = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(verbatim) => out.push_str(verbatim),
            Piece::Field { field, fill, ordinal } => {
                write_field(*field, *fill, value, &mut out)?;
                if let Some(case) = ordinal {
                    write_ordinal(*case, &mut out);
                }
            }
        }
    }
    Ok(out)
}

fn write_field(field: Field, fill: bool, value: IntervalMonthDayNano, out: &mut String) -> Result<()> {
    let (years, months, days) =
        (i64::from(value.months / 12), i64::from(value.months % 12), i64::from(value.days));
    let us = value.nanoseconds / 1_000;
    let (hours, minutes, seconds) = (us / 3_600_000_000, us / 60_000_000 % 60, us / 1_000_000 % 60);
    let day_of_year = (years * 12 + months) * 30 + days;
    let (value, width) = match field {
        Field::Year(digits) if digits < 4 => (years % 10i64.pow(digits as u32), digits),
        Field::Year(digits) => (years, digits),
        Field::Month => (months, 2),
        Field::Day => (days, 2),
        Field::DayOfYear => (day_of_year, 3),
        Field::Hour24 => (hours, 2),
        Field::Hour12 => (if hours % 12 == 0 { 12 } else { hours % 12 }, 2),
        Field::Minute => (minutes, 2),
        Field::Second => (seconds, 2),
        Field::Millisecond => (us / 1_000 % 1_000, 3),
        Field::Microsecond => (us % 1_000_000, 6),
        Field::SecondsOfDay => (us / 1_000_000, 0),
        Field::Quarter if months == 0 => return Ok(()),
        Field::Quarter => ((months - 1) / 3 + 1, 1),
        Field::Week => ((day_of_year - 1) / 7 + 1, 2),
        Field::WeekOfMonth => ((days - 1) / 7 + 1, 1),
        Field::Century => (years / 100, 2),
        Field::Meridiem(case, dots) => {
            let text = match (hours % 24 < 12, dots) {
                (true, false) => "AM",
                (false, false) => "PM",
                (true, true) => "A.M.",
                (false, true) => "P.M.",
            };
            out.push_str(&cased(text, case));
            return Ok(());
        }
        Field::IsoYear
        | Field::IsoWeek
        | Field::DayOfWeek
        | Field::IsoDayOfWeek
        | Field::Julian
        | Field::MonthName(..)
        | Field::DayName(..)
        | Field::Zone => {
            let error = failure(SqlState("22007"), "invalid format specification for an interval value");
            return Err(error);
        }
    };
    // A sign is a place more.
    let width = if !fill { 0 } else { width + usize::from(value < 0) };
    // Writing to a String can't fail.
    let _ = write!(out, "{value:0width$}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_not_wrapped() {
        let text = |months, days, seconds: i64, pattern: &str| {
            let value = IntervalMonthDayNano::new(months, days, seconds * 1_000_000_000);
            shown(value, &pieces(pattern)).expect("a pattern")
        };
        assert_eq!(text(0, 0, 54_132, "HH24:MI:SS"), "15:02:12");
        assert_eq!(text(0, 0, 360_000, "HH24:MI"), "100:00");
        assert_eq!(text(14, 3, -3_600, "YYYY-MM-DD HH24"), "0001-02-03 -01");
        assert_eq!(text(0, 0, 46_800, "FMHH12 am"), "1 pm");
    }
}
