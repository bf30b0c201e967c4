//! Tests of checkpoint storage over a real store: complete, retain, verify, fall back, fence; and the
//! same with a remote storage, where the disk may lose what it likes.

use super::super::hold::Hold;
use super::super::manifest::FILE_NAME;
use super::super::manifest::tests::manifest;
use super::super::objects::Objects;
use super::super::remote::tests::settings;
use super::super::staged;
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

    fn open(&self, generation: u64) -> io::Result<Mutex<CheckpointStorage>> {
        CheckpointStorage::open(&self.root(), Uuid::nil(), generation).map(Mutex::new)
    }

    /// Writes key `epoch`, then makes a checkpoint.
    fn checkpoint(&mut self, storage: &Mutex<CheckpointStorage>, epoch: u8) -> io::Result<Completed> {
        let mut run = WriteRun::new(TABLE);
        run.write(WriteOp::Put, &[0, epoch], &[1; 100]);
        self.store.apply(&run).unwrap();
        let dir = storage.lock().begin(Epoch(u64::from(epoch)))?;
        self.store.checkpoint(&dir).unwrap();
        store(storage, manifest(u64::from(epoch)), || Ok(Belongings::default()), &Cancel::default())
    }

    /// The keys that a checkpoint holds.
    fn keys(&self, storage: &Mutex<CheckpointStorage>, manifest: &Manifest) -> Vec<u8> {
        let live = self.dir.path().join("restored");
        let dir = storage.lock().directory(manifest.epoch);
        let store = RocksStore::restore(&dir, &live, &self.memory).unwrap();
        let state = store.snapshot();
        (0..=255).filter(|key| state.get(&full_key(TABLE, &[0, *key])).unwrap().is_some()).collect()
    }
}

fn epochs(storage: &Mutex<CheckpointStorage>) -> Vec<u64> {
    storage.lock().list().map(|m| m.epoch.0).collect()
}

fn newest(storage: &Mutex<CheckpointStorage>) -> io::Result<Option<Manifest>> {
    storage.lock().newest_intact()
}

fn sst(storage: &Mutex<CheckpointStorage>, manifest: &Manifest) -> PathBuf {
    let file = manifest.files.iter().rfind(|f| f.name.ends_with(".sst")).unwrap();
    storage.lock().directory(manifest.epoch).join(&file.name)
}

#[test]
fn checkpoints_are_completed_retained_and_found_again() {
    let mut fixture = Fixture::new();
    let storage = fixture.open(1).unwrap();
    assert_eq!(newest(&storage).unwrap(), None);
    for epoch in 1..=5 {
        let completed = fixture.checkpoint(&storage, epoch).unwrap();
        assert_eq!(completed.manifest.generation, 1);
        let all_new = completed.new_bytes == completed.total_bytes;
        assert_eq!(all_new, epoch == 1, "later ones share files: {completed:?}");
        storage.lock().local.verify(&completed.manifest).unwrap();
    }
    assert_eq!(retain(&storage, 3).unwrap(), [Epoch(1), Epoch(2)]);
    assert_eq!((epochs(&storage), storage.lock().oldest_dml_position()), (vec![5, 4, 3], Some(30)));
    drop(storage);
    let storage = fixture.open(2).unwrap();
    assert_eq!(epochs(&storage), [5, 4, 3]);
    let newest = newest(&storage).unwrap().unwrap();
    assert_eq!(fixture.keys(&storage, &newest), [1, 2, 3, 4, 5]);
    let third = storage.lock().list().last().unwrap().clone();
    assert_eq!(fixture.keys(&storage, &third), [1, 2, 3]);
}

