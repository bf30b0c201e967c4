//! Sums and averages, exact under retraction.
//!
//! | argument | kept a group | result |
//! | --- | --- | --- |
//! | smallint, int | i64 | sum: bigint; avg: numeric |
//! | bigint, numeric | i128, and how often it wrapped | numeric |
//! | interval | its three parts | interval, see [`super::interval_sum`] |
//! | real, double | two f64 (double-double), and counts of NaN and the infinities | real or double |
//!
//! Integer sums wrap, so that only the final sum must fit, in whatever order rows came and went; one
//! that does not fit is NULL and counted as a failed expression. Floats: see [`super::float_sum`].

use super::accumulator::{Accumulator, Rows, Wish, gather, kept, refused, scatter};
use super::expr::ErrorCounter;
use super::float_sum::FloatSums;
use super::interval_sum::IntervalSums;
use crate::dataflow::operator::OperatorError;
use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Int64Array, PrimitiveArray};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Decimal128Type, Int16Type, Int32Type, Int64Type, IntervalUnit,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_sql::functions::aggregate::average;
use weir_sql::plan::AggregateFunction;

/// The least number with more than 38 digits.
const DECIMAL_END: i128 = 10i128.pow(38);

/// The accumulator of sums and averages of an argument of `data_type`, if it has any.
pub fn sums_of(data_type: &DataType, errors: &ErrorCounter) -> Option<Box<dyn Accumulator>> {
    match data_type {
        DataType::Int16 | DataType::Int32 => {
            Some(Box::new(NarrowSums { errors: Arc::clone(errors), ..Default::default() }))
        }
        DataType::Int64 => Some(Box::new(WideSums::new(0, errors))),
        DataType::Decimal128(_, scale) => Some(Box::new(WideSums::new(*scale, errors))),
        DataType::Float32 | DataType::Float64 => Some(Box::new(FloatSums::default())),
        DataType::Interval(IntervalUnit::MonthDayNano) => Some(Box::new(IntervalSums::new(errors))),
        _ => None,
    }
}

/// What a few groups have, for those that are kept.
pub(super) fn kept_sparse<T: Copy>(values: &HashMap<u32, T>, groups: &[u32]) -> HashMap<u32, T> {
    if values.is_empty() {
        return HashMap::new();
    }
    let value = |(new, old): (usize, &u32)| values.get(old).map(|value| (new as u32, *value));
    groups.iter().enumerate().filter_map(value).collect()
}

pub(super) fn argument(column: Option<&ArrayRef>) -> Result<&ArrayRef, OperatorError> {
    column.ok_or_else(|| OperatorError::Internal("a sum has an argument".to_owned()))
}

/// Divides in 128 bits if they suffice, rounding half away from zero, as PostgreSQL's numeric does.
fn divide(sum: i128, scale_up: u32, count: i64) -> Option<i128> {
    if let Some(scaled) = 10i128.checked_pow(scale_up).and_then(|f| sum.checked_mul(f)) {
        let count = i128::from(count);
        let (quotient, remainder) = (scaled / count, scaled % count);
        let up = remainder.unsigned_abs() * 2 >= count.unsigned_abs();
        return Some(quotient + if up { scaled.signum() } else { 0 });
    }
    average(sum, count, 0, i8::try_from(scale_up).ok()?)
}

/// Averages of exact sums (none: it did not fit) as a decimal column of `wish`'s type.
fn averages(
    wish: &Wish,
    scale: i8,
    sums: impl Iterator<Item = (Option<i128>, i64)>,
    errors: &ErrorCounter,
) -> Result<ArrayRef, OperatorError> {
    let DataType::Decimal128(precision, to) = wish.data_type else {
        return Err(refused("an average", wish));
    };
    let up = u32::try_from(to - scale).map_err(|_| refused("an average", wish))?;
    let quotient = |(sum, count): (Option<i128>, i64)| {
        if count <= 0 {
            return None;
        }
        fits(sum.and_then(|sum| divide(sum, up, count)), errors)
    };
    let values: Decimal128Array = sums.map(quotient).collect();
    Ok(Arc::new(values.with_data_type(DataType::Decimal128(precision, to))))
}

