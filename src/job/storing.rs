//! Where sealed epochs go: the apply thread, then, for a checkpoint, its manifest.
//!
//! ```text
//!   coordinator ── submit ──> apply thread ── published ──> Visible
//!                                 └── checkpoint directory ──> stored (a thread of its own) ──> Durable
//!                                                              └─> older ones that may go
//! ```
//! Storing may take long where it goes over a network. It ends with the dataflow: a checkpoint never
//! comes to be after another dataflow was restored from one before it.

use super::committers::Committers;
use super::tail::SinkLogs;
use crate::checkpoint::belongings::Belongings;
use crate::checkpoint::coordinator::{
    CheckpointContents, CoordinatorHandle, EpochParts, EpochStore, Message, StoredCheckpoint,
};
use crate::checkpoint::decide::Fault;
use crate::checkpoint::manifest::{Manifest, ManifestJob};
use crate::checkpoint::participant::CommitHandle;
use crate::checkpoint::storage::{self, CheckpointStorage, Completed};
use crate::checkpoint::transfer::Cancel;
use crate::clock;
use crate::state::StateError;
use crate::state::apply::{Applied, ApplyHandle, Published, SealedEpoch};
use crate::state::writes::Writes;
use crate::threads::ThreadKind;
use crate::work::{self, Step, Thread, Work};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, mpsc};
use tokio::sync::{oneshot, watch};
use weir_catalog::system::facts::CheckpointParts;
use weir_catalog::{CatalogSnapshot, JobId, ObjectId, TableId};

/// What the storing side knows of jobs.
pub type Fingerprints = Arc<Mutex<HashMap<JobId, Vec<(u32, String)>>>>;

/// Shared between the coordinator's thread and DDL.
pub struct Storing {
    dropped: Mutex<Vec<TableId>>,
    tables_of: Box<dyn Fn(ObjectId) -> Vec<TableId> + Send + Sync>,
}

impl Storing {
    /// `tables_of` tells the tables of an object.
    pub fn new(tables_of: Box<dyn Fn(ObjectId) -> Vec<TableId> + Send + Sync>) -> Self {
        Self { dropped: Mutex::default(), tables_of }
    }

    /// Drops the tables of `object` with the next epoch.
    pub fn drop_state(&self, object: ObjectId) {
        let tables = (self.tables_of)(object);
        self.dropped.lock().extend(tables);
    }
}

/// A checkpoint whose directory is being made.
struct Making {
    contents: CheckpointContents,
    applied: oneshot::Receiver<Result<Applied, StateError>>,
}

/// What a manifest is made of beside a checkpoint's own contents.
pub struct ManifestFacts {
    /// Checkpoints are stored here.
    pub storage: Arc<Mutex<CheckpointStorage>>,
    /// The database's identity.
    pub database: uuid::Uuid,
    /// This server's generation.
    pub generation: u64,
    /// The catalog now.
    pub catalog: Arc<dyn Fn() -> Arc<CatalogSnapshot> + Send + Sync>,
    /// The logs of sinks.
    pub sink_logs: Arc<SinkLogs>,
    /// Of the stateful operators of each job.
    pub fingerprints: Fingerprints,
    /// Called with each complete checkpoint.
    pub completed: Arc<dyn Fn(&CheckpointContents) + Send + Sync>,
    /// Called after each: what is older than is to be kept may go.
    pub retain: Arc<dyn Fn() + Send + Sync>,
}

/// What sinks promise that there are. One whose creation came to nothing in another life of the dataflow
/// has no committer here that would tell.
fn promised(contents: &CheckpointContents, catalog: &CatalogSnapshot) -> Vec<CommitHandle> {
    // Where the server is stopping, the catalog is not known any more.
    let known = catalog.version > 0;
    let is_there = |handle: &&CommitHandle| !known || catalog.by_id(handle.sink).is_some();
    contents.handles.iter().filter(is_there).cloned().collect()
}

