//! `to_char` of times (numbers and intervals have files of their own), `to_timestamp` and `to_date` of text: PostgreSQL's patterns.
//!
//! A pattern is taken apart once and then applied to every row.

use super::calendar::{self, DAY_US};
use super::datetime::timestamptz;
use super::error::failure;
use super::interval_text;
use super::number_text;
use super::numeric::PRECISION;
use super::scalar::{Function, Kernel, exactly};
use super::time_pattern::{Case, DAYS, Field, MONTHS, Piece, grain_us, pieces};
use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray, StringBuilder};
use arrow::datatypes::{DataType, Date32Type, IntervalUnit, TimeUnit, TimestampMicrosecondType};
use datafusion_common::Result;
use std::fmt::Write;
use std::sync::Arc;
use weir_catalog::SqlState;

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    let text = |t: &[DataType]| exactly(t, &[DataType::Utf8, DataType::Utf8]);
    vec![
        Function::new("to_char", coerce, |_, _| DataType::Utf8, Kernel::Columns(to_char)),
        Function::new("to_date", text, |_, _| DataType::Date32, Kernel::Columns(to_date)),
        Function::new(
            "to_timestamp",
            coerce_to_timestamp,
            |_, _| timestamptz(),
            Kernel::Columns(to_timestamp),
        ),
    ]
}

fn coerce(types: &[DataType]) -> Option<Vec<DataType>> {
    let [time, DataType::Utf8 | DataType::Null] = types else {
        return None;
    };
    let time = match time {
        t if t.is_integer() => DataType::Decimal128(PRECISION, 0),
        DataType::Decimal128(_, _) | DataType::Float64 => time.clone(),
        DataType::Float32 => DataType::Float64,
        DataType::Interval(_) => DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
        DataType::Date32 | DataType::Null => DataType::Timestamp(TimeUnit::Microsecond, None),
        _ => return None,
    };
    Some(vec![time, DataType::Utf8])
}

fn coerce_to_timestamp(types: &[DataType]) -> Option<Vec<DataType>> {
    match types {
        [seconds] => exactly(std::slice::from_ref(seconds), &[DataType::Float64]),
        _ => exactly(types, &[DataType::Utf8, DataType::Utf8]),
    }
}

/// A timestamp taken apart.
struct Parts {
    days: i64,
    us: i64,
    year: i64,
    month: u32,
    day: u32,
}

impl Parts {
    fn of(ts_us: i64) -> Self {
        let (days, us) = (ts_us.div_euclid(DAY_US), ts_us.rem_euclid(DAY_US));
        let (year, month, day) = calendar::civil(days);
        Self { days, us, year, month, day }
    }
}

fn write_field(field: Field, fill: bool, parts: &Parts, out: &mut String) {
    let hour = parts.us / 3_600_000_000;
    let (value, width) = match field {
        Field::Year(digits) => {
            let year = if parts.year > 0 { parts.year } else { 1 - parts.year };
            (if digits < 4 { year % 10i64.pow(digits as u32) } else { year }, digits)
        }
        Field::IsoYear => (calendar::iso_week(parts.days).0, 4),
        Field::Month => (i64::from(parts.month), 2),
        Field::Day => (i64::from(parts.day), 2),
        Field::DayOfYear => (calendar::day_of_year(parts.days), 3),
        Field::DayOfWeek => (calendar::iso_weekday(parts.days) % 7 + 1, 1),
        Field::IsoDayOfWeek => (calendar::iso_weekday(parts.days), 1),
        Field::Hour24 => (hour, 2),
        Field::Hour12 => ((hour + 11) % 12 + 1, 2),
        Field::Minute => (parts.us / 60_000_000 % 60, 2),
        Field::Second => (parts.us / 1_000_000 % 60, 2),
        Field::Millisecond => (parts.us / 1_000 % 1_000, 3),
        Field::Microsecond => (parts.us % 1_000_000, 6),
        Field::SecondsOfDay => (parts.us / 1_000_000, 0),
        Field::Quarter => (i64::from((parts.month - 1) / 3 + 1), 1),
        Field::Week => ((calendar::day_of_year(parts.days) - 1) / 7 + 1, 2),
        Field::IsoWeek => (calendar::iso_week(parts.days).1, 2),
        Field::WeekOfMonth => (i64::from((parts.day - 1) / 7 + 1), 1),
        Field::Century => ((parts.year + 99).div_euclid(100), 2),
        Field::Julian => (parts.days + 2_440_588, 0),
        Field::MonthName(case, short) => {
            return write_name(MONTHS[parts.month as usize - 1], case, short, fill, out);
        }
        Field::DayName(case, short) => {
            let name = DAYS[calendar::iso_weekday(parts.days) as usize - 1];
            return write_name(name, case, short, fill, out);
        }
        Field::Meridiem(case, dots) => {
            let text = match (hour < 12, dots) {
                (true, false) => "AM",
                (false, false) => "PM",
                (true, true) => "A.M.",
                (false, true) => "P.M.",
            };
            out.push_str(&cased(text, case));
            return;
        }
        Field::Zone => return out.push_str("UTC"),
    };
    write_number(value, if fill { width } else { 0 }, out);
}

