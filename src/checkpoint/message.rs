//! What the coordinator is told, what it shows, and what it asks of those below it.
//!
//! The contracts between its thread and the others: actors and stores send [`Message`]s through a
//! [`CoordinatorHandle`], readers look at what is [`Shown`], and sealed epochs go to an
//! [`EpochStore`].

use super::decide::{Fault, Settings};
use super::history::History;
use super::participant::{ActorReport, CommitHandle, Offset, OffsetKey};
use crate::state::store::StateRead;
use crate::state::writes::Writes;
use crate::stream::{ActorId, Barrier, Epoch, Mutation};
use std::collections::HashMap;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{oneshot, watch};
use weir_catalog::system::facts::CheckpointParts;
use weir_catalog::{JobId, ObjectId};

/// What a reader sees: one epoch of everything.
#[derive(Clone)]
pub struct Visible {
    /// The epoch.
    pub epoch: Epoch,
    /// The DML position that it holds.
    pub dml_position: u64,
    /// The rows of tables, views and indexes as of the epoch.
    pub state: Arc<dyn StateRead>,
}

impl std::fmt::Debug for Visible {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Visible").field(&self.epoch).field(&self.dml_position).finish()
    }
}

/// Lets all actors handle a barrier before it comes.
pub type Overtaker = Box<dyn Fn(&Arc<Barrier>) + Send>;

/// Sends a barrier to one root actor.
pub type Inject = Arc<dyn Fn(&Arc<Barrier>) + Send + Sync>;

/// Takes the epoch of a barrier, and where every split was read up to at it.
pub type Begin = Box<dyn FnOnce(Visible, Vec<(OffsetKey, Offset)>) + Send>;

/// A change of the graph that waits for its barrier.
pub struct MutationRequest {
    /// What the barrier carries.
    pub mutation: Mutation,
    /// Actors that report from this barrier on.
    pub added: Vec<ActorId>,
    /// Root actors among them: they get barriers from the coordinator.
    pub roots: Vec<(ActorId, Inject)>,
    /// Actors that report this barrier last.
    pub removed: Vec<ActorId>,
    /// Jobs that fill from this barrier on.
    pub filling: Vec<JobId>,
    /// Where the added actors replace others: told of what the barrier's epoch is, once it is visible.
    /// They report from the next barrier on.
    pub begin: Option<Begin>,
    /// Answered when the barrier's epoch is visible.
    pub done: oneshot::Sender<Result<Epoch, String>>,
}

/// What a checkpoint holds beside the state, as gathered from the actors.
#[derive(Clone, Debug, Default)]
pub struct CheckpointContents {
    /// Its epoch.
    pub epoch: Epoch,
    /// The DML position up to which its tables hold changes.
    pub dml_position: u64,
    /// `now()` at its barrier.
    pub now_us: i64,
    /// Where every split was read up to.
    pub offsets: Vec<(OffsetKey, Offset)>,
    /// What sinks promised and is not yet known to be committed.
    pub handles: Vec<CommitHandle>,
    /// Whether actors did not wait for its barrier: nobody is shown it, and the promises of its own
    /// epoch are not released.
    pub unaligned: bool,
    /// Jobs whose whole state it holds: those that run and have caught up.
    pub jobs: Vec<JobId>,
}

/// What the store did with a checkpoint.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoredCheckpoint {
    /// Bytes that it names.
    pub total_bytes: u64,
    /// Bytes that no earlier one had.
    pub new_bytes: u64,
    /// What it took, but for the barrier.
    pub parts: CheckpointParts,
}

/// An epoch on its way to the store.
#[derive(Clone, Copy, Debug)]
pub struct EpochParts {
    /// Which.
    pub epoch: Epoch,
    /// The DML position that it holds.
    pub dml_position: u64,
    /// Whether it is published.
    pub visible: bool,
}

/// Where sealed epochs go. Both calls return at once; outcomes come back as messages.
pub trait EpochStore: Send {
    /// Applies `runs`, publishes the epoch if it is to be ([`Message::Visible`]) and, with `contents`, makes the
    /// checkpoint ([`Message::Durable`] or [`Message::CheckpointFailed`]).
    fn submit(&mut self, epoch: EpochParts, runs: Writes, contents: Option<CheckpointContents>);
    /// A checkpoint is complete: sinks may commit what it promised, unless it is unaligned.
    fn complete(&mut self, contents: &CheckpointContents);
}

/// What the coordinator is told.
pub enum Message {
    /// An actor reported.
    Report(ActorReport),
    /// An actor can't go on.
    Failed(String),
    /// An epoch was published.
    Visible(Epoch, Arc<dyn StateRead>),
    /// A checkpoint's manifest was written.
    Durable(Epoch, StoredCheckpoint),
    /// A checkpoint could not be made.
    CheckpointFailed(Epoch, Fault, String),
    /// A sink's target holds everything up to this epoch, or nobody is to bring it there any more.
    Committed(ObjectId, Epoch),
    /// Somebody waits for a visible tick.
    Tick(oneshot::Sender<Result<Epoch, String>>),
    /// Somebody waits for a durable checkpoint.
    Checkpoint(oneshot::Sender<Result<Epoch, String>>),
    /// Somebody waits for a durable checkpoint that holds no rows on their way.
    AlignedCheckpoint(oneshot::Sender<Result<Epoch, String>>),
    /// The same, after which nothing more is to be made visible.
    LastCheckpoint(oneshot::Sender<Result<Epoch, String>>),
    /// A change of the graph.
    Mutate(MutationRequest),
    /// A job that was filling is done or given up.
    Filled(JobId),
    /// The catalog has changed: the next checkpoint is due as if rows had come.
    CatalogChanged,
    /// Other settings.
    Settings(Settings),
    /// Ends the thread.
    Stop,
}

/// How far a job has come with what existed before it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Filling {
    /// Rows read.
    pub rows: u64,
    /// Whether all its actors have caught up, as of a visible epoch.
    pub done: bool,
}

/// What the coordinator shows to others.
pub struct Shown {
    /// The newest visible epoch.
    pub visible: watch::Sender<Visible>,
    /// Jobs that fill.
    pub filling: watch::Sender<HashMap<JobId, Filling>>,
    /// The last checkpoints and recoveries.
    history: Mutex<History>,
    /// Offsets of the newest durable checkpoint.
    pub offsets: Mutex<Vec<(OffsetKey, Offset)>>,
}

impl Shown {
    /// With `visible` and what is remembered to begin with.
    pub fn new(visible: Visible, history: History) -> Self {
        Self {
            visible: watch::Sender::new(visible),
            filling: watch::Sender::new(HashMap::new()),
            history: Mutex::new(history),
            offsets: Mutex::default(),
        }
    }

    /// What is remembered of checkpoints and recoveries. It is whole after every statement, whoever
    /// panicked with it.
    pub fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends messages to the coordinator.
#[derive(Clone)]
pub struct CoordinatorHandle(Sender<Message>);

impl CoordinatorHandle {
    /// For the sending end of its channel.
    pub fn new(sender: Sender<Message>) -> Self {
        Self(sender)
    }

    /// Tells it something. If it has ended, whoever waits learns by the dropped answer.
    pub fn send(&self, message: Message) {
        let _ = self.0.send(message);
    }

    /// Asks for something that is answered later.
    pub async fn ask(
        &self,
        message: impl FnOnce(oneshot::Sender<Result<Epoch, String>>) -> Message,
    ) -> Result<Epoch, String> {
        let (answer, receiver) = oneshot::channel();
        self.send(message(answer));
        receiver.await.unwrap_or_else(|_| Err("the dataflow is restarting".to_owned()))
    }
}
