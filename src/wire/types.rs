//! Arrow types and PostgreSQL's: which OID a column is announced with, and which Arrow type a
//! parameter of an OID gets.
//!
//! A field's metadata `weir.type` names the SQL type where several share an Arrow type
//! (`jsonb`, `uuid`, `oid`, `name`, …).

use super::frame::violation;
use crate::session::SessionError;
use crate::session::text::plain_type;
use arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};
use pgwire::api::Type;
use pgwire::messages::data::{FieldDescription, RowDescription};
use std::sync::Arc;
use weir_catalog::SqlState;

/// The metadata key of a field that names its SQL type.
pub const TYPE_KEY: &str = "weir.type";

/// The greatest precision that Arrow has: what `numeric` without a precision gets.
const BARE_NUMERIC_PRECISION: u8 = 38;

/// The PostgreSQL type of a column.
pub fn pg_type(field: &Field) -> Type {
    if let Some(named) = field.metadata().get(TYPE_KEY).and_then(|name| named_type(name)) {
        return named;
    }
    match plain_type(field.data_type()) {
        DataType::Boolean => Type::BOOL,
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => Type::INT2,
        DataType::UInt16 | DataType::Int32 => Type::INT4,
        DataType::UInt32 | DataType::Int64 | DataType::UInt64 => Type::INT8,
        DataType::Float32 => Type::FLOAT4,
        DataType::Float64 => Type::FLOAT8,
        DataType::Decimal128(_, _) | DataType::Decimal256(_, _) => Type::NUMERIC,
        DataType::Binary => Type::BYTEA,
        DataType::Date32 => Type::DATE,
        DataType::Time64(_) => Type::TIME,
        DataType::Timestamp(_, None) => Type::TIMESTAMP,
        DataType::Timestamp(_, Some(_)) => Type::TIMESTAMPTZ,
        DataType::Interval(_) => Type::INTERVAL,
        DataType::List(item) => array_type(&element_type(&item)),
        DataType::Struct(_) => Type::RECORD,
        _ => Type::TEXT,
    }
}

/// The PostgreSQL type of the innermost elements of a list: PostgreSQL's arrays of any number of
/// dimensions have one type.
pub fn element_type(item: &Field) -> Type {
    match plain_type(item.data_type()) {
        DataType::List(inner) => element_type(&inner),
        _ => pg_type(item),
    }
}

fn named_type(name: &str) -> Option<Type> {
    Some(match name.split('(').next().unwrap_or_default() {
        "jsonb" => Type::JSONB,
        "json" => Type::JSON,
        "uuid" => Type::UUID,
        "varchar" | "character varying" => Type::VARCHAR,
        "bpchar" | "character" => Type::BPCHAR,
        "name" => Type::NAME,
        "char" => Type::CHAR,
        "oid" => Type::OID,
        "regtype" => Type::REGTYPE,
        "regclass" => Type::REGCLASS,
        "regproc" => Type::REGPROC,
        "xid" => Type::XID,
        "void" => Type::VOID,
        _ => return None,
    })
}

fn array_type(element: &Type) -> Type {
    match *element {
        Type::BOOL => Type::BOOL_ARRAY,
        Type::INT2 => Type::INT2_ARRAY,
        Type::INT4 => Type::INT4_ARRAY,
        Type::INT8 => Type::INT8_ARRAY,
        Type::FLOAT4 => Type::FLOAT4_ARRAY,
        Type::FLOAT8 => Type::FLOAT8_ARRAY,
        Type::NUMERIC => Type::NUMERIC_ARRAY,
        Type::BYTEA => Type::BYTEA_ARRAY,
        Type::DATE => Type::DATE_ARRAY,
        Type::TIME => Type::TIME_ARRAY,
        Type::TIMESTAMP => Type::TIMESTAMP_ARRAY,
        Type::TIMESTAMPTZ => Type::TIMESTAMPTZ_ARRAY,
        Type::INTERVAL => Type::INTERVAL_ARRAY,
        Type::RECORD => Type::RECORD_ARRAY,
        Type::JSONB => Type::JSONB_ARRAY,
        Type::JSON => Type::JSON_ARRAY,
        Type::UUID => Type::UUID_ARRAY,
        Type::VARCHAR => Type::VARCHAR_ARRAY,
        Type::BPCHAR => Type::BPCHAR_ARRAY,
        Type::NAME => Type::NAME_ARRAY,
        Type::OID => Type::OID_ARRAY,
        Type::CHAR => Type::CHAR_ARRAY,
        _ => Type::TEXT_ARRAY,
    }
}

