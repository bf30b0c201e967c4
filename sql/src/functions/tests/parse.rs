//! Text forms that PostgreSQL reads, and those it refuses.

use super::*;
use crate::functions::parse_array::array;
use calendar::days_of;

#[test]
fn booleans_have_many_names() {
    for text in ["t", "TRUE", " tr ", "yes", "y", "on", "1"] {
        assert_eq!(boolean(text), Ok(true), "{text}");
    }
    for text in ["f", "False", "no", "n", "of", "off", "0"] {
        assert_eq!(boolean(text), Ok(false), "{text}");
    }
    for text in ["", "o", "truth", "2"] {
        assert_eq!(boolean(text), Err(Syntax), "{text}");
    }
}

#[test]
fn numbers_are_strict() {
    assert_eq!(integer(" -42 ", -100, 100), Ok(-42));
    assert_eq!(integer("101", -100, 100), Err(OutOfRange));
    assert_eq!(integer("99999999999999999999", i64::MIN, i64::MAX), Err(OutOfRange));
    for text in ["", "x", "1.5", "1 2", "--1"] {
        assert_eq!(integer(text, i64::MIN, i64::MAX), Err(Syntax), "{text}");
    }
    assert_eq!(float("1e5"), Ok(1e5));
    assert_eq!(float("-Infinity"), Ok(f64::NEG_INFINITY));
    assert!(float("NaN").expect("a number").is_nan());
    assert_eq!(float("1e400"), Err(OutOfRange));
    assert_eq!(float("1e-400"), Err(OutOfRange));
    assert_eq!(float("e5"), Err(Syntax));
}

#[test]
fn decimals_round_half_away_from_zero() {
    assert_eq!(decimal("1.235", 5, 2), Ok(124));
    assert_eq!(decimal("-1.235", 5, 2), Ok(-124));
    assert_eq!(decimal("1.2e3", 10, 0), Ok(1200));
    assert_eq!(decimal("12345e-4", 10, 2), Ok(123));
    assert_eq!(decimal(".5", 5, 0), Ok(1));
    assert_eq!(decimal("0.0004", 5, 2), Ok(0));
    assert_eq!(decimal("999.995", 5, 2), Err(OutOfRange));
    assert_eq!(decimal("1e1000000000", 38, 10), Err(OutOfRange));
    assert_eq!(decimal("0e100000", 38, 10), Ok(0));
    for text in ["", ".", "1.2.3", "1e", "abc", "NaN"] {
        assert_eq!(decimal(text, 10, 2), Err(Syntax), "{text}");
    }
}

#[test]
fn dates_and_times_come_in_several_forms() {
    let day = days_of(2024, 1, 31) as i32;
    for text in [
        "2024-01-31",
        "20240131",
        "2024/1/31",
        "1/31/2024",
        "Jan 31, 2024",
        "January 31 2024",
        "2024-01-31 10:00",
    ] {
        assert_eq!(date(text), Ok(day), "{text}");
    }
    assert_eq!(date("2023-02-29"), Err(OutOfRange));
    assert_eq!(date("31-31"), Err(Syntax));
    assert_eq!(date("0044-03-15 BC"), Ok(days_of(-43, 3, 15) as i32));
    let ts = i64::from(day) * DAY_US + 36_000_000_000;
    assert_eq!(timestamp("2024-01-31T10:00:00", false), Ok(ts));
    assert_eq!(timestamp("2024-01-31 10:00:00.5", false), Ok(ts + 500_000));
    assert_eq!(timestamp("2024-01-31 10:00 AM", false), Ok(ts));
    assert_eq!(timestamp("2024-01-31 12:00:00+02", true), Ok(ts));
    assert_eq!(timestamp("2024-01-31 12:00:00+02", false), Ok(ts + 7_200_000_000));
    assert_eq!(timestamp("2024-01-31 06:30:00-0330", true), Ok(ts));
    assert_eq!(timestamp("2024-01-31T10:00:00Z", true), Ok(ts));
    assert_eq!(timestamp("2024-01-31 25:00", false), Err(OutOfRange));
    assert_eq!(timestamp("yesterday morning", false), Err(Syntax));
    assert_eq!(time("10:00:00.000001"), Ok(36_000_000_001));
    assert_eq!(time("10"), Err(Syntax));
}

#[test]
fn intervals_are_read_part_by_part() {
    let of = |months, days, us: i64| Ok(IntervalMonthDayNano::new(months, days, us * 1_000));
    assert_eq!(interval("1 year 2 mons -3 days 04:05:06.7"), of(14, -3, 14_706_700_000));
    assert_eq!(interval("10 seconds"), of(0, 0, 10_000_000));
    assert_eq!(interval("10"), of(0, 0, 10_000_000));
    assert_eq!(interval("1.5 days"), of(0, 1, 43_200_000_000));
    assert_eq!(interval("2 weeks ago"), of(0, -14, 0));
    assert_eq!(interval("1-2"), of(14, 0, 0));
    assert_eq!(interval("P1Y2M3DT4H5M6S"), of(14, 3, 14_706_000_000));
    assert_eq!(interval("1h30m"), Err(Syntax));
    assert_eq!(interval("1h 30m"), of(0, 0, 5_400_000_000));
    for text in ["", "day", "1 parsec", "1 day day"] {
        assert_eq!(interval(text), Err(Syntax), "{text}");
    }
}

#[test]
fn arrays_uuids_and_bytes() {
    let some = |s: &str| Some(s.to_owned());
    assert_eq!(array("{1, NULL ,\"a,b\",\"NULL\"}"), Ok(vec![some("1"), None, some("a,b"), some("NULL")]));
    assert_eq!(array("{}"), Ok(vec![]));
    assert_eq!(array("1,2"), Err(Syntax));
    assert_eq!(array("{1,}"), Err(Syntax));
    let canonical = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
    assert_eq!(uuid("{A0EEBC999C0B4EF8BB6D6BB9BD380A11}").as_deref(), Ok(canonical));
    assert_eq!(uuid("a0eebc99"), Err(Syntax));
    assert_eq!(bytea("\\xDEad"), Ok(vec![0xde, 0xad]));
    assert_eq!(bytea("a\\\\b\\001"), Ok(vec![b'a', b'\\', b'b', 1]));
    assert_eq!(bytea("\\xf"), Err(Syntax));
}
