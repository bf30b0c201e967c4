//! SQL types to Arrow and back.
//!
//! ```text
//!   boolean Boolean           smallint, int, bigint  Int16, Int32, Int64     real, double  Float32, Float64
//!   numeric Decimal128(38,10) numeric(p,s)  Decimal128(p,s)                  bytea  Binary
//!   text, varchar, char, name Utf8    json, jsonb, uuid  Utf8 with metadata {"weir.type": …}
//!   date Date32               time Time64(µs)        timestamp Timestamp(µs)  timestamptz Timestamp(µs, "+00:00")
//!   interval Interval(MonthDayNano)         t[]  List    struct<…>  Struct    oid and its kin  Int64
//! ```

use crate::error::SqlError;
use crate::parser::fold;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, IntervalUnit, TimeUnit};
use datafusion_expr::planner::TypePlanner;
use sqlparser::ast::{
    self, ArrayElemTypeDef, CharacterLength, ExactNumberInfo, ObjectNamePart, TimezoneInfo,
};
use std::collections::HashMap;
use std::sync::Arc;
use weir_catalog::SqlState;

pub use weir_catalog::column::TYPE_KEY;

/// The time zone of every timestamptz in Arrow.
pub const UTC: &str = "+00:00";
const PRECISION_MAX: u64 = 38;
/// The Arrow type of a numeric without precision.
const NUMERIC: DataType = DataType::Decimal128(38, 10);

/// The Arrow type of a SQL type.
pub fn sql_type_to_arrow(sql: &ast::DataType) -> Result<DataType, SqlError> {
    use ast::DataType as Sql;
    Ok(match sql {
        Sql::Boolean | Sql::Bool => DataType::Boolean,
        Sql::SmallInt(_) | Sql::Int2(_) => DataType::Int16,
        Sql::Int(_) | Sql::Integer(_) | Sql::Int4(_) => DataType::Int32,
        Sql::BigInt(_) | Sql::Int8(_) => DataType::Int64,
        Sql::Real | Sql::Float4 => DataType::Float32,
        Sql::Float(info) => float_type(info)?,
        Sql::Double(_) | Sql::DoublePrecision | Sql::Float8 => DataType::Float64,
        Sql::Numeric(info) | Sql::Decimal(info) | Sql::Dec(info) => numeric_type(info)?,
        Sql::Bytea => DataType::Binary,
        Sql::Date => DataType::Date32,
        Sql::Time(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            DataType::Time64(TimeUnit::Microsecond)
        }
        Sql::Timestamp(_, zone) => timestamp_type(*zone),
        Sql::Interval { .. } => DataType::Interval(IntervalUnit::MonthDayNano),
        Sql::JSON | Sql::JSONB | Sql::Uuid => DataType::Utf8,
        Sql::Regclass => DataType::Int64,
        Sql::Array(ArrayElemTypeDef::SquareBracket(item, _) | ArrayElemTypeDef::AngleBracket(item)) => {
            DataType::List(Arc::new(Field::new_list_field(sql_type_to_arrow(item)?, true)))
        }
        Sql::Struct(fields, _) => struct_type(fields)?,
        Sql::Custom(name, modifiers) => custom_type(name, modifiers)?,
        other if is_text(other) => DataType::Utf8,
        other => return Err(SqlError::not_supported(format_args!("type {}", lower(other)))),
    })
}

fn is_text(sql: &ast::DataType) -> bool {
    use ast::DataType as Sql;
    matches!(
        sql,
        Sql::Text
            | Sql::String(_)
            | Sql::Varchar(_)
            | Sql::CharacterVarying(_)
            | Sql::CharVarying(_)
            | Sql::Char(_)
            | Sql::Character(_)
    )
}

fn float_type(info: &ExactNumberInfo) -> Result<DataType, SqlError> {
    match info {
        ExactNumberInfo::None | ExactNumberInfo::Precision(25..=53) => Ok(DataType::Float64),
        ExactNumberInfo::Precision(1..=24) => Ok(DataType::Float32),
        _ => Err(invalid("precision for type float must be between 1 and 53 bits")),
    }
}

