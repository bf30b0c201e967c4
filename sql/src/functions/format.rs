//! Text made of values: `concat`, `concat_ws`, `format`, `quote_ident`, `quote_literal`.

use super::error::failure;
use super::scalar::{Function, Kernel, exactly};
use super::text;
use arrow::array::{Array, ArrayRef, AsArray, StringArray, StringBuilder};
use arrow::datatypes::DataType;
use datafusion_common::Result;
use std::sync::Arc;
use weir_catalog::SqlState;
use weir_catalog::name::quote_identifier;

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    let text = |t: &[DataType]| exactly(t, &[DataType::Utf8]);
    vec![
        Function::new("concat", |t| Some(t.to_vec()), |_, _| DataType::Utf8, Kernel::Columns(concat)),
        Function::new("concat_ws", with_leading_text, |_, _| DataType::Utf8, Kernel::Columns(concat_ws)),
        Function::new("format", with_leading_text, |_, _| DataType::Utf8, Kernel::Columns(format)),
        Function::new("quote_ident", text, |_, _| DataType::Utf8, Kernel::Columns(quote_ident)),
        Function::new("quote_literal", text, |_, _| DataType::Utf8, Kernel::Columns(quote_literal)),
    ]
}

fn with_leading_text(types: &[DataType]) -> Option<Vec<DataType>> {
    match types {
        [DataType::Utf8 | DataType::Null, rest @ ..] => Some([&[DataType::Utf8], rest].concat()),
        _ => None,
    }
}

/// Appends a value as its type's output function writes it (booleans as `t` and `f`).
fn write(column: &dyn Array, row: usize, out: &mut String) {
    match column.data_type() {
        DataType::Boolean => out.push(if column.as_boolean().value(row) { 't' } else { 'f' }),
        _ => text::write_text(column, row, out),
    }
}

/// Whether a value is there: a column of type NULL has no validity of its own.
fn is_there(column: &dyn Array, row: usize) -> bool {
    column.is_valid(row) && column.data_type() != &DataType::Null
}

/// NULLs are left out.
fn concat(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let rows = args.first().map_or(1, |c| c.len());
    let mut out = StringBuilder::new();
    let mut text = String::new();
    for row in 0..rows {
        text.clear();
        args.iter().filter(|c| is_there(c, row)).for_each(|c| write(c, row, &mut text));
        out.append_value(&text);
    }
    Ok(Arc::new(out.finish()))
}

fn concat_ws(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let separators = args[0].as_string::<i32>();
    let mut out = StringBuilder::new();
    let mut text = String::new();
    for row in 0..separators.len() {
        if separators.is_null(row) {
            out.append_null();
            continue;
        }
        text.clear();
        for (i, column) in args[1..].iter().filter(|c| is_there(c, row)).enumerate() {
            if i > 0 {
                text.push_str(separators.value(row));
            }
            write(column, row, &mut text);
        }
        out.append_value(&text);
    }
    Ok(Arc::new(out.finish()))
}

/// `%s`, `%I`, `%L`, `%%`, with positions (`%2$s`).
fn format(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let patterns = args[0].as_string::<i32>();
    let mut out = StringBuilder::new();
    for row in 0..patterns.len() {
        if patterns.is_null(row) {
            out.append_null();
        } else {
            out.append_value(formatted(patterns.value(row), &args[1..], row)?);
        }
    }
    Ok(Arc::new(out.finish()))
}

fn formatted(pattern: &str, args: &[ArrayRef], row: usize) -> Result<String> {
    let refused = |message: String| failure(SqlState::INVALID_PARAMETER_VALUE, message);
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern;
    let mut next = 0;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        if let Some(after) = after.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        let after = match (after[..digits].parse::<usize>(), after[digits..].strip_prefix('$')) {
            (Ok(position), Some(after)) if position > 0 => {
                next = position - 1;
                after
            }
            _ => after,
        };
        let kind =
            after.chars().next().ok_or_else(|| refused("unterminated format() type specifier".into()))?;
        let column = args.get(next).ok_or_else(|| refused("too few arguments for format()".into()))?;
        let mut value = String::new();
        if is_there(column, row) {
            write(column, row, &mut value);
        }
        match kind {
            's' => out.push_str(&value),
            'I' => out.push_str(&quote_identifier(&value)),
            'L' if is_there(column, row) => out.push_str(&literal(&value)),
            'L' => out.push_str("NULL"),
            other => {
                return Err(refused(format!("unrecognized format() type specifier \"{other}\"")));
            }
        }
        next += 1;
        rest = &after[kind.len_utf8()..];
    }
    out.push_str(rest);
    Ok(out)
}

fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') { format!("E'{}'", quoted.replace('\\', "\\\\")) } else { format!("'{quoted}'") }
}

fn quote_ident(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let quoted: StringArray = args[0].as_string::<i32>().iter().map(|t| t.map(quote_identifier)).collect();
    Ok(Arc::new(quoted))
}

fn quote_literal(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let quoted: StringArray = args[0].as_string::<i32>().iter().map(|t| t.map(literal)).collect();
    Ok(Arc::new(quoted))
}
