//! A top-n's groups come and go: rows read back from state when a cold group is wanted, groups
//! forgotten when they are empty or memory is short.

use super::top_n::{Group, ROW_OVERHEAD, TopN};
use crate::state::StateError;
use crate::state::table::decode_count;
use xxhash_rust::xxh3::xxh3_64;

impl TopN {
    pub(super) fn load(&mut self, group: u32, row: &[u8], value: &[u8]) -> Result<(), StateError> {
        let count = decode_count(value)?;
        let group = &mut self.groups[group as usize];
        group.count += count;
        self.bytes += row.len() + ROW_OVERHEAD;
        group.rows.insert(row.into(), count);
        Ok(())
    }

    /// Forgets those of `groups` that have no rows.
    pub(super) fn forget_empty(&mut self, mut groups: Vec<u32>) {
        groups.retain(|group| self.groups[*group as usize].rows.is_empty());
        groups.sort_unstable();
        groups.dedup();
        for group in groups {
            self.emptied = self.intervals.current();
            self.forget(group);
        }
    }

    /// Forgets group `index`.
    pub(super) fn forget(&mut self, index: u32) -> usize {
        let group = std::mem::take(&mut self.groups[index as usize]);
        let hash = xxh3_64(&group.key);
        if let Ok(slot) = self.index.find_entry(hash, |(_, g)| *g == index) {
            slot.remove();
        }
        let rows: usize = group.rows.keys().map(|row| row.len() + ROW_OVERHEAD).sum();
        let bytes = rows + group.key.len() + size_of::<Group>();
        self.bytes -= bytes;
        self.free.push(index);
        bytes
    }
}
