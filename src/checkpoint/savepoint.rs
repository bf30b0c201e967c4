//! Savepoint: everything of one epoch in one place, from which a database can be made again anywhere.
//!
//! ```text
//!   <url>/savepoint.json              written last, by a conditional put: with it the savepoint exists
//!                                     one line of JSON, and its crc32 in 8 hexadecimal digits
//!   <url>/<attempt>/state/000000.entries   the state in order of its keys, cut into files (state/entries.rs)
//!   <url>/<attempt>/sinks/20005/000000-0   what sinks promised and had not delivered, as their logs hold it,
//!                                          cut into files
//! ```
//! It names no file outside itself, no store's own format and no address of the server, and nothing
//! that Weir does ever changes or removes it. The manifest has the length and checksum of every file.
//!
//! **Invariant:** it is checked when it is written and when it is read, by the same rules; a file whose
//! content is not what the manifest says is an error that names it.

use super::ahead::Ahead;
use super::manifest::{ManifestJob, checked, is_plain_path, unique, uuid_as_text, with_checksum};
use super::objects::Objects;
use super::participant::{CommitHandle, Offset, OffsetKey};
use super::transfer::{Cancel, Throttle};
use crate::config::{StorageScheme, StorageUrl};
use crate::failpoint;
use crate::stream::Epoch;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use uuid::Uuid;
use weir_catalog::ObjectId;
use weir_catalog::snapshot::CatalogImage;

/// The format that this version writes, and the newest that it reads.
pub const FORMAT: u32 = 2;

/// The name of the manifest.
pub const FILE_NAME: &str = "savepoint.json";

/// How often a request is tried again.
const RETRIES: usize = 5;
/// A file is put and read in one piece, and is no longer than this.
const FILE_BYTES_MAX: usize = 1 << 30;

/// A savepoint: its manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Savepoint {
    /// [`FORMAT`] of the version that wrote it.
    pub format: u32,
    /// That version, for the reader's information.
    pub weir: String,
    /// The database that it is of.
    #[serde(with = "uuid_as_text")]
    pub database: Uuid,
    /// The generation of the server that wrote it.
    pub generation: u64,
    /// The epoch that it holds, and nothing of a later one.
    pub epoch: Epoch,
    /// When it was taken, microseconds since 1970.
    pub taken_at_us: i64,
    /// Whether the database was stopped with it: nothing came after.
    pub stopped: bool,
    /// How many workers it had, for the reader's information.
    pub parallelism: usize,
    /// Which store held the state, for the reader's information.
    pub backend: String,
    /// `now()` at its barrier.
    pub now_us: i64,
    /// The DML position up to which its tables hold changes.
    pub dml_position: u64,
    /// The objects and settings.
    pub catalog: CatalogImage,
    /// The jobs whose state it holds.
    pub jobs: Vec<ManifestJob>,
    /// Where every split was read up to.
    pub offsets: Vec<(OffsetKey, Offset)>,
    /// What sinks promised and had not delivered; the files that they name are among `sinks`.
    pub handles: Vec<CommitHandle>,
    /// The files of the state, in order of their keys.
    pub state: Vec<SavedFile>,
    /// The files of the sinks; those of a log in order.
    pub sinks: Vec<SavedLog>,
    /// What targets of sinks must not hold that nobody had opened yet, or had not settled.
    #[serde(default)]
    pub ahead: Vec<(ObjectId, Ahead)>,
}

/// A file of a savepoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedFile {
    /// Its name, below the savepoint's URL.
    pub name: String,
    /// Its length in bytes.
    pub size: u64,
    /// The checksum of its content.
    pub crc32: u32,
    /// Entries in it, of state.
    #[serde(default)]
    pub entries: u64,
}

/// A log of a sink, or what comes next of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedLog {
    /// The sink.
    pub sink: ObjectId,
    /// What handles call it.
    pub log: String,
    /// Where in it the file begins: where the one before ends.
    #[serde(default)]
    pub at: u64,
    /// The file.
    pub file: SavedFile,
}

impl Savepoint {
    /// Bytes that it takes, its manifest aside.
    pub fn total_bytes(&self) -> u64 {
        self.files().map(|file| file.size).sum()
    }

    /// Its files.
    pub fn files(&self) -> impl Iterator<Item = &SavedFile> {
        self.state.iter().chain(self.sinks.iter().map(|log| &log.file))
    }

