//! Ownership: whether a data directory is still this process's, asked before anything is promised.
//!
//! ```text
//!   ask ──> write ──> fsync ──> ask again ──> acknowledge
//! ```
//! A lock is on the file `LOCK`, not on its name: where somebody removes the name, puts another file
//! there or moves the directory, a second process can lock what is there then, and read what it finds.
//! What was durable before the second answer, it finds; what is asked after it came, is refused. An answer
//! is one `stat`, microseconds beside an fsync.
//!
//! **Invariant:** what was lost stays lost: the process has to end.

use super::durable::in_file;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tokio_util::sync::CancellationToken;

/// Whose a data directory is.
#[derive(Debug)]
pub struct Ownership {
    root: PathBuf,
    path: PathBuf,
    /// The device and number of the file that is locked: no other file has them while it is open.
    identity: (u64, u64),

    lost: CancellationToken,
}

impl Ownership {
    /// By the file `lock`, which is locked, and is called `path` in the directory `root`.
    pub(super) fn of(root: &Path, path: PathBuf, lock: &File) -> io::Result<Self> {
        let metadata = lock.metadata().map_err(in_file(&path))?;
        let identity = (metadata.dev(), metadata.ino());
        Ok(Self { root: root.to_owned(), path, identity, lost: CancellationToken::new() })
    }

    /// Fails where the directory is not this process's any more.
    pub fn check(&self) -> io::Result<()> {
        if self.lost.is_cancelled() {
            return Err(self.error());
        }
        match std::fs::metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == self.identity => Ok(()),
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(in_file(&self.path)(e)),
            Ok(_) | Err(_) => {
                let error = self.error();
                tracing::error!(%error, "NOTHING MORE IS ACKNOWLEDGED: another process may use the data directory");
                self.lost.cancel();
                Err(error)
            }
        }
    }

    /// Returns once it was found to be lost.
    pub async fn lost(&self) -> io::Error {
        self.lost.cancelled().await;
        self.error()
    }

    fn error(&self) -> io::Error {
        let message = format!(
            "data directory \"{}\" is no longer this server's: its file LOCK was removed or replaced",
            self.root.display()
        );
        io::Error::new(io::ErrorKind::PermissionDenied, message)
    }
}
