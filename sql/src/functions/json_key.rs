//! jsonb in PostgreSQL's order, as text that is compared by its bytes: two keys compare as their values do, and are the same where
//! their values are equal, however their numbers are written.
//!
//! ```text
//!   null 1   string 2 text 0   number 3 digits   boolean 4 (0|1)
//!   array 5 count elements   object 6 count (name 0 value)…      a scalar at the top: 5 1 0 scalar
//!   digits   zero 1   positive 2 exponent digits 0   negative 0 and the complement of the rest
//! ```
//! Of two arrays, and of two objects, the one with more members is greater, whatever is in them. A
//! scalar alone is an array of one that is below every other such array: an empty array comes first.

use super::error::failure;
use super::json_value::Json;
use super::scalar::{Function, Kernel, exactly};
use arrow::array::{Array, ArrayRef, AsArray, StringBuilder};
use arrow::datatypes::DataType;
use datafusion_common::Result;
use datafusion_expr::ScalarUDF;
use std::fmt::Write;
use std::sync::{Arc, LazyLock};
use weir_catalog::SqlState;

/// `jsonb_key(j)`.
pub(super) static JSON_KEY: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    let coerce = |types: &[DataType]| exactly(types, &[DataType::Utf8]);
    Function::new("jsonb_key", coerce, |_, _| DataType::Utf8, Kernel::Columns(keys)).udf()
});

fn keys(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let texts = args[0].as_string::<i32>();
    let mut out = StringBuilder::with_capacity(texts.len(), texts.value_data().len());
    let mut key = String::new();
    for text in texts {
        let Some(text) = text else {
            out.append_null();
            continue;
        };
        let Some(value) = Json::parse(text) else {
            let message = format!("invalid input syntax for type json: \"{text}\"");
            return Err(failure(SqlState::INVALID_TEXT_REPRESENTATION, message));
        };
        key.clear();
        put_root(&value, &mut key);
        out.append_value(&key);
    }
    Ok(Arc::new(out.finish()))
}

fn put_root(value: &Json, out: &mut String) {
    match value {
        Json::Object(_) => put(value, out),
        Json::Array(items) => {
            put_count(ARRAY, items.len(), out);
            out.push('1');
            items.iter().for_each(|item| put(item, out));
        }
        scalar => {
            put_count(ARRAY, 1, out);
            out.push('0');
            put(scalar, out);
        }
    }
}

const NULL: char = '1';
const STRING: char = '2';
const NUMBER: char = '3';
const BOOLEAN: char = '4';
const ARRAY: char = '5';
const OBJECT: char = '6';

fn put(value: &Json, out: &mut String) {
    match value {
        Json::Null => out.push(NULL),
        Json::Bool(value) => out.extend([BOOLEAN, if *value { '1' } else { '0' }]),
        Json::Number(digits) => {
            out.push(NUMBER);
            put_number(digits, out);
        }
        Json::Text(text) => {
            out.push(STRING);
            put_text(text, out);
        }
        Json::Array(items) => {
            put_count(ARRAY, items.len(), out);
            items.iter().for_each(|item| put(item, out));
        }
        Json::Object(fields) => {
            put_count(OBJECT, fields.len(), out);
            for (name, value) in fields {
                put_text(name, out);
                put(value, out);
            }
        }
    }
}

fn put_count(tag: char, count: usize, out: &mut String) {
    // Writing to a String can't fail.
    let _ = write!(out, "{tag}{count:08x}");
}

/// A text and its end, which is below all characters; U+0000 itself gets the highest one behind.
fn put_text(text: &str, out: &mut String) {
    for c in text.chars() {
        out.push(c);
        if c == '\0' {
            out.push(char::MAX);
        }
    }
    out.push('\0');
}

/// A number in plain decimal notation.
fn put_number(written: &str, out: &mut String) {
    let (negative, written) = match written.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, written),
    };
    let (whole, fraction) = written.split_once('.').unwrap_or((written, ""));
    let whole = whole.trim_start_matches('0');
    let digits = format!("{whole}{}", fraction.trim_end_matches('0'));
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() {
        return out.push('1');
    }
    // The value is 0.significant times ten to this power.
    let exponent = whole.len() as i64 - (digits.len() - significant.len()) as i64;
    let ordered = exponent as u64 ^ (1 << 63);
    let significant = significant.trim_end_matches('0');
    // Writing to a String can't fail.
    if negative {
        let _ = write!(out, "0{:016x}", !ordered);
        out.extend(significant.bytes().map(|digit| char::from(b'0' + (b'9' - digit))));
        // Above all digits.
        out.push('~');
    } else {
        let _ = write!(out, "2{ordered:016x}{significant}");
        out.push('\0');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> String {
        let mut out = String::new();
        put_root(&Json::parse(text).expect("json"), &mut out);
        out
    }

    /// As a PostgreSQL 15 sorted them.
    #[test]
    fn keys_have_postgres_order() {
        let sorted = [
            "[]",
            "null",
            "\"\"",
            "\"a\"",
            "\"b\"",
            "-1e30",
            "-10",
            "-1.5",
            "-1",
            "-0.5",
            "-0.05",
            "0",
            "0.001",
            "0.01",
            "0.1",
            "0.5",
            "1",
            "1.5",
            "9",
            "10",
            "11",
            "100",
            "1e30",
            "false",
            "true",
            "[null]",
            "[\"x\"]",
            "[3]",
            "[true]",
            "[[]]",
            "[[1]]",
            "[{}]",
            "[1, 2]",
            "[1, 10]",
            "{}",
            "{\"a\": 1}",
            "{\"a\": 2}",
            "{\"b\": 0}",
            "{\"a\": 0, \"b\": 0}",
        ];
        for pair in sorted.windows(2) {
            assert!(key(pair[0]) < key(pair[1]), "{} < {}", pair[0], pair[1]);
        }
    }

    #[test]
    fn equal_values_have_one_key() {
        for (a, b) in [
            ("1", "1.0"),
            ("-0.10", "-0.1"),
            ("0", "-0.00"),
            ("100", "1e2"),
            ("[1.50, {\"a\": 2.0}]", "[1.5, {\"a\": 2}]"),
        ] {
            assert_eq!(key(a), key(b), "{a} = {b}");
        }
        assert_ne!(key("{\"a\": \"b\"}"), key("{\"ab\": \"\"}"));
    }
}
