//! Entries: keys and their values as a stream, the same whatever store they come from and go to.
//!
//! ```text
//!   stream   magic (8) │ block │ block │ … │ end
//!   block    bytes of its entries (u32) │ bytes as stored (u32) │ crc32 (u32) │ entries, as one zstd frame
//!   entry    length (u32) │ key │ length (u32) │ value
//!   end      0 (u32) │ number of entries (u64) │ crc32 of these two (u32)         little endian
//! ```
//! The crc32 of a block is that of what is stored. Keys ascend. A stream is written and read block by
//! block, so that it takes no more memory however long it is. **Invariant:** a stream that was cut, or
//! changed anywhere, is an error, never fewer or other entries.

use super::StateError;
use std::io::{self, Read, Write};

const MAGIC: &[u8; 8] = b"WEIRENT1";
/// Bytes of entries after which a block is written.
const BLOCK_BYTES: usize = 256 << 10;
/// No block has more: one entry may be longer than a block should be.
const BLOCK_BYTES_MAX: usize = 1 << 30;
const LEVEL: i32 = 1;

/// Writes a stream.
#[derive(Debug)]
pub struct EntryWriter<W: Write> {
    out: W,
    block: Vec<u8>,
    entries: u64,
}

impl<W: Write> EntryWriter<W> {
    /// A stream into `out`.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        Ok(Self { out, block: Vec::new(), entries: 0 })
    }

    /// Adds an entry, whose key comes after those before.
    pub fn write(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let bytes = key.len() + value.len() + 8;
        if bytes > BLOCK_BYTES_MAX {
            let message = format!("an entry of {bytes} bytes is more than a block takes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        if !self.block.is_empty() && self.block.len() + bytes > BLOCK_BYTES {
            self.flush()?;
        }
        put(key, value, &mut self.block);
        self.entries += 1;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let stored = zstd::bulk::compress(&self.block, LEVEL)?;
        let lengths = [self.block.len() as u32, stored.len() as u32, crc32fast::hash(&stored)];
        for number in lengths {
            self.out.write_all(&number.to_le_bytes())?;
        }
        self.out.write_all(&stored)?;
        self.block.clear();
        Ok(())
    }

    /// How many entries there are so far.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Ends the stream. Returns what it went to.
    pub fn finish(mut self) -> io::Result<W> {
        if !self.block.is_empty() {
            self.flush()?;
        }
        self.out.write_all(&end(self.entries))?;
        Ok(self.out)
    }
}

/// Entries in memory, which become a stream elsewhere: to compress them takes longer than to gather them.
#[derive(Debug, Default)]
pub struct EntryBuffer {
    /// A length and the bytes, of a key and of its value in turn.
    bytes: Vec<u8>,
    entries: u64,
}

impl EntryBuffer {
    /// Adds an entry, whose key comes after those before.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        put(key, value, &mut self.bytes);
        self.entries += 1;
    }

    /// How many entries there are.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// How many bytes they take.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The stream of them.
    pub fn encode(&self) -> Result<Vec<u8>, StateError> {
        let mut writer = EntryWriter::new(Vec::with_capacity(self.bytes.len() / 2))?;
        let mut rest = self.bytes.as_slice();
        while !rest.is_empty() {
            writer.write(piece(&mut rest)?, piece(&mut rest)?)?;
        }
        Ok(writer.finish()?)
    }
}

fn put(key: &[u8], value: &[u8], to: &mut Vec<u8>) {
    for piece in [key, value] {
        to.extend_from_slice(&(piece.len() as u32).to_le_bytes());
        to.extend_from_slice(piece);
    }
}

fn end(entries: u64) -> [u8; 16] {
    let mut end = [0; 16];
    end[4..12].copy_from_slice(&entries.to_le_bytes());
    let crc = crc32fast::hash(&end[..12]);
    end[12..].copy_from_slice(&crc.to_le_bytes());
    end
}

