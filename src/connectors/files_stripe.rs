//! Stripes: one text file read in several places at once, so that a big file keeps all cores busy.
//!
//! ```text
//!   file      range 0 │ range 1 │ … │ range 7 │ range 8 │ …      each RANGE_BYTES long
//!   stripe       0    │    1    │ … │    7    │    0    │ …      each a split of the source
//! ```
//! A record belongs to the range in which it starts. Stripes advance together, so event time stays
//! in order but for some ranges. What a position means depends on nothing but the file's bytes
//! before it, so it means the same after a restart, and when the file has grown.
//!
//! An end of line ends a record, except within quotes of CSV. So CSV is read in stripes as far as
//! it has no quote: the stripe among whose records is the first one reads all that follows (its
//! *tail*), and the others end before.

use memchr::{memchr, memchr2};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Weak};

/// Bytes of a range; tests have many ranges in few bytes.
pub const RANGE_BYTES: u64 = if cfg!(test) { 1 << 11 } else { 1 << 20 };
/// Bytes looked at at a time behind a range.
const LOOK_BYTES: u64 = 1 << 14;
/// Stripes of a file that has so many ranges.
pub const STRIPES: u64 = 8;

/// A position in a stripe. At the start of a range, records of that range are still to be found:
/// the one before may reach into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// In the file; `u64::MAX` behind everything.
    pub at: u64,
    /// Whether all that follows in the file belongs to the stripe.
    pub tail: bool,
}

impl Position {
    /// The position that an offset says.
    pub fn parse(text: &str) -> Option<Self> {
        let (at, tail) = text.strip_suffix('+').map_or((text, false), |at| (at, true));
        at.parse().ok().map(|at| Self { at, tail })
    }
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.at, if self.tail { "+" } else { "" })
    }
}

/// A file that is read in several places, and open while it is: a source may have thousands of them.
#[derive(Debug)]
pub struct SharedFile {
    path: String,
    open: Mutex<Weak<File>>,
}

impl SharedFile {
    /// The file at `path`, which is opened when it is read.
    pub fn new(path: &str) -> Arc<Self> {
        Arc::new(Self { path: path.to_owned(), open: Mutex::default() })
    }

    fn get(&self) -> io::Result<Arc<File>> {
        let mut open = self.open.lock();
        if let Some(file) = open.upgrade() {
            return Ok(file);
        }
        let file = Arc::new(File::open(&self.path)?);
        *open = Arc::downgrade(&file);
        Ok(file)
    }
}

/// What is known of the quotes in a file, by all who read it.
#[derive(Debug, Default)]
pub struct Quotes(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The records of ranges below have none.
    free: u64,
    /// Others whose records have none.
    also_free: BTreeSet<u64>,
    /// The least range known to have the first quote, or to be behind it.
    quoted: Option<u64>,
}

impl Known {
    fn note(&mut self, range: u64, quoted: bool) {
        if quoted {
            self.quoted = Some(self.quoted.map_or(range, |q| q.min(range)));
        } else if range >= self.free {
            self.also_free.insert(range);
        }
    }
}

impl Quotes {
    fn note(&self, range: u64, quoted: bool) {
        self.0.lock().note(range, quoted);
    }

    /// A reader that was here before found no quote up to the end of `range`.
    fn note_free(&self, range: u64) {
        let mut known = self.0.lock();
        known.free = known.free.max(range + 1);
    }

    /// Whether no quote comes before the records of `range`; looks where nobody has looked yet.
    fn none_before(&self, range: u64, file: &SharedFile) -> io::Result<bool> {
        let mut known = self.0.lock();
        while known.free < range {
            let free = known.free;
            if !known.also_free.remove(&free) {
                if known.quoted.is_some_and(|quoted| quoted < range) {
                    return Ok(false);
                }
                if is_quoted(file, free)? {
                    known.note(free, true);
                    return Ok(false);
                }
            }
            known.free += 1;
        }
        Ok(true)
    }
}

/// Whether the records of `range` have a quote, given that those before have none.
fn is_quoted(file: &SharedFile, range: u64) -> io::Result<bool> {
    let mut input = ReadAt { file: file.get()?, at: range * RANGE_BYTES };
    let mut bytes = Vec::new();
    // The last one ends with the first line that ends at the end of the range, or behind it.
    io::Read::by_ref(&mut input).take(RANGE_BYTES - 1).read_to_end(&mut bytes)?;
    while memchr(b'"', &bytes).is_none() {
        bytes.clear();
        io::Read::by_ref(&mut input).take(LOOK_BYTES).read_to_end(&mut bytes)?;
        match memchr2(b'"', b'\n', &bytes) {
            Some(at) => return Ok(bytes[at] == b'"'),
            None if bytes.is_empty() => return Ok(false),
            None => {}
        }
    }
    Ok(true)
}

/// Reads a file from a position of its own.
pub struct ReadAt {
    /// The file.
    pub file: Arc<File>,
    /// Where to read next.
    pub at: u64,
}

