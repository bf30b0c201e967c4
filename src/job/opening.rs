//! What a start requires of what it finds in the data directory, and in `checkpoint.storage`.

use super::manager::JobError;
use crate::checkpoint::history::History;
use crate::checkpoint::manifest::{Manifest, ManifestJob};
use crate::checkpoint::remote::RemoteStorage;
use crate::checkpoint::staged;
use crate::checkpoint::storage::CheckpointStorage;
use crate::config::{Config, StorageSettings};
use crate::state::backend::Backend;
use crate::state::data_dir::DataDir;
use crate::state::durable::damaged;
use crate::stream::Epoch;
use std::collections::HashSet;
use weir_catalog::{CatalogSnapshot, JobId, ObjectId, SqlState};

/// What is remembered of checkpoints, below the data directory.
const HISTORY: &str = "history.jsonl";

/// The checkpoints that a start finds.
pub struct Checkpoints {
    /// Where they are.
    pub storage: CheckpointStorage,
    /// The one to go on from.
    pub newest: Option<Manifest>,
    /// What is told of earlier ones.
    pub history: History,
    /// The DML position of the newest one that was on the disk: the log here has reached it.
    pub dml_position: u64,
}

/// Opens the checkpoints of a data directory with this catalog, and checks that they are all there and
/// whole. `arrives`: what a savepoint brings is put in their place.
pub fn open_checkpoints(
    data_dir: &DataDir,
    catalog: &CatalogSnapshot,
    settings: &StorageSettings,
    arrives: bool,
) -> Result<Checkpoints, JobError> {
    let io = |what: &'static str| move |e: std::io::Error| JobError::io(what, &e);
    let root = data_dir.subdirectory("checkpoints").map_err(io("make a directory"))?;
    let restored = Epoch(catalog.restored);
    staged::settle(&root, restored).map_err(JobError::from_checkpoint)?;
    let mut storage = CheckpointStorage::open(&root, data_dir.database(), data_dir.generation())
        .map_err(JobError::from_checkpoint)?;
    storage.guard(data_dir.ownership());
    let dml_position = storage.list().map(|manifest| manifest.dml_position).max().unwrap_or(0);
    if !arrives {
        storage.set(settings);
        open_remote(&mut storage, catalog)?;
    }
    require_restored(&storage, restored).map_err(io("open the checkpoints"))?;
    storage.forget_before(restored).map_err(JobError::from_checkpoint)?;
    require_whole(catalog, &storage).map_err(io("open the catalog"))?;
    let newest = storage.verify_newest().map_err(JobError::from_checkpoint)?;
    let history = History::open(&data_dir.root().join(HISTORY));
    if newest.is_none() && !arrives {
        require_never_any(&storage, &history)?;
    }
    Ok(Checkpoints { storage, newest, history, dml_position })
}

/// Goes above every generation that wrote to the storage.
pub fn take_over(data_dir: &mut DataDir, settings: &StorageSettings) -> std::io::Result<()> {
    if settings.url.is_none() {
        return Ok(());
    }
    let storage = RemoteStorage::new(settings, data_dir.database(), data_dir.generation());
    data_dir.raise_generation(storage.newest()?.0)
}

/// Opens `checkpoint.storage`, if it is not local. Where it is away, what is on the disk is as new as what
/// it has, and its checkpoints fail until it is back. Without a checkpoint on the disk its own are needed:
/// to start with nothing would be to lose everything.
fn open_remote(storage: &mut CheckpointStorage, catalog: &CatalogSnapshot) -> Result<(), JobError> {
    let Err(error) = storage.open_remote() else { return Ok(()) };
    let others = matches!(error.kind(), std::io::ErrorKind::AlreadyExists | std::io::ErrorKind::InvalidInput);
    if others {
        let mut error = JobError::io("use checkpoint.storage", &error);
        error.hint =
            Some("If that server is gone for good, start with checkpoint.take_over = on.".to_owned());
        return Err(error);
    }
    if !storage.has_local() && catalog.objects().next().is_some() {
        let mut error = JobError::io("read checkpoint.storage", &error);
        error.hint = Some("The data directory has no checkpoint of its own to start from.".to_owned());
        return Err(error);
    }
    tracing::error!(%error, "checkpoint.storage can't be read: starting from the local checkpoint");
    Ok(())
}

