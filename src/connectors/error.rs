//! What declaring or opening a connector can fail of: the user's options, or the outside world.

use super::sink::SinkError;
use weir_catalog::{ClientError, SqlState};

/// A connector that can't be used as declared.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum ConnectorError {
    #[error("connector \"{name}\" does not exist as a {role}")]
    UnknownConnector { name: String, role: &'static str, known: Vec<&'static str> },
    #[error("connector \"{connector}\" has no option \"{option}\"")]
    UnknownOption { connector: String, option: String, known: Vec<String> },
    #[error("connector \"{connector}\" needs option \"{option}\"")]
    MissingOption { connector: String, option: String },
    #[error("option \"{option}\" of connector \"{connector}\" is not valid: {reason}")]
    InvalidOption { connector: String, option: String, reason: String },
    #[error("column \"{column}\" does not fit connector \"{connector}\": {reason}")]
    Column { connector: String, column: String, reason: String },
    #[error("connector \"{connector}\" does not support {what}")]
    Unsupported { connector: String, what: String },
    #[error("could not open connector \"{connector}\": {reason}")]
    Outside { connector: String, reason: String },
    #[error("{message}")]
    Unfit { state: SqlState, message: String, hint: String },
}

impl ConnectorError {
    /// What is outside does not fit, and says how.
    pub fn unfit(state: SqlState, message: impl Into<String>, hint: impl Into<String>) -> Self {
        ConnectorError::Unfit { state, message: message.into(), hint: hint.into() }
    }

    /// The same, of an option whose full name starts with `prefix`.
    #[must_use]
    pub fn with_prefix(mut self, prefix: &str) -> Self {
        match &mut self {
            ConnectorError::UnknownOption { option, known, .. } => {
                option.insert_str(0, prefix);
                known.iter_mut().for_each(|k| k.insert_str(0, prefix));
            }
            ConnectorError::MissingOption { option, .. } | ConnectorError::InvalidOption { option, .. } => {
                option.insert_str(0, prefix);
            }
            _ => {}
        }
        self
    }
}

impl ClientError for ConnectorError {
    fn sql_state(&self) -> SqlState {
        match self {
            ConnectorError::UnknownConnector { .. } => SqlState::UNDEFINED_OBJECT,
            ConnectorError::UnknownOption { .. }
            | ConnectorError::MissingOption { .. }
            | ConnectorError::InvalidOption { .. } => SqlState::INVALID_PARAMETER_VALUE,
            ConnectorError::Column { .. } => SqlState::DATATYPE_MISMATCH,
            ConnectorError::Unsupported { .. } => SqlState::FEATURE_NOT_SUPPORTED,
            ConnectorError::Outside { .. } => SqlState::IO_ERROR,
            ConnectorError::Unfit { state, .. } => *state,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            ConnectorError::UnknownConnector { known, .. } => {
                Some(format!("The connectors are: {}.", known.join(", ")))
            }
            ConnectorError::UnknownOption { option, known, .. } => Some(match nearest(option, known) {
                Some(near) => format!("Perhaps you meant the option \"{near}\"."),
                None => format!("Its options are: {}.", known.join(", ")),
            }),
            ConnectorError::InvalidOption { connector, option, .. } => {
                super::registry::help(connector, option).map(str::to_owned)
            }
            ConnectorError::Unfit { hint, .. } => Some(hint.clone()),
            _ => None,
        }
    }
}

impl From<ConnectorError> for SinkError {
    /// What a target refuses until it is changed, and what may pass: connections, resources, conflicts.
    fn from(error: ConnectorError) -> Self {
        match &error.sql_state().0[..2] {
            "08" | "40" | "53" | "55" | "57" | "58" => SinkError::Retry(error.to_string()),
            _ => {
                let hint = error.hint().map_or_else(String::new, |hint| format!(" ({hint})"));
                SinkError::Refused(format!("{}: {error}{hint}", error.sql_state().0))
            }
        }
    }
}

/// The name in `known` that `name` is a part of, or that differs from `name` by the fewest edits, if those are few.
fn nearest<'a>(name: &str, known: &'a [String]) -> Option<&'a str> {
    // What is short for one is no misspelling of another: `host` of `hostname`, `url` of `jdbc.url`.
    let part = |k: &&String| {
        name.len() > 2 && (k.starts_with(name) || k.rsplit_once('.').is_some_and(|(_, last)| last == name))
    };
    if let Some(whole) = known.iter().find(part) {
        return Some(whole);
    }
    let distance = |k: &&String| edits(name.as_bytes(), k.as_bytes());
    let best = known.iter().min_by_key(distance)?;
    (distance(&best) <= 1 + name.len() / 4).then_some(best)
}

/// Levenshtein distance.
fn edits(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(ca != cb);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_option_names_its_nearest() {
        let known = vec!["events".to_owned(), "rate".to_owned(), "seed".to_owned()];
        let error = |option: &str| ConnectorError::UnknownOption {
            connector: "nexmark".into(),
            option: option.into(),
            known: known.clone(),
        };
        assert_eq!(error("event").hint().as_deref(), Some("Perhaps you meant the option \"events\"."));
        assert_eq!(error("topic").hint().as_deref(), Some("Its options are: events, rate, seed."));
        let known = ["port", "hostname", "jdbc.url"].map(str::to_owned);
        assert_eq!(nearest("host", &known), Some("hostname"));
        assert_eq!(nearest("url", &known), Some("jdbc.url"));
        assert_eq!(edits(b"kitten", b"sitting"), 3);
    }
}
