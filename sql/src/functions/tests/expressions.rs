//! Expressions and what PostgreSQL makes of them: `expression => text|type` or `=> ERROR state message`,
//! one a line, in `expressions.txt`.

use crate::binder::types::type_name;
use crate::functions::error::sql_error;
use crate::plan::tests::harness::evaluate;
use datafusion_common::ScalarValue;

fn shown(expr: &str) -> String {
    let described = |error| match sql_error(&error) {
        Some(error) => format!("ERROR {} {}", error.state.0, error.message),
        None => error.to_string(),
    };
    let value = match evaluate(expr) {
        Ok(value) => value,
        Err(error) => return described(error),
    };
    match evaluate(&format!("({expr})::text")) {
        Ok(ScalarValue::Utf8(text)) => {
            format!("{}|{}", text.as_deref().unwrap_or("NULL"), type_name(&value.data_type()))
        }
        Ok(other) => panic!("{expr}: {other:?}"),
        Err(error) => described(error),
    }
}

#[test]
fn expressions_mean_what_postgresql_means() {
    let mut wrong = Vec::new();
    for line in include_str!("expressions.txt").lines() {
        let (expr, expected) = line.split_once(" => ").expect("an expression and its value");
        let found = shown(expr);
        if found != expected {
            wrong.push(format!("{expr}: {found}, not {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
