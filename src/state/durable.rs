//! Small durable steps on a local disk: what survives SIGKILL and power loss, and how.
//!
//! A file is replaced whole: written beside, fsynced, renamed over, and its directory fsynced. So
//! a reader sees the old content or the new, never a part.

use crate::failpoint;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Makes the names in `dir` durable: what was created, renamed or removed there.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    failpoint::hit("disk.sync_dir")?;
    #[cfg(test)]
    if super::disk::sync_dir(dir)? {
        return Ok(());
    }
    File::open(dir)?.sync_all()
}

/// Makes what was written to `file` durable. After an error nobody knows what of it is.
pub fn sync_file(file: &File) -> io::Result<()> {
    failpoint::hit("disk.sync_file")?;
    #[cfg(test)]
    if super::disk::sync_file(file)? {
        return Ok(());
    }
    file.sync_data()
}

/// Replaces the content of `path` durably. The fail points `<name>.before_rename` and
/// `<name>.after_rename` are on the way.
pub fn write_atomically(path: &Path, content: &[u8], name: &str) -> io::Result<()> {
    let beside = temporary(path);
    let mut file = File::create(&beside)?;
    file.write_all(content)?;
    sync_file(&file)?;
    failpoint::hit(&format!("{name}.before_rename"))?;
    std::fs::rename(&beside, path)?;
    failpoint::hit(&format!("{name}.after_rename"))?;
    sync_dir(parent(path))
}

/// Where a file is written before it is renamed to `path`.
pub fn temporary(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    path.with_file_name(name)
}

/// The directory that holds `path`.
pub fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// An error of damaged content that names the file.
pub fn damaged(path: &Path, what: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{} is damaged: {what}", path.display()))
}

/// Adds the file's name to an error.
pub fn in_file(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    move |e| io::Error::new(e.kind(), format!("{}: {e}", path.display()))
}

/// A number in a file of its own, replaced durably. As text: `number crc32`.
#[derive(Debug)]
pub struct DurableNumber {
    path: PathBuf,
    value: u64,
}

impl DurableNumber {
    /// The number in `path`; 0 if there is no such file.
    pub fn open(path: PathBuf) -> io::Result<Self> {
        let value = match std::fs::read_to_string(&path) {
            Ok(text) => {
                parse_number(&text).ok_or_else(|| damaged(&path, format!("{text:?} is no number")))?
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => 0,
            Err(e) => return Err(in_file(&path)(e)),
        };
        Ok(Self { path, value })
    }

    /// The number.
    pub fn get(&self) -> u64 {
        self.value
    }

    /// Replaces it; durable on return.
    pub fn set(&mut self, value: u64) -> io::Result<()> {
        let text = value.to_string();
        let content = format!("{text} {:08x}\n", crc32fast::hash(text.as_bytes()));
        write_atomically(&self.path, content.as_bytes(), "number").map_err(in_file(&self.path))?;
        self.value = value;
        Ok(())
    }
}

fn parse_number(text: &str) -> Option<u64> {
    let (number, crc) = text.trim_end().split_once(' ')?;
    let intact = u32::from_str_radix(crc, 16).ok()? == crc32fast::hash(number.as_bytes());
    number.parse().ok().filter(|_| intact)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_replaced_and_damage_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("generation");
        let mut number = DurableNumber::open(path.clone()).unwrap();
        assert_eq!(number.get(), 0);
        number.set(41).unwrap();
        number.set(42).unwrap();
        assert_eq!(DurableNumber::open(path.clone()).unwrap().get(), 42);
        let content = std::fs::read(&path).unwrap();
        for cut in 0..content.len() - 1 {
            std::fs::write(&path, &content[..cut]).unwrap();
            let error = DurableNumber::open(path.clone()).unwrap_err().to_string();
            assert!(error.contains("generation is damaged"), "{error}");
        }
    }

    #[test]
    fn a_failed_replacement_leaves_the_old_content() {
        let dir = tempfile::tempdir().unwrap();
        let mut number = DurableNumber::open(dir.path().join("n")).unwrap();
        number.set(1).unwrap();
        failpoint::testing::set("number.before_rename=error");
        assert!(number.set(2).is_err());
        assert_eq!(number.get(), 1);
        assert_eq!(DurableNumber::open(dir.path().join("n")).unwrap().get(), 1);
    }
}
