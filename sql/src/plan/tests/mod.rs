//! Planning from text, over a small catalog.

pub mod harness;
mod nexmark;
