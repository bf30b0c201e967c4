//! Casts with PostgreSQL's meaning, where Arrow's differ: text forms both ways, rounding instead
//! of truncation, ranges, and the errors' words.

use super::error::{external, failure};
use super::parse::{self, ParseError};
use super::{calendar, json, json_text, numeric, parse_array, text, time_precision, type_name};
use crate::error::SqlError;
use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BinaryArray, BooleanArray, ListArray, PrimitiveArray,
    StringArray, StringBuilder,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Field, FieldRef, Float32Type, Float64Type, Int16Type, Int32Type,
    Int64Type, IntervalMonthDayNanoType, IntervalUnit, Time64MicrosecondType, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion_common::{DataFusionError, Result, ScalarValue, internal_err};
use datafusion_expr::expr::{Cast, ScalarFunction};
use datafusion_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;
use weir_catalog::SqlState;

/// The key of a field's metadata that tells SQL types of one Arrow type apart.
const TYPE_KEY: &str = "weir.type";

/// `cast` as a call of our own, if PostgreSQL means something else by it than Arrow.
pub fn replaced(cast: Cast, from: &DataType) -> Expr {
    if !differs(from, &cast.field) {
        return Expr::Cast(cast);
    }
    let function = ScalarUDF::from(CastTo {
        to: Arc::clone(&cast.field),
        signature: Signature::any(1, Volatility::Immutable),
    });
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function), vec![*cast.expr]))
}

fn differs(from: &DataType, to: &Field) -> bool {
    let exact = |t: &DataType| t.is_integer() || matches!(t, DataType::Decimal128(_, _));
    let marked = to.metadata().contains_key(TYPE_KEY);
    match (plain_text(from), to.data_type()) {
        (DataType::Utf8, DataType::Utf8) => marked,
        (_, to) if marked && to.is_temporal() => true,
        (DataType::Utf8, DataType::List(item)) => from_text_supported(item.data_type()),
        (DataType::Utf8, to) => from_text_supported(to),
        (from, DataType::Utf8) => text::differs(from),
        (from, to) if from.is_integer() && to.is_integer() => from.primitive_width() > to.primitive_width(),
        (from, to) if from.is_floating() => exact(to),
        (DataType::Decimal128(_, _), to) => exact(to) || to.is_floating(),
        (DataType::Date32, DataType::Timestamp(..)) | (DataType::Timestamp(..), DataType::Date32) => true,
        (from, to) => from.is_integer() && matches!(to, DataType::Decimal128(_, _)),
    }
}

/// What DataFusion's functions make of text is text in another layout.
fn plain_text(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Utf8View | DataType::LargeUtf8 => &DataType::Utf8,
        other => other,
    }
}

fn from_text_supported(to: &DataType) -> bool {
    matches!(
        to,
        DataType::Boolean
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Float32
            | DataType::Float64
            | DataType::Decimal128(_, _)
            | DataType::Date32
            | DataType::Time64(TimeUnit::Microsecond)
            | DataType::Timestamp(TimeUnit::Microsecond, _)
            | DataType::Interval(_)
            | DataType::Binary
            | DataType::Utf8
    ) || matches!(to, DataType::List(item) if from_text_supported(item.data_type()))
}

/// The cast to one type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CastTo {
    to: FieldRef,
    signature: Signature,
}

impl ScalarUDFImpl for CastTo {
    fn name(&self) -> &str {
        "cast"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let args: Vec<String> = args.iter().map(|a| a.schema_name().to_string()).collect();
        Ok(format!("CAST({} AS {})", args.join(","), type_name(self.to.data_type())))
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(self.to.data_type().clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let nullable = args.arg_fields.iter().any(|f| f.is_nullable());
        let field = Field::new("cast", self.to.data_type().clone(), nullable);
        Ok(Arc::new(field.with_metadata(self.to.metadata().clone())))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.into_iter().next() {
            Some(ColumnarValue::Scalar(value)) => {
                let column = cast_column(&value.to_array()?, &self.to)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&column, 0)?))
            }
            Some(ColumnarValue::Array(column)) => Ok(ColumnarValue::Array(cast_column(&column, &self.to)?)),
            None => internal_err!("a cast has an argument"),
        }
    }
}

/// `column` as values of `to`'s type, held to its precision.
pub fn cast_column(column: &ArrayRef, to: &Field) -> Result<ArrayRef> {
    let values = converted(column, to)?;
    match to.metadata().get(TYPE_KEY) {
        Some(held) if to.data_type().is_temporal() => time_precision::held(&values, held),
        _ => Ok(values),
    }
}

