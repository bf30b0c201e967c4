//! Sources: where they come from, and what was read since the dataflow started.

use super::{ColumnType, Row, SystemTable};
use crate::object::ObjectBody;
use crate::snapshot::CatalogSnapshot;
use crate::system::facts::RuntimeFacts;

/// `weir_catalog.sources`
pub const TABLE: SystemTable = SystemTable {
    name: "sources",
    columns: &[
        ("id", ColumnType::Oid),
        ("schema", ColumnType::Text),
        ("name", ColumnType::Text),
        ("connector", ColumnType::Text),
        ("rows_read", ColumnType::Int8),
        ("late_rows", ColumnType::Int8),
        ("dead_letters", ColumnType::Int8),
        ("wanted_parallelism", ColumnType::Text),
    ],
    rows,
};

fn rows(catalog: &CatalogSnapshot, facts: &RuntimeFacts) -> Vec<Row> {
    let sources = catalog.objects().filter_map(|object| match &object.body {
        ObjectBody::Source(source) => Some((object, source)),
        _ => None,
    });
    sources
        .map(|(object, source)| {
            let fact = facts.sources.iter().find(|f| f.id == object.id);
            vec![
                object.id.0.into(),
                object.name.schema.as_str().into(),
                object.name.name.as_str().into(),
                source.connector.as_str().into(),
                fact.map(|f| f.rows).into(),
                fact.map(|f| f.late_rows).into(),
                fact.map(|f| f.dead_letters).into(),
                super::jobs::wanted_parallelism(object.parallelism).into(),
            ]
        })
        .collect()
}
