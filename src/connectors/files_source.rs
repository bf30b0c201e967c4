//! `connector = 'file'` as a source: files of the local disk, found by a glob.
//!
//! A split is a file, or a stripe of a plain text file that isn't followed ([`super::files_stripe`]).
//! Its offset is a position in the text (uncompressed, if the file is compressed) at the start of a
//! record, or a row number of a Parquet file. With `follow`, new files are looked for, and plain
//! text is read on as it is appended to; a last line without an end is then waited for, while
//! otherwise the end of the file ends it.

use super::error::ConnectorError;
use super::files_sink::local_path;
use super::files_stripe::{self, Position, Quotes, SharedFile, Stripe};
use super::files_text::{TextReader, header_of, open_if_there};
use super::options;
use super::source::{DeadLetter, Source, SourceError, Split, SplitPoll, SplitReader, Waker};
use crate::checkpoint::participant::Offset;
use crate::formats::compression::Compression;
use crate::formats::csv::CsvDecoder;
use crate::formats::decode::{BadRecord, Decoder};
use crate::formats::json::JsonDecoder;
use crate::formats::parquet::{ParquetBatch, ParquetRows};
use arrow::array::RecordBatch;
use parking_lot::Mutex;
use serde::Deserialize;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use tracing::warn;
use weir_catalog::connector::{ConnectorRole, ConnectorSpec, Contract, OptionSpec};
use weir_catalog::{Column, SqlState, source};

const NAME: &str = "file";
/// Files whose headers CREATE SOURCE looks at.
const CHECKED_FILES_MAX: usize = 64;

/// What CREATE SOURCE may say.
pub const SPEC: ConnectorSpec = ConnectorSpec {
    name: NAME,
    role: ConnectorRole::Source,
    options: &[
        OptionSpec { name: "path", required: true, help: "A file, or a glob: data/**/*.json." },
        OptionSpec {
            name: "follow",
            required: false,
            help: "Whether to keep reading what is added. Default false.",
        },
        OptionSpec {
            name: "compression",
            required: false,
            help: "none, gzip or zstd. Default: by the end of the file's name (.gz, .zst).",
        },
        OptionSpec {
            name: "on_error",
            required: false,
            help: "What can't be decoded: dead_letter (the default), skip or fail.",
        },
    ],
    encodings: &["JSON", "CSV", "PARQUET"],
    contract: Contract::Replayable,
    why: "files are read again from an offset, as long as they stay where they are, unchanged",
    empties_target: false,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FilesOptions {
    path: String,
    #[serde(default)]
    follow: bool,
    compression: Option<String>,
    #[serde(default)]
    on_error: OnError,
}

/// What happens to what can't be decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// It is kept.
    #[default]
    DeadLetter,
    /// It is forgotten.
    Skip,
    /// The source fails.
    Fail,
}

impl OnError {
    /// What a poll gives for rows and bad records of `split`.
    pub fn apply(self, split: &str, rows: RecordBatch, bad: Vec<Located>) -> Result<SplitPoll, SourceError> {
        let letters = match self {
            OnError::Skip => Vec::new(),
            OnError::Fail if !bad.is_empty() => {
                let (offset, record) = &bad[0];
                return Err(SourceError(format!("could not decode record at {offset}: {}", record.reason)));
            }
            _ => bad
                .into_iter()
                .map(|(offset, record)| DeadLetter {
                    split: split.to_owned(),
                    offset: offset.to_string(),
                    payload: record.payload,
                    reason: record.reason,
                })
                .collect(),
        };
        Ok(SplitPoll::Rows(rows, letters))
    }
}

