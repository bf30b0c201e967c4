//! Committer: delivers a sink's durable epochs to its target, in order, outside the dataflow.
//!
//! ```text
//!   checkpoint durable ── durable(epoch, handles) ──> queue ──> range of epochs ──> chunks ──> deliver
//!                                                       ▲                             │ fails: wait, open, again
//!                                                       └─ later manifests name it    └─ all in: Committed(epoch)
//! ```
//! It takes durable epochs only, all handles of one together, in order. A range is cut into chunks
//! the same way each time, so that one of which a crash let some chunks through is gone on with.
//! A failing delivery is tried again for ever, unless the target says that it never will work; then
//! the committer reports so and keeps what it has in the log.

use super::delivery::{self, DeliveryPlan};
use super::retry::Backoff;
use super::sink::{Delivery, Marker, Partial, SinkError, SinkTarget};
use super::sink_log::SinkLog;
use crate::checkpoint::participant::CommitHandle;
use crate::stream::Epoch;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tracing::{debug, error, info, warn};
use weir_catalog::sink::SinkType;
use weir_catalog::{Key, ObjectId};

/// Epochs that are delivered as one range at most.
const RANGE_EPOCHS_MAX: usize = 1024;

/// What a committer is given at its start.
#[derive(Clone, Debug)]
pub struct CommitterConfig {
    /// The sink.
    pub sink: ObjectId,
    /// Its name, for messages.
    pub name: String,
    /// What its rows mean.
    pub sink_type: SinkType,
    /// The target's key; empty for an append-only sink.
    pub key: Key,
    /// This server's generation: goes into markers.
    pub generation: u64,
    /// Durable epochs that are gathered before they are delivered, unless that takes longer than
    /// as many seconds.
    pub commit_every: usize,
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
    /// The target will never take it; nothing more is delivered.
    Failed {
        /// The sink.
        sink: ObjectId,
        /// Why.
        reason: String,
    },
}

/// Who hears of events.
pub type Events = Arc<dyn Fn(CommitterEvent) + Send + Sync>;

enum Request {
    Durable(Epoch, Vec<CommitHandle>),
    /// Deliver what is there without waiting for more, then answer.
    Drain(oneshot::Sender<()>),
}

/// The owner's end of a committer. Dropping it ends the task; what is not delivered stays in the log.
#[derive(Debug)]
pub struct CommitterHandle {
    requests: mpsc::UnboundedSender<Request>,
    task: tokio::task::JoinHandle<()>,
}

impl CommitterHandle {
    /// Starts a committer. `restored` is the epoch of the restored checkpoint (zero for a new
    /// sink), `handles` are those that its manifest names.
    pub fn start(
        config: CommitterConfig,
        target: Box<dyn SinkTarget>,
        log: Arc<SinkLog>,
        restored: Epoch,
        handles: Vec<CommitHandle>,
        events: Events,
    ) -> Self {
        let (requests, receiver) = mpsc::unbounded_channel();
        let backoff =
            Backoff::new(Duration::from_millis(100), Duration::from_secs(30), u64::from(config.sink.0));
        let committer = Committer {
            config,
            log,
            events,
            target,
            requests: receiver,
            backoff,
            queue: queue_of(handles),
            since: Instant::now(),
            drains: Vec::new(),
            marker: None,
        };
        Self { requests, task: tokio::spawn(committer.run(restored)) }
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
        matches!(tokio::time::timeout(patience, answer).await, Ok(Ok(())))
    }

    /// Ends the task and waits until it has let go of log and target.
    pub async fn stop(self) {
        self.task.abort();
        // Cancelled, as asked.
        let _ = self.task.await;
    }
}

