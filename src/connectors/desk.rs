//! Desk: what a committer is told, whom it tells, and how it treats a target that fails.
//!
//! ```text
//!   delivering ──┬─ may pass (Retrying): again soon ────────────────────────────┬──> delivering
//!                ├─ the target refuses it (Stopped): again, rarely, or on resume ┤
//!                └─ never by itself (Failed): on resume ────────────────────────┘
//! ```
//! Whatever fails, what is not delivered stays in the log, in order; nobody else waits for it.

use super::committer::{CommitterConfig, CommitterEvent, Events};
use super::retry::Backoff;
use super::sink::SinkError;
use super::sink_log::SinkLog;
use crate::checkpoint::ahead::Ahead;
use crate::checkpoint::participant::CommitHandle;
use crate::clock;
use crate::stream::Epoch;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};
use tracing::{error, warn};
use weir_catalog::system::facts::{TransactionFact, TransactionState};

/// What the owner asks for.
#[derive(Debug)]
pub(super) enum Request {
    /// An epoch of which all handles are there.
    Sealed(Epoch, Vec<CommitHandle>),
    /// An epoch whose checkpoint, or a later one, is durable.
    Durable(Epoch, Vec<CommitHandle>),
    /// Deliver what is there without waiting for more, then answer.
    Drain(oneshot::Sender<()>),
}

/// By which somebody says that what failed is mended.
#[derive(Debug, Default)]
pub(super) struct Resume {
    notify: Notify,
    at_least_once: AtomicBool,
}

impl Resume {
    pub(super) fn call(&self, at_least_once: bool) {
        if at_least_once {
            self.at_least_once.store(true, Ordering::Release);
        }
        self.notify.notify_one();
    }
}

/// Why a committer does not go on by itself.
pub(super) enum End {
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

/// A committer's desk.
pub(super) struct Desk {
    pub(super) config: CommitterConfig,
    pub(super) log: Arc<SinkLog>,
    events: Events,
    resume: Arc<Resume>,

    requests: mpsc::UnboundedReceiver<Request>,
    /// Heard while it waited for something else.
    heard: VecDeque<Request>,
    /// Pauses after what may pass.
    backoff: Backoff,
    /// Pauses after what the target refused.
    refusals: Backoff,
    /// Whether the target was opened, and holds nothing that it must not.
    opened: bool,
    /// Whether somebody chose to live with what it holds.
    accepted: bool,
    drains: Vec<oneshot::Sender<()>>,
    /// Whether the last attempt failed.
    failing: bool,
}

impl Desk {
    pub(super) fn new(
        config: CommitterConfig,
        log: Arc<SinkLog>,
        events: Events,
        resume: Arc<Resume>,
        requests: mpsc::UnboundedReceiver<Request>,
        restored: Epoch,
    ) -> Self {
        let seed = u64::from(config.sink.0);
        log.unopened().must_not_hold(&Ahead::of(restored), config.began);
        Self {
            config,
            log,
            events,
            resume,
            requests,
            heard: VecDeque::new(),
            backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(30), seed),
            refusals: Backoff::new(Duration::from_secs(1), Duration::from_secs(60), seed),
            opened: false,
            accepted: false,
            drains: Vec::new(),
            failing: false,
        }
    }

    /// What has come by now.
    pub(super) fn arrived(&mut self) -> Vec<Request> {
        while let Ok(request) = self.requests.try_recv() {
            self.hear(request);
        }
        self.heard.drain(..).collect()
    }

    /// What comes: at least one, or what there is when [`clock::monotonic`] is `until`.
    pub(super) async fn receive(&mut self, until: Option<Duration>) -> Result<Vec<Request>, End> {
        if self.heard.is_empty() {
            let request = match until {
                None => self.requests.recv().await,
                Some(until) => match clock::timeout_at(until, self.requests.recv()).await {
                    Some(request) => request,
                    None => return Ok(Vec::new()),
                },
            };
            self.hear(request.ok_or(End::Gone)?);
        }
        Ok(self.arrived())
    }

    fn hear(&mut self, request: Request) {
        match request {
            Request::Drain(done) => self.drains.push(done),
            request => self.heard.push_back(request),
        }
    }

    /// Whether somebody waits until everything durable is delivered.
    pub(super) fn is_draining(&self) -> bool {
        !self.drains.is_empty()
    }

    /// Everything durable is delivered.
    pub(super) fn drained(&mut self) {
        for done in self.drains.drain(..) {
            // Who no longer waits need not know.
            let _ = done.send(());
        }
    }

