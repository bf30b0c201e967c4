//! `to_number`: a number out of a text that looks like a pattern of `to_char`.

use super::error::failure;
use super::numeric::PRECISION;
use super::parse;
use super::scalar::{Function, Kernel, exactly};
use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array};
use arrow::datatypes::DataType;
use datafusion_common::Result;
use std::sync::Arc;
use weir_catalog::SqlState;

/// Digits after the point that a numeric without a scale has.
const SCALE: i8 = 10;

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    let coerce = |types: &[DataType]| exactly(types, &[DataType::Utf8, DataType::Utf8]);
    let numeric = |_: &[DataType], _: &[Option<&datafusion_common::ScalarValue>]| {
        DataType::Decimal128(PRECISION, SCALE)
    };
    vec![Function::new("to_number", coerce, numeric, Kernel::Columns(to_number))]
}

fn to_number(args: &[ArrayRef], output: &DataType) -> Result<ArrayRef> {
    let (texts, patterns) = (args[0].as_string::<i32>(), args[1].as_string::<i32>());
    let values = (0..texts.len()).map(|row| {
        let both = texts.is_valid(row) && patterns.is_valid(row);
        both.then(|| read(texts.value(row), patterns.value(row))).transpose()
    });
    let values = values.collect::<Result<Decimal128Array>>()?;
    Ok(Arc::new(values.with_data_type(output.clone())))
}

/// The digits of a text as far as the pattern has places for them, its point and its sign; whatever
/// else is in the text stands for the separators of the pattern.
fn read(text: &str, pattern: &str) -> Result<i128> {
    let pattern = pattern.to_ascii_uppercase();
    let (whole, fraction) = match pattern.split_once(['D', '.', 'V']) {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (pattern.as_str(), None),
    };
    let places = |part: &str| part.bytes().filter(|b| matches!(b, b'9' | b'0')).count();
    let (most_whole, most_fraction) = (places(whole), fraction.map_or(0, places));
    let multiplied = pattern.contains('V');
    let (mut digits, mut after) = (String::from("0"), None);
    let (mut seen, mut negative) = (0, false);
    for c in text.chars() {
        match (c, after) {
            ('-' | '<', _) => negative = true,
            ('.', None) if fraction.is_some() && !multiplied => {
                digits.push('.');
                after = Some(0);
            }
            ('.', _) => break,
            (digit, None)
                if digit.is_ascii_digit()
                    && seen < most_whole + if multiplied { most_fraction } else { 0 } =>
            {
                seen += 1;
                digits.push(digit);
            }
            (digit, Some(count)) if digit.is_ascii_digit() && count < most_fraction => {
                after = Some(count + 1);
                digits.push(digit);
            }
            (digit, _) if digit.is_ascii_digit() => break,
            _ => {}
        }
    }
    if seen == 0 && after.is_none_or(|count| count == 0) {
        let message = format!("invalid input syntax for type numeric: \"{}\"", text.trim());
        return Err(failure(SqlState::INVALID_TEXT_REPRESENTATION, message));
    }
    if multiplied {
        digits.push_str(&format!("e-{most_fraction}"));
    }
    let value = parse::decimal(&digits, PRECISION, SCALE)
        .map_err(|_| failure(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow"))?;
    Ok(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_past_what_surrounds_them() {
        let of = |text: &str, pattern: &str| read(text, pattern).ok();
        let scaled = |digits: i128, scale: u32| Some(digits * 10i128.pow(10 - scale));
        assert_eq!(of("-34,338,492", "99G999G999"), scaled(-34_338_492, 0));
        assert_eq!(of("<564646.654564>", "999999.999999PR"), scaled(-564_646_654_564, 6));
        assert_eq!(of("$1,234.56", "L99,999.99"), scaled(123_456, 2));
        assert_eq!(of("5.01-", "FM9.999999S"), scaled(-501, 2));
        assert_eq!(of("42nd", "99th"), scaled(42, 0));
        assert_eq!(of("12345", "999V99"), scaled(12_345, 2));
        assert_eq!(of("x", "99"), None);
    }
}
