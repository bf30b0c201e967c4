//! Aggregate: grouped aggregation with retraction. Without group columns there is always one row;
//! without calls it is DISTINCT.
//!
//! ```text
//!   on_change   rows → groups (hash table) → accumulators (columns by group)
//!               a group's first row in an epoch keeps the results it had before: `existing`
//!   on_barrier  for every group that changed: -(results before) +(results now), if they differ
//!   seal        at checkpoints, for every group that changed since the last: its state;
//!               that of groups that have come to rest is copied before
//! ```
//! A group without rows is no more; its number is given again once a checkpoint has removed it from
//! the state table. Where the first group column carries a watermark, groups below it are forgotten
//! ([`super::aggregate_expiry`]). **Invariant:** between barriers, what was emitted for a group is what its
//! accumulators give, so nothing but them need be remembered.

use super::accumulator::kept;
use super::aggregate_calls::Calls;
use super::aggregate_early::Early;
use super::aggregate_same::same_rows;
use super::aggregate_state::AggregateTables;
use super::expiry::Expiry;
use super::expr::{ErrorCounter, nullable};
use super::failures::Failures;
use super::groups::{Groups, Lookup, NO_GROUP};
use super::intervals::Intervals;
use crate::checkpoint::participant::Sealed;
use crate::dataflow::fill::Keyed;
use crate::dataflow::operator::{Fetched, Operator, OperatorError, Output, Progress, Restored, Wanted};
use crate::stream::builder::batch_of;
use crate::stream::{Barrier, ChangeBatch, Epoch, Watermark};
use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::compute::{concat, take};
use arrow::datatypes::SchemaRef;
use weir_catalog::TableId;
use weir_sql::plan::AggregateCall;

/// Groups at most in one emitted batch.
const CHUNK_GROUPS: usize = 4096;

/// The group changed in this epoch.
pub(super) const CHANGED: u8 = 1;
/// The group changed since it was handed over.
pub(super) const UNSEALED: u8 = 2;
/// The group was looked up since the last eviction.
pub(super) const USED: u8 = 4;
/// The group changed since it was last looked for groups at rest.
pub(super) const RECENT: u8 = 8;

/// Groups that had results before this epoch, and these.
struct Before {
    groups: Vec<u32>,
    results: Vec<ArrayRef>,
}

/// How far a barrier's emission is.
#[derive(Clone, Copy, Debug, Default)]
struct Emission {
    existing: usize,
    fresh: usize,
}

/// Grouped aggregation with retraction.
pub struct Aggregate {
    group: Vec<usize>,
    pub(super) schema: SchemaRef,
    append_only: bool,
    pub(super) tables: AggregateTables,
    pub(super) failures: Failures,
    /// Results that did not fit, since it was last looked.
    pub(super) errors: ErrorCounter,

    pub(super) groups: Groups,
    pub(super) calls: Calls,
    /// By group: its rows.
    pub(super) rows: Vec<i64>,
    /// By group: [`CHANGED`], [`UNSEALED`], [`USED`] and [`RECENT`].
    pub(super) flags: Vec<u8>,
    /// By group: the interval of its last change.
    pub(super) changed_in: Vec<u32>,
    pub(super) intervals: Intervals,
    /// Whether all groups that there are are in memory.
    pub(super) complete: bool,
    /// The last interval that ended with the removal of a group, while complete.
    pub(super) removed_in: u32,
    pub(super) unsealed: Vec<u32>,
    pub(super) early: Early,
    existing: Vec<Before>,
    fresh: Vec<u32>,
    emission: Option<Emission>,
    /// Without group columns: whether the one row was emitted.
    announced: bool,
    watermarks: Vec<Watermark>,
    /// Where the first group column carries a watermark: how far groups are freed.
    pub(super) expiry: Option<Expiry>,
    /// By group, where they expire: the first group column; the greatest for NULL and for no group.
    pub(super) times: Vec<i64>,
    /// No group is older.
    pub(super) oldest_us: i64,
    lookup: Lookup,
}

impl Aggregate {
    /// How many state tables an aggregate with `calls` over `input` needs.
    pub fn table_count(
        calls: &[AggregateCall],
        input: &SchemaRef,
        append_only: bool,
    ) -> Result<usize, OperatorError> {
        Ok(1 + Calls::new(calls, input, append_only, ErrorCounter::default())?.table_count())
    }

