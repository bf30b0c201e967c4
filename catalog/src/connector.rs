//! What the catalog knows of a connector: its options and what it guarantees. The connectors
//! themselves declare these as constants; the registry in the server's `connectors` lists them.

/// What a connector can be used as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectorRole {
    /// CREATE SOURCE.
    Source,
    /// CREATE SINK.
    Sink,
}

/// What a connector adds to exactly once, end to end: the engine's state is consistent, so it holds
/// where the source can be read again and the target takes each change once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contract {
    /// A source that reads the same again from an offset.
    Replayable,
    /// A source that can't: what was under way at a crash is lost.
    NotReplayable,
    /// A sink whose target takes rows and the marker of what it holds together, or nothing of them.
    Transactional,
    /// A sink whose target is the same however often it gets a change.
    Idempotent,
    /// A sink whose target may get a change again after a crash.
    AtLeastOnce,
}

impl Contract {
    /// As catalogs spell it.
    pub fn name(self) -> &'static str {
        match self {
            Contract::Replayable => "replayable",
            Contract::NotReplayable => "not replayable",
            Contract::Transactional => "transactional",
            Contract::Idempotent => "idempotent",
            Contract::AtLeastOnce => "at least once",
        }
    }

    /// Whether exactly once holds with it.
    pub fn holds(self) -> bool {
        matches!(self, Contract::Replayable | Contract::Transactional | Contract::Idempotent)
    }
}

/// One `WITH` option.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// Its name, lower case; `fields.*` stands for every name that starts so.
    pub name: &'static str,
    /// Whether it must be given.
    pub required: bool,
    /// A sentence.
    pub help: &'static str,
}

/// A connector, as the catalog and the planner see it.
#[derive(Clone, Copy, Debug)]
pub struct ConnectorSpec {
    /// Its name in `connector = '…'`.
    pub name: &'static str,
    /// As what.
    pub role: ConnectorRole,
    /// The options it takes.
    pub options: &'static [OptionSpec],
    /// The encodings it takes; empty: `NATIVE` only.
    pub encodings: &'static [&'static str],
    /// What it adds to exactly once.
    pub contract: Contract,
    /// Why it can say so.
    pub why: &'static str,
    /// Whether a sink of it can empty its target, to deliver everything anew.
    pub empties_target: bool,
}

impl ConnectorSpec {
    /// Whether it takes the option `name`. A spec that ends in `*` stands for all that start so.
    pub fn takes(&self, name: &str) -> bool {
        self.options.iter().any(|option| match option.name.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == option.name,
        })
    }
}
