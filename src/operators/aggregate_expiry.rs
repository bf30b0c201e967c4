//! An aggregate's groups below the watermark: freed at checkpoints, see [`super::expiry`].

use super::aggregate::Aggregate;
use super::expiry::{Expiry, Vnodes, worth_dropping};
use crate::checkpoint::participant::Sealed;
use crate::dataflow::operator::OperatorError;
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::TimestampMicrosecondType;

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

    /// Frees the groups below the watermark. All changes are sealed.
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
