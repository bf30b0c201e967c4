//! Rounding and roots with PostgreSQL's rules: numeric rounds half away from zero and keeps its
//! kind, double precision rounds half to even.

use super::error::failure;
use super::numeric::{self, PRECISION};
use super::operator::decimal_of;
use super::scalar::{Function, Kernel, no_such};
use super::type_name;
use arrow::array::{Array, ArrayRef, AsArray, Int64Array, PrimitiveArray, StringArray};
use arrow::compute::kernels::arity;
use arrow::datatypes::{DataType, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type};
use datafusion_common::{Result, ScalarValue, internal_err};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;
use weir_catalog::SqlState;

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    vec![
        super::operator::modulo(),
        Function::new("round", coerce_round, round_type, Kernel::Columns(round)),
        Function::new("trunc", coerce_round, round_type, Kernel::Columns(trunc)),
        Function::new("ceil", coerce_whole, |t, _| whole_type(&t[0]), Kernel::Columns(ceil))
            .aliases(&["ceiling"]),
        Function::new("floor", coerce_whole, |t, _| whole_type(&t[0]), Kernel::Columns(floor)),
        Function::new("abs", coerce_signed, |t, _| t[0].clone(), Kernel::Columns(abs)),
        Function::new("sign", coerce_whole, |t, _| whole_type(&t[0]), Kernel::Columns(sign))
            .aliases(&["signum"]),
        Function::new("div", coerce_div, |_, _| DataType::Decimal128(PRECISION, 0), Kernel::Columns(div)),
        Function::new("to_hex", coerce_hex, |_, _| DataType::Utf8, Kernel::Columns(to_hex)),
        Function::new("sqrt", |t| floats(t, 1), |_, _| DataType::Float64, Kernel::Columns(sqrt)),
        Function::new("power", |t| floats(t, 2), |_, _| DataType::Float64, Kernel::Columns(power))
            .aliases(&["pow"]),
        Function::new("ln", |t| floats(t, 1), |_, _| DataType::Float64, Kernel::Columns(ln)),
        Function::new("exp", |t| floats(t, 1), |_, _| DataType::Float64, Kernel::Columns(exp)),
    ]
}

fn number(data_type: &DataType) -> bool {
    data_type.is_integer()
        || data_type.is_floating()
        || matches!(data_type, DataType::Decimal128(_, _) | DataType::Null)
}

fn floats(types: &[DataType], count: usize) -> Option<Vec<DataType>> {
    (types.len() == count && types.iter().all(number)).then(|| vec![DataType::Float64; count])
}

/// numeric stays numeric, everything else becomes double precision.
fn whole_number(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::Decimal128(_, _) => Some(data_type.clone()),
        other => number(other).then_some(DataType::Float64),
    }
}

fn coerce_whole(types: &[DataType]) -> Option<Vec<DataType>> {
    match types {
        [value] => Some(vec![whole_number(value)?]),
        _ => None,
    }
}

fn coerce_round(types: &[DataType]) -> Option<Vec<DataType>> {
    match types {
        [_] => coerce_whole(types),
        // With digits it is numeric's only; of floats we round as DataFusion does.
        [value, digits] if digits.is_integer() || *digits == DataType::Null => {
            let value = if value.is_integer() { decimal_of(value) } else { whole_number(value)? };
            Some(vec![value, DataType::Int64])
        }
        _ => None,
    }
}

fn coerce_signed(types: &[DataType]) -> Option<Vec<DataType>> {
    match types {
        [DataType::Null] => Some(vec![DataType::Float64]),
        [value] => number(value).then(|| vec![value.clone()]),
        _ => None,
    }
}

fn coerce_div(types: &[DataType]) -> Option<Vec<DataType>> {
    let exact = |t: &DataType| t.is_integer() || matches!(t, DataType::Decimal128(_, _));
    (types.len() == 2 && types.iter().all(exact)).then(|| types.iter().map(decimal_of).collect())
}

fn whole_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Decimal128(p, s) => {
            let whole = (i16::from(*p) - i16::from(*s) + 1).clamp(1, i16::from(PRECISION));
            DataType::Decimal128(whole as u8, 0)
        }
        _ => DataType::Float64,
    }
}

