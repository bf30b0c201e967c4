//! EmitOnClose: holds rows until their window closes, and gives each once, final.
//!
//! ```text
//!   changes ──> rows held, by time: │ w0 w0 w0 │ w1 w1 │ w2 …
//!   barrier:    all below the watermark ───────┘ are given (+1 each) and forgotten
//! ```
//! No change of a row below the watermark of its time column can come any more, so what is held of
//! it is what the query gives in the end, and the output only ever inserts. A row without a time is
//! held for good. The watermark goes on at the barrier, after the rows.
//! State: vnode, time, the other columns → count; in memory the same bytes, as a key.

use super::expr::nullable;
use crate::checkpoint::participant::Sealed;
use crate::dataflow::operator::{Operator, OperatorError, Output, Progress, Restored};
use crate::state::StateError;
use crate::state::expire::encoded_time;
use crate::state::key::KeyCodec;
use crate::state::store::{WriteOp, WriteRun, full_key, prefix_end};
use crate::state::table::decode_count;
use crate::stream::builder::batch_of;
use crate::stream::vnode::hash_columns;
use crate::stream::{Barrier, BarrierKind, ChangeBatch, Vnode, Watermark};
use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use weir_catalog::TableId;

/// Bytes that a held row costs beside its own.
const ROW_OVERHEAD: usize = 56;

/// A held row.
#[derive(Clone, Copy, Debug)]
struct Held {
    vnode: Vnode,
    count: i64,
}

/// Holds rows until the watermark has passed them.
#[derive(Debug)]
pub struct EmitOnClose {
    time: usize,
    /// The columns in the order in which they are encoded: time first.
    columns: Vec<usize>,
    codec: KeyCodec,
    schema: SchemaRef,
    /// The columns by whose hash rows are placed.
    distribution: Vec<usize>,
    table: TableId,

    held: BTreeMap<Arc<[u8]>, Held>,
    bytes: usize,
    /// Changes of what is held since the last checkpoint.
    log: HashMap<Arc<[u8]>, (Vnode, i64)>,
    watermark_us: Option<i64>,
    /// The watermark that went on.
    sent_us: Option<i64>,
}

impl EmitOnClose {
    /// Holds rows of `schema` by the column `time`; they come placed by `distribution`.
    pub fn new(schema: &SchemaRef, time: usize, distribution: Vec<usize>, table: TableId) -> Self {
        let others = (0..schema.fields().len()).filter(|c| *c != time);
        let columns: Vec<usize> = std::iter::once(time).chain(others).collect();
        let types = columns.iter().map(|c| schema.field(*c).data_type().clone()).collect();
        Self {
            time,
            columns,
            codec: KeyCodec::new(types),
            schema: nullable(schema),
            distribution,
            table,
            held: BTreeMap::new(),
            bytes: 0,
            log: HashMap::new(),
            watermark_us: None,
            sent_us: None,
        }
    }

    fn vnodes(&self, batch: &ChangeBatch) -> Vec<Vnode> {
        if self.distribution.is_empty() {
            return vec![Vnode::SINGLE; batch.num_rows()];
        }
        let columns: Vec<ArrayRef> = self.distribution.iter().map(|c| batch.column(*c).clone()).collect();
        let mut hashes = Vec::new();
        hash_columns(&columns, batch.num_rows(), &mut hashes);
        hashes.into_iter().map(Vnode::of_hash).collect()
    }

    fn add(&mut self, row: &[u8], vnode: Vnode, diff: i64) {
        let row: Arc<[u8]> = match self.held.get_key_value(row) {
            Some((row, _)) => row.clone(),
            None => row.into(),
        };
        let held = self.held.entry(row.clone()).or_insert_with(|| {
            self.bytes += row.len() + ROW_OVERHEAD;
            Held { vnode, count: 0 }
        });
        held.count += diff;
        if held.count == 0 {
            self.held.remove(&row);
            self.bytes -= row.len() + ROW_OVERHEAD;
        }
        self.log.entry(row).or_insert((vnode, 0)).1 += diff;
    }

