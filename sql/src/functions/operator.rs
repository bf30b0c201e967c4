//! The arithmetic operators `+ - * / %` with PostgreSQL's types and errors.
//!
//! ```text
//!   int ∘ int            the wider of the two; overflow is 22003, division truncates
//!   numeric ∘ numeric    exact; * keeps s1+s2 digits, at most max(16, s1, s2); / keeps that many
//!   float ∘ number       double precision (real with real: real); x / 0 is 22012
//!   date ± int           date            date - date            int (days)
//!   date, ts ± interval  timestamp       ts - ts                interval of days and time
//!   time ± interval      time            interval * number, interval / number
//! ```

use super::error::failure;
use super::numeric::{self, PRECISION, SCALE};
use super::operator_time::times;
use super::scalar::{Function, Kernel};
use super::type_name;
use arrow::array::{Array, ArrayRef, AsArray, Datum, PrimitiveArray};
use arrow::compute::kernels::{arity, numeric as kernels};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Decimal128Type, Float32Type, Float64Type, IntervalUnit, TimeUnit,
};
use arrow::error::ArrowError;
use datafusion_common::{DFSchema, DataFusionError, Result, ScalarValue, internal_err};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion_expr::{BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ScalarUDF, cast};
use sqlparser::ast::BinaryOperator;
use std::sync::{Arc, LazyLock};
use weir_catalog::SqlState;

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

macro_rules! operators {
    ($($constant:ident $name:literal $op:ident),*) => {
        $(static $constant: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
            let coerce = |types: &[DataType]| coerce(Op::$op, types);
            let output = |types: &[DataType], _: &[Option<&ScalarValue>]| output(Op::$op, types);
            let kernel = |args: &[ColumnarValue], output: &DataType, _rows: usize| compute(Op::$op, args, output);
            Function::new($name, coerce, output, Kernel::Values(kernel)).udf()
        });)*
    };
}
operators!(PLUS "+" Plus, MINUS "-" Minus, TIMES "*" Times, DIVIDE "/" Divide, MODULO "%" Modulo);

/// `mod(a, b)`.
pub fn modulo() -> Function {
    let kernel = |args: &[ColumnarValue], output: &DataType, _rows: usize| compute(Op::Modulo, args, output);
    let coerce = |types: &[DataType]| coerce(Op::Modulo, types).filter(|t| t.iter().all(exact));
    Function::new("mod", coerce, |types, _| output(Op::Modulo, types), Kernel::Values(kernel))
}

/// Whether an operator compares values: `= <> < <= > >= IS [NOT] DISTINCT FROM`.
pub(super) fn is_comparison(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Plus,
    Minus,
    Times,
    Divide,
    Modulo,
}

/// Plans arithmetic operators as calls of the functions here.
#[derive(Debug)]
pub struct ArithmeticPlanner;

/// DataFusion's arithmetic as a call of ours; other operators as they are.
pub fn replaced(binary: BinaryExpr, schema: &DFSchema) -> Result<Expr> {
    let function = match binary.op {
        Operator::Plus => &PLUS,
        Operator::Minus => &MINUS,
        Operator::Multiply => &TIMES,
        Operator::Divide => &DIVIDE,
        Operator::Modulo => &MODULO,
        _ => return Ok(Expr::BinaryExpr(binary)),
    };
    let types = (binary.left.get_type(schema), binary.right.get_type(schema));
    match types {
        // A parameter whose type is not known yet.
        (Ok(DataType::Null), _) | (_, Ok(DataType::Null)) | (Err(_), _) | (_, Err(_)) => {
            Ok(Expr::BinaryExpr(binary))
        }
        _ => {
            let args = vec![*binary.left, *binary.right];
            Ok(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), args)))
        }
    }
}

