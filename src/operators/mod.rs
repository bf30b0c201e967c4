//! What happens to a change: one file per operator.
//!
//! Each operator is built from its plan node's parameters, runs in an actor, and obeys the contract
//! in [`crate::dataflow::operator`]. In: change batches and watermarks of its inputs, barriers.
//! Out: the change of its result, and at barriers its state writes.
//! **Invariants:** no clock, no threads, no I/O but of source and sink; the same input gives the
//! same result whatever the cut into batches; restored state gives the same result as kept state.

pub mod accumulator;
pub mod aggregate;
mod aggregate_calls;
mod aggregate_cold;
mod aggregate_early;
mod aggregate_expiry;
mod aggregate_failures;
mod aggregate_same;
mod aggregate_state;
pub mod distinct;
mod distinct_counts;
pub mod emit_on_close;
pub mod expand;
pub mod expiry;
pub mod expr;
pub mod extreme;
pub mod failures;
pub mod filter;
mod float_sum;
mod group_keys;
pub mod groups;
mod interval_sum;
pub mod intervals;
pub mod join;
mod join_expiry;
pub mod join_residual;
mod join_room;
pub mod join_side;
pub mod join_state;
pub mod join_work;
pub mod lateness;
pub mod materialize;
pub mod multiset;
pub mod ordered;
pub mod over;
pub mod project;
pub mod row_arena;
pub mod row_eq;
pub mod row_order;
pub mod sum;
pub mod top_n;
pub mod top_n_spec;
mod top_n_state;
pub mod top_n_window;
pub mod top_one;
pub mod union;
pub mod values;
pub mod window;

#[cfg(test)]
#[path = "tests/script.rs"]
pub(crate) mod script;

pub mod backfill;
pub mod dml;
pub mod sink;
pub mod source;
pub mod source_scan;
