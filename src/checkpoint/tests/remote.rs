//! Tests of the remote log: one writer at a time, nothing removed that is named, nothing left that is not.

use super::super::manifest::tests::manifest;
use super::super::record::BEGINNINGS_KEPT;
use super::super::transfer::Cancel;
use super::*;
use crate::config::Config;
use object_store::memory::InMemory;
use std::sync::Arc;

/// Settings that allow for one transfer at a time: fail points fire on the test's thread.
pub(in super::super) fn settings() -> StorageSettings {
    let url = "file:///nowhere/at/all";
    let values =
        [("checkpoint.storage", url), ("checkpoint.transfers", "1"), ("checkpoint.storage_retries", "0")];
    Config::new(values).unwrap().database.storage
}

struct Fixture {
    store: Arc<InMemory>,
    dir: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self { store: Arc::default(), dir: tempfile::tempdir().unwrap() }
    }

    fn storage(&self, generation: u64) -> RemoteStorage {
        RemoteStorage::over(Objects::of(self.store.clone()), &settings(), Uuid::nil(), generation)
    }

    fn names(&self) -> Vec<String> {
        let objects = Objects::of(self.store.clone());
        let folders = [LOG, SHARED, SMALL].into_iter();
        let mut names: Vec<String> = folders.flat_map(|folder| objects.list(folder).unwrap()).collect();
        names.sort();
        names
    }

    /// How many records, shared and small objects there are.
    fn counts(&self) -> [usize; 3] {
        let names = self.names();
        [LOG, SHARED, SMALL].map(|folder| names.iter().filter(|name| name.starts_with(folder)).count())
    }

    /// The files of a checkpoint, by name and content.
    fn files(&self, files: &[(&str, &str)]) -> Vec<StateFile> {
        let write = |(name, content): &(&str, &str)| {
            std::fs::write(self.dir.path().join(name), content).unwrap();
            let (size, crc32) = (content.len() as u64, crc32fast::hash(content.as_bytes()));
            StateFile { name: (*name).to_owned(), size, crc32, stored: None }
        };
        files.iter().map(write).collect()
    }

    fn upload(&self, storage: &RemoteStorage, epoch: u64, files: &mut [StateFile]) -> io::Result<u64> {
        let uploaded = storage.upload(self.dir.path(), Epoch(epoch), files, &Cancel::default())?;
        Ok(uploaded.objects)
    }
}

fn manifest_of(storage: &RemoteStorage, epoch: u64, files: &[StateFile]) -> Manifest {
    Manifest { generation: storage.generation, files: files.to_vec(), ..manifest(epoch) }
}

fn epochs(storage: &RemoteStorage) -> Vec<u64> {
    storage.manifests().iter().map(|(_, manifest)| manifest.epoch.0).collect()
}

#[test]
fn files_go_with_the_last_manifest_that_names_them() {
    let fixture = Fixture::new();
    let storage = fixture.storage(1);
    let mut first = fixture.files(&[("1.sst", "one"), ("2.sst", "two"), ("CURRENT", "a")]);
    assert_eq!(fixture.upload(&storage, 1, &mut first).unwrap(), 3);
    storage.publish(&manifest_of(&storage, 1, &first)).unwrap();
    // The second has one of them, as the measurement says, and another one.
    let mut second = fixture.files(&[("2.sst", "two"), ("3.sst", "three"), ("CURRENT", "b")]);
    second[0].stored = first[1].stored.clone();
    assert_eq!(fixture.upload(&storage, 2, &mut second).unwrap(), 2);
    assert_eq!(second[0].stored, first[1].stored);
    storage.publish(&manifest_of(&storage, 2, &second)).unwrap();
    assert_eq!(fixture.counts(), [3, 3, 2]);
    storage.retain((1, Epoch(2))).unwrap();
    assert_eq!((epochs(&storage), fixture.counts()), (vec![2], [2, 2, 1]), "{:?}", fixture.names());
    let mut third = fixture.files(&[("4.sst", "four"), ("CURRENT", "c")]);
    fixture.upload(&storage, 3, &mut third).unwrap();
    // While it is pending nothing of it goes.
    storage.retain((1, Epoch(2))).unwrap();
    assert_eq!(fixture.counts(), [2, 3, 2]);
    storage.release(Epoch(3));
    storage.retain((1, Epoch(2))).unwrap();
    assert_eq!(fixture.counts(), [2, 2, 1], "{:?}", fixture.names());
}

