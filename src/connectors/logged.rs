//! The logged style: delivers a sink's durable epochs to its target, in order.
//!
//! ```text
//!   checkpoint durable ── durable(epoch, handles) ──> queue ──> range of epochs ──> chunks ──> deliver
//!                                                       ▲                             │ fails: wait, open, again
//!                                                       └─ later manifests name it    └─ all in: Committed(epoch)
//! ```
//! It takes durable epochs only, all handles of one together, in order. A range is cut into chunks
//! the same way each time, so that one of which a crash let some chunks through is gone on with.

use super::delivery::{self, DeliveryPlan};
use super::desk::{Desk, End, Request};
use super::sink::{Delivery, Marker, Partial, SinkError, SinkTarget};
use crate::checkpoint::participant::CommitHandle;
use crate::clock;
use crate::stream::Epoch;
use std::collections::VecDeque;
use std::time::Duration;
use tracing::{debug, info};
use weir_catalog::system::facts::TransactionState;

/// Epochs that are delivered as one range at most.
const RANGE_EPOCHS_MAX: usize = 1024;

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

/// A committer in the logged style.
pub(super) struct LoggedCommitter {
    desk: Desk,
    target: Box<dyn SinkTarget>,

    /// Durable epochs that are not in the target, oldest first.
    queue: VecDeque<(Epoch, Vec<CommitHandle>)>,
    /// When the oldest of them came, by [`clock::monotonic`].
    since: Duration,
    /// What the target holds, as last heard.
    marker: Option<Marker>,
}

impl LoggedCommitter {
    pub(super) fn new(desk: Desk, target: Box<dyn SinkTarget>, handles: Vec<CommitHandle>) -> Self {
        Self { desk, target, queue: queue_of(handles), since: clock::monotonic(), marker: None }
    }

    pub(super) async fn run(mut self) {
        while let Err(End::Failed(reason)) = self.work().await {
            if self.desk.given_up(reason).await.is_err() {
                return;
            }
        }
    }

    /// Opens the target and delivers, until that can't go on.
    async fn work(&mut self) -> Result<(), End> {
        self.open().await?;
        info!(sink = %self.desk.config.name, waiting = self.queue.len(), "committer started");
        loop {
            self.desk.arrived().into_iter().for_each(|request| self.take(request));
            while self.is_due() {
                self.deliver_range().await?;
            }
            if self.queue.is_empty() {
                self.desk.drained();
            }
            let until = (!self.queue.is_empty()).then(|| self.due_at());
            let requests = self.desk.receive(until).await?;
            requests.into_iter().for_each(|request| self.take(request));
        }
    }

    fn take(&mut self, request: Request) {
        // What is sealed is of no use before it is durable; who waits for a drain waits at the desk.
        let Request::Durable(epoch, handles) = request else { return };
        let last = self.queue.back().map(|(epoch, _)| *epoch).max(self.marker.map(|m| m.epoch));
        assert!(last.is_none_or(|last| epoch > last), "epoch {epoch} became durable after {last:?}");
        if self.queue.is_empty() {
            self.since = clock::monotonic();
            if handles.is_empty() {
                return self.desk.report_committed(epoch);
            }
        }
        self.queue.push_back((epoch, handles));
    }

    fn due_at(&self) -> Duration {
        self.since + Duration::from_secs(self.desk.config.commit_every as u64)
    }

    fn is_due(&self) -> bool {
        let partial = self.marker.is_some_and(|m| m.partial.is_some());
        let waited = self.queue.len() >= self.desk.config.commit_every || clock::monotonic() >= self.due_at();
        !self.queue.is_empty() && (waited || partial || self.desk.is_draining())
    }

    /// Opens the target until it answers, and drops what it holds from the queue. The first time the
    /// target must not be ahead of the restored epoch.
    async fn open(&mut self) -> Result<(), End> {
        while let Err(error) = self.try_open().await {
            self.desk.failed(error).await?;
        }
        let marker = self.marker;
        while let Some(marker) = marker
            && self.queue.front().is_some_and(|(epoch, _)| *epoch <= marker.epoch)
        {
            let Some((epoch, handles)) = self.queue.pop_front() else { break };
            debug!(sink = %self.desk.config.name, %epoch, "already in the target");
            self.desk.release(epoch, &handles);
            self.desk.report_committed(epoch);
        }
        if self.queue.is_empty() {
            self.desk.recovered();
        }
        Ok(())
    }

    async fn try_open(&mut self) -> Result<(), SinkError> {
        self.marker = self.target.open().await?;
        self.desk.report_opened(self.target.degraded());
        let held = self.marker.map_or(Epoch::ZERO, |m| m.partial.map_or(m.epoch, |p| p.until.max(m.epoch)));
        let Some(epoch) = self.desk.check_ahead(held)? else { return Ok(()) };
        // Nothing is delivered but the marker. What is there of later epochs is delivered again.
        let marker = Marker { generation: self.desk.config.generation, epoch, partial: None };
        self.target.deliver(Delivery { until: epoch, chunk: 0, marker, batches: Vec::new() }).await?;
        self.marker = Some(marker);
        self.desk.goes_on(epoch)
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
                        self.desk.config.name, partial.until
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
                self.desk.release(epoch, &handles);
            }
        }
        self.desk.caught_up();
        self.desk.report_committed(until);
        self.since = clock::monotonic();
        Ok(())
    }

    /// False: a delivery failed, and the target was opened anew.
    async fn deliver_chunks(&mut self, until: Epoch, handles: &[CommitHandle]) -> Result<bool, End> {
        let config = &self.desk.config;
        let plan = DeliveryPlan::new(&self.desk.log, handles, config.sink_type, &config.key)
            .map_err(|e| e.to_string())?;
        let from = self.marker.map_or(Epoch::ZERO, |m| m.epoch);
        let done = self.marker.and_then(|m| m.partial).map_or(0, |p| p.chunks);
        let mut chunks = delivery::chunks(plan, done);
        let mut next = chunks.recv().await;
        while let Some(chunk) = next {
            let chunk = chunk
                .map_err(|e| format!("could not read the log of sink \"{}\": {e}", self.desk.config.name))?;
            next = chunks.recv().await;
            let partial = Partial { until, chunks: chunk.number + 1 };
            let marker = Marker {
                generation: self.desk.config.generation,
                epoch: if chunk.last { until } else { from },
                partial: (!chunk.last).then_some(partial),
            };
            let delivery = Delivery { until, chunk: chunk.number, marker, batches: chunk.batches };
            self.note(until, chunk.number, TransactionState::Open);
            match self.target.deliver(delivery).await {
                Ok(()) => {
                    self.note(until, chunk.number, TransactionState::Committed);
                    self.marker = Some(marker);
                    self.desk.holds(marker.epoch);
                    self.desk.succeeded();
                }
                Err(error) => {
                    self.note(until, chunk.number, TransactionState::RolledBack);
                    self.desk.failed(error).await?;
                    self.open().await?;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn note(&self, epoch: Epoch, chunk: u32, state: TransactionState) {
        let mut fact = self.desk.transaction(epoch, state);
        fact.chunk = Some(chunk);
        self.desk.note(fact);
    }
}
