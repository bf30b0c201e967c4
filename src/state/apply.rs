//! The one writer of a database's state: sealed epochs go in, in order; snapshots come out.
//!
//! ```text
//!   submit(epoch 8) ─┐  bounded   ┌── thread ────────────────────────────────────────────┐
//!   submit(epoch 9) ─┴──────────> │ writes of 8 → snapshot → publish 8 → checkpoint of 8 │ → reply
//!                                 │ writes of 9 → …                                      │
//!                                 └──────────────────────────────────────────────────────┘
//! ```
//! **Invariant:** a published snapshot is exactly one epoch: it is taken after the last write of
//! its epoch and before the first write of the next, and nobody else takes one. After a failed
//! write the store may hold half an epoch: nothing more is applied or published, every later
//! epoch is refused, and only a restart from a checkpoint helps.

use super::StateError;
use super::store::{StateRead, StateStore, WriteRun, WrittenBytes};
use super::writes::{RunPool, Writes};
use crate::failpoint;
use crate::stream::Epoch;
use crate::threads::ThreadKind;
use crate::work::{self, Step, Thread, Work};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, oneshot, watch};
use weir_catalog::TableId;

/// Epochs that may wait. At the bound `submit` waits too, and with it the coordinator.
const WAITING_MAX: usize = 4;

/// One epoch's part of the state, whole.
#[derive(Debug)]
pub struct SealedEpoch {
    /// The epoch. Each follows the one submitted before.
    pub epoch: Epoch,
    /// The DML position that it holds; published with it.
    pub dml_position: u64,
    /// Whether it is published.
    pub visible: bool,
    /// The writes of all actors.
    pub runs: Writes,
    /// Tables that go after the writes.
    pub drop_tables: Vec<TableId>,
    /// Where to make a checkpoint of the store: a directory that does not exist.
    pub checkpoint: Option<PathBuf>,
}

/// What applying an epoch took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Applied {
    /// Entries written.
    pub entries: usize,
    /// Making them of what was handed over.
    pub encode: Duration,
    /// Writing them.
    pub write: Duration,
    /// Making the checkpoint's directory.
    pub link: Duration,
    /// Bytes of the entries of this epoch and those since the last checkpoint.
    pub changed_bytes: u64,
    /// What the store has written to its files since then.
    pub written: WrittenBytes,
}

/// What readers see: one epoch of everything.
#[derive(Clone)]
pub struct Published {
    /// The epoch.
    pub epoch: Epoch,
    /// The DML position that it holds.
    pub dml_position: u64,
    /// The state as of the epoch.
    pub state: Arc<dyn StateRead>,
}

/// What is called when an epoch was published, before its checkpoint is made.
pub type OnPublished = Box<dyn FnMut(&Published) + Send>;

/// What is called when all of an epoch is done, or failed.
type Done = Box<dyn FnOnce(Result<Applied, StateError>) + Send>;

struct Request {
    sealed: SealedEpoch,
    done: Done,
}

/// A handle on the writer's thread. Dropped, it ends the thread after what was submitted.
pub struct ApplyHandle {
    requests: Option<mpsc::Sender<Request>>,
    published: watch::Receiver<Published>,
    thread: Thread,
}

impl ApplyHandle {
    /// Starts the writer of `store`, which holds `epoch` (restored, or [`Epoch::ZERO`]) up to
    /// `dml_position`. It encodes with runs of `pool`.
    pub fn start(
        store: Box<dyn StateStore>,
        epoch: Epoch,
        dml_position: u64,
        pool: RunPool,
    ) -> std::io::Result<Self> {
        Self::start_with(store, epoch, dml_position, pool, Box::new(|_| {}))
    }

    /// As [`ApplyHandle::start`]; `on_published` is called on the writer's thread.
    pub fn start_with(
        store: Box<dyn StateStore>,
        epoch: Epoch,
        dml_position: u64,
        pool: RunPool,
        on_published: OnPublished,
    ) -> std::io::Result<Self> {
        let first = Published { epoch, dml_position, state: store.snapshot() };
        let (publish, published) = watch::channel(first);
        let (requests, queue) = mpsc::channel(WAITING_MAX);
        let written = store.written();
        let writer = Writer {
            queue,
            store,
            publish,
            on_published,
            pool,
            changed_bytes: 0,
            written,
            received: None,
            failed: None,
        };
        let spec = work::Spec { kind: Some(ThreadKind::Stream), ..work::Spec::named("weir-apply") };
        let thread = work::start(spec, writer)?;
        Ok(Self { requests: Some(requests), published, thread })
    }

