//! What is written, as the client's own decoders (postgres-types) read it back.

use super::*;
use arrow::array::*;
use arrow::datatypes::{IntervalMonthDayNano, Schema};
use postgres_types::FromSql;

/// The binary form of row 0 of a column; `None` for NULL.
fn binary(array: ArrayRef, metadata: Option<&str>) -> Option<Vec<u8>> {
    cell(array, metadata, Format::Binary)
}

fn cell(array: ArrayRef, metadata: Option<&str>, format: Format) -> Option<Vec<u8>> {
    let mut field = Field::new("a", array.data_type().clone(), true);
    if let Some(name) = metadata {
        field = field.with_metadata([("weir.type".to_owned(), name.to_owned())].into());
    }
    let batch = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![array]).expect("batch");
    let mut out = BytesMut::new();
    BatchEncoder::new(&batch, &[format], "UTC").expect("encodes").write_row(0, &mut out);
    assert_eq!(out[0], b'D');
    let length = i32::from_be_bytes(out[1..5].try_into().expect("4")) as usize;
    assert_eq!(length, out.len() - 1);
    assert_eq!(&out[5..7], &[0, 1]);
    let value = i32::from_be_bytes(out[7..11].try_into().expect("4"));
    (value >= 0).then(|| {
        assert_eq!(value as usize, out.len() - 11);
        out[11..].to_vec()
    })
}

fn read<T: for<'a> FromSql<'a>>(array: impl Array + 'static, metadata: Option<&str>, pg: &Type) -> T {
    let bytes = binary(Arc::new(array), metadata).expect("not NULL");
    T::from_sql(pg, &bytes).expect("decodes")
}

#[test]
fn scalars_read_back() {
    assert!(read::<bool>(BooleanArray::from(vec![true]), None, &Type::BOOL));
    assert_eq!(read::<i16>(Int16Array::from(vec![-2]), None, &Type::INT2), -2);
    assert_eq!(read::<i32>(Int32Array::from(vec![-3]), None, &Type::INT4), -3);
    assert_eq!(read::<i64>(Int64Array::from(vec![-4]), None, &Type::INT8), -4);
    assert_eq!(read::<i64>(UInt64Array::from(vec![4]), None, &Type::INT8), 4);
    assert_eq!(read::<u32>(Int32Array::from(vec![-1]), Some("oid"), &Type::OID), u32::MAX);
    assert_eq!(read::<f32>(Float32Array::from(vec![1.5]), None, &Type::FLOAT4), 1.5);
    assert_eq!(read::<f64>(Float64Array::from(vec![-0.1]), None, &Type::FLOAT8), -0.1);
    assert_eq!(read::<String>(StringArray::from(vec!["ä"]), None, &Type::TEXT), "ä");
    assert_eq!(read::<Vec<u8>>(BinaryArray::from(vec![&[0, 255][..]]), None, &Type::BYTEA), [0, 255]);
    let json: serde_json::Value = read(StringArray::from(vec!["{\"a\": 1}"]), Some("jsonb"), &Type::JSONB);
    assert_eq!(json["a"], 1);
    let text = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
    let id: uuid::Uuid = read(StringArray::from(vec![text]), Some("uuid"), &Type::UUID);
    assert_eq!(id.to_string(), text);
}

#[test]
fn times_read_back() {
    let timestamp = TimestampMicrosecondArray::from(vec![1_436_918_400_040_000]);
    let read_back: chrono::NaiveDateTime = read(timestamp, None, &Type::TIMESTAMP);
    assert_eq!(read_back.to_string(), "2015-07-15 00:00:00.040");
    let date: chrono::NaiveDate = read(Date32Array::from(vec![16_631]), None, &Type::DATE);
    assert_eq!(date.to_string(), "2015-07-15");
    let time: chrono::NaiveTime = read(Time64MicrosecondArray::from(vec![3_723_000_000]), None, &Type::TIME);
    assert_eq!(time.to_string(), "01:02:03");
    let interval = IntervalMonthDayNanoArray::from(vec![IntervalMonthDayNano::new(1, 2, 3_000)]);
    let bytes = binary(Arc::new(interval), None).expect("not NULL");
    assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 1]);
}

#[test]
fn numerics_are_in_groups_of_four() {
    let numeric = |v: i128, s: i8| {
        let array = Decimal128Array::from(vec![v]).with_precision_and_scale(38, s).expect("fits");
        let bytes = binary(Arc::new(array), None).expect("not NULL");
        bytes.chunks(2).map(|b| i16::from_be_bytes([b[0], b[1]])).collect::<Vec<_>>()
    };
    // digits, weight, sign, scale, then the digits; as PostgreSQL's numeric_send gives them.
    assert_eq!(numeric(0, 2), [0, 0, 0, 2]);
    assert_eq!(numeric(150, 2), [2, 0, 0, 2, 1, 5000]);
    assert_eq!(numeric(-12_345_678, 3), [3, 1, 0x4000, 3, 1, 2345, 6780]);
    assert_eq!(numeric(10_000, 0), [1, 1, 0, 0, 1]);
    assert_eq!(numeric(1, 6), [1, -2, 0, 6, 100]);
    assert_eq!(numeric(5, -4), [1, 1, 0, 0, 5]);
    // A bare numeric: as many digits as it has, as its text has them.
    assert_eq!(numeric(15_000_000_000, 10), [2, 0, 0, 1, 1, 5000]);
    assert_eq!(numeric(-30_000_000_000, 10), [1, 0, 0x4000, 0, 3]);
    assert_eq!(numeric(1, 10), [1, -3, 0, 10, 100]);
    assert_eq!(numeric(0, 10), [0, 0, 0, 0]);
}

#[test]
fn arrays_read_back() {
    let ints = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None])]);
    assert_eq!(read::<Vec<Option<i32>>>(ints, None, &Type::INT4_ARRAY), [Some(1), None]);
    let empty = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(Vec::<Option<i32>>::new())]);
    assert_eq!(read::<Vec<i32>>(empty, None, &Type::INT4_ARRAY), [0; 0]);

    let inner = ListArray::from_iter_primitive::<Int32Type, _, _>([
        Some(vec![Some(1), Some(2), Some(3)]),
        Some(vec![Some(4), Some(5), Some(6)]),
    ]);
    let nest = |inner: ListArray| {
        let field = Arc::new(Field::new("item", inner.data_type().clone(), true));
        let offsets = arrow::buffer::OffsetBuffer::from_lengths([inner.len()]);
        Arc::new(ListArray::new(field, offsets, Arc::new(inner), None)) as ArrayRef
    };
    let bytes = binary(nest(inner), None).expect("not NULL");
    let words: Vec<i32> =
        bytes.chunks(4).take(7).map(|b| i32::from_be_bytes(b.try_into().expect("4"))).collect();
    assert_eq!(words, [2, 0, 23, 2, 1, 3, 1]);
    let ragged = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1)]), Some(vec![])]);
    assert!(check_rectangular(&nest(ragged)).is_err());
}

#[test]
fn nulls_have_no_bytes_in_either_format() {
    for format in [Format::Text, Format::Binary] {
        assert_eq!(cell(Arc::new(Int32Array::from(vec![None])), None, format), None);
        assert_eq!(cell(Arc::new(NullArray::new(1)), None, format), None);
    }
    assert_eq!(cell(Arc::new(Int32Array::from(vec![7])), None, Format::Text), Some(b"7".to_vec()));
}
