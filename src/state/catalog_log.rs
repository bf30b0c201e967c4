//! The catalog on disk: an append-only log of edits, and an image that they are merged into.
//!
//! ```text
//!   catalog.log     frames (see frame.rs): sequence = the version after, payload = the changes
//!   catalog.image   one frame: sequence = its version, payload = the whole catalog
//! ```
//! A change is durable when `append` returns. When the log has grown, the image is replaced first
//! and the log emptied after; edits that the image already holds are skipped on opening.

use super::durable::{damaged, in_file, sync_dir, temporary};
use super::frame::{FrameWriter, Frames};
use super::ownership::Ownership;
use crate::failpoint;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_catalog::log::CatalogLog;
use weir_catalog::{CatalogChange, CatalogSnapshot, codec};

const LOG_MAGIC: &[u8; 8] = b"WEIRCLG1";
const IMAGE_MAGIC: &[u8; 8] = b"WEIRCIM1";
/// A log of this size is merged: it is read at each start.
const LOG_BYTES_MAX: u64 = 1 << 20;

/// The catalog's files in one directory.
#[derive(Debug)]
pub struct FileCatalogLog {
    dir: PathBuf,
    log: FrameWriter,
    log_bytes_max: u64,
}

impl FileCatalogLog {
    /// Opens the catalog in `dir`, or makes an empty one. A torn end of the log (never
    /// acknowledged) is cut.
    pub fn open(dir: &Path) -> io::Result<(Self, CatalogSnapshot)> {
        let mut snapshot = read_image(&dir.join("catalog.image"))?;
        let path = dir.join("catalog.log");
        let log = if path.exists() {
            let merged = snapshot.version;
            let frames = Frames::read_from(&path, LOG_MAGIC, true, merged + 1)?;
            for (version, changes) in frames.iter().filter(|(version, _)| *version > merged) {
                snapshot = apply(&snapshot, version, changes).map_err(|e| damaged(&path, e))?;
            }
            FrameWriter::open(path, LOG_MAGIC, "catalog_log", &frames)?
        } else {
            FrameWriter::create(path, LOG_MAGIC, "catalog_log")?
        };
        Ok((Self { dir: dir.to_owned(), log, log_bytes_max: LOG_BYTES_MAX }, snapshot))
    }

    /// From now on nothing is written where the directory is another process's.
    pub fn guarded(mut self, ownership: &Arc<Ownership>) -> Self {
        self.log = self.log.guarded(Some(Arc::clone(ownership)));
        self
    }

    /// Replaces the image by `snapshot`, then empties the log.
    pub fn merge(&mut self, snapshot: &CatalogSnapshot) -> io::Result<()> {
        let image = self.dir.join("catalog.image");
        let beside = temporary(&image);
        let mut writer = self.log.next(beside.clone(), IMAGE_MAGIC, "catalog_image")?;
        writer.append(snapshot.version, &codec::encode_image(snapshot)?)?;
        failpoint::hit("catalog_image.before_rename")?;
        std::fs::rename(&beside, &image).map_err(in_file(&image))?;
        sync_dir(&self.dir)?;
        failpoint::hit("catalog_image.after_rename")?;
        self.log = self.log.next(self.dir.join("catalog.log"), LOG_MAGIC, "catalog_log")?;
        Ok(())
    }
}

impl CatalogLog for FileCatalogLog {
    fn append(&mut self, changes: &[CatalogChange], after: &CatalogSnapshot) -> io::Result<()> {
        self.log.append(after.version, &codec::encode_changes(changes)?)?;
        if self.log.len() > self.log_bytes_max
            && let Err(error) = self.merge(after)
        {
            // The changes are durable in the log; the next append tries again.
            tracing::warn!(%error, "could not merge the catalog's log into its image");
        }
        Ok(())
    }
}

fn read_image(path: &Path) -> io::Result<CatalogSnapshot> {
    if !path.exists() {
        return Ok(CatalogSnapshot::default());
    }
    let frames = Frames::read(path, IMAGE_MAGIC, false)?;
    let (version, image) = frames.iter().next().ok_or_else(|| damaged(path, "it is empty"))?;
    let snapshot = codec::decode_image(image).map_err(|e| damaged(path, e))?;
    if snapshot.version == version {
        Ok(snapshot)
    } else {
        Err(damaged(path, format!("version {} in a frame of {version}", snapshot.version)))
    }
}

fn apply(before: &CatalogSnapshot, version: u64, changes: &[u8]) -> Result<CatalogSnapshot, String> {
    let mut snapshot = before.clone();
    for change in codec::decode_changes(changes).map_err(|e| e.to_string())? {
        snapshot = snapshot.apply(&change).map_err(|e| format!("version {version}: {e}"))?;
    }
    if snapshot.version == version {
        Ok(snapshot)
    } else {
        Err(format!("an edit of version {} leads to {version}", before.version))
    }
}

#[cfg(test)]
#[path = "tests/catalog_log.rs"]
mod tests;
