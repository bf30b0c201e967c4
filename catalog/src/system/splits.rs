//! Source splits and their durable offsets.

use super::{ColumnType, Row, SystemTable};
use crate::snapshot::CatalogSnapshot;
use crate::system::facts::RuntimeFacts;

/// `weir_catalog.splits`
pub const TABLE: SystemTable = SystemTable {
    name: "splits",
    columns: &[
        ("source_id", ColumnType::Oid),
        ("source", ColumnType::Text),
        ("split", ColumnType::Text),
        ("offset", ColumnType::Text),
    ],
    rows,
};

fn rows(catalog: &CatalogSnapshot, facts: &RuntimeFacts) -> Vec<Row> {
    let row = |split: &super::facts::SplitFact| {
        vec![
            split.source.0.into(),
            catalog.by_id(split.source).map(|o| o.name.to_string()).into(),
            split.split.as_str().into(),
            split.offset.as_str().into(),
        ]
    };
    facts.splits.iter().map(row).collect()
}
