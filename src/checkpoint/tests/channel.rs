//! Channel state comes back whole, in order, and goes with the next epoch.

use super::*;
use crate::state::memory::MemoryStore;
use crate::state::store::StateStore;
use crate::state::writes::RunPool;
use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use std::sync::Arc;

fn batch(from: i64, diffs: Option<Vec<i64>>) -> ChangeBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(from), None, Some(from + 2)]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("é"), Some(""), None]));
    let rows = RecordBatch::try_from_iter_with_nullable([("n", numbers, true), ("t", texts, true)]);
    let rows = rows.expect("two columns");
    match diffs {
        None => ChangeBatch::insertions(rows),
        Some(diffs) => ChangeBatch::new(rows, diffs),
    }
}

fn apply(store: &mut MemoryStore, epoch: Epoch, channels: Vec<(JobId, ChannelState)>) {
    let mut writes = Writes::default();
    writes.push(forget(epoch));
    super::store(epoch, channels, &mut writes);
    let runs = writes.encode(&RunPool::default()).expect("it encodes");
    StateStore::apply_all(store, &runs).expect("memory does not fail");
}

#[test]
fn they_come_back_in_order_and_go_with_the_next_epoch() {
    let mut store = MemoryStore::new();
    let state = |input, batches| ChannelState { input, batches };
    let (a, b) = (ObjectId(20_000), ObjectId(20_001));
    let channels = vec![
        (a, state(3, vec![batch(1, None), batch(5, Some(vec![1, -1, 2]))])),
        (b, state(0, vec![batch(9, None)])),
    ];
    apply(&mut store, Epoch(7), channels);
    let snapshot = store.snapshot();
    let found = read(&*snapshot, Epoch(7)).expect("they are whole");
    let shape: Vec<_> = found.iter().map(|(job, state)| (*job, state.input, state.batches.len())).collect();
    assert_eq!(shape, [(a, 3, 1), (a, 3, 1), (b, 0, 1)]);
    for ((_, state), expected) in
        found.iter().zip([batch(1, None), batch(5, Some(vec![1, -1, 2])), batch(9, None)])
    {
        assert_eq!(state.batches[0].rows(), expected.rows());
        let diffs = |b: &ChangeBatch| (0..b.num_rows()).map(|row| b.diff(row)).collect::<Vec<_>>();
        assert_eq!(diffs(&state.batches[0]), diffs(&expected));
    }
    assert!(read(&*snapshot, Epoch(6)).expect("none").is_empty());
    // A second unaligned checkpoint replaces the first, an aligned epoch leaves none.
    apply(&mut store, Epoch(8), vec![(a, state(1, vec![batch(2, None)]))]);
    let snapshot = store.snapshot();
    assert!(read(&*snapshot, Epoch(7)).expect("gone").is_empty());
    assert_eq!(read(&*snapshot, Epoch(8)).expect("whole").len(), 1);
    apply(&mut store, Epoch(9), Vec::new());
    assert!(store.is_empty());
}

#[test]
fn damaged_rows_are_an_error() {
    for value in [&[1u8, 2][..], &[0; 9], &[0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1]] {
        let mut store = MemoryStore::new();
        let mut run = WriteRun::new(table());
        run.write(WriteOp::Put, &key(Epoch(3)), value);
        MemoryStore::apply(&mut store, &run);
        let error = read(&*store.snapshot(), Epoch(3)).expect_err("damaged").to_string();
        assert!(error.contains("rows of a channel"), "{error}");
    }
}
