//! The committers of a database's sinks: told of each durable checkpoint, once.

use super::manager::JobError;
use super::pause::LogLimit;
use super::tail::SinkLogs;
use crate::checkpoint::coordinator::{CheckpointContents, CoordinatorHandle, Message};
use crate::checkpoint::participant::CommitHandle;
use crate::connectors::committer::{CommitterConfig, CommitterEvent, CommitterHandle};
use crate::connectors::registry::{self, SinkContext};
use crate::state::data_dir::DataDir;
use crate::stream::Epoch;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use weir_catalog::system::facts::DeliveryState;
use weir_catalog::{Object, ObjectBody, ObjectId};

/// How long a clean shutdown waits for targets to take what is durable.
const DRAIN_PATIENCE: Duration = Duration::from_secs(20);

struct Running {
    handle: CommitterHandle,
    told: Epoch,
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
}

/// Tries what a source or sink declares, as far as that can be done without reading or writing.
pub async fn check(data_dir: &DataDir, object: &Object) -> Result<(), JobError> {
    match &object.body {
        ObjectBody::Source(source) => {
            let source = source.clone();
            let name = object.name.name.clone();
            let opened = tokio::task::spawn_blocking(move || registry::open_source(&source)?.check(&name));
            let checked = opened.await.map_err(|e| JobError::internal(format!("check failed: {e}")))?;
            checked.map_err(JobError::from_client)
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
            target.check().await.map_err(JobError::from_client)
        }
        _ => Ok(()),
    }
}

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
    logs: Arc<SinkLogs>,
    coordinator: CoordinatorHandle,
    runtime: tokio::runtime::Handle,
    limit: LogLimit,

    running: Mutex<HashMap<ObjectId, Running>>,
    /// What the newest complete checkpoint promises.
    promised: Mutex<(Epoch, Vec<CommitHandle>)>,
    status: Arc<Statuses>,
    /// Sinks whose logs have reached the limit.
    full: Mutex<HashSet<ObjectId>>,
}

impl Committers {
    /// For sinks restored at `epoch` with `handles` promised.
    pub fn new(
        database: String,
        generation: u64,
        logs: Arc<SinkLogs>,
        coordinator: CoordinatorHandle,
        (epoch, handles): (Epoch, Vec<CommitHandle>),
        limit: LogLimit,
    ) -> Self {
        Self {
            database,
            generation,
            logs,
            coordinator,
            runtime: tokio::runtime::Handle::current(),
            limit,
            running: Mutex::default(),
            promised: Mutex::new((epoch, handles)),
            status: Arc::default(),
            full: Mutex::default(),
        }
    }

    /// Starts the committer of `object`, if it is a sink. `restored` is the epoch of the checkpoint
    /// that it goes on from, zero for a new sink.
    pub fn start(&self, object: &Object, restored: Epoch) -> Result<(), JobError> {
        let ObjectBody::Sink(sink) = &object.body else { return Ok(()) };
        let context = SinkContext {
            database: &self.database,
            id: object.id,
            name: &object.name.name,
            generation: self.generation,
        };
        let target = registry::open_sink_target(sink, &context).map_err(JobError::from_client)?;
        let log = self.logs.open(object.id, &[]).map_err(|e| JobError::io("open the sink log", &e))?;
        let commit_every = registry::commit_every(sink).map_err(JobError::from_client)?;
        let config = CommitterConfig {
            sink: object.id,
            name: object.name.name.clone(),
            sink_type: sink.sink_type,
            key: sink.primary_key.clone().unwrap_or_default(),
            generation: self.generation,
            commit_every,
        };
        let mut running = self.running.lock();
        let (told, handles) = self.promised.lock().clone();
        let handles = handles.into_iter().filter(|h| h.sink == object.id).collect();
        let _entered = self.runtime.enter();
        let handle = CommitterHandle::start(config, target, log, restored, handles, self.events());
        running.insert(object.id, Running { handle, told });
        self.status.lock().entry(object.id).or_default();
        Ok(())
    }

    fn events(&self) -> crate::connectors::committer::Events {
        let coordinator = self.coordinator.clone();
        let status = self.status.clone();
        Arc::new(move |event| match event {
            CommitterEvent::Committed { sink, epoch } => {
                let now = DeliveryStatus { committed: Some(epoch), ..DeliveryStatus::default() };
                status.lock().insert(sink, now);
                coordinator.send(Message::Committed(sink, epoch));
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
    pub fn resume(&self, sink: ObjectId) -> bool {
        let running = self.running.lock();
        running.get(&sink).map(|committer| committer.handle.resume()).is_some()
    }

    /// A checkpoint is complete: what it promises may be committed.
    pub fn complete(&self, contents: &CheckpointContents) {
        let mut running = self.running.lock();
        *self.promised.lock() = (contents.epoch, contents.handles.clone());
        for (sink, committer) in running.iter_mut() {
            let mut epochs: BTreeMap<Epoch, Vec<CommitHandle>> = BTreeMap::new();
            for handle in contents.handles.iter().filter(|h| h.sink == *sink && h.epoch > committer.told) {
                epochs.entry(handle.epoch).or_default().push(handle.clone());
            }
            // The checkpoint's own epoch is told even when nothing was promised: time has passed.
            epochs.entry(contents.epoch).or_default();
            for (epoch, handles) in epochs {
                committer.handle.durable(epoch, handles);
            }
            committer.told = contents.epoch;
        }
        let sinks: Vec<ObjectId> = running.keys().copied().collect();
        drop(running);
        self.watch_logs(&sinks);
    }

    /// Tells once of each sink whose log has reached its limit.
    fn watch_logs(&self, sinks: &[ObjectId]) {
        let limit = (self.limit.bytes)();
        for sink in sinks {
            let is_full = self.logs.open(*sink, &[]).is_ok_and(|log| log.bytes() > limit);
            if is_full && self.full.lock().insert(*sink) {
                (self.limit.reached)(*sink);
            }
        }
    }

    /// Ends the committer of a dropped sink and removes its log.
    pub fn remove(&self, sink: ObjectId) {
        self.full.lock().remove(&sink);
        if let Some(committer) = self.running.lock().remove(&sink) {
            let logs = self.logs.clone();
            self.runtime.spawn(async move {
                committer.handle.stop().await;
                logs.remove(sink);
            });
        }
        self.status.lock().remove(&sink);
    }

    /// What each sink's delivery is doing.
    pub fn status(&self) -> BTreeMap<ObjectId, DeliveryStatus> {
        self.status.lock().clone()
    }

    /// Ends all of them; after `drain`ing what is durable, if there is patience for it.
    pub fn stop(&self, drain: bool) {
        let running: Vec<_> = self.running.lock().drain().collect();
        self.runtime.block_on(async {
            for (sink, committer) in running {
                if drain && !committer.handle.drain(DRAIN_PATIENCE).await {
                    tracing::warn!(%sink, "sink is not fully delivered; its log is kept");
                }
                committer.handle.stop().await;
            }
        });
    }
}
