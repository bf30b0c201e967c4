//! Tests of what goes with a checkpoint: each thing once, back where it was, and no damage unseen.

use super::super::manifest::tests::manifest;
use super::super::objects::Objects;
use super::super::remote::tests::settings;
use super::*;
use object_store::memory::InMemory;
use uuid::Uuid;
use weir_catalog::CatalogChange;

struct Fixture {
    store: Arc<InMemory>,
    dir: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self { store: Arc::default(), dir: tempfile::tempdir().unwrap() }
    }

    fn storage(&self, generation: u64) -> RemoteStorage {
        RemoteStorage::over(self.objects(), &settings(), Uuid::nil(), generation)
    }

    fn objects(&self) -> Objects {
        Objects::of(self.store.clone())
    }

    fn counts(&self) -> [usize; 2] {
        [CATALOG, SINKS].map(|folder| self.objects().list(folder).unwrap().len())
    }

    /// A part of a log of sink 7, which holds `content` from `start` on.
    fn part(&self, (actor, epoch): (u32, u64), start: u64, content: &str) -> PartOnDisk {
        let path = self.dir.path().join(format!("{actor}-1-0.log"));
        let mut log = std::fs::read(&path).unwrap_or_default();
        log.resize(log.len().max(start as usize), b'.');
        log.truncate(start as usize);
        log.extend_from_slice(content.as_bytes());
        std::fs::write(&path, &log).unwrap();
        let (epoch, end) = (Epoch(epoch), log.len() as u64);
        PartOnDisk { sink: ObjectId(7), actor, epoch, path, start, end }
    }

    /// Uploads what goes with the checkpoint of `epoch`, and publishes it. Returns how many objects that made.
    fn publish(&self, storage: &RemoteStorage, epoch: u64, of: &Belongings) -> (Manifest, u64) {
        storage.open(None).unwrap();
        let catalog_version = of.catalog.version;
        let mut manifest = Manifest { catalog_version, files: Vec::new(), ..manifest(epoch) };
        let uploaded = storage.upload_belongings(of, &mut manifest, &Cancel::default()).unwrap();
        storage.publish(&manifest).unwrap();
        (manifest, uploaded.objects)
    }

    fn back(
        &self,
        storage: &RemoteStorage,
        manifest: &Manifest,
    ) -> io::Result<(CatalogSnapshot, Vec<String>)> {
        let to = tempfile::tempdir().unwrap();
        let catalog = storage.fetch_catalog(manifest)?;
        storage.fetch_parts(manifest, &|sink| to.path().join(sink.to_string()))?;
        let mut files: Vec<String> = Vec::new();
        for entry in std::fs::read_dir(to.path().join("7")).into_iter().flatten() {
            let path = entry.unwrap().path();
            let content = String::from_utf8(std::fs::read(&path).unwrap()).unwrap().replace('\0', "_");
            files.push(format!("{}: {content}", path.file_name().unwrap().to_string_lossy()));
        }
        files.sort();
        Ok((catalog, files))
    }
}

fn catalog(changes: usize) -> Arc<CatalogSnapshot> {
    let set = |n: usize| CatalogChange::Set("checkpoint.max_retained".to_owned(), Some(n.to_string()));
    let changed = (0..changes).try_fold(CatalogSnapshot::default(), |next, n| next.apply(&set(n)));
    Arc::new(changed.unwrap())
}

