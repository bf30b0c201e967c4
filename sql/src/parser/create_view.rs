//! CREATE [MATERIALIZED] VIEW, and CREATE INDEX on a relation.

use super::cursor::{Cursor, Fault, Parse, is_word};
use super::options::with_options;
use super::statement::{CreateIndex, CreateView};
use crate::error::SqlError;
use sqlparser::tokenizer::{Token, TokenWithSpan};
use weir_catalog::SqlState;

const EMIT_ON_WINDOW_CLOSE: [&str; 4] = ["EMIT", "ON", "WINDOW", "CLOSE"];

/// What follows CREATE [OR REPLACE] [MATERIALIZED] VIEW.
pub(crate) fn create_view(
    cursor: &mut Cursor<'_>,
    materialized: bool,
    or_replace: bool,
) -> Parse<CreateView> {
    let if_not_exists = cursor.if_not_exists();
    let name = cursor.object_name()?;
    let columns =
        if cursor.peek_token_ref().token == Token::LParen { cursor.column_list()? } else { Vec::new() };
    let options = with_options(cursor)?;
    if let Some(option) = options.keys().next() {
        return Err(SqlError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("unrecognized parameter \"{option}\""),
        )
        .into());
    }
    cursor.expect_word("AS")?;
    let mut tokens = cursor.rest();
    let emit_on_window_close = ends_with(tokens, &EMIT_ON_WINDOW_CLOSE);
    if emit_on_window_close {
        tokens = &tokens[..tokens.len() - EMIT_ON_WINDOW_CLOSE.len()];
    }
    if ends_with(tokens, &["WITH", "NO", "DATA"]) {
        return Err(SqlError::not_supported("WITH NO DATA").into());
    }
    if ends_with(tokens, &["WITH", "DATA"]) {
        tokens = &tokens[..tokens.len() - 2];
    }
    if emit_on_window_close && !materialized {
        return Err(SqlError::not_supported("EMIT ON WINDOW CLOSE in a plain view")
            .hint("Use CREATE MATERIALIZED VIEW.")
            .into());
    }
    let (query, query_text) = cursor.query_of(tokens)?;
    Ok(CreateView { name, if_not_exists, or_replace, columns, query, query_text, emit_on_window_close })
}

fn ends_with(tokens: &[TokenWithSpan], words: &[&str]) -> bool {
    tokens.len() > words.len()
        && tokens[tokens.len() - words.len()..].iter().zip(words).all(|(t, w)| is_word(&t.token, w))
}

/// What follows CREATE INDEX.
pub(crate) fn create_index(cursor: &mut Cursor<'_>) -> Parse<CreateIndex> {
    let _ = cursor.word("CONCURRENTLY");
    let if_not_exists = cursor.if_not_exists();
    let name = if cursor.peek_word("ON") { None } else { Some(cursor.object_name()?.name) };
    cursor.expect_word("ON")?;
    let relation = cursor.object_name()?;
    if cursor.word("USING") {
        let method = cursor.identifier()?;
        if method != "btree" {
            return Err(SqlError::not_supported(format_args!("access method \"{method}\"")).into());
        }
    }
    cursor.expect_token(&Token::LParen)?;
    let mut columns = vec![index_column(cursor)?];
    while cursor.consume_token(&Token::Comma) {
        columns.push(index_column(cursor)?);
    }
    cursor.expect_token(&Token::RParen)?;
    let mut include = Vec::new();
    loop {
        if cursor.word("INCLUDE") {
            include = cursor.column_list()?;
        } else if cursor.words(&["DISTRIBUTED", "BY"]) {
            // Index rows are spread by their first column, whatever is said here: a hint only.
            cursor.column_list()?;
        } else if cursor.peek_word("WHERE") {
            return Err(SqlError::not_supported("a partial index").into());
        } else {
            break;
        }
    }
    cursor.expect_end()?;
    Ok(CreateIndex { name, if_not_exists, relation, columns, include })
}

fn index_column(cursor: &mut Cursor<'_>) -> Parse<(String, bool)> {
    let next = &cursor.peek_nth_token_ref(1).token;
    if cursor.peek_token_ref().token == Token::LParen || *next == Token::LParen {
        return Err(SqlError::not_supported("an index on an expression")
            .hint("Make a materialized view with the expression as a column, and index that.")
            .into());
    }
    let name = cursor.identifier()?;
    let descending = cursor.word("DESC");
    if !descending {
        let _ = cursor.word("ASC");
    }
    if cursor.word("NULLS") {
        // An index orders NULL as greater than every value, as PostgreSQL does by default.
        let first = cursor.word("FIRST");
        if !first && !cursor.word("LAST") {
            return Err(cursor.unexpected());
        }
        if first != descending {
            return Err(Fault::Sql(SqlError::not_supported(
                "NULLS FIRST/LAST other than the default in an index",
            )));
        }
    }
    Ok((name, descending))
}