impl ManifestFacts {
    fn store(
        &self,
        contents: &CheckpointContents,
        applied: Applied,
        cancel: &Cancel,
    ) -> std::io::Result<StoredCheckpoint> {
        let started = std::time::Instant::now();
        // From now on a start may go on from a later epoch than what targets were last compared with.
        self.sink_logs.note_unopened()?;
        let fingerprints = self.fingerprints.lock();
        let of_job = |job: &JobId| ManifestJob {
            job: *job,
            fingerprints: fingerprints.get(job).cloned().unwrap_or_default(),
            backfilled: true,
        };
        let catalog = (self.catalog)();
        let handles = promised(contents, &catalog);
        let manifest = Manifest {
            database: self.database,
            generation: self.generation,
            epoch: contents.epoch,
            catalog_version: catalog.version,
            dml_position: contents.dml_position,
            now_us: contents.now_us,
            jobs: contents.jobs.iter().map(of_job).collect(),
            offsets: contents.offsets.clone(),
            unaligned: contents.unaligned,
            handles: handles.clone(),
            // Filled in where the directory is read.
            format: 0,
            files: Vec::new(),
            completed_at_us: clock::now_us(),
            savepoint: None,
            catalog: None,
            promised: Vec::new(),
            ahead: Vec::new(),
        };
        drop(fingerprints);
        let belongings = || self.belongings(catalog, &handles);
        let completed = storage::store(&self.storage, manifest, belongings, cancel)?;
        let us = |duration: std::time::Duration| duration.as_micros() as u64;
        let parts = CheckpointParts {
            encode_us: us(applied.encode),
            write_us: us(applied.write),
            link_us: us(applied.link),
            upload_us: us(completed.upload),
            manifest_us: us(started.elapsed().saturating_sub(completed.upload)),
            entries: applied.entries as u64,
            changed_bytes: applied.changed_bytes,
            written_bytes: applied.written.applied,
            merged_bytes: applied.written.merged,
            files: completed.manifest.files.len() as u64,
            uploaded_bytes: completed.uploaded.bytes,
            ..CheckpointParts::default()
        };
        let Completed { total_bytes, new_bytes, .. } = completed;
        Ok(StoredCheckpoint { total_bytes, new_bytes, parts })
    }

    /// What goes with a checkpoint to where it is to suffice. The catalog may be newer than its barrier: what
    /// was created since has no state in it, and what was dropped has some that nobody names.
    fn belongings(
        &self,
        catalog: Arc<CatalogSnapshot>,
        handles: &[CommitHandle],
    ) -> std::io::Result<Belongings> {
        let promised = self.sink_logs.promised(handles)?;
        Ok(Belongings { catalog, promised, ahead: self.sink_logs.ahead() })
    }
}

/// The coordinator's end.
pub struct Store {
    apply: ApplyHandle,
    coordinator: CoordinatorHandle,
    storing: Arc<Storing>,
    committers: Arc<Committers>,
    storage: Arc<Mutex<CheckpointStorage>>,
    completed: Arc<dyn Fn(&CheckpointContents) + Send + Sync>,
    runtime: tokio::runtime::Handle,
    /// To the thread that stores; none once it is to end.
    making: Option<mpsc::Sender<Making>>,
    thread: Thread,
    cancel: Cancel,
}

impl Drop for Store {
    fn drop(&mut self) {
        self.cancel.cancel();
        self.making = None;
        if !self.thread.join() {
            tracing::error!("the thread that stores checkpoints panicked");
        }
    }
}

impl Store {
    /// A tick that can't be applied ends the dataflow: the store may hold half of it.
    fn watch_failure(&self, applied: oneshot::Receiver<Result<Applied, StateError>>) {
        let coordinator = self.coordinator.clone();
        self.runtime.spawn(async move {
            if let Ok(Err(error)) = applied.await {
                coordinator.send(not_applied(&error.to_string()));
            }
        });
    }

    /// Starts the thread that stores checkpoints, and the task that tells of published epochs.
    pub fn start(
        apply: ApplyHandle,
        coordinator: CoordinatorHandle,
        storing: Arc<Storing>,
        committers: Arc<Committers>,
        facts: ManifestFacts,
    ) -> std::io::Result<Store> {
        let mut published = apply.watch();
        let of_task = coordinator.clone();
        published.mark_unchanged();
        tokio::spawn(async move {
            while published.changed().await.is_ok() {
                let now = published.borrow_and_update().clone();
                of_task.send(Message::Visible(now.epoch, now.state));
            }
        });
        let (making, queue) = mpsc::channel();
        let storage = facts.storage.clone();
        let completed = facts.completed.clone();
        let cancel = Cancel::default();
        let maker = Maker {
            queue,
            coordinator: coordinator.clone(),
            facts,
            cancel: cancel.clone(),
            published: apply.watch(),
            making: None,
            applied: None,
        };
        let spec = work::Spec { kind: Some(ThreadKind::Stream), ..work::Spec::named("weir-checkpoint") };
        let thread = work::start(spec, maker)?;
        let runtime = tokio::runtime::Handle::current();
        let making = Some(making);
        Ok(Store {
            apply,
            coordinator,
            storing,
            committers,
            storage,
            completed,
            runtime,
            making,
            thread,
            cancel,
        })
    }
}

