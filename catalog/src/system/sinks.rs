//! Sinks: what they deliver, where, and what they guarantee.

use super::{ColumnType, Row, SystemTable, Value};
use crate::connector::Delivery;
use crate::object::{ObjectBody, ObjectState};
use crate::sink::SinkType;
use crate::snapshot::CatalogSnapshot;
use crate::system::facts::RuntimeFacts;

/// `weir_catalog.sinks`
pub const TABLE: SystemTable = SystemTable {
    name: "sinks",
    columns: &[
        ("id", ColumnType::Oid),
        ("schema", ColumnType::Text),
        ("name", ColumnType::Text),
        ("connector", ColumnType::Text),
        ("type", ColumnType::Text),
        ("delivery", ColumnType::Text),
        ("primary_key", ColumnType::TextArray),
        ("status", ColumnType::Text),
        ("committed_epoch", ColumnType::Int8),
        ("error", ColumnType::Text),
    ],
    rows,
};

/// Why a sink is paused.
pub(super) const FULL: &str = "its log reached sink.log_limit: the target holds everything up to then; drop the sink and \
                    create it again once the target takes what it is given";

fn rows(catalog: &CatalogSnapshot, facts: &RuntimeFacts) -> Vec<Row> {
    let sinks = catalog.objects().filter_map(|object| match &object.body {
        ObjectBody::Sink(sink) => Some((object, sink)),
        _ => None,
    });
    sinks
        .map(|(object, sink)| {
            let sink_type = match sink.sink_type {
                SinkType::AppendOnly => "append-only",
                SinkType::Upsert => "upsert",
                SinkType::Debezium => "debezium",
            };
            let spec = facts.sink_connectors.iter().find(|(name, _)| *name == sink.connector);
            let delivery = spec.map(|(_, delivery)| match delivery {
                Delivery::ExactlyOnce => "exactly once",
                Delivery::AtLeastOnce => "at least once",
            });
            let state = facts.deliveries.iter().find(|d| d.id == object.id);
            let paused = object.state == ObjectState::Paused;
            let status = state.map(|s| match (&s.error, s.failed) {
                (_, true) => "failed",
                (_, false) if paused => "paused",
                (Some(_), false) => "retrying",
                (None, false) => "running",
            });
            let key = match &sink.primary_key {
                Some(key) => Value::Texts(key.iter().map(|c| sink.columns[*c].name.clone()).collect()),
                None => Value::Null,
            };
            vec![
                object.id.0.into(),
                object.name.schema.as_str().into(),
                object.name.name.as_str().into(),
                sink.connector.as_str().into(),
                sink_type.into(),
                delivery.into(),
                key,
                status.into(),
                state.and_then(|s| s.committed_epoch).into(),
                paused.then(|| FULL.to_owned()).or_else(|| state.and_then(|s| s.error.clone())).into(),
            ]
        })
        .collect()
}
