//! Weir, a streaming database in one binary: the map.
//!
//! ```text
//! statement:  wire → session → sql → job → operators on dataflow
//! row:        connectors → formats → operators → state → checkpoint → (sinks commit)
//! answer:     state → serve → session → wire
//! words:      catalog (what is named)   stream (what flows)
//! ```

pub mod allocator;
pub mod checkpoint;
pub mod clock;
pub mod config;
pub mod connectors;
pub mod dataflow;
pub mod descriptors;
pub mod dml;
pub mod drill;
pub mod error;
pub mod failpoint;
pub mod formats;
pub mod job;
pub mod operators;
pub mod ports;
pub mod serve;
pub mod server;
pub mod session;
pub mod state;
pub mod stream;
pub mod telemetry;
pub mod threads;
pub mod units;
pub mod wire;
pub mod work;
