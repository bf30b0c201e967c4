//! Tests of the overlay: merged with the snapshot it is the table with the transactions applied.

use super::*;
use crate::state::memory::MemoryStore;
use crate::state::table::StateTable;
use crate::stream::Vnode;
use arrow::array::{Int64Array, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use rand::Rng;
use rand::rngs::StdRng;
use std::collections::BTreeMap;
use weir_catalog::relation::RowKey;

const TABLE: ObjectId = ObjectId(20_000);

fn schema() -> SchemaRef {
    let fields = vec![Field::new("id", DataType::Int64, true), Field::new("name", DataType::Utf8, true)];
    Arc::new(Schema::new(fields))
}

fn layout(key: &RowKey) -> Arc<TableLayout> {
    Arc::new(TableLayout::relation(TABLE.table(), schema(), key))
}

type Row = (Option<i64>, Option<String>);

fn changes(rows: &[(Row, i64)]) -> ChangeBatch {
    let ids = Int64Array::from_iter(rows.iter().map(|((id, _), _)| *id));
    let names = StringArray::from_iter(rows.iter().map(|((_, name), _)| name.clone()));
    let batch = RecordBatch::try_new(schema(), vec![Arc::new(ids), Arc::new(names)]).unwrap();
    ChangeBatch::new(batch, rows.iter().map(|(_, diff)| *diff).collect::<Vec<_>>())
}

fn row(id: i64, name: &str) -> Row {
    (Some(id), Some(name.to_owned()))
}

/// Rows, each with how often it occurs.
fn counted(rows: Rows, into: &mut BTreeMap<Row, i64>) {
    use arrow::array::AsArray;
    let batch = rows.rows;
    for i in 0..batch.num_rows() {
        let ids = batch.column(0).as_primitive::<arrow::datatypes::Int64Type>();
        let names = batch.column(1).as_string::<i32>();
        let row = (ids.iter().nth(i).unwrap(), names.iter().nth(i).unwrap().map(str::to_owned));
        *into.entry(row).or_default() += rows.counts.as_ref().map_or(1, |c| c[i]);
    }
}

fn table(layout: &TableLayout, store: &MemoryStore, overlay: &Overlay) -> BTreeMap<Row, i64> {
    let mut seen = BTreeMap::new();
    for vnode in 0..=255 {
        let rows = layout.scan_vnode(store, Vnode(vnode)).unwrap();
        counted(overlay.merge(rows).unwrap(), &mut seen);
    }
    counted(overlay.inserted_rows().unwrap(), &mut seen);
    seen.retain(|_, count| *count != 0);
    seen
}

fn transaction(position: u64, batches: Vec<ChangeBatch>) -> Arc<Transaction> {
    let other = (ObjectId(1), changes(&[(row(77, "other"), 1)]));
    let own = batches.into_iter().map(|b| (TABLE, b));
    Arc::new(Transaction { position, changes: own.chain([other]).collect() })
}

#[test]
fn a_key_has_the_row_that_it_was_given_last() {
    let layout = layout(&RowKey::Columns(vec![0]));
    let (mut writer, mut store) = (StateTable::new(layout.clone()), MemoryStore::new());
    writer.write(&changes(&[(row(1, "a"), 1), (row(2, "b"), 1), (row(3, "c"), 1)]));
    store.apply(&writer.seal());
    let overlay = Overlay::new(
        layout.clone(),
        &[
            transaction(
                1,
                vec![changes(&[(row(1, "a2"), 1), (row(1, "a"), -1)]), changes(&[(row(2, "b"), -1)])],
            ),
            transaction(2, vec![changes(&[(row(4, "d"), 1)])]),
            transaction(3, vec![changes(&[(row(4, "d"), -1)]), changes(&[(row(2, "b2"), 1)])]),
        ],
    );
    let expected = [row(1, "a2"), row(2, "b2"), row(3, "c")].map(|r| (r, 1));
    assert_eq!(table(&layout, &store, &overlay), BTreeMap::from(expected));
    let keys = layout.keys(changes(&[(row(1, ""), 1), (row(3, ""), 1), (row(4, ""), 1)]).rows());
    assert_eq!(overlay.row(keys.get(0)).unwrap().unwrap(), changes(&[(row(1, "a2"), 1)]).rows().clone());
    assert!(overlay.row(keys.get(1)).is_none());
    assert!(overlay.row(keys.get(2)).unwrap().is_none());
}

#[test]
fn without_transactions_nothing_changes() {
    for key in [RowKey::WholeRow, RowKey::Columns(vec![0])] {
        let layout = layout(&key);
        let (mut writer, mut store) = (StateTable::new(layout.clone()), MemoryStore::new());
        writer.write(&changes(&[(row(1, "a"), 1), ((None, None), 1)]));
        store.apply(&writer.seal());
        let overlay = Overlay::new(layout.clone(), &[]);
        assert!(overlay.is_empty() && overlay.inserted_rows().unwrap().rows.num_rows() == 0);
        assert_eq!(table(&layout, &store, &overlay).len(), 2);
    }
}

#[test]
fn merged_with_the_snapshot_it_is_the_table_with_the_transactions_applied() {
    let mut rng = crate::state::random::rng();
    for key in [RowKey::WholeRow, RowKey::Columns(vec![0])] {
        for _ in 0..50 {
            check_random(&layout(&key), &mut rng);
        }
    }
}

/// Applies the same random transactions to a store and to an overlay of an earlier one.
fn check_random(layout: &Arc<TableLayout>, rng: &mut StdRng) {
    let mut model: BTreeMap<Row, i64> = BTreeMap::new();
    let (mut writer, mut store) = (StateTable::new(layout.clone()), MemoryStore::new());
    let mut transactions = Vec::new();
    for position in 1..=10 {
        let mut diffs: BTreeMap<Row, i64> = BTreeMap::new();
        for _ in 0..rng.random_range(1..4) {
            let id = [None, Some(1), Some(2), Some(3)][rng.random_range(0..4)];
            let row = (id, [None, Some("x".to_owned())][rng.random_range(0..2)].clone());
            let current = |r: &Row, diffs: &BTreeMap<Row, i64>| {
                model.get(r).copied().unwrap_or(0) + diffs.get(r).copied().unwrap_or(0)
            };
            if layout.counted {
                let diff = rng.random_range(-current(&row, &diffs)..=2);
                *diffs.entry(row).or_default() += diff;
                continue;
            }
            let names = [None, Some("x".to_owned())];
            for old in names.map(|name| (id, name)) {
                *diffs.entry(old.clone()).or_default() -= current(&old, &diffs);
            }
            if rng.random() {
                *diffs.entry(row).or_default() += 1;
            }
        }
        diffs.retain(|_, diff| *diff != 0);
        diffs.iter().for_each(|(row, diff)| *model.entry(row.clone()).or_default() += diff);
        model.retain(|_, count| *count != 0);
        let mut rows: Vec<_> = diffs.into_iter().collect();
        if rng.random() {
            rows.reverse();
        }
        let batch = changes(&rows);
        if position <= 5 {
            writer.write(&batch);
        } else {
            let middle = rows.len() / 2;
            transactions
                .push(transaction(position, vec![changes(&rows[..middle]), changes(&rows[middle..])]));
        }
    }
    store.apply(&writer.seal());
    let overlay = Overlay::new(layout.clone(), &transactions);
    assert_eq!(table(layout, &store, &overlay), model);
}
