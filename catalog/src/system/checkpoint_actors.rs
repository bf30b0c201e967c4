//! The actors' parts in the newest checkpoints: who acknowledged when, and what kept the others.

use super::checkpoints::{job_name, ms};
use super::{ColumnType, Row, SystemTable, Value};
use crate::snapshot::CatalogSnapshot;
use crate::system::facts::RuntimeFacts;

/// `weir_catalog.checkpoint_actors`
pub const TABLE: SystemTable = SystemTable {
    name: "checkpoint_actors",
    columns: &[
        ("epoch", ColumnType::Int8),
        ("actor", ColumnType::Int8),
        ("job", ColumnType::Text),
        ("acknowledged_ms", ColumnType::Float8),
        ("align_ms", ColumnType::Float8),
        ("flush_ms", ColumnType::Float8),
        ("seal_ms", ColumnType::Float8),
    ],
    rows,
};

fn rows(catalog: &CatalogSnapshot, facts: &RuntimeFacts) -> Vec<Row> {
    let mut rows = Vec::new();
    for checkpoint in &facts.checkpoints {
        rows.extend(checkpoint.actors.iter().map(|actor| {
            vec![
                checkpoint.epoch.into(),
                actor.actor.into(),
                actor.job.map(|id| job_name(catalog, id)).into(),
                actor.acknowledged_us.map_or(Value::Null, ms),
                ms(actor.align_us),
                ms(actor.flush_us),
                ms(actor.seal_us),
            ]
        }));
    }
    rows
}
