//! The Postgres protocol, both ways.

pub mod encode;
pub mod types;
