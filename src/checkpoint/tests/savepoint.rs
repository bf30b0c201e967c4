//! Tests of a savepoint's manifest and files: they come back, damage is named, nothing is replaced.

use super::super::manifest::tests::manifest;
use super::*;
use weir_catalog::CatalogSnapshot;

fn savepoint(files: Vec<SavedFile>) -> Savepoint {
    let manifest = manifest(9);
    Savepoint {
        format: FORMAT,
        weir: "0.0.0".to_owned(),
        database: Uuid::nil(),
        generation: 3,
        epoch: Epoch(9),
        taken_at_us: 5,
        stopped: false,
        parallelism: 2,
        backend: "rocksdb".to_owned(),
        now_us: manifest.now_us,
        dml_position: 4,
        catalog: CatalogSnapshot::default().to_image(),
        jobs: manifest.jobs,
        offsets: manifest.offsets,
        handles: manifest.handles,
        state: files,
        sinks: Vec::new(),
        ahead: Vec::new(),
    }
}

fn url(dir: &std::path::Path) -> StorageUrl {
    parse_url(&format!("file://{}/a savepoint", dir.display())).unwrap()
}

#[test]
fn it_comes_back_as_written_and_is_never_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let first = SavepointDir::open(&url(dir.path()), false).unwrap();
    first.require_free().unwrap();
    assert_eq!(first.read().unwrap_err().kind(), io::ErrorKind::NotFound);
    let file = first.put("state/000000.entries", b"some state", &Cancel::default()).unwrap();
    let written = savepoint(vec![file.clone()]);
    first.publish(&written).unwrap();

    let second = SavepointDir::open(&url(dir.path()), true).unwrap();
    assert_eq!(second.read().unwrap(), written);
    assert_eq!(second.get(&file, &Cancel::default()).unwrap(), b"some state");
    assert_eq!(written.total_bytes(), 10);
    for error in [second.require_free().unwrap_err(), second.publish(&written).unwrap_err()] {
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert!(error.to_string().contains("a%20savepoint"), "{error}");
    }
    // One that fails takes only its own files back.
    second.put("state/000000.entries", b"other", &Cancel::default()).unwrap();
    assert!(!second.is_published().unwrap() && first.is_published().unwrap());
    assert_eq!(second.give_up().unwrap(), 1);
    assert_eq!(first.get(&file, &Cancel::default()).unwrap(), b"some state");
    assert!(dir.path().join("a savepoint/savepoint.json").is_file());
    let nowhere = url(&dir.path().join("nowhere"));
    assert_eq!(SavepointDir::open(&nowhere, true).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert!(!dir.path().join("nowhere").exists());
}

#[test]
fn damage_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let at = SavepointDir::open(&url(dir.path()), false).unwrap();
    let file = at.put("state/000000.entries", b"some state", &Cancel::default()).unwrap();
    at.publish(&savepoint(vec![file.clone()])).unwrap();
    let path = dir.path().join("a savepoint").join(&file.name);
    for content in [&b"some stat"[..], b"same state", b"some state and more"] {
        std::fs::write(&path, content).unwrap();
        let error = at.get(&file, &Cancel::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains(&file.name), "{error}");
    }
    std::fs::remove_file(&path).unwrap();
    assert!(at.get(&file, &Cancel::default()).unwrap_err().to_string().contains("it is missing"));
    let manifest = dir.path().join("a savepoint").join(FILE_NAME);
    let content = std::fs::read(&manifest).unwrap();
    for bit in (0..content.len() * 8).step_by(7) {
        let mut damaged = content.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&manifest, damaged).unwrap();
        assert_eq!(at.read().unwrap_err().kind(), io::ErrorKind::InvalidData, "{bit}");
    }
}

#[test]
fn a_newer_format_is_refused_by_its_number() {
    let mut newer = serde_json::to_value(savepoint(Vec::new())).unwrap();
    newer["format"] = 7.into();
    newer["weir"] = "9.9".into();
    newer["state"] = "something else".into();
    let content = with_checksum(&newer.to_string());
    let error = Savepoint::decode(content.as_bytes()).unwrap_err();
    assert!(error.contains("format 7, of Weir 9.9, is newer than 2"), "{error}");
}

#[test]
fn bad_ones_are_not_written_and_bad_urls_not_taken() {
    let mut bad = savepoint(vec![SavedFile { name: "../x".to_owned(), ..SavedFile::default() }]);
    assert!(bad.encode().unwrap_err().to_string().contains("\"../x\" is no name of a file"));
    bad.state = Vec::new();
    bad.handles[0].epoch = Epoch(10);
    assert!(bad.encode().unwrap_err().to_string().contains("which is later"));
    bad.handles.clear();
    let file = |name: &str| SavedFile { name: name.to_owned(), size: 5, ..SavedFile::default() };
    let log = |at, name| SavedLog { sink: ObjectId(7), log: "0.log".to_owned(), at, file: file(name) };
    bad.sinks = vec![log(0, "a"), log(5, "b"), SavedLog { log: "1.log".to_owned(), ..log(0, "c") }];
    bad.encode().unwrap();
    bad.sinks[1].at = 6;
    assert!(bad.encode().unwrap_err().to_string().contains("\"b\" begins at 6 of its log, where 5 is due"));
    for text in ["", "local", "s3://bucket", "s3://bucket/", "/some/path", "s3://key:secret@bucket/x"] {
        let hint = parse_url(text).expect_err(text);
        assert!(!hint.contains("write local"), "that is no place of a savepoint: {hint}");
    }
    assert!(parse_url("s3://bucket/some/path/?region=x").is_ok());
}
