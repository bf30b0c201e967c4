//! A parameter's bytes to a value: text as PostgreSQL reads it, binary as programs send it.

use super::frame::utf8;
use super::types::{Format, TYPE_KEY};
use crate::serve::ServeError;
use crate::session::{SessionError, input};
use arrow::datatypes::{DataType, Field, IntervalMonthDayNano};
use bytes::Buf;
use datafusion::common::ScalarValue;
use std::sync::Arc;
use weir_catalog::SqlState;

/// Days from 1970-01-01 to 2000-01-01, where PostgreSQL's binary dates start.
const EPOCH_DAYS: i32 = 10_957;
/// The same in microseconds.
const EPOCH_US: i64 = 946_684_800_000_000;
const DAY_US: i64 = 86_400_000_000;

/// The value of a parameter; without bytes NULL.
pub fn decode_parameter(
    field: &Field,
    bytes: Option<&[u8]>,
    format: Format,
) -> Result<ScalarValue, SessionError> {
    let Some(bytes) = bytes else {
        return Ok(ScalarValue::try_new_null(field.data_type()).map_err(ServeError::from)?);
    };
    match format {
        Format::Text => input::parse_text(field, utf8(bytes)?),
        Format::Binary => decode_binary(field, bytes),
    }
}

fn invalid() -> SessionError {
    SessionError::new(SqlState("22P03"), "incorrect binary data format in bind parameter")
}

/// The bytes, if they are as many as a value of the type has.
fn exactly<const N: usize>(bytes: &[u8]) -> Result<[u8; N], SessionError> {
    bytes.try_into().map_err(|_| invalid())
}

fn decode_binary(field: &Field, bytes: &[u8]) -> Result<ScalarValue, SessionError> {
    Ok(match field.data_type() {
        DataType::Boolean => ScalarValue::from(exactly::<1>(bytes)? != [0]),
        DataType::Int16 => ScalarValue::from(i16::from_be_bytes(exactly(bytes)?)),
        DataType::Int32 => ScalarValue::from(i32::from_be_bytes(exactly(bytes)?)),
        // The four bytes of an oid are unsigned.
        DataType::Int64 if bytes.len() == 4 => {
            ScalarValue::from(i64::from(u32::from_be_bytes(exactly(bytes)?)))
        }
        DataType::Int64 => ScalarValue::from(i64::from_be_bytes(exactly(bytes)?)),
        DataType::Float32 => ScalarValue::from(f32::from_be_bytes(exactly(bytes)?)),
        DataType::Float64 => ScalarValue::from(f64::from_be_bytes(exactly(bytes)?)),
        DataType::Decimal128(precision, scale) => {
            ScalarValue::Decimal128(Some(decode_numeric(bytes, *precision, *scale)?), *precision, *scale)
        }
        DataType::Utf8 => ScalarValue::from(decode_string(field, bytes)?),
        DataType::Binary => ScalarValue::Binary(Some(bytes.to_vec())),
        DataType::Date32 => {
            let days = i32::from_be_bytes(exactly(bytes)?);
            // The infinite ones are the same here.
            let infinite = matches!(days, i32::MAX | i32::MIN);
            let since = if infinite { Some(days) } else { days.checked_add(EPOCH_DAYS) };
            ScalarValue::Date32(Some(since.ok_or_else(out_of_range)?))
        }
        DataType::Time64(_) => {
            let us = i64::from_be_bytes(exactly(bytes)?);
            if !(0..=DAY_US).contains(&us) {
                return Err(SessionError::new(SqlState("22008"), "time out of range"));
            }
            ScalarValue::Time64Microsecond(Some(us))
        }
        DataType::Timestamp(_, zone) => {
            let us = i64::from_be_bytes(exactly(bytes)?);
            let infinite = matches!(us, i64::MAX | i64::MIN);
            let us = if infinite { Some(us) } else { us.checked_add(EPOCH_US) }.ok_or_else(out_of_range)?;
            ScalarValue::TimestampMicrosecond(Some(us), zone.clone())
        }
        DataType::Interval(_) => {
            let bytes: [u8; 16] = exactly(bytes)?;
            let mut bytes = &bytes[..];
            let (us, days, months) = (bytes.get_i64(), bytes.get_i32(), bytes.get_i32());
            let nanoseconds = us.checked_mul(1_000).ok_or_else(out_of_range)?;
            ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano { months, days, nanoseconds }))
        }
        DataType::List(item) => decode_array(item, bytes)?,
        other => {
            let message = format!("binary parameters of type {other} are not supported");
            return Err(SessionError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
    })
}