    /// Groups rows of `input` by the columns `group` and computes `calls`; `schema` is the output's.
    /// `append_only`: the input never retracts. `tables`: as many as [`Aggregate::table_count`] says.
    /// Groups with a result that does not fit go to `failures`.
    pub fn new(
        group: Vec<usize>,
        calls: &[AggregateCall],
        input: &SchemaRef,
        schema: SchemaRef,
        append_only: bool,
        tables: &[TableId],
        failures: Failures,
    ) -> Result<Self, OperatorError> {
        let types: Vec<_> = group.iter().map(|c| input.field(*c).data_type().clone()).collect();
        let errors = ErrorCounter::default();
        let mut calls = Calls::new(calls, input, append_only, errors.clone())?;
        let groups = Groups::new(&types)?;
        let slots = groups.slots();
        calls.grow(slots);
        let tables = AggregateTables::new(types, &mut calls, input, tables);
        Ok(Self {
            group,
            schema: nullable(&schema),
            append_only,
            tables,
            failures,
            errors,
            groups,
            calls,
            rows: vec![0; slots],
            flags: vec![0; slots],
            changed_in: vec![0; slots],
            intervals: Intervals::default(),
            complete: true,
            removed_in: 0,
            unsealed: Vec::new(),
            early: Early::default(),
            existing: Vec::new(),
            fresh: Vec::new(),
            emission: None,
            announced: false,
            watermarks: Vec::new(),
            expiry: None,
            times: Vec::new(),
            oldest_us: i64::MAX,
            lookup: Lookup::default(),
        })
    }

    pub(super) fn is_global(&self) -> bool {
        self.group.is_empty()
    }

    /// Makes room for all groups.
    pub(super) fn grow(&mut self) {
        let slots = self.groups.slots();
        if slots > self.rows.len() {
            self.rows.resize(slots, 0);
            self.flags.resize(slots, 0);
            self.changed_in.resize(slots, 0);
            self.calls.grow(slots);
            if self.expiry.is_some() {
                self.times.resize(slots, i64::MAX);
            }
        }
    }

    /// Notes which of `groups` change now, before they do.
    fn touch(&mut self, groups: &[u32]) -> Result<(), OperatorError> {
        let distinct = self.append_only && self.calls.is_empty();
        let interval = self.intervals.current();
        let mut existing = Vec::new();
        for group in groups {
            let flags = &mut self.flags[*group as usize];
            *flags |= USED;
            if *flags & CHANGED != 0 {
                continue;
            }
            let exists = if self.group.is_empty() { self.announced } else { self.rows[*group as usize] > 0 };
            if exists && distinct {
                // A row that is there and never goes: once more changes nothing.
                continue;
            }
            let changed_in = std::mem::replace(&mut self.changed_in[*group as usize], interval);
            if *flags & UNSEALED == 0 {
                self.unsealed.push(*group);
                self.early.changed_again(changed_in == interval);
            }
            *flags |= CHANGED | UNSEALED | RECENT;
            if exists {
                existing.push(*group);
            } else {
                self.fresh.push(*group);
            }
        }
        if !existing.is_empty() {
            let results = self.results(&existing, false)?;
            self.existing.push(Before { groups: existing, results });
        }
        Ok(())
    }

    fn count_rows(&mut self, groups: &[u32], diffs: Option<&[i64]>) {
        match diffs {
            None => groups.iter().for_each(|group| self.rows[*group as usize] += 1),
            Some(diffs) => {
                for (group, diff) in groups.iter().zip(diffs) {
                    self.rows[*group as usize] += diff;
                }
            }
        }
    }

    /// Emits what the epoch changed, as far as `out` has room.
    fn emit(&mut self, out: &mut Output) -> Result<Progress, OperatorError> {
        let Some(mut at) = self.emission else { return Ok(Progress::Done) };
        while at.fresh < self.fresh.len() || at.existing < self.existing.len() {
            if out.is_full() {
                self.emission = Some(at);
                return Ok(Progress::More);
            }
            if at.fresh < self.fresh.len() {
                let end = self.fresh.len().min(at.fresh + CHUNK_GROUPS.min(out.room()));
                self.emit_fresh(&self.fresh[at.fresh..end], out)?;
                at.fresh = end;
            } else {
                let mut end = at.existing;
                let mut groups = 0;
                // Each group is said twice: as it was, and as it is.
                let most = CHUNK_GROUPS.min(out.room() / 2);
                while end < self.existing.len() && (groups == 0 || groups < most) {
                    groups += self.existing[end].groups.len();
                    end += 1;
                }
                self.emit_existing(&self.existing[at.existing..end], out)?;
                at.existing = end;
            }
        }
        self.finish_epoch(out);
        Ok(Progress::Done)
    }