/// The hot part of `to_char`: digits without the formatting machinery.
fn write_number(value: i64, width: usize, out: &mut String) {
    match width {
        2 if (0..100).contains(&value) => {
            out.push(char::from(b'0' + (value / 10) as u8));
            out.push(char::from(b'0' + (value % 10) as u8));
        }
        // Writing to a String can't fail.
        _ => drop(write!(out, "{value:0width$}")),
    }
}

fn write_name(name: &str, case: Case, short: bool, fill: bool, out: &mut String) {
    let name = if short { &name[..3] } else { name };
    let start = out.len();
    out.push_str(&cased(name, case));
    // Full names are padded to the longest one.
    while fill && !short && out.len() - start < 9 {
        out.push(' ');
    }
}

pub(super) fn cased(text: &str, case: Case) -> String {
    match case {
        Case::Upper => text.to_uppercase(),
        Case::Lower => text.to_lowercase(),
        Case::Title => text.to_owned(),
    }
}

pub(super) fn write_ordinal(case: Case, out: &mut String) {
    let digits: Vec<u8> = out.bytes().rev().take(2).collect();
    let teen = digits.get(1) == Some(&b'1');
    let ending = match digits.first() {
        Some(b'1') if !teen => "st",
        Some(b'2') if !teen => "nd",
        Some(b'3') if !teen => "rd",
        _ => "th",
    };
    out.push_str(&cased(ending, case));
}

/// Remembers the pieces of the last pattern: mostly there is one.
struct Compiled<'a> {
    pattern: &'a str,
    pieces: Vec<Piece>,
    /// Times within so many microseconds of each other, counted from 1970, print alike.
    grain_us: i64,
}

impl<'a> Compiled<'a> {
    fn new() -> Self {
        Self { pattern: "", pieces: Vec::new(), grain_us: DAY_US }
    }

    fn of(&mut self, pattern: &'a str) -> &Self {
        if self.pattern != pattern {
            let pieces = pieces(pattern);
            let grain_us = pieces.iter().map(grain_us).min().unwrap_or(DAY_US);
            *self = Self { pattern, pieces, grain_us };
        }
        self
    }
}

fn to_char(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    if matches!(args[0].data_type(), DataType::Interval(_)) {
        return interval_text::to_char(&args[0], &args[1]);
    }
    if args[0].data_type().is_numeric() {
        return number_text::to_char(&args[0], &args[1]);
    }
    let times = args[0].as_primitive::<TimestampMicrosecondType>();
    let patterns = args[1].as_string::<i32>();
    let mut compiled = Compiled::new();
    let mut out = StringBuilder::with_capacity(times.len(), times.len() * 10);
    let mut text = String::new();
    // The text in hand: its pattern, and which grain of time it is of.
    let mut last: Option<(&str, i64)> = None;
    for row in 0..times.len() {
        if times.is_null(row) || patterns.is_null(row) || !calendar::is_finite(times.value(row)) {
            out.append_null();
            continue;
        }
        let pattern = patterns.value(row);
        let known = compiled.of(pattern);
        let grain = times.value(row).div_euclid(known.grain_us);
        if last != Some((pattern, grain)) {
            text.clear();
            write_pieces(&known.pieces, times.value(row), &mut text);
            last = Some((pattern, grain));
        }
        out.append_value(&text);
    }
    Ok(Arc::new(out.finish()))
}

fn write_pieces(pieces: &[Piece], ts_us: i64, out: &mut String) {
    let parts = Parts::of(ts_us);
    for piece in pieces {
        match piece {
            Piece::Text(verbatim) => out.push_str(verbatim),
            Piece::Field { field, fill, ordinal } => {
                write_field(*field, *fill, &parts, out);
                if let Some(case) = ordinal {
                    write_ordinal(*case, out);
                }
            }
        }
    }
}

/// What a text says, by a pattern.
struct Read {
    year: i64,
    month: u32,
    day: u32,
    day_of_year: Option<i64>,
    hour: i64,
    us: i64,
    afternoon: Option<bool>,
}

