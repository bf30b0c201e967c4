//! Arrow columns as the codecs see them: taken apart once a batch ([`View`]), put together once a
//! batch ([`Builder`]), so that no row pays for a dynamic dispatch.
//!
//! Types that are stored alike share a variant: a date is an i32, a timestamp is an i64, text is
//! bytes. What can be stored at all is said here, by [`supported`].

use super::StateError;
use arrow::array::{Array, ArrayData, ArrayRef, AsArray, make_array};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::datatypes::*;
use arrow_schema::DataType;

/// A fixed-width value and its two encodings. See the layouts in [`super::key`] and
/// [`super::value`].
pub(super) trait Fixed: Copy + Default {
    /// Bytes in a key.
    const KEY_WIDTH: usize;
    /// Bytes in a value.
    const VALUE_WIDTH: usize;
    /// Writes the key encoding to `out`, which is `KEY_WIDTH` long.
    fn put_key(self, out: &mut [u8]);
    /// Reads it.
    fn get_key(bytes: &[u8]) -> Self;
    /// Appends the value encoding.
    fn put_value(self, out: &mut Vec<u8>);
    /// Reads it.
    fn get_value(bytes: &[u8]) -> Self;
}

macro_rules! fixed_integers {
    ($($t:ty, $unsigned:ty, $flip:expr;)*) => {$(
        impl Fixed for $t {
            const KEY_WIDTH: usize = size_of::<$t>();
            const VALUE_WIDTH: usize = size_of::<$t>();
            #[inline]
            fn put_key(self, out: &mut [u8]) {
                out.copy_from_slice(&((self as $unsigned) ^ $flip).to_be_bytes());
            }
            #[inline]
            fn get_key(bytes: &[u8]) -> Self {
                let mut raw = [0; size_of::<$t>()];
                raw.copy_from_slice(bytes);
                (<$unsigned>::from_be_bytes(raw) ^ $flip) as $t
            }
            #[inline]
            fn put_value(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            #[inline]
            fn get_value(bytes: &[u8]) -> Self {
                let mut raw = [0; size_of::<$t>()];
                raw.copy_from_slice(bytes);
                <$t>::from_le_bytes(raw)
            }
        }
    )*};
}

fixed_integers! {
    i8, u8, 1 << 7;
    i16, u16, 1 << 15;
    i32, u32, 1 << 31;
    i64, u64, 1 << 63;
    i128, u128, 1 << 127;
    u8, u8, 0;
    u16, u16, 0;
    u32, u32, 0;
    u64, u64, 0;
}

macro_rules! fixed_floats {
    ($($t:ty, $bits:ty;)*) => {$(
        impl Fixed for $t {
            const KEY_WIDTH: usize = size_of::<$t>();
            const VALUE_WIDTH: usize = size_of::<$t>();
            #[inline]
            fn put_key(self, out: &mut [u8]) {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                // One NaN, the positive quiet one, which is above infinity; one zero.
                let value = if self.is_nan() { <$t>::NAN.abs() } else if self == 0.0 { 0.0 } else { self };
                let bits = value.to_bits();
                let ordered = if bits & SIGN == 0 { bits | SIGN } else { !bits };
                out.copy_from_slice(&ordered.to_be_bytes());
            }
            #[inline]
            fn get_key(bytes: &[u8]) -> Self {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                let mut raw = [0; size_of::<$t>()];
                raw.copy_from_slice(bytes);
                let ordered = <$bits>::from_be_bytes(raw);
                <$t>::from_bits(if ordered & SIGN == 0 { !ordered } else { ordered & !SIGN })
            }
            #[inline]
            fn put_value(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            #[inline]
            fn get_value(bytes: &[u8]) -> Self {
                let mut raw = [0; size_of::<$t>()];
                raw.copy_from_slice(bytes);
                <$t>::from_le_bytes(raw)
            }
        }
    )*};
}

fixed_floats! {
    f32, u32;
    f64, u64;
}

/// As PostgreSQL compares intervals: a month is 30 days, a day 24 hours.
fn interval_nanoseconds(v: IntervalMonthDayNano) -> i128 {
    const DAY: i128 = 86_400_000_000_000;
    (i128::from(v.months) * 30 + i128::from(v.days)) * DAY + i128::from(v.nanoseconds)
}

impl Fixed for IntervalMonthDayNano {
    const KEY_WIDTH: usize = 32;
    const VALUE_WIDTH: usize = 16;
    fn put_key(self, out: &mut [u8]) {
        interval_nanoseconds(self).put_key(&mut out[..16]);
        self.months.put_key(&mut out[16..20]);
        self.days.put_key(&mut out[20..24]);
        self.nanoseconds.put_key(&mut out[24..]);
    }
    fn get_key(bytes: &[u8]) -> Self {
        Self::new(i32::get_key(&bytes[16..20]), i32::get_key(&bytes[20..24]), i64::get_key(&bytes[24..32]))
    }
    fn put_value(self, out: &mut Vec<u8>) {
        self.months.put_value(out);
        self.days.put_value(out);
        self.nanoseconds.put_value(out);
    }
    fn get_value(bytes: &[u8]) -> Self {
        Self::new(i32::get_value(&bytes[..4]), i32::get_value(&bytes[4..8]), i64::get_value(&bytes[8..16]))
    }
}

/// The values of a column, by how they are stored.
pub(super) enum Values<'a> {
    Null,
    Bool(&'a BooleanBuffer),
    I8(&'a [i8]),
    I16(&'a [i16]),
    I32(&'a [i32]),
    I64(&'a [i64]),
    I128(&'a [i128]),
    U8(&'a [u8]),
    U16(&'a [u16]),
    U32(&'a [u32]),
    U64(&'a [u64]),
    F32(&'a [f32]),
    F64(&'a [f64]),
    Interval(&'a [IntervalMonthDayNano]),
    Bytes { offsets: &'a [i32], data: &'a [u8] },
    List { offsets: &'a [i32], child: Box<View<'a>> },
    Struct(Vec<View<'a>>),
}

/// Calls `$body` with `$slice` bound to the slice of a fixed-width [`Values`], or `$other` for
/// the rest.
macro_rules! for_fixed {
    ($values:expr, $slice:ident => $body:expr, $other:pat => $else:expr) => {
        match $values {
            Values::I8($slice) => $body,
            Values::I16($slice) => $body,
            Values::I32($slice) => $body,
            Values::I64($slice) => $body,
            Values::I128($slice) => $body,
            Values::U8($slice) => $body,
            Values::U16($slice) => $body,
            Values::U32($slice) => $body,
            Values::U64($slice) => $body,
            Values::F32($slice) => $body,
            Values::F64($slice) => $body,
            Values::Interval($slice) => $body,
            $other => $else,
        }
    };
}
pub(super) use for_fixed;

/// A borrowed column: its NULLs and its values.
pub(super) struct View<'a> {
    pub nulls: Option<&'a NullBuffer>,
    pub values: Values<'a>,
}

impl<'a> View<'a> {
    /// Takes `array` apart. Panics on a type that is not [`supported`]: the planner refuses it.
    pub fn new(array: &'a dyn Array) -> Self {
        macro_rules! primitive {
            ($variant:ident, $t:ty) => {
                Values::$variant(array.as_primitive::<$t>().values())
            };
        }
        let values = match array.data_type() {
            DataType::Null => Values::Null,
            DataType::Boolean => Values::Bool(array.as_boolean().values()),
            DataType::Int8 => primitive!(I8, Int8Type),
            DataType::Int16 => primitive!(I16, Int16Type),
            DataType::Int32 => primitive!(I32, Int32Type),
            DataType::Date32 => primitive!(I32, Date32Type),
            DataType::Int64 => primitive!(I64, Int64Type),
            DataType::Time64(TimeUnit::Microsecond) => primitive!(I64, Time64MicrosecondType),
            DataType::Timestamp(TimeUnit::Microsecond, _) => primitive!(I64, TimestampMicrosecondType),
            DataType::Decimal128(_, _) => primitive!(I128, Decimal128Type),
            DataType::UInt8 => primitive!(U8, UInt8Type),
            DataType::UInt16 => primitive!(U16, UInt16Type),
            DataType::UInt32 => primitive!(U32, UInt32Type),
            DataType::UInt64 => primitive!(U64, UInt64Type),
            DataType::Float32 => primitive!(F32, Float32Type),
            DataType::Float64 => primitive!(F64, Float64Type),
            DataType::Interval(IntervalUnit::MonthDayNano) => primitive!(Interval, IntervalMonthDayNanoType),
            DataType::Utf8 => {
                let text = array.as_string::<i32>();
                Values::Bytes { offsets: text.value_offsets(), data: text.value_data() }
            }
            DataType::Binary => {
                let bytes = array.as_binary::<i32>();
                Values::Bytes { offsets: bytes.value_offsets(), data: bytes.value_data() }
            }
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                Values::List { offsets: list.value_offsets(), child: Box::new(View::new(list.values())) }
            }
            DataType::Struct(_) => {
                Values::Struct(array.as_struct().columns().iter().map(|c| View::new(c)).collect())
            }
            other => unreachable!("{other} is refused as a stored type by the planner"),
        };
        Self { nulls: array.nulls(), values }
    }

    /// Takes columns apart.
    pub fn all(columns: &'a [ArrayRef]) -> Vec<Self> {
        columns.iter().map(|c| View::new(c)).collect()
    }

    /// Whether `row` is NULL.
    #[inline]
    pub fn is_null(&self, row: usize) -> bool {
        self.nulls.is_some_and(|n| n.is_null(row)) || matches!(self.values, Values::Null)
    }

    /// Whether no row can be NULL.
    pub fn is_dense(&self) -> bool {
        self.nulls.is_none_or(|n| n.null_count() == 0) && !matches!(self.values, Values::Null)
    }
}

/// The bytes of `row` in a column of bytes.
#[inline]
pub(super) fn bytes_at<'a>(offsets: &[i32], data: &'a [u8], row: usize) -> &'a [u8] {
    &data[offsets[row] as usize..offsets[row + 1] as usize]
}

/// Takes the next `n` bytes.
#[inline]
pub(super) fn take<'a>(cursor: &mut &'a [u8], n: usize) -> Result<&'a [u8], StateError> {
    let (taken, rest) = cursor.split_at_checked(n).ok_or_else(ends_early)?;
    *cursor = rest;
    Ok(taken)
}

pub(super) fn ends_early() -> StateError {
    StateError::Decode("it ends early".to_owned())
}

/// The offset behind a column's last value: 32 bits reach 2 GiB.
pub(super) fn offset(len: usize) -> Result<i32, StateError> {
    i32::try_from(len).map_err(|_| StateError::Decode("a column holds more than 2 GiB".to_owned()))
}

/// Whether values of `data_type` can be stored, as keys and as values.
pub(super) fn supported(data_type: &DataType) -> bool {
    match data_type {
        DataType::Null
        | DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::UInt8
        | DataType::UInt16
        | DataType::UInt32
        | DataType::UInt64
        | DataType::Float32
        | DataType::Float64
        | DataType::Date32
        | DataType::Time64(TimeUnit::Microsecond)
        | DataType::Timestamp(TimeUnit::Microsecond, _)
        | DataType::Decimal128(_, _)
        | DataType::Interval(IntervalUnit::MonthDayNano)
        | DataType::Utf8
        | DataType::Binary => true,
        DataType::List(field) => supported(field.data_type()),
        DataType::Struct(fields) => fields.iter().all(|f| supported(f.data_type())),
        _ => false,
    }
}

/// Whether an array of `found` may be stored in a column of `expected`: names and metadata of
/// nested fields don't matter.
pub(super) fn stored_alike(expected: &DataType, found: &DataType) -> bool {
    match (expected, found) {
        (DataType::List(a), DataType::List(b)) => stored_alike(a.data_type(), b.data_type()),
        (DataType::Struct(a), DataType::Struct(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| stored_alike(a.data_type(), b.data_type()))
        }
        (DataType::Timestamp(a, _), DataType::Timestamp(b, _)) => a == b,
        (a, b) => a == b,
    }
}

/// The values of a column in the making, by how they are stored.
pub(super) enum BuilderValues {
    Null,
    Bool(Vec<bool>),
    I8(Vec<i8>),
    I16(Vec<i16>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    I128(Vec<i128>),
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    U64(Vec<u64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Interval(Vec<IntervalMonthDayNano>),
    Bytes { offsets: Vec<i32>, data: Vec<u8> },
    List { offsets: Vec<i32>, child: Box<Builder> },
    Struct(Vec<Builder>),
}

/// As [`for_fixed`], for [`BuilderValues`].
macro_rules! for_fixed_builder {
    ($values:expr, $vec:ident => $body:expr, $other:pat => $else:expr) => {
        match $values {
            BuilderValues::I8($vec) => $body,
            BuilderValues::I16($vec) => $body,
            BuilderValues::I32($vec) => $body,
            BuilderValues::I64($vec) => $body,
            BuilderValues::I128($vec) => $body,
            BuilderValues::U8($vec) => $body,
            BuilderValues::U16($vec) => $body,
            BuilderValues::U32($vec) => $body,
            BuilderValues::U64($vec) => $body,
            BuilderValues::F32($vec) => $body,
            BuilderValues::F64($vec) => $body,
            BuilderValues::Interval($vec) => $body,
            $other => $else,
        }
    };
}
pub(super) use for_fixed_builder;

/// A column in the making.
pub(super) struct Builder {
    data_type: DataType,
    /// Whether each row so far has a value.
    pub valid: Vec<bool>,
    pub values: BuilderValues,
}

impl Builder {
    /// An empty column of `data_type`, with room for `rows`.
    pub fn new(data_type: &DataType, rows: usize) -> Self {
        let values = match data_type {
            DataType::Null => BuilderValues::Null,
            DataType::Boolean => BuilderValues::Bool(Vec::with_capacity(rows)),
            DataType::Int8 => BuilderValues::I8(Vec::with_capacity(rows)),
            DataType::Int16 => BuilderValues::I16(Vec::with_capacity(rows)),
            DataType::Int32 | DataType::Date32 => BuilderValues::I32(Vec::with_capacity(rows)),
            DataType::Int64 | DataType::Time64(_) | DataType::Timestamp(_, _) => {
                BuilderValues::I64(Vec::with_capacity(rows))
            }
            DataType::Decimal128(_, _) => BuilderValues::I128(Vec::with_capacity(rows)),
            DataType::UInt8 => BuilderValues::U8(Vec::with_capacity(rows)),
            DataType::UInt16 => BuilderValues::U16(Vec::with_capacity(rows)),
            DataType::UInt32 => BuilderValues::U32(Vec::with_capacity(rows)),
            DataType::UInt64 => BuilderValues::U64(Vec::with_capacity(rows)),
            DataType::Float32 => BuilderValues::F32(Vec::with_capacity(rows)),
            DataType::Float64 => BuilderValues::F64(Vec::with_capacity(rows)),
            DataType::Interval(_) => BuilderValues::Interval(Vec::with_capacity(rows)),
            DataType::Utf8 | DataType::Binary => {
                let mut offsets = Vec::with_capacity(rows + 1);
                offsets.push(0);
                BuilderValues::Bytes { offsets, data: Vec::new() }
            }
            DataType::List(field) => BuilderValues::List {
                offsets: vec![0],
                child: Box::new(Builder::new(field.data_type(), rows)),
            },
            DataType::Struct(fields) => {
                BuilderValues::Struct(fields.iter().map(|f| Builder::new(f.data_type(), rows)).collect())
            }
            other => unreachable!("{other} is refused as a stored type by the planner"),
        };
        Self { data_type: data_type.clone(), valid: Vec::with_capacity(rows), values }
    }

    /// How many rows so far.
    pub fn len(&self) -> usize {
        self.valid.len()
    }

    /// Appends NULL.
    pub fn push_null(&mut self) {
        self.valid.push(false);
        for_fixed_builder!(&mut self.values, v => v.push(Default::default()), other => match other {
            BuilderValues::Bool(v) => v.push(false),
            BuilderValues::Bytes { offsets, data } => offsets.push(data.len() as i32),
            BuilderValues::List { offsets, child } => offsets.push(child.len() as i32),
            BuilderValues::Struct(fields) => fields.iter_mut().for_each(Builder::push_null),
            _ => {}
        });
    }

    /// The column. Fails of bytes that are no text in a text column.
    pub fn finish(self) -> Result<ArrayRef, StateError> {
        let data = self.into_data()?;
        Ok(make_array(data))
    }

    fn into_data(self) -> Result<ArrayData, StateError> {
        let Self { data_type, valid, values } = self;
        let mut data = ArrayData::builder(data_type).len(valid.len());
        if !matches!(values, BuilderValues::Null) && valid.contains(&false) {
            data = data.nulls(Some(NullBuffer::from(valid)));
        }
        data = for_fixed_builder!(values, v => data.add_buffer(Buffer::from_vec(v)), other => match other {
            BuilderValues::Bool(v) => data.add_buffer(BooleanBuffer::from(v).into_inner()),
            BuilderValues::Bytes { offsets, data: bytes } => {
                data.add_buffer(Buffer::from_vec(offsets)).add_buffer(Buffer::from_vec(bytes))
            }
            BuilderValues::List { offsets, child } => {
                data.add_buffer(Buffer::from_vec(offsets)).add_child_data(child.into_data()?)
            }
            BuilderValues::Struct(fields) => {
                let children = fields.into_iter().map(Builder::into_data).collect::<Result<Vec<_>, _>>()?;
                data.child_data(children)
            }
            _ => data,
        });
        data.build().map_err(|e| StateError::Decode(e.to_string()))
    }
}
