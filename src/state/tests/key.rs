//! Tests of the key encoding: golden bytes, round trips of all types, and the order of bytes.

use super::super::random::{all_types, column, rng};
use super::*;
use arrow::array::*;
use arrow::compute::SortOptions;
use arrow::datatypes::*;
use arrow::util::display::array_value_to_string;
use rand::Rng;
use std::sync::Arc;

const DESCENDING: KeyOrder = KeyOrder { descending: true, nulls_first: true };
const ORDERS: [KeyOrder; 4] = [
    KeyOrder::ASCENDING,
    DESCENDING,
    KeyOrder { descending: true, nulls_first: false },
    KeyOrder { descending: false, nulls_first: true },
];

fn codec(columns: &[ArrayRef], orders: &[KeyOrder]) -> KeyCodec {
    KeyCodec::with_orders(columns.iter().map(|c| c.data_type().clone()).collect(), orders.to_vec())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The keys of all rows of one column, ascending and descending.
fn keys(column: ArrayRef) -> Vec<(String, String)> {
    let columns = [column];
    let all = |order| codec(&columns, &[order]).encode_all(&columns, columns[0].len(), None);
    let (ascending, descending) = (all(KeyOrder::ASCENDING), all(DESCENDING));
    (0..columns[0].len()).map(|row| (hex(ascending.get(row)), hex(descending.get(row)))).collect()
}

fn golden(column: impl Array + 'static, expected: &[(&str, &str)]) {
    let expected: Vec<_> = expected.iter().map(|(a, d)| (a.to_string(), d.to_string())).collect();
    assert_eq!(keys(Arc::new(column)), expected);
}

#[test]
fn bytes_never_change() {
    golden(
        BooleanArray::from(vec![Some(false), Some(true), None]),
        &[("0100", "01ff"), ("0101", "01fe"), ("02", "00")],
    );
    golden(
        Int16Array::from(vec![-1, 0, 258]),
        &[("017fff", "018000"), ("018000", "017fff"), ("018102", "017efd")],
    );
    golden(
        Int64Array::from(vec![Some(1000), None]),
        &[("0180000000000003e8", "017ffffffffffffc17"), ("02", "00")],
    );
    golden(Date32Array::from(vec![1]), &[("0180000001", "017ffffffe")]);
    golden(
        Decimal128Array::from(vec![-1, 12345]),
        &[
            ("017fffffffffffffffffffffffffffffff", "0180000000000000000000000000000000"),
            ("0180000000000000000000000000003039", "017fffffffffffffffffffffffffffcfc6"),
        ],
    );
    golden(
        Float64Array::from(vec![1.5, -0.0, -2.0, f64::NAN, -f64::NAN]),
        &[
            ("01bff8000000000000", "014007ffffffffffff"),
            ("018000000000000000", "017fffffffffffffff"),
            ("013fffffffffffffff", "01c000000000000000"),
            ("01fff8000000000000", "010007ffffffffffff"),
            ("01fff8000000000000", "010007ffffffffffff"),
        ],
    );
    golden(
        StringArray::from(vec!["", "a\0b"]),
        &[("010001", "01fffe"), ("016100ff620001", "019eff009dfffe")],
    );
    golden(
        IntervalMonthDayNanoArray::from(vec![IntervalMonthDayNano::new(1, 2, 3)]),
        &[(
            "0180000000000000000009d29229e0000380000001800000028000000000000003",
            "017ffffffffffffffffff62d6dd61ffffc7ffffffe7ffffffd7ffffffffffffffc",
        )],
    );
    let mut list = ListBuilder::new(Int32Builder::new());
    list.append_value([Some(1), None]);
    list.append_value([] as [Option<i32>; 0]);
    golden(list.finish(), &[("01010180000001010200", "01fefe7ffffffefefdff"), ("0100", "01ff")]);
    let fields =
        Fields::from(vec![Field::new("a", DataType::Int8, true), Field::new("b", DataType::Utf8, true)]);
    let children: Vec<ArrayRef> =
        vec![Arc::new(Int8Array::from(vec![None])), Arc::new(StringArray::from(vec!["x"]))];
    golden(StructArray::new(fields, children, None), &[("010201780001", "01fdfe87fffe")]);
}

#[test]
fn vnode_goes_first() {
    let columns: [ArrayRef; 1] = [Arc::new(Int8Array::from(vec![1, 2]))];
    let keys = codec(&columns, &[KeyOrder::ASCENDING]).encode_all(&columns, 2, Some(&[Vnode(7), Vnode(255)]));
    assert_eq!(keys.iter().map(hex).collect::<Vec<_>>(), ["070181", "ff0182"]);
}

#[test]
fn every_type_comes_back() {
    let mut rng = rng();
    for data_type in all_types() {
        for (nulls, order) in [true, false].into_iter().flat_map(|n| ORDERS.map(|o| (n, o))) {
            let columns = [column(&mut rng, &data_type, 50, nulls).slice(3, 40)];
            let codec = codec(&columns, &[order]);
            let keys = codec.encode_all(&columns, 40, None);
            let back = codec.decode(keys.iter()).unwrap();
            assert_eq!(&back[0], &columns[0], "{data_type}");
            for row in 0..40 {
                let mut one = Vec::new();
                codec.encode(&columns, row, &mut one);
                assert_eq!(one, keys.get(row), "{data_type} row {row}");
                assert_eq!(codec.prefix_len(&one, 1).unwrap(), one.len());
            }
        }
    }
}

#[test]
fn rows_of_many_columns_come_back() {
    let mut rng = rng();
    let types = all_types();
    for _ in 0..30 {
        let columns: Vec<ArrayRef> = (0..rng.random_range(0..5))
            .map(|_| {
                let t = &types[rng.random_range(0..types.len())];
                column(&mut rng, t, 20, true)
            })
            .collect();
        let orders: Vec<_> = columns.iter().map(|_| ORDERS[rng.random_range(0..4)]).collect();
        let codec = codec(&columns, &orders);
        let keys = codec.encode_all(&columns, 20, None);
        assert_eq!(codec.decode(keys.iter()).unwrap(), columns);
        let first = columns.len() / 2;
        let prefixes = codec.encode_all(&columns[..first], 20, None);
        for row in 0..20 {
            assert!(keys.get(row).starts_with(prefixes.get(row)));
            assert_eq!(codec.prefix_len(keys.get(row), first).unwrap(), prefixes.get(row).len());
        }
    }
}

#[test]
fn bytes_sort_as_values_do() {
    let mut rng = rng();
    // Lists, structs and intervals sort differently in Arrow; they have their own test.
    for data_type in all_types().into_iter().filter(|t| !t.is_nested() && !matches!(t, DataType::Interval(_)))
    {
        for order in ORDERS {
            let columns = [column(&mut rng, &data_type, 100, true)];
            let keys = codec(&columns, &[order]).encode_all(&columns, 100, None);
            let options = SortOptions { descending: order.descending, nulls_first: order.nulls_first };
            let compare = make_comparator(&columns[0], &columns[0], options).unwrap();
            for (a, b) in (0..100).flat_map(|a| (0..100).map(move |b| (a, b))) {
                let show = |row| array_value_to_string(&columns[0], row).unwrap();
                assert_eq!(keys.get(a).cmp(keys.get(b)), compare(a, b), "{order:?} {} {}", show(a), show(b));
            }
        }
    }
}

#[test]
fn nested_values_and_intervals_sort_as_in_postgresql() {
    let mut list = ListBuilder::new(StringBuilder::new());
    for row in [vec![], vec![Some("a")], vec![Some("a"), Some("b")], vec![Some("a"), None], vec![None]] {
        list.append_value(row);
    }
    list.append_null();
    assert_ascending(Arc::new(list.finish()));
    let interval = IntervalMonthDayNano::new;
    assert_ascending(Arc::new(IntervalMonthDayNanoArray::from(vec![
        interval(-1, 0, 0),
        interval(0, -1, 0),
        interval(0, 0, 1),
        interval(0, 29, 86_399_000_000_000),
        interval(1, 0, 0),
        interval(0, 31, 0),
    ])));
}

fn assert_ascending(column: ArrayRef) {
    let columns = [column];
    let rows = columns[0].len();
    let ascending = codec(&columns, &[KeyOrder::ASCENDING]).encode_all(&columns, rows, None);
    let descending = codec(&columns, &[DESCENDING]).encode_all(&columns, rows, None);
    for row in 1..rows {
        assert!(ascending.get(row - 1) < ascending.get(row), "row {row}");
        assert!(descending.get(row - 1) > descending.get(row), "row {row}");
    }
}

#[test]
fn damage_is_an_error() {
    let mut rng = rng();
    for data_type in all_types() {
        let columns = [column(&mut rng, &data_type, 20, true)];
        let codec = codec(&columns, &[KeyOrder::ASCENDING]);
        let keys = codec.encode_all(&columns, 20, None);
        for key in keys.iter() {
            for cut in 0..key.len() {
                assert!(codec.decode([&key[..cut]].into_iter()).is_err(), "{data_type} {} {cut}", hex(key));
            }
            let mut longer = key.to_vec();
            longer.push(1);
            assert!(codec.decode([longer.as_slice()].into_iter()).is_err());
        }
    }
}
