//! JSON lines to columns: a scanner that expects the keys in the order seen before.
//!
//! Keys are found by name, exactly or else without regard to case (unquoted column names are
//! folded). A value is coerced to its column's type as PostgreSQL would read its text; a missing
//! key is NULL; of a key given twice the last one counts. Values that nobody wants are stepped over.

use super::decode::{Decoded, Decoder, RowBuilder, Step, column_reason, unexpected};
use super::json_value::{Scanner, push_value};
use arrow::error::ArrowError;
use memchr::memchr;
use std::collections::HashMap;
use weir_catalog::Column;

/// Decodes JSON lines.
pub struct JsonDecoder {
    rows: RowBuilder,
    keys: Keys,
    scratch: Vec<u8>,
}

/// Which key is which wanted column.
struct Keys {
    /// By the key's position in the last record: the key, and its column if it is wanted.
    seen: Vec<(Vec<u8>, Option<usize>)>,
    names: HashMap<Vec<u8>, usize>,
}

impl Keys {
    #[inline]
    fn find(&mut self, position: usize, key: &[u8]) -> Option<usize> {
        match self.seen.get(position) {
            Some((seen, column)) if seen == key => *column,
            _ => self.find_anew(position, key),
        }
    }

    #[cold]
    fn find_anew(&mut self, position: usize, key: &[u8]) -> Option<usize> {
        let column = self.names.get(key).or_else(|| self.names.get(&key.to_ascii_lowercase())).copied();
        // A record with very many keys is not worth remembering in full.
        if position < 1024 {
            self.seen.resize(self.seen.len().max(position + 1), (Vec::new(), None));
            self.seen[position] = (key.to_vec(), column);
        }
        column
    }
}

impl JsonDecoder {
    /// For the columns `wanted` of `declared`.
    pub fn new(declared: &[Column], wanted: &[usize]) -> Result<Self, String> {
        let names =
            wanted.iter().enumerate().map(|(i, w)| (declared[*w].name.clone().into_bytes(), i)).collect();
        let rows = RowBuilder::new(declared, wanted)?;
        Ok(Self { rows, keys: Keys { seen: Vec::new(), names }, scratch: Vec::new() })
    }
}

impl Decoder for JsonDecoder {
    fn decode(&mut self, block: &[u8], at_end: bool, rows_max: usize) -> Result<Decoded, ArrowError> {
        let Self { rows, keys, scratch } = self;
        rows.run(block, rows_max, |rows, at| {
            let (line, end) = match memchr(b'\n', &block[at..]) {
                Some(length) => (&block[at..at + length], at + length + 1),
                None if at_end => (&block[at..], block.len()),
                None => return Step::Incomplete,
            };
            if line.iter().all(u8::is_ascii_whitespace) {
                return Step::Blank(end);
            }
            match object(line, rows, keys, scratch) {
                Ok(()) => Step::Record(end),
                Err(reason) => Step::Bad(end, reason),
            }
        })
    }
}

/// Reads the object that `line` is.
fn object(line: &[u8], rows: &mut RowBuilder, keys: &mut Keys, scratch: &mut Vec<u8>) -> Result<(), String> {
    let mut scanner = Scanner::new(line);
    scanner.expect(b'{', "an object")?;
    let mut position = 0;
    if !scanner.accept(b'}') {
        loop {
            let key = scanner.key(scratch)?;
            let column = keys.find(position, key);
            scanner.expect(b':', "a colon")?;
            match column {
                None => scanner.skip()?,
                Some(index) => {
                    let pushed = push_value(&mut scanner, rows.column(index), scratch);
                    pushed.map_err(|reason| column_reason(rows.name(index), &reason))?;
                }
            }
            position += 1;
            if scanner.accept(b',') {
                continue;
            }
            scanner.expect(b'}', "a comma or the end of the object")?;
            break;
        }
    }
    match scanner.rest() {
        [] => Ok(()),
        rest => Err(unexpected(rest, "the end of the line")),
    }
}

#[cfg(test)]
#[path = "tests/json.rs"]
mod tests;
