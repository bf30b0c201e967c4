//! RemoteStorage: checkpoints in an object store, as a log of manifests and the files that they share.
//!
//! ```text
//!   <url>/<database>/
//!     log/00000000000000000011         generation 7 begins to write
//!     log/00000000000000000012         a manifest: with it the checkpoint exists
//!     log/00000000000000000013         another one
//!     shared/0000000007-1/3-000012.sst.zst    a file of the store, named by as many manifests as need it
//!     small/0000000007-1/4711.zst      the small files of one checkpoint, one behind the other
//!     catalog/…  sinks/…               what goes with the state (belongings.rs)
//! ```
//! Every record of the log is made exclusively (a conditional put) under the number after the last one,
//! so whoever writes next must know all that was written before. Who opens the log writes a record of
//! its own: a process that still writes then finds its number taken, and is fenced off for good,
//! however late its request arrives. So these records stay, but for those of long ago. A database that
//! comes back from a checkpoint before the newest says so in such a record: what lies between is none of
//! its past.
//!
//! **Invariants:** a file is uploaded before a manifest that names it is written, and goes after the
//! last one that does; no name is given to two contents; the last record stays; a process removes
//! nothing from the folder of a later generation.

use super::manifest::{Manifest, StateFile};
use super::objects::Objects;
use super::record::{LOG, Record, Records, State, record_name};
use super::transfer::{Throttle, in_parallel};
use crate::config::StorageSettings;
use crate::failpoint;
use crate::stream::Epoch;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{LazyLock, OnceLock};
use uuid::Uuid;

pub(super) const SHARED: &str = "shared";
pub(super) const SMALL: &str = "small";
pub(super) const CATALOG: &str = "catalog";
pub(super) const SINKS: &str = "sinks";
/// Objects that are removed with one request.
const REMOVED_AT_ONCE: usize = 500;
/// How often a number that somebody else took is followed by the next one.
const TRIES: usize = 20;

/// What tells this process from others, also where they have the same generation: a copied data directory.
static PROCESS: LazyLock<Uuid> = LazyLock::new(Uuid::new_v4);
/// How many storages this process has used.
static INSTANCES: AtomicU32 = AtomicU32::new(0);

/// This process, and which of its storages the next one is.
fn next_instance() -> (Uuid, u32) {
    #[cfg(test)]
    if let Some(process) = crate::work::testing::process() {
        // The number is one of this process, which uses few.
        return (Uuid::from_u128(u128::from(process)), (crate::work::unique() >> 96) as u32);
    }
    (*PROCESS, INSTANCES.fetch_add(1, Ordering::Relaxed) + 1)
}

/// Why a manifest is not in the log.
#[derive(Debug)]
pub struct Unpublished {
    /// Why not.
    pub error: io::Error,
    /// Whether it may be there all the same: the answer was lost.
    pub perhaps: bool,
}

/// Checkpoints of one database in an object store, for the process that writes them.
#[derive(Debug)]
pub struct RemoteStorage {
    settings: StorageSettings,
    database: Uuid,
    generation: u64,
    process: Uuid,
    writer: String,
    /// The folder that only this one writes to.
    pub(super) folder: String,
    objects: OnceLock<Objects>,

    pub(super) compress: AtomicBool,
    pub(super) transfers: AtomicUsize,
    pub(super) throttle: Throttle,
    pub(super) state: Mutex<State>,
}

impl RemoteStorage {
    /// The storage of `database` that `settings` name. Nothing is asked of it yet.
    pub fn new(settings: &StorageSettings, database: Uuid, generation: u64) -> Self {
        let (process, instance) = next_instance();
        let storage = Self {
            settings: settings.clone(),
            database,
            generation,
            process,
            writer: format!("{process}-{instance}"),
            folder: format!("{generation:010}-{instance}"),
            objects: OnceLock::new(),
            compress: AtomicBool::default(),
            transfers: AtomicUsize::default(),
            throttle: Throttle::default(),
            state: Mutex::default(),
        };
        storage.set_limits(settings);
        storage
    }

    /// One over any object store.
    #[cfg(test)]
    pub fn over(objects: Objects, settings: &StorageSettings, database: Uuid, generation: u64) -> Self {
        let storage = Self::new(settings, database, generation);
        storage.objects.set(objects).expect("it is new");
        storage
    }

    /// Whether `settings` name this storage.
    pub fn is_of(&self, settings: &StorageSettings) -> bool {
        self.settings.url == settings.url && self.settings.retries == settings.retries
    }

