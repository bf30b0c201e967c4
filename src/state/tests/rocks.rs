//! The RocksDB store conforms, and does what only it does.

use super::super::conformance;
use super::*;
use crate::state::store::full_key;

fn memory() -> RocksMemory {
    RocksMemory::new(8 << 20, 8 << 20)
}

#[test]
fn conforms() {
    conformance::check(|live, checkpoint| match checkpoint {
        Some(checkpoint) => Box::new(RocksStore::restore(checkpoint, live, &memory()).unwrap()),
        None => Box::new(RocksStore::create(live, &memory()).unwrap()),
    });
}

#[test]
fn counts_of_zero_are_compacted_away() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = RocksStore::create(dir.path(), &memory()).unwrap();
    for diff in [2i64, -2] {
        let mut run = WriteRun::new(TableId(1));
        for i in 0..1000u16 {
            run.write(WriteOp::AddCount, &i.to_be_bytes(), &diff.to_le_bytes());
        }
        store.apply(&run).unwrap();
        store.compact();
    }
    // The first compaction merges counts to zero, the next one drops them.
    let mut run = WriteRun::new(TableId(1));
    run.write(WriteOp::AddCount, &[0, 0], &1i64.to_le_bytes());
    run.write(WriteOp::AddCount, &[255, 255], &1i64.to_le_bytes());
    store.apply(&run).unwrap();
    store.compact();
    assert!(store.property("rocksdb.estimate-num-keys").unwrap() <= 3);
}

#[test]
fn a_count_that_is_no_count_fails_the_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = RocksStore::create(dir.path(), &memory()).unwrap();
    let mut run = WriteRun::new(TableId(1));
    run.write(WriteOp::AddCount, &[0, 0], &[1, 2, 3]);
    run.write(WriteOp::AddCount, &[0, 0], &1i64.to_le_bytes());
    store.apply(&run).unwrap();
    assert!(store.snapshot().get(&[0, 0, 0, 1, 0, 0]).is_err());
}

#[test]
fn checkpoints_share_what_did_not_change() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let mut store = RocksStore::create(&dir.path().join("live"), &memory()).unwrap();
    let mut inodes = Vec::new();
    for round in 0..2u8 {
        let mut run = WriteRun::new(TableId(1));
        run.write(WriteOp::Put, &[0, round], &[1]);
        store.apply(&run).unwrap();
        let checkpoint = dir.path().join(round.to_string());
        store.checkpoint(&checkpoint).unwrap();
        let ssts = std::fs::read_dir(checkpoint).unwrap().map(|e| e.unwrap());
        let ssts = ssts.filter(|e| e.path().extension().is_some_and(|e| e == "sst"));
        inodes.push(ssts.map(|e| e.metadata().unwrap().ino()).collect::<Vec<_>>());
    }
    assert_eq!(inodes[0].len(), 1);
    assert_eq!(inodes[1].len(), 2);
    assert!(inodes[1].contains(&inodes[0][0]));
}

#[test]
fn conforms_when_everything_is_ingested() {
    conformance::check(|live, checkpoint| {
        let mut store = match checkpoint {
            Some(checkpoint) => RocksStore::restore(checkpoint, live, &memory()).unwrap(),
            None => RocksStore::create(live, &memory()).unwrap(),
        };
        store.ingest_entries = 1;
        Box::new(store)
    });
}

#[test]
fn a_large_epoch_is_an_sst_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = RocksStore::create(dir.path(), &memory()).unwrap();
    let runs: Vec<_> = (0..2u8)
        .map(|table| {
            let mut run = WriteRun::new(TableId(u32::from(table)));
            (0..INGEST_ENTRIES as u32).for_each(|i| run.write(WriteOp::Put, &i.to_le_bytes(), &[1, table]));
            run
        })
        .collect();
    store.apply_all(&runs).unwrap();
    assert_eq!(store.property("rocksdb.num-entries-active-mem-table"), Some(0));
    assert_eq!(store.snapshot().get(&[0, 0, 0, 1, 5, 0, 0, 0]).unwrap(), Some(vec![1, 1]));
    assert!(!store.incoming.exists());
}

#[test]
fn what_an_epoch_removes_at_its_end_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = RocksStore::create(dir.path(), &memory()).unwrap();
    store.ingest_entries = 1;
    let table = TableId(1);
    let mut writes = WriteRun::new(table);
    for vnode in [3u8, 4] {
        for i in 0..100u8 {
            writes.write(WriteOp::Put, &[vnode, i], &[i]);
        }
    }
    let mut removed = WriteRun::new(table);
    removed.delete_range(&[3, 10], &[3, 100]);
    // A range over several vnodes is no reason to leave out anything, and removes all the same.
    removed.delete_range(&[4, 50], &[5]);
    store.apply_all(&[writes, removed]).unwrap();
    let mut left = Vec::new();
    let all = full_key(TableId(1), &[])..full_key(TableId(2), &[]);
    store
        .snapshot()
        .scan(&all.start, &all.end, &mut |key, _| {
            left.push((key[4], key[5]));
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    let expected: Vec<(u8, u8)> = (0..10).map(|i| (3, i)).chain((0..50).map(|i| (4, i))).collect();
    assert_eq!(left, expected);
    let entries = store.db.live_files().unwrap().iter().map(|file| file.num_entries).sum::<u64>();
    assert_eq!(entries, 110, "what is removed was written");
}

#[test]
fn it_tells_what_it_wrote_and_what_it_merged() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = RocksStore::create(&dir.path().join("live"), &memory()).unwrap();
    assert_eq!(store.written(), WrittenBytes::default());
    let write = |store: &mut RocksStore, round: u8| {
        let mut run = WriteRun::new(TableId(1));
        (0..1000u16).for_each(|i| run.write(WriteOp::Put, &i.to_be_bytes(), &[round; 100]));
        store.apply(&run).unwrap();
    };
    write(&mut store, 1);
    store.checkpoint(&dir.path().join("1")).unwrap();
    let flushed = store.written();
    assert!(flushed.applied > 1000 && flushed.merged == 0, "{flushed:?}");
    store.ingest_entries = 10;
    write(&mut store, 2);
    let ingested = store.written();
    assert!(ingested.applied > flushed.applied + 100_000 && ingested.merged == 0, "{ingested:?}");
    store.compact();
    let merged = store.written();
    assert!(merged.applied == ingested.applied && merged.merged > 1000, "{merged:?}");
}
