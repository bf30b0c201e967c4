//! Download: makes the local directory of a checkpoint whole again, from what is on the disk and what
//! only a remote storage has.
//!
//! ```text
//!   its own directory, those of others ── the same file, intact? ── hard link ──┐
//!   remote storage ── missing files, several at a time, checked ── written ─────┴─> <epoch>.tmp
//!   manifest, fsync ─> rename to <epoch>         what was there before is set aside
//! ```
//! **Invariant:** a file counts only if its size and checksum are what the manifest says.

use super::checksum::checksum;
use super::local::LocalStorage;
use super::manifest::{Manifest, StateFile};
use super::remote::RemoteStorage;
use super::transfer::{Cancel, in_parallel};
use crate::failpoint;
use crate::state::durable::{damaged, in_file, sync_dir, sync_file};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// How often what arrived with a wrong checksum is asked for.
const TRIES: usize = 2;

/// What making a directory whole took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fetched {
    /// Files that were on the disk.
    pub linked: u64,
    /// Files that were downloaded.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
}

impl RemoteStorage {
    /// Makes the directory of the checkpoint of `manifest` in `local` anew; intact files of
    /// `others`, checkpoints with directories there, are used again.
    pub fn fetch(
        &self,
        local: &LocalStorage,
        manifest: &Manifest,
        others: &[Manifest],
    ) -> io::Result<Fetched> {
        let dir = local.directory(manifest.epoch);
        let beside = dir.with_extension("tmp");
        if beside.exists() {
            std::fs::remove_dir_all(&beside).map_err(in_file(&beside))?;
        }
        std::fs::create_dir(&beside).map_err(in_file(&beside))?;
        let (linked, files, bytes) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let mut groups: BTreeMap<Option<&str>, Vec<&StateFile>> = BTreeMap::new();
        for file in &manifest.files {
            groups.entry(file.stored.as_ref().map(|s| s.object.as_str())).or_default().push(file);
        }
        let groups: Vec<_> = groups.into_iter().collect();
        in_parallel(self.transfers(), &groups, |(object, group)| {
            let mut missing = Vec::new();
            for file in group {
                match on_disk(local, manifest, others, file) {
                    Some(path) => {
                        std::fs::hard_link(&path, beside.join(&file.name)).map_err(in_file(&path))?;
                        linked.fetch_add(1, Ordering::Relaxed);
                    }
                    None => missing.push(*file),
                }
            }
            if missing.is_empty() {
                return Ok(());
            }
            let object =
                object.ok_or_else(|| damaged(&dir.join(&missing[0].name), "it is stored nowhere else"))?;
            self.fetch_files(object, &missing, &beside)?;
            files.fetch_add(missing.len() as u64, Ordering::Relaxed);
            bytes.fetch_add(missing.iter().map(|f| f.size).sum(), Ordering::Relaxed);
            failpoint::hit("restore.between_files")
        })?;
        manifest.write(&beside)?;
        sync_dir(&beside)?;
        failpoint::hit("restore.before_rename")?;
        if dir.exists() {
            local.rename_damaged(manifest.epoch)?;
        }
        std::fs::rename(&beside, &dir).map_err(in_file(&dir))?;
        failpoint::hit("restore.after_rename")?;
        sync_dir(local.root())?;
        Ok(Fetched { linked: linked.into_inner(), files: files.into_inner(), bytes: bytes.into_inner() })
    }

    /// Downloads files that are in one object.
    fn fetch_files(&self, object: &str, files: &[&StateFile], dir: &Path) -> io::Result<()> {
        for attempt in 1.. {
            match self.fetch_once(object, files, dir) {
                // Damaged on the way, or where it is kept: another look tells.
                Err(error) if error.kind() == io::ErrorKind::InvalidData && attempt < TRIES => {
                    tracing::warn!(object, %error, "a file of a checkpoint arrived damaged; trying again");
                }
                outcome => return outcome,
            }
        }
        unreachable!("the last attempt returns")
    }

    fn fetch_once(&self, object: &str, files: &[&StateFile], dir: &Path) -> io::Result<()> {
        let create = |file: &&StateFile| {
            let path = dir.join(&file.name);
            let content = File::create(&path).map_err(in_file(&path))?;
            Ok(Part::new(path, content, file))
        };
        self.receive(object, files.iter().map(create).collect::<io::Result<_>>()?)
    }

    /// Downloads what an object holds to where its `parts` go; they are durable on return.
    pub(super) fn receive(&self, object: &str, parts: Vec<Part>) -> io::Result<()> {
        let mut parts = Parts { at: 0, parts };
        match self.objects()?.download(object, &mut parts, &Cancel::default()) {
            Ok(()) => parts.finish(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                Err(damaged(Path::new(object), "it is missing in the checkpoint storage"))
            }
            Err(e) if e.kind() == io::ErrorKind::InvalidData => Err(damaged(Path::new(object), e)),
            Err(e) => Err(e),
        }
    }
}

/// Where an intact copy of a file is: in the checkpoint's own directory, or in that of another one.
fn on_disk(
    local: &LocalStorage,
    manifest: &Manifest,
    others: &[Manifest],
    file: &StateFile,
) -> Option<PathBuf> {
    let same = |f: &&StateFile| f.name == file.name && f.size == file.size && f.crc32 == file.crc32;
    let having = others.iter().filter(|other| other.files.iter().any(|f| same(&f)));
    let dirs = std::iter::once(manifest).chain(having).map(|m| local.directory(m.epoch));
    dirs.map(|dir| dir.join(&file.name)).find(|path| {
        let size = std::fs::metadata(path).map(|metadata| metadata.len());
        size.is_ok_and(|size| size == file.size) && checksum(path).is_ok_and(|sum| sum == file.crc32)
    })
}

/// A file that is part of what an object holds.
pub(super) struct Part {
    path: PathBuf,
    content: File,
    from: u64,
    to: u64,
    crc32: u32,
    sum: crc32fast::Hasher,
}

impl Part {
    /// What `file` says of it; `content` takes it.
    pub(super) fn new(path: PathBuf, content: File, file: &StateFile) -> Self {
        let from = file.stored.as_ref().map_or(0, |stored| stored.at);
        let sum = crc32fast::Hasher::new();
        Self { path, content, from, to: from + file.size, crc32: file.crc32, sum }
    }
}

/// What an object holds, as it arrives: each file takes what is its own.
struct Parts {
    at: u64,
    parts: Vec<Part>,
}

impl Write for Parts {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (from, to) = (self.at, self.at + bytes.len() as u64);
        for part in &mut self.parts {
            let (first, end) = (part.from.max(from), part.to.min(to));
            if first < end {
                let own = &bytes[(first - from) as usize..(end - from) as usize];
                part.content.write_all(own).map_err(in_file(&part.path))?;
                part.sum.update(own);
            }
        }
        self.at = to;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Parts {
    /// Everything has arrived: checks it, and makes it durable.
    fn finish(self) -> io::Result<()> {
        for part in self.parts {
            if self.at < part.to || part.sum.finalize() != part.crc32 {
                return Err(damaged(&part.path, "its checksum in the checkpoint storage is wrong"));
            }
            sync_file(&part.content).map_err(in_file(&part.path))?;
        }
        Ok(())
    }
}