#[test]
fn what_a_failed_checkpoint_uploaded_is_not_uploaded_again() {
    let fixture = Fixture::new();
    let storage = fixture.storage(1);
    let mut files = fixture.files(&[("1.sst", "one"), ("2.sst", "two"), ("CURRENT", "a")]);
    failpoint::testing::set("storage.before_shared:2=error");
    fixture.upload(&storage, 1, &mut files).unwrap_err();
    failpoint::testing::set("");
    let mut files = fixture.files(&[("1.sst", "one"), ("2.sst", "two"), ("CURRENT", "a")]);
    assert_eq!(fixture.upload(&storage, 2, &mut files).unwrap(), 2, "one file and the small ones");
    // A file of the same name that is another one is not taken for it.
    let mut other = fixture.files(&[("1.sst", "ONE"), ("CURRENT", "a")]);
    assert_eq!(fixture.upload(&storage, 3, &mut other).unwrap(), 2);
    assert_ne!(other[0].stored, files[0].stored);
    // Nor is one that changed since it was measured.
    let mut changed = fixture.files(&[("9.sst", "one"), ("CURRENT", "a")]);
    std::fs::write(fixture.dir.path().join("9.sst"), "two").unwrap();
    assert!(
        fixture.upload(&storage, 4, &mut changed).unwrap_err().to_string().contains("it is not what it was")
    );
}

#[test]
fn who_opens_the_log_fences_off_who_wrote_before() {
    let fixture = Fixture::new();
    let zombie = fixture.storage(1);
    let mut files = fixture.files(&[("1.sst", "one"), ("CURRENT", "a")]);
    fixture.upload(&zombie, 1, &mut files).unwrap();
    zombie.publish(&manifest_of(&zombie, 1, &files)).unwrap();
    let newer = fixture.storage(2);
    newer.open(None).unwrap();
    assert_eq!(epochs(&newer), [1]);
    // Also after the newer one has written and cleaned up.
    let mut files = fixture.files(&[("8.sst", "eight"), ("CURRENT", "a")]);
    fixture.upload(&newer, 2, &mut files).unwrap();
    newer.publish(&manifest_of(&newer, 2, &files)).unwrap();
    newer.retain((2, Epoch(2))).unwrap();
    let mut late = fixture.files(&[("2.sst", "two"), ("CURRENT", "b")]);
    fixture.upload(&zombie, 2, &mut late).unwrap();
    let refused = zombie.publish(&manifest_of(&zombie, 2, &late)).unwrap_err();
    assert!(
        !refused.perhaps && refused.error.to_string().contains("fenced off by generation 2"),
        "{refused:?}"
    );
    assert!(zombie.publish(&manifest_of(&zombie, 3, &late)).is_err(), "for good");
    // It removes nothing any more, whatever it thinks is too old.
    zombie.retain((9, Epoch(9))).unwrap();
    let mut files = fixture.files(&[("3.sst", "three"), ("CURRENT", "c")]);
    fixture.upload(&newer, 4, &mut files).unwrap();
    newer.publish(&manifest_of(&newer, 4, &files)).unwrap();
    let third = fixture.storage(3);
    third.open(None).unwrap();
    assert_eq!(epochs(&third), [2, 4]);
    let left: Vec<String> = fixture.names().into_iter().filter(|n| n.contains("2.sst")).collect();
    assert_eq!(left, Vec::<String>::new(), "what the zombie uploaded is an orphan");
}

