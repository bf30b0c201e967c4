//! Tests of checkpoint storage over a real store: complete, retain, verify, fall back, fence.

use super::super::manifest::tests::manifest;
use super::*;
use crate::failpoint::testing;
use crate::state::rocks::{RocksMemory, RocksStore};
use crate::state::store::{StateStore, WriteOp, WriteRun, full_key};
use weir_catalog::TableId;

const TABLE: TableId = TableId(1);

struct Fixture {
    dir: tempfile::TempDir,
    memory: RocksMemory,
    store: RocksStore,
}

impl Fixture {
    fn new() -> Self {
        Self::in_directory(tempfile::tempdir().unwrap())
    }

    fn in_directory(dir: tempfile::TempDir) -> Self {
        let memory = RocksMemory::new(1 << 20, 8 << 20);
        let store = RocksStore::create(&dir.path().join("live"), &memory).unwrap();
        Self { dir, memory, store }
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("checkpoints")
    }

    fn open(&self, generation: u64) -> io::Result<CheckpointStorage> {
        CheckpointStorage::open(&self.root(), Uuid::nil(), generation)
    }

    /// Writes key `epoch`, then makes a checkpoint.
    fn checkpoint(&mut self, storage: &mut CheckpointStorage, epoch: u8) -> io::Result<Completed> {
        let mut run = WriteRun::new(TABLE);
        run.write(WriteOp::Put, &[0, epoch], &[1; 100]);
        self.store.apply(&run).unwrap();
        self.store.checkpoint(&storage.begin(Epoch(u64::from(epoch)))?).unwrap();
        let measured = storage.filled(Epoch(u64::from(epoch))).measure()?;
        storage.complete(manifest(u64::from(epoch)), measured)
    }

    /// The keys that a checkpoint holds.
    fn keys(&self, storage: &CheckpointStorage, manifest: &Manifest) -> Vec<u8> {
        let live = self.dir.path().join("restored");
        let store = RocksStore::restore(&storage.directory(manifest.epoch), &live, &self.memory).unwrap();
        let state = store.snapshot();
        (0..=255).filter(|key| state.get(&full_key(TABLE, &[0, *key])).unwrap().is_some()).collect()
    }
}

fn epochs(storage: &CheckpointStorage) -> Vec<u64> {
    storage.list().map(|m| m.epoch.0).collect()
}

fn sst(storage: &CheckpointStorage, manifest: &Manifest) -> PathBuf {
    let file = manifest.files.iter().rfind(|f| f.name.ends_with(".sst")).unwrap();
    storage.directory(manifest.epoch).join(&file.name)
}

#[test]
fn checkpoints_are_completed_retained_and_found_again() {
    let mut fixture = Fixture::new();
    let mut storage = fixture.open(1).unwrap();
    assert_eq!(storage.newest_intact().unwrap(), None);
    for epoch in 1..=5 {
        let completed = fixture.checkpoint(&mut storage, epoch).unwrap();
        assert_eq!(completed.manifest.generation, 1);
        let all_new = completed.new_bytes == completed.total_bytes;
        assert_eq!(all_new, epoch == 1, "later ones share files: {completed:?}");
        storage.verify(&completed.manifest).unwrap();
    }
    assert_eq!(storage.retain(3).unwrap(), [Epoch(1), Epoch(2)]);
    assert_eq!((epochs(&storage), storage.oldest_dml_position()), (vec![5, 4, 3], Some(30)));
    drop(storage);
    let mut storage = fixture.open(2).unwrap();
    assert_eq!(epochs(&storage), [5, 4, 3]);
    let newest = storage.newest_intact().unwrap().unwrap();
    assert_eq!(fixture.keys(&storage, &newest), [1, 2, 3, 4, 5]);
    let third = storage.list().last().unwrap().clone();
    assert_eq!(fixture.keys(&storage, &third), [1, 2, 3]);
}

#[test]
fn damage_leads_to_the_checkpoint_before() {
    let mut fixture = Fixture::new();
    let mut storage = fixture.open(1).unwrap();
    let completed: Vec<_> = (1..=4).map(|e| fixture.checkpoint(&mut storage, e).unwrap().manifest).collect();
    // The fourth's newest file is cut, the third's has a flipped bit, the second is whole.
    let path = sst(&storage, &completed[3]);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let path = sst(&storage, &completed[2]);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[10] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    drop(storage);
    let mut storage = fixture.open(2).unwrap();
    assert_eq!(storage.newest_intact().unwrap().unwrap().epoch, Epoch(2));
    assert_eq!(epochs(&storage), [2, 1], "damaged ones don't count among the retained");
    assert_eq!(storage.verify_newest().unwrap().unwrap().epoch, Epoch(2));
    for epoch in [1, 2] {
        std::fs::write(storage.directory(Epoch(epoch)).join("CURRENT"), b"").unwrap();
    }
    assert_eq!(storage.newest_intact().unwrap().unwrap().epoch, Epoch(2), "verified a moment ago, this once");
    assert!(storage.newest_intact().unwrap_err().to_string().contains("no intact checkpoint is left"));
    drop(storage);
    assert!(fixture.open(3).unwrap().newest_intact().is_err(), "never starts empty for want of a checkpoint");
}

