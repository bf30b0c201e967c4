//! What one connection is doing.

pub mod text;
