//! System tables: rows computed from a catalog snapshot and runtime facts.

pub mod facts;