fn converted(column: &ArrayRef, to: &Field) -> Result<ArrayRef> {
    match (column.data_type(), to.data_type()) {
        (DataType::Utf8View | DataType::LargeUtf8, _) => {
            converted(&arrow::compute::cast(column, &DataType::Utf8)?, to)
        }
        (from, to) if from == &DataType::Null => Ok(arrow::array::new_null_array(to, column.len())),
        (DataType::Utf8, _) => from_text(column.as_string(), to),
        (from, DataType::Utf8) if text::differs(from) => Ok(Arc::new(to_text(plain(column)?.as_ref()))),
        (from, out) if from.is_integer() && out.is_integer() => integers(column, out),
        (from, out) if from.is_floating() => floats(column, out),
        (DataType::Decimal128(_, scale), out) => decimals(column, *scale, out),
        (from, DataType::Decimal128(_, _)) if from.is_integer() => {
            let whole = arrow::compute::cast(column, &DataType::Decimal128(numeric::PRECISION, 0))?;
            decimals(&whole, 0, to.data_type())
        }
        (DataType::Date32, DataType::Timestamp(TimeUnit::Microsecond, _)) => {
            let starts = column.as_primitive::<Date32Type>();
            let starts = starts.unary::<_, TimestampMicrosecondType>(calendar::start_of_day);
            Ok(Arc::new(starts.with_data_type(to.data_type().clone())))
        }
        (DataType::Timestamp(..), DataType::Date32) => {
            let times = plain(column)?;
            let times = times.as_primitive::<TimestampMicrosecondType>();
            Ok(Arc::new(times.unary::<_, Date32Type>(calendar::day_of)))
        }
        (_, out) => Ok(arrow::compute::cast(column, out)?),
    }
}

/// Times in units that only DataFusion uses become microseconds first.
fn plain(column: &ArrayRef) -> Result<ArrayRef> {
    let target = match column.data_type() {
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
        DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
        DataType::Interval(_) | DataType::Duration(_) => DataType::Interval(IntervalUnit::MonthDayNano),
        _ => return Ok(Arc::clone(column)),
    };
    Ok(arrow::compute::cast(column, &target)?)
}

fn to_text(column: &dyn Array) -> StringArray {
    let mut out = StringBuilder::new();
    let mut value = String::new();
    for row in 0..column.len() {
        if column.is_null(row) {
            out.append_null();
            continue;
        }
        value.clear();
        text::write_text(column, row, &mut value);
        out.append_value(&value);
    }
    out.finish()
}

/// Parses each text; errors name it.
fn parsed<T>(
    texts: &StringArray,
    to: &Field,
    parse: impl Fn(&str) -> Result<T, ParseError>,
) -> Result<Vec<Option<T>>> {
    texts
        .iter()
        .map(|text| text.map(|t| parse(t).map_err(|error| text_error(error, t, to))).transpose())
        .collect()
}

fn primitive<P: ArrowPrimitiveType>(
    texts: &StringArray,
    to: &Field,
    parse: impl Fn(&str) -> Result<P::Native, ParseError>,
) -> Result<ArrayRef> {
    let values: PrimitiveArray<P> = parsed(texts, to, parse)?.into_iter().collect();
    Ok(Arc::new(values.with_data_type(to.data_type().clone())))
}

fn from_text(texts: &StringArray, to: &Field) -> Result<ArrayRef> {
    match to.data_type() {
        DataType::Boolean => {
            Ok(Arc::new(parsed(texts, to, parse::boolean)?.into_iter().collect::<BooleanArray>()))
        }
        DataType::Int16 => primitive::<Int16Type>(texts, to, |t| {
            Ok(parse::integer(t, i64::from(i16::MIN), i64::from(i16::MAX))? as i16)
        }),
        DataType::Int32 => primitive::<Int32Type>(texts, to, |t| {
            Ok(parse::integer(t, i64::from(i32::MIN), i64::from(i32::MAX))? as i32)
        }),
        DataType::Int64 => primitive::<Int64Type>(texts, to, |t| parse::integer(t, i64::MIN, i64::MAX)),
        DataType::Float32 => primitive::<Float32Type>(texts, to, |t| {
            let value = parse::float(t)?;
            let real = value as f32;
            let lost = real == 0.0 && value != 0.0;
            if (real.is_infinite() && value.is_finite()) || lost {
                Err(ParseError::OutOfRange)
            } else {
                Ok(real)
            }
        }),
        DataType::Float64 => primitive::<Float64Type>(texts, to, parse::float),
        DataType::Decimal128(p, s) => primitive::<Decimal128Type>(texts, to, |t| parse::decimal(t, *p, *s)),
        DataType::Date32 => primitive::<Date32Type>(texts, to, parse::date),
        DataType::Time64(_) => primitive::<Time64MicrosecondType>(texts, to, parse::time),
        DataType::Timestamp(_, zone) => {
            primitive::<TimestampMicrosecondType>(texts, to, |t| parse::timestamp(t, zone.is_some()))
        }
        DataType::Interval(_) => primitive::<IntervalMonthDayNanoType>(texts, to, parse::interval),
        DataType::Binary => {
            Ok(Arc::new(parsed(texts, to, parse::bytea)?.into_iter().collect::<BinaryArray>()))
        }
        DataType::Utf8 => marked_text(texts, to),
        DataType::List(item) => from_text_to_list(texts, to, item),
        other => internal_err!("a cast from text to {other}"),
    }
}