/// A decimal that fits in 38 digits; one that does not is counted and NULL.
fn fits(value: Option<i128>, errors: &ErrorCounter) -> Option<i128> {
    let value = value.filter(|v| -DECIMAL_END < *v && *v < DECIMAL_END);
    if value.is_none() {
        errors.fetch_add(1, Ordering::Relaxed);
    }
    value
}

/// Sums of 16 and 32 bit integers.
#[derive(Debug, Default)]
struct NarrowSums {
    errors: ErrorCounter,
    sums: Vec<i64>,
    counts: Vec<i64>,
}

impl NarrowSums {
    fn add<T: ArrowPrimitiveType>(&mut self, rows: Rows<'_>, column: &ArrayRef)
    where
        i64: From<T::Native>,
    {
        let column = column.as_primitive::<T>();
        let values = column.values();
        rows.for_each(column.nulls(), |row, group, diff| {
            self.sums[group] = self.sums[group].wrapping_add(i64::from(values[row]).wrapping_mul(diff));
            self.counts[group] += diff;
        });
    }
}

impl Accumulator for NarrowSums {
    fn grow(&mut self, groups: usize) {
        self.sums.resize(groups, 0);
        self.counts.resize(groups, 0);
    }

    fn clear(&mut self, group: u32) {
        self.sums[group as usize] = 0;
        self.counts[group as usize] = 0;
    }

    fn keep(&mut self, groups: &[u32]) {
        self.sums = kept(&self.sums, groups);
        self.counts = kept(&self.counts, groups);
    }

    fn update(&mut self, rows: Rows<'_>, column: Option<&ArrayRef>) -> Result<(), OperatorError> {
        let column = argument(column)?;
        match column.data_type() {
            DataType::Int16 => self.add::<Int16Type>(rows, column),
            _ => self.add::<Int32Type>(rows, column),
        }
        Ok(())
    }

    fn output(&self, wish: &Wish, groups: &[u32]) -> Result<ArrayRef, OperatorError> {
        let pairs = groups.iter().map(|g| (self.sums[*g as usize], self.counts[*g as usize]));
        match wish.function {
            AggregateFunction::Count => Ok(gather(&self.counts, groups)),
            AggregateFunction::Sum => {
                Ok(Arc::new(pairs.map(|(sum, count)| (count > 0).then_some(sum)).collect::<Int64Array>()))
            }
            AggregateFunction::Avg => {
                averages(wish, 0, pairs.map(|(sum, count)| (Some(i128::from(sum)), count)), &self.errors)
            }
            _ => Err(refused("a sum", wish)),
        }
    }

    fn state_types(&self) -> Vec<DataType> {
        vec![DataType::Int64, DataType::Int64]
    }

    fn state(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        Ok(vec![gather(&self.sums, groups), gather(&self.counts, groups)])
    }

    fn load(&mut self, groups: &[u32], state: &[ArrayRef]) {
        scatter(&mut self.sums, groups, &state[0]);
        scatter(&mut self.counts, groups, &state[1]);
    }

    fn memory(&self) -> usize {
        (self.sums.capacity() + self.counts.capacity()) * 8
    }
}

/// Sums of 64 bit integers and decimals of `scale`.
#[derive(Debug)]
struct WideSums {
    scale: i8,
    errors: ErrorCounter,

    sums: Vec<i128>,
    counts: Vec<i64>,
    /// How often a group's sum wrapped around, upwards less downwards, where that is not zero.
    wraps: HashMap<u32, i64>,
}

impl WideSums {
    fn new(scale: i8, errors: &ErrorCounter) -> Self {
        let (sums, counts) = (Vec::new(), Vec::new());
        Self { scale, errors: Arc::clone(errors), sums, counts, wraps: HashMap::new() }
    }

    #[inline]
    fn add(&mut self, group: usize, value: i128, diff: i64) {
        self.counts[group] += diff;
        match value.checked_mul(i128::from(diff)) {
            Some(product) => self.add_once(group, product),
            None => self.add_often(group, value, diff),
        }
    }

    #[inline]
    fn add_once(&mut self, group: usize, value: i128) {
        let (sum, wrapped) = self.sums[group].overflowing_add(value);
        self.sums[group] = sum;
        if wrapped {
            self.wrap(group, if value > 0 { 1 } else { -1 });
        }
    }

