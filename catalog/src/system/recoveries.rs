//! Starts of the dataflow from a checkpoint: why, and the time in each step.

use super::checkpoints::ms;
use super::{ColumnType, Row, SystemTable, Value};
use crate::snapshot::CatalogSnapshot;
use crate::system::facts::RuntimeFacts;

/// `weir_catalog.recoveries`
pub const TABLE: SystemTable = SystemTable {
    name: "recoveries",
    columns: &[
        ("started_at", ColumnType::Timestamptz),
        ("reason", ColumnType::Text),
        ("epoch", ColumnType::Int8),
        ("choose_ms", ColumnType::Float8),
        ("restore_ms", ColumnType::Float8),
        ("build_ms", ColumnType::Float8),
        ("first_barrier_ms", ColumnType::Float8),
        ("replay_ms", ColumnType::Float8),
        ("total_ms", ColumnType::Float8),
        ("error", ColumnType::Text),
    ],
    rows,
};

fn rows(_: &CatalogSnapshot, facts: &RuntimeFacts) -> Vec<Row> {
    let row = |r: &super::facts::RecoveryFact| {
        vec![
            Value::Timestamp(r.started_at_us),
            r.reason.as_str().into(),
            r.epoch.into(),
            ms(r.choose_us),
            ms(r.restore_us),
            ms(r.build_us),
            ms(r.first_barrier_us),
            ms(r.replay_us),
            ms(r.total_us),
            r.error.clone().into(),
        ]
    };
    facts.recoveries.iter().map(row).collect()
}
