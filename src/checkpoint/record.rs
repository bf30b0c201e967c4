//! The records of a remote log, and what a storage knows by them.
//!
//! ```text
//!   log/00000000000000000011     one line of JSON: who wrote it; a manifest, or that a process begins
//!                                crc32 of that line, 8 hexadecimal digits
//! ```
//! A record that can't be read counts for nothing, but what it named nobody knows. One that says from where
//! the database goes on ends what lies between: [`State::forget_after`].

use super::manifest::{Manifest, StateFile, checked, with_checksum};
use super::upload::key;
use crate::stream::Epoch;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use weir_catalog::ObjectId;

/// The folder of the records.
pub(super) const LOG: &str = "log";
/// Records of beginnings that stay, so that processes that were fenced off find their numbers taken.
pub(super) const BEGINNINGS_KEPT: usize = 100;

/// A record of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    /// Of the process that wrote it.
    pub(super) generation: u64,
    /// Which process it was, and which of its storages.
    pub(super) writer: String,
    /// A checkpoint; none where a process begins.
    pub(super) manifest: Option<Manifest>,
    /// The generation and epoch of the checkpoint from which it goes on: records of later ones before this
    /// one, and damaged ones, count no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) goes_on_from: Option<(u64, Epoch)>,
}

impl Record {
    pub(super) fn encode(&self) -> io::Result<bytes::Bytes> {
        Ok(with_checksum(&serde_json::to_string(self)?).into())
    }

    pub(super) fn decode(content: &[u8]) -> Result<Self, String> {
        let content = std::str::from_utf8(content).map_err(|e| e.to_string())?;
        let record: Record = serde_json::from_str(checked(content)?).map_err(|e| e.to_string())?;
        record.manifest.as_ref().map_or(Ok(()), Manifest::check)?;
        Ok(record)
    }
}

/// Records by number, any of which may be damaged.
pub(super) type Records = Vec<(u64, Result<Record, String>)>;

/// What is known of the log and the files.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The number of the next record; 0 until the log was opened.
    pub(super) next: u64,
    /// Who took over.
    pub(super) fenced: Option<String>,
    pub(super) manifests: BTreeMap<u64, Manifest>,
    /// Records that can't be read.
    pub(super) damaged: BTreeSet<u64>,
    /// Records that are to go.
    pub(super) expired: BTreeSet<u64>,
    /// Objects that are there.
    pub(super) there: BTreeSet<String>,
    /// Those of them that this one put, by name, size and checksum of the file.
    pub(super) files: HashMap<(String, u64, u32), String>,
    /// The catalog that was stored last.
    pub(super) catalog: Option<StateFile>,
    /// Parts of sinks' logs that are there, by sink, actor and epoch.
    pub(super) parts: HashMap<(ObjectId, u32, Epoch), StateFile>,
    /// Objects that a pending checkpoint is going to name.
    pub(super) claimed: BTreeMap<Epoch, BTreeSet<String>>,
    /// Objects that are to go.
    pub(super) condemned: BTreeSet<String>,
    /// How many names were given.
    pub(super) named: u64,
}

impl State {
    /// Takes in the records that were there when the log was opened. Returns whether each manifest that
    /// counts can be read.
    pub(super) fn read(&mut self, records: Records) -> bool {
        let mut beginnings = Vec::new();
        for (number, record) in records {
            match record {
                Ok(Record { manifest: Some(manifest), .. }) => self.add(number, manifest),
                Ok(Record { goes_on_from, .. }) => {
                    beginnings.push(number);
                    if let Some(from) = goes_on_from {
                        self.forget_after(from, number);
                    }
                }
                Err(error) => {
                    tracing::error!(number, error, "A MANIFEST IS DAMAGED in the checkpoint storage");
                    self.damaged.insert(number);
                }
            }
        }
        let gone = beginnings.len().saturating_sub(BEGINNINGS_KEPT);
        self.expired.extend(&beginnings[..gone]);
        self.damaged.is_empty()
    }

    fn add(&mut self, number: u64, manifest: Manifest) {
        self.there.extend(manifest.objects().map(str::to_owned));
        self.parts.extend(manifest.promised.iter().map(|p| ((p.sink, p.actor, p.epoch), p.file.clone())));
        let catalog = manifest.catalog.as_ref();
        let object = catalog.and_then(|file| Some((key(file), file.stored.as_ref()?.object.clone())));
        self.files.extend(object);
        self.manifests.insert(number, manifest);
    }

    /// Checkpoints after that of `from`, and damaged ones, count no more if their records come before
    /// `number`.
    pub(super) fn forget_after(&mut self, from: (u64, Epoch), number: u64) {
        let later = |(n, m): (&u64, &Manifest)| (*n < number && (m.generation, m.epoch) > from).then_some(*n);
        let forgotten: Vec<u64> = self.manifests.iter().filter_map(later).collect();
        for number in forgotten {
            self.manifests.remove(&number);
            self.expired.insert(number);
        }
        let later = self.damaged.split_off(&number);
        self.expired.extend(std::mem::replace(&mut self.damaged, later));
    }
}

/// The name of a record.
pub(super) fn record_name(number: u64) -> String {
    format!("{LOG}/{number:020}")
}
