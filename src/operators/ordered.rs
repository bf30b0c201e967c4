//! Values in their SQL order, as keys that compare without knowing their type.
//!
//! | types | key |
//! | --- | --- |
//! | integers, dates, times, timestamps, booleans, floats | i64 (floats: bits turned to sort, NaN above all) |
//! | numeric | i128 |
//! | text, bytea | their bytes |
//! | everything else | the bytes of [`crate::state::key`] |

use crate::dataflow::operator::OperatorError;
use crate::state::key::{EncodedKeys, KeyCodec};
use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BinaryBuilder, BooleanArray, PrimitiveArray, StringArray,
    StringBuilder,
};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
};
use std::borrow::{Borrow, Cow};
use std::sync::Arc;

/// How values of one type become keys, and keys values.
pub trait Order: Send + 'static {
    /// A key that is kept.
    type Key: Ord + Clone + Send + Borrow<Self::Ref> + 'static;
    /// A key that is looked at.
    type Ref: Ord + ?Sized;
    /// The keys of a column.
    type View<'a>;

    /// The keys of `column`; those of NULLs mean nothing.
    fn view<'a>(&self, column: &'a ArrayRef) -> Self::View<'a>;

    /// The key of one row.
    fn get<'v>(view: &'v Self::View<'_>, row: usize) -> &'v Self::Ref;

    /// A key to keep.
    fn own(key: &Self::Ref) -> Self::Key;

    /// The column of these values.
    fn column<'a>(
        &self,
        keys: impl Iterator<Item = Option<&'a Self::Ref>>,
    ) -> Result<ArrayRef, OperatorError>;

    /// Bytes that a kept key holds beside itself.
    fn heap(key: &Self::Key) -> usize;
}

/// Runs `$body` with `$order` bound to the order of `$data_type`.
macro_rules! with_order {
    ($data_type:expr, $order:ident => $body:expr) => {
        match $data_type {
            t if $crate::operators::ordered::WordOrder::supports(t) => {
                let $order = $crate::operators::ordered::WordOrder(t.clone());
                $body
            }
            t @ arrow::datatypes::DataType::Decimal128(..) => {
                let $order = $crate::operators::ordered::DecimalOrder(t.clone());
                $body
            }
            t => {
                let $order = $crate::operators::ordered::ByteOrder::new(t);
                $body
            }
        }
    };
}
pub(super) use with_order;

/// Types of at most 64 bits.
#[derive(Clone, Debug)]
pub struct WordOrder(pub DataType);

impl WordOrder {
    /// Whether values of `data_type` can be keys of this kind.
    pub fn supports(data_type: &DataType) -> bool {
        use DataType::{Boolean, Date32, Float32, Float64, Int8, Int16, Int32, Int64};
        matches!(data_type, Boolean | Int8 | Int16 | Int32 | Int64 | Date32 | Float32 | Float64)
            || matches!(data_type, DataType::Time64(TimeUnit::Microsecond))
            || matches!(data_type, DataType::Timestamp(TimeUnit::Microsecond, _))
    }
}

/// The bits of a float, turned so that they sort as PostgreSQL sorts floats.
fn float_key(v: f64) -> i64 {
    let v = if v.is_nan() { f64::NAN } else { v + 0.0 };
    let bits = v.to_bits() as i64;
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

fn float_of(key: i64) -> f64 {
    f64::from_bits((key ^ (((key >> 63) as u64) >> 1) as i64) as u64)
}

impl Order for WordOrder {
    type Key = i64;
    type Ref = i64;
    type View<'a> = Cow<'a, [i64]>;

    fn view<'a>(&self, column: &'a ArrayRef) -> Cow<'a, [i64]> {
        fn map<T: ArrowPrimitiveType>(
            column: &ArrayRef,
            key: impl Fn(T::Native) -> i64,
        ) -> Cow<'static, [i64]> {
            column.as_primitive::<T>().values().iter().map(|v| key(*v)).collect()
        }
        match &self.0 {
            DataType::Int64 => Cow::Borrowed(column.as_primitive::<Int64Type>().values()),
            DataType::Timestamp(..) => {
                Cow::Borrowed(column.as_primitive::<TimestampMicrosecondType>().values())
            }
            DataType::Time64(_) => Cow::Borrowed(column.as_primitive::<Time64MicrosecondType>().values()),
            DataType::Int8 => map::<Int8Type>(column, i64::from),
            DataType::Int16 => map::<Int16Type>(column, i64::from),
            DataType::Int32 => map::<Int32Type>(column, i64::from),
            DataType::Date32 => map::<Date32Type>(column, i64::from),
            DataType::Float32 => map::<Float32Type>(column, |v| float_key(f64::from(v))),
            DataType::Float64 => map::<Float64Type>(column, float_key),
            DataType::Boolean => column.as_boolean().values().iter().map(i64::from).collect(),
            other => unreachable!("{other} is no word"),
        }
    }

    fn get<'v>(view: &'v Self::View<'_>, row: usize) -> &'v i64 {
        &view[row]
    }

    fn own(key: &i64) -> i64 {
        *key
    }

    fn column<'a>(&self, keys: impl Iterator<Item = Option<&'a i64>>) -> Result<ArrayRef, OperatorError> {
        fn array<'a, T: ArrowPrimitiveType>(
            keys: impl Iterator<Item = Option<&'a i64>>,
            data_type: &DataType,
            value: impl Fn(i64) -> T::Native,
        ) -> ArrayRef {
            let values: PrimitiveArray<T> = keys.map(|k| k.map(|k| value(*k))).collect();
            Arc::new(values.with_data_type(data_type.clone()))
        }
        let t = &self.0;
        Ok(match t {
            DataType::Int64 => array::<Int64Type>(keys, t, |k| k),
            DataType::Timestamp(..) => array::<TimestampMicrosecondType>(keys, t, |k| k),
            DataType::Time64(_) => array::<Time64MicrosecondType>(keys, t, |k| k),
            DataType::Int8 => array::<Int8Type>(keys, t, |k| k as i8),
            DataType::Int16 => array::<Int16Type>(keys, t, |k| k as i16),
            DataType::Int32 => array::<Int32Type>(keys, t, |k| k as i32),
            DataType::Date32 => array::<Date32Type>(keys, t, |k| k as i32),
            DataType::Float32 => array::<Float32Type>(keys, t, |k| float_of(k) as f32),
            DataType::Float64 => array::<Float64Type>(keys, t, float_of),
            DataType::Boolean => Arc::new(keys.map(|k| k.map(|k| *k != 0)).collect::<BooleanArray>()),
            other => unreachable!("{other} is no word"),
        })
    }

    fn heap(_key: &i64) -> usize {
        0
    }
}

