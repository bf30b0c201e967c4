//! TextReader: reads one text file in blocks, from an offset, and hands them to a decoder.

use super::files_source::{Located, OnError};
use super::source::{SourceError, SplitPoll, SplitReader};
use crate::checkpoint::participant::Offset;
use crate::formats::compression::Compression;
use crate::formats::csv;
use crate::formats::decode::{BadRecord, Decoder};
use memchr::memchr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use tracing::warn;

/// Bytes read at a time.
const BLOCK_BYTES: usize = 1 << 20;
/// With less than this in hand, more is read first, so that batches are full.
const LOW_BYTES: usize = 1 << 18;
/// A record that is longer is bad.
const RECORD_BYTES_MAX: usize = 64 << 20;
/// A header that is longer is none.
const HEADER_BYTES_MAX: u64 = 1 << 20;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// How often a followed file is looked at, microseconds.
const FOLLOW_US: i64 = 100_000;

/// The first record of a file, which is its header, and where the next one starts. `None`: it is
/// not whole yet.
pub fn header_of(path: &str, compression: Compression) -> io::Result<Option<(Vec<u8>, u64)>> {
    let mut text = Vec::new();
    let mut input = compression.reader(File::open(path)?)?.take(HEADER_BYTES_MAX);
    loop {
        let read = input.by_ref().take(1 << 12).read_to_end(&mut text)?;
        let mark = if text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
        if let Some(end) = csv::first_record(&text[mark..]) {
            return Ok(Some((text[mark..mark + end].to_vec(), (mark + end) as u64)));
        }
        if read == 0 {
            return Ok(None);
        }
    }
}

/// Reads a file of records.
pub struct TextReader {
    name: String,
    input: Box<dyn Read + Send>,
    compressed: bool,
    decoder: Box<dyn Decoder>,
    until: Option<u64>,
    follow: bool,
    on_error: OnError,

    buffer: Vec<u8>,
    /// Where in the buffer the next record starts.
    at: usize,
    /// The same in the file.
    offset: u64,
    /// Whether the file had no more to give when asked last.
    eof: bool,
    /// Whether the first line is still to be read as a header.
    header: bool,
    /// Within a record that is too long: up to the end of the line.
    skipping: bool,
    shrunk: bool,
}

impl TextReader {
    /// Starts at `from`, ends before `until`.
    pub fn open(
        name: &str,
        mut file: File,
        compression: Compression,
        decoder: Box<dyn Decoder>,
        from: u64,
        until: Option<u64>,
    ) -> Result<Self, SourceError> {
        let fault = |e: io::Error| SourceError(format!("could not read {name}: {e}"));
        let compressed = compression != Compression::None;
        let mut shrunk = false;
        if !compressed {
            shrunk = file.metadata().map_err(fault)?.len() < from;
            file.seek(SeekFrom::Start(from)).map_err(fault)?;
        }
        let mut input = compression.reader(file).map_err(fault)?;
        if compressed && from > 0 {
            io::copy(&mut input.by_ref().take(from), &mut io::sink()).map_err(fault)?;
        }
        if shrunk {
            warn!(file = name, offset = from, "shorter than what was read of it before");
        }
        Ok(Self {
            name: name.to_owned(),
            input,
            compressed,
            decoder,
            until,
            follow: false,
            on_error: OnError::DeadLetter,
            buffer: Vec::new(),
            at: 0,
            offset: from,
            eof: false,
            header: false,
            skipping: false,
            shrunk,
        })
    }

    /// Whether a header comes next, whether the file grows, and what becomes of bad records.
    #[must_use]
    pub fn with(mut self, header: bool, follow: bool, on_error: OnError) -> Self {
        self.header = header;
        self.follow = follow && self.until.is_none();
        self.on_error = on_error;
        self
    }

    /// Reads one more block behind what is left in the buffer.
    fn fill(&mut self) -> io::Result<()> {
        self.buffer.drain(..self.at);
        self.at = 0;
        let length = self.buffer.len();
        self.buffer.resize(length + BLOCK_BYTES, 0);
        let mut read = 0;
        let mut outcome = Ok(());
        self.eof = false;
        while read < BLOCK_BYTES && !self.eof && outcome.is_ok() {
            match self.input.read(&mut self.buffer[length + read..]) {
                Ok(0) => self.eof = true,
                Ok(n) => read += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => outcome = Err(e),
            }
        }
        self.buffer.truncate(length + read);
        if self.offset == 0 && length == 0 && self.buffer.starts_with(BYTE_ORDER_MARK) {
            self.consume(BYTE_ORDER_MARK.len());
        }
        outcome
    }

