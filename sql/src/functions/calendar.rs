//! Dates and times as numbers: days since 1970 and microseconds, in the proleptic Gregorian
//! calendar. What functions, casts and text forms of times have in common.

use super::interval::DAY_NS;
use arrow::datatypes::IntervalMonthDayNano;

/// Microseconds a day.
pub const DAY_US: i64 = 86_400_000_000;

/// The day number of `infinity`, and negated, less one, of `-infinity`.
pub const INFINITE_DAYS: i32 = i32::MAX;
/// The microseconds of `infinity`, and negated, less one, of `-infinity`.
pub const INFINITE_US: i64 = i64::MAX;

/// Whether a timestamp is neither `infinity` nor `-infinity`.
pub fn is_finite(us: i64) -> bool {
    us != INFINITE_US && us != !INFINITE_US
}

/// The same of a date.
pub fn is_finite_date(days: i32) -> bool {
    days != INFINITE_DAYS && days != !INFINITE_DAYS
}

/// The start of a day as a timestamp; of an infinite one an infinite one.
pub fn start_of_day(days: i32) -> i64 {
    match days {
        INFINITE_DAYS => INFINITE_US,
        days if !is_finite_date(days) => !INFINITE_US,
        days => i64::from(days) * DAY_US,
    }
}

/// The day that a timestamp is in.
pub fn day_of(us: i64) -> i32 {
    match us {
        INFINITE_US => INFINITE_DAYS,
        us if !is_finite(us) => !INFINITE_DAYS,
        us => us.div_euclid(DAY_US) as i32,
    }
}

/// Year, month and day of a day number since 1970 (H. Hinnant's algorithm).
pub fn civil(days: i64) -> (i64, u32, u32) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = (doy - (153 * mp + 2) / 5 + 1) as u32;
    let month = if mp < 10 { mp + 3 } else { mp - 9 } as u32;
    (yoe + era * 400 + i64::from(month <= 2), month, day)
}

/// The day number of a date that exists.
pub fn days_of(year: i64, month: u32, day: u32) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let yoe = y.rem_euclid(400);
    let mp = (i64::from(month) + 9) % 12;
    let doy = (153 * mp + 2) / 5 + i64::from(day) - 1;
    era * 146_097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719_468
}

/// How many days a month has.
pub fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        2 if year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The day number of a date, if it exists.
pub fn checked_days(year: i64, month: u32, day: u32) -> Option<i64> {
    let exists = (1..=12).contains(&month) && day >= 1 && day <= days_in_month(year, month);
    // PostgreSQL's timestamps end in 294276.
    (exists && (-4713..=294_276).contains(&year)).then(|| days_of(year, month, day))
}

/// 1 for Monday to 7 for Sunday.
pub fn iso_weekday(days: i64) -> i64 {
    (days + 3).rem_euclid(7) + 1
}

/// The ISO 8601 year and week that a day is in.
pub fn iso_week(days: i64) -> (i64, i64) {
    let thursday = days - iso_weekday(days) + 4;
    let (year, _, _) = civil(thursday);
    (year, (thursday - days_of(year, 1, 1)) / 7 + 1)
}

/// From 1 for the first of January.
pub fn day_of_year(days: i64) -> i64 {
    let (year, _, _) = civil(days);
    days - days_of(year, 1, 1) + 1
}

/// `ts + sign * interval`: months first (the day is cut to the month's length), then days, then
/// time.
pub fn add_interval(ts_us: i64, interval: IntervalMonthDayNano, sign: i8) -> Option<i64> {
    if !is_finite(ts_us) {
        return Some(ts_us);
    }
    let sign = i64::from(sign);
    let mut ts = ts_us;
    if interval.months != 0 {
        let (days, time) = (ts.div_euclid(DAY_US), ts.rem_euclid(DAY_US));
        let (year, month, day) = civil(days);
        let months = year * 12 + i64::from(month) - 1 + sign * i64::from(interval.months);
        let (year, month) = (months.div_euclid(12), months.rem_euclid(12) as u32 + 1);
        let day = day.min(days_in_month(year, month));
        ts = days_of(year, month, day).checked_mul(DAY_US)?.checked_add(time)?;
    }
    let days = (sign * i64::from(interval.days)).checked_mul(DAY_US)?;
    let moved = ts.checked_add(days)?.checked_add(sign.checked_mul(interval.nanoseconds / 1_000)?)?;
    is_finite(moved).then_some(moved)
}

/// The interval of days and time between two timestamps.
pub fn interval_between(us: i64) -> Option<IntervalMonthDayNano> {
    let days = i32::try_from(us / DAY_US).ok()?;
    Some(IntervalMonthDayNano::new(0, days, (us % DAY_US) * (DAY_NS / DAY_US)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_day_numbers_are_inverse() {
        for days in [-1_000_000, -719_468, -1, 0, 59, 60, 11_016, 20_000, 100_000_000] {
            let (year, month, day) = civil(days);
            assert_eq!(days_of(year, month, day), days, "{year}-{month}-{day}");
        }
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(checked_days(2023, 2, 29), None);
        assert_eq!(checked_days(2024, 2, 29), Some(19_782));
    }

    #[test]
    fn months_are_cut_to_their_length() {
        let month = IntervalMonthDayNano::new(1, 0, 0);
        let ts = days_of(2024, 1, 31) * DAY_US + 5;
        assert_eq!(add_interval(ts, month, 1), Some(days_of(2024, 2, 29) * DAY_US + 5));
        assert_eq!(add_interval(ts, month, -1), Some(days_of(2023, 12, 31) * DAY_US + 5));
        assert_eq!(add_interval(i64::MAX - 1, IntervalMonthDayNano::new(0, 1, 0), 1), None);
        assert_eq!(add_interval(INFINITE_US, month, -1), Some(INFINITE_US));
    }

    #[test]
    fn weeks_belong_to_the_year_of_their_thursday() {
        assert_eq!(iso_week(days_of(2021, 1, 3)), (2020, 53));
        assert_eq!(iso_week(days_of(2021, 1, 4)), (2021, 1));
        assert_eq!(iso_week(days_of(2024, 12, 30)), (2025, 1));
        assert_eq!(iso_weekday(days_of(2024, 12, 29)), 7);
        assert_eq!(day_of_year(days_of(2024, 12, 31)), 366);
    }
}
