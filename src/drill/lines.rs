//! What is in a sink, or should be: lines of text, counted. Published files have lines; a table gives
//! its rows as COPY writes them.

use super::DrillError;
use super::process::Process;
use super::script::{DrilledSink, Place};
use crate::formats::compression::Compression;
use futures::StreamExt;
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use tokio_postgres::{Client, NoTls};
use xxhash_rust::xxh3::xxh3_128;

/// How often each line is there, by its hash.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lines(HashMap<u128, i64>);

impl Lines {
    /// One more of this line.
    pub fn add(&mut self, line: &[u8]) {
        *self.0.entry(xxh3_128(line)).or_insert(0) += 1;
    }

    /// All lines.
    pub fn count(&self) -> i64 {
        self.0.values().sum()
    }

    /// Different lines.
    pub fn distinct(&self) -> usize {
        self.0.len()
    }

    /// The same for the same lines, in whatever order.
    pub fn checksum(&self) -> u64 {
        self.0.iter().fold(0u64, |sum, (hash, n)| sum.wrapping_add((*hash as u64).wrapping_mul(*n as u64)))
    }

    /// Lines of ours that are not among `others`, or more often here than there.
    pub fn beyond(&self, others: &Lines) -> i64 {
        let beyond = |(hash, n): (&u128, &i64)| (n - others.0.get(hash).copied().unwrap_or(0)).max(0);
        self.0.iter().map(beyond).sum()
    }
}

/// What the files of a sink hold.
pub fn of_files(dir: &Path, key: Option<&[String]>) -> Result<Lines, DrillError> {
    let mut names: Vec<_> = match std::fs::read_dir(dir) {
        Ok(entries) => entries.collect::<Result<Vec<_>, _>>()?.into_iter().map(|e| e.path()).collect(),
        // Nothing is published yet.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    // What is hidden, or the sink's own, is no part of its output.
    names.retain(|path| path.is_file() && !hidden(path));
    // Epochs are in the names, padded: later changes of a key come later.
    names.sort();
    let (mut lines, mut last) = (Lines::default(), HashMap::new());
    for path in names {
        let mut file = BufReader::new(decompressed(&path)?);
        let mut line = Vec::new();
        while file.read_until(b'\n', &mut line)? > 0 {
            match key {
                None => lines.add(&line),
                Some(key) => keep_last(&line, key, &mut last)?,
            }
            line.clear();
        }
    }
    last.values().flatten().for_each(|line: &Vec<u8>| lines.add(line));
    Ok(lines)
}

fn decompressed(path: &Path) -> std::io::Result<Box<dyn std::io::Read + Send>> {
    Compression::of_path(&path.to_string_lossy()).reader(std::fs::File::open(path)?)
}

fn hidden(path: &Path) -> bool {
    path.file_name().is_none_or(|name| name.to_string_lossy().starts_with(['.', '_']))
}

/// The last line of each key, if it was not deleted.
fn keep_last(
    line: &[u8],
    key: &[String],
    last: &mut HashMap<String, Option<Vec<u8>>>,
) -> Result<(), DrillError> {
    let row: serde_json::Value = serde_json::from_slice(line)
        .map_err(|e| DrillError::Unfit(format!("a sink's file has a line that is no JSON: {e}")))?;
    let values: Vec<String> = key.iter().map(|column| row[column].to_string()).collect();
    let deleted = row["weir_op"] == "delete";
    last.insert(values.join(","), (!deleted).then(|| line.to_vec()));
    Ok(())
}

/// What a view of a server holds, as lines of COPY.
pub async fn of_view(process: &Process, sink: &DrilledSink) -> Result<Lines, DrillError> {
    let client = process.connect().await?;
    of_query(&client, &format!("SELECT * FROM {}", sink.view)).await
}

/// What a table of PostgreSQL holds: the columns of the sink, in its order.
pub async fn of_table(place: &Place, columns: &[String]) -> Result<Lines, DrillError> {
    let Place::Table { config, table } = place else {
        return Err(DrillError::Unfit("files are no table".to_owned()));
    };
    let client = connect(config).await?;
    client.batch_execute("SET TimeZone = 'UTC'").await.map_err(|e| failed("SET TimeZone", &e))?;
    let columns: Vec<String> = columns.iter().map(|c| format!("\"{}\"", c.replace('"', "\"\""))).collect();
    of_query(&client, &format!("SELECT {} FROM {table}", columns.join(", "))).await
}

async fn of_query(client: &Client, query: &str) -> Result<Lines, DrillError> {
    let copy = client.copy_out(&format!("COPY ({query}) TO STDOUT")).await.map_err(|e| failed(query, &e))?;
    let mut copy = std::pin::pin!(copy);
    let (mut lines, mut rest) = (Lines::default(), Vec::new());
    while let Some(bytes) = copy.next().await {
        rest.extend_from_slice(&bytes.map_err(|e| failed(query, &e))?);
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', &rest) {
            lines.add(&rest[start..end]);
            start = end + 1;
        }
        rest.drain(..start);
    }
    Ok(lines)
}

/// A connection to the sinks' PostgreSQL.
pub async fn connect(config: &tokio_postgres::Config) -> Result<Client, DrillError> {
    let (client, connection) =
        config.connect(NoTls).await.map_err(|e| failed("connect to PostgreSQL", &e))?;
    tokio::spawn(connection);
    Ok(client)
}

/// What a statement failed of.
pub fn failed(what: &str, error: &tokio_postgres::Error) -> DrillError {
    let reason = match error.as_db_error() {
        Some(said) => {
            let hint = said.hint().map_or_else(String::new, |hint| format!(" ({hint})"));
            format!("{}: {}{hint}", said.code().code(), said.message())
        }
        None => std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string),
    };
    DrillError::Server { what: what.to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(texts: &[&str]) -> Lines {
        let mut lines = Lines::default();
        texts.iter().for_each(|text| lines.add(text.as_bytes()));
        lines
    }

    #[test]
    fn what_is_too_much_and_what_is_missing_is_counted() {
        let (source, sink) = (lines(&["a", "b", "b", "c"]), lines(&["b", "a", "a", "a", "x", "b"]));
        assert_eq!((sink.beyond(&source), source.beyond(&sink)), (3, 1));
        assert_eq!((source.count(), source.distinct()), (4, 3));
        assert_eq!(lines(&["b", "a"]).checksum(), lines(&["a", "b"]).checksum());
        assert_ne!(lines(&["a", "a"]).checksum(), lines(&["a"]).checksum());
    }

    #[test]
    fn of_a_key_the_last_row_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        write(
            "part-1-000000000009-0000.json",
            "{\"k\":1,\"v\":2,\"weir_op\":\"upsert\"}\n{\"k\":2,\"v\":1,\"weir_op\":\"delete\"}\n",
        );
        write(
            "part-1-000000000007-0000.json",
            "{\"k\":1,\"v\":1,\"weir_op\":\"upsert\"}\n{\"k\":2,\"v\":1,\"weir_op\":\"upsert\"}\n",
        );
        write(".part-1-000000000011-0000.json.tmp", "{\"k\":1,\"v\":3,\"weir_op\":\"upsert\"}\n");
        let found = of_files(dir.path(), Some(&["k".to_owned()])).unwrap();
        assert_eq!(found, lines(&["{\"k\":1,\"v\":2,\"weir_op\":\"upsert\"}\n"]));
        assert_eq!(of_files(dir.path(), None).unwrap().count(), 4);
        assert_eq!(of_files(&dir.path().join("none"), None).unwrap().count(), 0);
    }
}
