//! `to_char` over a column of numbers: each one rounded to the pattern's digits first.

use super::number_pattern::Pattern;
use super::numeric::{power_of_ten, rescale};
use arrow::array::{Array, ArrayRef, AsArray, StringBuilder};
use arrow::datatypes::{DataType, Decimal128Type, Float64Type};
use datafusion_common::Result;
use std::sync::Arc;

/// `to_char` of a column of numeric or double precision.
pub fn to_char(numbers: &ArrayRef, patterns: &ArrayRef) -> Result<ArrayRef> {
    let patterns = patterns.as_string::<i32>();
    let mut out = StringBuilder::new();
    let mut known: Option<(&str, Pattern)> = None;
    for row in 0..numbers.len() {
        if numbers.is_null(row) || patterns.is_null(row) {
            out.append_null();
            continue;
        }
        let text = patterns.value(row);
        let pattern = match known.take() {
            Some((of, pattern)) if of == text => pattern,
            _ => Pattern::parse(text)?,
        };
        out.append_value(shown(numbers, row, &pattern));
        known = Some((text, pattern));
    }
    Ok(Arc::new(out.finish()))
}

fn shown(numbers: &ArrayRef, row: usize, pattern: &Pattern) -> String {
    let (after, multiplied) = pattern.digits();
    let scale = match numbers.data_type() {
        DataType::Decimal128(_, scale) => *scale,
        _ => {
            let value = numbers.as_primitive::<Float64Type>().value(row);
            if pattern.is_scientific() {
                return scientific(value, after);
            }
            return pattern.format(&format!("{:.after$}", value * 10f64.powi(multiplied as i32)));
        }
    };
    let value = numbers.as_primitive::<Decimal128Type>().value(row);
    if pattern.is_scientific() {
        return scientific(value as f64 / 10f64.powi(i32::from(scale)), after);
    }
    let factor = i8::try_from(multiplied).ok().and_then(power_of_ten);
    let scaled = factor.and_then(|f| value.checked_mul(f));
    let after = i8::try_from(after).unwrap_or(i8::MAX);
    match scaled.and_then(|v| rescale(v, scale, after)) {
        Some(value) => pattern.format(&plain(value, after as usize)),
        None => "#".repeat(after as usize + 1),
    }
}

/// An unscaled decimal with its point.
fn plain(value: i128, scale: usize) -> String {
    let digits = format!("{:0>width$}", value.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let sign = if value < 0 { "-" } else { "" };
    if scale == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

/// ` 3.1e+00`
fn scientific(value: f64, after: usize) -> String {
    let text = format!("{value:.after$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    let blank = if mantissa.starts_with('-') { "" } else { " " };
    format!("{blank}{mantissa}e{sign}{exponent:0>2}")
}
