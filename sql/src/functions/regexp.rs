//! Functions of regular expressions that look for several matches: `regexp_replace`,
//! `regexp_matches`, `regexp_split_to_array`, `regexp_count`, `regexp_instr`, `regexp_substr`,
//! `regexp_like`.
//!
//! ```text
//!   regexp_replace(text, pattern, by [, flags])       regexp_count(text, pattern [, start [, flags]])
//!   regexp_replace(text, pattern, by, start [, n [, flags]])
//!   regexp_instr(text, pattern [, start [, n [, endoption [, flags [, group]]]]])
//!   regexp_substr(text, pattern [, start [, n [, flags [, group]]]])
//! ```

use super::error::failure;
use super::scalar::{Function, Kernel, exactly};
use super::string::compile;
use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int32Array, ListBuilder, StringArray, StringBuilder,
};
use arrow::datatypes::{DataType, Field, Int64Type};
use datafusion_common::{Result, ScalarValue};
use regex::{Captures, Regex};
use std::sync::Arc;
use weir_catalog::SqlState;

/// The list whose elements are the rows of `regexp_matches`.
pub const REGEXP_MATCHES: &str = "weir_regexp_matches";

const TEXT: DataType = DataType::Utf8;
const NUMBER: DataType = DataType::Int64;

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    let text = |_: &[DataType], _: &[Option<&ScalarValue>]| TEXT;
    let integer = |_: &[DataType], _: &[Option<&ScalarValue>]| DataType::Int32;
    let list = |_: &[DataType], _: &[Option<&ScalarValue>]| list_of(TEXT);
    let lists = |_: &[DataType], _: &[Option<&ScalarValue>]| list_of(list_of(TEXT));
    let boolean = |_: &[DataType], _: &[Option<&ScalarValue>]| DataType::Boolean;
    let plain = |t: &[DataType]| prefix(t, 2, &[TEXT, TEXT, TEXT]);
    vec![
        Function::new("regexp_replace", coerce_replace, text, Kernel::Columns(replace)),
        Function::new(REGEXP_MATCHES, plain, lists, Kernel::Columns(matches_lists)),
        Function::new("regexp_split_to_array", plain, list, Kernel::Columns(split)),
        Function::new("regexp_like", plain, boolean, Kernel::Columns(like)),
        Function::new(
            "regexp_count",
            |t| prefix(t, 2, &[TEXT, TEXT, NUMBER, TEXT]),
            integer,
            Kernel::Columns(count),
        ),
        Function::new(
            "regexp_instr",
            |t| prefix(t, 2, &[TEXT, TEXT, NUMBER, NUMBER, NUMBER, TEXT, NUMBER]),
            integer,
            Kernel::Columns(position),
        ),
        Function::new(
            "regexp_substr",
            |t| prefix(t, 2, &[TEXT, TEXT, NUMBER, NUMBER, TEXT, NUMBER]),
            text,
            Kernel::Columns(substring),
        ),
    ]
}

fn list_of(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(item, true)))
}

/// The first of these types, at least so many.
fn prefix(types: &[DataType], least: usize, wanted: &[DataType]) -> Option<Vec<DataType>> {
    exactly(types, wanted.get(..types.len())?).filter(|_| types.len() >= least)
}

fn coerce_replace(types: &[DataType]) -> Option<Vec<DataType>> {
    prefix(types, 3, &[TEXT, TEXT, TEXT, TEXT])
        .or_else(|| prefix(types, 4, &[TEXT, TEXT, TEXT, NUMBER, NUMBER, TEXT]))
}

/// The arguments of a call, row by row, and the pattern of the row before.
struct Call<'a> {
    args: &'a [ArrayRef],
    last: Option<(String, String, Regex)>,
}

impl<'a> Call<'a> {
    fn new(args: &'a [ArrayRef]) -> Self {
        Self { args, last: None }
    }

    fn rows(&self) -> usize {
        self.args[0].len()
    }

    /// Whether no argument is NULL: all of these functions are strict.
    fn is_whole(&self, row: usize) -> bool {
        self.args.iter().all(|arg| arg.is_valid(row))
    }

