//! Tests of the catalog's files: what was appended survives; a torn end does not; every step of a
//! merge may be the last.

use super::*;
use failpoint::testing;

/// Appends `count` changes, one or two at a time; returns the snapshot after each append.
fn grow(log: &mut FileCatalogLog, mut snapshot: CatalogSnapshot, count: usize) -> Vec<CatalogSnapshot> {
    let mut after = Vec::new();
    for i in 0..count {
        let name = |n: u64| CatalogChange::CreateSchema(format!("s{n}"));
        let mut changes = vec![name(snapshot.version)];
        if i % 2 == 0 {
            changes.push(name(snapshot.version + 1));
        }
        for change in &changes {
            snapshot = snapshot.apply(change).unwrap();
        }
        log.append(&changes, &snapshot).unwrap();
        after.push(snapshot.clone());
    }
    after
}

#[test]
fn what_was_appended_is_there_again() {
    let dir = tempfile::tempdir().unwrap();
    let (mut log, mut snapshot) = FileCatalogLog::open(dir.path()).unwrap();
    assert_eq!(snapshot, CatalogSnapshot::default());
    for _ in 0..3 {
        snapshot = grow(&mut log, snapshot, 5).pop().unwrap();
        let (again, found) = FileCatalogLog::open(dir.path()).unwrap();
        assert_eq!(found, snapshot);
        log = again;
    }
}

#[test]
fn a_log_cut_anywhere_holds_whole_appends() {
    let dir = tempfile::tempdir().unwrap();
    let (mut log, snapshot) = FileCatalogLog::open(dir.path()).unwrap();
    let mut states = vec![snapshot.clone()];
    states.extend(grow(&mut log, snapshot, 4));
    let path = dir.path().join("catalog.log");
    let bytes = std::fs::read(&path).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for cut in 0..=bytes.len() {
        std::fs::write(&path, &bytes[..cut]).unwrap();
        let (_, found) = FileCatalogLog::open(dir.path()).unwrap();
        assert!(states.contains(&found), "{cut}");
        seen.insert(found.version);
    }
    assert_eq!(seen.len(), states.len());
}

#[test]
fn the_log_is_merged_when_it_has_grown_whatever_fails_on_the_way() {
    let points = [
        "",
        "catalog_image.before_write=error",
        "catalog_image.mid_write=error",
        "catalog_image.before_rename=error",
        "catalog_image.after_rename=error",
    ];
    for point in points {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, snapshot) = FileCatalogLog::open(dir.path()).unwrap();
        log.log_bytes_max = 200;
        testing::set(point);
        let snapshot = grow(&mut log, snapshot, 20).pop().unwrap();
        let (mut log, found) = FileCatalogLog::open(dir.path()).unwrap();
        assert_eq!(found, snapshot, "{point}");
        testing::set("");
        log.log_bytes_max = 200;
        let snapshot = grow(&mut log, snapshot, 20).pop().unwrap();
        assert!(log.log.len() < 400);
        assert_eq!(FileCatalogLog::open(dir.path()).unwrap().1, snapshot, "{point}");
    }
}

#[test]
fn damage_names_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let (mut log, snapshot) = FileCatalogLog::open(dir.path()).unwrap();
    log.log_bytes_max = 200;
    grow(&mut log, snapshot, 20);
    let image = dir.path().join("catalog.image");
    let mut bytes = std::fs::read(&image).unwrap();
    bytes[30] ^= 1;
    std::fs::write(&image, bytes).unwrap();
    let error = FileCatalogLog::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("catalog.image is damaged"), "{error}");
}
