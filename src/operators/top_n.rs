//! TopN: per group the rows `offset..offset+limit` in an order, optionally with their number.
//!
//! ```text
//!   group key ──> rows as bytes, sorted: order columns, then all others  ──> how often each occurs
//!                 └─ offset ─┘└──── window: the result ────┘
//!   first change of a group in an epoch: its window is remembered
//!   barrier: remembered window against the present one ──> rows that leave (-1) and enter (+1)
//! ```
//! Ties are broken by the whole row, so the result never depends on who came first. Input that only
//! inserts keeps no more than `offset + limit` rows a group; other input keeps all, for a retraction
//! lets the next row in. Of input that only inserts, the one best row a group is [`super::top_one`].
//! State: vnode, group key, order columns, other columns → count. In memory the same bytes. The few rows
//! that a group keeps of input that only inserts are one entry: vnode, group key → rows and counts.

use super::expiry::Expiry;
use super::intervals::Intervals;
use super::top_n_spec::TopNSpec;
use super::top_n_state::{Logged, SealedGroup, write_groups, write_log};
use super::top_n_window::{Window, compare_ranks, compare_rows, window};
use crate::checkpoint::participant::Sealed;
use crate::dataflow::fill::Keyed;
use crate::dataflow::operator::{
    Fetched, OUTPUT_ROWS_MAX, Operator, OperatorError, Output, Progress, Restored, Wanted,
};
use crate::state::expire::{encoded_time, is_below};
use crate::state::key::{EncodedKeys, KeyCodec};
use crate::stream::builder::batch_of;
use crate::stream::vnode::hash_columns;
use crate::stream::{Barrier, ChangeBatch, Epoch, Vnode, Watermark};
use arrow::array::{ArrayRef, Int64Array, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use hashbrown::HashTable;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use weir_catalog::TableId;
use xxhash_rust::xxh3::xxh3_64;

#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) key: Arc<[u8]>,
    pub(super) vnode: u8,
    pub(super) exists: bool,
    /// Looked at since the clock hand last passed.
    used: bool,
    pub(super) rows: BTreeMap<Arc<[u8]>, i64>,
    pub(super) count: i64,
    /// The interval in which it last changed.
    changed: u32,
    /// What the window was at the last barrier, if the group changed since.
    pub(super) before: Option<Window>,
}

/// A row to be said.
#[derive(Debug)]
pub(super) struct Say {
    pub(super) group: u32,
    pub(super) row: Arc<[u8]>,
    pub(super) diff: i64,
    pub(super) rank: i64,
}

/// Per group the rows of a window in an order.
#[derive(Debug)]
pub struct TopN {
    pub(super) spec: TopNSpec,
    schema: SchemaRef,
    pub(super) group_codec: KeyCodec,
    row_columns: Vec<usize>,
    row_codec: KeyCodec,
    /// How many of the row columns are the order's.
    order_columns: usize,
    /// Rows a group keeps at most: no others can ever be in the window.
    keep: Option<i64>,
    /// Whether a group's rows are one entry of the state: they are few.
    pub(super) whole: bool,

    pub(super) index: HashTable<(u64, u32)>,
    pub(super) groups: Vec<Group>,
    pub(super) free: Vec<u32>,
    pub(super) complete: bool,
    /// Nothing was ever evicted: no row is no rows.
    resident: bool,
    /// Whether groups without rows are to be looked for once.
    sweep: bool,
    /// The interval in which an empty group was last forgotten.
    pub(super) emptied: u32,
    hand: usize,
    pub(super) bytes: usize,
    /// Groups changed since the last barrier.
    pub(super) dirty: VecDeque<u32>,
    saying: VecDeque<Say>,
    /// Changes of the rows kept, since the last checkpoint; where groups are whole, of none.
    log: Vec<Logged>,
    /// Whole groups that changed since.
    unsealed: Vec<u32>,
    /// Groups that had no rows at some time since.
    maybe_empty: Vec<u32>,
    pub(super) intervals: Intervals,
    /// Watermarks that wait for the rows before them: by column, the last.
    pub(super) watermarks: Vec<Watermark>,
    pub(super) expiry: Expiry,
}

/// So many rows a group are written whole when one of them changes.
const WHOLE_ROWS: i64 = 32;
/// Bytes that a kept row costs beside its own.
pub(super) const ROW_OVERHEAD: usize = 56;

