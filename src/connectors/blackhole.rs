//! `connector = 'blackhole'`: accepts and discards, counting.

use super::error::ConnectorError;
use super::options;
use super::registry::SinkContext;
use super::sink::{Delivery, Marker, SinkError, SinkTarget};
use async_trait::async_trait;
use serde::Deserialize;
use tracing::debug;
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

/// Forgets everything but how much it was.
#[derive(Debug)]
pub struct Blackhole {
    name: String,
    marker: Option<Marker>,
    rows: u64,
}

impl Blackhole {
    /// From a declaration.
    pub fn open(sink: &Sink, context: &SinkContext<'_>) -> Result<Self, ConnectorError> {
        options::read::<BlackholeOptions>(SPEC.name, &sink.options)?;
        Ok(Self { name: context.name.to_owned(), marker: None, rows: 0 })
    }

    /// Rows discarded so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }
}

#[async_trait]
impl SinkTarget for Blackhole {
    async fn open(&mut self) -> Result<Option<Marker>, SinkError> {
        Ok(self.marker)
    }

    async fn deliver(&mut self, delivery: Delivery) -> Result<(), SinkError> {
        self.rows += delivery.batches.iter().map(|b| b.num_rows() as u64).sum::<u64>();
        self.marker = Some(delivery.marker);
        debug!(sink = %self.name, epoch = %delivery.marker.epoch, rows = self.rows, "discarded");
        Ok(())
    }
}
