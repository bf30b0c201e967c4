//! RESTORE DATABASE: what a savepoint holds takes the place of what the database has.
//!
//! ```text
//!   read, checked, planned ── its state becomes a checkpoint, beside the others ──────┐ the old dataflow runs
//!   DML is refused ── the old dataflow ends ── promised parts beside the sinks' logs ──┘
//!   catalog's log: Restore(catalog, epoch)          <── the one moment: before it the old database, after it the new
//!   the checkpoint gets its name, older ones go ── the new dataflow starts from it
//! ```
//! The epoch is one that was never given: numbers go on above those of both. A start after a crash does
//! what was left to do, or removes what was prepared ([`crate::checkpoint::staged`]).

use super::incarnation::Lasting;
use super::manager::{Database, JobError};
use super::replace_fit::{Fitted, fit};
use super::replace_ids::Ids;
use super::savepoint::{blocking, cancellable, of_storage, open};
use crate::checkpoint::ahead::Ahead;
use crate::checkpoint::coordinator::Visible;
use crate::checkpoint::local::Filled;
use crate::checkpoint::manifest::{Manifest, StateFile};
use crate::checkpoint::participant::{CommitHandle, Offset, OffsetKey};
use crate::checkpoint::savepoint::{SavedFile, Savepoint, SavepointDir};
use crate::checkpoint::staged;
use crate::checkpoint::transfer::Cancel;
use crate::clock;
use crate::connectors::registry;
use crate::connectors::sink_log::SealedPart;
use crate::failpoint;
use crate::state::durable::{in_file, sync_dir, sync_file};
use crate::state::entries::read_entries;
use crate::state::memory::MemoryStore;
use crate::state::store::{StateStore, WriteOp, WriteRun};
use crate::stream::Epoch;
use crate::work;
use parking_lot::Mutex;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio_util::sync::CancellationToken;
use weir_catalog::{CatalogChange, CatalogSnapshot, ObjectBody, ObjectId, ObjectState, SqlState, TableId};
use weir_sql::parser::statement::{RestoreOptions, RestoredSinks};

/// Bytes of entries that are written to the store at once.
const WRITE_BYTES: usize = 32 << 20;
/// The setting that stays as the database has it: its checkpoints are there.
const STORAGE: &str = "checkpoint.storage";
/// Objects that a notice or error names one by one.
const NAMED_MAX: usize = 20;

impl Database {
    /// Puts what a savepoint holds in the place of everything; returns when the dataflow runs again, with
    /// what the client is to be told. Dropping the future before the old dataflow ends changes nothing.
    pub async fn restore(&self, url: &str, options: RestoreOptions) -> Result<Vec<String>, JobError> {
        let cancel = CancellationToken::new();
        let _cancel_when_dropped = cancel.clone().drop_guard();
        let (lasting, url) = (Arc::clone(&self.lasting), url.to_owned());
        let task = tokio::spawn(async move { restore(&lasting, &url, options, &cancel).await });
        task.await.map_err(|e| JobError::internal(format!("RESTORE failed: {e}")))?
    }
}

