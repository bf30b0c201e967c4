//! What the session itself answers: SET, SHOW, transactions, prepared statements, FLUSH and its kin.

use super::alter::object_kind;
use super::cursor::{Cursor, Parse};
use super::statement::{ShowTarget, Statement};
use super::transaction::set_transaction;
use crate::error::SqlError;
use sqlparser::tokenizer::Token;
use weir_catalog::name::quote_identifier;
use weir_catalog::{ObjectKind, SqlState};

/// What follows SET.
pub(crate) fn set(cursor: &mut Cursor<'_>) -> Parse<Statement> {
    if cursor.words(&["SESSION", "CHARACTERISTICS", "AS", "TRANSACTION"]) {
        return set_transaction(cursor, "default_");
    }
    if cursor.word("TRANSACTION") {
        return set_transaction(cursor, "");
    }
    if cursor.words(&["SESSION", "AUTHORIZATION"]) {
        let value = setting_value(cursor)?;
        return Ok(set_session("session_authorization", value));
    }
    // `SET session = 1` would set something named session; nobody has that.
    let local = !cursor.word("SESSION") && cursor.word("LOCAL");
    let set = |name: &str, value| Statement::Set { name: name.to_owned(), value, local };
    if cursor.words(&["TIME", "ZONE"]) {
        let value = if cursor.word("LOCAL") { None } else { setting_value(cursor)? };
        cursor.expect_end()?;
        return Ok(set("timezone", value));
    }
    if cursor.word("NAMES") {
        let value = setting_value(cursor)?;
        return Ok(set("client_encoding", value));
    }
    if cursor.word("ROLE") {
        let value = setting_value(cursor)?;
        return Ok(set("role", value));
    }
    let (name, value) = assignment(cursor)?;
    Ok(set(&name, value))
}

fn set_session(name: &str, value: Option<String>) -> Statement {
    Statement::Set { name: name.to_owned(), value, local: false }
}

/// `name {= | TO} value`.
pub(crate) fn assignment(cursor: &mut Cursor<'_>) -> Parse<(String, Option<String>)> {
    let name = setting_name(cursor)?;
    if !cursor.consume_token(&Token::Eq) {
        cursor.expect_word("TO")?;
    }
    let value = setting_value(cursor)?;
    Ok((name, value))
}

/// A dotted name, lower case whatever the quotes: settings don't differ by case.
pub(crate) fn setting_name(cursor: &mut Cursor<'_>) -> Parse<String> {
    let mut name = cursor.identifier()?;
    while cursor.consume_token(&Token::Period) {
        name.push('.');
        name.push_str(&cursor.identifier()?);
    }
    Ok(name.to_lowercase())
}

/// All that is left, as the text of a setting. None for DEFAULT.
pub(crate) fn setting_value(cursor: &mut Cursor<'_>) -> Parse<Option<String>> {
    if cursor.word("DEFAULT") {
        cursor.expect_end()?;
        return Ok(None);
    }
    let mut parts = Vec::new();
    loop {
        parts.push(setting_part(cursor)?);
        if !cursor.consume_token(&Token::Comma) {
            break;
        }
    }
    cursor.expect_end()?;
    Ok(Some(match <[(String, bool); 1]>::try_from(parts) {
        Ok([(value, _)]) => value,
        Err(parts) => {
            let quoted: Vec<String> = parts
                .iter()
                .map(|(v, quoted)| if *quoted { quote_identifier(v) } else { v.clone() })
                .collect();
            quoted.join(", ")
        }
    }))
}

