//! Whether a group's results are what they were.

use crate::dataflow::operator::OperatorError;
use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::compute::and;
use arrow::compute::kernels::cmp::not_distinct;
use arrow::row::{RowConverter, SortField};

/// Which rows are the same in all columns; NULL is the same as NULL.
pub(super) fn same_rows(
    before: &[ArrayRef],
    now: &[ArrayRef],
    rows: usize,
) -> Result<BooleanArray, OperatorError> {
    let mut same: Option<BooleanArray> = None;
    for (before, now) in before.iter().zip(now) {
        let column = if before.data_type().is_nested() {
            let converter = RowConverter::new(vec![SortField::new(before.data_type().clone())])?;
            let before = converter.convert_columns(std::slice::from_ref(before))?;
            let now = converter.convert_columns(std::slice::from_ref(now))?;
            before.iter().zip(now.iter()).map(|(before, now)| Some(before == now)).collect()
        } else {
            not_distinct(before, now)?
        };
        same = Some(match same {
            Some(same) => and(&same, &column)?,
            None => column,
        });
    }
    Ok(same.unwrap_or_else(|| BooleanArray::from(vec![true; rows])))
}
