//! The last checkpoints: when, how long in all and in parts, how big, and what became of them.

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
        ("files", ColumnType::Int8),
        ("entries", ColumnType::Int8),
        ("barrier_ms", ColumnType::Float8),
        ("encode_ms", ColumnType::Float8),
        ("write_ms", ColumnType::Float8),
        ("link_ms", ColumnType::Float8),
        ("upload_ms", ColumnType::Float8),
        ("manifest_ms", ColumnType::Float8),
        ("uploaded_bytes", ColumnType::Int8),
        ("reason", ColumnType::Text),
    ],
    rows,
};

fn rows(_: &CatalogSnapshot, facts: &RuntimeFacts) -> Vec<Row> {
    let ms = |us: u64| Value::Float(us as f64 / 1000.0);
    let row = |c: &super::facts::CheckpointFact| {
        vec![
            c.epoch.into(),
            c.status.as_str().into(),
            Value::Timestamp(c.triggered_at_us),
            ms(c.duration_us),
            c.total_bytes.into(),
            c.new_bytes.into(),
            c.parts.files.into(),
            c.parts.entries.into(),
            ms(c.parts.barrier_us),
            ms(c.parts.encode_us),
            ms(c.parts.write_us),
            ms(c.parts.link_us),
            ms(c.parts.upload_us),
            ms(c.parts.manifest_us),
            c.parts.uploaded_bytes.into(),
            c.reason.clone().into(),
        ]
    };
    facts.checkpoints.iter().map(row).collect()
}
