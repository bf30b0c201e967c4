//! Window: assigns tumbling and hopping windows.
//!
//! ```text
//!   hop(slide 2, size 6)      w0 ├───────────┤            a row at t falls into the windows whose
//!                             w1     ├───────────┤        start lies in (t - size, t]
//!                             w2         ├───────────┤
//!                                            t
//! ```
//! Appends `window_start` and `window_end`. Rows without a time fall into no window. Where the size
//! is a multiple of the slide every row falls into size / slide windows: the output is that many
//! batches that share the input's columns.

use super::expr::nullable;
use crate::dataflow::operator::{Operator, OperatorError, Output, Progress};
use crate::stream::builder::batch_of;
use crate::stream::watermark::END_US;
use crate::stream::{ChangeBatch, Watermark};
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, PrimitiveArray};
use arrow::compute::is_not_null;
use arrow::datatypes::{DataType, SchemaRef, TimeUnit, TimestampMicrosecondType};
use std::collections::VecDeque;
use std::sync::Arc;
use weir_sql::plan::WindowKind;

/// The windows that a time falls in, as numbers.
#[derive(Clone, Copy, Debug)]
struct Windows {
    size_us: i64,
    slide_us: i64,
    offset_us: i64,
}

impl Windows {
    fn new(kind: WindowKind) -> Self {
        match kind {
            WindowKind::Tumble { size_us, offset_us } => Self { size_us, slide_us: size_us, offset_us },
            WindowKind::Hop { size_us, slide_us, offset_us } => Self { size_us, slide_us, offset_us },
        }
    }

    /// How many windows a time falls in at most.
    fn count(self) -> i64 {
        (self.size_us + self.slide_us - 1) / self.slide_us
    }

    /// The start of the last window that starts at or before `time_us`.
    #[inline]
    fn last_start(self, time_us: i64) -> i64 {
        time_us.wrapping_sub(time_us.wrapping_sub(self.offset_us).rem_euclid(self.slide_us))
    }

    /// The start of the first window that `time_us`, or any later time, falls in.
    fn first_start(self, time_us: i64) -> i64 {
        self.last_start(time_us.wrapping_sub(self.size_us)).wrapping_add(self.slide_us)
    }

    fn has_gaps(self) -> bool {
        self.size_us % self.slide_us != 0
    }
}

/// Appends the windows that each row falls in.
#[derive(Debug)]
pub struct Window {
    windows: Windows,
    time: usize,
    schema: SchemaRef,

    /// What is left of the batch in hand, and the next window of it to emit.
    rest: VecDeque<(ChangeBatch, i64)>,
}

impl Window {
    /// Assigns windows of `kind` by the column `time`; `schema` is the output's: the input's
    /// columns, then start and end.
    pub fn new(kind: WindowKind, time: usize, schema: SchemaRef) -> Self {
        let windows = Windows::new(kind);
        assert!(windows.size_us > 0 && windows.slide_us > 0, "the planner refuses empty windows");
        Self { windows, time, schema: nullable(&schema), rest: VecDeque::new() }
    }

    fn emit(&mut self, out: &mut Output) -> Result<Progress, OperatorError> {
        while let Some((batch, next)) = self.rest.pop_front() {
            if out.is_full() {
                self.rest.push_front((batch, next));
                return Ok(Progress::More);
            }
            if next + 1 < self.windows.count() {
                self.rest.push_front((batch.clone(), next + 1));
            }
            out.push(self.assign(&batch, next)?);
        }
        Ok(Progress::Done)
    }

    /// The rows with the `index`th last of the windows that they fall in.
    fn assign(&self, batch: &ChangeBatch, index: i64) -> Result<ChangeBatch, OperatorError> {
        let windows = self.windows;
        let times = as_micros(batch.column(self.time))?;
        let back = index.wrapping_mul(windows.slide_us);
        let starts: Vec<i64> =
            times.values().iter().map(|t| windows.last_start(*t).wrapping_sub(back)).collect();
        let ends: Vec<i64> = starts.iter().map(|s| s.wrapping_add(windows.size_us)).collect();
        let within: Option<BooleanArray> = windows
            .has_gaps()
            .then(|| ends.iter().zip(times.values()).map(|(end, time)| Some(time < end)).collect());
        let width = self.schema.fields().len();
        let mut columns = batch.rows().columns().to_vec();
        columns.push(self.time_column(width - 2, starts));
        columns.push(self.time_column(width - 1, ends));
        let assigned = batch.with_rows(batch_of(&self.schema, columns, batch.num_rows())?);
        match within {
            Some(within) if within.true_count() < batch.num_rows() => Ok(assigned.filter(&within)?),
            _ => Ok(assigned),
        }
    }

    fn time_column(&self, index: usize, values: Vec<i64>) -> ArrayRef {
        let values = PrimitiveArray::<TimestampMicrosecondType>::new(values.into(), None);
        Arc::new(values.with_data_type(self.schema.field(index).data_type().clone()))
    }
}

fn as_micros(column: &ArrayRef) -> Result<&PrimitiveArray<TimestampMicrosecondType>, OperatorError> {
    match column.data_type() {
        DataType::Timestamp(TimeUnit::Microsecond, _) => Ok(column.as_primitive()),
        other => Err(OperatorError::Internal(format!("windows over {other}, which is no timestamp"))),
    }
}

impl Operator for Window {
    fn name(&self) -> &'static str {
        "window"
    }

    fn on_change(
        &mut self,
        _port: usize,
        batch: ChangeBatch,
        out: &mut Output,
    ) -> Result<Progress, OperatorError> {
        let times = batch.column(self.time);
        let timed = if times.null_count() > 0 { batch.filter(&is_not_null(times)?)? } else { batch };
        if !timed.is_empty() {
            self.rest.push_back((timed, 0));
        }
        self.emit(out)
    }

    fn on_watermark(
        &mut self,
        _port: usize,
        watermark: Watermark,
        out: &mut Output,
    ) -> Result<Progress, OperatorError> {
        out.push_watermark(watermark);
        if watermark.column == self.time {
            let width = self.schema.fields().len();
            let (start, end) = match watermark.time_us {
                END_US => (END_US, END_US),
                time_us => {
                    let start = self.windows.first_start(time_us);
                    (start, start.wrapping_add(self.windows.size_us))
                }
            };
            out.push_watermark(Watermark { column: width - 2, time_us: start });
            out.push_watermark(Watermark { column: width - 1, time_us: end });
        }
        Ok(Progress::Done)
    }

    fn resume(&mut self, out: &mut Output) -> Result<Progress, OperatorError> {
        self.emit(out)
    }

    fn memory(&self) -> usize {
        self.rest.iter().map(|(batch, _)| batch.memory()).sum()
    }
}

#[cfg(test)]
#[path = "tests/window.rs"]
mod tests;
