//! Values as PostgreSQL prints them: what a client reads, and what error details quote.
//!
//! [`plain`] brings a column to one of the types of this list first (seconds and nanoseconds to
//! microseconds, views and dictionaries to plain strings, …):
//!
//! ```text
//!   boolean t f             float8 1.5 1e+15 NaN     timestamp   2015-07-15 00:00:00.04
//!   bytea   \xdeadbeef      numeric 1.50             timestamptz 2015-07-15 00:00:00.04+00
//!   int[]   {1,NULL}        record (1,"a b",)        interval    1 year 2 mons -3 days +04:05:06
//! ```

use arrow::array::timezone::Tz;
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
    Time64MicrosecondType, TimeUnit, TimestampMicrosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::error::ArrowError;
use bytes::BytesMut;
use chrono::{Offset, TimeZone};
use std::fmt::Write;
use std::sync::Arc;

/// Microseconds of a day.
const DAY_US: i64 = 86_400_000_000;

/// The type that [`plain`] brings `data_type` to.
pub fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => DataType::Binary,
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
        DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
        DataType::Date64 => DataType::Date32,
        DataType::Float16 => DataType::Float32,
        DataType::Interval(_) | DataType::Duration(_) => DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::Decimal32(p, s) | DataType::Decimal64(p, s) => DataType::Decimal128(*p, *s),
        DataType::Dictionary(_, value) => plain_type(value),
        DataType::RunEndEncoded(_, value) => plain_type(value.data_type()),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => {
            DataType::List(Arc::new(item.as_ref().clone().with_data_type(plain_type(item.data_type()))))
        }
        DataType::Struct(fields) => DataType::Struct(
            fields.iter().map(|f| f.as_ref().clone().with_data_type(plain_type(f.data_type()))).collect(),
        ),
        other => other.clone(),
    }
}

/// `array` in the plain type of its type; mostly itself.
pub fn plain(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let target = plain_type(array.data_type());
    if *array.data_type() == target { Ok(Arc::clone(array)) } else { cast(array, &target) }
}

/// `array`, plain, with `timestamptz` to be printed in `zone`.
pub fn plain_in_zone(array: &ArrayRef, zone: &str) -> Result<ArrayRef, ArrowError> {
    let array = plain(array)?;
    match array.data_type() {
        // The values are in UTC whatever the zone is: only the type changes.
        DataType::Timestamp(unit, Some(_)) => cast(&array, &DataType::Timestamp(*unit, Some(zone.into()))),
        _ => Ok(array),
    }
}

