//! Texts to values, as PostgreSQL reads them, fast for the common spellings.
//!
//! Each function gives `None` for what it can't read; the caller says which column it was for.

use arrow::compute::kernels::cast_utils::string_to_datetime;
use chrono::{Datelike, Utc};

const DAY_US: i64 = 86_400_000_000;

/// A whole number, without a fraction.
pub fn integer(text: &[u8]) -> Option<i64> {
    let text = text.trim_ascii();
    let (negative, digits) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        (b'+', rest) => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() {
        return None;
    }
    if digits.len() <= 18 {
        let mut value = 0i64;
        for byte in digits {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            value = value * 10 + i64::from(digit);
        }
        return Some(if negative { -value } else { value });
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A whole number, also when written as JSON writers may: `1.0`, `1e3`.
pub fn integer_or_integral(text: &[u8]) -> Option<i64> {
    integer(text).or_else(|| {
        let value = float(text)?;
        (value.fract() == 0.0 && value.abs() < 9.0e15).then_some(value as i64)
    })
}

/// A floating-point number; `NaN`, `Infinity`, `-Infinity` in any case.
pub fn float(text: &[u8]) -> Option<f64> {
    let value: f64 = std::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()?;
    // Digits that no float is great enough for.
    (value.is_finite() || !text.iter().any(u8::is_ascii_digit)).then_some(value)
}

/// A decimal number of `precision` digits, `scale` of them after the point; what is beyond is
/// rounded half away from zero.
pub fn decimal(text: &[u8], precision: u8, scale: i8) -> Option<i128> {
    let text = text.trim_ascii();
    let (negative, rest) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        (b'+', rest) => (false, rest),
        _ => (false, text),
    };
    let (mantissa, exponent) = match rest.iter().position(|b| matches!(b, b'e' | b'E')) {
        Some(at) => (&rest[..at], integer(&rest[at + 1..])?),
        None => (rest, 0),
    };
    let (whole, fraction) = match mantissa.iter().position(|b| *b == b'.') {
        Some(at) => (&mantissa[..at], &mantissa[at + 1..]),
        None => (mantissa, &b""[..]),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    // The value is `digits` times ten to the power of `shift`, in units of the scale.
    let shift = exponent.checked_add(i64::from(scale))?.checked_sub(fraction.len() as i64)?;
    let dropped = usize::try_from(-shift.min(0)).ok()?;
    let count = whole.len() + fraction.len();
    let (mut value, mut round_up) = (0i128, false);
    for (i, byte) in whole.iter().chain(fraction).enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        if i + dropped < count {
            value = value.checked_mul(10)?.checked_add(i128::from(digit))?;
        } else if i + dropped == count {
            round_up = digit >= 5;
        }
    }
    if shift > 0 && value != 0 {
        value = value.checked_mul(10i128.checked_pow(u32::try_from(shift).ok()?)?)?;
    }
    value += i128::from(round_up);
    let limit = 10i128.checked_pow(u32::from(precision))?;
    (value < limit).then_some(if negative { -value } else { value })
}

/// A truth value.
pub fn boolean(text: &[u8]) -> Option<bool> {
    let text = text.trim_ascii();
    let is = |words: &[&str]| words.iter().any(|w| text.eq_ignore_ascii_case(w.as_bytes()));
    if is(&["t", "true", "1", "yes", "y", "on"]) {
        Some(true)
    } else if is(&["f", "false", "0", "no", "n", "off"]) {
        Some(false)
    } else {
        None
    }
}

/// Days since 1970.
pub fn date(text: &[u8]) -> Option<i32> {
    let text = text.trim_ascii();
    if let Some(days) = text.first_chunk::<10>().and_then(date_digits).filter(|_| text.len() == 10) {
        return i32::try_from(days).ok();
    }
    match timestamp(text, false)? {
        i64::MAX => Some(i32::MAX),
        i64::MIN => Some(i32::MIN),
        us => i32::try_from(us.div_euclid(DAY_US)).ok(),
    }
}

/// Microseconds since midnight.
pub fn time(text: &[u8]) -> Option<i64> {
    match clock(text.trim_ascii())? {
        (us, rest) if rest.is_empty() && us <= DAY_US => Some(us),
        _ => None,
    }
}

/// Microseconds since 1970. Without a zone in the type, a zone in the text is read over, as
/// PostgreSQL does; with one, a text without a zone is in UTC.
pub fn timestamp(text: &[u8], with_zone: bool) -> Option<i64> {
    let text = text.trim_ascii();
    usual_timestamp(text, with_zone).or_else(|| unusual_timestamp(text, with_zone))
}

/// `2015-07-15 00:00:00.040`, with `T`, with `Z`, `+02`, `+02:00`, `+0200`.
fn usual_timestamp(text: &[u8], with_zone: bool) -> Option<i64> {
    let (day, rest) = text.split_first_chunk::<10>()?;
    let start_us = date_digits(day)? * DAY_US;
    let rest = match rest.split_first() {
        None => return Some(start_us),
        Some((b' ' | b'T' | b't', rest)) => rest,
        Some(_) => return None,
    };
    let (us, zone) = clock(rest)?;
    let offset_us = zone_us(zone.trim_ascii())?;
    Some(start_us + us - if with_zone { offset_us } else { 0 })
}

fn unusual_timestamp(text: &[u8], with_zone: bool) -> Option<i64> {
    if text.eq_ignore_ascii_case(b"infinity") {
        return Some(i64::MAX);
    }
    if text.eq_ignore_ascii_case(b"-infinity") {
        return Some(i64::MIN);
    }
    let at = string_to_datetime(&Utc, std::str::from_utf8(text).ok()?).ok()?;
    let zoned = text.iter().skip(10).any(|b| matches!(b, b'+' | b'-'));
    (at.year() > 0 && (with_zone || !zoned)).then(|| at.timestamp_micros())
}

/// A number as a time: seconds, milliseconds, microseconds or nanoseconds since 1970, by its size.
pub fn timestamp_of_number(number: i64) -> Option<i64> {
    match number.unsigned_abs() {
        0..100_000_000_000 => number.checked_mul(1_000_000),
        100_000_000_000..100_000_000_000_000 => number.checked_mul(1000),
        100_000_000_000_000..100_000_000_000_000_000 => Some(number),
        _ => Some(number / 1000),
    }
}

fn digits<const N: usize>(text: &[u8; N]) -> Option<i64> {
    text.iter().try_fold(0, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit <= 9).then(|| value * 10 + i64::from(digit))
    })
}

