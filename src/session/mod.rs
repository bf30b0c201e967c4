//! What one connection is doing.

pub use crate::formats::text;
