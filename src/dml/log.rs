//! The DML log: one record a transaction, fsynced in groups, cut at the oldest retained checkpoint.
//!
//! ```text
//!   00000000000000000001.log   frames (see state/frame.rs); the name is its first position
//!   00000000000000004711.log   the newest file is appended to
//!
//!   frame         sequence = position of its first transaction; payload = transaction …
//!   transaction   length of the rest (u32) │ number of changes (u32) │ change …
//!   change        table (u32) │ number of diffs (u32; 0: all +1) │ diff (i64) …
//!                 │ length (u32) │ rows as an Arrow IPC stream          integers little endian
//!
//!   begin ──┐            ┌─ thread ───────────────────────────┐
//!   begin ──┼─ queue ──> │ one frame, one fsync for all waiting│ ──> durable, in order
//!   begin ──┘            └────────────────────────────────────┘
//! ```
//! A transaction has its position from the moment it is queued, so that the next one can be checked
//! against it before it is durable. A write that fails takes back all that is queued, for what comes
//! later may be built on it: [`Basis`] tells.
//!
//! **Invariants:** positions are dense: a file begins where the one before ends. Nothing that was
//! checked against a transaction is durable without it.

use super::reading::{list, path, read};
use super::record::Encoded;
use crate::failpoint;
use crate::state::durable::{damaged, in_file, sync_dir};
use crate::state::frame::{FrameWriter, PAYLOAD_MAX};
use crate::state::ownership::Ownership;
use crate::stream::ChangeBatch;
use crate::work::{self, Step, Thread, Work};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use tokio::sync::{oneshot, watch};
use weir_catalog::ObjectId;

pub(super) const MAGIC: &[u8; 8] = b"WEIRDML1";
/// A file of this size is followed by a new one.
const FILE_BYTES: u64 = 64 << 20;
/// What shares an fsync at most.
const GROUP_BYTES: usize = 16 << 20;

/// A transaction: the changes of each table, whole rows, consolidated.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// Its position: 1 for the first ever, then one more each.
    pub position: u64,
    /// What changed.
    pub changes: Vec<(ObjectId, ChangeBatch)>,
}

/// A transaction on its way into the log.
struct Request {
    encoded: Encoded,
    /// How often a write had failed when it was queued.
    failures: u64,
    reply: oneshot::Sender<io::Result<()>>,
}

/// What was seen of the log: the newest transaction, durable or queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Basis {
    /// Its position.
    pub position: u64,
    /// How often a write had failed then.
    failures: u64,
}

/// A transaction that is queued.
pub struct Appending {
    position: u64,
    reply: oneshot::Receiver<io::Result<()>>,
}

impl Appending {
    /// Returns its position once it is durable.
    pub async fn durable(self) -> io::Result<u64> {
        self.reply.await.map_err(|_| gone())??;
        Ok(self.position)
    }
}

fn gone() -> io::Error {
    io::Error::other("the DML log's thread has ended")
}

/// The newest transactions.
#[derive(Default)]
struct Memory {
    /// Durable ones, dense.
    durable: VecDeque<Arc<Transaction>>,
    /// Those that come next, if nothing fails.
    queued: VecDeque<Arc<Transaction>>,
    /// How often a write has failed.
    failures: u64,
    /// Whether nothing more is taken.
    closed: bool,
}

/// What the log, its thread and its readers share.
struct Shared {
    dir: PathBuf,
    /// The newest durable position.
    position: AtomicU64,
    /// The same and how often a write has failed, for those who wait.
    progress: watch::Sender<Basis>,
    memory: Mutex<Memory>,
    /// The first position of each file, ascending; the last is appended to.
    files: Mutex<Vec<u64>>,
    file_bytes: AtomicU64,
}

/// The log of a database.
pub struct DmlLog {
    shared: Arc<Shared>,
    requests: Option<mpsc::Sender<Request>>,
    thread: Thread,
}