fn queue_of(mut handles: Vec<CommitHandle>) -> VecDeque<(Epoch, Vec<CommitHandle>)> {
    handles.sort_by_key(|h| (h.epoch, h.actor));
    let mut queue: VecDeque<(Epoch, Vec<CommitHandle>)> = VecDeque::new();
    for handle in handles {
        match queue.back_mut().filter(|(epoch, _)| *epoch == handle.epoch) {
            Some((_, same)) => same.push(handle),
            None => queue.push_back((handle.epoch, vec![handle])),
        }
    }
    queue
}

struct Committer {
    config: CommitterConfig,
    log: Arc<SinkLog>,
    events: Events,

    target: Box<dyn SinkTarget>,
    requests: mpsc::UnboundedReceiver<Request>,
    backoff: Backoff,
    /// Durable epochs that are not in the target, oldest first.
    queue: VecDeque<(Epoch, Vec<CommitHandle>)>,
    /// When the oldest of them came.
    since: Instant,
    drains: Vec<oneshot::Sender<()>>,
    /// What the target holds, as last heard.
    marker: Option<Marker>,
}

impl Committer {
    async fn run(mut self, restored: Epoch) {
        if let Err(reason) = self.open(Some(restored)).await {
            return self.fail(reason);
        }
        info!(sink = %self.config.name, waiting = self.queue.len(), "committer started");
        loop {
            while self.is_due() {
                if let Err(reason) = self.deliver_range().await {
                    return self.fail(reason);
                }
            }
            if self.queue.is_empty() {
                for done in self.drains.drain(..) {
                    // Who no longer waits need not know.
                    let _ = done.send(());
                }
            }
            let request = match self.queue.is_empty() {
                true => self.requests.recv().await,
                false => match tokio::time::timeout_at(self.due_at(), self.requests.recv()).await {
                    Ok(request) => request,
                    Err(_) => continue,
                },
            };
            match request {
                Some(request) => self.take(request),
                None => return,
            }
            while let Ok(request) = self.requests.try_recv() {
                self.take(request);
            }
        }
    }

    fn take(&mut self, request: Request) {
        match request {
            Request::Drain(done) => self.drains.push(done),
            Request::Durable(epoch, handles) => {
                let last = self.queue.back().map(|(epoch, _)| *epoch).max(self.marker.map(|m| m.epoch));
                assert!(last.is_none_or(|last| epoch > last), "epoch {epoch} became durable after {last:?}");
                if self.queue.is_empty() {
                    self.since = Instant::now();
                    if handles.is_empty() {
                        return self.report_committed(epoch);
                    }
                }
                self.queue.push_back((epoch, handles));
            }
        }
    }

    fn due_at(&self) -> Instant {
        self.since + Duration::from_secs(self.config.commit_every as u64)
    }

    fn is_due(&self) -> bool {
        let partial = self.marker.is_some_and(|m| m.partial.is_some());
        let waited = self.queue.len() >= self.config.commit_every || Instant::now() >= self.due_at();
        !self.queue.is_empty() && (waited || partial || !self.drains.is_empty())
    }

    /// Opens the target until it answers, and drops what it holds from the queue. At the start,
    /// with the restored epoch, the target must not be ahead of it.
    async fn open(&mut self, restored: Option<Epoch>) -> Result<(), String> {
        loop {
            match self.target.open().await {
                Ok(marker) => {
                    self.marker = marker;
                    break;
                }
                Err(error) => self.failed(error).await?,
            }
        }
        let Some(marker) = self.marker else { return Ok(()) };
        if let Some(restored) = restored.filter(|restored| marker.epoch > *restored) {
            return Err(format!(
                "the target of sink \"{}\" holds epoch {}, but the restored checkpoint is of epoch {restored}: \
                 rebuild the target, or drop the sink",
                self.config.name, marker.epoch
            ));
        }
        while self.queue.front().is_some_and(|(epoch, _)| *epoch <= marker.epoch) {
            let Some((epoch, handles)) = self.queue.pop_front() else { break };
            debug!(sink = %self.config.name, %epoch, "already in the target");
            self.committed(epoch, &handles);
        }
        Ok(())
    }

