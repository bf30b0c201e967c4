//! From a plan to a running dataflow, and its life.
//!
//! In: bound statements ([`manager`]). [`graph`] cuts plans into fragments, [`build`] makes
//! operators of their nodes, [`assemble`] puts them into actors with channels; [`running`] changes
//! the graph at barriers; [`create`] fills a new job; [`storing`] takes sealed epochs to disk;
//! [`restart`] begins again as soon and as often as [`restart_policy`] says, by what [`restore`] puts
//! together from a checkpoint; [`memory`]
//! keeps the budget; [`committers`] deliver what sinks promised, and [`leftovers`] cleans up after dropped ones.
//! **Invariants:** the graph changes only at barriers; an object is acknowledged only when a
//! durable checkpoint holds its job, or its record says that it is still filling; the catalog's log
//! wins over the manifest.

pub mod manager;

mod assemble;
mod build;
mod build_stateful;
mod committers;
mod create;
mod edges;
pub mod graph;
mod incarnation;
mod leftovers;
mod memory;
mod pause;
mod restart;
mod restart_policy;
mod restore;
mod running;
mod running_facts;
mod storing;
mod tail;

#[cfg(test)]
#[path = "tests/simulation.rs"]
mod simulation;
