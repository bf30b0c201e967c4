//! Which store holds the state: RocksDB, or an ordered map in memory. The rest of Weir knows a
//! [`StateStore`] only; a savepoint is how state goes from one to the other.

use super::StateError;
use super::entries::{VisitEntry, read_entries};
use super::memory::MemoryStore;
use super::rocks::{RocksMemory, RocksStore};
use super::store::StateStore;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// State may be larger than memory; a checkpoint writes what is new.
    RocksDb,
    /// All state in memory; a checkpoint writes all of it.
    Memory,
}

/// What stores of a process share.
#[derive(Clone)]
pub struct BackendMemory {
    /// RocksDB's cache and memtables.
    pub rocks: RocksMemory,
    /// Bytes that a store in memory may hold.
    pub memory_bytes: usize,
}

impl Backend {
    /// What the setting `state.backend` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Backend::RocksDb => "rocksdb",
            Backend::Memory => "memory",
        }
    }

    /// The one that `state.backend` means.
    pub fn of_setting(value: &str) -> Self {
        if value == "memory" { Backend::Memory } else { Backend::RocksDb }
    }

    /// The one that made a checkpoint of these files.
    pub fn of_files<'a>(mut names: impl Iterator<Item = &'a str>) -> Self {
        if names.any(|name| name == super::memory::FILE) { Backend::Memory } else { Backend::RocksDb }
    }

    /// A new, empty store in the directory `live`. What is there goes.
    pub fn create(self, live: &Path, memory: &BackendMemory) -> Result<Box<dyn StateStore>, StateError> {
        Ok(match self {
            Backend::RocksDb => Box::new(RocksStore::create(live, &memory.rocks)?),
            Backend::Memory => Box::new(MemoryStore::within(memory.memory_bytes)),
        })
    }

    /// A store in the directory `live` that starts with what `checkpoint` holds, which stays as it is.
    pub fn restore(
        self,
        checkpoint: &Path,
        live: &Path,
        memory: &BackendMemory,
    ) -> Result<Box<dyn StateStore>, StateError> {
        Ok(match self {
            Backend::RocksDb => Box::new(RocksStore::restore(checkpoint, live, &memory.rocks)?),
            Backend::Memory => Box::new(MemoryStore::restore(checkpoint)?.limited(memory.memory_bytes)),
        })
    }

    /// Calls `visit` with everything that `checkpoint` holds, in order of the keys; an error ends it. `scratch` is a
    /// directory for it alone, and is left behind.
    pub fn read(self, checkpoint: &Path, scratch: &Path, visit: VisitEntry<'_>) -> Result<(), StateError> {
        match self {
            Backend::RocksDb => RocksStore::read(checkpoint, scratch, visit),
            Backend::Memory => {
                let file = File::open(checkpoint.join(super::memory::FILE))?;
                read_entries(BufReader::with_capacity(1 << 20, file), visit).map(drop)
            }
        }
    }
}
