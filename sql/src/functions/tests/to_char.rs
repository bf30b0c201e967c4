//! `to_char`, `to_date` and `to_timestamp` by pattern.

use super::*;
use arrow::array::{StringArray, TimestampMicrosecondArray};
use calendar::days_of;

fn shown(ts: i64, pattern: &str) -> String {
    let args: [ArrayRef; 2] = [
        Arc::new(TimestampMicrosecondArray::from(vec![Some(ts), None])),
        Arc::new(StringArray::from(vec![pattern, pattern])),
    ];
    let result = to_char(&args, &DataType::Utf8).expect("it prints");
    assert!(result.is_null(1));
    result.as_string::<i32>().value(0).to_owned()
}

fn at(y: i64, m: u32, d: u32, h: i64, mi: i64, us: i64) -> i64 {
    days_of(y, m, d) * DAY_US + (h * 60 + mi) * 60_000_000 + us
}

#[test]
fn patterns_print_as_postgresql_prints_them() {
    let ts = at(2015, 7, 5, 15, 4, 9_040_500);
    for (pattern, text) in [
        ("YYYY-MM-DD", "2015-07-05"),
        ("HH24:MI:SS", "15:04:09"),
        ("HH:MI AM", "03:04 PM"),
        ("HH12:MI p.m.", "03:04 p.m."),
        ("yyyy/mm/dd hh24", "2015/07/05 15"),
        ("MS US", "040 040500"),
        ("Mon DD, YY", "Jul 05, 15"),
        ("Month|DAY|FMDay", "July     |SUNDAY   |Sunday"),
        ("FMDDth FMMM", "5th 7"),
        ("Q WW IW DDD D ID", "3 27 27 186 1 7"),
        ("\"Year\" YYYY", "Year 2015"),
        ("SSSS J CC", "54249 2457209 21"),
    ] {
        assert_eq!(shown(ts, pattern), text, "{pattern}");
    }
    assert_eq!(shown(at(2015, 7, 5, 0, 0, 0), "HH12"), "12");
    assert_eq!(shown(at(1969, 12, 31, 23, 59, 0), "YYYY-MM-DD HH24:MI"), "1969-12-31 23:59");
}

#[test]
fn a_text_is_used_again_only_for_times_that_print_alike() {
    let times = [at(2015, 7, 5, 15, 4, 0), at(2015, 7, 5, 15, 4, 59_999_999), at(2015, 7, 5, 15, 5, 0)];
    let args: [ArrayRef; 2] = [
        Arc::new(TimestampMicrosecondArray::from(times.to_vec())),
        Arc::new(StringArray::from(vec!["HH24:MI"; 3])),
    ];
    let result = to_char(&args, &DataType::Utf8).expect("it prints");
    let texts: Vec<_> = result.as_string::<i32>().iter().flatten().collect();
    assert_eq!(texts, ["15:04", "15:04", "15:05"]);
}

#[test]
fn text_is_read_by_pattern() {
    let read_one = |text: &str, pattern: &str| read(text, &pieces(pattern));
    assert_eq!(read_one("2015-07-05", "YYYY-MM-DD"), Some(at(2015, 7, 5, 0, 0, 0)));
    assert_eq!(read_one("20150705 1504", "YYYYMMDD HH24MI"), Some(at(2015, 7, 5, 15, 4, 0)));
    assert_eq!(read_one("05 Jul 2015 03:04 PM", "DD Mon YYYY HH:MI AM"), Some(at(2015, 7, 5, 15, 4, 0)));
    assert_eq!(read_one("5/7/15", "DD/MM/YY"), Some(at(2015, 7, 5, 0, 0, 0)));
    assert_eq!(read_one("2015-02-30", "YYYY-MM-DD"), None);
    assert_eq!(read_one("no date", "YYYY-MM-DD"), None);
    assert_eq!(read_one("12:30:01.5", "HH24:MI:SS.MS"), Some(at(1, 1, 1, 12, 30, 1_500_000)));
}
