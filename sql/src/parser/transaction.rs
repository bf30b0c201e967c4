//! Transactions and what lives in them: BEGIN, COMMIT, savepoints, cursors.

use super::cursor::{Cursor, Parse};
use super::statement::{Declare, Fetch, Statement};
use crate::error::SqlError;
use sqlparser::tokenizer::Token;
use weir_catalog::SqlState;

/// The modes after SET TRANSACTION: settings of the transaction, or the session's defaults.
pub(crate) fn set_transaction(cursor: &mut Cursor<'_>, prefix: &str) -> Parse<Statement> {
    if cursor.word("SNAPSHOT") {
        return Err(SqlError::not_supported("SET TRANSACTION SNAPSHOT").into());
    }
    let modes = modes(cursor, prefix)?;
    cursor.expect_end()?;
    if modes.is_empty() {
        return Err(cursor.unexpected());
    }
    Ok(Statement::SetTransaction(modes))
}

/// Isolation level, access mode, [NOT] DEFERRABLE, with commas or without, as settings.
fn modes(cursor: &mut Cursor<'_>, prefix: &str) -> Parse<Vec<(String, String)>> {
    let mut modes = Vec::new();
    let mut add = |name: &str, value: &str| modes.push((format!("{prefix}{name}"), value.to_owned()));
    loop {
        if cursor.words(&["ISOLATION", "LEVEL"]) {
            add("transaction_isolation", isolation_level(cursor)?);
        } else if cursor.words(&["READ", "ONLY"]) {
            add("transaction_read_only", "on");
        } else if cursor.words(&["READ", "WRITE"]) {
            add("transaction_read_only", "off");
        } else if !cursor.words(&["NOT", "DEFERRABLE"]) && !cursor.word("DEFERRABLE") {
            return Ok(modes);
        }
        let _ = cursor.consume_token(&Token::Comma);
    }
}

