//! Tests of retention: what goes, and that any step of going may be the last.

use super::super::manifest::Manifest;
use super::super::manifest::tests::manifest;
use super::*;
use crate::failpoint::testing;

fn epochs_of(numbers: &[u64]) -> Vec<Epoch> {
    numbers.iter().copied().map(Epoch).collect()
}

#[test]
fn the_newest_stay_and_what_may_be_pending() {
    let all = |numbers: &[u64]| numbers.iter().map(|n| (Epoch(*n), true)).collect::<Vec<_>>();
    let completed = all(&[2, 4, 6, 8]);
    let found = epochs_of(&[1, 2, 3, 4, 6, 8, 9]);
    let unfinished = epochs_of(&[1, 3]);
    let plan_of = |max| plan(&completed, &found, max);
    assert_eq!(plan_of(2), Plan { expired: epochs_of(&[2, 4]), unfinished: unfinished.clone() });
    assert_eq!(plan_of(9), Plan { expired: vec![], unfinished: unfinished.clone() });
    assert_eq!(plan_of(0), Plan { expired: epochs_of(&[2, 4, 6]), unfinished });
    assert_eq!(plan(&[], &found, 1), Plan::default());
    // Only those that are kept elsewhere as well count, where they should be.
    let some: Vec<_> = completed.iter().map(|(epoch, _)| (*epoch, epoch.0 % 4 == 0)).collect();
    let expired = |max| plan(&some, &[], max).expired;
    assert_eq!((expired(1), expired(2), expired(3)), (epochs_of(&[2, 4, 6]), epochs_of(&[2]), vec![]));
}

#[test]
fn any_step_may_be_the_last() {
    for (point, exists) in [
        ("gc.before_manifest", true),
        ("gc.after_manifest", false),
        ("gc.between_files:1", false),
        ("gc.between_files:2", false),
        ("gc.after_directory", false),
    ] {
        let root = tempfile::tempdir().unwrap();
        let dir = directory(root.path(), Epoch(5));
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("000001.sst"), b"abc").unwrap();
        std::fs::write(dir.join("CURRENT"), b"abc").unwrap();
        manifest(5).write(&dir).unwrap();
        testing::set(&format!("{point}=error"));
        assert!(remove(root.path(), Epoch(5)).is_err());
        testing::set("");
        assert_eq!(Manifest::read(&dir).unwrap().is_some(), exists, "{point}");
        assert!(!exists || dir.join("000001.sst").exists());
        // What the next start does with a directory that is no checkpoint.
        remove(root.path(), Epoch(5)).unwrap();
        assert_eq!(epochs(root.path()).unwrap(), []);
    }
}

#[test]
fn what_the_store_began_is_found_and_removed() {
    let root = tempfile::tempdir().unwrap();
    let dir = directory(root.path(), Epoch(5));
    std::fs::create_dir(dir.with_extension("tmp")).unwrap();
    std::fs::create_dir(&dir).unwrap();
    std::fs::create_dir(root.path().join("damaged-00007")).unwrap();
    assert_eq!(epochs(root.path()).unwrap(), epochs_of(&[5]));
    remove(root.path(), Epoch(5)).unwrap();
    assert_eq!(epochs(root.path()).unwrap(), []);
}
