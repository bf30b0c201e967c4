//! COPY in PostgreSQL's binary format.
//!
//! ```text
//!   PGCOPY\n\xff\r\n\0 │ flags u32 │ extension: length u32, bytes …
//!   row: columns i16 │ column: length i32 (-1 NULL), bytes …          as in DataRow
//!   end: -1 i16
//! ```
//! Rows come in pieces that end anywhere: [`Rows`] puts them together.

use super::parameters::decode_parameter;
use super::types::Format;
use crate::session::SessionError;
use arrow::datatypes::FieldRef;
use bytes::{Buf, BufMut, BytesMut};
use datafusion::common::ScalarValue;
use weir_catalog::SqlState;

const SIGNATURE: &[u8; 11] = b"PGCOPY\n\xff\r\n\0";
/// Signature, flags, length of the extension.
const HEAD_BYTES: usize = 19;

/// What comes before the first row.
pub fn write_head(out: &mut BytesMut) {
    out.put_slice(SIGNATURE);
    out.put_u64(0);
}

/// What comes after the last row.
pub fn write_end(out: &mut BytesMut) {
    out.put_i16(-1);
}

/// Puts pieces together to rows of values.
pub struct Rows {
    fields: Vec<FieldRef>,

    rest: BytesMut,
    started: bool,
    ended: bool,
    number: u64,
    rows: Vec<Vec<ScalarValue>>,
}

impl Rows {
    /// Of columns like `fields`.
    pub fn new(fields: Vec<FieldRef>) -> Self {
        let rest = BytesMut::new();
        Self { fields, rest, started: false, ended: false, number: 0, rows: Vec::new() }
    }

    /// Adds a piece.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), SessionError> {
        self.rest.extend_from_slice(piece);
        if !self.started && !self.head()? {
            return Ok(());
        }
        while !self.ended && self.row()? {}
        if self.ended && !self.rest.is_empty() {
            return Err(bad("received copy data after EOF marker"));
        }
        Ok(())
    }

    /// The end: every row was whole, and the end was said.
    pub fn finish(&self) -> Result<(), SessionError> {
        // PostgreSQL takes a copy without its end, too, as long as no row is cut.
        if self.started && self.rest.is_empty() { Ok(()) } else { Err(bad("unexpected EOF in COPY data")) }
    }

    /// The rows so far, if there are at least so many.
    pub fn take(&mut self, least: usize) -> Option<Vec<Vec<ScalarValue>>> {
        (self.rows.len() >= least.max(1)).then(|| std::mem::take(&mut self.rows))
    }

    fn head(&mut self) -> Result<bool, SessionError> {
        let known = self.rest.len().min(SIGNATURE.len());
        if self.rest[..known] != SIGNATURE[..known] {
            return Err(bad("COPY file signature not recognized"));
        }
        if self.rest.len() < HEAD_BYTES {
            return Ok(false);
        }
        let mut head = &self.rest[SIGNATURE.len()..HEAD_BYTES];
        let (flags, extension) = (head.get_u32(), head.get_u32() as usize);
        if flags >> 16 != 0 {
            return Err(bad("unrecognized critical flags in COPY file header"));
        }
        if self.rest.len() < HEAD_BYTES + extension {
            return Ok(false);
        }
        self.rest.advance(HEAD_BYTES + extension);
        self.started = true;
        Ok(true)
    }

    /// Takes a row off what is there; false: it is not whole yet.
    fn row(&mut self) -> Result<bool, SessionError> {
        let mut bytes = &self.rest[..];
        if bytes.len() < 2 {
            return Ok(false);
        }
        let count = bytes.get_i16();
        if count == -1 {
            self.rest.advance(2);
            self.ended = true;
            return Ok(false);
        }
        self.number += 1;
        if usize::try_from(count) != Ok(self.fields.len()) {
            let message = format!("row field count is {count}, expected {}", self.fields.len());
            return Err(self.in_row(bad(&message)));
        }
        let mut values = Vec::with_capacity(self.fields.len());
        for field in &self.fields {
            if bytes.len() < 4 {
                self.number -= 1;
                return Ok(false);
            }
            let value = match bytes.get_i32() {
                -1 => None,
                length => {
                    let length = usize::try_from(length).map_err(|_| bad("invalid field size"))?;
                    if bytes.len() < length {
                        self.number -= 1;
                        return Ok(false);
                    }
                    let (value, after) = bytes.split_at(length);
                    bytes = after;
                    Some(value)
                }
            };
            let decoded = decode_parameter(field, value, Format::Binary);
            values.push(decoded.map_err(|error| self.in_row(error))?);
        }
        let used = self.rest.len() - bytes.len();
        self.rest.advance(used);
        self.rows.push(values);
        Ok(true)
    }

    fn in_row(&self, error: SessionError) -> SessionError {
        error.detail(format!("In row {} of the COPY.", self.number))
    }
}

fn bad(message: &str) -> SessionError {
    SessionError::new(SqlState("22P04"), message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{DataType, Field};
    use std::sync::Arc;

    fn rows() -> Rows {
        let field = |name: &str, data_type| Arc::new(Field::new(name, data_type, true));
        Rows::new(vec![field("a", DataType::Int32), field("t", DataType::Utf8)])
    }

    fn text() -> BytesMut {
        let mut out = BytesMut::new();
        write_head(&mut out);
        out.put_slice(b"\0\x02\0\0\0\x04\0\0\0\x07\0\0\0\x02hi");
        out.put_slice(b"\0\x02\xff\xff\xff\xff\0\0\0\0");
        write_end(&mut out);
        out
    }

    #[test]
    fn pieces_may_end_anywhere() {
        let text = text();
        for size in 1..text.len() {
            let mut rows = rows();
            text.chunks(size).for_each(|piece| rows.push(piece).unwrap());
            rows.finish().unwrap();
            let found = rows.take(1).unwrap();
            assert_eq!(found[0], [ScalarValue::from(7i32), ScalarValue::from("hi")], "{size}");
            assert_eq!(found[1], [ScalarValue::Int32(None), ScalarValue::from("")], "{size}");
        }
    }

    #[test]
    fn what_is_no_copy_is_refused() {
        let fails = |bytes: &[u8]| {
            let mut rows = rows();
            rows.push(bytes).and_then(|()| rows.finish()).unwrap_err().to_string()
        };
        assert_eq!(fails(b"1\thi\n"), "COPY file signature not recognized");
        let text = text();
        assert_eq!(fails(&text[..25]), "unexpected EOF in COPY data");
        let mut after = text.clone();
        after.put_u8(0);
        assert_eq!(fails(&after), "received copy data after EOF marker");
        let mut wide = text.clone();
        wide[20] = 3;
        assert_eq!(fails(&wide), "row field count is 3, expected 2");
    }
}
