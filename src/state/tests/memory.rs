//! The memory store conforms.

use super::super::conformance;
use super::*;

#[test]
fn conforms() {
    conformance::check(|_, checkpoint| match checkpoint {
        Some(checkpoint) => Box::new(MemoryStore::restore(checkpoint).unwrap()),
        None => Box::new(MemoryStore::new()),
    });
}

#[test]
fn a_torn_checkpoint_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = WriteRun::new(TableId(1));
    run.write(WriteOp::Put, &[0, 1], &[1, 2, 3]);
    let mut store = MemoryStore::new();
    store.apply(&run);
    let checkpoint = dir.path().join("c");
    store.checkpoint(&checkpoint).unwrap();
    let file = checkpoint.join(FILE);
    let bytes = std::fs::read(&file).unwrap();
    for cut in 0..bytes.len() {
        std::fs::write(&file, &bytes[..cut]).unwrap();
        assert!(MemoryStore::restore(&checkpoint).is_err(), "{cut}");
    }
}

#[test]
fn what_it_holds_is_counted_and_bounded() {
    let mut store = MemoryStore::within(10_000);
    let write = |op, i: u8, length: usize| {
        let mut run = WriteRun::new(TableId(1));
        run.write(op, &[0, i], &vec![7; length]);
        run
    };
    for i in 0..50 {
        StateStore::apply(&mut store, &write(WriteOp::Put, i, 100)).unwrap();
        StateStore::apply(&mut store, &write(WriteOp::Put, i, 50)).unwrap();
    }
    let error = StateStore::apply(&mut store, &write(WriteOp::Put, 50, 5000)).unwrap_err().to_string();
    assert!(error.contains("memory.limit") && error.contains("rocksdb"), "{error}");
    for i in (0..51).rev() {
        StateStore::apply(&mut store, &write(WriteOp::Delete, i, 0)).unwrap();
    }
    assert_eq!(store, MemoryStore::within(10_000), "nothing is left, and nothing counted");
}

#[test]
fn a_snapshot_costs_nothing_and_stays() {
    let mut store = MemoryStore::new();
    let mut kept = Vec::new();
    for i in 0..2000u16 {
        let mut run = WriteRun::new(TableId(1));
        run.write(WriteOp::Put, &i.to_be_bytes(), &[1]);
        store.apply(&run);
        kept.push(store.clone());
    }
    kept.iter().enumerate().for_each(|(i, snapshot)| assert_eq!(snapshot.len(), i + 1));
}
