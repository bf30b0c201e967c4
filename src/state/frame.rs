//! Frames: what a log file is made of. One frame is one append that was made durable by one fsync.
//!
//! ```text
//!   file     magic (8) │ frame │ frame │ …
//!   frame    length of payload (u32) │ crc32 (u32) │ sequence (u64) │ payload      little endian
//!   crc32    over length, sequence and payload
//! ```
//! A frame is written only after the one before was fsynced. So a bad frame with nothing whole
//! behind it was never acknowledged, and is cut; a bad frame with a whole one behind it is damage,
//! and an error, unless the whole one tells that nobody needs what is before it.
//! **Invariant:** sequences grow within a file.

use super::durable::{damaged, in_file, parent, sync_dir, sync_file};
use super::ownership::Ownership;
use crate::failpoint;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC_LEN: usize = 8;
const HEADER_LEN: usize = 16;

/// The largest payload: a frame is read whole into memory.
pub const PAYLOAD_MAX: usize = 1 << 30;

/// What a log file holds.
#[derive(Debug)]
pub struct Frames {
    bytes: Vec<u8>,
    frames: Vec<(u64, Range<usize>)>,
    end: usize,
    /// The sequences of the frames that damage comes before.
    behind_damage: Vec<u64>,
}

impl Frames {
    /// Reads `path`. At the end of a log (`last`) a bad frame is left out, and [`Frames::torn`]
    /// says how many bytes follow the last whole one; elsewhere it is an error.
    pub fn read(path: &Path, magic: &[u8; MAGIC_LEN], last: bool) -> io::Result<Self> {
        Self::read_from(path, magic, last, 0)
    }

    /// The same for who needs nothing before the sequence `needed`: damage there is left out with a
    /// warning, where the whole frame behind it has no greater sequence.
    pub fn read_from(path: &Path, magic: &[u8; MAGIC_LEN], last: bool, needed: u64) -> io::Result<Self> {
        let bytes = std::fs::read(path).map_err(in_file(path))?;
        if last && bytes.len() < MAGIC_LEN && magic.starts_with(&bytes) {
            // The file was being made.
            return Ok(Self { bytes, frames: Vec::new(), end: 0, behind_damage: Vec::new() });
        }
        if !bytes.starts_with(magic) {
            return Err(damaged(path, "it does not start as a log of this kind and version"));
        }
        let mut frames: Vec<(u64, Range<usize>)> = Vec::new();
        let mut behind_damage = Vec::new();
        let mut end = MAGIC_LEN;
        while end < bytes.len() {
            let after = frames.last().map(|(sequence, _)| *sequence);
            let Some((sequence, payload)) = frame_at(&bytes, end, after) else {
                let whole_at = |at: usize| Some((at, frame_at(&bytes, at, after)?.0));
                match (end + 1..bytes.len()).find_map(whole_at) {
                    Some((at, sequence)) if sequence <= needed => {
                        let (file, bytes) = (path.display(), at - end);
                        tracing::warn!(%file, at = end, bytes, "a log is damaged where nothing needs it any more");
                        behind_damage.push(sequence);
                        end = at;
                        continue;
                    }
                    Some((at, _)) => {
                        return Err(damaged(path, format!("bad frame at byte {end}, a whole one at {at}")));
                    }
                    None if !last => return Err(damaged(path, format!("bad frame at byte {end}"))),
                    None => break,
                }
            };
            end = payload.end;
            frames.push((sequence, payload));
        }
        Ok(Self { bytes, frames, end, behind_damage })
    }

    /// The frames: sequence and payload.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.frames.iter().map(|(sequence, payload)| (*sequence, &self.bytes[payload.clone()]))
    }

    /// Whether there is damage, which nobody needs, right before the frame of this sequence.
    pub fn is_behind_damage(&self, sequence: u64) -> bool {
        self.behind_damage.contains(&sequence)
    }

    /// Whether there is damage anywhere, which nobody needs.
    pub fn is_damaged(&self) -> bool {
        !self.behind_damage.is_empty()
    }

    /// How many bytes follow the last whole frame.
    pub fn torn(&self) -> usize {
        self.bytes.len() - self.end
    }
}

/// The whole frame at byte `at`, if there is one with a greater sequence than `after`.
fn frame_at(bytes: &[u8], at: usize, after: Option<u64>) -> Option<(u64, Range<usize>)> {
    let header = bytes.get(at..at + HEADER_LEN)?;
    let length = u32::from_le_bytes(header[..4].try_into().ok()?);
    let crc = u32::from_le_bytes(header[4..8].try_into().ok()?);
    let sequence = u64::from_le_bytes(header[8..].try_into().ok()?);
    let start = at + HEADER_LEN;
    let payload = start..start + length as usize;
    let intact = crc == checksum(length, sequence, bytes.get(payload.clone())?);
    (intact && after.is_none_or(|after| after < sequence)).then_some((sequence, payload))
}

