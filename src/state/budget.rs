//! One memory budget for the process.
//!
//! What counts is what the process holds in memory by itself, as the kernel sees it: operators,
//! channels, sealed runs, RocksDB's memtables and cache, queries, clients; not files that are mapped.
//!
//! ```text
//!   of the limit   5/10   after an eviction operators are completed anew only below this
//!                  6/10   up to here what is freed stays with the process, for what comes
//!                  7/10   up to here operators take up what they lack after a restart
//!                  9/10   from here on they are asked to forget cold state, down to 8/10;
//!                         it is read back from the state store when it is wanted
//!                 19/20   from here on sources wait
//!   changed state  1/8    can't be forgotten before it is sealed and applied: a checkpoint is asked for
//!                  3/16   sources wait for it
//! ```
//! A changed row is held up to three times while it is written: by its operator, as the columns that
//! were handed over, and encoded.

/// Bytes of memory that the process itself holds: resident, and not of a file.
pub fn held_bytes() -> Option<usize> {
    #[cfg(test)]
    if crate::work::testing::is_simulated() {
        return crate::work::testing::held_bytes();
    }
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = text.split_ascii_whitespace().skip(1).map(|pages| pages.parse::<usize>().ok());
    let (resident, of_files) = (pages.next()??, pages.next()??);
    Some(resident.saturating_sub(of_files) * PAGE_BYTES)
}

/// Linux's page on the machines that Weir runs on.
const PAGE_BYTES: usize = 4096;

/// A limit, and when it is time to forget.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    limit: usize,
}

impl Budget {
    /// Of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit }
    }

    /// Whether there is room for memory that was freed and not given back, when `held` bytes are held.
    pub fn is_ample(&self, held: usize) -> bool {
        held < self.limit / 10 * 6
    }

    /// How many bytes should go, when `held` bytes are held.
    pub fn excess(&self, held: usize) -> usize {
        if held > self.limit / 10 * 9 { held - self.limit / 10 * 8 } else { 0 }
    }

    /// Whether sources should wait until some went.
    pub fn is_full(&self, held: usize) -> bool {
        held > self.limit / 20 * 19
    }

    /// How many bytes operators may take up to be complete again, when `held` bytes are held: at
    /// first, and where they were made to forget.
    pub fn room(&self, held: usize) -> (i64, i64) {
        let upto = |tenths: usize| (self.limit / 10 * tenths) as i64 - held as i64;
        (upto(7), upto(5))
    }

    /// How many bytes of state may be changed before a checkpoint is asked for, and before sources
    /// wait for it.
    pub fn dirty(&self) -> (usize, usize) {
        (self.limit / 8, self.limit / 16 * 3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_goes_below_nine_tenths_and_then_down_to_eight() {
        let budget = Budget::new(1000);
        assert_eq!(budget.excess(900), 0);
        assert_eq!(budget.excess(950), 150);
        assert_eq!((budget.is_full(950), budget.is_full(951)), (false, true));
        assert_eq!(budget.room(600), (100, -100));
        assert!(held_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }
}
