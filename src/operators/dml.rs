//! A table's changes enter here: at each barrier, the DML log's records up to its position.
//!
//! With a declared watermark (append-only tables), rows that come below it are dropped, counted and
//! kept as dead letters. The whole log is one split ([`super::lateness`]): every actor looks at all
//! of the table's rows, in their order, so they all find the same ones late and promise the same.

use super::lateness::Mark;
use crate::checkpoint::participant::{Offset, OffsetKey, Sealed};
use crate::connectors::dead_letter;
use crate::connectors::source::DeadLetter;
use crate::dataflow::operator::{Operator, OperatorError, Output, Progress, Restored};
use crate::dml::log::DmlLog;
use crate::state::table::StateTable;
use crate::stream::vnode::hash_columns;
use crate::stream::{Barrier, ChangeBatch, Vnode, VnodeSet, Watermark};
use arrow::array::{ArrayRef, AsArray, BooleanArray, UInt32Array};
use arrow::compute::not;
use arrow::datatypes::TimestampMicrosecondType;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_catalog::ObjectId;
use weir_catalog::source::{LateRows, WatermarkSpec};

/// Injects the changes of one table, of one actor's vnodes.
pub struct DmlReader {
    table: ObjectId,
    log: Arc<DmlLog>,
    key: Vec<usize>,
    vnodes: VnodeSet,

    /// Up to where it has read; none before its first barrier, which says so.
    position: Option<u64>,
    waiting: VecDeque<ChangeBatch>,
    event_time: Option<EventTime>,
}

/// A table's watermark, and what it has shown of it.
struct EventTime {
    spec: WatermarkSpec,
    /// The table's name, for dead letters.
    name: String,
    /// The actor's index: the first one tells of the mark.
    actor: usize,
    /// Rows of the table that were late, for all to see.
    late_rows: Arc<AtomicU64>,

    mark: Mark,
    sent_us: Option<i64>,
    dead: Vec<DeadLetter>,
    dead_table: StateTable,
}

impl DmlReader {
    /// Of `table`, whose rows are distributed by the columns `key`; reads on after `position`, or with
    /// `None` after that of its first barrier.
    pub fn new(
        table: ObjectId,
        log: Arc<DmlLog>,
        key: Vec<usize>,
        vnodes: VnodeSet,
        position: Option<u64>,
    ) -> Self {
        Self { table, log, key, vnodes, position, waiting: VecDeque::new(), event_time: None }
    }

    /// The same, of a table called `name` with a watermark; this is its actor number `actor`.
    pub fn with_watermark(
        mut self,
        spec: WatermarkSpec,
        name: String,
        actor: usize,
        late_rows: Arc<AtomicU64>,
    ) -> Self {
        let dead_table = StateTable::new(Arc::new(dead_letter::layout()));
        let (mark, dead) = (Mark::default(), Vec::new());
        self.event_time =
            Some(EventTime { spec, name, actor, late_rows, mark, sent_us: None, dead, dead_table });
        self
    }

    /// Takes up a batch of the table's rows: this actor's, without those that are late.
    fn take_up(&mut self, batch: &ChangeBatch) -> Result<(), OperatorError> {
        let late_before = self.event_time.as_ref().map_or(0, |e| e.mark.late);
        let in_time = self.event_time.as_mut().and_then(|event_time| {
            let times = batch.column(event_time.spec.column).as_primitive::<TimestampMicrosecondType>();
            event_time.mark.pass(times, event_time.spec.delay_us)
        });
        match in_time {
            None => self.waiting.push_back(self.own_rows(batch)?),
            Some(in_time) => {
                self.waiting.push_back(self.own_rows(&batch.filter(&in_time)?)?);
                self.keep_late(batch, &in_time, late_before)?;
            }
        }
        Ok(())
    }

    /// Counts and keeps late rows: the first actor all of them.
    fn keep_late(
        &mut self,
        batch: &ChangeBatch,
        in_time: &BooleanArray,
        before: u64,
    ) -> Result<(), OperatorError> {
        let Some(event_time) = self.event_time.as_mut().filter(|e| e.actor == 0) else { return Ok(()) };
        event_time.late_rows.store(event_time.mark.late, Ordering::Relaxed);
        if event_time.spec.late_rows == LateRows::DeadLetter {
            let late = batch.filter(&not(in_time)?)?;
            event_time.dead.extend(dead_letter::late("", before + 1.., late.rows()));
        }
        Ok(())
    }

