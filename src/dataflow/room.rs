//! Room: what memory is left, as the budget's manager last saw it. All actors share it.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

/// What actors and the budget's manager tell each other.
///
/// ```text
///   manager ── limits, at each look ──> room <── bytes that changed, bytes sealed ── actors
///                                        └── may a fill take up more? must sources wait?
/// ```
/// What changed since the last checkpoint can't be forgotten: the manager ends the epoch early when
/// it is a quarter of the budget; sources wait when it is half as much again, and while more is held
/// than the budget allows.
#[derive(Debug, Default)]
pub struct Room {
    /// Bytes of changes to state since the last checkpoint, about.
    dirty: AtomicUsize,
    /// From where on sources wait; 0: never.
    dirty_max: AtomicUsize,
    /// Whether more is held than may be.
    full: AtomicBool,
    /// Bytes that operators may take up to be complete again, until the next look. For a fill that goes on, or the first after a restore.
    fill: AtomicI64,
    /// For one that begins anew after an eviction: less, so that memory is not filled with what was
    /// just forgotten.
    refill: AtomicI64,
}

impl Room {
    /// Sources wait while more than `dirty_max` bytes are dirty, or more is held than may be (`full`).
    pub fn limit(&self, dirty_max: usize, full: bool) {
        self.dirty_max.store(dirty_max, Ordering::Relaxed);
        self.full.store(full, Ordering::Relaxed);
    }

    /// Whether sources must wait.
    pub fn must_wait(&self) -> bool {
        let dirty_max = self.dirty_max.load(Ordering::Relaxed);
        self.full.load(Ordering::Relaxed) || (dirty_max > 0 && self.dirty() > dirty_max)
    }

    /// Bytes of changes to state since the last checkpoint, about.
    pub fn dirty(&self) -> usize {
        self.dirty.load(Ordering::Relaxed)
    }

    /// `bytes` of changes came to an operator with state.
    pub fn changed(&self, bytes: usize) {
        self.dirty.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What was told of as changed is sealed.
    pub fn sealed(&self, bytes: usize) {
        self.dirty.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Takes note of what is left for each kind of fill.
    pub fn set(&self, fill: i64, refill: i64) {
        self.fill.store(fill, Ordering::Relaxed);
        self.refill.store(refill, Ordering::Relaxed);
    }

    /// Whether a fill may go on, or begin (`anew`: after an eviction).
    pub fn is_left(&self, anew: bool) -> bool {
        let room = if anew { &self.refill } else { &self.fill };
        room.load(Ordering::Relaxed) > 0
    }

    /// `bytes` were taken up.
    pub fn take(&self, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.fill.fetch_sub(bytes, Ordering::Relaxed);
        self.refill.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_wait_for_dirt_beyond_the_limit_and_while_it_is_full() {
        let room = Room::default();
        room.changed(100);
        assert!(!room.must_wait(), "no limit was set");
        room.limit(150, false);
        room.changed(51);
        assert!(room.must_wait());
        room.sealed(100);
        assert!(!room.must_wait());
        room.limit(150, true);
        assert!(room.must_wait());
    }
}
