//! COPY in and out: rows as lines, in PostgreSQL's text format and in CSV.
//!
//! ```text
//!   text   a\tb\\c\t\N        tabs between, backslashes before what is special, \N for NULL
//!   csv    a,"b ""c""",       quoted where needed, nothing for NULL, "" for the empty text
//! ```
//! Lines come in pieces that end anywhere: [`Lines`] puts them together.

use super::connection::{Connection, guard};
use super::copy_binary;
use super::encode::BatchEncoder;
use super::frame::{utf8, violation};
use super::types::Format;
use crate::serve::ServeError;
use crate::session::{CopyIn, ResultRows, SessionError};
use bytes::{BufMut, BytesMut};
use pgwire::messages::copy::{CopyDone, CopyInResponse, CopyOutResponse};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use std::io;
use weir_catalog::SqlState;
use weir_sql::parser::statement::CopyOptions;

/// So many lines are given to the session at once.
const CHUNK_LINES: usize = 4096;

impl Connection {
    /// Sends rows as lines; returns the command tag.
    pub(super) async fn copy_out(
        &mut self,
        mut rows: ResultRows,
        options: &CopyOptions,
    ) -> io::Result<Result<String, SessionError>> {
        let width = rows.schema.fields().len();
        let code = i16::from(options.binary);
        let response = CopyOutResponse::new(code as i8, width as i16, vec![code; width]);
        self.writer.put(&PgWireBackendMessage::CopyOutResponse(response))?;
        if options.binary {
            return self.copy_out_binary(rows).await;
        }
        if options.header {
            let names: Vec<String> = rows.schema.fields().iter().map(|field| field.name().clone()).collect();
            self.put_line(|out| {
                for (i, name) in names.iter().enumerate() {
                    write_value(Some(name.as_bytes()), i, options, out);
                }
            });
        }
        let zone = self.session.time_zone();
        let formats = vec![Format::Text; width];
        let mut sent = 0u64;
        let mut value = BytesMut::new();
        loop {
            let batch = match self.next_batch(&mut rows).await? {
                Ok(Some(batch)) => batch,
                Ok(None) => break,
                Err(error) => return Ok(Err(error)),
            };
            let encoder = match BatchEncoder::new(&batch, &formats, &zone) {
                Ok(encoder) => encoder,
                Err(error) => return Ok(Err(ServeError::from(error).into())),
            };
            for row in 0..encoder.rows() {
                self.put_line(|out| {
                    for column in 0..encoder.columns() {
                        value.clear();
                        let some = encoder.write_column_text(column, row, &mut value);
                        write_value(some.then_some(&value[..]), column, options, out);
                    }
                });
                self.writer.flush_if_full().await?;
            }
            sent += encoder.rows() as u64;
        }
        self.writer.put(&PgWireBackendMessage::CopyDone(CopyDone::new()))?;
        Ok(Ok(format!("COPY {sent}")))
    }

    /// The same in the binary format.
    async fn copy_out_binary(&mut self, mut rows: ResultRows) -> io::Result<Result<String, SessionError>> {
        let formats = vec![Format::Binary; rows.schema.fields().len()];
        // In one message with the first row, or with the end, as clients expect it.
        let mut head = BytesMut::new();
        copy_binary::write_head(&mut head);
        let mut sent = 0u64;
        loop {
            let batch = match self.next_batch(&mut rows).await? {
                Ok(Some(batch)) => batch,
                Ok(None) => break,
                Err(error) => return Ok(Err(error)),
            };
            let encoder = match BatchEncoder::new(&batch, &formats, "UTC") {
                Ok(encoder) => encoder,
                Err(error) => return Ok(Err(ServeError::from(error).into())),
            };
            for row in 0..encoder.rows() {
                self.put_data(|out| {
                    out.put(head.split());
                    encoder.write_tuple(row, out);
                });
                self.writer.flush_if_full().await?;
            }
            sent += encoder.rows() as u64;
        }
        self.put_data(|out| {
            out.put(head);
            copy_binary::write_end(out);
        });
        self.writer.put(&PgWireBackendMessage::CopyDone(CopyDone::new()))?;
        Ok(Ok(format!("COPY {sent}")))
    }

