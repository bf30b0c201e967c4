//! Materialize: writes a relation's rows, the end of a table's, view's or index's dataflow.
//!
//! ```text
//!   changes of an epoch ──> collected ──barrier──> net change of each row ──> state table (sealed with it)
//!                                                        └──────────────────> downstream: views on it, sinks
//! ```
//! What goes downstream is the net change, so a view on a view sees an update as one -1 and one +1.
//! Where nothing can cancel (no key, insertions only) rows are written and passed on as they come.
//! **Invariant:** in a keyed relation an epoch puts at most one row a key. The planner promises it;
//! a source's declared key may break the promise, and then the greatest row stays and the others
//! are counted as conflicts.

use crate::checkpoint::participant::Sealed;
use crate::dataflow::operator::{Operator, OperatorError, Output, Progress};
use crate::state::key::KeyCodec;
use crate::state::table::TableLayout;
use crate::stream::builder::ChangeBuilder;
use crate::stream::vnode::hash_columns;
use crate::stream::{Barrier, BarrierKind, ChangeBatch, Watermark};
use arrow::array::{ArrayRef, UInt32Array};
use arrow::datatypes::SchemaRef;
use hashbrown::hash_table::Entry;
use hashbrown::{HashMap, HashTable};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many rows of a relation were dropped because another row had their key.
pub type ConflictCounter = Arc<AtomicU64>;

/// Writes a relation's rows.
#[derive(Debug)]
pub struct Materialize {
    append_only: bool,
    conflicts: ConflictCounter,

    layout: Arc<TableLayout>,
    /// The epoch's changes, as they are written.
    written: Vec<ChangeBatch>,
    /// The epoch's changes, where they wait for the barrier.
    changes: ChangeBuilder,
    /// The epoch's net change, and how many of its rows went downstream.
    said: Option<(ChangeBatch, usize)>,
    /// Watermarks that wait for the changes before them: by column, the last.
    watermarks: Vec<Watermark>,
}

impl Materialize {
    /// Writes rows of `schema` in this layout. `append_only` says that only insertions come.
    pub fn new(
        layout: Arc<TableLayout>,
        schema: SchemaRef,
        append_only: bool,
        conflicts: ConflictCounter,
    ) -> Self {
        let changes = ChangeBuilder::new(super::expr::nullable(&schema));
        let (written, said) = (Vec::new(), None);
        Self { append_only, conflicts, layout, written, changes, said, watermarks: Vec::new() }
    }

    /// Whether rows can be written as they come: nothing can cancel or conflict.
    fn is_log(&self) -> bool {
        self.append_only && self.layout.counted
    }

    fn say(&mut self, out: &mut Output) -> Progress {
        if let Some((batch, mut at)) = self.said.take() {
            while at < batch.num_rows() {
                if out.is_full() {
                    self.said = Some((batch, at));
                    return Progress::More;
                }
                let rows = out.room().min(batch.num_rows() - at);
                out.push(if rows == batch.num_rows() { batch.clone() } else { batch.slice(at, rows) });
                at += rows;
            }
        }
        self.watermarks.drain(..).for_each(|watermark| out.push_watermark(watermark));
        Progress::Done
    }

    /// The change without rows that conflict: of several rows put under one key the greatest stays.
    fn resolve(&self, batch: ChangeBatch) -> Result<ChangeBatch, OperatorError> {
        let layout = &self.layout;
        if layout.counted {
            return Ok(batch);
        }
        let rows = same_key(&batch, &layout.key_columns);
        let repeated = (0..batch.num_rows()).any(|row| batch.diff(row) > 1);
        if rows.is_empty() && !repeated {
            return Ok(batch);
        }
        let dropped = lesser_rows(&batch, rows);
        let kept: Vec<u32> = (0..batch.num_rows() as u32).filter(|row| !dropped.contains(row)).collect();
        let extra: i64 = (0..batch.num_rows()).map(|row| (batch.diff(row) - 1).max(0)).sum();
        self.conflicts.fetch_add(dropped.len() as u64 + extra as u64, Ordering::Relaxed);
        let diffs: Vec<i64> = kept.iter().map(|row| batch.diff(*row as usize).signum()).collect();
        let rows = batch.take(&UInt32Array::from(kept))?;
        Ok(ChangeBatch::new(rows.rows().clone(), diffs))
    }
}

