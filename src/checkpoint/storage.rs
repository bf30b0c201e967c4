//! CheckpointStorage: where checkpoints live. One thing to those who make, restore and remove them,
//! whether they stay on the local disk or go to an object store as well.
//!
//! ```text
//!   begin ─> (the store fills the directory) ─> store: measure ── upload what is new ──┐  only with
//!                                               manifest in the directory <────────────┘  a remote
//!                                               manifest in the remote log                storage
//!            restore: the local directory if it is intact, else made whole by a download
//!            retain:  manifests first, then what only they named
//! ```
//! The local directory is always made: it is what a restart restores from, and with no remote storage
//! it is all there is. With one, a checkpoint is complete when the remote log has its manifest. The
//! local manifest is written before: a restart never goes back behind what the remote storage has.
//!
//! **Invariants:** a checkpoint exists when a manifest exists; of two the one of the higher generation,
//! then of the higher epoch, is the newer; nothing is asked of a remote storage under the lock while
//! the dataflow runs.

use super::belongings::Belongings;
use super::download::Fetched;
use super::gc;
use super::hold::Holds;
use super::local::LocalStorage;
pub use super::local::{Filled, Measured};
use super::manifest::Manifest;
use super::remote::{RemoteStorage, Unpublished};
use super::transfer::Cancel;
use super::upload::Uploaded;
use crate::config::StorageSettings;
use crate::state::durable::damaged;
use crate::state::ownership::Ownership;
use crate::stream::Epoch;
use parking_lot::Mutex;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uuid::Uuid;

/// A database's checkpoints.
#[derive(Debug)]
pub struct CheckpointStorage {
    local: LocalStorage,
    database: Uuid,
    generation: u64,
    remote: Option<Arc<RemoteStorage>>,
    /// Whether what the remote log holds is among `completed`.
    merged: bool,
    /// Those that exist and are not known to be damaged, oldest first.
    completed: Vec<Entry>,
    /// The one that was verified and is about to be restored.
    verified: Option<Epoch>,
    /// Whether one was given up because it was damaged.
    gave_up: bool,
    /// What came before this one belongs to another catalog.
    since: Epoch,
    /// Those that somebody reads.
    pub(super) holds: Holds,
}

/// A checkpoint that exists.
#[derive(Clone, Debug)]
struct Entry {
    manifest: Manifest,
    /// Whether it has a directory.
    local: bool,
}

/// What orders checkpoints: the generation, then the epoch.
type Key = (u64, Epoch);

impl Entry {
    fn key(&self) -> Key {
        key(&self.manifest)
    }
}

fn key(manifest: &Manifest) -> Key {
    (manifest.generation, manifest.epoch)
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
    /// What went to the remote storage.
    pub uploaded: Uploaded,
    /// How long that took.
    pub upload: std::time::Duration,
}

impl CheckpointStorage {
    /// Opens the checkpoints of `database` in `root`, as `generation`, which nobody took before.
    /// What was pending when the process before ended is removed.
    pub fn open(root: &Path, database: Uuid, generation: u64) -> io::Result<Self> {
        let (local, manifests) = LocalStorage::open(root, database, generation)?;
        let completed = manifests.into_iter().map(|manifest| Entry { manifest, local: true });
        let mut storage = Self {
            local,
            database,
            generation,
            remote: None,
            merged: false,
            completed: completed.collect(),
            verified: None,
            gave_up: false,
            since: Epoch::ZERO,
            holds: Holds::default(),
        };
        storage.sort();
        Ok(storage)
    }

    /// From now on nothing is completed or removed where the data directory is another process's.
    pub fn guard(&mut self, ownership: &Arc<Ownership>) {
        self.local.guard(ownership);
    }

    /// Where its directories are.
    pub fn root(&self) -> &Path {
        self.local.root()
    }

