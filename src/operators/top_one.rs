//! TopOne: the best row of each group, of input that only inserts.
//!
//! ```text
//!   batch ──> rows that beat their group's best ──> arena
//!   group ──> current best, and the one said last
//!   barrier: groups whose best is another than the one said ──> -1 of the old, +1 of the new
//! ```
//! DISTINCT ON, deduplication and `row_number() = 1` are this. Rows stay columns from end to end;
//! rows that lose are never copied. Ties are broken by the whole row. State: group key → the rest.
//! **Invariant:** `owner` of a row is its group exactly while it is the group's current or said row.

use super::expiry::{Expiry, Vnodes};
use super::intervals::Intervals;
use super::row_arena::{NO_ROW, RowArena, RowId};
use super::row_eq::same_value;
use super::row_order::RowOrder;
use super::top_n_spec::TopNSpec;
use crate::checkpoint::participant::Sealed;
use crate::dataflow::fill::Keyed;
use crate::dataflow::operator::{Fetched, Operator, OperatorError, Output, Progress, Restored, Wanted};
use crate::state::key::KeyOrder;
use crate::state::store::full_key;
use crate::state::table::{StateTable, TableLayout};
use crate::stream::builder::batch_of;
use crate::stream::vnode::hash_columns;
use crate::stream::{Barrier, ChangeBatch, Epoch, Vnode, Watermark};
use arrow::array::{Array, ArrayRef, AsArray, NullArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{SchemaRef, TimestampMicrosecondType};
use hashbrown::HashTable;
use std::collections::VecDeque;
use std::sync::Arc;
use weir_catalog::TableId;

/// No group.
const NOBODY: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Best {
    current: RowId,
    said: RowId,
    /// The interval in which it last changed.
    changed: u32,
    /// Looked at since eviction last passed.
    used: bool,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u64,
    group: u32,
}

/// The best row of each group.
#[derive(Debug)]
pub struct TopOne {
    group: Vec<usize>,
    order: RowOrder,
    all: Vec<usize>,
    schema: SchemaRef,

    arena: RowArena,
    index: HashTable<Slot>,
    groups: Vec<Best>,
    free: Vec<u32>,
    /// By row: the group that needs it.
    owner: Vec<u32>,
    /// Groups whose best changed since the last barrier.
    dirty: VecDeque<u32>,
    /// Groups whose best changed since the last checkpoint.
    unsealed: Vec<u32>,
    table: StateTable,
    complete: bool,
    intervals: Intervals,
    /// Watermarks that wait for the rows before them: by column, the last.
    watermarks: Vec<Watermark>,
    /// Where the first group column carries a watermark: how far groups are freed.
    expiry: Option<Expiry>,
}

/// hashbrown takes the tag from the top bits, which are the vnode's; an actor has few of these.
fn spread(hash: u64) -> u64 {
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl TopOne {
    /// An empty top-one: `spec` has limit 1, no offset and no rank, and its input only inserts.
    pub fn new(spec: TopNSpec) -> Self {
        assert!(spec.append_only && spec.limit == Some(1) && spec.offset == 0 && !spec.rank, "a top-one");
        let (columns, orders) = spec.row_columns();
        let all: Vec<usize> = (0..spec.input.fields().len()).collect();
        let mut key: Vec<usize> = Vec::new();
        for column in &spec.group {
            if !key.contains(column) {
                key.push(*column);
            }
        }
        let key_orders = vec![KeyOrder::ASCENDING; key.len()];
        let input = super::expr::nullable(&spec.input);
        let layout =
            TableLayout::new(spec.table, &input, all.clone(), (key, key_orders), spec.group.clone(), false);
        Self {
            arena: RowArena::new(input.fields().iter().map(|f| f.data_type().clone()).collect()),
            order: RowOrder::new(columns.into_iter().zip(orders).collect()),
            group: spec.group,
            all,
            schema: super::expr::nullable(&spec.schema),
            index: HashTable::new(),
            groups: Vec::new(),
            free: Vec::new(),
            owner: Vec::new(),
            dirty: VecDeque::new(),
            unsealed: Vec::new(),
            table: StateTable::new(Arc::new(layout)),
            complete: true,
            intervals: Intervals::default(),
            watermarks: Vec::new(),
            expiry: spec.expires.then(Expiry::default),
        }
    }

    fn hashes(&self, columns: &[ArrayRef], rows: usize) -> Vec<u64> {
        let keys: Vec<ArrayRef> = self.group.iter().map(|c| columns[*c].clone()).collect();
        let mut hashes = Vec::new();
        hash_columns(&keys, rows, &mut hashes);
        hashes
    }

    fn find(&self, columns: &[ArrayRef], row: usize, hash: u64) -> Option<u32> {
        let same = |slot: &Slot| {
            slot.hash == hash && {
                let (cells, at) = self.arena.cell(self.groups[slot.group as usize].current);
                self.group.iter().all(|c| same_value(&cells[*c], at, &columns[*c], row))
            }
        };
        self.index.find(spread(hash), same).map(|slot| slot.group)
    }

    /// The rows that are better than the best that their group has so far.
    fn winners(&self, columns: &[ArrayRef], hashes: &[u64]) -> Vec<u32> {
        let wins = |row: &u32| {
            let Some(group) = self.find(columns, *row as usize, hashes[*row as usize]) else { return true };
            let (cells, at) = self.arena.cell(self.groups[group as usize].current);
            self.order.compare(columns, *row as usize, cells, at).is_lt()
        };
        (0..hashes.len() as u32).filter(wins).collect()
    }

    /// Takes up rows; each becomes its group's best if it is. `said`: they are part of the result
    /// already (restored rows).
    fn take_up(&mut self, columns: &[ArrayRef], hashes: &[u64], said: bool) -> Result<(), OperatorError> {
        let mut ids = Vec::new();
        self.arena.append(columns, hashes.len(), &mut ids)?;
        self.owner.resize(self.arena.ids(), NOBODY);
        for (row, id) in ids.into_iter().enumerate() {
            let Some(group) = self.find(columns, row, hashes[row]) else {
                self.add_group(id, hashes[row], said);
                continue;
            };
            let best = &mut self.groups[group as usize];
            best.used = true;
            let (cells, at) = self.arena.cell(best.current);
            if self.order.compare(columns, row, cells, at).is_ge() {
                self.arena.free(id);
                continue;
            }
            let old = std::mem::replace(&mut best.current, id);
            self.owner[id as usize] = group;
            if old == best.said {
                self.dirty.push_back(group);
            } else {
                self.release(old);
            }
        }
        Ok(())
    }

    fn add_group(&mut self, id: RowId, hash: u64, said: bool) {
        let best = Best { current: id, said: if said { id } else { NO_ROW }, changed: 0, used: true };
        let group = match self.free.pop() {
            Some(free) => {
                self.groups[free as usize] = best;
                free
            }
            None => {
                self.groups.push(best);
                self.groups.len() as u32 - 1
            }
        };
        self.owner[id as usize] = group;
        self.index.insert_unique(spread(hash), Slot { hash, group }, |slot| spread(slot.hash));
        if !said {
            self.dirty.push_back(group);
        }
    }

    /// Row `id` is nobody's any more.
    fn release(&mut self, id: RowId) {
        self.owner[id as usize] = NOBODY;
        self.arena.free(id);
    }

    /// Says the new best of dirty groups, until the output is full.
    fn say(&mut self, out: &mut Output) -> Result<Progress, OperatorError> {
        let interval = self.intervals.current();
        while !self.dirty.is_empty() {
            if out.is_full() {
                return Ok(Progress::More);
            }
            let (mut ids, mut diffs) = (Vec::new(), Vec::new());
            // A group is said by two rows at most.
            let most = out.room();
            while ids.len() < most
                && let Some(group) = self.dirty.pop_front()
            {
                let best = &mut self.groups[group as usize];
                if best.said != NO_ROW {
                    ids.push(best.said);
                    diffs.push(-1);
                }
                ids.push(best.current);
                diffs.push(1);
                if std::mem::replace(&mut best.changed, interval) != interval {
                    self.unsealed.push(group);
                }
            }
            let columns = self.arena.gather(&ids, &self.all)?;
            for (id, diff) in ids.iter().zip(&diffs) {
                if *diff < 0 {
                    self.release(*id);
                } else {
                    let group = self.owner[*id as usize];
                    self.groups[group as usize].said = *id;
                }
            }
            out.push(ChangeBatch::new(batch_of(&self.schema, columns, ids.len())?, diffs));
        }
        self.watermarks.drain(..).for_each(|watermark| out.push_watermark(watermark));
        Ok(Progress::Done)
    }

    fn load(&mut self, rows: &ChangeBatch) -> Result<(), OperatorError> {
        let columns = rows.rows().columns();
        let hashes = self.hashes(columns, rows.num_rows());
        self.take_up(columns, &hashes, true)
    }

    /// Whether the group of row `id` is below.
    fn is_below(&self, id: RowId, below_us: i64) -> bool {
        let (cells, at) = self.arena.cell(id);
        let times = cells[self.group[0]].as_primitive::<TimestampMicrosecondType>();
        times.is_valid(at) && times.value(at) < below_us
    }

    /// Frees the groups below the watermark. All changes of others are sealed and said.
    fn expire(&mut self, sealed: &mut Sealed) {
        let Some(below_us) = self.expiry.as_ref().and_then(Expiry::due) else { return };
        let mut vnodes = Vnodes::of(self.complete);
        let dead = |slot: &&Slot| self.is_below(self.groups[slot.group as usize].current, below_us);
        let dead: Vec<Slot> = self.index.iter().filter(dead).copied().collect();
        let Some(expiry) = &mut self.expiry else { return };
        dead.iter().for_each(|slot| vnodes.insert(Vnode::of_hash(slot.hash)));
        expiry.delete(std::iter::once(self.table.layout().id), &vnodes, &mut sealed.runs);
        for Slot { hash, group } in dead {
            if let Ok(slot) = self.index.find_entry(spread(hash), |slot| slot.group == group) {
                slot.remove();
            }
            self.release(self.groups[group as usize].current);
            self.free.push(group);
        }
    }

    /// Moves the rows of a sparse page to the tail and empties the page. False if there is none.
    fn compact(&mut self) -> Result<bool, OperatorError> {
        let Some(page) = self.arena.sparse_page() else { return Ok(false) };
        let old: Vec<RowId> =
            self.arena.page_ids(page).filter(|id| self.owner[*id as usize] != NOBODY).collect();
        self.relocate(&old)?;
        self.arena.empty_page(page);
        Ok(true)
    }

    /// Copies rows to the tail, for their page is to be emptied.
    fn relocate(&mut self, old: &[RowId]) -> Result<(), OperatorError> {
        let columns = self.arena.gather(old, &self.all)?;
        let mut new = Vec::new();
        self.arena.append(&columns, old.len(), &mut new)?;
        self.owner.resize(self.arena.ids(), NOBODY);
        for (old, new) in old.iter().zip(new) {
            let group = std::mem::replace(&mut self.owner[*old as usize], NOBODY);
            self.owner[new as usize] = group;
            let best = &mut self.groups[group as usize];
            for row in [&mut best.current, &mut best.said] {
                if *row == *old {
                    *row = new;
                }
            }
        }
        Ok(())
    }

    /// Evicts page after page until no more than `memory` bytes are held.
    fn evict_pages(&mut self, memory: usize, applied: u32) -> Result<(), OperatorError> {
        self.arena.end_page()?;
        for page in self.arena.full_pages() {
            if self.memory() <= memory {
                break;
            }
            self.evict_page(page, applied)?;
        }
        Ok(())
    }

    /// Forgets the groups of a full page that were not used lately and did not change since interval
    /// `applied`; the others' rows move on.
    fn evict_page(&mut self, page: u32, applied: u32) -> Result<(), OperatorError> {
        let ids = self.arena.page_ids(page).filter(|id| self.owner[*id as usize] != NOBODY);
        let stays = |id: &RowId| {
            let best = &self.groups[self.owner[*id as usize] as usize];
            best.used || best.changed > applied || best.current != best.said
        };
        let (kept, gone): (Vec<RowId>, Vec<RowId>) = ids.partition(stays);
        let columns = self.arena.gather(&gone, &self.all)?;
        for (id, hash) in gone.iter().zip(self.hashes(&columns, gone.len())) {
            let group = std::mem::replace(&mut self.owner[*id as usize], NOBODY);
            if let Ok(slot) = self.index.find_entry(spread(hash), |slot| slot.group == group) {
                slot.remove();
            }
            self.free.push(group);
        }
        for id in &kept {
            self.groups[self.owner[*id as usize] as usize].used = false;
        }
        self.relocate(&kept)?;
        self.arena.empty_page(page);
        self.complete &= gone.is_empty();
        Ok(())
    }
}

impl Operator for TopOne {
    fn name(&self) -> &'static str {
        "top_n"
    }

    fn restore(&mut self, _restored: &Restored<'_>) -> Result<(), OperatorError> {
        self.complete = false;
        Ok(())
    }

    fn complete(&self) -> bool {
        self.complete
    }

    fn wanted(&self, _port: usize, batch: &ChangeBatch, wanted: &mut Wanted) -> Result<(), OperatorError> {
        let columns = batch.rows().columns();
        let hashes = self.hashes(columns, batch.num_rows());
        let layout = self.table.layout();
        let keys = layout.keys(batch.rows());
        let mut seen = hashbrown::HashSet::new();
        for (row, key) in keys.iter().enumerate() {
            if self.find(columns, row, hashes[row]).is_none() && seen.insert(key) {
                wanted.prefixes.push((layout.id, key.to_vec()));
            }
        }
        Ok(())
    }

    fn supply(&mut self, _wanted: &Wanted, entries: Vec<Fetched>) -> Result<(), OperatorError> {
        if entries.is_empty() {
            return Ok(());
        }
        let layout = self.table.layout().clone();
        let keys: Vec<Vec<u8>> = entries.iter().map(|entry| full_key(layout.id, &entry.key)).collect();
        let rows = keys.iter().zip(&entries).map(|(key, entry)| (key.as_slice(), entry.value.as_slice()));
        self.load(&layout.decode_rows(rows)?.into_changes())
    }

    fn keyed(&self) -> Option<Keyed> {
        let layout = self.table.layout();
        Some(Keyed { tables: vec![layout.id], key: layout.key.clone() })
    }

    fn cold(&self, _table: TableId, prefixes: &[&[u8]]) -> Result<Vec<bool>, OperatorError> {
        let layout = self.table.layout();
        let keys = layout.key.decode(prefixes.iter().map(|prefix| &prefix[1..]))?;
        // Only the group's columns are looked at.
        let unread: ArrayRef = Arc::new(NullArray::new(prefixes.len()));
        let mut columns = vec![unread; self.all.len()];
        for (column, key) in layout.key_columns.iter().zip(keys) {
            columns[*column] = key;
        }
        let hashes = self.hashes(&columns, prefixes.len());
        Ok((0..prefixes.len()).map(|row| self.find(&columns, row, hashes[row]).is_none()).collect())
    }

    fn filled(&mut self) {
        self.complete = true;
    }

    fn on_change(
        &mut self,
        _port: usize,
        batch: ChangeBatch,
        _out: &mut Output,
    ) -> Result<Progress, OperatorError> {
        if batch.diffs().is_some_and(|diffs| diffs.iter().any(|d| *d < 0)) {
            return Err(OperatorError::Internal("a top-n's input that only inserts has retracted".into()));
        }
        self.compact()?;
        let columns = batch.rows().columns();
        let hashes = self.hashes(columns, batch.num_rows());
        let winners = self.winners(columns, &hashes);
        if winners.len() == batch.num_rows() {
            self.take_up(columns, &hashes, false)?;
        } else if !winners.is_empty() {
            let hashes: Vec<u64> = winners.iter().map(|row| hashes[*row as usize]).collect();
            let indices = UInt32Array::from(winners);
            let columns: Result<Vec<_>, _> = columns.iter().map(|c| take(c, &indices, None)).collect();
            self.take_up(&columns?, &hashes, false)?;
        }
        Ok(Progress::Done)
    }

    fn on_watermark(&mut self, _: usize, mark: Watermark, _: &mut Output) -> Result<Progress, OperatorError> {
        if self.group.contains(&mark.column) {
            self.watermarks.retain(|w| w.column != mark.column);
            self.watermarks.push(mark);
        }
        if let Some(expiry) = self.expiry.as_mut().filter(|_| self.group.first() == Some(&mark.column)) {
            expiry.advance(mark.time_us);
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
        let unsealed = std::mem::take(&mut self.unsealed);
        if unsealed.is_empty() {
            // There may be no change soon, and nothing waits for this.
            while self.compact()? {}
        } else {
            let mut ids: Vec<RowId> = unsealed.iter().map(|g| self.groups[*g as usize].current).collect();
            if let Some(below_us) = self.expiry.as_ref().and_then(Expiry::due) {
                // They go with this very checkpoint.
                ids.retain(|id| !self.is_below(*id, below_us));
            }
            let picked = self.arena.pick(ids, None);
            sealed.runs.placed(self.table.layout(), || picked.placed());
        }
        self.intervals.seal(barrier.epoch);
        self.expire(sealed);
        self.arena.sealed();
        Ok(())
    }

    fn state_entries(&self) -> usize {
        self.index.len()
    }

    fn memory(&self) -> usize {
        self.arena.memory()
            + self.index.capacity() * (size_of::<Slot>() + 1)
            + self.groups.capacity() * size_of::<Best>()
            + self.owner.capacity() * 4
            + self.table.memory()
    }

    fn evict(&mut self, applied: Epoch, bytes: usize) -> usize {
        let applied = self.intervals.applied(applied);
        let before = self.memory();
        // Two rounds: the first takes away the second chance of groups that were used.
        for _ in 0..2 {
            if self.evict_pages(before.saturating_sub(bytes), applied).is_err() {
                break;
            }
        }
        before - self.memory().min(before)
    }
}

// Tested with the other top-n, by tests/top_n.rs.
