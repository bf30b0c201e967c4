//! A join side's room: what it gives back when rows are gone, and when memory is short.
//!
//! Eviction forgets all keys but those whose rows changed since the state that can be read back; the
//! rest starts anew in a fresh arena. Joins under pressure so keep the keys that are in use: what is
//! wanted again is read again, until memory is short the next time.

use super::join_side::{JoinSide, note_appended, pick, spread, spread_row};
use super::row_arena::{NO_ROW, RowArena, RowId};
use crate::dataflow::operator::OperatorError;
use crate::state::StateError;
use crate::state::key::KeyCodec;
use crate::stream::vnode::hash_columns;
use crate::stream::{Epoch, Vnode};
use arrow::array::ArrayRef;
use hashbrown::{HashMap, HashSet};

/// Rows moved at a time.
const PIECE_ROWS: usize = 8192;

/// What a side knew of its rows before they were renumbered.
struct Old {
    arena: RowArena,
    counts: Vec<i64>,
    changed: Vec<u32>,
    matches: Vec<i64>,
}

impl JoinSide {
    /// Moves the live rows of a sparse page to the tail and empties the page. False if there is none.
    pub fn compact(&mut self) -> Result<bool, OperatorError> {
        let Some(page) = self.arena.sparse_page() else { return Ok(false) };
        let needed = |id: &RowId| self.counts[*id as usize] != 0 || self.dirty.contains_key(id);
        let old: Vec<RowId> = self.arena.page_ids(page).filter(needed).collect();
        let columns = self.gather(&old)?;
        let row_hashes = self.row_hashes(&columns, old.len());
        let hashes = self.key_hashes(&pick(&columns, &self.spec.keys), old.len());
        let mut new = Vec::new();
        self.arena.append(&columns, old.len(), &mut new)?;
        self.make_room();
        for i in 0..old.len() {
            self.renumber(old[i], new[i], hashes[i], row_hashes[i]);
        }
        self.arena.empty_page(page);
        Ok(true)
    }

    fn renumber(&mut self, old: RowId, new: RowId, hash: u64, row_hash: u32) {
        let (o, n) = (old as usize, new as usize);
        let count = std::mem::take(&mut self.counts[o]);
        self.counts[n] = count;
        self.changed[n] = self.changed[o];
        if self.spec.matches {
            self.matches[n] = self.matches[o];
        }
        if let Some(delta) = self.dirty.remove(&old) {
            self.dirty.insert(new, delta);
        }
        if count == 0 {
            return; // unlinked, only waiting to be sealed
        }
        let (next, prev) = (self.next[o], self.prev[o]);
        (self.next[n], self.prev[n]) = (next, prev);
        if next != NO_ROW {
            self.prev[next as usize] = new;
        }
        if prev != NO_ROW {
            self.next[prev as usize] = new;
        } else if let Some(slot) = self.index.find_mut(spread(hash), |s| s.head == old) {
            slot.head = new;
        }
        if let Some(slot) = self.rows.find_mut(spread_row(row_hash), |s| s.id == old) {
            slot.id = new;
        }
    }

    /// The vnode and encoded key of each row of keys: what its entries in the state start with.
    pub fn prefixes(&self, keys: &[ArrayRef], rows: usize) -> Vec<Vec<u8>> {
        let layout = self.table.layout();
        let vnodes: Vec<Vnode> = if keys.is_empty() {
            vec![Vnode::SINGLE; rows]
        } else {
            let mut hashes = Vec::new();
            hash_columns(keys, rows, &mut hashes);
            hashes.into_iter().map(Vnode::of_hash).collect()
        };
        // A column that is twice in the join key is once in the stored one.
        let distinct: Vec<ArrayRef> = self.stored_keys().into_iter().map(|at| keys[at].clone()).collect();
        let encoded = layout.key.encode_all(&distinct, rows, Some(&vnodes));
        encoded.iter().map(<[u8]>::to_vec).collect()
    }

    /// Which of these keys must be read from state: their rows, as prefixes, each once.
    pub fn cold(&self, keys: &[ArrayRef], hashes: &[u64]) -> Vec<Vec<u8>> {
        let absent = (0..hashes.len()).filter(|row| self.slot(keys, *row, hashes[*row]).is_none());
        let absent: Vec<usize> = absent.collect();
        if self.complete || absent.is_empty() {
            return Vec::new();
        }
        let prefixes = self.prefixes(keys, hashes.len());
        let mut seen = HashSet::new();
        let wanted = absent.into_iter().map(|row| &prefixes[row]);
        wanted.filter(|p| !self.emptied.contains_key(*p) && seen.insert(*p)).cloned().collect()
    }

    /// The columns of the key as it is stored: each once.
    fn stored_keys(&self) -> Vec<usize> {
        let keys = &self.spec.keys;
        (0..keys.len()).filter(|at| !keys[..*at].contains(&keys[*at])).collect()
    }

    /// The encoding of what prefixes hold after the vnode.
    pub(super) fn key_codec(&self) -> KeyCodec {
        let types = self.arena.types();
        KeyCodec::new(self.stored_keys().iter().map(|at| types[self.spec.keys[*at]].clone()).collect())
    }

    /// Of prefixes as [`JoinSide::prefixes`] makes them: which must be read from state.
    pub(super) fn cold_prefixes(&self, prefixes: &[&[u8]]) -> Result<Vec<bool>, StateError> {
        let stored = self.key_codec().decode(prefixes.iter().map(|prefix| &prefix[1..]))?;
        let places = self.stored_keys();
        let of_column = |column: &usize| places.iter().position(|at| self.spec.keys[*at] == *column);
        let keys: Vec<ArrayRef> =
            self.spec.keys.iter().filter_map(of_column).map(|place| stored[place].clone()).collect();
        let hashes = self.key_hashes(&keys, prefixes.len());
        let is_cold = |row: usize| {
            !self.complete
                && self.slot(&keys, row, hashes[row]).is_none()
                && !self.emptied.contains_key(prefixes[row])
        };
        Ok((0..prefixes.len()).map(is_cold).collect())
    }

