//! Materialize: what goes downstream, and what the state table holds, at every barrier.

use super::*;
use crate::operators::script::{Driver, Step, change_batch, parse, row_text, schema};
use crate::state::memory::MemoryStore;
use crate::state::writes::RunPool;
use crate::stream::BarrierKind;
use arrow::datatypes::DataType;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use weir_catalog::{ObjectId, relation::RowKey};

fn people() -> SchemaRef {
    schema(&[("id", DataType::Int64), ("name", DataType::Utf8)])
}

fn layout(key: &RowKey) -> Arc<TableLayout> {
    Arc::new(TableLayout::relation(ObjectId(20000).table(), people(), key))
}

/// The rows of the table, sorted, each with its count.
fn stored(layout: &TableLayout, driver: &Driver<'_>) -> BTreeMap<String, i64> {
    let range = layout.whole_range();
    let rows = layout.scan(&driver.state, &range, usize::MAX).unwrap().rows.into_changes();
    (0..rows.num_rows()).map(|row| (row_text(rows.rows().columns(), row), rows.diff(row))).collect()
}

struct Outcome {
    lines: Vec<String>,
    table: Vec<String>,
    conflicts: u64,
}

fn run(key: RowKey, append_only: bool, script: &str) -> Outcome {
    let layout = layout(&key);
    let conflicts = ConflictCounter::default();
    let make = || {
        Box::new(Materialize::new(layout.clone(), people(), append_only, conflicts.clone()))
            as Box<dyn Operator>
    };
    let mut driver = Driver::new(&make);
    let mut lines = Vec::new();
    for step in parse(&[people()], script) {
        match step {
            Step::Change(port, batch) => driver.change(port, batch),
            Step::Watermark(port, watermark) => driver.watermark(port, watermark),
            Step::Barrier(kind) => {
                lines.extend(driver.barrier(kind).lines());
                lines.push("--".to_owned());
            }
        }
    }
    let table = stored(&layout, &driver).iter().map(|(row, count)| format!("{count} {row}")).collect();
    Outcome { lines, table, conflicts: conflicts.load(Ordering::Relaxed) }
}

#[test]
fn a_key_ends_an_epoch_with_its_net_row() {
    let script = "
        +1 1 ann
        +1 2 bob
        tick
        -1 1 ann
        +1 1 eve
        batch
        -1 1 eve
        +1 1 zoe
        -1 2 bob
        +1 2 bob
        +1 3 NULL
        -1 3 NULL
        tick
        -1 2 bob
        barrier";
    let outcome = run(RowKey::Columns(vec![0]), false, script);
    assert_eq!(outcome.lines, ["+1 1 ann", "+1 2 bob", "--", "-1 1 ann", "+1 1 zoe", "--", "-1 2 bob", "--"]);
    assert_eq!(outcome.table, ["1 1 zoe"]);
    assert_eq!(outcome.conflicts, 0);
}

#[test]
fn a_watermark_goes_on_with_the_barrier_once() {
    let script = "
        +1 1 ann
        watermark 0 5
        watermark 0 7
        tick
        watermark 0 9
        tick
        barrier";
    for key in [RowKey::Columns(vec![0]), RowKey::WholeRow] {
        let outcome = run(key, true, script);
        assert_eq!(outcome.lines, ["+1 1 ann", "watermark 0 7", "--", "watermark 0 9", "--", "--"]);
    }
}

#[test]
fn the_greatest_of_rows_with_one_key_stays() {
    let script = "
        +1 1 bob
        +1 1 zoe
        +1 1 ann
        +2 2 eve
        tick";
    let outcome = run(RowKey::Columns(vec![0]), true, script);
    assert_eq!(outcome.lines, ["+1 1 zoe", "+1 2 eve", "--"]);
    assert_eq!(outcome.table, ["1 1 zoe", "1 2 eve"]);
    assert_eq!(outcome.conflicts, 3);
}