fn numeric_type(info: &ExactNumberInfo) -> Result<DataType, SqlError> {
    let (precision, scale) = match *info {
        ExactNumberInfo::None => return Ok(NUMERIC),
        ExactNumberInfo::Precision(precision) => (precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (precision, scale),
    };
    if !(1..=PRECISION_MAX).contains(&precision) {
        return Err(invalid(format!("NUMERIC precision {precision} must be between 1 and {PRECISION_MAX}")));
    }
    if !(0..=precision as i64).contains(&scale) {
        return Err(invalid(format!("NUMERIC scale {scale} must be between 0 and precision {precision}")));
    }
    Ok(DataType::Decimal128(precision as u8, scale as i8))
}

fn timestamp_type(zone: TimezoneInfo) -> DataType {
    let zoned = matches!(zone, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone);
    DataType::Timestamp(TimeUnit::Microsecond, zoned.then(|| UTC.into()))
}

fn struct_type(fields: &[ast::StructField]) -> Result<DataType, SqlError> {
    let mut arrow = Vec::new();
    for (i, field) in fields.iter().enumerate() {
        let name = field.field_name.as_ref().map_or_else(|| format!("f{}", i + 1), fold);
        arrow.push(sql_field(&name, &field.field_type)?);
    }
    Ok(DataType::Struct(Fields::from(arrow)))
}

/// Types that sqlparser has no node for: PostgreSQL's own, for the queries of its tools.
fn custom_type(name: &ast::ObjectName, modifiers: &[String]) -> Result<DataType, SqlError> {
    Ok(match last_part(name).as_str() {
        "oid" | "regtype" | "regproc" | "regclass" | "regnamespace" | "regrole" | "xid" => DataType::Int64,
        "name" | "char" | "bpchar" | "text" | "varchar" | "citext" | "json" | "jsonb" | "uuid" => {
            DataType::Utf8
        }
        "bool" => DataType::Boolean,
        "int2" => DataType::Int16,
        "int4" => DataType::Int32,
        "int8" => DataType::Int64,
        "float4" => DataType::Float32,
        "float8" => DataType::Float64,
        "numeric" => custom_numeric(modifiers)?,
        "date" => DataType::Date32,
        "time" => DataType::Time64(TimeUnit::Microsecond),
        "timestamp" => timestamp_type(TimezoneInfo::None),
        "timestamptz" => timestamp_type(TimezoneInfo::Tz),
        "interval" => DataType::Interval(IntervalUnit::MonthDayNano),
        "bytea" => DataType::Binary,
        serial @ ("serial" | "bigserial" | "smallserial") => {
            return Err(SqlError::not_supported(format_args!("type {serial}"))
                .hint("Use an integer type and give the values."));
        }
        other => {
            return Err(SqlError::new(
                SqlState::UNDEFINED_OBJECT,
                format!("type \"{other}\" does not exist"),
            ));
        }
    })
}

fn custom_numeric(modifiers: &[String]) -> Result<DataType, SqlError> {
    let number = |i: usize| modifiers.get(i).and_then(|m: &String| m.trim().parse::<u64>().ok());
    numeric_type(&match (number(0), number(1)) {
        (None, _) => ExactNumberInfo::None,
        (Some(precision), None) => ExactNumberInfo::Precision(precision),
        (Some(precision), Some(scale)) => ExactNumberInfo::PrecisionAndScale(precision, scale as i64),
    })
}

fn last_part(name: &ast::ObjectName) -> String {
    match name.0.last() {
        Some(ObjectNamePart::Identifier(ident)) => ident.value.to_lowercase(),
        _ => name.to_string().to_lowercase(),
    }
}

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

fn lower(sql: &ast::DataType) -> String {
    sql.to_string().to_lowercase()
}

/// Which SQL type a Utf8 stands for, where it is not text, and which precision a time is held to.
fn marker(sql: &ast::DataType) -> Option<String> {
    use ast::DataType as Sql;
    let known = |marker: &str| Some(marker.to_owned());
    match sql {
        Sql::JSON => known("json"),
        Sql::JSONB => known("jsonb"),
        Sql::Uuid => known("uuid"),
        Sql::Varchar(_)
        | Sql::CharacterVarying(_)
        | Sql::CharVarying(_)
        | Sql::Char(_)
        | Sql::Character(_) => sized_text(sql),
        Sql::Timestamp(..) | Sql::Time(..) | Sql::Interval { .. } => held_time(sql),
        Sql::Custom(name, _) => match last_part(name).as_str() {
            "varchar" => known("character varying"),
            marker @ ("json" | "jsonb" | "uuid" | "oid" | "xid" | "name" | "char" | "bpchar") => {
                known(marker)
            }
            _ => None,
        },
        _ => None,
    }
}

/// How PostgreSQL spells a type of text with a length: `character varying(10)`, `character(1)`.
fn sized_text(sql: &ast::DataType) -> Option<String> {
    use ast::DataType as Sql;
    let (name, length) = match sql {
        Sql::Varchar(length) | Sql::CharacterVarying(length) | Sql::CharVarying(length) => {
            ("character varying", length.as_ref())
        }
        Sql::Char(None) | Sql::Character(None) => return Some("character(1)".to_owned()),
        Sql::Char(length) | Sql::Character(length) => ("character", length.as_ref()),
        _ => return None,
    };
    Some(match length {
        Some(CharacterLength::IntegerLength { length, .. }) => format!("{name}({length})"),
        _ => name.to_owned(),
    })
}

/// How PostgreSQL spells a time that is held to a precision: `timestamp(0) with time zone`,
/// `interval day to second(3)`; none of one that is as precise as there is.
fn held_time(sql: &ast::DataType) -> Option<String> {
    use ast::DataType as Sql;
    let digits = |digits: Option<u64>| digits.filter(|digits| *digits < 6);
    match *sql {
        Sql::Timestamp(precision, zone) => {
            let zoned = matches!(zone, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone);
            let with = if zoned { "with" } else { "without" };
            digits(precision).map(|digits| format!("timestamp({digits}) {with} time zone"))
        }
        Sql::Time(precision, _) => {
            digits(precision).map(|digits| format!("time({digits}) without time zone"))
        }
        Sql::Interval { ref fields, precision } => {
            let named = fields.as_ref().map(|fields| format!(" {}", fields.to_string().to_lowercase()));
            let held = digits(precision).map(|digits| format!("({digits})"));
            (named.is_some() || held.is_some())
                .then(|| format!("interval{}{}", named.unwrap_or_default(), held.unwrap_or_default()))
        }
        _ => None,
    }
}

/// A nullable field of a SQL type, marked where Arrow's type does not tell it.
pub fn sql_field(name: &str, sql: &ast::DataType) -> Result<Field, SqlError> {
    let field = Field::new(name, sql_type_to_arrow(sql)?, true);
    Ok(match marker(sql) {
        Some(marker) => field.with_metadata(HashMap::from([(TYPE_KEY.to_owned(), marker)])),
        None => field,
    })
}

/// How PostgreSQL spells a declared type: `character varying(10)`, `numeric(10,2)`.
pub fn sql_type_name(sql: &ast::DataType) -> Result<String, SqlError> {
    use ast::DataType as Sql;
    Ok(match sql {
        Sql::Numeric(ExactNumberInfo::None)
        | Sql::Decimal(ExactNumberInfo::None)
        | Sql::Dec(ExactNumberInfo::None) => "numeric".to_owned(),
        Sql::Array(ArrayElemTypeDef::SquareBracket(item, _) | ArrayElemTypeDef::AngleBracket(item)) => {
            format!("{}[]", sql_type_name(item)?)
        }
        _ => arrow_to_sql(&sql_field("", sql)?),
    })
}

/// How PostgreSQL spells the type of a field.
pub fn arrow_to_sql(field: &Field) -> String {
    match field.metadata().get(TYPE_KEY) {
        Some(marker) => marker.clone(),
        None => type_name(field.data_type()),
    }
}

/// How PostgreSQL spells an Arrow type.
pub fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Null => "text".to_owned(),
        DataType::Decimal128(_, _) if *data_type == NUMERIC => "numeric".to_owned(),
        DataType::Decimal128(p, s) => format!("numeric({p},{s})"),
        DataType::List(item) => format!("{}[]", arrow_to_sql(item)),
        DataType::Struct(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|f| format!("{} {}", f.name(), arrow_to_sql(f))).collect();
            format!("struct<{}>", fields.join(", "))
        }
        other => crate::functions::type_name(other),
    }
}

