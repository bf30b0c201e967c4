//! `min` and `max` in PostgreSQL's order, as batch aggregates: NaN is the greatest float, an interval
//! counts by its length.
//!
//! DataFusion's are taken for everything else. Its grouped ones start from the greatest finite
//! float, which infinities never beat.

use super::interval::length_ns;
use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Float32Type, Float64Type, IntervalMonthDayNano, IntervalMonthDayNanoType};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::function::AccumulatorArgs;
use datafusion_expr::utils::AggregateOrderSensitivity;
use datafusion_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, SetMonotonicity, Signature,
    StatisticsArgs,
};
use datafusion_functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::prim_op::PrimitiveGroupsAccumulator;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The aggregates of this file.
pub fn functions() -> Vec<Arc<AggregateUDF>> {
    vec![of(Ordering::Less), of(Ordering::Greater)]
}

/// `max` or `min`: the aggregate whose value compares so with all others.
pub(super) fn of(wanted: Ordering) -> Arc<AggregateUDF> {
    let inner = if wanted == Ordering::Greater { max_udaf() } else { min_udaf() };
    Arc::new(AggregateUDF::from(Extreme { inner, wanted: Wanted(wanted) }))
}

/// How a value must compare with the best one to take its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Wanted(Ordering);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Extreme {
    inner: Arc<AggregateUDF>,
    wanted: Wanted,
}

/// Intervals by their length; those of one length by their parts, so that each has its place.
fn place(v: IntervalMonthDayNano) -> (i128, i32, i32, i64) {
    (length_ns(v), v.months, v.days, v.nanoseconds)
}

/// The order of floats: NaN is equal to itself and above all others, zeros are equal.
fn compare_floats<F: PartialOrd>(a: F, b: F, a_is_nan: bool, b_is_nan: bool) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a_is_nan.cmp(&b_is_nan))
}

impl Wanted {
    fn is_max(self) -> bool {
        self.0 == Ordering::Greater
    }

    fn grouped(self, data_type: &DataType) -> Option<Box<dyn GroupsAccumulator>> {
        let Wanted(wanted) = self;
        macro_rules! floats {
            ($t:ty, $f:ident) => {{
                let better = move |best: &mut $f, new: $f| {
                    if compare_floats(new, *best, new.is_nan(), best.is_nan()) == wanted {
                        *best = new;
                    }
                };
                let start = if self.is_max() { $f::NEG_INFINITY } else { $f::NAN };
                let grouped = PrimitiveGroupsAccumulator::<$t, _>::new(data_type, better);
                Some(Box::new(grouped.with_starting_value(start)))
            }};
        }
        match data_type {
            DataType::Float32 => floats!(Float32Type, f32),
            DataType::Float64 => floats!(Float64Type, f64),
            DataType::Interval(_) => {
                let better = move |best: &mut IntervalMonthDayNano, new: IntervalMonthDayNano| {
                    if place(new).cmp(&place(*best)) == wanted {
                        *best = new;
                    }
                };
                let start = if self.is_max() { IntervalMonthDayNano::MIN } else { IntervalMonthDayNano::MAX };
                let grouped =
                    PrimitiveGroupsAccumulator::<IntervalMonthDayNanoType, _>::new(data_type, better);
                Some(Box::new(grouped.with_starting_value(start)))
            }
            _ => None,
        }
    }
}

impl AggregateUDFImpl for Extreme {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match args.return_field.data_type() {
            DataType::Interval(_) => Ok(Box::new(IntervalExtreme::new(self.wanted))),
            _ => self.inner.accumulator(args),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match args.return_field.data_type() {
            DataType::Interval(_) => Ok(Box::new(IntervalExtreme::new(self.wanted))),
            _ => self.inner.create_sliding_accumulator(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        let own = self.wanted.grouped(args.return_field.data_type()).is_some();
        own || self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        match self.wanted.grouped(args.return_field.data_type()) {
            Some(own) => Ok(own),
            None => self.inner.create_groups_accumulator(args),
        }
    }

    fn is_descending(&self) -> Option<bool> {
        Some(self.wanted.is_max())
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn value_from_stats(&self, args: &StatisticsArgs<'_>) -> Option<ScalarValue> {
        self.inner.value_from_stats(args)
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.inner.inner().set_monotonicity(data_type)
    }
}

/// The shortest or longest interval, from which others can be taken away again.
#[derive(Debug)]
struct IntervalExtreme {
    wanted: Wanted,

    /// By place: the interval, and how often it is there.
    places: BTreeMap<(i128, i32, i32, i64), (IntervalMonthDayNano, u64)>,
}

impl IntervalExtreme {
    fn new(wanted: Wanted) -> Self {
        Self { wanted, places: BTreeMap::new() }
    }
}

impl Accumulator for IntervalExtreme {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in values[0].as_primitive::<IntervalMonthDayNanoType>().iter().flatten() {
            self.places.entry(place(value)).or_insert((value, 0)).1 += 1;
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in values[0].as_primitive::<IntervalMonthDayNanoType>().iter().flatten() {
            let place = place(value);
            if let Some((_, count)) = self.places.get_mut(&place) {
                *count -= 1;
                if *count == 0 {
                    self.places.remove(&place);
                }
            }
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let best =
            if self.wanted.is_max() { self.places.last_key_value() } else { self.places.first_key_value() };
        Ok(ScalarValue::IntervalMonthDayNano(best.map(|(_, (value, _))| *value)))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn size(&self) -> usize {
        size_of_val(self)
            + self.places.len() * size_of::<((i128, i32, i32, i64), IntervalMonthDayNano, u64)>()
    }
}
