//! Comeback: a database comes to an empty data directory from a remote storage alone
//! (`weir serve --restore` with the URL of `checkpoint.storage`).
//!
//! ```text
//!   empty ── marked ── whoever wrote there is fenced off ── the newest checkpoint all of which is intact:
//!            the catalog, what sinks had not delivered, the state ── mark removed ── an ordinary start
//! ```
//! What was acknowledged after that checkpoint is lost, and said to be. A newer one that is damaged is none
//! of the database's past any more, also if it should be readable later.
//!
//! **Invariant:** a directory that is marked is never started from; catalog, promises and state are those
//! of one checkpoint.

use super::manager::JobError;
use super::opening::require_backend;
use super::savepoint::of_storage;
use crate::checkpoint::local::LocalStorage;
use crate::checkpoint::manifest::Manifest;
use crate::checkpoint::objects::Objects;
use crate::checkpoint::remote::RemoteStorage;
use crate::config::{Config, StorageScheme, StorageSettings, StorageUrl};
use crate::connectors::ahead;
use crate::dml::log::DmlLog;
use crate::state::catalog_log::FileCatalogLog;
use crate::state::data_dir::{Arrival, DataDir};
use std::io;
use uuid::Uuid;
use weir_catalog::{CatalogChange, CatalogSnapshot, ObjectState, SqlState};

/// The setting that says where a database's checkpoints are.
const STORAGE: &str = "checkpoint.storage";

/// The checkpoints of a database in a remote storage.
pub(super) struct Root {
    storage: StorageUrl,
    database: Uuid,
}

impl Root {
    /// Those at a URL: that of the storage, or of the database's folder there. None if there are none.
    pub fn find(config: &Config, url: &StorageUrl) -> Result<Option<Root>, JobError> {
        let mut storage = url.clone();
        let path = url.url.path().trim_end_matches('/');
        let (above, last) = path.rsplit_once('/').unwrap_or(("", path));
        let named = Uuid::parse_str(last).ok();
        if named.is_some() {
            storage.url.set_path(if above.is_empty() { "/" } else { above });
        }
        let shown = url.url.to_string();
        let io = |e: io::Error| JobError::io(&format!("look for checkpoints at \"{shown}\""), &e);
        let is_dir = |url: &StorageUrl| url.url.to_file_path().is_ok_and(|dir| dir.is_dir());
        if storage.scheme == StorageScheme::File && !is_dir(&storage) {
            return Ok(None);
        }
        let folders = Objects::folders(&storage, config.database.storage.retries).map_err(io)?;
        let mut databases: Vec<Uuid> = folders.iter().filter_map(|name| Uuid::parse_str(name).ok()).collect();
        databases.retain(|database| named.is_none_or(|named| named == *database));
        match databases[..] {
            [] => Ok(None),
            [database] => Ok(Some(Root { storage, database })),
            _ => {
                let names: Vec<String> = databases.iter().map(Uuid::to_string).collect();
                let message =
                    format!("\"{shown}\" holds checkpoints of several databases: {}", names.join(", "));
                let mut error = JobError::new(SqlState::INVALID_PARAMETER_VALUE, message);
                error.hint = Some("Add the one to restore to the path of the URL.".to_owned());
                Err(error)
            }
        }
    }

    /// Makes the data directory for the database, and brings what its newest intact checkpoint has. Returns it
    /// with what is to be said of that.
    pub fn bring(&self, config: &Config) -> Result<(DataDir, String), JobError> {
        self.require_take_over(config)?;
        let read = |e: io::Error| of_storage("read the checkpoints", &e);
        let settings = StorageSettings { url: Some(self.storage.clone()), ..config.database.storage.clone() };
        let (generation, epoch) = RemoteStorage::new(&settings, self.database, 0).newest().map_err(read)?;
        let arrival = Arrival { database: self.database, generation, epoch };
        let data_dir = super::arrival::open_for(config, arrival)?;
        let remote = RemoteStorage::new(&settings, self.database, data_dir.generation());
        // From here on nobody else writes there: what is the newest stays it.
        remote.open(None).map_err(read)?;
        let found = remote.manifests_newest_first();
        let bringing = Bringing { config, data_dir: &data_dir, remote: &remote };
        let (manifest, catalog) = bringing.newest_intact(&found)?;
        if remote.has_damaged() || found.first().is_some_and(|newest| newest.epoch != manifest.epoch) {
            remote.go_on_from((manifest.generation, manifest.epoch)).map_err(read)?;
        }
        let catalog = self.catalog(config, catalog, manifest)?;
        bringing.complete(&catalog, manifest).map_err(|e| JobError::io("complete the data directory", &e))?;
        let said = self.said(&found, manifest);
        tracing::warn!(database = %self.database, "{said}");
        Ok((data_dir, said))
    }

