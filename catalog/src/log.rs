//! The trait that makes changes durable, and an in-memory one for tests.

use crate::change::CatalogChange;
use crate::snapshot::CatalogSnapshot;
use std::io;

/// Makes catalog changes durable. `append` returns after the change would survive SIGKILL;
/// changes appended in one call are durable together or not at all.
pub trait CatalogLog: Send {
    /// Appends `changes`, which lead to `after`.
    fn append(&mut self, changes: &[CatalogChange], after: &CatalogSnapshot) -> io::Result<()>;
}

/// Keeps nothing: for tests.
#[derive(Default)]
pub struct MemoryLog {
    /// What was appended, in order.
    pub changes: Vec<CatalogChange>,
}

impl CatalogLog for MemoryLog {
    fn append(&mut self, changes: &[CatalogChange], _after: &CatalogSnapshot) -> io::Result<()> {
        self.changes.extend_from_slice(changes);
        Ok(())
    }
}
