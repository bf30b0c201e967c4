//! Tests of packed rows: golden bytes, every type and NULL through an entry, rows found by key, damage.

use super::super::random::{all_types, column, rng};
use super::*;
use crate::state::key::KeyOrder;
use crate::state::memory::MemoryStore;
use crate::state::store::StateStore;
use crate::state::writes::RunPool;
use crate::stream::Vnode;
use arrow::array::{AsArray, StringArray};
use arrow::compute::concat_batches;
use arrow::datatypes::{Field, Int64Type, Schema};
use rand::Rng;
use std::collections::HashMap;
use weir_catalog::TableId;

fn encode(columns: &[ArrayRef], rows: Range<usize>) -> Vec<u8> {
    let mut out = Vec::new();
    push_rows(&[View::all(columns)], &rows.map(|row| (0, row)).collect::<Vec<_>>(), &mut out);
    out
}

/// A table of bigint `k` and `columns`, packed by `k`.
fn layout(columns: &[DataType]) -> Arc<TableLayout> {
    let mut types = vec![DataType::Int64];
    types.extend(columns.iter().cloned());
    types.push(DataType::Int64);
    let fields: Vec<Field> =
        types.iter().enumerate().map(|(i, t)| Field::new(format!("c{i}"), t.clone(), true)).collect();
    let key = (vec![0, types.len() - 1], vec![KeyOrder::ASCENDING; 2]);
    let all = (0..types.len()).collect();
    let schema = Arc::new(Schema::new(fields));
    Arc::new(TableLayout::new(TableId(9), &schema, all, key, vec![0], false).packed())
}

fn batch(layout: &TableLayout, columns: Vec<ArrayRef>) -> RecordBatch {
    let fields = layout.schema.fields()[..columns.len()].to_vec();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

fn stored(layout: &Arc<TableLayout>, batches: Vec<RecordBatch>, epoch: u64) -> (MemoryStore, usize) {
    let mut writes = Writes::default();
    writes.packed(layout, batches, Epoch(epoch)).unwrap();
    let runs = writes.encode(&RunPool::default()).unwrap();
    let mut store = MemoryStore::new();
    StateStore::apply_all(&mut store, &runs).unwrap();
    (store, runs.iter().map(|run| run.len()).sum())
}

#[test]
fn bytes_never_change() {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![Some(1), None, Some(-1)])),
        Arc::new(StringArray::from(vec!["é", "", "xy"])),
        Arc::new(Int64Array::from(vec![2, 3, 4])),
    ];
    let hex: String = encode(&columns, 0..3).iter().map(|b| format!("{b:02x}")).collect();
    let expected = [
        "02 03 01",
        "02 0100000000000000 ffffffffffffffff",
        "02 00 02 c3a9 7879",
        "0200000000000000 0300000000000000 0400000000000000",
    ];
    assert_eq!(hex, expected.concat().replace(' ', ""));
}

#[test]
fn every_type_comes_back() {
    let mut rng = rng();
    for data_type in all_types() {
        for nulls in [true, false] {
            let columns = [column(&mut rng, &data_type, 50, nulls).slice(3, 40)];
            let values = [encode(&columns, 0..1), encode(&columns, 1..40)];
            let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
            let (back, counts) = decode(std::slice::from_ref(&data_type), &values).unwrap();
            assert_eq!(&back[0], &columns[0], "{data_type}");
            assert_eq!(counts, [1, 39]);
        }
    }
}

#[test]
fn rows_are_read_by_their_key_and_share_entries() {
    let mut rng = rng();
    let types = all_types();
    for round in 0..40 {
        let kept: Vec<DataType> =
            (0..rng.random_range(0..4)).map(|_| types[rng.random_range(0..types.len())].clone()).collect();
        let layout = layout(&kept);
        let keys = rng.random_range(1..30);
        let mut batches = Vec::new();
        for _ in 0..rng.random_range(1..5) {
            let rows = rng.random_range(1..200);
            let key = (0..rows).map(|_| rng.random_ratio(9, 10).then(|| rng.random_range(0..keys)));
            let mut columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from_iter(key))];
            columns.extend(kept.iter().map(|t| column(&mut rng, t, rows, true)));
            batches.push(batch(&layout, columns));
        }
        let all = concat_batches(&batches[0].schema(), &batches).unwrap();
        let (store, entries) = stored(&layout, batches, 70);
        assert!(entries <= keys as usize + 1 + all.num_rows() / ENTRY_ROWS, "{entries} entries");
        let read = StateStore::snapshot(&store);
        let of_key = |rows: &RecordBatch| {
            let mut of_key: HashMap<Option<i64>, Vec<RecordBatch>> = HashMap::new();
            for row in 0..rows.num_rows() {
                let key = rows.column(0).as_primitive::<Int64Type>();
                let key = arrow::array::Array::is_valid(key, row).then(|| key.value(row));
                of_key.entry(key).or_default().push(rows.slice(row, 1));
            }
            of_key
        };
        let mut found = HashMap::new();
        for key in of_key(&all).keys() {
            let value: ArrayRef = Arc::new(Int64Array::from(vec![*key]));
            let vnode = layout.vnode_of_prefix(std::slice::from_ref(&value)).unwrap();
            let rows = layout.scan_prefix(&*read, vnode, &[value]).unwrap().rows;
            found.extend(of_key(&rows.project(&(0..=kept.len()).collect::<Vec<_>>()).unwrap()));
        }
        // Those of a key come in the order in which they were written.
        assert!(found == of_key(&all), "round {round}: {kept:?}");
    }
}

