//! When a statement has to stop: CancelRequest, `statement_timeout`, a client that went away, a
//! server that goes down.

use super::SessionError;
use parking_lot::Mutex;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// How long a client waits at most until what its stopped statement had begun is undone; it is in any case.
const UNDO_PATIENCE: Duration = Duration::from_secs(10);

/// Why a statement is stopped from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// CancelRequest.
    User,
    /// The client closed its connection.
    Gone,
    /// The server shuts down.
    Shutdown,
}

/// Where a connection's running statement can be stopped by others.
#[derive(Debug, Default)]
pub struct CancelSlot {
    running: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    token: CancellationToken,
    stop: Option<Stop>,
}

impl CancelSlot {
    /// Stops the running statement, if there is one. Only [`Stop::User`] leaves the next ones alone.
    pub fn stop(&self, why: Stop) {
        let mut running = self.running.lock();
        if running.stop.is_none_or(|stop| stop == Stop::User) {
            running.stop = Some(why);
        }
        running.token.cancel();
    }

    /// A statement starts: an earlier CancelRequest was not for it.
    fn start(&self) -> CancellationToken {
        let mut running = self.running.lock();
        if running.stop == Some(Stop::User) || running.stop.is_none() {
            *running = Running::default();
        }
        running.token.clone()
    }

    fn why(&self) -> Option<Stop> {
        self.running.lock().stop
    }
}

/// The limits of one running statement.
#[derive(Clone, Debug)]
pub struct Limits {
    slot: Arc<CancelSlot>,
    token: CancellationToken,
    deadline: Option<Instant>,
}

impl Limits {
    /// For a statement that starts now.
    pub fn start(slot: &Arc<CancelSlot>, timeout: Option<Duration>) -> Self {
        Self {
            slot: Arc::clone(slot),
            token: slot.start(),
            deadline: timeout.map(|timeout| Instant::now() + timeout),
        }
    }

    /// Is cancelled when the statement is to stop.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Does `work`, and drops it where the statement has to stop.
    pub async fn run<T, E: Into<SessionError>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, SessionError> {
        tokio::select! {
            biased;
            stopped = self.stopped() => Err(stopped),
            done = work => done.map_err(|error| self.explain(error.into())),
        }
    }

    /// Does work that undoes what it has begun when its token is cancelled. Where the statement has to stop it is,
    /// and the client is told when that is done: its next statement finds nothing of it.
    pub async fn run_undoing<T, E, W>(
        &self,
        work: impl FnOnce(CancellationToken) -> W,
    ) -> Result<T, SessionError>
    where
        E: Into<SessionError>,
        W: Future<Output = Result<T, E>>,
    {
        let cancel = CancellationToken::new();
        let mut working = std::pin::pin!(work(cancel.clone()));
        let stopped = tokio::select! {
            biased;
            stopped = self.stopped() => stopped,
            done = &mut working => return done.map_err(|error| self.explain(error.into())),
        };
        cancel.cancel();
        match tokio::time::timeout(UNDO_PATIENCE, working).await {
            // It was done already.
            Ok(Ok(done)) => Ok(done),
            Ok(Err(_)) | Err(_) => Err(stopped),
        }
    }

    /// Returns when the statement has to stop.
    pub async fn stopped(&self) -> SessionError {
        let timeout = async {
            match self.deadline {
                Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.token.cancelled() => self.reason(),
            () = timeout => SessionError::timed_out(),
        }
    }

    /// What others report as cancelled is told by why it was.
    fn explain(&self, error: SessionError) -> SessionError {
        let cancelled = error.fault().state == weir_catalog::SqlState::QUERY_CANCELED;
        if cancelled && self.token.is_cancelled() { self.reason() } else { error }
    }

    fn reason(&self) -> SessionError {
        match self.slot.why() {
            Some(Stop::Shutdown) => SessionError::shutdown(),
            Some(Stop::Gone | Stop::User) | None => SessionError::canceled(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_catalog::SqlState;

    async fn never() -> Result<(), SessionError> {
        std::future::pending().await
    }

    #[tokio::test]
    async fn a_statement_stops_for_the_user_and_the_next_one_runs() {
        let slot = Arc::new(CancelSlot::default());
        let limits = Limits::start(&slot, None);
        slot.stop(Stop::User);
        let error = limits.run(never()).await.unwrap_err();
        assert_eq!(error.to_string(), "canceling statement due to user request");
        let next = Limits::start(&slot, None);
        next.run(async { Ok::<_, SessionError>(()) }).await.unwrap();
    }

    #[tokio::test]
    async fn a_shutdown_stops_all_that_follow() {
        let slot = Arc::new(CancelSlot::default());
        slot.stop(Stop::Shutdown);
        slot.stop(Stop::User);
        let error = Limits::start(&slot, None).run(never()).await.unwrap_err();
        assert_eq!(error.fault().state, SqlState::ADMIN_SHUTDOWN);
    }

    #[tokio::test]
    async fn time_runs_out() {
        let slot = Arc::new(CancelSlot::default());
        let limits = Limits::start(&slot, Some(Duration::from_millis(1)));
        let error = limits.run(never()).await.unwrap_err();
        assert_eq!(error.to_string(), "canceling statement due to statement timeout");
        assert_eq!(error.fault().state, SqlState::QUERY_CANCELED);
    }
}