    /// Whose generation it writes as.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Forgets what came before the checkpoint of `epoch`: RESTORE put that one in its place. A remote
    /// storage removes it with its next clean-up.
    pub fn forget_before(&mut self, epoch: Epoch) -> io::Result<()> {
        self.since = epoch;
        let before = |entry: &Entry| entry.manifest.epoch < epoch;
        let forgotten: Vec<Entry> = self.completed.iter().filter(|entry| before(entry)).cloned().collect();
        self.completed.retain(|entry| !before(entry));
        forgotten.iter().filter(|e| e.local).try_for_each(|e| self.local.remove(e.manifest.epoch))
    }

    /// Takes in the checkpoint of `epoch`, which was put into its directory, in place of all before.
    pub fn adopt(&mut self, epoch: Epoch) -> io::Result<()> {
        let dir = self.directory(epoch);
        let manifest = Manifest::read(&dir)?.ok_or_else(|| damaged(&dir, "it has no manifest"))?;
        self.completed.retain(|entry| entry.manifest.epoch != epoch);
        self.completed.push(Entry { manifest, local: true });
        self.sort();
        self.forget_before(epoch)
    }

    /// Writes the manifest of a checkpoint that is put together in a directory that is none of a
    /// checkpoint yet: fills in `format`, `database` and `generation`.
    pub fn write_staged(&self, dir: &Path, manifest: &mut Manifest) -> io::Result<()> {
        self.local.write_manifest(dir, manifest)
    }

    fn sort(&mut self) {
        self.completed.sort_by_key(Entry::key);
    }

    /// From now on checkpoints go where `settings` say. Nothing is asked of the storage yet.
    pub fn set(&mut self, settings: &StorageSettings) {
        match &self.remote {
            Some(remote) if remote.is_of(settings) => remote.set_limits(settings),
            None if settings.url.is_none() => {}
            _ => {
                let new = || Arc::new(RemoteStorage::new(settings, self.database, self.generation));
                let remote = settings.url.is_some().then(new);
                self.use_remote(remote);
            }
        }
    }

    /// From now on checkpoints go to `remote` as well, or to none.
    pub(super) fn use_remote(&mut self, remote: Option<Arc<RemoteStorage>>) {
        self.remote = remote;
        self.merged = false;
        // Another storage has none of what only the one before had.
        self.completed.retain(|entry| entry.local);
    }

    /// Opens the remote storage, if there is one, and finds its checkpoints, at a start: those that are
    /// not on the disk count as well.
    pub fn open_remote(&mut self) -> io::Result<()> {
        let Some(remote) = self.remote.clone().filter(|_| !self.merged) else { return Ok(()) };
        remote.open(self.newest_local())?;
        for (_, manifest) in remote.manifests() {
            if manifest.database != self.database {
                let message = format!("the storage holds checkpoints of database {}", manifest.database);
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }
            let known = self.completed.iter().any(|entry| entry.key() == key(&manifest));
            if !known && manifest.epoch >= self.since {
                self.completed.push(Entry { manifest, local: false });
            }
        }
        self.sort();
        self.merged = true;
        self.publish_pledged(&remote);
        Ok(())
    }

    /// The newest checkpoint that is on the disk.
    fn newest_local(&self) -> Option<&Manifest> {
        self.completed.iter().rev().find(|entry| entry.local).map(|entry| &entry.manifest)
    }

    /// The process before may have died between the two manifests of its last checkpoint: then the remote
    /// storage gets its own now, before anything is built on what the disk has.
    fn publish_pledged(&self, remote: &RemoteStorage) {
        let Some(Entry { manifest, local: true }) = self.completed.last() else { return };
        if self.is_kept(manifest) {
            return;
        }
        match remote.publish_pledged(manifest) {
            Ok(true) => {
                tracing::info!(epoch = %manifest.epoch, "the last checkpoint is in checkpoint.storage now")
            }
            Ok(false) => {}
            Err(Unpublished { error, .. }) => {
                tracing::warn!(%error, "could not put the last checkpoint into checkpoint.storage");
            }
        }
    }