/// `-expr`; of an integer it is `0 - expr`, which notices an overflow.
pub fn negated(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    let zero = match expr.get_type(schema)? {
        DataType::Int16 => ScalarValue::Int16(Some(0)),
        DataType::Int32 => ScalarValue::Int32(Some(0)),
        DataType::Int64 => ScalarValue::Int64(Some(0)),
        _ => return Ok(Expr::Negative(Box::new(expr))),
    };
    let args = vec![Expr::Literal(zero, None), expr];
    Ok(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&MINUS), args)))
}

impl ExprPlanner for ArithmeticPlanner {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let function = match expr.op {
            BinaryOperator::Plus => &PLUS,
            BinaryOperator::Minus => &MINUS,
            BinaryOperator::Multiply => &TIMES,
            BinaryOperator::Divide => &DIVIDE,
            BinaryOperator::Modulo => &MODULO,
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let RawBinaryExpr { op, left, right } = expr;
        // Parameters get their types from DataFusion's own operators.
        let untyped = |e: &Expr| matches!(e, Expr::Placeholder(p) if p.field.is_none());
        if untyped(&left) || untyped(&right) {
            return Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }));
        }
        let (left_type, right_type) = (left.get_type(schema)?, right.get_type(schema)?);
        let left = with_type_of_other(left, &right_type, &op);
        let right = with_type_of_other(right, &left_type, &op);
        Ok(PlannerResult::Planned(Expr::ScalarFunction(ScalarFunction::new_udf(
            Arc::clone(function),
            vec![left, right],
        ))))
    }
}

/// A text literal beside an operator has the type that the operator wants there.
fn with_type_of_other(expr: Expr, other: &DataType, op: &BinaryOperator) -> Expr {
    let Expr::Literal(ScalarValue::Utf8(Some(_)), _) = &expr else {
        return expr;
    };
    let wanted = match (other, op) {
        (DataType::Timestamp(_, _) | DataType::Time64(_) | DataType::Date32, BinaryOperator::Plus) => {
            INTERVAL
        }
        (DataType::Interval(_), BinaryOperator::Multiply | BinaryOperator::Divide) => DataType::Float64,
        (DataType::Utf8 | DataType::Null, _) => return expr,
        (other, _) => other.clone(),
    };
    cast(expr, wanted)
}

/// Integers and numeric.
fn exact(data_type: &DataType) -> bool {
    integer(data_type) || matches!(data_type, DataType::Decimal128(_, _))
}

fn integer(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Int16 | DataType::Int32 | DataType::Int64)
}

fn float(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Float32 | DataType::Float64)
}

/// The decimal type that holds an integer type.
pub fn decimal_of(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Int16 => DataType::Decimal128(5, 0),
        DataType::Int32 => DataType::Decimal128(10, 0),
        DataType::Int64 => DataType::Decimal128(19, 0),
        other => other.clone(),
    }
}

/// What DataFusion's own functions may bring, as the nearest type of ours.
fn plain(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Int8 | DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        DataType::UInt32 | DataType::UInt64 => DataType::Int64,
        DataType::Duration(_) | DataType::Interval(_) => INTERVAL,
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
        DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
        other => other.clone(),
    }
}

