//! Text to a value, as PostgreSQL's input functions read it: parameters in text format.

use super::SessionError;
use crate::serve::ServeError;
use arrow::array::{Array, ArrayRef, ListArray, StringArray, new_empty_array};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, IntervalMonthDayNano};
use datafusion::common::ScalarValue;
use std::sync::Arc;
use weir_catalog::SqlState;

/// The value that `text` is of the field's type.
pub fn parse_text(field: &Field, text: &str) -> Result<ScalarValue, SessionError> {
    match field.data_type() {
        DataType::Utf8 => Ok(ScalarValue::from(text)),
        DataType::Boolean => parse_bool(text).map(ScalarValue::from).ok_or_else(|| invalid("boolean", text)),
        DataType::Binary => parse_bytea(text).map(|bytes| ScalarValue::Binary(Some(bytes))),
        DataType::List(item) => parse_array(item, text),
        DataType::Float32 | DataType::Float64 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
            parse_number(field.data_type(), text)
        }
        DataType::Interval(_) => {
            let interval = parse_interval(text).ok_or_else(|| invalid("interval", text))?;
            Ok(ScalarValue::IntervalMonthDayNano(Some(interval)))
        }
        other => cast_text(other, text),
    }
}

fn invalid(kind: &str, text: &str) -> SessionError {
    let message = format!("invalid input syntax for type {kind}: \"{text}\"");
    SessionError::new(SqlState::INVALID_TEXT_REPRESENTATION, message)
}

fn parse_bool(text: &str) -> Option<bool> {
    let text = text.trim().to_ascii_lowercase();
    let starts = |word: &str, least: usize| text.len() >= least && word.starts_with(&text);
    match text.as_str() {
        "1" => Some(true),
        "0" => Some(false),
        _ if starts("true", 1) || starts("yes", 1) || starts("on", 2) => Some(true),
        _ if starts("false", 1) || starts("no", 1) || starts("off", 2) => Some(false),
        _ => None,
    }
}

/// Numbers: what is none is bad text, what is too big is out of range.
fn parse_number(data_type: &DataType, text: &str) -> Result<ScalarValue, SessionError> {
    let trimmed = text.trim();
    let integer = |kind: &str| {
        trimmed.parse::<i64>().map_err(|_| match trimmed.parse::<i128>() {
            Ok(_) => out_of_range(trimmed, kind),
            Err(_) => invalid(kind, text),
        })
    };
    let too_big = |kind: &str| out_of_range(trimmed, kind);
    Ok(match data_type {
        DataType::Int16 => {
            ScalarValue::from(i16::try_from(integer("smallint")?).map_err(|_| too_big("smallint"))?)
        }
        DataType::Int32 => {
            ScalarValue::from(i32::try_from(integer("integer")?).map_err(|_| too_big("integer"))?)
        }
        DataType::Int64 => ScalarValue::from(integer("bigint")?),
        DataType::Float32 => ScalarValue::from(trimmed.parse::<f32>().map_err(|_| invalid("real", text))?),
        _ => ScalarValue::from(trimmed.parse::<f64>().map_err(|_| invalid("double precision", text))?),
    })
}

fn out_of_range(text: &str, kind: &str) -> SessionError {
    let message = format!("value \"{text}\" is out of range for type {kind}");
    SessionError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message)
}