/// With digits that are not constant, numeric keeps the scale it has.
fn round_type(types: &[DataType], _values: &[Option<&ScalarValue>]) -> DataType {
    match (&types[0], types.len()) {
        (DataType::Decimal128(_, s), 2) => digits_type(&types[0], i64::from(*s)),
        _ => whole_type(&types[0]),
    }
}

/// The type of a value of this type cut at so many digits after the point.
fn digits_type(data_type: &DataType, digits: i64) -> DataType {
    match data_type {
        DataType::Decimal128(p, s) => {
            let scale = digits.clamp(0, i64::from(PRECISION) - 1) as i8;
            let whole = i16::from(*p) - i16::from(*s) + 1;
            let precision = (whole + i16::from(scale)).clamp(1, i16::from(PRECISION));
            DataType::Decimal128(precision as u8, scale)
        }
        _ => DataType::Float64,
    }
}

/// `round(x, 2)` and `trunc(x, 2)`: constant digits decide the result's type, so they are part of
/// the function. Other calls as they are.
pub fn with_constant_digits(call: ScalarFunction) -> Expr {
    let cut = match (call.func.name(), call.args.as_slice()) {
        ("round" | "trunc", [_, Expr::Literal(digits, _)]) => match digits.cast_to(&DataType::Int64) {
            Ok(ScalarValue::Int64(Some(digits))) => digits,
            _ => return Expr::ScalarFunction(call),
        },
        _ => return Expr::ScalarFunction(call),
    };
    let name = if call.func.name() == "round" { "round" } else { "trunc" };
    let signature = Signature::user_defined(Volatility::Immutable);
    let function = ScalarUDF::from(CutAt { name, digits: cut, signature });
    let value = call.args.into_iter().take(1).collect();
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function), value))
}

/// `round` or `trunc` at constant digits.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CutAt {
    name: &'static str,
    digits: i64,
    signature: Signature,
}

impl ScalarUDFImpl for CutAt {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let args: Vec<String> = args.iter().map(|a| a.schema_name().to_string()).collect();
        Ok(format!("{}({},{})", self.name, args.join(","), self.digits))
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let coerced = types.first().and_then(|t| coerce_round(&[t.clone(), DataType::Int64]));
        Ok(coerced.map_or_else(|| types.to_vec(), |t| t[..1].to_vec()))
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types.first().and_then(|t| coerce_round(&[t.clone(), DataType::Int64])) {
            Some(coerced) => Ok(digits_type(&coerced[0], self.digits)),
            None => Err(no_such(self.name, &[types, &[DataType::Int32]].concat())),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let output = args.return_field.data_type();
        let constant = matches!(args.args[0], ColumnarValue::Scalar(_));
        let value = args.args[0].to_array(if constant { 1 } else { args.number_rows })?;
        let digits: ArrayRef = Arc::new(Int64Array::from(vec![self.digits; value.len()]));
        let cut = if self.name == "round" { round } else { trunc };
        let result = cut(&[value, digits], output)?;
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?));
        }
        Ok(ColumnarValue::Array(result))
    }
}

fn coerce_hex(types: &[DataType]) -> Option<Vec<DataType>> {
    match types {
        [DataType::Int8 | DataType::Int16 | DataType::Int32] => Some(vec![DataType::Int32]),
        [DataType::Int64 | DataType::Null] => Some(vec![DataType::Int64]),
        _ => None,
    }
}

/// Negative numbers in two's complement of their type.
fn to_hex(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let shown: StringArray = match args[0].data_type() {
        DataType::Int32 => {
            args[0].as_primitive::<Int32Type>().iter().map(|v| v.map(|v| format!("{v:x}"))).collect()
        }
        _ => args[0].as_primitive::<Int64Type>().iter().map(|v| v.map(|v| format!("{v:x}"))).collect(),
    };
    Ok(Arc::new(shown))
}

