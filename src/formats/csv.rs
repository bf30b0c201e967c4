//! CSV to columns, straight from the bytes: no record, field or string in between.
//!
//! As PostgreSQL's `COPY … CSV`: a field may be quoted, `""` in it is a quote, and it may hold
//! delimiters and ends of lines; an empty field that isn't quoted is NULL. A record's fields are the
//! source's columns in order, or, under a header, those that it names: every column must be in the
//! header, whatever its case and place; what else the header names is not read.

use super::decode::{Decoded, Decoder, RowBuilder, Step, column_reason};
use arrow::error::ArrowError;
use memchr::{memchr, memchr2};
use weir_catalog::Column;

/// Decodes CSV.
pub struct CsvDecoder {
    /// The declared columns, and which of them are wanted.
    columns: Vec<(String, Option<usize>)>,

    rows: RowBuilder,
    fields: Fields,
}

struct Fields {
    delimiter: u8,
    /// By position in the record: the wanted column.
    wanted: Vec<Option<usize>>,
    /// Why no record is one of the source's.
    refused: Option<String>,
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
        let columns = declared.iter().map(|c| c.name.clone()).zip(positions.clone()).collect();
        let fields = Fields { delimiter, wanted: positions, refused: None, unescaped: Vec::new() };
        Ok(Self { columns, rows, fields })
    }

    /// Where the wanted columns are in records of fields that are called `names`.
    fn places(&self, names: &[String]) -> Result<Vec<Option<usize>>, String> {
        let mut places = vec![None; names.len()];
        for (column, wanted) in &self.columns {
            let exactly = names.iter().position(|name| name == column);
            let found = exactly.or_else(|| names.iter().position(|name| name.eq_ignore_ascii_case(column)));
            let Some(at) = found else {
                return Err(format!(
                    "column \"{column}\" is not in the header, which has {}",
                    names.join(", ")
                ));
            };
            if names.iter().filter(|name| **name == names[at]).count() > 1 {
                return Err(format!("column \"{column}\" is in the header more than once"));
            }
            places[at] = *wanted;
        }
        Ok(places)
    }
}

/// Where the first record of `text` ends, its end of line included.
pub fn first_record(text: &[u8]) -> Option<usize> {
    let mut quoted = false;
    let end = text.iter().position(|byte| {
        quoted ^= *byte == b'"';
        *byte == b'\n' && !quoted
    });
    end.map(|at| at + 1)
}

/// The fields of a header, without quotes and the white space around them.
fn names(line: &[u8], delimiter: u8) -> Vec<String> {
    let (mut names, mut name, mut quoted) = (Vec::new(), Vec::new(), false);
    let mut bytes = line.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' if quoted && bytes.peek() == Some(&b'"') => name.extend(bytes.next()),
            b'"' => quoted = !quoted,
            byte if byte == delimiter && !quoted => names.push(std::mem::take(&mut name)),
            byte => name.push(byte),
        }
    }
    names.push(name);
    names.iter().map(|name| String::from_utf8_lossy(name).trim().to_owned()).collect()
}

impl Decoder for CsvDecoder {
    fn header(&mut self, line: &[u8]) -> Result<(), String> {
        let names = names(line, self.fields.delimiter);
        let places = self.places(&names);
        self.fields.refused = places.as_ref().err().cloned();
        self.fields.wanted = places.unwrap_or_else(|_| vec![None; names.len()]);
        self.fields.refused.clone().map_or(Ok(()), Err)
    }

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
        let mut fault: Option<String> = self.refused.clone();
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
