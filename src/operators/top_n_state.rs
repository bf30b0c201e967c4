//! A top-n's rows come and go: what is written at a checkpoint, what is read back when a cold group
//! is wanted or by window functions over it, and groups forgotten when they are empty, memory is
//! short, or they are below the watermark ([`super::expiry`]).

use super::expiry::Vnodes;
use super::top_n::{Group, ROW_OVERHEAD, Say, TopN};
use super::top_n_window::{Row, Window, window};
use crate::checkpoint::participant::Sealed;
use crate::dataflow::operator::{OperatorError, Output};
use crate::state::StateError;
use crate::state::expire::{encoded_time, is_below};
use crate::state::store::WriteOp;
use crate::state::table::decode_count;
use crate::state::writes::RunWriter;
use crate::stream::Vnode;
use arrow::array::RecordBatch;
use hashbrown::HashMap;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// A change of the rows kept.
#[derive(Debug)]
pub(super) struct Logged {
    pub vnode: u8,
    /// The group's key.
    pub group: Arc<[u8]>,
    pub row: Arc<[u8]>,
    pub diff: i64,
}

/// Writes the sum of the changes of each row. A row is told by where it lies, for to look at the rows that
/// came and went costs more than to write the others; one that came again lies elsewhere, and adds up in
/// the store.
pub(super) fn write_log(log: &[Logged], runs: &mut RunWriter<'_>) {
    let mut sums: HashMap<[*const u8; 2], (usize, i64)> = HashMap::with_capacity(log.len());
    for (index, logged) in log.iter().enumerate() {
        let place = [logged.group.as_ptr(), logged.row.as_ptr()];
        sums.entry(place).or_insert((index, 0)).1 += logged.diff;
    }
    for (index, diff) in sums.into_values().filter(|(_, diff)| *diff != 0) {
        let Logged { vnode, group, row, .. } = &log[index];
        let key = |out: &mut Vec<u8>| {
            out.push(*vnode);
            out.extend_from_slice(group);
            out.extend_from_slice(row);
        };
        runs.write_with(WriteOp::AddCount, key, |out| out.extend_from_slice(&diff.to_le_bytes()));
    }
}

/// The version of a whole group's encoding, so that it never looks like a count of zero.
const VERSION: u8 = 3;

/// A group to be written whole.
#[derive(Debug)]
pub(super) struct SealedGroup {
    vnode: u8,
    key: Arc<[u8]>,
    /// The rows, and how often each occurs.
    rows: Vec<(Arc<[u8]>, i64)>,
}

impl SealedGroup {
    /// The group as it is.
    pub fn of(group: &Group) -> Self {
        let rows = group.rows.iter().map(|(row, count)| (row.clone(), *count)).collect();
        Self { vnode: group.vnode, key: group.key.clone(), rows }
    }
}

/// Writes each group as an entry: version, then of each row its count (i64), its length (u32), its bytes.
pub(super) fn write_groups(groups: &[SealedGroup], runs: &mut RunWriter<'_>) {
    for SealedGroup { vnode, key, rows } in groups {
        let key = |out: &mut Vec<u8>| {
            out.push(*vnode);
            out.extend_from_slice(key);
        };
        runs.write_with(WriteOp::Put, key, |out| {
            out.push(VERSION);
            for (row, count) in rows {
                out.extend_from_slice(&count.to_le_bytes());
                out.extend_from_slice(&(row.len() as u32).to_le_bytes());
                out.extend_from_slice(row);
            }
        });
    }
}

/// The rows of a whole group, and how often each occurs.
fn read_group(value: &[u8]) -> Result<Vec<(&[u8], i64)>, StateError> {
    let damaged = || StateError::Decode("a group of rows ends early".to_owned());
    let Some((&VERSION, mut rest)) = value.split_first() else {
        return Err(StateError::Decode("unknown version of a group of rows".to_owned()));
    };
    let mut rows = Vec::new();
    while !rest.is_empty() {
        let (count, behind) = rest.split_first_chunk::<8>().ok_or_else(damaged)?;
        let (length, behind) = behind.split_first_chunk::<4>().ok_or_else(damaged)?;
        let (row, behind) =
            behind.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(damaged)?;
        rows.push((row, i64::from_le_bytes(*count)));
        rest = behind;
    }
    Ok(rows)
}

impl TopN {
    /// A group that changed since the last barrier, with what its window was and is.
    pub(super) fn take_changed(&mut self) -> Option<(u32, Window, Window)> {
        let index = self.dirty.pop_front()?;
        let group = &mut self.groups[index as usize];
        let before = group.before.take().unwrap_or_default();
        Some((index, before, window(&group.rows, self.spec.offset, self.spec.limit)))
    }

    /// The rows of a group's window, in order, each as often as it lies there.
    pub(super) fn rows_of(&self, group: u32, window: &Window) -> Result<RecordBatch, OperatorError> {
        let say = |row: &Row| Say { group, row: row.clone(), diff: 1, rank: 0 };
        let rows = window.iter().flat_map(|(row, n)| std::iter::repeat_with(|| say(row)).take(*n as usize));
        Ok(self.decode(&rows.collect::<Vec<_>>())?.rows().clone())
    }

    /// All rows are said: watermarks that came before them go on.
    pub(super) fn pass_watermarks(&mut self, out: &mut Output) {
        self.watermarks.drain(..).for_each(|watermark| out.push_watermark(watermark));
    }

    /// Takes the changes of groups that this checkpoint frees out of `log`. A group that has no rows any
    /// more is forgotten before: nothing would free its part of the table.
    pub(super) fn leave_out_below(&self, log: &mut Vec<Logged>) {
        let Some(below_us) = self.expiry.due() else { return };
        let bound = encoded_time(below_us);
        let has_rows = |key: &[u8]| self.find(key).is_some_and(|g| !self.groups[g as usize].rows.is_empty());
        log.retain(|logged| !is_below(&logged.group, &bound) || !has_rows(&logged.group));
    }

    /// Frees the groups below the watermark. All changes of others are sealed.
    pub(super) fn expire(&mut self, sealed: &mut Sealed) {
        let Some(below_us) = self.expiry.due() else { return };
        let bound = encoded_time(below_us);
        let mut vnodes = Vnodes::of(self.complete);
        let dead = |index: &u32| {
            let group = &self.groups[*index as usize];
            group.exists && is_below(&group.key, &bound)
        };
        let dead: Vec<u32> = (0..self.groups.len() as u32).filter(dead).collect();
        for index in dead {
            vnodes.insert(Vnode(self.groups[index as usize].vnode));
            self.forget(index);
        }
        self.expiry.delete(std::iter::once(self.spec.table), &vnodes, &mut sealed.runs);
    }

    /// Takes up an entry of `group`: what its key has behind the group's, and its value.
    pub(super) fn load(&mut self, group: u32, row: &[u8], value: &[u8]) -> Result<(), StateError> {
        let rows = if self.whole { read_group(value)? } else { vec![(row, decode_count(value)?)] };
        let group = &mut self.groups[group as usize];
        for (row, count) in rows {
            group.count += count;
            self.bytes += row.len() + ROW_OVERHEAD;
            group.rows.insert(row.into(), count);
        }
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
