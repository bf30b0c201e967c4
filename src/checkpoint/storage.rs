//! CheckpointStorage: where checkpoints live, here a directory on a local disk.
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
//! begin → (the store fills the directory) → complete, or abort. Files are shared between
//! checkpoints as hard links, so each directory is whole by itself and any of them may go.
//! **Invariants:** a directory without manifest is no checkpoint; who has a lower generation than
//! another process took writes no manifest.

use super::checksum::{checksum, checksums};
use super::gc;
use super::manifest::{FILE_NAME, Manifest, StateFile};
use crate::failpoint;
use crate::state::durable::{damaged, in_file, sync_dir};
use crate::stream::Epoch;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use uuid::Uuid;

const GENERATION: &str = "generation-";
const DAMAGED: &str = "damaged-";

/// A database's checkpoints.
#[derive(Debug)]
pub struct CheckpointStorage {
    root: PathBuf,
    database: Uuid,
    generation: u64,
    /// Those that exist and are not known to be damaged, oldest first.
    completed: Vec<Manifest>,
    /// The one that was verified and is about to be restored.
    verified: Option<Epoch>,
}

/// What became of a checkpoint.
#[derive(Clone, Debug)]
pub struct Completed {
    /// Its manifest, as written.
    pub manifest: Manifest,
    /// Bytes that it names.
    pub total_bytes: u64,
    /// Bytes that the checkpoint before did not have.
    pub new_bytes: u64,
}