#[test]
fn damage_leads_to_the_checkpoint_before() {
    let mut fixture = Fixture::new();
    let storage = fixture.open(1).unwrap();
    let completed: Vec<_> = (1..=4).map(|e| fixture.checkpoint(&storage, e).unwrap().manifest).collect();
    // The fourth's newest file is cut, the third's has a flipped bit, the second is whole.
    let path = sst(&storage, &completed[3]);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let path = sst(&storage, &completed[2]);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[10] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    drop(storage);
    let storage = fixture.open(2).unwrap();
    assert_eq!(newest(&storage).unwrap().unwrap().epoch, Epoch(2));
    assert_eq!(epochs(&storage), [2, 1], "damaged ones don't count among the retained");
    assert_eq!(storage.lock().verify_newest().unwrap().unwrap().epoch, Epoch(2));
    for epoch in [1, 2] {
        std::fs::write(storage.lock().directory(Epoch(epoch)).join("CURRENT"), b"").unwrap();
    }
    assert_eq!(newest(&storage).unwrap().unwrap().epoch, Epoch(2), "verified a moment ago, this once");
    assert!(newest(&storage).unwrap_err().to_string().contains("no intact checkpoint is left"));
    drop(storage);
    assert!(newest(&fixture.open(3).unwrap()).is_err(), "never starts empty for want of a checkpoint");
}

#[test]
fn a_damaged_manifest_is_set_aside() {
    let mut fixture = Fixture::new();
    let storage = fixture.open(1).unwrap();
    for epoch in 1..=2 {
        fixture.checkpoint(&storage, epoch).unwrap();
    }
    std::fs::write(storage.lock().directory(Epoch(2)).join(FILE_NAME), b"{}").unwrap();
    drop(storage);
    let storage = fixture.open(2).unwrap();
    assert_eq!(newest(&storage).unwrap().unwrap().epoch, Epoch(1));
    let error = CheckpointStorage::open(&fixture.root(), Uuid::max(), 3).unwrap_err().to_string();
    assert!(error.contains("holds checkpoints of database 00000000"), "{error}");
    assert_eq!(epochs(&fixture.open(3).unwrap()), [1], "what is another database's stays as it is");
}

#[test]
fn what_fails_on_the_way_is_no_checkpoint() {
    let mut fixture = Fixture::new();
    let storage = fixture.open(1).unwrap();
    fixture.checkpoint(&storage, 1).unwrap();
    for (epoch, point) in [(2, "checkpoint.before_manifest=error"), (3, "manifest.before_rename=error")] {
        testing::set(point);
        assert!(fixture.checkpoint(&storage, epoch).is_err());
        testing::set("");
        assert!(!storage.lock().directory(Epoch(u64::from(epoch))).exists(), "nothing is left of it");
    }
    std::fs::create_dir(storage.lock().directory(Epoch(2))).unwrap();
    fixture.checkpoint(&storage, 4).unwrap();
    retain(&storage, 10).unwrap();
    assert!(!storage.lock().directory(Epoch(2)).exists(), "unfinished, and older than a checkpoint");
    std::fs::create_dir(storage.lock().directory(Epoch(5))).unwrap();
    retain(&storage, 10).unwrap();
    assert!(storage.lock().directory(Epoch(5)).exists(), "may be pending");
    drop(storage);
    let storage = fixture.open(2).unwrap();
    assert_eq!(epochs(&storage), [4, 1]);
    assert!(!storage.lock().directory(Epoch(5)).exists());
}

#[test]
fn a_lower_generation_writes_nothing() {
    let mut fixture = Fixture::new();
    let zombie = fixture.open(1).unwrap();
    fixture.checkpoint(&zombie, 1).unwrap();
    let storage = fixture.open(2).unwrap();
    let error = fixture.checkpoint(&zombie, 2).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
    assert!(fixture.open(1).is_err() && fixture.open(2).is_err());
    fixture.checkpoint(&storage, 3).unwrap();
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
        let storage = fixture.open(2).unwrap();
        let newest = newest(&storage).unwrap().unwrap();
        let last = done.last().copied().unwrap();
        assert!((last..=last + 1).contains(&newest.epoch.0), "{point}: {newest:?} after {last}");
        let expected: Vec<u8> = (1..=newest.epoch.0 as u8).collect();
        assert_eq!(fixture.keys(&storage, &newest), expected, "{point}");
        // And on it goes: nothing that was left is in the way.
        fixture.checkpoint(&storage, newest.epoch.0 as u8 + 1).unwrap();
        retain(&storage, 2).unwrap();
        assert_eq!(gc::epochs(&fixture.root()).unwrap().len(), 2, "{point}");
    }
}

