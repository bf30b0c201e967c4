//! Parquet: columns by name, casts, rows that don't fit, and going on from a row.

use super::*;
use crate::formats::csv::tests::columns;
use crate::formats::encode::{Encoding, ParquetCompression, encoder};
use arrow::array::{AsArray, Int64Array, StringArray};
use arrow::datatypes::{DataType, Int32Type, Int64Type};

fn file(numbers: Vec<i64>) -> File {
    let texts: ArrayRef = Arc::new(numbers.iter().map(|n| Some(format!("t{n}"))).collect::<StringArray>());
    let numbers: ArrayRef = Arc::new(Int64Array::from(numbers));
    let rows = RecordBatch::try_from_iter([("ID", numbers), ("t", texts)]).unwrap();
    let file = tempfile::tempfile().unwrap();
    let output = Box::new(file.try_clone().unwrap());
    let mut encoder = encoder(Encoding::Parquet(ParquetCompression::Zstd), &rows.schema(), output).unwrap();
    encoder.write(&rows).unwrap();
    encoder.finish().unwrap();
    file
}

#[test]
fn columns_are_found_by_name_and_cast() {
    let declared = columns(&[("missing", DataType::Float64), ("t", DataType::Utf8), ("id", DataType::Int32)]);
    let mut rows = ParquetRows::open(file((0..10).collect()), &declared, &[0, 2], (3, Some(4)), 100).unwrap();
    let ParquetBatch { rows: batch, bad, count } = rows.next().unwrap().unwrap();
    assert_eq!((bad.len(), count, batch.column(0).null_count()), (0, 4, 4));
    assert_eq!(batch.column(1).as_primitive::<Int32Type>().values(), &[3, 4, 5, 6]);
    assert!(rows.next().is_none());
    // Nothing wanted: rows all the same.
    let mut rows = ParquetRows::open(file(vec![1, 2]), &declared, &[], (0, None), 100).unwrap();
    assert_eq!(rows.next().unwrap().unwrap().rows.num_rows(), 2);
}

#[test]
fn text_is_kept_as_a_table_would_keep_it() {
    let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("{\"b\":1,\"a\":2}"), Some("{"), None]));
    let rows = RecordBatch::try_from_iter([("j", texts.clone()), ("s", texts)]).unwrap();
    let file = tempfile::tempfile().unwrap();
    let output = Box::new(file.try_clone().unwrap());
    let mut encoder = encoder(Encoding::Parquet(ParquetCompression::None), &rows.schema(), output).unwrap();
    encoder.write(&rows).unwrap();
    encoder.finish().unwrap();
    let mut declared = columns(&[("j", DataType::Utf8), ("s", DataType::Utf8)]);
    declared[0].sql_type = "jsonb".to_owned();
    declared[1].sql_type = "character varying(20)".to_owned();
    let mut rows = ParquetRows::open(file, &declared, &[0, 1], (0, None), 100).unwrap();
    let ParquetBatch { rows: batch, bad, .. } = rows.next().unwrap().unwrap();
    assert_eq!(batch.column(0).as_string::<i32>().value(0), "{\"a\": 2, \"b\": 1}");
    assert_eq!((batch.num_rows(), bad.len(), bad[0].at), (2, 1, 1));
}

#[test]
fn rows_that_do_not_fit_are_bad() {
    let declared = columns(&[("id", DataType::Int32), ("t", DataType::Utf8)]);
    let mut rows =
        ParquetRows::open(file(vec![1, 3_000_000_000, 2]), &declared, &[0], (0, None), 100).unwrap();
    let ParquetBatch { rows: batch, bad, count } = rows.next().unwrap().unwrap();
    assert_eq!((batch.column(0).as_primitive::<Int32Type>().values().as_ref(), count), (&[1, 2][..], 3));
    assert_eq!((bad[0].at, bad[0].payload.as_slice()), (1, &b"{\"ID\":3000000000}\n"[..]));
    let mut rows =
        ParquetRows::open(file(vec![7]), &columns(&[("t", DataType::Int64)]), &[0], (0, None), 9).unwrap();
    let ParquetBatch { rows: batch, bad, .. } = rows.next().unwrap().unwrap();
    assert_eq!((batch.column(0).as_primitive::<Int64Type>().len(), bad.len()), (0, 1));
    assert!(ParquetRows::open(tempfile::tempfile().unwrap(), &declared, &[0], (0, None), 9).is_err());
}
