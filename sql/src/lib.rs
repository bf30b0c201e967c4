//! Text in, statement or streaming plan out: parse → bind → plan, as three functions.
//!
//! Pure: no I/O, no clock, no threads. [`parser::parse`] makes statements of text,
//! [`binder::bind`] resolves names over a catalog snapshot and gives what the session acts on,
//! [`plan::lower`] turns an optimized logical plan into a [`plan::StreamPlan`].

pub mod binder;
pub mod error;
pub mod functions;
pub mod parser;
pub mod plan;
pub mod rewrite;

pub use error::SqlError;
