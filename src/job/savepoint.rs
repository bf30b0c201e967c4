//! SAVEPOINT TO: everything of one epoch, put where it is asked for, while the dataflow runs.
//!
//! ```text
//!   DDL waits ── checkpoint, durable, held ── DDL goes on
//!                   ├─ its directory ── read in order of keys ── files, several at a time ─┐
//!                   └─ promised parts of sink logs ────────────────────────────────────────┴─> manifest
//!   AND STOP:  DML is refused ── a last checkpoint ── … the same … ── logged: stopped ── sinks drain ── end
//! ```
//! What is read is the checkpoint that was made, not the live store: the data path does not wait, and
//! retention leaves it alone. Cut off at any step, a savepoint does not exist, and the database goes on.

use super::attempts::Attempt;
use super::incarnation::Lasting;
use super::manager::{Database, JobError};
use super::places::{require_apart, require_writable};
use crate::checkpoint::ahead::Ahead;
use crate::checkpoint::coordinator::Message;
use crate::checkpoint::hold::Hold;
use crate::checkpoint::manifest::Manifest;
use crate::checkpoint::participant::CommitHandle;
use crate::checkpoint::savepoint::{FORMAT, SavedFile, SavedLog, Savepoint, SavepointDir, parse_url};
use crate::checkpoint::transfer::Cancel;
use crate::clock;
use crate::config::StorageUrl;
use crate::connectors::sink_log::{LogPiece, SealedPart};
use crate::failpoint;
use crate::state::StateError;
use crate::state::backend::Backend;
use crate::state::entries::EntryBuffer;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio_util::sync::CancellationToken;
use weir_catalog::{CatalogChange, CatalogSnapshot, ObjectId, SqlState, TableId};

/// Bytes of entries that go into one file.
const FILE_BYTES: usize = 8 << 20;
/// Bytes of sink logs after which another file is begun.
const LOG_BYTES: u64 = 8 << 20;
/// Bytes of a sink's log that go into one file.
const LOG_FILE_BYTES: u64 = 32 << 20;
/// Files on their way at once.
const TRANSFERS: usize = 3;

impl Database {
    /// Puts everything of one epoch at a URL; returns when it is there, with what the client is to be
    /// told. With `stop` nothing comes after it, and the dataflow has ended. Dropping the future before
    /// that leaves nothing there, and the database as it was.
    pub async fn savepoint(&self, url: &str, stop: bool) -> Result<Vec<String>, JobError> {
        let cancel = CancellationToken::new();
        let _cancel_when_dropped = cancel.clone().drop_guard();
        let (lasting, url) = (Arc::clone(&self.lasting), url.to_owned());
        let task = tokio::spawn(async move { take(&lasting, &url, stop, &cancel).await });
        task.await.map_err(|e| JobError::internal(format!("the savepoint failed: {e}")))?
    }
}

/// The directory of a savepoint at a URL.
pub(super) async fn open(url: &str) -> Result<Arc<SavepointDir>, JobError> {
    let parsed = parse(url)?;
    let opened = blocking(move || SavepointDir::open(&parsed, true).map(Arc::new));
    opened.await?.map_err(|e| of_storage("open the savepoint", &e))
}

/// The directory of a savepoint that is to be made at a URL, noted, and what is to be said of it.
async fn begin(
    lasting: &Arc<Lasting>,
    url: &str,
) -> Result<(Arc<SavepointDir>, Attempt, Vec<String>), JobError> {
    let (parsed, text, lasting) = (parse(url)?, url.to_owned(), Arc::clone(lasting));
    require_apart(&parsed, lasting.data_dir.root())?;
    let begun = blocking(move || {
        require_writable(&parsed)?;
        let of_storage = |e: io::Error| of_storage("open the savepoint", &e);
        let dir = SavepointDir::open(&parsed, false).map_err(of_storage)?;
        let others = dir.require_free().map_err(of_storage)?;
        let notice = (others > 0).then(|| {
            format!(
                "at \"{}\" are files of {others} savepoints that were cut off or are being written: \
                 nothing needs those of the former",
                dir.url()
            )
        });
        let attempt = Attempt::begin(&lasting.data_dir, dir.attempt(), &text).map_err(of_storage)?;
        Ok((Arc::new(dir), attempt, notice.into_iter().collect()))
    });
    begun.await?
}