#[test]
fn rows_without_a_key_are_counted() {
    let script = "
        +2 1 ann
        +1 NULL NULL
        tick
        -1 1 ann
        +3 1 bob
        -1 NULL NULL
        barrier";
    for append_only in [false, true] {
        let script = if append_only { script.replace("-1", "+1") } else { script.to_owned() };
        let outcome = run(RowKey::WholeRow, append_only, &script);
        let expected: &[&str] =
            if append_only { &["3 1 ann", "3 1 bob", "2 NULL NULL"] } else { &["1 1 ann", "3 1 bob"] };
        assert_eq!(outcome.table, expected);
    }
}

#[test]
fn an_empty_key_is_one_row() {
    let outcome = run(RowKey::Columns(vec![]), false, "+1 1 a\ntick\n-1 1 a\n+1 2 b\nbarrier");
    assert_eq!(outcome.table, ["1 2 b"]);
    assert_eq!(outcome.lines, ["+1 1 a", "--", "-1 1 a", "+1 2 b", "--"]);
}

#[test]
fn the_table_is_the_sum_of_all_changes() {
    for (seed, keyed) in (0..10).map(|seed| (seed, seed % 2 == 0)) {
        let mut random = StdRng::seed_from_u64(seed);
        let key = if keyed { RowKey::Columns(vec![0]) } else { RowKey::WholeRow };
        let layout = layout(&key);
        let make = || {
            let conflicts = ConflictCounter::default();
            Box::new(Materialize::new(layout.clone(), people(), false, conflicts)) as Box<dyn Operator>
        };
        let mut driver = Driver::new(&make);
        let mut model: BTreeMap<(String, String), i64> = BTreeMap::new();
        let mut emitted: BTreeMap<String, i64> = BTreeMap::new();
        for _ in 0..20 {
            let mut changes = Vec::new();
            for _ in 0..random.random_range(0..30) {
                let id = random.random_range(0..6).to_string();
                let old = model.keys().find(|(i, _)| *i == id).cloned();
                if let Some(old) = old.filter(|_| keyed || random.random_bool(0.6)) {
                    changes.push((-1, vec![Some(old.0.clone()), Some(old.1.clone())]));
                    let count = model.get_mut(&old).unwrap();
                    *count -= 1;
                    model.retain(|_, count| *count != 0);
                }
                let name = format!("n{}", random.random_range(0..3));
                changes.push((1, vec![Some(id.clone()), Some(name.clone())]));
                *model.entry((id, name)).or_insert(0) += 1;
            }
            for piece in changes.chunks(7) {
                driver.change(0, change_batch(&people(), piece));
            }
            for (row, diff) in driver.barrier(BarrierKind::Tick).consolidated() {
                *emitted.entry(row).or_insert(0) += diff;
            }
            emitted.retain(|_, count| *count != 0);
            let expected: BTreeMap<String, i64> =
                model.iter().map(|((id, name), count)| (format!("{id} {name}"), *count)).collect();
            assert_eq!(stored(&layout, &driver), expected, "seed {seed}");
            assert_eq!(emitted, expected, "seed {seed}");
        }
    }
}

#[test]
fn a_big_epoch_goes_downstream_in_pieces() {
    let conflicts = ConflictCounter::default();
    let mut operator = Materialize::new(layout(&RowKey::Columns(vec![0])), people(), true, conflicts);
    let rows: Vec<_> = (0..20_000).map(|i| (1, vec![Some(i.to_string()), None])).collect();
    let mut out = Output::default();
    operator.on_change(0, change_batch(&people(), &rows), &mut out).unwrap();
    assert!(out.is_empty());
    let barrier = Barrier {
        epoch: crate::stream::Epoch(1),
        previous: crate::stream::Epoch::ZERO,
        kind: BarrierKind::Tick,
        dml_position: 0,
        now_us: 0,
        mutation: None,
        unaligned: false,
        after_unaligned: false,
    };
    let mut pieces = 1;
    let mut progress = operator.on_barrier(&barrier, &mut out).unwrap();
    while progress == Progress::More {
        assert!(!out.take().is_empty());
        pieces += 1;
        progress = operator.resume(&mut out).unwrap();
    }
    assert_eq!(pieces, 3);
    let mut sealed = Sealed::default();
    operator.seal(&barrier, &mut sealed).unwrap();
    let mut store = MemoryStore::new();
    store.apply(&sealed.runs.encode(&RunPool::default()).unwrap()[0]);
    assert!(!store.is_empty());
}
