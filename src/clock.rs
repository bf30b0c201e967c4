//! What time it is, and waiting until later. All of the engine asks here, so that a simulation can
//! give it a time of its own.
//!
//! [`now_us`] is the machine's clock, which somebody may set forward or back: for what is shown,
//! stored or compared with times in data. [`monotonic`] only goes on: for how long something takes, and
//! when it is due.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Microseconds since 1970, by the machine's clock.
pub fn now_us() -> i64 {
    #[cfg(test)]
    if let Some(now_us) = testing::now_us() {
        return now_us;
    }
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as i64)
}

/// Time since some moment in this process's life.
pub fn monotonic() -> Duration {
    #[cfg(test)]
    if let Some(now) = testing::monotonic() {
        return now;
    }
    BEGAN.elapsed()
}

/// [`monotonic`] in microseconds, counted from long before the process began: for when something is due.
pub fn steady_us() -> i64 {
    const BEFORE_US: i64 = 3_600_000_000;
    BEFORE_US + monotonic().as_micros() as i64
}

/// Returns after `duration`.
pub async fn sleep(duration: Duration) {
    sleep_until(monotonic() + duration).await;
}

/// Returns when [`monotonic`] is `until`.
pub async fn sleep_until(until: Duration) {
    #[cfg(test)]
    if testing::monotonic().is_some() {
        return testing::Sleep::until(until).await;
    }
    tokio::time::sleep(until.saturating_sub(monotonic())).await;
}

/// What `work` gives, if that is within `patience`.
pub async fn timeout<T>(patience: Duration, work: impl Future<Output = T>) -> Option<T> {
    timeout_at(monotonic() + patience, work).await
}

/// What `work` gives, if that is before `until`.
pub async fn timeout_at<T>(until: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = sleep_until(until) => None,
    }
}

#[cfg(test)]
#[path = "tests/clock.rs"]
pub mod testing;