/// uuid and jsonb are text in a normal form, json is any text that is JSON.
fn marked_text(texts: &StringArray, to: &Field) -> Result<ArrayRef> {
    let values = match to.metadata().get(TYPE_KEY).map(String::as_str) {
        Some("uuid") => parsed(texts, to, parse::uuid)?,
        Some("jsonb") => parsed(texts, to, json::normal_form)?,
        Some("json") => {
            let kept = |t: &str| json_text::is_valid(t).then(|| t.to_owned()).ok_or(ParseError::Syntax);
            parsed(texts, to, kept)?
        }
        Some(sized) => return held_to_length(texts, sized),
        None => return Ok(Arc::new(texts.clone())),
    };
    Ok(Arc::new(values.into_iter().collect::<StringArray>()))
}

/// Texts as a column of type `character varying(n)` takes them: too long is an error, unless only
/// spaces are too many. `character(n)` is kept without the spaces that fill it up: they mean nothing.
fn held_to_length(texts: &StringArray, to: &str) -> Result<ArrayRef> {
    if to.starts_with("character(") || to == "bpchar" {
        let trimmed: StringArray = texts.iter().map(|text| text.map(|t| t.trim_end_matches(' '))).collect();
        return match to {
            "bpchar" => Ok(Arc::new(trimmed)),
            _ => held_to(&trimmed, to),
        };
    }
    held_to(texts, to)
}

fn held_to(texts: &StringArray, to: &str) -> Result<ArrayRef> {
    let Some(length) = to.strip_suffix(')').and_then(|t| t.rsplit('(').next()?.parse::<usize>().ok()) else {
        return Ok(Arc::new(texts.clone()));
    };
    let held = |text: &str| match text.char_indices().nth(length) {
        None => Ok(text.to_owned()),
        Some((at, _)) if text[at..].trim_matches(' ').is_empty() => Ok(text[..at].to_owned()),
        Some(_) => Err(failure(SqlState("22001"), format!("value too long for type {to}"))),
    };
    let values: Result<StringArray> = texts.iter().map(|text| text.map(held).transpose()).collect();
    Ok(Arc::new(values?))
}

fn from_text_to_list(texts: &StringArray, to: &Field, item: &FieldRef) -> Result<ArrayRef> {
    let lists = parsed(texts, to, parse_array::array)?;
    let lengths: Vec<usize> = lists.iter().map(|l| l.as_ref().map_or(0, Vec::len)).collect();
    let valid: NullBuffer = lists.iter().map(Option::is_some).collect();
    let elements: StringArray = lists.into_iter().flatten().flatten().collect();
    let values = from_text(&elements, item)?;
    let list =
        ListArray::try_new(Arc::clone(item), OffsetBuffer::from_lengths(lengths), values, Some(valid))?;
    Ok(Arc::new(list))
}

fn text_error(error: ParseError, value: &str, to: &Field) -> DataFusionError {
    let name = match to.metadata().get(TYPE_KEY).map(String::as_str) {
        Some("jsonb") => "json".to_owned(),
        Some(marker) => marker.to_owned(),
        None => match to.data_type() {
            DataType::Timestamp(_, None) => "timestamp".to_owned(),
            DataType::Time64(_) => "time".to_owned(),
            other => type_name(other),
        },
    };
    let temporal = to.data_type().is_temporal();
    let array = matches!(to.data_type(), DataType::List(_));
    match (error, to.data_type()) {
        (ParseError::Syntax, _) if array => {
            failure(SqlState::INVALID_TEXT_REPRESENTATION, format!("malformed array literal: \"{value}\""))
        }
        (ParseError::Syntax, _) => {
            let state = if temporal { SqlState("22007") } else { SqlState::INVALID_TEXT_REPRESENTATION };
            failure(state, format!("invalid input syntax for type {name}: \"{value}\""))
        }
        (ParseError::Unicode, _) => json::zero_error(),
        (ParseError::OutOfRange, _) if temporal => {
            failure(SqlState("22008"), format!("date/time field value out of range: \"{value}\""))
        }
        (ParseError::OutOfRange, DataType::Decimal128(p, s)) => numeric_overflow(*p, *s),
        (ParseError::OutOfRange, DataType::Float32 | DataType::Float64) => {
            out_of_range(format!("\"{value}\" is out of range for type {name}"))
        }
        (ParseError::OutOfRange, _) => {
            out_of_range(format!("value \"{value}\" is out of range for type {name}"))
        }
    }
}

