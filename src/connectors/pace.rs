//! Pace: so many events a second, by the worker's clock.

/// How often readers look for what has come due, so that they don't run for an event at a time.
const STEP_US: i64 = 10_000;

/// Numbers that come due at a rate, counted from the first look.
#[derive(Clone, Debug)]
pub struct Pace {
    /// A second; 0: no limit.
    rate: f64,
    /// The first number looked at, and when.
    base: Option<(u64, i64)>,
}

impl Pace {
    /// `rate` a second; 0 is no limit.
    pub fn new(rate: f64) -> Self {
        Self { rate, base: None }
    }

    /// The first number that is not due yet at `now_us`, given that `next` is the next one.
    pub fn limit(&mut self, next: u64, now_us: i64) -> u64 {
        if self.rate <= 0.0 {
            return u64::MAX;
        }
        let (base, start_us) = *self.base.get_or_insert((next, now_us));
        let elapsed_us = (now_us - start_us).max(0) / STEP_US * STEP_US;
        base.saturating_add((elapsed_us as f64 * self.rate / 1e6) as u64)
    }

    /// When `number` comes due.
    pub fn due_us(&self, number: u64) -> i64 {
        let Some((base, start_us)) = self.base.filter(|_| self.rate > 0.0) else { return 0 };
        let after_us = (number.saturating_sub(base).saturating_add(1) as f64 * 1e6 / self.rate).ceil() as i64;
        start_us.saturating_add(after_us.saturating_add(STEP_US - 1) / STEP_US * STEP_US)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_due_at_the_rate() {
        let mut pace = Pace::new(1000.0);
        assert_eq!(pace.limit(500, 7_000_000), 500);
        assert_eq!(pace.due_us(500), 7_010_000);
        assert_eq!(pace.limit(500, 7_009_999), 500);
        assert_eq!(pace.limit(500, 7_010_000), 510);
        assert_eq!(pace.limit(510, 8_000_000), 1500);
        // A clock that goes back takes nothing back that was read.
        assert_eq!(pace.limit(1500, 6_000_000), 500);
    }

    #[test]
    fn what_is_due_is_within_the_limit_then() {
        let mut pace = Pace::new(3.0);
        pace.limit(0, 0);
        for number in 0..1000 {
            let due = pace.due_us(number);
            assert!(pace.limit(0, due) > number, "{number} is due at {due}");
        }
    }

    #[test]
    fn without_a_rate_all_is_due() {
        assert_eq!(Pace::new(0.0).limit(5, 1), u64::MAX);
    }
}