/// Reads the URL of a savepoint.
pub(super) fn parse(url: &str) -> Result<StorageUrl, JobError> {
    parse_url(url).map_err(|hint| {
        let mut error = JobError::new(SqlState::INVALID_PARAMETER_VALUE, "invalid URL of a savepoint");
        error.hint = Some(hint);
        error
    })
}

/// An error of the place where a savepoint is.
pub(super) fn of_storage(what: &str, error: &io::Error) -> JobError {
    let (state, hint) = match error.kind() {
        io::ErrorKind::AlreadyExists => (SqlState::DUPLICATE_FILE, Some("Choose another URL.")),
        io::ErrorKind::NotFound => (SqlState::UNDEFINED_FILE, None),
        io::ErrorKind::InvalidData => (SqlState::DATA_CORRUPTED, None),
        io::ErrorKind::PermissionDenied => {
            let message = format!("could not {what}: {error}");
            let mut made = JobError::new(SqlState::INSUFFICIENT_PRIVILEGE, message);
            made.hint = Some("The server's user, or its credentials, may not do that there.".to_owned());
            return made;
        }
        _ => return JobError::io(what, error),
    };
    let mut made = JobError::new(state, error.to_string());
    made.hint = hint.map(str::to_owned);
    made
}

/// Does what takes time on a thread for it.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JobError> {
    let done = crate::work::blocking(work).await;
    done.map_err(|e| JobError::internal(format!("a task failed: {e}")))
}

/// The same for work that looks at its [`Cancel`]; that it has ended is waited for in any case.
pub(super) async fn cancellable<T: Send + 'static>(
    cancel: &CancellationToken,
    work: impl FnOnce(&Cancel) -> Result<T, JobError> + Send + 'static,
) -> Result<T, JobError> {
    let flag = Cancel::default();
    let of_work = flag.clone();
    let mut working = std::pin::pin!(blocking(move || work(&of_work)));
    tokio::select! {
        done = &mut working => done?,
        () = cancel.cancelled() => {
            flag.cancel();
            // What was whole already counts.
            working.await?.map_err(|_| cancelled())
        }
    }
}

pub(super) fn cancelled() -> JobError {
    JobError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request")
}

/// What a savepoint is made of.
struct Cut {
    /// The life of the dataflow that made it.
    life: u64,
    manifest: Manifest,
    catalog: Arc<CatalogSnapshot>,
    /// The files of sink logs that are promised, open: they are removed once they are delivered.
    logs: HashMap<(ObjectId, String), std::fs::File>,
    /// What targets must not hold.
    ahead: Vec<(ObjectId, Ahead)>,
    stop: bool,
}

async fn take(
    lasting: &Arc<Lasting>,
    url: &str,
    stop: bool,
    cancel: &CancellationToken,
) -> Result<Vec<String>, JobError> {
    let (dir, attempt, mut notices) = begin(lasting, url).await?;
    let taken = take_to(lasting, &dir, stop, cancel).await;
    let done = blocking(move || attempt.end(&dir, taken.is_ok()).map(|()| taken));
    notices.append(&mut done.await?.map_err(|e| JobError::io("end the savepoint", &e))??);
    Ok(notices)
}

