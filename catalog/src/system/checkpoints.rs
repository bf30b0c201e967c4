//! The last checkpoints: when, how long in all and in parts, how big, and what became of them.

use super::{ColumnType, Row, SystemTable, Value};
use crate::id::ObjectId;
use crate::snapshot::CatalogSnapshot;
use crate::system::facts::RuntimeFacts;

/// `weir_catalog.checkpoints`
pub const TABLE: SystemTable = SystemTable {
    name: "checkpoints",
    columns: &[
        ("epoch", ColumnType::Int8),
        ("kind", ColumnType::Text),
        ("status", ColumnType::Text),
        ("triggered_at", ColumnType::Timestamptz),
        ("duration_ms", ColumnType::Float8),
        ("total_bytes", ColumnType::Int8),
        ("new_bytes", ColumnType::Int8),
        ("files", ColumnType::Int8),
        ("entries", ColumnType::Int8),
        ("barrier_ms", ColumnType::Float8),
        ("align_ms", ColumnType::Float8),
        ("align_job", ColumnType::Text),
        ("flush_ms", ColumnType::Float8),
        ("seal_ms", ColumnType::Float8),
        ("seal_job", ColumnType::Text),
        ("encode_ms", ColumnType::Float8),
        ("write_ms", ColumnType::Float8),
        ("link_ms", ColumnType::Float8),
        ("upload_ms", ColumnType::Float8),
        ("manifest_ms", ColumnType::Float8),
        ("commit_ms", ColumnType::Float8),
        ("changed_bytes", ColumnType::Int8),
        ("written_bytes", ColumnType::Int8),
        ("merged_bytes", ColumnType::Int8),
        ("uploaded_bytes", ColumnType::Int8),
        ("reason", ColumnType::Text),
    ],
    rows,
};

fn rows(catalog: &CatalogSnapshot, facts: &RuntimeFacts) -> Vec<Row> {
    let job = |id: Option<ObjectId>| Value::from(id.map(|id| job_name(catalog, id)));
    let row = |c: &super::facts::CheckpointFact| {
        vec![
            c.epoch.into(),
            c.kind.as_str().into(),
            c.status.as_str().into(),
            Value::Timestamp(c.triggered_at_us),
            ms(c.duration_us),
            c.total_bytes.into(),
            c.new_bytes.into(),
            c.parts.files.into(),
            c.parts.entries.into(),
            ms(c.parts.barrier_us),
            ms(c.parts.align_us),
            job(c.parts.align_job),
            ms(c.parts.flush_us),
            ms(c.parts.seal_us),
            job(c.parts.seal_job),
            ms(c.parts.encode_us),
            ms(c.parts.write_us),
            ms(c.parts.link_us),
            ms(c.parts.upload_us),
            ms(c.parts.manifest_us),
            c.parts.commit_us.map_or(Value::Null, ms),
            c.parts.changed_bytes.into(),
            c.parts.written_bytes.into(),
            c.parts.merged_bytes.into(),
            c.parts.uploaded_bytes.into(),
            c.reason.clone().into(),
        ]
    };
    facts.checkpoints.iter().map(row).collect()
}

/// Microseconds as milliseconds.
pub fn ms(us: u64) -> Value {
    Value::Float(us as f64 / 1000.0)
}

/// The name of a job, or its number if it is gone.
pub fn job_name(catalog: &CatalogSnapshot, id: ObjectId) -> String {
    catalog.by_id(id).map_or_else(|| id.to_string(), |object| object.name.to_string())
}
