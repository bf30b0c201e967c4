//! SinkLog: a sink's changes on disk, from the actor that made them until they are delivered.
//!
//! A sink has a directory. Each of its actors appends to a file of its own and makes it durable at
//! each checkpoint; the handle that goes into the manifest names the part of the file that the
//! epoch is in. A file is never appended to by another process or another life of the actor, so
//! what a crash leaves behind a sealed part is never read.
//!
//! ```text
//!   <actor>-<generation>-<number>.log
//!   ┌──────────┬───────┬───────┬─ sealed epoch 7 ─┬───────┬─ sealed epoch 9 ─┬ (not sealed) ┐
//!   │ WEIRSNK1 │ frame │ frame │                  │ frame │                  │  frame …     │
//!   └──────────┴───────┴───────┴──────────────────┴───────┴──────────────────┴──────────────┘
//!   frame = length u32 | crc32 of the body u32 | body
//!   body  = changes, as stream/encoded.rs writes them                                 little-endian
//! ```
//! **Invariant:** a file is removed when no writer has it open and no sealed part of it waits for
//! delivery.

use super::ahead::Unopened;
use crate::checkpoint::participant::CommitHandle;
use crate::state::durable;
use crate::stream::{ChangeBatch, Epoch, encoded};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tracing::{debug, warn};
use weir_catalog::ObjectId;

const MAGIC: &[u8; 8] = b"WEIRSNK1";
/// Rows that are gathered before they are encoded.
const FRAME_ROWS: usize = 8192;
/// A file that is longer than this at a checkpoint is the last of its kind.
const ROLL_BYTES: u64 = 16 << 20;

/// What a sink actor promised: where the changes of an epoch are. The payload of its handle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedPart {
    /// The file's name.
    pub file: String,
    /// Where the first frame starts.
    pub start: u64,
    /// Where the last frame ends.
    pub end: u64,
    /// Rows in it.
    pub rows: u64,
    /// How many promises before it were not released, and begin where it does.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub covers: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl SealedPart {
    /// The part that `handle` promises.
    pub fn of(handle: &CommitHandle) -> io::Result<Self> {
        serde_json::from_str(&handle.payload).map_err(|e| damaged(&format!("handle {}", handle.payload), e))
    }
}

/// A sealed part, in an open file: to be copied into a log of other such parts.
#[derive(Debug)]
pub struct LogPiece<'a> {
    /// The file.
    pub file: &'a File,
    /// Where in it.
    pub part: SealedPart,
}

impl LogPiece<'_> {
    fn length(&self) -> u64 {
        self.part.end - self.part.start
    }

    /// Bytes of a log of `pieces`.
    pub fn bytes(pieces: &[LogPiece<'_>]) -> u64 {
        MAGIC.len() as u64 + pieces.iter().map(LogPiece::length).sum::<u64>()
    }

    /// Where it is in a log called `log`, behind `before`.
    pub fn placed(&self, before: &[LogPiece<'_>], log: String) -> SealedPart {
        let start = Self::bytes(before);
        SealedPart { file: log, start, end: start + self.length(), rows: self.part.rows, covers: 0 }
    }

    /// The log that `pieces` make, to be read from its beginning.
    pub fn log<'a>(pieces: &'a [LogPiece<'a>]) -> impl Read + 'a {
        MAGIC.chain(PieceReader { pieces, at: 0 })
    }
}

/// Reads pieces, one after the other.
struct PieceReader<'a> {
    pieces: &'a [LogPiece<'a>],
    /// Where in the first of them.
    at: u64,
}

impl Read for PieceReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some((piece, rest)) = self.pieces.split_first() {
            let left = piece.length() - self.at;
            if left == 0 {
                (self.pieces, self.at) = (rest, 0);
                continue;
            }
            let bytes = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let read = piece.file.read_at(&mut buffer[..bytes], piece.part.start + self.at)?;
            if read == 0 && bytes > 0 {
                return Err(damaged(&piece.part.file, "it ends within what was promised"));
            }
            self.at += read as u64;
            return Ok(read);
        }
        Ok(0)
    }
}

#[derive(Debug, Default)]
struct FileUse {
    open: bool,
    waiting: usize,
}

/// The log of one sink.
#[derive(Debug)]
pub struct SinkLog {
    dir: PathBuf,
    files: Mutex<HashMap<String, FileUse>>,
    unopened: Mutex<Unopened>,
}

