//! A disk that forgets, for simulations: what was not made durable may be gone after a crash.
//!
//! It notes what this thread syncs ([`super::durable`]): of a file how long it was, of a directory which
//! names it had. [`crash`] then makes of what is there what a power failure may leave: files cut to
//! somewhere between what was synced and what was written, new names gone or as they were before.
//! What was removed stays removed.

use rand::{Rng, rngs::StdRng};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

#[derive(Default)]
struct Disk {
    /// By inode: the length that is durable.
    files: HashMap<u64, u64>,
    /// By inode of the directory, which may get another name: its names that are durable, and their inodes.
    dirs: HashMap<u64, BTreeMap<OsString, u64>>,
}

thread_local!(static DISK: RefCell<Option<Disk>> = const { RefCell::new(None) });

/// From now on this thread's syncs are noted instead of done. What is in `root` is durable.
pub(crate) fn begin(root: &Path) -> io::Result<()> {
    let mut disk = Disk::default();
    disk.settle(root)?;
    DISK.set(Some(disk));
    Ok(())
}

/// This thread's syncs are done again.
pub(crate) fn end() {
    DISK.set(None);
}

/// Whether that is simulated, and noted.
pub(super) fn sync_file(file: &File) -> io::Result<bool> {
    noting(|disk| {
        let metadata = file.metadata()?;
        disk.files.insert(metadata.ino(), metadata.len());
        Ok(())
    })
}

/// Whether that is simulated, and noted.
pub(super) fn sync_dir(dir: &Path) -> io::Result<bool> {
    noting(|disk| {
        let names = names(dir)?;
        disk.dirs.insert(fs::metadata(dir)?.ino(), names);
        Ok(())
    })
}

fn noting(note: impl FnOnce(&mut Disk) -> io::Result<()>) -> io::Result<bool> {
    DISK.with_borrow_mut(|disk| match disk {
        Some(disk) => note(disk).map(|()| true),
        None => Ok(false),
    })
}

/// Makes of `root` what a crash may leave. Returns what it did, in words.
pub(crate) fn crash(root: &Path, random: &mut StdRng) -> io::Result<Vec<String>> {
    let mut did = Vec::new();
    DISK.with_borrow_mut(|disk| {
        let Some(disk) = disk else { return Ok(()) };
        disk.forget(root, random, &mut did)?;
        *disk = Disk::default();
        disk.settle(root)
    })?;
    Ok(did)
}

fn names(dir: &Path) -> io::Result<BTreeMap<OsString, u64>> {
    fs::read_dir(dir)?.map(|entry| entry.and_then(|e| Ok((e.file_name(), e.metadata()?.ino())))).collect()
}

impl Disk {
    /// Everything in `dir` is durable.
    fn settle(&mut self, dir: &Path) -> io::Result<()> {
        let names = names(dir)?;
        for name in names.keys() {
            let path = dir.join(name);
            let metadata = fs::metadata(&path)?;
            if metadata.is_dir() {
                self.settle(&path)?;
            } else {
                self.files.insert(metadata.ino(), metadata.len());
            }
        }
        self.dirs.insert(fs::metadata(dir)?.ino(), names);
        Ok(())
    }

    fn forget(&mut self, dir: &Path, random: &mut StdRng, did: &mut Vec<String>) -> io::Result<()> {
        let durable = self.dirs.get(&fs::metadata(dir)?.ino()).cloned().unwrap_or_default();
        let there = names(dir)?;
        for (name, inode) in &there {
            let path = dir.join(name);
            // A name that came since the directory was synced, or points elsewhere since.
            if !durable.contains_key(name) && random.random_bool(0.5) {
                let before = durable.iter().find(|(other, i)| *i == inode && !there.contains_key(*other));
                match before {
                    Some((other, _)) => {
                        did.push(format!("{} is {} again", path.display(), other.display()));
                        fs::rename(&path, dir.join(other))?;
                    }
                    None if path.is_dir() => {
                        did.push(format!("{} is gone", path.display()));
                        fs::remove_dir_all(&path)?;
                    }
                    None => {
                        did.push(format!("{} is gone", path.display()));
                        fs::remove_file(&path)?;
                    }
                }
            }
        }
        for name in names(dir)?.into_keys() {
            if ["history.jsonl", "LOCK"].iter().any(|other| name.as_os_str() == *other) {
                // Nothing depends on them, and they tell times of the real clock, and of the real process.
                continue;
            }
            let path = dir.join(name);
            let metadata = fs::metadata(&path)?;
            if metadata.is_dir() {
                self.forget(&path, random, did)?;
                continue;
            }
            let (length, durable) = (metadata.len(), self.files.get(&metadata.ino()).copied().unwrap_or(0));
            if length > durable {
                let left = random.random_range(durable..=length);
                did.push(format!("{} of {length} bytes has {left}", path.display()));
                File::options().write(true).open(&path)?.set_len(left)?;
            }
        }
        Ok(())
    }
}

#[test]
fn only_what_was_synced_is_sure_to_stay() {
    use rand::SeedableRng;
    use std::io::Write;
    let (mut lost, mut torn) = (0, 0);
    for seed in 0..40 {
        let dir = tempfile::tempdir().unwrap();
        begin(dir.path()).unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["synced", "unnamed"] {
            let mut file = File::create(path(name)).unwrap();
            file.write_all(b"12345").unwrap();
            super::durable::sync_file(&file).unwrap();
            file.write_all(b"6789").unwrap();
            if name == "synced" {
                super::durable::sync_dir(dir.path()).unwrap();
            }
        }
        super::durable::write_atomically(&path("number"), b"7", "test").unwrap();
        fs::remove_file(path("number")).unwrap();
        crash(dir.path(), &mut StdRng::seed_from_u64(seed)).unwrap();
        let synced = fs::read(path("synced")).unwrap();
        assert!(synced.starts_with(b"12345"));
        torn += u32::from(synced.len() < 9);
        // It was synced with the directory when the number was written.
        assert!(fs::read(path("unnamed")).unwrap().starts_with(b"12345"));
        File::create(path("new")).unwrap();
        crash(dir.path(), &mut StdRng::seed_from_u64(seed)).unwrap();
        lost += u32::from(!path("new").exists());
        end();
    }
    assert!((5..40).contains(&lost) && torn > 5, "{lost} lost, {torn} torn");
}