fn overflow() -> datafusion_common::DataFusionError {
    failure(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format")
}

fn scale_of(data_type: &DataType) -> i8 {
    if let DataType::Decimal128(_, scale) = data_type { *scale } else { 0 }
}

/// Digits after the point, per row: the second argument, or none.
fn digits(args: &[ArrayRef]) -> Vec<Option<i64>> {
    match args.get(1) {
        Some(digits) => digits.as_primitive::<Int64Type>().iter().collect(),
        None => vec![Some(0); args[0].len()],
    }
}

/// Decimals cut at digits by `cut(value, divisor)`, at the scale of `output`.
fn cut_decimals(args: &[ArrayRef], output: &DataType, cut: fn(i128, i128) -> i128) -> Result<ArrayRef> {
    let (from, to) = (scale_of(args[0].data_type()), scale_of(output));
    let values = args[0].as_primitive::<Decimal128Type>();
    let rounded: PrimitiveArray<Decimal128Type> = values
        .iter()
        .zip(digits(args))
        .map(|(value, digits)| {
            let (Some(value), Some(digits)) = (value, digits) else {
                return Ok(None);
            };
            let dropped = i64::from(from) - digits;
            let value = match i8::try_from(dropped) {
                Ok(dropped) if dropped > 0 => match numeric::power_of_ten(dropped) {
                    Some(divisor) => cut(value, divisor).checked_mul(divisor).ok_or_else(overflow)?,
                    None => 0,
                },
                Ok(_) => value,
                Err(_) if dropped > 0 => 0,
                Err(_) => value,
            };
            numeric::rescale(value, from, to).map(Some).ok_or_else(overflow)
        })
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .collect();
    Ok(Arc::new(rounded.with_data_type(output.clone())))
}

fn cut_floats(args: &[ArrayRef], cut: fn(f64) -> f64) -> ArrayRef {
    let values = args[0].as_primitive::<Float64Type>();
    let rounded: PrimitiveArray<Float64Type> = values
        .iter()
        .zip(digits(args))
        .map(|(value, digits)| {
            let (value, digits) = (value?, digits?);
            if digits == 0 {
                return Some(cut(value));
            }
            let factor = 10f64.powi(digits.clamp(-400, 400) as i32);
            let rounded = cut(value * factor) / factor;
            Some(if rounded.is_finite() { rounded } else { value })
        })
        .collect();
    Arc::new(rounded)
}

fn round(args: &[ArrayRef], output: &DataType) -> Result<ArrayRef> {
    match output {
        DataType::Decimal128(_, _) => cut_decimals(args, output, numeric::divide_rounded),
        _ => Ok(cut_floats(args, f64::round_ties_even)),
    }
}

fn trunc(args: &[ArrayRef], output: &DataType) -> Result<ArrayRef> {
    match output {
        DataType::Decimal128(_, _) => cut_decimals(args, output, |value, divisor| value / divisor),
        _ => Ok(cut_floats(args, f64::trunc)),
    }
}

fn ceil(args: &[ArrayRef], output: &DataType) -> Result<ArrayRef> {
    match output {
        DataType::Decimal128(_, _) => {
            cut_decimals(args, output, |value, divisor| -(-value).div_euclid(divisor))
        }
        _ => Ok(cut_floats(args, f64::ceil)),
    }
}

fn floor(args: &[ArrayRef], output: &DataType) -> Result<ArrayRef> {
    match output {
        DataType::Decimal128(_, _) => cut_decimals(args, output, |value, divisor| value.div_euclid(divisor)),
        _ => Ok(cut_floats(args, f64::floor)),
    }
}

fn sign(args: &[ArrayRef], output: &DataType) -> Result<ArrayRef> {
    match output {
        DataType::Decimal128(_, _) => {
            let signs = args[0].as_primitive::<Decimal128Type>().unary::<_, Decimal128Type>(i128::signum);
            Ok(Arc::new(signs.with_data_type(output.clone())))
        }
        _ => {
            let sign = |v: f64| if v == 0.0 || v.is_nan() { v } else { v.signum() };
            Ok(Arc::new(args[0].as_primitive::<Float64Type>().unary::<_, Float64Type>(sign)))
        }
    }
}

fn abs(args: &[ArrayRef], output: &DataType) -> Result<ArrayRef> {
    macro_rules! integers {
        ($t:ty) => {{
            let out_of_range = || {
                failure(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("{} out of range", type_name(output)))
            };
            let values = args[0].as_primitive::<$t>();
            Ok(Arc::new(values.try_unary::<_, $t, _>(|v| v.checked_abs().ok_or_else(out_of_range))?))
        }};
    }
    match output {
        DataType::Int16 => integers!(Int16Type),
        DataType::Int32 => integers!(Int32Type),
        DataType::Int64 => integers!(Int64Type),
        DataType::Float32 => {
            Ok(Arc::new(args[0].as_primitive::<Float32Type>().unary::<_, Float32Type>(f32::abs)))
        }
        DataType::Float64 => {
            Ok(Arc::new(args[0].as_primitive::<Float64Type>().unary::<_, Float64Type>(f64::abs)))
        }
        DataType::Decimal128(_, _) => {
            let values = args[0].as_primitive::<Decimal128Type>().unary::<_, Decimal128Type>(i128::abs);
            Ok(Arc::new(values.with_data_type(output.clone())))
        }
        other => internal_err!("abs of {other}"),
    }
}

fn div(args: &[ArrayRef], output: &DataType) -> Result<ArrayRef> {
    let (s1, s2) = (scale_of(args[0].data_type()), scale_of(args[1].data_type()));
    let scale = s1.max(s2);
    let quotients: PrimitiveArray<Decimal128Type> = arity::try_binary(
        args[0].as_primitive::<Decimal128Type>(),
        args[1].as_primitive::<Decimal128Type>(),
        |a, b| {
            if b == 0 {
                return Err(arrow::error::ArrowError::DivideByZero);
            }
            let operands = numeric::rescale(a, s1, scale).zip(numeric::rescale(b, s2, scale));
            operands.map(|(a, b)| a / b).ok_or_else(|| {
                let state = SqlState::NUMERIC_VALUE_OUT_OF_RANGE;
                super::error::arrow_failure(state, "value overflows numeric format")
            })
        },
    )?;
    Ok(Arc::new(quotients.with_data_type(output.clone())))
}

fn sqrt(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let root = |v: f64| {
        if v < 0.0 {
            return Err(failure(SqlState("2201F"), "cannot take square root of a negative number"));
        }
        Ok(v.sqrt())
    };
    Ok(Arc::new(args[0].as_primitive::<Float64Type>().try_unary::<_, Float64Type, _>(root)?))
}

fn ln(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let ln = |v: f64| {
        if v <= 0.0 {
            let what = if v == 0.0 { "zero" } else { "a negative number" };
            return Err(failure(SqlState("2201E"), format!("cannot take logarithm of {what}")));
        }
        Ok(v.ln())
    };
    Ok(Arc::new(args[0].as_primitive::<Float64Type>().try_unary::<_, Float64Type, _>(ln)?))
}

fn exp(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let exp = |v: f64| finite(v.exp(), v.is_finite());
    Ok(Arc::new(args[0].as_primitive::<Float64Type>().try_unary::<_, Float64Type, _>(exp)?))
}

fn finite(value: f64, expected: bool) -> Result<f64, arrow::error::ArrowError> {
    if value.is_infinite() && expected {
        let state = SqlState::NUMERIC_VALUE_OUT_OF_RANGE;
        return Err(super::error::arrow_failure(state, "value out of range: overflow"));
    }
    Ok(value)
}

fn power(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let power = |a: f64, b: f64| {
        let refused = |message: &str| Err(super::error::arrow_failure(SqlState("2201F"), message));
        if a == 0.0 && b < 0.0 {
            return refused("zero raised to a negative power is undefined");
        }
        if a < 0.0 && b.is_finite() && b.fract() != 0.0 {
            return refused("a negative number raised to a non-integer power yields a complex result");
        }
        finite(a.powf(b), a.is_finite() && b.is_finite())
    };
    let result: PrimitiveArray<Float64Type> = arity::try_binary(
        args[0].as_primitive::<Float64Type>(),
        args[1].as_primitive::<Float64Type>(),
        power,
    )?;
    Ok(Arc::new(result))
}

#[cfg(test)]
#[path = "tests/math.rs"]
mod tests;