fn coerce(op: Op, types: &[DataType]) -> Option<Vec<DataType>> {
    let [left, right] = types else {
        return None;
    };
    let (mut left, mut right) = (plain(left), plain(right));
    if left == DataType::Null {
        left = if right == DataType::Null { DataType::Int32 } else { typed_null(op, &right) };
    }
    if right == DataType::Null {
        right = typed_null(op, &left);
    }
    let number = |t: &DataType| exact(t) || float(t);
    if number(&left) && number(&right) {
        return coerce_numbers(op, left, right);
    }
    use DataType::{Date32, Int32, Interval, Time64, Timestamp};
    let days = |t: &DataType| matches!(t, DataType::Int16 | Int32);
    Some(match (op, &left, &right) {
        (Op::Plus | Op::Minus, Date32, r) if days(r) => vec![left, Int32],
        (Op::Plus, l, Date32) if days(l) => vec![Int32, right],
        // An integer literal may still be a bigint here.
        (Op::Plus | Op::Minus, Date32, DataType::Int64) => vec![left, Int32],
        (Op::Plus, DataType::Int64, Date32) => vec![Int32, right],
        (Op::Minus, Date32, Date32) => vec![left, right],
        (Op::Plus | Op::Minus, Date32, Interval(_)) => vec![TIMESTAMP, right],
        (Op::Plus, Interval(_), Date32) => vec![left, TIMESTAMP],
        (Op::Plus, Date32, Time64(_)) | (Op::Plus, Time64(_), Date32) => vec![left, right],
        (Op::Plus | Op::Minus, Timestamp(_, _), Interval(_)) => vec![left, right],
        (Op::Plus, Interval(_), Timestamp(_, _)) => vec![left, right],
        (Op::Minus, Timestamp(_, zone), Timestamp(_, other)) => {
            let zone = zone.clone().or_else(|| other.clone());
            vec![DataType::Timestamp(TimeUnit::Microsecond, zone); 2]
        }
        (Op::Minus, Timestamp(_, _), Date32) => vec![left.clone(), left],
        (Op::Minus, Date32, Timestamp(_, _)) => vec![right.clone(), right],
        (Op::Plus | Op::Minus, Time64(_), Interval(_)) => vec![left, right],
        (Op::Plus, Interval(_), Time64(_)) => vec![left, right],
        (Op::Minus, Time64(_), Time64(_)) => vec![left, right],
        (Op::Plus | Op::Minus, Interval(_), Interval(_)) => vec![left, right],
        (Op::Times | Op::Divide, Interval(_), r) if number(r) => vec![left, DataType::Float64],
        (Op::Times, l, Interval(_)) if number(l) => vec![DataType::Float64, right],
        _ => return None,
    })
}

fn typed_null(op: Op, other: &DataType) -> DataType {
    match (op, other) {
        (Op::Plus | Op::Minus, DataType::Timestamp(_, _) | DataType::Time64(_)) => INTERVAL,
        (Op::Plus | Op::Minus, DataType::Date32) => DataType::Int32,
        (Op::Times | Op::Divide, DataType::Interval(_)) => DataType::Float64,
        _ => other.clone(),
    }
}

fn coerce_numbers(op: Op, left: DataType, right: DataType) -> Option<Vec<DataType>> {
    if float(&left) || float(&right) {
        if op == Op::Modulo {
            return None;
        }
        let both_real = left == DataType::Float32 && right == DataType::Float32;
        let common = if both_real { DataType::Float32 } else { DataType::Float64 };
        return Some(vec![common.clone(), common]);
    }
    if integer(&left) && integer(&right) {
        let wider = if width(&left) >= width(&right) { left } else { right };
        return Some(vec![wider.clone(), wider]);
    }
    Some(vec![decimal_of(&left), decimal_of(&right)])
}

fn width(data_type: &DataType) -> usize {
    data_type.primitive_width().unwrap_or(0)
}

fn output(op: Op, types: &[DataType]) -> DataType {
    let [left, right] = types else {
        return DataType::Null;
    };
    use DataType::{Date32, Decimal128, Interval, Time64, Timestamp};
    match (left, right) {
        (Decimal128(p1, s1), Decimal128(p2, s2)) => decimal_output(op, (*p1, *s1), (*p2, *s2)),
        (Date32, Date32) => DataType::Int32,
        (Date32, Time64(_)) | (Time64(_), Date32) => TIMESTAMP,
        (Timestamp(_, _), Timestamp(_, _)) | (Time64(_), Time64(_)) => INTERVAL,
        (Interval(_), Timestamp(_, _) | Time64(_)) => right.clone(),
        (DataType::Int32, Date32) => Date32,
        (DataType::Float64, Interval(_)) => INTERVAL,
        _ => left.clone(),
    }
}

