//! The data directory: who may use it, whose it is, and the numbers that are never used twice.
//!
//! ```text
//!   LOCK         held by the process that uses the directory
//!   database     the database's uuid, made once
//!   generation   how many times it was opened
//!   epochs       every epoch up to this one may have been given
//!   RESTORING    there while a database is brought here from elsewhere: what else there is counts for nothing
//! ```

use super::durable::{DurableNumber, in_file, sync_file, write_atomically};
use super::ownership::Ownership;
use crate::stream::Epoch;
use std::ffi::CString;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uuid::Uuid;

/// Epochs reserved at a time: a quarter of an hour of ticks.
const EPOCH_BLOCK: u64 = 10_000;

/// Its holder may use the directory.
const LOCK: &str = "LOCK";

/// There while a database is brought here.
const RESTORING: &str = "RESTORING";

/// A database that is brought from elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Its identity.
    pub database: Uuid,
    /// It had this generation.
    pub generation: u64,
    /// It gave epochs up to this one.
    pub epoch: Epoch,
}

/// A data directory that no other process uses.
#[derive(Debug)]
pub struct DataDir {
    root: PathBuf,
    database: Uuid,
    generation: DurableNumber,
    ownership: Arc<Ownership>,
    /// Unlocked when it is closed, whatever ends the process.
    _lock: File,
}

