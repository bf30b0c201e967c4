//! Which checkpoints may go, and how they go: in steps any of which may be the last.
//!
//! ```text
//!   remove the manifest ── fsync ──> it is no checkpoint any more ──> remove the directory
//! ```
//! A crash after the first step leaves an unfinished directory, which the next start removes. A
//! file is freed by the file system when no directory links to it any more: what a retained
//! checkpoint or the live store needs stays.

use super::manifest::FILE_NAME;
use crate::failpoint;
use crate::state::durable::{in_file, sync_dir};
use crate::stream::Epoch;
use std::io;
use std::path::{Path, PathBuf};

/// What may go.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Checkpoints beyond those retained, oldest first.
    pub expired: Vec<Epoch>,
    /// Directories that never became checkpoints and never will.
    pub unfinished: Vec<Epoch>,
}

/// Decides: of the `completed` checkpoints (oldest first) the newest `max_retained` that count stay, one
/// at least, and what is newer than the oldest of those. `found` are the epochs of all directories. A
/// directory without manifest may be pending only if it is newer than every checkpoint.
pub fn plan(completed: &[(Epoch, bool)], found: &[Epoch], max_retained: usize) -> Plan {
    let counting = completed.iter().enumerate().rev().filter(|(_, (_, counts))| *counts);
    let expired = counting.map(|(index, _)| index).nth(max_retained.max(1) - 1).unwrap_or(0);
    let unfinished = match completed.last() {
        Some((newest, _)) => {
            let finished = |epoch: &Epoch| completed.iter().any(|(e, _)| e == epoch);
            found.iter().filter(|e| *e < newest && !finished(e)).copied().collect()
        }
        None => Vec::new(),
    };
    Plan { expired: completed[..expired].iter().map(|(epoch, _)| *epoch).collect(), unfinished }
}

/// The directory of the checkpoint of `epoch`.
pub fn directory(root: &Path, epoch: Epoch) -> PathBuf {
    root.join(format!("{:020}", epoch.0))
}

/// The epochs of all directories in `root`, finished or not, each once, ascending.
pub fn epochs(root: &Path) -> io::Result<Vec<Epoch>> {
    let mut epochs = Vec::new();
    for entry in std::fs::read_dir(root).map_err(in_file(root))? {
        let name = entry?.file_name();
        // The store makes `<epoch>.tmp` first.
        let number = name.to_str().map(|n| n.strip_suffix(".tmp").unwrap_or(n));
        if let Some(epoch) = number.and_then(|n| n.parse().ok()) {
            epochs.push(Epoch(epoch));
        }
    }
    epochs.sort_unstable();
    epochs.dedup();
    Ok(epochs)
}

/// Removes the checkpoint of `epoch`, or what is there of one that was never completed.
pub fn remove(root: &Path, epoch: Epoch) -> io::Result<()> {
    let dir = directory(root, epoch);
    let manifest = dir.join(FILE_NAME);
    if manifest.exists() {
        failpoint::hit("gc.before_manifest")?;
        std::fs::remove_file(&manifest).map_err(in_file(&manifest))?;
        sync_dir(&dir)?;
        failpoint::hit("gc.after_manifest")?;
    }
    for dir in [dir.with_extension("tmp"), dir] {
        if !dir.exists() {
            continue;
        }
        for entry in std::fs::read_dir(&dir).map_err(in_file(&dir))? {
            std::fs::remove_file(entry?.path()).map_err(in_file(&dir))?;
            failpoint::hit("gc.between_files")?;
        }
        std::fs::remove_dir(&dir).map_err(in_file(&dir))?;
        failpoint::hit("gc.after_directory")?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "tests/gc.rs"]
mod tests;
