//! A table's changes enter here: at each barrier, the DML log's records up to its position.

use crate::dataflow::operator::{Operator, OperatorError, Output, Progress};
use crate::dml::log::DmlLog;
use crate::stream::vnode::hash_columns;
use crate::stream::{Barrier, ChangeBatch, Vnode, VnodeSet};
use arrow::array::{ArrayRef, UInt32Array};
use std::collections::VecDeque;
use std::sync::Arc;
use weir_catalog::ObjectId;

/// Injects the changes of one table, of one actor's vnodes.
pub struct DmlReader {
    table: ObjectId,
    log: Arc<DmlLog>,
    key: Vec<usize>,
    vnodes: VnodeSet,

    position: u64,
    waiting: VecDeque<ChangeBatch>,
}

impl DmlReader {
    /// Of `table`, whose rows are distributed by the columns `key`; reads on after `position`.
    pub fn new(table: ObjectId, log: Arc<DmlLog>, key: Vec<usize>, vnodes: VnodeSet, position: u64) -> Self {
        Self { table, log, key, vnodes, position, waiting: VecDeque::new() }
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

    fn on_barrier(&mut self, barrier: &Barrier, out: &mut Output) -> Result<Progress, OperatorError> {
        // A barrier never goes back: a table made later starts at the barrier that makes it.
        if barrier.dml_position > self.position {
            for transaction in self.log.range(self.position, barrier.dml_position) {
                for (table, batch) in &transaction.changes {
                    if *table == self.table {
                        self.waiting.push_back(self.own_rows(batch)?);
                    }
                }
            }
            self.position = barrier.dml_position;
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
        Ok(Progress::Done)
    }
}
