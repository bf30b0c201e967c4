//! Values of JSON text: found, stepped over, and pushed into a column.

use super::column::{ColumnBuilder, TextKind};
use super::decode::unexpected;
use memchr::memchr2;

/// How deep arrays and objects may be nested.
const DEPTH_MAX: usize = 128;

/// A position in JSON text.
pub struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

/// A value as it stands in the text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// null
    Null,
    /// true, false
    Boolean(&'a [u8]),
    /// Digits, sign, point and exponent.
    Number(&'a [u8]),
    /// What is between the quotes, and whether there are escapes in it.
    String(&'a [u8], bool),
    /// `[…]`
    Array(&'a [u8]),
    /// `{…}`
    Object(&'a [u8]),
}

impl<'a> Scanner<'a> {
    /// At the start of `text`.
    pub fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    #[inline]
    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.text.get(self.at) {
            self.at += 1;
        }
    }

    /// What is left, without space before it.
    pub fn rest(&mut self) -> &'a [u8] {
        self.skip_space();
        &self.text[self.at..]
    }

    /// Steps over `byte` if it is next.
    #[inline]
    pub fn accept(&mut self, byte: u8) -> bool {
        self.skip_space();
        let found = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(found);
        found
    }

    /// Steps over `byte`, which must be next; `what` it stands for.
    #[inline]
    pub fn expect(&mut self, byte: u8, what: &str) -> Result<(), String> {
        if self.accept(byte) { Ok(()) } else { Err(unexpected(&self.text[self.at..], what)) }
    }

    /// A key; `scratch` holds it if it has escapes.
    #[inline]
    pub fn key<'s>(&mut self, scratch: &'s mut Vec<u8>) -> Result<&'s [u8], String>
    where
        'a: 's,
    {
        self.expect(b'"', "a key")?;
        match self.string()? {
            (key, false) => Ok(key),
            (key, true) => {
                unescape(key, scratch)?;
                Ok(scratch)
            }
        }
    }

    /// A string whose opening quote was stepped over: what is in it, and whether escapes are.
    #[inline]
    fn string(&mut self) -> Result<(&'a [u8], bool), String> {
        let start = self.at;
        let mut escaped = false;
        loop {
            match memchr2(b'"', b'\\', &self.text[self.at..]) {
                Some(length) if self.text[self.at + length] == b'"' => {
                    let end = self.at + length;
                    self.at = end + 1;
                    return Ok((&self.text[start..end], escaped));
                }
                Some(length) if self.at + length + 1 < self.text.len() => {
                    escaped = true;
                    self.at += length + 2;
                }
                _ => return Err("a string is not closed".to_owned()),
            }
        }
    }

    /// Steps over a value.
    #[inline]
    pub fn skip(&mut self) -> Result<(), String> {
        self.value().map(drop)
    }

    /// The value that is next.
    #[inline]
    pub fn value(&mut self) -> Result<Value<'a>, String> {
        self.skip_space();
        let start = self.at;
        match self.text.get(self.at) {
            Some(b'"') => {
                self.at += 1;
                self.string().map(|(text, escaped)| Value::String(text, escaped))
            }
            Some(b'-' | b'0'..=b'9') => {
                self.at += 1;
                while let Some(b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-') = self.text.get(self.at) {
                    self.at += 1;
                }
                Ok(Value::Number(&self.text[start..self.at]))
            }
            Some(b't') => self.word(b"true").map(Value::Boolean),
            Some(b'f') => self.word(b"false").map(Value::Boolean),
            Some(b'n') => self.word(b"null").map(|_| Value::Null),
            Some(open @ (b'[' | b'{')) => {
                self.nested(0)?;
                let text = &self.text[start..self.at];
                Ok(if *open == b'[' { Value::Array(text) } else { Value::Object(text) })
            }
            _ => Err(unexpected(&self.text[start..], "a value")),
        }
    }

    fn word(&mut self, word: &[u8]) -> Result<&'a [u8], String> {
        let rest = &self.text[self.at..];
        if !rest.starts_with(word) || rest.get(word.len()).is_some_and(u8::is_ascii_alphanumeric) {
            return Err(unexpected(rest, "a value"));
        }
        self.at += word.len();
        Ok(&rest[..word.len()])
    }

    /// Steps over an array or object.
    fn nested(&mut self, depth: usize) -> Result<(), String> {
        if depth == DEPTH_MAX {
            return Err("it is nested too deep".to_owned());
        }
        let array = self.accept(b'[');
        let close = if array { b']' } else { b'}' };
        if !array {
            self.expect(b'{', "an object")?;
        }
        if self.accept(close) {
            return Ok(());
        }
        loop {
            if !array {
                self.expect(b'"', "a key")?;
                self.string()?;
                self.expect(b':', "a colon")?;
            }
            self.skip_space();
            match self.text.get(self.at) {
                Some(b'[' | b'{') => self.nested(depth + 1)?,
                _ => self.skip()?,
            }
            if !self.accept(b',') {
                return self.expect(close, "a comma or the end");
            }
        }
    }
}

