//! ColumnBuilder: decoded texts gathered into an Arrow column.
//!
//! A record is taken whole or not at all: after a field that can't be read, every builder is cut
//! back to the rows before ([`ColumnBuilder::truncate`]).

use super::parse;
use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Decimal128Array, ListArray, PrimitiveArray, StringArray, StructArray,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::kernels::cast_utils::parse_interval_month_day_nano;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, FieldRef, Fields, Float32Type, Float64Type,
    Int16Type, Int32Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
    Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
};
use arrow::error::ArrowError;
use std::borrow::Cow;
use std::sync::Arc;

/// Which of the NULLs there are; grows only when there is one.
#[derive(Debug, Default)]
struct Validity {
    len: usize,
    bits: Option<Vec<bool>>,
}

impl Validity {
    #[inline]
    fn push(&mut self, valid: bool) {
        if self.bits.is_some() || !valid {
            self.push_bit(valid);
        }
        self.len += 1;
    }

    #[cold]
    fn push_bit(&mut self, valid: bool) {
        let len = self.len;
        self.bits.get_or_insert_with(|| vec![true; len]).push(valid);
    }

    fn truncate(&mut self, len: usize) {
        self.len = len;
        if let Some(bits) = &mut self.bits {
            bits.truncate(len);
        }
    }

    fn take(&mut self) -> Option<NullBuffer> {
        self.len = 0;
        self.bits.take().map(NullBuffer::from)
    }
}

/// What a text column checks of its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextKind {
    /// Nothing.
    Plain,
    /// That it is a UUID, which is spelled the usual way then.
    Uuid,
    /// That it is JSON, which is kept as it is.
    Json,
    /// That it is JSON, which is kept in its normal form.
    Jsonb,
    /// That it has at most so many characters, spaces at its end aside: `character varying(n)`.
    Varying(usize),
    /// The same without any spaces at its end: `character(n)`.
    Filled(usize),
}

impl TextKind {
    /// Of a column of this SQL type.
    fn of(sql_type: &str) -> Self {
        let length = || sql_type.strip_suffix(')')?.rsplit('(').next()?.parse().ok();
        match sql_type {
            "uuid" => TextKind::Uuid,
            "json" => TextKind::Json,
            "jsonb" => TextKind::Jsonb,
            "bpchar" => TextKind::Filled(usize::MAX),
            sized if sized.starts_with("character(") => length().map_or(TextKind::Plain, TextKind::Filled),
            sized if sized.starts_with("character varying(") => {
                length().map_or(TextKind::Plain, TextKind::Varying)
            }
            _ => TextKind::Plain,
        }
    }

    /// The text that is kept of `text`, if it is one.
    fn held(self, text: &[u8]) -> Option<Cow<'_, [u8]>> {
        match self {
            TextKind::Plain => Some(Cow::Borrowed(text)),
            TextKind::Uuid => {
                let uuid = uuid::Uuid::parse_str(std::str::from_utf8(text).ok()?.trim()).ok()?;
                Some(Cow::Owned(uuid.hyphenated().to_string().into_bytes()))
            }
            TextKind::Json => {
                weir_sql::functions::json::normalized(std::str::from_utf8(text).ok()?)?;
                Some(Cow::Borrowed(text))
            }
            TextKind::Jsonb => {
                let normal = weir_sql::functions::json::normalized(std::str::from_utf8(text).ok()?)?;
                Some(Cow::Owned(normal.into_bytes()))
            }
            TextKind::Filled(most) => {
                let end = text.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
                (characters(&text[..end]) <= most).then_some(Cow::Borrowed(&text[..end]))
            }
            TextKind::Varying(most) => {
                let over = characters(text).saturating_sub(most);
                let (kept, rest) = text.split_at(text.len().saturating_sub(over));
                rest.iter().all(|byte| *byte == b' ').then_some(Cow::Borrowed(kept))
            }
        }
    }
}

/// How many characters a text has: bytes that don't go on with one.
fn characters(text: &[u8]) -> usize {
    text.iter().filter(|byte| **byte & 0xc0 != 0x80).count()
}