/// The Arrow type of a parameter that the client declares with `oid`; `None` leaves it to the
/// planner (unknown, or a type that Weir has no values of).
pub fn arrow_type(oid: u32) -> Option<DataType> {
    let list = |item| DataType::List(Arc::new(Field::new("item", item, true)));
    let micros = TimeUnit::Microsecond;
    Some(match Type::from_oid(oid)? {
        Type::BOOL => DataType::Boolean,
        Type::INT2 => DataType::Int16,
        Type::INT4 => DataType::Int32,
        Type::INT8 | Type::OID => DataType::Int64,
        Type::FLOAT4 => DataType::Float32,
        Type::FLOAT8 => DataType::Float64,
        Type::NUMERIC => DataType::Decimal128(BARE_NUMERIC_PRECISION, 10),
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::CHAR => DataType::Utf8,
        Type::JSON | Type::JSONB | Type::UUID => DataType::Utf8,
        Type::BYTEA => DataType::Binary,
        Type::DATE => DataType::Date32,
        Type::TIME => DataType::Time64(micros),
        Type::TIMESTAMP => DataType::Timestamp(micros, None),
        Type::TIMESTAMPTZ => DataType::Timestamp(micros, Some("+00:00".into())),
        Type::INTERVAL => DataType::Interval(IntervalUnit::MonthDayNano),
        Type::BOOL_ARRAY => list(DataType::Boolean),
        Type::INT2_ARRAY => list(DataType::Int16),
        Type::INT4_ARRAY => list(DataType::Int32),
        Type::INT8_ARRAY | Type::OID_ARRAY => list(DataType::Int64),
        Type::FLOAT4_ARRAY => list(DataType::Float32),
        Type::FLOAT8_ARRAY => list(DataType::Float64),
        Type::TEXT_ARRAY | Type::VARCHAR_ARRAY | Type::NAME_ARRAY => list(DataType::Utf8),
        _ => return None,
    })
}

/// `pg_type.typlen`: bytes of a fixed width type, -1 for others.
fn type_size(pg_type: &Type) -> i16 {
    match *pg_type {
        Type::BOOL | Type::CHAR => 1,
        Type::INT2 => 2,
        Type::INT4
        | Type::FLOAT4
        | Type::DATE
        | Type::OID
        | Type::REGTYPE
        | Type::REGCLASS
        | Type::REGPROC => 4,
        Type::INT8 | Type::FLOAT8 | Type::TIME | Type::TIMESTAMP | Type::TIMESTAMPTZ => 8,
        Type::INTERVAL | Type::UUID => 16,
        Type::NAME => 64,
        _ => -1,
    }
}

/// The `n` of `character varying(n)` and `character(n)`.
fn text_length(field: &Field) -> Option<usize> {
    let (name, length) = field.metadata().get(TYPE_KEY)?.split_once('(')?;
    name.starts_with("character").then(|| length.strip_suffix(')')?.parse().ok())?
}

/// How many characters a value of `character(n)` is filled up to with spaces.
pub fn filled_length(field: &Field) -> Option<usize> {
    text_length(field).filter(|_| pg_type(field) == Type::BPCHAR)
}

/// `pg_attribute.atttypmod`: precision and scale of a `numeric(p, s)`, the length of a
/// `character varying(n)`, the digits of a `timestamp(n)`, -1 for others.
fn type_modifier(field: &Field) -> i32 {
    if let Some(length) = text_length(field) {
        return i32::try_from(length).map_or(-1, |length| length.saturating_add(4));
    }
    match field.data_type() {
        DataType::Timestamp(..) | DataType::Time64(_) => {
            let digits = field.metadata().get(TYPE_KEY).and_then(|held| held.split_once('(')?.1.get(..1));
            digits.and_then(|digits| digits.parse().ok()).unwrap_or(-1)
        }
        DataType::Decimal128(precision, scale) if *precision < BARE_NUMERIC_PRECISION && *scale >= 0 => {
            ((i32::from(*precision) << 16) | i32::from(*scale)) + 4
        }
        _ => -1,
    }
}

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// As PostgreSQL prints it.
    Text,
    /// As PostgreSQL sends it to programs.
    Binary,
}