    /// Whether a checkpoint is where all of them are to be: a lost disk does not take it back. Only then
    /// sinks may deliver what it promises.
    pub fn is_kept(&self, manifest: &Manifest) -> bool {
        self.remote.as_ref().is_none_or(|remote| remote.holds(manifest.generation, manifest.epoch))
    }

    /// The remote storage was opened while the dataflow runs: it was away at the start, or is another one
    /// now. What it holds must be no newer than what the dataflow was restored from.
    fn opened_late(&mut self, remote: &RemoteStorage) -> io::Result<()> {
        if self.merged {
            return Ok(());
        }
        let newest = self.completed.last().map(Entry::key);
        let found = remote.manifests();
        if let Some((_, newer)) = found.iter().rev().find(|(_, m)| Some(key(m)) > newest) {
            let message = format!(
                "it holds a checkpoint of epoch {}, which is newer than what this server was started from; \
                 restart the server",
                newer.epoch
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
        let known = |manifest: &Manifest| self.completed.iter().any(|entry| entry.key() == key(manifest));
        remote.disown(found.iter().filter(|(_, m)| !known(m)).map(|(number, _)| *number));
        // What comes next takes its place.
        if let Some(pledged) = self.newest_local() {
            remote.release(pledged.epoch);
        }
        self.merged = true;
        Ok(())
    }

    /// Whether there is a checkpoint on the disk.
    pub fn has_local(&self) -> bool {
        self.completed.iter().any(|entry| entry.local)
    }

    /// The directory of the checkpoint of `epoch`.
    pub fn directory(&self, epoch: Epoch) -> PathBuf {
        self.local.directory(epoch)
    }

    /// The checkpoints that exist, newest first.
    pub fn list(&self) -> impl Iterator<Item = &Manifest> {
        self.completed.iter().rev().map(|entry| &entry.manifest)
    }

    /// The DML position of the oldest checkpoint: none replays what is at or before it.
    pub fn oldest_dml_position(&self) -> Option<u64> {
        self.list().map(|m| m.dml_position).min()
    }

    /// Begins a checkpoint: the directory that the store is to make and fill.
    pub fn begin(&self, epoch: Epoch) -> io::Result<PathBuf> {
        if let Some(last) = self.completed.last() {
            assert!(last.manifest.epoch < epoch, "checkpoint {epoch} comes after {}", last.manifest.epoch);
        }
        self.abort(epoch)?;
        Ok(self.directory(epoch))
    }

    /// What is to be known to measure the checkpoint of `epoch`, whose directory is filled.
    pub fn filled(&self, epoch: Epoch) -> Filled {
        let newest = self.completed.iter().rev().find(|entry| entry.local);
        let newest = newest.map(|e| (self.directory(e.manifest.epoch), e.manifest.files.clone()));
        Filled { dir: self.directory(epoch), newest }
    }

    /// Publishes the manifest of a checkpoint in its directory: fills in `format`, `database` and
    /// `generation`.
    fn complete(&mut self, mut manifest: Manifest) -> io::Result<Manifest> {
        self.local.complete(&mut manifest)?;
        self.completed.push(Entry { manifest: manifest.clone(), local: true });
        Ok(manifest)
    }

    /// Takes back a checkpoint that did not come to be.
    fn withdraw(&mut self, epoch: Epoch) -> io::Result<()> {
        self.completed.retain(|entry| entry.manifest.epoch != epoch);
        self.local.remove(epoch)
    }

    /// Removes what a checkpoint that was begun, and not completed, left.
    pub fn abort(&self, epoch: Epoch) -> io::Result<()> {
        assert!(self.list().all(|m| m.epoch != epoch), "checkpoint {epoch} exists");
        self.local.remove(epoch)
    }

    /// The same as [`CheckpointStorage::newest_intact`], which the next time need not verify again.
    pub fn verify_newest(&mut self) -> io::Result<Option<Manifest>> {
        let newest = self.newest_intact()?;
        self.verified = newest.as_ref().map(|manifest| manifest.epoch);
        Ok(newest)
    }

    /// The newest checkpoint all of whose files are as they were written, in its directory: downloaded
    /// where only the remote storage has them. One that is damaged is said so loudly, set aside, and the
    /// one before is tried. None if there never was one; an error if there is none left, or if the
    /// remote storage is needed and can't be asked. Nothing may be running: a download takes time.
    pub fn newest_intact(&mut self) -> io::Result<Option<Manifest>> {
        let mut reason = None;
        let verified = self.verified.take();
        while let Some(Entry { manifest, local }) = self.completed.last().cloned() {
            if verified == Some(manifest.epoch) {
                return Ok(Some(manifest));
            }
            let damage = match local {
                true => self.local.verify(&manifest).err(),
                false => Some(io::Error::new(io::ErrorKind::NotFound, "it has no local copy")),
            };
            let Some(damage) = damage else { return Ok(Some(manifest)) };
            if self.remote.is_some() && !self.merged {
                // It was away at the start. Only this one is known to be as new as what it holds.
                self.open_remote()?;
                continue;
            }
            let Some(damage) = self.download(&manifest, damage)? else { return Ok(Some(manifest)) };
            self.give_up(manifest.epoch, local, &damage);
            reason = Some(damage);
        }
        match reason {
            None if self.gave_up || self.local.has_damaged()? => {
                Err(damaged(self.local.root(), "no intact checkpoint is left"))
            }
            None => Ok(None),
            Some(error) => {
                Err(damaged(self.local.root(), format!("no intact checkpoint is left; the oldest: {error}")))
            }
        }
    }

    /// Makes the newest checkpoint, the directory of which has `damage`, whole by what the remote storage
    /// has. Returns what is damaged all the same.
    fn download(&mut self, manifest: &Manifest, damage: io::Error) -> io::Result<Option<io::Error>> {
        let (generation, epoch) = key(manifest);
        let Some(remote) = self.remote.clone().filter(|r| r.holds(generation, epoch)) else {
            return Ok(Some(damage));
        };
        tracing::warn!(%epoch, reason = %damage, "the local copy of a checkpoint is not whole: downloading");
        let started = std::time::Instant::now();
        let others = self.completed.iter().filter(|entry| entry.local).map(|entry| entry.manifest.clone());
        match remote.fetch(&self.local, manifest, &others.collect::<Vec<_>>()) {
            Ok(Fetched { linked, files, bytes }) => {
                let elapsed_ms = started.elapsed().as_millis() as u64;
                tracing::info!(%epoch, linked, files, bytes, elapsed_ms, "checkpoint downloaded");
                self.completed.iter_mut().filter(|e| e.manifest.epoch == epoch).for_each(|e| e.local = true);
                Ok(None)
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(Some(error)),
            Err(error) => Err(error),
        }
    }

    /// The newest checkpoint is damaged wherever it is.
    fn give_up(&mut self, epoch: Epoch, local: bool, damage: &io::Error) {
        self.completed.pop();
        self.gave_up = true;
        match local {
            true => self.local.set_aside(epoch, damage),
            false => {
                tracing::error!(%epoch, error = %damage, "CHECKPOINT IS DAMAGED; falling back to the one before");
            }
        }
    }

    /// Forgets and removes all but the newest `max_retained` checkpoints (of the remote storage, if
    /// there is one), and what is unfinished before the newest of them. Returns the epochs of those that
    /// went, and the oldest that stays.
    fn expire(&mut self, max_retained: usize) -> io::Result<(Vec<Epoch>, Option<Key>)> {
        let counts = |entry: &Entry| match &self.remote {
            Some(remote) => remote.holds(entry.manifest.generation, entry.manifest.epoch),
            None => true,
        };
        let completed: Vec<_> = self.completed.iter().map(|e| (e.manifest.epoch, counts(e))).collect();
        let mut plan = gc::plan(&completed, &gc::epochs(self.local.root())?, max_retained);
        plan.expired.retain(|epoch| !self.holds.keep(*epoch));
        for epoch in &plan.expired {
            // Forgotten first: half removed, it is no checkpoint any more.
            self.completed.retain(|entry| entry.manifest.epoch != *epoch);
            self.local.remove(*epoch)?;
        }
        plan.unfinished.iter().try_for_each(|epoch| self.local.remove(*epoch))?;
        Ok((plan.expired, self.completed.first().map(Entry::key)))
    }
}

/// Makes a checkpoint of the directory that the store has filled for `manifest`, whose `files` and
/// identity are filled in here. Where there is a remote storage, what `belongings` gives goes with it. It is
/// durable on return, wherever it is kept; after an error nothing is left of it, or what is left is whole.
/// It takes its time, and locks `storage` for moments only.
pub fn store(
    storage: &Mutex<CheckpointStorage>,
    manifest: Manifest,
    belongings: impl FnOnce() -> io::Result<Belongings>,
    cancel: &Cancel,
) -> io::Result<Completed> {
    let epoch = manifest.epoch;
    let remote = storage.lock().remote.clone();
    let completed = fill(storage, remote.as_deref(), manifest, belongings, cancel).inspect_err(|_| {
        if let Some(remote) = &remote {
            remote.release(epoch);
        }
        if let Err(error) = storage.lock().abort(epoch) {
            tracing::warn!(%epoch, %error, "could not clean up a failed checkpoint");
        }
    })?;
    let Some(remote) = remote else { return Ok(completed) };
    match remote.publish(&completed.manifest) {
        Ok(()) => Ok(completed),
        // It may exist: then it must be found here as well.
        Err(Unpublished { error, perhaps: true }) => Err(error),
        Err(Unpublished { error, perhaps: false }) => {
            if let Err(error) = storage.lock().withdraw(epoch) {
                tracing::warn!(%epoch, %error, "could not clean up a failed checkpoint");
            }
            Err(error)
        }
    }
}

/// All of it but the remote manifest.
fn fill(
    storage: &Mutex<CheckpointStorage>,
    remote: Option<&RemoteStorage>,
    mut manifest: Manifest,
    belongings: impl FnOnce() -> io::Result<Belongings>,
    cancel: &Cancel,
) -> io::Result<Completed> {
    let filled = storage.lock().filled(manifest.epoch);
    let Measured { mut files, new_bytes } = filled.measure()?;
    let started = std::time::Instant::now();
    let uploaded = match remote {
        Some(remote) => {
            let pledged = storage.lock().newest_local().cloned();
            remote.open(pledged.as_ref())?;
            storage.lock().opened_late(remote)?;
            let state = remote.upload(&filled.dir, manifest.epoch, &mut files, cancel)?;
            let along = remote.upload_belongings(&belongings()?, &mut manifest, cancel)?;
            Uploaded { bytes: state.bytes + along.bytes, objects: state.objects + along.objects }
        }
        None => {
            files.iter_mut().for_each(|file| file.stored = None);
            Uploaded::default()
        }
    };
    let upload = started.elapsed();
    cancel.check()?;
    manifest.files = files;
    let manifest = storage.lock().complete(manifest)?;
    Ok(Completed { total_bytes: manifest.total_bytes(), new_bytes, uploaded, upload, manifest })
}

/// Removes all but the newest `max_retained` checkpoints, and what only they needed. Returns the epochs
/// of those that went.
pub fn retain(storage: &Mutex<CheckpointStorage>, max_retained: usize) -> io::Result<Vec<Epoch>> {
    let (expired, oldest, remote) = {
        let mut storage = storage.lock();
        let (expired, oldest) = storage.expire(max_retained)?;
        (expired, oldest, storage.remote.clone())
    };
    if let Some(remote) = remote {
        remote.retain(oldest.unwrap_or((0, Epoch::ZERO)))?;
    }
    Ok(expired)
}

#[cfg(test)]
#[path = "tests/storage.rs"]
mod tests;