/// Days since 1970 of `2015-07-15`.
fn date_digits(text: &[u8; 10]) -> Option<i64> {
    let [y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1] = *text else { return None };
    let (year, month, day) = (digits(&[y0, y1, y2, y3])?, digits(&[m0, m1])?, digits(&[d0, d1])?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_of_month = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=days_of_month).contains(&day) || year == 0 {
        return None;
    }
    // Days from civil (Howard Hinnant): years start in March.
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    Some(era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468)
}

/// Microseconds of `12:34[:56[.789]]`, and what follows.
fn clock(text: &[u8]) -> Option<(i64, &[u8])> {
    let (&[h0, h1, b':', m0, m1], mut rest) = text.split_first_chunk::<5>()? else { return None };
    let (hours, minutes) = (digits(&[h0, h1])?, digits(&[m0, m1])?);
    let mut us = (hours * 60 + minutes) * 60_000_000;
    if let Some((&[b':', s0, s1], after)) = rest.split_first_chunk::<3>() {
        let seconds = digits(&[s0, s1])?;
        if seconds > 60 {
            return None;
        }
        us += seconds * 1_000_000;
        rest = after;
        if let Some((b'.', fraction)) = rest.split_first() {
            let count = fraction.iter().take_while(|b| b.is_ascii_digit()).count();
            let mut value = fraction[..count.min(6)].iter().fold(0, |v, b| v * 10 + i64::from(b - b'0'));
            (count..6).for_each(|_| value *= 10);
            us += value + i64::from(fraction.get(6).is_some_and(|b| count > 6 && *b >= b'5'));
            rest = &fraction[count..];
        }
    }
    (hours <= 24 && minutes < 60 && us <= DAY_US).then_some((us, rest))
}

