//! When it is safe: barriers are triggered, gathered, made durable, and committed.
//!
//! In: actors' reports. Out: published epochs, manifests, and the word to sinks that they may
//! commit. [`decide`] decides, [`coordinator`] does; [`participant`] is what actors and sinks sign.
//! **Invariants:** only the coordinator makes epochs; a checkpoint exists when its manifest does.

pub mod ahead;
pub mod belongings;
pub mod channel;
pub mod checksum;
pub mod coordinator;
pub mod decide;
pub mod download;
pub mod gc;
pub mod history;
pub mod hold;
pub mod local;
pub mod manifest;
pub mod message;
pub mod objects;
pub mod participant;
pub mod remote;
pub mod savepoint;
pub mod staged;
pub mod storage;
pub mod transfer;
pub mod upload;

mod in_flight;
mod record;
mod waiters;

#[cfg(test)]
#[path = "tests/simulated_store.rs"]
pub mod simulated_store;
