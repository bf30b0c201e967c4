//! TUMBLE and HOP: time windows as relations in FROM.
//!
//! ```text
//!   TUMBLE(t, ts, size [, offset])           HOP(t, ts, slide, size [, offset])
//!   TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), size))
//!
//!   row (ts)  ──  assign_windows  ──  row, window_start, window_end   once per window it falls in
//! ```
//! A row whose time is NULL falls in no window. Windows are half-open, `[start, end)`, and of the
//! type of the time column. [`WindowNode`] is the logical plan's node; batch and streaming
//! execution both go by [`expand`].

use crate::plan::WindowKind;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, TimestampMicrosecondArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, SchemaRef, TimeUnit, TimestampMicrosecondType};
use arrow::error::ArrowError;
use datafusion_common::{DFSchema, DFSchemaRef, Result, plan_datafusion_err};
use datafusion_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore};
use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The column that says when a row's window starts.
pub const WINDOW_START: &str = "window_start";
/// The column that says when it ends.
pub const WINDOW_END: &str = "window_end";

/// The windows that a row at `ts_us` falls in, earliest first: start and end in microseconds.
/// Windows beyond the range of a timestamp are left out.
pub fn assign_windows(kind: WindowKind, ts_us: i64) -> impl Iterator<Item = (i64, i64)> {
    let (size, slide, offset) = kind.parts();
    let (size, slide) = (i128::from(size), i128::from(slide));
    let ts = i128::from(ts_us);
    // The latest window that has started; the earlier ones follow by steps of the slide.
    let last = ts - (ts - i128::from(offset)).rem_euclid(slide);
    let count = if last + size > ts { (last + size - ts - 1) / slide + 1 } else { 0 };
    (0..count).rev().filter_map(move |i| {
        let start = last - i * slide;
        Some((i64::try_from(start).ok()?, i64::try_from(start + size).ok()?))
    })
}

/// Which input rows come out, in order, and the bounds of their windows.
pub struct Assigned {
    /// The input row of each output row.
    pub rows: UInt32Array,
    /// `window_start` of each output row.
    pub starts: ArrayRef,
    /// `window_end` of each output row.
    pub ends: ArrayRef,
}

/// Assigns windows to all rows of a time column.
pub fn assign_all(kind: WindowKind, time: &dyn Array) -> Result<Assigned, ArrowError> {
    let DataType::Timestamp(TimeUnit::Microsecond, zone) = time.data_type() else {
        return Err(ArrowError::InvalidArgumentError(format!("a window over {}", time.data_type())));
    };
    let values = time.as_primitive::<TimestampMicrosecondType>();
    let (mut rows, mut starts, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    for row in 0..values.len() {
        if values.is_null(row) {
            continue;
        }
        for (start, end) in assign_windows(kind, values.value(row)) {
            rows.push(row as u32);
            starts.push(start);
            ends.push(end);
        }
    }
    let column = |values: Vec<i64>| -> ArrayRef {
        Arc::new(TimestampMicrosecondArray::from(values).with_timezone_opt(zone.clone()))
    };
    Ok(Assigned { rows: UInt32Array::from(rows), starts: column(starts), ends: column(ends) })
}

/// The rows of `batch`, once per window that they fall in, with the window's bounds appended.
/// `schema` is the output's.
pub fn expand(
    kind: WindowKind,
    time: usize,
    batch: &RecordBatch,
    schema: SchemaRef,
) -> Result<RecordBatch, ArrowError> {
    let assigned = assign_all(kind, batch.column(time))?;
    let mut columns = Vec::with_capacity(batch.num_columns() + 2);
    for column in batch.columns() {
        columns.push(take(column, &assigned.rows, None)?);
    }
    columns.push(assigned.starts);
    columns.push(assigned.ends);
    RecordBatch::try_new(schema, columns)
}

/// A window table function in a logical plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowNode {
    /// The windows.
    pub kind: WindowKind,
    /// The time column, of the input's columns.
    pub time: Expr,
    /// The rows.
    pub input: Arc<LogicalPlan>,
    /// The input's columns, then `window_start` and `window_end`.
    pub schema: DFSchemaRef,
}