/// The nearest of Weir's types: what a function of DataFusion's returns may be another.
pub fn canonical(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Null | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => DataType::Binary,
        DataType::Int8 | DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        DataType::UInt32 | DataType::UInt64 => DataType::Int64,
        DataType::Float16 => DataType::Float32,
        DataType::Date64 => DataType::Date32,
        DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
        DataType::Timestamp(_, None) => DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Timestamp(_, Some(_)) => timestamp_type(TimezoneInfo::Tz),
        DataType::Interval(_) | DataType::Duration(_) => DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::Dictionary(_, value) => canonical(value),
        DataType::Decimal256(_, s) => DataType::Decimal128(PRECISION_MAX as u8, *s),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            DataType::List(Arc::new(Field::new_list_field(canonical(item.data_type()), true)))
        }
        other => other.clone(),
    }
}

/// Gives DataFusion's SQL planner our types.
#[derive(Debug)]
pub(super) struct Types;

impl TypePlanner for Types {
    fn plan_type_field(&self, sql: &ast::DataType) -> datafusion_common::Result<Option<FieldRef>> {
        match sql_field("", sql) {
            Ok(field) => Ok(Some(Arc::new(field))),
            Err(error) => Err(crate::functions::error::external(error)),
        }
    }
}

#[cfg(test)]
#[path = "tests/types.rs"]
mod tests;