impl CheckpointStorage {
    /// Opens the checkpoints of `database` in `root`, as `generation`, which nobody took before.
    /// What was pending when the process before ended is removed.
    pub fn open(root: &Path, database: Uuid, generation: u64) -> io::Result<Self> {
        std::fs::create_dir_all(root).map_err(in_file(root))?;
        let mut storage =
            Self { root: root.to_owned(), database, generation, completed: Vec::new(), verified: None };
        let (mut damaged, mut pending) = (Vec::new(), Vec::new());
        for epoch in gc::epochs(root)? {
            match storage.read(epoch) {
                Ok(Some(manifest)) => storage.completed.push(manifest),
                Ok(None) => pending.push(epoch),
                Err(error) => damaged.push((epoch, error)),
            }
        }
        if let Some(other) = storage.completed.iter().find(|m| m.database != database) {
            let message = format!("\"{}\" holds checkpoints of database {}", root.display(), other.database);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        storage.take_generation()?;
        storage.completed.sort_by_key(|m| m.epoch);
        for epoch in pending {
            tracing::info!(%epoch, "unfinished checkpoint is removed");
            storage.abort(epoch)?;
        }
        for (epoch, error) in damaged {
            storage.set_aside(epoch, &error);
        }
        Ok(storage)
    }

    /// The directory of the checkpoint of `epoch`.
    pub fn directory(&self, epoch: Epoch) -> PathBuf {
        gc::directory(&self.root, epoch)
    }

    /// The checkpoints that exist, newest first.
    pub fn list(&self) -> impl Iterator<Item = &Manifest> {
        self.completed.iter().rev()
    }

    /// The DML position of the oldest checkpoint: none replays what is at or before it.
    pub fn oldest_dml_position(&self) -> Option<u64> {
        self.completed.iter().map(|m| m.dml_position).min()
    }

    /// Begins a checkpoint: the directory that the store is to make and fill.
    pub fn begin(&self, epoch: Epoch) -> io::Result<PathBuf> {
        if let Some(last) = self.completed.last() {
            assert!(last.epoch < epoch, "checkpoint {epoch} comes after {}", last.epoch);
        }
        self.abort(epoch)?;
        Ok(self.directory(epoch))
    }

    /// What is to be known to measure the checkpoint of `epoch`, whose directory is filled.
    pub fn filled(&self, epoch: Epoch) -> Filled {
        let newest = self.completed.last().map(|last| (self.directory(last.epoch), last.files.clone()));
        Filled { root: self.root.clone(), dir: self.directory(epoch), newest }
    }

    /// Completes a checkpoint, which was `measured`: fills in `format`, `database`, `generation` and
    /// `files`, and publishes the manifest. It is durable on return.
    pub fn complete(&mut self, mut manifest: Manifest, measured: Measured) -> io::Result<Completed> {
        let dir = self.directory(manifest.epoch);
        let Measured { files, new_bytes } = measured;
        manifest.format = super::manifest::FORMAT;
        manifest.database = self.database;
        manifest.generation = self.generation;
        manifest.files = files;
        failpoint::hit("checkpoint.before_manifest")?;
        self.require_generation()?;
        manifest.write(&dir)?;
        self.completed.push(manifest.clone());
        Ok(Completed { total_bytes: manifest.total_bytes(), new_bytes, manifest })
    }

    /// Removes what a checkpoint that was begun, and not completed, left.
    pub fn abort(&self, epoch: Epoch) -> io::Result<()> {
        assert!(self.completed.iter().all(|m| m.epoch != epoch), "checkpoint {epoch} exists");
        gc::remove(&self.root, epoch)
    }

    /// Removes all but the newest `max_retained` checkpoints, and what is unfinished before the
    /// newest of them. Returns the epochs of the checkpoints removed.
    pub fn retain(&mut self, max_retained: usize) -> io::Result<Vec<Epoch>> {
        let epochs: Vec<Epoch> = self.completed.iter().map(|m| m.epoch).collect();
        let plan = gc::plan(&epochs, &gc::epochs(&self.root)?, max_retained);
        for epoch in &plan.expired {
            // Forgotten first: half removed, it is no checkpoint any more.
            self.completed.retain(|m| m.epoch != *epoch);
            gc::remove(&self.root, *epoch)?;
        }
        plan.unfinished.iter().try_for_each(|epoch| gc::remove(&self.root, *epoch))?;
        Ok(plan.expired)
    }

    /// The same as [`CheckpointStorage::newest_intact`], which the next time need not verify again.
    pub fn verify_newest(&mut self) -> io::Result<Option<Manifest>> {
        let newest = self.newest_intact()?;
        self.verified = newest.as_ref().map(|manifest| manifest.epoch);
        Ok(newest)
    }

    /// The newest checkpoint all of whose files are as they were written. One that is damaged is
    /// said so loudly, set aside, and the one before is tried. None if there never was one; an
    /// error if there is none left.
    pub fn newest_intact(&mut self) -> io::Result<Option<Manifest>> {
        let mut reason = None;
        let verified = self.verified.take();
        while let Some(manifest) = self.completed.last() {
            if verified == Some(manifest.epoch) {
                return Ok(Some(manifest.clone()));
            }
            match self.verify(manifest) {
                Ok(()) => return Ok(Some(manifest.clone())),
                Err(error) => {
                    let epoch = manifest.epoch;
                    self.completed.pop();
                    self.set_aside(epoch, &error);
                    reason = Some(error);
                }
            }
        }
        match reason {
            None if self.set_aside_before()? => Err(damaged(&self.root, "no intact checkpoint is left")),
            None => Ok(None),
            Some(error) => {
                Err(damaged(&self.root, format!("no intact checkpoint is left; the oldest: {error}")))
            }
        }
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
        File::create_new(&path).and_then(|f| f.sync_all()).map_err(in_file(&path))?;
        sync_dir(&self.root)?;
        for older in taken {
            std::fs::remove_file(self.root.join(format!("{GENERATION}{older}")))?;
        }
        Ok(())
    }

    /// Fails if another process has taken over.
    fn require_generation(&self) -> io::Result<()> {
        match self.generations()?.iter().max() {
            Some(newest) if *newest == self.generation => Ok(()),
            newest => {
                let message = format!("generation {} was fenced off by {newest:?}", self.generation);
                Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
            }
        }
    }

    fn generations(&self) -> io::Result<Vec<u64>> {
        let names = std::fs::read_dir(&self.root).map_err(in_file(&self.root))?;
        let names = names.map(|entry| entry.map(|e| e.file_name().to_string_lossy().into_owned()));
        let names = names.collect::<io::Result<Vec<String>>>()?;
        Ok(names.iter().filter_map(|n| n.strip_prefix(GENERATION)?.parse().ok()).collect())
    }

    fn set_aside(&self, epoch: Epoch, error: &io::Error) {
        tracing::error!(%epoch, %error, "CHECKPOINT IS DAMAGED and set aside; falling back to the one before");
        let from = self.directory(epoch);
        let name = from.file_name().map(|n| format!("{DAMAGED}{}", n.to_string_lossy())).unwrap_or_default();
        if let Err(error) = std::fs::rename(&from, self.root.join(name)) {
            tracing::error!(%epoch, %error, "could not set the damaged checkpoint aside");
        }
    }

    /// Whether a checkpoint was set aside, now or by a process before.
    fn set_aside_before(&self) -> io::Result<bool> {
        let mut names = std::fs::read_dir(&self.root)?;
        names.try_fold(false, |found, e| Ok(found || e?.file_name().to_string_lossy().starts_with(DAMAGED)))
    }
}

/// A checkpoint whose directory the store has filled. To measure it takes time, and no lock.
#[derive(Debug)]
pub struct Filled {
    root: PathBuf,
    dir: PathBuf,
    /// The directory and files of the checkpoint before.
    newest: Option<(PathBuf, Vec<StateFile>)>,
}

/// The files of a checkpoint, which are durable.
#[derive(Debug)]
pub struct Measured {
    files: Vec<StateFile>,
    /// Bytes that the checkpoint before did not have.
    new_bytes: u64,
}

impl Filled {
    /// Takes the checksums of its files and makes its directory durable. A checksum is computed once
    /// in the life of a file: a link to one that the checkpoint before has takes it from there.
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
            let crc32 = match self.known_checksum(&name, &metadata) {
                Some(crc32) => crc32,
                None => {
                    measured.new_bytes += metadata.len();
                    checksum(&entry.path())?
                }
            };
            measured.files.push(StateFile { name, size: metadata.len(), crc32 });
        }
        measured.files.sort_by(|a, b| a.name.cmp(&b.name));
        sync_dir(&self.dir).map_err(in_file(&self.dir))?;
        sync_dir(&self.root)?;
        Ok(measured)
    }

    /// The checksum of a file that the newest checkpoint has under the same name, if it is the
    /// same file and not one of that name from another life of the store.
    fn known_checksum(&self, name: &str, metadata: &Metadata) -> Option<u32> {
        let (newest, files) = self.newest.as_ref()?;
        let file = files.iter().find(|f| f.name == name && f.size == metadata.len())?;
        let before = std::fs::metadata(newest.join(name)).ok()?;
        (before.ino() == metadata.ino() && before.dev() == metadata.dev()).then_some(file.crc32)
    }
}

#[cfg(test)]
#[path = "tests/storage.rs"]
mod tests;
