//! Text to values as PostgreSQL reads them: what a cast from text accepts.
//!
//! Each function gives `None` for text that is no value of its type; what is a value but doesn't fit
//! is an [`ParseError::OutOfRange`].

use super::calendar::{self, DAY_US};
use super::numeric;
use arrow::datatypes::IntervalMonthDayNano;

/// Why a text is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// 22P02, and for times 22007.
    Syntax,
    /// 22003, and for times 22008.
    OutOfRange,
    /// 22P05: what is escaped in it is in no text.
    Unicode,
}
use ParseError::{OutOfRange, Syntax};

/// `t`, `true`, `yes`, `on`, `1` and their opposites, and beginnings of them that are unique.
pub fn boolean(text: &str) -> Result<bool, ParseError> {
    let text = text.trim().to_ascii_lowercase();
    let begins = |word: &str, least: usize| text.len() >= least && word.starts_with(&text);
    if begins("true", 1) || begins("yes", 1) || begins("on", 2) || text == "1" {
        Ok(true)
    } else if begins("false", 1) || begins("no", 1) || begins("off", 2) || text == "0" {
        Ok(false)
    } else {
        Err(Syntax)
    }
}

/// An integer in `min..=max`.
pub fn integer(text: &str, min: i64, max: i64) -> Result<i64, ParseError> {
    let text = text.trim();
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Syntax);
    }
    let value: i64 = text.parse().map_err(|_| OutOfRange)?;
    if (min..=max).contains(&value) { Ok(value) } else { Err(OutOfRange) }
}

/// A double precision number.
pub fn float(text: &str) -> Result<f64, ParseError> {
    let text = text.trim();
    let word = text.trim_start_matches(['+', '-']);
    let special = ["nan", "inf", "infinity"].iter().any(|w| word.eq_ignore_ascii_case(w));
    let numeric = word.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    if !special && !numeric {
        return Err(Syntax);
    }
    let value: f64 = text.parse().map_err(|_| Syntax)?;
    // One NaN, whatever sign it is given.
    let value = if value.is_nan() { f64::NAN } else { value };
    let digits = word.split(['e', 'E']).next().unwrap_or_default();
    let lost = value == 0.0 && digits.bytes().any(|b| (b'1'..=b'9').contains(&b));
    if !special && (value.is_infinite() || lost) { Err(OutOfRange) } else { Ok(value) }
}

/// An unscaled decimal of `precision` and `scale`, rounded half away from zero.
pub fn decimal(text: &str, precision: u8, scale: i8) -> Result<i128, ParseError> {
    let text = text.trim();
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().map_err(|_| Syntax)?),
        None => (text, 0),
    };
    let (negative, digits) = match mantissa.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, mantissa.strip_prefix('+').unwrap_or(mantissa)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !all_digits(whole) || !all_digits(fraction) {
        return Err(Syntax);
    }
    let digits = format!("{whole}{fraction}");
    let point = i64::try_from(whole.len()).map_err(|_| OutOfRange)? + i64::from(exponent);
    // The digits that count: up to `scale` after the point, and the one that rounds.
    let kept = point + i64::from(scale);
    let mut value: i128 = 0;
    for i in 0..kept.max(0) {
        let digit = usize::try_from(i).ok().and_then(|i| digits.as_bytes().get(i)).map_or(0, |b| b - b'0');
        value = value.checked_mul(10).and_then(|v| v.checked_add(i128::from(digit))).ok_or(OutOfRange)?;
        if value == 0 && i > i64::try_from(digits.len()).unwrap_or(i64::MAX) {
            break;
        }
    }
    let next = usize::try_from(kept).ok().and_then(|i| digits.as_bytes().get(i));
    if next.is_some_and(|b| *b >= b'5') {
        value += 1;
    }
    let limit = 10i128.checked_pow(u32::from(precision)).ok_or(OutOfRange)?;
    if value >= limit {
        return Err(OutOfRange);
    }
    Ok(if negative { -value } else { value })
}

/// `\xdeadbeef`, or text with `\\` and `\ooo`.
pub fn bytea(text: &str) -> Result<Vec<u8>, ParseError> {
    let mut bytes = Vec::with_capacity(text.len());
    if let Some(hex) = text.strip_prefix("\\x") {
        let digits: Vec<u8> = hex.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        for pair in digits.chunks(2) {
            let value = |b: u8| char::from(b).to_digit(16);
            match pair {
                [a, b] => bytes.push((value(*a).ok_or(Syntax)? * 16 + value(*b).ok_or(Syntax)?) as u8),
                _ => return Err(Syntax),
            }
        }
        return Ok(bytes);
    }
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = match (byte, after) {
            (b'\\', [b'\\', after @ ..]) => {
                bytes.push(b'\\');
                after
            }
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                bytes.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
                after
            }
            (b'\\', _) => return Err(Syntax),
            _ => {
                bytes.push(*byte);
                after
            }
        };
    }
    Ok(bytes)
}

