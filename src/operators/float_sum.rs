//! Sums of floats, as exact under retraction as two doubles a sum can be.
//!
//! A sum is kept to about 106 bits: taking a value back leaves no residue unless sums were 2^53
//! times greater meanwhile, and a group that has lost all its values is 0 again. The order of
//! additions shows only below the last bit of a double, where a plain sum would show it at once.
//! NaN and the infinities are counted apart, so they go as they came.

use super::accumulator::{Accumulator, Rows, Wish, gather, kept, refused, scatter};
use super::sum::{argument, kept_sparse};
use crate::dataflow::operator::OperatorError;
use arrow::array::{Array, ArrayRef, AsArray, Float32Array, Float64Array, Int64Array};
use arrow::datatypes::{DataType, Float32Type, Float64Type, Int64Type};
use std::collections::HashMap;
use std::sync::Arc;
use weir_sql::plan::AggregateFunction;

/// How many of a group's values are no finite number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Specials {
    nan: i64,
    above: i64,
    below: i64,
}

/// Sums of floats as double-doubles: the sum is `highs + lows`, the low part below half a bit of
/// the high one.
#[derive(Debug, Default)]
pub(super) struct FloatSums {
    highs: Vec<f64>,
    lows: Vec<f64>,
    counts: Vec<i64>,
    specials: HashMap<u32, Specials>,
}

impl FloatSums {
    #[inline]
    fn add(&mut self, group: usize, value: f64, diff: i64) {
        self.counts[group] += diff;
        if !value.is_finite() {
            self.add_special(group, value, diff);
            return;
        }
        let (product, rest) = multiply(value, diff as f64);
        let (sum, error) = two_sum(self.highs[group], product);
        let low = error + (self.lows[group] + rest);
        let (high, low) = two_sum(sum, low);
        (self.highs[group], self.lows[group]) = (high, low);
    }

    #[cold]
    fn add_special(&mut self, group: usize, value: f64, diff: i64) {
        let specials = self.specials.entry(group as u32).or_default();
        if value.is_nan() {
            specials.nan += diff;
        } else if value > 0.0 {
            specials.above += diff;
        } else {
            specials.below += diff;
        }
        if *specials == Specials::default() {
            self.specials.remove(&(group as u32));
        }
    }

    fn sum(&self, group: u32) -> f64 {
        let finite = self.highs[group as usize] + self.lows[group as usize];
        match self.specials.get(&group) {
            None => finite,
            Some(s) if s.nan > 0 || (s.above > 0 && s.below > 0) => f64::NAN,
            Some(s) if s.above > 0 => f64::INFINITY,
            Some(s) if s.below > 0 => f64::NEG_INFINITY,
            Some(_) => finite,
        }
    }
}

/// `a + b` and what rounding lost of it (Knuth).
#[inline]
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let b_part = sum - a;
    let error = (a - (sum - b_part)) + (b - b_part);
    // Beyond the range of doubles there is nothing to keep.
    (sum, if error.is_finite() { error } else { 0.0 })
}

/// `a * b` and what rounding lost of it.
#[inline]
fn multiply(a: f64, b: f64) -> (f64, f64) {
    if b == 1.0 || b == -1.0 {
        return (a * b, 0.0);
    }
    let product = a * b;
    let rest = a.mul_add(b, -product);
    (product, if rest.is_finite() { rest } else { 0.0 })
}

impl Accumulator for FloatSums {
    fn grow(&mut self, groups: usize) {
        self.highs.resize(groups, 0.0);
        self.lows.resize(groups, 0.0);
        self.counts.resize(groups, 0);
    }

    fn clear(&mut self, group: u32) {
        self.highs[group as usize] = 0.0;
        self.lows[group as usize] = 0.0;
        self.counts[group as usize] = 0;
        self.specials.remove(&group);
    }

    fn keep(&mut self, groups: &[u32]) {
        self.highs = kept(&self.highs, groups);
        self.lows = kept(&self.lows, groups);
        self.counts = kept(&self.counts, groups);
        self.specials = kept_sparse(&self.specials, groups);
    }

    fn update(&mut self, rows: Rows<'_>, column: Option<&ArrayRef>) -> Result<(), OperatorError> {
        let column = argument(column)?;
        if let Some(column) = column.as_primitive_opt::<Float32Type>() {
            let values = column.values();
            rows.for_each(column.nulls(), |row, g, diff| self.add(g, f64::from(values[row]), diff));
        } else {
            let column = column.as_primitive::<Float64Type>();
            let values = column.values();
            rows.for_each(column.nulls(), |row, g, diff| self.add(g, values[row], diff));
        }
        Ok(())
    }

    fn output(&self, wish: &Wish, groups: &[u32]) -> Result<ArrayRef, OperatorError> {
        let value = |group: &u32| {
            let count = self.counts[*group as usize];
            let divisor = if wish.function == AggregateFunction::Avg { count as f64 } else { 1.0 };
            (count > 0).then(|| self.sum(*group) / divisor)
        };
        let values = groups.iter().map(value);
        match (wish.function, &wish.data_type) {
            (AggregateFunction::Count, _) => Ok(gather(&self.counts, groups)),
            (AggregateFunction::Sum | AggregateFunction::Avg, DataType::Float64) => {
                Ok(Arc::new(values.collect::<Float64Array>()))
            }
            (AggregateFunction::Sum, DataType::Float32) => {
                Ok(Arc::new(values.map(|v| v.map(|v| v as f32)).collect::<Float32Array>()))
            }
            _ => Err(refused("a float sum", wish)),
        }
    }

    fn settle(&mut self, groups: &[u32]) {
        for group in groups.iter().map(|g| *g as usize) {
            // No values are left, so neither is a residue.
            if self.counts[group] == 0 {
                (self.highs[group], self.lows[group]) = (0.0, 0.0);
            }
        }
    }

    fn state_types(&self) -> Vec<DataType> {
        let float = DataType::Float64;
        let int = DataType::Int64;
        vec![float.clone(), float, int.clone(), int.clone(), int.clone(), int]
    }

    fn state(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        let floats = |values: &[f64]| -> ArrayRef {
            Arc::new(Float64Array::from_iter_values(groups.iter().map(|g| values[*g as usize])))
        };
        let specials = |part: fn(&Specials) -> i64| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values(
                groups.iter().map(|g| self.specials.get(g).map_or(0, part)),
            ))
        };
        Ok(vec![
            floats(&self.highs),
            floats(&self.lows),
            gather(&self.counts, groups),
            specials(|s| s.nan),
            specials(|s| s.above),
            specials(|s| s.below),
        ])
    }

    fn load(&mut self, groups: &[u32], state: &[ArrayRef]) {
        let (highs, lows) = (state[0].as_primitive::<Float64Type>(), state[1].as_primitive::<Float64Type>());
        let special = |column: usize, row: usize| state[column].as_primitive::<Int64Type>().value(row);
        for (row, group) in groups.iter().enumerate() {
            self.highs[*group as usize] = highs.value(row);
            self.lows[*group as usize] = lows.value(row);
            let s = Specials { nan: special(3, row), above: special(4, row), below: special(5, row) };
            if s != Specials::default() {
                self.specials.insert(*group, s);
            }
        }
        scatter(&mut self.counts, groups, &state[2]);
    }

    fn memory(&self) -> usize {
        (self.highs.capacity() + self.lows.capacity() + self.counts.capacity()) * 8
            + self.specials.capacity() * 32
    }
}