/// `\x…`, or the escape form: `\\` and `\ooo`.
fn parse_bytea(text: &str) -> Result<Vec<u8>, SessionError> {
    if let Some(hex) = text.strip_prefix("\\x") {
        let digits: Vec<u8> = hex.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let bytes = digits.chunks(2).map(|pair| if pair.len() == 2 { byte(pair) } else { None });
        return bytes.collect::<Option<_>>().ok_or_else(|| invalid("bytea", text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        match tail {
            [b'\\', tail @ ..] => {
                bytes.push(b'\\');
                rest = tail;
            }
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] => {
                bytes.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
                rest = tail;
            }
            _ => return Err(invalid("bytea", text)),
        }
    }
    Ok(bytes)
}

/// What Arrow reads as PostgreSQL does: numeric, dates, times, intervals.
fn cast_text(data_type: &DataType, text: &str) -> Result<ScalarValue, SessionError> {
    let array = Arc::new(StringArray::from(vec![text.trim()])) as ArrayRef;
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let cast = cast_with_options(&array, data_type, &options).map_err(ServeError::from)?;
    if cast.is_null(0) {
        return Err(invalid(&data_type.to_string().to_lowercase(), text));
    }
    Ok(ScalarValue::try_from_array(&cast, 0).map_err(ServeError::from)?)
}

/// `1 year 2 mons -3 days +04:05:06.7`, `5m`, with `ago` at the end for the opposite.
fn parse_interval(text: &str) -> Option<IntervalMonthDayNano> {
    let lower = text.trim().to_ascii_lowercase();
    let (lower, sign) = match lower.strip_suffix("ago") {
        Some(rest) => (rest, -1),
        None => (lower.as_str(), 1),
    };
    let mut words = lower.split_ascii_whitespace().peekable();
    words.peek()?;
    let (mut months, mut days, mut us) = (0f64, 0f64, 0f64);
    while let Some(word) = words.next() {
        if word.contains(':') {
            us += parse_clock(word)?;
            continue;
        }
        let end = word.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(word.len());
        let number: f64 = word[..end].parse().ok()?;
        let unit = if end < word.len() { &word[end..] } else { words.next().unwrap_or("s") };
        match unit {
            "millennium" | "millennia" | "mil" => months += number * 12_000.0,
            "century" | "centuries" | "cent" | "c" => months += number * 1_200.0,
            "decade" | "decades" | "dec" => months += number * 120.0,
            "year" | "years" | "yr" | "yrs" | "y" => months += number * 12.0,
            "month" | "months" | "mon" | "mons" => months += number,
            "week" | "weeks" | "w" => days += number * 7.0,
            "day" | "days" | "d" => days += number,
            "hour" | "hours" | "hr" | "hrs" | "h" => us += number * 3_600e6,
            "minute" | "minutes" | "min" | "mins" | "m" => us += number * 60e6,
            "second" | "seconds" | "sec" | "secs" | "s" => us += number * 1e6,
            "millisecond" | "milliseconds" | "msec" | "msecs" | "ms" => us += number * 1e3,
            "microsecond" | "microseconds" | "usec" | "usecs" | "us" => us += number,
            _ => return None,
        }
    }
    // Fractions spill over as PostgreSQL has it: a month has 30 days, a day 24 hours.
    days += months.fract() * 30.0;
    us += days.fract() * 86_400e6;
    let whole = |value: f64, max: f64| (value.abs() <= max).then_some(value.trunc());
    Some(IntervalMonthDayNano {
        months: whole(months, f64::from(i32::MAX))? as i32 * sign,
        days: whole(days, f64::from(i32::MAX))? as i32 * sign,
        nanoseconds: whole(us.round(), i64::MAX as f64 / 1_000.0)? as i64 * 1_000 * i64::from(sign),
    })
}

/// `[+-]hours:minutes[:seconds]` in microseconds.
fn parse_clock(word: &str) -> Option<f64> {
    let (sign, word) = match word.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, word.strip_prefix('+').unwrap_or(word)),
    };
    let mut parts = word.split(':');
    let (hours, minutes) = (parts.next()?.parse::<u32>().ok()?, parts.next()?.parse::<u32>().ok()?);
    let seconds: f64 = parts.next().map_or(Some(0.0), |seconds| seconds.parse().ok())?;
    if parts.next().is_some() || minutes > 59 || !(0.0..=60.0).contains(&seconds) {
        return None;
    }
    Some(sign * (f64::from(hours) * 3_600e6 + f64::from(minutes) * 60e6 + seconds * 1e6))
}

/// `{a,"b c",NULL}`, of one dimension.
fn parse_array(item: &Arc<Field>, text: &str) -> Result<ScalarValue, SessionError> {
    let malformed = || {
        SessionError::new(
            SqlState::INVALID_TEXT_REPRESENTATION,
            format!("malformed array literal: \"{text}\""),
        )
    };
    let inner =
        text.trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).ok_or_else(malformed)?;
    let mut values = Vec::new();
    let mut chars = inner.chars().peekable();
    while chars.peek().is_some() || !values.is_empty() {
        let (mut word, mut quoted, mut in_quotes) = (String::new(), false, false);
        let ended = loop {
            match chars.next() {
                Some('\\') => word.push(chars.next().ok_or_else(malformed)?),
                Some('"') => (quoted, in_quotes) = (true, !in_quotes),
                Some(c) if in_quotes => word.push(c),
                Some(',') => break false,
                Some('{' | '}') => return Err(malformed()),
                Some(c) => word.push(c),
                None if in_quotes => return Err(malformed()),
                None => break true,
            }
        };
        let plain = word.trim();
        values.push(match () {
            () if quoted => parse_text(item, &word)?,
            () if plain.is_empty() => return Err(malformed()),
            () if plain.eq_ignore_ascii_case("null") => {
                ScalarValue::try_new_null(item.data_type()).map_err(ServeError::from)?
            }
            () => parse_text(item, plain)?,
        });
        if ended {
            break;
        }
    }
    list_value(item, values)
}

/// A list of these elements.
pub fn list_value(item: &Arc<Field>, values: Vec<ScalarValue>) -> Result<ScalarValue, SessionError> {
    let lengths = OffsetBuffer::from_lengths([values.len()]);
    let elements = match values.is_empty() {
        true => new_empty_array(item.data_type()),
        false => ScalarValue::iter_to_array(values).map_err(ServeError::from)?,
    };
    let list = ListArray::try_new(Arc::clone(item), lengths, elements, None).map_err(ServeError::from)?;
    Ok(ScalarValue::List(Arc::new(list)))
}

#[cfg(test)]
#[path = "tests/input.rs"]
mod tests;