/// Decimals of one scale.
#[derive(Clone, Debug)]
pub struct DecimalOrder(pub DataType);

impl Order for DecimalOrder {
    type Key = i128;
    type Ref = i128;
    type View<'a> = &'a [i128];

    fn view<'a>(&self, column: &'a ArrayRef) -> &'a [i128] {
        column.as_primitive::<Decimal128Type>().values()
    }

    fn get<'v>(view: &'v Self::View<'_>, row: usize) -> &'v i128 {
        &view[row]
    }

    fn own(key: &i128) -> i128 {
        *key
    }

    fn column<'a>(&self, keys: impl Iterator<Item = Option<&'a i128>>) -> Result<ArrayRef, OperatorError> {
        let values: PrimitiveArray<Decimal128Type> = keys.map(|k| k.copied()).collect();
        Ok(Arc::new(values.with_data_type(self.0.clone())))
    }

    fn heap(_key: &i128) -> usize {
        0
    }
}

/// Everything else, as bytes.
#[derive(Clone, Debug)]
pub struct ByteOrder {
    data_type: DataType,
    codec: KeyCodec,
}

impl ByteOrder {
    /// For values of `data_type`.
    pub fn new(data_type: &DataType) -> Self {
        Self { data_type: data_type.clone(), codec: KeyCodec::new(vec![data_type.clone()]) }
    }
}

/// The keys of a column of [`ByteOrder`].
#[derive(Debug)]
pub enum ByteView<'a> {
    /// Text is its own key.
    Text(&'a StringArray),
    /// So are bytes.
    Bytes(&'a BinaryArray),
    /// Others are encoded.
    Encoded(EncodedKeys),
}

impl Order for ByteOrder {
    type Key = Box<[u8]>;
    type Ref = [u8];
    type View<'a> = ByteView<'a>;

    fn view<'a>(&self, column: &'a ArrayRef) -> ByteView<'a> {
        match self.data_type {
            DataType::Utf8 => ByteView::Text(column.as_string()),
            DataType::Binary => ByteView::Bytes(column.as_binary()),
            _ => {
                let columns = std::slice::from_ref(column);
                ByteView::Encoded(self.codec.encode_all(columns, column.len(), None))
            }
        }
    }

    fn get<'v>(view: &'v Self::View<'_>, row: usize) -> &'v [u8] {
        match view {
            ByteView::Text(column) => column.value(row).as_bytes(),
            ByteView::Bytes(column) => column.value(row),
            ByteView::Encoded(keys) => keys.get(row),
        }
    }

    fn own(key: &[u8]) -> Box<[u8]> {
        key.into()
    }

    fn column<'a>(&self, keys: impl Iterator<Item = Option<&'a [u8]>>) -> Result<ArrayRef, OperatorError> {
        let keys: Vec<Option<&[u8]>> = keys.collect();
        // Long ones are not to be copied from one buffer to the next greater.
        let bytes = keys.iter().flatten().map(|key| key.len()).sum();
        match self.data_type {
            DataType::Utf8 => {
                let mut column = StringBuilder::with_capacity(keys.len(), bytes);
                for key in keys {
                    let text = key.map(std::str::from_utf8).transpose();
                    let no_text = |e| OperatorError::Internal(format!("text is no UTF-8: {e}"));
                    column.append_option(text.map_err(no_text)?);
                }
                Ok(Arc::new(column.finish()))
            }
            DataType::Binary => {
                let mut column = BinaryBuilder::with_capacity(keys.len(), bytes);
                keys.into_iter().for_each(|key| column.append_option(key));
                Ok(Arc::new(column.finish()))
            }
            _ => {
                let null = self.null_key();
                let keys: Vec<&[u8]> = keys.into_iter().map(|k| k.unwrap_or(&null)).collect();
                let mut columns = self.codec.decode(keys.into_iter())?;
                Ok(columns.swap_remove(0))
            }
        }
    }

    fn heap(key: &Box<[u8]>) -> usize {
        key.len()
    }
}

impl ByteOrder {
    fn null_key(&self) -> Vec<u8> {
        let mut key = Vec::new();
        self.codec.encode(&[arrow::array::new_null_array(&self.data_type, 1)], 0, &mut key);
        key
    }
}
