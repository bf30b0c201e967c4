//! Intervals between checkpoints: when a change of internal state is sealed, and when it can be
//! read back.
//!
//! ```text
//!   ─── interval 1 ───┤ checkpoint (epoch 7) ├─── interval 2 ───┤ checkpoint (epoch 15) ├─── 3 ───
//!        what changed here can be forgotten once a snapshot of epoch 7 or later is published
//! ```

use crate::stream::Epoch;
use std::collections::VecDeque;

/// Checkpoints remembered. Far more than can be on their way to the store; an older one is taken
/// for applied only when a newer one is.
const SEALED_MAX: usize = 64;

/// Counts the intervals between checkpoints.
#[derive(Debug, Default)]
pub struct Intervals {
    current: u32,
    /// Intervals that ended, and the epoch that sealed them.
    sealed: VecDeque<(u32, Epoch)>,
}

impl Intervals {
    /// The interval in which changes happen now. What was restored, or read back, is of interval 0.
    pub fn current(&self) -> u32 {
        self.current + 1
    }

    /// A checkpoint at `epoch` ends the interval.
    pub fn seal(&mut self, epoch: Epoch) {
        self.current += 1;
        self.sealed.push_back((self.current, epoch));
        if self.sealed.len() > SEALED_MAX {
            self.sealed.pop_front();
        }
    }

    /// The last interval whose changes a snapshot of epoch `applied` holds; 0 if none.
    pub fn applied(&self, applied: Epoch) -> u32 {
        self.sealed.iter().rev().find(|(_, epoch)| *epoch <= applied).map_or(0, |(interval, _)| *interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_applied_with_the_epoch_that_sealed_it() {
        let mut intervals = Intervals::default();
        assert_eq!((intervals.current(), intervals.applied(Epoch(100))), (1, 0));
        intervals.seal(Epoch(7));
        intervals.seal(Epoch(15));
        assert_eq!(intervals.current(), 3);
        let applied = [6, 7, 14, 15, 99].map(|epoch| intervals.applied(Epoch(epoch)));
        assert_eq!(applied, [0, 1, 1, 2, 2]);
    }
}