fn read(text: &str, pieces: &[Piece]) -> Option<i64> {
    let mut read = Read { year: 1, month: 1, day: 1, day_of_year: None, hour: 0, us: 0, afternoon: None };
    let mut rest = text.trim_start();
    for (i, piece) in pieces.iter().enumerate() {
        match piece {
            // Separators match separators, of whatever kind and number.
            Piece::Text(_) => rest = rest.trim_start_matches(|c: char| !c.is_alphanumeric()),
            Piece::Field { field, .. } => {
                let delimited = !matches!(pieces.get(i + 1), Some(Piece::Field { .. }));
                rest = read_field(&mut read, *field, delimited, rest.trim_start())?;
            }
        }
    }
    let hour = match read.afternoon {
        Some(true) => read.hour % 12 + 12,
        Some(false) => read.hour % 12,
        None => read.hour,
    };
    if hour > 23 {
        return None;
    }
    let days = match read.day_of_year {
        Some(day) => calendar::days_of(read.year, 1, 1) + day - 1,
        None => calendar::checked_days(read.year, read.month, read.day)?,
    };
    Some(days * DAY_US + hour * 3_600_000_000 + read.us)
}

fn read_field<'a>(read: &mut Read, field: Field, delimited: bool, text: &'a str) -> Option<&'a str> {
    if let Field::MonthName(_, short) = field {
        let found = MONTHS.iter().position(|m| {
            let name = if short { &m[..3] } else { m };
            text.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
        })?;
        read.month = found as u32 + 1;
        let len = if short { 3 } else { MONTHS[found].len() };
        return Some(&text[len..]);
    }
    if let Field::Meridiem(_, dots) = field {
        read.afternoon = Some(text.starts_with(['P', 'p']));
        return text.get(if dots { 4 } else { 2 }..);
    }
    if let Field::DayName(..) | Field::Zone = field {
        return Some(text.trim_start_matches(char::is_alphabetic));
    }
    let width = match field {
        Field::Year(digits) if digits < 4 || !delimited => digits,
        Field::Year(_) | Field::Microsecond => 6,
        Field::DayOfYear | Field::Millisecond => 3,
        _ => 2,
    };
    let len = text.bytes().take(width).take_while(u8::is_ascii_digit).count();
    let value: i64 = text.get(..len)?.parse().ok()?;
    match field {
        Field::Year(2) => read.year = if value < 70 { 2000 + value } else { 1900 + value },
        Field::Year(_) => read.year = value,
        Field::Month => read.month = u32::try_from(value).ok()?,
        Field::Day => read.day = u32::try_from(value).ok()?,
        Field::DayOfYear => read.day_of_year = Some(value),
        Field::Hour24 | Field::Hour12 => read.hour = value,
        Field::Minute if value < 60 => read.us += value * 60_000_000,
        Field::Second if value < 60 => read.us += value * 1_000_000,
        Field::Millisecond => read.us += value * 10i64.pow(6 - len as u32),
        Field::Microsecond => read.us += value * 10i64.pow(6 - len as u32),
        Field::Minute | Field::Second => return None,
        _ => {}
    }
    Some(&text[len..])
}

fn read_all(args: &[ArrayRef]) -> Result<Vec<Option<i64>>> {
    let (texts, patterns) = (args[0].as_string::<i32>(), args[1].as_string::<i32>());
    let mut compiled = Compiled::new();
    (0..texts.len())
        .map(|row| {
            if texts.is_null(row) || patterns.is_null(row) {
                return Ok(None);
            }
            read(texts.value(row), &compiled.of(patterns.value(row)).pieces).map(Some).ok_or_else(|| {
                let message =
                    format!("invalid value \"{}\" for \"{}\"", texts.value(row), patterns.value(row));
                failure(SqlState("22007"), message)
            })
        })
        .collect()
}

fn to_date(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let days = |us: i64| us.div_euclid(DAY_US) as i32;
    let dates: PrimitiveArray<Date32Type> = read_all(args)?.into_iter().map(|v| v.map(days)).collect();
    Ok(Arc::new(dates))
}

fn to_timestamp(args: &[ArrayRef], output: &DataType) -> Result<ArrayRef> {
    let times: PrimitiveArray<TimestampMicrosecondType> = match args {
        [seconds] => {
            let seconds = seconds.as_primitive::<arrow::datatypes::Float64Type>();
            seconds.try_unary(|s| {
                let us = (s * 1e6).round_ties_even();
                if us.is_finite() && us.abs() < i64::MAX as f64 {
                    Ok(us as i64)
                } else {
                    Err(failure(SqlState("22008"), format!("timestamp out of range: \"{s}\"")))
                }
            })?
        }
        _ => read_all(args)?.into_iter().collect(),
    };
    Ok(Arc::new(times.with_data_type(output.clone())))
}

#[cfg(test)]
#[path = "tests/to_char.rs"]
mod tests;
