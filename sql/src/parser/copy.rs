//! COPY t [(…)] FROM STDIN, COPY {t [(…)] | (query)} TO STDOUT, with text and csv options.

use super::cursor::{Cursor, Parse};
use super::statement::{Copy, CopyOptions, CopyWhat, Statement};
use super::text::span_of;
use super::written;
use crate::error::SqlError;
use sqlparser::tokenizer::Token;
use weir_catalog::SqlState;
use weir_catalog::name::quote_identifier;

/// What follows COPY.
pub(crate) fn copy(cursor: &mut Cursor<'_>) -> Parse<Statement> {
    let what = if cursor.consume_token(&Token::LParen) {
        let query = parenthesized(cursor)?;
        cursor.expect_word("TO")?;
        CopyWhat::Out { query }
    } else {
        let relation = cursor.object_name()?;
        let columns = match cursor.peek_token_ref().token {
            Token::LParen => cursor.column_list()?,
            _ => Vec::new(),
        };
        if cursor.word("FROM") {
            CopyWhat::In { relation, columns }
        } else {
            cursor.expect_word("TO")?;
            let list: Vec<String> = columns.iter().map(|column| quote_identifier(column)).collect();
            let list = if list.is_empty() { "*".to_owned() } else { list.join(", ") };
            CopyWhat::Out { query: format!("SELECT {list} FROM {}", written(&relation)) }
        }
    };
    let stream = if matches!(what, CopyWhat::In { .. }) { "STDIN" } else { "STDOUT" };
    if !cursor.word(stream) {
        return Err(SqlError::not_supported("COPY from or to a file of the server")
            .hint(format!("Use {stream}: psql's \\copy does it for you."))
            .into());
    }
    let options = options(cursor)?;
    cursor.expect_end()?;
    Ok(Statement::Copy(Box::new(Copy { what, options })))
}

/// The text up to the closing parenthesis, if it is a query.
fn parenthesized(cursor: &mut Cursor<'_>) -> Parse<String> {
    let rest = cursor.rest();
    let mut depth = 0usize;
    let end = rest.iter().position(|token| {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen if depth == 0 => return true,
            Token::RParen => depth -= 1,
            _ => {}
        }
        false
    });
    let Some(end) = end else { return Err(cursor.unexpected()) };
    let inner = rest[..end].to_vec();
    cursor.query_of(&inner)?;
    (0..=end).for_each(|_| cursor.advance_token());
    Ok(span_of(&inner).map_or_else(String::new, |span| cursor.text.slice(span).to_owned()))
}

/// `[WITH] (FORMAT csv, HEADER, …)`, or the old words `WITH CSV HEADER DELIMITER ','`.
fn options(cursor: &mut Cursor<'_>) -> Parse<CopyOptions> {
    let mut options = CopyOptions::default();
    let (mut delimiter, mut null) = (None, None);
    let _ = cursor.word("WITH");
    let listed = cursor.consume_token(&Token::LParen);
    while !(cursor.at_end() || listed && cursor.consume_token(&Token::RParen)) {
        let Some(name) = cursor.upper() else { return Err(cursor.unexpected()) };
        cursor.advance_token();
        let _ = cursor.word("AS");
        match name.as_str() {
            "FORMAT" => {
                let format = cursor.identifier()?;
                (options.csv, options.binary) = match format.as_str() {
                    "text" => (false, false),
                    "csv" => (true, false),
                    "binary" => (false, true),
                    other => return Err(SqlError::not_supported(format_args!("COPY format {other}")).into()),
                };
            }
            "CSV" if !listed => options.csv = true,
            "BINARY" if !listed => options.binary = true,
            "HEADER" => options.header = flag(cursor),
            "DELIMITER" => delimiter = Some(character(cursor, "delimiter")?),
            "QUOTE" => options.quote = character(cursor, "quote")?,
            "ESCAPE" => options.escape = Some(character(cursor, "escape")?),
            "NULL" => null = Some(string(cursor)?),
            "ENCODING" => utf8(&string(cursor)?)?,
            "FREEZE" => {
                let _ = flag(cursor);
            }
            other => return Err(SqlError::not_supported(format_args!("COPY option {other}")).into()),
        }
        if listed && !cursor.consume_token(&Token::Comma) {
            cursor.expect_token(&Token::RParen)?;
            break;
        }
    }
    if options.binary && (options.header || delimiter.is_some() || null.is_some()) {
        let message = "cannot specify HEADER, DELIMITER or NULL in BINARY mode";
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message).into());
    }
    options.delimiter = delimiter.unwrap_or(if options.csv { b',' } else { b'\t' });
    options.null = null.unwrap_or_else(|| if options.csv { "" } else { "\\N" }.to_owned());
    Ok(options)
}

