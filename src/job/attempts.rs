//! Attempts: savepoints under way. What one leaves that a crash cut off is removed at the next start.
//!
//! ```text
//!   savepoints/3f2a99c1     in the data directory: the URL that the attempt of this name writes to
//!   noted ── files ── manifest ── forgotten
//!             └─ it fails: its files are removed ── forgotten
//!             └─ crash ── at the next start the same, unless its manifest is there
//! ```
//! Only this server's own are removed: whether somebody else's is still being written, nobody knows. Where
//! the storage is away it is tried again by the start after.

use super::incarnation::Lasting;
use super::savepoint::{blocking, parse};
use crate::checkpoint::savepoint::SavepointDir;
use crate::state::data_dir::DataDir;
use crate::state::durable::{in_file, write_atomically};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where they are noted, below the data directory.
const NOTED: &str = "savepoints";

/// One that is noted.
pub(super) struct Attempt {
    path: PathBuf,
}

impl Attempt {
    /// Notes the attempt `name` to write a savepoint to `url`.
    pub fn begin(data_dir: &DataDir, name: &str, url: &str) -> io::Result<Self> {
        let path = data_dir.subdirectory(NOTED)?.join(name);
        write_atomically(&path, url.as_bytes(), "savepoint_attempt")?;
        Ok(Self { path })
    }

    /// It is over. What it has put goes if it failed; where that fails, the next start tries again.
    pub fn end(self, dir: &SavepointDir, done: bool) -> io::Result<()> {
        if !done && let Err(error) = remove(dir) {
            tracing::warn!(url = dir.url(), %error, "could not remove the files of a savepoint that failed");
            return Ok(());
        }
        std::fs::remove_file(&self.path).map_err(in_file(&self.path))
    }
}

/// Removes what an attempt has put, unless it has become the savepoint. Returns how many files went.
fn remove(dir: &SavepointDir) -> io::Result<usize> {
    if dir.is_published()? { Ok(0) } else { dir.give_up() }
}

/// Removes what attempts of processes before this one have left, in the background.
pub(super) fn clean(lasting: &Arc<Lasting>) -> io::Result<()> {
    let noted = lasting.data_dir.root().join(NOTED);
    if !noted.exists() {
        return Ok(());
    }
    for entry in std::fs::read_dir(&noted).map_err(in_file(&noted))? {
        let path = entry?.path();
        tokio::spawn(async move {
            let of_cleaning = path.clone();
            if let Ok(Err(error)) = blocking(move || clean_one(&of_cleaning)).await {
                let file = path.display();
                tracing::warn!(%file, %error, "could not remove the files of a savepoint that was cut off");
            }
        });
    }
    Ok(())
}

fn clean_one(path: &Path) -> io::Result<()> {
    let text = std::fs::read_to_string(path).map_err(in_file(path))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if let Ok(url) = parse(&text) {
        let files = match SavepointDir::of_attempt(&url, &name).and_then(|dir| remove(&dir)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            other => other?,
        };
        if files > 0 {
            let url = url.url.as_str();
            tracing::info!(url, files, "removed what a savepoint that was cut off had left");
        }
    }
    std::fs::remove_file(path).map_err(in_file(path))
}
