//! What was promised to a client: the DML log, and its not yet visible changes.
//!
//! A record is one transaction: the exact row changes of each table. It is acknowledged after an
//! fsync shared by a group; every barrier carries a position, and tables inject the records up to
//! it and none beyond.

pub mod log;
pub mod overlay;
mod record;
