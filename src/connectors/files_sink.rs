//! `connector = 'file'` as a sink: files in a local directory, published whole and once.
//!
//! ```text
//!   1 write   .part-16390-000000000123-0000.json.tmp       hidden, fsynced
//!   2 commit  _weir/16390.json  {marker, pending: […]}     replaced by rename: the point of no return
//!   3 publish  part-16390-000000000123-0000.json           renamed; repeated by `open` after a crash
//! ```
//! File names carry the sink's id and the last epoch of the delivered range, so sinks may share a
//! directory. What is hidden and not named by the marker is no part of anything and is removed.
//! The marker's lock file is held meanwhile, and its generation checked, so that a server that was
//! thought dead can't publish.

use super::error::ConnectorError;
use super::options;
use super::registry::SinkContext;
use super::sink::{Delivery, Marker, SinkError, SinkTarget};
use crate::failpoint;
use crate::formats::compression::{Compressed, Compression};
use crate::formats::encode::{Encoding, ParquetCompression, encoder};
use crate::stream::ChangeBatch;
use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tracing::debug;
use weir_catalog::SqlState;
use weir_catalog::connector::{ConnectorRole, ConnectorSpec, Contract, OptionSpec};
use weir_catalog::sink::{Sink, SinkType};

const NAME: &str = "file";
/// Durable epochs that become one set of files, unless the sink says otherwise.
pub const COMMIT_EVERY_DEFAULT: usize = 60;

