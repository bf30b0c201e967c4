//! Relations: what is stored and can be read by SELECT. Tables, materialized views and indexes.

use crate::column::{Column, Key};
use crate::id::ObjectId;
use crate::source::WatermarkSpec;
use serde::{Deserialize, Serialize};

/// How the rows of a stored relation are keyed in the state store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RowKey {
    /// These columns are unique: key columns → the other columns.
    Columns(Key),
    /// No key is known: the whole row → how often it occurs.
    WholeRow,
}

impl RowKey {
    /// The key's columns for a relation of `arity` columns.
    pub fn columns(&self, arity: usize) -> Key {
        match self {
            RowKey::Columns(key) => key.clone(),
            RowKey::WholeRow => (0..arity).collect(),
        }
    }
}

/// What a duplicate key does on INSERT, by the table's declaration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnConflict {
    /// Error 23505.
    #[default]
    Error,
    /// The new row replaces the old one.
    DoUpdateFull,
    /// The old row stays.
    DoNothing,
}

/// A table: rows that users write by DML.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Its columns, in order.
    pub columns: Vec<Column>,
    /// How its rows are keyed.
    pub key: RowKey,
    /// Whether UPDATE and DELETE are refused.
    pub append_only: bool,
    /// What a duplicate key does.
    pub on_conflict: OnConflict,
    /// Event time, if declared: of append-only tables only.
    #[serde(default)]
    pub watermark: Option<WatermarkSpec>,
}

/// A materialized view: rows kept equal to its query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MaterializedView {
    /// Its columns, in order.
    pub columns: Vec<Column>,
    /// How its rows are keyed; the stream planner proves it.
    pub key: RowKey,
    /// Whether its changes are insertions only.
    pub append_only: bool,
    /// The SELECT as text; planned anew at each start.
    pub query: String,
    /// What the query reads.
    pub inputs: Vec<ObjectId>,
    /// Columns below whose watermark no row changes any more; the stream planner proves it.
    #[serde(default)]
    pub watermarks: Vec<usize>,
    /// Whether each row comes once, when its window is closed.
    #[serde(default)]
    pub emit_on_close: bool,
}

/// A plain view: a name for a query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// Its columns, in order.
    pub columns: Vec<Column>,
    /// The SELECT as text.
    pub query: String,
    /// What the query reads.
    pub inputs: Vec<ObjectId>,
}

/// An index: the rows of a relation, ordered by other columns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Index {
    /// The indexed relation.
    pub relation: ObjectId,
    /// The indexed columns: ordinal in the relation, and whether descending.
    pub columns: Vec<(usize, bool)>,
    /// Further columns stored with them.
    pub include: Vec<usize>,
}
