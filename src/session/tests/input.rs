//! Texts that are read back as they are printed, and texts that are refused.

use super::*;
use crate::session::text::to_text;
use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit, TimeUnit};

fn field(data_type: DataType) -> Field {
    Field::new("a", data_type, true)
}

fn list(item: DataType) -> DataType {
    DataType::List(Arc::new(field(item)))
}

#[test]
fn what_is_printed_is_read_back() {
    let micros = TimeUnit::Microsecond;
    for (data_type, text) in [
        (DataType::Boolean, "t"),
        (DataType::Int16, "-32768"),
        (DataType::Int64, "9223372036854775807"),
        (DataType::Float64, "1.5e-07"),
        (DataType::Float64, "NaN"),
        (DataType::Float32, "-Infinity"),
        (DataType::Decimal128(10, 2), "-12.30"),
        (DataType::Utf8, " a\\b "),
        (DataType::Binary, "\\xdead00"),
        (DataType::Date32, "2015-07-15"),
        (DataType::Time64(micros), "01:02:03.5"),
        (DataType::Timestamp(micros, None), "2015-07-15 00:00:00.04"),
        (DataType::Timestamp(micros, Some("+00:00".into())), "2015-07-15 00:00:00.04+00"),
        (DataType::Interval(IntervalUnit::MonthDayNano), "1 day 02:00:00"),
        (DataType::Interval(IntervalUnit::MonthDayNano), "-1 years -2 mons +3 days -04:05:06.789"),
        (list(DataType::Int32), "{1,NULL,3}"),
        (list(DataType::Utf8), "{a,\"b c\",\"NULL\",\"q\\\"\"}"),
        (list(DataType::Int32), "{}"),
    ] {
        let value = parse_text(&field(data_type.clone()), text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(value.data_type(), data_type, "{text}");
        let array = value.to_array().expect("an array");
        assert_eq!(to_text(&array, 0).as_deref(), Some(text), "{data_type}");
    }
    let interval = parse_text(&field(DataType::Interval(IntervalUnit::MonthDayNano)), "1.5 day 5m ago");
    let expected = IntervalMonthDayNano::new(0, -1, -(43_200 + 300) * 1_000_000_000);
    assert_eq!(interval.expect("interval"), ScalarValue::IntervalMonthDayNano(Some(expected)));
    let escaped = parse_text(&field(DataType::Binary), "a\\\\\\001").expect("bytea");
    assert_eq!(escaped, ScalarValue::Binary(Some(vec![b'a', b'\\', 1])));
}

#[test]
fn bad_text_is_refused_in_postgres_words() {
    for (data_type, text, message) in [
        (DataType::Int32, "abc", "invalid input syntax for type integer: \"abc\""),
        (DataType::Int32, "2147483648", "value \"2147483648\" is out of range for type integer"),
        (DataType::Boolean, "maybe", "invalid input syntax for type boolean: \"maybe\""),
        (DataType::Binary, "\\xabc", "invalid input syntax for type bytea: \"\\xabc\""),
        (list(DataType::Int32), "{1,", "malformed array literal: \"{1,\""),
        (list(DataType::Int32), "{1,}", "malformed array literal: \"{1,}\""),
    ] {
        let error = parse_text(&field(data_type), text).expect_err(text);
        assert_eq!(error.to_string(), message);
    }
    let dates =
        [(DataType::Date32, "2015-13-01"), (DataType::Timestamp(TimeUnit::Microsecond, None), "soon")];
    for (data_type, text) in dates {
        assert!(parse_text(&field(data_type), text).is_err(), "{text}");
    }
}
