//! TextReader: reads one text file, or a stripe of it, in blocks, from an offset, and hands them to
//! a decoder.

use super::files_source::{Located, OnError};
use super::files_stripe::{Begun, Position, RANGE_BYTES, Stripe};
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
/// Bytes read at a time behind a stripe's range, for the record that reaches over its end.
const SLACK_BYTES: usize = if cfg!(test) { 1 << 6 } else { 1 << 16 };
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

/// The file, if it is still there: one that is removed after it was listed has nothing to read.
pub fn open_if_there(path: &str) -> Result<Option<File>, SourceError> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(SourceError(format!("could not open {path}: {error}"))),
    }
}

/// Reads a file of records.
pub struct TextReader {
    name: String,
    /// How it is compressed, until it is opened.
    closed: Option<Compression>,
    input: Box<dyn Read + Send>,
    compressed: bool,
    decoder: Box<dyn Decoder>,
    until: Option<u64>,
    follow: bool,
    on_error: OnError,
    stripe: Option<Stripe>,

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
    /// Why nothing behind the buffer can be read: the compressed file is damaged.
    broken: Option<String>,
}

impl TextReader {
    /// Starts at `from`, ends before `until`.
    pub fn new(
        name: &str,
        compression: Compression,
        decoder: Box<dyn Decoder>,
        from: u64,
        until: Option<u64>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            closed: Some(compression),
            input: Box::new(io::empty()),
            compressed: compression != Compression::None,
            decoder,
            until,
            follow: false,
            on_error: OnError::DeadLetter,
            stripe: None,
            buffer: Vec::new(),
            at: 0,
            offset: from,
            eof: false,
            header: false,
            skipping: false,
            shrunk: false,
            broken: None,
        }
    }

    /// Opens the file at the first poll: a source may have thousands of them. False: it is gone.
    fn start(&mut self) -> Result<bool, SourceError> {
        let Some(compression) = self.closed else { return Ok(true) };
        let (from, name) = (self.offset, self.name.clone());
        let fault = |e: io::Error| SourceError(format!("could not read {name}: {e}"));
        // Behind what is damaged nothing is read.
        if self.compressed && from == u64::MAX {
            (self.closed, self.eof) = (None, true);
            return Ok(true);
        }
        let Some(mut file) = open_if_there(&self.name)? else { return Ok(false) };
        if !self.compressed {
            self.shrunk = file.metadata().map_err(fault)?.len() < from;
            file.seek(SeekFrom::Start(from)).map_err(fault)?;
        }
        self.input = compression.reader(file).map_err(fault)?;
        if self.compressed && from > 0 {
            io::copy(&mut self.input.by_ref().take(from), &mut io::sink()).map_err(fault)?;
        }
        if self.shrunk {
            warn!(file = self.name, offset = from, "shorter than what was read of it before");
        }
        self.closed = None;
        Ok(true)
    }

    /// Reads `stripe` of a file from `from`, ends before `until`.
    pub fn of_stripe(
        name: &str,
        stripe: Stripe,
        decoder: Box<dyn Decoder>,
        from: Position,
        until: Option<Position>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            closed: None,
            input: Box::new(io::empty()),
            compressed: false,
            decoder,
            until: until.map(|until| until.at),
            follow: false,
            on_error: OnError::DeadLetter,
            stripe: Some(stripe),
            buffer: Vec::new(),
            at: 0,
            offset: from.at,
            eof: false,
            header: false,
            skipping: false,
            shrunk: false,
            broken: None,
        }
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
        let block = self.block_bytes();
        self.buffer.reserve(block);
        let outcome = self.input.by_ref().take(block as u64).read_to_end(&mut self.buffer);
        self.eof = matches!(outcome, Ok(read) if read < block);
        if self.offset == 0 && length == 0 && self.buffer.starts_with(BYTE_ORDER_MARK) {
            self.consume(BYTE_ORDER_MARK.len());
        }
        outcome.map(drop)
    }

    /// How much to read next: of a stripe, the rest of its range and little more.
    fn block_bytes(&self) -> usize {
        let Some(stripe) = &self.stripe else { return BLOCK_BYTES };
        let here = self.offset + (self.buffer.len() - self.at) as u64;
        let left = stripe.end().saturating_sub(here).min(RANGE_BYTES + 1);
        left as usize + SLACK_BYTES
    }

    /// Begins a range of the stripe, if it is time to.
    fn begin_range(&mut self) -> io::Result<bool> {
        let Some(stripe) = &mut self.stripe else { return Ok(false) };
        if !stripe.must_begin(self.offset) {
            return Ok(false);
        }
        self.at = 0;
        self.buffer.clear();
        match stripe.begin(self.offset)? {
            Begun::Nothing => {
                self.input = Box::new(io::empty());
                (self.offset, self.eof) = (u64::MAX, true);
            }
            Begun::At { at, skip } => {
                self.input = stripe.input(at)?;
                (self.offset, self.skipping) = (at, skip);
                self.fill()?;
                if let Some(stripe) = &mut self.stripe {
                    stripe.look(self.offset, &self.buffer[self.at..], self.eof)?;
                }
            }
        }
        Ok(true)
    }

    /// Whether the buffer holds the rest of the stripe's range.
    fn holds_range(&self) -> bool {
        let stripe = self.stripe.as_ref();
        stripe.is_some_and(|stripe| stripe.own(self.offset, &self.buffer[self.at..]).is_some())
    }

    /// Whether nothing of the stripe is left before `until`.
    fn is_at_until(&self) -> bool {
        let here = self.stripe.as_ref().map(|stripe| stripe.position(self.offset).at);
        here.zip(self.until).is_some_and(|(here, until)| here >= until)
    }

    fn finish(&mut self) -> SplitPoll {
        if !self.follow {
            // A source may have thousands of these.
            self.input = Box::new(io::empty());
            (self.buffer, self.at, self.eof) = (Vec::new(), 0, true);
        }
        SplitPoll::Finished
    }

    fn gone(&mut self) -> SplitPoll {
        warn!(file = self.name, "gone: nothing more is read of it");
        self.finish()
    }

    fn consume(&mut self, bytes: usize) {
        self.at += bytes;
        self.offset += bytes as u64;
    }

    /// How much of the buffer may be decoded, and whether nothing may follow it.
    fn block(&self) -> (usize, bool) {
        let mut length = self.buffer.len() - self.at;
        let mut at_end = self.eof && !self.follow && self.broken.is_none();
        if let Some(stripe) = &self.stripe {
            if let Some(own) = stripe.own(self.offset, &self.buffer[self.at..]) {
                (length, at_end) = (own, true);
            }
            // The start of a later range of the stripe: no record of this one ends there.
            if self.until.is_some_and(|until| until >= stripe.end()) {
                return (length, at_end);
            }
        }
        match self.until.map(|until| until.saturating_sub(self.offset)) {
            Some(left) if left <= length as u64 => (left as usize, true),
            _ => (length, at_end),
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

    /// The input fails. Compressed text is damaged then: what is whole before is read.
    fn damaged(&mut self, error: &io::Error) -> Result<(), SourceError> {
        if !self.compressed {
            return Err(SourceError(format!("could not read {}: {error}", self.name)));
        }
        self.input = Box::new(io::empty());
        self.eof = true;
        self.broken = Some(format!("the file is damaged: {error}"));
        Ok(())
    }

    /// What is left of a damaged file: a bad record, and no more behind it, whoever reads on.
    fn give_up_rest(&mut self, reason: String) -> Result<SplitPoll, SourceError> {
        let rest = &self.buffer[self.at..];
        let bad = BadRecord { at: 0, payload: rest[..rest.len().min(1024)].to_vec(), reason };
        let none = self.decoder.decode(b"", true, 0).map_err(|e| SourceError(e.to_string()))?;
        let located = vec![(self.offset, bad)];
        (self.buffer, self.at, self.offset) = (Vec::new(), 0, u64::MAX);
        self.on_error.apply(&self.name, none.rows, located)
    }
}

impl SplitReader for TextReader {
    fn poll(&mut self, rows_max: usize, now_us: i64) -> Result<SplitPoll, SourceError> {
        let idle = Ok(SplitPoll::Idle { until_us: Some(now_us + FOLLOW_US) });
        if !self.start()? {
            return if self.follow { idle } else { Ok(self.gone()) };
        }
        let mut more = self.follow || !self.eof;
        loop {
            if self.is_at_until() {
                return Ok(self.finish());
            }
            match self.begin_range() {
                Ok(begun) => more |= begun,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Ok(self.gone());
                }
                Err(error) => self.damaged(&error)?,
            }
            if more && self.buffer.len() - self.at < LOW_BYTES && !self.holds_range() {
                if let Err(error) = self.fill() {
                    self.damaged(&error)?;
                }
                more = !self.eof;
            }
            let (length, at_end) = self.block();
            if length == 0 && (at_end || (self.eof && self.shrunk)) {
                return if self.follow { idle } else { Ok(self.finish()) };
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
            if let Some(reason) = self.broken.take() {
                return self.give_up_rest(reason);
            }
            if self.eof {
                return idle;
            }
            if let Err(error) = self.fill() {
                self.damaged(&error)?;
            }
        }
    }

    fn offset(&self) -> Offset {
        Offset(match &self.stripe {
            None => self.offset.to_string(),
            Some(stripe) => stripe.position(self.offset).to_string(),
        })
    }

    fn between(&self) -> bool {
        // The next stripe's turn comes when a range is done, so that few ranges are in memory.
        self.stripe.as_ref().is_none_or(|stripe| self.offset >= stripe.end())
    }
}