#[derive(Debug)]
enum Values {
    Boolean(Vec<bool>),
    Int16(Vec<i16>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
    Decimal(Vec<i128>, u8, i8),
    Date(Vec<i32>),
    Time(Vec<i64>),
    Timestamp(Vec<i64>, Option<Arc<str>>),
    Interval(Vec<IntervalMonthDayNano>),
    Text(Vec<i32>, Vec<u8>, TextKind),
    Bytes(Vec<i32>, Vec<u8>),
    List(Vec<i32>, FieldRef, Box<ColumnBuilder>),
    Struct(Fields, Vec<ColumnBuilder>),
}

/// A column in the making.
#[derive(Debug)]
pub struct ColumnBuilder {
    values: Values,
    validity: Validity,
}

impl ColumnBuilder {
    /// For values of `data_type`; `sql_type` tells what is no plain text.
    pub fn new(data_type: &DataType, sql_type: &str) -> Result<Self, String> {
        let values = match data_type {
            DataType::Boolean => Values::Boolean(Vec::new()),
            DataType::Int16 => Values::Int16(Vec::new()),
            DataType::Int32 => Values::Int32(Vec::new()),
            DataType::Int64 => Values::Int64(Vec::new()),
            DataType::Float32 => Values::Float32(Vec::new()),
            DataType::Float64 => Values::Float64(Vec::new()),
            DataType::Decimal128(precision, scale) => Values::Decimal(Vec::new(), *precision, *scale),
            DataType::Date32 => Values::Date(Vec::new()),
            DataType::Time64(TimeUnit::Microsecond) => Values::Time(Vec::new()),
            DataType::Timestamp(TimeUnit::Microsecond, zone) => Values::Timestamp(Vec::new(), zone.clone()),
            DataType::Interval(IntervalUnit::MonthDayNano) => Values::Interval(Vec::new()),
            DataType::Utf8 => Values::Text(vec![0], Vec::new(), TextKind::of(sql_type)),
            DataType::Binary => Values::Bytes(vec![0], Vec::new()),
            DataType::List(item) => {
                let child = ColumnBuilder::new(item.data_type(), weir_type(item))?;
                Values::List(vec![0], Arc::clone(item), Box::new(child))
            }
            DataType::Struct(fields) => {
                let children = fields.iter().map(|f| ColumnBuilder::new(f.data_type(), weir_type(f)));
                Values::Struct(fields.clone(), children.collect::<Result<_, _>>()?)
            }
            other => return Err(format!("columns of type {other} can't be decoded")),
        };
        Ok(Self { values, validity: Validity::default() })
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.validity.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the last value is NULL.
    pub fn last_is_null(&self) -> bool {
        self.validity.bits.as_ref().is_some_and(|bits| bits.last() == Some(&false))
    }

    /// Appends NULL.
    pub fn push_null(&mut self) {
        match &mut self.values {
            Values::Boolean(v) => v.push(false),
            Values::Int16(v) => v.push(0),
            Values::Int32(v) | Values::Date(v) => v.push(0),
            Values::Int64(v) | Values::Time(v) | Values::Timestamp(v, _) => v.push(0),
            Values::Float32(v) => v.push(0.0),
            Values::Float64(v) => v.push(0.0),
            Values::Decimal(v, _, _) => v.push(0),
            Values::Interval(v) => v.push(IntervalMonthDayNano::ZERO),
            Values::Text(offsets, bytes, _) | Values::Bytes(offsets, bytes) => {
                offsets.push(bytes.len() as i32)
            }
            Values::List(offsets, _, child) => offsets.push(child.len() as i32),
            Values::Struct(_, children) => children.iter_mut().for_each(ColumnBuilder::push_null),
        }
        self.validity.push(false);
    }

    /// Appends the value that `text` spells. `number`: it was a bare number, which for a time
    /// counts from 1970. What can't be read appends nothing and is described.
    pub fn push_text(&mut self, text: &[u8], number: bool) -> Result<(), String> {
        let read = match &mut self.values {
            Values::Int64(v) => parse::integer_or_integral(text).map(|n| v.push(n)),
            Values::Int32(v) => {
                parse::integer_or_integral(text).and_then(|n| i32::try_from(n).ok()).map(|n| v.push(n))
            }
            Values::Int16(v) => {
                parse::integer_or_integral(text).and_then(|n| i16::try_from(n).ok()).map(|n| v.push(n))
            }
            Values::Float64(v) => parse::float(text).map(|n| v.push(n)),
            Values::Float32(v) => {
                let real = parse::float(text).map(|n| (n, n as f32));
                real.filter(|(n, real)| real.is_finite() || !n.is_finite()).map(|(_, real)| v.push(real))
            }
            Values::Decimal(v, precision, scale) => {
                parse::decimal(text, *precision, *scale).map(|n| v.push(n))
            }
            Values::Boolean(v) => parse::boolean(text).map(|b| v.push(b)),
            Values::Date(v) => parse::date(text).map(|d| v.push(d)),
            Values::Time(v) => parse::time(text).map(|t| v.push(t)),
            Values::Timestamp(v, _) if number => {
                parse::integer_or_integral(text).and_then(parse::timestamp_of_number).map(|t| v.push(t))
            }
            Values::Timestamp(v, zone) => parse::timestamp(text, zone.is_some()).map(|t| v.push(t)),
            Values::Interval(v) => interval(text).map(|i| v.push(i)),
            Values::Text(offsets, bytes, TextKind::Plain) => push_bytes(offsets, bytes, text),
            Values::Text(offsets, bytes, kind) => {
                kind.held(text).and_then(|text| push_bytes(offsets, bytes, &text))
            }
            Values::Bytes(offsets, bytes) => {
                parse::bytea(text).and_then(|value| push_bytes(offsets, bytes, &value))
            }
            Values::List(..) | Values::Struct(..) => None,
        };
        match read {
            Some(()) => {
                self.validity.push(true);
                Ok(())
            }
            None => Err(format!("\"{}\" is no {}", excerpt(text), self.type_name())),
        }
    }

    /// What kind of text it holds, if it holds text.
    pub fn text_kind(&self) -> Option<TextKind> {
        match self.values {
            Values::Text(_, _, kind) => Some(kind),
            _ => None,
        }
    }

    /// The builder of a list's elements. [`Self::end_list`] makes a value of those pushed.
    pub fn list_items(&mut self) -> Option<&mut ColumnBuilder> {
        match &mut self.values {
            Values::List(_, _, child) => Some(child),
            _ => None,
        }
    }

    /// Appends the list of the elements pushed since the last one.
    pub fn end_list(&mut self) {
        if let Values::List(offsets, _, child) = &mut self.values {
            offsets.push(child.len() as i32);
            self.validity.push(true);
        }
    }

    /// The fields of a struct and their builders. [`Self::end_struct`] makes a value of those pushed.
    pub fn struct_fields(&mut self) -> Option<(&Fields, &mut [ColumnBuilder])> {
        match &mut self.values {
            Values::Struct(fields, children) => Some((fields, children)),
            _ => None,
        }
    }

    /// Appends the struct of the fields pushed since the last one; fields not pushed are NULL.
    pub fn end_struct(&mut self) {
        let len = self.len();
        if let Values::Struct(_, children) = &mut self.values {
            children.iter_mut().filter(|c| c.len() == len).for_each(ColumnBuilder::push_null);
            self.validity.push(true);
        }
    }

    /// Forgets all but the first `len` values, and elements or fields pushed for no value.
    pub fn truncate(&mut self, len: usize) {
        match &mut self.values {
            Values::Boolean(v) => v.truncate(len),
            Values::Int16(v) => v.truncate(len),
            Values::Int32(v) | Values::Date(v) => v.truncate(len),
            Values::Int64(v) | Values::Time(v) | Values::Timestamp(v, _) => v.truncate(len),
            Values::Float32(v) => v.truncate(len),
            Values::Float64(v) => v.truncate(len),
            Values::Decimal(v, _, _) => v.truncate(len),
            Values::Interval(v) => v.truncate(len),
            Values::Text(offsets, bytes, _) | Values::Bytes(offsets, bytes) => {
                offsets.truncate(len + 1);
                bytes.truncate(offsets[len] as usize);
            }
            Values::List(offsets, _, child) => {
                offsets.truncate(len + 1);
                child.truncate(offsets[len] as usize);
            }
            Values::Struct(_, children) => children.iter_mut().for_each(|c| c.truncate(len)),
        }
        self.validity.truncate(len);
    }

    /// The column; the builder is empty again. Fails of text that is not UTF-8, or has a zero byte.
    pub fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let nulls = self.validity.take();
        Ok(match &mut self.values {
            Values::Boolean(v) => Arc::new(BooleanArray::new(std::mem::take(v).into(), nulls)),
            Values::Int16(v) => primitive::<Int16Type>(v, nulls),
            Values::Int32(v) => primitive::<Int32Type>(v, nulls),
            Values::Int64(v) => primitive::<Int64Type>(v, nulls),
            Values::Float32(v) => primitive::<Float32Type>(v, nulls),
            Values::Float64(v) => primitive::<Float64Type>(v, nulls),
            Values::Date(v) => primitive::<Date32Type>(v, nulls),
            Values::Time(v) => primitive::<Time64MicrosecondType>(v, nulls),
            Values::Interval(v) => primitive::<IntervalMonthDayNanoType>(v, nulls),
            Values::Timestamp(v, zone) => {
                let values = PrimitiveArray::<TimestampMicrosecondType>::new(std::mem::take(v).into(), nulls);
                Arc::new(values.with_timezone_opt(zone.clone()))
            }
            Values::Decimal(v, precision, scale) => {
                let values = PrimitiveArray::<Decimal128Type>::new(std::mem::take(v).into(), nulls);
                let values: Decimal128Array = values.with_precision_and_scale(*precision, *scale)?;
                Arc::new(values)
            }
            Values::Text(offsets, bytes, _) => {
                let zero = memchr::memchr(0, bytes).is_some();
                let bytes = Buffer::from_vec(take_with_room(bytes));
                let texts = StringArray::try_new(take_offsets(offsets), bytes, nulls)?;
                if zero {
                    return Err(ArrowError::ParseError("text holds no zero byte".to_owned()));
                }
                Arc::new(texts)
            }
            Values::Bytes(offsets, bytes) => {
                let bytes = Buffer::from_vec(std::mem::take(bytes));
                Arc::new(BinaryArray::try_new(take_offsets(offsets), bytes, nulls)?)
            }
            Values::List(offsets, item, child) => {
                Arc::new(ListArray::try_new(Arc::clone(item), take_offsets(offsets), child.finish()?, nulls)?)
            }
            Values::Struct(fields, children) => {
                let arrays = children.iter_mut().map(ColumnBuilder::finish).collect::<Result<Vec<_>, _>>()?;
                Arc::new(StructArray::try_new(fields.clone(), arrays, nulls)?)
            }
        })
    }

