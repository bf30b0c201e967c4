//! Metrics, named by area: `weir_<area>_<what>_<unit>`. One registry for the process.

use prometheus::{Encoder, IntCounter, Registry, TextEncoder};
use std::sync::LazyLock;

/// The process's metrics.
pub static METRICS: LazyLock<Metrics> = LazyLock::new(Metrics::new);

/// Every metric, registered.
pub struct Metrics {
    registry: Registry,
    /// Statements that clients sent.
    pub statements: IntCounter,
    /// Statements that failed.
    pub statement_errors: IntCounter,
    /// Batch plans that were run.
    pub queries: IntCounter,
}

impl Metrics {
    fn new() -> Self {
        let registry = Registry::new();
        let counter = |name: &str, help: &str| {
            let counter = IntCounter::new(name, help).expect("names are valid");
            registry.register(Box::new(counter.clone())).expect("names are unique");
            counter
        };
        Self {
            statements: counter("weir_session_statements_total", "Statements that clients sent."),
            statement_errors: counter("weir_session_statement_errors_total", "Statements that failed."),
            queries: counter("weir_serve_queries_total", "Batch plans that were run."),
            registry,
        }
    }

    /// Where further metrics are registered.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Everything in Prometheus's text format.
    pub fn render(&self) -> String {
        let mut text = Vec::new();
        match TextEncoder::new().encode(&self.registry.gather(), &mut text) {
            Ok(()) => String::from_utf8_lossy(&text).into_owned(),
            Err(error) => format!("# could not be gathered: {error}\n"),
        }
    }
}