    /// Adds a CopyData message of one line.
    fn put_line(&mut self, write: impl FnOnce(&mut BytesMut)) {
        self.put_data(|out| {
            write(out);
            out.put_u8(b'\n');
        });
    }

    /// Adds a CopyData message.
    fn put_data(&mut self, write: impl FnOnce(&mut BytesMut)) {
        let out = &mut self.writer.out;
        out.put_u8(b'd');
        let start = out.len();
        out.put_i32(0);
        write(out);
        let length = (out.len() - start) as i32;
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }

    /// Reads the client's rows; returns the command tag.
    pub(super) async fn copy_in(&mut self, mut copy: CopyIn) -> io::Result<Result<String, SessionError>> {
        let width = copy.columns.len();
        let code = i16::from(copy.options.binary);
        let response = CopyInResponse::new(code as i8, width as i16, vec![code; width]);
        self.writer.put(&PgWireBackendMessage::CopyInResponse(response))?;
        self.writer.flush().await?;
        let mut pieces = match copy.options.binary {
            true => Pieces::Binary(copy_binary::Rows::new(copy.fields())),
            false => Pieces::Lines(Lines::new(copy.options.clone(), width)),
        };
        loop {
            let limits = self.session.limits().clone();
            let next = async { self.inbox.next().await.transpose().map_err(|bad| bad.error) };
            let message = match limits.run(next).await {
                Ok(message) => message,
                Err(error) => return Ok(Err(error)),
            };
            let step = match message {
                Some(PgWireFrontendMessage::CopyData(data)) => pieces.push(&data.data),
                Some(PgWireFrontendMessage::CopyDone(_)) => break,
                Some(PgWireFrontendMessage::CopyFail(fail)) => {
                    let message = format!("COPY from stdin failed: {}", fail.message);
                    Err(SessionError::new(SqlState::QUERY_CANCELED, message))
                }
                // Clients send a Sync right after the Execute that starts the copy.
                Some(PgWireFrontendMessage::Flush(_) | PgWireFrontendMessage::Sync(_)) => Ok(()),
                Some(_) => Err(violation("unexpected message during COPY")),
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            };
            if let Err(error) = step {
                return Ok(Err(error));
            }
            if let Err(error) = self.copy_pieces(&mut pieces, &mut copy, CHUNK_LINES).await {
                return Ok(Err(error));
            }
        }
        if let Err(error) = pieces.finish() {
            return Ok(Err(error));
        }
        if let Err(error) = self.copy_pieces(&mut pieces, &mut copy, 1).await {
            return Ok(Err(error));
        }
        Ok(guard(self.session.copy_done(copy)).await)
    }

    /// Gives the session the rows that are whole, if there are at least so many.
    async fn copy_pieces(
        &mut self,
        pieces: &mut Pieces,
        copy: &mut CopyIn,
        least: usize,
    ) -> Result<(), SessionError> {
        match pieces {
            Pieces::Lines(lines) => {
                while let Some(chunk) = lines.take(least) {
                    guard(self.session.copy_rows(copy, &chunk)).await?;
                }
            }
            Pieces::Binary(rows) => {
                if let Some(chunk) = rows.take(least) {
                    guard(self.session.copy_values(copy, &chunk)).await?;
                }
            }
        }
        Ok(())
    }
}

/// What a client sends, as rows.
enum Pieces {
    Lines(Lines),
    Binary(copy_binary::Rows),
}

impl Pieces {
    fn push(&mut self, piece: &[u8]) -> Result<(), SessionError> {
        match self {
            Pieces::Lines(lines) => lines.push(piece),
            Pieces::Binary(rows) => rows.push(piece),
        }
    }