async fn restore(
    lasting: &Arc<Lasting>,
    url: &str,
    options: RestoreOptions,
    cancel: &CancellationToken,
) -> Result<Vec<String>, JobError> {
    let dir = open(url).await?;
    let savepoint = read(&dir).await?;
    let _ddl = lasting.ddl_lock.lock().await;
    let before = lasting.catalog();
    require_replaceable(&before, options.replace)?;
    // Those of now keep their identity.
    let at_least_once = options.sinks == RestoredSinks::AtLeastOnce;
    require_own_sinks(lasting, &savepoint, at_least_once || options.current_definitions)?;
    let (of_fit, saved) = (Arc::clone(lasting), Arc::clone(&savepoint));
    let mut fitted = blocking(move || fit(&of_fit, &saved, options)).await??;
    let settings = &mut fitted.catalog.settings;
    match before.settings.get(STORAGE) {
        Some(url) => drop(settings.insert(STORAGE.to_owned(), url.clone())),
        None => drop(settings.remove(STORAGE)),
    }
    let mut notices = gone(&before, &fitted.catalog);
    notices.append(&mut fitted.notices);
    let prepared = prepare(lasting, &dir, &savepoint, fitted, cancel).await?;
    lasting.dml.close().await;
    let of_switch = Arc::clone(lasting);
    let between = async move { blocking(move || switch(&of_switch, &savepoint, prepared)).await? };
    let restored = super::restart::restart_with(lasting, "RESTORE was asked for", between).await;
    if lasting.catalog().stopped.is_none() {
        lasting.dml.reopen();
    }
    if lasting.catalog().restored == before.restored {
        // It came to nothing. Otherwise what is prepared is the database's newest checkpoint.
        discard(lasting);
    }
    restored?;
    lasting.settings_changed();
    let cleaned = lasting.leftovers.clean_all(&lasting.catalog(), &[]);
    cleaned.map_err(|e| JobError::io("read the sinks' directory", &e))?;
    lasting.search_targets();
    tracing::info!(url = dir.url(), "the database is restored");
    Ok(notices)
}

/// The manifest of the savepoint.
pub(super) async fn read(dir: &Arc<SavepointDir>) -> Result<Arc<Savepoint>, JobError> {
    let of_read = Arc::clone(dir);
    let read = blocking(move || of_read.read()).await?;
    read.map(Arc::new).map_err(|e| of_storage("read the savepoint", &e))
}

/// Whoever has something says that it may go; and what is being created is not his yet.
fn require_replaceable(before: &CatalogSnapshot, replace: bool) -> Result<(), JobError> {
    let creating = before.objects().find(|o| o.state == ObjectState::Creating);
    if let Some(object) = creating {
        return Err(JobError::being_created(object));
    }
    let objects = before.objects().count();
    if objects == 0 || replace {
        return Ok(());
    }
    let message = format!("the database is not empty: it has {objects} objects, which would be replaced");
    let mut error = JobError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message);
    error.hint = Some("RESTORE DATABASE … WITH (replace = true) replaces everything.".to_owned());
    Err(error)
}

/// Another database's sinks go on under that one's identity in their targets.
fn require_own_sinks(lasting: &Lasting, savepoint: &Savepoint, at_least_once: bool) -> Result<(), JobError> {
    if savepoint.database == lasting.data_dir.database() || at_least_once {
        return Ok(());
    }
    let catalog = CatalogSnapshot::from_image(savepoint.catalog.clone());
    let delivers = |body: &ObjectBody| matches!(body, ObjectBody::Sink(sink) if !registry::discards(sink));
    let Some(sink) = catalog.objects().find(|o| delivers(&o.body)) else { return Ok(()) };
    let message = format!(
        "the savepoint is of another database ({}), whose sink \"{}\" can't go on exactly once here",
        savepoint.database, sink.name.name
    );
    let mut error = JobError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message);
    error.hint = Some(
        "Bring the savepoint to an empty data directory by weir serve --restore, or say that what that database has \
         delivered since may come again: WITH (sinks = 'at_least_once')."
            .to_owned(),
    );
    Err(error)
}

/// Tells what the savepoint does not have.
fn gone(before: &CatalogSnapshot, after: &CatalogSnapshot) -> Vec<String> {
    let is_gone = |o: &&Arc<weir_catalog::Object>| after.get(&o.name).is_none_or(|a| a.kind() != o.kind());
    let mut gone = before.objects().filter(is_gone);
    let tell = |o: &Arc<weir_catalog::Object>| {
        format!("{} \"{}\" is not in the savepoint: it is dropped", o.kind(), o.name.name)
    };
    let mut notices: Vec<String> = gone.by_ref().take(NAMED_MAX).map(tell).collect();
    let more = gone.count();
    notices.extend(
        (more > 0).then(|| format!("{more} more objects are not in the savepoint: they are dropped")),
    );
    notices
}