impl DmlLog {
    /// Opens the log in `dir`, or makes it. Keeps in memory what comes after `from`, the position
    /// of the checkpoint that is restored. A torn record at the end (never acknowledged) is cut.
    /// An error if it ends before `least`, the position of the newest checkpoint that was made here. Nothing is
    /// acknowledged where the directory is not the `owner`'s any more.
    pub fn open(dir: &Path, from: u64, least: u64, owner: Option<Arc<Ownership>>) -> io::Result<Arc<DmlLog>> {
        std::fs::create_dir_all(dir).map_err(in_file(dir))?;
        let mut files = list(dir)?;
        let mut memory = VecDeque::new();
        let (mut last, torn) = read(dir, &files, from, true, &mut |t| memory.push_back(Arc::new(t)))?;
        let writer = match torn {
            // That position was durable here: what came after it is gone as well.
            Some(_) if last < least => {
                let why = format!(
                    "it ends with position {last}, but a checkpoint holds position {least}: what was acknowledged \
                     after that may be lost"
                );
                return Err(damaged(&path(dir, files[files.len() - 1]), why));
            }
            Some(frames) if last >= from && !frames.is_damaged() => {
                let path = path(dir, files[files.len() - 1]);
                FrameWriter::open(path, MAGIC, "dml_log", &frames)?
            }
            // What is damaged goes when nothing of its file is needed, so it is not appended to.
            Some(frames) if last >= from => {
                FrameWriter::open(path(dir, files[files.len() - 1]), MAGIC, "dml_log", &frames)?;
                files.push(last + 1);
                FrameWriter::create(path(dir, last + 1), MAGIC, "dml_log")?
            }
            // An older copy of the directory goes on from a checkpoint that was elsewhere.
            Some(_) | None => {
                last = from;
                files.push(from + 1);
                FrameWriter::create(path(dir, from + 1), MAGIC, "dml_log")?
            }
        };
        let shared = Arc::new(Shared {
            dir: dir.to_owned(),
            position: AtomicU64::new(last),
            progress: watch::Sender::new(Basis { position: last, failures: 0 }),
            memory: Mutex::new(Memory { durable: memory, ..Memory::default() }),
            files: Mutex::new(files),
            file_bytes: AtomicU64::new(FILE_BYTES),
        });
        let (requests, queue) = mpsc::channel();
        let writer = writer.guarded(owner);
        let group = Committer { queue, shared: shared.clone(), writer, received: None };
        let thread = work::start(work::Spec::named("weir-dml"), group)?;
        Ok(Arc::new(DmlLog { shared, requests: Some(requests), thread }))
    }

    /// Makes an empty log in `dir` whose first transaction is to be the one after `position`.
    pub fn begin_after(dir: &Path, position: u64) -> io::Result<()> {
        std::fs::create_dir_all(dir).map_err(in_file(dir))?;
        FrameWriter::create(path(dir, position + 1), MAGIC, "dml_log").map(drop)
    }

    /// The position of the newest durable transaction.
    pub fn position(&self) -> u64 {
        self.shared.position.load(Ordering::Acquire)
    }

    /// Appends a transaction; returns its position once it is durable. Transactions of callers
    /// that wait at the same time share an fsync.
    pub async fn append(&self, changes: Vec<(ObjectId, ChangeBatch)>) -> io::Result<u64> {
        match self.begin(changes, None)? {
            Some(appending) => appending.durable().await,
            None => Ok(self.position()),
        }
    }

    /// Queues a transaction. One that was checked against others says up to which: call from one
    /// that holds the tables' DML lock, so that checks and this are one step. A transaction without
    /// changes is not logged.
    pub fn begin(
        &self,
        changes: Vec<(ObjectId, ChangeBatch)>,
        basis: Option<Basis>,
    ) -> io::Result<Option<Appending>> {
        let changes: Vec<_> = changes.into_iter().filter(|(_, batch)| !batch.is_empty()).collect();
        if changes.is_empty() {
            return Ok(None);
        }
        let encoded = Encoded::new(&changes)?;
        if encoded.len() > PAYLOAD_MAX {
            let message = format!("a transaction of {} bytes is more than the log takes", encoded.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let (reply, receiver) = oneshot::channel();
        let requests = self.requests.as_ref().ok_or_else(gone)?;
        // Under the lock, so that the queue and the positions are in one order.
        let mut memory = self.shared.memory.lock();
        if memory.closed {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "the DML log is closed"));
        }
        let failures = memory.failures;
        if basis.is_some_and(|basis| basis.failures != failures) {
            return Err(taken_back());
        }
        requests.send(Request { encoded, failures, reply }).map_err(|_| gone())?;
        let position = self.position() + memory.queued.len() as u64 + 1;
        memory.queued.push_back(Arc::new(Transaction { position, changes }));
        Ok(Some(Appending { position, reply: receiver }))
    }