/// Appends the text of a value that is not NULL. `array` is plain.
pub fn write_text(array: &dyn Array, row: usize, out: &mut BytesMut) {
    macro_rules! display {
        ($t:ty) => {
            push(out, array.as_primitive::<$t>().value(row))
        };
    }
    match array.data_type() {
        DataType::Utf8 => out.extend_from_slice(array.as_string::<i32>().value(row).as_bytes()),
        DataType::Boolean => {
            out.extend_from_slice(if array.as_boolean().value(row) { b"t" } else { b"f" });
        }
        DataType::Int8 => display!(Int8Type),
        DataType::Int16 => display!(Int16Type),
        DataType::Int32 => display!(Int32Type),
        DataType::Int64 => display!(Int64Type),
        DataType::UInt8 => display!(UInt8Type),
        DataType::UInt16 => display!(UInt16Type),
        DataType::UInt32 => display!(UInt32Type),
        DataType::UInt64 => display!(UInt64Type),
        DataType::Float32 => {
            write_float(&FloatText::of_f32(array.as_primitive::<Float32Type>().value(row)), out)
        }
        DataType::Float64 => {
            write_float(&FloatText::of_f64(array.as_primitive::<Float64Type>().value(row)), out)
        }
        // A bare numeric has no scale of its own: its values show as many digits as they have.
        DataType::Decimal128(38, 10) => {
            let start = out.len();
            write_decimal(&array.as_primitive::<Decimal128Type>().value(row).to_string(), 10, out);
            let zeros = out[start..].iter().rev().take_while(|digit| **digit == b'0').count();
            out.truncate(out.len() - zeros);
            if out.last() == Some(&b'.') {
                out.truncate(out.len() - 1);
            }
        }
        DataType::Decimal128(_, scale) => {
            write_decimal(&array.as_primitive::<Decimal128Type>().value(row).to_string(), *scale, out);
        }
        DataType::Decimal256(_, scale) => {
            write_decimal(&array.as_primitive::<Decimal256Type>().value(row).to_string(), *scale, out);
        }
        DataType::Binary => write_bytea(array.as_binary::<i32>().value(row), out),
        DataType::Date32 => match array.as_primitive::<Date32Type>().value(row) {
            infinite @ (i32::MAX | i32::MIN) => write_infinity(infinite > 0, out),
            days => drop(write_date(i64::from(days), out, true)),
        },
        DataType::Time64(_) => write_time(array.as_primitive::<Time64MicrosecondType>().value(row), out),
        DataType::Timestamp(_, zone) => {
            write_timestamp(
                array.as_primitive::<TimestampMicrosecondType>().value(row),
                zone.as_deref(),
                out,
            );
        }
        DataType::Interval(_) => {
            write_interval(array.as_primitive::<IntervalMonthDayNanoType>().value(row), out)
        }
        DataType::List(_) => write_list(&array.as_list::<i32>().value(row), out),
        DataType::Struct(_) => write_record(array, row, out),
        // What is left (maps, unions) has no counterpart in PostgreSQL.
        _ => {
            if let Ok(text) = arrow::util::display::array_value_to_string(array, row) {
                out.extend_from_slice(text.as_bytes());
            }
        }
    }
}

/// The text of a value, `None` for NULL; for error details and single values.
pub fn to_text(array: &ArrayRef, row: usize) -> Option<String> {
    let array = plain(array).ok()?;
    if array.is_null(row) || matches!(array.data_type(), DataType::Null) {
        return None;
    }
    let mut out = BytesMut::new();
    write_text(array.as_ref(), row, &mut out);
    Some(String::from_utf8_lossy(&out).into_owned())
}

fn push(out: &mut BytesMut, value: impl std::fmt::Display) {
    // A BytesMut grows as needed: writing to it fails never.
    let _ = write!(out, "{value}");
}

/// A float's shortest digits that read back as itself, and where the point goes.
struct FloatText {
    /// `1.5e100`, as Rust prints it, or a special value.
    scientific: String,
    /// At this exponent and above PostgreSQL writes the scientific form.
    exponent_max: i32,
}

impl FloatText {
    fn of_f64(value: f64) -> Self {
        let scientific = if value.is_finite() { format!("{value:e}") } else { special(value) };
        Self { scientific, exponent_max: 15 }
    }

    fn of_f32(value: f32) -> Self {
        let scientific = if value.is_finite() { format!("{value:e}") } else { special(f64::from(value)) };
        Self { scientific, exponent_max: 6 }
    }
}

fn special(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value > 0.0 {
        "Infinity".to_owned()
    } else {
        "-Infinity".to_owned()
    }
}