async fn take_to(
    lasting: &Arc<Lasting>,
    dir: &Arc<SavepointDir>,
    stop: bool,
    cancel: &CancellationToken,
) -> Result<Vec<String>, JobError> {
    let hold = Hold::of_all(&lasting.storage);
    let ddl = lasting.ddl_lock.lock().await;
    if stop {
        lasting.dml.close().await;
    }
    let cut = match cut(lasting, stop, cancel).await {
        Ok(cut) => cut,
        Err(error) => {
            if stop {
                go_on(lasting).await;
            }
            return Err(error);
        }
    };
    hold.narrow(cut.manifest.epoch);
    // Whoever stops the database has all of it to the end.
    let _ddl = stop.then_some(ddl);
    let (life, epoch) = (cut.life, cut.manifest.epoch);
    let (of_export, to) = (Arc::clone(lasting), Arc::clone(dir));
    let exported = cancellable(cancel, move |flag| {
        export(&of_export, &to, cut, flag).map_err(|e| of_storage("write the savepoint", &e))
    });
    let stopped = match exported.await {
        Ok(savepoint) => {
            tracing::info!(%epoch, url = dir.url(), bytes = savepoint.total_bytes(), stop, "savepoint is complete");
            if stop { end(lasting, dir.url(), life).await } else { Ok(Vec::new()) }
        }
        Err(error) => Err(error),
    };
    if stop && stopped.is_err() {
        go_on(lasting).await;
    }
    stopped
}

/// A checkpoint, durable, and what goes with it.
async fn cut(lasting: &Arc<Lasting>, stop: bool, cancel: &CancellationToken) -> Result<Cut, JobError> {
    let (catalog, life) = (lasting.catalog(), lasting.life());
    let incarnation = lasting.incarnation()?;
    let ask = if stop { Message::LastCheckpoint } else { Message::AlignedCheckpoint };
    let epoch = tokio::select! {
        epoch = incarnation.running.coordinator().ask(ask) => epoch.map_err(|e| JobError::not_durable(&e))?,
        () = cancel.cancelled() => return Err(cancelled()),
    };
    let found = lasting.storage.lock().list().find(|m| m.epoch == epoch).cloned();
    let manifest = found.ok_or_else(|| JobError::interrupted("its checkpoint is gone"))?;
    if manifest.unaligned {
        return Err(JobError::internal("a savepoint is never made of an unaligned checkpoint"));
    }
    lasting.shown.history().savepoint(epoch);
    let logs = open_logs(lasting, &manifest).map_err(|e| JobError::io("open a sink log", &e))?;
    let ahead = lasting.sink_logs.to_save(epoch);
    Ok(Cut { life, manifest, catalog, logs, ahead, stop })
}

