//! Committer: delivers a sink's durable epochs to its target, in order, outside the dataflow.
//!
//! ```text
//!   checkpoint durable ── durable(epoch, handles) ──> queue ──> range of epochs ──> chunks ──> deliver
//!                                                       ▲                             │ fails: wait, open, again
//!                                                       └─ later manifests name it    └─ all in: Committed(epoch)
//! ```
//! It takes durable epochs only, all handles of one together, in order. A range is cut into chunks
//! the same way each time, so that one of which a crash let some chunks through is gone on with.
//!
//! ```text
//!   delivering ──┬─ may pass (Retrying): again soon ────────────────────────────┬──> delivering
//!                ├─ the target refuses it (Stopped): again, rarely, or on resume ┤
//!                └─ never by itself (Failed): on resume ────────────────────────┘
//! ```
//! Whatever fails, what is not delivered stays in the log, in order; nobody else waits for it.

use super::delivery::{self, DeliveryPlan};
use super::retry::Backoff;
use super::sink::{Delivery, Marker, Partial, SinkError, SinkTarget};
use super::sink_log::SinkLog;
use crate::checkpoint::participant::CommitHandle;
use crate::stream::Epoch;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};
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
    resume: Arc<Notify>,
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
        let seed = u64::from(config.sink.0);
        let resume = Arc::<Notify>::default();
        let committer = Committer {
            config,
            log,
            events,
            resume: Arc::clone(&resume),
            target,
            requests: receiver,
            backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(30), seed),
            refusals: Backoff::new(Duration::from_secs(1), Duration::from_secs(60), seed),
            restored: Some(restored),
            queue: queue_of(handles),
            since: Instant::now(),
            drains: Vec::new(),
            marker: None,
            failing: false,
        };
        Self { requests, resume, task: tokio::spawn(committer.run()) }
    }

    /// Somebody has mended what a delivery failed of: it is tried again at once.
    pub fn resume(&self) {
        self.resume.notify_one();
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
    resume: Arc<Notify>,

    target: Box<dyn SinkTarget>,
    requests: mpsc::UnboundedReceiver<Request>,
    /// Pauses after what may pass.
    backoff: Backoff,
    /// Pauses after what the target refused.
    refusals: Backoff,
    /// The epoch of the restored checkpoint, until the target was opened.
    restored: Option<Epoch>,
    /// Durable epochs that are not in the target, oldest first.
    queue: VecDeque<(Epoch, Vec<CommitHandle>)>,
    /// When the oldest of them came.
    since: Instant,
    drains: Vec<oneshot::Sender<()>>,
    /// What the target holds, as last heard.
    marker: Option<Marker>,
    /// Whether the last attempt failed.
    failing: bool,
}

/// Why a committer does not go on by itself.
enum End {
    /// Its owner has gone.
    Gone,
    /// It can't, for this reason.
    Failed(String),
}

impl From<String> for End {
    fn from(reason: String) -> Self {
        End::Failed(reason)
    }
}

impl Committer {
    async fn run(mut self) {
        while let Err(End::Failed(reason)) = self.work().await {
            error!(sink = %self.config.name, reason, "sink failed");
            self.failing = true;
            (self.events)(CommitterEvent::Failed { sink: self.config.sink, reason });
            if self.wait(None).await.is_err() {
                return;
            }
        }
    }

    /// Opens the target and delivers, until that can't go on.
    async fn work(&mut self) -> Result<(), End> {
        self.open().await?;
        info!(sink = %self.config.name, waiting = self.queue.len(), "committer started");
        loop {
            while self.is_due() {
                self.deliver_range().await?;
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
                None => return Ok(()),
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

    /// Opens the target until it answers, and drops what it holds from the queue. The first time the
    /// target must not be ahead of the restored epoch.
    async fn open(&mut self) -> Result<(), End> {
        loop {
            match self.target.open().await {
                Ok(marker) => {
                    self.marker = marker;
                    break;
                }
                Err(error) => self.failed(error).await?,
            }
        }
        let held = self.marker.map_or(Epoch::ZERO, |marker| marker.epoch);
        if let Some(restored) = self.restored.filter(|restored| held > *restored) {
            let name = &self.config.name;
            return Err(End::Failed(format!(
                "the target of sink \"{name}\" holds epoch {held}, but the restored checkpoint is of epoch \
                 {restored}: rebuild it (ALTER SINK … REBUILD), or drop the sink"
            )));
        }
        self.restored = None;
        let Some(marker) = self.marker else {
            self.recovered();
            return Ok(());
        };
        while self.queue.front().is_some_and(|(epoch, _)| *epoch <= marker.epoch) {
            let Some((epoch, handles)) = self.queue.pop_front() else { break };
            debug!(sink = %self.config.name, %epoch, "already in the target");
            self.committed(epoch, &handles);
        }
        self.recovered();
        Ok(())
    }

    /// The target answers. What waits for it tells by itself whether it goes in.
    fn recovered(&mut self) {
        if self.failing && self.queue.is_empty() {
            self.failing = false;
            (self.events)(CommitterEvent::Recovered { sink: self.config.sink });
        }
    }

    /// Delivers the next range, chunk by chunk, until it is in.
    async fn deliver_range(&mut self) -> Result<(), End> {
        let partial = self.marker.and_then(|m| m.partial);
        let count = match partial {
            Some(partial) => match self.queue.iter().position(|(epoch, _)| *epoch == partial.until) {
                Some(at) => at + 1,
                None => {
                    return Err(End::Failed(format!(
                        "the target of sink \"{}\" holds a part of epoch {}, which no checkpoint names",
                        self.config.name, partial.until
                    )));
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
        self.failing = false;
        self.report_committed(until);
        self.since = Instant::now();
        Ok(())
    }

    /// False: a delivery failed, and the target was opened anew.
    async fn deliver_chunks(&mut self, until: Epoch, handles: &[CommitHandle]) -> Result<bool, End> {
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
                    self.refusals.reset();
                }
                Err(error) => {
                    self.failed(error).await?;
                    self.open().await?;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Tells of a failure and waits before the next attempt; passes on one that needs no more.
    async fn failed(&mut self, error: SinkError) -> Result<(), End> {
        let sink = self.config.sink;
        self.failing = true;
        match error {
            SinkError::Fatal(reason) => Err(End::Failed(reason)),
            SinkError::Retry(reason) => {
                let wait = self.backoff.wait();
                warn!(sink = %self.config.name, reason, ?wait, "could not deliver");
                (self.events)(CommitterEvent::Retrying { sink, reason });
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = self.resume.notified() => self.backoff.reset(),
                }
                Ok(())
            }
            SinkError::Refused(reason) => {
                let wait = self.refusals.wait();
                error!(sink = %self.config.name, reason, ?wait, "the target refuses what it is given");
                (self.events)(CommitterEvent::Stopped { sink, reason });
                self.wait(Some(Instant::now() + wait)).await
            }
        }
    }

    /// Takes note of what becomes durable until it is time, or somebody resumes the sink. Who wants
    /// everything delivered at once is told that it is not.
    async fn wait(&mut self, until: Option<Instant>) -> Result<(), End> {
        self.drains.clear();
        loop {
            let time = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = time => return Ok(()),
                () = self.resume.notified() => {
                    self.backoff.reset();
                    self.refusals.reset();
                    return Ok(());
                }
                request = self.requests.recv() => match request {
                    Some(Request::Drain(done)) => drop(done),
                    Some(request) => self.take(request),
                    None => return Err(End::Gone),
                },
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
}

#[cfg(test)]
#[path = "tests/committer.rs"]
mod tests;
