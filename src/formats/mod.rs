//! Bytes to Arrow columns and back.
//!
//! Decoders ([`json`], [`csv`], [`parquet`]) parse only the columns that are wanted, and give what
//! can't be decoded as [`decode::BadRecord`]s, never as an error. Encoders ([`encode`]) write what
//! sinks deliver. [`text`] prints values as PostgreSQL does. Nothing here knows where bytes come
//! from or go to.

pub mod column;
pub mod compression;
pub mod csv;
pub mod decode;
pub mod encode;
pub mod json;
pub mod json_value;
pub mod parquet;
pub mod parse;
pub mod text;