    fn finish_epoch(&mut self, out: &mut Output) {
        let existing = std::mem::take(&mut self.existing);
        let fresh = std::mem::take(&mut self.fresh);
        for groups in existing.iter().map(|before| &before.groups).chain([&fresh]) {
            for group in groups {
                self.flags[*group as usize] &= !CHANGED;
            }
        }
        self.emission = None;
        for watermark in self.watermarks.drain(..) {
            out.push_watermark(watermark);
        }
    }

    fn is_there(&self, group: u32) -> bool {
        self.is_global() || self.rows[group as usize] > 0
    }

    /// Groups that had no results before this epoch.
    fn emit_fresh(&self, groups: &[u32], out: &mut Output) -> Result<(), OperatorError> {
        let there: Vec<u32> = groups.iter().copied().filter(|g| self.is_there(*g)).collect();
        let mut columns = self.groups.keys(&there)?;
        columns.extend(self.results(&there, true)?);
        out.push(ChangeBatch::insertions(batch_of(&self.schema, columns, there.len())?));
        Ok(())
    }

    /// Groups that had.
    fn emit_existing(&self, parts: &[Before], out: &mut Output) -> Result<(), OperatorError> {
        let groups: Vec<u32> = parts.iter().flat_map(|part| part.groups.iter().copied()).collect();
        let now = self.results(&groups, true)?;
        let before = concat_results(parts)?;
        let there: Vec<bool> = groups.iter().map(|g| self.is_there(*g)).collect();
        let same = same_rows(&before, &now, groups.len())?;
        let changed = |row: &u32| !(there[*row as usize] && same.value(*row as usize));
        let gone: Vec<u32> = (0..groups.len() as u32).filter(changed).collect();
        let come: Vec<u32> = gone.iter().copied().filter(|row| there[*row as usize]).collect();

        let moved: Vec<u32> = gone.iter().chain(&come).map(|row| groups[*row as usize]).collect();
        let mut columns = self.groups.keys(&moved)?;
        let diffs: Vec<i64> = std::iter::repeat_n(-1, gone.len()).chain(come.iter().map(|_| 1)).collect();
        let (gone, come) = (UInt32Array::from(gone), UInt32Array::from(come));
        for (before, now) in before.iter().zip(&now) {
            let (before, now) = (take(before, &gone, None)?, take(now, &come, None)?);
            columns.push(concat(&[&before, &now])?);
        }
        out.push(ChangeBatch::new(batch_of(&self.schema, columns, moved.len())?, diffs));
        Ok(())
    }

    /// Keeps only these groups in memory, which become 0, 1, … in this order.
    pub(super) fn keep(&mut self, groups: &[u32]) -> Result<(), OperatorError> {
        let mut renamed = vec![NO_GROUP; self.groups.slots()];
        for (new, old) in groups.iter().enumerate() {
            renamed[*old as usize] = new as u32;
        }
        self.calls.keep(groups, &renamed)?;
        self.groups.keep(groups);
        self.rows = kept(&self.rows, groups);
        self.flags = kept(&self.flags, groups);
        self.flags.iter_mut().for_each(|flags| *flags &= !USED);
        self.changed_in = kept(&self.changed_in, groups);
        if self.expiry.is_some() {
            self.times = kept(&self.times, groups);
        }
        let lists = self.existing.iter_mut().map(|before| &mut before.groups);
        for list in lists.chain([&mut self.fresh, &mut self.unsealed]) {
            list.iter_mut().for_each(|group| *group = renamed[*group as usize]);
        }
        Ok(())
    }

    pub(super) fn key_columns(&self, batch: &ChangeBatch) -> Vec<ArrayRef> {
        self.group.iter().map(|c| batch.column(*c).clone()).collect()
    }

    /// Bytes held by the groups.
    pub(super) fn state_memory(&self) -> usize {
        self.groups.memory() + self.calls.memory() + self.rows.capacity() * 13 + self.times.capacity() * 8
    }
}

fn concat_results(parts: &[Before]) -> Result<Vec<ArrayRef>, OperatorError> {
    let [first, rest @ ..] = parts else { return Ok(Vec::new()) };
    if rest.is_empty() {
        return Ok(first.results.clone());
    }
    let column = |index: usize| {
        let arrays: Vec<&dyn Array> = parts.iter().map(|part| part.results[index].as_ref()).collect();
        Ok(concat(&arrays)?)
    };
    (0..first.results.len()).map(column).collect()
}

