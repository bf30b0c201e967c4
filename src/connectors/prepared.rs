//! The prepared style: an epoch is written and prepared in the target while its checkpoint is made, one
//! transaction an actor, and committed once the checkpoint is durable.
//!
//! ```text
//!   sealed(7) ──> begin, write, prepare: actor 0, actor 1, …          the log keeps the rows all the while
//!   durable(7) ──────────────────────────> commit: actor 0, actor 1, … ──> Committed(7)
//!   sealed(8) waits in the log until then ──> begin, …
//! ```
//! Nothing depends on an epoch being prepared in time: one that became durable first is prepared then,
//! and one whose transaction is lost is written again from the log. After a failure what is found in
//! the target is committed, kept or rolled back as [`super::transaction::fate`] says.
//!
//! **Invariant:** only one epoch has transactions at a time, so commits are in epoch order.

use super::delivery::{self, DeliveryPlan};
use super::desk::{Desk, End, Request};
use super::sink::{PreparedHeld, PreparedTarget, SinkError};
use super::transaction::{Fate, TransactionName, fate};
use crate::checkpoint::participant::CommitHandle;
use crate::failpoint;
use crate::stream::Epoch;
use std::collections::BTreeMap;
use tracing::{info, warn};
use weir_catalog::system::facts::TransactionState;

/// What is promised of an epoch and not committed yet.
#[derive(Default)]
struct Promise {
    handles: Vec<CommitHandle>,
    /// Whether a checkpoint that has it is durable.
    durable: bool,
    /// Whether the handles were told: what is not there any more is committed.
    told: bool,
}

/// A committer in the prepared style.
pub(super) struct PreparedCommitter {
    desk: Desk,
    target: Box<dyn PreparedTarget>,

    queue: BTreeMap<Epoch, Promise>,
    /// What is prepared, by actor: of one epoch, mostly the queue's first. An epoch without rows may come
    /// before it, once it is durable.
    prepared: BTreeMap<u32, TransactionName>,
    /// Whether what was in the target at the start is sorted out.
    settled: bool,
    /// The last epoch that is known to be in the target whole.
    committed: Epoch,
}

impl PreparedCommitter {
    pub(super) fn new(desk: Desk, target: Box<dyn PreparedTarget>, handles: Vec<CommitHandle>) -> Self {
        let mut queue: BTreeMap<Epoch, Promise> = BTreeMap::new();
        for handle in handles {
            let promise = queue.entry(handle.epoch).or_default();
            (promise.durable, promise.told) = (true, true);
            promise.handles.push(handle);
        }
        Self { desk, target, queue, prepared: BTreeMap::new(), settled: false, committed: Epoch::ZERO }
    }

    pub(super) async fn run(mut self) {
        while let Err(End::Failed(reason)) = self.work().await {
            if self.desk.given_up(reason).await.is_err() {
                return;
            }
        }
    }

    async fn work(&mut self) -> Result<(), End> {
        self.open().await?;
        info!(sink = %self.desk.config.name, waiting = self.queue.len(), "committer started");
        loop {
            self.hear();
            match self.step().await {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => {
                    self.desk.failed(error).await?;
                    self.open().await?;
                    continue;
                }
            }
            if !self.queue.values().any(|promise| promise.durable) {
                self.desk.drained();
            }
            let requests = self.desk.receive(None).await?;
            requests.into_iter().for_each(|request| self.take(request));
        }
    }

    fn hear(&mut self) {
        self.desk.arrived().into_iter().for_each(|request| self.take(request));
    }

    fn take(&mut self, request: Request) {
        let (epoch, handles, durable) = match request {
            Request::Sealed(epoch, handles) => (epoch, handles, false),
            Request::Durable(epoch, handles) => (epoch, handles, true),
            Request::Drain(_) => return,
        };
        if epoch <= self.committed {
            return;
        }
        if handles.is_empty() && self.queue.is_empty() && durable {
            return self.report(epoch);
        }
        let promise = self.queue.entry(epoch).or_default();
        promise.durable |= durable;
        if !std::mem::replace(&mut promise.told, true) {
            promise.handles = handles;
        }
    }

    fn report(&mut self, epoch: Epoch) {
        self.committed = epoch;
        self.desk.report_committed(epoch);
    }

    /// Opens the target until it answers and what is there is sorted out.
    async fn open(&mut self) -> Result<(), End> {
        loop {
            // What became durable meanwhile is to be committed, not kept.
            self.hear();
            match self.settle().await {
                Ok(()) => break,
                Err(error) => self.desk.failed(error).await?,
            }
        }
        if self.queue.is_empty() {
            self.desk.recovered();
        }
        Ok(())
    }

