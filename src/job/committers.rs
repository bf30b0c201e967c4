//! The committers of a database's sinks: told of each durable checkpoint, once.

use super::leftovers::{self, Leftovers};
use super::manager::JobError;
use super::pause::LogLimit;
use super::tail::SinkLogs;
use crate::checkpoint::coordinator::{CheckpointContents, CoordinatorHandle, Message};
use crate::checkpoint::participant::CommitHandle;
use crate::clock;
use crate::connectors::committer::{CommitterConfig, CommitterEvent, CommitterHandle};
use crate::connectors::registry::{self, SinkContext};
use crate::connectors::sink::Target;
use crate::state::data_dir::DataDir;
use crate::stream::Epoch;
use crate::work;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use weir_catalog::sink::Sink;
use weir_catalog::system::facts::{DeliveryState, TransactionFact};
use weir_catalog::{Object, ObjectBody, ObjectId};

/// How long a clean shutdown waits for targets to take what is durable.
const DRAIN_PATIENCE: Duration = Duration::from_secs(20);

struct Running {
    handle: CommitterHandle,
    told: Epoch,
    /// The last epoch that it was told was sealed, or durable.
    sealed: Epoch,
}

/// What a sink's delivery is doing, for the catalog.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeliveryStatus {
    /// The last epoch that the target is known to hold.
    pub committed: Option<Epoch>,
    /// Why the last attempt failed, if it did.
    pub error: Option<String>,
    /// What it does.
    pub state: DeliveryState,
    /// Why the target can't take each change exactly once, where it can't.
    pub degraded: Option<String>,
}

/// Tries what a source or sink declares, as far as that can be done without reading or writing. Returns
/// what the client is to be told of it.
pub async fn check(data_dir: &DataDir, object: &Object) -> Result<Option<String>, JobError> {
    match &object.body {
        ObjectBody::Source(source) => {
            let source = source.clone();
            let name = object.name.name.clone();
            let opened = work::blocking(move || registry::open_source(&source)?.check(&name));
            let checked = opened.await.map_err(|e| JobError::internal(format!("check failed: {e}")))?;
            checked.map(|()| None).map_err(JobError::from_client)
        }
        ObjectBody::Sink(sink) => {
            let context = SinkContext {
                database: &data_dir.database().to_string(),
                id: object.id,
                name: &object.name.name,
                generation: data_dir.generation(),
            };
            registry::commit_every(sink).map_err(JobError::from_client)?;
            let mut target = registry::open_sink_target(sink, &context).map_err(JobError::from_client)?;
            let degraded = target.check().await.map_err(JobError::from_client)?;
            let name = &object.name.name;
            Ok(degraded.map(|reason| format!("sink \"{name}\" does not deliver exactly once: {reason}")))
        }
        _ => Ok(None),
    }
}

/// Sinks that are to go on from the epoch of the restored checkpoint.
type Waiting = Vec<(Arc<Object>, Epoch)>;

type Statuses = Mutex<BTreeMap<ObjectId, DeliveryStatus>>;

fn note(statuses: &Statuses, sink: ObjectId, state: DeliveryState, error: Option<String>) {
    let mut statuses = statuses.lock();
    let status = statuses.entry(sink).or_default();
    (status.state, status.error) = (state, error);
}

/// All committers of one incarnation.
pub struct Committers {
    database: String,
    generation: u64,
    /// The last epoch that was given before this life of the dataflow.
    began: Epoch,
    logs: Arc<SinkLogs>,
    leftovers: Arc<Leftovers>,
    coordinator: CoordinatorHandle,
    runtime: tokio::runtime::Handle,
    limit: LogLimit,

    running: Mutex<BTreeMap<ObjectId, Running>>,
    /// What the newest complete checkpoint promises.
    promised: Mutex<(Epoch, Vec<CommitHandle>)>,
    status: Arc<Statuses>,
    transactions: Arc<Mutex<Transactions>>,
    /// Sinks whose logs have reached the limit.
    full: Mutex<HashSet<ObjectId>>,
    /// Sinks that deliver nothing before the next checkpoint is complete; none: there is no need to wait.
    waiting: Mutex<Option<Waiting>>,
}

impl Committers {
    /// For sinks restored at `epoch` with `handles` promised, in a life of the dataflow all of whose
    /// epochs come after `began`. With `wait` they deliver nothing before the next checkpoint is complete.
    pub fn new(
        (database, generation): (String, u64),
        began: Epoch,
        (logs, leftovers): (Arc<SinkLogs>, Arc<Leftovers>),
        coordinator: CoordinatorHandle,
        (epoch, handles): (Epoch, Vec<CommitHandle>),
        wait: bool,
        limit: LogLimit,
    ) -> Self {
        Self {
            database,
            generation,
            began,
            logs,
            leftovers,
            coordinator,
            runtime: tokio::runtime::Handle::current(),
            limit,
            running: Mutex::default(),
            promised: Mutex::new((epoch, handles)),
            status: Arc::default(),
            transactions: Arc::default(),
            full: Mutex::default(),
            waiting: Mutex::new(wait.then(Vec::new)),
        }
    }

