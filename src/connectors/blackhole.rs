//! `connector = 'blackhole'`: accepts and discards. Its sinks have no log ([`registry::discards`]), so that
//! nothing is ever delivered but the passing of time.
//!
//! [`registry::discards`]: super::registry::discards

use super::error::ConnectorError;
use super::options;
use super::sink::{Delivery, Marker, SinkError, SinkTarget};
use async_trait::async_trait;
use serde::Deserialize;
use weir_catalog::connector::{ConnectorRole, ConnectorSpec, Contract};
use weir_catalog::sink::Sink;

/// What CREATE SINK may say.
pub const SPEC: ConnectorSpec = ConnectorSpec {
    name: "blackhole",
    role: ConnectorRole::Sink,
    options: &[],
    encodings: &[],
    contract: Contract::AtLeastOnce,
    why: "nothing is kept of what was discarded",
    empties_target: true,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BlackholeOptions {}

/// Forgets everything but how far it came.
#[derive(Debug, Default)]
pub struct Blackhole {
    marker: Option<Marker>,
}

impl Blackhole {
    /// From a declaration.
    pub fn open(sink: &Sink) -> Result<Self, ConnectorError> {
        options::read::<BlackholeOptions>(SPEC.name, &sink.options)?;
        Ok(Self::default())
    }
}

#[async_trait]
impl SinkTarget for Blackhole {
    async fn open(&mut self) -> Result<Option<Marker>, SinkError> {
        Ok(self.marker)
    }

    async fn deliver(&mut self, delivery: Delivery) -> Result<(), SinkError> {
        self.marker = Some(delivery.marker);
        Ok(())
    }
}
