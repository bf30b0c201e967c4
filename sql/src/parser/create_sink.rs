//! CREATE SINK … {FROM relation | AS query} WITH (…) [FORMAT … ENCODE …].

use super::cursor::{Cursor, Parse, is_word};
use super::options::{format_spec, with_options};
use super::statement::CreateSink;
use crate::error::SqlError;
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// What follows CREATE SINK.
pub(crate) fn create_sink(cursor: &mut Cursor<'_>) -> Parse<CreateSink> {
    let if_not_exists = cursor.if_not_exists();
    let name = cursor.object_name()?;
    if cursor.peek_word("INTO") {
        return Err(SqlError::not_supported("CREATE SINK … INTO a table").into());
    }
    let (query, query_text, mut rest) = if cursor.word("FROM") {
        let relation = cursor.object_name()?;
        let text = format!("SELECT * FROM {}", super::written(&relation));
        let query = super::parse_query(&text)?;
        (query, text, cursor.sub(cursor.rest()))
    } else if cursor.word("AS") {
        let tokens = cursor.rest();
        let end = options_start(tokens);
        let (query, text) = cursor.query_of(&tokens[..end])?;
        (query, text, cursor.sub(&tokens[end..]))
    } else {
        return Err(cursor.unexpected());
    };
    let options = with_options(&mut rest)?;
    let format = format_spec(&mut rest)?;
    rest.expect_end()?;
    Ok(CreateSink { name, if_not_exists, query, query_text, options, format })
}

/// Where the sink's own `WITH (` begins: the last one outside parentheses. A query's WITH is never
/// followed by a parenthesis.
fn options_start(tokens: &[TokenWithSpan]) -> usize {
    let mut depth = 0;
    let mut found = tokens.len();
    for (i, token) in tokens.iter().enumerate() {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ if depth == 0
                && is_word(&token.token, "WITH")
                && tokens.get(i + 1).is_some_and(|t| t.token == Token::LParen) =>
            {
                found = i;
            }
            _ => {}
        }
    }
    found
}