    fn finish(&mut self) -> Result<(), SessionError> {
        match self {
            Pieces::Lines(lines) => lines.finish(),
            Pieces::Binary(rows) => rows.finish(),
        }
    }
}

/// Appends a value to a line; `None` is NULL.
fn write_value(value: Option<&[u8]>, column: usize, options: &CopyOptions, out: &mut BytesMut) {
    if column > 0 {
        out.put_u8(options.delimiter);
    }
    let Some(value) = value else { return out.put_slice(options.null.as_bytes()) };
    if options.csv {
        let special =
            |byte: &u8| *byte == options.delimiter || *byte == options.quote || matches!(byte, b'\n' | b'\r');
        let quoted = value == options.null.as_bytes() || value == b"\\." || value.iter().any(special);
        if !quoted {
            return out.put_slice(value);
        }
        let escape = options.escape.unwrap_or(options.quote);
        out.put_u8(options.quote);
        for byte in value {
            if *byte == options.quote || *byte == escape {
                out.put_u8(escape);
            }
            out.put_u8(*byte);
        }
        return out.put_u8(options.quote);
    }
    for byte in value {
        let escaped = match byte {
            b'\\' => b'\\',
            0x08 => b'b',
            0x0c => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x0b => b'v',
            byte if *byte == options.delimiter => *byte,
            _ => {
                out.put_u8(*byte);
                continue;
            }
        };
        out.put_slice(&[b'\\', escaped]);
    }
}

/// A line's values.
type Line = Vec<Option<String>>;

/// Puts pieces of text together to lines of values.
struct Lines {
    options: CopyOptions,
    width: usize,

    /// What is not yet a whole line.
    rest: Vec<u8>,
    /// How far `rest` was searched for the line's end, and whether that is within quotes.
    searched: usize,
    in_quotes: bool,
    number: u64,
    ended: bool,
    lines: Vec<Line>,
}

impl Lines {
    fn new(options: CopyOptions, width: usize) -> Self {
        Self {
            options,
            width,
            rest: Vec::new(),
            searched: 0,
            in_quotes: false,
            number: 0,
            ended: false,
            lines: Vec::new(),
        }
    }

    /// Adds a piece.
    fn push(&mut self, piece: &[u8]) -> Result<(), SessionError> {
        self.rest.extend_from_slice(piece);
        let mut start = 0;
        while self.searched < self.rest.len() {
            let byte = self.rest[self.searched];
            self.searched += 1;
            if self.options.csv {
                let escape = self.options.escape.unwrap_or(self.options.quote);
                if byte == self.options.quote {
                    // An escape that is a quote itself toggles twice.
                    self.in_quotes = !self.in_quotes;
                } else if byte == escape && self.in_quotes {
                    if self.searched == self.rest.len() {
                        // What it escapes comes with the next piece.
                        self.searched -= 1;
                        break;
                    }
                    self.searched += 1;
                }
            }
            if byte == b'\n' && !self.in_quotes {
                let line = self.rest[start..self.searched - 1].to_vec();
                start = self.searched;
                self.line(&line)?;
            }
        }
        self.rest.drain(..start);
        self.searched -= start;
        Ok(())
    }

    /// The end: what is left is the last line.
    fn finish(&mut self) -> Result<(), SessionError> {
        if self.in_quotes {
            return Err(self.bad("unterminated CSV quoted field"));
        }
        let line = std::mem::take(&mut self.rest);
        if line.is_empty() { Ok(()) } else { self.line(&line) }
    }

    /// At least `least` lines, if there are so many; all there are.
    fn take(&mut self, least: usize) -> Option<Vec<Line>> {
        (self.lines.len() >= least.max(1)).then(|| {
            let rest = self.lines.split_off(self.lines.len().min(CHUNK_LINES));
            std::mem::replace(&mut self.lines, rest)
        })
    }