    /// The transactions after `after`, queued ones too, as far as they are in memory (there are
    /// fewer than the positions tell if some of them are not), and what they reach up to.
    pub fn newest(&self, after: u64) -> (Vec<Arc<Transaction>>, Basis) {
        let memory = self.shared.memory.lock();
        let position = self.position() + memory.queued.len() as u64;
        let later = |t: &&Arc<Transaction>| t.position > after;
        let found = memory.durable.iter().chain(&memory.queued).filter(later).cloned().collect();
        (found, Basis { position, failures: memory.failures })
    }

    /// Returns when all that `basis` saw is durable; fails if some of it never will be.
    pub async fn wait_durable(&self, basis: Basis) -> io::Result<()> {
        let mut progress = self.shared.progress.subscribe();
        let decided = |now: &Basis| now.position >= basis.position || now.failures != basis.failures;
        let now = *progress.wait_for(decided).await.map_err(|_| gone())?;
        if now.failures == basis.failures { Ok(()) } else { Err(taken_back()) }
    }

    /// From now on transactions are refused (`ResourceBusy`). Returns when those that were queued are
    /// durable, or taken back: the position stays as it is then.
    pub async fn close(&self) {
        self.shared.memory.lock().closed = true;
        let (_, basis) = self.newest(u64::MAX);
        // What failed is not in the log: whoever queued it was told.
        let _ = self.wait_durable(basis).await;
    }

    /// Transactions are taken again.
    pub fn reopen(&self) {
        self.shared.memory.lock().closed = false;
    }

    /// The transactions with `after < position <= upto`, from memory.
    pub fn range(&self, after: u64, upto: u64) -> Vec<Arc<Transaction>> {
        let memory = &self.shared.memory.lock().durable;
        let Some(first) = memory.front().map(|t| t.position) else { return Vec::new() };
        let start = (after + 1).saturating_sub(first) as usize;
        let end = ((upto + 1).saturating_sub(first) as usize).min(memory.len());
        memory.iter().take(end).skip(start).cloned().collect()
    }

    /// Forgets in memory what is visible (at or before `position`).
    pub fn forget(&self, position: u64) {
        let memory = &mut self.shared.memory.lock().durable;
        while memory.front().is_some_and(|t| t.position <= position) {
            memory.pop_front();
        }
    }

    /// Takes into memory again what comes after `from`: a restart of the dataflow from a
    /// checkpoint replays what was forgotten.
    pub fn rewind(&self, from: u64) -> io::Result<()> {
        // Under the lock nothing is added to memory, so what is read ends where memory begins.
        let memory = &mut self.shared.memory.lock().durable;
        let first = memory.front().map_or(self.position() + 1, |t| t.position);
        if from + 1 >= first {
            return Ok(());
        }
        let files = self.shared.files.lock().clone();
        let mut forgotten = Vec::new();
        read(&self.shared.dir, &files, from, false, &mut |t| {
            if t.position < first {
                forgotten.push(Arc::new(t));
            }
        })?;
        forgotten.into_iter().rev().for_each(|t| memory.push_front(t));
        Ok(())
    }

    /// Removes files that hold only records at or before `position`: no retained checkpoint
    /// replays them.
    pub fn cut(&self, position: u64) -> io::Result<()> {
        let mut files = self.shared.files.lock();
        let mut cut = false;
        while files.len() > 1 && files[1] <= position + 1 {
            failpoint::hit("dml_log.before_cut")?;
            let path = path(&self.shared.dir, files[0]);
            std::fs::remove_file(&path).map_err(in_file(&path))?;
            files.remove(0);
            cut = true;
        }
        if cut { sync_dir(&self.shared.dir) } else { Ok(()) }
    }
}

impl Drop for DmlLog {
    fn drop(&mut self) {
        self.requests = None;
        if !self.thread.join() {
            tracing::error!("DML log's thread panicked");
        }
    }
}

