//! Column builders: values, NULLs, and cutting back.

use super::*;
use arrow::array::{Array, AsArray};

fn types() -> Vec<(DataType, &'static str, &'static str)> {
    vec![
        (DataType::Boolean, "true", "maybe"),
        (DataType::Int16, "-32768", "32768"),
        (DataType::Int32, "2147483647", "2147483648"),
        (DataType::Int64, "9000000000", "x"),
        (DataType::Float32, "1.5", "1e40"),
        (DataType::Float32, "-Infinity", "x"),
        (DataType::Float64, "1e300", "1e"),
        (DataType::Float64, "NaN", "1e400"),
        (DataType::Decimal128(10, 2), "1.5", "1e10"),
        (DataType::Date32, "2015-07-15", "2015-07-32"),
        (DataType::Time64(TimeUnit::Microsecond), "12:00:00", "noon"),
        (DataType::Timestamp(TimeUnit::Microsecond, None), "2015-07-15 12:00:00", "then"),
        (DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())), "2015-07-15 12:00:00+02", "then"),
        (DataType::Interval(IntervalUnit::MonthDayNano), "1 day", "a while"),
        (DataType::Binary, "\\xff", "\\xf"),
    ]
}

#[test]
fn values_nulls_and_what_is_cut_back() {
    for (data_type, good, bad) in types() {
        let mut builder = ColumnBuilder::new(&data_type, "").unwrap();
        builder.push_text(good.as_bytes(), false).unwrap();
        builder.push_null();
        assert!(
            builder.push_text(bad.as_bytes(), false).unwrap_err().starts_with(&format!("\"{bad}\" is no "))
        );
        builder.push_text(good.as_bytes(), false).unwrap();
        builder.push_null();
        builder.truncate(3);
        assert_eq!(builder.len(), 3);
        let array = builder.finish().unwrap();
        assert_eq!((array.data_type(), array.len(), array.null_count()), (&data_type, 3, 1));
        assert_eq!(array.slice(0, 1).to_data(), array.slice(2, 1).to_data());
        // Empty again, and without a trace of the NULL.
        builder.push_text(good.as_bytes(), false).unwrap();
        assert_eq!(builder.finish().unwrap().null_count(), 0);
    }
}

#[test]
fn uuids_and_json_are_checked() {
    let mut uuid = ColumnBuilder::new(&DataType::Utf8, "uuid").unwrap();
    uuid.push_text(b"A0EEBC999C0B4EF8BB6D6BB9BD380A11", false).unwrap();
    assert!(uuid.push_text(b"a0eebc99", false).is_err());
    let array = uuid.finish().unwrap();
    assert_eq!(array.as_string::<i32>().value(0), "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11");
    let mut json = ColumnBuilder::new(&DataType::Utf8, "jsonb").unwrap();
    json.push_text(b"{\"a\": [1]}", false).unwrap();
    assert!(json.push_text(b"{\"a\": [1}", false).is_err());
    assert_eq!(json.len(), 1);
}

#[test]
fn text_is_kept_as_a_table_would_keep_it() {
    let kept = |sql_type: &str, text: &str| {
        let mut builder = ColumnBuilder::new(&DataType::Utf8, sql_type).unwrap();
        builder.push_text(text.as_bytes(), false)?;
        Ok(builder.finish().unwrap().as_string::<i32>().value(0).to_owned())
    };
    for (sql_type, text, expected) in [
        ("jsonb", "{\"bb\":1.0,\"a\":[1,{\"c\":null}], \"a\":2}", "{\"a\": 2, \"bb\": 1.0}"),
        ("character varying(3)", "üü ", "üü "),
        ("character varying(3)", "üüü   ", "üüü"),
        ("character varying", "abcd", "abcd"),
        ("character(3)", "a  ", "a"),
        ("character(3)", "    ", ""),
        ("bpchar", "abcd ", "abcd"),
        ("text", "a ", "a "),
    ] {
        assert_eq!(kept(sql_type, text).as_deref(), Ok(expected), "{sql_type} {text}");
    }
    let refused: Result<String, String> = Err("\"abcd\" is no text of at most 3 characters".to_owned());
    assert_eq!(kept("character varying(3)", "abcd"), refused);
    assert_eq!(kept("character(3)", "abcd"), refused);
    assert!(kept("character varying(3)", "ab  x").is_err());
}

#[test]
fn lists_and_structs_are_cut_back_whole() {
    let item = Arc::new(arrow::datatypes::Field::new_list_field(DataType::Int64, true));
    let mut list = ColumnBuilder::new(&DataType::List(item), "").unwrap();
    for values in [&["1", "2"][..], &[], &["3"]] {
        let items = list.list_items().unwrap();
        values.iter().for_each(|v| items.push_text(v.as_bytes(), true).unwrap());
        list.end_list();
    }
    list.list_items().unwrap().push_text(b"9", true).unwrap();
    list.truncate(2);
    list.push_null();
    let array = list.finish().unwrap();
    let array = array.as_list::<i32>();
    assert_eq!((array.len(), array.values().len(), array.is_null(2)), (3, 2, true));

    let fields = Fields::from(vec![
        arrow::datatypes::Field::new("a", DataType::Int64, true),
        arrow::datatypes::Field::new("b", DataType::Utf8, true),
    ]);
    let mut row = ColumnBuilder::new(&DataType::Struct(fields), "").unwrap();
    row.struct_fields().unwrap().1[0].push_text(b"1", true).unwrap();
    row.end_struct();
    row.struct_fields().unwrap().1[1].push_text(b"x", false).unwrap();
    row.truncate(1);
    row.push_null();
    let array = row.finish().unwrap();
    assert_eq!((array.len(), array.is_null(1), array.as_struct().column(1).null_count()), (2, true, 2));
}

#[test]
fn text_that_is_not_utf8_fails_at_the_end() {
    let mut text = ColumnBuilder::new(&DataType::Utf8, "text").unwrap();
    text.push_text(b"\xff", false).unwrap();
    assert!(text.finish().is_err());
}
