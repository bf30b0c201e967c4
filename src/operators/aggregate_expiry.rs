//! An aggregate's groups below the watermark: freed at checkpoints, see [`super::expiry`]. What changed
//! of them since the checkpoint before is not even written.

use super::aggregate::Aggregate;
use super::expiry::{Expiry, Vnodes, worth_dropping};
use crate::checkpoint::participant::Sealed;
use crate::dataflow::operator::OperatorError;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::datatypes::TimestampMicrosecondType;

/// What is to be written of groups: not what the checkpoint that is being sealed frees.
pub(super) struct Written<'a> {
    below_us: Option<i64>,
    /// By group.
    times: &'a [i64],
}

impl<'a> Written<'a> {
    /// Of an aggregate's parts.
    pub fn new(expiry: Option<&Expiry>, times: &'a [i64]) -> Self {
        Self { below_us: expiry.and_then(Expiry::due), times }
    }

    /// Which entries, of `groups`, it is; none: all. `gone` tells those that are not there any more: their
    /// group may be gone too, and then nothing frees its part of the tables.
    pub fn mask(&self, groups: &[u32], gone: impl Fn(usize) -> bool) -> Option<BooleanArray> {
        let below_us = self.below_us?;
        let written = |entry: usize| self.times[groups[entry] as usize] >= below_us || gone(entry);
        let all = (0..groups.len()).all(written);
        (!all).then(|| (0..groups.len()).map(|entry| Some(written(entry))).collect())
    }
}

/// The values where `mask` is true.
pub(super) fn retained<T>(values: Vec<T>, mask: &BooleanArray) -> Vec<T> {
    values.into_iter().zip(mask.values()).filter_map(|(value, keep)| keep.then_some(value)).collect()
}

impl Aggregate {
    /// The same, whose first group column carries a watermark.
    pub fn expiring(mut self) -> Self {
        self.expiry = Some(Expiry::default());
        self.times.resize(self.groups.slots(), i64::MAX);
        self
    }

    /// Notes the times of groups, by their keys.
    pub(super) fn note_times(&mut self, keys: &[ArrayRef], groups: &[u32]) {
        if self.expiry.is_none() {
            return;
        }
        let times = keys[0].as_primitive::<TimestampMicrosecondType>();
        for (row, group) in groups.iter().enumerate() {
            let time_us = if times.is_null(row) { i64::MAX } else { times.value(row) };
            self.times[*group as usize] = time_us;
            self.oldest_us = self.oldest_us.min(time_us);
        }
    }

    /// Frees the groups below the watermark. All changes of others are sealed.
    pub(super) fn expire(&mut self, sealed: &mut Sealed) -> Result<(), OperatorError> {
        let Some(expiry) = &mut self.expiry else { return Ok(()) };
        let Some(below_us) = expiry.due() else { return Ok(()) };
        if self.complete && below_us <= self.oldest_us {
            return Ok(());
        }
        let mut vnodes = Vnodes::of(self.complete);
        let mut dead = 0;
        let mut oldest_us = i64::MAX;
        for (group, time_us) in self.times.iter().enumerate() {
            if *time_us >= below_us {
                oldest_us = oldest_us.min(*time_us);
                continue;
            }
            dead += 1;
            if *time_us >= expiry.deleted_us() {
                vnodes.insert(self.groups.vnode(group as u32));
            }
        }
        expiry.delete(self.tables.ids(), &vnodes, &mut sealed.runs);
        self.oldest_us = oldest_us;
        if worth_dropping(dead, self.groups.len()) {
            let stay: Vec<u32> = self.groups.iter().filter(|g| self.times[*g as usize] >= below_us).collect();
            self.keep(&stay)?;
        }
        Ok(())
    }
}