#[test]
#[ignore = "a child of the test above"]
fn child_makes_checkpoints_until_it_is_killed() {
    let Some(dir) = testing::child_dir() else { return };
    // Within the parent's directory, which goes with it.
    let mut fixture = Fixture::in_directory(tempfile::tempdir_in(&dir).unwrap());
    let storage = CheckpointStorage::open(&dir.join("checkpoints"), Uuid::nil(), 1).map(Mutex::new).unwrap();
    for epoch in 1..20 {
        fixture.checkpoint(&storage, epoch).unwrap();
        println!("done {epoch}");
        retain(&storage, 2).unwrap();
    }
}

/// With a remote storage that is a directory beside.
fn remote(dir: &Path, storage: CheckpointStorage) -> Mutex<CheckpointStorage> {
    let values = format!("file://{}/remote", dir.display());
    let values = [("checkpoint.storage", values.as_str()), ("checkpoint.transfers", "1")];
    let mut storage = storage;
    storage.set(&crate::config::Config::new(values).unwrap().database.storage);
    Mutex::new(storage)
}

impl Fixture {
    fn remote_dir(&self) -> PathBuf {
        self.dir.path().join("remote").join(Uuid::nil().to_string())
    }

    /// As a start does.
    fn open_remote(&self, generation: u64) -> io::Result<Mutex<CheckpointStorage>> {
        let storage = CheckpointStorage::open(&self.root(), Uuid::nil(), generation)?;
        let storage = remote(self.dir.path(), storage);
        storage.lock().open_remote()?;
        Ok(storage)
    }

    /// The files in a folder of the remote storage.
    fn remote_files(&self, folder: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut dirs = vec![self.remote_dir().join(folder)];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() { dirs.push(path) } else { found.push(path) }
            }
        }
        found.sort();
        found
    }

    /// How many records of the log are checkpoints.
    fn logged(&self) -> usize {
        let records = self.remote_files("log");
        records.iter().filter(|r| !std::fs::read_to_string(r).unwrap().contains("\"manifest\":null")).count()
    }

    fn lose_the_disk(&self) {
        std::fs::remove_dir_all(self.root()).unwrap();
    }
}

#[test]
fn a_lost_disk_is_made_whole_by_what_is_stored_elsewhere() {
    let mut fixture = Fixture::new();
    let storage = fixture.open_remote(1).unwrap();
    for epoch in 1..=5 {
        let completed = fixture.checkpoint(&storage, epoch).unwrap();
        assert!(completed.uploaded.objects >= 2, "{completed:?}");
        assert!(epoch == 1 || completed.uploaded.objects <= 3, "only what is new: {completed:?}");
        retain(&storage, 3).unwrap();
    }
    assert_eq!(epochs(&storage), [5, 4, 3]);
    drop(storage);
    assert_eq!(
        (fixture.logged(), fixture.remote_files("small").len()),
        (3, 3),
        "{:?}",
        fixture.remote_files("log")
    );
    fixture.lose_the_disk();
    let storage = fixture.open_remote(2).unwrap();
    assert_eq!(epochs(&storage), [5, 4, 3]);
    let restored = newest(&storage).unwrap().unwrap();
    assert_eq!(fixture.keys(&storage, &restored), [1, 2, 3, 4, 5]);
    // Its directory is one of a checkpoint: a start without the remote storage finds it.
    assert_eq!(epochs(&fixture.open(3).unwrap()), [5]);
    drop(storage);
    let storage = fixture.open_remote(4).unwrap();
    // What the store restored are the very files of that directory: they don't go again.
    let live = fixture.dir.path().join("live-2");
    fixture.store =
        RocksStore::restore(&storage.lock().directory(restored.epoch), &live, &fixture.memory).unwrap();
    let completed = fixture.checkpoint(&storage, 6).unwrap();
    assert!(completed.uploaded.objects <= 3, "{completed:?}");
    assert_eq!(fixture.keys(&storage, &completed.manifest), [1, 2, 3, 4, 5, 6]);
    retain(&storage, 1).unwrap();
    let named: Vec<_> = completed.manifest.files.iter().filter(|f| f.name.ends_with(".sst")).collect();
    assert_eq!(fixture.remote_files("shared").len(), named.len());
}

