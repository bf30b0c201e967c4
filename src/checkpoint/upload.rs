//! Upload: the files of a checkpoint that a remote storage lacks.
//!
//! ```text
//!   000012.sst   named by the checkpoint before          → stays where it is
//!   000013.sst   new                                     → shared/…/7-000013.sst.zst
//!   CURRENT  MANIFEST-000005  OPTIONS-000007             → small/…/4711.zst, one behind the other
//! ```
//! What a failed checkpoint uploaded is not uploaded again by the next one. The content is checked
//! against its checksum on the way.

use super::manifest::{StateFile, Stored};
use super::objects::COMPRESSED;
use super::record::State;
use super::remote::{RemoteStorage, SHARED, SMALL};
use super::transfer::{Cancel, in_parallel};
use crate::failpoint;
use crate::state::durable::{damaged, in_file};
use crate::stream::Epoch;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// What an upload did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Uploaded {
    /// Bytes that were sent.
    pub bytes: u64,
    /// Objects that were made.
    pub objects: u64,
}

/// A file that goes.
struct Going {
    path: PathBuf,
    file: StateFile,
    object: String,
}

impl RemoteStorage {
    /// Uploads what is missing of `files`, which are in `dir`, and notes in them where each one is. The
    /// objects stay until the manifest is published or the checkpoint released.
    pub fn upload(
        &self,
        dir: &Path,
        epoch: Epoch,
        files: &mut [StateFile],
        cancel: &Cancel,
    ) -> io::Result<Uploaded> {
        self.open(None)?;
        let going = self.claim(dir, epoch, files);
        let (bytes, objects) = (AtomicU64::new(0), going.len() as u64);
        let uploaded = in_parallel(self.transfers(), &going, |going| {
            failpoint::hit("storage.before_shared")?;
            let content = Checked::open(&going.path, &going.file)?;
            let sent = self.objects()?.upload(&going.object, content, &self.throttle, cancel)?;
            bytes.fetch_add(sent, Ordering::Relaxed);
            let mut state = self.state.lock();
            state.there.insert(going.object.clone());
            state.files.insert(key(&going.file), going.object.clone());
            drop(state);
            failpoint::hit("storage.after_shared")
        });
        let small = uploaded.and_then(|()| self.upload_small(dir, epoch, files, cancel));
        match small {
            Ok(sent) => Ok(Uploaded { bytes: bytes.into_inner() + sent, objects: objects + 1 }),
            Err(error) => {
                self.release(epoch);
                Err(error)
            }
        }
    }

    /// Notes where the shared files are, or are going to be, and returns those that have to go there.
    fn claim(&self, dir: &Path, epoch: Epoch, files: &mut [StateFile]) -> Vec<Going> {
        let mut state = self.state.lock();
        let mut going = Vec::new();
        for file in files.iter_mut().filter(|file| is_shared(&file.name)) {
            let stored = file.stored.take().map(|stored| stored.object);
            let there = stored.filter(|object| state.there.contains(object));
            let there = there.or_else(|| state.files.get(&key(file)).cloned());
            let object = there.unwrap_or_else(|| {
                let object = self.name(&mut state, &file.name);
                going.push(Going { path: dir.join(&file.name), file: file.clone(), object: object.clone() });
                object
            });
            state.claimed.entry(epoch).or_default().insert(object.clone());
            file.stored = Some(Stored { object, at: 0 });
        }
        going
    }

    /// A name that was never given before.
    fn name(&self, state: &mut State, file: &str) -> String {
        state.named += 1;
        format!("{SHARED}/{}/{}-{file}{}", self.folder, state.named, self.suffix())
    }

    pub(super) fn suffix(&self) -> &'static str {
        if self.compress.load(Ordering::Relaxed) { COMPRESSED } else { "" }
    }

    /// The small files, in one object.
    fn upload_small(
        &self,
        dir: &Path,
        epoch: Epoch,
        files: &mut [StateFile],
        cancel: &Cancel,
    ) -> io::Result<u64> {
        let object = format!("{SMALL}/{}/{}{}", self.folder, epoch.0, self.suffix());
        let mut content = Vec::new();
        for file in files.iter_mut().filter(|file| !is_shared(&file.name)) {
            let at = content.len() as u64;
            Checked::open(&dir.join(&file.name), file)?.read_to_end(&mut content)?;
            file.stored = Some(Stored { object: object.clone(), at });
        }
        failpoint::hit("storage.before_small")?;
        {
            let mut state = self.state.lock();
            state.claimed.entry(epoch).or_default().insert(object.clone());
            // From here on it may be there.
            state.there.insert(object.clone());
        }
        let sent = self.objects()?.upload(&object, content.as_slice(), &self.throttle, cancel)?;
        failpoint::hit("storage.after_small")?;
        Ok(sent)
    }
}

/// Whether several checkpoints may have the very same file: RocksDB never changes one of these.
fn is_shared(name: &str) -> bool {
    name.ends_with(".sst")
}

/// What tells a file from others of its name.
pub(super) fn key(file: &StateFile) -> (String, u64, u32) {
    (file.name.clone(), file.size, file.crc32)
}

/// Reads a file, and fails at its end if it is not what it was measured to be.
struct Checked<'a> {
    path: PathBuf,
    content: File,
    expected: &'a StateFile,
    bytes: u64,
    sum: crc32fast::Hasher,
}

impl<'a> Checked<'a> {
    fn open(path: &Path, expected: &'a StateFile) -> io::Result<Self> {
        let content = File::open(path).map_err(in_file(path))?;
        Ok(Self { path: path.to_owned(), content, expected, bytes: 0, sum: crc32fast::Hasher::new() })
    }
}

impl Read for Checked<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.content.read(buffer)?;
        self.bytes += read as u64;
        self.sum.update(&buffer[..read]);
        let whole = self.bytes == self.expected.size && self.sum.clone().finalize() == self.expected.crc32;
        if read == 0 && !buffer.is_empty() && !whole {
            return Err(damaged(&self.path, "it is not what it was"));
        }
        Ok(read)
    }
}
