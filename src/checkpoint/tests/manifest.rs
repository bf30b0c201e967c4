//! Tests of the manifest: it comes back as written, every damage shows, bad ones are not written.

use super::*;
use weir_catalog::ObjectId;

pub(in super::super) fn manifest(epoch: u64) -> Manifest {
    Manifest {
        format: FORMAT,
        database: Uuid::nil(),
        generation: 1,
        epoch: Epoch(epoch),
        catalog_version: 12,
        dml_position: epoch * 10,
        now_us: 1_700_000_000_000_000,
        jobs: vec![ManifestJob {
            job: ObjectId(20_000),
            fingerprints: vec![(0, "aggregate".to_owned())],
            backfilled: true,
        }],
        offsets: vec![(
            OffsetKey { reader: ObjectId(20_001), scan: 0, split: "p\"0".to_owned() },
            Offset("42".to_owned()),
        )],
        unaligned: false,
        handles: vec![CommitHandle {
            sink: ObjectId(3),
            actor: 0,
            epoch: Epoch(epoch),
            payload: "{}".to_owned(),
        }],
        files: vec![StateFile { name: "000001.sst".to_owned(), size: 3, crc32: 7, stored: None }],
        completed_at_us: 5,
        savepoint: None,
        catalog: None,
        promised: Vec::new(),
        ahead: Vec::new(),
    }
}

#[test]
fn it_comes_back_as_written() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(Manifest::read(dir.path()).unwrap(), None);
    let written = manifest(9);
    written.write(dir.path()).unwrap();
    assert_eq!(Manifest::read(dir.path()).unwrap(), Some(written.clone()));
    assert_eq!(written.total_bytes(), 3);
}

#[test]
fn every_cut_and_every_flipped_bit_shows() {
    let dir = tempfile::tempdir().unwrap();
    manifest(9).write(dir.path()).unwrap();
    let path = dir.path().join(FILE_NAME);
    let content = std::fs::read(&path).unwrap();
    for cut in 0..content.len() {
        std::fs::write(&path, &content[..cut]).unwrap();
        assert!(Manifest::read(dir.path()).is_err(), "{cut}");
    }
    for bit in (0..content.len() * 8).step_by(5) {
        let mut damaged = content.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, damaged).unwrap();
        assert!(Manifest::read(dir.path()).is_err(), "{bit}");
    }
}

#[test]
fn a_bad_one_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let twice = |m: &mut Manifest| m.files.push(m.files[0].clone());
    type Spoil = fn(&mut Manifest);
    let bad: [(&str, Spoil); 10] = [
        ("made of a savepoint of epoch", |m| m.savepoint = Some(Epoch(9))),
        ("format 2 is not 1", |m| m.format = 2),
        ("generation 0 and epoch 9", |m| m.generation = 0),
        ("sink 3 promised epoch 10, which is later", |m| m.handles[0].epoch = Epoch(10)),
        ("\"../x\" is no name", |m| m.files[0].name = "../x".to_owned()),
        ("\"manifest.json\" is no name", |m| m.files[0].name = FILE_NAME.to_owned()),
        ("\"shared/../x\" is no name of an object", |m| {
            m.files[0].stored = Some(Stored { object: "shared/../x".to_owned(), at: 0 });
        }),
        ("state file \"000001.sst\" is there twice", twice),
        ("job #20000 is there twice", |m| m.jobs.push(m.jobs[0].clone())),
        ("offset", |m| m.offsets.push(m.offsets[0].clone())),
    ];
    for (expected, spoil) in bad {
        let mut manifest = manifest(9);
        spoil(&mut manifest);
        let error = manifest.write(dir.path()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(Manifest::read(dir.path()).unwrap(), None);
}
