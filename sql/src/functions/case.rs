//! `upper`, `lower` and `initcap`: letter by letter, as PostgreSQL has it from the C library.
//!
//! A letter becomes one letter: ß stays, where Unicode's full mapping has SS; a Σ at a word's end is as any
//! other. So a text keeps its length in characters.

use super::scalar::{Function, Kernel, exactly};
use arrow::array::{Array, ArrayRef, AsArray, StringBuilder};
use arrow::datatypes::DataType;
use datafusion_common::Result;
use std::sync::Arc;

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    let text = |t: &[DataType]| exactly(t, &[DataType::Utf8]);
    let function = |name, kernel| Function::new(name, text, |_, _| DataType::Utf8, Kernel::Columns(kernel));
    vec![function("upper", upper), function("lower", lower), function("initcap", initcap)]
}

fn upper(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    Ok(each(&args[0], |text, out| out.extend(text.chars().map(to_upper))))
}

fn lower(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    Ok(each(&args[0], |text, out| out.extend(text.chars().map(to_lower))))
}

/// A word's first letter is upper case, the others are lower case; words are of letters and digits.
fn initcap(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    Ok(each(&args[0], |text, out| {
        let mut in_word = false;
        for c in text.chars() {
            out.push(if in_word { to_lower(c) } else { to_upper(c) });
            in_word = c.is_alphanumeric();
        }
    }))
}

fn each(texts: &ArrayRef, map: impl Fn(&str, &mut String)) -> ArrayRef {
    let texts = texts.as_string::<i32>();
    let mut mapped = StringBuilder::with_capacity(texts.len(), texts.value_data().len());
    let mut out = String::new();
    for text in texts {
        match text {
            Some(text) => {
                out.clear();
                map(text, &mut out);
                mapped.append_value(&out);
            }
            None => mapped.append_null(),
        }
    }
    Arc::new(mapped.finish())
}

fn to_upper(c: char) -> char {
    // Of Greek letters with an iota below the full mapping has two letters, the simple one has one.
    match u32::from(c) {
        code @ (0x1f80..=0x1f87 | 0x1f90..=0x1f97 | 0x1fa0..=0x1fa7) => char::from_u32(code + 8).unwrap_or(c),
        code @ (0x1fb3 | 0x1fc3 | 0x1ff3) => char::from_u32(code + 9).unwrap_or(c),
        _ => single(c, c.to_uppercase()),
    }
}

fn to_lower(c: char) -> char {
    // The only letter whose lower case is two by the full mapping, and has one by the simple one.
    if c == 'İ' { 'i' } else { single(c, c.to_lowercase()) }
}

/// The one letter that `c` becomes, or itself.
fn single(c: char, mut mapped: impl Iterator<Item = char>) -> char {
    match (mapped.next(), mapped.next()) {
        (Some(one), None) => one,
        _ => c,
    }
}