#[test]
fn a_generation_of_another_process_is_not_taken_twice() {
    let fixture = Fixture::new();
    let other = Record { generation: 5, writer: "another-1".to_owned(), manifest: None, goes_on_from: None };
    let objects = Objects::of(fixture.store.clone());
    objects.create(&record_name(1), other.encode().unwrap()).unwrap();
    for generation in [4, 5] {
        let error = fixture.storage(generation).open(None).unwrap_err();
        assert!(error.to_string().contains("generation 5 of this database already writes"), "{error}");
    }
    let storage = fixture.storage(6);
    storage.open(None).unwrap();
    storage.open(None).unwrap();
    assert_eq!(fixture.counts(), [2, 0, 0]);
    for generation in 7..7 + BEGINNINGS_KEPT as u64 + 20 {
        fixture.storage(generation).open(None).unwrap();
    }
    // The newest of those before, and the last one.
    assert_eq!(fixture.counts(), [BEGINNINGS_KEPT + 1, 0, 0]);
    let storage = fixture.storage(1000);
    storage.open(None).unwrap();
    assert!(fixture.storage(1000).open(None).is_ok(), "another storage object of this process may");
}

#[test]
fn orphans_are_found_but_not_those_of_a_later_generation() {
    let fixture = Fixture::new();
    let objects = Objects::of(fixture.store.clone());
    let put = |name: &str| objects.put(name, bytes::Bytes::from_static(b"x")).unwrap();
    let names = [
        "shared/0000000001-1/1-1.sst",
        "small/0000000002-99999/7",
        "shared/0000000003-1/1-2.sst",
        "shared/x",
    ];
    names.into_iter().for_each(put);
    fixture.storage(2).open(None).unwrap();
    let left = fixture.names();
    assert_eq!(left, ["log/00000000000000000001", "shared/0000000003-1/1-2.sst", "shared/x"]);
}

#[test]
fn a_damaged_record_is_no_checkpoint_and_costs_nothing_else() {
    let fixture = Fixture::new();
    let storage = fixture.storage(1);
    for epoch in 1..=2 {
        let name = format!("{epoch}.sst");
        let mut files = fixture.files(&[(name.as_str(), "x"), ("CURRENT", "a")]);
        fixture.upload(&storage, epoch, &mut files).unwrap();
        storage.publish(&manifest_of(&storage, epoch, &files)).unwrap();
    }
    let objects = Objects::of(fixture.store.clone());
    let whole = objects.get(&record_name(3)).unwrap();
    objects.put(&record_name(3), whole.slice(..whole.len() - 3)).unwrap();
    let next = fixture.storage(2);
    next.open(None).unwrap();
    assert_eq!(epochs(&next), [1]);
    assert_eq!(fixture.counts()[1], 2, "what it named may be wanted by who mends it");
    let mut files = fixture.files(&[("3.sst", "x"), ("CURRENT", "a")]);
    fixture.upload(&next, 3, &mut files).unwrap();
    next.publish(&manifest_of(&next, 3, &files)).unwrap();
    assert_eq!(epochs(&next), [1, 3]);
}

#[test]
fn a_record_whose_answer_was_lost_is_found() {
    let fixture = Fixture::new();
    let storage = fixture.storage(1);
    let mut files = fixture.files(&[("1.sst", "one"), ("CURRENT", "a")]);
    fixture.upload(&storage, 1, &mut files).unwrap();
    let first = manifest_of(&storage, 1, &files);
    // As if the request had arrived, and the answer had not.
    let writer = storage.writer.clone();
    let record = Record { generation: 1, writer, manifest: Some(first.clone()), goes_on_from: None };
    let objects = Objects::of(fixture.store.clone());
    objects.create(&record_name(2), record.encode().unwrap()).unwrap();
    storage.publish(&first).unwrap();
    assert_eq!(epochs(&storage), [1]);
    // Or as if it arrived only after the checkpoint had been given up.
    let mut late = fixture.files(&[("2.sst", "two"), ("CURRENT", "b")]);
    fixture.upload(&storage, 2, &mut late).unwrap();
    let late = manifest_of(&storage, 2, &late);
    let record = Record { manifest: Some(late), ..record };
    objects.create(&record_name(3), record.encode().unwrap()).unwrap();
    let mut files = fixture.files(&[("3.sst", "three"), ("CURRENT", "c")]);
    fixture.upload(&storage, 3, &mut files).unwrap();
    storage.publish(&manifest_of(&storage, 3, &files)).unwrap();
    assert_eq!(epochs(&storage), [1, 2, 3]);
    storage.retain((1, Epoch(3))).unwrap();
    assert_eq!((epochs(&storage), fixture.counts()), (vec![3], [2, 1, 1]));
}

