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
    for cut in 1..bytes.len() {
        std::fs::write(&file, &bytes[..cut]).unwrap();
        assert!(MemoryStore::restore(&checkpoint).is_err(), "{cut}");
    }
}
