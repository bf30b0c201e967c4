//! What is remembered: bytes by table and vnode, in RocksDB behind memory, one epoch at a time.
//!
//! In: [`store::WriteRun`]s sealed by operators at barriers. Out: published snapshots
//! ([`store::StateRead`]), each exactly one epoch. The live directory is scratch: only a
//! checkpoint is ever opened after a crash.
//! **Invariants:** one thread writes ([`apply`]); only `rocks` names RocksDB; the encodings in
//! [`key`] and [`value`] are versioned and held by golden tests.

pub mod apply;
pub mod backend;
pub mod bench;
pub mod budget;
pub mod catalog_log;
mod column;
pub mod data_dir;
pub mod durable;
pub mod entries;
pub mod expire;
pub mod frame;
pub mod key;
pub mod memory;
mod order;
pub mod ownership;
pub mod packed;
pub mod placed;
pub mod rocks;
pub mod rows;
pub mod store;
pub mod table;
pub mod value;
pub mod writes;

#[cfg(test)]
#[path = "tests/conformance.rs"]
mod conformance;
#[cfg(test)]
#[path = "tests/disk.rs"]
pub(crate) mod disk;
#[cfg(test)]
#[path = "tests/random.rs"]
pub(crate) mod random;

/// What reading or writing state can fail of.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The store failed.
    #[error("state store: {0}")]
    Store(String),
    /// Stored bytes don't decode: the wrong version, or damage.
    #[error("state of {table:?} is damaged: {reason}")]
    Corrupt {
        /// The table.
        table: weir_catalog::TableId,
        /// What is wrong.
        reason: String,
    },
    /// Stored bytes don't decode; who knows the table says which.
    #[error("stored row does not decode: {0}")]
    Decode(String),
    /// A file could not be read or written.
    #[error("state file: {0}")]
    Io(#[from] std::io::Error),
}
