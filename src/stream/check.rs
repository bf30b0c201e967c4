//! What must hold on a stream, asserted where messages are received.

use super::{Barrier, Epoch};

/// Asserts that barriers follow each other on one input.
#[derive(Debug, Default)]
pub struct EpochOrder {
    last: Option<Epoch>,
}

impl EpochOrder {
    /// Takes note of `barrier`. Panics if it does not follow the one before: the stream is
    /// broken then, and the actor's failure leads to recovery from the last checkpoint.
    pub fn check(&mut self, barrier: &Barrier) {
        assert!(
            barrier.previous < barrier.epoch,
            "barrier {:?} does not follow {:?}",
            barrier.epoch,
            barrier.previous
        );
        if let Some(last) = self.last {
            assert_eq!(barrier.previous, last, "barrier {:?} skips epochs", barrier.epoch);
        }
        self.last = Some(barrier.epoch);
    }
}
