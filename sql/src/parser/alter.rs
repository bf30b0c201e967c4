//! DROP, ALTER, COMMENT ON and TRUNCATE.

use super::cursor::{Cursor, Parse};
use super::statement::Statement;
use crate::error::SqlError;
use sqlparser::tokenizer::Token;
use weir_catalog::{ObjectKind, ObjectName, SqlState};

/// TABLE, SOURCE, SINK, INDEX, VIEW or MATERIALIZED VIEW, if it comes next.
pub(crate) fn object_kind(cursor: &mut Cursor<'_>) -> Option<ObjectKind> {
    if cursor.words(&["MATERIALIZED", "VIEW"]) {
        return Some(ObjectKind::MaterializedView);
    }
    let kind = match cursor.upper()?.as_str() {
        "TABLE" => ObjectKind::Table,
        "SOURCE" => ObjectKind::Source,
        "SINK" => ObjectKind::Sink,
        "INDEX" => ObjectKind::Index,
        "VIEW" => ObjectKind::View,
        _ => return None,
    };
    cursor.advance_token();
    Some(kind)
}

/// What follows DROP.
pub(crate) fn drop(cursor: &mut Cursor<'_>) -> Parse<Statement> {
    if cursor.word("SCHEMA") {
        let if_exists = cursor.if_exists();
        let name = cursor.identifier()?;
        if cursor.word("CASCADE") {
            return Err(SqlError::not_supported("DROP SCHEMA … CASCADE")
                .hint("Drop its objects first.")
                .into());
        }
        let _ = cursor.word("RESTRICT");
        cursor.expect_end()?;
        return Ok(Statement::DropSchema { name, if_exists });
    }
    let Some(kind) = object_kind(cursor) else { return Err(refused(cursor, "DROP")) };
    if kind == ObjectKind::Index {
        let _ = cursor.word("CONCURRENTLY");
    }
    let if_exists = cursor.if_exists();
    let mut names = vec![cursor.object_name()?];
    while cursor.consume_token(&Token::Comma) {
        names.push(cursor.object_name()?);
    }
    let cascade = cursor.word("CASCADE");
    if !cascade {
        let _ = cursor.word("RESTRICT");
    }
    cursor.expect_end()?;
    Ok(Statement::Drop { kind, names, if_exists, cascade })
}

/// What follows ALTER.
pub(crate) fn alter(cursor: &mut Cursor<'_>) -> Parse<Statement> {
    if cursor.word("DATABASE") {
        let database = cursor.identifier()?;
        return alter_database(database, cursor);
    }
    if cursor.peek_word("SYSTEM") {
        return Err(SqlError::not_supported("ALTER SYSTEM").hint("Use ALTER DATABASE … SET.").into());
    }
    let Some(kind) = object_kind(cursor) else { return Err(refused(cursor, "ALTER")) };
    if cursor.if_exists() {
        return Err(SqlError::not_supported("ALTER … IF EXISTS").into());
    }
    let name = cursor.object_name()?;
    if cursor.words(&["RENAME", "TO"]) {
        let to = cursor.identifier()?;
        cursor.expect_end()?;
        return Ok(Statement::Rename { kind, name, to });
    }
    if cursor.peek_word("RENAME") && !cursor.peek_nth_word(1, "CONSTRAINT") {
        cursor.expect_word("RENAME")?;
        let _ = cursor.word("COLUMN");
        let column = cursor.identifier()?;
        cursor.expect_word("TO")?;
        let to = cursor.identifier()?;
        cursor.expect_end()?;
        return Ok(Statement::RenameColumn { kind, name, column, to });
    }
    if cursor.words(&["SET", "PARALLELISM"]) {
        let parallelism = parallelism(cursor)?;
        return Ok(Statement::SetParallelism { kind, name, parallelism });
    }
    if kind == ObjectKind::Sink && (cursor.peek_word("RESUME") || cursor.peek_word("REBUILD")) {
        let resume = cursor.word("RESUME");
        let _ = resume || cursor.word("REBUILD");
        let at_least_once = resume && cursor.words(&["AT", "LEAST", "ONCE"]);
        cursor.expect_end()?;
        return Ok(match resume {
            true => Statement::ResumeSink { name, at_least_once },
            false => Statement::RebuildSink(name),
        });
    }
    let upper = kind.to_string().to_uppercase();
    match cursor.upper() {
        Some(action) if ALTER_ACTIONS.contains(&action.as_str()) => {
            Err(SqlError::not_supported(format_args!("ALTER {upper} … {action}"))
                .hint(format!("ALTER {upper} … RENAME TO is supported."))
                .into())
        }
        _ => Err(cursor.unexpected()),
    }
}