    /// Other limits.
    pub fn set_limits(&self, settings: &StorageSettings) {
        self.compress.store(settings.compress, Ordering::Relaxed);
        self.transfers.store(settings.transfers, Ordering::Relaxed);
        self.throttle.limit(settings.upload_limit);
    }

    /// How many files go at once.
    pub fn transfers(&self) -> usize {
        self.transfers.load(Ordering::Relaxed)
    }

    /// Its objects.
    pub(super) fn objects(&self) -> io::Result<&Objects> {
        if let Some(objects) = self.objects.get() {
            return Ok(objects);
        }
        let url = self.settings.url.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let objects = Objects::connect(url, self.database.to_string().as_str(), self.settings.retries)?;
        Ok(self.objects.get_or_init(|| objects))
    }

    /// The highest generation that wrote to the log, and the highest epoch of a checkpoint in it; zero if
    /// there is none.
    pub fn newest(&self) -> io::Result<(u64, Epoch)> {
        let mut newest = (0, Epoch::ZERO);
        for (_, record) in self.read_log()? {
            let Ok(record) = record else { continue };
            let epoch = record.manifest.map_or(Epoch::ZERO, |manifest| manifest.epoch);
            newest = (newest.0.max(record.generation), newest.1.max(epoch));
        }
        Ok(newest)
    }

    /// Whether the log was opened.
    pub fn is_open(&self) -> bool {
        self.state.lock().next > 0
    }

