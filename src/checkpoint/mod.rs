//! When it is safe: barriers are triggered, gathered, made durable, and committed.
pub mod participant;