/// A savepoint whose parts lie beside what they are to replace.
pub(super) struct Prepared {
    fitted: Fitted,
    /// The files of its state, which are durable.
    files: Vec<StateFile>,
    /// Promised parts: the sink, their name among its logs, and where they are now.
    logs: Vec<(ObjectId, String, PathBuf)>,
    handles: Vec<CommitHandle>,
}

/// Brings all of it here.
pub(super) async fn prepare(
    lasting: &Arc<Lasting>,
    dir: &Arc<SavepointDir>,
    savepoint: &Arc<Savepoint>,
    fitted: Fitted,
    cancel: &CancellationToken,
) -> Result<Prepared, JobError> {
    let (lasting, dir, savepoint) = (Arc::clone(lasting), Arc::clone(dir), Arc::clone(savepoint));
    cancellable(cancel, move |cancel| {
        let bring = Bring { lasting: &lasting, dir: &dir, savepoint: &savepoint, cancel };
        let root = lasting.storage.lock().root().to_owned();
        bring.all(&root, fitted).inspect_err(|_| discard(&lasting))
    })
    .await
}

/// Removes what was prepared.
fn discard(lasting: &Lasting) {
    let root = lasting.storage.lock().root().to_owned();
    if let Err(error) = staged::remove(&root) {
        tracing::warn!(%error, "could not remove what RESTORE had prepared");
    }
}

struct Bring<'a> {
    lasting: &'a Lasting,
    dir: &'a SavepointDir,
    savepoint: &'a Savepoint,
    cancel: &'a Cancel,
}

