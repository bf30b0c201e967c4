//! Typed ids. Every named object has one [`ObjectId`], never reused within a database; the other
//! ids are derived from it, so that a restart that plans the same text finds the same state.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The identity of a named object (table, source, view, sink, index) within its database.
/// Also the identity of its job, where it has one: see [`JobId`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectId(pub u32);

/// A job is the dataflow of one object and carries its number.
pub type JobId = ObjectId;

impl ObjectId {
    /// Ids below this belong to built-in objects.
    pub const FIRST_USER: ObjectId = ObjectId(1 << 14);

    /// The state table that holds the rows of this relation: what SELECT reads.
    pub fn table(self) -> TableId {
        TableId(self.0)
    }

    /// The internal state table `index` (0..256) of this object's job.
    pub fn internal_table(self, index: u8) -> TableId {
        TableId(TableId::INTERNAL | (self.0 << 8) | u32::from(index))
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A range of the state store's keys. The high bit tells the kinds apart: clear for the rows of
/// tables, views and indexes (applied at every tick), set for operators' internal state (applied
/// at checkpoints).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TableId(pub u32);

impl TableId {
    /// Set in the ids of operators' internal tables.
    pub const INTERNAL: u32 = 1 << 31;

    /// Whether this is operator state rather than the rows of a relation.
    pub fn is_internal(self) -> bool {
        self.0 & Self::INTERNAL != 0
    }

    /// The object whose job owns this table.
    pub fn object(self) -> ObjectId {
        if self.is_internal() { ObjectId((self.0 & !Self::INTERNAL) >> 8) } else { ObjectId(self.0) }
    }
}

impl fmt::Debug for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_internal() {
            write!(f, "{}.{}", self.object(), self.0 & 0xff)
        } else {
            write!(f, "{}", self.0)
        }
    }
}
