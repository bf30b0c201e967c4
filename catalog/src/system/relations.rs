//! Every object that has a name.

use super::{ColumnType, Row, SystemTable};
use crate::object::{ObjectBody, ObjectState};
use crate::relation::RowKey;
use crate::snapshot::CatalogSnapshot;
use crate::system::facts::RuntimeFacts;

/// `weir_catalog.relations`
pub const TABLE: SystemTable = SystemTable {
    name: "relations",
    columns: &[
        ("id", ColumnType::Oid),
        ("schema", ColumnType::Text),
        ("name", ColumnType::Text),
        ("kind", ColumnType::Text),
        ("state", ColumnType::Text),
        ("connector", ColumnType::Text),
        ("key", ColumnType::TextArray),
        ("append_only", ColumnType::Bool),
        ("inputs", ColumnType::OidArray),
        ("definition", ColumnType::Text),
        ("comment", ColumnType::Text),
    ],
    rows,
};

fn rows(catalog: &CatalogSnapshot, _: &RuntimeFacts) -> Vec<Row> {
    let row = |object: &std::sync::Arc<crate::Object>| {
        let (key, append_only) = match &object.body {
            ObjectBody::Table(t) => (Some(&t.key), Some(t.append_only)),
            ObjectBody::MaterializedView(v) => (Some(&v.key), Some(v.append_only)),
            _ => (None, None),
        };
        let key_names = match key {
            Some(RowKey::Columns(key)) => {
                super::Value::Texts(key.iter().map(|c| object.columns()[*c].name.clone()).collect())
            }
            _ => super::Value::Null,
        };
        let connector = match &object.body {
            ObjectBody::Source(source) => Some(source.connector.as_str()),
            ObjectBody::Sink(sink) => Some(sink.connector.as_str()),
            _ => None,
        };
        let state = match object.state {
            ObjectState::Creating | ObjectState::Filling => "creating",
            ObjectState::Created => "created",
            ObjectState::Paused => "paused",
        };
        vec![
            object.id.0.into(),
            object.name.schema.as_str().into(),
            object.name.name.as_str().into(),
            object.kind().to_string().into(),
            state.into(),
            connector.into(),
            key_names,
            append_only.into(),
            super::Value::Ints(object.inputs().iter().map(|id| i64::from(id.0)).collect()),
            object.definition.as_str().into(),
            object.comment.clone().into(),
        ]
    };
    catalog.objects().map(row).collect()
}
