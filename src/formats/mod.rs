//! Bytes to Arrow columns and back.
//!
//! Decoders ([`json`], [`csv`], [`parquet`]) parse only the columns that are wanted, and give what
//! can't be decoded as [`decode::BadRecord`]s, never as an error. Encoders ([`encode`]) write what
//! sinks deliver. [`text`] prints values as PostgreSQL does. Nothing here knows where bytes come
//! from or go to.

pub mod compression;
pub mod encode;
pub mod text;
