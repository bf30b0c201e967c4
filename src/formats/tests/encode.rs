//! What the encoders write.

use super::*;
use arrow::array::{
    BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int64Array,
    IntervalMonthDayNanoArray, ListArray, StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{Int64Type, IntervalMonthDayNano};
use parking_lot::Mutex;

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn rows() -> RecordBatch {
    let json = Field::new("doc", DataType::Utf8, true)
        .with_metadata([("weir.type".to_owned(), "jsonb".to_owned())].into());
    let inner: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
    let columns: Vec<(Field, ArrayRef)> = vec![
        (Field::new("i", DataType::Int64, true), Arc::new(Int64Array::from(vec![Some(-5), None]))),
        (Field::new("t", DataType::Utf8, true), Arc::new(StringArray::from(vec!["a\"b,\n\\\u{1}é", ""]))),
        (Field::new("f", DataType::Float64, true), Arc::new(Float64Array::from(vec![1.5, f64::NAN]))),
        (Field::new("b", DataType::Boolean, true), Arc::new(BooleanArray::from(vec![Some(true), None]))),
        (
            Field::new("n", DataType::Decimal128(10, 2), true),
            Arc::new(Decimal128Array::from(vec![150, -1]).with_precision_and_scale(10, 2).unwrap()),
        ),
        (
            Field::new("ts", DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, None), true),
            Arc::new(TimestampMicrosecondArray::from(vec![Some(1_436_918_400_040_000), None])),
        ),
        (
            Field::new(
                "tz",
                DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, Some("+00:00".into())),
                true,
            ),
            Arc::new(
                TimestampMicrosecondArray::from(vec![Some(1_436_918_400_000_000), None])
                    .with_timezone("+00:00"),
            ),
        ),
        (Field::new("d", DataType::Date32, true), Arc::new(Date32Array::from(vec![Some(16_631), None]))),
        (
            Field::new("x", DataType::Binary, true),
            Arc::new(BinaryArray::from(vec![Some(&b"\xde\xad"[..]), None])),
        ),
        (json, Arc::new(StringArray::from(vec![Some("{\"a\":[1]}"), None]))),
        (
            Field::new_list("l", Field::new_list_field(DataType::Int64, true), true),
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1), None]), None])),
        ),
        (
            Field::new_struct("s", vec![Field::new("k", DataType::Int64, true)], true),
            Arc::new(StructArray::from(vec![(Arc::new(Field::new("k", DataType::Int64, true)), inner)])),
        ),
        (
            Field::new("v", DataType::Interval(arrow::datatypes::IntervalUnit::MonthDayNano), true),
            Arc::new(IntervalMonthDayNanoArray::from(vec![Some(IntervalMonthDayNano::new(1, 2, 0)), None])),
        ),
    ];
    let (fields, arrays): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

fn encode(encoding: Encoding, rows: &RecordBatch) -> Vec<u8> {
    let out = Shared::default();
    let mut encoder = encoder(encoding, &rows.schema(), Box::new(out.clone())).unwrap();
    encoder.write(rows).unwrap();
    encoder.finish().unwrap();
    out.0.lock().clone()
}

#[test]
fn json_is_what_to_json_writes() {
    let text = String::from_utf8(encode(Encoding::Json, &rows())).unwrap();
    let expected = concat!(
        r#"{"i":-5,"t":"a\"b,\n\\\u0001é","f":1.5,"b":true,"n":1.50,"ts":"2015-07-15T00:00:00.04","#,
        r#""tz":"2015-07-15T00:00:00+00:00","d":"2015-07-15","x":"\\xdead","doc":{"a":[1]},"l":[1,null],"#,
        r#""s":{"k":1},"v":"1 mon 2 days"}"#,
        "\n",
        r#"{"i":null,"t":"","f":"NaN","b":null,"n":-0.01,"ts":null,"tz":null,"d":null,"x":null,"doc":null,"#,
        r#""l":null,"s":{"k":null},"v":null}"#,
        "\n"
    );
    assert_eq!(text, expected);
    for line in text.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
}

#[test]
fn csv_tells_null_from_the_empty_string() {
    let rows = rows().project(&[0, 1, 3, 5]).unwrap();
    let text = String::from_utf8(encode(Encoding::Csv { delimiter: b';', header: true }, &rows)).unwrap();
    assert_eq!(text, "i;t;b;ts\n-5;\"a\"\"b,\n\\\u{1}é\";t;2015-07-15 00:00:00.04\n;\"\";;\n");
    let bare = rows.project(&[1]).unwrap().slice(1, 1);
    assert_eq!(encode(Encoding::Csv { delimiter: b',', header: false }, &bare), b"\"\"\n");
}

#[test]
fn parquet_is_read_back() {
    for compression in [ParquetCompression::None, ParquetCompression::Snappy, ParquetCompression::Zstd] {
        let rows = rows();
        let bytes = bytes::Bytes::from(encode(Encoding::Parquet(compression), &rows));
        let mut reader =
            datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReader::try_new(bytes, 100).unwrap();
        let back = reader.next().unwrap().unwrap();
        assert_eq!(back.num_rows(), 2);
        for column in 0..rows.num_columns() - 1 {
            assert_eq!(back.column(column), rows.column(column), "{column}");
        }
        assert_eq!(back.column(12).as_string::<i32>().value(0), "1 mon 2 days");
    }
}