/// A date as a day number: `2024-01-31`, `20240131`, `2024/1/31`, `1/31/2024`, `Jan 31, 2024`, with
/// `BC`; what follows the date is ignored if it is a time.
pub fn date(text: &str) -> Result<i32, ParseError> {
    if let Some(positive) = infinite(text) {
        return Ok(if positive { calendar::INFINITE_DAYS } else { !calendar::INFINITE_DAYS });
    }
    if text.trim().eq_ignore_ascii_case("epoch") {
        return Ok(0);
    }
    let (days, rest) = leading_date(text.trim())?;
    if !rest.is_empty() {
        time_and_zone(rest)?;
    }
    i32::try_from(days).map_err(|_| OutOfRange)
}

/// A timestamp in microseconds. An offset counts only where `zoned`; without one it is UTC.
pub fn timestamp(text: &str, zoned: bool) -> Result<i64, ParseError> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("epoch") {
        return Ok(0);
    }
    if let Some(positive) = infinite(text) {
        return Ok(if positive { calendar::INFINITE_US } else { !calendar::INFINITE_US });
    }
    let (days, rest) = leading_date(text)?;
    let (time, offset) = if rest.is_empty() { (0, 0) } else { time_and_zone(rest)? };
    let offset = if zoned { offset } else { 0 };
    days.checked_mul(DAY_US).and_then(|d| d.checked_add(time - offset)).ok_or(OutOfRange)
}

/// Whether `infinity` is positive, if a text says it.
fn infinite(text: &str) -> Option<bool> {
    let text = text.trim();
    let word = text.strip_prefix('-').unwrap_or(text);
    word.eq_ignore_ascii_case("infinity").then_some(word.len() == text.len())
}

/// A time of day in microseconds.
pub fn time(text: &str) -> Result<i64, ParseError> {
    time_and_zone(text.trim()).map(|(time, _)| time)
}

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// A date at the start of a text, and what follows it.
fn leading_date(text: &str) -> Result<(i64, &str), ParseError> {
    let (text, bc) = match text.strip_suffix("BC").or_else(|| text.strip_suffix("bc")) {
        Some(rest) => (rest.trim_end(), true),
        None => (text, false),
    };
    if text.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return named_date(text);
    }
    let end =
        text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '-' | '/' | '.'))).unwrap_or(text.len());
    let (date, rest) = text.split_at(end);
    let rest = rest.strip_prefix(['T', 't']).unwrap_or(rest).trim_start();
    let parts: Vec<&str> = date.split(['-', '/', '.']).collect();
    let number = |s: &str| s.parse::<i64>().map_err(|_| Syntax);
    let (year, month, day) = match parts.as_slice() {
        [compact] if compact.len() == 8 && compact.is_ascii() => {
            (number(&compact[..4])?, number(&compact[4..6])?, number(&compact[6..])?)
        }
        // Day and month first are PostgreSQL's DateStyle MDY.
        [m, d, y] if m.len() <= 2 && y.len() >= 3 => (number(y)?, number(m)?, number(d)?),
        [y, m, d] if y.len() >= 3 && m.len() <= 2 && d.len() <= 2 => (number(y)?, number(m)?, number(d)?),
        _ => return Err(Syntax),
    };
    let year = if bc { 1 - year } else { year };
    Ok((checked(year, month, day)?, rest))
}

fn checked(year: i64, month: i64, day: i64) -> Result<i64, ParseError> {
    let (Ok(month), Ok(day)) = (u32::try_from(month), u32::try_from(day)) else {
        return Err(OutOfRange);
    };
    calendar::checked_days(year, month, day).ok_or(OutOfRange)
}

/// `January 31, 2024`, `Jan 31 2024 10:00`.
fn named_date(text: &str) -> Result<(i64, &str), ParseError> {
    let end = text.find(|c: char| !c.is_ascii_alphabetic()).ok_or(Syntax)?;
    let (name, rest) = text.split_at(end);
    let short = name.get(..3).ok_or(Syntax)?.to_ascii_lowercase();
    let month = MONTHS.iter().position(|m| *m == short).ok_or(Syntax)? as i64 + 1;
    let (day, rest) = digits(rest.trim_start())?;
    let (year, rest) = digits(rest.trim_start_matches([',', ' ']))?;
    Ok((checked(year, month, day)?, rest.trim_start()))
}

fn digits(text: &str) -> Result<(i64, &str), ParseError> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Ok((text[..end].parse().map_err(|_| Syntax)?, &text[end..]))
}