    fn mark_key(&self) -> OffsetKey {
        OffsetKey { reader: self.table, scan: OffsetKey::MARK, split: String::new() }
    }

    /// The rows of `batch` in this actor's vnodes.
    fn own_rows(&self, batch: &ChangeBatch) -> Result<ChangeBatch, OperatorError> {
        if self.vnodes == VnodeSet::all() {
            return Ok(batch.clone());
        }
        let columns: Vec<ArrayRef> = self.key.iter().map(|c| Arc::clone(batch.column(*c))).collect();
        let mut hashes = Vec::new();
        hash_columns(&columns, batch.num_rows(), &mut hashes);
        let own = hashes.iter().enumerate().filter(|(_, h)| self.vnodes.contains(Vnode::of_hash(**h)));
        let indices: UInt32Array = own.map(|(i, _)| i as u32).collect::<Vec<_>>().into();
        Ok(batch.take(&indices)?)
    }
}

impl Operator for DmlReader {
    fn name(&self) -> &'static str {
        "dml"
    }

    fn on_change(&mut self, port: usize, _: ChangeBatch, _: &mut Output) -> Result<Progress, OperatorError> {
        Err(OperatorError::Internal(format!("a table has no input {port}")))
    }

    fn restore(&mut self, restored: &Restored<'_>) -> Result<(), OperatorError> {
        let stored = restored.offsets.get(&self.mark_key());
        let Some((event_time, Offset(stored))) = self.event_time.as_mut().zip(stored) else { return Ok(()) };
        event_time.mark = serde_json::from_str(stored)
            .map_err(|e| OperatorError::Internal(format!("mark of table {}: {e}", self.table)))?;
        event_time.late_rows.store(event_time.mark.late, Ordering::Relaxed);
        Ok(())
    }

    fn on_barrier(&mut self, barrier: &Barrier, out: &mut Output) -> Result<Progress, OperatorError> {
        // A barrier never goes back: a table made later starts at the barrier that makes it.
        let position = *self.position.get_or_insert(barrier.dml_position);
        if barrier.dml_position > position {
            for transaction in self.log.range(position, barrier.dml_position) {
                for (table, batch) in &transaction.changes {
                    if *table == self.table {
                        self.take_up(batch)?;
                    }
                }
            }
            self.position = Some(barrier.dml_position);
        }
        self.resume(out)
    }

    fn resume(&mut self, out: &mut Output) -> Result<Progress, OperatorError> {
        while let Some(batch) = self.waiting.pop_front() {
            out.push(batch);
            if out.is_full() && !self.waiting.is_empty() {
                return Ok(Progress::More);
            }
        }
        if let Some(event_time) = &mut self.event_time {
            let time_us = event_time.mark.watermark_us(event_time.spec.delay_us);
            if let Some(time_us) = time_us.filter(|_| time_us > event_time.sent_us) {
                event_time.sent_us = Some(time_us);
                out.push_watermark(Watermark { column: event_time.spec.column, time_us });
            }
        }
        Ok(Progress::Done)
    }

    fn seal(&mut self, barrier: &Barrier, sealed: &mut Sealed) -> Result<(), OperatorError> {
        let key = self.mark_key();
        let Some(event_time) = self.event_time.as_mut().filter(|e| e.actor == 0) else { return Ok(()) };
        if !event_time.dead.is_empty() {
            let dead = std::mem::take(&mut event_time.dead);
            let rows = dead_letter::rows(self.table, &event_time.name, barrier.epoch, &dead)?;
            event_time.dead_table.put(&rows);
            sealed.runs.push(event_time.dead_table.seal());
        }
        if barrier.is_checkpoint() {
            let mark = serde_json::to_string(&event_time.mark)
                .map_err(|e| OperatorError::Internal(format!("a mark as JSON: {e}")))?;
            sealed.offsets.push((key, Offset(mark)));
        }
        Ok(())
    }
}
