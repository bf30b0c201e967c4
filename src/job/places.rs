//! Places: whether a directory may hold what is to outlive the data directory, and can be written to.
//!
//! Asked before anything is kept there: by SAVEPOINT, by ALTER DATABASE … SET `checkpoint.storage`, and at a
//! start. What is in an object store can't be asked so: it may be away for the moment.

use super::manager::{Database, JobError};
use crate::config::{Config, StorageScheme, StorageUrl};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use weir_catalog::{CatalogChange, SqlState};

/// The setting that names such a place.
const STORAGE: &str = "checkpoint.storage";

impl Database {
    /// Returns once another process may use the data directory: this one has to end.
    pub async fn lost(&self) -> std::io::Error {
        self.lasting.lost().await
    }

    /// Refuses a change of `checkpoint.storage` to a directory that can't be it.
    pub async fn check_place(&self, change: &CatalogChange) -> Result<(), JobError> {
        let url = match change {
            CatalogChange::Set(name, Some(value)) if name == STORAGE => StorageUrl::parse(value),
            _ => return Ok(()),
        };
        let Ok(Some(url)) = url else { return Ok(()) };
        let data_dir = self.lasting.data_dir.root().to_owned();
        super::savepoint::blocking(move || {
            require_apart(&url, &data_dir)?;
            require_writable(&url)
        })
        .await?
    }
}

/// Refuses a start with a `checkpoint.storage` that is not apart from the data directory.
pub(super) fn check_config(config: &Config) -> Result<(), JobError> {
    config.database.storage.url.as_ref().map_or(Ok(()), |url| require_apart(url, &config.data_dir))
}

/// The directory that a URL names, if it names one.
fn directory(url: &StorageUrl) -> Option<PathBuf> {
    (url.scheme == StorageScheme::File).then(|| url.url.to_file_path().ok()).flatten()
}

/// Refuses a directory that is the data directory, lies in it or holds it: it would be lost with it, and
/// Weir itself removes what it does not know there.
pub(super) fn require_apart(url: &StorageUrl, data_dir: &Path) -> Result<(), JobError> {
    let Some(dir) = directory(url) else { return Ok(()) };
    let (found, data) = (resolved(&dir), resolved(data_dir));
    let what = match (found.starts_with(&data), data.starts_with(&found)) {
        (true, true) => "is",
        (true, false) => "lies in",
        (false, true) => "holds",
        (false, false) => return Ok(()),
    };
    let message = format!("\"{}\" {what} the data directory \"{}\"", dir.display(), data.display());
    let mut error = JobError::new(SqlState::INVALID_PARAMETER_VALUE, message);
    error.hint = Some(
        "What is kept there is to outlive the data directory: name a directory beside it, or better on another disk."
            .to_owned(),
    );
    Err(error)
}

/// Refuses a directory where nothing can be made. Leaves nothing there.
pub(super) fn require_writable(url: &StorageUrl) -> Result<(), JobError> {
    let Some(dir) = directory(url) else { return Ok(()) };
    let (there, _) = existing(&dir);
    let name = format!(".weir-{:032x}", crate::work::unique());
    let tried = match there.is_dir() {
        true => std::fs::create_dir(there.join(&name)).and_then(|()| std::fs::remove_dir(there.join(&name))),
        false => Err(io::ErrorKind::NotADirectory.into()),
    };
    tried.map_err(|error| unwritable(&dir, &there, &error))
}

fn unwritable(dir: &Path, there: &Path, error: &io::Error) -> JobError {
    let there = there.display();
    let (state, why) = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            (SqlState::INSUFFICIENT_PRIVILEGE, format!("the server may not write to \"{there}\""))
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            (SqlState::INSUFFICIENT_PRIVILEGE, format!("the file system of \"{there}\" is read-only"))
        }
        io::ErrorKind::NotADirectory => {
            (SqlState::INVALID_PARAMETER_VALUE, format!("\"{there}\" is no directory"))
        }
        io::ErrorKind::StorageFull => (SqlState::DISK_FULL, format!("the disk of \"{there}\" is full")),
        _ => (SqlState::IO_ERROR, format!("nothing can be made in \"{there}\": {error}")),
    };
    let mut made = JobError::new(state, format!("can't use directory \"{}\": {why}", dir.display()));
    made.hint = Some("Name a directory in which the server's user can make files.".to_owned());
    made
}

/// A path without links, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    let (there, rest) = existing(path);
    rest.into_iter().rev().fold(there, |path, name| path.join(name))
}

/// The nearest directory, or what else it is, on the way to `path` that exists, without links; and the names
/// that follow, last first.
fn existing(path: &Path) -> (PathBuf, Vec<OsString>) {
    let mut path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut rest = Vec::new();
    loop {
        if let Ok(found) = path.canonicalize() {
            return (found, rest);
        }
        match (path.file_name().map(ToOwned::to_owned), path.pop()) {
            (Some(name), true) => rest.push(name),
            _ => return (path, rest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(path: &Path) -> StorageUrl {
        StorageUrl::parse(&format!("file://{}", path.display())).unwrap().unwrap()
    }

    #[test]
    fn what_is_to_outlive_the_data_directory_is_apart_from_it() {
        let dir = tempfile::tempdir().unwrap();
        let (root, data) = (dir.path().canonicalize().unwrap(), dir.path().join("data"));
        std::fs::create_dir(&data).unwrap();
        std::os::unix::fs::symlink(&data, dir.path().join("link")).unwrap();
        for (path, what) in [
            ("data", "is"),
            ("link", "is"),
            ("data/checkpoints", "lies in"),
            ("data/not/there", "lies in"),
            ("link/not/there", "lies in"),
            ("", "holds"),
        ] {
            let error = require_apart(&url(&root.join(path)), &data).unwrap_err();
            assert_eq!(error.state, SqlState::INVALID_PARAMETER_VALUE);
            assert!(error.message.contains(&format!("{what} the data directory")), "{path}: {error}");
        }
        for path in ["data2", "beside", "datum/data"] {
            require_apart(&url(&root.join(path)), &data).unwrap();
        }
        require_apart(&url(&root.join("data")), &root.join("not/there/yet")).unwrap();
    }

    #[test]
    fn a_directory_that_can_be_made_is_told_from_one_that_cannot() {
        let dir = tempfile::tempdir().unwrap();
        require_writable(&url(&dir.path().join("not/there"))).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
        std::fs::write(dir.path().join("file"), "").unwrap();
        let error = require_writable(&url(&dir.path().join("file/below"))).unwrap_err();
        assert!(error.message.ends_with("file\" is no directory"), "{error}");
        // Nobody, root neither, makes anything there.
        let error = require_writable(&url(Path::new("/proc/weir"))).unwrap_err();
        assert!(error.message.starts_with("can't use directory \"/proc/weir\": "), "{error}");
        let of = |kind: io::ErrorKind| unwritable(dir.path(), dir.path(), &kind.into()).state;
        assert_eq!(of(io::ErrorKind::PermissionDenied), SqlState::INSUFFICIENT_PRIVILEGE);
        assert_eq!(of(io::ErrorKind::ReadOnlyFilesystem), SqlState::INSUFFICIENT_PRIVILEGE);
    }
}