/// A catalog that lacks what a checkpoint was made with has lost its end: acknowledged DDL, and with it
/// the rows of what it created.
fn require_whole(catalog: &CatalogSnapshot, storage: &CheckpointStorage) -> std::io::Result<()> {
    match storage.list().find(|m| m.catalog_version > catalog.version) {
        None => Ok(()),
        Some(manifest) => Err(std::io::Error::new(
            std::io::ErrorKind::InvalidData,
            format!(
                "catalog.log or catalog.image is damaged: they end at version {}, but the checkpoint of epoch {} \
                 was made with version {}",
                catalog.version, manifest.epoch, manifest.catalog_version
            ),
        )),
    }
}

/// A data directory without a checkpoint is one that never had any: where its history tells of one, to start
/// with nothing would be to lose what only that one holds.
fn require_never_any(storage: &CheckpointStorage, history: &History) -> Result<(), JobError> {
    let checkpoints = history.checkpoints();
    let Some(newest) = checkpoints.iter().rev().find(|checkpoint| checkpoint.status == "completed") else {
        return Ok(());
    };
    let (root, epoch) = (storage.root(), newest.epoch);
    let error = damaged(root, format!("it has no checkpoint, but that of epoch {epoch} was completed"));
    tracing::error!(%error, "CHECKPOINTS ARE MISSING");
    let mut error =
        JobError::new(SqlState::DATA_CORRUPTED, format!("could not open the checkpoints: {error}"));
    error.hint = Some(
        "Put the directory back as it was; or start with --restore and the URL of a savepoint, or of what \
         checkpoint.storage was, in an empty data directory."
            .to_owned(),
    );
    Err(error)
}

/// A catalog that RESTORE has put in place goes with the checkpoint that it names, or a later one.
fn require_restored(storage: &CheckpointStorage, restored: Epoch) -> std::io::Result<()> {
    if restored == Epoch::ZERO || storage.list().any(|manifest| manifest.epoch >= restored) {
        return Ok(());
    }
    let message = format!("the checkpoint of epoch {restored}, which RESTORE put in place, is missing");
    Err(std::io::Error::new(std::io::ErrorKind::InvalidData, message))
}

/// A job that had filled from one that was filling still has some of its rows, and would get them again when that
/// one fills anew: it fills anew as well.
pub fn leave_out_what_lacks_inputs(jobs: &mut Vec<ManifestJob>, catalog: &CatalogSnapshot) {
    loop {
        let there: HashSet<JobId> = jobs.iter().map(|job| job.job).collect();
        let fills =
            |input: ObjectId| catalog.by_id(input).is_some_and(|o| o.has_job()) && !there.contains(&input);
        jobs.retain(|job| {
            catalog.by_id(job.job).is_none_or(|object| !object.inputs().into_iter().any(fills))
        });
        if jobs.len() == there.len() {
            return;
        }
    }
}

/// A store reads what its own kind has written.
pub fn require_backend(config: &Config, newest: Option<&Manifest>) -> Result<(), JobError> {
    let Some(manifest) = newest else { return Ok(()) };
    let made_by = Backend::of_files(manifest.files.iter().map(|file| file.name.as_str()));
    let wanted = Backend::of_setting(config.state_backend());
    if made_by == wanted {
        return Ok(());
    }
    let (made_by, wanted) = (made_by.name(), wanted.name());
    let mut error = JobError::new(
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!(
            "the checkpoint of epoch {} was made with state.backend = '{made_by}', but the server was started with \
             state.backend = '{wanted}'",
            manifest.epoch
        ),
    );
    error.hint = Some(format!(
        "Start with state.backend = '{made_by}', run SAVEPOINT TO '…' AND STOP, and bring the savepoint to an empty data \
         directory: weir serve --restore … --set state.backend={wanted}."
    ));
    Err(error)
}
