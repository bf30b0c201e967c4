//! Rounding, operators and their errors, called as DataFusion calls them.

use crate::functions::error::sql_error;
use crate::plan::tests::harness::evaluate;
use weir_catalog::SqlState;

fn state(sql: &str) -> Option<SqlState> {
    evaluate(sql).err().and_then(|e| sql_error(&e)).map(|e| e.state)
}

fn shown(sql: &str) -> String {
    let value = evaluate(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
    let text = value.to_array().and_then(|a| Ok(arrow::util::display::array_value_to_string(&a, 0)?));
    text.unwrap_or_else(|e| panic!("{sql}: {e}"))
}

#[test]
fn numeric_rounds_half_away_from_zero_and_floats_to_even() {
    for (sql, text) in [
        ("round(2.5)", "3"),
        ("round(-2.5)", "-3"),
        ("round(2.5::float8)", "2.0"),
        ("round(1.2345, 2)", "1.23"),
        ("round(1.235, 2)", "1.24"),
        ("round(-1.235, 2)", "-1.24"),
        ("round(1234, -2)", "1200"),
        ("trunc(-1.99)", "-1"),
        ("trunc(1.999, 1)", "1.9"),
        ("ceil(1.1)", "2"),
        ("ceil(-1.1)", "-1"),
        ("floor(-1.1)", "-2"),
        ("floor(2.0)", "2"),
        ("sign(-4.2)", "-1"),
        ("abs(-4.2)", "4.2"),
        ("div(7, 2)", "3"),
        ("mod(-7, 3)", "-1"),
        ("mod(7.5, 2)", "1.5"),
        ("power(2, 10)", "1024.0"),
    ] {
        assert_eq!(shown(sql), text, "{sql}");
    }
}

#[test]
fn operators_have_postgresql_types() {
    for (sql, text) in [
        ("7 / 2", "3"),
        ("-7 / 2", "-3"),
        ("-7 % 3", "-1"),
        ("7 / 2.0", "3.5000000000000000"),
        ("1.5 * 2.25", "3.375"),
        ("0.1 + 0.2", "0.3"),
        ("1 / 2::float8", "0.5"),
        ("date '2024-03-01' - date '2024-02-01'", "29"),
        ("date '2024-02-28' + 2", "2024-03-01"),
        ("date '2024-01-31' + interval '1 month'", "2024-02-29T00:00:00"),
        ("timestamp '2024-01-02 12:00:00' - timestamp '2024-01-01'", "1 days 12 hours"),
        ("timestamp '2024-01-01' + interval '90 minutes'", "2024-01-01T01:30:00"),
        ("interval '1 hour' * 1.5", "1 hours 30 mins"),
        ("time '23:00' + interval '2 hours'", "01:00:00"),
    ] {
        assert_eq!(shown(sql), text, "{sql}");
    }
}

#[test]
fn errors_have_postgresql_states() {
    assert_eq!(state("1 / 0"), Some(SqlState::DIVISION_BY_ZERO));
    assert_eq!(state("1 % 0"), Some(SqlState::DIVISION_BY_ZERO));
    assert_eq!(state("1.0 / 0"), Some(SqlState::DIVISION_BY_ZERO));
    assert_eq!(state("1 / 0::float8"), Some(SqlState::DIVISION_BY_ZERO));
    assert_eq!(state("9223372036854775807 + 1"), Some(SqlState::NUMERIC_VALUE_OUT_OF_RANGE));
    assert_eq!(state("'1e300'::float8 * '1e300'::float8"), Some(SqlState::NUMERIC_VALUE_OUT_OF_RANGE));
    assert_eq!(state("sqrt(-1)"), Some(SqlState("2201F")));
    assert_eq!(state("true + 1"), Some(SqlState::UNDEFINED_FUNCTION));
}
