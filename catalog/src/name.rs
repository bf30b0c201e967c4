//! Names of objects: a schema and a name, as PostgreSQL writes and quotes them.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The schema that unqualified names are created in.
pub const DEFAULT_SCHEMA: &str = "public";

/// A schema-qualified name, already folded as PostgreSQL folds (unquoted parts in lower case).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectName {
    /// The schema, `public` unless said otherwise.
    pub schema: String,
    /// The name within the schema.
    pub name: String,
}

impl ObjectName {
    /// `schema.name`.
    pub fn new(schema: impl Into<String>, name: impl Into<String>) -> Self {
        Self { schema: schema.into(), name: name.into() }
    }

    /// `public.name`.
    pub fn public(name: impl Into<String>) -> Self {
        Self::new(DEFAULT_SCHEMA, name)
    }
}

impl fmt::Display for ObjectName {
    /// As a user would write it: `public` is left out, odd names are quoted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.schema != DEFAULT_SCHEMA {
            write!(f, "{}.", quote_identifier(&self.schema))?;
        }
        f.write_str(&quote_identifier(&self.name))
    }
}

/// Quotes `identifier` if PostgreSQL would not read it back unquoted.
pub fn quote_identifier(identifier: &str) -> String {
    let mut bytes = identifier.bytes();
    let plain_start = bytes.next().is_some_and(|b| b.is_ascii_lowercase() || b == b'_');
    if plain_start && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'$') {
        identifier.to_owned()
    } else {
        format!("\"{}\"", identifier.replace('"', "\"\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_print_as_they_are_written() {
        assert_eq!(ObjectName::public("bid").to_string(), "bid");
        assert_eq!(ObjectName::new("Sales", "dateTime").to_string(), "\"Sales\".\"dateTime\"");
        assert_eq!(quote_identifier("a\"b"), "\"a\"\"b\"");
        assert_eq!(quote_identifier("1a"), "\"1a\"");
    }
}