/// Pushes the next value into `column`.
#[inline]
pub fn push_value(
    scanner: &mut Scanner<'_>,
    column: &mut ColumnBuilder,
    scratch: &mut Vec<u8>,
) -> Result<(), String> {
    scanner.skip_space();
    let start = scanner.at;
    let value = scanner.value()?;
    let raw = &scanner.text[start..scanner.at];
    match value {
        // As in PostgreSQL's json_to_record.
        Value::Null => {
            column.push_null();
            Ok(())
        }
        _ if matches!(column.text_kind(), Some(TextKind::Json | TextKind::Jsonb)) => {
            column.push_text(raw, false)
        }
        Value::String(text, false) => column.push_text(text, false),
        Value::String(text, true) => {
            unescape(text, scratch)?;
            column.push_text(scratch, false)
        }
        Value::Number(text) => column.push_text(text, true),
        Value::Boolean(text) => column.push_text(text, false),
        Value::Array(text) if column.list_items().is_some() => push_list(text, column, scratch),
        Value::Object(text) if column.struct_fields().is_some() => push_struct(text, column, scratch),
        Value::Array(_) | Value::Object(_) => column.push_text(raw, false),
    }
}

fn push_list(text: &[u8], column: &mut ColumnBuilder, scratch: &mut Vec<u8>) -> Result<(), String> {
    let Some(items) = column.list_items() else { return Err(unexpected(text, "a list")) };
    let mut scanner = Scanner::new(text);
    scanner.expect(b'[', "a list")?;
    if !scanner.accept(b']') {
        loop {
            push_value(&mut scanner, items, scratch)?;
            if !scanner.accept(b',') {
                break;
            }
        }
    }
    column.end_list();
    Ok(())
}

fn push_struct(text: &[u8], column: &mut ColumnBuilder, scratch: &mut Vec<u8>) -> Result<(), String> {
    let row = column.len();
    let Some((fields, children)) = column.struct_fields() else { return Err(unexpected(text, "a struct")) };
    let fields = fields.clone();
    let mut scanner = Scanner::new(text);
    scanner.expect(b'{', "a struct")?;
    if !scanner.accept(b'}') {
        loop {
            let key = scanner.key(scratch)?;
            let field = fields.iter().position(|f| f.name().as_bytes() == key);
            let field =
                field.or_else(|| fields.iter().position(|f| f.name().as_bytes().eq_ignore_ascii_case(key)));
            scanner.expect(b':', "a colon")?;
            match field {
                None => scanner.skip()?,
                Some(index) => {
                    children[index].truncate(row);
                    push_value(&mut scanner, &mut children[index], scratch)?;
                }
            }
            if !scanner.accept(b',') {
                break;
            }
        }
    }
    column.end_struct();
    Ok(())
}

/// What the escapes in `text` stand for, into `out`.
pub fn unescape(text: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let bad = || unexpected(text, "a string");
    out.clear();
    let mut rest = text;
    while let Some(at) = rest.iter().position(|b| *b == b'\\') {
        out.extend_from_slice(&rest[..at]);
        let code = *rest.get(at + 1).ok_or_else(bad)?;
        rest = &rest[at + 2..];
        match code {
            b'"' | b'\\' | b'/' => out.push(code),
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'u' => {
                let (mut unit, mut after) = hex4(rest).ok_or_else(bad)?;
                if (0xd800..0xdc00).contains(&unit) {
                    let low = after.strip_prefix(b"\\u").and_then(hex4);
                    let (low, end) = low.filter(|(low, _)| (0xdc00..0xe000).contains(low)).ok_or_else(bad)?;
                    unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                    after = end;
                }
                // PostgreSQL's text holds no zero either.
                let character = char::from_u32(unit).filter(|c| *c != '\0').ok_or_else(bad)?;
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                rest = after;
            }
            _ => return Err(bad()),
        }
    }
    out.extend_from_slice(rest);
    Ok(())
}

fn hex4(text: &[u8]) -> Option<(u32, &[u8])> {
    let (digits, rest) = text.split_first_chunk::<4>()?;
    let value = digits.iter().try_fold(0, |v, b| Some(v << 4 | char::from(*b).to_digit(16)?))?;
    Some((value, rest))
}