    fn text(&self, at: usize, row: usize) -> &'a str {
        self.args.get(at).map_or("", |arg| arg.as_string::<i32>().value(row))
    }

    fn number(&self, at: usize, row: usize, default: i64, least: i64, name: &str) -> Result<i64> {
        let value = self.args.get(at).map_or(default, |arg| arg.as_primitive::<Int64Type>().value(row));
        if value < least {
            let message = format!("invalid value for parameter \"{name}\": {value}");
            return Err(failure(SqlState::INVALID_PARAMETER_VALUE, message));
        }
        Ok(value)
    }

    /// The pattern of a row, compiled anew only where it differs from the row before.
    fn regex(&mut self, row: usize, flags: &str) -> Result<&Regex> {
        let pattern = self.text(1, row);
        let known = matches!(&self.last, Some((p, f, _)) if p == pattern && f == flags);
        if !known {
            self.last = Some((pattern.to_owned(), flags.to_owned(), compile(pattern, flags)?));
        }
        match &self.last {
            Some((_, _, regex)) => Ok(regex),
            None => datafusion_common::internal_err!("a pattern was compiled"),
        }
    }
}

/// The matches from a byte on, at most so many. After an empty one the search goes on a character
/// later.
fn matches<'t>(regex: &Regex, text: &'t str, from: usize, most: usize) -> Vec<Captures<'t>> {
    let mut found = Vec::new();
    let mut at = from;
    while found.len() < most && at <= text.len() {
        let Some(captures) = regex.captures_at(text, at) else { break };
        let Some(whole) = captures.get(0) else { break };
        at = match whole.is_empty() {
            false => whole.end(),
            true => whole.end() + text[whole.end()..].chars().next().map_or(1, char::len_utf8),
        };
        found.push(captures);
    }
    found
}

/// Where the `start`th character begins; none behind the end.
fn byte_of(text: &str, start: i64) -> Option<usize> {
    let skipped = usize::try_from(start - 1).ok()?;
    let ends = std::iter::once(text.len());
    text.char_indices().map(|(at, _)| at).chain(ends).nth(skipped)
}

fn replace(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let mut call = Call::new(args);
    let counted = matches!(args.get(3).map(|a| a.data_type()), Some(&NUMBER));
    let mut out = StringBuilder::new();
    for row in 0..call.rows() {
        if !call.is_whole(row) {
            out.append_null();
            continue;
        }
        let (text, by) = (call.text(0, row), call.text(2, row));
        let (start, nth, flags) = match counted {
            true => (call.number(3, row, 1, 1, "start")?, call.number(4, row, 1, 0, "n")?, call.text(5, row)),
            false => (1, 1, call.text(3, row)),
        };
        let all = nth == 0 || (flags.contains('g') && args.len() < 5);
        let most = if all { usize::MAX } else { usize::try_from(nth).unwrap_or(usize::MAX) };
        let regex = call.regex(row, flags)?;
        let found = byte_of(text, start).map_or(Vec::new(), |from| matches(regex, text, from, most));
        let skipped = if all { 0 } else { most - 1 };
        out.append_value(replaced(text, found.iter().skip(skipped), by));
    }
    Ok(Arc::new(out.finish()))
}

fn replaced<'m, 't: 'm>(text: &str, found: impl Iterator<Item = &'m Captures<'t>>, by: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for captures in found {
        let Some(whole) = captures.get(0) else { continue };
        out.push_str(&text[done..whole.start()]);
        expand(captures, by, &mut out);
        done = whole.end();
    }
    out.push_str(&text[done..]);
    out
}

/// `\1` is the first group, `\&` the whole match, `\\` a backslash.
fn expand(captures: &Captures<'_>, by: &str, out: &mut String) {
    let group = |n: usize| captures.get(n).map_or("", |m| m.as_str());
    let mut chars = by.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('&') => out.push_str(group(0)),
            Some(digit) if digit.is_ascii_digit() => out.push_str(group(digit as usize - '0' as usize)),
            Some('\\') | None => out.push('\\'),
            Some(other) => out.extend(['\\', other]),
        }
    }
}

fn matches_lists(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let mut call = Call::new(args);
    let mut out = ListBuilder::new(ListBuilder::new(StringBuilder::new()));
    for row in 0..call.rows() {
        if !call.is_whole(row) {
            out.append_null();
            continue;
        }
        let (text, flags) = (call.text(0, row), call.text(2, row));
        let most = if flags.contains('g') { usize::MAX } else { 1 };
        for captures in matches(call.regex(row, flags)?, text, 0, most) {
            // Without groups the whole match is the one element.
            for group in usize::from(captures.len() > 1)..captures.len() {
                out.values().values().append_option(captures.get(group).map(|m| m.as_str()));
            }
            out.values().append(true);
        }
        out.append(true);
    }
    Ok(Arc::new(out.finish()))
}

