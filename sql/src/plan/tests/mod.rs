//! Planning from text, over a small catalog.

mod golden;
pub mod harness;
mod nexmark;
mod properties;
