//! Row order: which of two rows sorts first.
//!
//! As PostgreSQL sorts, and as keys are encoded ([`crate::state::key`]): -0.0 with 0.0, NaN above all
//! numbers, text by its bytes.

use crate::state::key::{KeyCodec, KeyOrder};
use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
};
use std::cmp::Ordering;

/// An order over some columns of rows.
#[derive(Clone, Debug)]
pub struct RowOrder {
    columns: Vec<(usize, KeyOrder)>,
}

impl RowOrder {
    /// By these columns, the first deciding.
    pub fn new(columns: Vec<(usize, KeyOrder)>) -> Self {
        Self { columns }
    }

    /// How row `i` of `a` sorts against row `j` of `b`.
    pub fn compare(&self, a: &[ArrayRef], i: usize, b: &[ArrayRef], j: usize) -> Ordering {
        for (column, order) in &self.columns {
            let ordering = compare_values(&a[*column], i, &b[*column], j, *order);
            if ordering != Ordering::Equal {
                return ordering;
            }
        }
        Ordering::Equal
    }
}

fn compare_values(a: &ArrayRef, i: usize, b: &ArrayRef, j: usize, order: KeyOrder) -> Ordering {
    let null = |is_first: bool| if is_first { Ordering::Less } else { Ordering::Greater };
    match (a.is_null(i), b.is_null(j)) {
        (true, true) => Ordering::Equal,
        (true, false) => null(order.nulls_first),
        (false, true) => null(!order.nulls_first),
        (false, false) => {
            let ordering = compare_present(a, i, b, j);
            if order.descending { ordering.reverse() } else { ordering }
        }
    }
}

#[inline]
fn integers<T: ArrowPrimitiveType>(a: &ArrayRef, i: usize, b: &ArrayRef, j: usize) -> Ordering
where
    T::Native: Ord,
{
    a.as_primitive::<T>().value(i).cmp(&b.as_primitive::<T>().value(j))
}

fn floats(a: f64, b: f64) -> Ordering {
    // What does not compare holds a NaN.
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

fn compare_present(a: &ArrayRef, i: usize, b: &ArrayRef, j: usize) -> Ordering {
    match a.data_type() {
        DataType::Boolean => a.as_boolean().value(i).cmp(&b.as_boolean().value(j)),
        DataType::Int16 => integers::<Int16Type>(a, i, b, j),
        DataType::Int32 => integers::<Int32Type>(a, i, b, j),
        DataType::Int64 => integers::<Int64Type>(a, i, b, j),
        DataType::Date32 => integers::<Date32Type>(a, i, b, j),
        DataType::Time64(TimeUnit::Microsecond) => integers::<Time64MicrosecondType>(a, i, b, j),
        DataType::Timestamp(TimeUnit::Microsecond, _) => integers::<TimestampMicrosecondType>(a, i, b, j),
        DataType::Decimal128(_, _) => integers::<Decimal128Type>(a, i, b, j),
        DataType::Float32 => floats(
            a.as_primitive::<Float32Type>().value(i).into(),
            b.as_primitive::<Float32Type>().value(j).into(),
        ),
        DataType::Float64 => {
            floats(a.as_primitive::<Float64Type>().value(i), b.as_primitive::<Float64Type>().value(j))
        }
        DataType::Utf8 => a.as_string::<i32>().value(i).cmp(b.as_string::<i32>().value(j)),
        DataType::Binary => a.as_binary::<i32>().value(i).cmp(b.as_binary::<i32>().value(j)),
        data_type => {
            let codec = KeyCodec::new(vec![data_type.clone()]);
            let (mut x, mut y) = (Vec::new(), Vec::new());
            codec.encode(std::slice::from_ref(a), i, &mut x);
            codec.encode(std::slice::from_ref(b), j, &mut y);
            x.cmp(&y)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::row_eq::same_value;
    use crate::state::random::{all_types, column, rng};

    #[test]
    fn rows_sort_and_equal_as_their_encoded_keys_do() {
        let mut random = rng();
        for data_type in all_types() {
            let column = column(&mut random, &data_type, 40, true);
            for (descending, nulls_first) in [(false, false), (true, false), (false, true), (true, true)] {
                let order = KeyOrder { descending, nulls_first };
                let codec = KeyCodec::with_orders(vec![data_type.clone()], vec![order]);
                let keys = codec.encode_all(std::slice::from_ref(&column), 40, None);
                let rows = RowOrder::new(vec![(0, order)]);
                let columns = [column.clone()];
                for i in 0..40 {
                    for j in 0..40 {
                        let expected = keys.get(i).cmp(keys.get(j));
                        assert_eq!(rows.compare(&columns, i, &columns, j), expected, "{data_type} {order:?}");
                        let same = same_value(&column, i, &column, j);
                        assert_eq!(same, expected == Ordering::Equal, "{data_type}");
                    }
                }
            }
        }
    }
}