/// A time of day and an offset from UTC, both in microseconds.
fn time_and_zone(text: &str) -> Result<(i64, i64), ParseError> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, ':' | '.'))).unwrap_or(text.len());
    let (clock, rest) = text.split_at(end);
    let mut parts = clock.split(':');
    let number = |part: Option<&str>| part.ok_or(Syntax)?.parse::<i64>().map_err(|_| Syntax);
    let (mut hour, minute) = (number(parts.next())?, number(parts.next())?);
    let seconds_us = parts.next().map_or(Ok(0), seconds)?;
    if parts.next().is_some() {
        return Err(Syntax);
    }
    let mut rest = rest.trim_start();
    for (word, afternoon) in [("am", false), ("pm", true)] {
        if rest.get(..2).is_some_and(|w| w.eq_ignore_ascii_case(word)) {
            if !(1..=12).contains(&hour) {
                return Err(OutOfRange);
            }
            hour = hour % 12 + if afternoon { 12 } else { 0 };
            rest = rest[2..].trim_start();
        }
    }
    let whole_day = hour == 24 && minute == 0 && seconds_us == 0;
    if (hour > 23 && !whole_day) || minute > 59 || seconds_us > 60_000_000 {
        return Err(OutOfRange);
    }
    Ok(((hour * 60 + minute) * 60_000_000 + seconds_us, zone_us(rest)?))
}

/// `12`, `12.345678`, in microseconds.
fn seconds(text: &str) -> Result<i64, ParseError> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole: i64 = whole.parse().map_err(|_| Syntax)?;
    Ok(whole * 1_000_000 + fraction_us(fraction)?)
}

/// Digits after a point, in millionths, rounded.
fn fraction_us(digits: &str) -> Result<i64, ParseError> {
    if digits.is_empty() {
        return Ok(0);
    }
    let value = decimal(&format!("0.{digits}"), numeric::PRECISION, 6)?;
    i64::try_from(value).map_err(|_| OutOfRange)
}

/// `Z`, `UTC`, `+02`, `-03:30`, `+0230`.
fn zone_us(text: &str) -> Result<i64, ParseError> {
    if text.is_empty() || ["z", "utc", "gmt"].iter().any(|z| text.eq_ignore_ascii_case(z)) {
        return Ok(0);
    }
    let (sign, rest) = match (text.strip_prefix('+'), text.strip_prefix('-')) {
        (Some(rest), _) => (1, rest),
        (_, Some(rest)) => (-1, rest),
        _ => return Err(Syntax),
    };
    let rest = rest.replace(':', "");
    if !rest.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Syntax);
    }
    let part = |range: std::ops::Range<usize>| rest.get(range).map_or(0, |s| s.parse::<i64>().unwrap_or(0));
    let (hours, minutes) = match rest.len() {
        1 | 2 => (rest.parse::<i64>().map_err(|_| Syntax)?, 0),
        4 => (part(0..2), part(2..4)),
        _ => return Err(Syntax),
    };
    if hours > 15 || minutes > 59 {
        return Err(OutOfRange);
    }
    Ok(sign * (hours * 60 + minutes) * 60_000_000)
}