/// Microseconds east of UTC.
fn zone_us(zone: &[u8]) -> Option<i64> {
    let (sign, rest) = match zone {
        [] | [b'Z' | b'z'] | [b'U', b'T', b'C'] => return Some(0),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = match *rest {
        [h0, h1] => (digits(&[h0, h1])?, 0),
        [h0, h1, m0, m1] | [h0, h1, b':', m0, m1] => (digits(&[h0, h1])?, digits(&[m0, m1])?),
        _ => return None,
    };
    (hours < 16 && minutes < 60).then_some(sign * (hours * 60 + minutes) * 60_000_000)
}

/// Bytes written as `\xdeadbeef`, or as themselves.
pub fn bytea(text: &[u8]) -> Option<Vec<u8>> {
    let Some(hex) = text.strip_prefix(b"\\x") else { return Some(text.to_vec()) };
    let digit = |b: &u8| char::from(*b).to_digit(16).map(|d| d as u8);
    if hex.len() % 2 != 0 {
        return None;
    }
    hex.chunks_exact(2).map(|pair| Some(digit(&pair[0])? << 4 | digit(&pair[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(integer(b" -42 "), Some(-42));
        assert_eq!(integer(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(integer(b"-9223372036854775808"), Some(i64::MIN));
        for bad in [&b""[..], b"-", b"1.0", b"12a", b"9223372036854775808", b"1 2"] {
            assert_eq!(integer(bad), None, "{}", String::from_utf8_lossy(bad));
        }
        assert_eq!([&b"1.0"[..], b"1e3", b"1.5"].map(integer_or_integral), [Some(1), Some(1000), None]);
        assert_eq!(float(b" 1e300 "), Some(1e300));
        assert!(float(b"NaN").unwrap().is_nan() && float(b"-Infinity") == Some(f64::NEG_INFINITY));
    }

    #[test]
    fn decimals_are_rounded_and_bounded() {
        let cases = [
            ("1.005", Some(101)),
            ("-1.005", Some(-101)),
            ("1.0049", Some(100)),
            ("12", Some(1200)),
            (".5", Some(50)),
            ("5.", Some(500)),
            ("1.2e1", Some(1200)),
            ("1200e-5", Some(1)),
            ("0.00999999999999999999999999999999999999999999", None),
            ("999.99", Some(99_999)),
            ("999.995", None),
            ("1000", None),
            ("0e50", Some(0)),
            ("1e50", None),
            (".", None),
            ("1a", None),
        ];
        for (text, expected) in cases {
            let found = decimal(text.as_bytes(), 5, 2);
            if text.len() > 40 {
                assert_eq!(found, Some(1), "{text}");
            } else {
                assert_eq!(found, expected, "{text}");
            }
        }
    }

    #[test]
    fn dates_and_times() {
        assert_eq!(
            [&b"1970-01-01"[..], b"2015-07-15", b"1600-02-29", b"0001-01-01"].map(date),
            [Some(0), Some(16_631), Some(-135_081), Some(-719_162)]
        );
        for bad in ["2015-02-29", "2015-13-01", "2015-00-10", "2015-01-32", "0000-01-01", "x"] {
            assert_eq!(date(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(time(b"23:59:59.5"), Some(DAY_US - 500_000));
        assert_eq!(time(b"24:00:01"), None);
        let base = 1_436_918_400_000_000;
        for (text, zoned, plain) in [
            ("2015-07-15", base, base),
            ("2015-07-15 00:00:00.040", base + 40_000, base + 40_000),
            ("2015-07-15T00:00:00.1234567Z", base + 123_457, base + 123_457),
            ("2015-07-15 02:00:00+02", base, base + 7_200_000_000),
            ("2015-07-14T23:30-00:30", base, base - 1_800_000_000),
            ("2015-07-15 00:00:00 +0000", base, base),
        ] {
            assert_eq!(timestamp(text.as_bytes(), true), Some(zoned), "{text}");
            assert_eq!(timestamp(text.as_bytes(), false), Some(plain), "{text}");
        }
        assert_eq!(timestamp(b"yesterday", true), None);
        assert_eq!([1_436_918_400, 1_436_918_400_000, base].map(timestamp_of_number), [Some(base); 3]);
    }

    #[test]
    fn booleans_and_bytes() {
        assert_eq!([&b"TRUE"[..], b"off", b"2"].map(boolean), [Some(true), Some(false), None]);
        assert_eq!(bytea(b"\\xDEad"), Some(vec![0xde, 0xad]));
        assert_eq!((bytea(b"\\xg0"), bytea(b"\\x0"), bytea(b"raw")), (None, None, Some(b"raw".to_vec())));
    }
}