fn isolation_level(cursor: &mut Cursor<'_>) -> Parse<&'static str> {
    if cursor.words(&["READ", "UNCOMMITTED"]) {
        Ok("read uncommitted")
    } else if cursor.words(&["READ", "COMMITTED"]) {
        Ok("read committed")
    } else if cursor.words(&["REPEATABLE", "READ"]) {
        Ok("repeatable read")
    } else if cursor.word("SERIALIZABLE") {
        Ok("serializable")
    } else {
        Err(cursor.unexpected())
    }
}

/// BEGIN and START TRANSACTION, after their words.
pub(crate) fn begin(cursor: &mut Cursor<'_>) -> Parse<Statement> {
    let _ = cursor.word("TRANSACTION") || cursor.word("WORK");
    let modes = modes(cursor, "")?;
    cursor.expect_end()?;
    Ok(Statement::Begin(modes))
}

/// COMMIT, ROLLBACK and their synonyms, after the word.
pub(crate) fn end_transaction(cursor: &mut Cursor<'_>, statement: Statement) -> Parse<Statement> {
    if cursor.word("PREPARED") {
        let transaction = cursor.parse_literal_string()?;
        cursor.expect_end()?;
        let commit = matches!(statement, Statement::Commit);
        return Ok(Statement::FinishPrepared { transaction, commit });
    }
    let _ = cursor.word("TRANSACTION") || cursor.word("WORK");
    if matches!(statement, Statement::Rollback) && cursor.word("TO") {
        let _ = cursor.word("SAVEPOINT");
        return Ok(Statement::RollbackTo(last_name(cursor)?));
    }
    if cursor.peek_word("AND") && !cursor.words(&["AND", "NO", "CHAIN"]) {
        return Err(SqlError::not_supported("AND CHAIN").into());
    }
    cursor.expect_end()?;
    Ok(statement)
}

/// What follows SAVEPOINT.
pub(crate) fn savepoint(cursor: &mut Cursor<'_>) -> Parse<Statement> {
    Ok(Statement::Savepoint(last_name(cursor)?))
}

/// What follows RELEASE.
pub(crate) fn release(cursor: &mut Cursor<'_>) -> Parse<Statement> {
    let _ = cursor.word("SAVEPOINT");
    Ok(Statement::Release(last_name(cursor)?))
}

/// What follows DECLARE.
pub(crate) fn declare(cursor: &mut Cursor<'_>) -> Parse<Statement> {
    let name = cursor.identifier()?;
    let mut scroll = false;
    loop {
        if cursor.word("BINARY") {
            return Err(SqlError::not_supported("a BINARY cursor")
                .hint("Ask for binary results by the extended protocol.")
                .into());
        } else if cursor.words(&["NO", "SCROLL"]) {
            scroll = false;
        } else if cursor.word("SCROLL") {
            scroll = true;
        } else if !cursor.word("ASENSITIVE") && !cursor.word("INSENSITIVE") {
            break;
        }
    }
    cursor.expect_word("CURSOR")?;
    let hold = cursor.words(&["WITH", "HOLD"]);
    let _ = hold || cursor.words(&["WITHOUT", "HOLD"]);
    cursor.expect_word("FOR")?;
    let query = super::parsed(cursor.rest(), cursor.text)?;
    if !matches!(query.statement, Statement::Query(_)) {
        return Err(cursor.unexpected());
    }
    Ok(Statement::Declare(Box::new(Declare { name, scroll, hold, query })))
}

/// What follows FETCH or MOVE.
pub(crate) fn fetch(cursor: &mut Cursor<'_>, rows: bool) -> Parse<Statement> {
    let (place, explicit) = place(cursor)?;
    if explicit {
        // FROM may be left out where a direction is given, too.
        let _ = cursor.word("FROM") || cursor.word("IN");
    }
    Ok(Statement::Fetch { name: last_name(cursor)?, place, rows })
}

/// Which rows, and whether anything said so.
fn place(cursor: &mut Cursor<'_>) -> Parse<(Fetch, bool)> {
    let Some(word) = cursor.upper() else {
        return match cursor.peek_token_ref().token {
            Token::Number(..) | Token::Minus => Ok((relative_count(integer(cursor)?), true)),
            _ => Ok((Fetch::Forward(Some(1)), false)),
        };
    };
    // A cursor may be called like a direction: then nothing follows its name.
    let alone = cursor.peek_nth_token_ref(1).token == Token::EOF;
    let place = match word.as_str() {
        _ if alone => return Ok((Fetch::Forward(Some(1)), false)),
        "FROM" | "IN" => return Ok((Fetch::Forward(Some(1)), true)),
        "NEXT" => Fetch::Forward(Some(1)),
        "PRIOR" => Fetch::Backward(Some(1)),
        "FIRST" => Fetch::Absolute(1),
        "LAST" => Fetch::Absolute(-1),
        "ALL" => Fetch::Forward(None),
        "ABSOLUTE" | "RELATIVE" | "FORWARD" | "BACKWARD" => {
            cursor.advance_token();
            return Ok((counted(cursor, &word)?, true));
        }
        _ => return Ok((Fetch::Forward(Some(1)), false)),
    };
    cursor.advance_token();
    Ok((place, true))
}

/// What follows a direction that takes a count.
fn counted(cursor: &mut Cursor<'_>, direction: &str) -> Parse<Fetch> {
    let number = matches!(cursor.peek_token_ref().token, Token::Number(..) | Token::Minus);
    match direction {
        "ABSOLUTE" => Ok(Fetch::Absolute(integer(cursor)?)),
        "RELATIVE" => Ok(Fetch::Relative(integer(cursor)?)),
        "FORWARD" if cursor.word("ALL") => Ok(Fetch::Forward(None)),
        "FORWARD" if number => Ok(relative_count(integer(cursor)?)),
        "FORWARD" => Ok(Fetch::Forward(Some(1))),
        _ if cursor.word("ALL") => Ok(Fetch::Backward(None)),
        _ if number => Ok(relative_count(integer(cursor)?.saturating_neg())),
        _ => Ok(Fetch::Backward(Some(1))),
    }
}

/// So many rows onward, or back; 0 is the row that the cursor is at.
fn relative_count(count: i64) -> Fetch {
    match count {
        0 => Fetch::Relative(0),
        n if n > 0 => Fetch::Forward(Some(n.unsigned_abs())),
        n => Fetch::Backward(Some(n.unsigned_abs())),
    }
}

fn integer(cursor: &mut Cursor<'_>) -> Parse<i64> {
    let negative = cursor.consume_token(&Token::Minus);
    let Token::Number(digits, _) = &cursor.peek_token_ref().token else { return Err(cursor.unexpected()) };
    let value = format!("{}{digits}", if negative { "-" } else { "" });
    let Ok(value) = value.parse() else {
        let state = SqlState::NUMERIC_VALUE_OUT_OF_RANGE;
        return Err(SqlError::new(state, format!("value \"{value}\" is out of range for type bigint")).into());
    };
    cursor.advance_token();
    Ok(value)
}

/// What follows CLOSE.
pub(crate) fn close(cursor: &mut Cursor<'_>) -> Parse<Statement> {
    if cursor.peek_word("ALL") && cursor.peek_nth_token_ref(1).token == Token::EOF {
        cursor.advance_token();
        return Ok(Statement::Close(None));
    }
    Ok(Statement::Close(Some(last_name(cursor)?)))
}

/// What follows UNLISTEN. Nobody listens, so nothing is to be done.
pub(crate) fn unlisten(cursor: &mut Cursor<'_>) -> Parse<Statement> {
    if !cursor.consume_token(&Token::Mul) {
        cursor.identifier()?;
    }
    cursor.expect_end()?;
    Ok(Statement::Unlisten)
}

fn last_name(cursor: &mut Cursor<'_>) -> Parse<String> {
    let name = cursor.identifier()?;
    cursor.expect_end()?;
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::parse;

    fn one(sql: &str) -> Statement {
        parse(sql).unwrap_or_else(|e| panic!("{sql}: {e}")).remove(0).statement
    }

    #[test]
    fn begin_tells_its_modes() {
        let Statement::Begin(modes) = one("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY, NOT DEFERRABLE")
        else {
            panic!("BEGIN");
        };
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            modes,
            [pair("transaction_isolation", "repeatable read"), pair("transaction_read_only", "on")]
        );
        let Statement::SetTransaction(modes) =
            one("SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE, ISOLATION LEVEL SERIALIZABLE")
        else {
            panic!("SET");
        };
        assert_eq!(modes.len(), 2);
        assert_eq!(modes[0], pair("default_transaction_read_only", "off"));
    }

    #[test]
    fn savepoints_have_names() {
        for sql in ["SAVEPOINT a", "savepoint \"a\""] {
            assert!(matches!(one(sql), Statement::Savepoint(name) if name == "a"), "{sql}");
        }
        for sql in ["ROLLBACK TO a", "ROLLBACK WORK TO SAVEPOINT A", "ROLLBACK TRANSACTION TO a"] {
            assert!(matches!(one(sql), Statement::RollbackTo(name) if name == "a"), "{sql}");
        }
        for sql in ["RELEASE a", "RELEASE SAVEPOINT a"] {
            assert!(matches!(one(sql), Statement::Release(name) if name == "a"), "{sql}");
        }
        assert!(parse("SAVEPOINT").is_err() && parse("COMMIT TO a").is_err());
    }

    #[test]
    fn fetch_says_which_rows() {
        for (sql, expected) in [
            ("FETCH c", Fetch::Forward(Some(1))),
            ("FETCH FROM c", Fetch::Forward(Some(1))),
            ("FETCH NEXT IN c", Fetch::Forward(Some(1))),
            ("FETCH NEXT c", Fetch::Forward(Some(1))),
            ("FETCH 10 FROM c", Fetch::Forward(Some(10))),
            ("FETCH -2 c", Fetch::Backward(Some(2))),
            ("FETCH FORWARD 100 FROM c", Fetch::Forward(Some(100))),
            ("FETCH FORWARD c", Fetch::Forward(Some(1))),
            ("FETCH FORWARD ALL FROM c", Fetch::Forward(None)),
            ("FETCH ALL c", Fetch::Forward(None)),
            ("FETCH BACKWARD ALL IN c", Fetch::Backward(None)),
            ("FETCH BACKWARD 3 c", Fetch::Backward(Some(3))),
            ("FETCH PRIOR FROM c", Fetch::Backward(Some(1))),
            ("FETCH FIRST FROM c", Fetch::Absolute(1)),
            ("FETCH LAST FROM c", Fetch::Absolute(-1)),
            ("FETCH ABSOLUTE -5 FROM c", Fetch::Absolute(-5)),
            ("FETCH RELATIVE 0 FROM c", Fetch::Relative(0)),
            ("FETCH 0 FROM c", Fetch::Relative(0)),
        ] {
            let Statement::Fetch { name, place, rows: true } = one(sql) else { panic!("{sql}") };
            assert_eq!((name.as_str(), place), ("c", expected), "{sql}");
        }
        assert!(
            matches!(one("MOVE ALL IN next"), Statement::Fetch { rows: false, name, .. } if name == "next")
        );
        assert!(matches!(one("FETCH next"), Statement::Fetch { name, .. } if name == "next"));
        assert!(matches!(one("CLOSE ALL"), Statement::Close(None)));
        assert!(matches!(one("CLOSE c"), Statement::Close(Some(name)) if name == "c"));
        assert!(parse("FETCH 10 FROM").is_err() && parse("FETCH ABSOLUTE c").is_err());
    }

    #[test]
    fn a_cursor_is_declared_for_a_query() {
        let Statement::Declare(declare) = one("DECLARE \"C\" NO SCROLL CURSOR WITH HOLD FOR SELECT 1 + nope")
        else {
            panic!("DECLARE");
        };
        assert_eq!((declare.name.as_str(), declare.scroll, declare.hold), ("C", false, true));
        assert_eq!(declare.query.text, "SELECT 1 + nope");
        assert!(parse("DECLARE c CURSOR FOR DELETE FROM t").is_err());
    }
}