fn decimal_output(op: Op, (p1, s1): (u8, i8), (p2, s2): (u8, i8)) -> DataType {
    let most = s1.max(s2);
    let whole = |p: u8, s: i8| i16::from(p) - i16::from(s);
    match op {
        Op::Plus | Op::Minus => {
            let precision = whole(p1, s1).max(whole(p2, s2)) + 1 + i16::from(most);
            DataType::Decimal128(u8::try_from(precision).unwrap_or(PRECISION).clamp(1, PRECISION), most)
        }
        Op::Modulo => DataType::Decimal128(PRECISION, most),
        Op::Divide => DataType::Decimal128(PRECISION, SCALE.max(most)),
        Op::Times => DataType::Decimal128((p1 + p2).min(PRECISION), (s1 + s2).min(SCALE.max(most))),
    }
}

fn compute(op: Op, args: &[ColumnarValue], output: &DataType) -> Result<ColumnarValue> {
    let [left, right] = args else {
        return internal_err!("an operator has two operands");
    };
    let constant = matches!((left, right), (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)));
    let column = match (left.data_type(), right.data_type()) {
        (l, r) if integer(&l) && l == r => integers(op, left, right, &l)?,
        (DataType::Decimal128(_, _), DataType::Decimal128(_, _)) => decimals(op, left, right, output)?,
        (l, r) if float(&l) && l == r => floats(op, left, right)?,
        _ => {
            let (left, right) = columns(left, right)?;
            times(op, &left, &right, output)?
        }
    };
    if constant {
        return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&column, 0)?));
    }
    Ok(ColumnarValue::Array(column))
}

/// Calls an Arrow kernel with columns and constants as they are.
fn with_datums(
    left: &ColumnarValue,
    right: &ColumnarValue,
    kernel: impl Fn(&dyn Datum, &dyn Datum) -> Result<ArrayRef, ArrowError>,
) -> Result<ArrayRef> {
    Ok(match (left, right) {
        (ColumnarValue::Array(l), ColumnarValue::Array(r)) => kernel(l, r)?,
        (ColumnarValue::Scalar(l), ColumnarValue::Array(r)) => kernel(&l.to_scalar()?, r)?,
        (ColumnarValue::Array(l), ColumnarValue::Scalar(r)) => kernel(l, &r.to_scalar()?)?,
        (ColumnarValue::Scalar(l), ColumnarValue::Scalar(r)) => kernel(&l.to_array()?, &r.to_array()?)?,
    })
}

fn integers(op: Op, left: &ColumnarValue, right: &ColumnarValue, data_type: &DataType) -> Result<ArrayRef> {
    let kernel = match op {
        Op::Plus => kernels::add,
        Op::Minus => kernels::sub,
        Op::Times => kernels::mul,
        Op::Divide => kernels::div,
        Op::Modulo => kernels::rem,
    };
    with_datums(left, right, kernel).map_err(|error| match &error {
        DataFusionError::ArrowError(inner, _) if matches!(**inner, ArrowError::ArithmeticOverflow(_)) => {
            failure(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("{} out of range", type_name(data_type)))
        }
        _ => error,
    })
}

/// The operands as columns of one length.
fn columns(left: &ColumnarValue, right: &ColumnarValue) -> Result<(ArrayRef, ArrayRef)> {
    let rows = [left, right].into_iter().find_map(|v| match v {
        ColumnarValue::Array(array) => Some(array.len()),
        ColumnarValue::Scalar(_) => None,
    });
    let rows = rows.unwrap_or(1);
    Ok((left.to_array(rows)?, right.to_array(rows)?))
}