/// One value of a setting, and whether it was quoted.
fn setting_part(cursor: &mut Cursor<'_>) -> Parse<(String, bool)> {
    if cursor.word("INTERVAL") {
        return Ok((cursor.parse_literal_string()?, false));
    }
    let negative = cursor.consume_token(&Token::Minus);
    if !negative {
        let _ = cursor.consume_token(&Token::Plus);
    }
    let part = match &cursor.peek_token_ref().token {
        Token::Number(n, _) if negative => (format!("-{n}"), false),
        _ if negative => return Err(cursor.unexpected()),
        Token::Number(n, _) => (n.clone(), false),
        Token::SingleQuotedString(s) | Token::EscapedStringLiteral(s) => (s.clone(), true),
        Token::Word(w) if w.quote_style.is_some() => (w.value.clone(), true),
        Token::Word(w) => (w.value.to_ascii_lowercase(), false),
        _ => return Err(cursor.unexpected()),
    };
    cursor.advance_token();
    Ok(part)
}

/// What follows RESET.
pub(crate) fn reset(cursor: &mut Cursor<'_>) -> Parse<Statement> {
    if cursor.word("ALL") {
        cursor.expect_end()?;
        return Ok(Statement::ResetAll);
    }
    let name = if cursor.words(&["TIME", "ZONE"]) {
        "timezone".to_owned()
    } else if cursor.words(&["SESSION", "AUTHORIZATION"]) {
        "session_authorization".to_owned()
    } else {
        setting_name(cursor)?
    };
    cursor.expect_end()?;
    Ok(set_session(&name, None))
}

/// What follows SHOW.
pub(crate) fn show(cursor: &mut Cursor<'_>) -> Parse<Statement> {
    let target = show_target(cursor)?;
    cursor.expect_end()?;
    Ok(Statement::Show(target))
}

fn show_target(cursor: &mut Cursor<'_>) -> Parse<ShowTarget> {
    if cursor.words(&["TRANSACTION", "ISOLATION", "LEVEL"]) {
        return Ok(ShowTarget::Setting("transaction_isolation".to_owned()));
    }
    if cursor.words(&["TIME", "ZONE"]) {
        return Ok(ShowTarget::Setting("timezone".to_owned()));
    }
    if cursor.words(&["SESSION", "AUTHORIZATION"]) {
        return Ok(ShowTarget::Setting("session_authorization".to_owned()));
    }
    if cursor.words(&["MATERIALIZED", "VIEWS"]) {
        return Ok(ShowTarget::Objects(ObjectKind::MaterializedView));
    }
    if cursor.words(&["EXACTLY", "ONCE"]) {
        return Ok(ShowTarget::ExactlyOnce);
    }
    if cursor.words(&["COLUMNS", "FROM"]) || cursor.words(&["COLUMNS", "IN"]) {
        return Ok(ShowTarget::Columns(cursor.object_name()?));
    }
    if cursor.word("CREATE") {
        let Some(kind) = object_kind(cursor) else { return Err(cursor.unexpected()) };
        return Ok(ShowTarget::Create(kind, cursor.object_name()?));
    }
    let single = cursor.peek_nth_token_ref(1).token == Token::EOF;
    let target = match cursor.upper().as_deref().filter(|_| single) {
        Some("TABLES") => ShowTarget::Objects(ObjectKind::Table),
        Some("SOURCES") => ShowTarget::Objects(ObjectKind::Source),
        Some("SINKS") => ShowTarget::Objects(ObjectKind::Sink),
        Some("VIEWS") => ShowTarget::Objects(ObjectKind::View),
        Some("INDEXES") => ShowTarget::Objects(ObjectKind::Index),
        Some("SCHEMAS") => ShowTarget::Schemas,
        Some("DATABASES") => ShowTarget::Databases,
        Some("JOBS") => ShowTarget::Jobs,
        Some("CHECKPOINTS") => ShowTarget::Checkpoints,
        Some("ALL" | "PARAMETERS") => ShowTarget::All,
        _ => return Ok(ShowTarget::Setting(setting_name(cursor)?)),
    };
    cursor.advance_token();
    Ok(target)
}