    /// Gives the rows below the watermark, as far as the output has room.
    fn close(&mut self, out: &mut Output) -> Result<Progress, OperatorError> {
        let Some(below_us) = self.watermark_us.filter(|_| self.watermark_us > self.sent_us) else {
            return Ok(Progress::Done);
        };
        let bound = encoded_time(below_us);
        loop {
            let below = (Bound::Unbounded, Bound::Excluded(bound.as_slice()));
            let closed = self.held.range::<[u8], _>(below).take(out.room());
            let closed: Vec<(Arc<[u8]>, Held)> = closed.map(|(row, held)| (row.clone(), *held)).collect();
            if closed.is_empty() {
                break;
            }
            if out.is_full() {
                return Ok(Progress::More);
            }
            out.push(self.decode(&closed)?);
            for (row, held) in closed {
                self.add(&row, held.vnode, -held.count);
            }
        }
        self.sent_us = Some(below_us);
        out.push_watermark(Watermark { column: self.time, time_us: below_us });
        Ok(Progress::Done)
    }

    fn decode(&self, rows: &[(Arc<[u8]>, Held)]) -> Result<ChangeBatch, OperatorError> {
        let encoded = self.codec.decode(rows.iter().map(|(row, _)| &**row))?;
        let mut columns = encoded.clone();
        for (column, place) in encoded.into_iter().zip(&self.columns) {
            columns[*place] = column;
        }
        let batch = batch_of(&self.schema, columns, rows.len())?;
        if rows.iter().all(|(_, held)| held.count == 1) {
            return Ok(ChangeBatch::insertions(batch));
        }
        Ok(ChangeBatch::new(batch, rows.iter().map(|(_, held)| held.count).collect::<Vec<_>>()))
    }
}

impl Operator for EmitOnClose {
    fn name(&self) -> &'static str {
        "emit on close"
    }

    fn restore(&mut self, restored: &Restored<'_>) -> Result<(), OperatorError> {
        let vnodes: Vec<Vnode> = match self.distribution.is_empty() {
            true => vec![Vnode::SINGLE],
            false => restored.vnodes.iter().collect(),
        };
        for vnode in vnodes {
            let lower = full_key(self.table, &[vnode.0]);
            let mut failed: Result<(), StateError> = Ok(());
            restored.state.scan(&lower, &prefix_end(&lower), &mut |key, value| {
                let row: Arc<[u8]> = key[lower.len()..].into();
                failed = decode_count(value).map(|count| {
                    self.bytes += row.len() + ROW_OVERHEAD;
                    self.held.insert(row, Held { vnode, count });
                });
                if failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            failed?;
        }
        Ok(())
    }

    fn on_change(
        &mut self,
        _port: usize,
        batch: ChangeBatch,
        _out: &mut Output,
    ) -> Result<Progress, OperatorError> {
        let vnodes = self.vnodes(&batch);
        let columns: Vec<ArrayRef> = self.columns.iter().map(|c| batch.column(*c).clone()).collect();
        let rows = self.codec.encode_all(&columns, batch.num_rows(), None);
        for (at, row) in rows.iter().enumerate() {
            self.add(row, vnodes[at], batch.diff(at));
        }
        Ok(Progress::Done)
    }

    fn on_watermark(&mut self, _: usize, mark: Watermark, _: &mut Output) -> Result<Progress, OperatorError> {
        if mark.column == self.time {
            self.watermark_us = self.watermark_us.max(Some(mark.time_us));
        }
        Ok(Progress::Done)
    }

    fn on_barrier(&mut self, _barrier: &Barrier, out: &mut Output) -> Result<Progress, OperatorError> {
        self.close(out)
    }

    fn resume(&mut self, out: &mut Output) -> Result<Progress, OperatorError> {
        self.close(out)
    }

    fn held_until(&self) -> Option<BarrierKind> {
        Some(BarrierKind::Checkpoint)
    }

    fn seal(&mut self, barrier: &Barrier, sealed: &mut Sealed) -> Result<(), OperatorError> {
        if !barrier.is_checkpoint() {
            return Ok(());
        }
        let mut run = WriteRun::new(self.table);
        for (row, (vnode, diff)) in self.log.drain().filter(|(_, (_, diff))| *diff != 0) {
            let key = |out: &mut Vec<u8>| {
                out.push(vnode.0);
                out.extend_from_slice(&row);
            };
            run.write_with(WriteOp::AddCount, key, |out| out.extend_from_slice(&diff.to_le_bytes()));
        }
        if !run.is_empty() {
            sealed.runs.push(run);
        }
        Ok(())
    }

    fn state_entries(&self) -> usize {
        self.held.len()
    }

    fn memory(&self) -> usize {
        self.bytes + self.log.capacity() * size_of::<(Arc<[u8]>, Vnode, i64)>()
    }
}

#[cfg(test)]
#[path = "tests/emit_on_close.rs"]
mod tests;