/// What is called with each key and value; an error ends it.
pub type VisitEntry<'a> = &'a mut (dyn FnMut(&[u8], &[u8]) -> Result<(), StateError> + 'a);

/// Reads a stream to its end and calls `visit` with each key and value. Returns how many there were.
pub fn read_entries(mut from: impl Read, visit: VisitEntry<'_>) -> Result<u64, StateError> {
    let mut magic = [0; MAGIC.len()];
    from.read_exact(&mut magic).map_err(cut)?;
    if magic != *MAGIC {
        return Err(damaged("it does not start as entries of this version"));
    }
    let (mut entries, mut stored) = (0, Vec::new());
    let mut last: Vec<u8> = Vec::new();
    loop {
        let bytes = number(&mut from)? as usize;
        if bytes == 0 {
            return finish(from, entries);
        }
        let (length, crc) = (number(&mut from)? as usize, number(&mut from)?);
        if bytes > BLOCK_BYTES_MAX || length > zstd::zstd_safe::compress_bound(bytes) {
            return Err(damaged("a block is longer than any"));
        }
        stored.clear();
        (&mut from).take(length as u64).read_to_end(&mut stored)?;
        if stored.len() != length || crc32fast::hash(&stored) != crc {
            return Err(damaged("a block's checksum is wrong"));
        }
        let block = zstd::bulk::decompress(&stored, bytes).map_err(|e| damaged(&e.to_string()))?;
        if block.len() != bytes {
            return Err(damaged("a block has another length"));
        }
        let mut rest = block.as_slice();
        while !rest.is_empty() {
            let (key, value) = (piece(&mut rest)?, piece(&mut rest)?);
            if entries > 0 && key <= last.as_slice() {
                return Err(damaged("its keys don't ascend"));
            }
            visit(key, value)?;
            last.clear();
            last.extend_from_slice(key);
            entries += 1;
        }
    }
}

fn finish(mut from: impl Read, entries: u64) -> Result<u64, StateError> {
    let mut rest = [0; 12];
    from.read_exact(&mut rest).map_err(cut)?;
    if rest[..] != end(entries)[4..] {
        return Err(damaged("its end tells of other entries"));
    }
    let mut more = [0];
    match from.read(&mut more)? {
        0 => Ok(entries),
        _ => Err(damaged("something comes after its end")),
    }
}

fn number(from: &mut impl Read) -> Result<u32, StateError> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes).map_err(cut)?;
    Ok(u32::from_le_bytes(bytes))
}

fn piece<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], StateError> {
    let short = || damaged("an entry ends early");
    let (length, after) = rest.split_first_chunk::<4>().ok_or_else(short)?;
    let (piece, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(short)?;
    *rest = after;
    Ok(piece)
}

fn cut(error: io::Error) -> StateError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged("it ends early"),
        _ => error.into(),
    }
}

fn damaged(what: &str) -> StateError {
    io::Error::new(io::ErrorKind::InvalidData, format!("stored entries are damaged: {what}")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(entries: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
        let mut writer = EntryWriter::new(Vec::new()).unwrap();
        entries.iter().for_each(|(key, value)| writer.write(key, value).unwrap());
        assert_eq!(writer.entries(), entries.len() as u64);
        writer.finish().unwrap()
    }

    type Read = Vec<(Vec<u8>, Vec<u8>)>;

    fn read(bytes: &[u8]) -> Result<Read, StateError> {
        let mut seen = Vec::new();
        read_entries(bytes, &mut |key, value| {
            seen.push((key.to_vec(), value.to_vec()));
            Ok(())
        })?;
        Ok(seen)
    }

    #[test]
    fn entries_come_back_whatever_their_length() {
        for count in [0u32, 1, 3, 20_000] {
            let entries: Vec<_> = (0..count)
                .map(|i| (i.to_be_bytes().to_vec(), vec![i as u8; if i == 2 { 1 << 20 } else { 24 }]))
                .collect();
            assert_eq!(read(&stream(&entries)).unwrap(), entries);
            let mut buffer = EntryBuffer::default();
            entries.iter().for_each(|(key, value)| buffer.push(key, value));
            assert_eq!(buffer.entries(), entries.len() as u64);
            assert_eq!(buffer.encode().unwrap(), stream(&entries), "gathered first");
        }
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_an_error() {
        let entries: Vec<_> = (0..40u8).map(|i| (vec![1, i], vec![i; 30])).collect();
        let bytes = stream(&entries);
        for at in 0..bytes.len() {
            assert!(read(&bytes[..at]).is_err(), "cut at {at}");
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            assert!(read(&changed).is_err(), "changed at {at}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(read(&longer).is_err());
        let unordered = stream(&[(vec![2], vec![]), (vec![1], vec![])]);
        assert!(read(&unordered).unwrap_err().to_string().contains("ascend"));
    }
}
