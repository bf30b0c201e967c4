//! Exactly once as three contracts: the source can be read again, the engine's state is consistent,
//! the target takes each change once. Who can't sign, and what that comes to.

use super::facts::RuntimeFacts;
use super::{ColumnType, Row, SystemTable, Value};
use crate::connector::{ConnectorRole, ConnectorSpec, Contract};
use crate::object::{Object, ObjectBody};
use crate::sink::Sink;
use crate::snapshot::CatalogSnapshot;
use std::collections::BTreeSet;

/// `weir_catalog.delivery`
pub const TABLE: SystemTable = SystemTable {
    name: "delivery",
    columns: &[
        ("role", ColumnType::Text),
        ("id", ColumnType::Oid),
        ("schema", ColumnType::Text),
        ("name", ColumnType::Text),
        ("connector", ColumnType::Text),
        ("contract", ColumnType::Text),
        ("exactly_once", ColumnType::Bool),
        ("reason", ColumnType::Text),
    ],
    rows,
};

/// The option by which a sink commits in two phases, and its value.
pub const TWO_PHASE: (&str, &str) = ("commit_mode", "two_phase");

const ENGINE: &str = "state, offsets and what sinks promised are of one epoch in each checkpoint; all of it is \
                      restored, or nothing";

/// One party to exactly once.
pub struct Party {
    /// Source, engine or sink.
    pub role: &'static str,
    /// What it is, where it has a name.
    pub object: Option<std::sync::Arc<Object>>,
    /// Its connector, if it has one.
    pub connector: Option<String>,
    /// What it signs.
    pub contract: &'static str,
    /// Whether exactly once holds up to and with it.
    pub exactly_once: bool,
    /// Why, or why not.
    pub reason: String,
}

/// Everybody: sources and tables, the engine, sinks.
pub fn parties(catalog: &CatalogSnapshot, facts: &RuntimeFacts) -> Vec<Party> {
    let sources = catalog.objects().filter_map(|object| source(object, facts));
    let engine = Party {
        role: "engine",
        object: None,
        connector: None,
        contract: "consistent",
        exactly_once: true,
        reason: ENGINE.to_owned(),
    };
    let sinks = catalog.objects().filter_map(|object| sink(object, catalog, facts));
    sources.chain([engine]).chain(sinks).collect()
}

fn rows(catalog: &CatalogSnapshot, facts: &RuntimeFacts) -> Vec<Row> {
    let row = |party: Party| {
        let name = party.object.as_ref().map(|o| &o.name);
        vec![
            party.role.into(),
            party.object.as_ref().map(|o| o.id.0).into(),
            name.map(|n| n.schema.as_str()).into(),
            name.map(|n| n.name.as_str()).into(),
            party.connector.into(),
            party.contract.into(),
            party.exactly_once.into(),
            Value::from(party.reason),
        ]
    };
    parties(catalog, facts).into_iter().map(row).collect()
}

fn source(object: &std::sync::Arc<Object>, facts: &RuntimeFacts) -> Option<Party> {
    let (connector, contract, reason) = match &object.body {
        ObjectBody::Table(_) => {
            (None, Contract::Replayable, "the DML log is replayed from its position in the checkpoint")
        }
        ObjectBody::Source(source) => {
            let spec = spec_of(&source.connector, ConnectorRole::Source, &facts.connectors)?;
            (Some(source.connector.clone()), spec.contract, spec.why)
        }
        _ => return None,
    };
    Some(Party {
        role: if connector.is_some() { "source" } else { "table" },
        object: Some(object.clone()),
        connector,
        contract: contract.name(),
        exactly_once: contract.holds(),
        reason: reason.to_owned(),
    })
}

fn sink(object: &std::sync::Arc<Object>, catalog: &CatalogSnapshot, facts: &RuntimeFacts) -> Option<Party> {
    let ObjectBody::Sink(sink) = &object.body else { return None };
    let spec = spec_of(&sink.connector, ConnectorRole::Sink, &facts.connectors)?;
    let against = degradations(object, catalog, facts);
    let own = facts.deliveries.iter().any(|d| d.id == object.id && d.degraded.is_some());
    let contract = if own { Contract::AtLeastOnce } else { spec.contract };
    let reason = match against.is_empty() {
        true if is_two_phase(sink) => {
            "each actor's rows and marker are one prepared transaction that its checkpoint commits".to_owned()
        }
        true => spec.why.to_owned(),
        false => against.join("; "),
    };
    Some(Party {
        role: "sink",
        object: Some(object.clone()),
        connector: Some(sink.connector.clone()),
        contract: contract.name(),
        exactly_once: against.is_empty(),
        reason,
    })
}

/// Whether it was declared to commit in two phases.
pub fn is_two_phase(sink: &Sink) -> bool {
    sink.options.get(TWO_PHASE.0).is_some_and(|mode| mode == TWO_PHASE.1)
}

/// Why a sink delivers at least once only, as far as what runs has shown; empty: exactly once.
pub(super) fn degradations(object: &Object, catalog: &CatalogSnapshot, facts: &RuntimeFacts) -> Vec<String> {
    let ObjectBody::Sink(sink) = &object.body else { return Vec::new() };
    let seen = facts.deliveries.iter().filter(|d| d.id == object.id).filter_map(|d| d.degraded.clone());
    declared_degradations(sink, catalog, &facts.connectors).into_iter().chain(seen).collect()
}

/// Why a sink as declared delivers at least once only; empty: exactly once.
pub fn declared_degradations(
    sink: &Sink,
    catalog: &CatalogSnapshot,
    connectors: &[ConnectorSpec],
) -> Vec<String> {
    let own = spec_of(&sink.connector, ConnectorRole::Sink, connectors).filter(|spec| !spec.contract.holds());
    let own = own.map(|spec| spec.why.to_owned());
    let (mut seen, mut open) = (BTreeSet::new(), sink.inputs.clone());
    let mut against: Vec<String> = own.into_iter().collect();
    while let Some(id) = open.pop() {
        let Some(object) = catalog.by_id(id).filter(|_| seen.insert(id)) else { continue };
        open.extend(object.inputs());
        let ObjectBody::Source(source) = &object.body else { continue };
        let spec = spec_of(&source.connector, ConnectorRole::Source, connectors);
        if let Some(spec) = spec.filter(|spec| !spec.contract.holds()) {
            against.push(format!("source \"{}\" can't be read again: {}", object.name.name, spec.why));
        }
    }
    against
}

/// The connector of this name in this role.
pub fn spec_of<'a>(
    name: &str,
    role: ConnectorRole,
    connectors: &'a [ConnectorSpec],
) -> Option<&'a ConnectorSpec> {
    connectors.iter().find(|spec| spec.name == name && spec.role == role)
}
