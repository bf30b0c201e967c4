//! Plain records of what is running, which `serve` fills and system tables show.

use crate::id::ObjectId;
use serde::{Deserialize, Serialize};

/// One streaming job and its status.
#[derive(Clone, Debug, PartialEq)]
pub struct JobFact {
    /// The object it belongs to.
    pub id: ObjectId,
    /// `creating`, `running`, `failed`.
    pub status: String,
    /// Rows read by backfill so far, while creating.
    pub backfilled_rows: u64,
    /// Rows to read, as estimated.
    pub backfill_total_rows: Option<u64>,
    /// How many actors each of its fragments has that is not a single one; 0: it does not run.
    pub parallelism: usize,
    /// How many actors run it.
    pub actors: usize,
    /// Groups and rows that its operators remembered in memory at the last checkpoint.
    pub state_entries: usize,
}

/// One checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CheckpointFact {
    /// Its epoch.
    pub epoch: u64,
    /// `aligned`, `unaligned`; `savepoint`, if one was made of it.
    pub kind: String,
    /// When its barrier was injected, microseconds since 1970.
    pub triggered_at_us: i64,
    /// `pending`, `completed`, `aborted`.
    pub status: String,
    /// From trigger to manifest, microseconds.
    pub duration_us: u64,
    /// Bytes named by its manifest.
    pub total_bytes: u64,
    /// Bytes newly stored for it.
    pub new_bytes: u64,
    /// What it took, in parts.
    pub parts: CheckpointParts,
    /// Why it was aborted.
    pub reason: Option<String>,
    /// The actors that it waits for, or waited for; of the newest few checkpoints only.
    #[serde(skip)]
    pub actors: Vec<ActorFact>,
}

/// An actor's part in a checkpoint. Times in microseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct ActorFact {
    /// The actor.
    pub actor: u64,
    /// Its job; none before it has acknowledged.
    pub job: Option<ObjectId>,
    /// From the trigger until it acknowledged; none if it has not.
    pub acknowledged_us: Option<u64>,
    /// From the barrier on its first channel to the barrier on its last.
    pub align_us: u64,
    /// The work of its operators to bring out what the epoch changed, as at any tick.
    pub flush_us: u64,
    /// The hand-over of their state: what the checkpoint kept its worker from rows.
    pub seal_us: u64,
}

/// What a checkpoint took, part after part. Times in microseconds; what is not over yet is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CheckpointParts {
    /// From the trigger until the last actor had handed over its part.
    pub barrier_us: u64,
    /// The longest alignment of an actor, and its job.
    pub align_us: u64,
    /// The job of that actor.
    pub align_job: Option<ObjectId>,
    /// The longest that an actor's operators took to bring out what the epoch changed, as at any tick.
    pub flush_us: u64,
    /// The longest that the hand-over of state kept a worker from rows, in one actor.
    pub seal_us: u64,
    /// The job of that actor.
    pub seal_job: Option<ObjectId>,
    /// What was handed over becomes entries of the store.
    pub encode_us: u64,
    /// The store takes them in.
    pub write_us: u64,
    /// The store's files are flushed and linked.
    pub link_us: u64,
    /// New files are measured, the manifest is written.
    pub manifest_us: u64,
    /// Uploading what the remote storage lacked.
    pub upload_us: u64,
    /// Bytes that were uploaded.
    pub uploaded_bytes: u64,
    /// Entries written.
    pub entries: u64,
    /// Files that the manifest names.
    pub files: u64,
    /// Bytes of the entries since the checkpoint before.
    pub changed_bytes: u64,
    /// Bytes that the store wrote to files for them.
    pub written_bytes: u64,
    /// Bytes that it wrote since then to merge files.
    pub merged_bytes: u64,
    /// From the manifest until the last sink's target had what it promised.
    pub commit_us: Option<u64>,
}

/// How checkpoints went since the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CheckpointTotals {
    /// Completed ones.
    pub completed: u64,
    /// Aborted ones.
    pub aborted: u64,
    /// Aborted ones since the last completed one.
    pub consecutive_failures: u64,
}

/// One start of the dataflow from a checkpoint. Times in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecoveryFact {
    /// When it began, microseconds since 1970.
    pub started_at_us: i64,
    /// Why.
    pub reason: String,
    /// The restored epoch; zero if there was no checkpoint.
    pub epoch: u64,
    /// Choosing the newest checkpoint whose files are whole, and downloading it if need be.
    pub choose_us: u64,
    /// Linking its files and opening the store.
    pub restore_us: u64,
    /// Planning the jobs and building their actors.
    pub build_us: u64,
    /// The first barrier through all of them.
    pub first_barrier_us: u64,
    /// Replaying acknowledged DML that the checkpoint lacked.
    pub replay_us: u64,
    /// From the beginning until everything ran.
    pub total_us: u64,
    /// Why it did not run, if it did not.
    pub error: Option<String>,
}

