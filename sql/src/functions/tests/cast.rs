//! Casts, called as DataFusion calls them.

use crate::functions::error::sql_error;
use crate::plan::tests::harness::evaluate;
use datafusion_common::ScalarValue;

fn shown(sql: &str) -> String {
    match evaluate(&format!("({sql})::text")).unwrap_or_else(|e| panic!("{sql}: {e}")) {
        ScalarValue::Utf8(Some(text)) => text,
        other => panic!("{sql}: {other:?}"),
    }
}

fn error(sql: &str) -> (String, String) {
    let error = evaluate(sql).expect_err(sql);
    let error = sql_error(&error).unwrap_or_else(|| panic!("{sql}: {error}"));
    (error.state.0.to_owned(), error.message)
}

#[test]
fn values_print_as_postgresql_prints_them() {
    for (sql, text) in [
        ("1.5::float8", "1.5"),
        ("'1e15'::float8", "1e+15"),
        ("'1e14'::float8", "100000000000000"),
        ("'0.0001'::float8", "0.0001"),
        ("'0.00001'::float8", "1e-05"),
        ("'NaN'::float8", "NaN"),
        ("'-inf'::float8", "-Infinity"),
        ("1.50::numeric(10,2)", "1.50"),
        ("true", "true"),
        ("'2024-01-31 10:00:00.120'::timestamp", "2024-01-31 10:00:00.12"),
        ("'2024-01-31 10:00:00+02'::timestamptz", "2024-01-31 08:00:00+00"),
        ("'2024-01-31'::date", "2024-01-31"),
        ("'10:00'::time", "10:00:00"),
        ("'1 year 2 mons -3 days 4 hours'::interval", "1 year 2 mons -3 days +04:00:00"),
        ("'\\xDEAD'::bytea", "\\xdead"),
        ("'{1,NULL,3}'::int[]", "{1,NULL,3}"),
    ] {
        assert_eq!(shown(sql), text, "{sql}");
    }
}

#[test]
fn numbers_round_when_they_are_cast() {
    for (sql, text) in [
        ("2.5::int", "3"),
        ("(-2.5)::int", "-3"),
        ("2.5::float8::int", "2"),
        ("3.5::float8::int", "4"),
        ("1.255::numeric(5,2)", "1.26"),
        ("0.1::float8::numeric(20,15)", "0.100000000000000"),
        ("'12'::smallint", "12"),
        ("' 12 '::bigint", "12"),
    ] {
        assert_eq!(shown(sql), text, "{sql}");
    }
}

#[test]
fn what_does_not_fit_is_said_as_postgresql_says_it() {
    for (sql, state, message) in [
        ("'x'::int", "22P02", "invalid input syntax for type integer: \"x\""),
        ("''::numeric", "22P02", "invalid input syntax for type numeric: \"\""),
        ("'maybe'::boolean", "22P02", "invalid input syntax for type boolean: \"maybe\""),
        ("'99999999999'::int", "22003", "value \"99999999999\" is out of range for type integer"),
        ("99999999999::int", "22003", "integer out of range"),
        ("70000::smallint", "22003", "smallint out of range"),
        ("'1e10'::float8::int", "22003", "integer out of range"),
        ("1000::numeric(5,2)", "22003", "numeric field overflow"),
        ("'tomorrowish'::date", "22007", "invalid input syntax for type date: \"tomorrowish\""),
        ("'2024-02-30'::date", "22008", "date/time field value out of range: \"2024-02-30\""),
        ("'soon'::interval", "22007", "invalid input syntax for type interval: \"soon\""),
    ] {
        assert_eq!(error(sql), (state.to_owned(), message.to_owned()), "{sql}");
    }
}
