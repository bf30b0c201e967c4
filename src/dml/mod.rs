//! What was promised to a client: the DML log. What is logged and not yet visible is overlaid by its
//! readers: `session` for DML, `serve` for SELECT.
//!
//! A record is one transaction: the exact row changes of each table. It is acknowledged after an
//! fsync shared by a group; every barrier carries a position, and tables inject the records up to
//! it and none beyond.

pub mod log;
mod reading;
mod record;
