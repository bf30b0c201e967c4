//! Exact decimal arithmetic in 128 bits, rounded half away from zero where digits are lost.

use super::aggregate::fits;
use arrow::datatypes::i256;
use datafusion_common::ScalarValue;

/// The digits that a division, or a product that would have more, keeps after the point.
pub const SCALE: i8 = 16;
/// The digits that there can be.
pub const PRECISION: u8 = 38;

/// `10^exponent`, for exponents up to 38.
pub fn power_of_ten(exponent: i8) -> Option<i128> {
    10i128.checked_pow(u32::try_from(exponent).ok()?)
}

/// `value` of scale `from` at scale `to`, rounded half away from zero; `None` if it doesn't fit.
pub fn rescale(value: i128, from: i8, to: i8) -> Option<i128> {
    if to >= from {
        value.checked_mul(power_of_ten(to - from)?).filter(|v| fits(*v))
    } else {
        Some(divide_rounded(value, power_of_ten(from - to)?))
    }
}

/// `value / divisor` rounded half away from zero; the divisor is positive.
pub fn divide_rounded(value: i128, divisor: i128) -> i128 {
    let (quotient, rest) = (value / divisor, value % divisor);
    if rest.unsigned_abs() >= divisor.unsigned_abs().div_ceil(2) {
        quotient + value.signum()
    } else {
        quotient
    }
}

/// `a * b`, of scales that add up to `from`, at scale `to`.
pub fn multiply(a: i128, b: i128, from: i8, to: i8) -> Option<i128> {
    if from == to {
        return a.checked_mul(b).filter(|v| fits(*v));
    }
    let product = i256::from_i128(a).wrapping_mul(i256::from_i128(b));
    round_wide(product, i256::from_i128(power_of_ten(from - to)?))
}

/// `a / b`, of scales `a_scale` and `b_scale`, at scale `to`; the divisor is not zero.
pub fn divide(a: i128, b: i128, a_scale: i8, b_scale: i8, to: i8) -> Option<i128> {
    let shift = i32::from(to) + i32::from(b_scale) - i32::from(a_scale);
    let numerator = i256::from_i128(a).checked_mul(wide_power(u32::try_from(shift).ok()?)?)?;
    round_wide(numerator, i256::from_i128(b))
}

/// `1e15` as 1000000000000000: DataFusion reads it as 1 with a negative scale, which SQL has not.
pub fn without_negative_scale(value: ScalarValue) -> ScalarValue {
    match value {
        ScalarValue::Decimal128(Some(unscaled), _, scale) if scale < 0 => {
            let whole = scale.checked_neg().and_then(power_of_ten).and_then(|p| unscaled.checked_mul(p));
            match whole.filter(|v| fits(*v)) {
                Some(whole) => {
                    let digits = whole.unsigned_abs().checked_ilog10().map_or(1, |log| log as u8 + 1);
                    ScalarValue::Decimal128(Some(whole), digits, 0)
                }
                None => value,
            }
        }
        other => other,
    }
}

/// The nearest double to a decimal.
pub fn to_f64(unscaled: i128, scale: i8) -> f64 {
    // Both exact, so the quotient is rounded once; otherwise the digits are read as text.
    let exact = unscaled.unsigned_abs() < 1 << 53 && (0..=22).contains(&scale);
    if exact {
        unscaled as f64 / 10f64.powi(i32::from(scale))
    } else {
        format!("{unscaled}e{}", -i32::from(scale)).parse().unwrap_or(f64::NAN)
    }
}

fn wide_power(exponent: u32) -> Option<i256> {
    let ten = i256::from_i128(10);
    (0..exponent).try_fold(i256::ONE, |power, _| power.checked_mul(ten))
}

fn round_wide(numerator: i256, divisor: i256) -> Option<i128> {
    let quotient = numerator.checked_div(divisor)?;
    let rest = numerator.wrapping_sub(quotient.wrapping_mul(divisor)).wrapping_abs();
    let half_or_more = rest.wrapping_add(rest) >= divisor.wrapping_abs();
    let negative = (numerator < i256::ZERO) != (divisor < i256::ZERO);
    let step = if negative { i256::MINUS_ONE } else { i256::ONE };
    let rounded = if half_or_more { quotient.wrapping_add(step) } else { quotient };
    rounded.to_i128().filter(|v| fits(*v))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_digits_round_half_away_from_zero() {
        assert_eq!(rescale(125, 2, 1), Some(13));
        assert_eq!(rescale(-125, 2, 1), Some(-13));
        assert_eq!(rescale(124, 2, 1), Some(12));
        assert_eq!(rescale(1, 0, 38), None);
        assert_eq!(divide_rounded(-1, 3), 0);
        assert_eq!(divide_rounded(2, 3), 1);
    }

    #[test]
    fn decimals_become_the_nearest_double() {
        assert_eq!(to_f64(1, -15), 1e15);
        assert_eq!(to_f64(-15, 1), -1.5);
        assert_eq!(to_f64(12_345_678_901_234_567_890, 10), 1_234_567_890.123_456_8);
        let literal = ScalarValue::Decimal128(Some(12), 2, -3);
        assert_eq!(without_negative_scale(literal), ScalarValue::Decimal128(Some(12_000), 5, 0));
    }

    #[test]
    fn products_and_quotients() {
        // 1.5 * 2.25 = 3.375
        assert_eq!(multiply(15, 225, 3, 3), Some(3375));
        assert_eq!(multiply(10i128.pow(20), 10i128.pow(20), 0, 0), None);
        // 0.0000000001 squared at scale 16 is nothing.
        assert_eq!(multiply(1, 1, 20, 16), Some(0));
        // 10 / 4 = 2.5; -1 / 3
        assert_eq!(divide(10, 4, 0, 0, 1), Some(25));
        assert_eq!(divide(-1, 3, 0, 0, 4), Some(-3333));
        assert_eq!(divide(2, -3, 0, 0, 4), Some(-6667));
        // 1.00 / 0.5 = 2.0
        assert_eq!(divide(100, 5, 2, 1, 1), Some(20));
    }
}