    /// Starts the committer of `object`, which goes on from the restored checkpoint, if it is a sink: at once,
    /// or when the next checkpoint is complete. A sink that can't start is its own problem, never the others'.
    pub fn go_on(&self, object: &Arc<Object>, restored: Epoch) {
        if let Some(waiting) = &mut *self.waiting.lock() {
            return waiting.push((Arc::clone(object), restored));
        }
        if let Err(error) = self.start(object, restored) {
            tracing::error!(sink = %object.name, %error, "could not start sink");
        }
    }

    /// Keeps how the target of `object` is reached, if it is a sink that prepares there: who drops the sink
    /// knows where to roll back. Done before the sink is, for without it nothing may be prepared.
    pub fn keep_target(&self, object: &Object) -> Result<(), JobError> {
        let ObjectBody::Sink(sink) = &object.body else { return Ok(()) };
        self.keep(object, sink, &self.open_target(object, sink)?)
    }

    fn keep(&self, object: &Object, sink: &Sink, target: &Target) -> Result<(), JobError> {
        if let Target::Prepared(_) = target {
            self.logs.open(object.id).map_err(|e| JobError::io("open the sink log", &e))?;
            let kept = leftovers::keep(&self.logs.dir(object.id), &object.name.name, sink);
            kept.map_err(|e| JobError::io("write the sink's target", &e))?;
        }
        Ok(())
    }

    fn open_target(&self, object: &Object, sink: &Sink) -> Result<Target, JobError> {
        let context = SinkContext {
            database: &self.database,
            id: object.id,
            name: &object.name.name,
            generation: self.generation,
        };
        registry::open_sink_target(sink, &context).map_err(JobError::from_client)
    }

    /// Starts the committer of `object`, if it is a sink. `restored` is the epoch of the checkpoint
    /// that it goes on from, zero for a new sink.
    pub fn start(&self, object: &Object, restored: Epoch) -> Result<(), JobError> {
        let ObjectBody::Sink(sink) = &object.body else { return Ok(()) };
        let target = self.open_target(object, sink)?;
        self.keep(object, sink, &target)?;
        let log = self.logs.open(object.id).map_err(|e| JobError::io("open the sink log", &e))?;
        let commit_every = registry::commit_every(sink).map_err(JobError::from_client)?;
        let config = CommitterConfig {
            sink: object.id,
            name: object.name.name.clone(),
            sink_type: sink.sink_type,
            key: sink.primary_key.clone().unwrap_or_default(),
            database: self.database.clone(),
            generation: self.generation,
            began: self.began,
            commit_every,
            rebuilds: registry::empties_target(sink),
        };
        let mut running = self.running.lock();
        let (told, handles) = self.promised.lock().clone();
        let handles = handles.into_iter().filter(|h| h.sink == object.id).collect();
        let _entered = self.runtime.enter();
        let handle = CommitterHandle::start(config, target, log, restored, handles, self.events());
        running.insert(object.id, Running { handle, told, sealed: told });
        self.status.lock().entry(object.id).or_default();
        Ok(())
    }

    fn events(&self) -> crate::connectors::committer::Events {
        let coordinator = self.coordinator.clone();
        let status = self.status.clone();
        let transactions = self.transactions.clone();
        Arc::new(move |event| match event {
            CommitterEvent::Committed { sink, epoch } => {
                let mut statuses = status.lock();
                let now = statuses.entry(sink).or_default();
                (now.committed, now.state, now.error) = (Some(epoch), DeliveryState::Running, None);
                drop(statuses);
                coordinator.send(Message::Committed(sink, epoch));
            }
            CommitterEvent::Opened { sink, degraded } => {
                status.lock().entry(sink).or_default().degraded = degraded;
            }
            CommitterEvent::Transaction(mut fact) => {
                fact.changed_at_us = clock::now_us();
                transactions.lock().note(fact);
            }
            CommitterEvent::Recovered { sink } => note(&status, sink, DeliveryState::Running, None),
            CommitterEvent::Retrying { sink, reason } => {
                note(&status, sink, DeliveryState::Retrying, Some(reason));
            }
            CommitterEvent::Stopped { sink, reason } => {
                note(&status, sink, DeliveryState::Stopped, Some(reason));
            }
            CommitterEvent::Failed { sink, reason } => {
                note(&status, sink, DeliveryState::Failed, Some(reason));
            }
        })
    }

    /// Whatever a sink waits for is said to be mended: it tries again at once. False: it has no
    /// committer.
    pub fn resume(&self, sink: ObjectId, at_least_once: bool) -> bool {
        let running = self.running.lock();
        running.get(&sink).map(|committer| committer.handle.resume(at_least_once)).is_some()
    }

