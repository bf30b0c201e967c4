//! `WITH (name = value, …)` and `FORMAT … ENCODE … (…)`.

use super::cursor::{Cursor, Parse};
use crate::error::SqlError;
use sqlparser::tokenizer::Token;
use weir_catalog::SqlState;
use weir_catalog::source::{FormatSpec, Options};

const FORMATS: [&str; 4] = ["PLAIN", "UPSERT", "DEBEZIUM", "NATIVE"];

/// `WITH (…)` if it comes next, else nothing.
pub(crate) fn with_options(cursor: &mut Cursor<'_>) -> Parse<Options> {
    if cursor.peek_word("WITH") && cursor.peek_nth_token_ref(1).token == Token::LParen {
        cursor.advance_token();
        option_list(cursor)
    } else {
        Ok(Options::new())
    }
}

/// `FORMAT f ENCODE e [(…)]` if it comes next.
pub(crate) fn format_spec(cursor: &mut Cursor<'_>) -> Parse<Option<FormatSpec>> {
    if !cursor.word("FORMAT") {
        return Ok(None);
    }
    let format = upper_identifier(cursor)?;
    if !FORMATS.contains(&format.as_str()) {
        return Err(SqlError::not_supported(format_args!("FORMAT {format}"))
            .hint(format!("Use one of {}.", FORMATS.join(", ")))
            .into());
    }
    cursor.expect_word("ENCODE")?;
    let encode = upper_identifier(cursor)?;
    let options =
        if cursor.peek_token_ref().token == Token::LParen { option_list(cursor)? } else { Options::new() };
    Ok(Some(FormatSpec { format, encode, options }))
}

/// `(name = value, …)`: names dotted and lower-cased, values quoted or bare.
fn option_list(cursor: &mut Cursor<'_>) -> Parse<Options> {
    let mut options = Options::new();
    cursor.expect_token(&Token::LParen)?;
    if cursor.consume_token(&Token::RParen) {
        return Ok(options);
    }
    loop {
        let name = option_name(cursor)?;
        cursor.expect_token(&Token::Eq)?;
        let value = option_value(cursor)?;
        if options.insert(name.clone(), value).is_some() {
            return Err(
                SqlError::new(SqlState::SYNTAX_ERROR, format!("option \"{name}\" is given twice")).into()
            );
        }
        if !cursor.consume_token(&Token::Comma) {
            break;
        }
    }
    cursor.expect_token(&Token::RParen)?;
    Ok(options)
}

fn option_name(cursor: &mut Cursor<'_>) -> Parse<String> {
    let mut name = String::new();
    loop {
        match &cursor.peek_token_ref().token {
            Token::Word(w) => name.push_str(&w.value.to_lowercase()),
            Token::SingleQuotedString(s) => name.push_str(&s.to_lowercase()),
            _ => return Err(cursor.unexpected()),
        }
        cursor.advance_token();
        if cursor.consume_token(&Token::Period) {
            name.push('.');
        } else if cursor.consume_token(&Token::Minus) {
            name.push('-');
        } else {
            return Ok(name);
        }
    }
}

fn option_value(cursor: &mut Cursor<'_>) -> Parse<String> {
    let negative = cursor.consume_token(&Token::Minus);
    let value = match &cursor.peek_token_ref().token {
        Token::Number(n, _) if negative => format!("-{n}"),
        _ if negative => return Err(cursor.unexpected()),
        Token::Number(n, _) => n.clone(),
        Token::SingleQuotedString(s) | Token::EscapedStringLiteral(s) => s.clone(),
        Token::DollarQuotedString(s) => s.value.clone(),
        Token::Word(w) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case("SECRET") => {
            return Err(SqlError::not_supported("SECRET as an option's value").into());
        }
        Token::Word(w) => w.value.clone(),
        _ => return Err(cursor.unexpected()),
    };
    cursor.advance_token();
    Ok(value)
}

fn upper_identifier(cursor: &mut Cursor<'_>) -> Parse<String> {
    let word = cursor.upper().ok_or_else(|| cursor.unexpected())?;
    cursor.advance_token();
    Ok(word)
}
