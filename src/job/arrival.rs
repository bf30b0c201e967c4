//! Arrival: a database is brought to an empty data directory by a savepoint (`weir serve --restore`), or comes
//! back from its checkpoints ([`super::comeback`]).
//!
//! ```text
//!   empty ── marked, with the savepoint's identity above its generation ── as RESTORE DATABASE ── mark removed ── start
//! ```
//! It is the same database somewhere else: its sinks' targets know it, and fence off the server that had
//! it before. **Invariant:** a directory that is marked is never started from.

use super::comeback::Root;
use super::incarnation::Lasting;
use super::manager::JobError;
use super::replace::{prepare, read, switch};
use super::replace_fit::fit;
use super::savepoint::{blocking, of_storage, open, parse};
use crate::checkpoint::remote::RemoteStorage;
use crate::checkpoint::savepoint::{Savepoint, SavepointDir};
use crate::config::{Config, StorageUrl};
use crate::state::data_dir::{Arrival, DataDir};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use weir_catalog::{CatalogSnapshot, SqlState};
use weir_sql::parser::statement::RestoreOptions;

/// A data directory, and how what is in it came there.
pub(super) struct Opened {
    pub data_dir: DataDir,
    /// The savepoint that it is still to be filled with.
    pub savepoint: Option<String>,
    /// What is to be said of where it came back from.
    pub came_back: Option<String>,
}

/// Opens the data directory, or makes it for what `--restore` brings.
pub(super) fn data_dir(config: &Config) -> Result<Opened, JobError> {
    let Some(url) = &config.restore else {
        let opened = DataDir::open(&config.data_dir);
        let data_dir = opened.map_err(|e| JobError::io("open the data directory", &e))?;
        return Ok(Opened { data_dir, savepoint: None, came_back: None });
    };
    let parsed = parse_any(url)?;
    let dir = parse(url).and_then(|parsed| {
        SavepointDir::open(&parsed, true).map_err(|e| of_storage("read the savepoint", &e))
    });
    let read = dir.and_then(|dir| dir.read().map_err(|e| of_storage("read the savepoint", &e)));
    match read {
        Ok(savepoint) => {
            let (generation, epoch) = above(config, &savepoint)?;
            let data_dir = open_for(config, Arrival { database: savepoint.database, generation, epoch })?;
            Ok(Opened { data_dir, savepoint: Some(url.clone()), came_back: None })
        }
        Err(error) => {
            let none = [SqlState::UNDEFINED_FILE, SqlState::INVALID_PARAMETER_VALUE].contains(&error.state);
            let root = if none { Root::find(config, &parsed)? } else { None };
            let (data_dir, said) = root.ok_or(error)?.bring(config)?;
            Ok(Opened { data_dir, savepoint: None, came_back: Some(said) })
        }
    }
}

/// Reads a URL of either kind: checkpoints may be at the root of a bucket.
fn parse_any(url: &str) -> Result<StorageUrl, JobError> {
    match StorageUrl::parse(url) {
        Ok(Some(parsed)) => Ok(parsed),
        _ => parse(url),
    }
}

/// Makes the data directory for what arrives.
pub(super) fn open_for(config: &Config, arrival: Arrival) -> Result<DataDir, JobError> {
    DataDir::open_for(&config.data_dir, arrival).map_err(|e| {
        let mut error = JobError::io("make the data directory", &e);
        if e.kind() == std::io::ErrorKind::AlreadyExists {
            error.hint = Some(
                "Start without --restore, or use RESTORE DATABASE … FROM … WITH (replace = true) there."
                    .to_owned(),
            );
        }
        error
    })
}

/// What the database had: its numbers go on above. Where it keeps checkpoints elsewhere, its server may
/// still write there.
fn above(config: &Config, savepoint: &Savepoint) -> Result<(u64, crate::stream::Epoch), JobError> {
    let of_savepoint = (savepoint.generation, savepoint.epoch);
    let catalog = CatalogSnapshot::from_image(savepoint.catalog.clone());
    let settings = config.of_database(&catalog.settings).storage;
    let Some(url) = &settings.url else { return Ok(of_savepoint) };
    if !savepoint.stopped && !config.take_over() {
        let message = format!(
            "the database of the savepoint keeps its checkpoints at \"{}\", where its server may still write",
            url.url
        );
        let mut error = JobError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message);
        error.hint = Some(
            "Stop it by SAVEPOINT TO … AND STOP and restore that; or, if that server is gone for good, start with \
             checkpoint.take_over = on."
                .to_owned(),
        );
        return Err(error);
    }
    let storage = RemoteStorage::new(&settings, savepoint.database, savepoint.generation);
    let (generation, epoch) = storage.newest().map_err(|e| JobError::io("read checkpoint.storage", &e))?;
    Ok((generation.max(of_savepoint.0), epoch.max(of_savepoint.1)))
}

/// Fills the database, which is empty, with what the savepoint holds.
pub(super) async fn fill(lasting: &Arc<Lasting>, url: &str) -> Result<(), JobError> {
    let dir = open(url).await?;
    let savepoint = read(&dir).await?;
    let (of_fit, saved) = (Arc::clone(lasting), Arc::clone(&savepoint));
    let fitted = blocking(move || fit(&of_fit, &saved, RestoreOptions::default())).await?;
    let fitted = fitted.map_err(|mut error| {
        error.hint = Some(
            "RESTORE DATABASE … WITH (on_mismatch = 'rebuild' or 'drop') in an empty server goes on without it.".to_owned(),
        );
        error
    })?;
    let prepared = prepare(lasting, &dir, &savepoint, fitted, &CancellationToken::new()).await?;
    let of_switch = Arc::clone(lasting);
    blocking(move || switch(&of_switch, &savepoint, prepared)).await??;
    lasting.storage.lock().set(&lasting.settings().storage);
    lasting.data_dir.arrived().map_err(|e| JobError::io("complete the data directory", &e))?;
    tracing::info!(url = dir.url(), database = %lasting.data_dir.database(), "the database has arrived");
    Ok(())
}