impl Read for ReadAt {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// A stripe of a file, and the range of it that is being read.
#[derive(Debug)]
pub struct Stripe {
    file: Arc<SharedFile>,
    /// None: every end of line ends a record.
    quotes: Option<Arc<Quotes>>,
    range: u64,
    tail: bool,
    /// Whether the input stands in the range.
    begun: bool,
}

/// What beginning a range found.
pub enum Begun {
    /// Read on from this position. `skip`: what comes first, up to an end of line, is no record
    /// of the range.
    At {
        /// Where.
        at: u64,
        /// Whether to skip to behind an end of line.
        skip: bool,
    },
    /// All that is left belongs to another stripe.
    Nothing,
}

impl Stripe {
    /// The stripe of `file` that holds `from`, there. `quotes`: the file may hold quoted ends of lines.
    pub fn new(file: Arc<SharedFile>, quotes: Option<Arc<Quotes>>, from: Position) -> Self {
        let range = from.at / RANGE_BYTES;
        if let Some(quotes) = quotes.as_ref().filter(|_| from.at != u64::MAX) {
            if from.tail {
                quotes.note(range, true);
            } else if !from.at.is_multiple_of(RANGE_BYTES) {
                quotes.note_free(range);
            }
        }
        Self { file, quotes, range, tail: from.tail, begun: false }
    }

    /// Where stripe `index` starts.
    pub fn start(index: u64) -> Position {
        Position { at: index * RANGE_BYTES, tail: false }
    }

    /// Records that start here belong to another stripe.
    pub fn end(&self) -> u64 {
        if self.tail { u64::MAX } else { (self.range + 1).saturating_mul(RANGE_BYTES) }
    }

    /// Whether a range must be begun before the record at `offset` is read.
    pub fn must_begin(&self, offset: u64) -> bool {
        offset != u64::MAX && (!self.begun || offset >= self.end())
    }

    /// The position of a reader that is at `offset`.
    pub fn position(&self, offset: u64) -> Position {
        let start = self.range.saturating_mul(RANGE_BYTES);
        match offset {
            u64::MAX => Position { at: offset, tail: false },
            _ if offset >= self.end() => {
                Position { at: start.saturating_add(STRIPES * RANGE_BYTES), tail: false }
            }
            // It has not found the range's first record yet.
            _ if offset < start => Position { at: start, tail: false },
            _ => Position { at: offset, tail: self.tail },
        }
    }

    /// The input, from `at` on.
    pub fn input(&self, at: u64) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(ReadAt { file: self.file.get()?, at }))
    }

    /// Begins the range of `offset`, or the next one if that is behind it.
    pub fn begin(&mut self, offset: u64) -> io::Result<Begun> {
        let at = self.position(offset).at;
        self.range = if self.tail { self.range } else { at / RANGE_BYTES };
        self.begun = true;
        if let Some(quotes) = self.quotes.as_ref().filter(|_| !self.tail)
            && !quotes.none_before(self.range, &self.file)?
        {
            return Ok(Begun::Nothing);
        }
        let skip = at == self.range * RANGE_BYTES && at > 0 && !self.tail;
        Ok(Begun::At { at: if skip { at - 1 } else { at }, skip })
    }

    /// `bytes` come from `offset` on, where the range's part of the file begins, and nothing
    /// follows if `eof`: looks for quotes in the range's records.
    pub fn look(&mut self, offset: u64, bytes: &[u8], eof: bool) -> io::Result<()> {
        let Some(quotes) = self.quotes.as_ref().filter(|_| !self.tail) else { return Ok(()) };
        let quoted = match self.own(offset, bytes) {
            Some(own) => memchr(b'"', &bytes[..own]).is_some(),
            None if eof => memchr(b'"', bytes).is_some(),
            None => is_quoted(&self.file, self.range)?,
        };
        quotes.note(self.range, quoted);
        self.tail = quoted;
        Ok(())
    }

    /// Of `bytes`, which come from `offset` on: how many belong to records of the range, if the end
    /// of the last one is among them.
    pub fn own(&self, offset: u64, bytes: &[u8]) -> Option<usize> {
        let last = usize::try_from(self.end().checked_sub(1)?.checked_sub(offset)?).ok()?;
        memchr(b'\n', bytes.get(last..)?).map(|more| last + more + 1)
    }
}

/// How many stripes a file of `bytes` has.
pub fn stripes(bytes: u64) -> u64 {
    bytes.div_ceil(RANGE_BYTES).clamp(1, STRIPES)
}

/// The name of a stripe of `path` as a split; the first has the file's. No file has such a path: it
/// would lie below a file.
pub fn name(path: &str, index: u64) -> String {
    if index == 0 { path.to_owned() } else { format!("{path}/#{index}") }
}

/// The path and number of the stripe that a split is.
pub fn parse_name(name: &str) -> (&str, u64) {
    let stripe = name.rsplit_once("/#").and_then(|(path, index)| Some((path, index.parse().ok()?)));
    stripe.filter(|(path, _)| Path::new(path).is_file()).unwrap_or((name, 0))
}
