//! `sum` and `avg` with PostgreSQL's types and rounding, as batch aggregates.
//!
//! ```text
//!   sum   smallint, int → bigint       bigint → numeric(38,0)     numeric(p,s) → numeric(38,s)
//!         real → real                  double → double            interval → interval
//!   avg   any integer → numeric(38,16) numeric(p,s) → numeric(38, max(s,16))
//!         real, double → double        interval → interval
//! ```
//! Integers and decimals add up exactly in 128 bits; a result that doesn't fit is 22003. Averages
//! round half away from zero. The streaming accumulators share the types and [`average`].

use super::error::failure;
use crate::error::SqlError;
use arrow::array::{Array, ArrayRef, AsArray, ListArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{
    DataType, Decimal128Type, Field, FieldRef, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, i256,
};
use datafusion_common::{Result, ScalarValue, internal_err};
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, ReversedUDAF, Signature, Volatility};
use std::collections::HashSet;
use std::sync::Arc;
use weir_catalog::SqlState;

/// The scale of averages, unless the input's is greater.
pub const AVG_SCALE: i8 = 16;
const PRECISION: u8 = 38;

/// The aggregates that differ from DataFusion's.
pub fn functions() -> Vec<Arc<AggregateUDF>> {
    vec![
        Arc::new(AggregateUDF::from(Total::new(Which::Sum))),
        Arc::new(AggregateUDF::from(Total::new(Which::Avg))),
    ]
}

/// The type of `sum` over `input`, if there is one.
pub fn sum_type(input: &DataType) -> Option<DataType> {
    Some(match input {
        DataType::Int16 | DataType::Int32 => DataType::Int64,
        DataType::Int64 => DataType::Decimal128(PRECISION, 0),
        DataType::Decimal128(_, s) => DataType::Decimal128(PRECISION, *s),
        DataType::Float32 | DataType::Float64 | DataType::Interval(IntervalUnit::MonthDayNano) => {
            input.clone()
        }
        _ => return None,
    })
}

/// The type of `avg` over `input`, if there is one.
pub fn avg_type(input: &DataType) -> Option<DataType> {
    Some(match input {
        DataType::Int16 | DataType::Int32 | DataType::Int64 => DataType::Decimal128(PRECISION, AVG_SCALE),
        DataType::Decimal128(_, s) => DataType::Decimal128(PRECISION, AVG_SCALE.max(*s)),
        DataType::Float32 | DataType::Float64 => DataType::Float64,
        DataType::Interval(IntervalUnit::MonthDayNano) => input.clone(),
        _ => return None,
    })
}

/// `sum / count` where the sum has scale `from` and the result scale `to` (not less than `from`),
/// rounded half away from zero. `None` if it doesn't fit 38 digits.
pub fn average(sum: i128, count: i64, from: i8, to: i8) -> Option<i128> {
    let factor = i256::from_i128(10i128.checked_pow(u32::try_from(to - from).ok()?)?);
    let numerator = i256::from_i128(sum).checked_mul(factor)?;
    let count = i256::from_i128(i128::from(count));
    let quotient = numerator.checked_div(count)?;
    let rest = numerator.wrapping_sub(quotient.wrapping_mul(count));
    let doubled = rest.wrapping_abs().wrapping_add(rest.wrapping_abs());
    let step = if sum < 0 { i256::MINUS_ONE } else { i256::ONE };
    let rounded = if doubled >= count { quotient.wrapping_add(step) } else { quotient };
    rounded.to_i128().filter(|v| fits(*v))
}

/// Whether an unscaled value has at most 38 digits.
pub fn fits(value: i128) -> bool {
    value.unsigned_abs() < 10u128.pow(u32::from(PRECISION))
}

/// `total / count` of an interval, as PostgreSQL divides: fractions of months become days, of days
/// time.
pub fn average_interval(total: IntervalMonthDayNano, count: i64) -> IntervalMonthDayNano {
    super::interval::divide(total, count as f64)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Which {
    Sum,
    Avg,
}

/// `sum` or `avg`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Total {
    which: Which,
    signature: Signature,
}

impl Total {
    fn new(which: Which) -> Self {
        Self { which, signature: Signature::user_defined(Volatility::Immutable) }
    }
}

impl AggregateUDFImpl for Total {
    fn name(&self) -> &str {
        match self.which {
            Which::Sum => "sum",
            Which::Avg => "avg",
        }
    }