    /// All actors have sealed a checkpoint's epoch: sinks that prepare may begin.
    pub fn sealed(&self, contents: &CheckpointContents) {
        for (sink, committer) in self.running.lock().iter_mut().filter(|(_, c)| c.handle.prepares()) {
            for (epoch, handles) in by_epoch(contents, *sink, committer.sealed) {
                committer.handle.sealed(epoch, handles);
            }
            committer.sealed = committer.sealed.max(contents.epoch);
        }
    }

    /// A checkpoint is complete: what it promises may be committed.
    pub fn complete(&self, contents: &CheckpointContents) {
        let mut running = self.running.lock();
        *self.promised.lock() = (contents.epoch, contents.handles.clone());
        for (sink, committer) in running.iter_mut() {
            let mut epochs = by_epoch(contents, *sink, committer.told);
            // The checkpoint's own epoch is told even when nothing was promised: time has passed.
            epochs.entry(contents.epoch).or_default();
            for (epoch, handles) in epochs {
                committer.handle.durable(epoch, handles);
            }
            committer.told = contents.epoch;
            committer.sealed = committer.sealed.max(contents.epoch);
        }
        let sinks: Vec<ObjectId> = running.keys().copied().collect();
        drop(running);
        let waiting = self.waiting.lock().take();
        waiting.into_iter().flatten().for_each(|(sink, restored)| self.go_on(&sink, restored));
        self.watch_logs(&sinks);
    }

    /// Tells once of each sink whose log has reached its limit.
    fn watch_logs(&self, sinks: &[ObjectId]) {
        let limit = (self.limit.bytes)();
        for sink in sinks {
            let is_full = self.logs.open(*sink).is_ok_and(|log| log.bytes() > limit);
            if is_full && self.full.lock().insert(*sink) {
                (self.limit.reached)(*sink);
            }
        }
    }

    /// Ends the committer of a dropped sink and removes its log.
    pub fn remove(&self, sink: ObjectId) {
        if let Some(waiting) = &mut *self.waiting.lock() {
            waiting.retain(|(object, _)| object.id != sink);
        }
        self.full.lock().remove(&sink);
        // Nobody keeps its promises any more: manifests need not name them.
        self.coordinator.send(Message::Committed(sink, Epoch(u64::MAX)));
        let committer = self.running.lock().remove(&sink);
        if committer.is_some() || self.logs.dir(sink).exists() {
            let leftovers = Arc::downgrade(&self.leftovers);
            self.runtime.spawn(async move {
                if let Some(committer) = committer {
                    committer.handle.stop().await;
                }
                Leftovers::clean(leftovers, sink).await;
            });
        }
        self.status.lock().remove(&sink);
        self.transactions.lock().forget(sink);
    }

    /// What there is of the sinks' transactions.
    pub fn transactions(&self) -> Vec<TransactionFact> {
        self.transactions.lock().all()
    }

    /// What each sink's delivery is doing.
    pub fn status(&self) -> BTreeMap<ObjectId, DeliveryStatus> {
        self.status.lock().clone()
    }

    /// Ends all of them; after `drain`ing what is durable, if there is patience for it. Returns those
    /// that were not drained then.
    pub async fn stop(&self, drain: bool) -> Vec<ObjectId> {
        let running = std::mem::take(&mut *self.running.lock());
        let mut left = Vec::new();
        for (sink, committer) in running {
            if drain && !committer.handle.drain(DRAIN_PATIENCE).await {
                tracing::warn!(%sink, "sink is not fully delivered; its log is kept");
                left.push(sink);
            }
            committer.handle.stop().await;
        }
        left
    }
}

/// The handles of `sink` for epochs after `after`, epoch by epoch.
fn by_epoch(
    contents: &CheckpointContents,
    sink: ObjectId,
    after: Epoch,
) -> BTreeMap<Epoch, Vec<CommitHandle>> {
    let mut epochs: BTreeMap<Epoch, Vec<CommitHandle>> = BTreeMap::new();
    for handle in contents.handles.iter().filter(|h| h.sink == sink && h.epoch > after) {
        epochs.entry(handle.epoch).or_default().push(handle.clone());
    }
    epochs
}

/// Transactions that are over and remembered, of each sink.
const OVER_MAX: usize = 20;

/// What there is of the sinks' transactions, oldest first.
#[derive(Default)]
struct Transactions(BTreeMap<ObjectId, VecDeque<TransactionFact>>);

impl Transactions {
    fn note(&mut self, fact: TransactionFact) {
        let of_sink = self.0.entry(fact.sink).or_default();
        let same = |f: &TransactionFact| (&f.name, f.epoch, f.chunk) == (&fact.name, fact.epoch, fact.chunk);
        of_sink.retain(|f| !same(f));
        of_sink.push_back(fact);
        while of_sink.iter().filter(|f| f.state.is_over()).count() > OVER_MAX {
            let Some(oldest) = of_sink.iter().position(|f| f.state.is_over()) else { break };
            of_sink.remove(oldest);
        }
    }

    fn forget(&mut self, sink: ObjectId) {
        self.0.remove(&sink);
    }

    fn all(&self) -> Vec<TransactionFact> {
        self.0.values().flatten().cloned().collect()
    }
}