/// Empty matches at the ends, or right behind another match, split nothing.
fn split(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let mut call = Call::new(args);
    let mut out = ListBuilder::new(StringBuilder::new());
    for row in 0..call.rows() {
        if !call.is_whole(row) {
            out.append_null();
            continue;
        }
        let (text, flags) = (call.text(0, row), call.text(2, row));
        let mut done = 0;
        for captures in matches(call.regex(row, flags)?, text, 0, usize::MAX) {
            let Some(whole) = captures.get(0) else { continue };
            if whole.is_empty() && (whole.start() == done || whole.start() == text.len()) {
                continue;
            }
            out.values().append_value(&text[done..whole.start()]);
            done = whole.end();
        }
        out.values().append_value(&text[done..]);
        out.append(true);
    }
    Ok(Arc::new(out.finish()))
}

fn like(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let mut call = Call::new(args);
    let rows = (0..call.rows()).map(|row| {
        if !call.is_whole(row) {
            return Ok(None);
        }
        let (text, flags) = (call.text(0, row), call.text(2, row));
        Ok(Some(call.regex(row, flags)?.is_match(text)))
    });
    Ok(Arc::new(rows.collect::<Result<BooleanArray>>()?))
}

fn count(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let mut call = Call::new(args);
    let rows = (0..call.rows()).map(|row| {
        if !call.is_whole(row) {
            return Ok(None);
        }
        let (text, flags) = (call.text(0, row), call.text(3, row));
        let start = call.number(2, row, 1, 1, "start")?;
        let regex = call.regex(row, flags)?;
        let found = byte_of(text, start).map_or(0, |from| matches(regex, text, from, usize::MAX).len());
        Ok(Some(found as i32))
    });
    Ok(Arc::new(rows.collect::<Result<Int32Array>>()?))
}

/// The bytes of the `n`th match, or of a group in it.
fn nth_match(call: &mut Call<'_>, row: usize, flags: usize, group: usize) -> Result<Option<(usize, usize)>> {
    let text = call.text(0, row);
    let start = call.number(2, row, 1, 1, "start")?;
    let nth = call.number(3, row, 1, 1, "n")?;
    let group = call.number(group, row, 0, 0, "subexpr")?;
    let regex = call.regex(row, call.text(flags, row))?;
    let Some(from) = byte_of(text, start) else { return Ok(None) };
    let found = matches(regex, text, from, usize::try_from(nth).unwrap_or(usize::MAX));
    let nth = found.get((nth - 1) as usize).and_then(|captures| captures.get(usize::try_from(group).ok()?));
    Ok(nth.map(|m| (m.start(), m.end())))
}

fn position(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let mut call = Call::new(args);
    let rows = (0..call.rows()).map(|row| {
        if !call.is_whole(row) {
            return Ok(None);
        }
        let behind = call.number(4, row, 0, 0, "endoption")? == 1;
        let found = nth_match(&mut call, row, 5, 6)?;
        let text = call.text(0, row);
        Ok(Some(
            found.map_or(0, |(from, to)| text[..if behind { to } else { from }].chars().count() as i32 + 1),
        ))
    });
    Ok(Arc::new(rows.collect::<Result<Int32Array>>()?))
}

fn substring(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let mut call = Call::new(args);
    let rows = (0..call.rows()).map(|row| {
        if !call.is_whole(row) {
            return Ok(None);
        }
        let found = nth_match(&mut call, row, 4, 5)?;
        let text = call.text(0, row);
        Ok(found.map(|(from, to)| text[from..to].to_owned()))
    });
    Ok(Arc::new(rows.collect::<Result<StringArray>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(values: &[&str]) -> Vec<ArrayRef> {
        values.iter().map(|v| Arc::new(StringArray::from(vec![*v])) as ArrayRef).collect()
    }

    fn shown(result: Result<ArrayRef>) -> String {
        arrow::util::display::array_value_to_string(&result.expect("no error"), 0).expect("shown")
    }

    #[test]
    fn splitting_ignores_empty_matches_at_the_ends() {
        assert_eq!(shown(split(&texts(&["abc", ""]), &TEXT)), "[a, b, c]");
        assert_eq!(shown(split(&texts(&["a1b2", r"\d"]), &TEXT)), "[a, b, ]");
        assert_eq!(shown(split(&texts(&["hello  world", r"\s+"]), &TEXT)), "[hello, world]");
    }

    #[test]
    fn replacements_name_groups() {
        assert_eq!(
            shown(replace(&texts(&["foobarbaz", "b(..)", r"X\1Y\&\\", "g"]), &TEXT)),
            r"fooXarYbar\XazYbaz\"
        );
        assert_eq!(shown(replace(&texts(&["foobarbaz", "b..", "X"]), &TEXT)), "fooXbaz");
    }
}