impl Request {
    fn refuse(self, error: io::Error) {
        // Who no longer waits need not be told.
        let _ = self.reply.send(Err(error));
    }
}

fn taken_back() -> io::Error {
    io::Error::other("an earlier write, which this one is built on, failed")
}

/// The thread that appends.
struct Committer {
    queue: mpsc::Receiver<Request>,
    shared: Arc<Shared>,
    writer: FrameWriter,

    /// Received while it waited.
    received: Option<Request>,
}

impl Work for Committer {
    fn step(&mut self) -> Step {
        let first = match self.received.take().map_or_else(|| self.queue.try_recv(), Ok) {
            Ok(first) => first,
            Err(mpsc::TryRecvError::Empty) => return Step::Idle(None),
            Err(mpsc::TryRecvError::Disconnected) => return Step::Ended,
        };
        let mut bytes = first.encoded.len();
        let mut group = vec![first];
        while bytes < GROUP_BYTES
            && let Ok(request) = self.queue.try_recv()
        {
            bytes += request.encoded.len();
            group.push(request);
        }
        self.commit(group);
        self.rotate();
        Step::More
    }

    fn wait(&mut self, _: Option<i64>) {
        // That nobody is left to send anything is found by the next step.
        self.received = self.queue.recv().ok();
    }
}

impl Committer {
    /// One frame and one fsync for the whole group; all of it, or nothing.
    fn commit(&mut self, mut group: Vec<Request>) {
        let failures = self.shared.memory.lock().failures;
        // What was queued before a failure fails with it.
        let (current, lost): (Vec<_>, Vec<_>) = group.into_iter().partition(|r| r.failures == failures);
        group = current;
        lost.into_iter().for_each(|request| request.refuse(taken_back()));
        if group.is_empty() {
            return;
        }
        // A frame takes only so much; what is left makes another one.
        let mut bytes = 0;
        let fits = group.iter().take_while(|request| {
            bytes += request.encoded.len();
            bytes <= PAYLOAD_MAX
        });
        let rest = group.split_off(fits.count().max(1));
        let first = self.shared.position.load(Ordering::Relaxed) + 1;
        let mut payload = Vec::with_capacity(group.iter().map(|r| r.encoded.len()).sum());
        group.iter().for_each(|request| payload.extend_from_slice(request.encoded.bytes()));
        match self.writer.append(first, &payload) {
            Ok(()) => self.publish(group),
            Err(error) => {
                self.take_back();
                for request in group {
                    request.refuse(io::Error::new(error.kind(), error.to_string()));
                }
            }
        }
        if !rest.is_empty() {
            self.commit(rest);
        }
    }

    fn publish(&self, group: Vec<Request>) {
        let mut memory = self.shared.memory.lock();
        for _ in &group {
            let next = memory.queued.pop_front();
            memory.durable.extend(next);
        }
        let position = self.shared.position.load(Ordering::Relaxed) + group.len() as u64;
        self.shared.position.store(position, Ordering::Release);
        let now = Basis { position, failures: memory.failures };
        drop(memory);
        self.shared.progress.send_replace(now);
        for request in group {
            // Who no longer waits need not be told.
            let _ = request.reply.send(Ok(()));
        }
    }

    /// A write failed: nothing that is queued becomes durable.
    fn take_back(&self) {
        let mut memory = self.shared.memory.lock();
        memory.queued.clear();
        memory.failures += 1;
        let now = Basis { position: self.shared.position.load(Ordering::Relaxed), failures: memory.failures };
        drop(memory);
        self.shared.progress.send_replace(now);
    }

    /// Begins a new file when this one is large.
    fn rotate(&mut self) {
        if self.writer.len() < self.shared.file_bytes.load(Ordering::Relaxed) {
            return;
        }
        let next = self.shared.position.load(Ordering::Relaxed) + 1;
        let mut files = self.shared.files.lock();
        match self.writer.next(path(&self.shared.dir, next), MAGIC, "dml_log") {
            Ok(writer) => {
                self.writer = writer;
                files.push(next);
            }
            // This one goes on; the next append tries again.
            Err(error) => tracing::warn!(%error, "could not begin a new file of the DML log"),
        }
    }
}

#[cfg(test)]
#[path = "tests/log.rs"]
mod tests;
