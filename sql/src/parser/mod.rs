//! Text to statements: PostgreSQL's dialect plus the streaming statements.
//!
//! The tokens of the whole string are split at semicolons; each statement is then read by the
//! production that its first words name. What PostgreSQL and sqlparser have in common is left to
//! sqlparser; Weir's own statements are read here. Locations in a statement's AST are relative to
//! its own text, so that a stored query means the same wherever it is read again.

mod alter;
mod command;
mod copy;
mod create_sink;
mod create_source;
mod create_view;
mod cursor;
mod depth;
mod options;
mod precedence;
mod savepoint;
pub mod statement;
mod symmetric;
mod text;
mod transaction;

pub(crate) use cursor::{fold, name_of};
pub(crate) use symmetric::SYMMETRIC;
pub(crate) use text::Text;

use crate::error::SqlError;
use cursor::{Cursor, DIALECT, Fault, Parse, is_word};
use sqlparser::ast;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use statement::{Parsed, Statement};
use text::{rebase, span_of};
use weir_catalog::name::quote_identifier;
use weir_catalog::{ObjectName, SqlState};

/// Parses a string of statements separated by semicolons. Empty statements are left out.
/// Positions of errors count from the start of the whole string.
pub fn parse(sql: &str) -> Result<Vec<Parsed>, SqlError> {
    let text = Text::new(sql);
    let tokens = tokens_of(sql, &text)?;
    tokens
        .split(|t| t.token == Token::SemiColon)
        .filter(|tokens| !tokens.is_empty())
        .map(|tokens| parsed(tokens, &text))
        .collect()
}

/// Parses one query: the text of a view or sink.
pub fn parse_query(sql: &str) -> Result<Box<ast::Query>, SqlError> {
    let text = Text::new(sql);
    let cursor = Cursor::new(tokens_of(sql, &text)?, &text);
    match cursor.query_of(cursor.rest()) {
        Ok((query, _)) => Ok(query),
        Err(fault) => Err(cursor.report(fault)),
    }
}

/// Parses one expression: the text of a column's default.
pub fn parse_expr(sql: &str) -> Result<ast::Expr, SqlError> {
    let text = Text::new(sql);
    let mut cursor = Cursor::new(tokens_of(sql, &text)?, &text);
    let expr = cursor.parse_expr().map(precedence::mend).map_err(Fault::Parser);
    expr.and_then(|expr| cursor.expect_end().map(|()| expr)).map_err(|fault| cursor.report(fault))
}

/// The tokens of `sql` without white space and comments.
fn tokens_of(sql: &str, text: &Text<'_>) -> Result<Vec<TokenWithSpan>, SqlError> {
    let mut tokens = Tokenizer::new(&DIALECT, sql).tokenize_with_location().map_err(|error| {
        let near = &text.text[text.byte(error.location)..];
        let message = match error.message.to_lowercase() {
            m if m.contains("unterminated") => {
                format!("{} at or near \"{near}\"", m.replace("string literal", "quoted string"))
            }
            _ => format!("syntax error at or near \"{near}\""),
        };
        SqlError::new(SqlState::SYNTAX_ERROR, message).at(text.char(error.location) + 1)
    })?;
    tokens.retain(|t| !matches!(t.token, Token::Whitespace(_)));
    depth::check(&tokens)?;
    Ok(symmetric::marked(plain_forms(without_table(tokens))))
}

/// `a ISNULL` as `a IS NULL`, and `trim(LEADING FROM a)` with the space that is trimmed.
fn plain_forms(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let needed = |t: &TokenWithSpan| is_word(&t.token, "ISNULL") || is_word(&t.token, "TRIM");
    if !tokens.iter().any(needed) {
        return tokens;
    }
    let mut out: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len() + 1);
    for (i, token) in tokens.iter().enumerate() {
        let operand = out.last().is_some_and(|t| match &t.token {
            Token::Word(w) => w.quote_style.is_some() || w.keyword == Keyword::NoKeyword,
            Token::Number(..) | Token::SingleQuotedString(_) | Token::RParen | Token::RBracket => true,
            _ => false,
        });
        let word = |text: &str| TokenWithSpan { token: Token::make_word(text, None), span: token.span };
        if operand && is_word(&token.token, "ISNULL") {
            out.extend([word("IS"), word("NULL")]);
            continue;
        }
        out.push(token.clone());
        let side = ["BOTH", "LEADING", "TRAILING"].iter().any(|w| is_word(&token.token, w));
        let of_trim = i >= 2 && tokens[i - 1].token == Token::LParen && is_word(&tokens[i - 2].token, "TRIM");
        if side && of_trim && tokens.get(i + 1).is_some_and(|t| is_word(&t.token, "FROM")) {
            let space = Token::SingleQuotedString(" ".to_owned());
            out.push(TokenWithSpan { token: space, span: token.span });
        }
    }
    out
}

