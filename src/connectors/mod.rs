//! The outside world: sources that can be read again from an offset, and sinks that commit what a
//! durable checkpoint promised.
//!
//! [`source`] and [`sink`] are the contracts; [`registry`] lists every connector, one line each.
//! Only this area (beside `wire` and the HTTP page) opens sockets or files of the user's.

pub mod ahead;
pub mod blackhole;
pub mod committer;
pub mod datagen;
pub mod datagen_field;
pub mod dead_letter;
pub mod delivery;
mod desk;
pub mod error;
pub mod files_sink;
pub mod files_source;
pub mod files_stripe;
pub mod files_text;
mod logged;
pub mod net;
pub mod nexmark;
pub mod nexmark_columns;
pub mod nexmark_event;
pub mod nexmark_files;
pub mod options;
pub mod pace;
pub mod postgres_check;
pub mod postgres_copy;
pub mod postgres_options;
pub mod postgres_prepared;
pub mod postgres_sink;
pub mod postgres_statements;
mod prepared;
pub mod registry;
pub mod retry;
pub mod sink;
pub mod sink_log;
pub mod source;
pub mod transaction;

pub use error::ConnectorError;

#[cfg(test)]
#[path = "tests/simulated_source.rs"]
pub mod simulated_source;
#[cfg(test)]
#[path = "tests/simulated_target.rs"]
pub mod simulated_target;

#[cfg(test)]
#[path = "tests/postgres_server.rs"]
mod postgres_server;
