//! Cuts a client's bytes into messages, and proves that a message is laid out as its kind says
//! before pgwire decodes it, which takes that for granted.
//!
//! ```text
//!   first    | length u32 | code u32 | …           what a client says before it has a session
//!   after    | kind u8 | length u32 | body |       the length counts itself
//! ```
//! **Invariant:** whatever a client sends, there is an error for it and no panic. A message of a
//! possible length that is wrong within is an error of its own: the next one starts where it ends.

use crate::session::SessionError;
use bytes::{Buf, BytesMut};
use pgwire::messages::{DecodeContext, PgWireFrontendMessage};
use weir_catalog::SqlState;

/// A message of a client may be this long.
const MESSAGE_MAX: usize = 256 << 20;
/// One that only names something, and the first one, may be this long.
const SHORT_MAX: usize = 10_000;
/// Bytes of a client's first message that tell what it is.
pub const HEAD: usize = 8;
/// The major protocol version that is spoken.
const MAJOR: u16 = 3;

/// The code of a first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// Encryption is asked for.
    Ssl,
    /// Encryption that this server doesn't have is asked for.
    Gss,
    /// A running statement is to be stopped.
    Cancel,
    /// A session is to start.
    Startup,
}

/// A message that is not what its kind says.
#[derive(Debug)]
pub struct Malformed {
    /// The kind.
    pub kind: u8,
    /// Why. If it is fatal, nobody knows where the next message starts.
    pub error: SessionError,
}

/// A client that doesn't keep to the protocol.
pub fn violation(message: impl Into<String>) -> SessionError {
    SessionError::new(SqlState("08P01"), message)
}

/// Bytes as text, as PostgreSQL takes it.
pub fn utf8(bytes: &[u8]) -> Result<&str, SessionError> {
    let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
    match std::str::from_utf8(&bytes[..end]) {
        Ok(text) if end == bytes.len() => Ok(text),
        Ok(_) => Err(not_utf8(&bytes[end..])),
        Err(error) => Err(not_utf8(&bytes[error.valid_up_to()..])),
    }
}

/// Names the bytes of what would be the next character.
fn not_utf8(bytes: &[u8]) -> SessionError {
    let width = match bytes.first() {
        Some(0xc0..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf7) => 4,
        _ => 1,
    };
    let shown: Vec<String> = bytes.iter().take(width).map(|byte| format!("0x{byte:02x}")).collect();
    let message = format!("invalid byte sequence for encoding \"UTF8\": {}", shown.join(" "));
    SessionError::new(SqlState("22021"), message)
}

/// What a client's first message is, by its head, and how long it is.
pub fn first(head: [u8; HEAD]) -> Result<(First, usize), SessionError> {
    let mut head = &head[..];
    let (length, code) = (head.get_u32() as usize, head.get_u32());
    let first = match code {
        80_877_103 => First::Ssl,
        80_877_104 => First::Gss,
        80_877_102 => First::Cancel,
        _ => First::Startup,
    };
    let right = match first {
        First::Ssl | First::Gss => length == HEAD,
        First::Cancel => (16..=268).contains(&length),
        First::Startup => (HEAD + 1..=SHORT_MAX).contains(&length),
    };
    let (major, minor) = (code >> 16, code & 0xffff);
    if first == First::Startup && right && major != u32::from(MAJOR) {
        let message = format!("unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.2");
        return Err(SessionError::new(SqlState::FEATURE_NOT_SUPPORTED, message).fatal());
    }
    match right {
        true => Ok((first, length)),
        false => Err(violation("invalid length of startup packet").fatal()),
    }
}

/// Takes the next message out of `buffer`; `None` if it isn't there in full.
pub fn next(
    buffer: &mut BytesMut,
    context: &DecodeContext,
) -> Result<Option<PgWireFrontendMessage>, Malformed> {
    if context.awaiting_frontend_startup {
        return next_first(buffer, context).map_err(|error| Malformed { kind: 0, error: error.fatal() });
    }
    let Some(kind) = buffer.first().copied() else { return Ok(None) };
    let fatal = |message: String| Malformed { kind, error: violation(message).fatal() };
    let longest = match kind {
        b'B' | b'F' | b'P' | b'Q' | b'd' => MESSAGE_MAX,
        b'C' | b'D' | b'E' | b'H' | b'S' | b'X' | b'c' | b'f' | b'p' => SHORT_MAX,
        _ => return Err(fatal(format!("invalid frontend message type {kind}"))),
    };
    if buffer.len() < 5 {
        return Ok(None);
    }
    let length = (&buffer[1..5]).get_u32() as usize;
    if !(4..=longest).contains(&length) {
        return Err(fatal(format!("invalid message length {length}")));
    }
    if buffer.len() < 1 + length {
        buffer.reserve(1 + length - buffer.len());
        return Ok(None);
    }
    let mut message = buffer.split_to(1 + length);
    let checked = check(kind, &message[5..]).and_then(|()| decode(&mut message, context));
    checked.map(Some).map_err(|error| Malformed { kind, error })
}

