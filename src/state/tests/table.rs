//! Tests of state tables: what is written is read back, in key order, in the right vnode.

use super::super::memory::MemoryStore;
use super::super::random::{all_types, column, rng};
use super::*;
use arrow::array::{Array, Int32Array, Int64Array, StringArray};
use arrow::datatypes::{DataType, Field};
use rand::Rng;
use std::collections::BTreeMap;

const ID: TableId = TableId(20_000);

fn schema(fields: &[(&str, DataType)]) -> SchemaRef {
    Arc::new(Schema::new(fields.iter().map(|(n, t)| Field::new(*n, t.clone(), true)).collect::<Vec<_>>()))
}

fn people() -> (SchemaRef, RecordBatch) {
    let schema = schema(&[("name", DataType::Utf8), ("id", DataType::Int64), ("age", DataType::Int32)]);
    let names = StringArray::from(vec![Some("ann"), None, Some("bob"), Some("")]);
    let ids = Int64Array::from(vec![Some(3), Some(1), Some(2), None]);
    let ages = Int32Array::from(vec![None, Some(40), Some(7), Some(0)]);
    let rows =
        RecordBatch::try_new(schema.clone(), vec![Arc::new(names), Arc::new(ids), Arc::new(ages)]).unwrap();
    (schema, rows)
}

fn all_rows(layout: &TableLayout, store: &MemoryStore) -> Vec<Rows> {
    (0..=255).map(|v| layout.scan_vnode(store, Vnode(v)).unwrap()).filter(|r| r.rows.num_rows() > 0).collect()
}

fn ids(rows: &RecordBatch) -> Vec<Option<i64>> {
    rows.column_by_name("id").unwrap().as_any().downcast_ref::<Int64Array>().unwrap().iter().collect()
}

#[test]
fn a_keyed_row_is_put_replaced_and_deleted() {
    let (schema, rows) = people();
    let layout = Arc::new(TableLayout::relation(ID, schema, &RowKey::Columns(vec![1])));
    assert_eq!((&layout.key_columns, &layout.value_columns), (&vec![1], &vec![0, 2]));
    let (mut table, mut store) = (StateTable::new(layout.clone()), MemoryStore::new());
    table.write(&ChangeBatch::insertions(rows.clone()));
    store.apply(&table.seal());
    assert!(table.is_empty());

    let found = layout.get_rows(&store, layout.keys(&rows).iter()).unwrap();
    assert_eq!((found.rows.rows, found.indices), (rows.clone(), vec![0, 1, 2, 3]));
    let mut seen: Vec<_> = all_rows(&layout, &store).iter().flat_map(|r| ids(&r.rows)).collect();
    seen.sort();
    assert_eq!(seen, [None, Some(1), Some(2), Some(3)]);

    // The new row of id 3 comes before the old one goes, and id 1 goes.
    let mut columns = rows.columns().to_vec();
    columns[2] = Arc::new(Int32Array::from(vec![1, 1, 1, 1]));
    let newer = RecordBatch::try_new(rows.schema(), columns).unwrap();
    let both =
        arrow::compute::concat_batches(&rows.schema(), [&newer.slice(0, 1), &rows.slice(0, 2)]).unwrap();
    table.write(&ChangeBatch::new(both, vec![1, -1, -1]));
    store.apply(&table.seal());
    let found = layout.get_rows(&store, layout.keys(&rows).iter()).unwrap();
    assert_eq!(found.indices, [0, 2, 3]);
    assert_eq!(found.rows.rows.slice(0, 1), newer.slice(0, 1));
    table.delete(layout.keys(&rows).iter());
    store.apply(&table.seal());
    assert!(store.is_empty());
}

#[test]
fn a_counted_row_goes_with_its_last_occurrence() {
    let (schema, rows) = people();
    let layout = Arc::new(TableLayout::relation(ID, schema, &RowKey::WholeRow));
    let (mut table, mut store) = (StateTable::new(layout.clone()), MemoryStore::new());
    table.write(&ChangeBatch::insertions(rows.clone()));
    table.write(&ChangeBatch::new(rows.clone(), vec![2, -1, -2, 1]));
    store.apply(&table.seal());
    let found = layout.get_rows(&store, layout.keys(&rows).iter()).unwrap();
    assert_eq!(found.indices, [0, 2, 3]);
    assert_eq!(found.rows.counts, Some(vec![3, -1, 2]));
    assert!(found.rows.clone().repeated().is_err(), "a row can't occur less than never");
    table.write(&ChangeBatch::new(rows.slice(2, 1), vec![1]));
    store.apply(&table.seal());
    let repeated: Vec<_> = all_rows(&layout, &store).into_iter().map(|r| r.repeated().unwrap()).collect();
    let mut seen: Vec<_> = repeated.iter().flat_map(ids).collect();
    seen.sort();
    assert_eq!(seen, [None, None, Some(3), Some(3), Some(3)]);
}

