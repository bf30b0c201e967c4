//! How deep a statement's tree can become, bounded before it is built.
//!
//! `a OR b OR c …` nests to the left, one level a word, without any parenthesis: sqlparser's
//! recursion limit doesn't see it, and everything that walks the tree later recurses. So chains are
//! counted by their tokens. The server's threads have the stack for what is let through.

use super::cursor::is_word;
use crate::error::SqlError;
use sqlparser::tokenizer::{Token, TokenWithSpan};
use weir_catalog::SqlState;

/// Operators between two commas or parentheses, and set operations on one level.
const CHAIN_MAX: usize = 1_000;

/// Refuses tokens whose tree would be too deep.
pub(crate) fn check(tokens: &[TokenWithSpan]) -> Result<(), SqlError> {
    // Of each open parenthesis: operators since the last comma, and set operations.
    let mut levels = vec![(0, 0)];
    for token in tokens {
        let Some((operators, set_operations)) = levels.last_mut() else { break };
        match &token.token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                levels.push((0, 0));
                continue;
            }
            Token::RParen | Token::RBracket | Token::RBrace => {
                if levels.len() > 1 {
                    levels.pop();
                }
                continue;
            }
            Token::Comma | Token::SemiColon => *operators = 0,
            Token::Word(_) if ["UNION", "EXCEPT", "INTERSECT"].iter().any(|w| is_word(&token.token, w)) => {
                *operators = 0;
                *set_operations += 1;
            }
            Token::Word(_) if ["AND", "OR", "NOT", "IS", "JOIN"].iter().any(|w| is_word(&token.token, w)) => {
                *operators += 1;
            }
            Token::Word(_)
            | Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::Period
            | Token::Placeholder(_)
            | Token::EOF => {}
            _ => *operators += 1,
        }
        if *operators > CHAIN_MAX || *set_operations > CHAIN_MAX {
            return Err(too_deep().hint(format!(
                "At most {CHAIN_MAX} operators can follow each other; use IN (…) or parentheses."
            )));
        }
    }
    Ok(())
}

/// 54001: a statement that nests deeper than it is read.
pub(crate) fn too_deep() -> SqlError {
    SqlError::new(SqlState("54001"), "statement is too deeply nested")
}