/// What follows SET PARALLELISM: a number of actors, ADAPTIVE or DEFAULT.
fn parallelism(cursor: &mut Cursor<'_>) -> Parse<Option<u16>> {
    if !cursor.consume_token(&Token::Eq) {
        cursor.expect_word("TO")?;
    }
    let Some(value) = super::command::setting_value(cursor)? else { return Ok(None) };
    if value.eq_ignore_ascii_case("adaptive") {
        return Ok(None);
    }
    match value.parse() {
        Ok(number) if (1..=PARALLELISM_MAX).contains(&number) => Ok(Some(number)),
        _ => {
            Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("invalid parallelism: \"{value}\""))
                .hint(format!("Write a number from 1 to {PARALLELISM_MAX}, or ADAPTIVE."))
                .into())
        }
    }
}

/// There are as many vnodes: more actors would have none.
const PARALLELISM_MAX: u16 = 256;

const ALTER_ACTIONS: [&str; 12] = [
    "RENAME", "ADD", "DROP", "ALTER", "SET", "RESET", "OWNER", "SWAP", "REFRESH", "CLUSTER", "ENABLE",
    "DISABLE",
];

/// What follows ALTER DATABASE name.
fn alter_database(database: String, cursor: &mut Cursor<'_>) -> Parse<Statement> {
    if cursor.word("RESET") {
        let setting = super::command::setting_name(cursor)?;
        cursor.expect_end()?;
        return Ok(Statement::AlterDatabase { database, setting, value: None });
    }
    if !cursor.word("SET") {
        return match cursor.upper() {
            Some(action) if ["RENAME", "OWNER"].contains(&action.as_str()) => {
                Err(SqlError::not_supported(format_args!("ALTER DATABASE … {action}")).into())
            }
            _ => Err(cursor.unexpected()),
        };
    }
    let (setting, value) = super::command::assignment(cursor)?;
    Ok(Statement::AlterDatabase { database, setting, value })
}

/// What follows COMMENT.
pub(crate) fn comment(cursor: &mut Cursor<'_>) -> Parse<Statement> {
    cursor.expect_word("ON")?;
    let Some(kind) = object_kind(cursor) else { return Err(refused(cursor, "COMMENT ON")) };
    let name = cursor.object_name()?;
    cursor.expect_word("IS")?;
    let text = if cursor.word("NULL") { None } else { Some(cursor.parse_literal_string()?) };
    cursor.expect_end()?;
    Ok(Statement::Comment { kind, name, text })
}

/// What follows TRUNCATE.
pub(crate) fn truncate(cursor: &mut Cursor<'_>) -> Parse<Statement> {
    let _ = cursor.word("TABLE");
    let _ = cursor.word("ONLY");
    let name: ObjectName = cursor.object_name()?;
    if cursor.peek_token_ref().token == Token::Comma {
        return Err(SqlError::not_supported("TRUNCATE of several tables").into());
    }
    if cursor.words(&["RESTART", "IDENTITY"]) {
        return Err(SqlError::not_supported("TRUNCATE … RESTART IDENTITY").into());
    }
    let _ = cursor.words(&["CONTINUE", "IDENTITY"]) || cursor.word("RESTRICT");
    cursor.expect_end()?;
    Ok(Statement::Truncate(name))
}

const OTHER_KINDS: [&str; 25] = [
    "AGGREGATE",
    "CAST",
    "COLLATION",
    "COLUMN",
    "CONNECTION",
    "CONSTRAINT",
    "CONVERSION",
    "DATABASE",
    "DOMAIN",
    "EXTENSION",
    "FUNCTION",
    "GROUP",
    "LANGUAGE",
    "OPERATOR",
    "OWNED",
    "POLICY",
    "PROCEDURE",
    "PUBLICATION",
    "ROLE",
    "SCHEMA",
    "SECRET",
    "SEQUENCE",
    "SUBSCRIPTION",
    "TRIGGER",
    "TYPE",
];

/// The error for a statement on a kind of object that is not ours: refused if PostgreSQL or a peer
/// has it, a syntax error if nobody does.
pub(crate) fn refused(cursor: &Cursor<'_>, verb: &str) -> super::cursor::Fault {
    const MORE: [&str; 9] =
        ["USER", "TABLESPACE", "SERVER", "RULE", "STATISTICS", "FOREIGN", "EVENT", "TEXT", "DEFAULT"];
    match cursor.upper() {
        Some(word) if OTHER_KINDS.contains(&word.as_str()) || MORE.contains(&word.as_str()) => {
            SqlError::not_supported(format_args!("{verb} {word}")).into()
        }
        _ => cursor.unexpected(),
    }
}
