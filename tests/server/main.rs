//! A real server, real clients, real kills: the modules below, in one binary.

mod equivalence;
mod harness;
mod nexmark;
mod recovery;