#[test]
fn a_damaged_manifest_is_set_aside() {
    let mut fixture = Fixture::new();
    let mut storage = fixture.open(1).unwrap();
    for epoch in 1..=2 {
        fixture.checkpoint(&mut storage, epoch).unwrap();
    }
    std::fs::write(storage.directory(Epoch(2)).join(FILE_NAME), b"{}").unwrap();
    drop(storage);
    let mut storage = fixture.open(2).unwrap();
    assert_eq!(storage.newest_intact().unwrap().unwrap().epoch, Epoch(1));
    let error = CheckpointStorage::open(&fixture.root(), Uuid::max(), 3).unwrap_err().to_string();
    assert!(error.contains("holds checkpoints of database 00000000"), "{error}");
    assert_eq!(epochs(&fixture.open(3).unwrap()), [1], "what is another database's stays as it is");
}

#[test]
fn what_fails_on_the_way_is_no_checkpoint() {
    let mut fixture = Fixture::new();
    let mut storage = fixture.open(1).unwrap();
    fixture.checkpoint(&mut storage, 1).unwrap();
    for (epoch, point) in [(2, "checkpoint.before_manifest=error"), (3, "manifest.before_rename=error")] {
        testing::set(point);
        assert!(fixture.checkpoint(&mut storage, epoch).is_err());
        testing::set("");
        assert!(storage.directory(Epoch(u64::from(epoch))).exists());
    }
    storage.abort(Epoch(3)).unwrap();
    assert!(!storage.directory(Epoch(3)).exists());
    fixture.checkpoint(&mut storage, 4).unwrap();
    storage.retain(10).unwrap();
    assert!(!storage.directory(Epoch(2)).exists(), "unfinished, and older than a checkpoint");
    std::fs::create_dir(storage.directory(Epoch(5))).unwrap();
    storage.retain(10).unwrap();
    assert!(storage.directory(Epoch(5)).exists(), "may be pending");
    drop(storage);
    let storage = fixture.open(2).unwrap();
    assert_eq!(epochs(&storage), [4, 1]);
    assert!(!storage.directory(Epoch(5)).exists());
}

#[test]
fn a_lower_generation_writes_nothing() {
    let mut fixture = Fixture::new();
    let mut zombie = fixture.open(1).unwrap();
    fixture.checkpoint(&mut zombie, 1).unwrap();
    let mut storage = fixture.open(2).unwrap();
    let error = fixture.checkpoint(&mut zombie, 2).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
    assert!(fixture.open(1).is_err() && fixture.open(2).is_err());
    storage.abort(Epoch(2)).unwrap();
    fixture.checkpoint(&mut storage, 3).unwrap();
    assert_eq!(epochs(&storage), [3, 1]);
}

#[test]
fn killed_anywhere_the_newest_completed_checkpoint_is_found() {
    for point in [
        "checkpoint.before_manifest:5",
        "manifest.before_rename:5",
        "manifest.after_rename:5",
        "gc.before_manifest:2",
        "gc.after_manifest:2",
        "gc.between_files:2",
        "gc.after_directory:2",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let child = "checkpoint::storage::tests::child_makes_checkpoints_until_it_is_killed";
        let done = testing::run_killed(child, point, dir.path());
        let mut fixture = Fixture::in_directory(dir);
        let mut storage = fixture.open(2).unwrap();
        let newest = storage.newest_intact().unwrap().unwrap();
        let last = done.last().copied().unwrap();
        assert!((last..=last + 1).contains(&newest.epoch.0), "{point}: {newest:?} after {last}");
        let expected: Vec<u8> = (1..=newest.epoch.0 as u8).collect();
        assert_eq!(fixture.keys(&storage, &newest), expected, "{point}");
        // And on it goes: nothing that was left is in the way.
        fixture.checkpoint(&mut storage, newest.epoch.0 as u8 + 1).unwrap();
        storage.retain(2).unwrap();
        assert_eq!(gc::epochs(&fixture.root()).unwrap().len(), 2, "{point}");
    }
}

#[test]
#[ignore = "a child of the test above"]
fn child_makes_checkpoints_until_it_is_killed() {
    let Some(dir) = testing::child_dir() else { return };
    // Within the parent's directory, which goes with it.
    let mut fixture = Fixture::in_directory(tempfile::tempdir_in(&dir).unwrap());
    let mut storage = CheckpointStorage::open(&dir.join("checkpoints"), Uuid::nil(), 1).unwrap();
    for epoch in 1..20 {
        fixture.checkpoint(&mut storage, epoch).unwrap();
        println!("done {epoch}");
        storage.retain(2).unwrap();
    }
}