/// `TUMBLE(TABLE t, …)`, as the standard writes a table argument, without the word TABLE.
fn without_table(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut i = 0;
    while i + 3 < tokens.len() {
        let window = is_word(&tokens[i].token, "TUMBLE") || is_word(&tokens[i].token, "HOP");
        let table = tokens[i + 1].token == Token::LParen && is_word(&tokens[i + 2].token, "TABLE");
        if window && table && matches!(tokens[i + 3].token, Token::Word(_)) {
            tokens.remove(i + 2);
        }
        i += 1;
    }
    tokens
}

/// The statement of these tokens of `text`, all of them.
fn parsed(tokens: &[TokenWithSpan], text: &Text<'_>) -> Result<Parsed, SqlError> {
    let Some(span) = span_of(tokens) else {
        return Err(
            SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at end of input").at(text.char_len() + 1)
        );
    };
    let offset = text.char(span.start);
    let own = text.slice(span);
    let own_text = Text::new(own);
    let mut cursor = Cursor::new(rebase(tokens), &own_text);
    match statement(&mut cursor) {
        Ok(statement) => Ok(Parsed { statement, text: own.to_owned(), offset }),
        Err(fault) => {
            let mut error = cursor.report(fault);
            error.position = error.position.map(|p| p + offset);
            Err(error)
        }
    }
}

/// One statement, to the end of the tokens.
fn statement(cursor: &mut Cursor<'_>) -> Parse<Statement> {
    let Some(verb) = cursor.upper() else {
        return match cursor.peek_token_ref().token {
            Token::LParen => query(cursor),
            _ => Err(cursor.unexpected()),
        };
    };
    match verb.as_str() {
        "SELECT" | "VALUES" | "WITH" | "TABLE" => return query(cursor),
        "INSERT" | "UPDATE" | "DELETE" => return dml(cursor),
        _ => {}
    }
    cursor.advance_token();
    match verb.as_str() {
        "CREATE" => create(cursor),
        "DROP" => alter::drop(cursor),
        "ALTER" => alter::alter(cursor),
        "COMMENT" => alter::comment(cursor),
        "COPY" => copy::copy(cursor),
        "TRUNCATE" => alter::truncate(cursor),
        "EXPLAIN" => command::explain(cursor),
        "SHOW" => command::show(cursor),
        "DESCRIBE" | "DESC" => {
            let name = cursor.object_name()?;
            cursor.expect_end()?;
            Ok(Statement::Describe(name))
        }
        "SET" => command::set(cursor),
        "RESET" => command::reset(cursor),
        "DISCARD" => command::discard(cursor),
        "BEGIN" => transaction::begin(cursor),
        "START" if cursor.peek_word("TRANSACTION") => transaction::begin(cursor),
        "COMMIT" | "END" => transaction::end_transaction(cursor, Statement::Commit),
        "ROLLBACK" | "ABORT" => transaction::end_transaction(cursor, Statement::Rollback),
        "SAVEPOINT" if cursor.word("TO") => savepoint::savepoint_to(cursor),
        "SAVEPOINT" => transaction::savepoint(cursor),
        "RELEASE" => transaction::release(cursor),
        "DECLARE" => transaction::declare(cursor),
        "FETCH" => transaction::fetch(cursor, true),
        "MOVE" => transaction::fetch(cursor, false),
        "CLOSE" => transaction::close(cursor),
        "UNLISTEN" => transaction::unlisten(cursor),
        "PREPARE" => command::prepare(cursor),
        "EXECUTE" => command::execute(cursor),
        "DEALLOCATE" => command::deallocate(cursor),
        "FLUSH" => bare(cursor, Statement::Flush),
        "CHECKPOINT" => bare(cursor, Statement::Checkpoint),
        "WAIT" => bare(cursor, Statement::Wait),
        "RECOVER" => bare(cursor, Statement::Recover),
        "RESTORE" => savepoint::restore(cursor),
        _ => {
            cursor.prev_token();
            match REFUSED.contains(&verb.as_str()) {
                true => Err(SqlError::not_supported(verb).into()),
                false => Err(cursor.unexpected()),
            }
        }
    }
}

/// Statements of PostgreSQL or a peer that Weir does not have.
const REFUSED: &[&str] = &[
    "ANALYZE",
    "CALL",
    "CANCEL",
    "CLUSTER",
    "DO",
    "GRANT",
    "IMPORT",
    "KILL",
    "LISTEN",
    "LOAD",
    "LOCK",
    "MERGE",
    "NOTIFY",
    "REASSIGN",
    "REFRESH",
    "REINDEX",
    "REVOKE",
    "SUBSCRIBE",
    "VACUUM",
];

fn bare(cursor: &Cursor<'_>, statement: Statement) -> Parse<Statement> {
    cursor.expect_end()?;
    Ok(statement)
}

fn query(cursor: &mut Cursor<'_>) -> Parse<Statement> {
    let query = precedence::mend(cursor.parse_query()?);
    cursor.expect_end()?;
    match *query.body {
        ast::SetExpr::Insert(_)
        | ast::SetExpr::Update(_)
        | ast::SetExpr::Delete(_)
        | ast::SetExpr::Merge(_) => Err(SqlError::not_supported("WITH in front of INSERT, UPDATE or DELETE")
            .hint("Write the WITH clause inside: INSERT INTO … WITH … SELECT.")
            .into()),
        _ => Ok(Statement::Query(query)),
    }
}

