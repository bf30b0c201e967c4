//! Binary parameters as postgres-types writes them.

use super::*;
use crate::wire::types::arrow_type;
use bytes::BytesMut;
use postgres_types::{ToSql, Type};

fn sent(value: &(impl ToSql + Sync), pg: &Type) -> ScalarValue {
    let mut out = BytesMut::new();
    value.to_sql(pg, &mut out).expect("encodes");
    let field = Field::new("a", arrow_type(pg.oid()).expect("known"), true);
    decode_parameter(&field, Some(&out), Format::Binary).expect("decodes")
}

#[test]
fn what_clients_send_is_read() {
    assert_eq!(sent(&true, &Type::BOOL), ScalarValue::from(true));
    assert_eq!(sent(&-2i16, &Type::INT2), ScalarValue::from(-2i16));
    assert_eq!(sent(&-3i32, &Type::INT4), ScalarValue::from(-3i32));
    assert_eq!(sent(&-4i64, &Type::INT8), ScalarValue::from(-4i64));
    assert_eq!(sent(&7u32, &Type::OID), ScalarValue::from(7i64));
    assert_eq!(sent(&1.5f64, &Type::FLOAT8), ScalarValue::from(1.5f64));
    assert_eq!(sent(&"ä", &Type::TEXT), ScalarValue::from("ä"));
    assert_eq!(sent(&&[1u8, 0][..], &Type::BYTEA), ScalarValue::Binary(Some(vec![1, 0])));
    let date = chrono::NaiveDate::from_ymd_opt(2015, 7, 15).expect("a date");
    assert_eq!(sent(&date, &Type::DATE), ScalarValue::Date32(Some(16_631)));
    let time = date.and_hms_micro_opt(0, 0, 0, 40_000).expect("a time");
    let expected = ScalarValue::TimestampMicrosecond(Some(1_436_918_400_040_000), None);
    assert_eq!(sent(&time, &Type::TIMESTAMP), expected);
    let list = ScalarValue::new_list_nullable(
        &[ScalarValue::from(1i32), ScalarValue::Int32(None)],
        &DataType::Int32,
    );
    assert_eq!(sent(&vec![Some(1i32), None], &Type::INT4_ARRAY), ScalarValue::List(list));
    assert_eq!(
        decode_parameter(&Field::new("a", DataType::Int32, true), None, Format::Binary).expect("NULL"),
        ScalarValue::Int32(None)
    );
}

#[test]
fn numerics_are_rounded_to_their_scale() {
    // digits, weight, sign, scale, groups of four.
    let numeric = |words: &[u16], scale| {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
        decode_numeric(&bytes, 38, scale)
    };
    assert_eq!(numeric(&[2, 0, 0, 2, 1, 5000], 2).unwrap(), 150);
    assert_eq!(numeric(&[3, 1, 0x4000, 3, 1, 2345, 6780], 3).unwrap(), -12_345_678);
    assert_eq!(numeric(&[1, 0xfffe, 0, 6, 100], 6).unwrap(), 1);
    assert_eq!(numeric(&[2, 0, 0, 4, 1, 2550], 2).unwrap(), 126);
    assert_eq!(numeric(&[2, 0, 0x4000, 4, 1, 2550], 2).unwrap(), -126);
    assert_eq!(numeric(&[1, 0xfff0, 0, 70, 9999], 2).unwrap(), 0);
    assert_eq!(numeric(&[0, 0, 0, 0], 2).unwrap(), 0);
    assert!(numeric(&[1, 20, 0, 0, 1], 2).is_err());
    assert!(numeric(&[0, 0, 0xc000, 0], 2).is_err());
    assert!(numeric(&[3, 0, 0, 0, 1], 2).is_err());
}

#[test]
fn bytes_that_are_no_value_are_refused() {
    for data_type in [DataType::Int32, DataType::Boolean, DataType::Date32, arrow_type(1007).expect("int4[]")]
    {
        let field = Field::new("a", data_type, true);
        assert!(decode_parameter(&field, Some(&[1, 2, 3]), Format::Binary).is_err());
    }
    let text = Field::new("a", DataType::Utf8, true);
    assert!(decode_parameter(&text, Some(&[0xff]), Format::Text).is_err());
    assert!(decode_parameter(&text, Some(b"a\0b"), Format::Text).is_err());
}

#[test]
fn json_and_uuid_lose_their_binary_dress() {
    let named = |name: &str| {
        Field::new("a", DataType::Utf8, true).with_metadata([(TYPE_KEY.to_owned(), name.to_owned())].into())
    };
    let json = decode_parameter(&named("jsonb"), Some(b"\x01{}"), Format::Binary).expect("json");
    assert_eq!(json, ScalarValue::from("{}"));
    assert!(decode_parameter(&named("jsonb"), Some(b"{}"), Format::Binary).is_err());
    let id = decode_parameter(&named("uuid"), Some(&[0xab; 16]), Format::Binary).expect("uuid");
    assert_eq!(id, ScalarValue::from("abababab-abab-abab-abab-abababababab"));
}