    /// The first time the target must not be ahead of the restored checkpoint, nor of an earlier one if nobody
    /// has looked since. If somebody chose to live with it, the epoch to go on from is returned: what the
    /// target says of later ones is to be lowered to it, and [`Self::goes_on`] to be called.
    pub(super) fn check_ahead(&mut self, held: Epoch) -> Result<Option<Epoch>, SinkError> {
        self.accepted |= self.resume.at_least_once.swap(false, Ordering::AcqRel);
        if self.opened {
            self.accepted = false;
            return Ok(None);
        }
        let ahead = self.log.unopened().ahead().cloned().unwrap_or_default();
        let Some(restored) = ahead.of_target(held) else {
            return self.goes_on(held).map(|()| None);
        };
        let name = &self.config.name;
        if self.accepted {
            warn!(sink = %name, %held, %restored, "goes on at least once: the target is ahead");
            return Ok(Some(restored));
        }
        let lacks = held < ahead.least();
        if !lacks {
            self.log.unopened().found(held);
        }
        let choice = match self.config.rebuilds {
            true => "ALTER SINK … REBUILD empties the target and delivers everything anew",
            false => {
                "drop the sink and create it again with a target of which nothing is there yet, to deliver \
                 everything anew"
            }
        };
        let what = match lacks {
            true => format!(
                "lacks what was delivered up to epoch {}, before the restored checkpoint: it was emptied, or the \
                 sink dropped or rebuilt, since",
                ahead.least()
            ),
            false => format!("holds epoch {held}, but the restored checkpoint is of epoch {restored}"),
        };
        Err(SinkError::Fatal(format!(
            "55000: the target of sink \"{name}\" {what}: {choice}; ALTER SINK … RESUME AT LEAST ONCE goes on and \
             delivers again what came after epoch {restored}; or drop the sink"
        )))
    }

    /// The target holds `epoch`, as far as is known, from now on.
    pub(super) fn holds(&self, epoch: Epoch) {
        self.log.unopened().holds(epoch);
    }

    /// The target, which holds `held`, is not ahead, or not any more.
    pub(super) fn goes_on(&mut self, held: Epoch) -> Result<(), SinkError> {
        let kept = self.log.unopened().opened();
        self.holds(held);
        kept.map_err(|e| SinkError::Retry(format!("could not keep that the target is not ahead: {e}")))?;
        (self.opened, self.accepted) = (true, false);
        Ok(())
    }

    /// The target took something.
    pub(super) fn succeeded(&mut self) {
        self.backoff.reset();
        self.refusals.reset();
    }

    /// All that was to be delivered is: whatever failed before is over.
    pub(super) fn caught_up(&mut self) {
        self.failing = false;
    }

    /// The target answers, and nothing waits for it.
    pub(super) fn recovered(&mut self) {
        if self.failing {
            self.failing = false;
            (self.events)(CommitterEvent::Recovered { sink: self.config.sink });
        }
    }

    /// Tells of a failure and waits before the next attempt; passes on one that needs no more.
    pub(super) async fn failed(&mut self, error: SinkError) -> Result<(), End> {
        let sink = self.config.sink;
        self.failing = true;
        match error {
            SinkError::Fatal(reason) => Err(End::Failed(reason)),
            SinkError::Retry(reason) => {
                let wait = self.backoff.wait();
                warn!(sink = %self.config.name, reason, ?wait, "could not deliver");
                (self.events)(CommitterEvent::Retrying { sink, reason });
                tokio::select! {
                    biased;
                    () = clock::sleep(wait) => {}
                    () = self.resume.notify.notified() => self.backoff.reset(),
                }
                Ok(())
            }
            SinkError::Refused(reason) => {
                let wait = self.refusals.wait();
                error!(sink = %self.config.name, reason, ?wait, "the target refuses what it is given");
                (self.events)(CommitterEvent::Stopped { sink, reason });
                self.wait(Some(clock::monotonic() + wait)).await
            }
        }
    }

    /// It does not go on by itself: waits until somebody resumes it.
    pub(super) async fn given_up(&mut self, reason: String) -> Result<(), End> {
        error!(sink = %self.config.name, reason, "sink failed");
        self.failing = true;
        (self.events)(CommitterEvent::Failed { sink: self.config.sink, reason });
        self.wait(None).await
    }

    /// Takes note of what comes until it is time, or somebody resumes the sink. Who wants everything
    /// delivered at once is told that it is not.
    async fn wait(&mut self, until: Option<Duration>) -> Result<(), End> {
        self.drains.clear();
        loop {
            let time = async {
                match until {
                    Some(until) => clock::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // Who resumes the sink and then asks to drain it is heard in this order.
                biased;
                () = self.resume.notify.notified() => {
                    self.backoff.reset();
                    self.refusals.reset();
                    return Ok(());
                }
                () = time => return Ok(()),
                request = self.requests.recv() => match request {
                    Some(Request::Drain(done)) => drop(done),
                    Some(request) => self.hear(request),
                    None => return Err(End::Gone),
                },
            }
        }
    }

    /// What `handles` promised is delivered: the log need not keep it.
    pub(super) fn release(&self, epoch: Epoch, handles: &[CommitHandle]) {
        if let Err(error) = self.log.committed(handles) {
            warn!(sink = %self.config.name, %epoch, %error, "could not clean the sink log");
        }
    }

    /// Everything up to `epoch` is in the target.
    pub(super) fn report_committed(&self, epoch: Epoch) {
        (self.events)(CommitterEvent::Committed { sink: self.config.sink, epoch });
    }

    /// The target was opened.
    pub(super) fn report_opened(&self, degraded: Option<String>) {
        (self.events)(CommitterEvent::Opened { sink: self.config.sink, degraded });
    }

    /// Something became of a transaction.
    pub(super) fn note(&self, fact: TransactionFact) {
        (self.events)(CommitterEvent::Transaction(fact));
    }

    /// A transaction of this sink.
    pub(super) fn transaction(&self, epoch: Epoch, state: TransactionState) -> TransactionFact {
        TransactionFact {
            sink: self.config.sink,
            name: None,
            state,
            generation: self.config.generation,
            epoch: epoch.0,
            actor: None,
            chunk: None,
            changed_at_us: 0,
            note: None,
        }
    }
}
