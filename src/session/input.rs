//! Text to a value, as PostgreSQL's input functions read it: parameters in text format.

use super::SessionError;
use crate::serve::ServeError;
use arrow::array::{Array, ArrayRef, StringArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field};
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
    Ok(ScalarValue::List(ScalarValue::new_list_nullable(&values, item.data_type())))
}

#[cfg(test)]
#[path = "tests/input.rs"]
mod tests;
