//! What a sink's files hold: JSON lines, CSV or Parquet, as lines of text.
//!
//! ```text
//!   append-only   each row
//!   upsert        the last row of each key, if it was not deleted
//!   debezium      the same; and each change fits the one before it: nothing is inserted that is there,
//!                 nothing deleted that is not
//! ```
//! Files that are published don't change: a look reads those that are new.

use super::DrillError;
use super::lines::{self, Ledger, Lines};
use crate::formats::compression::Compression;
use crate::formats::csv::first_record;
use crate::formats::encode::json_line;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The column that tells what a row of an upsert or debezium sink is.
const OP_COLUMN: &str = "weir_op";

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// An object a line.
    Json,
    /// Delimited text.
    Csv {
        /// Between fields.
        delimiter: u8,
        /// Whether each file begins with the columns' names.
        header: bool,
    },
    /// Parquet.
    Parquet,
}

/// What the rows of a sink mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Each is one.
    Rows,
    /// The last of a key counts.
    Last(Vec<String>),
    /// So it does; each is a change of the one before.
    Changes(Vec<String>),
}

/// A directory, and how it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The directory.
    pub dir: PathBuf,
    /// How its rows are written.
    pub layout: Layout,
}

/// What a sink's files come to.
#[derive(Debug, Default, PartialEq)]
pub struct Held {
    /// The rows.
    pub lines: Lines,
    /// Changes that come again: rows inserted that are there.
    pub repeated: i64,
    /// Changes that miss the one before: rows deleted that are not there.
    pub unfounded: i64,
}

impl Files {
    /// What they hold. `columns` are the sink's, in order.
    pub fn read(&self, meaning: &Meaning, columns: &[String]) -> Result<Held, DrillError> {
        let mut held = Held::default();
        let (Meaning::Last(key) | Meaning::Changes(key)) = meaning else {
            for (path, _) in self.published()? {
                self.records(&path, &mut |line| {
                    held.lines.add(line);
                    Ok(())
                })?;
            }
            return Ok(held);
        };
        let changes = matches!(meaning, Meaning::Changes(_));
        let mut rows: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
        // Epochs are in the names, padded: later changes of a key come later.
        for (path, _) in self.published()? {
            self.records(&path, &mut |line| {
                let (key, row, deleted) = self.keyed(line, key, columns)?;
                let before = match deleted {
                    true => rows.remove(&key),
                    false => rows.insert(key, row.clone()),
                };
                held.repeated += i64::from(changes && !deleted && before.is_some());
                held.unfounded += i64::from(changes && deleted && before != Some(row));
                Ok(())
            })?;
        }
        rows.values().for_each(|row| held.lines.add(row));
        Ok(held)
    }

    /// The files of the output, by name, with what tells one from a changed one. What is hidden, or the
    /// sink's own, is no part of it.
    fn published(&self) -> Result<BTreeMap<PathBuf, Stamp>, DrillError> {
        let entries = match std::fs::read_dir(&self.dir) {
            // Nothing is published yet.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            entries => entries?,
        };
        let mut found = BTreeMap::new();
        for entry in entries {
            let entry = entry?;
            // The server makes, renames and removes hidden files meanwhile.
            if entry.file_name().to_string_lossy().starts_with(['.', '_']) {
                continue;
            }
            let about = entry.metadata()?;
            if about.is_file() {
                found.insert(entry.path(), (about.len(), about.modified()?));
            }
        }
        Ok(found)
    }

    fn records(
        &self,
        path: &Path,
        take: &mut dyn FnMut(&[u8]) -> Result<(), DrillError>,
    ) -> Result<(), DrillError> {
        if self.layout == Layout::Parquet {
            return parquet_records(path, take);
        }
        let mut text = Vec::new();
        Compression::of_path(&path.to_string_lossy()).reader(File::open(path)?)?.read_to_end(&mut text)?;
        let mut rest = text.as_slice();
        let mut header = matches!(self.layout, Layout::Csv { header: true, .. });
        while !rest.is_empty() {
            let end = match self.layout {
                Layout::Csv { .. } => first_record(rest),
                _ => memchr::memchr(b'\n', rest).map(|at| at + 1),
            };
            let (record, others) = rest.split_at(end.unwrap_or(rest.len()));
            if !std::mem::take(&mut header) {
                take(record.strip_suffix(b"\n").unwrap_or(record))?;
            }
            rest = others;
        }
        Ok(())
    }

