//! Text to statements: PostgreSQL's dialect plus the streaming statements.

pub mod statement;

use crate::error::SqlError;
use statement::Parsed;

/// Parses a string of statements separated by semicolons. Empty statements are left out.
pub fn parse(_sql: &str) -> Result<Vec<Parsed>, SqlError> {
    unimplemented!()
}