impl Bring<'_> {
    fn all(&self, root: &Path, fitted: Fitted) -> Result<Prepared, JobError> {
        let io = |e: io::Error| of_storage("bring the savepoint here", &e);
        let beside = staged::begin(root).map_err(io)?;
        let state = staged::state(root);
        self.state(&state, &fitted)?;
        let files = Filled { dir: state, newest: None }.measure().map_err(io)?.files;
        let (logs, handles) = self.logs(&beside, &fitted).map_err(io)?;
        sync_dir(&beside).map_err(io)?;
        // Its own name, too: the catalog is going to count on it.
        sync_dir(root).map_err(io)?;
        failpoint::hit("restore.prepared").map_err(io)?;
        Ok(Prepared { fitted, files, logs, handles })
    }

    /// Makes a checkpoint of the state in the directory `to`, by whatever store this server has.
    fn state(&self, to: &Path, fitted: &Fitted) -> Result<(), JobError> {
        let io = |e: io::Error| JobError::io("make a directory", &e);
        let scratch = self.lasting.scratch_dir("restoring").map_err(io)?;
        let store = self.lasting.backend().create(&scratch, &self.lasting.backend_memory());
        let filling = Filling { store: store.map_err(JobError::from_state)?, runs: Vec::new(), bytes: 0 };
        let filling = Mutex::new((filling, Ok(())));
        let failed = AtomicBool::new(false);
        // The next file is read and decoded while this one is written.
        let read = work::hand_on(
            1,
            |hand_on| -> Result<(), JobError> {
                for file in &self.savepoint.state {
                    if failed.load(Ordering::Relaxed) {
                        break;
                    }
                    hand_on(self.runs(file, fitted)?);
                }
                Ok(())
            },
            |runs: Vec<WriteRun>| {
                let (filling, outcome) = &mut *filling.lock();
                if outcome.is_ok() {
                    *outcome = filling.add(runs);
                    failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
                }
            },
        );
        let (mut filling, outcome) = filling.into_inner();
        outcome.and(read)?;
        filling.write()?;
        filling.store.checkpoint(to).map_err(JobError::from_state)?;
        drop(filling);
        std::fs::remove_dir_all(&scratch).map_err(io)
    }

    /// What a file says of the tables that there are going to be, as what writes it.
    fn runs(&self, file: &SavedFile, fitted: &Fitted) -> Result<Vec<WriteRun>, JobError> {
        let content = self.cancel.check().and_then(|()| self.dir.get(file, self.cancel));
        let content = content.map_err(|e| of_storage("read the savepoint", &e))?;
        let mut runs: Vec<WriteRun> = Vec::new();
        // Asked once for each table: they come one after the other.
        let mut of_table: (TableId, Option<TableId>) = (TableId(0), None);
        let entries = read_entries(content.as_slice(), &mut |key, value| {
            let Some((id, rest)) = key.split_first_chunk() else { return Ok(()) };
            let saved = TableId(u32::from_be_bytes(*id));
            if of_table.0 != saved {
                let now = fitted.restored(saved.object());
                of_table = (saved, now.map(|now| Ids::table(saved, now)));
                runs.extend(of_table.1.map(WriteRun::new));
            }
            if let Some(run) = runs.last_mut().filter(|_| of_table.1.is_some()) {
                run.write(WriteOp::Put, rest, value);
            }
            Ok(())
        });
        let entries = entries.map_err(JobError::from_state)?;
        if entries != file.entries {
            let message = format!("\"{}\" has {entries} entries instead of {}", file.name, file.entries);
            return Err(JobError::new(SqlState::DATA_CORRUPTED, message));
        }
        Ok(runs)
    }

    /// The logs of the sinks that there are going to be, and their handles.
    #[allow(clippy::type_complexity, reason = "two lists, taken apart at once")]
    fn logs(
        &self,
        beside: &Path,
        fitted: &Fitted,
    ) -> io::Result<(Vec<(ObjectId, String, PathBuf)>, Vec<CommitHandle>)> {
        // A sink is always called as it was.
        let there =
            |sink: ObjectId| fitted.ids.now(sink) == Some(sink) && fitted.catalog.by_id(sink).is_some();
        // No other file of a sink's log is called so.
        let stem = format!("restored-{:08x}", (crate::work::unique() >> 96) as u32);
        let name = |log: &str| format!("{stem}-{log}");
        let mut logs = Vec::new();
        for saved in self.savepoint.sinks.iter().filter(|saved| there(saved.sink)) {
            let path = beside.join(format!("{}-{}", saved.sink, saved.log));
            let content = self.dir.get(&saved.file, self.cancel)?;
            let mut log = File::options().create(true).append(true).open(&path).map_err(in_file(&path))?;
            log.write_all(&content).and_then(|()| sync_file(&log)).map_err(in_file(&path))?;
            if saved.at == 0 {
                logs.push((saved.sink, name(&saved.log), path));
            }
        }
        let mut handles = Vec::new();
        for handle in self.savepoint.handles.iter().filter(|handle| there(handle.sink)) {
            let mut part = SealedPart::of(handle)?;
            part.file = name(&part.file);
            if !logs.iter().any(|(sink, log, _)| (*sink, log) == (handle.sink, &part.file)) {
                let message = format!("a log of sink {} is not in the savepoint", handle.sink);
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
            handles.push(CommitHandle { payload: serde_json::to_string(&part)?, ..handle.clone() });
        }
        Ok((logs, handles))
    }
}

/// A store that is filled with entries in order of their keys.
struct Filling {
    store: Box<dyn StateStore>,
    runs: Vec<WriteRun>,
    bytes: usize,
}

impl Filling {
    fn add(&mut self, runs: Vec<WriteRun>) -> Result<(), JobError> {
        self.bytes += runs.iter().map(WriteRun::content_bytes).sum::<usize>();
        self.runs.extend(runs);
        if self.bytes >= WRITE_BYTES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), JobError> {
        self.bytes = 0;
        self.store.apply_all(&std::mem::take(&mut self.runs)).map_err(JobError::from_state)
    }
}

/// What targets must not hold, and must. One that is filled anew, or that another database delivered to, need not
/// hold anything of ours.
fn ahead(lasting: &Lasting, savepoint: &Savepoint, fitted: &Fitted) -> Vec<(ObjectId, Ahead)> {
    let own = savepoint.database == lasting.data_dir.database();
    let of_sink = |(sink, ahead): &(ObjectId, Ahead)| {
        let goes_on = own && fitted.jobs.iter().any(|job| job.job == *sink);
        (*sink, if goes_on { ahead.clone() } else { ahead.clone().or_nothing() })
    };
    savepoint.ahead.iter().map(of_sink).collect()
}

