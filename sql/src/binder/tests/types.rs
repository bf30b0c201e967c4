//! Types as declared, in Arrow, and spelled again.

use super::*;

fn parsed(sql: &str) -> ast::DataType {
    match crate::parser::parse_expr(&format!("cast(null as {sql})")).unwrap() {
        ast::Expr::Cast { data_type, .. } => data_type,
        other => panic!("{other}"),
    }
}

#[test]
fn declared_types_are_spelled_as_postgres_does() {
    for (sql, name, arrow) in [
        ("int", "integer", DataType::Int32),
        ("int8", "bigint", DataType::Int64),
        ("smallint", "smallint", DataType::Int16),
        ("varchar(10)", "character varying(10)", DataType::Utf8),
        ("varchar", "character varying", DataType::Utf8),
        ("text", "text", DataType::Utf8),
        ("numeric", "numeric", DataType::Decimal128(38, 10)),
        ("decimal(10,2)", "numeric(10,2)", DataType::Decimal128(10, 2)),
        ("numeric(5)", "numeric(5,0)", DataType::Decimal128(5, 0)),
        ("float", "double precision", DataType::Float64),
        ("real", "real", DataType::Float32),
        ("timestamp", "timestamp without time zone", DataType::Timestamp(TimeUnit::Microsecond, None)),
        (
            "timestamp with time zone",
            "timestamp with time zone",
            DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())),
        ),
        ("jsonb", "jsonb", DataType::Utf8),
        ("uuid", "uuid", DataType::Utf8),
        ("bytea", "bytea", DataType::Binary),
        ("interval", "interval", DataType::Interval(IntervalUnit::MonthDayNano)),
        ("int[]", "integer[]", DataType::List(Arc::new(Field::new_list_field(DataType::Int32, true)))),
    ] {
        let sql = parsed(sql);
        assert_eq!(sql_type_name(&sql).unwrap(), name);
        assert_eq!(sql_type_to_arrow(&sql).unwrap(), arrow, "{name}");
    }
}

#[test]
fn what_does_not_exist_is_said() {
    let error = |sql: &str| sql_type_to_arrow(&parsed(sql)).expect_err(sql);
    assert_eq!(error("numeric(50)").state, SqlState::INVALID_PARAMETER_VALUE);
    assert_eq!(error("numeric(5,7)").message, "NUMERIC scale 7 must be between 0 and precision 5");
    let unknown = error("intt");
    assert_eq!(
        (unknown.state, unknown.message.as_str()),
        (SqlState::UNDEFINED_OBJECT, "type \"intt\" does not exist")
    );
    assert_eq!(error("serial").state, SqlState::FEATURE_NOT_SUPPORTED);
}