    fn consume(&mut self, bytes: usize) {
        self.at += bytes;
        self.offset += bytes as u64;
    }

    /// How much of the buffer may be decoded, and whether nothing may follow it.
    fn block(&self) -> (usize, bool) {
        let length = self.buffer.len() - self.at;
        match self.until.map(|until| until.saturating_sub(self.offset)) {
            Some(left) if left <= length as u64 => (left as usize, true),
            _ => (length, self.eof && !self.follow),
        }
    }

    /// Steps over a line that is of no use; false if it does not end in the buffer.
    fn skip_line(&mut self) -> bool {
        let (length, at_end) = self.block();
        match memchr(b'\n', &self.buffer[self.at..self.at + length]) {
            Some(end) => self.consume(end + 1),
            None if at_end || self.skipping => {
                self.consume(length);
                return at_end;
            }
            None => return false,
        }
        true
    }

    /// Reads the header; false if it does not end in the buffer.
    fn read_header(&mut self) -> bool {
        let (length, at_end) = self.block();
        let block = &self.buffer[self.at..self.at + length];
        let Some(end) = csv::first_record(block).or(at_end.then_some(length)) else { return false };
        if let Err(reason) = self.decoder.header(&block[..end]) {
            warn!(file = self.name, reason, "the header does not fit: no record can be read");
        }
        self.consume(end);
        true
    }

    /// A record too long to be one: given up, up to the end of its line.
    fn give_up(&mut self) -> Located {
        let payload = self.buffer[self.at..self.at + 1024].to_vec();
        let reason = format!("it is longer than {RECORD_BYTES_MAX} bytes");
        self.skipping = true;
        (self.offset, BadRecord { at: 0, payload, reason })
    }

    /// What a block of compressed text that is damaged gives: a bad record, then the end.
    fn damaged(&mut self, error: &io::Error) -> Result<SplitPoll, SourceError> {
        if !self.compressed {
            return Err(SourceError(format!("could not read {}: {error}", self.name)));
        }
        self.input = Box::new(io::empty());
        self.eof = true;
        let bad = BadRecord { at: 0, payload: Vec::new(), reason: format!("the file is damaged: {error}") };
        let none = self.decoder.decode(b"", true, 0).map_err(|e| SourceError(e.to_string()))?;
        self.on_error.apply(
            &self.name,
            none.rows,
            vec![(self.offset + (self.buffer.len() - self.at) as u64, bad)],
        )
    }
}

impl SplitReader for TextReader {
    fn poll(&mut self, rows_max: usize, now_us: i64) -> Result<SplitPoll, SourceError> {
        let idle = Ok(SplitPoll::Idle { until_us: Some(now_us + FOLLOW_US) });
        let mut more = self.follow || !self.eof;
        loop {
            if more && self.buffer.len() - self.at < LOW_BYTES {
                if let Err(error) = self.fill() {
                    return self.damaged(&error);
                }
                more = !self.eof;
            }
            let (length, at_end) = self.block();
            if length == 0 && (at_end || (self.eof && self.shrunk)) {
                return if self.follow { idle } else { Ok(SplitPoll::Finished) };
            }
            if self.header && length > 0 {
                if self.read_header() {
                    self.header = false;
                    continue;
                }
            } else if self.skipping && length > 0 {
                if self.skip_line() {
                    self.skipping = false;
                    continue;
                }
            } else if length > 0 {
                let block = &self.buffer[self.at..self.at + length];
                let decoded = self.decoder.decode(block, at_end, rows_max.max(1));
                let decoded =
                    decoded.map_err(|e| SourceError(format!("could not decode {}: {e}", self.name)))?;
                let start = self.offset;
                let mut bad: Vec<Located> =
                    decoded.bad.into_iter().map(|b| (start + b.at as u64, b)).collect();
                self.consume(decoded.consumed);
                if decoded.consumed == 0 && length > RECORD_BYTES_MAX {
                    bad.push(self.give_up());
                }
                if decoded.rows.num_rows() > 0 || !bad.is_empty() {
                    return self.on_error.apply(&self.name, decoded.rows, bad);
                }
                if decoded.consumed > 0 {
                    continue;
                }
            }
            // What is in hand is no whole record.
            if self.eof {
                return idle;
            }
            if let Err(error) = self.fill() {
                return self.damaged(&error);
            }
        }
    }

    fn offset(&self) -> Offset {
        Offset(self.offset.to_string())
    }
}