    /// Its server may still write there.
    fn require_take_over(&self, config: &Config) -> Result<(), JobError> {
        if config.take_over() {
            return Ok(());
        }
        let message = format!(
            "\"{}\" holds the checkpoints of database {}, whose server may still write there",
            self.storage.url, self.database
        );
        let mut error = JobError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message);
        error.hint =
            Some("If that server is gone for good, start with checkpoint.take_over = on.".to_owned());
        Err(error)
    }

    /// The catalog that the database has here: what the checkpoint holds whole was created, and its checkpoints
    /// go on where they are, unless the server is told otherwise.
    fn catalog(
        &self,
        config: &Config,
        catalog: CatalogSnapshot,
        manifest: &Manifest,
    ) -> Result<CatalogSnapshot, JobError> {
        let created = |id| manifest.jobs.iter().any(|job| job.job == id);
        let creating = catalog.objects().filter(|o| o.state == ObjectState::Creating && created(o.id));
        let mut changes: Vec<CatalogChange> = creating.map(|o| CatalogChange::Created(o.id)).collect();
        let elsewhere = config.database.storage.url.as_ref().is_some_and(|url| *url != self.storage);
        let now = config.of_database(&catalog.settings).storage.url;
        if now.as_ref() != Some(&self.storage) && !elsewhere {
            tracing::info!(url = %self.storage.url, "checkpoint.storage is where the database came back from");
            changes.push(CatalogChange::Set(STORAGE.to_owned(), Some(self.storage.to_text())));
        }
        changes.iter().try_fold(catalog, |next, change| next.apply(change)).map_err(JobError::from_client)
    }

    /// What is lost.
    fn said(&self, found: &[Manifest], manifest: &Manifest) -> String {
        let at = chrono::DateTime::from_timestamp_micros(manifest.completed_at_us).unwrap_or_default();
        let known = found.iter().map(|m| m.dml_position).max().unwrap_or_default();
        let missing = known.saturating_sub(manifest.dml_position);
        let missing = match missing {
            0 => String::new(),
            n => format!(", at least {n} transactions"),
        };
        format!(
            "the database came back from the checkpoint of epoch {} at \"{}\", of {}: what clients were told after it \
             is lost: of tables what was written after DML position {}{missing}; of the catalog what was changed after \
             version {}",
            manifest.epoch,
            self.storage.url,
            at.format("%Y-%m-%d %H:%M:%S UTC"),
            manifest.dml_position,
            manifest.catalog_version
        )
    }
}

struct Bringing<'a> {
    config: &'a Config,
    data_dir: &'a DataDir,
    remote: &'a RemoteStorage,
}

impl Bringing<'_> {
    /// Brings the newest checkpoint all of which is intact, of those `found`, newest first.
    fn newest_intact<'m>(&self, found: &'m [Manifest]) -> Result<(&'m Manifest, CatalogSnapshot), JobError> {
        let mut reason = None;
        for manifest in found {
            require_backend(self.config, Some(manifest))?;
            match self.checkpoint(manifest) {
                Ok(catalog) => return Ok((manifest, catalog)),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    tracing::error!(epoch = %manifest.epoch, %error, "CHECKPOINT IS DAMAGED; falling back to the one before");
                    reason.get_or_insert(error);
                }
                Err(error) => return Err(of_storage("bring the checkpoint", &error)),
            }
        }
        let reason = reason.map_or_else(String::new, |error| format!("; the newest: {error}"));
        let mut error =
            JobError::new(SqlState::DATA_CORRUPTED, format!("there is no intact checkpoint{reason}"));
        error.hint = Some(
            "One that names no catalog was made by an earlier version: it needs a copy of the data directory."
                .to_owned(),
        );
        Err(error)
    }

    fn checkpoint(&self, manifest: &Manifest) -> io::Result<CatalogSnapshot> {
        let (sinks, root) = (self.data_dir.root().join("sinks"), self.data_dir.subdirectory("checkpoints")?);
        if sinks.exists() {
            // Of one that was damaged.
            std::fs::remove_dir_all(&sinks)?;
        }
        let sinks = self.data_dir.subdirectory("sinks")?;
        let catalog = self.remote.fetch_catalog(manifest)?;
        self.remote.fetch_parts(manifest, &|sink| sinks.join(sink.to_string()))?;
        for (sink, ahead) in &manifest.ahead {
            ahead::note(&sinks.join(sink.to_string()), ahead)?;
        }
        let local = LocalStorage::at(&root, self.data_dir.database(), self.data_dir.generation());
        let fetched = self.remote.fetch(&local, manifest, &[])?;
        tracing::info!(epoch = %manifest.epoch, files = fetched.files, bytes = fetched.bytes, "checkpoint downloaded");
        Ok(catalog)
    }

    fn complete(&self, catalog: &CatalogSnapshot, manifest: &Manifest) -> io::Result<()> {
        let (mut log, _) = FileCatalogLog::open(&self.data_dir.subdirectory("catalog")?)?;
        log.merge(catalog)?;
        DmlLog::begin_after(&self.data_dir.subdirectory("dml")?, manifest.dml_position)?;
        crate::failpoint::hit("comeback.before_arrived")?;
        self.data_dir.arrived()
    }
}
