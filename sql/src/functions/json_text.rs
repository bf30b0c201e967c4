//! The type json: text that is kept as it was given. Its parts are parts of that text, and what is made
//! of values is written as PostgreSQL writes it, keys in their order and equal ones too.
//!
//! ```text
//!   json_build_object  {"a" : 1, "b" : 2}        json_build_array  [1, 2]
//!   to_json of a row   {"a":1,"b":[1,2]}         json_agg          [1, 2]   [{"a":1}, ⏎ {"a":2}]
//!   json_object_agg    { "a" : 1, "b" : 2 }      json_object       {"a" : "1"}
//! ```

use super::json::{is_json, text_of};
use super::json_build::value_at;
use super::json_value::{Json, write_text};
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field};

/// Whether a text is JSON.
pub(super) fn is_valid(text: &str) -> bool {
    Json::parse(text).is_some()
}

/// The parts of a JSON text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parts<'t> {
    /// The elements of an array.
    Array(Vec<&'t str>),
    /// The members of an object, equal names too.
    Object(Vec<(String, &'t str)>),
    /// Neither.
    Scalar,
}

/// The parts of a valid JSON text, each as it is written.
pub(super) fn parts(text: &str) -> Parts<'_> {
    let text = text.trim_matches(SPACE);
    let inner = || text.get(1..text.len().saturating_sub(1)).unwrap_or_default();
    match text.as_bytes().first() {
        Some(b'[') => Parts::Array(split(inner())),
        Some(b'{') => Parts::Object(split(inner()).into_iter().filter_map(member).collect()),
        _ => Parts::Scalar,
    }
}

const SPACE: [char; 4] = [' ', '\t', '\n', '\r'];

/// What stands between the commas that are in no parentheses or quotes.
fn split(inner: &str) -> Vec<&str> {
    if inner.trim_matches(SPACE).is_empty() {
        return Vec::new();
    }
    let (mut found, mut start, mut depth) = (Vec::new(), 0, 0);
    let mut walk = Walk::default();
    for (at, byte) in inner.bytes().enumerate() {
        match byte {
            _ if walk.is_quoted(byte) => {}
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth -= 1,
            b',' if depth == 0 => {
                found.push(inner[start..at].trim_matches(SPACE));
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(inner[start..].trim_matches(SPACE));
    found
}

/// The name and the value of `"name": value`.
fn member(text: &str) -> Option<(String, &str)> {
    let mut walk = Walk::default();
    let colon = text.bytes().position(|byte| !walk.is_quoted(byte) && byte == b':')?;
    match Json::parse(&text[..colon])? {
        Json::Text(name) => Some((name, text[colon + 1..].trim_matches(SPACE))),
        _ => None,
    }
}

/// Tells what is within quotes.
#[derive(Default)]
struct Walk {
    quoted: bool,
    escaped: bool,
}

impl Walk {
    /// Whether the next byte is a quote or within quotes.
    fn is_quoted(&mut self, byte: u8) -> bool {
        let inside = self.quoted;
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' if inside => self.escaped = true,
            b'"' => self.quoted = !inside,
            _ => {}
        }
        inside || byte == b'"'
    }
}

/// A member by its name: the last of equal ones.
pub(super) fn get<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    match parts(text) {
        Parts::Object(members) => members.into_iter().rev().find(|(key, _)| key == name).map(|(_, v)| v),
        _ => None,
    }
}

/// An element by its number, from the end if that is negative.
pub(super) fn element(text: &str, index: i64) -> Option<&str> {
    let Parts::Array(items) = parts(text) else { return None };
    let index =
        if index < 0 { items.len().checked_sub(index.unsigned_abs() as usize)? } else { index as usize };
    items.get(index).copied()
}

/// What `->>` gives of a part.
pub(super) fn part_text(part: &str) -> Option<String> {
    match part.as_bytes().first() {
        Some(b'"') | Some(b'n') => text_of(&Json::parse(part)?),
        _ => Some(part.to_owned()),
    }
}

/// A value as `to_json` writes it.
pub(super) fn put(column: &ArrayRef, field: &Field, row: usize, out: &mut String) {
    if column.is_null(row) {
        return out.push_str("null");
    }
    match column.data_type() {
        DataType::Utf8 if is_json(field) => out.push_str(column.as_string::<i32>().value(row)),
        DataType::List(item) => {
            let items = column.as_list::<i32>().value(row);
            out.push('[');
            for i in 0..items.len() {
                out.push_str(if i > 0 { "," } else { "" });
                put(&items, item, i, out);
            }
            out.push(']');
        }
        DataType::Struct(members) => {
            out.push('{');
            for (i, (column, field)) in column.as_struct().columns().iter().zip(members).enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                write_text(field.name(), out);
                out.push(':');
                put(column, field, row, out);
            }
            out.push('}');
        }
        _ => out.push_str(&value_at(column, field, row).shown()),
    }
}

/// Members as `json_build_object` writes them, between these.
pub(super) fn object<'v>(
    open: &str,
    members: impl IntoIterator<Item = (&'v str, &'v str)>,
    close: &str,
) -> String {
    let mut out = open.to_owned();
    for (i, (name, value)) in members.into_iter().enumerate() {
        out.push_str(if i > 0 { ", " } else { "" });
        write_text(name, &mut out);
        out.push_str(" : ");
        out.push_str(value);
    }
    out.push_str(close);
    out
}

/// A JSON text without the members of objects that are null, and without spaces.
pub(super) fn without_nulls(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    put_without_nulls(text, &mut out);
    out
}

fn put_without_nulls(text: &str, out: &mut String) {
    match parts(text) {
        Parts::Array(items) => {
            out.push('[');
            for (i, item) in items.into_iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                put_without_nulls(item, out);
            }
            out.push(']');
        }
        Parts::Object(members) => {
            out.push('{');
            let kept = members.into_iter().filter(|(_, value)| *value != "null");
            for (i, (name, value)) in kept.enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                write_text(&name, out);
                out.push(':');
                put_without_nulls(value, out);
            }
            out.push('}');
        }
        Parts::Scalar => out.push_str(text.trim_matches(SPACE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_as_they_are_written() {
        let text = r#" {"a" : [1, {"b":  2.50}], "c,]": "x\"}", "a":null } "#;
        let Parts::Object(members) = parts(text) else { panic!("an object") };
        let shown: Vec<_> = members.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(shown, [r#"a=[1, {"b":  2.50}]"#, r#"c,]="x\"}""#, "a=null"]);
        assert_eq!(element("[1, [2,3] ,4]", -2), Some("[2,3]"));
        assert_eq!(element("[1]", 1), None);
        assert_eq!(parts("[ ]"), Parts::Array(Vec::new()));
        assert_eq!(part_text(r#""x\ny""#), Some("x\ny".to_owned()));
        assert_eq!(part_text("null"), None);
        assert_eq!(part_text("1.50"), Some("1.50".to_owned()));
    }

    #[test]
    fn nulls_are_stripped_of_objects() {
        assert_eq!(without_nulls(r#"{"a": null, "b": [null, {"c" :null}]}"#), r#"{"b":[null,{}]}"#);
    }
}
