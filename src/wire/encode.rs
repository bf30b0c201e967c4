//! Arrow batches to DataRow messages, text and binary.
//!
//! ```text
//!   'D' │ length i32 │ columns i16 │ column: length i32 (-1 NULL) │ bytes …
//! ```
//! A batch is prepared once (columns brought to plain types, binary layouts chosen), then rows are
//! appended to the connection's buffer without messages or allocations between.

use super::types::{Format, element_type, filled_length, pg_type};
use crate::session::text::{plain_in_zone, write_text};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Field, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow::error::ArrowError;
use bytes::{BufMut, BytesMut};
use pgwire::api::Type;
use std::sync::Arc;

/// Days from 1970-01-01 to 2000-01-01, where PostgreSQL's binary dates start.
const EPOCH_DAYS: i32 = 10_957;
/// The same in microseconds.
const EPOCH_US: i64 = 946_684_800_000_000;

/// One batch, ready to be written row by row.
pub struct BatchEncoder {
    columns: Vec<Column>,
    rows: usize,
}

struct Column {
    array: ArrayRef,
    field: Arc<Field>,
    format: Format,
}

impl BatchEncoder {
    /// For `batch`, each column in its format, times with zone printed in `zone`.
    pub fn new(batch: &RecordBatch, formats: &[Format], zone: &str) -> Result<Self, ArrowError> {
        let columns = batch
            .columns()
            .iter()
            .zip(batch.schema_ref().fields())
            .enumerate()
            .map(|(i, (array, field))| {
                let format = formats.get(i).copied().unwrap_or(Format::Text);
                let array = filled(plain_in_zone(array, zone)?, field);
                if format == Format::Binary {
                    check_rectangular(&array)?;
                }
                Ok(Column { array, field: Arc::clone(field), format })
            })
            .collect::<Result<_, ArrowError>>()?;
        Ok(Self { columns, rows: batch.num_rows() })
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Appends a DataRow message.
    pub fn write_row(&self, row: usize, out: &mut BytesMut) {
        out.put_u8(b'D');
        let start = out.len();
        out.put_i32(0);
        self.write_tuple(row, out);
        set_length(out, start, out.len() - start);
    }

    /// Appends a row without a message around it: how many values, then each behind its length.
    pub fn write_tuple(&self, row: usize, out: &mut BytesMut) {
        out.put_i16(self.columns.len() as i16);
        for column in &self.columns {
            write_value(column.array.as_ref(), &column.field, row, column.format, out);
        }
    }

    /// Appends a value's text without its length, for COPY; returns false for NULL.
    pub fn write_column_text(&self, column: usize, row: usize, out: &mut BytesMut) -> bool {
        let array = &self.columns[column].array;
        let null = is_null(array.as_ref(), row);
        if !null {
            write_text(array.as_ref(), row, out);
        }
        !null
    }

    /// How many columns there are.
    pub fn columns(&self) -> usize {
        self.columns.len()
    }
}

/// A column of `character(n)` with the spaces that its values are stored without.
fn filled(array: ArrayRef, field: &Field) -> ArrayRef {
    let Some(length) = filled_length(field).filter(|_| *array.data_type() == DataType::Utf8) else {
        return array;
    };
    let fill = |text: &str| format!("{text:length$}");
    Arc::new(array.as_string::<i32>().iter().map(|text| text.map(fill)).collect::<StringArray>())
}

fn is_null(array: &dyn Array, row: usize) -> bool {
    array.is_null(row) || matches!(array.data_type(), DataType::Null)
}

fn set_length(out: &mut BytesMut, at: usize, length: usize) {
    out[at..at + 4].copy_from_slice(&(length as i32).to_be_bytes());
}

/// Appends a value with its length in front.
fn write_value(array: &dyn Array, field: &Field, row: usize, format: Format, out: &mut BytesMut) {
    if is_null(array, row) {
        out.put_i32(-1);
        return;
    }
    let start = out.len();
    out.put_i32(0);
    match format {
        Format::Text => write_text(array, row, out),
        Format::Binary => write_binary(array, field, row, out),
    }
    set_length(out, start, out.len() - start - 4);
}

/// Appends the binary form of a value that is not NULL.
fn write_binary(array: &dyn Array, field: &Field, row: usize, out: &mut BytesMut) {
    macro_rules! value {
        ($t:ty) => {
            array.as_primitive::<$t>().value(row)
        };
    }
    match array.data_type() {
        DataType::Boolean => out.put_u8(u8::from(array.as_boolean().value(row))),
        DataType::Int8 => out.put_i16(i16::from(value!(Int8Type))),
        DataType::UInt8 => out.put_i16(i16::from(value!(UInt8Type))),
        DataType::Int16 => out.put_i16(value!(Int16Type)),
        DataType::UInt16 => out.put_i32(i32::from(value!(UInt16Type))),
        DataType::Int32 => write_integer(i64::from(value!(Int32Type)), field, out),
        DataType::UInt32 => write_integer(i64::from(value!(UInt32Type)), field, out),
        DataType::Int64 => write_integer(value!(Int64Type), field, out),
        DataType::UInt64 => out.put_i64(value!(UInt64Type) as i64),
        DataType::Float32 => out.put_f32(value!(Float32Type)),
        DataType::Float64 => out.put_f64(value!(Float64Type)),
        // A bare numeric has no scale of its own, as in text: its values have as many digits as they need.
        DataType::Decimal128(38, 10) => {
            let (mut unscaled, mut scale) = (value!(Decimal128Type), 10);
            while scale > 0 && unscaled % 10 == 0 {
                (unscaled, scale) = (unscaled / 10, scale - 1);
            }
            write_numeric(unscaled, scale, out);
        }
        DataType::Decimal128(_, scale) => write_numeric(value!(Decimal128Type), *scale, out),
        DataType::Binary => out.put_slice(array.as_binary::<i32>().value(row)),
        DataType::Date32 => out.put_i32(match value!(Date32Type) {
            // The infinite ones are the same there.
            infinite @ (i32::MAX | i32::MIN) => infinite,
            days => days - EPOCH_DAYS,
        }),
        DataType::Time64(_) => out.put_i64(value!(Time64MicrosecondType)),
        DataType::Timestamp(_, _) => out.put_i64(match value!(TimestampMicrosecondType) {
            infinite @ (i64::MAX | i64::MIN) => infinite,
            us => us - EPOCH_US,
        }),
        DataType::Interval(_) => {
            let interval = value!(IntervalMonthDayNanoType);
            out.put_i64(interval.nanoseconds / 1_000);
            out.put_i32(interval.days);
            out.put_i32(interval.months);
        }
        DataType::List(item) => write_array(&array.as_list::<i32>().value(row), item, out),
        DataType::Struct(fields) => write_record(array, fields, row, out),
        DataType::Utf8 => write_string(array.as_string::<i32>().value(row), field, out),
        _ => write_text(array, row, out),
    }
}

/// The OID types are unsigned and of four bytes whatever Arrow type holds them.
fn write_integer(value: i64, field: &Field, out: &mut BytesMut) {
    match pg_type(field) {
        Type::INT8 => out.put_i64(value),
        Type::INT4 => out.put_i32(value as i32),
        _ => out.put_u32(value as u32),
    }
}

fn write_string(value: &str, field: &Field, out: &mut BytesMut) {
    match pg_type(field) {
        Type::JSONB => {
            // The version of jsonb's binary form.
            out.put_u8(1);
            out.put_slice(value.as_bytes());
        }
        // Casts to uuid check it, so that a uuid column holds nothing else.
        Type::UUID => out.put_slice(uuid::Uuid::parse_str(value).unwrap_or_default().as_bytes()),
        _ => out.put_slice(value.as_bytes()),
    }
}

/// `ndigits i16 │ weight i16 │ sign i16 │ scale i16 │ digits of base 10,000`.
fn write_numeric(unscaled: i128, scale: i8, out: &mut BytesMut) {
    let display_scale = i16::from(scale.max(0));
    let mut magnitude = unscaled.unsigned_abs();
    let mut digits: Vec<i16> = Vec::with_capacity(11);
    // Groups of four are counted from the point, so the last group of a fraction is filled up.
    let fraction_groups = usize::from(display_scale.unsigned_abs()).div_ceil(4);
    let fill = fraction_groups * 4 - usize::from(display_scale.unsigned_abs());
    if fill > 0 {
        let radix = 10u128.pow(fill as u32);
        let first = 10u128.pow(4 - fill as u32);
        digits.push((magnitude % first * radix) as i16);
        magnitude /= first;
    }
    if scale < 0 {
        magnitude = magnitude.saturating_mul(10u128.saturating_pow(u32::from(scale.unsigned_abs())));
    }
    while magnitude > 0 {
        digits.push((magnitude % 10_000) as i16);
        magnitude /= 10_000;
    }
    let mut weight = digits.len() as i16 - fraction_groups as i16 - 1;
    while digits.last() == Some(&0) {
        digits.pop();
        weight -= 1;
    }
    let zeros = digits.iter().take_while(|d| **d == 0).count();
    let digits = &digits[zeros..];
    if digits.is_empty() {
        weight = 0;
    }
    out.put_i16(digits.len() as i16);
    out.put_i16(weight);
    out.put_i16(if unscaled < 0 { 0x4000 } else { 0 });
    out.put_i16(display_scale);
    for digit in digits.iter().rev() {
        out.put_i16(*digit);
    }
}

/// `dimensions i32 │ has NULL i32 │ element OID │ (length i32, lower bound i32) … │ elements`.
/// A list of lists is an array of two dimensions; [`check_rectangular`] was here before.
fn write_array(items: &ArrayRef, item: &Field, out: &mut BytesMut) {
    let mut lengths = Vec::new();
    let mut parents = 1;
    let mut level = Arc::clone(items);
    let mut field = item.clone();
    while !level.is_empty() {
        lengths.push(level.len() / parents);
        let DataType::List(inner) = level.data_type() else { break };
        field = inner.as_ref().clone();
        parents = level.len();
        level = elements(&level);
    }
    if level.is_empty() {
        // PostgreSQL has no array with an empty dimension, only the empty array.
        lengths.clear();
    }
    out.put_i32(lengths.len() as i32);
    out.put_i32(i32::from(level.null_count() > 0));
    out.put_u32(element_type(item).oid());
    for length in &lengths {
        out.put_i32(*length as i32);
        out.put_i32(1);
    }
    for row in 0..level.len() {
        write_value(level.as_ref(), &field, row, Format::Binary, out);
    }
}

/// The elements of all the lists in `lists`.
fn elements(lists: &ArrayRef) -> ArrayRef {
    let lists = lists.as_list::<i32>();
    let offsets = lists.value_offsets();
    let (from, to) = (offsets[0] as usize, offsets[lists.len()] as usize);
    lists.values().slice(from, to - from)
}

/// Lists of lists whose inner lists differ in length have text, but no binary form.
fn check_rectangular(array: &ArrayRef) -> Result<(), ArrowError> {
    let DataType::List(item) = array.data_type() else { return Ok(()) };
    if !matches!(item.data_type(), DataType::List(_)) {
        return Ok(());
    }
    for row in (0..array.len()).filter(|row| array.is_valid(*row)) {
        let inner = array.as_list::<i32>().value(row);
        let lists = inner.as_list::<i32>();
        let first = if lists.is_empty() { 0 } else { lists.value_length(0) };
        if (0..lists.len()).any(|i| lists.is_null(i) || lists.value_length(i) != first) {
            let message = "arrays of arrays of different lengths have no binary form".to_owned();
            return Err(ArrowError::NotYetImplemented(message));
        }
        check_rectangular(&inner)?;
    }
    Ok(())
}

/// `columns i32 │ (OID, length, bytes) …`.
fn write_record(array: &dyn Array, fields: &arrow::datatypes::Fields, row: usize, out: &mut BytesMut) {
    out.put_i32(fields.len() as i32);
    for (column, field) in array.as_struct().columns().iter().zip(fields) {
        out.put_u32(pg_type(field).oid());
        write_value(column.as_ref(), field, row, Format::Binary, out);
    }
}

#[cfg(test)]
#[path = "tests/encode.rs"]
mod tests;