/// The files that the manifest's promises name. One that is not there any more is delivered.
fn open_logs(
    lasting: &Lasting,
    manifest: &Manifest,
) -> io::Result<HashMap<(ObjectId, String), std::fs::File>> {
    let mut logs = HashMap::new();
    for handle in &manifest.handles {
        let name = SealedPart::of(handle)?.file;
        let path = lasting.sink_logs.dir(handle.sink).join(&name);
        match std::fs::File::open(path) {
            Ok(file) => drop(logs.insert((handle.sink, name), file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(logs)
}

fn export(lasting: &Lasting, dir: &SavepointDir, cut: Cut, cancel: &Cancel) -> io::Result<Savepoint> {
    let savepoint = try_export(lasting, dir, &cut, cancel)?;
    cancel.check()?;
    dir.publish(&savepoint)?;
    Ok(savepoint)
}

fn try_export(lasting: &Lasting, dir: &SavepointDir, cut: &Cut, cancel: &Cancel) -> io::Result<Savepoint> {
    let Cut { manifest, catalog, .. } = cut;
    let backend = Backend::of_files(manifest.files.iter().map(|f| f.name.as_str()));
    let (handles, sinks) = export_logs(dir, cut, cancel)?;
    Ok(Savepoint {
        format: FORMAT,
        weir: env!("CARGO_PKG_VERSION").to_owned(),
        database: manifest.database,
        generation: manifest.generation,
        epoch: manifest.epoch,
        taken_at_us: clock::now_us(),
        stopped: cut.stop,
        parallelism: lasting.settings().parallelism,
        backend: backend.name().to_owned(),
        now_us: manifest.now_us,
        dml_position: manifest.dml_position,
        catalog: catalog.to_image(),
        jobs: manifest.jobs.clone(),
        offsets: manifest.offsets.clone(),
        handles,
        state: export_state(lasting, backend, dir, manifest, cancel)?,
        sinks,
        ahead: cut.ahead.clone(),
    })
}

/// Files of entries on their way.
struct Going<'a> {
    dir: &'a SavepointDir,
    cancel: &'a Cancel,
    failed: AtomicBool,
    files: Mutex<BTreeMap<usize, io::Result<SavedFile>>>,
}

/// A file's number, and the entries that go into it.
type Filled = (usize, EntryBuffer);

impl Going<'_> {
    /// Puts what comes, to the first failure.
    fn put(&self, (number, entries): Filled) {
        if self.failed.load(Ordering::Relaxed) {
            return;
        }
        let content = entries.encode().map_err(io_error);
        let name = format!("state/{number:06}.entries");
        let put = content.and_then(|content| self.dir.put(&name, &content, self.cancel));
        let put = put.map(|file| SavedFile { entries: entries.entries(), ..file });
        self.failed.fetch_or(put.is_err(), Ordering::Relaxed);
        self.files.lock().insert(number, put);
    }
}

/// The state of the jobs that the checkpoint holds whole, and of what is built in.
fn export_state(
    lasting: &Lasting,
    backend: Backend,
    dir: &SavepointDir,
    manifest: &Manifest,
    cancel: &Cancel,
) -> io::Result<Vec<SavedFile>> {
    let checkpoint = lasting.storage.lock().directory(manifest.epoch);
    let scratch = lasting.scratch_dir("savepoint")?;
    let kept =
        |object: ObjectId| object < ObjectId::FIRST_USER || manifest.jobs.iter().any(|job| job.job == object);
    let going = Going { dir, cancel, failed: AtomicBool::new(false), files: Mutex::default() };
    let fill = |hand_on: &mut dyn FnMut(Filled)| {
        let mut cutter = Cutter { hand_on, number: 0, entries: EntryBuffer::default() };
        // Asked once for each table: they come one after the other.
        let mut of_table = (TableId(0), false);
        backend.read(&checkpoint, &scratch, &mut |key, value| {
            let Some(table) = key.first_chunk().map(|id| TableId(u32::from_be_bytes(*id))) else {
                return Ok(());
            };
            if of_table.0 != table {
                of_table = (table, kept(table.object()));
            }
            if !of_table.1 {
                return Ok(());
            }
            cancel.check()?;
            match going.failed.load(Ordering::Relaxed) {
                true => return Err(StateError::Store("a file could not be written".to_owned())),
                false => cutter.add(key, value),
            }
            Ok(())
        })?;
        cutter.finish();
        Ok(())
    };
    let read = crate::work::hand_on(TRANSFERS, fill, |file| going.put(file));
    std::fs::remove_dir_all(&scratch)?;
    let files = going.files.into_inner().into_values().collect::<io::Result<Vec<_>>>()?;
    read.map_err(io_error)?;
    Ok(files)
}

fn io_error(error: StateError) -> io::Error {
    match error {
        StateError::Io(error) => error,
        other => io::Error::other(other.to_string()),
    }
}

/// Cuts entries into files.
struct Cutter<'a> {
    hand_on: &'a mut dyn FnMut(Filled),
    number: usize,
    entries: EntryBuffer,
}

impl Cutter<'_> {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        self.entries.push(key, value);
        if self.entries.bytes() >= FILE_BYTES {
            self.send();
        }
    }

    fn send(&mut self) {
        (self.hand_on)((self.number, std::mem::take(&mut self.entries)));
        self.number += 1;
    }

    fn finish(mut self) {
        if self.entries.entries() > 0 {
            self.send();
        }
    }
}