impl Operator for Aggregate {
    fn name(&self) -> &'static str {
        "aggregate"
    }

    fn restore(&mut self, _restored: &Restored<'_>) -> Result<(), OperatorError> {
        self.announced = true;
        self.complete = false;
        Ok(())
    }

    fn on_change(
        &mut self,
        _port: usize,
        batch: ChangeBatch,
        _out: &mut Output,
    ) -> Result<Progress, OperatorError> {
        debug_assert!(!self.append_only || batch.diffs().is_none_or(|d| d.iter().all(|d| *d > 0)));
        let columns = self.key_columns(&batch);
        let mut lookup = std::mem::take(&mut self.lookup);
        self.groups.find_or_insert(&columns, batch.num_rows(), &mut lookup)?;
        self.grow();
        self.note_times(&columns, &lookup.groups);
        self.touch(&lookup.groups)?;
        self.count_rows(&lookup.groups, batch.diffs());
        self.calls.update(&lookup.groups, &batch)?;
        self.lookup = lookup;
        Ok(Progress::Done)
    }

    fn on_watermark(
        &mut self,
        _port: usize,
        watermark: Watermark,
        _out: &mut Output,
    ) -> Result<Progress, OperatorError> {
        if self.group.first() == Some(&watermark.column)
            && let Some(expiry) = &mut self.expiry
        {
            expiry.advance(watermark.time_us);
        }
        // Its groups are emitted at the barrier, so it goes on only then.
        for (column, from) in self.group.iter().enumerate() {
            if *from == watermark.column {
                self.watermarks.retain(|w| w.column != column);
                self.watermarks.push(Watermark { column, ..watermark });
            }
        }
        Ok(Progress::Done)
    }

    fn on_barrier(&mut self, _barrier: &Barrier, out: &mut Output) -> Result<Progress, OperatorError> {
        if self.is_global() && !self.announced {
            if self.fresh.is_empty() {
                self.fresh.push(0);
            }
            self.announced = true;
        }
        for before in &self.existing {
            self.calls.settle(&before.groups);
        }
        self.calls.settle(&self.fresh);
        self.emission = Some(Emission::default());
        self.emit(out)
    }

    fn resume(&mut self, out: &mut Output) -> Result<Progress, OperatorError> {
        self.emit(out)
    }

    fn seal(&mut self, barrier: &Barrier, sealed: &mut Sealed) -> Result<(), OperatorError> {
        self.failures.seal(barrier, sealed)?;
        if barrier.is_checkpoint() {
            self.seal_all(barrier.epoch, sealed)?;
            self.expire(sealed)?;
            self.intervals.seal(barrier.epoch);
        } else {
            self.seal_early(barrier.epoch, sealed)?;
        }
        Ok(())
    }

    fn state_entries(&self) -> usize {
        self.groups.len()
    }

    fn memory(&self) -> usize {
        let before = |b: &Before| b.results.iter().map(|c| c.get_array_memory_size()).sum::<usize>();
        self.state_memory() + self.existing.iter().map(before).sum::<usize>()
    }

    fn complete(&self) -> bool {
        self.complete
    }

    fn wanted(&self, _port: usize, batch: &ChangeBatch, wanted: &mut Wanted) -> Result<(), OperatorError> {
        self.wanted_groups(batch, wanted)
    }

    fn supply(&mut self, wanted: &Wanted, entries: Vec<Fetched>) -> Result<(), OperatorError> {
        self.supply_groups(wanted, &entries)
    }

    fn keyed(&self) -> Option<Keyed> {
        Some(self.tables.keyed())
    }

    fn cold(&self, _table: TableId, prefixes: &[&[u8]]) -> Result<Vec<bool>, OperatorError> {
        self.cold_groups(prefixes)
    }

    fn filled(&mut self) {
        self.take_for_complete();
    }

    fn evict(&mut self, applied: Epoch, bytes: usize) -> usize {
        self.evict_groups(applied, bytes).unwrap_or(0)
    }
}

impl std::fmt::Debug for Aggregate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Aggregate").field("group", &self.group).field("groups", &self.groups).finish()
    }
}

#[cfg(test)]
#[path = "tests/aggregate.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/aggregate_random.rs"]
mod random_tests;

#[cfg(test)]
#[path = "tests/aggregate_cold.rs"]
mod cold_tests;

#[cfg(test)]
#[path = "tests/aggregate_early.rs"]
mod early_tests;

#[cfg(test)]
#[path = "tests/aggregate_speed.rs"]
mod speed_tests;
