//! Sums and averages of intervals: months, days and time add up apart, as PostgreSQL adds them.

use super::accumulator::{Accumulator, Rows, Wish, gather, kept, refused, scatter};
use super::expr::ErrorCounter;
use crate::dataflow::operator::OperatorError;
use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::datatypes::{
    DataType, Decimal128Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_sql::functions::aggregate::average_interval;
use weir_sql::plan::AggregateFunction;

/// Sums of intervals. A sum of which a part is out of range is NULL and counted.
#[derive(Debug)]
pub(super) struct IntervalSums {
    errors: ErrorCounter,

    months: Vec<i64>,
    days: Vec<i64>,
    nanos: Vec<i128>,
    counts: Vec<i64>,
}

impl IntervalSums {
    pub fn new(errors: &ErrorCounter) -> Self {
        let errors = Arc::clone(errors);
        Self { errors, months: Vec::new(), days: Vec::new(), nanos: Vec::new(), counts: Vec::new() }
    }

    fn sum(&self, group: usize) -> Option<IntervalMonthDayNano> {
        let months = i32::try_from(self.months[group]).ok();
        let days = i32::try_from(self.days[group]).ok();
        let nanos = i64::try_from(self.nanos[group]).ok();
        if let (Some(months), Some(days), Some(nanos)) = (months, days, nanos) {
            return Some(IntervalMonthDayNano::new(months, days, nanos));
        }
        self.errors.fetch_add(1, Ordering::Relaxed);
        None
    }
}

impl Accumulator for IntervalSums {
    fn grow(&mut self, groups: usize) {
        self.months.resize(groups, 0);
        self.days.resize(groups, 0);
        self.nanos.resize(groups, 0);
        self.counts.resize(groups, 0);
    }

    fn clear(&mut self, group: u32) {
        let group = group as usize;
        (self.months[group], self.days[group], self.nanos[group]) = (0, 0, 0);
        self.counts[group] = 0;
    }

    fn keep(&mut self, groups: &[u32]) {
        self.months = kept(&self.months, groups);
        self.days = kept(&self.days, groups);
        self.nanos = kept(&self.nanos, groups);
        self.counts = kept(&self.counts, groups);
    }

    fn update(&mut self, rows: Rows<'_>, column: Option<&ArrayRef>) -> Result<(), OperatorError> {
        let Some(column) = column else {
            return Err(OperatorError::Internal("a sum has an argument".to_owned()));
        };
        let values = column.as_primitive::<IntervalMonthDayNanoType>().values();
        rows.for_each(column.nulls(), |row, group, diff| {
            let value = values[row];
            self.months[group] += i64::from(value.months) * diff;
            self.days[group] += i64::from(value.days) * diff;
            self.nanos[group] += i128::from(value.nanoseconds) * i128::from(diff);
            self.counts[group] += diff;
        });
        Ok(())
    }

    fn output(&self, wish: &Wish, groups: &[u32]) -> Result<ArrayRef, OperatorError> {
        let function = wish.function;
        let value = |group: &u32| {
            let count = self.counts[*group as usize];
            if count <= 0 {
                return None;
            }
            let sum = self.sum(*group as usize);
            if function == AggregateFunction::Avg { sum.map(|s| average_interval(s, count)) } else { sum }
        };
        match (function, &wish.data_type) {
            (AggregateFunction::Count, _) => Ok(gather(&self.counts, groups)),
            (
                AggregateFunction::Sum | AggregateFunction::Avg,
                DataType::Interval(IntervalUnit::MonthDayNano),
            ) => {
                let values: PrimitiveArray<IntervalMonthDayNanoType> = groups.iter().map(value).collect();
                Ok(Arc::new(values))
            }
            _ => Err(refused("a sum of intervals", wish)),
        }
    }

    fn state_types(&self) -> Vec<DataType> {
        vec![DataType::Int64, DataType::Int64, DataType::Decimal128(38, 0), DataType::Int64]
    }

    fn state(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        let nanos = groups.iter().map(|g| self.nanos[*g as usize]);
        let nanos = PrimitiveArray::<Decimal128Type>::from_iter_values(nanos)
            .with_data_type(DataType::Decimal128(38, 0));
        Ok(vec![
            gather(&self.months, groups),
            gather(&self.days, groups),
            Arc::new(nanos),
            gather(&self.counts, groups),
        ])
    }

    fn load(&mut self, groups: &[u32], state: &[ArrayRef]) {
        scatter(&mut self.months, groups, &state[0]);
        scatter(&mut self.days, groups, &state[1]);
        for (group, nanos) in groups.iter().zip(state[2].as_primitive::<Decimal128Type>().values()) {
            self.nanos[*group as usize] = *nanos;
        }
        scatter(&mut self.counts, groups, &state[3]);
    }

    fn memory(&self) -> usize {
        self.counts.capacity() * (8 + 8 + 16 + 8)
    }
}
