//! CSV to columns, straight from the bytes: no record, field or string in between.
//!
//! As PostgreSQL's `COPY … CSV`: a field may be quoted, `""` in it is a quote, and it may hold
//! delimiters and ends of lines; an empty field that isn't quoted is NULL. A record must have as
//! many fields as the source has columns.

use super::decode::{Decoded, Decoder, RowBuilder, Step, column_reason};
use arrow::error::ArrowError;
use memchr::{memchr, memchr2};
use weir_catalog::Column;

/// Decodes CSV.
pub struct CsvDecoder {
    rows: RowBuilder,
    fields: Fields,
}

struct Fields {
    delimiter: u8,
    /// By position in the record: the wanted column.
    wanted: Vec<Option<usize>>,
    /// A quoted field without its escapes.
    unescaped: Vec<u8>,
}

/// What is after a field.
#[derive(Clone, Copy, PartialEq)]
enum After {
    Field(usize),
    Record(usize),
}

impl CsvDecoder {
    /// For the columns `wanted` of `declared`, which are the fields of a record, in order.
    pub fn new(declared: &[Column], wanted: &[usize], delimiter: u8) -> Result<Self, String> {
        let mut positions = vec![None; declared.len()];
        for (index, position) in wanted.iter().enumerate() {
            positions[*position] = Some(index);
        }
        let rows = RowBuilder::new(declared, wanted)?;
        Ok(Self { rows, fields: Fields { delimiter, wanted: positions, unescaped: Vec::new() } })
    }
}

impl Decoder for CsvDecoder {
    fn decode(&mut self, block: &[u8], at_end: bool, rows_max: usize) -> Result<Decoded, ArrowError> {
        let fields = &mut self.fields;
        self.rows.run(block, rows_max, |rows, at| fields.record(rows, block, at, at_end))
    }
}

impl Fields {
    fn record(&mut self, rows: &mut RowBuilder, block: &[u8], start: usize, at_end: bool) -> Step {
        match &block[start..] {
            [b'\n', ..] => return Step::Blank(start + 1),
            [b'\r', b'\n', ..] => return Step::Blank(start + 2),
            _ => {}
        }
        let mut at = start;
        let mut fault: Option<String> = None;
        let mut count = 0;
        loop {
            let wanted = self.wanted.get(count).copied().flatten().filter(|_| fault.is_none());
            let after = if block.get(at) == Some(&b'"') {
                self.quoted(rows, block, at, at_end, wanted, &mut fault)
            } else {
                self.bare(rows, block, at, at_end, wanted, &mut fault)
            };
            count += 1;
            match after {
                None => return Step::Incomplete,
                Some(After::Field(next)) => at = next,
                Some(After::Record(end)) => {
                    return match fault {
                        Some(reason) => Step::Bad(end, reason),
                        None if count == self.wanted.len() => Step::Record(end),
                        None => Step::Bad(end, format!("it has {count} fields, not {}", self.wanted.len())),
                    };
                }
            }
        }
    }

    #[inline]
    fn bare(
        &mut self,
        rows: &mut RowBuilder,
        block: &[u8],
        at: usize,
        at_end: bool,
        wanted: Option<usize>,
        fault: &mut Option<String>,
    ) -> Option<After> {
        let rest = &block[at..];
        let (value, after) = match memchr2(self.delimiter, b'\n', rest) {
            Some(length) if rest[length] == b'\n' => {
                let value = &rest[..length];
                (value.strip_suffix(b"\r").unwrap_or(value), After::Record(at + length + 1))
            }
            Some(length) => (&rest[..length], After::Field(at + length + 1)),
            None if at_end => (rest.strip_suffix(b"\r").unwrap_or(rest), After::Record(block.len())),
            None => return None,
        };
        if let Some(index) = wanted {
            if value.is_empty() {
                rows.column(index).push_null();
            } else if let Err(reason) = rows.column(index).push_text(value, false) {
                *fault = Some(column_reason(rows.name(index), &reason));
            }
        }
        Some(after)
    }

    fn quoted(
        &mut self,
        rows: &mut RowBuilder,
        block: &[u8],
        at: usize,
        at_end: bool,
        wanted: Option<usize>,
        fault: &mut Option<String>,
    ) -> Option<After> {
        self.unescaped.clear();
        let mut from = at + 1;
        let close = loop {
            match memchr(b'"', &block[from..]) {
                Some(length) if block.get(from + length + 1) == Some(&b'"') => {
                    self.unescaped.extend_from_slice(&block[from..=from + length]);
                    from += length + 2;
                }
                // Another quote might follow.
                Some(length) if from + length + 1 == block.len() && !at_end => return None,
                Some(length) => break from + length,
                None if at_end => {
                    fault.get_or_insert("a quote is not closed".to_owned());
                    return Some(After::Record(block.len()));
                }
                None => return None,
            }
        };
        let value = if self.unescaped.is_empty() {
            &block[from..close]
        } else {
            self.unescaped.extend_from_slice(&block[from..close]);
            &self.unescaped
        };
        if let Some(index) = wanted
            && let Err(reason) = rows.column(index).push_text(value, false)
        {
            *fault = Some(column_reason(rows.name(index), &reason));
        }
        let next = close + 1;
        match &block[next..] {
            [] if at_end => Some(After::Record(next)),
            [b'\r'] if at_end => Some(After::Record(next + 1)),
            [] | [b'\r'] => None,
            [b'\n', ..] => Some(After::Record(next + 1)),
            [b'\r', b'\n', ..] => Some(After::Record(next + 2)),
            [byte, ..] if *byte == self.delimiter => Some(After::Field(next + 1)),
            _ => {
                fault.get_or_insert("a quoted field is followed by text".to_owned());
                self.bare(rows, block, next, at_end, None, fault)
            }
        }
    }
}

#[cfg(test)]
#[path = "tests/csv.rs"]
pub(crate) mod tests;