/// What sinks promised and had not delivered, with the handles that name it in the savepoint's files.
fn export_logs(
    dir: &SavepointDir,
    cut: &Cut,
    cancel: &Cancel,
) -> io::Result<(Vec<CommitHandle>, Vec<SavedLog>)> {
    let (mut handles, mut logs, mut number) = (Vec::new(), Vec::new(), 0);
    let mut by_sink: BTreeMap<ObjectId, Vec<&CommitHandle>> = BTreeMap::new();
    for handle in &cut.manifest.handles {
        by_sink.entry(handle.sink).or_default().push(handle);
    }
    for (sink, of_sink) in by_sink {
        let mut pieces: Vec<LogPiece<'_>> = Vec::new();
        for handle in of_sink {
            let part = SealedPart::of(handle)?;
            let Some(file) = cut.logs.get(&(sink, part.file.clone())) else { continue };
            if !pieces.is_empty() && LogPiece::bytes(&pieces) >= LOG_BYTES {
                logs.extend(export_log(dir, (sink, number), &pieces, cancel)?);
                (pieces, number) = (Vec::new(), number + 1);
            }
            let piece = LogPiece { file, part };
            let part = piece.placed(&pieces, log_name(number));
            pieces.push(piece);
            handles.push(CommitHandle { payload: serde_json::to_string(&part)?, ..handle.clone() });
        }
        if !pieces.is_empty() {
            logs.extend(export_log(dir, (sink, number), &pieces, cancel)?);
            number += 1;
        }
    }
    Ok((handles, logs))
}

/// A log of these pieces, in files of so many bytes.
fn export_log(
    dir: &SavepointDir,
    (sink, number): (ObjectId, usize),
    pieces: &[LogPiece<'_>],
    cancel: &Cancel,
) -> io::Result<Vec<SavedLog>> {
    let (mut log, mut saved, mut at) = (LogPiece::log(pieces), Vec::new(), 0);
    loop {
        let mut content = Vec::new();
        log.by_ref().take(LOG_FILE_BYTES).read_to_end(&mut content)?;
        if content.is_empty() {
            return Ok(saved);
        }
        let file = dir.put(&format!("sinks/{sink}/{number:06}-{}", saved.len()), &content, cancel)?;
        let size = file.size;
        saved.push(SavedLog { sink, log: log_name(number), at, file });
        at += size;
    }
}

fn log_name(number: usize) -> String {
    format!("{number:06}.log")
}

/// The savepoint is complete: nothing comes after it. Tells of sinks that have not delivered everything.
async fn end(lasting: &Arc<Lasting>, url: &str, life: u64) -> Result<Vec<String>, JobError> {
    let _restarting = lasting.restart_lock.lock().await;
    let same = lasting.incarnation().ok().filter(|_| lasting.life() == life);
    let Some(incarnation) = same else {
        let mut error = JobError::interrupted("it restarted while it was being stopped");
        error.hint = Some(
            "The savepoint is complete, but the database goes on: what comes now is not in it.".to_owned(),
        );
        return Err(error);
    };
    failpoint::hit("savepoint.before_stop").map_err(|e| JobError::internal(e.to_string()))?;
    lasting.log_changes(&[CatalogChange::Stop(Some(url.to_owned()))])?;
    lasting.set_incarnation(None);
    let of_end = Arc::clone(&incarnation);
    let left: Vec<ObjectId> = of_end.end(true).await?;
    lasting.sink_logs.close();
    let catalog = lasting.catalog();
    let name =
        |sink: &ObjectId| catalog.by_id(*sink).map_or_else(|| sink.to_string(), |o| o.name.name.clone());
    Ok(left
        .iter()
        .map(|sink| {
            format!(
                "the target of sink \"{}\" does not have everything: the savepoint holds the rest",
                name(sink)
            )
        })
        .collect())
}

/// The database is not stopped after all.
async fn go_on(lasting: &Arc<Lasting>) {
    lasting.dml.reopen();
    // After a last checkpoint, or one that may still come, no barrier follows.
    if let Err(error) = super::restart::restart(lasting, "it was not stopped").await {
        tracing::error!(%error, "could not restart the dataflow");
    }
}
