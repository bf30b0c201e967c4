//! A parser over one statement's tokens: sqlparser's for what it knows, and the small steps that
//! Weir's own productions are made of.

use super::depth::too_deep;
use super::text::{Text, span_of};
use crate::error::SqlError;
use sqlparser::ast::{Ident, ObjectName as AstName, ObjectNamePart, Query};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Token, TokenWithSpan};
use std::ops::{Deref, DerefMut};
use weir_catalog::{ObjectName, SqlState};

/// The dialect that all text is read in.
pub(crate) static DIALECT: PostgreSqlDialect = PostgreSqlDialect {};

/// How deep expressions may nest.
const RECURSION_LIMIT: usize = 200;

/// What a production fails of.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Sqlparser's error, not yet in PostgreSQL's words.
    Parser(ParserError),
    /// An error in PostgreSQL's words.
    Sql(SqlError),
}

impl From<ParserError> for Fault {
    fn from(error: ParserError) -> Self {
        Fault::Parser(error)
    }
}

impl From<SqlError> for Fault {
    fn from(error: SqlError) -> Self {
        Fault::Sql(error)
    }
}

/// What productions give.
pub(crate) type Parse<T> = Result<T, Fault>;

/// The tokens of one statement (without white space), and how far they are read.
pub(crate) struct Cursor<'a> {
    parser: Parser<'static>,
    tokens: Vec<TokenWithSpan>,
    /// The statement's text; the tokens' locations are in it.
    pub(crate) text: &'a Text<'a>,
}

impl Deref for Cursor<'_> {
    type Target = Parser<'static>;
    fn deref(&self) -> &Self::Target {
        &self.parser
    }
}