fn write_float(text: &FloatText, out: &mut BytesMut) {
    let Some((mantissa, exponent)) = text.scientific.split_once('e') else {
        out.extend_from_slice(text.scientific.as_bytes());
        return;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    if !(-4..text.exponent_max).contains(&exponent) {
        let direction = if exponent < 0 { '-' } else { '+' };
        push(out, format_args!("{sign}{mantissa}e{direction}{:02}", exponent.abs()));
        return;
    }
    let digits = mantissa.replace('.', "");
    out.extend_from_slice(sign.as_bytes());
    if exponent < 0 {
        let zeros = "0".repeat((-exponent - 1) as usize);
        push(out, format_args!("0.{zeros}{digits}"));
    } else {
        let whole = exponent as usize + 1;
        if digits.len() <= whole {
            push(out, format_args!("{digits}{}", "0".repeat(whole - digits.len())));
        } else {
            push(out, format_args!("{}.{}", &digits[..whole], &digits[whole..]));
        }
    }
}

fn write_decimal(unscaled: &str, scale: i8, out: &mut BytesMut) {
    let (sign, digits) = unscaled.strip_prefix('-').map_or(("", unscaled), |rest| ("-", rest));
    out.extend_from_slice(sign.as_bytes());
    if scale <= 0 {
        let zeros = if digits == "0" { 0 } else { usize::from(scale.unsigned_abs()) };
        push(out, format_args!("{digits}{}", "0".repeat(zeros)));
        return;
    }
    let scale = usize::from(scale.unsigned_abs());
    if digits.len() > scale {
        let point = digits.len() - scale;
        push(out, format_args!("{}.{}", &digits[..point], &digits[point..]));
    } else {
        push(out, format_args!("0.{}{digits}", "0".repeat(scale - digits.len())));
    }
}

fn write_bytea(bytes: &[u8], out: &mut BytesMut) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.reserve(2 + bytes.len() * 2);
    out.extend_from_slice(b"\\x");
    for byte in bytes {
        out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
    }
}

/// Year, month and day of a day number since 1970 (H. Hinnant's algorithm, proleptic Gregorian).
fn civil(days: i64) -> (i64, u32, u32) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = (doy - (153 * mp + 2) / 5 + 1) as u32;
    let month = if mp < 10 { mp + 3 } else { mp - 9 } as u32;
    (yoe + era * 400 + i64::from(month <= 2), month, day)
}

/// Writes the date; returns whether it is before Christ, which `with_era` writes at once.
fn write_date(days: i64, out: &mut BytesMut, with_era: bool) -> bool {
    let (year, month, day) = civil(days);
    let bc = year <= 0;
    push(out, format_args!("{:04}-{month:02}-{day:02}", if bc { 1 - year } else { year }));
    if bc && with_era {
        out.extend_from_slice(b" BC");
    }
    bc
}

fn write_time(us: i64, out: &mut BytesMut) {
    let seconds = us / 1_000_000;
    push(out, format_args!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60));
    write_fraction(us % 1_000_000, out);
}

fn write_fraction(us: i64, out: &mut BytesMut) {
    if us != 0 {
        let digits = format!("{us:06}");
        push(out, format_args!(".{}", digits.trim_end_matches('0')));
    }
}

fn write_infinity(positive: bool, out: &mut BytesMut) {
    out.extend_from_slice(if positive { b"infinity" } else { b"-infinity" });
}

fn write_timestamp(us: i64, zone: Option<&str>, out: &mut BytesMut) {
    if matches!(us, i64::MAX | i64::MIN) {
        return write_infinity(us > 0, out);
    }
    let offset = zone.map(|zone| offset_seconds(us, zone));
    let local = us.saturating_add(offset.unwrap_or(0) * 1_000_000);
    let bc = write_date(local.div_euclid(DAY_US), out, false);
    out.extend_from_slice(b" ");
    write_time(local.rem_euclid(DAY_US), out);
    if let Some(offset) = offset {
        write_offset(offset, out);
    }
    if bc {
        out.extend_from_slice(b" BC");
    }
}

/// How far `zone` was ahead of UTC at a time.
fn offset_seconds(us: i64, zone: &str) -> i64 {
    if matches!(zone, "+00:00" | "UTC") {
        return 0;
    }
    let at = chrono::DateTime::from_timestamp_micros(us).map(|t| t.naive_utc());
    match (zone.parse::<Tz>(), at) {
        (Ok(zone), Some(at)) => i64::from(zone.offset_from_utc_datetime(&at).fix().local_minus_utc()),
        _ => 0,
    }
}

