//! Room: what memory is left, as the budget's manager last saw it. All actors share it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

/// What actors and the budget's manager tell each other.
///
/// ```text
///   manager ── limits, at each look ──> room <── bytes that changed, bytes sealed ── actors
///                                        └── may a fill take up more? must sources wait?
/// ```
/// What changed since the last checkpoint can't be forgotten: the manager ends the epoch early when
/// it is an eighth of the budget; sources wait when it is half as much again, what is sealed and not
/// yet applied counted too, and while more is held than the budget allows.
#[derive(Debug, Default)]
pub struct Room {
    /// Bytes of changes to state since the last checkpoint, about.
    dirty: AtomicUsize,
    /// Bytes of changes that are handed over and not yet in the state store, about.
    unapplied: AtomicUsize,
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
    /// Sources wait while more than `dirty_max` bytes are dirty, and slow down while more is held than
    /// may be (`full`).
    pub fn limit(&self, dirty_max: usize, full: bool) {
        self.dirty_max.store(dirty_max, Ordering::Relaxed);
        self.full.store(full, Ordering::Relaxed);
    }

    /// Whether sources must wait until changes are in the state store.
    pub fn must_wait(&self) -> bool {
        let dirty_max = self.dirty_max.load(Ordering::Relaxed);
        dirty_max > 0 && self.dirty() + self.unapplied.load(Ordering::Relaxed) > dirty_max
    }

    /// Whether more is held than may be: sources go on as slowly as can be, for it may be that nothing
    /// can be given back.
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Bytes of changes to state since the last checkpoint, about.
    pub fn dirty(&self) -> usize {
        self.dirty.load(Ordering::Relaxed)
    }

    /// `bytes` of changes came to an operator with state.
    pub fn changed(&self, bytes: usize) {
        if bytes > 0 {
            self.dirty.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// What was told of as changed is sealed. It counts as unapplied as long as what is returned
    /// lives, which goes with it to the state store.
    pub fn sealed(self: &Arc<Self>, bytes: usize) -> Unapplied {
        self.dirty.fetch_sub(bytes, Ordering::Relaxed);
        self.unapplied.fetch_add(bytes, Ordering::Relaxed);
        Unapplied { room: Arc::clone(self), bytes }
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

/// Bytes that are on their way to the state store.
#[derive(Debug)]
pub struct Unapplied {
    room: Arc<Room>,
    bytes: usize,
}

impl Drop for Unapplied {
    fn drop(&mut self) {
        self.room.unapplied.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_wait_for_dirt_beyond_the_limit() {
        let room = Arc::new(Room::default());
        room.changed(100);
        assert!(!room.must_wait(), "no limit was set");
        room.limit(150, false);
        room.changed(51);
        assert!(room.must_wait());
        let unapplied = room.sealed(100);
        assert!(room.must_wait(), "what is sealed is still held");
        drop(unapplied);
        assert!(!room.must_wait());
        room.limit(150, true);
        assert!(!room.must_wait() && room.is_full());
    }
}