/// What CREATE SINK may say.
pub const SPEC: ConnectorSpec = ConnectorSpec {
    name: NAME,
    role: ConnectorRole::Sink,
    options: &[
        OptionSpec { name: "path", required: true, help: "A directory on the server's local disk." },
        OptionSpec {
            name: "compression",
            required: false,
            help: "none, gzip or zstd; for Parquet none, snappy or zstd (the default there).",
        },
        OptionSpec {
            name: "commit_every",
            required: false,
            help: "Checkpoints that become one set of files, or as many seconds. Default 60.",
        },
    ],
    encodings: &["JSON", "CSV", "PARQUET"],
    contract: Contract::Transactional,
    why: "files are hidden until the marker that names them is written; then they are published whole",
    empties_target: false,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FilesOptions {
    path: String,
    compression: Option<String>,
    /// Read by the registry.
    #[serde(rename = "commit_every")]
    _commit_every: Option<usize>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct CsvOptions {
    delimiter: Option<String>,
    #[serde(default)]
    header: bool,
    without_header: Option<bool>,
}

/// The column that tells what a row of an upsert or debezium sink is.
const OP_COLUMN: &str = "weir_op";

/// A directory that files are published in.
#[derive(Debug)]
pub struct FilesTarget {
    name: String,
    shared: Arc<Shared>,
}

/// What the blocking work needs.
#[derive(Debug)]
struct Shared {
    dir: PathBuf,
    database: String,
    sink: String,
    generation: u64,
    sink_type: SinkType,
    encoding: Encoding,
    compression: Compression,
    extension: String,
    /// The columns, with the op column of a sink that has one.
    schema: SchemaRef,
}

/// What `_weir/<sink>.json` says.
#[derive(Debug, Serialize, Deserialize)]
struct MarkerFile {
    version: u32,
    database: String,
    marker: Marker,
    /// The files that belong to the marker and may still be hidden.
    pending: Vec<PendingFile>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct PendingFile {
    name: String,
    bytes: u64,
    crc32: u32,
}

impl FilesTarget {
    /// From a declaration.
    pub fn open(sink: &Sink, context: &SinkContext<'_>) -> Result<Self, ConnectorError> {
        let read: FilesOptions = options::read(NAME, &sink.options)?;
        let path = local_path(&read.path)?;
        let (encoding, compression) = encoding_of(sink, read.compression.as_deref())?;
        let name = match encoding {
            Encoding::Json => "json",
            Encoding::Csv { .. } => "csv",
            Encoding::Parquet(_) => "parquet",
        };
        Ok(Self {
            name: context.name.to_owned(),
            shared: Arc::new(Shared {
                dir: path,
                database: context.database.to_owned(),
                sink: context.id.0.to_string(),
                generation: context.generation,
                sink_type: sink.sink_type,
                encoding,
                compression,
                extension: format!("{name}{}", compression.extension()),
                schema: file_schema(sink),
            }),
        })
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Shared) -> Result<T, SinkError> + Send + 'static,
    ) -> Result<T, SinkError> {
        let shared = Arc::clone(&self.shared);
        match tokio::task::spawn_blocking(move || work(&shared)).await {
            Ok(outcome) => outcome,
            Err(error) => Err(SinkError::Retry(format!("writing files was cut short: {error}"))),
        }
    }
}

#[async_trait]
impl SinkTarget for FilesTarget {
    async fn check(&mut self) -> Result<(), ConnectorError> {
        let name = self.name.clone();
        let checked = self.blocking(move |shared| Ok(shared.check(&name))).await;
        checked.map_err(|e| ConnectorError::unfit(SqlState::IO_ERROR, e.to_string(), TRY_DIRECTORY))?
    }

    async fn open(&mut self) -> Result<Option<Marker>, SinkError> {
        self.blocking(Shared::open).await
    }

    async fn deliver(&mut self, delivery: Delivery) -> Result<(), SinkError> {
        self.blocking(move |shared| shared.deliver(&delivery)).await
    }
}

const TRY_DIRECTORY: &str = "Give the option \"path\" a directory that the server can write to.";

/// A path on the local disk, from an option.
pub fn local_path(path: &str) -> Result<PathBuf, ConnectorError> {
    let local = path.strip_prefix("file://").unwrap_or(path);
    match local.split_once("://") {
        Some((scheme, _)) => {
            Err(ConnectorError::Unsupported { connector: NAME.into(), what: format!("{scheme}:// paths") })
        }
        None if local.is_empty() => Err(ConnectorError::InvalidOption {
            connector: NAME.into(),
            option: "path".into(),
            reason: "it is empty".into(),
        }),
        None => Ok(PathBuf::from(local)),
    }
}

fn encoding_of(sink: &Sink, compression: Option<&str>) -> Result<(Encoding, Compression), ConnectorError> {
    let invalid = |option: &str, reason: String| {
        let (connector, option) = (NAME.to_owned(), option.to_owned());
        ConnectorError::InvalidOption { connector, option, reason }
    };
    let text = || match Compression::named(compression.unwrap_or("none")) {
        Some(compression) => Ok(compression),
        None => Err(invalid("compression", "it is none, gzip or zstd".into())),
    };
    match sink.format.encode.as_str() {
        "JSON" => Ok((Encoding::Json, text()?)),
        "CSV" => {
            let csv: CsvOptions = options::read(NAME, &sink.format.options)?;
            let delimiter = match csv.delimiter.as_deref().unwrap_or(",").as_bytes() {
                [one] => *one,
                b"\\t" => b'\t',
                _ => return Err(invalid("delimiter", "it is one character".into())),
            };
            let header = csv.without_header.map_or(csv.header, |without| !without);
            Ok((Encoding::Csv { delimiter, header }, text()?))
        }
        "PARQUET" | "NATIVE" | "" => {
            let compression = match compression.unwrap_or("zstd").to_ascii_lowercase().as_str() {
                "none" => ParquetCompression::None,
                "snappy" => ParquetCompression::Snappy,
                "zstd" => ParquetCompression::Zstd,
                _ => return Err(invalid("compression", "it is none, snappy or zstd".into())),
            };
            Ok((Encoding::Parquet(compression), Compression::None))
        }
        other => Err(ConnectorError::Unsupported { connector: NAME.into(), what: format!("ENCODE {other}") }),
    }
}

fn file_schema(sink: &Sink) -> SchemaRef {
    let field = |column: &weir_catalog::Column| {
        let field = Field::new(&column.name, column.data_type.clone(), true);
        match column.sql_type.as_str() {
            json @ ("json" | "jsonb") => {
                field.with_metadata([("weir.type".to_owned(), json.to_owned())].into())
            }
            _ => field,
        }
    };
    let mut fields: Vec<Field> = sink.columns.iter().map(field).collect();
    if sink.sink_type != SinkType::AppendOnly {
        fields.push(Field::new(OP_COLUMN, DataType::Utf8, false));
    }
    Arc::new(Schema::new(fields))
}

fn retry(error: io::Error) -> SinkError {
    SinkError::Retry(error.to_string())
}

impl Shared {
    fn marker_dir(&self) -> PathBuf {
        self.dir.join("_weir")
    }

    fn marker_path(&self) -> PathBuf {
        self.marker_dir().join(format!("{}.json", self.sink))
    }

    /// The lock that whoever changes this sink's files holds.
    fn lock(&self) -> io::Result<File> {
        let path = self.marker_dir().join(format!("{}.lock", self.sink));
        let file = File::options().create(true).append(true).open(path)?;
        file.lock()?;
        Ok(file)
    }

    /// Tries the directory with a hidden file. What had to be made for it is removed again.
    fn check(&self, sink: &str) -> Result<(), ConnectorError> {
        let refused = |e: io::Error| {
            let state = match e.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    SqlState::INSUFFICIENT_PRIVILEGE
                }
                io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => SqlState::WRONG_OBJECT_TYPE,
                io::ErrorKind::StorageFull => SqlState::DISK_FULL,
                _ => SqlState::IO_ERROR,
            };
            let message = format!("sink \"{sink}\" could not write to directory {}: {e}", self.dir.display());
            ConnectorError::unfit(state, message, TRY_DIRECTORY)
        };
        let missing: Vec<&Path> = self.dir.ancestors().take_while(|dir| !dir.exists()).collect();
        fs::create_dir_all(&self.dir).map_err(refused)?;
        let probe = self.dir.join(format!(".weir-{}-{}.tmp", self.sink, std::process::id()));
        let written = File::create(&probe).and_then(|mut file| file.write_all(b"?"));
        // Whether it is there or not, nobody misses it.
        let _ = fs::remove_file(&probe);
        let strangers = self.refuse_strangers();
        // Only what is empty goes.
        missing.iter().for_each(|dir| drop(fs::remove_dir(dir)));
        written.map_err(refused)?;
        strangers.map_err(|e| {
            let state = SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE;
            ConnectorError::unfit(state, format!("sink \"{sink}\": {e}"), TRY_DIRECTORY)
        })
    }

    fn open(&self) -> Result<Option<Marker>, SinkError> {
        let at =
            |e: io::Error| SinkError::Retry(format!("could not open directory {}: {e}", self.dir.display()));
        fs::create_dir_all(self.marker_dir()).map_err(at)?;
        let _lock = self.lock().map_err(at)?;
        let held = self.read_marker()?;
        if let Some(held) = &held {
            for file in &held.pending {
                self.check_hidden(file)?;
                self.publish(file)?;
            }
            sync_dir(&self.dir).map_err(retry)?;
        }
        self.remove_hidden().map_err(at)?;
        Ok(held.map(|held| held.marker))
    }

    fn deliver(&self, delivery: &Delivery) -> Result<(), SinkError> {
        let _lock = self.lock().map_err(retry)?;
        self.read_marker()?;
        failpoint::hit("files_sink.before_write").map_err(retry)?;
        let mut pending = Vec::new();
        if delivery.batches.iter().any(|b| !b.is_empty()) {
            pending.push(self.write_hidden(delivery).map_err(retry)?);
        }
        failpoint::hit("files_sink.before_commit").map_err(retry)?;
        self.write_marker(delivery.marker, pending.clone()).map_err(retry)?;
        failpoint::hit("files_sink.before_publish").map_err(retry)?;
        pending.iter().try_for_each(|file| self.publish(file))?;
        sync_dir(&self.dir).map_err(retry)?;
        failpoint::hit("files_sink.after_publish").map_err(retry)?;
        Ok(())
    }

    /// What the directory holds of this sink. Refuses another database's, and a newer generation's.
    fn read_marker(&self) -> Result<Option<MarkerFile>, SinkError> {
        let path = self.marker_path();
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return self.refuse_strangers().map(|()| None),
            Err(e) => return Err(SinkError::Retry(format!("could not read {}: {e}", path.display()))),
        };
        let held: MarkerFile = serde_json::from_slice(&bytes)
            .map_err(|e| SinkError::Fatal(format!("{} is damaged: {e}", path.display())))?;
        self.refuse_other(&held)?;
        if held.marker.generation > self.generation {
            return Err(SinkError::Fatal(format!(
                "{} was written by a server of generation {}, this one is of generation {}",
                path.display(),
                held.marker.generation,
                self.generation
            )));
        }
        Ok(Some(held))
    }

    fn refuse_other(&self, held: &MarkerFile) -> Result<(), SinkError> {
        if held.database == self.database {
            return Ok(());
        }
        Err(SinkError::Fatal(format!(
            "directory {} holds the files of another database's sink: choose an empty one",
            self.dir.display()
        )))
    }

    /// A new sink may share its directory with sinks of its own database only: epochs, which are
    /// in the files' names, start over in another one.
    fn refuse_strangers(&self) -> Result<(), SinkError> {
        let entries = match fs::read_dir(self.marker_dir()) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(retry(e)),
        };
        for entry in entries {
            let path = entry.map_err(retry)?.path();
            if path.extension().is_some_and(|e| e == "json") {
                let held = fs::read(&path).map_err(retry)?;
                if let Ok(held) = serde_json::from_slice::<MarkerFile>(&held) {
                    self.refuse_other(&held)?;
                }
            }
        }
        Ok(())
    }

    fn write_marker(&self, marker: Marker, pending: Vec<PendingFile>) -> io::Result<()> {
        let file = MarkerFile { version: 1, database: self.database.clone(), marker, pending };
        let path = self.marker_path();
        let hidden = path.with_extension("json.tmp");
        let mut out = File::create(&hidden)?;
        out.write_all(&serde_json::to_vec_pretty(&file)?)?;
        out.sync_all()?;
        fs::rename(&hidden, &path)?;
        sync_dir(&self.marker_dir())
    }

    fn hidden(&self, name: &str) -> PathBuf {
        self.dir.join(format!(".{name}.tmp"))
    }

    fn write_hidden(&self, delivery: &Delivery) -> io::Result<PendingFile> {
        let (until, chunk) = (delivery.until.0, delivery.chunk);
        let stem = format!("part-{}-{until:012}-{chunk:04}", self.sink);
        // An old copy of the data may give a number again: what was published under it stays.
        let again = (1..).map(|n| format!("{stem}-{n}.{}", self.extension));
        let mut names = std::iter::once(format!("{stem}.{}", self.extension)).chain(again);
        let free = names.find(|name| !self.dir.join(name).exists());
        let name = free.ok_or_else(|| io::Error::other("no file name is free"))?;
        let path = self.hidden(&name);
        let output = Compressed::new(File::create(&path)?, self.compression)?;
        let mut encoder = encoder(self.encoding, &self.schema, Box::new(output))?;
        for batch in &delivery.batches {
            encoder.write(&self.file_rows(batch)?)?;
        }
        encoder.finish()?;
        File::open(&path)?.sync_all()?;
        sync_dir(&self.dir)?;
        let (bytes, crc32) = checksum(&path)?;
        Ok(PendingFile { name, bytes, crc32 })
    }

    /// The rows as they are in the file: with what happened to each, if the sink isn't append-only.
    fn file_rows(&self, batch: &ChangeBatch) -> io::Result<RecordBatch> {
        let mut columns: Vec<ArrayRef> = batch.rows().columns().to_vec();
        if self.sink_type != SinkType::AppendOnly {
            columns.push(Arc::new(ops(batch, self.sink_type)));
        }
        RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(io::Error::other)
    }

    /// A hidden file that is named by the marker is as it was written.
    fn check_hidden(&self, file: &PendingFile) -> Result<(), SinkError> {
        let path = self.hidden(&file.name);
        match checksum(&path) {
            Ok(found) if found == (file.bytes, file.crc32) => Ok(()),
            Ok(_) => Err(SinkError::Fatal(format!("{} is damaged", path.display()))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(SinkError::Retry(format!("could not read {}: {e}", path.display()))),
        }
    }

    /// Gives a committed file its name, if it has not got it yet.
    fn publish(&self, file: &PendingFile) -> Result<(), SinkError> {
        let (hidden, path) = (self.hidden(&file.name), self.dir.join(&file.name));
        match fs::rename(&hidden, &path) {
            Ok(()) => Ok(()),
            // Published before the crash; a reader may have moved it away since.
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(SinkError::Retry(format!("could not publish {}: {e}", path.display()))),
        }
    }

    /// Removes what a crash left behind before its commit.
    fn remove_hidden(&self) -> io::Result<()> {
        let start = format!(".part-{}-", self.sink);
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(&start) && name.ends_with(".tmp") {
                debug!(file = %name, "unpublished file removed");
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

fn ops(batch: &ChangeBatch, sink_type: SinkType) -> StringArray {
    (0..batch.num_rows())
        .map(|row| match (sink_type, batch.diff(row) > 0) {
            (SinkType::Upsert, true) => Some("upsert"),
            (_, true) => Some("insert"),
            (_, false) => Some("delete"),
        })
        .collect()
}

fn checksum(path: &Path) -> io::Result<(u64, u32)> {
    let mut file = File::open(path)?;
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 1 << 18];
    let mut bytes = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((bytes, hasher.finalize())),
            n => {
                hasher.update(&buffer[..n]);
                bytes += n as u64;
            }
        }
    }
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
#[path = "tests/files_sink.rs"]
mod tests;
