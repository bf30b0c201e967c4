//! Staged: the checkpoint that RESTORE puts together beside the others, until the catalog says that it
//! has taken their place.
//!
//! ```text
//!   checkpoints/restoring/state/    a checkpoint's directory in the making, no checkpoint yet
//!   checkpoints/restoring/…         what else is prepared
//!
//!   staged, whole ── the catalog's log: Restore(…, epoch) ── renamed to checkpoints/<epoch> ── older ones go
//!                    before it a start removes what is staged, after it a start goes on from there
//! ```
//! **Invariant:** no checkpoint before the one that the catalog names is ever restored with that catalog.

use super::gc;
use super::manifest::Manifest;
use crate::failpoint;
use crate::state::durable::{in_file, sync_dir};
use crate::stream::Epoch;
use std::io;
use std::path::{Path, PathBuf};

const STAGED: &str = "restoring";
const STATE: &str = "state";

/// Where what is to be restored is put together, below the directory of checkpoints.
pub fn directory(root: &Path) -> PathBuf {
    root.join(STAGED)
}

/// Where its state is.
pub fn state(root: &Path) -> PathBuf {
    directory(root).join(STATE)
}

/// Makes an empty directory to put something together in.
pub fn begin(root: &Path) -> io::Result<PathBuf> {
    remove(root)?;
    let dir = directory(root);
    std::fs::create_dir(&dir).map_err(in_file(&dir))?;
    Ok(dir)
}

/// Removes what is staged.
pub fn remove(root: &Path) -> io::Result<()> {
    let dir = directory(root);
    match std::fs::remove_dir_all(&dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(in_file(&dir)(e)),
        _ => Ok(()),
    }
}

/// Makes the staged checkpoint one, if it is the one that the catalog names (`restored`; zero: it names
/// none), and removes what is left. A second time changes nothing.
pub fn settle(root: &Path, restored: Epoch) -> io::Result<()> {
    let from = state(root);
    let staged = if from.exists() { Manifest::read(&from).unwrap_or_default() } else { None };
    if restored > Epoch::ZERO && staged.is_some_and(|manifest| manifest.epoch == restored) {
        let to = gc::directory(root, restored);
        std::fs::rename(&from, &to).map_err(in_file(&to))?;
        sync_dir(root)?;
        failpoint::hit("restore.after_rename")?;
    }
    remove(root)
}