    /// Delivers the next range, chunk by chunk, until it is in.
    async fn deliver_range(&mut self) -> Result<(), String> {
        let partial = self.marker.and_then(|m| m.partial);
        let count = match partial {
            Some(partial) => match self.queue.iter().position(|(epoch, _)| *epoch == partial.until) {
                Some(at) => at + 1,
                None => {
                    return Err(format!(
                        "the target of sink \"{}\" holds a part of epoch {}, which no checkpoint names",
                        self.config.name, partial.until
                    ));
                }
            },
            None => self.queue.len().min(RANGE_EPOCHS_MAX),
        };
        let until = self.queue[count - 1].0;
        let handles: Vec<CommitHandle> = self.queue.iter().take(count).flat_map(|(_, h)| h.clone()).collect();
        if !handles.is_empty() && !self.deliver_chunks(until, &handles).await? {
            // The target was opened anew: what it holds may have changed, so decide again.
            return Ok(());
        }
        for _ in 0..count {
            if let Some((epoch, handles)) = self.queue.pop_front() {
                self.release(epoch, &handles);
            }
        }
        self.report_committed(until);
        self.since = Instant::now();
        Ok(())
    }

    /// False: a delivery failed, and the target was opened anew.
    async fn deliver_chunks(&mut self, until: Epoch, handles: &[CommitHandle]) -> Result<bool, String> {
        let config = &self.config;
        let plan = DeliveryPlan::new(&self.log, handles, config.sink_type, &config.key)
            .map_err(|e| e.to_string())?;
        let from = self.marker.map_or(Epoch::ZERO, |m| m.epoch);
        let done = self.marker.and_then(|m| m.partial).map_or(0, |p| p.chunks);
        let mut chunks = delivery::chunks(plan, done);
        let mut next = chunks.recv().await;
        while let Some(chunk) = next {
            let chunk =
                chunk.map_err(|e| format!("could not read the log of sink \"{}\": {e}", self.config.name))?;
            next = chunks.recv().await;
            let partial = Partial { until, chunks: chunk.number + 1 };
            let marker = Marker {
                generation: self.config.generation,
                epoch: if chunk.last { until } else { from },
                partial: (!chunk.last).then_some(partial),
            };
            let delivery = Delivery { until, chunk: chunk.number, marker, batches: chunk.batches };
            match self.target.deliver(delivery).await {
                Ok(()) => {
                    self.marker = Some(marker);
                    self.backoff.reset();
                }
                Err(error) => {
                    self.failed(error).await?;
                    self.open(None).await?;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Waits after a failure that may pass; passes on one that never will.
    async fn failed(&mut self, error: SinkError) -> Result<(), String> {
        match error {
            SinkError::Fatal(reason) => Err(reason),
            SinkError::Retry(reason) => {
                let wait = self.backoff.wait();
                warn!(sink = %self.config.name, reason, ?wait, "could not deliver");
                (self.events)(CommitterEvent::Retrying { sink: self.config.sink, reason });
                tokio::time::sleep(wait).await;
                Ok(())
            }
        }
    }

    fn release(&self, epoch: Epoch, handles: &[CommitHandle]) {
        if let Err(error) = self.log.committed(handles) {
            warn!(sink = %self.config.name, %epoch, %error, "could not clean the sink log");
        }
    }

    fn committed(&self, epoch: Epoch, handles: &[CommitHandle]) {
        self.release(epoch, handles);
        self.report_committed(epoch);
    }

    fn report_committed(&self, epoch: Epoch) {
        (self.events)(CommitterEvent::Committed { sink: self.config.sink, epoch });
    }

    fn fail(self, reason: String) {
        error!(sink = %self.config.name, reason, "sink failed");
        (self.events)(CommitterEvent::Failed { sink: self.config.sink, reason });
    }
}

#[cfg(test)]
#[path = "tests/committer.rs"]
mod tests;