impl TopN {
    /// An empty top-n.
    pub fn new(spec: TopNSpec) -> Self {
        let data_type = |c: &usize| spec.input.field(*c).data_type().clone();
        let (row_columns, orders) = spec.row_columns();
        let row_codec = KeyCodec::with_orders(row_columns.iter().map(data_type).collect(), orders);
        let group_codec = KeyCodec::new(spec.group.iter().map(data_type).collect());
        let ordered = |c: &&usize| spec.order.iter().any(|key| key.column == **c);
        let order_columns = row_columns.iter().take_while(ordered).count();
        let keep = spec.limit.filter(|_| spec.append_only);
        let keep = keep.map(|limit| i64::try_from(spec.offset.saturating_add(limit)).unwrap_or(i64::MAX));
        Self {
            schema: super::expr::nullable(&spec.schema),
            group_codec,
            row_columns,
            row_codec,
            order_columns,
            keep,
            whole: keep.is_some_and(|keep| keep <= WHOLE_ROWS),
            spec,
            index: HashTable::new(),
            groups: Vec::new(),
            free: Vec::new(),
            complete: true,
            resident: true,
            sweep: false,
            emptied: 0,
            hand: 0,
            bytes: 0,
            dirty: VecDeque::new(),
            saying: VecDeque::new(),
            log: Vec::new(),
            unsealed: Vec::new(),
            maybe_empty: Vec::new(),
            intervals: Intervals::default(),
            watermarks: Vec::new(),
            expiry: Expiry::default(),
        }
    }

    fn columns(&self, batch: &ChangeBatch, columns: &[usize]) -> Vec<ArrayRef> {
        columns.iter().map(|c| batch.column(*c).clone()).collect()
    }

    /// The group keys of a batch, with their vnodes.
    fn group_keys(&self, batch: &ChangeBatch) -> (EncodedKeys, Vec<u8>) {
        let columns = self.columns(batch, &self.spec.group);
        let vnodes = if columns.is_empty() {
            vec![Vnode::SINGLE.0; batch.num_rows()]
        } else {
            let mut hashes = Vec::new();
            hash_columns(&columns, batch.num_rows(), &mut hashes);
            hashes.into_iter().map(|h| Vnode::of_hash(h).0).collect()
        };
        (self.group_codec.encode_all(&columns, batch.num_rows(), None), vnodes)
    }

    pub(super) fn find(&self, key: &[u8]) -> Option<u32> {
        let hash = xxh3_64(key);
        self.index.find(hash, |(h, g)| *h == hash && *self.groups[*g as usize].key == *key).map(|(_, g)| *g)
    }

    pub(super) fn group(&mut self, key: &[u8], vnode: u8) -> u32 {
        if let Some(group) = self.find(key) {
            return group;
        }
        let new = Group { key: key.into(), vnode, exists: true, used: true, ..Group::default() };
        self.bytes += key.len() + size_of::<Group>();
        let group = match self.free.pop() {
            Some(free) => {
                self.groups[free as usize] = new;
                free
            }
            None => {
                self.groups.push(new);
                self.groups.len() as u32 - 1
            }
        };
        self.index.insert_unique(xxh3_64(key), (xxh3_64(key), group), |(h, _)| *h);
        group
    }

    /// The rows of a batch that may enter what their group keeps.
    fn candidates(&self, batch: &ChangeBatch, groups: &EncodedKeys) -> Option<Vec<u32>> {
        let keep = self.keep?;
        let columns = self.columns(batch, &self.row_columns[..self.order_columns]);
        let orders = self.row_codec.encode_all(&columns, batch.num_rows(), None);
        let may_enter = |row: &u32| {
            let Some(group) = self.find(groups.get(*row as usize)) else { return true };
            let group = &self.groups[group as usize];
            let Some((last, _)) = group.rows.last_key_value().filter(|_| group.count >= keep) else {
                return true;
            };
            let order = orders.get(*row as usize);
            order <= &last[..order.len().min(last.len())]
        };
        Some((0..batch.num_rows() as u32).filter(may_enter).collect())
    }

    /// Row `row` of group `group` occurs `diff` times more.
    fn add(&mut self, index: u32, row: &[u8], diff: i64) {
        let Self { groups, keep, whole, spec, dirty, log, unsealed, maybe_empty, bytes, intervals, .. } =
            self;
        let mut logged = |group: &Group, row: Arc<[u8]>, diff: i64| {
            if !*whole {
                log.push(Logged { vnode: group.vnode, group: group.key.clone(), row, diff });
            }
        };
        let group = &mut groups[index as usize];
        group.used = true;
        let full = keep.filter(|keep| group.count >= *keep);
        if full.is_some() && group.rows.last_key_value().is_some_and(|(last, _)| **last < *row) {
            return;
        }
        if group.before.is_none() {
            group.before = Some(window(&group.rows, spec.offset, spec.limit));
            dirty.push_back(index);
        }
        if *whole && group.changed != intervals.current() {
            unsealed.push(index);
        }
        group.changed = intervals.current();
        group.count += diff;
        let key: Arc<[u8]> = match group.rows.get_key_value(row) {
            Some((key, _)) => key.clone(),
            None => {
                *bytes += row.len() + ROW_OVERHEAD;
                row.into()
            }
        };
        let count = group.rows.entry(key.clone()).or_insert(0);
        *count += diff;
        if *count == 0 {
            group.rows.remove(&key);
            *bytes -= row.len() + ROW_OVERHEAD;
        }
        logged(group, key, diff);
        while let Some(keep) = *keep
            && let Some(last) = group.rows.last_entry()
            && group.count - *last.get() >= keep
        {
            let (key, count) = last.remove_entry();
            group.count -= count;
            *bytes -= key.len() + ROW_OVERHEAD;
            logged(group, key, -count);
        }
        if group.rows.is_empty() {
            maybe_empty.push(index);
        }
    }