impl EpochStore for Store {
    fn submit(
        &mut self,
        EpochParts { epoch, dml_position, visible }: EpochParts,
        runs: Writes,
        contents: Option<CheckpointContents>,
    ) {
        let begun = contents.as_ref().map(|_| self.storage.lock().begin(epoch));
        let (dir, contents) = match begun.transpose() {
            Ok(dir) => (dir, contents),
            Err(error) => {
                let reason = format!("could not begin the checkpoint: {error}");
                self.coordinator.send(Message::CheckpointFailed(epoch, Fault::Storage, reason));
                (None, None)
            }
        };
        let sealed = SealedEpoch {
            epoch,
            dml_position,
            visible,
            runs,
            drop_tables: std::mem::take(&mut *self.storing.dropped.lock()),
            checkpoint: dir,
        };
        let applied = futures::executor::block_on(self.apply.submit(sealed));
        match contents {
            Some(contents) => {
                if !contents.unaligned {
                    self.committers.sealed(&contents);
                }
                // If the thread is gone the dataflow is ending.
                let _ = self.making.as_ref().map(|making| making.send(Making { contents, applied }));
            }
            None => self.watch_failure(applied),
        }
    }

    fn complete(&mut self, contents: &CheckpointContents) {
        if !contents.unaligned {
            self.committers.complete(contents);
        }
        (self.completed)(contents);
    }
}

/// Makes the manifests of checkpoints whose directories are there.
struct Maker {
    queue: mpsc::Receiver<Making>,
    coordinator: CoordinatorHandle,
    facts: ManifestFacts,
    cancel: Cancel,
    /// What the state store has published.
    published: watch::Receiver<Published>,

    /// The one whose directory is being made.
    making: Option<Making>,
    /// How that went, heard while it waited.
    applied: Option<Result<Applied, String>>,
}

fn not_applied(reason: &str) -> Message {
    Message::Failed(format!("could not apply an epoch: {reason}"))
}

fn heard(outcome: Result<Result<Applied, StateError>, oneshot::error::RecvError>) -> Result<Applied, String> {
    match outcome {
        Ok(Ok(applied)) => Ok(applied),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("the state store has stopped".to_owned()),
    }
}

impl Work for Maker {
    fn step(&mut self) -> Step {
        if self.making.is_none() {
            self.making = match self.queue.try_recv() {
                Ok(making) => Some(making),
                Err(mpsc::TryRecvError::Empty) => return Step::Idle(None),
                Err(mpsc::TryRecvError::Disconnected) => return Step::Ended,
            };
        }
        let Some(mut making) = self.making.take() else { return Step::More };
        let applied = self.applied.take().or_else(|| match making.applied.try_recv() {
            Ok(outcome) => Some(heard(Ok(outcome))),
            Err(oneshot::error::TryRecvError::Closed) => Some(Err("the state store has stopped".to_owned())),
            Err(oneshot::error::TryRecvError::Empty) => None,
        });
        match applied {
            Some(applied) => {
                self.store(&making.contents, applied);
                Step::More
            }
            None => {
                self.making = Some(making);
                Step::Idle(None)
            }
        }
    }

    fn wait(&mut self, _: Option<i64>) {
        match &mut self.making {
            Some(making) => {
                self.applied = Some(heard(futures::executor::block_on(&mut making.applied)));
            }
            // That nobody is left to send anything is found by the next step.
            None => self.making = self.queue.recv().ok(),
        }
    }
}

impl Maker {
    fn store(&self, contents: &CheckpointContents, applied: Result<Applied, String>) {
        let epoch = contents.epoch;
        let outcome = match applied {
            Ok(applied) => self
                .facts
                .store(contents, applied, &self.cancel)
                .map_err(|e| (Fault::Storage, format!("could not store it: {e}"))),
            Err(reason) => {
                if let Err(error) = self.facts.storage.lock().abort(epoch) {
                    tracing::warn!(%epoch, %error, "could not clean up an aborted checkpoint");
                }
                if self.published.borrow().epoch < epoch {
                    // Not the checkpoint failed, but the writes: the store may hold half of them.
                    return self.coordinator.send(not_applied(&reason));
                }
                Err((Fault::Dataflow, reason))
            }
        };
        let stored = outcome.is_ok();
        self.coordinator.send(match outcome {
            Ok(stored) => Message::Durable(epoch, stored),
            Err((fault, reason)) => Message::CheckpointFailed(epoch, fault, reason),
        });
        if stored {
            (self.facts.retain)();
        }
    }
}