fn decimals(op: Op, left: &ColumnarValue, right: &ColumnarValue, output: &DataType) -> Result<ArrayRef> {
    let scale = |t: &DataType| if let DataType::Decimal128(_, s) = t { *s } else { 0 };
    let (s1, s2, to) = (scale(&left.data_type()), scale(&right.data_type()), scale(output));
    let overflow = || numeric_overflow();
    match op {
        Op::Plus => decimal_rows(left, right, output, |a, b| {
            let (a, b) = (numeric::rescale(a, s1, to), numeric::rescale(b, s2, to));
            a.zip(b)
                .and_then(|(a, b)| a.checked_add(b))
                .filter(|v| super::aggregate::fits(*v))
                .ok_or_else(overflow)
        }),
        Op::Minus => decimal_rows(left, right, output, |a, b| {
            let (a, b) = (numeric::rescale(a, s1, to), numeric::rescale(b, s2, to));
            a.zip(b)
                .and_then(|(a, b)| a.checked_sub(b))
                .filter(|v| super::aggregate::fits(*v))
                .ok_or_else(overflow)
        }),
        Op::Times => decimal_rows(left, right, output, |a, b| {
            numeric::multiply(a, b, s1 + s2, to).ok_or_else(overflow)
        }),
        Op::Divide => decimal_rows(left, right, output, |a, b| match b {
            0 => Err(division_by_zero()),
            _ => numeric::divide(a, b, s1, s2, to).ok_or_else(overflow),
        }),
        Op::Modulo => decimal_rows(left, right, output, |a, b| {
            let (a, b) = (numeric::rescale(a, s1, to), numeric::rescale(b, s2, to));
            match a.zip(b) {
                Some((_, 0)) => Err(division_by_zero()),
                Some((a, b)) => Ok(a % b),
                None => Err(overflow()),
            }
        }),
    }
}

fn decimal_rows(
    left: &ColumnarValue,
    right: &ColumnarValue,
    output: &DataType,
    f: impl Fn(i128, i128) -> Result<i128, ArrowError>,
) -> Result<ArrayRef> {
    let constant = |value: &ColumnarValue| match value {
        ColumnarValue::Scalar(ScalarValue::Decimal128(Some(v), _, _)) => Some(*v),
        _ => None,
    };
    let result: PrimitiveArray<Decimal128Type> = match (constant(left), constant(right)) {
        (Some(a), None) => columns(left, right)?.1.as_primitive::<Decimal128Type>().try_unary(|b| f(a, b))?,
        (None, Some(b)) => columns(left, right)?.0.as_primitive::<Decimal128Type>().try_unary(|a| f(a, b))?,
        _ => {
            let (left, right) = columns(left, right)?;
            arity::try_binary(
                left.as_primitive::<Decimal128Type>(),
                right.as_primitive::<Decimal128Type>(),
                f,
            )?
        }
    };
    Ok(Arc::new(result.with_data_type(output.clone())))
}

fn floats(op: Op, left: &ColumnarValue, right: &ColumnarValue) -> Result<ArrayRef> {
    let (left, right) = columns(left, right)?;
    macro_rules! rows {
        ($t:ty) => {{
            let f = |a: <$t as ArrowPrimitiveType>::Native, b: <$t as ArrowPrimitiveType>::Native| {
                let value = match op {
                    Op::Plus => a + b,
                    Op::Minus => a - b,
                    Op::Times => a * b,
                    Op::Divide if b == 0.0 && !a.is_nan() => return Err(division_by_zero()),
                    Op::Divide => a / b,
                    Op::Modulo => a % b,
                };
                if value.is_infinite() && a.is_finite() && b.is_finite() {
                    let state = SqlState::NUMERIC_VALUE_OUT_OF_RANGE;
                    return Err(super::error::arrow_failure(state, "value out of range: overflow"));
                }
                // One NaN: a processor's own may have a sign, and compare below all numbers.
                Ok(if value.is_nan() { <$t as ArrowPrimitiveType>::Native::NAN } else { value })
            };
            let result: PrimitiveArray<$t> =
                arity::try_binary(left.as_primitive::<$t>(), right.as_primitive::<$t>(), f)?;
            Ok(Arc::new(result))
        }};
    }
    match left.data_type() {
        DataType::Float32 => rows!(Float32Type),
        _ => rows!(Float64Type),
    }
}

pub(super) fn division_by_zero() -> ArrowError {
    ArrowError::DivideByZero
}

fn numeric_overflow() -> ArrowError {
    super::error::arrow_failure(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format")
}
