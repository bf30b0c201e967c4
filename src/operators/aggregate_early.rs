//! What an aggregate copies for the checkpoint before its barrier, so that the barrier finds little left:
//! groups at rest, and distinct values that stay.
//!
//! ```text
//!   barrier           tick     tick     tick     checkpoint
//!   group a changed   ×        ·  at rest: copied
//!   group b changed   ×        ×        ×        × copied
//!   values that stay  copied   copied   copied   copied
//!                                                └─ all of it is handed over
//! ```
//! Copies wait for the checkpoint, for to write them at once makes ten files for the store to merge where one
//! does: measured, a quarter of what q17 of Nexmark gets through. Only what would take much memory goes
//! with a tick. That is sound: nothing but a checkpoint is ever restored, so what the state holds in between
//! need not be of one barrier, and a group that has changed since its checkpoint is not forgotten, so nobody
//! reads it there. A group that is copied and changes again is written twice: where that is not rare,
//! groups are left to the checkpoint, for a while. Groups that expire are left to it, too: many do before.

use super::aggregate::{Aggregate, RECENT};
use super::distinct::Distinct;
use crate::checkpoint::participant::Sealed;
use crate::dataflow::operator::OperatorError;
use crate::state::writes::Writes;
use crate::stream::Epoch;

/// Fewer are left to the checkpoint: to copy them takes about a millisecond. Tests have few rows.
const FEWEST: usize = if cfg!(test) { 2 } else { 4096 };
/// From so many copies on they go with a tick.
const HELD_MAX: usize = if cfg!(test) { 100 } else { 1 << 20 };
/// Of the groups that are copied early, one in so many may change again before the checkpoint.
const AGAIN_SHARE: usize = 4;
/// Checkpoints until it is tried again where it was no use: twice as many each time, up to this.
const PAUSE_MAX: u32 = 64;

/// What was copied, and whether it is any use.
#[derive(Debug, Default)]
pub(super) struct Early {
    held: Writes,
    /// How many groups and values it has, at most.
    held_entries: usize,
    /// Groups that were copied since the last checkpoint.
    handed: usize,
    /// How many have changed again.
    again: usize,
    /// Checkpoints until it is tried again.
    pause: u32,
    /// The pause after the next failure.
    next_pause: u32,
}

impl Early {
    /// A group has changed. `again`: it was copied since the last checkpoint.
    #[inline]
    pub fn changed_again(&mut self, again: bool) {
        self.again += usize::from(again);
    }

    fn too_many_again(&self) -> bool {
        self.again > FEWEST && self.again * AGAIN_SHARE > self.handed
    }

    fn is_use(&self) -> bool {
        self.pause == 0 && !self.too_many_again()
    }

    /// What was copied, to be written before anything else of the same tables.
    pub fn take(&mut self) -> Writes {
        self.held_entries = 0;
        std::mem::take(&mut self.held)
    }

    /// A checkpoint took all that was left.
    pub fn at_checkpoint(&mut self) {
        if self.too_many_again() {
            self.next_pause = (self.next_pause * 2).clamp(1, PAUSE_MAX);
            self.pause = self.next_pause;
        } else if self.pause > 0 {
            self.pause -= 1;
        } else {
            self.next_pause = 0;
        }
        (self.handed, self.again) = (0, 0);
    }
}

impl Aggregate {
    /// At a tick: copies what need not wait for the checkpoint, if it is much.
    pub(super) fn seal_early(&mut self, epoch: Epoch, sealed: &mut Sealed) -> Result<(), OperatorError> {
        if self.expiry.is_some() {
            return Ok(());
        }
        let mut writes = std::mem::take(&mut self.early.held);
        let ready = |distinct: &Distinct| distinct.append_only() && distinct.changed() >= FEWEST;
        let values: usize = self.calls.distincts().iter().filter(|d| ready(d)).map(Distinct::changed).sum();
        self.seal_distincts(epoch, &mut writes, ready)?;
        self.early.held_entries += values;
        if self.unsealed.len() >= FEWEST && self.early.is_use() {
            // Those without rows stay: their numbers are given again, but values of them may be left to write.
            let stays =
                |group: &u32| self.flags[*group as usize] & RECENT != 0 || self.rows[*group as usize] == 0;
            let (stay, at_rest): (Vec<u32>, Vec<u32>) = self.unsealed.iter().partition(|group| stays(group));
            stay.iter().for_each(|group| self.flags[*group as usize] &= !RECENT);
            self.unsealed = stay;
            self.early.handed += at_rest.len();
            self.early.held_entries += at_rest.len();
            self.seal_groups(&at_rest, &mut writes)?;
        }
        if self.early.held_entries >= HELD_MAX {
            self.early.held_entries = 0;
            sealed.runs.extend(writes);
        } else {
            self.early.held = writes;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_change_again_are_left_to_the_checkpoint_for_a_while() {
        let interval = |early: &mut Early, handed: usize, again: usize| {
            let used = early.is_use();
            early.handed += if used { handed } else { 0 };
            (0..again).for_each(|_| early.changed_again(used));
            early.at_checkpoint();
            used
        };
        let mut early = Early::default();
        // Few change again.
        assert!((0..5).all(|_| interval(&mut early, 100, 20)));
        // All do: tried after 1, 2, 4, … checkpoints.
        let tried: Vec<usize> = (0..20).filter(|_| interval(&mut early, 100, 100)).collect();
        assert_eq!(tried, [0, 2, 5, 10, 19]);
        // No more: from the next try on it goes on.
        let pause = (0..100).take_while(|_| !interval(&mut early, 100, 0)).count();
        assert_eq!(pause, 16);
        assert!((0..5).all(|_| interval(&mut early, 100, 0)));
        // Within an interval it ends at once.
        early.handed = 100;
        (0..30).for_each(|_| early.changed_again(true));
        assert!(!early.is_use());
    }
}