    /// Hands over an epoch; returns once there is room for it. The receiver tells when it is
    /// applied and published, and its checkpoint made.
    pub async fn submit(&self, sealed: SealedEpoch) -> oneshot::Receiver<Result<Applied, StateError>> {
        let (reply, receiver) = oneshot::channel();
        if let Some(requests) = &self.requests {
            let done: Done = Box::new(|result| drop(reply.send(result)));
            // If the thread is gone the reply's sender is dropped, and the receiver says so.
            let _ = requests.send(Request { sealed, done }).await;
        }
        receiver
    }

    /// Hands over an epoch from a thread outside the runtime; returns once there is room for it.
    /// `done` is called on the writer's thread when it is applied and published, and its
    /// checkpoint made. Returns false, without calling it, if the writer is gone.
    pub fn submit_blocking(
        &self,
        sealed: SealedEpoch,
        done: impl FnOnce(Result<Applied, StateError>) + Send + 'static,
    ) -> bool {
        let request = Request { sealed, done: Box::new(done) };
        self.requests.as_ref().is_some_and(|requests| requests.blocking_send(request).is_ok())
    }

    /// The newest published epoch.
    pub fn published(&self) -> Published {
        self.published.borrow().clone()
    }

    /// Tells of each newly published epoch (a slow receiver sees only the newest).
    pub fn watch(&self) -> watch::Receiver<Published> {
        self.published.clone()
    }
}

impl Drop for ApplyHandle {
    fn drop(&mut self) {
        self.requests = None;
        if !self.thread.join() {
            tracing::error!("state writer panicked");
        }
    }
}

struct Writer {
    queue: mpsc::Receiver<Request>,
    store: Box<dyn StateStore>,
    publish: watch::Sender<Published>,
    on_published: OnPublished,
    pool: RunPool,
    /// Since the last checkpoint.
    changed_bytes: u64,
    /// As of the last checkpoint.
    written: WrittenBytes,

    /// Received while it waited.
    received: Option<Request>,
    failed: Option<String>,
}

impl Work for Writer {
    fn step(&mut self) -> Step {
        match self.received.take().map_or_else(|| self.queue.try_recv(), Ok) {
            Ok(Request { sealed, done }) => {
                done(self.apply(sealed));
                Step::More
            }
            Err(TryRecvError::Empty) => Step::Idle(None),
            Err(TryRecvError::Disconnected) => Step::Ended,
        }
    }

    fn wait(&mut self, _: Option<i64>) {
        // That nobody is left to send anything is found by the next step.
        self.received = self.queue.blocking_recv();
    }
}

impl Writer {
    fn apply(&mut self, sealed: SealedEpoch) -> Result<Applied, StateError> {
        if let Some(reason) = &self.failed {
            return Err(StateError::Store(format!("an epoch before could not be applied: {reason}")));
        }
        let last = self.publish.borrow().epoch;
        assert!(last < sealed.epoch, "epoch {} is applied after {last}", sealed.epoch);
        let mut applied = self.write(sealed.runs, &sealed.drop_tables).inspect_err(|error| {
            self.failed = Some(error.to_string());
        })?;
        if sealed.visible {
            let published = Published {
                epoch: sealed.epoch,
                dml_position: sealed.dml_position,
                state: self.store.snapshot(),
            };
            self.publish.send_replace(published.clone());
            (self.on_published)(&published);
        }
        if let Some(dir) = &sealed.checkpoint {
            let started = Instant::now();
            // Only this checkpoint fails: what was applied is whole.
            failpoint::hit("apply.before_checkpoint")?;
            self.store.checkpoint(dir)?;
            failpoint::hit("apply.after_checkpoint")?;
            applied.link = started.elapsed();
            applied.changed_bytes = std::mem::take(&mut self.changed_bytes);
            let before = std::mem::replace(&mut self.written, self.store.written());
            applied.written = WrittenBytes {
                applied: self.written.applied.saturating_sub(before.applied),
                merged: self.written.merged.saturating_sub(before.merged),
            };
        }
        Ok(applied)
    }

    fn write(&mut self, mut runs: Writes, drop_tables: &[TableId]) -> Result<Applied, StateError> {
        failpoint::hit("apply.before_writes")?;
        let started = Instant::now();
        let _until_applied = runs.take_held();
        let runs = runs.encode(&self.pool)?;
        let encode = started.elapsed();
        self.store.apply_all(&runs)?;
        failpoint::hit("apply.after_writes")?;
        drop_tables.iter().try_for_each(|table| self.store.drop_table(*table))?;
        let entries = runs.iter().map(WriteRun::len).sum();
        self.changed_bytes += runs.iter().map(WriteRun::content_bytes).sum::<usize>() as u64;
        self.pool.give_back(runs);
        let write = started.elapsed() - encode;
        Ok(Applied { entries, encode, write, ..Applied::default() })
    }
}

#[cfg(test)]
#[path = "tests/apply.rs"]
mod tests;