#[test]
fn only_what_is_missing_or_damaged_is_downloaded() {
    let mut fixture = Fixture::new();
    let storage = fixture.open_remote(1).unwrap();
    let made = (1..=4).map(|epoch| fixture.checkpoint(&storage, epoch).unwrap().manifest).last().unwrap();
    drop(storage);
    let dir = gc::directory(&fixture.root(), Epoch(4));
    let tables: Vec<_> = made.files.iter().filter(|f| f.name.ends_with(".sst")).collect();
    assert!(tables.len() >= 3, "{made:?}");
    // The newest is in no other directory; an old one is a link that others have as well.
    std::fs::remove_file(dir.join(&tables[0].name)).unwrap();
    let last = dir.join(&tables.last().unwrap().name);
    let mut bytes = std::fs::read(&last).unwrap();
    bytes[7] ^= 1;
    std::fs::write(&last, bytes).unwrap();
    let storage = fixture.open_remote(2).unwrap();
    // Nothing but that one may be asked for.
    for path in fixture.remote_files("shared") {
        if !path.to_string_lossy().contains(&tables.last().unwrap().name) {
            std::fs::remove_file(path).unwrap();
        }
    }
    let restored = newest(&storage).unwrap().unwrap();
    assert_eq!(restored.epoch, Epoch(4));
    assert_eq!(fixture.keys(&storage, &restored), [1, 2, 3, 4]);
}

#[test]
fn what_is_damaged_everywhere_leads_to_the_checkpoint_before() {
    let mut fixture = Fixture::new();
    let storage = fixture.open_remote(1).unwrap();
    let made: Vec<_> = (1..=3).map(|epoch| fixture.checkpoint(&storage, epoch).unwrap().manifest).collect();
    drop(storage);
    fixture.lose_the_disk();
    // Of the third the newest file is missing, of the second it is cut.
    for (manifest, cut) in [(&made[2], false), (&made[1], true)] {
        let object =
            manifest.files.iter().rfind(|f| f.name.ends_with(".sst")).unwrap().stored.as_ref().unwrap();
        let path = fixture.remote_dir().join(&object.object);
        let bytes = std::fs::read(&path).unwrap();
        match cut {
            true => std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap(),
            false => std::fs::remove_file(&path).unwrap(),
        }
    }
    let storage = fixture.open_remote(2).unwrap();
    let restored = newest(&storage).unwrap().unwrap();
    assert_eq!((restored.epoch, fixture.keys(&storage, &restored)), (Epoch(1), vec![1]));
    drop(storage);
    std::fs::remove_dir_all(fixture.remote_dir().join("small")).unwrap();
    fixture.lose_the_disk();
    let error = newest(&fixture.open_remote(3).unwrap()).unwrap_err().to_string();
    assert!(error.contains("no intact checkpoint is left") && error.contains("missing"), "{error}");
}