    /// A value of nearly 38 digits, several times.
    #[cold]
    fn add_often(&mut self, group: usize, value: i128, diff: i64) {
        let once = if diff > 0 { value } else { -value };
        for _ in 0..diff.unsigned_abs() {
            self.add_once(group, once);
        }
    }

    #[cold]
    fn wrap(&mut self, group: usize, by: i64) {
        let wraps = self.wraps.entry(group as u32).or_insert(0);
        *wraps += by;
        if *wraps == 0 {
            self.wraps.remove(&(group as u32));
        }
    }

    /// The sum, unless it wrapped, and the count.
    fn pair(&self, group: u32) -> (Option<i128>, i64) {
        let wrapped = !self.wraps.is_empty() && self.wraps.contains_key(&group);
        ((!wrapped).then_some(self.sums[group as usize]), self.counts[group as usize])
    }
}

impl Accumulator for WideSums {
    fn grow(&mut self, groups: usize) {
        self.sums.resize(groups, 0);
        self.counts.resize(groups, 0);
    }

    fn clear(&mut self, group: u32) {
        self.sums[group as usize] = 0;
        self.counts[group as usize] = 0;
        self.wraps.remove(&group);
    }

    fn keep(&mut self, groups: &[u32]) {
        self.sums = kept(&self.sums, groups);
        self.counts = kept(&self.counts, groups);
        self.wraps = kept_sparse(&self.wraps, groups);
    }

    fn update(&mut self, rows: Rows<'_>, column: Option<&ArrayRef>) -> Result<(), OperatorError> {
        let column = argument(column)?;
        if let Some(column) = column.as_primitive_opt::<Int64Type>() {
            let values = column.values();
            rows.for_each(column.nulls(), |row, group, diff| {
                // 64 bits times 64 bits fit.
                self.counts[group] += diff;
                self.add_once(group, i128::from(values[row]) * i128::from(diff));
            });
        } else {
            let column = column.as_primitive::<Decimal128Type>();
            let values = column.values();
            rows.for_each(column.nulls(), |row, group, diff| self.add(group, values[row], diff));
        }
        Ok(())
    }

    fn output(&self, wish: &Wish, groups: &[u32]) -> Result<ArrayRef, OperatorError> {
        let pairs = groups.iter().map(|g| self.pair(*g));
        match wish.function {
            AggregateFunction::Count => Ok(gather(&self.counts, groups)),
            AggregateFunction::Avg => averages(wish, self.scale, pairs, &self.errors),
            AggregateFunction::Sum => {
                let DataType::Decimal128(_, scale) = wish.data_type else {
                    return Err(refused("a sum", wish));
                };
                if scale != self.scale {
                    return Err(refused("a sum", wish));
                }
                let sums = pairs.map(|(sum, count)| if count > 0 { fits(sum, &self.errors) } else { None });
                let sums: Decimal128Array = sums.collect();
                Ok(Arc::new(sums.with_data_type(wish.data_type.clone())))
            }
            _ => Err(refused("a sum", wish)),
        }
    }

    fn state_types(&self) -> Vec<DataType> {
        vec![DataType::Decimal128(38, 0), DataType::Int64, DataType::Int64]
    }

    fn state(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        let sums = groups.iter().map(|g| self.sums[*g as usize]);
        let sums = PrimitiveArray::<Decimal128Type>::from_iter_values(sums)
            .with_data_type(DataType::Decimal128(38, 0));
        let wraps = groups.iter().map(|g| self.wraps.get(g).copied().unwrap_or(0));
        Ok(vec![Arc::new(sums), gather(&self.counts, groups), Arc::new(Int64Array::from_iter_values(wraps))])
    }

    fn load(&mut self, groups: &[u32], state: &[ArrayRef]) {
        let sums = state[0].as_primitive::<Decimal128Type>();
        let wraps = state[2].as_primitive::<Int64Type>();
        for (row, group) in groups.iter().enumerate() {
            self.sums[*group as usize] = sums.value(row);
            if wraps.value(row) != 0 {
                self.wraps.insert(*group, wraps.value(row));
            }
        }
        scatter(&mut self.counts, groups, &state[1]);
    }

    fn memory(&self) -> usize {
        self.sums.capacity() * 16 + self.counts.capacity() * 8 + self.wraps.capacity() * 16
    }
}

#[cfg(test)]
#[path = "tests/sum.rs"]
mod tests;
