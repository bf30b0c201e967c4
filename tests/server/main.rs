//! A real server, real clients, real kills: the modules below, in one binary.

mod auth;
mod backfill;
mod cold;
mod create_sink;
mod degraded;
mod drill;
mod equivalence;
mod exactly_once;
mod full_disk;
mod harness;
mod hdfs;
mod lifecycle;
mod limits;
mod nexmark;
mod protocol;
mod psql;
mod races;
mod recovery;
mod rescale;
mod sinks;
mod storage;
mod transactions;
mod two_phase;
mod unaligned;
mod watermarks;
mod wire;
