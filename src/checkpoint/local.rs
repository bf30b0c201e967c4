//! LocalStorage: checkpoints in a directory on a local disk.
//!
//! ```text
//!   checkpoints/
//!     generation-7               whose turn it is to write: made exclusively, the highest counts
//!     00000000000000004711/      a checkpoint: links to the store's files, then the manifest
//!       000012.sst  CURRENT  MANIFEST-000005  …
//!       manifest.json            written last: with it the checkpoint exists
//!     00000000000000004722/      pending: no manifest yet
//!     damaged-00000000000000004700/   did not verify; kept to be looked at
//! ```
//! Files are shared between checkpoints as hard links, so each directory is whole by itself and any of
//! them may go. **Invariants:** a directory without manifest is no checkpoint; who has a lower
//! generation than another process took writes no manifest.

use super::checksum::{checksum, checksums};
use super::gc;
use super::manifest::{FILE_NAME, Manifest, StateFile};
use crate::failpoint;
use crate::state::durable::{damaged, in_file, sync_dir, sync_file};
use crate::state::ownership::Ownership;
use crate::stream::Epoch;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uuid::Uuid;

const GENERATION: &str = "generation-";
const DAMAGED: &str = "damaged-";

/// A directory of checkpoints.
#[derive(Debug)]
pub struct LocalStorage {
    root: PathBuf,
    database: Uuid,
    generation: u64,
    /// What tells that another process may write here.
    ownership: Option<Arc<Ownership>>,
}

