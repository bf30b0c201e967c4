//! What an aggregate does after a restart, and when memory is short: cold groups leave, and come back
//! when touched, or when there is time.
//!
//! ```text
//!   evict    groups not used of late, whose state is applied → gone from memory, kept in the tables
//!   wanted   keys of a batch that have no group → prefixes of all tables
//!   supply   what is there below them → groups, as a restore takes them up
//! ```
//! **Invariant:** while the aggregate is incomplete, a key without a group is in the applied state
//! as it was last, or in none: a group leaves only when its last change is applied, and one without
//! rows stays until its removal is. Without group columns the one group is cold from a restore to its
//! first touch, and never evicted.

use super::aggregate::{Aggregate, CHANGED, UNSEALED, USED};
use super::groups::{Lookup, NO_GROUP};
use crate::dataflow::operator::{Fetched, OperatorError, Wanted};
use crate::stream::{ChangeBatch, Epoch, Vnode};
use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take;
use std::collections::HashSet;
use weir_catalog::TableId;

/// At least this part of the groups leaves at once: forgetting costs a pass over all of them.
const PART_MIN: usize = 4;

impl Aggregate {
    /// Adds the prefixes of the groups of `batch` that are not in memory.
    pub(super) fn wanted_groups(
        &self,
        batch: &ChangeBatch,
        wanted: &mut Wanted,
    ) -> Result<(), OperatorError> {
        if self.is_global() {
            let only = [Vnode::SINGLE.0];
            wanted.prefixes.extend(self.tables.ids().map(|table| (table, only.to_vec())));
            return Ok(());
        }
        let columns = self.key_columns(batch);
        let mut lookup = Lookup::default();
        self.groups.find(&columns, batch.num_rows(), &mut lookup)?;
        let cold = (0..batch.num_rows() as u32).filter(|row| lookup.groups[*row as usize] == NO_GROUP);
        let cold = UInt32Array::from_iter_values(cold);
        if arrow::array::Array::is_empty(&cold) {
            return Ok(());
        }
        let keys: Vec<ArrayRef> =
            columns.iter().map(|column| take(column, &cold, None)).collect::<Result<_, _>>()?;
        let hashes: Vec<u64> = cold.values().iter().map(|row| lookup.hashes[*row as usize]).collect();
        let prefixes: HashSet<Vec<u8>> = self.tables.prefixes(&keys, &hashes).into_iter().collect();
        let mut prefixes: Vec<Vec<u8>> = prefixes.into_iter().collect();
        prefixes.sort_unstable();
        for table in self.tables.ids() {
            wanted.prefixes.extend(prefixes.iter().map(|prefix| (table, prefix.clone())));
        }
        Ok(())
    }

    /// Takes up what was found below wanted prefixes.
    pub(super) fn supply_groups(
        &mut self,
        wanted: &Wanted,
        entries: &[Fetched],
    ) -> Result<(), OperatorError> {
        let tables: Vec<TableId> = self.tables.ids().collect();
        for table in tables {
            let own = entries.iter().filter(|entry| wanted.prefixes[entry.wanted].0 == table);
            // The vnode goes first in a key.
            self.load_entries(table, own.map(|entry| (&entry.key[1..], entry.value.as_slice())))?;
        }
        // The one group there is came whole.
        self.complete |= self.is_global();
        Ok(())
    }

    /// Of prefixes (vnode and group key): which have no group.
    pub(super) fn cold_groups(&self, prefixes: &[&[u8]]) -> Result<Vec<bool>, OperatorError> {
        if self.is_global() {
            return Ok(vec![!self.complete; prefixes.len()]);
        }
        let columns = self.tables.keyed().key.decode(prefixes.iter().map(|prefix| &prefix[1..]))?;
        let mut lookup = Lookup::default();
        self.groups.find(&columns, prefixes.len(), &mut lookup)?;
        Ok(lookup.groups.iter().map(|group| *group == NO_GROUP).collect())
    }

    /// All groups that there are are in memory. Those without rows stayed to say so; they need not.
    pub(super) fn take_for_complete(&mut self) {
        self.complete = true;
        if self.is_global() {
            return;
        }
        let gone = |group: &u32| {
            self.rows[*group as usize] == 0 && self.flags[*group as usize] & (CHANGED | UNSEALED) == 0
        };
        let gone: Vec<u32> = self.groups.iter().filter(gone).collect();
        self.forget_empty(&gone);
    }

    /// Forgets cold groups that hold about `bytes`, and says how many bytes it forgot.
    pub(super) fn evict_groups(&mut self, applied: Epoch, bytes: usize) -> Result<usize, OperatorError> {
        if self.groups.is_empty() || self.is_global() {
            return Ok(0);
        }
        let interval = self.intervals.applied(applied);
        if self.complete && self.removed_in > interval {
            // Of groups that are gone, the applied state still has a value.
            return Ok(0);
        }
        let before = self.state_memory();
        let target = bytes / (before / self.groups.len()).max(1) + 1;
        let target = target.max(self.groups.len() / PART_MIN);
        let may_leave = |group: u32| {
            self.changed_in[group as usize] <= interval && self.flags[group as usize] & CHANGED == 0
        };
        let all: Vec<u32> = self.groups.iter().collect();
        let cold = |group: &u32| may_leave(*group) && self.flags[*group as usize] & USED == 0;
        let colds = all.iter().filter(|group| cold(group)).count();
        let mut warm_left = target.saturating_sub(colds);
        let mut stay = Vec::new();
        for group in all {
            let leaves = cold(&group) || (may_leave(group) && warm_left > 0);
            if leaves && self.flags[group as usize] & USED != 0 {
                warm_left -= 1;
            }
            if !leaves {
                stay.push(group);
            }
        }
        if stay.len() == self.groups.len() {
            return Ok(0);
        }
        self.complete = false;
        self.keep(&stay)?;
        Ok(before.saturating_sub(self.state_memory()))
    }
}