/// The one step after which the database is the savepoint's. No dataflow runs, and nothing is written to
/// the DML log.
pub(super) fn switch(lasting: &Lasting, savepoint: &Savepoint, prepared: Prepared) -> Result<(), JobError> {
    let io = |e: io::Error| JobError::io("put the savepoint in place", &e);
    let Prepared { fitted, files, logs, handles } = prepared;
    let epoch = {
        let mut epochs = lasting.epochs.lock();
        let epoch = epochs.last.max(savepoint.epoch).next();
        epochs.reserve(epoch).map_err(io)?;
        epoch
    };
    place_logs(lasting, &logs).map_err(io)?;
    failpoint::hit("restore.logs_placed").map_err(io)?;
    let ahead = ahead(lasting, savepoint, &fitted);
    let mut manifest = Manifest {
        format: 0,
        database: lasting.data_dir.database(),
        generation: 0,
        epoch,
        catalog_version: lasting.catalog().version + 1,
        dml_position: lasting.dml.position(),
        now_us: savepoint.now_us,
        offsets: offsets(savepoint, &fitted),
        jobs: fitted.jobs,
        unaligned: false,
        handles,
        files,
        completed_at_us: clock::now_us(),
        savepoint: Some(savepoint.epoch),
        catalog: None,
        promised: Vec::new(),
        ahead,
    };
    let storage = lasting.storage.lock();
    storage.write_staged(&staged::state(storage.root()), &mut manifest).map_err(io)?;
    drop(storage);
    failpoint::hit("restore.before_switch").map_err(io)?;
    // Nobody reads the rows of before by the catalog of after.
    let nothing = MemoryStore::new().snapshot();
    lasting.shown.visible.send_replace(Visible { epoch: Epoch::ZERO, dml_position: 0, state: nothing });
    lasting.shown.filling.send_modify(|filling| filling.clear());
    let image = Box::new(fitted.catalog.to_image());
    lasting.log_changes(&[CatalogChange::Restore(image, epoch.0)])
}

/// Where the sources that there are, and the jobs whose state is restored, go on.
fn offsets(savepoint: &Savepoint, fitted: &Fitted) -> Vec<(OffsetKey, Offset)> {
    let goes_on = |id: ObjectId| {
        let source = fitted.catalog.by_id(id).map(|object| matches!(object.body, ObjectBody::Source(_)));
        source.is_some_and(|source| source || fitted.has_state(id))
    };
    let called = |(key, offset): &(OffsetKey, Offset)| {
        let reader = fitted.ids.now(key.reader).filter(|id| goes_on(*id))?;
        Some((OffsetKey { reader, ..key.clone() }, offset.clone()))
    };
    savepoint.offsets.iter().filter_map(called).collect()
}

/// Puts promised parts among the logs of their sinks. If nothing comes of it, nobody names them, and the
/// next opening removes them.
fn place_logs(lasting: &Lasting, logs: &[(ObjectId, String, PathBuf)]) -> io::Result<()> {
    for (sink, name, from) in logs {
        let dir = lasting.sink_logs.dir(*sink);
        std::fs::create_dir_all(&dir).map_err(in_file(&dir))?;
        std::fs::hard_link(from, dir.join(name)).map_err(in_file(&dir))?;
        sync_dir(&dir)?;
        sync_dir(crate::state::durable::parent(&dir))?;
    }
    Ok(())
}

/// What is left to do of a RESTORE, if the newest checkpoint is older than the one that the catalog names.
pub(super) fn settle(lasting: &Lasting) -> io::Result<()> {
    let restored = Epoch(lasting.catalog().restored);
    let mut storage = lasting.storage.lock();
    if storage.list().next().map_or(Epoch::ZERO, |newest| newest.epoch) >= restored {
        return Ok(());
    }
    failpoint::hit("restore.after_switch")?;
    staged::settle(storage.root(), restored)?;
    storage.adopt(restored)?;
    failpoint::hit("restore.adopted")
}