fn next_first(
    buffer: &mut BytesMut,
    context: &DecodeContext,
) -> Result<Option<PgWireFrontendMessage>, SessionError> {
    let Some(head) = buffer.first_chunk::<HEAD>() else { return Ok(None) };
    let (first, length) = first(*head)?;
    if buffer.len() < length {
        return Ok(None);
    }
    let mut message = buffer.split_to(length);
    match first {
        // `negotiate` has answered those that may come.
        First::Ssl | First::Gss => return Err(violation("encryption was asked for twice")),
        First::Cancel => {}
        First::Startup => {
            let mut body = Body(&message[HEAD..]);
            let end = "invalid startup packet layout: expected terminator as last byte";
            while !body.text()?.ok_or_else(|| violation(end))?.is_empty() {
                body.text()?.ok_or_else(|| violation(end))?;
            }
            body.end().map_err(|_| violation(end))?;
        }
    }
    decode(&mut message, context).map(Some)
}

fn decode(message: &mut BytesMut, context: &DecodeContext) -> Result<PgWireFrontendMessage, SessionError> {
    match PgWireFrontendMessage::decode(message, context) {
        Ok(Some(decoded)) => Ok(decoded),
        Ok(None) => Err(violation("invalid message format")),
        Err(error) => Err(violation(error.to_string().to_lowercase())),
    }
}

/// Whether the body of a message of a known kind is laid out as it should be.
fn check(kind: u8, body: &[u8]) -> Result<(), SessionError> {
    let mut body = Body(body);
    match kind {
        b'Q' => body.texts(1)?,
        b'P' => {
            body.texts(2)?;
            body.items(4)?;
        }
        b'B' => {
            body.texts(2)?;
            body.items(2)?;
            for _ in 0..body.count()? {
                let length = body.number()?;
                if length != -1 {
                    body.take(usize::try_from(length).unwrap_or(usize::MAX))?;
                }
            }
            body.items(2)?;
        }
        b'C' | b'D' => {
            let what = if kind == b'C' { "CLOSE" } else { "DESCRIBE" };
            let target = body.take(1)?[0];
            body.texts(1)?;
            if !matches!(target, b'S' | b'P') {
                return Err(violation(format!("invalid {what} message subtype {target}")));
            }
        }
        b'E' => {
            body.texts(1)?;
            body.number()?;
        }
        b'H' | b'S' => {}
        b'f' => body.texts(1)?,
        b'F' => {
            let what = "function calls by protocol are not supported";
            return Err(SessionError::new(SqlState::FEATURE_NOT_SUPPORTED, what));
        }
        // Whatever they hold, it is read by who asked for it.
        _ => return Ok(()),
    }
    body.end()
}

/// What is left of a message's body.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], SessionError> {
        let taken = self.0.split_at_checked(count);
        let (taken, rest) = taken.ok_or_else(|| violation("insufficient data left in message"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn count(&mut self) -> Result<usize, SessionError> {
        self.take(2).map(|mut bytes| usize::from(bytes.get_u16()))
    }

    fn number(&mut self) -> Result<i32, SessionError> {
        self.take(4).map(|mut bytes| bytes.get_i32())
    }

    /// As many things of `width` bytes as the count before them says.
    fn items(&mut self, width: usize) -> Result<(), SessionError> {
        let count = self.count()?;
        self.take(count * width).map(|_| ())
    }

    fn texts(&mut self, count: usize) -> Result<(), SessionError> {
        for _ in 0..count {
            self.text()?.ok_or_else(|| violation("invalid string in message"))?;
        }
        Ok(())
    }

    /// A text up to its zero byte; `None` if there is none.
    fn text(&mut self) -> Result<Option<&'a str>, SessionError> {
        let Some(end) = memchr::memchr(0, self.0) else { return Ok(None) };
        let text = utf8(self.take(end)?)?;
        self.take(1)?;
        Ok(Some(text))
    }

    fn end(&self) -> Result<(), SessionError> {
        if self.0.is_empty() { Ok(()) } else { Err(violation("invalid message format")) }
    }
}

#[cfg(test)]
#[path = "tests/frame.rs"]
mod tests;
