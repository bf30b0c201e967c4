//! Lines of text, counted: what is in a sink, or should be.
//!
//! [`Lines`] is a whole; a [`Ledger`] is what an append-only sink is seen to have, line by line as they
//! come, against what it should come to: so that a look after each of a thousand kills costs what is new.

use std::collections::HashMap;
use xxhash_rust::xxh3::xxh3_128;

/// A line, by its hash.
pub type LineHash = u128;

/// The hash of a line, whatever it ends with.
pub fn hash(line: &[u8]) -> LineHash {
    xxh3_128(line.strip_suffix(b"\n").unwrap_or(line))
}

/// How often each line is there, by its hash.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lines(HashMap<LineHash, i64>);

impl Lines {
    /// One more of this line.
    pub fn add(&mut self, line: &[u8]) {
        self.add_hash(hash(line));
    }

    fn add_hash(&mut self, hash: LineHash) {
        *self.0.entry(hash).or_insert(0) += 1;
    }

    /// All lines.
    pub fn count(&self) -> i64 {
        self.0.values().sum()
    }

    /// Different lines.
    pub fn distinct(&self) -> usize {
        self.0.len()
    }

    /// The same for the same lines, in whatever order.
    pub fn checksum(&self) -> u64 {
        self.0.iter().fold(0u64, |sum, (hash, n)| sum.wrapping_add((*hash as u64).wrapping_mul(*n as u64)))
    }

    /// Lines of ours that are not among `others`, or more often here than there.
    pub fn beyond(&self, others: &Lines) -> i64 {
        let beyond = |(hash, n): (&LineHash, &i64)| (n - others.often(*hash)).max(0);
        self.0.iter().map(beyond).sum()
    }

    fn often(&self, hash: LineHash) -> i64 {
        self.0.get(&hash).copied().unwrap_or(0)
    }
}

/// Lines as they are found, against those that are expected.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    found: Lines,
    count: i64,
    beyond: i64,
}

impl Ledger {
    /// One more is there.
    pub fn add(&mut self, line: LineHash, expected: &Lines) {
        let n = self.found.0.entry(line).or_insert(0);
        *n += 1;
        self.count += 1;
        self.beyond += i64::from(*n > expected.often(line));
    }

    /// One is taken back: it was counted for the time being.
    pub fn take_back(&mut self, line: LineHash, expected: &Lines) {
        let n = self.found.0.entry(line).or_insert(0);
        self.count -= 1;
        self.beyond -= i64::from(*n > expected.often(line));
        *n -= 1;
        if *n == 0 {
            self.found.0.remove(&line);
        }
    }

    /// How many there are.
    pub fn count(&self) -> i64 {
        self.count
    }

    /// How many there are that should not be.
    pub fn beyond(&self) -> i64 {
        self.beyond
    }

    /// How many there were in `before` that are no more.
    pub fn lacks(&self, before: &Ledger) -> i64 {
        before.found.beyond(&self.found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(texts: &[&str]) -> Lines {
        let mut lines = Lines::default();
        texts.iter().for_each(|text| lines.add(text.as_bytes()));
        lines
    }

    #[test]
    fn what_is_too_much_and_what_is_missing_is_counted() {
        let (source, sink) = (lines(&["a", "b", "b", "c"]), lines(&["b", "a", "a", "a", "x", "b"]));
        assert_eq!((sink.beyond(&source), source.beyond(&sink)), (3, 1));
        assert_eq!((source.count(), source.distinct()), (4, 3));
        assert_eq!(lines(&["b", "a"]).checksum(), lines(&["a", "b"]).checksum());
        assert_ne!(lines(&["a", "a"]).checksum(), lines(&["a"]).checksum());
        assert_eq!(lines(&["a\n"]), lines(&["a"]));
    }

    #[test]
    fn a_ledger_knows_at_once_what_should_not_be() {
        let expected = lines(&["a", "b", "b"]);
        let mut ledger = Ledger::default();
        let mut beyond = Vec::new();
        for line in ["a", "b", "b", "b", "x", "a"] {
            ledger.add(hash(line.as_bytes()), &expected);
            beyond.push(ledger.beyond());
        }
        assert_eq!((beyond, ledger.count()), (vec![0, 0, 0, 1, 2, 3], 6));
        let before = ledger.clone();
        for line in ["x", "b", "b", "a"] {
            ledger.take_back(hash(line.as_bytes()), &expected);
        }
        assert_eq!((ledger.beyond(), ledger.count(), ledger.lacks(&before)), (0, 2, 4));
        assert_eq!(before.lacks(&ledger), 0);
    }
}