fn out_of_range() -> SessionError {
    SessionError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range in bind parameter")
}

/// Text, or a type whose text is what Weir stores.
fn decode_string(field: &Field, bytes: &[u8]) -> Result<String, SessionError> {
    match field.metadata().get(TYPE_KEY).map(String::as_str) {
        Some("jsonb") => match bytes {
            [1, json @ ..] => Ok(utf8(json)?.to_owned()),
            _ => Err(invalid()),
        },
        Some("uuid") => Ok(uuid::Uuid::from_bytes(exactly(bytes)?).to_string()),
        _ => Ok(utf8(bytes)?.to_owned()),
    }
}

/// Rounds half away from zero to `scale`, as PostgreSQL's casts do.
fn decode_numeric(mut bytes: &[u8], precision: u8, scale: i8) -> Result<i128, SessionError> {
    if bytes.len() < 8 {
        return Err(invalid());
    }
    let (digits, weight, sign, _) = (bytes.get_i16(), bytes.get_i16(), bytes.get_u16(), bytes.get_i16());
    if digits < 0 || bytes.len() != usize::from(digits.unsigned_abs()) * 2 {
        return Err(invalid());
    }
    match sign {
        0 | 0x4000 => {}
        0xc000 | 0xd000 | 0xf000 => {
            let message = "numeric NaN and infinity are not supported";
            return Err(SessionError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        _ => return Err(invalid()),
    }
    let mut value: i128 = 0;
    let mut rounding = None;
    for i in 0..digits {
        let digit = i128::from(bytes.get_i16());
        if !(0..10_000).contains(&digit) {
            return Err(invalid());
        }
        // The place of this group's last digit, in powers of ten of the result's unit.
        let place = (i32::from(weight) - i32::from(i)) * 4 + i32::from(scale);
        if place >= 0 {
            let unit = 10i128.checked_pow(place as u32);
            let group = if digit == 0 { Some(0) } else { unit.and_then(|unit| digit.checked_mul(unit)) };
            value = group.and_then(|group| value.checked_add(group)).ok_or_else(overflow)?;
        } else {
            let cut = 10i128.pow(place.unsigned_abs().min(5));
            value = value.checked_add(digit / cut).ok_or_else(overflow)?;
            rounding.get_or_insert(digit % cut * 10 / cut);
        }
    }
    value += i128::from(rounding.is_some_and(|next| next >= 5));
    if value.unsigned_abs() >= 10u128.pow(u32::from(precision)) {
        return Err(overflow());
    }
    Ok(if sign == 0 { value } else { -value })
}

fn overflow() -> SessionError {
    SessionError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow")
}

/// An array of one dimension, or of none.
fn decode_array(item: &Arc<Field>, mut bytes: &[u8]) -> Result<ScalarValue, SessionError> {
    if bytes.len() < 12 {
        return Err(invalid());
    }
    let (dimensions, _, _) = (bytes.get_i32(), bytes.get_i32(), bytes.get_u32());
    let mut values = Vec::new();
    match dimensions {
        0 => {}
        1 if bytes.len() >= 8 => {
            let (length, _) = (bytes.get_i32(), bytes.get_i32());
            for _ in 0..length {
                values.push(decode_element(item, &mut bytes)?);
            }
        }
        _ => {
            let message = "array parameters of several dimensions are not supported";
            return Err(SessionError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
    }
    input::list_value(item, values)
}

fn decode_element(item: &Field, bytes: &mut &[u8]) -> Result<ScalarValue, SessionError> {
    if bytes.len() < 4 {
        return Err(invalid());
    }
    let Ok(length) = usize::try_from(bytes.get_i32()) else {
        return decode_parameter(item, None, Format::Binary);
    };
    if bytes.len() < length {
        return Err(invalid());
    }
    let (element, rest) = bytes.split_at(length);
    *bytes = rest;
    decode_parameter(item, Some(element), Format::Binary)
}

#[cfg(test)]
#[path = "tests/parameters.rs"]
mod tests;