    fn line(&mut self, line: &[u8]) -> Result<(), SessionError> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.number += 1;
        self.ended |= line == b"\\.";
        if self.ended || (self.options.header && self.number == 1) {
            return Ok(());
        }
        let values = if self.options.csv { self.csv(line) } else { self.text(line) }?;
        if values.len() < self.width {
            // PostgreSQL names the first column without a value.
            return Err(self.bad(&format!("missing data for column {}", values.len() + 1)));
        }
        if values.len() > self.width {
            return Err(self.bad("extra data after last expected column"));
        }
        self.lines.push(values);
        Ok(())
    }

    fn bad(&self, message: &str) -> SessionError {
        SessionError::new(SqlState("22P04"), message).detail(format!("In line {} of the COPY.", self.number))
    }

    fn utf8(&self, bytes: Vec<u8>) -> Result<String, SessionError> {
        let detail = || format!("In line {} of the COPY.", self.number);
        utf8(&bytes).map(str::to_owned).map_err(|error| error.detail(detail()))
    }

    fn text(&self, line: &[u8]) -> Result<Line, SessionError> {
        let mut values = Vec::with_capacity(self.width);
        let mut raw = 0;
        let mut at = 0;
        let mut value = Vec::new();
        loop {
            match line.get(at) {
                Some(byte) if *byte != self.options.delimiter => {
                    at += 1;
                    if *byte == b'\\' && at < line.len() {
                        at += unescape(&line[at..], &mut value);
                    } else {
                        value.push(*byte);
                    }
                }
                end => {
                    let null = &line[raw..at] == self.options.null.as_bytes();
                    let text = std::mem::take(&mut value);
                    values.push(if null { None } else { Some(self.utf8(text)?) });
                    at += 1;
                    raw = at;
                    if end.is_none() {
                        return Ok(values);
                    }
                }
            }
        }
    }

    fn csv(&self, line: &[u8]) -> Result<Line, SessionError> {
        let escape = self.options.escape.unwrap_or(self.options.quote);
        let mut values = Vec::with_capacity(self.width);
        let (mut value, mut quoted, mut in_quotes) = (Vec::new(), false, false);
        let mut bytes = line.iter().copied().peekable();
        loop {
            match bytes.next() {
                Some(byte)
                    if in_quotes
                        && byte == escape
                        && bytes
                            .peek()
                            .is_some_and(|next| *next == self.options.quote || *next == escape) =>
                {
                    value.extend(bytes.next());
                }
                Some(byte) if byte == self.options.quote => (quoted, in_quotes) = (true, !in_quotes),
                Some(byte) if in_quotes || byte != self.options.delimiter => value.push(byte),
                end => {
                    let text = std::mem::take(&mut value);
                    let null = !quoted && text == self.options.null.as_bytes();
                    values.push(if null { None } else { Some(self.utf8(text)?) });
                    (quoted, in_quotes) = (false, false);
                    if end.is_none() {
                        return Ok(values);
                    }
                }
            }
        }
    }
}

/// Appends what follows a backslash; returns how many bytes that was.
fn unescape(rest: &[u8], value: &mut Vec<u8>) -> usize {
    let digits = |radix: u32, most: usize, from: usize| {
        let digit = |byte: &&u8| char::from(**byte).is_digit(radix);
        rest[from..].iter().take(most).take_while(digit).count()
    };
    let number = |radix: u32, from: usize, count: usize| {
        let value = rest[from..from + count].iter().filter_map(|byte| char::from(*byte).to_digit(radix));
        value.fold(0, |value, digit| value * radix + digit) as u8
    };
    let plain = match rest[0] {
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 0x0b,
        b'0'..=b'7' => {
            let count = digits(8, 3, 0);
            value.push(number(8, 0, count));
            return count;
        }
        b'x' if digits(16, 2, 1) > 0 => {
            let count = digits(16, 2, 1);
            value.push(number(16, 1, count));
            return 1 + count;
        }
        other => other,
    };
    value.push(plain);
    1
}

#[cfg(test)]
#[path = "tests/copy.rs"]
mod tests;