    fn aliases(&self) -> &[String] {
        &[]
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [input] = types else {
            return Err(no_such_function(self.name(), types));
        };
        let input = match input {
            DataType::Null => DataType::Float64,
            DataType::Int8 | DataType::UInt8 => DataType::Int16,
            DataType::UInt16 => DataType::Int32,
            DataType::UInt32 => DataType::Int64,
            DataType::UInt64 => DataType::Decimal128(20, 0),
            other => other.clone(),
        };
        match sum_type(&input) {
            Some(_) => Ok(vec![input]),
            None => Err(no_such_function(self.name(), types)),
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let found = match self.which {
            Which::Sum => sum_type(&types[0]),
            Which::Avg => avg_type(&types[0]),
        };
        found.ok_or_else(|| no_such_function(self.name(), types))
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let input = args.expr_fields[0].data_type().clone();
        Ok(Box::new(TotalAccumulator {
            which: self.which,
            sum: Sum::zero(&input),
            output: args.return_field.data_type().clone(),
            count: 0,
            distinct: args.is_distinct.then(HashSet::new),
            input,
        }))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let input = args.input_fields[0].data_type().clone();
        if args.is_distinct {
            let item = Field::new_list_field(input, true);
            return Ok(vec![Arc::new(Field::new_list(format_state_name(args.name, "values"), item, false))]);
        }
        Ok(vec![
            Arc::new(Field::new(format_state_name(args.name, "sum"), Sum::zero(&input).state_type(), true)),
            Arc::new(Field::new(format_state_name(args.name, "count"), DataType::Int64, false)),
        ])
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

fn no_such_function(name: &str, types: &[DataType]) -> datafusion_common::DataFusionError {
    let types: Vec<String> = types.iter().map(super::type_name).collect();
    let error = SqlError::new(
        SqlState::UNDEFINED_FUNCTION,
        format!("function {name}({}) does not exist", types.join(", ")),
    )
    .hint(
        "No function matches the given name and argument types. You might need to add explicit type casts.",
    );
    super::error::external(error)
}

/// What has been added up.
#[derive(Clone, Copy, Debug)]
enum Sum {
    /// Integers and unscaled decimals.
    Exact(i128),
    Float(f64),
    Interval(IntervalMonthDayNano),
}

impl Sum {
    fn zero(input: &DataType) -> Self {
        match input {
            DataType::Float32 | DataType::Float64 => Sum::Float(0.0),
            DataType::Interval(_) => Sum::Interval(IntervalMonthDayNano::new(0, 0, 0)),
            _ => Sum::Exact(0),
        }
    }

    /// How partial sums travel. The scale of a decimal is the accumulator's to know.
    fn state_type(&self) -> DataType {
        match self {
            Sum::Exact(_) => DataType::Decimal128(PRECISION, 0),
            Sum::Float(_) => DataType::Float64,
            Sum::Interval(_) => DataType::Interval(IntervalUnit::MonthDayNano),
        }
    }

    fn state(&self) -> Result<ScalarValue> {
        Ok(match self {
            Sum::Exact(v) if fits(*v) => ScalarValue::Decimal128(Some(*v), PRECISION, 0),
            Sum::Exact(_) => return Err(out_of_range(&DataType::Decimal128(PRECISION, 0))),
            Sum::Float(v) => ScalarValue::Float64(Some(*v)),
            Sum::Interval(v) => ScalarValue::IntervalMonthDayNano(Some(*v)),
        })
    }

    /// Adds the valid values of `array` (`sign` 1) or takes them away (-1); gives how many.
    fn add(&mut self, array: &ArrayRef, sign: i8) -> Result<i64> {
        macro_rules! exact {
            ($t:ty, $sum:expr) => {{
                let part = array
                    .as_primitive::<$t>()
                    .iter()
                    .flatten()
                    .try_fold(0i128, |a, v| a.checked_add(v.into()));
                let part = part.and_then(|p| p.checked_mul(i128::from(sign)));
                *$sum = part
                    .and_then(|p| $sum.checked_add(p))
                    .ok_or_else(|| out_of_range(&DataType::Decimal128(PRECISION, 0)))?;
            }};
        }
        match (self, array.data_type()) {
            (Sum::Exact(sum), DataType::Int16) => exact!(Int16Type, sum),
            (Sum::Exact(sum), DataType::Int32) => exact!(Int32Type, sum),
            (Sum::Exact(sum), DataType::Int64) => exact!(Int64Type, sum),
            (Sum::Exact(sum), DataType::Decimal128(_, _)) => exact!(Decimal128Type, sum),
            (Sum::Float(sum), DataType::Float32) => {
                for v in array.as_primitive::<Float32Type>().iter().flatten() {
                    *sum += f64::from(sign) * f64::from(v);
                }
            }
            (Sum::Float(sum), DataType::Float64) => {
                for v in array.as_primitive::<Float64Type>().iter().flatten() {
                    *sum += f64::from(sign) * v;
                }
            }
            (Sum::Interval(sum), DataType::Interval(_)) => {
                for v in array.as_primitive::<IntervalMonthDayNanoType>().iter().flatten() {
                    *sum =
                        super::interval::add(*sum, v, sign).ok_or_else(|| out_of_range(array.data_type()))?;
                }
            }
            (sum, other) => return internal_err!("a sum of {other} in {sum:?}"),
        }
        Ok((array.len() - array.null_count()) as i64)
    }
}

fn out_of_range(data_type: &DataType) -> datafusion_common::DataFusionError {
    let message = match data_type {
        DataType::Int64 => "bigint out of range".to_owned(),
        DataType::Decimal128(_, _) => "value overflows numeric format".to_owned(),
        other => format!("{} out of range", super::type_name(other)),
    };
    failure(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message)
}

#[derive(Debug)]
struct TotalAccumulator {
    which: Which,
    input: DataType,
    output: DataType,
    sum: Sum,
    count: i64,
    /// The distinct values, for DISTINCT.
    distinct: Option<HashSet<ScalarValue>>,
}

impl TotalAccumulator {
    fn take(&mut self, values: &ArrayRef, sign: i8) -> Result<()> {
        self.count += i64::from(sign) * self.sum.add(values, sign)?;
        Ok(())
    }

    fn remember(&mut self, values: &dyn Array) -> Result<()> {
        if let Some(distinct) = &mut self.distinct {
            for row in (0..values.len()).filter(|row| values.is_valid(*row)) {
                distinct.insert(ScalarValue::try_from_array(values, row)?);
            }
        }
        Ok(())
    }

    fn finish(&self, sum: Sum, count: i64) -> Result<ScalarValue> {
        if count == 0 {
            return ScalarValue::try_from(&self.output);
        }
        let overflow = || out_of_range(&self.output);
        let scale = |t: &DataType| if let DataType::Decimal128(_, s) = t { *s } else { 0 };
        Ok(match (self.which, sum, &self.output) {
            (Which::Sum, Sum::Exact(v), DataType::Int64) => {
                ScalarValue::Int64(Some(i64::try_from(v).map_err(|_| overflow())?))
            }
            (Which::Sum, Sum::Exact(v), DataType::Decimal128(p, s)) if fits(v) => {
                ScalarValue::Decimal128(Some(v), *p, *s)
            }
            (Which::Avg, Sum::Exact(v), DataType::Decimal128(p, s)) => {
                let average = average(v, count, scale(&self.input), *s).ok_or_else(overflow)?;
                ScalarValue::Decimal128(Some(average), *p, *s)
            }
            (Which::Sum, Sum::Float(v), DataType::Float32) => ScalarValue::Float32(Some(v as f32)),
            (Which::Sum, Sum::Float(v), _) => ScalarValue::Float64(Some(v)),
            (Which::Avg, Sum::Float(v), _) => ScalarValue::Float64(Some(v / count as f64)),
            (Which::Sum, Sum::Interval(v), _) => ScalarValue::IntervalMonthDayNano(Some(v)),
            (Which::Avg, Sum::Interval(v), _) => {
                ScalarValue::IntervalMonthDayNano(Some(average_interval(v, count)))
            }
            _ => return Err(overflow()),
        })
    }
}

impl Accumulator for TotalAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        if self.distinct.is_some() { self.remember(&values[0]) } else { self.take(&values[0], 1) }
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.take(&values[0], -1)
    }

    fn supports_retract_batch(&self) -> bool {
        self.distinct.is_none()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let Some(distinct) = &self.distinct else {
            return self.finish(self.sum, self.count);
        };
        let mut sum = Sum::zero(&self.input);
        let mut count = 0;
        if !distinct.is_empty() {
            count = sum.add(&ScalarValue::iter_to_array(distinct.iter().cloned())?, 1)?;
        }
        self.finish(sum, count)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let Some(distinct) = &self.distinct else {
            return Ok(vec![self.sum.state()?, ScalarValue::Int64(Some(self.count))]);
        };
        let values = if distinct.is_empty() {
            arrow::array::new_empty_array(&self.input)
        } else {
            ScalarValue::iter_to_array(distinct.iter().cloned())?
        };
        let field = Arc::new(Field::new_list_field(self.input.clone(), true));
        let list = ListArray::new(field, OffsetBuffer::from_lengths([values.len()]), values, None);
        Ok(vec![ScalarValue::List(Arc::new(list))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        if self.distinct.is_some() {
            for values in states[0].as_list::<i32>().iter().flatten() {
                self.remember(&values)?;
            }
            return Ok(());
        }
        self.sum.add(&states[0], 1)?;
        self.count += states[1].as_primitive::<Int64Type>().iter().flatten().sum::<i64>();
        Ok(())
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.distinct.as_ref().map_or(0, |d| d.capacity() * size_of::<ScalarValue>())
    }
}

#[cfg(test)]
#[path = "tests/aggregate.rs"]
mod tests;