impl SinkLog {
    /// Opens the log in `dir` and removes files that no handle of the restored checkpoint names.
    /// No writer or reader of an earlier opening may be alive.
    pub fn open(dir: &Path, restored: &[CommitHandle]) -> io::Result<Arc<Self>> {
        if !dir.is_dir() {
            fs::create_dir_all(dir)?;
            durable::sync_dir(durable::parent(dir))?;
        }
        let mut files: HashMap<String, FileUse> = HashMap::new();
        for handle in restored {
            let part = SealedPart::of(handle)?;
            // As often as it was sealed: its delivery counts those that it covers as well.
            files.entry(part.file).or_default().waiting += 1 + part.covers;
        }
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if !files.contains_key(&name) && name.ends_with(".log") {
                debug!(file = %name, "orphaned sink log removed");
                fs::remove_file(entry.path())?;
            }
        }
        let unopened = Mutex::new(Unopened::read(dir)?);
        Ok(Arc::new(Self { dir: dir.to_owned(), files: Mutex::new(files), unopened }))
    }

    /// Removes the log of a dropped sink.
    pub fn remove(dir: &Path) -> io::Result<()> {
        match fs::remove_dir_all(dir) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    /// A writer for one life of actor `actor` of `sink`.
    pub fn writer(self: &Arc<Self>, sink: ObjectId, actor: u32, generation: u64) -> SinkLogWriter {
        let stem = format!("{actor}-{generation}");
        SinkLogWriter {
            log: Arc::clone(self),
            sink,
            actor,
            stem,
            pending: Vec::new(),
            pending_rows: 0,
            open: None,
            last: None,
            covers: 0,
        }
    }

    /// The changes that `part` holds.
    pub fn read(&self, part: &SealedPart) -> io::Result<SinkLogReader> {
        let path = self.dir.join(&part.file);
        let mut file = BufReader::with_capacity(1 << 20, File::open(&path).map_err(durable::in_file(&path))?);
        file.seek(SeekFrom::Start(part.start))?;
        Ok(SinkLogReader { name: part.file.clone(), file, left: part.end - part.start })
    }

    /// Takes note that what `handles` promised is delivered; removes files that are of no more use.
    pub fn committed(&self, handles: &[CommitHandle]) -> io::Result<()> {
        for handle in handles {
            let part = SealedPart::of(handle)?;
            self.release(&part.file, |file| file.waiting = file.waiting.saturating_sub(1 + part.covers));
        }
        Ok(())
    }

    /// What is known of the target as long as nobody has opened it.
    pub fn unopened(&self) -> MutexGuard<'_, Unopened> {
        self.unopened.lock()
    }

    /// Bytes on disk.
    pub fn bytes(&self) -> u64 {
        let names: Vec<String> = self.files.lock().keys().cloned().collect();
        names.iter().filter_map(|name| fs::metadata(self.dir.join(name)).ok()).map(|m| m.len()).sum()
    }

    fn release(&self, name: &str, change: impl FnOnce(&mut FileUse)) {
        let mut files = self.files.lock();
        let Some(file) = files.get_mut(name) else { return };
        change(file);
        if !file.open && file.waiting == 0 {
            files.remove(name);
            drop(files);
            match fs::remove_file(self.dir.join(name)) {
                // Before a crash it was delivered and removed already; the manifest did not yet say so.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => warn!(file = %name, %error, "could not remove sink log"),
                Ok(()) => {}
            }
        }
    }

    /// A new file for a writer.
    fn create(&self, stem: &str) -> io::Result<OpenFile> {
        for number in 0u64.. {
            let name = format!("{stem}-{number}.log");
            // One that a restored handle names was delivered if it is gone. What is released under that
            // name must not be of ours.
            if self.files.lock().contains_key(&name) {
                continue;
            }
            match File::options().write(true).create_new(true).open(self.dir.join(&name)) {
                Ok(mut file) => {
                    file.write_all(MAGIC)?;
                    durable::sync_dir(&self.dir)?;
                    self.files.lock().insert(name.clone(), FileUse { open: true, waiting: 0 });
                    let file = BufWriter::with_capacity(1 << 18, file);
                    let length = MAGIC.len() as u64;
                    return Ok(OpenFile { name, file, length, sealed: length, rows: 0 });
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
        Err(io::Error::other("no file name is free"))
    }
}

#[derive(Debug)]
struct OpenFile {
    name: String,
    file: BufWriter<File>,
    length: u64,
    /// Where the part that is not sealed yet starts.
    sealed: u64,
    /// Rows in that part.
    rows: u64,
}

/// One actor's end of the log.
#[derive(Debug)]
pub struct SinkLogWriter {
    log: Arc<SinkLog>,
    sink: ObjectId,
    actor: u32,
    stem: String,

    pending: Vec<ChangeBatch>,
    pending_rows: usize,
    open: Option<OpenFile>,
    /// The part that was sealed last, until it is known whether it is released.
    last: Option<SealedPart>,
    /// Promises that were not released, since the last one that was.
    covers: usize,
}

impl SinkLogWriter {
    /// Appends the changes of `batch`. They are not durable before [`Self::seal`].
    pub fn append(&mut self, batch: &ChangeBatch) -> io::Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        self.pending_rows += batch.num_rows();
        self.pending.push(batch.clone());
        // Until what was sealed last is confirmed nothing comes behind it in a file that is to end there.
        let ends = self.last.is_some() && self.is_long();
        if self.pending_rows >= FRAME_ROWS && !ends { self.write_frame() } else { Ok(()) }
    }

    /// Makes everything appended since the last seal durable, as `epoch`. `None`: there was nothing.
    pub fn seal(&mut self, epoch: Epoch) -> io::Result<Option<CommitHandle>> {
        self.write_frame()?;
        let Some(open) = self.open.as_mut().filter(|open| open.rows > 0) else { return Ok(None) };
        open.file.flush()?;
        durable::sync_file(open.file.get_ref())?;
        let (file, covers) = (open.name.clone(), self.covers);
        let part = SealedPart { file, start: open.sealed, end: open.length, rows: open.rows, covers };
        (open.sealed, open.rows) = (open.length, 0);
        self.log.release(&part.file, |file| file.waiting += 1);
        let payload = serde_json::to_string(&part)?;
        self.last = Some(part);
        Ok(Some(CommitHandle { sink: self.sink, actor: self.actor, epoch, payload }))
    }

    /// What was sealed last is released with its checkpoint: a file that is long enough ends there.
    pub fn confirm(&mut self) {
        let sealed = self.last.take().is_some();
        if sealed {
            self.covers = 0;
        }
        if sealed && self.is_long() {
            self.close();
        }
    }

    fn is_long(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.length >= ROLL_BYTES && open.rows == 0)
    }

    /// What was sealed last is not released: the next part holds it too. Until that is delivered, the
    /// checkpoint that names it may be restored.
    pub fn take_back(&mut self) {
        if let (Some(part), Some(open)) = (self.last.take(), &mut self.open) {
            (open.sealed, open.rows) = (part.start, open.rows + part.rows);
            self.covers += 1;
        }
    }

    /// Appends what the restored checkpoint has promised and not released, as far as it is this actor's:
    /// `own` tells which changes of a promise are. The next part holds it.
    pub fn carry(
        &mut self,
        promised: &[CommitHandle],
        own: &dyn Fn(&CommitHandle, ChangeBatch) -> io::Result<Option<ChangeBatch>>,
    ) -> io::Result<()> {
        for handle in promised {
            for changes in self.log.read(&SealedPart::of(handle)?)? {
                if let Some(changes) = own(handle, changes?.0)? {
                    self.append(&changes)?;
                }
            }
        }
        Ok(())
    }

    fn write_frame(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let pending = std::mem::take(&mut self.pending);
        let rows = std::mem::take(&mut self.pending_rows);
        let body = encoded::encode(&pending).map_err(io::Error::other)?;
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(self.log.create(&self.stem)?),
        };
        let length =
            u32::try_from(body.len()).map_err(|_| io::Error::other("a frame of the sink log is too long"))?;
        open.file.write_all(&length.to_le_bytes())?;
        open.file.write_all(&crc32fast::hash(&body).to_le_bytes())?;
        open.file.write_all(&body)?;
        open.length += 8 + u64::from(length);
        open.rows += rows as u64;
        Ok(())
    }

    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            self.log.release(&open.name, |file| file.open = false);
        }
    }

    /// Bytes of memory that wait to be encoded.
    pub fn memory(&self) -> usize {
        self.pending.iter().map(ChangeBatch::memory).sum()
    }
}