    fn encode(&self) -> io::Result<String> {
        self.check()
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, format!("bad savepoint: {e}")))?;
        Ok(with_checksum(&serde_json::to_string(self)?))
    }

    fn decode(content: &[u8]) -> Result<Self, String> {
        let content = std::str::from_utf8(content).map_err(|e| e.to_string())?;
        let line = checked(content)?;
        // What comes later may say things that this version would misread.
        let Version { format, weir } = serde_json::from_str(line).map_err(|e| e.to_string())?;
        if format > FORMAT {
            return Err(format!(
                "format {format}, of Weir {weir}, is newer than {FORMAT}, the newest that this one reads"
            ));
        }
        let savepoint: Savepoint = serde_json::from_str(line).map_err(|e| e.to_string())?;
        savepoint.check()?;
        Ok(savepoint)
    }

    /// What must hold of every savepoint.
    fn check(&self) -> Result<(), String> {
        if self.format == 0 || self.format > FORMAT {
            return Err(format!("format {} is none of 1 to {FORMAT}", self.format));
        }
        if self.generation == 0 || self.epoch == Epoch::ZERO {
            return Err(format!("generation {} and epoch {} are not given", self.generation, self.epoch));
        }
        if let Some(handle) = self.handles.iter().find(|h| h.epoch > self.epoch) {
            return Err(format!("sink {} promised epoch {}, which is later", handle.sink, handle.epoch));
        }
        if let Some(file) = self.files().find(|f| !is_plain_path(&f.name) || f.name == FILE_NAME) {
            return Err(format!("\"{}\" is no name of a file", file.name));
        }
        if let Some(log) = self.sinks.iter().find(|log| log.log.contains('/') || !is_plain_path(&log.log)) {
            return Err(format!("\"{}\" is no name of a log", log.log));
        }
        unique(self.files().map(|f| &f.name), "file")?;
        unique(self.sinks.iter().map(|log| (log.sink, &log.log, log.at)), "log")?;
        let mut ends: BTreeMap<(ObjectId, &str), u64> = BTreeMap::new();
        for SavedLog { sink, log, at, file } in &self.sinks {
            let end = ends.entry((*sink, log)).or_default();
            if at != end {
                return Err(format!("\"{}\" begins at {at} of its log, where {end} is due", file.name));
            }
            *end += file.size;
        }
        unique(self.jobs.iter().map(|j| j.job), "job")?;
        unique(self.offsets.iter().map(|(key, _)| key), "offset")?;
        unique(self.handles.iter().map(|h| (h.sink, h.actor, h.epoch)), "promise")
    }
}

/// What every version's manifest begins with.
#[derive(Deserialize)]
struct Version {
    format: u32,
    #[serde(default)]
    weir: String,
}

/// Where a savepoint is, or is going to be.
#[derive(Debug)]
pub struct SavepointDir {
    shown: String,
    objects: Objects,
    /// What files of this attempt to write it are below: of one that was cut off others may be there.
    attempt: String,
    throttle: Throttle,
}

impl SavepointDir {
    /// The one at a URL that [`parse_url`] has read. Nothing is asked of the storage yet, and nothing made
    /// there if it is only to be `read`.
    pub fn open(url: &StorageUrl, read: bool) -> io::Result<Self> {
        let mut above = url.clone();
        let path = url.url.path().trim_end_matches('/');
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        above.url.set_path(if parent.is_empty() { "/" } else { parent });
        let shown = url.url.to_string();
        if read
            && url.scheme == StorageScheme::File
            && above.url.to_file_path().is_ok_and(|dir| !dir.is_dir())
        {
            return Err(missing(&shown));
        }
        let name = percent_decoded(name)?;
        let objects = Objects::connect(&above, name.as_str(), RETRIES)?;
        let attempt = format!("{:08x}", Uuid::from_u128(crate::work::unique()).as_fields().0);
        Ok(Self { shown, objects, attempt, throttle: Throttle::default() })
    }

    /// The same for an attempt that was begun before.
    pub fn of_attempt(url: &StorageUrl, attempt: &str) -> io::Result<Self> {
        Ok(Self { attempt: attempt.to_owned(), ..Self::open(url, true)? })
    }

    /// What this attempt to write it is called.
    pub fn attempt(&self) -> &str {
        &self.attempt
    }

    /// Its URL, without options.
    pub fn url(&self) -> &str {
        &self.shown
    }