#[test]
fn long_rows_share_little_and_many_rows_several_entries() {
    let layout = layout(&[DataType::Utf8]);
    let rows = |n: usize, length: usize| -> Vec<ArrayRef> {
        vec![
            Arc::new(Int64Array::from_value(1, n)),
            Arc::new(StringArray::from_iter_values((0..n).map(|_| "x".repeat(length)))),
        ]
    };
    assert_eq!(stored(&layout, vec![batch(&layout, rows(20, 100_000))], 0).1, 20);
    // More rows than are encoded together.
    let n = PARTS * PART_ROWS + 1;
    let (store, entries) = stored(&layout, vec![batch(&layout, rows(n, 1))], 0);
    assert_eq!(entries, n.div_ceil(ENTRY_ROWS));
    let read = StateStore::snapshot(&store);
    let all: usize = (0..=255).map(|v| layout.scan_vnode(&*read, Vnode(v)).unwrap().rows.num_rows()).sum();
    assert_eq!(all, n);
}

#[test]
fn entries_of_several_checkpoints_stand_beside_each_other() {
    let layout = layout(&[DataType::Int64]);
    let rows = |from: i64| -> Vec<ArrayRef> {
        let values = Int64Array::from_iter_values(from..from + 10);
        vec![Arc::new(Int64Array::from_value(5, 10)), Arc::new(values)]
    };
    let mut writes = Writes::default();
    for epoch in 0..3 {
        writes.packed(&layout, vec![batch(&layout, rows(epoch * 10))], Epoch(epoch as u64)).unwrap();
    }
    let mut store = MemoryStore::new();
    StateStore::apply_all(&mut store, &writes.encode(&RunPool::default()).unwrap()).unwrap();
    let key: ArrayRef = Arc::new(Int64Array::from(vec![5]));
    let vnode = layout.vnode_of_prefix(std::slice::from_ref(&key)).unwrap();
    let rows = layout.scan_prefix(&*StateStore::snapshot(&store), vnode, &[key]).unwrap().rows;
    let values: Vec<i64> = rows.column(1).as_primitive::<Int64Type>().values().to_vec();
    assert_eq!(values, (0..30).collect::<Vec<_>>());
}

#[test]
fn damage_is_an_error() {
    let mut rng = rng();
    for data_type in all_types() {
        let columns = [column(&mut rng, &data_type, 12, true)];
        let value = encode(&columns, 0..12);
        for cut in 0..value.len() {
            assert!(
                decode(std::slice::from_ref(&data_type), &[&value[..cut]]).is_err(),
                "{data_type} {value:?} {cut}"
            );
        }
        let mut other = value.clone();
        other[0] = 1;
        assert!(decode(std::slice::from_ref(&data_type), &[&other]).is_err());
        other[0] = VERSION;
        other.push(0);
        assert!(decode(std::slice::from_ref(&data_type), &[&other]).is_err());
    }
}

#[test]
fn rows_of_keys_of_their_own_are_entries_of_their_own() {
    let layout = layout(&[DataType::Int64]);
    let numbers = |n: usize, keys: i64| -> Vec<ArrayRef> {
        let key = (0..n as i64).map(|i| i % keys);
        vec![Arc::new(Int64Array::from_iter_values(key)), Arc::new(Int64Array::from_iter_values(0..n as i64))]
    };
    let n = 20_000;
    for (keys, shared) in [(n as i64, false), (n as i64 / 4, true)] {
        let (store, entries) = stored(&layout, vec![batch(&layout, numbers(n, keys))], 9);
        assert_eq!(entries, if shared { n / 4 } else { n });
        let read = StateStore::snapshot(&store);
        let all = (0..=255).flat_map(|v| {
            let rows = layout.scan_vnode(&*read, Vnode(v)).unwrap().rows;
            let column = |c: usize| rows.column(c).as_primitive::<Int64Type>().values().to_vec();
            column(0).into_iter().zip(column(1)).collect::<Vec<_>>()
        });
        let mut all: Vec<(i64, i64)> = all.collect();
        all.sort_unstable_by_key(|(_, value)| *value);
        assert!(all == (0..n as i64).map(|i| (i % keys, i)).collect::<Vec<_>>(), "{keys} keys");
    }
}
