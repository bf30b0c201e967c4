//! Texts as psql of PostgreSQL 15 shows them.

use super::*;
use arrow::array::*;
use arrow::datatypes::{Field, Int32Type};

fn text(array: impl Array + 'static) -> String {
    to_text(&(Arc::new(array) as ArrayRef), 0).expect("not NULL")
}

#[test]
fn floats_are_the_shortest_that_read_back() {
    for (value, expected) in [
        (0.0, "0"),
        (-0.0, "-0"),
        (1.0, "1"),
        (0.1, "0.1"),
        (100.0, "100"),
        (1234.5678, "1234.5678"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (1.5e-7, "1.5e-07"),
        (123456789012345.0, "123456789012345"),
        (1e15, "1e+15"),
        (1.5e300, "1.5e+300"),
        (f64::NAN, "NaN"),
        (f64::INFINITY, "Infinity"),
        (f64::NEG_INFINITY, "-Infinity"),
    ] {
        assert_eq!(text(Float64Array::from(vec![value])), expected);
    }
    for (value, expected) in
        [(0.1f32, "0.1"), (999999.0, "999999"), (1e6, "1e+06"), (16777216.0, "1.6777216e+07")]
    {
        assert_eq!(text(Float32Array::from(vec![value])), expected);
    }
}

#[test]
fn decimals_keep_their_scale() {
    let decimal =
        |v: i128, s: i8| text(Decimal128Array::from(vec![v]).with_precision_and_scale(38, s).expect("fits"));
    assert_eq!(decimal(150, 2), "1.50");
    assert_eq!(decimal(-5, 2), "-0.05");
    assert_eq!(decimal(0, 3), "0.000");
    assert_eq!(decimal(7, 0), "7");
    assert_eq!(decimal(7, -2), "700");
}

#[test]
fn times_are_iso() {
    let timestamp = |us: i64| text(TimestampMicrosecondArray::from(vec![us]));
    assert_eq!(timestamp(1_436_918_400_040_000), "2015-07-15 00:00:00.04");
    assert_eq!(timestamp(-1), "1969-12-31 23:59:59.999999");
    assert_eq!(timestamp(253_402_300_800_000_000), "10000-01-01 00:00:00");
    assert_eq!(timestamp(-62_135_596_800_000_000 - 1), "0001-12-31 23:59:59.999999 BC");
    let zoned = TimestampNanosecondArray::from(vec![1_436_918_400_040_000_000]).with_timezone("+00:00");
    assert_eq!(text(zoned), "2015-07-15 00:00:00.04+00");
    let utc = Arc::new(TimestampMicrosecondArray::from(vec![1_436_918_400_000_000]).with_timezone("+00:00"));
    for (zone, expected) in [
        ("Europe/Berlin", "2015-07-15 02:00:00+02"),
        ("Asia/Kolkata", "2015-07-15 05:30:00+05:30"),
        ("-03:30", "2015-07-14 20:30:00-03:30"),
        ("UTC", "2015-07-15 00:00:00+00"),
    ] {
        let array = plain_in_zone(&(Arc::clone(&utc) as ArrayRef), zone).expect("a zone");
        assert_eq!(to_text(&array, 0).as_deref(), Some(expected));
    }
    assert_eq!(text(Date32Array::from(vec![16631])), "2015-07-15");
    assert_eq!(text(Date32Array::from(vec![-719_529])), "0002-12-31 BC");
    assert_eq!(text(Time64MicrosecondArray::from(vec![3_723_000_100])), "01:02:03.0001");
}

#[test]
fn intervals_are_in_postgres_style() {
    let interval = |months, days, us: i64| {
        text(IntervalMonthDayNanoArray::from(vec![IntervalMonthDayNano::new(months, days, us * 1_000)]))
    };
    assert_eq!(interval(0, 1, 7_200_000_000), "1 day 02:00:00");
    assert_eq!(interval(14, 3, 14_706_789_000), "1 year 2 mons 3 days 04:05:06.789");
    assert_eq!(interval(0, 0, 0), "00:00:00");
    assert_eq!(interval(0, -1, 7_200_000_000), "-1 days +02:00:00");
    assert_eq!(interval(-14, 2, -1), "-1 years -2 mons +2 days -00:00:00.000001");
    assert_eq!(interval(1, 0, 0), "1 mon");
    assert_eq!(interval(0, 0, 360_000_000_000), "100:00:00");
}

#[test]
fn arrays_and_records_quote_what_they_must() {
    let mut builder = ListBuilder::new(StringBuilder::new());
    for item in [Some("a"), Some("b c"), None, Some(""), Some("null"), Some("q\"\\")] {
        builder.values().append_option(item);
    }
    builder.append(true);
    assert_eq!(text(builder.finish()), r#"{a,"b c",NULL,"","null","q\"\\"}"#);

    let ints = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None])]);
    assert_eq!(text(ints), "{1,NULL}");

    let record = StructArray::from(vec![
        (Arc::new(Field::new("a", DataType::Int32, true)), Arc::new(Int32Array::from(vec![1])) as ArrayRef),
        (
            Arc::new(Field::new("b", DataType::Utf8, true)),
            Arc::new(StringArray::from(vec!["x \"y\""])) as ArrayRef,
        ),
        (
            Arc::new(Field::new("c", DataType::Utf8, true)),
            Arc::new(StringArray::from(vec![None::<&str>])) as ArrayRef,
        ),
        (
            Arc::new(Field::new("d", DataType::Boolean, true)),
            Arc::new(BooleanArray::from(vec![true])) as ArrayRef,
        ),
    ]);
    assert_eq!(text(record), r#"(1,"x ""y""",,t)"#);
}

#[test]
fn bytes_are_hex_and_nulls_are_none() {
    assert_eq!(text(BinaryArray::from(vec![&[0xde, 0xad, 0x01][..]])), "\\xdead01");
    assert_eq!(to_text(&(Arc::new(Int32Array::from(vec![None::<i32>])) as ArrayRef), 0), None);
    assert_eq!(to_text(&(Arc::new(NullArray::new(1)) as ArrayRef), 0), None);
    assert_eq!(text(StringViewArray::from(vec!["view"])), "view");
}