/// What may follow an option that is on or off; nothing: on.
fn flag(cursor: &mut Cursor<'_>) -> bool {
    let off = ["FALSE", "OFF"].iter().any(|word| cursor.word(word));
    let _ = off || ["TRUE", "ON", "MATCH"].iter().any(|word| cursor.word(word));
    !off
}

fn string(cursor: &mut Cursor<'_>) -> Parse<String> {
    let text = match &cursor.peek_token_ref().token {
        Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => text.clone(),
        _ => return Err(cursor.unexpected()),
    };
    cursor.advance_token();
    Ok(text)
}

fn character(cursor: &mut Cursor<'_>, what: &str) -> Parse<u8> {
    let text = string(cursor)?;
    match text.as_bytes() {
        [byte] if byte.is_ascii() && !matches!(byte, b'\n' | b'\r') => Ok(*byte),
        _ => {
            let message = format!("COPY {what} must be a single one-byte character");
            Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into())
        }
    }
}

fn utf8(encoding: &str) -> Parse<()> {
    match encoding.to_ascii_lowercase().replace(['-', '_'], "").as_str() {
        "utf8" | "unicode" => Ok(()),
        _ => Err(SqlError::not_supported(format_args!("COPY encoding {encoding}")).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::parse;

    fn read(sql: &str) -> Copy {
        match parse(sql).unwrap_or_else(|e| panic!("{sql}: {e}")).remove(0).statement {
            Statement::Copy(copy) => *copy,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn copy_reads_its_options_in_both_spellings() {
        let copy = read("COPY t (a, \"B\") FROM STDIN");
        assert!(matches!(copy.what, CopyWhat::In { ref columns, .. } if columns == &["a", "B"]));
        assert_eq!(
            (copy.options.csv, copy.options.delimiter, copy.options.null.as_str()),
            (false, b'\t', "\\N")
        );
        for sql in [
            "COPY t FROM STDIN WITH (FORMAT csv, HEADER, DELIMITER ';', NULL 'x')",
            "COPY t FROM STDIN WITH (HEADER true, DELIMITER ';', NULL 'x', FORMAT csv)",
            "COPY t FROM STDIN CSV HEADER DELIMITER AS ';' NULL AS 'x'",
        ] {
            let options = read(sql).options;
            assert!(options.csv && options.header, "{sql}");
            assert_eq!((options.delimiter, options.null.as_str()), (b';', "x"), "{sql}");
        }
    }

    #[test]
    fn copy_out_is_a_query() {
        let query = |sql| match read(sql).what {
            CopyWhat::Out { query } => query,
            other => panic!("{other:?}"),
        };
        assert_eq!(query("COPY s.t (a) TO STDOUT"), "SELECT a FROM s.t");
        assert_eq!(query("COPY (SELECT (1) FROM t) TO STDOUT (FORMAT csv)"), "SELECT (1) FROM t");
        for bad in [
            "COPY t FROM '/etc/passwd'",
            "COPY (SELECT 1",
            "COPY t FROM STDIN (FORMAT binary, HEADER)",
            "COPY t FROM STDIN (FORMAT parquet)",
            "COPY t TO STDOUT x",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