impl LocalStorage {
    /// Opens the checkpoints of `database` in `root`, as `generation`, which nobody took before.
    /// Returns those that exist, oldest first. What was pending when the process before ended is removed.
    pub fn open(root: &Path, database: Uuid, generation: u64) -> io::Result<(Self, Vec<Manifest>)> {
        std::fs::create_dir_all(root).map_err(in_file(root))?;
        let storage = Self::at(root, database, generation);
        let (mut completed, mut damaged, mut pending) = (Vec::new(), Vec::new(), Vec::new());
        for epoch in gc::epochs(root)? {
            match storage.read(epoch) {
                Ok(Some(manifest)) => completed.push(manifest),
                Ok(None) => pending.push(epoch),
                Err(error) => damaged.push((epoch, error)),
            }
        }
        if let Some(other) = completed.iter().find(|m| m.database != database) {
            let message = format!("\"{}\" holds checkpoints of database {}", root.display(), other.database);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        storage.take_generation()?;
        for epoch in pending {
            tracing::info!(%epoch, "unfinished checkpoint is removed");
            gc::remove(root, epoch)?;
        }
        for (epoch, error) in damaged {
            storage.set_aside(epoch, &error);
        }
        Ok((storage, completed))
    }

    /// The same before anybody has opened it: nothing is written as `generation` yet.
    pub fn at(root: &Path, database: Uuid, generation: u64) -> Self {
        Self { root: root.to_owned(), database, generation, ownership: None }
    }

    /// From now on nothing is completed or removed where the directory is another process's.
    pub fn guard(&mut self, ownership: &Arc<Ownership>) {
        self.ownership = Some(Arc::clone(ownership));
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory of the checkpoint of `epoch`.
    pub fn directory(&self, epoch: Epoch) -> PathBuf {
        gc::directory(&self.root, epoch)
    }

    /// Publishes a manifest, whose files are in its directory: fills in `format`, `database` and
    /// `generation`. It is durable on return.
    pub fn complete(&self, manifest: &mut Manifest) -> io::Result<()> {
        self.write_manifest(&self.directory(manifest.epoch), manifest)
    }

    /// The same, in any directory.
    pub fn write_manifest(&self, dir: &Path, manifest: &mut Manifest) -> io::Result<()> {
        manifest.format = super::manifest::FORMAT;
        manifest.database = self.database;
        manifest.generation = self.generation;
        failpoint::hit("checkpoint.before_manifest")?;
        self.require_generation()?;
        manifest.write(dir)?;
        // Another process may have looked for checkpoints before this one was there: nobody is told of it.
        self.require_generation()
    }

    /// Removes the checkpoint of `epoch`, or what there is of one that was not completed.
    pub fn remove(&self, epoch: Epoch) -> io::Result<()> {
        self.require_ownership()?;
        gc::remove(&self.root, epoch)
    }

    fn require_ownership(&self) -> io::Result<()> {
        self.ownership.as_ref().map_or(Ok(()), |ownership| ownership.check())
    }

    /// Checks the size and checksum of every file that `manifest` names.
    pub fn verify(&self, manifest: &Manifest) -> io::Result<()> {
        let dir = self.directory(manifest.epoch);
        // Sizes first: they are cheap, and tell most.
        for file in &manifest.files {
            let path = dir.join(&file.name);
            let size = std::fs::metadata(&path).map_err(in_file(&path))?.len();
            if size != file.size {
                return Err(damaged(&path, format!("it has {size} bytes instead of {}", file.size)));
            }
        }
        let started = std::time::Instant::now();
        let files: Vec<_> = manifest.files.iter().map(|file| (dir.join(&file.name), file.size)).collect();
        let sums = checksums(&files)?;
        for ((file, (path, _)), sum) in manifest.files.iter().zip(&files).zip(sums) {
            if sum != file.crc32 {
                return Err(damaged(path, "its checksum is wrong"));
            }
        }
        let (bytes, elapsed_ms) = (manifest.total_bytes(), started.elapsed().as_millis() as u64);
        tracing::info!(epoch = %manifest.epoch, bytes, elapsed_ms, "checkpoint's files verified");
        Ok(())
    }

    /// Reads the manifest of `epoch`; none if it was never completed.
    fn read(&self, epoch: Epoch) -> io::Result<Option<Manifest>> {
        let dir = self.directory(epoch);
        let Some(manifest) = Manifest::read(&dir)? else { return Ok(None) };
        if manifest.epoch != epoch {
            return Err(damaged(&dir, format!("its manifest is of epoch {}", manifest.epoch)));
        }
        Ok(Some(manifest))
    }

    /// Makes this generation the one that may write.
    fn take_generation(&self) -> io::Result<()> {
        let taken = self.generations()?;
        if let Some(newer) = taken.iter().find(|g| **g >= self.generation) {
            let message = format!("generation {newer} already writes to \"{}\"", self.root.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
        }
        let path = self.root.join(format!("{GENERATION}{}", self.generation));
        File::create_new(&path).and_then(|f| sync_file(&f)).map_err(in_file(&path))?;
        sync_dir(&self.root)?;
        for older in taken {
            std::fs::remove_file(self.root.join(format!("{GENERATION}{older}")))?;
        }
        Ok(())
    }

    /// Fails if another process has taken over.
    fn require_generation(&self) -> io::Result<()> {
        self.require_ownership()?;
        match self.generations()?.iter().max() {
            Some(newest) if *newest == self.generation => Ok(()),
            newest => {
                let message = format!("generation {} was fenced off by {newest:?}", self.generation);
                Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
            }
        }
    }

    fn generations(&self) -> io::Result<Vec<u64>> {
        Ok(self.names()?.iter().filter_map(|n| n.strip_prefix(GENERATION)?.parse().ok()).collect())
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let names = std::fs::read_dir(&self.root).map_err(in_file(&self.root))?;
        names.map(|entry| entry.map(|e| e.file_name().to_string_lossy().into_owned())).collect()
    }

    /// Keeps a damaged checkpoint under another name, to be looked at.
    pub fn set_aside(&self, epoch: Epoch, error: &io::Error) {
        tracing::error!(%epoch, %error, "CHECKPOINT IS DAMAGED and set aside; falling back to the one before");
        if let Err(error) = self.rename_damaged(epoch) {
            tracing::error!(%epoch, %error, "could not set the damaged checkpoint aside");
        }
    }

    /// Gives the directory of `epoch` a name that is none of a checkpoint.
    pub fn rename_damaged(&self, epoch: Epoch) -> io::Result<()> {
        let from = self.directory(epoch);
        let name = format!("{DAMAGED}{}", from.file_name().unwrap_or_default().to_string_lossy());
        // One of that name may have been set aside before.
        let mut to = self.root.join(&name);
        let mut number = 1;
        while to.exists() {
            number += 1;
            to = self.root.join(format!("{name}-{number}"));
        }
        std::fs::rename(&from, &to)
    }

    /// Whether a checkpoint was set aside, now or by a process before.
    pub fn has_damaged(&self) -> io::Result<bool> {
        Ok(self.names()?.iter().any(|name| name.starts_with(DAMAGED)))
    }
}

/// A checkpoint whose directory the store has filled. To measure it takes time, and no lock.
#[derive(Debug)]
pub struct Filled {
    /// The directory.
    pub dir: PathBuf,
    /// The directory and files of the checkpoint before.
    pub newest: Option<(PathBuf, Vec<StateFile>)>,
}

/// The files of a checkpoint, which are durable.
#[derive(Debug)]
pub struct Measured {
    /// The files.
    pub files: Vec<StateFile>,
    /// Bytes that the checkpoint before did not have.
    pub new_bytes: u64,
}

impl Filled {
    /// Takes the checksums of its files and makes its directory durable. A checksum is computed once
    /// in the life of a file: a link to one that the checkpoint before has takes it from there, and
    /// where it is stored.
    pub fn measure(&self) -> io::Result<Measured> {
        let mut measured = Measured { files: Vec::new(), new_bytes: 0 };
        for entry in std::fs::read_dir(&self.dir).map_err(in_file(&self.dir))? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                return Err(damaged(
                    &self.dir,
                    format!("{:?} is no name of a state file", entry.file_name()),
                ));
            };
            if name.starts_with(FILE_NAME) {
                continue;
            }
            let metadata = entry.metadata()?;
            let file = match self.known(&name, &metadata) {
                Some(file) => file.clone(),
                None => {
                    measured.new_bytes += metadata.len();
                    let crc32 = checksum(&entry.path())?;
                    StateFile { name, size: metadata.len(), crc32, stored: None }
                }
            };
            measured.files.push(file);
        }
        measured.files.sort_by(|a, b| a.name.cmp(&b.name));
        sync_dir(&self.dir).map_err(in_file(&self.dir))?;
        sync_dir(crate::state::durable::parent(&self.dir))?;
        Ok(measured)
    }

    /// The file that the newest checkpoint has under the same name, if it is the same one and not one
    /// of that name from another life of the store.
    fn known(&self, name: &str, metadata: &Metadata) -> Option<&StateFile> {
        let (newest, files) = self.newest.as_ref()?;
        let file = files.iter().find(|f| f.name == name && f.size == metadata.len())?;
        let before = std::fs::metadata(newest.join(name)).ok()?;
        (before.ino() == metadata.ino() && before.dev() == metadata.dev()).then_some(file)
    }
}
