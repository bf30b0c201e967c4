//! JoinSide: the rows of one input of a hash join, found by key.
//!
//! ```text
//!   index   hash of the key ──> head ──next──> row ──next──> row        one chain a key
//!   arena   row ──> its columns (see row_arena)
//!   counted only:
//!     rows    hash of the row ──> row        where a retraction finds what it takes back
//!     counts  row ──> how often it occurs;   prev  row ──> the one before it in its chain
//! ```
//! A side whose input only inserts keeps each occurrence as a row of its own and needs none of the
//! counted parts. A side may keep fewer columns than its input has: those that the join reads.
//! **Invariant:** exactly the rows whose count is not zero are linked into a chain.

use super::expiry::Expiry;
use super::intervals::Intervals;
use super::join_state::layout;
use super::row_arena::{NO_ROW, RowArena, RowId};
use super::row_eq::{hash_is_exact, same_row};
use crate::dataflow::operator::OperatorError;
use crate::state::table::StateTable;
use crate::stream::vnode::hash_columns;
use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use hashbrown::hash_table::Entry;
use hashbrown::{HashMap, HashTable};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use weir_catalog::TableId;

/// What a side is, fixed by the plan.
#[derive(Clone, Debug)]
pub struct SideSpec {
    /// The internal table that remembers its rows.
    pub table: TableId,
    /// The columns kept, as ordinals of the input, ascending.
    pub stored: Vec<usize>,
    /// Their schema.
    pub schema: SchemaRef,
    /// The join key, as ordinals of the columns kept.
    pub keys: Vec<usize>,
    /// Whether the input can retract.
    pub counted: bool,
    /// Columns kept that are unique in the input, if any are known to be.
    pub unique: Option<Vec<usize>>,
    /// Whether the other side asks how many rows have a key.
    pub totals: bool,
    /// Whether each row knows how many rows of the other side it matches.
    pub matches: bool,
    /// Whether rows with NULL in their key are kept: NULL is the same as NULL then.
    pub null_keys: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct KeySlot {
    pub(super) hash: u64,
    pub(super) head: RowId,
    /// The key's place in `totals`.
    total: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RowSlot {
    hash: u32,
    pub(super) id: RowId,
}

/// The rows of one input of a hash join.
#[derive(Debug)]
pub struct JoinSide {
    pub(super) spec: SideSpec,
    pub(super) all: Vec<usize>,
    /// The columns by whose hash a counted row is found.
    identity: Vec<usize>,
    /// Whether keys with the same hash are the same.
    exact: bool,
    /// Tests make keys collide.
    #[cfg(test)]
    hash_mask: u64,

    pub(super) arena: RowArena,
    pub(super) index: HashTable<KeySlot>,
    pub(super) next: Vec<RowId>,
    pub(super) prev: Vec<RowId>,
    pub(super) rows: HashTable<RowSlot>,
    pub(super) counts: Vec<i64>,
    pub(super) totals: Vec<i64>,
    pub(super) free_totals: Vec<u32>,
    /// By row: how many rows of the other side it matches (under a residual).
    pub(super) matches: Vec<i64>,
    /// How many rows there are, each as often as it occurs.
    pub(super) occurrences: i64,
    /// Counted: rows changed since the last checkpoint, and by how much.
    pub(super) dirty: HashMap<RowId, i64>,
    /// Counted, by row: the interval in which it last changed; 0 for what was read from state.
    pub(super) changed: Vec<u32>,
    /// Not counted: rows appended, with the interval, of the last intervals.
    pub(super) appended: VecDeque<(u32, Range<RowId>)>,
    pub(super) intervals: Intervals,
    /// Whether a key that is not in the index has no rows.
    pub(super) complete: bool,
    /// Nothing was ever evicted, so keys need not be noted when they lose their last row.
    pub(super) resident: bool,
    /// The last interval in which a key lost its last row and was not noted.
    pub(super) emptied_unnoted: u32,
    /// Keys without rows, whatever state that is not applied yet says; with their vnode, and the
    /// interval in which they lost the last row.
    pub(super) emptied: HashMap<Vec<u8>, u32>,
    pub(super) table: StateTable,
    /// Where the first key column carries a watermark: how far rows are freed.
    pub(super) expiry: Option<Expiry>,
    /// Of these, none is older.
    pub(super) oldest_us: i64,
}

/// hashbrown takes the tag from the top bits, which are the vnode's; an actor has few of these.
pub(super) fn spread(hash: u64) -> u64 {
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

pub(super) fn spread_row(hash: u32) -> u64 {
    spread(u64::from(hash) | 1 << 32)
}

/// The columns of `all` at `ordinals`.
pub fn pick(all: &[ArrayRef], ordinals: &[usize]) -> Vec<ArrayRef> {
    ordinals.iter().map(|c| all[*c].clone()).collect()
}

impl JoinSide {
    /// An empty side. `expires`: its first key column carries a watermark on both sides.
    pub fn new(spec: SideSpec, expires: bool) -> Self {
        let types: Vec<_> = spec.schema.fields().iter().map(|f| f.data_type().clone()).collect();
        let all: Vec<usize> = (0..types.len()).collect();
        let identity = spec.unique.clone().unwrap_or_else(|| all.clone());
        // A column of nothing but NULL tells no rows apart.
        let identity = identity.into_iter().filter(|c| types[*c] != DataType::Null).collect();
        let exact = !spec.null_keys && spec.keys.len() == 1 && hash_is_exact(&types[spec.keys[0]]);
        let table = StateTable::new(Arc::new(layout(&spec)));
        Self {
            arena: RowArena::new(types),
            all,
            identity,
            exact,
            #[cfg(test)]
            hash_mask: u64::MAX,
            index: HashTable::new(),
            next: Vec::new(),
            prev: Vec::new(),
            rows: HashTable::new(),
            counts: Vec::new(),
            totals: Vec::new(),
            free_totals: Vec::new(),
            matches: Vec::new(),
            occurrences: 0,
            dirty: HashMap::new(),
            changed: Vec::new(),
            appended: VecDeque::new(),
            intervals: Intervals::default(),
            complete: true,
            resident: true,
            emptied_unnoted: 0,
            emptied: HashMap::new(),
            table,
            expiry: expires.then(Expiry::default),
            oldest_us: i64::MAX,
            spec,
        }
    }

    /// The hashes of keys, by which they are found.
    pub fn key_hashes(&self, keys: &[ArrayRef], rows: usize) -> Vec<u64> {
        let mut hashes = Vec::new();
        hash_columns(keys, rows, &mut hashes);
        #[cfg(test)]
        hashes.iter_mut().for_each(|h| *h &= self.hash_mask);
        hashes
    }

    /// Makes the hashes of keys collide.
    #[cfg(test)]
    pub fn collide(&mut self) {
        (self.hash_mask, self.exact) = (3, false);
    }

    /// The head of the chain of each key; [`NO_ROW`] where there is none.
    pub fn find(&self, keys: &[ArrayRef], hashes: &[u64]) -> Vec<RowId> {
        hashes
            .iter()
            .enumerate()
            .map(|(row, h)| self.slot(keys, row, *h).map_or(NO_ROW, |s| s.head))
            .collect()
    }

    /// How often rows of each key occur.
    pub fn totals(&self, keys: &[ArrayRef], hashes: &[u64]) -> Vec<i64> {
        assert!(self.spec.totals, "totals are kept where they are asked for");
        let total = |s: &KeySlot| self.totals[s.total as usize];
        hashes.iter().enumerate().map(|(row, h)| self.slot(keys, row, *h).map_or(0, total)).collect()
    }

    #[inline]
    pub(super) fn slot(&self, keys: &[ArrayRef], row: usize, hash: u64) -> Option<&KeySlot> {
        let same = |s: &KeySlot| s.hash == hash && (self.exact || self.has_key(s.head, keys, row));
        self.index.find(spread(hash), same)
    }

    fn has_key(&self, id: RowId, keys: &[ArrayRef], row: usize) -> bool {
        let (cells, at) = self.arena.cell(id);
        self.spec.keys.iter().zip(keys).all(|(c, key)| super::row_eq::same_value(&cells[*c], at, key, row))
    }

    /// The heads of all chains.
    pub fn heads(&self) -> Vec<RowId> {
        self.index.iter().map(|s| s.head).collect()
    }

    /// How often row `id` occurs.
    #[inline]
    pub fn count(&self, id: RowId) -> i64 {
        if self.spec.counted { self.counts[id as usize] } else { 1 }
    }

    /// All columns kept of rows `ids`.
    pub fn gather(&self, ids: &[RowId]) -> Result<Vec<ArrayRef>, OperatorError> {
        Ok(self.arena.gather(ids, &self.all)?)
    }

    /// Takes up a change: `columns` are the columns kept, `hashes` those of the keys. Returns the
    /// row that each row of the change is, or was until the change took it away.
    pub fn change(
        &mut self,
        columns: &[ArrayRef],
        diffs: Option<&[i64]>,
        hashes: &[u64],
    ) -> Result<Vec<RowId>, OperatorError> {
        self.occurrences += diffs.map_or(hashes.len() as i64, |d| d.iter().sum());
        self.note_oldest(columns);
        if self.spec.counted {
            return self.change_counted(columns, diffs, hashes);
        }
        let Some(diffs) = diffs else { return self.append_new(columns, hashes) };
        if diffs.iter().any(|d| *d < 0) {
            return Err(OperatorError::Internal("a join's input that only inserts has retracted".into()));
        }
        let (columns, hashes) = repeated(columns, diffs, hashes)?;
        let ids = self.append_new(&columns, &hashes)?;
        // The first of the rows that stand for a row: they all have the same matches.
        let firsts = diffs.iter().scan(0usize, |end, d| Some(std::mem::replace(end, *end + *d as usize)));
        Ok(firsts.map(|first| ids[first]).collect())
    }

    fn append_new(&mut self, columns: &[ArrayRef], hashes: &[u64]) -> Result<Vec<RowId>, OperatorError> {
        let ids = self.append(columns, hashes)?;
        note_appended(&mut self.appended, self.intervals.current(), &ids);
        Ok(ids)
    }

    /// Appends rows, each occurring once, and links them.
    pub(super) fn append(
        &mut self,
        columns: &[ArrayRef],
        hashes: &[u64],
    ) -> Result<Vec<RowId>, OperatorError> {
        let mut ids = Vec::new();
        self.arena.append(columns, hashes.len(), &mut ids)?;
        self.make_room();
        for (id, hash) in ids.iter().zip(hashes) {
            self.link(*id, *hash, 1);
        }
        Ok(ids)
    }

    /// Makes the vectors by row as long as the arena's numbers reach.
    pub(super) fn make_room(&mut self) {
        let ids = self.arena.ids();
        self.next.resize(ids, NO_ROW);
        if self.spec.counted {
            self.prev.resize(ids, NO_ROW);
            self.counts.resize(ids, 0);
            self.changed.resize(ids, 0);
        }
        if self.spec.matches {
            self.matches.resize(ids, 0);
        }
    }

    /// Puts row `id` at the head of its key's chain.
    pub(super) fn link(&mut self, id: RowId, hash: u64, count: i64) {
        let Self { index, arena, spec, exact, .. } = self;
        let same = |s: &KeySlot| {
            s.hash == hash
                && (*exact || {
                    let ((a, i), (b, j)) = (arena.cell(s.head), arena.cell(id));
                    same_row(a, i, b, j, &spec.keys)
                })
        };
        let (head, total) = match index.entry(spread(hash), same, |s| spread(s.hash)) {
            Entry::Occupied(mut slot) => {
                let slot = slot.get_mut();
                (std::mem::replace(&mut slot.head, id), slot.total)
            }
            Entry::Vacant(vacant) => {
                let total = match self.free_totals.pop() {
                    _ if !self.spec.totals => 0,
                    Some(free) => free,
                    None => {
                        self.totals.push(0);
                        self.totals.len() as u32 - 1
                    }
                };
                vacant.insert(KeySlot { hash, head: id, total });
                (NO_ROW, total)
            }
        };
        self.next[id as usize] = head;
        if self.spec.counted {
            self.prev[id as usize] = NO_ROW;
            if head != NO_ROW {
                self.prev[head as usize] = id;
            }
        }
        if self.spec.totals {
            self.totals[total as usize] += count;
        }
    }

    /// Takes row `id`, which occurs no more, out of its chain. Its neighbours stand for it as what
    /// changed of their key.
    fn unlink(&mut self, id: RowId, hash: u64) {
        let (next, prev) = (self.next[id as usize], self.prev[id as usize]);
        if next != NO_ROW {
            self.prev[next as usize] = prev;
            self.changed[next as usize] = self.intervals.current();
        }
        if prev != NO_ROW {
            self.next[prev as usize] = next;
            self.changed[prev as usize] = self.intervals.current();
            return;
        }
        let slot = self.index.find_entry(spread(hash), |s| s.head == id);
        let Ok(mut slot) = slot else { unreachable!("the first row of a chain is its head") };
        if next != NO_ROW {
            slot.get_mut().head = next;
        } else {
            let (slot, _) = slot.remove();
            self.note_emptied(id);
            if self.spec.totals {
                debug_assert_eq!(self.totals[slot.total as usize], 0, "no rows, no occurrences");
                self.free_totals.push(slot.total);
            }
        }
    }

    fn change_counted(
        &mut self,
        columns: &[ArrayRef],
        diffs: Option<&[i64]>,
        hashes: &[u64],
    ) -> Result<Vec<RowId>, OperatorError> {
        let diff = |row: usize| diffs.map_or(1, |d| d[row]);
        let row_hashes = self.row_hashes(columns, hashes.len());
        let mut ids: Vec<RowId> = (0..hashes.len())
            .map(|row| self.find_row(columns, row, row_hashes[row]).unwrap_or(NO_ROW))
            .collect();
        let keys = pick(columns, &self.spec.keys);
        for (row, id) in ids.iter().enumerate().filter(|(_, id)| **id != NO_ROW) {
            self.add(*id, diff(row), &keys, row, hashes[row]);
        }
        let new: Vec<u32> = (0..ids.len() as u32).filter(|row| ids[*row as usize] == NO_ROW).collect();
        let mut appended = Vec::new();
        if new.len() == ids.len() {
            self.arena.append(columns, ids.len(), &mut appended)?;
        } else if !new.is_empty() {
            let indices = UInt32Array::from(new.clone());
            let columns: Result<Vec<_>, _> = columns.iter().map(|c| take(c, &indices, None)).collect();
            self.arena.append(&columns?, new.len(), &mut appended)?;
        }
        self.make_room();
        for (row, id) in new.into_iter().map(|row| row as usize).zip(appended) {
            // An equal row may have come before it in this very change.
            if let Some(first) = self.find_row(columns, row, row_hashes[row]) {
                self.arena.free(id);
                self.counts[id as usize] = 0;
                self.add(first, diff(row), &keys, row, hashes[row]);
                ids[row] = first;
                continue;
            }
            self.insert_row(id, diff(row), hashes[row], row_hashes[row]);
            self.changed[id as usize] = self.intervals.current();
            self.dirty.insert(id, diff(row));
            ids[row] = id;
        }
        for (row, id) in ids.iter().enumerate() {
            self.drop_if_gone(*id, hashes[row], row_hashes[row]);
        }
        Ok(ids)
    }

    /// Row `id` of the arena, of a counted side, is new and occurs `count` times.
    pub(super) fn insert_row(&mut self, id: RowId, count: i64, hash: u64, row_hash: u32) {
        self.counts[id as usize] = count;
        let slot = RowSlot { hash: row_hash, id };
        self.rows.insert_unique(spread_row(row_hash), slot, |s| spread_row(s.hash));
        self.link(id, hash, count);
    }

    /// Row `id`, which is linked, occurs `diff` times more.
    fn add(&mut self, id: RowId, diff: i64, keys: &[ArrayRef], row: usize, hash: u64) {
        self.counts[id as usize] += diff;
        self.changed[id as usize] = self.intervals.current();
        *self.dirty.entry(id).or_insert(0) += diff;
        if self.spec.totals {
            let total = self.slot(keys, row, hash).map(|s| s.total as usize);
            self.totals[total.expect("a linked row has a chain")] += diff;
        }
    }

    /// Unlinks row `id` if it occurs no more. Its place is given up once no state write needs it.
    fn drop_if_gone(&mut self, id: RowId, hash: u64, row_hash: u32) {
        if self.counts[id as usize] != 0 {
            return;
        }
        let Ok(slot) = self.rows.find_entry(spread_row(row_hash), |s| s.id == id) else {
            return; // gone already: the change holds the row more than once
        };
        slot.remove();
        self.unlink(id, hash);
        if self.dirty.get(&id) == Some(&0) {
            self.dirty.remove(&id);
            self.arena.free(id);
        }
    }

    fn find_row(&self, columns: &[ArrayRef], row: usize, hash: u32) -> Option<RowId> {
        let same = |s: &RowSlot| {
            s.hash == hash && {
                let (cells, at) = self.arena.cell(s.id);
                same_row(cells, at, columns, row, &self.all)
            }
        };
        self.rows.find(spread_row(hash), same).map(|s| s.id)
    }

    pub(super) fn row_hashes(&self, columns: &[ArrayRef], rows: usize) -> Vec<u32> {
        let mut hashes = Vec::new();
        hash_columns(&pick(columns, &self.identity), rows, &mut hashes);
        hashes.into_iter().map(|h| (h >> 32) as u32 ^ h as u32).collect()
    }

    /// Bytes held, roughly.
    pub fn memory(&self) -> usize {
        self.arena.memory()
            + self.index.capacity() * (size_of::<KeySlot>() + 1)
            + self.rows.capacity() * (size_of::<RowSlot>() + 1)
            + (self.next.capacity() + self.prev.capacity() + self.changed.capacity()) * 4
            + (self.counts.capacity() + self.totals.capacity() + self.matches.capacity()) * 8
            + self.dirty.capacity() * 13
            + self.emptied.capacity() * 48
            + self.table.memory()
    }
}

/// Rows that occur more than once, each occurrence a row.
pub(super) fn repeated(
    columns: &[ArrayRef],
    diffs: &[i64],
    hashes: &[u64],
) -> Result<(Vec<ArrayRef>, Vec<u64>), OperatorError> {
    let repeats = diffs.iter().enumerate().flat_map(|(i, d)| std::iter::repeat_n(i as u32, *d as usize));
    let indices = UInt32Array::from_iter_values(repeats);
    let columns: Result<Vec<_>, _> = columns.iter().map(|c| take(c, &indices, None)).collect();
    let hashes = indices.values().iter().map(|i| hashes[*i as usize]).collect();
    Ok((columns?, hashes))
}

/// Adds rows, in ascending order, to those appended.
pub(super) fn note_appended(appended: &mut VecDeque<(u32, Range<RowId>)>, interval: u32, ids: &[RowId]) {
    for id in ids {
        match appended.back_mut() {
            Some((last, range)) if *last == interval && range.end == *id => range.end += 1,
            _ => appended.push_back((interval, *id..*id + 1)),
        }
    }
}

/// The schema of the columns `stored` of `input`.
pub fn stored_schema(input: &SchemaRef, stored: &[usize]) -> SchemaRef {
    Arc::new(Schema::new(stored.iter().map(|c| input.fields()[*c].clone()).collect::<Vec<_>>()))
}