/// One split of a source and how far it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitFact {
    /// The source.
    pub source: ObjectId,
    /// The split's name.
    pub split: String,
    /// The offset of the newest durable checkpoint.
    pub offset: String,
}

/// One connection and what it is doing.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionFact {
    /// Its number.
    pub pid: i32,
    /// Who is connected.
    pub user: String,
    /// The client's name for itself.
    pub application_name: String,
    /// From where.
    pub client: Option<String>,
    /// `active`, `idle`, `idle in transaction`.
    pub state: String,
    /// The statement that runs, or ran last.
    pub query: String,
    /// When it connected, microseconds since 1970.
    pub started_at_us: i64,
}

/// What was read of one source since the dataflow started.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceFact {
    /// The source.
    pub id: ObjectId,
    /// Rows read.
    pub rows: u64,
    /// Rows dropped because they came below the watermark.
    pub late_rows: u64,
    /// Messages that could not be decoded.
    pub dead_letters: u64,
}

/// How one sink's delivery goes.
#[derive(Clone, Debug, PartialEq)]
pub struct DeliveryFact {
    /// The sink.
    pub id: ObjectId,
    /// The last epoch that its target holds.
    pub committed_epoch: Option<u64>,
    /// Why the last attempt failed, if it did.
    pub error: Option<String>,
    /// What it does.
    pub state: DeliveryState,
    /// Why the target can't take each change exactly once, where it can't.
    pub degraded: Option<String>,
}

/// A transaction in the target of a sink.
#[derive(Clone, Debug, PartialEq)]
pub struct TransactionFact {
    /// The sink; it may be dropped already.
    pub sink: ObjectId,
    /// What the target calls it; `None` where it has no name.
    pub name: Option<String>,
    /// What has become of it.
    pub state: TransactionState,
    /// The generation of the server that began it.
    pub generation: u64,
    /// The epoch of the checkpoint that commits it.
    pub epoch: u64,
    /// The actor whose rows are in it; `None` where it holds those of all.
    pub actor: Option<u32>,
    /// Which chunk of the epoch it is, where it has several.
    pub chunk: Option<u32>,
    /// When it came to be so, microseconds since 1970.
    pub changed_at_us: i64,
    /// What is to be said of it.
    pub note: Option<String>,
}

/// What has become of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionState {
    /// Rows are being written.
    Open,
    /// It waits for its checkpoint.
    Prepared,
    /// Its rows are in the target.
    Committed,
    /// It was taken back: its rows are written again, or were never to be.
    RolledBack,
}

impl TransactionState {
    /// As catalogs spell it.
    pub fn name(self) -> &'static str {
        match self {
            TransactionState::Open => "open",
            TransactionState::Prepared => "prepared",
            TransactionState::Committed => "committed",
            TransactionState::RolledBack => "rolled back",
        }
    }

    /// Whether nothing more becomes of it.
    pub fn is_over(self) -> bool {
        matches!(self, TransactionState::Committed | TransactionState::RolledBack)
    }
}

/// What the delivery of a sink does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeliveryState {
    /// It delivers.
    #[default]
    Running,
    /// The last attempt failed of what may pass: it is tried again soon.
    Retrying,
    /// The target refuses what it is given: it is tried again rarely, or when it is resumed.
    Stopped,
    /// It is tried again when it is resumed.
    Failed,
}

impl DeliveryState {
    /// As catalogs spell it.
    pub fn name(self) -> &'static str {
        match self {
            DeliveryState::Running => "running",
            DeliveryState::Retrying => "retrying",
            DeliveryState::Stopped => "stopped",
            DeliveryState::Failed => "failed",
        }
    }
}

/// What is running, as of one moment.
#[derive(Clone, Debug, Default)]
pub struct RuntimeFacts {
    /// Streaming jobs.
    pub jobs: Vec<JobFact>,
    /// The moment, microseconds since 1970.
    pub now_us: i64,
    /// `checkpoint.interval`, microseconds; 0: only on demand.
    pub checkpoint_interval_us: i64,
    /// Why the dataflow was given up, if it was.
    pub degraded: Option<String>,
    /// What could not be written, while the dataflow waits for space on the disk.
    pub disk_full: Option<String>,
    /// Checkpoints, oldest first.
    pub checkpoints: Vec<CheckpointFact>,
    /// Starts of the dataflow, oldest first.
    pub recoveries: Vec<RecoveryFact>,
    /// Splits and offsets.
    pub splits: Vec<SplitFact>,
    /// Connections.
    pub sessions: Vec<SessionFact>,
    /// Rows of which an expression failed, by job.
    pub expression_errors: Vec<(ObjectId, u64)>,
    /// What was read of each source.
    pub sources: Vec<SourceFact>,
    /// How each sink's delivery goes.
    pub deliveries: Vec<DeliveryFact>,
    /// What there is of the sinks' transactions.
    pub transactions: Vec<TransactionFact>,
    /// The connectors.
    pub connectors: Vec<crate::connector::ConnectorSpec>,
}