impl DataDir {
    /// Locks the directory, which is made if it is not there, and takes a new generation.
    pub fn open(root: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(root).map_err(in_file(root))?;
        let lock = lock(root)?;
        if root.join(RESTORING).exists() {
            let message = format!(
                "bringing a database to data directory \"{}\" was cut off; start with --restore again",
                root.display()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        Self::locked(root, lock)
    }

    /// Locks an empty directory, or one where this was cut off before, for a database that comes from
    /// elsewhere. Until [`DataDir::arrived`] it can't be opened otherwise.
    pub fn open_for(root: &Path, arrival: Arrival) -> io::Result<Self> {
        std::fs::create_dir_all(root).map_err(in_file(root))?;
        let lock = lock(root)?;
        let marker = root.join(RESTORING);
        let others = |name: &std::ffi::OsStr| name != LOCK && name != RESTORING;
        let mut there = Vec::new();
        for entry in std::fs::read_dir(root).map_err(in_file(root))? {
            let entry = entry?;
            there.extend(others(&entry.file_name()).then(|| entry.path()));
        }
        if !marker.exists() && !there.is_empty() {
            let message = format!("data directory \"{}\" is not empty", root.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
        }
        File::create(&marker).and_then(|f| sync_file(&f)).map_err(in_file(&marker))?;
        super::durable::sync_dir(root)?;
        for path in there {
            let removed =
                if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            removed.map_err(in_file(&path))?;
        }
        write_atomically(&root.join("database"), format!("{}\n", arrival.database).as_bytes(), "database")?;
        DurableNumber::open(root.join("generation"))?.set(arrival.generation)?;
        DurableNumber::open(root.join("epochs"))?.set(arrival.epoch.0 + EPOCH_BLOCK)?;
        Self::locked(root, lock)
    }

    /// What was brought here is whole.
    pub fn arrived(&self) -> io::Result<()> {
        let marker = self.root.join(RESTORING);
        std::fs::remove_file(&marker).map_err(in_file(&marker))?;
        super::durable::sync_dir(&self.root)
    }

    fn locked(root: &Path, lock: File) -> io::Result<Self> {
        let database = database(&root.join("database"))?;
        let mut generation = DurableNumber::open(root.join("generation"))?;
        generation.set(generation.get() + 1)?;
        let ownership = Arc::new(Ownership::of(root, root.join(LOCK), &lock)?);
        Ok(Self { root: root.to_owned(), database, generation, ownership, _lock: lock })
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The database's identity, for what it leaves outside.
    pub fn database(&self) -> Uuid {
        self.database
    }

    /// How many times the directory was opened, this time included. What a lower generation
    /// still tries to write is refused.
    pub fn generation(&self) -> u64 {
        self.generation.get()
    }

    /// Whether it is still this process's.
    pub fn ownership(&self) -> &Arc<Ownership> {
        &self.ownership
    }

    /// Takes a generation above `taken`, which a copy of this directory took: call it before anybody asks
    /// for the generation.
    pub fn raise_generation(&mut self, taken: u64) -> io::Result<()> {
        if self.generation.get() > taken {
            return Ok(());
        }
        self.generation.set(taken + 1)
    }

    /// Bytes that can still be written to its disk.
    pub fn free_bytes(&self) -> io::Result<u64> {
        let path = CString::new(self.root.as_os_str().as_bytes())?;
        let mut found = MaybeUninit::<libc::statvfs>::uninit();
        // SAFETY: `path` ends with a zero byte, and `found` has room for what the call fills in.
        #[allow(unsafe_code)]
        let result = unsafe { libc::statvfs(path.as_ptr(), found.as_mut_ptr()) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call succeeded, so it has filled it in.
        #[allow(unsafe_code)]
        let found = unsafe { found.assume_init() };
        Ok(found.f_bavail * found.f_frsize)
    }

    /// A subdirectory, made if it is not there.
    pub fn subdirectory(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.root.join(name);
        std::fs::create_dir_all(&path).map_err(in_file(&path))?;
        super::durable::sync_dir(&self.root)?;
        Ok(path)
    }

    /// The epochs that this process may give.
    pub fn epoch_blocks(&self) -> io::Result<EpochBlocks> {
        Ok(EpochBlocks { reserved: DurableNumber::open(self.root.join("epochs"))? })
    }
}

fn lock(root: &Path) -> io::Result<File> {
    let path = root.join(LOCK);
    let open = File::options().create(true).truncate(false).read(true).write(true).open(&path);
    let mut file = open.map_err(in_file(&path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // Only to say who: the lock itself is what counts.
            let _ = file.read_to_string(&mut holder);
            let message =
                format!("data directory \"{}\" is in use by process {}", root.display(), holder.trim());
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, message));
        }
        Err(TryLockError::Error(e)) => return Err(in_file(&path)(e)),
    }
    file.set_len(0)?;
    write!(file, "{}", std::process::id())?;
    Ok(file)
}

fn database(path: &Path) -> io::Result<Uuid> {
    match std::fs::read_to_string(path) {
        Ok(text) => Uuid::parse_str(text.trim()).map_err(|e| super::durable::damaged(path, e)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let uuid = Uuid::new_v4();
            write_atomically(path, format!("{uuid}\n").as_bytes(), "database")?;
            Ok(uuid)
        }
        Err(e) => Err(in_file(path)(e)),
    }
}

/// Epoch numbers, reserved durably in blocks, so that none is given twice whatever happens.
#[derive(Debug)]
pub struct EpochBlocks {
    reserved: DurableNumber,
}

impl EpochBlocks {
    /// Above every epoch that this process or a dead one may have given: where to begin, asked
    /// before the first `reserve`. `known` was given, whatever became of the file.
    pub fn first_free(&self, known: Epoch) -> Epoch {
        let reserved = self.reserved.get();
        if reserved >= known.0 {
            return Epoch(reserved + 1);
        }
        tracing::error!(reserved, %known, "the file \"epochs\" is older than the checkpoints; going on above them");
        Epoch(known.0 + EPOCH_BLOCK + 1)
    }

    /// Makes sure that `epoch` is never given again; call it before giving it.
    pub fn reserve(&mut self, epoch: Epoch) -> io::Result<()> {
        if epoch.0 > self.reserved.get() {
            self.reserved.set(epoch.0 + EPOCH_BLOCK)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("data");
        let first = DataDir::open(&root).unwrap();
        let error = DataDir::open(&root).unwrap_err();
        let expected =
            format!("data directory \"{}\" is in use by process {}", root.display(), std::process::id());
        assert_eq!(error.to_string(), expected);
        let (database, generation) = (first.database(), first.generation());
        drop(first);
        let mut second = DataDir::open(&root).unwrap();
        assert_eq!((second.database(), second.generation()), (database, generation + 1));
        second.raise_generation(generation).unwrap();
        assert_eq!(second.generation(), generation + 1);
        second.raise_generation(41).unwrap();
        assert_eq!(second.generation(), 42);
        assert!(second.subdirectory("checkpoints").unwrap().is_dir());
    }

    #[test]
    fn who_lost_the_lock_knows_it_for_good() {
        for second in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let first = DataDir::open(dir.path()).unwrap();
            first.ownership().check().unwrap();
            std::fs::rename(dir.path().join(LOCK), dir.path().join("kept")).unwrap();
            let second = second.then(|| DataDir::open(dir.path()).unwrap());
            let error = first.ownership().check().unwrap_err().to_string();
            assert!(error.ends_with("its file LOCK was removed or replaced"), "{error}");
            if let Some(second) = second {
                second.ownership().check().unwrap();
            }
            std::fs::rename(dir.path().join("kept"), dir.path().join(LOCK)).unwrap();
            assert!(first.ownership().check().is_err(), "somebody else was here");
        }
    }

    #[test]
    fn a_database_that_arrives_needs_an_empty_directory_and_is_whole_or_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("data");
        let arrival = Arrival { database: Uuid::from_u128(7), generation: 41, epoch: Epoch(500) };
        let cut_off = DataDir::open_for(&root, arrival).unwrap();
        std::fs::create_dir(root.join("catalog")).unwrap();
        drop(cut_off);
        assert!(DataDir::open(&root).unwrap_err().to_string().contains("--restore again"));
        let again = DataDir::open_for(&root, arrival).unwrap();
        assert!(!root.join("catalog").exists(), "what was there counts for nothing");
        assert_eq!((again.database(), again.generation()), (arrival.database, 42));
        assert!(again.epoch_blocks().unwrap().first_free(Epoch::ZERO) > arrival.epoch);
        again.arrived().unwrap();
        drop(again);
        let error = DataDir::open_for(&root, arrival).unwrap_err();
        assert!(error.to_string().ends_with("is not empty"), "{error}");
        assert_eq!(DataDir::open(&root).unwrap().database(), arrival.database);
    }

    #[test]
    fn no_epoch_is_given_twice() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path()).unwrap();
        let mut given = 0;
        for _ in 0..3 {
            let mut blocks = data.epoch_blocks().unwrap();
            let mut epoch = blocks.first_free(Epoch(given));
            assert!(epoch.0 > given);
            for _ in 0..EPOCH_BLOCK + 2 {
                blocks.reserve(epoch).unwrap();
                given = epoch.0;
                epoch = epoch.next();
            }
        }
        // Nor where the file is gone.
        std::fs::remove_file(dir.path().join("epochs")).unwrap();
        let blocks = data.epoch_blocks().unwrap();
        assert!(blocks.first_free(Epoch(given)).0 > given + EPOCH_BLOCK);
    }
}