impl DerefMut for Cursor<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.parser
    }
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(tokens: Vec<TokenWithSpan>, text: &'a Text<'a>) -> Self {
        let parser = Parser::new(&DIALECT)
            .with_recursion_limit(RECURSION_LIMIT)
            .with_tokens_with_locations(tokens.clone());
        Self { parser, tokens, text }
    }

    /// The tokens not yet read.
    pub(crate) fn rest(&self) -> &[TokenWithSpan] {
        self.tokens.get(self.parser.index()..).unwrap_or(&[])
    }

    /// A cursor over some tokens of this one's text.
    pub(crate) fn sub(&self, tokens: &[TokenWithSpan]) -> Cursor<'a> {
        Cursor::new(tokens.to_vec(), self.text)
    }

    /// Whether the next token is this unquoted word, whatever its case.
    pub(crate) fn peek_word(&self, word: &str) -> bool {
        self.peek_nth_word(0, word)
    }

    /// Whether the token after `n` others is this unquoted word.
    pub(crate) fn peek_nth_word(&self, n: usize, word: &str) -> bool {
        is_word(&self.parser.peek_nth_token_ref(n).token, word)
    }

    /// Takes the next token if it is this unquoted word.
    pub(crate) fn word(&mut self, word: &str) -> bool {
        let found = self.peek_word(word);
        if found {
            self.parser.advance_token();
        }
        found
    }

    /// Takes these unquoted words if they all come next.
    pub(crate) fn words(&mut self, words: &[&str]) -> bool {
        let found = words.iter().enumerate().all(|(n, word)| self.peek_nth_word(n, word));
        if found {
            words.iter().for_each(|_| self.parser.advance_token());
        }
        found
    }

    /// Takes this unquoted word or fails.
    pub(crate) fn expect_word(&mut self, word: &str) -> Parse<()> {
        if self.word(word) { Ok(()) } else { Err(self.unexpected()) }
    }

    /// The next token, upper case, if it is an unquoted word.
    pub(crate) fn upper(&self) -> Option<String> {
        match &self.parser.peek_token_ref().token {
            Token::Word(w) if w.quote_style.is_none() => Some(w.value.to_ascii_uppercase()),
            _ => None,
        }
    }

    /// Whether all tokens are read.
    pub(crate) fn at_end(&self) -> bool {
        self.parser.peek_token_ref().token == Token::EOF
    }

    /// Fails unless all tokens are read.
    pub(crate) fn expect_end(&self) -> Parse<()> {
        if self.at_end() { Ok(()) } else { Err(self.unexpected()) }
    }

    /// `syntax error at or near` the next token.
    pub(crate) fn unexpected(&self) -> Fault {
        let token = self.parser.peek_token_ref();
        let location = (token.token != Token::EOF).then_some(token.span.start);
        Fault::Sql(self.syntax_error(location))
    }

    /// A folded identifier.
    pub(crate) fn identifier(&mut self) -> Parse<String> {
        match &self.parser.peek_token_ref().token {
            Token::Word(_) => Ok(fold(&self.parser.parse_identifier()?)),
            _ => Err(self.unexpected()),
        }
    }

    /// A possibly qualified name. The schema of an unqualified one is empty.
    pub(crate) fn object_name(&mut self) -> Parse<ObjectName> {
        if !matches!(self.parser.peek_token_ref().token, Token::Word(_)) {
            return Err(self.unexpected());
        }
        let name = self.parser.parse_object_name(false)?;
        Ok(name_of(&name)?)
    }

    /// `(a, b)`, folded.
    pub(crate) fn column_list(&mut self) -> Parse<Vec<String>> {
        self.expect_token(&Token::LParen)?;
        let mut columns = vec![self.identifier()?];
        while self.consume_token(&Token::Comma) {
            columns.push(self.identifier()?);
        }
        self.expect_token(&Token::RParen)?;
        Ok(columns)
    }

    /// IF NOT EXISTS.
    pub(crate) fn if_not_exists(&mut self) -> bool {
        self.words(&["IF", "NOT", "EXISTS"])
    }

    /// IF EXISTS.
    pub(crate) fn if_exists(&mut self) -> bool {
        self.words(&["IF", "EXISTS"])
    }

    /// `tokens` as a query, all of them, and its text.
    pub(crate) fn query_of(&self, tokens: &[TokenWithSpan]) -> Parse<(Box<Query>, String)> {
        let mut cursor = self.sub(tokens);
        let query = cursor.parse_query().map_err(|e| Fault::Sql(cursor.report(Fault::Parser(e))))?;
        let query = super::precedence::mend(query);
        cursor.expect_end()?;
        let text = span_of(tokens).map_or("", |span| self.text.slice(span));
        Ok((query, text.to_owned()))
    }

    /// A fault in PostgreSQL's words.
    pub(crate) fn report(&self, fault: Fault) -> SqlError {
        let message = match fault {
            Fault::Sql(error) => return error,
            Fault::Parser(ParserError::RecursionLimitExceeded) => return too_deep(),
            Fault::Parser(ParserError::TokenizerError(message) | ParserError::ParserError(message)) => {
                message
            }
        };
        match location_in(&message) {
            Some(location) => self.syntax_error(Some(location)),
            None if message.contains("found: EOF") => self.syntax_error(None),
            None => {
                let reason = message.trim_start_matches("Expected: ").trim_end();
                SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error: {}", lower_first(reason)))
            }
        }
    }

    fn syntax_error(&self, at: Option<Location>) -> SqlError {
        let token = at.and_then(|at| self.tokens.iter().find(|t| t.span.start == at));
        match token {
            Some(token) => {
                let near = self.text.slice(token.span);
                SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error at or near \"{near}\""))
                    .at(self.text.char(token.span.start) + 1)
            }
            None => SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at end of input")
                .at(self.text.char_len() + 1),
        }
    }
}

/// Whether a token is this unquoted word, whatever its case.
pub(crate) fn is_word(token: &Token, word: &str) -> bool {
    matches!(token, Token::Word(w) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word))
}

/// An identifier as PostgreSQL folds it.
pub(crate) fn fold(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_ascii_lowercase(),
    }
}

/// A name of one, two or three parts (the database of the last is not looked at).
pub(crate) fn name_of(name: &AstName) -> Result<ObjectName, SqlError> {
    let mut parts = Vec::new();
    for part in &name.0 {
        match part {
            ObjectNamePart::Identifier(ident) => parts.push(fold(ident)),
            ObjectNamePart::Function(_) => {
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("improper name: {name}")));
            }
        }
    }
    match parts.as_slice() {
        [name] => Ok(ObjectName::new("", name.as_str())),
        [schema, name] | [_, schema, name] => Ok(ObjectName::new(schema.as_str(), name.as_str())),
        _ => Err(SqlError::new(
            SqlState::SYNTAX_ERROR,
            format!("improper qualified name (too many dotted names): {name}"),
        )),
    }
}

/// The location that sqlparser wrote at the end of its message.
fn location_in(message: &str) -> Option<Location> {
    let (_, tail) = message.rsplit_once(" at Line: ")?;
    let (line, column) = tail.split_once(", Column: ")?;
    let digits: String = column.chars().take_while(char::is_ascii_digit).collect();
    Some(Location { line: line.parse().ok()?, column: digits.parse().ok()? })
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |c| c.to_lowercase().chain(chars).collect())
}
