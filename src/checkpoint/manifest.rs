//! The manifest: what a checkpoint is. It names and checks everything that a restart needs.
//!
//! ```text
//!   checkpoints/<epoch>/manifest.json     one line of JSON
//!                                         crc32 of that line, 8 hexadecimal digits
//! ```
//! A checkpoint exists when its manifest does: it is written last, and whole. **Invariant:** it is
//! checked when it is written and when it is read, by the same rules.

use super::ahead::Ahead;
use super::participant::{CommitHandle, Offset, OffsetKey};
use crate::state::durable::{damaged, in_file, write_atomically};
use crate::stream::Epoch;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use uuid::Uuid;
use weir_catalog::{JobId, ObjectId};

/// The format that this version writes, and the only one that it reads.
pub const FORMAT: u32 = 1;

/// The manifest's name in its checkpoint's directory.
pub const FILE_NAME: &str = "manifest.json";

/// A completed checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: u32,
    /// The database that it is a checkpoint of.
    #[serde(with = "uuid_as_text")]
    pub database: Uuid,
    /// The generation of the process that made it.
    pub generation: u64,
    /// The epoch that it holds, and nothing of a later one.
    pub epoch: Epoch,
    /// The catalog's version at its barrier.
    pub catalog_version: u64,
    /// The DML position up to which its tables hold changes.
    pub dml_position: u64,
    /// `now()` at its barrier; never goes back.
    pub now_us: i64,
    /// The jobs whose state it holds.
    pub jobs: Vec<ManifestJob>,
    /// Where every split was read up to.
    pub offsets: Vec<(OffsetKey, Offset)>,
    /// Whether actors did not wait for its barrier: the state has the rows that lay before it, and the
    /// promises of its own epoch are not released before another checkpoint is complete.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unaligned: bool,
    /// What sinks promised, now or earlier, and is not acknowledged as committed.
    pub handles: Vec<CommitHandle>,
    /// The files of the state store.
    pub files: Vec<StateFile>,
    /// When it was completed, microseconds since 1970.
    pub completed_at_us: i64,
    /// The epoch of the savepoint that RESTORE made it of: what the targets of its sinks may hold at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub savepoint: Option<Epoch>,
    /// The catalog of its version, in a remote storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalog: Option<StateFile>,
    /// What its promises name, as far as it was not delivered, in a remote storage.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub promised: Vec<PromisedPart>,
    /// What targets of sinks must not hold that nobody had opened yet, or had not settled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ahead: Vec<(ObjectId, Ahead)>,
}

/// A job in a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ManifestJob {
    /// The job.
    pub job: JobId,
    /// The plan's operators and what their state looks like: a restart compares.
    pub fingerprints: Vec<(u32, String)>,
    /// Whether it had caught up with its inputs.
    pub backfilled: bool,
}

/// A file in a checkpoint's directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateFile {
    /// Its name.
    pub name: String,
    /// Its length in bytes.
    pub size: u64,
    /// The checksum of its content.
    pub crc32: u32,
    /// Where its content is in a remote storage, if it is in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<Stored>,
}

/// A part of a sink's log, which one of its actors has promised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromisedPart {
    /// The sink.
    pub sink: ObjectId,
    /// Its actor.
    pub actor: u32,
    /// The epoch that it is of.
    pub epoch: Epoch,
    /// Where in the log's file it begins.
    pub start: u64,
    /// The log's file; size, checksum and place are the part's.
    pub file: StateFile,
}

/// Where the content of a file is in a remote storage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// The object, below the database's root.
    pub object: String,
    /// Where in what the object holds it begins: small files of a checkpoint share one.
    #[serde(default)]
    pub at: u64,
}

impl Manifest {
    /// Bytes of state that it names.
    pub fn total_bytes(&self) -> u64 {
        self.files.iter().map(|f| f.size).sum()
    }

    /// The remote objects that it needs.
    pub fn objects(&self) -> impl Iterator<Item = &str> {
        self.stored_files().filter_map(|f| Some(f.stored.as_ref()?.object.as_str()))
    }

