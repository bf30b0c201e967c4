//! Every connector, one line each.

use super::error::ConnectorError;
use super::sink::{PreparedTarget, Target};
use super::source::Source;
use super::{blackhole, datagen, files_sink, files_source, nexmark, postgres_options, postgres_sink};
use std::sync::Arc;
use weir_catalog::connector::{ConnectorRole, ConnectorSpec};
use weir_catalog::source::Options;
use weir_catalog::{Column, ObjectId, sink, source};

type OpenSource = fn(&source::Source) -> Result<Arc<dyn Source>, ConnectorError>;
type OpenTarget = fn(&sink::Sink, &SinkContext<'_>) -> Result<Target, ConnectorError>;
type KnownColumns = fn(&Options) -> Option<Vec<Column>>;

/// The sources: what they take, how they are opened, and the columns of those that know them.
const SOURCES: &[(ConnectorSpec, OpenSource, Option<KnownColumns>)] = &[
    (nexmark::SPEC, |s| Ok(Arc::new(nexmark::Nexmark::open(s)?)), Some(nexmark::columns)),
    (files_source::SPEC, |s| Ok(Arc::new(files_source::FilesSource::open(s)?)), None),
    (datagen::SPEC, |s| Ok(Arc::new(datagen::Datagen::open(s)?)), None),
    #[cfg(test)]
    (super::simulated_source::SPEC, |s| Ok(Arc::new(super::simulated_source::open(s)?)), None),
];

/// The sinks: what they take, and how their targets are opened.
const SINKS: &[(ConnectorSpec, OpenTarget)] = &[
    (files_sink::SPEC, |s, c| Ok(Target::Logged(Box::new(files_sink::FilesTarget::open(s, c)?)))),
    (postgres_options::SPEC, postgres_sink::open),
    (blackhole::SPEC, |s, _| Ok(Target::Logged(Box::new(blackhole::Blackhole::open(s)?)))),
    #[cfg(test)]
    (super::simulated_target::SPEC, super::simulated_target::open),
];

/// What a target may know of where it is opened.
#[derive(Clone, Copy, Debug)]
pub struct SinkContext<'a> {
    /// The database's identity, so that two servers' sinks of one name don't mix.
    pub database: &'a str,
    /// The sink.
    pub id: ObjectId,
    /// The sink's name.
    pub name: &'a str,
    /// The generation of this server.
    pub generation: u64,
}

/// What all connectors take and guarantee.
pub fn specs() -> Vec<ConnectorSpec> {
    SOURCES.iter().map(|s| s.0).chain(SINKS.iter().map(|s| s.0)).collect()
}

/// The columns of a source that declares none, where its connector knows them.
pub fn connector_columns(connector: &str, options: &Options) -> Option<Vec<Column>> {
    let known = SOURCES.iter().find(|s| s.0.name == connector)?.2?;
    known(options)
}

/// What an option of a connector is for.
pub fn help(connector: &str, option: &str) -> Option<&'static str> {
    let mut specs = SOURCES.iter().map(|s| &s.0).chain(SINKS.iter().map(|s| &s.0));
    let mut options = specs.by_ref().filter(|s| s.name == connector).flat_map(|s| s.options);
    options.find(|o| o.name == option).map(|o| o.help)
}

/// Opens a source as declared.
pub fn open_source(source: &source::Source) -> Result<Arc<dyn Source>, ConnectorError> {
    match SOURCES.iter().find(|s| s.0.name == source.connector) {
        Some((_, open, _)) => open(source),
        None => Err(unknown(&source.connector, ConnectorRole::Source)),
    }
}

/// Opens the target of a sink as declared. Nothing outside is touched before its `open`.
pub fn open_sink_target(sink: &sink::Sink, context: &SinkContext<'_>) -> Result<Target, ConnectorError> {
    match SINKS.iter().find(|s| s.0.name == sink.connector) {
        Some((_, open)) => open(sink, context),
        None => Err(unknown(&sink.connector, ConnectorRole::Sink)),
    }
}

/// The target of a sink as one in which something may be prepared, if there are such in its connector's.
pub fn open_prepared(
    sink: &sink::Sink,
    context: &SinkContext<'_>,
) -> Result<Option<Box<dyn PreparedTarget>>, ConnectorError> {
    prepares(sink).then(|| postgres_sink::open_prepared(sink, context)).transpose()
}

/// Whether something may be prepared where this sink delivers to, by it or by another.
pub fn prepares(sink: &sink::Sink) -> bool {
    sink.connector == postgres_options::SPEC.name
}

/// The options of a sink that say where its target is, and not what becomes of the rows there.
pub fn whereabouts(sink: &sink::Sink) -> Vec<(&str, &str)> {
    let of_rows = ["table.name", "schema.name", "commit_every", "commit_mode"];
    let place = sink.options.iter().filter(|(name, _)| !of_rows.contains(&name.as_str()));
    place.map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

/// Whether what a sink takes goes nowhere: there is nothing to log and to deliver.
pub fn discards(sink: &sink::Sink) -> bool {
    sink.connector == blackhole::SPEC.name
}

/// Whether a sink's target can be emptied, to deliver everything anew.
pub fn empties_target(sink: &sink::Sink) -> bool {
    SINKS.iter().any(|(spec, _)| spec.name == sink.connector && spec.empties_target)
}

/// How many durable epochs a sink gathers before it delivers them: its option `commit_every`.
pub fn commit_every(sink: &sink::Sink) -> Result<usize, ConnectorError> {
    let default = if sink.connector == files_sink::SPEC.name { files_sink::COMMIT_EVERY_DEFAULT } else { 1 };
    let Some(text) = sink.options.get("commit_every") else { return Ok(default) };
    text.parse().ok().filter(|n| (1..=100_000).contains(n)).ok_or_else(|| {
        let reason = format!("\"{text}\": it is a number of checkpoints from 1 up");
        super::options::invalid(&sink.connector, "commit_every", reason)
    })
}

fn unknown(name: &str, role: ConnectorRole) -> ConnectorError {
    ConnectorError::UnknownConnector {
        name: name.to_owned(),
        role: match role {
            ConnectorRole::Source => "source",
            ConnectorRole::Sink => "sink",
        },
        known: specs().iter().filter(|s| s.role == role).map(|s| s.name).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_connector_is_listed_and_found() {
        let names: Vec<_> = specs().iter().map(|s| (s.name, s.role == ConnectorRole::Sink)).collect();
        for name in
            [("nexmark", false), ("datagen", false), ("file", false), ("file", true), ("postgres", true)]
        {
            assert!(names.contains(&name), "{name:?}");
        }
        let options = Options::from([("type".to_owned(), "bid".to_owned())]);
        assert_eq!(connector_columns("nexmark", &options).map(|c| c.len()), Some(7));
        let person = Options::from([("nexmark.table.type".to_owned(), "Person".to_owned())]);
        assert_eq!(connector_columns("nexmark", &person).map(|c| c[1].name.clone()), Some("name".to_owned()));
        assert_eq!(connector_columns("file", &options), None);
        let error = unknown("kafca", ConnectorRole::Source);
        assert_eq!(error.to_string(), "connector \"kafca\" does not exist as a source");
    }
}
