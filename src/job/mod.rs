//! From a plan to a running dataflow, and its life.
//!
//! In: bound statements ([`manager`]). [`graph`] cuts plans into fragments, [`build`] makes
//! operators of their nodes, [`assemble`] puts them into actors with channels; [`running`] changes
//! the graph at barriers; [`storing`] takes sealed epochs to disk; [`restart`] begins again from a
//! checkpoint, as soon and as often as [`restart_policy`] says.
//! **Invariants:** the graph changes only at barriers; an object is acknowledged only when a
//! durable checkpoint holds its job; the catalog's log wins over the manifest.

pub mod manager;

mod assemble;
mod build;
mod build_stateful;
mod committers;
mod edges;
pub mod graph;
mod incarnation;
mod restart;
mod restart_policy;
mod running;
mod storing;
mod tail;