    /// The whole groups to be written by the checkpoint that is being sealed: not those that it frees.
    fn take_unsealed(&mut self) -> Vec<SealedGroup> {
        let groups = std::mem::take(&mut self.unsealed).into_iter().map(|index| &self.groups[index as usize]);
        let bound = self.expiry.due().map(encoded_time);
        let stays = |group: &&Group| {
            !group.rows.is_empty() && bound.as_ref().is_none_or(|bound| !is_below(&group.key, bound))
        };
        groups.filter(stays).map(SealedGroup::of).collect()
    }

    /// Says what changed in the windows of dirty groups, until the output is full.
    fn say(&mut self, out: &mut Output) -> Result<Progress, OperatorError> {
        loop {
            while self.saying.len() < OUTPUT_ROWS_MAX
                && let Some(index) = self.dirty.pop_front()
            {
                let group = &mut self.groups[index as usize];
                let before = group.before.take().unwrap_or_default();
                let after = window(&group.rows, self.spec.offset, self.spec.limit);
                let saying = &mut self.saying;
                let mut say = |row: &Arc<[u8]>, diff: i64, rank: u64| {
                    saying.push_back(Say { group: index, row: row.clone(), diff, rank: rank as i64 });
                };
                match self.spec.rank {
                    true => compare_ranks(&before, &after, self.spec.offset, &mut say),
                    false => compare_rows(&before, &after, &mut say),
                }
            }
            if self.saying.is_empty() {
                self.pass_watermarks(out);
                return Ok(Progress::Done);
            }
            if out.is_full() {
                return Ok(Progress::More);
            }
            let rows = self.saying.len().min(out.room());
            let piece: Vec<Say> = self.saying.drain(..rows).collect();
            out.push(self.decode(&piece)?);
        }
    }

    /// Rows to be said as a batch.
    pub(super) fn decode(&self, rows: &[Say]) -> Result<ChangeBatch, OperatorError> {
        let groups = self.group_codec.decode(rows.iter().map(|say| &*self.groups[say.group as usize].key))?;
        let others = self.row_codec.decode(rows.iter().map(|say| &*say.row))?;
        let column = |c: usize| match self.spec.group.iter().position(|g| *g == c) {
            Some(at) => Some(groups[at].clone()),
            None => self.row_columns.iter().position(|r| *r == c).map(|at| others[at].clone()),
        };
        let mut columns: Vec<ArrayRef> = (0..self.spec.input.fields().len()).filter_map(column).collect();
        if self.spec.rank {
            columns.push(Arc::new(Int64Array::from_iter_values(rows.iter().map(|say| say.rank))));
        }
        let diffs: Vec<i64> = rows.iter().map(|say| say.diff).collect();
        Ok(ChangeBatch::new(batch_of(&self.schema, columns, rows.len())?, diffs))
    }
}