#[test]
fn a_storage_that_is_away_fails_checkpoints_until_it_is_back() {
    let mut fixture = Fixture::new();
    let storage = fixture.open_remote(1).unwrap();
    fixture.checkpoint(&storage, 1).unwrap();
    let (there, away) = (fixture.dir.path().join("remote"), fixture.dir.path().join("away"));
    let leave = || {
        std::fs::rename(&there, &away).unwrap();
        std::fs::write(&there, "no directory").unwrap();
    };
    let come_back = || {
        std::fs::remove_file(&there).unwrap();
        std::fs::rename(&away, &there).unwrap();
    };
    leave();
    for epoch in 2..5 {
        fixture.checkpoint(&storage, epoch).unwrap_err();
    }
    assert_eq!((epochs(&storage), gc::epochs(&fixture.root()).unwrap().len()), (vec![1], 1));
    come_back();
    fixture.checkpoint(&storage, 5).unwrap();
    assert_eq!(epochs(&storage), [5, 1]);
    drop(storage);
    // A start without it: what is on the disk is as new.
    leave();
    let storage = CheckpointStorage::open(&fixture.root(), Uuid::nil(), 2).unwrap();
    let storage = remote(fixture.dir.path(), storage);
    assert!(storage.lock().open_remote().is_err());
    assert_eq!(newest(&storage).unwrap().unwrap().epoch, Epoch(5));
    fixture.checkpoint(&storage, 6).unwrap_err();
    come_back();
    let completed = fixture.checkpoint(&storage, 7).unwrap();
    retain(&storage, 1).unwrap();
    assert_eq!(fixture.logged(), 1);
    // Where the disk has lost the newest one there is nothing as new: it has to wait.
    drop(storage);
    std::fs::remove_file(fixture.root().join(format!("{:020}", 7)).join("CURRENT")).unwrap();
    leave();
    let storage = CheckpointStorage::open(&fixture.root(), Uuid::nil(), 3).unwrap();
    let storage = remote(fixture.dir.path(), storage);
    assert!(storage.lock().open_remote().is_err() && newest(&storage).is_err());
    come_back();
    assert_eq!(newest(&storage).unwrap(), Some(completed.manifest));
}

#[test]
fn a_storage_with_something_newer_is_not_written_to() {
    let mut fixture = Fixture::new();
    let storage = fixture.open_remote(1).unwrap();
    (1..=2).for_each(|epoch| drop(fixture.checkpoint(&storage, epoch).unwrap()));
    drop(storage);
    // The disk is lost, and the storage named only later.
    fixture.lose_the_disk();
    let storage =
        remote(fixture.dir.path(), CheckpointStorage::open(&fixture.root(), Uuid::nil(), 2).unwrap());
    let error = fixture.checkpoint(&storage, 3).unwrap_err().to_string();
    assert!(
        error.contains("a checkpoint of epoch 2, which is newer") && error.contains("restart"),
        "{error}"
    );
    assert_eq!(newest(&fixture.open_remote(3).unwrap()).unwrap().unwrap().epoch, Epoch(2));
}

#[test]
fn another_storage_starts_with_everything() {
    let mut fixture = Fixture::new();
    let storage = fixture.open(1).unwrap();
    (1..=3).for_each(|epoch| drop(fixture.checkpoint(&storage, epoch).unwrap()));
    let mut inner = storage.into_inner();
    let memory = Objects::of(Arc::new(object_store::memory::InMemory::new()));
    let of_memory = RemoteStorage::over(memory, &settings(), Uuid::nil(), 1);
    inner.use_remote(Some(Arc::new(of_memory)));
    let storage = Mutex::new(inner);
    let completed = fixture.checkpoint(&storage, 4).unwrap();
    let stored: std::collections::BTreeSet<_> = completed.manifest.objects().collect();
    assert_eq!(completed.uploaded.objects, stored.len() as u64, "everything goes");
    assert_eq!(retain(&storage, 2).unwrap(), [], "what is only on the disk stays until others are elsewhere");
    fixture.checkpoint(&storage, 5).unwrap();
    assert_eq!(retain(&storage, 2).unwrap(), [1, 2, 3].map(Epoch));
    let storage = remote(fixture.dir.path(), storage.into_inner());
    let completed = fixture.checkpoint(&storage, 6).unwrap();
    let stored: std::collections::BTreeSet<_> = completed.manifest.objects().collect();
    assert_eq!(completed.uploaded.objects, stored.len() as u64, "none of them was there");
    let mut inner = storage.into_inner();
    inner.use_remote(None);
    let storage = Mutex::new(inner);
    let completed = fixture.checkpoint(&storage, 7).unwrap();
    assert_eq!((completed.manifest.objects().count(), retain(&storage, 2).unwrap().len()), (0, 2));
}

