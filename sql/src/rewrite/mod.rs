//! Rewrites of a stream plan: pure functions from plan to plan.

pub mod exchange;
