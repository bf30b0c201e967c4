//! `x BETWEEN SYMMETRIC a AND b`, which sqlparser does not read, as `x BETWEEN mark(a) AND b`: the binder
//! knows the mark. ASYMMETRIC says what is so anyway.

use super::cursor::is_word;
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// The function around the lower bound.
pub(crate) const SYMMETRIC: &str = "weir_symmetric";

/// Tokens with marks in place of the words.
pub(super) fn marked(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_either = |t: &Token| is_word(t, "SYMMETRIC") || is_word(t, "ASYMMETRIC");
    if !tokens.windows(2).any(|pair| is_word(&pair[0].token, "BETWEEN") && is_either(&pair[1].token)) {
        return tokens;
    }
    let mut out: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len() + 4);
    let mut depth = 0;
    // How deep the lower bounds that are not at their end yet stand.
    let mut open: Vec<i32> = Vec::new();
    for token in tokens {
        let span = token.span;
        let at = |token: Token| TokenWithSpan { token, span };
        let after_between = out.last().is_some_and(|last| is_word(&last.token, "BETWEEN"));
        if after_between && is_word(&token.token, "ASYMMETRIC") {
            continue;
        }
        if after_between && is_word(&token.token, "SYMMETRIC") {
            out.extend([at(Token::make_word(SYMMETRIC, None)), at(Token::LParen)]);
            open.push(depth);
            continue;
        }
        if is_word(&token.token, "AND") && open.last() == Some(&depth) {
            open.pop();
            out.push(at(Token::RParen));
        }
        depth += change_of_depth(&token.token);
        out.push(token);
    }
    out
}

fn change_of_depth(token: &Token) -> i32 {
    match token {
        Token::LParen | Token::LBracket => 1,
        Token::RParen | Token::RBracket => -1,
        word if is_word(word, "CASE") => 1,
        word if is_word(word, "END") => -1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use crate::parser::parse_expr;

    #[test]
    fn the_lower_bound_is_marked() {
        let read = |sql: &str| parse_expr(sql).expect("an expression").to_string();
        assert_eq!(read("x BETWEEN SYMMETRIC a + 1 AND b"), "x BETWEEN weir_symmetric(a + 1) AND b");
        assert_eq!(read("x BETWEEN ASYMMETRIC a AND b"), "x BETWEEN a AND b");
        assert_eq!(
            read("x NOT BETWEEN SYMMETRIC CASE WHEN a AND b THEN 1 END AND f(2) AND y"),
            "x NOT BETWEEN weir_symmetric(CASE WHEN a AND b THEN 1 END) AND f(2) AND y"
        );
    }
}