impl Format {
    /// The format of each of `count` parameters or columns (`what`), by the codes of a Bind
    /// message: none is text for all, one is for all.
    pub fn of_codes(codes: &[i16], count: usize, what: &str) -> Result<Vec<Format>, SessionError> {
        let format = |code: &i16| match code {
            0 => Ok(Format::Text),
            1 => Ok(Format::Binary),
            other => {
                let message = format!("unsupported format code: {other}");
                Err(SessionError::new(SqlState::INVALID_PARAMETER_VALUE, message))
            }
        };
        match codes {
            [] => Ok(vec![Format::Text; count]),
            [one] => Ok(vec![format(one)?; count]),
            many if many.len() == count || count == 0 => many.iter().take(count).map(format).collect(),
            many => {
                let found = many.len();
                Err(violation(format!("bind message has {found} formats but there are {count} {what}")))
            }
        }
    }
}

/// The columns of a result as a client is told of them.
pub fn row_description(fields: &arrow::datatypes::Fields, formats: &[Format]) -> RowDescription {
    let describe = |(i, field): (usize, &Arc<Field>)| {
        let pg_type = pg_type(field);
        let code = i16::from(formats.get(i) == Some(&Format::Binary));
        FieldDescription::new(
            field.name().clone(),
            0,
            0,
            pg_type.oid(),
            type_size(&pg_type),
            type_modifier(field),
            code,
        )
    };
    RowDescription::new(fields.iter().enumerate().map(describe).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_postgres_types() {
        let of = |data_type| pg_type(&Field::new("a", data_type, true));
        assert_eq!(of(DataType::Decimal128(10, 2)), Type::NUMERIC);
        assert_eq!(of(DataType::Timestamp(TimeUnit::Nanosecond, None)), Type::TIMESTAMP);
        assert_eq!(of(DataType::Utf8View), Type::TEXT);
        let strings = DataType::List(Arc::new(Field::new("item", DataType::Utf8, true)));
        let nested = DataType::List(Arc::new(Field::new("item", strings.clone(), true)));
        assert_eq!(of(strings), Type::TEXT_ARRAY);
        assert_eq!(of(nested), Type::TEXT_ARRAY);
        let jsonb = Field::new("j", DataType::Utf8, true)
            .with_metadata([(TYPE_KEY.to_owned(), "jsonb".to_owned())].into());
        assert_eq!(pg_type(&jsonb), Type::JSONB);
        let list = DataType::List(Arc::new(jsonb));
        assert_eq!(of(list), Type::JSONB_ARRAY);
    }

    #[test]
    fn text_tells_its_length() {
        let field = |marker: &str| {
            Field::new("a", DataType::Utf8, true)
                .with_metadata([(TYPE_KEY.to_owned(), marker.to_owned())].into())
        };
        let of = |marker: &str| (pg_type(&field(marker)), type_modifier(&field(marker)));
        assert_eq!(of("character varying(10)"), (Type::VARCHAR, 14));
        assert_eq!(of("character varying"), (Type::VARCHAR, -1));
        assert_eq!(of("character(3)"), (Type::BPCHAR, 7));
        assert_eq!(filled_length(&field("character(3)")), Some(3));
        assert_eq!(filled_length(&field("character varying(3)")), None);
    }

    #[test]
    fn numeric_tells_its_precision() {
        let field = |p, s| Field::new("a", DataType::Decimal128(p, s), true);
        assert_eq!(type_modifier(&field(10, 2)), ((10 << 16) | 2) + 4);
        assert_eq!(type_modifier(&field(38, 10)), -1);
    }

    #[test]
    fn parameters_have_arrow_types_that_print_as_declared() {
        for declared in
            [Type::BOOL, Type::INT4, Type::NUMERIC, Type::TIMESTAMPTZ, Type::INTERVAL, Type::INT8_ARRAY]
        {
            let arrow = arrow_type(declared.oid()).expect("known");
            assert_eq!(pg_type(&Field::new("a", arrow, true)), declared);
        }
        assert_eq!(arrow_type(705), None);
        assert_eq!(arrow_type(0), None);
    }

    #[test]
    fn format_codes_are_none_one_or_each() {
        let of = |codes: &[i16], count| Format::of_codes(codes, count, "columns").map_err(|e| e.to_string());
        assert_eq!(of(&[], 2), Ok(vec![Format::Text, Format::Text]));
        assert_eq!(of(&[1], 2), Ok(vec![Format::Binary, Format::Binary]));
        assert_eq!(of(&[0, 1], 2), Ok(vec![Format::Text, Format::Binary]));
        let wrong = "bind message has 3 formats but there are 2 columns".to_owned();
        assert_eq!(of(&[0, 1, 1], 2), Err(wrong));
        assert_eq!(of(&[7], 2), Err("unsupported format code: 7".to_owned()));
    }
}