/// `1 year 2 mons -3 days 04:05:06.7`, `2 weeks ago`, `1-2`, `P1DT2H`, a number of seconds.
pub fn interval(text: &str) -> Result<IntervalMonthDayNano, ParseError> {
    let text = text.trim();
    if let Some(rest) = text.strip_prefix('P') {
        return iso_interval(rest);
    }
    let text = text.trim_start_matches('@');
    let (text, ago) = match text.trim_end().strip_suffix("ago") {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let mut parts = Parts::default();
    let mut words = spaced(text).into_iter().peekable();
    if words.peek().is_none() {
        return Err(Syntax);
    }
    while let Some(word) = words.next() {
        if word.contains(':') {
            parts.add_clock(&word)?;
        } else if let Some((years, months)) = word.trim_start_matches('-').split_once('-') {
            let sign = if word.starts_with('-') { -1.0 } else { 1.0 };
            let number = |s: &str| s.parse::<f64>().map_err(|_| Syntax);
            parts.months += sign * (number(years)? * 12.0 + number(months)?);
        } else {
            let value: f64 = word.parse().map_err(|_| Syntax)?;
            let unit = words.next_if(|w| w.starts_with(|c: char| c.is_ascii_alphabetic()));
            // A number before a time of day counts days.
            let bare = if words.peek().is_some_and(|w| w.contains(':')) { "days" } else { "seconds" };
            parts.add(value, unit.as_deref().unwrap_or(bare))?;
        }
    }
    parts.finish(if ago { -1.0 } else { 1.0 })
}

/// Words of a text; a number and its unit are two even if written together.
fn spaced(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let unit = word.find(|c: char| c.is_ascii_alphabetic());
        match unit {
            Some(at) if at > 0 && !word.contains(':') => {
                words.push(word[..at].to_owned());
                words.push(word[at..].to_owned());
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

fn iso_interval(text: &str) -> Result<IntervalMonthDayNano, ParseError> {
    let mut parts = Parts::default();
    let (mut rest, mut in_time) = (text, false);
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('T') {
            (rest, in_time) = (after, true);
            continue;
        }
        let end = rest.find(|c: char| c.is_ascii_alphabetic()).ok_or(Syntax)?;
        let value: f64 = rest[..end].parse().map_err(|_| Syntax)?;
        let unit = match (&rest[end..=end], in_time) {
            ("Y", false) => "years",
            ("M", false) => "months",
            ("W", false) => "weeks",
            ("D", false) => "days",
            ("H", true) => "hours",
            ("M", true) => "minutes",
            ("S", true) => "seconds",
            _ => return Err(Syntax),
        };
        parts.add(value, unit)?;
        rest = &rest[end + 1..];
    }
    parts.finish(1.0)
}

/// Months, days and microseconds, with fractions.
#[derive(Default)]
struct Parts {
    months: f64,
    days: f64,
    us: f64,
}

impl Parts {
    fn add(&mut self, value: f64, unit: &str) -> Result<(), ParseError> {
        let unit = unit.trim_end_matches(',').to_ascii_lowercase();
        match unit.as_str() {
            "millennium" | "millennia" | "mil" | "mils" => self.months += value * 12_000.0,
            "century" | "centuries" | "cent" | "c" => self.months += value * 1_200.0,
            "decade" | "decades" | "dec" | "decs" => self.months += value * 120.0,
            "year" | "years" | "yr" | "yrs" | "y" => self.months += value * 12.0,
            "month" | "months" | "mon" | "mons" => self.months += value,
            "week" | "weeks" | "w" => self.days += value * 7.0,
            "day" | "days" | "d" => self.days += value,
            "hour" | "hours" | "hr" | "hrs" | "h" => self.us += value * 3_600e6,
            "minute" | "minutes" | "min" | "mins" | "m" => self.us += value * 60e6,
            "second" | "seconds" | "sec" | "secs" | "s" => self.us += value * 1e6,
            "millisecond" | "milliseconds" | "msec" | "msecs" | "ms" => self.us += value * 1e3,
            "microsecond" | "microseconds" | "usec" | "usecs" | "us" => self.us += value,
            _ => return Err(Syntax),
        }
        Ok(())
    }

    /// `04:05`, `-04:05:06.7`.
    fn add_clock(&mut self, word: &str) -> Result<(), ParseError> {
        let (sign, word) = match word.strip_prefix('-') {
            Some(rest) => (-1.0, rest),
            None => (1.0, word.strip_prefix('+').unwrap_or(word)),
        };
        let parts: Vec<&str> = word.split(':').collect();
        let number = |s: &str| s.parse::<f64>().map_err(|_| Syntax);
        let us = match parts.as_slice() {
            [h, m] => number(h)? * 3_600e6 + number(m)? * 60e6,
            [h, m, s] => number(h)? * 3_600e6 + number(m)? * 60e6 + seconds(s)? as f64,
            _ => return Err(Syntax),
        };
        self.us += sign * us;
        Ok(())
    }

    fn finish(self, sign: f64) -> Result<IntervalMonthDayNano, ParseError> {
        let days = self.days + self.months.fract() * 30.0;
        let us = (self.us + days.fract() * DAY_US as f64).round() * sign;
        let (months, days) = (self.months.trunc() * sign, days.trunc() * sign);
        let fits = |v: f64| v.abs() <= f64::from(i32::MAX);
        if !fits(months) || !fits(days) || us.abs() >= i64::MAX as f64 / 1_000.0 {
            return Err(OutOfRange);
        }
        Ok(IntervalMonthDayNano::new(months as i32, days as i32, us as i64 * 1_000))
    }
}

/// A UUID in its canonical form.
pub fn uuid(text: &str) -> Result<String, ParseError> {
    let text = text.trim();
    let inner = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text);
    let digits: String = inner.chars().filter(|c| *c != '-').collect();
    if digits.len() != 32 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(Syntax);
    }
    let d = digits.to_ascii_lowercase();
    Ok(format!("{}-{}-{}-{}-{}", &d[..8], &d[8..12], &d[12..16], &d[16..20], &d[20..]))
}

#[cfg(test)]
#[path = "tests/parse.rs"]
mod tests;
