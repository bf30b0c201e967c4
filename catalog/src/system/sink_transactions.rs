//! What sinks have under way in their targets: transactions that are open, wait for their checkpoint,
//! or were committed by it; and what dropped sinks left behind.

use super::facts::RuntimeFacts;
use super::{ColumnType, Row, SystemTable, Value};
use crate::snapshot::CatalogSnapshot;

/// `weir_catalog.sink_transactions`
pub const TABLE: SystemTable = SystemTable {
    name: "sink_transactions",
    columns: &[
        ("sink", ColumnType::Oid),
        ("name", ColumnType::Text),
        ("transaction", ColumnType::Text),
        ("state", ColumnType::Text),
        ("generation", ColumnType::Int8),
        ("epoch", ColumnType::Int8),
        ("actor", ColumnType::Int4),
        ("chunk", ColumnType::Int4),
        ("changed_at", ColumnType::Timestamptz),
        ("note", ColumnType::Text),
    ],
    rows,
};

fn rows(catalog: &CatalogSnapshot, facts: &RuntimeFacts) -> Vec<Row> {
    let transactions = facts.transactions.iter();
    transactions
        .map(|t| {
            vec![
                t.sink.0.into(),
                catalog.by_id(t.sink).map(|object| object.name.to_string()).into(),
                t.name.clone().into(),
                t.state.name().into(),
                t.generation.into(),
                t.epoch.into(),
                t.actor.into(),
                t.chunk.into(),
                Value::Timestamp(t.changed_at_us),
                t.note.clone().into(),
            ]
        })
        .collect()
}
