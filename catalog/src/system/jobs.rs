//! Every streaming job and its status.

use super::{ColumnType, Row, SystemTable};
use crate::snapshot::CatalogSnapshot;
use crate::system::facts::RuntimeFacts;

/// `weir_catalog.jobs`
pub const TABLE: SystemTable = SystemTable {
    name: "jobs",
    columns: &[
        ("id", ColumnType::Oid),
        ("schema", ColumnType::Text),
        ("name", ColumnType::Text),
        ("kind", ColumnType::Text),
        ("status", ColumnType::Text),
        ("actors", ColumnType::Int8),
        ("expression_errors", ColumnType::Int8),
        ("state_entries", ColumnType::Int8),
        ("parallelism", ColumnType::Int8),
        ("wanted_parallelism", ColumnType::Text),
    ],
    rows,
};

/// The parallelism that ALTER … SET PARALLELISM asked for, as SQL writes it.
pub fn wanted_parallelism(parallelism: Option<u16>) -> String {
    parallelism.map_or_else(|| "adaptive".to_owned(), |parallelism| parallelism.to_string())
}

fn rows(catalog: &CatalogSnapshot, facts: &RuntimeFacts) -> Vec<Row> {
    let row = |job: &super::facts::JobFact| {
        let object = catalog.by_id(job.id);
        let errors = facts.expression_errors.iter().find(|(id, _)| *id == job.id).map_or(0, |(_, n)| *n);
        vec![
            job.id.0.into(),
            object.map(|o| o.name.schema.as_str()).into(),
            object.map(|o| o.name.name.as_str()).into(),
            object.map(|o| o.kind().to_string()).into(),
            job.status.as_str().into(),
            job.actors.into(),
            errors.into(),
            job.state_entries.into(),
            job.parallelism.into(),
            object.map(|o| wanted_parallelism(o.parallelism)).into(),
        ]
    };
    facts.jobs.iter().map(row).collect()
}
