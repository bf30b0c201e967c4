//! Whether, and how soon, a failed dataflow starts again: a pure decision over its failures.
//!
//! ```text
//!   failure ──> allowed ──> Again(pause)        the dataflow starts from its last checkpoint
//!          └──> too many ─> GiveUp              degraded: SQL answers, jobs can be dropped
//! ```
//! The strategies and their names are Flink's. **Invariant:** after [`Verdict::GiveUp`] nothing
//! starts by itself until [`Failures::forgive`].

use crate::config::{RestartSettings, RestartStrategy};
use std::collections::VecDeque;
use std::time::Duration;

/// What to do after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Start again after this pause.
    Again(Duration),
    /// Leave it: it failed too often.
    GiveUp,
}

/// What is remembered of the failures so far.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    /// In a row, that is, without a quiet period of `restart.reset_after` between them.
    streak: u32,
    /// When the last few happened, oldest first, microseconds.
    times_us: VecDeque<i64>,
}

impl Failures {
    /// Counts a failure at `now_us` and decides.
    pub fn failed(&mut self, settings: &RestartSettings, now_us: i64) -> Verdict {
        let quiet_us = micros(settings.reset_after);
        if self.times_us.back().is_some_and(|last| now_us - last > quiet_us) {
            self.streak = 0;
        }
        self.streak = self.streak.saturating_add(1);
        self.times_us.push_back(now_us);
        let window_us = match settings.strategy {
            RestartStrategy::FailureRate => micros(settings.failure_rate_interval),
            _ => quiet_us,
        };
        while self.times_us.front().is_some_and(|first| now_us - first > window_us) {
            self.times_us.pop_front();
        }
        let counted = match settings.strategy {
            RestartStrategy::FailureRate => u32::try_from(self.times_us.len()).unwrap_or(u32::MAX),
            _ => self.streak,
        };
        if settings.attempts > 0 && counted > settings.attempts {
            return Verdict::GiveUp;
        }
        Verdict::Again(self.pause(settings))
    }

    /// Somebody changed something, or asked for it: what failed before is no longer held against it.
    pub fn forgive(&mut self) {
        *self = Self::default();
    }

    fn pause(&self, settings: &RestartSettings) -> Duration {
        match settings.strategy {
            RestartStrategy::ExponentialDelay => {
                let doubled = settings.delay.saturating_mul(1 << (self.streak - 1).min(30));
                doubled.min(settings.max_delay.max(settings.delay))
            }
            RestartStrategy::FixedDelay | RestartStrategy::FailureRate => settings.delay,
        }
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(strategy: RestartStrategy) -> RestartSettings {
        RestartSettings {
            strategy,
            delay: Duration::from_millis(100),
            max_delay: Duration::from_millis(500),
            reset_after: Duration::from_secs(60),
            attempts: 4,
            failure_rate_interval: Duration::from_secs(10),
        }
    }

    fn again(ms: u64) -> Verdict {
        Verdict::Again(Duration::from_millis(ms))
    }

    #[test]
    fn the_exponential_pause_doubles_up_to_its_cap_and_then_gives_up() {
        let (mut failures, settings) = (Failures::default(), settings(RestartStrategy::ExponentialDelay));
        let verdicts: Vec<_> = (0..5).map(|i| failures.failed(&settings, i * 1_000_000)).collect();
        assert_eq!(verdicts, [again(100), again(200), again(400), again(500), Verdict::GiveUp]);
        failures.forgive();
        assert_eq!(failures.failed(&settings, 5_000_000), again(100));
    }

    #[test]
    fn a_quiet_period_starts_the_count_anew() {
        let (mut failures, settings) = (Failures::default(), settings(RestartStrategy::ExponentialDelay));
        for i in 0..50 {
            assert_eq!(failures.failed(&settings, i * 61_000_000), again(100), "failure {i}");
        }
    }

    #[test]
    fn the_fixed_pause_stays() {
        let (mut failures, settings) = (Failures::default(), settings(RestartStrategy::FixedDelay));
        let verdicts: Vec<_> = (0..5).map(|i| failures.failed(&settings, i)).collect();
        assert_eq!(verdicts, [again(100), again(100), again(100), again(100), Verdict::GiveUp]);
    }

    #[test]
    fn the_failure_rate_counts_what_lies_within_its_interval() {
        let (mut failures, settings) = (Failures::default(), settings(RestartStrategy::FailureRate));
        for i in 0..20 {
            assert_eq!(
                failures.failed(&settings, i * 3_000_000),
                again(100),
                "four in ten seconds are allowed"
            );
        }
        let burst: Vec<_> = (0..2).map(|i| failures.failed(&settings, 58_000_000 + i)).collect();
        assert_eq!(burst, [Verdict::GiveUp, Verdict::GiveUp]);
    }

    #[test]
    fn without_a_cap_it_never_gives_up() {
        let unlimited = RestartSettings { attempts: 0, ..settings(RestartStrategy::FixedDelay) };
        let mut failures = Failures::default();
        assert!((0..10_000).all(|i| failures.failed(&unlimited, i) == again(100)));
    }
}
