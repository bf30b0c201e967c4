//! The auction benchmark's events as files, for benches and for comparison with other engines.

use super::nexmark::Nexmark;
use super::nexmark_columns;
use super::nexmark_event::Kind;
use super::source::{Source, SplitPoll};
use crate::formats::encode::{Encoding, encoder};
use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema};
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_catalog::source;

/// What to write.
#[derive(Clone, Debug)]
pub struct NexmarkFiles {
    /// Events over all three kinds.
    pub events: u64,
    /// Other numbers, other values.
    pub seed: u64,
    /// Files a kind: cycles of events are dealt to them in turn.
    pub files: u64,
    /// `csv` or `json`.
    pub format: String,
}

/// Rows generated at a time.
const BATCH_ROWS: usize = 8192;

impl NexmarkFiles {
    /// Writes `bid.csv`, `auction.csv`, `person.csv` (or `bid-0.csv`, …) below `dir`; returns their
    /// paths and rows.
    pub fn write(&self, dir: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
        fs::create_dir_all(dir)?;
        let mut written = Vec::new();
        for (name, kind) in [("person", Kind::Person), ("auction", Kind::Auction), ("bid", Kind::Bid)] {
            let nexmark = Nexmark::open(&self.source(name, kind)).map_err(io::Error::other)?;
            for split in nexmark.splits().map_err(io::Error::other)? {
                let number = if self.files > 1 { format!("-{}", split.name) } else { String::new() };
                let path = dir.join(format!("{name}{number}.{}", self.format));
                let rows = self.write_split(&nexmark, kind, &split, &path)?;
                written.push((path, rows));
            }
        }
        Ok(written)
    }

    fn source(&self, name: &str, kind: Kind) -> source::Source {
        let options = [
            ("type", name.to_owned()),
            ("events", self.events.to_string()),
            ("seed", self.seed.to_string()),
            ("splits", self.files.to_string()),
        ];
        source::Source {
            columns: nexmark_columns::columns(kind),
            primary_key: None,
            connector: "nexmark".to_owned(),
            options: options.into_iter().map(|(n, v)| (n.to_owned(), v)).collect(),
            format: source::FormatSpec::default(),
            watermark: None,
        }
    }

    fn write_split(
        &self,
        nexmark: &Nexmark,
        kind: Kind,
        split: &super::source::Split,
        path: &Path,
    ) -> io::Result<u64> {
        let encoding = match self.format.as_str() {
            "csv" => Encoding::Csv { delimiter: b',', header: false },
            "json" => Encoding::Json,
            other => return Err(io::Error::other(format!("\"{other}\" is neither csv nor json"))),
        };
        let columns = nexmark_columns::columns(kind);
        let fields = columns.iter().map(|c| Field::new(reference_name(&c.name), c.data_type.clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let output = Box::new(BufWriter::new(File::create(path)?));
        let mut encoder = encoder(encoding, &schema, output)?;
        let all: Vec<usize> = (0..columns.len()).collect();
        let mut reader =
            nexmark.reader(split, None, None, &all, Arc::new(|| {})).map_err(io::Error::other)?;
        let mut rows = 0;
        while let SplitPoll::Rows(batch, _) = reader.poll(BATCH_ROWS, 0).map_err(io::Error::other)? {
            rows += batch.num_rows() as u64;
            let renamed = RecordBatch::try_new(Arc::clone(&schema), batch.columns().to_vec());
            encoder.write(&renamed.map_err(io::Error::other)?)?;
        }
        encoder.finish()?;
        Ok(rows)
    }
}

/// How the reference generator spells a column.
fn reference_name(name: &str) -> &str {
    match name {
        "datetime" => "dateTime",
        "itemname" => "itemName",
        "initialbid" => "initialBid",
        "emailaddress" => "emailAddress",
        "creditcard" => "creditCard",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_hold_every_event_once() {
        let dir = tempfile::tempdir().unwrap();
        let one = NexmarkFiles { events: 500, seed: 1, files: 1, format: "csv".into() };
        let written = one.write(dir.path()).unwrap();
        assert_eq!(written.iter().map(|w| w.1).collect::<Vec<_>>(), [10, 30, 460]);
        let bids = fs::read_to_string(dir.path().join("bid.csv")).unwrap();
        assert_eq!(bids.lines().count(), 460);
        assert!(bids.lines().all(|line| line.split(',').count() == 7));
        assert_eq!(bids.split(',').nth(5), Some("2015-07-15 00:00:00.04"));

        let two = NexmarkFiles { files: 2, format: "json".into(), ..one };
        let written = two.write(dir.path()).unwrap();
        assert_eq!(written.iter().map(|w| w.1).collect::<Vec<_>>(), [5, 5, 15, 15, 230, 230]);
        let bids = fs::read_to_string(dir.path().join("bid-1.json")).unwrap();
        assert!(
            bids.starts_with("{\"auction\":") && bids.contains("\"dateTime\":\"2015-07-15T00:00:00.54\"")
        );
    }
}
