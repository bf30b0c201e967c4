//! `(start, end) OVERLAPS (start, end)`, where an end may be the length instead, and either may be
//! NULL as far as that leaves the answer certain.

use super::operator::Op;
use super::operator_time::times;
use super::scalar::{Function, Kernel};
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use datafusion_common::Result;
use std::sync::Arc;

/// The function that the operator is.
pub const OVERLAPS: &str = "overlaps";

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    vec![Function::new(OVERLAPS, coerce, |_, _| DataType::Boolean, Kernel::Columns(overlaps))]
}

/// Four times of one type, or intervals in place of ends.
fn coerce(types: &[DataType]) -> Option<Vec<DataType>> {
    let [start, end, other_start, other_end] = types else { return None };
    let points = [start, end, other_start, other_end].into_iter();
    let points = points.filter(|t| !matches!(t, DataType::Interval(_) | DataType::Null));
    let mut common: Option<DataType> = None;
    for point in points {
        let point = match point {
            DataType::Date32 => DataType::Timestamp(TimeUnit::Microsecond, None),
            // A quoted one is what the others are.
            DataType::Utf8 => continue,
            time @ (DataType::Timestamp(TimeUnit::Microsecond, _) | DataType::Time64(_)) => time.clone(),
            _ => return None,
        };
        common = Some(match common {
            None => point,
            Some(known) if known == point => known,
            Some(DataType::Timestamp(unit, known)) => match point {
                DataType::Timestamp(_, zone) => DataType::Timestamp(unit, known.or(zone)),
                _ => return None,
            },
            Some(_) => return None,
        });
    }
    let common = common?;
    let of = |t: &DataType| if matches!(t, DataType::Interval(_)) { t.clone() } else { common.clone() };
    let is_point = |t: &DataType| !matches!(t, DataType::Interval(_));
    (is_point(start) && is_point(other_start)).then(|| types.iter().map(of).collect())
}

fn overlaps(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let end = |start: &ArrayRef, end: &ArrayRef| match end.data_type() {
        DataType::Interval(_) => times(Op::Plus, start, end, start.data_type()),
        _ => Ok(Arc::clone(end)),
    };
    let columns =
        [Arc::clone(&args[0]), end(&args[0], &args[1])?, Arc::clone(&args[2]), end(&args[2], &args[3])?];
    let columns = columns.map(|column| cast(&column, &DataType::Int64));
    let [a, b, c, d] = columns;
    let columns = [a?, b?, c?, d?];
    let at = |column: &ArrayRef, row: usize| {
        column.is_valid(row).then(|| column.as_primitive::<Int64Type>().value(row))
    };
    let row = |row: usize| {
        overlap((at(&columns[0], row), at(&columns[1], row)), (at(&columns[2], row), at(&columns[3], row)))
    };
    Ok(Arc::new((0..args[0].len()).map(row).collect::<BooleanArray>()))
}

/// A range with its earlier end first; one that is known alone is the first.
fn in_order((start, end): (Option<i64>, Option<i64>)) -> Option<(i64, Option<i64>)> {
    match (start, end) {
        (Some(start), Some(end)) => Some((start.min(end), Some(start.max(end)))),
        (Some(only), None) | (None, Some(only)) => Some((only, None)),
        (None, None) => None,
    }
}

/// Whether two ranges, each without its end unless it is a point, have a moment in common.
fn overlap(first: (Option<i64>, Option<i64>), second: (Option<i64>, Option<i64>)) -> Option<bool> {
    let ((start, end), (other_start, other_end)) = (in_order(first)?, in_order(second)?);
    if start == other_start {
        return (end.is_some() && other_end.is_some()).then_some(true);
    }
    // The later start, the earlier range's end, and the later range's.
    let (later, earlier_end, later_end) =
        if start > other_start { (start, other_end, end) } else { (other_start, end, other_end) };
    match earlier_end? {
        earlier_end if later < earlier_end => Some(true),
        _ => later_end.map(|_| false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_overlap_as_postgres_says() {
        let of = |a, b, c, d| overlap((a, b), (c, d));
        assert_eq!(of(Some(1), Some(3), Some(2), Some(4)), Some(true));
        assert_eq!(of(Some(1), Some(2), Some(2), Some(4)), Some(false));
        assert_eq!(of(Some(3), Some(1), Some(2), Some(2)), Some(true));
        assert_eq!(of(Some(1), Some(1), Some(1), Some(1)), Some(true));
        assert_eq!(of(Some(1), None, Some(2), Some(3)), None);
        assert_eq!(of(Some(1), Some(9), None, Some(3)), Some(true));
        assert_eq!(of(Some(1), Some(2), Some(3), None), None);
        assert_eq!(of(None, None, Some(3), Some(4)), None);
        assert_eq!(of(Some(1), Some(3), Some(1), None), None);
    }
}
