//! SAVEPOINT TO and RESTORE DATABASE. What PostgreSQL calls a savepoint is [`super::transaction`]'s.

use super::cursor::{Cursor, Parse};
use super::options::with_options;
use super::statement::{OnMismatch, RestoreOptions, RestoredSinks, Statement};
use crate::error::SqlError;
use sqlparser::tokenizer::Token;
use weir_catalog::SqlState;

/// What follows SAVEPOINT TO.
pub(crate) fn savepoint_to(cursor: &mut Cursor<'_>) -> Parse<Statement> {
    let url = url(cursor)?;
    let stop = cursor.words(&["AND", "STOP"]);
    cursor.expect_end()?;
    Ok(Statement::SavepointTo { url, stop })
}

/// What follows RESTORE.
pub(crate) fn restore(cursor: &mut Cursor<'_>) -> Parse<Statement> {
    cursor.expect_word("DATABASE")?;
    let database = cursor.identifier()?;
    cursor.expect_word("FROM")?;
    let url = url(cursor)?;
    let mut options = RestoreOptions::default();
    for (name, value) in with_options(cursor)? {
        set(&mut options, &name, &value)?;
    }
    cursor.expect_end()?;
    Ok(Statement::Restore { database, url, options })
}

/// A string in quotes.
fn url(cursor: &mut Cursor<'_>) -> Parse<String> {
    match &cursor.peek_token_ref().token {
        Token::SingleQuotedString(_) | Token::EscapedStringLiteral(_) => Ok(cursor.parse_literal_string()?),
        _ => Err(cursor.unexpected()),
    }
}

fn set(options: &mut RestoreOptions, name: &str, value: &str) -> Parse<()> {
    let lower = value.to_ascii_lowercase();
    let invalid = |hint: &str| {
        let message = format!("invalid value for option \"{name}\": \"{value}\"");
        SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).hint(hint)
    };
    match name {
        "replace" => {
            options.replace = match lower.as_str() {
                "true" | "on" => true,
                "false" | "off" => false,
                _ => return Err(invalid("Write true or false.").into()),
            }
        }
        "on_mismatch" => {
            options.on_mismatch = match lower.as_str() {
                "error" => OnMismatch::Error,
                "rebuild" => OnMismatch::Rebuild,
                "drop" => OnMismatch::Drop,
                _ => return Err(invalid("Write 'error', 'rebuild' or 'drop'.").into()),
            }
        }
        "definitions" => {
            options.current_definitions = match lower.as_str() {
                "current" => true,
                "saved" => false,
                _ => return Err(invalid("Write 'saved' or 'current'.").into()),
            }
        }
        "sinks" => {
            options.sinks = match lower.as_str() {
                "exactly_once" => RestoredSinks::ExactlyOnce,
                "at_least_once" => RestoredSinks::AtLeastOnce,
                "rebuild" => RestoredSinks::Rebuild,
                _ => return Err(invalid("Write 'exactly_once', 'at_least_once' or 'rebuild'.").into()),
            }
        }
        _ => {
            let message = format!("unrecognized option \"{name}\" of RESTORE DATABASE");
            let hint = "Available options: replace, on_mismatch, definitions, sinks.";
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).hint(hint).into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::parse;

    fn one(sql: &str) -> Statement {
        parse(sql).unwrap_or_else(|e| panic!("{sql}: {e}")).remove(0).statement
    }

    #[test]
    fn both_are_read_and_postgresqls_savepoint_stays() {
        assert!(matches!(
            one("savepoint to 'file:///a/b'"),
            Statement::SavepointTo { url, stop: false } if url == "file:///a/b"
        ));
        assert!(matches!(one("SAVEPOINT TO 's3://b/c' AND STOP"), Statement::SavepointTo { stop: true, .. }));
        assert!(matches!(one("SAVEPOINT a"), Statement::Savepoint(name) if name == "a"));
        assert!(matches!(one("SAVEPOINT \"to\""), Statement::Savepoint(name) if name == "to"));
        let restore =
            one("RESTORE DATABASE dev FROM 'file:///a' WITH (replace = true, on_mismatch = 'rebuild')");
        let Statement::Restore { database, url, options } = restore else { panic!("{restore:?}") };
        assert_eq!((database.as_str(), url.as_str()), ("dev", "file:///a"));
        let expected =
            RestoreOptions { replace: true, on_mismatch: OnMismatch::Rebuild, ..RestoreOptions::default() };
        assert_eq!(options, expected);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (sql, expected) in [
            ("SAVEPOINT TO somewhere", "somewhere"),
            ("RESTORE DATABASE dev", "end of input"),
            ("RESTORE TABLE t FROM 'x'", "TABLE"),
            (
                "RESTORE DATABASE d FROM 'x' WITH (replace = maybe)",
                "invalid value for option \"replace\": \"maybe\"",
            ),
            ("RESTORE DATABASE d FROM 'x' WITH (force = true)", "unrecognized option \"force\""),
            ("RESTORE DATABASE d FROM 'x' WITH (on_mismatch = 'ignore')", "\"ignore\""),
        ] {
            let error = parse(sql).unwrap_err().to_string();
            assert!(error.contains(expected), "{sql}: {error}");
        }
    }
}
