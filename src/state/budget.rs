//! One memory budget for the process.
//!
//! What counts is what the process holds in memory as the kernel sees it: operators, channels,
//! sealed runs, RocksDB's memtables and cache, queries, clients. Above nine tenths of the limit the
//! operators are asked to forget cold state, down to eight tenths; what they forget is read back
//! from the state store when it is wanted.

/// Bytes of memory that the process holds resident.
pub fn resident_bytes() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * PAGE_BYTES)
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

    /// How many bytes should go, when `resident` bytes are held.
    pub fn excess(&self, resident: usize) -> usize {
        if resident > self.limit / 10 * 9 { resident - self.limit / 10 * 8 } else { 0 }
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
        assert!(resident_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }
}