    /// The key of a record, the row without its op, and whether it was deleted.
    fn keyed(
        &self,
        line: &[u8],
        key: &[String],
        columns: &[String],
    ) -> Result<(Vec<u8>, Vec<u8>, bool), DrillError> {
        let unfit = |why: &str| {
            DrillError::Unfit(format!("a sink's file has a row {why}: {}", String::from_utf8_lossy(line)))
        };
        let fields: Vec<(String, &[u8])> = match self.layout {
            Layout::Csv { delimiter, .. } => {
                let names = columns.iter().cloned().chain([OP_COLUMN.to_owned()]);
                names.zip(csv_fields(line, delimiter)).collect()
            }
            _ => json_fields(line).ok_or_else(|| unfit("that is no JSON"))?,
        };
        let field = |name: &str| fields.iter().rfind(|(n, _)| n == name).map(|(_, value)| *value);
        let op = field(OP_COLUMN).ok_or_else(|| unfit("that does not say what it is"))?;
        let mut of_key = Vec::new();
        for name in key {
            of_key.extend_from_slice(field(name).ok_or_else(|| unfit("without its key"))?);
            of_key.push(b'\n');
        }
        let mut row = Vec::new();
        for (name, value) in fields.iter().filter(|(name, _)| name != OP_COLUMN) {
            row.extend_from_slice(name.as_bytes());
            row.push(b'=');
            row.extend_from_slice(value);
            row.push(b'\n');
        }
        Ok((of_key, row, op == b"delete" || op == b"\"delete\""))
    }
}

fn parquet_records(
    path: &Path,
    take: &mut dyn FnMut(&[u8]) -> Result<(), DrillError>,
) -> Result<(), DrillError> {
    let unread = |e: &dyn std::fmt::Display| {
        DrillError::Unfit(format!("{} is no Parquet file that can be read: {e}", path.display()))
    };
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path)?).map_err(|e| unread(&e))?;
    for batch in reader.build().map_err(|e| unread(&e))? {
        let lines = json_line(&batch.map_err(|e| unread(&e))?).map_err(|e| unread(&e))?;
        lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).try_for_each(&mut *take)?;
    }
    Ok(())
}

/// The fields of a record of CSV, as they are written.
fn csv_fields(line: &[u8], delimiter: u8) -> Vec<&[u8]> {
    let mut quoted = false;
    line.split(|byte| {
        quoted ^= *byte == b'"';
        *byte == delimiter && !quoted
    })
    .collect()
}

/// The members of an object of JSON, values as they are written: a number keeps all its digits.
fn json_fields(line: &[u8]) -> Option<Vec<(String, &[u8])>> {
    let inner = line.strip_prefix(b"{")?.strip_suffix(b"}")?;
    let (mut fields, mut start, mut name) = (Vec::new(), 0, None);
    let (mut depth, mut quoted, mut escaped) = (0, false, false);
    for (at, byte) in inner.iter().chain(b",").enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            b':' if depth == 0 => {
                name = Some(serde_json::from_slice::<String>(inner.get(start..at)?).ok()?);
                start = at + 1;
            }
            b',' if depth == 0 => {
                fields.push((name.take()?, inner.get(start..at)?));
                start = at + 1;
            }
            _ => {}
        }
    }
    (!quoted && depth == 0).then_some(fields)
}

/// What tells a file from one that was changed.
type Stamp = (u64, SystemTime);

/// An append-only sink's files, as they are seen to grow.
#[derive(Debug)]
pub struct FilesWatch {
    files: Files,

    known: BTreeMap<PathBuf, Stamp>,
    ledger: Ledger,
}

impl FilesWatch {
    /// Nothing was seen so far.
    pub fn new(files: Files) -> Self {
        Self { files, known: BTreeMap::new(), ledger: Ledger::default() }
    }

    /// What is there.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Reads what is new. Returns how many rows that were there are there no more.
    pub fn look(&mut self, expected: &Lines) -> Result<i64, DrillError> {
        let found = self.files.published()?;
        let changed = self.known.iter().any(|(path, stamp)| found.get(path) != Some(stamp));
        let before = changed.then(|| std::mem::take(&mut self.ledger));
        if changed {
            self.known.clear();
        }
        for path in found.keys().filter(|path| !self.known.contains_key(*path)) {
            let ledger = &mut self.ledger;
            self.files.records(path, &mut |line| {
                ledger.add(lines::hash(line), expected);
                Ok(())
            })?;
        }
        self.known = found;
        Ok(before.map_or(0, |before| self.ledger.lacks(&before)))
    }
}

#[cfg(test)]
#[path = "tests/files.rs"]
mod tests;
