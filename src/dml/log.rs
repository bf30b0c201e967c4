//! The DML log: one record a transaction, fsynced in groups, cut at the oldest retained checkpoint.

use crate::stream::ChangeBatch;
use std::path::Path;
use std::sync::Arc;
use weir_catalog::ObjectId;

/// A transaction: the changes of each table, whole rows, consolidated.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// Its position: 1 for the first ever, then one more each.
    pub position: u64,
    /// What changed.
    pub changes: Vec<(ObjectId, ChangeBatch)>,
}

/// The log of a database.
pub struct DmlLog {}

impl DmlLog {
    /// Opens the log in `dir`, or makes it. Keeps in memory what comes after `from`, the position
    /// of the checkpoint that is restored. A torn record at the end (never acknowledged) is cut.
    pub fn open(_dir: &Path, _from: u64) -> std::io::Result<Arc<DmlLog>> {
        unimplemented!()
    }

    /// The position of the newest durable transaction.
    pub fn position(&self) -> u64 {
        unimplemented!()
    }

    /// Appends a transaction; returns its position once it is durable. Transactions of callers
    /// that wait at the same time share an fsync. Call from one that holds the tables' DML lock,
    /// so that checks and append are one step.
    pub async fn append(&self, _changes: Vec<(ObjectId, ChangeBatch)>) -> std::io::Result<u64> {
        unimplemented!()
    }

    /// The transactions with `after < position <= upto`, from memory.
    pub fn range(&self, _after: u64, _upto: u64) -> Vec<Arc<Transaction>> {
        unimplemented!()
    }

    /// Forgets in memory what is visible (at or before `position`).
    pub fn forget(&self, _position: u64) {
        unimplemented!()
    }

    /// Removes files that hold only records at or before `position`: no retained checkpoint
    /// replays them.
    pub fn cut(&self, _position: u64) -> std::io::Result<()> {
        unimplemented!()
    }
}