fn dml(cursor: &mut Cursor<'_>) -> Parse<Statement> {
    let statement = precedence::mend(cursor.parse_statement()?);
    cursor.expect_end()?;
    match statement {
        ast::Statement::Insert(insert) => Ok(Statement::Insert(Box::new(insert))),
        ast::Statement::Delete(delete) => Ok(Statement::Delete(Box::new(delete))),
        update @ ast::Statement::Update(_) => Ok(Statement::Update(Box::new(update))),
        other => Err(SqlError::not_supported(other).into()),
    }
}

/// What follows CREATE.
fn create(cursor: &mut Cursor<'_>) -> Parse<Statement> {
    let or_replace = cursor.words(&["OR", "REPLACE"]);
    if ["TEMP", "TEMPORARY", "UNLOGGED", "RECURSIVE"].iter().any(|w| cursor.peek_word(w)) {
        let word = cursor.upper().unwrap_or_default();
        return Err(SqlError::not_supported(format_args!("CREATE {word}")).into());
    }
    if or_replace && !cursor.peek_word("VIEW") {
        let kind = cursor.upper().unwrap_or_default();
        return Err(SqlError::not_supported(format_args!("CREATE OR REPLACE {kind}")).into());
    }
    if cursor.words(&["MATERIALIZED", "VIEW"]) {
        let view = create_view::create_view(cursor, true, false)?;
        return Ok(Statement::CreateMaterializedView(Box::new(view)));
    }
    if cursor.words(&["UNIQUE", "INDEX"]) {
        return Err(SqlError::not_supported("CREATE UNIQUE INDEX")
            .hint("Use PRIMARY KEY in CREATE TABLE.")
            .into());
    }
    let Some(kind) = cursor.upper() else { return Err(cursor.unexpected()) };
    if ["TABLE", "SOURCE", "SINK", "VIEW", "INDEX", "SCHEMA"].contains(&kind.as_str()) {
        cursor.advance_token();
    }
    match kind.as_str() {
        "TABLE" => Ok(Statement::CreateTable(Box::new(create_source::create_relation(cursor, "TABLE")?))),
        "SOURCE" => Ok(Statement::CreateSource(Box::new(create_source::create_relation(cursor, "SOURCE")?))),
        "SINK" => Ok(Statement::CreateSink(Box::new(create_sink::create_sink(cursor)?))),
        "VIEW" => Ok(Statement::CreateView(Box::new(create_view::create_view(cursor, false, or_replace)?))),
        "INDEX" => Ok(Statement::CreateIndex(Box::new(create_view::create_index(cursor)?))),
        "SCHEMA" => {
            let if_not_exists = cursor.if_not_exists();
            let name = cursor.identifier()?;
            cursor.expect_end()?;
            Ok(Statement::CreateSchema { name, if_not_exists })
        }
        _ => Err(alter::refused(cursor, "CREATE")),
    }
}

/// Where in the text of a CREATE the name of what it makes stands, in bytes.
pub(crate) fn name_place(sql: &str) -> Option<std::ops::Range<usize>> {
    let text = Text::new(sql);
    let tokens = tokens_of(sql, &text).ok()?;
    let before = ["CREATE", "OR", "REPLACE", "MATERIALIZED", "CONCURRENTLY", "IF", "NOT", "EXISTS"];
    let kinds = ["TABLE", "SOURCE", "SINK", "VIEW", "INDEX"];
    let is_before = |t: &TokenWithSpan| before.iter().chain(&kinds).any(|word| is_word(&t.token, word));
    let start = tokens.iter().position(|t| !is_before(t))?;
    place_of_name(&tokens[start..], &text)
}

/// Where `FROM relation` stands in the text of a CREATE SINK, in bytes.
pub(crate) fn source_place(sql: &str) -> Option<std::ops::Range<usize>> {
    let text = Text::new(sql);
    let tokens = tokens_of(sql, &text).ok()?;
    let from = tokens.iter().position(|t| is_word(&t.token, "FROM"))?;
    let name = place_of_name(&tokens[from + 1..], &text)?;
    Some(text.byte(tokens[from].span.start)..name.end)
}

/// Of the name that `tokens` start with, qualified or not.
fn place_of_name(tokens: &[TokenWithSpan], text: &Text<'_>) -> Option<std::ops::Range<usize>> {
    let mut last = 0;
    while tokens.get(last + 1).is_some_and(|t| t.token == Token::Period) && tokens.len() > last + 2 {
        last += 2;
    }
    Some(text.byte(tokens.first()?.span.start)..text.byte(tokens[last].span.end))
}

/// A name as it would be typed, qualified only where it was.
pub(crate) fn written(name: &ObjectName) -> String {
    match name.schema.as_str() {
        "" => quote_identifier(&name.name),
        schema => format!("{}.{}", quote_identifier(schema), quote_identifier(&name.name)),
    }
}

#[cfg(test)]
#[path = "tests/parse.rs"]
mod tests;
