//! Tests of the value encoding: golden bytes, round trips of all types, damage.

use super::super::random::{all_types, column, rng};
use super::*;
use arrow::array::*;
use arrow::datatypes::*;
use rand::Rng;
use std::sync::Arc;

fn codec(columns: &[ArrayRef]) -> ValueCodec {
    ValueCodec::new(columns.iter().map(|c| c.data_type().clone()).collect())
}

fn encode_all(codec: &ValueCodec, columns: &[ArrayRef], rows: usize) -> Vec<Vec<u8>> {
    let encoder = codec.encoder(columns);
    let encode = |row| {
        let mut out = Vec::new();
        encoder.encode(row, &mut out);
        out
    };
    (0..rows).map(encode).collect()
}

#[test]
fn bytes_never_change() {
    let mut list = ListBuilder::new(Int16Builder::new());
    list.append_value([Some(1), None, Some(-1)]);
    let fields =
        Fields::from(vec![Field::new("a", DataType::Int8, true), Field::new("b", DataType::Utf8, true)]);
    let children: Vec<ArrayRef> =
        vec![Arc::new(Int8Array::from(vec![None])), Arc::new(StringArray::from(vec!["x"]))];
    let columns: Vec<ArrayRef> = vec![
        Arc::new(BooleanArray::from(vec![true])),
        Arc::new(Int32Array::from(vec![258])),
        Arc::new(Int64Array::from(vec![None])),
        Arc::new(Decimal128Array::from(vec![-2])),
        Arc::new(Float64Array::from(vec![-0.0])),
        Arc::new(StringArray::from(vec!["é"])),
        Arc::new(BinaryArray::from(vec![[7; 128].as_slice()])),
        Arc::new(IntervalMonthDayNanoArray::from(vec![IntervalMonthDayNano::new(1, -1, 2)])),
        Arc::new(list.finish()),
        Arc::new(StructArray::new(fields, children, None)),
    ];
    let value = &encode_all(&codec(&columns), &columns, 1)[0];
    let hex: String = value.iter().map(|b| format!("{b:02x}")).collect();
    let expected = [
        "010400 01 02010000 feffffffffffffffffffffffffffffff 0000000000000080 02c3a9 8001",
        &"07".repeat(128),
        "01000000ffffffff0200000000000000 03020100ffff 010178",
    ];
    assert_eq!(hex, expected.concat().replace(' ', ""));
}

#[test]
fn every_type_comes_back() {
    let mut rng = rng();
    for data_type in all_types() {
        for nulls in [true, false] {
            let columns = [column(&mut rng, &data_type, 50, nulls).slice(3, 40)];
            let codec = codec(&columns);
            let values = encode_all(&codec, &columns, 40);
            let back = codec.decode(values.iter().map(Vec::as_slice)).unwrap();
            assert_eq!(&back[0], &columns[0], "{data_type}");
        }
    }
}

#[test]
fn rows_of_many_columns_come_back() {
    let mut rng = rng();
    let types = all_types();
    for _ in 0..30 {
        let columns: Vec<ArrayRef> = (0..rng.random_range(0..20))
            .map(|_| {
                let t = &types[rng.random_range(0..types.len())];
                column(&mut rng, t, 20, true)
            })
            .collect();
        let codec = codec(&columns);
        let values = encode_all(&codec, &columns, 20);
        assert_eq!(codec.decode(values.iter().map(Vec::as_slice)).unwrap(), columns);
        assert!(values.iter().all(|v| v[0] != 0), "a row never looks like a count of zero");
    }
}

#[test]
fn damage_is_an_error() {
    let mut rng = rng();
    for data_type in all_types() {
        let columns = [column(&mut rng, &data_type, 20, true)];
        let codec = codec(&columns);
        for value in encode_all(&codec, &columns, 20) {
            for cut in 0..value.len() {
                assert!(codec.decode([&value[..cut]].into_iter()).is_err(), "{data_type} {value:?} {cut}");
            }
            let mut other = value.clone();
            other[0] = 2;
            assert!(codec.decode([other.as_slice()].into_iter()).is_err());
        }
    }
}