fn checksum(length: u32, sequence: u64, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length.to_le_bytes());
    hasher.update(&sequence.to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

/// Appends frames to a log file.
#[derive(Debug)]
pub struct FrameWriter {
    path: PathBuf,
    file: File,
    len: u64,
    /// What its fail points are called.
    name: &'static str,
    /// What tells that another process may append here.
    ownership: Option<Arc<Ownership>>,
    /// Set when it is not known what the file holds: nothing more may be appended.
    failed: Option<String>,
}

impl FrameWriter {
    /// Makes an empty log file; its name is durable on return. What is there goes.
    pub fn create(path: PathBuf, magic: &[u8; MAGIC_LEN], name: &'static str) -> io::Result<Self> {
        let make = || {
            let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(&path)?;
            file.write_all(magic)?;
            sync_file(&file)?;
            sync_dir(parent(&path))?;
            Ok(file)
        };
        let file = make().map_err(in_file(&path))?;
        Ok(Self { path, file, len: MAGIC_LEN as u64, name, ownership: None, failed: None })
    }

    /// From now on nothing is appended where the directory is another process's.
    pub fn guarded(mut self, ownership: Option<Arc<Ownership>>) -> Self {
        self.ownership = ownership;
        self
    }

    /// Makes an empty log file beside this one, or in its place, by the same guard.
    pub fn next(&self, path: PathBuf, magic: &[u8; MAGIC_LEN], name: &'static str) -> io::Result<Self> {
        self.require_ownership()?;
        Ok(Self::create(path, magic, name)?.guarded(self.ownership.clone()))
    }

    fn require_ownership(&self) -> io::Result<()> {
        self.ownership.as_ref().map_or(Ok(()), |ownership| ownership.check())
    }

    /// Opens a log file whose content was read as `frames`, and cuts what is torn.
    pub fn open(
        path: PathBuf,
        magic: &[u8; MAGIC_LEN],
        name: &'static str,
        frames: &Frames,
    ) -> io::Result<Self> {
        if frames.end < MAGIC_LEN {
            return Self::create(path, magic, name);
        }
        let cut = || {
            let mut file = OpenOptions::new().write(true).open(&path)?;
            if frames.torn() > 0 {
                tracing::warn!(file = %path.display(), bytes = frames.torn(), "torn end of a log is cut");
                file.set_len(frames.end as u64)?;
                sync_file(&file)?;
            }
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        };
        let file = cut().map_err(in_file(&path))?;
        Ok(Self { path, file, len: frames.end as u64, name, ownership: None, failed: None })
    }

    /// Bytes in the file.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no frames.
    pub fn is_empty(&self) -> bool {
        self.len == MAGIC_LEN as u64
    }

    /// Appends a frame; durable on return, and what a process finds that takes the directory over later.
    /// After an error the frame is not in the file; if that can't be had, every later append fails too.
    pub fn append(&mut self, sequence: u64, payload: &[u8]) -> io::Result<()> {
        if let Some(reason) = &self.failed {
            return Err(io::Error::other(format!("{} failed before: {reason}", self.path.display())));
        }
        if payload.len() > PAYLOAD_MAX {
            let message = format!("a record of {} bytes is more than a log takes", payload.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        self.require_ownership()?;
        let length = payload.len() as u32;
        let mut frame = Vec::with_capacity(HEADER_LEN + payload.len());
        frame.extend_from_slice(&length.to_le_bytes());
        frame.extend_from_slice(&checksum(length, sequence, payload).to_le_bytes());
        frame.extend_from_slice(&sequence.to_le_bytes());
        frame.extend_from_slice(payload);
        self.write(&frame).map_err(|e| self.undo(e))?;
        // Another process may have read the file before the frame was there. It stays: the file is no
        // longer ours to cut.
        self.require_ownership().inspect_err(|e| self.failed = Some(e.to_string()))?;
        self.len += frame.len() as u64;
        // The frame is durable: whatever happens now, it was appended.
        let _ = failpoint::hit(&format!("{}.after_sync", self.name));
        Ok(())
    }

    fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        failpoint::hit(&format!("{}.before_write", self.name))?;
        let (first, second) = frame.split_at(frame.len() / 2);
        self.file.write_all(first)?;
        failpoint::hit(&format!("{}.mid_write", self.name))?;
        self.file.write_all(second)?;
        failpoint::hit(&format!("{}.before_sync", self.name))?;
        if let Err(error) = sync_file(&self.file) {
            // What is on disk is unknown, and a second fsync may lie.
            self.failed = Some(error.to_string());
            return Err(error);
        }
        Ok(())
    }

    /// Removes what a failed append may have left.
    fn undo(&mut self, error: io::Error) -> io::Error {
        let cut = self.file.set_len(self.len).and_then(|()| self.file.seek(SeekFrom::End(0)).map(drop));
        if let Err(cut) = cut {
            self.failed.get_or_insert(cut.to_string());
        }
        in_file(&self.path)(error)
    }
}

#[cfg(test)]
#[path = "tests/frame.rs"]
mod tests;
