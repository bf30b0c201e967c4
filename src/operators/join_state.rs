//! A join side's rows as state: sealed at checkpoints, read back at a restore.
//!
//! Each row is an entry of the side's internal table:
//!
//! ```text
//!   columns are unique    vnode │ join key │ these columns       → the rest
//!   rows only come        vnode │ join key │ an entry's number   → the rest of each of its rows
//!   otherwise             vnode │ join key │ the rest            → how often it occurs
//! ```
//! The number of an entry is that of its checkpoint's epoch, then its own in it: rows that are never
//! looked for need not be told apart, and those of a key share entries (see [`crate::state::packed`]).

use super::expiry::Expiry;
use super::join_side::{JoinSide, SideSpec, pick, repeated};
use super::row_arena::RowId;
use crate::dataflow::operator::{OperatorError, Restored};
use crate::state::key::KeyOrder;
use crate::state::table::TableLayout;
use crate::state::writes::Writes;
use crate::stream::builder::batch_of;
use crate::stream::{ChangeBatch, Epoch, Vnode};
use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, Schema, TimestampMicrosecondType};
use std::sync::Arc;

/// Rows encoded, or read, at a time.
const PIECE_ROWS: usize = 4096;
/// Intervals of which it is known what was appended: more than can be on their way to the store.
const INTERVALS_KEPT: u32 = 64;

impl JoinSide {
    /// Adds the writes since the last checkpoint to `writes`, to be encoded elsewhere.
    pub fn seal(&mut self, epoch: Epoch, writes: &mut Writes) -> Result<(), OperatorError> {
        // What is below the watermark goes with this very checkpoint.
        let below_us = self.expiry.as_ref().and_then(Expiry::due);
        if self.spec.counted {
            if self.dirty.is_empty() {
                // There may be no change soon, and nothing waits for this.
                while self.compact()? {}
            }
            self.seal_counted(below_us, writes);
        } else {
            self.seal_appended(epoch, below_us, writes)?;
        }
        self.arena.sealed();
        self.intervals.seal(epoch);
        Ok(())
    }

    fn seal_appended(
        &mut self,
        epoch: Epoch,
        below_us: Option<i64>,
        writes: &mut Writes,
    ) -> Result<(), OperatorError> {
        let current = self.intervals.current();
        let unsealed: Vec<_> =
            self.appended.iter().filter(|(i, _)| *i == current).map(|(_, range)| range.clone()).collect();
        let slices = unsealed.into_iter().flat_map(|range| self.arena.slices(range));
        let mut batches: Vec<RecordBatch> = slices
            .map(|(columns, rows)| batch_of(&self.spec.schema, columns, rows))
            .collect::<Result<_, _>>()?;
        if let Some(below_us) = below_us {
            for batch in &mut batches {
                let times = batch.column(self.spec.keys[0]).as_primitive::<TimestampMicrosecondType>();
                let stays: BooleanArray =
                    times.iter().map(|t| Some(t.is_none_or(|t| t >= below_us))).collect();
                *batch = filter_record_batch(batch, &stays)?;
            }
            batches.retain(|batch| batch.num_rows() > 0);
        }
        if !batches.is_empty() {
            if is_packed(&self.spec) {
                writes.packed(self.table.layout(), batches, epoch)?;
            } else {
                let changes = batches.into_iter().map(|rows| Ok(ChangeBatch::insertions(rows)));
                writes.rows(self.table.layout(), changes);
            }
        }
        while self.appended.front().is_some_and(|(interval, _)| interval + INTERVALS_KEPT <= current) {
            self.appended.pop_front();
        }
        Ok(())
    }

