//! System tables: rows computed from a catalog snapshot and runtime facts.
//!
//! One file a table, one line in [`TABLES`]. A table is data: its columns, and a function from
//! what is known to its rows. The server turns rows into Arrow.

pub mod alerts;
pub mod checkpoint_actors;
pub mod checkpoints;
pub mod ddl_progress;
pub mod delivery;
pub mod facts;
pub mod jobs;
pub mod recoveries;
pub mod relations;
pub mod sink_transactions;
pub mod sinks;
pub mod sources;
pub mod splits;

use crate::snapshot::CatalogSnapshot;
use facts::RuntimeFacts;

/// The types that columns of system tables have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// boolean
    Bool,
    /// smallint
    Int2,
    /// integer
    Int4,
    /// bigint
    Int8,
    /// double precision
    Float8,
    /// oid: the number of an object
    Oid,
    /// text
    Text,
    /// name: an identifier
    Name,
    /// "char": one letter
    Char,
    /// timestamptz
    Timestamptz,
    /// text[]
    TextArray,
    /// smallint[]
    Int2Array,
    /// oid[]
    OidArray,
}

/// One value of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// NULL
    Null,
    /// Of a boolean column.
    Bool(bool),
    /// Of any integer or oid column.
    Int(i64),
    /// Of a float column.
    Float(f64),
    /// Of a text, name or char column.
    Text(String),
    /// Microseconds since 1970, UTC.
    Timestamp(i64),
    /// Of a text array column.
    Texts(Vec<String>),
    /// Of an integer or oid array column.
    Ints(Vec<i64>),
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Value::Bool(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Value::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Value::Text(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Value::Int(value)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Value::Int(i64::from(value))
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        Value::Int(value as i64)
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Value::Int(value as i64)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

/// A row: one value a column.
pub type Row = Vec<Value>;

/// The columns of a system table, in order.
pub type Columns = &'static [(&'static str, ColumnType)];

/// A system table that needs no more than the catalog and the facts.
#[derive(Clone, Copy)]
pub struct SystemTable {
    /// Its name in `weir_catalog`.
    pub name: &'static str,
    /// Its columns.
    pub columns: Columns,
    /// Its rows.
    pub rows: fn(&CatalogSnapshot, &RuntimeFacts) -> Vec<Row>,
}

/// The schema of Weir's own system tables.
pub const WEIR_CATALOG: &str = "weir_catalog";

/// Every table of `weir_catalog` that the catalog and the facts suffice for.
pub const TABLES: &[SystemTable] = &[
    relations::TABLE,
    jobs::TABLE,
    ddl_progress::TABLE,
    checkpoints::TABLE,
    checkpoint_actors::TABLE,
    recoveries::TABLE,
    splits::TABLE,
    sources::TABLE,
    sinks::TABLE,
    delivery::TABLE,
    sink_transactions::TABLE,
    alerts::TABLE,
];

#[cfg(test)]
#[path = "../tests/system.rs"]
mod tests;
