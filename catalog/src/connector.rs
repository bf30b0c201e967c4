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

/// The guarantee a sink connector gives when the engine is exactly-once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Each change is in the target once.
    ExactlyOnce,
    /// A change may be delivered again after a crash.
    AtLeastOnce,
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
    /// What it guarantees as a sink.
    pub delivery: Delivery,
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