impl Drop for SinkLogWriter {
    fn drop(&mut self) {
        self.close();
    }
}

/// Reads a sealed part, frame by frame: its changes, and how many bytes of the log they take.
#[derive(Debug)]
pub struct SinkLogReader {
    name: String,
    file: BufReader<File>,
    left: u64,
}

impl SinkLogReader {
    fn frame(&mut self) -> io::Result<(ChangeBatch, u64)> {
        let cut = |e: io::Error| match e.kind() {
            io::ErrorKind::UnexpectedEof => damaged(&self.name, "it ends within what was promised"),
            _ => e,
        };
        let mut head = [0; 8];
        self.file.read_exact(&mut head).map_err(cut)?;
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (length, crc) = (u64::from(word(0)), word(4));
        if self.left < 8 + length {
            return Err(damaged(&self.name, "a frame goes beyond its part"));
        }
        let mut body = vec![0; length as usize];
        self.file.read_exact(&mut body).map_err(cut)?;
        if crc32fast::hash(&body) != crc {
            return Err(damaged(&self.name, "a checksum does not match"));
        }
        self.left -= 8 + length;
        let changes = encoded::decode(&body).map_err(|e| damaged(&self.name, e))?;
        Ok((changes, 8 + length))
    }
}

impl Iterator for SinkLogReader {
    type Item = io::Result<(ChangeBatch, u64)>;

    fn next(&mut self) -> Option<Self::Item> {
        (self.left > 0).then(|| {
            let frame = self.frame();
            if frame.is_err() {
                self.left = 0;
            }
            frame
        })
    }
}

fn damaged(name: &str, why: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("sink log {name} is damaged: {why}"))
}

#[cfg(test)]
#[path = "tests/sink_log.rs"]
mod tests;