impl WindowNode {
    /// Windows over `input` by its column `time`.
    pub fn try_new(kind: WindowKind, time: Expr, input: Arc<LogicalPlan>) -> Result<Self> {
        let index = time_index(&time, input.schema())?;
        let (qualifier, field) = input.schema().qualified_field(index);
        let bound =
            |name: &str| (qualifier.cloned(), Arc::new(Field::new(name, field.data_type().clone(), false)));
        let mut fields: Vec<_> = input.schema().iter().map(|(q, f)| (q.cloned(), Arc::clone(f))).collect();
        fields.push(bound(WINDOW_START));
        fields.push(bound(WINDOW_END));
        let schema = DFSchema::new_with_metadata(fields, input.schema().metadata().clone())?;
        Ok(Self { kind, time, input, schema: Arc::new(schema) })
    }

    /// The ordinal of the time column in the input.
    pub fn time_index(&self) -> Result<usize> {
        time_index(&self.time, self.input.schema())
    }
}

fn time_index(time: &Expr, schema: &DFSchema) -> Result<usize> {
    match time {
        Expr::Column(column) => schema.index_of_column(column),
        other => Err(plan_datafusion_err!("the time of a window must be a column, not {other}")),
    }
}

impl Hash for WindowNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.time.hash(state);
        self.input.hash(state);
        std::mem::discriminant(&self.kind).hash(state);
        self.kind.parts().hash(state);
    }
}

impl PartialOrd for WindowNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        if self == other {
            return Some(Ordering::Equal);
        }
        let order = (self.kind.parts(), &self.time, &*self.input).partial_cmp(&(
            other.kind.parts(),
            &other.time,
            &*other.input,
        ));
        order.filter(|o| *o != Ordering::Equal)
    }
}

impl UserDefinedLogicalNodeCore for WindowNode {
    fn name(&self) -> &str {
        "Window"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![self.time.clone()]
    }

    /// Predicates on the input's columns hold before the windows as well as after; those on the
    /// bounds don't exist before.
    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        HashSet::from([WINDOW_START.to_owned(), WINDOW_END.to_owned()])
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Window: {} by {}", self.kind, self.time)
    }

    fn with_exprs_and_inputs(&self, mut exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        match (exprs.pop(), inputs.pop()) {
            (Some(time), Some(input)) => Self::try_new(self.kind, time, Arc::new(input)),
            _ => Err(plan_datafusion_err!("a window has one time column and one input")),
        }
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let arity = self.input.schema().fields().len();
        let mut needed: Vec<usize> = output_columns.iter().copied().filter(|c| *c < arity).collect();
        needed.push(self.time_index().ok()?);
        needed.sort_unstable();
        needed.dedup();
        Some(vec![needed])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(kind: WindowKind, ts: i64) -> Vec<(i64, i64)> {
        assign_windows(kind, ts).collect()
    }

    #[test]
    fn tumble_floors_also_below_zero() {
        let kind = WindowKind::Tumble { size_us: 10, offset_us: 0 };
        assert_eq!(windows(kind, 0), [(0, 10)]);
        assert_eq!(windows(kind, 9), [(0, 10)]);
        assert_eq!(windows(kind, -1), [(-10, 0)]);
        let shifted = WindowKind::Tumble { size_us: 10, offset_us: 3 };
        assert_eq!(windows(shifted, 2), [(-7, 3)]);
        assert_eq!(windows(shifted, 3), [(3, 13)]);
        assert_eq!(windows(kind, i64::MAX), []);
    }

    #[test]
    fn hop_gives_every_window_that_covers_the_time() {
        let kind = WindowKind::Hop { size_us: 10, slide_us: 2, offset_us: 0 };
        assert_eq!(windows(kind, 9), [(0, 10), (2, 12), (4, 14), (6, 16), (8, 18)]);
        let uneven = WindowKind::Hop { size_us: 10, slide_us: 4, offset_us: 0 };
        assert_eq!(windows(uneven, 9), [(0, 10), (4, 14), (8, 18)]);
        assert_eq!(windows(uneven, 10), [(4, 14), (8, 18)]);
        let gaps = WindowKind::Hop { size_us: 2, slide_us: 10, offset_us: 0 };
        assert_eq!(windows(gaps, 1), [(0, 2)]);
        assert_eq!(windows(gaps, 5), []);
    }

    #[test]
    fn null_times_fall_in_no_window() {
        let time = TimestampMicrosecondArray::from(vec![Some(5), None, Some(15)]);
        let assigned =
            assign_all(WindowKind::Tumble { size_us: 10, offset_us: 0 }, &time).expect("timestamps");
        assert_eq!(assigned.rows.values(), &[0, 2]);
        let starts = assigned.starts.as_primitive::<TimestampMicrosecondType>();
        assert_eq!(starts.values(), &[0, 10]);
    }
}