/// A bad record and its offset in the split.
pub type Located = (u64, BadRecord);

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonOptions {}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct CsvOptions {
    delimiter: Option<String>,
    header: Option<bool>,
    without_header: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Encode {
    Json,
    Csv { delimiter: u8, header: bool },
    Parquet,
}

/// What the stripes of a file share.
#[derive(Debug)]
struct Striped {
    file: Arc<SharedFile>,
    quotes: Arc<Quotes>,
}

/// Files as a source.
#[derive(Debug)]
pub struct FilesSource {
    pattern: String,
    follow: bool,
    compression: Option<Compression>,
    on_error: OnError,
    encode: Encode,
    columns: Vec<Column>,

    /// Splits found so far: later ones come behind, so that each keeps its place.
    listed: Mutex<Vec<Split>>,
    /// Files read in stripes, by path.
    striped: Mutex<HashMap<String, Striped>>,
}

impl FilesSource {
    /// From a declaration.
    pub fn open(declared: &source::Source) -> Result<Self, ConnectorError> {
        let read: FilesOptions = options::read(NAME, &declared.options)?;
        let invalid = |option: &str, reason: String| options::invalid(NAME, option, reason);
        let pattern = local_path(&read.path)?.to_string_lossy().into_owned();
        glob::Pattern::new(&pattern).map_err(|e| invalid("path", e.msg.to_owned()))?;
        let compression = match read.compression.as_deref() {
            None => None,
            Some(name) => Some(
                Compression::named(name)
                    .ok_or_else(|| invalid("compression", "it is none, gzip or zstd".to_owned()))?,
            ),
        };
        let opened = Self {
            pattern,
            follow: read.follow,
            compression,
            on_error: read.on_error,
            encode: encode_of(declared)?,
            columns: declared.columns.clone(),
            listed: Mutex::default(),
            striped: Mutex::default(),
        };
        // So that a column of a type that can't be decoded is refused now.
        let all: Vec<usize> = (0..opened.columns.len()).collect();
        if opened.encode != Encode::Parquet {
            opened
                .decoder(&all)
                .map_err(|reason| ConnectorError::Unsupported { connector: NAME.into(), what: reason })?;
        }
        Ok(opened)
    }

    fn has_header(&self) -> bool {
        matches!(self.encode, Encode::Csv { header: true, .. })
    }

    fn compression_of(&self, path: &str) -> Compression {
        self.compression.unwrap_or_else(|| Compression::of_path(path))
    }

    fn decoder(&self, columns: &[usize]) -> Result<Box<dyn Decoder>, String> {
        Ok(match self.encode {
            Encode::Csv { delimiter, .. } => Box::new(CsvDecoder::new(&self.columns, columns, delimiter)?),
            _ => Box::new(JsonDecoder::new(&self.columns, columns)?),
        })
    }
}

fn encode_of(declared: &source::Source) -> Result<Encode, ConnectorError> {
    let unsupported = |what: String| ConnectorError::Unsupported { connector: NAME.into(), what };
    if !matches!(declared.format.format.as_str(), "PLAIN" | "") {
        return Err(unsupported(format!("FORMAT {}", declared.format.format)));
    }
    match declared.format.encode.as_str() {
        "JSON" => options::read::<JsonOptions>(NAME, &declared.format.options).map(|_| Encode::Json),
        "PARQUET" => options::read::<JsonOptions>(NAME, &declared.format.options).map(|_| Encode::Parquet),
        "CSV" => {
            let csv: CsvOptions = options::read(NAME, &declared.format.options)?;
            let delimiter = match csv.delimiter.as_deref().unwrap_or(",").as_bytes() {
                [one] if !matches!(one, b'"' | b'\n' | b'\r') => *one,
                b"\\t" => b'\t',
                _ => {
                    let reason = "it is one character, and neither a quote nor an end of line";
                    return Err(options::invalid(NAME, "delimiter", reason));
                }
            };
            if csv.header.is_some() && csv.header == csv.without_header {
                return Err(options::invalid(NAME, "without_header", "\"header\" says the opposite"));
            }
            let header = csv.header.or(csv.without_header.map(|without| !without)).unwrap_or(false);
            Ok(Encode::Csv { delimiter, header })
        }
        other => Err(unsupported(format!("ENCODE {other}"))),
    }
}

impl FilesSource {
    /// Whether the file (or the stripe) of this name is text that stays as it is.
    fn reads_in_stripes(&self, name: &str) -> bool {
        let path = files_stripe::parse_name(name).0;
        !self.follow && self.encode != Encode::Parquet && self.compression_of(path) == Compression::None
    }

    /// Whether the header is what a reader at `from` reads next. Where it is not, `decoder` is told
    /// of it: in a stripe behind the first one, or where reading goes on.
    fn header_ahead(
        &self,
        path: &str,
        compression: Compression,
        decoder: &mut dyn Decoder,
        behind: bool,
        from: u64,
    ) -> Result<bool, SourceError> {
        if !self.has_header() || (from == 0 && !behind) {
            return Ok(self.has_header());
        }
        if from == u64::MAX {
            return Ok(false);
        }
        match header_of(path, compression) {
            // Whoever reads it finds that it is gone.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(!behind),
            Err(error) => Err(SourceError(format!("could not read {path}: {error}"))),
            Ok(Some((line, end))) if behind || from >= end => {
                // It was said when the header was read first, and each record says it again.
                let _ = decoder.header(&line);
                Ok(false)
            }
            _ => Ok(!behind),
        }
    }

    /// Reads a stripe of a file.
    fn stripe(
        &self,
        name: &str,
        from: Option<Position>,
        until: Option<Position>,
        columns: &[usize],
    ) -> Result<Box<dyn SplitReader>, SourceError> {
        let (path, index) = files_stripe::parse_name(name);
        let mut striped = self.striped.lock();
        let shared = striped
            .entry(path.to_owned())
            .or_insert_with(|| Striped { file: SharedFile::new(path), quotes: Arc::default() });
        let file = Arc::clone(&shared.file);
        let quotes = matches!(self.encode, Encode::Csv { .. }).then(|| Arc::clone(&shared.quotes));
        let from = from.unwrap_or_else(|| Stripe::start(index));
        let mut decoder = self.decoder(columns).map_err(SourceError)?;
        let header = self.header_ahead(path, Compression::None, &mut *decoder, index > 0, from.at)?;
        let reader = TextReader::of_stripe(path, Stripe::new(file, quotes, from), decoder, from, until);
        Ok(Box::new(reader.with(header, false, self.on_error)))
    }
}

impl Source for FilesSource {
    /// The headers of the files that are there have all columns.
    fn check(&self, name: &str) -> Result<(), ConnectorError> {
        if !self.has_header() {
            return Ok(());
        }
        // What can't be listed or read now is told when it is read.
        let splits = self.splits().unwrap_or_default();
        let paths: BTreeSet<_> = splits.iter().map(|split| files_stripe::parse_name(&split.name).0).collect();
        for path in paths.into_iter().take(CHECKED_FILES_MAX) {
            let header = header_of(path, self.compression_of(path));
            let (Ok(Some((line, _))), Ok(mut decoder)) = (header, self.decoder(&[])) else { continue };
            if let Err(reason) = decoder.header(&line) {
                let message = format!("{path} does not fit source \"{name}\": {reason}");
                let hint = "With header = true, columns are found by their names in each file's first line.";
                return Err(ConnectorError::unfit(SqlState::UNDEFINED_COLUMN, message, hint));
            }
        }
        Ok(())
    }

    fn splits(&self) -> Result<Vec<Split>, SourceError> {
        let options = glob::MatchOptions {
            case_sensitive: true,
            require_literal_separator: true,
            require_literal_leading_dot: true,
        };
        let paths = glob::glob_with(&self.pattern, options).map_err(|e| SourceError(e.to_string()))?;
        let mut found = Vec::new();
        for path in paths {
            let path =
                path.map_err(|e| SourceError(format!("could not list {}: {}", self.pattern, e.error())))?;
            // Markers of file sinks are no data.
            let is_marker = path.parent().and_then(Path::file_name).is_some_and(|name| name == "_weir");
            if path.is_file() && !is_marker {
                let name = path.to_string_lossy().into_owned();
                let stripes = match self.reads_in_stripes(&name) {
                    true => files_stripe::stripes(path.metadata().map_or(0, |m| m.len())),
                    false => 1,
                };
                found.extend((0..stripes).map(|k| Split { name: files_stripe::name(&name, k) }));
            }
        }
        if found.is_empty() && !self.follow {
            warn!(path = self.pattern, "no file matches");
        }
        found.sort();
        let mut listed = self.listed.lock();
        let known: HashSet<&str> = listed.iter().map(|split| split.name.as_str()).collect();
        found.retain(|split| !known.contains(split.name.as_str()));
        listed.append(&mut found);
        Ok(listed.clone())
    }

    fn grows(&self) -> bool {
        self.follow
    }

    fn reader(
        &self,
        split: &Split,
        from: Option<&Offset>,
        until: Option<&Offset>,
        columns: &[usize],
        _waker: Waker,
    ) -> Result<Box<dyn SplitReader>, SourceError> {
        let no_offset = |offset: &Offset| format!("{} has no offset \"{}\"", split.name, offset.0);
        if self.reads_in_stripes(&split.name) {
            let position =
                |offset: &Offset| Position::parse(&offset.0).ok_or_else(|| SourceError(no_offset(offset)));
            let (from, until) = (from.map(position).transpose()?, until.map(position).transpose()?);
            return self.stripe(&split.name, from, until, columns);
        }
        let number = |offset: &Offset| offset.0.parse::<u64>().map_err(|_| SourceError(no_offset(offset)));
        let from = from.map_or(Ok(0), number)?;
        let until = until.map(number).transpose()?;
        if self.encode == Encode::Parquet {
            return Ok(Box::new(ParquetReader {
                split: split.name.clone(),
                on_error: self.on_error,
                until,
                declared: self.columns.clone(),
                wanted: columns.to_vec(),
                next: from,
                batch_rows: PARQUET_ROWS,
                rows: ParquetState::Closed,
            }));
        }
        let compression = self.compression_of(&split.name);
        let mut decoder = self.decoder(columns).map_err(SourceError)?;
        let header = self.header_ahead(&split.name, compression, &mut *decoder, false, from)?;
        let follow = self.follow && compression == Compression::None;
        let reader = TextReader::new(&split.name, compression, decoder, from, until);
        Ok(Box::new(reader.with(header, follow, self.on_error)))
    }
}

/// Rows that are asked of a Parquet file at a time.
const PARQUET_ROWS: usize = 4096;

struct ParquetReader {
    split: String,
    on_error: OnError,
    until: Option<u64>,
    declared: Vec<Column>,
    wanted: Vec<usize>,

    /// The next row; `u64::MAX` behind what can't be read.
    next: u64,
    batch_rows: usize,
    rows: ParquetState,
}

enum ParquetState {
    /// Opened at the next poll: a source may have thousands of files.
    Closed,
    Open(Box<ParquetRows>),
    Ended,
}

impl ParquetReader {
    fn open(&self, file: File) -> Result<ParquetRows, String> {
        let limit = self.until.map(|until| until.saturating_sub(self.next) as usize);
        let rows = (self.next as usize, limit);
        ParquetRows::open(file, &self.declared, &self.wanted, rows, self.batch_rows)
    }

    /// A file that is no Parquet file, or damaged from here on, gives one bad record; whoever reads on
    /// has seen it.
    fn give_up(&mut self, reason: String) -> Result<SplitPoll, SourceError> {
        let columns: Vec<Column> = self.wanted.iter().map(|w| self.declared[*w].clone()).collect();
        let none = RecordBatch::new_empty(weir_catalog::column::arrow_schema(&columns));
        self.rows = ParquetState::Ended;
        let at = std::mem::replace(&mut self.next, u64::MAX);
        let bad = BadRecord { at: 0, payload: Vec::new(), reason: format!("the file is damaged: {reason}") };
        self.on_error.apply(&self.split, none, vec![(at, bad)])
    }
}

impl SplitReader for ParquetReader {
    fn poll(&mut self, _rows_max: usize, _now_us: i64) -> Result<SplitPoll, SourceError> {
        loop {
            let mut rows = match std::mem::replace(&mut self.rows, ParquetState::Ended) {
                ParquetState::Ended => return Ok(SplitPoll::Finished),
                ParquetState::Closed if self.next == u64::MAX => return Ok(SplitPoll::Finished),
                ParquetState::Closed => {
                    let Some(file) = open_if_there(&self.split)? else {
                        warn!(file = self.split, "gone: nothing more is read of it");
                        return Ok(SplitPoll::Finished);
                    };
                    match self.open(file) {
                        Ok(rows) => Box::new(rows),
                        Err(reason) => return self.give_up(reason),
                    }
                }
                ParquetState::Open(rows) => rows,
            };
            match rows.next() {
                None => return Ok(SplitPoll::Finished),
                Some(Ok(ParquetBatch { rows: batch, bad, count })) => {
                    self.rows = ParquetState::Open(rows);
                    let located =
                        bad.into_iter().map(|record| (self.next + record.at as u64, record)).collect();
                    self.next += count as u64;
                    return self.on_error.apply(&self.split, batch, located);
                }
                // Row by row, so that what is read does not depend on where reading began.
                Some(Err(_)) if self.batch_rows > 1 => {
                    self.batch_rows = 1;
                    self.rows = ParquetState::Closed;
                }
                Some(Err(reason)) => return self.give_up(reason),
            }
        }
    }

    fn offset(&self) -> Offset {
        Offset(self.next.to_string())
    }
}

#[cfg(test)]
#[path = "tests/files_source.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/files_stripe.rs"]
mod stripe_tests;
