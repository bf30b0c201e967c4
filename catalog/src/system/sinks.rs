//! Sinks: what they deliver, where, and what they guarantee.

use super::{ColumnType, Row, SystemTable, Value};
use crate::connector::ConnectorRole;
use crate::object::{Object, ObjectBody, ObjectState};
use crate::sink::SinkType;
use crate::snapshot::CatalogSnapshot;
use crate::system::facts::{DeliveryState, RuntimeFacts};

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
pub(super) const FULL: &str = "its log reached sink.log_limit: the target gets everything up to then";

/// How a sink whose target misses something, or is ahead, gets everything again.
pub(super) fn anew(object: &Object, facts: &RuntimeFacts) -> &'static str {
    let ObjectBody::Sink(sink) = &object.body else { return "" };
    match super::delivery::spec_of(&sink.connector, ConnectorRole::Sink, &facts.connectors) {
        Some(spec) if spec.empties_target => {
            "ALTER SINK … REBUILD empties the target and delivers everything anew."
        }
        _ => {
            "DROP it and CREATE it again with a target of which nothing is there yet: it delivers everything anew."
        }
    }
}

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
            let delivery = match super::delivery::degradations(object, catalog, facts).is_empty() {
                true => "exactly once",
                false => "at least once",
            };
            let state = facts.deliveries.iter().find(|d| d.id == object.id);
            let status = status(object, facts);
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
                error(object, facts).into(),
            ]
        })
        .collect()
}

/// Of each sink its name, its connector, what its delivery does, and why it fails if it does.
pub fn statuses(catalog: &CatalogSnapshot, facts: &RuntimeFacts) -> Vec<[Option<String>; 4]> {
    let sinks = catalog.objects().filter_map(|object| match &object.body {
        ObjectBody::Sink(sink) => Some((object, sink)),
        _ => None,
    });
    let row = |(object, sink): (&std::sync::Arc<Object>, &crate::sink::Sink)| {
        let status = status(object, facts).map(str::to_owned);
        [Some(object.name.to_string()), Some(sink.connector.clone()), status, error(object, facts)]
    };
    sinks.map(row).collect()
}

/// Why the delivery of a sink fails, or does not go on.
fn error(object: &Object, facts: &RuntimeFacts) -> Option<String> {
    let state = facts.deliveries.iter().find(|d| d.id == object.id);
    match state {
        Some(s) if matches!(s.state, DeliveryState::Stopped | DeliveryState::Failed) => s.error.clone(),
        _ if object.state == ObjectState::Paused => Some(FULL.to_owned()),
        s => s.and_then(|s| s.error.clone()),
    }
}

/// What the delivery of a sink does, in a word; `None` while nothing is known.
fn status(object: &Object, facts: &RuntimeFacts) -> Option<&'static str> {
    let state = facts.deliveries.iter().find(|d| d.id == object.id)?.state;
    match state {
        DeliveryState::Running | DeliveryState::Retrying if object.state == ObjectState::Paused => {
            Some("paused")
        }
        state => Some(state.name()),
    }
}
