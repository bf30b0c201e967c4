//! Values as PostgreSQL prints them: what a cast to text gives.
//!
//! ```text
//!   float8  1.5 1e+15 NaN       timestamp    2015-07-15 00:00:00.04
//!   bytea   \xdeadbeef         timestamptz  2015-07-15 00:00:00.04+00
//!   int[]   {1,NULL}            interval     1 year 2 mons -3 days +04:05:06
//! ```

use super::calendar::{self, DAY_US, civil};
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Float32Type, Float64Type, IntervalMonthDayNano, IntervalMonthDayNanoType,
    Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow::util::display::array_value_to_string;
use std::fmt::Write;

/// What `numeric` without a scale is: its values show as many digits as they have.
const BARE_NUMERIC: DataType = DataType::Decimal128(38, 10);

/// Whether PostgreSQL prints values of this type otherwise than Arrow does.
pub fn differs(data_type: &DataType) -> bool {
    *data_type == BARE_NUMERIC
        || !matches!(
            data_type,
            DataType::Boolean
                | DataType::Int8
                | DataType::Int16
                | DataType::Int32
                | DataType::Int64
                | DataType::UInt64
                | DataType::Decimal128(_, _)
                | DataType::Utf8
                | DataType::Null
        )
}

/// Appends the text of a value that is not NULL.
pub fn write_text(array: &dyn Array, row: usize, out: &mut String) {
    match array.data_type() {
        DataType::Utf8 => out.push_str(array.as_string::<i32>().value(row)),
        DataType::Float32 => {
            write_float(&FloatText::of_f32(array.as_primitive::<Float32Type>().value(row)), out)
        }
        DataType::Float64 => {
            write_float(&FloatText::of_f64(array.as_primitive::<Float64Type>().value(row)), out)
        }
        bare if *bare == BARE_NUMERIC => {
            if let Ok(text) = array_value_to_string(array, row) {
                out.push_str(text.trim_end_matches('0').trim_end_matches('.'));
            }
        }
        DataType::Binary => write_bytea(array.as_binary::<i32>().value(row), out),
        DataType::Date32 => {
            let days = array.as_primitive::<Date32Type>().value(row);
            match calendar::is_finite_date(days) {
                true => drop(write_date(i64::from(days), out, true)),
                false => out.push_str(infinity(days > 0)),
            }
        }
        DataType::Time64(_) => write_time(array.as_primitive::<Time64MicrosecondType>().value(row), out),
        DataType::Timestamp(_, zone) => {
            write_timestamp(array.as_primitive::<TimestampMicrosecondType>().value(row), zone.is_some(), out);
        }
        DataType::Interval(_) => {
            write_interval(array.as_primitive::<IntervalMonthDayNanoType>().value(row), out);
        }
        DataType::List(_) => write_list(&array.as_list::<i32>().value(row), out),
        DataType::Struct(_) => write_record(array, row, out),
        _ => {
            if let Ok(text) = array_value_to_string(array, row) {
                out.push_str(&text);
            }
        }
    }
}

fn push(out: &mut String, value: impl std::fmt::Display) {
    // Writing to a String can't fail.
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

fn write_float(text: &FloatText, out: &mut String) {
    let Some((mantissa, exponent)) = text.scientific.split_once('e') else {
        out.push_str(&text.scientific);
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
    out.push_str(sign);
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

fn write_bytea(bytes: &[u8], out: &mut String) {
    out.push_str("\\x");
    for byte in bytes {
        push(out, format_args!("{byte:02x}"));
    }
}

/// Writes the date; returns whether it is before Christ, which `with_era` writes at once.
fn write_date(days: i64, out: &mut String, with_era: bool) -> bool {
    let (year, month, day) = civil(days);
    let bc = year <= 0;
    push(out, format_args!("{:04}-{month:02}-{day:02}", if bc { 1 - year } else { year }));
    if bc && with_era {
        out.push_str(" BC");
    }
    bc
}

fn write_time(us: i64, out: &mut String) {
    let seconds = us / 1_000_000;
    push(out, format_args!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60));
    write_fraction(us % 1_000_000, out);
}

fn write_fraction(us: i64, out: &mut String) {
    if us != 0 {
        let digits = format!("{us:06}");
        push(out, format_args!(".{}", digits.trim_end_matches('0')));
    }
}

fn infinity(positive: bool) -> &'static str {
    if positive { "infinity" } else { "-infinity" }
}

fn write_timestamp(us: i64, zoned: bool, out: &mut String) {
    if !calendar::is_finite(us) {
        return out.push_str(infinity(us > 0));
    }
    let bc = write_date(us.div_euclid(DAY_US), out, false);
    out.push(' ');
    write_time(us.rem_euclid(DAY_US), out);
    if zoned {
        out.push_str("+00");
    }
    if bc {
        out.push_str(" BC");
    }
}

/// `IntervalStyle = postgres`, as PostgreSQL's EncodeInterval has it.
fn write_interval(value: IntervalMonthDayNano, out: &mut String) {
    let (mut first, mut before) = (true, false);
    let mut part = |value: i32, unit: &str, out: &mut String| {
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

fn write_list(items: &ArrayRef, out: &mut String) {
    let nested = matches!(items.data_type(), DataType::List(_));
    let special = |c: char| matches!(c, '{' | '}' | '"' | ',' | '\\') || c.is_ascii_whitespace();
    out.push('{');
    for row in 0..items.len() {
        if row > 0 {
            out.push(',');
        }
        if items.is_null(row) {
            out.push_str("NULL");
            continue;
        }
        let mut text = String::new();
        write_text(items.as_ref(), row, &mut text);
        if matches!(items.data_type(), DataType::Boolean) {
            text.truncate(1);
        }
        let quoted = text.is_empty() || text.eq_ignore_ascii_case("null") || text.contains(special);
        if quoted && !nested {
            push(out, format_args!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")));
        } else {
            out.push_str(&text);
        }
    }
    out.push('}');
}

fn write_record(array: &dyn Array, row: usize, out: &mut String) {
    let special = |c: char| matches!(c, '(' | ')' | '"' | ',' | '\\') || c.is_ascii_whitespace();
    out.push('(');
    for (i, column) in array.as_struct().columns().iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        if column.is_null(row) || *column.data_type() == DataType::Null {
            continue;
        }
        let mut text = String::new();
        write_text(column.as_ref(), row, &mut text);
        if matches!(column.data_type(), DataType::Boolean) {
            text.truncate(1);
        }
        if text.is_empty() || text.contains(special) {
            push(out, format_args!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\"\"")));
        } else {
            out.push_str(&text);
        }
    }
    out.push(')');
}