#[test]
fn each_thing_goes_once_and_comes_back_where_it_was() {
    let fixture = Fixture::new();
    let storage = fixture.storage(1);
    let mut of = Belongings { catalog: catalog(1), ..Belongings::default() };
    of.promised = vec![fixture.part((0, 1), 3, "one"), fixture.part((1, 1), 0, "two")];
    assert_eq!(fixture.publish(&storage, 1, &of).1, 2);
    // Of the same promises nothing goes again, nor of the same catalog.
    assert_eq!(fixture.publish(&storage, 2, &of).1, 0);
    of.promised.push(fixture.part((0, 3), 6, "more"));
    of.ahead = vec![(ObjectId(7), Ahead::of(Epoch(1)))];
    let (last, objects) = fixture.publish(&storage, 3, &of);
    assert_eq!((objects, fixture.counts()), (1, [1, 2]));
    let files = vec!["0-1-0.log: ___onemore".to_owned(), "1-1-0.log: two".to_owned()];
    assert_eq!(fixture.back(&storage, &last).unwrap(), ((*of.catalog).clone(), files));
    // A process that comes after knows what is there.
    let next = fixture.storage(2);
    of.ahead = Vec::new();
    let (manifest, objects) = fixture.publish(&next, 4, &of);
    assert_eq!(
        (objects, &manifest.promised, &last.ahead),
        (0, &last.promised, &vec![(ObjectId(7), Ahead::of(Epoch(1)))])
    );
    // Another catalog goes, what is delivered does not, and what nobody names any more is removed.
    of.catalog = catalog(2);
    of.promised.drain(..2);
    std::fs::remove_file(&of.promised[0].path).unwrap();
    of.promised.push(PartOnDisk { epoch: Epoch(5), ..of.promised[0].clone() });
    let (manifest, objects) = fixture.publish(&next, 5, &of);
    assert_eq!((objects, manifest.promised.len(), fixture.counts()), (1, 1, [2, 2]));
    next.retain((1, Epoch(5))).unwrap();
    assert_eq!(fixture.counts(), [1, 1], "{:?}", manifest.objects().collect::<Vec<_>>());
    assert_eq!(fixture.back(&next, &manifest).unwrap().1, ["0-1-0.log: ______more"]);
}

#[test]
fn what_failed_goes_again_and_is_not_left() {
    let fixture = Fixture::new();
    let storage = fixture.storage(1);
    storage.open(None).unwrap();
    let of = Belongings { promised: vec![fixture.part((0, 1), 0, "one")], ..Belongings::default() };
    for point in
        ["storage.before_catalog", "storage.after_catalog", "storage.before_sinks", "storage.after_sinks"]
    {
        failpoint::testing::set(&format!("{point}=error"));
        let failed = storage.upload_belongings(&of, &mut manifest(1), &Cancel::default());
        failpoint::testing::set("");
        failed.expect_err(point);
        storage.release(Epoch(1));
    }
    let (manifest, _) = fixture.publish(&storage, 2, &of);
    storage.retain((0, Epoch::ZERO)).unwrap();
    assert_eq!(fixture.counts(), [1, 1]);
    assert_eq!(fixture.back(&storage, &manifest).unwrap().1, ["0-1-0.log: one"]);
}

#[test]
fn every_damage_shows() {
    let fixture = Fixture::new();
    let storage = fixture.storage(1);
    let of = Belongings { promised: vec![fixture.part((0, 1), 0, "one")], ..Belongings::default() };
    let (whole, _) = fixture.publish(&storage, 1, &of);
    let objects: Vec<String> = whole.objects().map(str::to_owned).collect();
    for object in objects {
        let content = fixture.objects().get(&object).unwrap();
        for at in 0..content.len() {
            let mut damaged = content.to_vec();
            damaged[at] ^= 4;
            fixture.objects().put(&object, damaged.into()).unwrap();
            let same = fixture.back(&storage, &whole);
            // A bit of the compressed form may mean nothing.
            if let Ok((catalog, files)) = same {
                assert_eq!((catalog, files), ((*of.catalog).clone(), vec!["0-1-0.log: one".to_owned()]));
                continue;
            }
            assert_eq!(same.unwrap_err().kind(), io::ErrorKind::InvalidData, "{object} {at}");
        }
        fixture.objects().delete(std::slice::from_ref(&object)).unwrap();
        assert_eq!(fixture.back(&storage, &whole).unwrap_err().kind(), io::ErrorKind::InvalidData);
        fixture.objects().put(&object, content).unwrap();
    }
    let none = Manifest { catalog: None, ..whole.clone() };
    assert_eq!(storage.fetch_catalog(&none).unwrap_err().kind(), io::ErrorKind::InvalidData);
    let other = Manifest { catalog_version: 9, ..whole };
    assert!(storage.fetch_catalog(&other).unwrap_err().to_string().contains("version 0"));
}