    /// An error of the kind `AlreadyExists` if there is a savepoint. Where there is none, other attempts may
    /// have left files, or be about to publish: returns how many attempts.
    pub fn require_free(&self) -> io::Result<usize> {
        match self.objects.get(FILE_NAME) {
            Ok(_) => return Err(taken(&self.shown)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        let names = self.objects.list("")?;
        let attempts: BTreeSet<&str> =
            names.iter().filter_map(|name| Some(name.split_once('/')?.0)).collect();
        Ok(attempts.len())
    }

    /// Whether this attempt has become the savepoint. What can't be read counts: it may name its files.
    pub fn is_published(&self) -> io::Result<bool> {
        match self.objects.get(FILE_NAME) {
            Ok(content) => Ok(Savepoint::decode(&content).map_or(true, |savepoint| {
                savepoint.files().any(|file| file.name.split('/').next() == Some(&self.attempt))
            })),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Adds a file, `below` (a path) the folder of this attempt.
    pub fn put(&self, below: &str, content: &[u8], cancel: &Cancel) -> io::Result<SavedFile> {
        failpoint::hit("savepoint.before_file")?;
        if content.len() > FILE_BYTES_MAX {
            let message =
                format!("\"{below}\" of {} bytes is more than a savepoint's file takes", content.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let name = format!("{}/{below}", self.attempt);
        self.objects.upload(&name, content, &self.throttle, cancel)?;
        Ok(SavedFile { name, size: content.len() as u64, crc32: crc32fast::hash(content), entries: 0 })
    }

    /// Makes it a savepoint; its files are there. An error of the kind `AlreadyExists` if there is one.
    pub fn publish(&self, savepoint: &Savepoint) -> io::Result<()> {
        let content = savepoint.encode()?;
        failpoint::hit("savepoint.before_manifest")?;
        self.objects.create(FILE_NAME, content.into()).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => taken(&self.shown),
            _ => e,
        })?;
        failpoint::hit("savepoint.after_manifest")
    }

    /// Removes what this attempt has put: it came to nothing. Returns how many files that were.
    pub fn give_up(&self) -> io::Result<usize> {
        let names = self.objects.list(&self.attempt)?;
        self.objects.delete(&names)?;
        Ok(names.len())
    }

    /// Reads the manifest. An error of the kind `NotFound` if there is no savepoint.
    pub fn read(&self) -> io::Result<Savepoint> {
        let content = self.objects.get(FILE_NAME).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => missing(&self.shown),
            _ => e,
        })?;
        Savepoint::decode(&content).map_err(|e| {
            let message = format!("the savepoint at \"{}\" can't be read: {e}", self.shown);
            io::Error::new(io::ErrorKind::InvalidData, message)
        })
    }

    /// Reads a file, and checks it.
    pub fn get(&self, file: &SavedFile, cancel: &Cancel) -> io::Result<Vec<u8>> {
        let damaged = |what: &str| {
            let message =
                format!("file \"{}\" of the savepoint at \"{}\" is damaged: {what}", file.name, self.shown);
            io::Error::new(io::ErrorKind::InvalidData, message)
        };
        if file.size > FILE_BYTES_MAX as u64 {
            return Err(damaged("it is longer than any"));
        }
        let mut content = Vec::with_capacity(file.size as usize);
        self.objects.download(&file.name, &mut content, cancel).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => damaged("it is missing"),
            _ => e,
        })?;
        if content.len() as u64 != file.size {
            return Err(damaged(&format!("it has {} bytes instead of {}", content.len(), file.size)));
        }
        match crc32fast::hash(&content) == file.crc32 {
            true => Ok(content),
            false => Err(damaged("its checksum is wrong")),
        }
    }
}

/// The URL of a savepoint. The error tells what to write instead.
pub fn parse_url(text: &str) -> Result<StorageUrl, String> {
    let hint = || "Write a URL such as \"file:///path/name\" or \"s3://bucket/name\".".to_owned();
    if !text.contains("://") {
        return Err(hint());
    }
    let url = StorageUrl::parse(text)?.ok_or_else(hint)?;
    match url.url.path().trim_matches('/').is_empty() {
        true => Err(hint()),
        false => Ok(url),
    }
}

fn percent_decoded(name: &str) -> io::Result<String> {
    let invalid = |e| io::Error::new(io::ErrorKind::InvalidInput, e);
    let path = object_store::path::Path::from_url_path(name).map_err(invalid)?;
    Ok(path.as_ref().to_owned())
}

fn taken(url: &str) -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, format!("there is a savepoint at \"{url}\" already"))
}

fn missing(url: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("there is no savepoint at \"{url}\""))
}

#[cfg(test)]
#[path = "tests/savepoint.rs"]
mod tests;