    fn type_name(&self) -> Cow<'static, str> {
        let name = match &self.values {
            Values::Text(_, _, TextKind::Varying(most) | TextKind::Filled(most)) => {
                return format!("text of at most {most} characters").into();
            }
            Values::Boolean(_) => "boolean",
            Values::Int16(_) => "smallint",
            Values::Int32(_) => "int",
            Values::Int64(_) => "bigint",
            Values::Float32(_) => "real",
            Values::Float64(_) => "double precision",
            Values::Decimal(..) => "numeric of that precision",
            Values::Date(_) => "date",
            Values::Time(_) => "time",
            Values::Timestamp(_, None) => "timestamp",
            Values::Timestamp(_, Some(_)) => "timestamptz",
            Values::Interval(_) => "interval",
            Values::Text(_, _, TextKind::Uuid) => "uuid",
            Values::Text(_, _, TextKind::Json) => "json",
            Values::Text(_, _, TextKind::Jsonb) => "jsonb",
            Values::Text(..) => "text",
            Values::Bytes(..) => "bytea",
            Values::List(..) => "array",
            Values::Struct(..) => "struct",
        };
        name.into()
    }
}

fn weir_type(field: &FieldRef) -> &str {
    field.metadata().get("weir.type").map_or("", String::as_str)
}

