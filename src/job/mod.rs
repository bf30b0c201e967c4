//! From a plan to a running dataflow, and its life.
//!
//! In: bound statements ([`manager`]). [`graph`] cuts plans into fragments, [`build`] makes
//! operators of their nodes, [`assemble`] puts them into actors with channels; [`running`] changes
//! the graph at barriers; [`create`] fills a new job; [`rescale`] gives jobs other actors ([`takeover`]);
//! [`storing`] takes sealed epochs to disk; [`restart`] begins again as soon and as often as
//! [`restart_policy`] says, by what [`restore`] puts together from a checkpoint; [`savepoint`] puts everything
//! of one epoch elsewhere (what it leaves when it is cut off is [`attempts`]' to remove), and by [`replace`] it
//! takes the place of what there is, in a data directory of its own as [`arrival`] says; [`comeback`] does that
//! from checkpoints; [`memory`] keeps the budget; [`committers`] deliver what sinks promised, and [`leftovers`] cleans up after dropped ones.
//! **Invariants:** the graph changes only at barriers; an object is acknowledged only when a
//! durable checkpoint holds its job, or its record says that it is still filling; the catalog's log
//! wins over the manifest.

pub mod manager;

mod arrival;
mod assemble;
mod attempts;
mod build;
mod build_stateful;
mod change;
mod comeback;
mod committers;
mod create;
mod edges;
pub mod graph;
mod incarnation;
mod leftovers;
mod memory;
mod opening;
mod pause;
mod places;
mod replace;
mod replace_fit;
mod replace_ids;
mod rescale;
mod restart;
mod restart_policy;
mod restore;
mod running;
mod running_facts;
mod savepoint;
mod storing;
mod tail;
mod takeover;

#[cfg(test)]
#[path = "tests/simulation.rs"]
mod simulation;