/// `+00`, `-03:30`.
fn write_offset(seconds: i64, out: &mut BytesMut) {
    let (sign, seconds) = (if seconds < 0 { '-' } else { '+' }, seconds.abs());
    push(out, format_args!("{sign}{:02}", seconds / 3600));
    if seconds % 3600 != 0 {
        push(out, format_args!(":{:02}", seconds / 60 % 60));
    }
    if seconds % 60 != 0 {
        push(out, format_args!(":{:02}", seconds % 60));
    }
}

/// `IntervalStyle = postgres`, as PostgreSQL's EncodeInterval has it.
fn write_interval(value: IntervalMonthDayNano, out: &mut BytesMut) {
    let (mut first, mut before) = (true, false);
    let mut part = |value: i32, unit: &str, out: &mut BytesMut| {
        if value != 0 {
            let space = if first { "" } else { " " };
            let plus = if before && value > 0 { "+" } else { "" };
            let plural = if value == 1 { "" } else { "s" };
            push(out, format_args!("{space}{plus}{value} {unit}{plural}"));
            (first, before) = (false, value < 0);
        }
    };
    part(value.months / 12, "year", out);
    part(value.months % 12, "mon", out);
    part(value.days, "day", out);
    let us = value.nanoseconds / 1_000;
    if first || us != 0 {
        let sign = if us < 0 {
            "-"
        } else if before {
            "+"
        } else {
            ""
        };
        let us = us.unsigned_abs();
        let seconds = us / 1_000_000;
        let space = if first { "" } else { " " };
        push(
            out,
            format_args!("{space}{sign}{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60),
        );
        write_fraction((us % 1_000_000) as i64, out);
    }
}

fn write_list(items: &ArrayRef, out: &mut BytesMut) {
    let nested = matches!(items.data_type(), DataType::List(_));
    out.extend_from_slice(b"{");
    for row in 0..items.len() {
        if row > 0 {
            out.extend_from_slice(b",");
        }
        if items.is_null(row) {
            out.extend_from_slice(b"NULL");
            continue;
        }
        let start = out.len();
        write_text(items.as_ref(), row, out);
        if !nested && needs_quotes(&out[start..]) {
            let text = out.split_off(start);
            out.extend_from_slice(b"\"");
            for byte in text {
                if byte == b'"' || byte == b'\\' {
                    out.extend_from_slice(b"\\");
                }
                out.extend_from_slice(&[byte]);
            }
            out.extend_from_slice(b"\"");
        }
    }
    out.extend_from_slice(b"}");
}

fn needs_quotes(text: &[u8]) -> bool {
    text.is_empty()
        || text.eq_ignore_ascii_case(b"null")
        || text.iter().any(|b| matches!(b, b'{' | b'}' | b'"' | b',' | b'\\') || is_space(*b))
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

fn write_record(array: &dyn Array, row: usize, out: &mut BytesMut) {
    out.extend_from_slice(b"(");
    for (i, column) in array.as_struct().columns().iter().enumerate() {
        if i > 0 {
            out.extend_from_slice(b",");
        }
        if column.is_null(row) || *column.data_type() == DataType::Null {
            continue;
        }
        let start = out.len();
        write_text(column.as_ref(), row, out);
        let text = &out[start..];
        let special = |b: &u8| matches!(b, b'(' | b')' | b'"' | b',' | b'\\') || is_space(*b);
        if text.is_empty() || text.iter().any(special) {
            let text = out.split_off(start);
            out.extend_from_slice(b"\"");
            for byte in text {
                if byte == b'"' || byte == b'\\' {
                    out.extend_from_slice(&[byte]);
                }
                out.extend_from_slice(&[byte]);
            }
            out.extend_from_slice(b"\"");
        }
    }
    out.extend_from_slice(b")");
}

#[cfg(test)]
#[path = "tests/text.rs"]
mod tests;
