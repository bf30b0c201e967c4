//! Typed options from `WITH (…)`: a serde struct a connector, so that a missing, unknown or
//! malformed option is named in the error.
//!
//! All values are text; they are read as what the struct's field wants. Booleans are spelled as
//! PostgreSQL spells them. An option with several spellings is named as the user spelled it.

use super::error::ConnectorError;
use serde::de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, MapAccess, Visitor};
use std::collections::btree_map;
use std::fmt;
use weir_catalog::source::Options;

/// Reads `options` into a connector's struct (with `#[serde(deny_unknown_fields)]`).
pub fn read<T: DeserializeOwned>(connector: &str, options: &Options) -> Result<T, ConnectorError> {
    T::deserialize(Texts { entries: options.iter(), current: None }).map_err(|fault| {
        let connector = connector.to_owned();
        match fault {
            Fault::Unknown { option, known } => ConnectorError::UnknownOption { connector, option, known },
            Fault::Missing(option) => ConnectorError::MissingOption { connector, option: option.to_owned() },
            Fault::Twice(option) => invalid(&connector, option, "it is given twice, by two of its names"),
            Fault::Value { option, reason } => ConnectorError::InvalidOption { connector, option, reason },
            Fault::Custom(reason) => {
                ConnectorError::InvalidOption { connector, option: "WITH".into(), reason }
            }
        }
    })
}

/// An option whose value the connector does not take.
pub fn invalid(connector: &str, option: &str, reason: impl Into<String>) -> ConnectorError {
    ConnectorError::InvalidOption {
        connector: connector.to_owned(),
        option: option.to_owned(),
        reason: reason.into(),
    }
}

/// Refuses the option that goes by `names`, as the user spelled it, unless its value is `fine`.
pub fn check(
    connector: &str,
    options: &Options,
    names: &[&str],
    fine: bool,
    reason: &str,
) -> Result<(), ConnectorError> {
    if fine {
        return Ok(());
    }
    let given = names.iter().find_map(|name| options.get_key_value(*name));
    let (name, value) = given.map_or(("WITH", ""), |(name, value)| (name.as_str(), value.as_str()));
    Err(invalid(connector, name, format!("\"{value}\": {reason}")))
}

/// What is wrong with the options.
#[derive(Debug)]
enum Fault {
    Unknown { option: String, known: Vec<String> },
    Missing(&'static str),
    Twice(&'static str),
    Value { option: String, reason: String },
    Custom(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Fault::Custom(message.to_string())
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Fault::Unknown { option: field.to_owned(), known: expected.iter().map(|e| (*e).to_owned()).collect() }
    }

    fn missing_field(field: &'static str) -> Self {
        Fault::Missing(field)
    }

    fn duplicate_field(field: &'static str) -> Self {
        Fault::Twice(field)
    }
}

/// The options as serde sees them: a map of texts.
struct Texts<'a> {
    entries: btree_map::Iter<'a, String, String>,
    current: Option<(&'a str, &'a str)>,
}

impl<'de> de::Deserializer<'de> for Texts<'de> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_map(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de> MapAccess<'de> for Texts<'de> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        self.current = self.entries.next().map(|(name, text)| (name.as_str(), text.as_str()));
        self.current.map(|(name, _)| seed.deserialize(name.into_deserializer())).transpose()
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Fault> {
        let (name, text) =
            self.current.take().ok_or_else(|| Fault::Custom("a value before its name".into()))?;
        seed.deserialize(Text(text)).map_err(|fault| match fault {
            Fault::Custom(reason) => Fault::Value { option: name.to_owned(), reason },
            other => other,
        })
    }
}

/// One value: read as what is wanted.
struct Text<'a>(&'a str);

impl Text<'_> {
    fn bool(&self) -> Result<bool, Fault> {
        match self.0.to_ascii_lowercase().as_str() {
            "true" | "t" | "on" | "yes" | "1" => Ok(true),
            "false" | "f" | "off" | "no" | "0" => Ok(false),
            _ => Err(Fault::Custom(format!("\"{}\" is not true or false", self.0))),
        }
    }

    fn number<N: std::str::FromStr>(&self, kind: &str) -> Result<N, Fault> {
        self.0
            .trim()
            .replace('_', "")
            .parse()
            .map_err(|_| Fault::Custom(format!("\"{}\" is not {kind}", self.0)))
    }
}

macro_rules! numbers {
    ($kind:literal, $($method:ident $visit:ident),*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            visitor.$visit(self.number($kind)?)
        })*
    };
}

impl<'de> de::Deserializer<'de> for Text<'de> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_borrowed_str(self.0)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_bool(self.bool()?)
    }

    numbers!("a whole number that it takes", deserialize_i8 visit_i8, deserialize_i16 visit_i16);
    numbers!("a whole number that it takes", deserialize_i32 visit_i32, deserialize_i64 visit_i64);
    numbers!("a whole number from 0 up", deserialize_u8 visit_u8, deserialize_u16 visit_u16);
    numbers!("a whole number from 0 up", deserialize_u32 visit_u32, deserialize_u64 visit_u64);
    numbers!("a number", deserialize_f32 visit_f32, deserialize_f64 visit_f64);

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    /// Names of a closed set are read whatever their case.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match variants.iter().find(|v| v.eq_ignore_ascii_case(self.0)) {
            Some(variant) => visitor.visit_enum((*variant).into_deserializer()),
            None => Err(Fault::Custom(format!("\"{}\" is none of {}", self.0, variants.join(", ")))),
        }
    }

    serde::forward_to_deserialize_any! {
        char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Deserialize)]
    enum Kind {
        Person,
        Bid,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        #[serde(rename = "table.type", alias = "type")]
        kind: Kind,
        #[serde(default)]
        follow: bool,
        events: Option<u64>,
        path: Option<String>,
    }

    fn sample(options: &[(&str, &str)]) -> Result<Sample, ConnectorError> {
        read("sample", &options.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect())
    }

    #[test]
    fn values_are_read_as_what_the_field_wants() {
        let read = sample(&[("type", "bid"), ("follow", "on"), ("events", "1_000"), ("path", "1")]);
        assert_eq!(
            read,
            Ok(Sample { kind: Kind::Bid, follow: true, events: Some(1000), path: Some("1".to_owned()) })
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        let message = |options: &[(&str, &str)]| sample(options).unwrap_err().to_string();
        assert_eq!(message(&[]), "connector \"sample\" needs option \"table.type\"");
        assert_eq!(
            message(&[("type", "bid"), ("evnts", "1")]),
            "connector \"sample\" has no option \"evnts\""
        );
        assert_eq!(
            message(&[("type", "bid"), ("events", "-1")]),
            "option \"events\" of connector \"sample\" is not valid: \"-1\" is not a whole number from 0 up"
        );
        assert_eq!(
            message(&[("type", "bid"), ("table.type", "bid")]),
            "option \"table.type\" of connector \"sample\" is not valid: it is given twice, by two of its names"
        );
        assert_eq!(
            message(&[("type", "bird")]),
            "option \"type\" of connector \"sample\" is not valid: \"bird\" is none of Person, Bid"
        );
    }
}