    /// Opens the log: from here on no other process writes to it. Removes what nobody names, but for what
    /// `pledged` does, a checkpoint that was perhaps stored whole and is not in the log. Once is enough.
    pub fn open(&self, pledged: Option<&Manifest>) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.next > 0 {
            return Ok(());
        }
        let (number, records) = self.take()?;
        state.next = number + 1;
        let whole = state.read(records);
        // What a manifest names that can't be read, nobody knows.
        if whole && let Err(error) = self.condemn_orphans(&mut state, pledged) {
            tracing::warn!(%error, "could not look for files that no checkpoint names");
        }
        if let Err(error) = self.collect(&mut state) {
            tracing::warn!(%error, "could not clean up the checkpoint storage");
        }
        Ok(())
    }

    /// Says in the log that the database goes on from the checkpoint of `from`, its generation and epoch:
    /// what is newer, or damaged, counts no more.
    pub fn go_on_from(&self, from: (u64, Epoch)) -> io::Result<()> {
        let mut state = self.state.lock();
        let number = state.next;
        let writer = self.writer.clone();
        let record = Record { generation: self.generation, writer, manifest: None, goes_on_from: Some(from) };
        self.objects()?.create(&record_name(number), record.encode()?)?;
        state.next += 1;
        state.forget_after(from, number);
        Ok(())
    }

    /// Writes the record with which this generation begins. Returns its number and all before it.
    fn take(&self) -> io::Result<(u64, Records)> {
        let objects = self.objects()?;
        let writer = self.writer.clone();
        let begins = Record { generation: self.generation, writer, manifest: None, goes_on_from: None };
        for _ in 0..TRIES {
            let records = self.read_log()?;
            let others = records.iter().filter_map(|(_, record)| record.as_ref().ok());
            let ours = |record: &Record| record.writer.starts_with(&self.process.to_string());
            if let Some(newer) = others.into_iter().find(|r| r.generation >= self.generation && !ours(r)) {
                let message =
                    format!("generation {} of this database already writes to the storage", newer.generation);
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
            }
            let number = records.last().map_or(1, |(number, _)| number + 1);
            failpoint::hit("storage.before_take")?;
            match objects.create(&record_name(number), begins.encode()?) {
                Ok(()) => {}
                // A lost answer is asked for again.
                Err(_) if self.read(number).is_ok_and(|found| found.as_ref() == Some(&begins)) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            }
            failpoint::hit("storage.after_take")?;
            return Ok((number, records));
        }
        Err(io::Error::other("others write to the checkpoint storage of this database all the time"))
    }

    /// All records, by number. One that goes meanwhile is left out.
    fn read_log(&self) -> io::Result<Records> {
        let names = self.objects()?.list(LOG)?;
        let number = |name: &String| name.strip_prefix(LOG)?.strip_prefix('/')?.parse::<u64>().ok();
        let numbers: Vec<u64> = names.iter().filter_map(number).collect();
        let records = Mutex::new(BTreeMap::new());
        in_parallel(self.transfers(), &numbers, |number| {
            match self.read(*number) {
                Ok(None) => {}
                Ok(Some(record)) => drop(records.lock().insert(*number, Ok(record))),
                Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                    records.lock().insert(*number, Err(e.to_string()));
                }
                Err(error) => return Err(error),
            }
            Ok(())
        })?;
        Ok(records.into_inner().into_iter().collect())
    }

    /// A record; none if there is none of that number.
    fn read(&self, number: u64) -> io::Result<Option<Record>> {
        match self.objects()?.get(&record_name(number)) {
            Ok(content) => {
                let damaged = |e| io::Error::new(io::ErrorKind::InvalidData, format!("record {number}: {e}"));
                Record::decode(&content).map(Some).map_err(damaged)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The checkpoints in the log, by record.
    pub fn manifests(&self) -> Vec<(u64, Manifest)> {
        self.state.lock().manifests.iter().map(|(number, manifest)| (*number, manifest.clone())).collect()
    }

    /// The checkpoints in the log, the newest first.
    pub fn manifests_newest_first(&self) -> Vec<Manifest> {
        let mut manifests: Vec<Manifest> = self.state.lock().manifests.values().cloned().collect();
        manifests.sort_by_key(|manifest| std::cmp::Reverse((manifest.generation, manifest.epoch)));
        manifests
    }

    /// Whether a record of the log can't be read.
    pub fn has_damaged(&self) -> bool {
        !self.state.lock().damaged.is_empty()
    }

    /// Whether the log has the checkpoint of `generation` and `epoch`.
    pub fn holds(&self, generation: u64, epoch: Epoch) -> bool {
        self.state.lock().manifests.values().any(|m| (m.generation, m.epoch) == (generation, epoch))
    }

    /// Writes the manifest of a checkpoint whose files are there: with it the checkpoint exists.
    pub fn publish(&self, manifest: &Manifest) -> Result<(), Unpublished> {
        let mut state = self.state.lock();
        let published = self.append(&mut state, manifest);
        // Where the answer was lost its files may be needed: the next record tells.
        if !published.as_ref().is_err_and(|e| e.perhaps) {
            state.claimed.remove(&manifest.epoch);
        }
        published
    }

    fn append(&self, state: &mut State, manifest: &Manifest) -> Result<(), Unpublished> {
        let failed = |error| Unpublished { error, perhaps: false };
        if let Some(by) = &state.fenced {
            return Err(failed(fenced(self.generation, by)));
        }
        let writer = self.writer.clone();
        let manifest_of = Some(manifest.clone());
        let record =
            Record { generation: self.generation, writer, manifest: manifest_of, goes_on_from: None };
        let content = record.encode().map_err(failed)?;
        for _ in 0..TRIES {
            let number = state.next;
            failpoint::hit("storage.before_publish").map_err(failed)?;
            let created = self.objects().and_then(|o| o.create(&record_name(number), content.clone()));
            let there = match created {
                Ok(()) => record.clone(),
                Err(error) => match self.read(number) {
                    Ok(Some(other)) if other.writer != self.writer => {
                        let by = format!("generation {}", other.generation);
                        state.fenced = Some(by.clone());
                        return Err(failed(fenced(self.generation, &by)));
                    }
                    Ok(Some(ours)) => ours,
                    Ok(None) => return Err(failed(error)),
                    Err(_) => return Err(Unpublished { error, perhaps: true }),
                },
            };
            state.next += 1;
            let this = there.manifest.as_ref() == Some(manifest);
            if let Some(found) = there.manifest {
                // Perhaps one whose answer was lost before.
                state.claimed.remove(&found.epoch);
                state.manifests.insert(number, found);
            }
            if this {
                let perhaps = |error| Unpublished { error, perhaps: true };
                return failpoint::hit("storage.after_publish").map_err(perhaps);
            }
        }
        Err(failed(io::Error::other("the log of the checkpoint storage has no end")))
    }

    /// Publishes a checkpoint that a process before had stored, and died before it said so: if it did, and
    /// all of it is there. False: it did not.
    pub fn publish_pledged(&self, manifest: &Manifest) -> Result<bool, Unpublished> {
        let mut state = self.state.lock();
        let is_there =
            |file: &StateFile| file.stored.as_ref().is_some_and(|s| state.there.contains(&s.object));
        let whole = manifest.stored_files().all(is_there);
        let published = if whole { self.append(&mut state, manifest).map(|()| true) } else { Ok(false) };
        if !published.as_ref().is_err_and(|e| e.perhaps) {
            state.claimed.remove(&manifest.epoch);
        }
        published
    }

    /// A pending checkpoint is given up.
    pub fn release(&self, epoch: Epoch) {
        self.state.lock().claimed.remove(&epoch);
    }

    /// Removes the checkpoints before the one of `generation` and `epoch`, and what only they named.
    pub fn retain(&self, oldest: (u64, Epoch)) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.next == 0 || state.fenced.is_some() {
            return Ok(());
        }
        let before = state.manifests.iter().filter(|(_, m)| (m.generation, m.epoch) < oldest);
        let before: Vec<u64> = before.map(|(number, _)| *number).collect();
        state.expired.extend(before);
        self.collect(&mut state)
    }

    /// Forgets checkpoints that are none of this database's past any more, and removes them with the next
    /// clean-up.
    pub fn disown(&self, numbers: impl IntoIterator<Item = u64>) {
        self.state.lock().expired.extend(numbers);
    }

    /// Removes expired records, then what nothing names.
    fn collect(&self, state: &mut State) -> io::Result<()> {
        let objects = self.objects()?;
        // The last record stays: its number must not be given again.
        let last = state.next - 1;
        while let Some(number) = state.expired.range(..last).next().copied() {
            failpoint::hit("storage.before_forget")?;
            objects.delete(&[record_name(number)])?;
            failpoint::hit("storage.after_forget")?;
            state.expired.remove(&number);
            state.manifests.remove(&number);
        }
        let named: BTreeSet<&str> = state.manifests.values().flat_map(Manifest::objects).collect();
        let claimed = |object: &String| state.claimed.values().any(|claimed| claimed.contains(object));
        let unnamed: Vec<String> = state
            .there
            .iter()
            .filter(|object| !named.contains(object.as_str()) && !claimed(object))
            .cloned()
            .collect();
        for object in &unnamed {
            state.there.remove(object);
        }
        let State { files, parts, there, .. } = state;
        files.retain(|_, object| there.contains(object));
        parts.retain(|_, part| part.stored.as_ref().is_some_and(|stored| there.contains(&stored.object)));
        state.condemned.extend(unnamed);
        let at_once = if failpoint::any() { 1 } else { REMOVED_AT_ONCE };
        let condemned: Vec<String> = state.condemned.iter().cloned().collect();
        for some in condemned.chunks(at_once) {
            failpoint::hit("storage.before_remove")?;
            objects.delete(some)?;
            state.condemned.retain(|object| !some.contains(object));
        }
        Ok(())
    }

    /// Finds what was uploaded and never named: by processes that died.
    fn condemn_orphans(&self, state: &mut State, pledged: Option<&Manifest>) -> io::Result<()> {
        let objects = self.objects()?;
        let is_pledged = |name: &String| pledged.is_some_and(|m| m.objects().any(|object| object == name));
        for folder in [SHARED, SMALL, CATALOG, SINKS] {
            let found = objects.list(folder)?;
            let orphans = found.into_iter().filter(|name| self.is_orphan(name, state));
            let (kept, orphans): (Vec<String>, Vec<String>) = orphans.partition(is_pledged);
            if let Some(pledged) = pledged {
                state.claimed.entry(pledged.epoch).or_default().extend(kept.iter().cloned());
            }
            state.there.extend(kept);
            if !orphans.is_empty() {
                tracing::info!(count = orphans.len(), folder, "removing files that no checkpoint names");
            }
            state.condemned.extend(orphans);
        }
        Ok(())
    }

    fn is_orphan(&self, name: &str, state: &State) -> bool {
        let folder = name.split('/').nth(1).unwrap_or_default();
        let generation = folder.split('-').next().and_then(|g| g.parse::<u64>().ok());
        let earlier = generation.is_some_and(|g| g <= self.generation) && folder != self.folder;
        earlier && !state.there.contains(name)
    }
}

fn fenced(generation: u64, by: &str) -> io::Error {
    let message = format!(
        "generation {generation} of this database was fenced off by {by}, which writes to the storage now"
    );
    io::Error::new(io::ErrorKind::PermissionDenied, message)
}

#[cfg(test)]
#[path = "tests/remote.rs"]
pub(super) mod tests;
