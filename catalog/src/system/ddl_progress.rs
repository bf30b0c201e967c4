//! How far relations that are being created have come.

use super::{ColumnType, Row, SystemTable, Value};
use crate::snapshot::CatalogSnapshot;
use crate::system::facts::RuntimeFacts;

/// `weir_catalog.ddl_progress`
pub const TABLE: SystemTable = SystemTable {
    name: "ddl_progress",
    columns: &[
        ("id", ColumnType::Oid),
        ("name", ColumnType::Text),
        ("statement", ColumnType::Text),
        ("rows_read", ColumnType::Int8),
        ("rows_total", ColumnType::Int8),
        ("progress", ColumnType::Text),
    ],
    rows,
};

fn rows(catalog: &CatalogSnapshot, facts: &RuntimeFacts) -> Vec<Row> {
    let creating = catalog.objects().filter(|o| o.state.is_filling());
    creating
        .map(|object| {
            let job = facts.jobs.iter().find(|j| j.id == object.id);
            let read = job.map(|j| j.backfilled_rows);
            let total = job.and_then(|j| j.backfill_total_rows);
            let progress = match (read, total) {
                (Some(read), Some(total)) if total > 0 => {
                    format!("{:.1}%", 100.0 * read.min(total) as f64 / total as f64).into()
                }
                _ => Value::Null,
            };
            vec![
                object.id.0.into(),
                object.name.to_string().into(),
                object.definition.as_str().into(),
                read.into(),
                total.into(),
                progress,
            ]
        })
        .collect()
}