/// The rows that are put under a key under which others are put too, key by key.
fn same_key(batch: &ChangeBatch, key: &[usize]) -> Vec<Vec<u32>> {
    let columns: Vec<ArrayRef> = key.iter().map(|c| batch.column(*c).clone()).collect();
    let mut hashes = Vec::new();
    hash_columns(&columns, batch.num_rows(), &mut hashes);
    let mut seen: HashTable<u32> = HashTable::with_capacity(batch.num_rows());
    let mut groups: HashMap<u32, Vec<u32>> = HashMap::new();
    let all: Vec<usize> = (0..columns.len()).collect();
    for row in (0..batch.num_rows()).filter(|row| batch.diff(*row) > 0) {
        let same = |other: &u32| super::row_eq::same_row(&columns, *other as usize, &columns, row, &all);
        match seen.entry(spread(hashes[row]), same, |other| spread(hashes[*other as usize])) {
            Entry::Occupied(first) => {
                let first = *first.get();
                groups.entry(first).or_insert_with(|| vec![first]).push(row as u32);
            }
            Entry::Vacant(slot) => {
                slot.insert(row as u32);
            }
        }
    }
    groups.into_values().collect()
}

/// hashbrown takes the tag from the top bits, which are the vnode's; an actor has few of these.
fn spread(hash: u64) -> u64 {
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Of each group all rows but the greatest, as the encoding of the whole row sorts.
fn lesser_rows(batch: &ChangeBatch, groups: Vec<Vec<u32>>) -> hashbrown::HashSet<u32> {
    let columns = batch.rows().columns();
    let codec = KeyCodec::new(columns.iter().map(|c| c.data_type().clone()).collect());
    let encoded = |row: &u32| {
        let mut bytes = Vec::new();
        codec.encode(columns, *row as usize, &mut bytes);
        bytes
    };
    let mut lesser = hashbrown::HashSet::new();
    for mut group in groups {
        group.sort_by_cached_key(encoded);
        group.pop();
        lesser.extend(group);
    }
    lesser
}

impl Operator for Materialize {
    fn name(&self) -> &'static str {
        "materialize"
    }

    fn on_change(
        &mut self,
        _port: usize,
        batch: ChangeBatch,
        out: &mut Output,
    ) -> Result<Progress, OperatorError> {
        if self.is_log() {
            self.written.push(batch.clone());
            out.push(batch);
        } else {
            self.changes.push(batch);
        }
        Ok(Progress::Done)
    }

    fn on_watermark(&mut self, _: usize, mark: Watermark, _: &mut Output) -> Result<Progress, OperatorError> {
        self.watermarks.retain(|w| w.column != mark.column);
        self.watermarks.push(mark);
        Ok(Progress::Done)
    }

    fn on_barrier(&mut self, _barrier: &Barrier, out: &mut Output) -> Result<Progress, OperatorError> {
        if self.changes.is_empty() {
            return Ok(self.say(out));
        }
        let net = self.changes.consolidate()?;
        let net = self.resolve(net)?;
        self.written.push(net.clone());
        self.said = Some((net, 0));
        Ok(self.say(out))
    }

    fn resume(&mut self, out: &mut Output) -> Result<Progress, OperatorError> {
        Ok(self.say(out))
    }

    fn held_until(&self) -> Option<BarrierKind> {
        Some(BarrierKind::Tick)
    }

    fn seal(&mut self, _barrier: &Barrier, sealed: &mut Sealed) -> Result<(), OperatorError> {
        if !self.written.is_empty() {
            sealed.runs.rows(&self.layout, std::mem::take(&mut self.written).into_iter().map(Ok));
        }
        Ok(())
    }

    fn memory(&self) -> usize {
        self.changes.memory()
            + self.written.iter().map(ChangeBatch::memory).sum::<usize>()
            + self.said.as_ref().map_or(0, |(batch, _)| batch.memory())
    }
}

#[cfg(test)]
#[path = "tests/materialize.rs"]
mod tests;