#[test]
fn killed_anywhere_a_remote_checkpoint_is_found_with_and_without_the_disk() {
    for point in [
        "storage.before_take",
        "storage.after_take",
        "storage.before_shared:4",
        "storage.after_shared:4",
        "storage.before_small:4",
        "storage.after_small:4",
        "checkpoint.before_manifest:4",
        "manifest.after_rename:4",
        "storage.before_publish:4",
        "storage.after_publish:4",
        "gc.between_files:2",
        "storage.before_forget:2",
        "storage.after_forget:2",
        "storage.before_remove:2",
    ] {
        for lost in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let child = "checkpoint::storage::tests::child_makes_remote_checkpoints_until_it_is_killed";
            let done = testing::run_killed(child, point, dir.path());
            let mut fixture = Fixture::in_directory(dir);
            if lost {
                fixture.lose_the_disk();
            }
            let storage = fixture.open_remote(2).unwrap();
            let last = done.last().copied().unwrap_or(0);
            let found = newest(&storage).unwrap();
            let epoch = found.as_ref().map_or(0, |manifest| manifest.epoch.0);
            assert!((last..=last + 1).contains(&epoch), "{point}: {epoch} after {last}");
            if let Some(found) = &found {
                let expected: Vec<u8> = (1..=epoch as u8).collect();
                assert_eq!(fixture.keys(&storage, found), expected, "{point}");
                let live = fixture.dir.path().join("live-2");
                let directory = storage.lock().directory(found.epoch);
                fixture.store = RocksStore::restore(&directory, &live, &fixture.memory).unwrap();
            }
            // And on it goes; then there is what the newest needs, and nothing else.
            let completed = fixture.checkpoint(&storage, epoch as u8 + 1).unwrap();
            retain(&storage, 1).unwrap();
            let named: std::collections::BTreeSet<_> = completed.manifest.objects().collect();
            let folders = ["shared", "small", "catalog", "sinks"];
            let left: usize = folders.iter().map(|folder| fixture.remote_files(folder).len()).sum();
            assert_eq!((left, fixture.logged()), (named.len(), 1), "{point}, lost: {lost}");
            assert_eq!(gc::epochs(&fixture.root()).unwrap().len(), 1, "{point}");
        }
    }
}

#[test]
#[ignore = "a child of the test above"]
fn child_makes_remote_checkpoints_until_it_is_killed() {
    let Some(dir) = testing::child_dir() else { return };
    let mut fixture = Fixture::in_directory(tempfile::tempdir_in(&dir).unwrap());
    let storage = remote(&dir, CheckpointStorage::open(&dir.join("checkpoints"), Uuid::nil(), 1).unwrap());
    for epoch in 1..20 {
        fixture.checkpoint(&storage, epoch).unwrap();
        println!("done {epoch}");
        retain(&storage, 2).unwrap();
    }
}

#[test]
fn killed_while_it_downloads_a_start_downloads_again() {
    for point in ["restore.between_files:2", "restore.before_rename", "restore.after_rename"] {
        let mut fixture = Fixture::new();
        let storage = fixture.open_remote(1).unwrap();
        (1..=3).for_each(|epoch| drop(fixture.checkpoint(&storage, epoch).unwrap()));
        drop(storage);
        fixture.lose_the_disk();
        let child = "checkpoint::storage::tests::child_restores_until_it_is_killed";
        testing::run_killed(child, point, fixture.dir.path());
        let storage = fixture.open_remote(3).unwrap();
        let restored = newest(&storage).unwrap().unwrap();
        assert_eq!(fixture.keys(&storage, &restored), [1, 2, 3], "{point}");
    }
}

#[test]
#[ignore = "a child of the test above"]
fn child_restores_until_it_is_killed() {
    let Some(dir) = testing::child_dir() else { return };
    let storage = remote(&dir, CheckpointStorage::open(&dir.join("checkpoints"), Uuid::nil(), 2).unwrap());
    storage.lock().open_remote().unwrap();
    newest(&storage).unwrap();
}

