//! From a plan to a running dataflow, and its life.

pub mod manager;