    /// Commits, keeps or rolls back what is found in the target. The first time it must not be ahead of
    /// the restored checkpoint.
    async fn settle(&mut self) -> Result<(), SinkError> {
        let PreparedHeld { mut epochs, mut transactions } = self.target.open().await?;
        self.desk.report_opened(None);
        let ahead = self.desk.check_ahead(epochs.values().max().copied().unwrap_or(Epoch::ZERO))?;
        self.prepared.clear();
        transactions.sort();
        for name in transactions {
            let given_up = ahead.is_some_and(|restored| name.epoch > restored);
            if given_up && name.generation <= self.desk.config.generation {
                // Of the future that is given up.
                self.finish(&name, false).await?;
                continue;
            }
            let (generation, began) = (self.desk.config.generation, self.desk.config.began);
            // So far this committer has prepared nothing: what bears its names is of a server that had another
            // copy of the data directory, even where an epoch of ours has its number.
            let twins = !self.settled && name.generation == generation && name.epoch > began;
            let fate = match twins {
                true => Fate::RollBack,
                false => fate(&name, generation, began, self.promised(&name, &epochs)),
            };
            match fate {
                Fate::Commit => {
                    self.finish(&name, true).await?;
                    epochs.insert(name.actor, name.epoch);
                }
                Fate::RollBack => {
                    info!(transaction = %name, "a transaction that no checkpoint promises is rolled back");
                    self.finish(&name, false).await?;
                }
                Fate::Keep if self.first_with_rows() == Some(name.epoch) => {
                    self.note(&name, TransactionState::Prepared);
                    self.prepared.insert(name.actor, name);
                }
                Fate::Keep => {
                    warn!(transaction = %name, "a transaction of this server that nobody waits for");
                }
                Fate::Stranger => {
                    return Err(SinkError::Fatal(format!(
                        "transaction \"{name}\" is of a newer generation than {generation}"
                    )));
                }
            }
        }
        self.target.take_over().await?;
        if let Some(restored) = ahead {
            self.target.lower(restored).await?;
            epochs.values_mut().for_each(|epoch| *epoch = restored.min(*epoch));
            self.desk.goes_on(restored)?;
        }
        let held = |handle: &CommitHandle| epochs.get(&handle.actor).is_some_and(|e| *e >= handle.epoch);
        for (epoch, promise) in &mut self.queue {
            let done: Vec<CommitHandle> = promise.handles.extract_if(.., |h| held(h)).collect();
            self.desk.release(*epoch, &done);
        }
        self.settled = true;
        Ok(())
    }

    /// Whether somebody waits for a transaction, and whether its checkpoint is durable.
    fn promised(&self, name: &TransactionName, epochs: &BTreeMap<u32, Epoch>) -> Option<bool> {
        let committed = epochs.get(&name.actor).is_some_and(|epoch| *epoch >= name.epoch);
        let promise = self.queue.get(&name.epoch).filter(|_| !committed)?;
        promise.handles.iter().any(|h| h.actor == name.actor).then_some(promise.durable)
    }

    /// The first epoch of the queue that has rows for the target.
    fn first_with_rows(&self) -> Option<Epoch> {
        self.queue.iter().find(|(_, promise)| !promise.handles.is_empty()).map(|(epoch, _)| *epoch)
    }

    /// Does what is next; false: there is nothing to do.
    async fn step(&mut self) -> Result<bool, SinkError> {
        let Some((epoch, promise)) = self.queue.first_key_value() else { return Ok(false) };
        let (epoch, durable) = (*epoch, promise.durable);
        if durable && promise.handles.is_empty() && self.prepared.values().any(|name| name.epoch != epoch) {
            // What is prepared is of a later one, and waits for its own checkpoint.
            self.queue.remove(&epoch);
            self.report(epoch);
            return Ok(true);
        }
        let open = promise.handles.iter().find(|h| !self.prepared.contains_key(&h.actor)).cloned();
        if let Some(handle) = open {
            self.prepare(&handle).await?;
            return Ok(true);
        }
        if !durable {
            return Ok(false);
        }
        while let Some((actor, name)) = self.prepared.first_key_value().map(|(a, n)| (*a, n.clone())) {
            self.finish(&name, true).await?;
            self.prepared.remove(&actor);
            let promise = self.queue.entry(epoch).or_default();
            let done: Vec<CommitHandle> = promise.handles.extract_if(.., |h| h.actor == actor).collect();
            self.desk.release(epoch, &done);
        }
        self.queue.remove(&epoch);
        self.desk.caught_up();
        self.report(epoch);
        Ok(true)
    }

    /// Writes what one actor promised, and prepares it.
    async fn prepare(&mut self, handle: &CommitHandle) -> Result<(), SinkError> {
        let config = &self.desk.config;
        let name = TransactionName {
            database: config.database.clone(),
            sink: config.sink,
            epoch: handle.epoch,
            actor: handle.actor,
            generation: config.generation,
        };
        let unread = |e| SinkError::Fatal(format!("could not read the log of sink \"{}\": {e}", config.name));
        let handles = std::slice::from_ref(handle);
        let plan = DeliveryPlan::new(&self.desk.log, handles, config.sink_type, &config.key);
        let mut chunks = delivery::chunks(plan.map_err(unread)?, 0);
        self.note(&name, TransactionState::Open);
        self.target.begin(&name).await?;
        while let Some(chunk) = chunks.recv().await {
            self.target.write(&chunk.map_err(unread)?.batches).await?;
        }
        hit("two_phase.before_prepare")?;
        self.target.prepare(&name).await?;
        hit("two_phase.after_prepare")?;
        self.note(&name, TransactionState::Prepared);
        self.prepared.insert(handle.actor, name);
        self.desk.succeeded();
        Ok(())
    }

    async fn finish(&mut self, name: &TransactionName, commit: bool) -> Result<(), SinkError> {
        if commit {
            hit("two_phase.before_commit")?;
        }
        self.target.finish(name, commit).await?;
        if commit {
            hit("two_phase.after_commit")?;
            self.desk.holds(name.epoch);
            self.desk.succeeded();
        }
        self.note(name, if commit { TransactionState::Committed } else { TransactionState::RolledBack });
        Ok(())
    }

    fn note(&self, name: &TransactionName, state: TransactionState) {
        let mut fact = self.desk.transaction(name.epoch, state);
        fact.name = Some(name.to_string());
        fact.generation = name.generation;
        fact.actor = Some(name.actor);
        self.desk.note(fact);
    }
}

fn hit(point: &str) -> Result<(), SinkError> {
    failpoint::hit(point).map_err(|e| SinkError::Retry(e.to_string()))
}

#[cfg(test)]
#[path = "tests/prepared.rs"]
mod tests;