#[test]
fn what_is_held_stays_until_nobody_reads_it() {
    let mut fixture = Fixture::new();
    let storage = Arc::new(fixture.open(1).unwrap());
    for epoch in 1..=2 {
        fixture.checkpoint(&storage, epoch).unwrap();
    }
    let hold = Hold::of_all(&storage);
    fixture.checkpoint(&storage, 3).unwrap();
    assert_eq!(retain(&storage, 1).unwrap(), []);
    assert_eq!(epochs(&storage), [3, 2, 1]);
    hold.narrow(Epoch(2));
    let other = Hold::of_all(&storage);
    other.narrow(Epoch(3));
    fixture.checkpoint(&storage, 4).unwrap();
    assert_eq!(retain(&storage, 1).unwrap(), [Epoch(1)]);
    assert_eq!(epochs(&storage), [4, 3, 2]);
    drop(hold);
    assert_eq!(retain(&storage, 1).unwrap(), [Epoch(2)]);
    drop(other);
    assert_eq!(retain(&storage, 1).unwrap(), [Epoch(3)]);
    assert_eq!(fixture.keys(&storage, &newest(&storage).unwrap().unwrap()), [1, 2, 3, 4]);
}

/// Puts a checkpoint of `epoch` together beside the others.
fn stage(fixture: &Fixture, storage: &Mutex<CheckpointStorage>, epoch: u64) {
    let root = fixture.root();
    staged::begin(&root).unwrap();
    fixture.store.checkpoint(&staged::state(&root)).unwrap();
    let files = Filled { dir: staged::state(&root), newest: None }.measure().unwrap().files;
    let mut manifest = Manifest { savepoint: Some(Epoch(1)), files, ..manifest(epoch) };
    storage.lock().write_staged(&staged::state(&root), &mut manifest).unwrap();
}

#[test]
fn a_staged_checkpoint_takes_the_place_of_all_before_or_is_nothing() {
    let mut fixture = Fixture::new();
    let storage = fixture.open(1).unwrap();
    for epoch in 1..=2 {
        fixture.checkpoint(&storage, epoch).unwrap();
    }
    // The catalog does not name it: it never was.
    stage(&fixture, &storage, 7);
    staged::settle(&fixture.root(), Epoch::ZERO).unwrap();
    assert!(!staged::directory(&fixture.root()).exists());
    stage(&fixture, &storage, 7);
    staged::settle(&fixture.root(), Epoch(6)).unwrap();
    assert_eq!(epochs(&fixture.open(2).unwrap()), [2, 1]);
    // It does: however often that is done.
    let storage = fixture.open(3).unwrap();
    stage(&fixture, &storage, 7);
    for _ in 0..2 {
        staged::settle(&fixture.root(), Epoch(7)).unwrap();
    }
    storage.lock().adopt(Epoch(7)).unwrap();
    assert_eq!(epochs(&storage), [7]);
    assert_eq!(gc::epochs(&fixture.root()).unwrap(), [Epoch(7)], "the others are gone");
    assert_eq!(fixture.keys(&storage, &newest(&storage).unwrap().unwrap()), [1, 2]);
    let storage = fixture.open(4).unwrap();
    storage.lock().forget_before(Epoch(7)).unwrap();
    fixture.checkpoint(&storage, 8).unwrap();
    assert_eq!(epochs(&storage), [8, 7]);
}

#[test]
fn a_remote_storage_keeps_nothing_from_before_a_staged_checkpoint() {
    let mut fixture = Fixture::new();
    let storage = fixture.open_remote(1).unwrap();
    for epoch in 1..=2 {
        fixture.checkpoint(&storage, epoch).unwrap();
    }
    stage(&fixture, &storage, 7);
    staged::settle(&fixture.root(), Epoch(7)).unwrap();
    storage.lock().adopt(Epoch(7)).unwrap();
    fixture.checkpoint(&storage, 8).unwrap();
    retain(&storage, 3).unwrap();
    // Where the disk is lost, only what came after is found.
    std::fs::remove_dir_all(fixture.root()).unwrap();
    let storage = fixture.open_remote(2).unwrap();
    storage.lock().forget_before(Epoch(7)).unwrap();
    assert_eq!(epochs(&storage), [8]);
}