fn out_of_range(message: String) -> DataFusionError {
    failure(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message)
}

fn numeric_overflow(precision: u8, scale: i8) -> DataFusionError {
    let detail = format!(
        "A field with precision {precision}, scale {scale} must round to an absolute value less than 10^{}.",
        i16::from(precision) - i16::from(scale)
    );
    external(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow").detail(detail))
}

/// Numbers by way of a 128-bit integer to an integer type.
fn to_integers(values: impl Iterator<Item = Result<Option<i128>>>, out: &DataType) -> Result<ArrayRef> {
    macro_rules! collect {
        ($t:ty) => {{
            let narrow = |v: i128| {
                <$t as ArrowPrimitiveType>::Native::try_from(v)
                    .map_err(|_| out_of_range(format!("{} out of range", type_name(out))))
            };
            let values: PrimitiveArray<$t> =
                values.map(|v| v?.map(narrow).transpose()).collect::<Result<Vec<_>>>()?.into_iter().collect();
            Ok(Arc::new(values))
        }};
    }
    match out {
        DataType::Int16 => collect!(Int16Type),
        DataType::Int32 => collect!(Int32Type),
        DataType::Int64 => collect!(Int64Type),
        other => internal_err!("a cast to {other}"),
    }
}

fn integers(column: &ArrayRef, out: &DataType) -> Result<ArrayRef> {
    let wide = arrow::compute::cast(column, &DataType::Int64)?;
    to_integers(wide.as_primitive::<Int64Type>().iter().map(|v| Ok(v.map(i128::from))), out)
}

fn floats(column: &ArrayRef, out: &DataType) -> Result<ArrayRef> {
    let real = column.data_type() == &DataType::Float32;
    let wide = arrow::compute::cast(column, &DataType::Float64)?;
    let values = wide.as_primitive::<Float64Type>();
    if let DataType::Decimal128(p, s) = out {
        let decimal = |v: f64| {
            if !v.is_finite() {
                let what = if v.is_nan() { "NaN" } else { "infinity" };
                return Err(failure(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    format!("cannot convert {what} to numeric"),
                ));
            }
            // PostgreSQL takes the digits that a float surely has.
            let digits = if real { format!("{v:.5e}") } else { format!("{v:.14e}") };
            parse::decimal(&digits, *p, *s).map_err(|_| numeric_overflow(*p, *s))
        };
        let values: PrimitiveArray<Decimal128Type> = values.try_unary(decimal)?;
        return Ok(Arc::new(values.with_data_type(out.clone())));
    }
    let rounded = |v: f64| {
        let rounded = v.round_ties_even();
        if rounded.is_finite() && rounded.abs() < 1e30 {
            Ok(rounded as i128)
        } else {
            Err(out_of_range(format!("{} out of range", type_name(out))))
        }
    };
    to_integers(values.iter().map(|v| v.map(rounded).transpose()), out)
}

fn decimals(column: &ArrayRef, scale: i8, out: &DataType) -> Result<ArrayRef> {
    let values = column.as_primitive::<Decimal128Type>();
    if let DataType::Decimal128(p, s) = out {
        let limit = 10i128.checked_pow(u32::from(*p)).unwrap_or(i128::MAX);
        let rescaled = |v: i128| {
            let value = numeric::rescale(v, scale, *s).filter(|v| v.unsigned_abs() < limit.unsigned_abs());
            value.ok_or_else(|| numeric_overflow(*p, *s))
        };
        let values: PrimitiveArray<Decimal128Type> = values.try_unary(rescaled)?;
        return Ok(Arc::new(values.with_data_type(out.clone())));
    }
    if out.is_floating() {
        let doubles = values.unary::<_, Float64Type>(|v| numeric::to_f64(v, scale));
        return Ok(arrow::compute::cast(&doubles, out)?);
    }
    to_integers(values.iter().map(|v| Ok(v.and_then(|v| numeric::rescale(v, scale, 0)))), out)
}

#[cfg(test)]
#[path = "tests/cast.rs"]
mod tests;
