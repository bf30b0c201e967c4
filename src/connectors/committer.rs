//! Committer: takes a sink's epochs to its target, in order, outside the dataflow.
//!
//! ```text
//!   all actors sealed ──── sealed(epoch, handles) ───┐
//!   checkpoint durable ─── durable(epoch, handles) ──┴──> logged.rs or prepared.rs ──> target
//!                                                     └── Committed(epoch): later manifests need not name it
//! ```
//! This is its owner's end. How a target is treated that fails is [`super::desk`]'s; the two styles of
//! committing are [`super::logged`] and [`super::prepared`].

use super::desk::{Desk, Request, Resume};
use super::logged::LoggedCommitter;
use super::prepared::PreparedCommitter;
use super::sink::Target;
use super::sink_log::SinkLog;
use crate::checkpoint::participant::CommitHandle;
use crate::clock;
use crate::stream::Epoch;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use weir_catalog::sink::SinkType;
use weir_catalog::system::facts::TransactionFact;
use weir_catalog::{Key, ObjectId};

/// What a committer is given at its start.
#[derive(Clone, Debug)]
pub struct CommitterConfig {
    /// The sink.
    pub sink: ObjectId,
    /// Its name, for messages.
    pub name: String,
    /// The database's uuid: goes into names of transactions.
    pub database: String,
    /// What its rows mean.
    pub sink_type: SinkType,
    /// The target's key; empty for an append-only sink.
    pub key: Key,
    /// This server's generation: goes into markers.
    pub generation: u64,
    /// The last epoch that was given before this life of the dataflow.
    pub began: Epoch,
    /// Durable epochs that are gathered before they are delivered, unless that takes longer than
    /// as many seconds.
    pub commit_every: usize,
    /// Whether ALTER SINK … REBUILD can empty the target.
    pub rebuilds: bool,
}

/// What a committer reports. Called from its task: must not block.
#[derive(Clone, Debug, PartialEq)]
pub enum CommitterEvent {
    /// Everything up to this epoch is in the target: manifests need not name it any more.
    Committed {
        /// The sink.
        sink: ObjectId,
        /// The last epoch.
        epoch: Epoch,
    },
    /// The target did not take it; it is tried again.
    Retrying {
        /// The sink.
        sink: ObjectId,
        /// Why.
        reason: String,
    },
    /// The target refuses it, and will until somebody changes it. It is tried again now and then.
    Stopped {
        /// The sink.
        sink: ObjectId,
        /// Why.
        reason: String,
    },
    /// After a failure the target answers again, and nothing waits for it.
    Recovered {
        /// The sink.
        sink: ObjectId,
    },
    /// Nothing more is delivered until it is resumed.
    Failed {
        /// The sink.
        sink: ObjectId,
        /// Why.
        reason: String,
    },
    /// The target was opened; why it can't take each change exactly once, where it can't.
    Opened {
        /// The sink.
        sink: ObjectId,
        /// Why not.
        degraded: Option<String>,
    },
    /// Something became of a transaction. When is the hearer's to say.
    Transaction(TransactionFact),
}

/// Who hears of events.
pub type Events = Arc<dyn Fn(CommitterEvent) + Send + Sync>;

/// The owner's end of a committer. Dropping it ends the task; what is not delivered stays in the log.
#[derive(Debug)]
pub struct CommitterHandle {
    requests: mpsc::UnboundedSender<Request>,
    resume: Arc<Resume>,
    /// Whether it wants to hear of epochs that are sealed but not durable.
    prepares: bool,
    task: tokio::task::JoinHandle<()>,
}

impl CommitterHandle {
    /// Starts a committer. `restored` is the epoch of the restored checkpoint (zero for a new
    /// sink), `handles` are those that its manifest names.
    pub fn start(
        config: CommitterConfig,
        target: Target,
        log: Arc<SinkLog>,
        restored: Epoch,
        handles: Vec<CommitHandle>,
        events: Events,
    ) -> Self {
        let (requests, receiver) = mpsc::unbounded_channel();
        let resume = Arc::<Resume>::default();
        let desk = Desk::new(config, log, events, Arc::clone(&resume), receiver, restored);
        let prepares = matches!(target, Target::Prepared(_));
        let task = match target {
            Target::Logged(target) => tokio::spawn(LoggedCommitter::new(desk, target, handles).run()),
            Target::Prepared(target) => tokio::spawn(PreparedCommitter::new(desk, target, handles).run()),
        };
        Self { requests, resume, prepares, task }
    }

    /// Somebody has mended what a delivery failed of: it is tried again at once. `at_least_once`: if
    /// the target is ahead of the restored checkpoint, go on all the same.
    pub fn resume(&self, at_least_once: bool) {
        self.resume.call(at_least_once);
    }

    /// Whether it takes epochs that are sealed but not durable.
    pub fn prepares(&self) -> bool {
        self.prepares
    }

    /// All actors have sealed an epoch: `handles` are all of the sink's for it. Its checkpoint is under
    /// way.
    pub fn sealed(&self, epoch: Epoch, handles: Vec<CommitHandle>) {
        // As below.
        let _ = self.requests.send(Request::Sealed(epoch, handles));
    }

    /// A checkpoint is durable: `handles` are all of the sink's for `epoch` (maybe none).
    /// The queue has no bound of its own: it holds names of parts of the log, which has one.
    pub fn durable(&self, epoch: Epoch, handles: Vec<CommitHandle>) {
        // After the end of the task there is nobody to tell; the manifest still names them.
        let _ = self.requests.send(Request::Durable(epoch, handles));
    }

    /// Delivers what is durable without waiting for more epochs; true if that was done within
    /// `patience`.
    pub async fn drain(&self, patience: Duration) -> bool {
        let (done, answer) = oneshot::channel();
        if self.requests.send(Request::Drain(done)).is_err() {
            return false;
        }
        matches!(clock::timeout(patience, answer).await, Some(Ok(())))
    }

    /// Ends the task and waits until it has let go of log and target.
    pub async fn stop(self) {
        self.task.abort();
        // Cancelled, as asked.
        let _ = self.task.await;
    }
}

#[cfg(test)]
#[path = "tests/committer.rs"]
mod tests;