/// Publishes checkpoints of a file each.
fn publish(fixture: &Fixture, storage: &RemoteStorage, numbers: std::ops::RangeInclusive<u64>) {
    for epoch in numbers {
        let name = format!("{epoch}.sst");
        let mut files = fixture.files(&[(name.as_str(), "x"), ("CURRENT", "a")]);
        fixture.upload(storage, epoch, &mut files).unwrap();
        storage.publish(&manifest_of(storage, epoch, &files)).unwrap();
    }
}

#[test]
fn what_came_after_the_checkpoint_that_a_database_goes_on_from_is_none_of_its_past() {
    let fixture = Fixture::new();
    publish(&fixture, &fixture.storage(1), 1..=4);
    let objects = Objects::of(fixture.store.clone());
    // The last one can't be read, the one before is found damaged.
    objects.put(&record_name(5), bytes::Bytes::from_static(b"{}")).unwrap();
    let back = fixture.storage(2);
    back.open(None).unwrap();
    assert!(back.has_damaged());
    assert_eq!(epochs(&back), [1, 2, 3]);
    back.go_on_from((1, Epoch(2))).unwrap();
    assert_eq!(epochs(&back), [1, 2]);
    // Whoever reads the log after finds the same, before anything was removed.
    assert_eq!(fixture.counts(), [7, 4, 4]);
    let next = fixture.storage(3);
    next.open(None).unwrap();
    assert_eq!(epochs(&next), [1, 2]);
    assert!(!next.has_damaged());
    // Of the damaged record nobody knows what it named; the next start finds that.
    fixture.storage(4).open(None).unwrap();
    assert_eq!(fixture.counts()[1..], [2, 2], "{:?}", fixture.names());
    // New ones count, whatever their epochs.
    publish(&fixture, &fixture.storage(5), 3..=3);
    let last = fixture.storage(6);
    last.open(None).unwrap();
    assert_eq!(epochs(&last), [1, 2, 3]);
}

#[test]
fn a_checkpoint_that_was_stored_and_not_published_can_be() {
    for loses in [false, true] {
        let fixture = Fixture::new();
        let dying = fixture.storage(1);
        publish(&fixture, &dying, 1..=1);
        let mut files = fixture.files(&[("2.sst", "two"), ("CURRENT", "b")]);
        fixture.upload(&dying, 2, &mut files).unwrap();
        let pledged = manifest_of(&dying, 2, &files);
        if loses {
            let object = &files[0].stored.as_ref().unwrap().object;
            Objects::of(fixture.store.clone()).delete(std::slice::from_ref(object)).unwrap();
        }
        let next = fixture.storage(2);
        next.open(Some(&pledged)).unwrap();
        assert_eq!(next.publish_pledged(&pledged).unwrap(), !loses);
        assert_eq!(epochs(&next), if loses { vec![1] } else { vec![1, 2] });
        next.retain((0, Epoch(0))).unwrap();
        assert_eq!(fixture.counts()[1..], if loses { [1, 1] } else { [2, 2] }, "{:?}", fixture.names());
        let last = fixture.storage(3);
        last.open(None).unwrap();
        assert_eq!(epochs(&last), epochs(&next));
    }
}