    fn seal_counted(&mut self, below_us: Option<i64>, writes: &mut Writes) {
        let dirty = std::mem::take(&mut self.dirty);
        let keyed = self.spec.unique.is_some();
        // In a keyed table the row that takes another's key is put after that one is deleted.
        let delta = |id: RowId, delta: i64| match keyed {
            true if self.count(id) > 0 => 1,
            true => -1,
            false => delta,
        };
        let mut changed: Vec<(RowId, i64)> = dirty.into_iter().map(|(id, d)| (id, delta(id, d))).collect();
        changed.retain(|(_, d)| *d != 0);
        changed.sort_unstable_by_key(|(id, d)| (*d > 0, *id));
        let stays = |id: RowId| below_us.is_none_or(|below_us| self.time_us(id) >= below_us);
        let written = |(id, _): &&(RowId, i64)| stays(*id) || self.count(*id) == 0;
        let (ids, diffs): (Vec<RowId>, Vec<i64>) = changed.iter().filter(written).copied().unzip();
        if !ids.is_empty() {
            let picked = self.arena.pick(ids, Some(diffs));
            writes.placed(self.table.layout(), || picked.placed());
        }
        for (id, _) in changed {
            if self.count(id) == 0 {
                self.arena.free(id);
            }
        }
    }

    /// Reads the rows of the actor's vnodes.
    pub fn restore(&mut self, restored: &Restored<'_>) -> Result<(), OperatorError> {
        let layout = self.table.layout().clone();
        let vnodes: Vec<Vnode> = match layout.distribution.is_empty() {
            true => vec![Vnode::SINGLE],
            false => restored.vnodes.iter().collect(),
        };
        for vnode in vnodes {
            let mut range = Some(layout.range(vnode, &[]));
            while let Some(from) = range {
                let chunk = layout.scan(restored.state.as_ref(), &from, PIECE_ROWS)?;
                range = chunk.next;
                if chunk.last_key.is_some() {
                    self.load(&chunk.rows.into_changes())?;
                }
            }
        }
        Ok(())
    }

    /// Takes up rows that are in the state; returns them, each once for every place that it has now.
    pub fn load(&mut self, rows: &ChangeBatch) -> Result<(Vec<ArrayRef>, Vec<RowId>), OperatorError> {
        let mut columns = rows.rows().columns().to_vec();
        // Without the entry's number.
        columns.truncate(self.all.len());
        let mut hashes = self.key_hashes(&pick(&columns, &self.spec.keys), rows.num_rows());
        self.note_oldest(&columns);
        self.occurrences += (0..rows.num_rows()).map(|row| rows.diff(row)).sum::<i64>();
        if !self.spec.counted {
            if let Some(counts) = rows.diffs() {
                (columns, hashes) = repeated(&columns, counts, &hashes)?;
            }
            let ids = self.append(&columns, &hashes)?;
            return Ok((columns, ids));
        }
        let row_hashes = self.row_hashes(&columns, hashes.len());
        let mut ids = Vec::new();
        self.arena.append(&columns, hashes.len(), &mut ids)?;
        self.make_room();
        for (row, id) in ids.iter().enumerate() {
            self.changed[*id as usize] = 0;
            self.insert_row(*id, rows.diff(row), hashes[row], row_hashes[row]);
        }
        Ok((columns, ids))
    }
}

/// Whether rows that only come share entries.
fn is_packed(spec: &SideSpec) -> bool {
    !spec.counted && spec.unique.is_none()
}

/// How the rows are stored.
pub(super) fn layout(spec: &SideSpec) -> TableLayout {
    let mut fields = spec.schema.fields().to_vec();
    let packed = is_packed(spec);
    if packed {
        fields.push(Arc::new(Field::new("number", DataType::Int64, false)));
    }
    let schema = Arc::new(Schema::new(fields));
    let arity = schema.fields().len();
    let mut key: Vec<usize> = Vec::new();
    let all: Vec<usize> = (0..arity).collect();
    let identity = match &spec.unique {
        Some(unique) => unique.as_slice(),
        None if packed => &all[arity - 1..],
        None => &all,
    };
    for column in spec.keys.iter().chain(identity) {
        if !key.contains(column) {
            key.push(*column);
        }
    }
    let orders = vec![KeyOrder::ASCENDING; key.len()];
    let counted = spec.unique.is_none() && !packed;
    let layout = TableLayout::new(spec.table, &schema, all, (key, orders), spec.keys.clone(), counted);
    if packed { layout.packed() } else { layout }
}