    /// Its rows are in the state and none of them in memory.
    pub(super) fn begin_cold(&mut self) {
        (self.complete, self.resident) = (false, false);
    }

    /// All keys that have rows are in memory.
    pub(super) fn take_for_complete(&mut self) {
        (self.complete, self.resident) = (true, true);
        if !self.emptied.is_empty() {
            // They need no longer be noted one by one, but may still be in the state.
            self.emptied = HashMap::new();
            self.emptied_unnoted = self.intervals.current();
        }
    }

    /// The key of row `id` has no rows any more.
    pub(super) fn note_emptied(&mut self, id: RowId) {
        let interval = self.intervals.current();
        if self.resident {
            self.emptied_unnoted = interval;
            return;
        }
        let (cells, at) = self.arena.cell(id);
        let keys: Vec<ArrayRef> = self.spec.keys.iter().map(|c| cells[*c].slice(at, 1)).collect();
        if let Some(prefix) = self.prefixes(&keys, 1).pop() {
            self.emptied.insert(prefix, interval);
        }
    }

    /// Forgets all keys that did not change since `applied`, an epoch that can be read.
    pub fn evict(&mut self, applied: Epoch) -> Result<(), OperatorError> {
        let applied = self.intervals.applied(applied);
        self.resident = false;
        if self.emptied_unnoted > applied {
            return Ok(());
        }
        self.emptied.retain(|_, interval| *interval > applied);
        let kept = self.rows_to_keep(applied)?;
        if kept.len() == self.arena.live() {
            return Ok(());
        }
        self.complete = false;
        self.keep_only(&kept)
    }

    /// The rows of keys that changed after interval `applied`, and rows that must still be sealed.
    fn rows_to_keep(&self, applied: u32) -> Result<Vec<RowId>, OperatorError> {
        let changed: Vec<RowId> = if self.spec.counted {
            let ids = 0..self.changed.len() as RowId;
            // Of a row that is gone, a neighbour is marked as changed.
            ids.filter(|id| self.changed[*id as usize] > applied && self.counts[*id as usize] != 0).collect()
        } else {
            let ranges = self.appended.iter().filter(|(interval, _)| *interval > applied);
            ranges.flat_map(|(_, range)| range.clone()).collect()
        };
        let mut keys = HashSet::new();
        for ids in changed.chunks(PIECE_ROWS) {
            let columns = self.arena.gather(ids, &self.spec.keys)?;
            keys.extend(self.key_hashes(&columns, ids.len()));
        }
        let mut kept: Vec<RowId> = self.dirty.keys().filter(|id| self.count(**id) == 0).copied().collect();
        for slot in self.index.iter().filter(|slot| keys.contains(&slot.hash)) {
            let mut id = slot.head;
            while id != NO_ROW {
                kept.push(id);
                id = self.next[id as usize];
            }
        }
        kept.sort_unstable();
        Ok(kept)
    }

    /// Moves rows `kept`, ascending, to a fresh arena and forgets all others.
    pub(super) fn keep_only(&mut self, kept: &[RowId]) -> Result<(), OperatorError> {
        let fresh = RowArena::new(self.arena.types().to_vec());
        let old = Old {
            arena: std::mem::replace(&mut self.arena, fresh),
            counts: std::mem::take(&mut self.counts),
            changed: std::mem::take(&mut self.changed),
            matches: std::mem::take(&mut self.matches),
        };
        self.index = Default::default();
        self.rows = Default::default();
        (self.next, self.prev) = Default::default();
        (self.totals, self.free_totals) = Default::default();
        let mut new = Vec::with_capacity(kept.len());
        for ids in kept.chunks(PIECE_ROWS) {
            let columns = old.arena.gather(ids, &self.all)?;
            let hashes = self.key_hashes(&pick(&columns, &self.spec.keys), ids.len());
            if !self.spec.counted {
                new.extend(self.append(&columns, &hashes)?);
            } else {
                self.adopt(&old, ids, &columns, &hashes, &mut new)?;
            }
        }
        if self.spec.matches {
            for (old_id, id) in kept.iter().zip(&new) {
                self.matches[*id as usize] = old.matches[*old_id as usize];
            }
        }
        let place = |id: RowId| new[kept.partition_point(|k| *k < id)];
        self.dirty = self.dirty.drain().map(|(id, delta)| (place(id), delta)).collect::<HashMap<_, _>>();
        for (interval, range) in std::mem::take(&mut self.appended) {
            let first = kept.partition_point(|k| *k < range.start);
            let end = kept.partition_point(|k| *k < range.end);
            note_appended(&mut self.appended, interval, &new[first..end]);
        }
        Ok(())
    }

    /// Takes over counted rows of the old arena.
    fn adopt(
        &mut self,
        old: &Old,
        ids: &[RowId],
        columns: &[ArrayRef],
        hashes: &[u64],
        new: &mut Vec<RowId>,
    ) -> Result<(), OperatorError> {
        let row_hashes = self.row_hashes(columns, ids.len());
        let start = new.len();
        self.arena.append(columns, ids.len(), new)?;
        self.make_room();
        for (at, old_id) in ids.iter().enumerate() {
            let (id, from) = (new[start + at], *old_id as usize);
            self.changed[id as usize] = old.changed[from];
            if old.counts[from] != 0 {
                self.insert_row(id, old.counts[from], hashes[at], row_hashes[at]);
            }
        }
        Ok(())
    }
}
