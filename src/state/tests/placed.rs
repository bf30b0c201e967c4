//! Tests of placed rows: they are written as a table writes them.

use super::super::random::{all_types, column, rng};
use super::*;
use crate::state::key::KeyOrder;
use crate::state::memory::MemoryStore;
use crate::state::store::{StateStore, WriteRun};
use crate::state::table::StateTable;
use crate::state::writes::RunPool;
use crate::stream::ChangeBatch;
use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use rand::Rng;
use rand::rngs::StdRng;
use std::ops::ControlFlow;
use weir_catalog::TableId;

/// A table of bigints `a` and `b` and `others`, by `b`, then `a`, or by the whole row.
fn layout(others: &[DataType], counted: bool) -> Arc<TableLayout> {
    let types = [&[DataType::Int64, DataType::Int64][..], others].concat();
    let fields: Vec<Field> =
        types.iter().enumerate().map(|(i, t)| Field::new(format!("c{i}"), t.clone(), true)).collect();
    let key: Vec<usize> = if counted { (0..types.len()).collect() } else { vec![1, 0] };
    let orders = vec![KeyOrder::ASCENDING; key.len()];
    let all = (0..types.len()).collect();
    let schema = Arc::new(Schema::new(fields));
    Arc::new(TableLayout::new(TableId(9), &schema, all, (key, orders), vec![0], counted))
}

fn entries(runs: &[WriteRun]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut store = MemoryStore::new();
    StateStore::apply_all(&mut store, runs).unwrap();
    let mut entries = Vec::new();
    let read = StateStore::snapshot(&store);
    let visit = &mut |key: &[u8], value: &[u8]| {
        entries.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    };
    read.scan(&[0; 4], &[u8::MAX; 4], visit).unwrap();
    entries
}

fn parts(rng: &mut StdRng, layout: &TableLayout) -> Vec<Vec<ArrayRef>> {
    let part = |rng: &mut StdRng| {
        let rows = rng.random_range(1..60);
        let fields = layout.schema.fields().iter().enumerate();
        let column = |(at, field): (usize, &Arc<Field>)| -> ArrayRef {
            match at {
                0 | 1 => Arc::new(Int64Array::from_iter_values((0..rows).map(|_| rng.random_range(0..40)))),
                _ => column(rng, field.data_type(), rows, true),
            }
        };
        fields.map(column).collect()
    };
    (0..rng.random_range(1..5)).map(|_| part(rng)).collect()
}

#[test]
fn rows_are_written_as_a_table_writes_them() {
    let mut rng = rng();
    let types = all_types();
    for round in 0..60 {
        let others: Vec<DataType> =
            (0..rng.random_range(0..4)).map(|_| types[rng.random_range(0..types.len())].clone()).collect();
        let layout = layout(&others, round % 2 == 0);
        let parts = parts(&mut rng, &layout);
        let part_of = |rng: &mut StdRng| {
            let part = rng.random_range(0..parts.len());
            (part, rng.random_range(0..parts[part][0].len()))
        };
        let rows: Vec<(usize, usize)> = (0..rng.random_range(1..200)).map(|_| part_of(&mut rng)).collect();
        let diffs = rng.random_bool(0.7).then(|| {
            // In a keyed table what goes comes before what is put.
            let mut diffs: Vec<i64> = rows.iter().map(|_| if rng.random() { 1 } else { -1 }).collect();
            diffs.sort_unstable();
            diffs
        });
        let mut table = StateTable::new(Arc::clone(&layout));
        for (at, (part, row)) in rows.iter().enumerate() {
            let columns = parts[*part].iter().map(|c| c.slice(*row, 1)).collect();
            let batch = RecordBatch::try_new(layout.schema.clone(), columns).unwrap();
            table.write(&ChangeBatch::new(batch, vec![diffs.as_ref().map_or(1, |d| d[at])]));
        }
        let expected = entries(&[table.seal()]);
        let mut writes = Writes::default();
        let parts = parts.clone();
        writes.placed(&layout, || Placed { parts, rows, diffs });
        let runs = writes.encode(&RunPool::default()).unwrap();
        assert!(entries(&runs) == expected, "round {round}: {others:?}");
    }
}
