//! Row equality: whether two values, or two rows of them, are the same.
//!
//! The same means SQL's IS NOT DISTINCT FROM, with -0.0 the same as 0.0 and every NaN the same as
//! any other: what hashes alike ([`crate::stream::vnode`]) and encodes to the same key
//! ([`crate::state::key`]).

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    IntervalMonthDayNanoType, IntervalUnit, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
};

/// Whether value `i` of `a` is the same as value `j` of `b`, a column of the same type.
pub fn same_value(a: &ArrayRef, i: usize, b: &ArrayRef, j: usize) -> bool {
    match (a.is_null(i), b.is_null(j)) {
        (false, false) => same_present(a, i, b, j),
        (x, y) => x == y,
    }
}

/// Whether the columns `columns` of row `i` of `a` are the same as those of row `j` of `b`.
pub fn same_row(a: &[ArrayRef], i: usize, b: &[ArrayRef], j: usize, columns: &[usize]) -> bool {
    columns.iter().all(|c| same_value(&a[*c], i, &b[*c], j))
}

#[inline]
fn primitive<T: ArrowPrimitiveType>(a: &ArrayRef, i: usize, b: &ArrayRef, j: usize) -> bool
where
    T::Native: PartialEq,
{
    a.as_primitive::<T>().value(i) == b.as_primitive::<T>().value(j)
}

fn same_present(a: &ArrayRef, i: usize, b: &ArrayRef, j: usize) -> bool {
    match a.data_type() {
        DataType::Boolean => a.as_boolean().value(i) == b.as_boolean().value(j),
        DataType::Int16 => primitive::<Int16Type>(a, i, b, j),
        DataType::Int32 => primitive::<Int32Type>(a, i, b, j),
        DataType::Int64 => primitive::<Int64Type>(a, i, b, j),
        DataType::Date32 => primitive::<Date32Type>(a, i, b, j),
        DataType::Time64(TimeUnit::Microsecond) => primitive::<Time64MicrosecondType>(a, i, b, j),
        DataType::Timestamp(TimeUnit::Microsecond, _) => primitive::<TimestampMicrosecondType>(a, i, b, j),
        DataType::Decimal128(_, _) => primitive::<Decimal128Type>(a, i, b, j),
        DataType::Interval(IntervalUnit::MonthDayNano) => primitive::<IntervalMonthDayNanoType>(a, i, b, j),
        DataType::Float32 => {
            let (x, y) = (a.as_primitive::<Float32Type>().value(i), b.as_primitive::<Float32Type>().value(j));
            x == y || (x.is_nan() && y.is_nan())
        }
        DataType::Float64 => {
            let (x, y) = (a.as_primitive::<Float64Type>().value(i), b.as_primitive::<Float64Type>().value(j));
            x == y || (x.is_nan() && y.is_nan())
        }
        DataType::Utf8 => a.as_string::<i32>().value(i) == b.as_string::<i32>().value(j),
        DataType::Binary => a.as_binary::<i32>().value(i) == b.as_binary::<i32>().value(j),
        DataType::List(_) => {
            let (x, y) = (a.as_list::<i32>().value(i), b.as_list::<i32>().value(j));
            x.len() == y.len() && (0..x.len()).all(|k| same_value(&x, k, &y, k))
        }
        DataType::Struct(_) => {
            let (x, y) = (a.as_struct().columns(), b.as_struct().columns());
            x.iter().zip(y).all(|(x, y)| same_value(x, i, y, j))
        }
        // Types that SQL has no name for in Weir: compare what Arrow says of one-row slices.
        _ => a.slice(i, 1).to_data() == b.slice(j, 1).to_data(),
    }
}

/// Whether the vnode hash of a single, present key of this type is equal only where the key is:
/// integers of at most 64 bits are hashed by a bijection.
pub fn hash_is_exact(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Boolean
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Date32
            | DataType::Time64(TimeUnit::Microsecond)
            | DataType::Timestamp(TimeUnit::Microsecond, _)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Float64Array, Int64Array, ListArray, StringArray};
    use std::sync::Arc;

    #[test]
    fn null_is_the_same_as_null_and_zero_as_minus_zero() {
        let floats: ArrayRef =
            Arc::new(Float64Array::from(vec![Some(0.0), Some(-0.0), Some(f64::NAN), Some(-f64::NAN), None]));
        assert!(same_value(&floats, 0, &floats, 1));
        assert!(same_value(&floats, 2, &floats, 3));
        assert!(same_value(&floats, 4, &floats, 4));
        assert!(!same_value(&floats, 0, &floats, 4));
        assert!(!same_value(&floats, 0, &floats, 2));
    }

    #[test]
    fn rows_are_compared_column_by_column() {
        let a: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![1, 1, 2])),
            Arc::new(StringArray::from(vec![Some("x"), Some("y"), None])),
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([
                Some(vec![Some(1), None]),
                Some(vec![Some(1), None]),
                Some(vec![Some(1)]),
            ])),
        ];
        assert!(same_row(&a, 0, &a, 1, &[0, 2]));
        assert!(!same_row(&a, 0, &a, 1, &[0, 1]));
        assert!(!same_row(&a, 1, &a, 2, &[2]));
        assert!(same_row(&a, 2, &a, 2, &[0, 1, 2]));
    }
}