fn primitive<T: ArrowPrimitiveType>(values: &mut Vec<T::Native>, nulls: Option<NullBuffer>) -> ArrayRef {
    let room = values.len();
    let values = std::mem::replace(values, Vec::with_capacity(room));
    Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::from(values), nulls))
}

fn take_offsets(offsets: &mut Vec<i32>) -> OffsetBuffer<i32> {
    let mut empty = Vec::with_capacity(offsets.len());
    empty.push(0);
    OffsetBuffer::new(ScalarBuffer::from(std::mem::replace(offsets, empty)))
}

fn take_with_room(bytes: &mut Vec<u8>) -> Vec<u8> {
    let room = bytes.len();
    std::mem::replace(bytes, Vec::with_capacity(room))
}

fn push_bytes(offsets: &mut Vec<i32>, bytes: &mut Vec<u8>, value: &[u8]) -> Option<()> {
    let end = i32::try_from(bytes.len() + value.len()).ok()?;
    bytes.extend_from_slice(value);
    offsets.push(end);
    Some(())
}

fn interval(text: &[u8]) -> Option<IntervalMonthDayNano> {
    parse_interval_month_day_nano(std::str::from_utf8(text).ok()?).ok()
}

/// The start of a text, for messages.
pub fn excerpt(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    match text.char_indices().nth(60) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.into_owned(),
    }
}

#[cfg(test)]
#[path = "tests/column.rs"]
mod tests;