impl Operator for TopN {
    fn name(&self) -> &'static str {
        "top_n"
    }

    fn restore(&mut self, _restored: &Restored<'_>) -> Result<(), OperatorError> {
        (self.complete, self.resident) = (false, false);
        Ok(())
    }

    fn complete(&self) -> bool {
        self.complete
    }

    fn wanted(&self, _port: usize, batch: &ChangeBatch, wanted: &mut Wanted) -> Result<(), OperatorError> {
        let (keys, vnodes) = self.group_keys(batch);
        let mut seen = hashbrown::HashSet::new();
        for (key, vnode) in keys.iter().zip(vnodes) {
            if self.find(key).is_none() && seen.insert(key) {
                wanted.prefixes.push((self.spec.table, [&[vnode], key].concat()));
            }
        }
        Ok(())
    }

    fn supply(&mut self, wanted: &Wanted, entries: Vec<Fetched>) -> Result<(), OperatorError> {
        let groups: Vec<u32> =
            wanted.prefixes.iter().map(|(_, prefix)| self.group(&prefix[1..], prefix[0])).collect();
        for entry in entries {
            let prefix = wanted.prefixes[entry.wanted].1.len();
            self.load(groups[entry.wanted], &entry.key[prefix..], &entry.value)?;
        }
        Ok(())
    }

    fn keyed(&self) -> Option<Keyed> {
        Some(Keyed { tables: vec![self.spec.table], key: self.group_codec.clone() })
    }

    fn cold(&self, _table: TableId, prefixes: &[&[u8]]) -> Result<Vec<bool>, OperatorError> {
        Ok(prefixes.iter().map(|prefix| self.find(&prefix[1..]).is_none()).collect())
    }

    fn filled(&mut self) {
        (self.complete, self.resident, self.sweep) = (true, true, true);
        self.emptied = self.intervals.current();
    }

    fn on_change(
        &mut self,
        _port: usize,
        batch: ChangeBatch,
        _out: &mut Output,
    ) -> Result<Progress, OperatorError> {
        let (keys, vnodes) = self.group_keys(&batch);
        let mut columns = self.columns(&batch, &self.row_columns);
        let candidates = self.candidates(&batch, &keys);
        if let Some(rows) = candidates.as_ref().filter(|rows| rows.len() < batch.num_rows()) {
            let indices = UInt32Array::from(rows.clone());
            columns = columns.iter().map(|c| take(c, &indices, None)).collect::<Result<_, _>>()?;
        }
        let rows = candidates.unwrap_or_else(|| (0..batch.num_rows() as u32).collect());
        let encoded = self.row_codec.encode_all(&columns, rows.len(), None);
        for (at, row) in rows.into_iter().map(|row| row as usize).enumerate() {
            let group = self.group(keys.get(row), vnodes[row]);
            self.add(group, encoded.get(at), batch.diff(row));
        }
        Ok(Progress::Done)
    }

    fn on_watermark(&mut self, _: usize, mark: Watermark, _: &mut Output) -> Result<Progress, OperatorError> {
        if self.spec.group.contains(&mark.column) {
            self.watermarks.retain(|w| w.column != mark.column);
            self.watermarks.push(mark);
        }
        if self.spec.expires && self.spec.group.first() == Some(&mark.column) {
            self.expiry.advance(mark.time_us);
        }
        Ok(Progress::Done)
    }

    fn on_barrier(&mut self, _barrier: &Barrier, out: &mut Output) -> Result<Progress, OperatorError> {
        self.say(out)
    }

    fn resume(&mut self, out: &mut Output) -> Result<Progress, OperatorError> {
        self.say(out)
    }

    fn seal(&mut self, barrier: &Barrier, sealed: &mut Sealed) -> Result<(), OperatorError> {
        if !barrier.is_checkpoint() {
            return Ok(());
        }
        let whole = self.take_unsealed();
        if !whole.is_empty() {
            sealed.runs.later(self.spec.table, move |runs| {
                write_groups(&whole, runs);
                Ok(())
            });
        }
        let mut log = std::mem::take(&mut self.log);
        self.leave_out_below(&mut log);
        if !log.is_empty() {
            sealed.runs.later(self.spec.table, move |runs| {
                write_log(&log, runs);
                Ok(())
            });
        }
        let maybe_empty = std::mem::take(&mut self.maybe_empty);
        if std::mem::take(&mut self.sweep) {
            // Groups without rows stayed to say so while what was not here was asked for.
            let all = 0..self.groups.len() as u32;
            self.forget_empty(all.filter(|group| self.groups[*group as usize].exists).collect());
        } else if self.resident {
            self.forget_empty(maybe_empty);
        }
        self.intervals.seal(barrier.epoch);
        self.expire(sealed);
        Ok(())
    }

    fn state_entries(&self) -> usize {
        self.index.len()
    }

    fn memory(&self) -> usize {
        self.unsealed.capacity() * 4
            + self.bytes
            + self.log.capacity() * size_of::<Logged>()
            + self.index.capacity() * 17
    }

    fn evict(&mut self, applied: Epoch, bytes: usize) -> usize {
        if !self.saying.is_empty() {
            return 0;
        }
        let applied = self.intervals.applied(applied);
        // From now on what is not here is asked for, and what is empty must say so until the state
        // that is read does too.
        self.resident = false;
        if self.emptied > applied {
            return 0;
        }
        let mut freed = 0;
        // Two rounds: the first takes away the second chance of groups that were used.
        for _ in 0..2 * self.groups.len() {
            if freed >= bytes {
                break;
            }
            self.hand = (self.hand + 1) % self.groups.len();
            let group = &mut self.groups[self.hand];
            let used = std::mem::take(&mut group.used);
            if !used && group.exists && group.changed <= applied && group.before.is_none() {
                freed += self.forget(self.hand as u32);
                self.complete = false;
            }
        }
        freed
    }
}

#[cfg(test)]
#[path = "tests/top_n.rs"]
mod tests;
