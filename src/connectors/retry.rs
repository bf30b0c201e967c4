//! Backoff: how long to wait before trying again what the outside world refused.

use std::time::Duration;

/// Waits that double up to a bound, with jitter, and start over after a success.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,

    failures: u32,
    random: u64,
}

impl Backoff {
    /// `first` after the first failure, doubling up to `longest`. `seed` drives the jitter.
    pub fn new(first: Duration, longest: Duration, seed: u64) -> Self {
        Self { first, longest, failures: 0, random: seed | 1 }
    }

    /// How long to wait after one more failure: between half of the nominal wait and all of it, so
    /// that many sinks of one target don't come back at once.
    pub fn wait(&mut self) -> Duration {
        let nominal = self.first.saturating_mul(1u32 << self.failures.min(20)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        // xorshift64
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        nominal.mul_f64(0.5 + 0.5 * (self.random >> 11) as f64 / (1u64 << 53) as f64)
    }

    /// It worked.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Failures since the last success.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_bound_and_start_over() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(100), ms(1000), 42);
        for nominal in [100, 200, 400, 800, 1000, 1000] {
            let wait = backoff.wait();
            assert!(wait >= ms(nominal / 2) && wait <= ms(nominal), "{wait:?} for {nominal}");
        }
        backoff.reset();
        assert!(backoff.wait() <= ms(100));
        assert_eq!(backoff.failures(), 1);
    }
}