#[test]
fn an_index_sorts_by_its_columns_then_the_key() {
    let (schema, rows) = people();
    let index = Index { relation: ObjectId(1), columns: vec![(2, true)], include: vec![] };
    let layout = Arc::new(TableLayout::index(ID, &schema, &RowKey::Columns(vec![1]), &index));
    assert_eq!(
        (&layout.key_columns, &layout.columns, &layout.distribution),
        (&vec![2, 1], &vec![1, 2], &vec![2])
    );
    let (mut table, mut store) = (StateTable::new(layout.clone()), MemoryStore::new());
    table.write(&ChangeBatch::insertions(rows.clone()));
    store.apply(&table.seal());
    let forty: [ArrayRef; 1] = [Arc::new(Int32Array::from(vec![40]))];
    let vnode = layout.vnode_of_prefix(&forty).unwrap();
    let found = layout.scan_prefix(&store, vnode, &forty).unwrap();
    assert_eq!(ids(&found.rows), [Some(1)]);
    assert_eq!(found.rows.schema(), layout.schema);
    let including = Index { include: vec![0], ..index.clone() };
    let layout = TableLayout::index(ID, &schema, &RowKey::Columns(vec![1]), &including);
    assert_eq!((&layout.columns, &layout.value_columns), (&vec![0, 1, 2], &vec![0]));
    let layout = TableLayout::index(ID, &schema, &RowKey::WholeRow, &index);
    assert_eq!((&layout.key_columns, layout.counted), (&vec![2, 0, 1], true));
}

#[test]
fn vnodes_follow_the_key() {
    let (schema, rows) = people();
    let layout = TableLayout::relation(ID, schema.clone(), &RowKey::Columns(vec![2, 1]));
    for row in 0..rows.num_rows() {
        let one = rows.slice(row, 1);
        let values = [one.column(2).clone(), one.column(1).clone()];
        assert_eq!(layout.vnode_of_prefix(&values), Some(layout.vnodes(&rows)[row]));
        assert_eq!(layout.vnode_of_prefix(&values[..1]), None);
        let vnode = layout.vnodes(&rows)[row];
        let full = super::super::store::full_key(ID, layout.keys(&rows).get(row));
        let range = layout.range(vnode, &values);
        assert!(range.lower == full && range.upper > full);
        assert!(layout.whole_range().lower < full && layout.whole_range().upper > full);
    }
    let one_row = TableLayout::relation(ID, schema, &RowKey::Columns(vec![]));
    assert_eq!(one_row.vnodes(&rows), [Vnode::SINGLE; 4]);
}

#[test]
fn scans_come_in_chunks_and_go_on_where_they_ended() {
    let schema = schema(&[("id", DataType::Int64)]);
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
    let rows = RecordBatch::try_new(schema.clone(), vec![ids]).unwrap();
    let layout = Arc::new(TableLayout::relation(ID, schema, &RowKey::Columns(vec![0])));
    let (mut table, mut store) = (StateTable::new(layout.clone()), MemoryStore::new());
    table.write(&ChangeBatch::insertions(rows));
    store.apply(&table.seal());
    let (mut range, mut seen, mut last) = (Some(layout.whole_range()), 0, None);
    while let Some(r) = range {
        let chunk = layout.scan(&store, &r, 64).unwrap();
        assert!(chunk.rows.rows.num_rows() == 64 || chunk.next.is_none());
        if let (Some(next), Some(last)) = (&chunk.next, &chunk.last_key) {
            assert!(r.after(last).lower <= next.lower);
        }
        seen += chunk.rows.rows.num_rows();
        (range, last) = (chunk.next, chunk.last_key);
    }
    assert_eq!((seen, last.is_some()), (1000, true));
    assert_eq!(layout.scan(&store, &layout.range(Vnode(1), &[]).after(&[0xff]), 5).unwrap().last_key, None);
}

#[test]
fn tables_of_any_shape_hold_what_was_written() {
    let mut rng = rng();
    let types = all_types();
    for _ in 0..20 {
        let arity = rng.random_range(1..6);
        let fields: Vec<_> =
            (0..arity).map(|_| ("c", types[rng.random_range(0..types.len())].clone())).collect();
        let schema = schema(&fields);
        let key = if rng.random() {
            RowKey::WholeRow
        } else {
            RowKey::Columns((0..arity).rev().filter(|_| rng.random()).collect())
        };
        let layout = Arc::new(TableLayout::relation(ID, schema.clone(), &key));
        let (mut table, mut store, mut expected) =
            (StateTable::new(layout.clone()), MemoryStore::new(), BTreeMap::new());
        let columns = fields.iter().map(|(_, t)| column(&mut rng, t, 30, true)).collect();
        let rows = RecordBatch::try_new(schema, columns).unwrap();
        let keys = layout.keys(&rows);
        for row in 0..rows.num_rows() {
            let entry: &mut (RecordBatch, i64) =
                expected.entry(keys.get(row).to_vec()).or_insert((rows.slice(row, 1), 0));
            *entry = (rows.slice(row, 1), if layout.counted { entry.1 + 1 } else { 1 });
        }
        table.write(&ChangeBatch::insertions(rows));
        store.apply(&table.seal());
        let seen: Vec<Rows> = all_rows(&layout, &store);
        let seen = seen.iter().flat_map(|r| {
            (0..r.rows.num_rows()).map(|i| (r.rows.slice(i, 1), r.counts.as_ref().map_or(1, |c| c[i])))
        });
        assert!(seen.eq(expected.into_values()), "{key:?} {fields:?}");
    }
}

#[test]
fn damage_names_the_table() {
    let (schema, rows) = people();
    let layout = TableLayout::relation(ID, schema, &RowKey::Columns(vec![1]));
    let key = super::super::store::full_key(ID, layout.keys(&rows).get(0));
    let error = layout.decode_rows([(key.as_slice(), [9].as_slice())].into_iter()).unwrap_err();
    assert!(matches!(error, StateError::Corrupt { table: ID, .. }), "{error}");
}