    /// The files of the state, and what goes with it in a remote storage.
    pub fn stored_files(&self) -> impl Iterator<Item = &StateFile> {
        self.files.iter().chain(&self.catalog).chain(self.promised.iter().map(|part| &part.file))
    }

    /// Writes it into the checkpoint's directory `dir`; durable on return.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        let path = dir.join(FILE_NAME);
        self.check()
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, format!("bad manifest: {e}")))?;
        let content = with_checksum(&serde_json::to_string(self)?);
        write_atomically(&path, content.as_bytes(), "manifest").map_err(in_file(&path))
    }

    /// Reads the manifest in `dir`. None if there is none: the checkpoint was never completed.
    pub fn read(dir: &Path) -> io::Result<Option<Self>> {
        let path = dir.join(FILE_NAME);
        let content = match std::fs::read_to_string(&path) {
            Ok(content) => content,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(in_file(&path)(e)),
        };
        let line = checked(&content).map_err(|e| damaged(&path, e))?;
        let manifest: Manifest = serde_json::from_str(line).map_err(|e| damaged(&path, e))?;
        manifest.check().map_err(|e| damaged(&path, e))?;
        Ok(Some(manifest))
    }

    /// What must hold of every manifest.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.format != FORMAT {
            return Err(format!("format {} is not {FORMAT}", self.format));
        }
        if self.generation == 0 || self.epoch == Epoch::ZERO {
            return Err(format!("generation {} and epoch {} are not given", self.generation, self.epoch));
        }
        if self.savepoint.is_some_and(|savepoint| savepoint >= self.epoch) {
            return Err(format!(
                "it was made of a savepoint of epoch {:?}, which is not earlier",
                self.savepoint
            ));
        }
        if let Some(handle) = self.handles.iter().find(|h| h.epoch > self.epoch) {
            return Err(format!("sink {} promised epoch {}, which is later", handle.sink, handle.epoch));
        }
        if let Some(file) = self.stored_files().find(|f| !is_plain_name(&f.name)) {
            return Err(format!("\"{}\" is no name of a state file", file.name));
        }
        if let Some(object) = self.objects().find(|object| !is_plain_path(object)) {
            return Err(format!("\"{object}\" is no name of an object"));
        }
        unique(self.files.iter().map(|f| &f.name), "state file")?;
        unique(self.jobs.iter().map(|j| j.job), "job")?;
        unique(self.offsets.iter().map(|(key, _)| key), "offset")?;
        unique(self.handles.iter().map(|h| (h.sink, h.actor, h.epoch)), "promise")?;
        unique(self.promised.iter().map(|p| (p.sink, p.actor, p.epoch)), "promised part")
    }
}

fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && name != FILE_NAME && !name.starts_with('.') && !name.contains(['/', '\\', '\0'])
}

pub(super) fn is_plain_path(path: &str) -> bool {
    path.split('/').all(|part| !part.is_empty() && !part.starts_with('.') && !part.contains(['\\', '\0']))
}

/// A line with its checksum in a line below.
pub(super) fn with_checksum(line: &str) -> String {
    format!("{line}\n{:08x}\n", crc32fast::hash(line.as_bytes()))
}

/// The line that [`with_checksum`] was given.
pub(super) fn checked(content: &str) -> Result<&str, &'static str> {
    let (line, crc) = content.split_once('\n').ok_or("it ends early")?;
    match crc == format!("{:08x}\n", crc32fast::hash(line.as_bytes())) {
        true => Ok(line),
        false => Err("its checksum is wrong"),
    }
}

pub(super) fn unique<T: Ord + std::fmt::Debug>(
    items: impl Iterator<Item = T>,
    what: &str,
) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for item in items {
        if let Some(twice) = seen.replace(item) {
            return Err(format!("{what} {twice:?} is there twice"));
        }
    }
    Ok(())
}

pub(super) mod uuid_as_text {
    use serde::{Deserialize, Deserializer, Serializer};
    use uuid::Uuid;

    pub fn serialize<S: Serializer>(uuid: &Uuid, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(uuid)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Uuid, D::Error> {
        let text = String::deserialize(deserializer)?;
        Uuid::parse_str(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
#[path = "tests/manifest.rs"]
pub(super) mod tests;
