//! The last checkpoints: when, how long, how big, and what became of them.

use super::{ColumnType, Row, SystemTable, Value};
use crate::snapshot::CatalogSnapshot;
use crate::system::facts::RuntimeFacts;

/// `weir_catalog.checkpoints`
pub const TABLE: SystemTable = SystemTable {
    name: "checkpoints",
    columns: &[
        ("epoch", ColumnType::Int8),
        ("status", ColumnType::Text),
        ("triggered_at", ColumnType::Timestamptz),
        ("duration_ms", ColumnType::Float8),
        ("total_bytes", ColumnType::Int8),
        ("new_bytes", ColumnType::Int8),
        ("reason", ColumnType::Text),
    ],
    rows,
};

fn rows(_: &CatalogSnapshot, facts: &RuntimeFacts) -> Vec<Row> {
    let row = |c: &super::facts::CheckpointFact| {
        vec![
            c.epoch.into(),
            c.status.as_str().into(),
            Value::Timestamp(c.triggered_at_us),
            Value::Float(c.duration_us as f64 / 1000.0),
            c.total_bytes.into(),
            c.new_bytes.into(),
            c.reason.clone().into(),
        ]
    };
    facts.checkpoints.iter().map(row).collect()
}
