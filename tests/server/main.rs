//! A real server, real clients, real kills: the modules below, in one binary.

mod cold;
mod degraded;
mod equivalence;
mod exactly_once;
mod harness;
mod lifecycle;
mod limits;
mod nexmark;
mod protocol;
mod psql;
mod recovery;