/// What follows PREPARE.
pub(crate) fn prepare(cursor: &mut Cursor<'_>) -> Parse<Statement> {
    if cursor.peek_word("TRANSACTION") {
        return Err(SqlError::not_supported("PREPARE TRANSACTION").into());
    }
    let name = cursor.identifier()?;
    let mut types = Vec::new();
    if cursor.consume_token(&Token::LParen) {
        loop {
            types.push(super::create_source::data_type(cursor)?);
            if !cursor.consume_token(&Token::Comma) {
                break;
            }
        }
        cursor.expect_token(&Token::RParen)?;
    }
    cursor.expect_word("AS")?;
    let statement = super::parsed(cursor.rest(), cursor.text)?;
    if !matches!(
        statement.statement,
        Statement::Query(_) | Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_)
    ) {
        return Err(cursor.unexpected());
    }
    Ok(Statement::Prepare { name, types, statement: Box::new(statement) })
}

/// What follows EXECUTE.
pub(crate) fn execute(cursor: &mut Cursor<'_>) -> Parse<Statement> {
    let name = cursor.identifier()?;
    let mut arguments = Vec::new();
    if cursor.consume_token(&Token::LParen) {
        arguments = cursor.parse_comma_separated(|p| p.parse_expr())?;
        cursor.expect_token(&Token::RParen)?;
    }
    cursor.expect_end()?;
    Ok(Statement::Execute { name, arguments })
}

/// What follows DEALLOCATE.
pub(crate) fn deallocate(cursor: &mut Cursor<'_>) -> Parse<Statement> {
    let _ = cursor.word("PREPARE");
    let name = if cursor.word("ALL") { None } else { Some(cursor.identifier()?) };
    cursor.expect_end()?;
    Ok(Statement::Deallocate(name))
}

/// What follows DISCARD.
pub(crate) fn discard(cursor: &mut Cursor<'_>) -> Parse<Statement> {
    let kinds = ["ALL", "PLANS", "SEQUENCES", "TEMP", "TEMPORARY"];
    let Some(what) = kinds.into_iter().find(|kind| cursor.word(kind)) else {
        return Err(cursor.unexpected());
    };
    cursor.expect_end()?;
    Ok(Statement::Discard(what))
}

/// What follows EXPLAIN.
pub(crate) fn explain(cursor: &mut Cursor<'_>) -> Parse<Statement> {
    let mut analyze = false;
    if cursor.consume_token(&Token::LParen) {
        loop {
            let option = cursor.identifier()?;
            let on = match cursor.peek_token_ref().token {
                Token::Comma | Token::RParen => true,
                _ => setting_part(cursor).map(|(v, _)| !["false", "off", "0"].contains(&v.as_str()))?,
            };
            match option.as_str() {
                "analyze" => analyze = on,
                "verbose" | "costs" | "buffers" | "timing" | "summary" | "settings" | "wal" | "trace" => {}
                "format" => {}
                _ => {
                    return Err(SqlError::new(
                        SqlState::SYNTAX_ERROR,
                        format!("unrecognized EXPLAIN option \"{option}\""),
                    )
                    .into());
                }
            }
            if !cursor.consume_token(&Token::Comma) {
                break;
            }
        }
        cursor.expect_token(&Token::RParen)?;
    } else {
        analyze = cursor.word("ANALYZE");
        let _ = cursor.word("VERBOSE");
    }
    let inner = super::statement(&mut cursor.sub(cursor.rest()))?;
    match inner {
        Statement::Query(_)
        | Statement::Insert(_)
        | Statement::Update(_)
        | Statement::Delete(_)
        | Statement::CreateMaterializedView(_)
        | Statement::CreateSink(_)
        | Statement::CreateIndex(_) => Ok(Statement::Explain { statement: Box::new(inner), analyze }),
        _ => Err(SqlError::not_supported("EXPLAIN of this statement")
            .hint("Use EXPLAIN with a query, DML, CREATE MATERIALIZED VIEW, CREATE SINK or CREATE INDEX.")
            .into()),
    }
}
