//! One socket as messages: read ahead and bounded, written through a buffer.
//!
//! ```text
//!   socket ── Reader (a task after startup) ── at most INBOX messages ──> connection
//!   socket <── flush at 64 KiB, before waiting, at Sync and Flush ── out <── connection
//! ```
//! A client that goes away is noticed while its statement runs, because somebody always reads.

use super::report::error_response;
use crate::session::{CancelSlot, SessionError, Stop};
use bytes::{Buf, BytesMut};
use pgwire::error::PgWireError;
use pgwire::messages::{DecodeContext, PgWireBackendMessage, PgWireFrontendMessage};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use weir_catalog::SqlState;

/// A message of a client may be this long.
const MESSAGE_MAX: usize = 256 << 20;
/// So many messages are read ahead.
const INBOX: usize = 32;
/// So many bytes are gathered before they are written.
const FLUSH_AT: usize = 64 << 10;

/// The reading side.
pub struct Reader {
    half: OwnedReadHalf,

    buffer: BytesMut,
    /// What kind of message comes next.
    pub context: DecodeContext,
}

impl Reader {
    /// Of a connection that has said nothing yet.
    pub fn new(half: OwnedReadHalf) -> Self {
        Self { half, buffer: BytesMut::with_capacity(8 << 10), context: DecodeContext::default() }
    }

    /// The next message; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<PgWireFrontendMessage>, SessionError> {
        loop {
            self.check_length()?;
            // A message that lies about its inner lengths must not end more than its connection.
            let decoded = catch_unwind(AssertUnwindSafe(|| {
                PgWireFrontendMessage::decode(&mut self.buffer, &self.context)
            }));
            match decoded {
                Ok(Ok(Some(message))) => return Ok(Some(message)),
                Ok(Ok(None)) => {}
                Ok(Err(error)) => return Err(violation(error.to_string().to_lowercase())),
                Err(_) => return Err(violation("invalid message format")),
            }
            match self.half.read_buf(&mut self.buffer).await {
                Ok(0) | Err(_) => return Ok(None),
                Ok(_) => {}
            }
        }
    }

    fn check_length(&self) -> Result<(), SessionError> {
        let started = !self.context.awaiting_frontend_startup && !self.context.awaiting_frontend_ssl;
        if started && self.buffer.len() >= 5 {
            let length = (&self.buffer[1..5]).get_u32() as usize;
            if !(4..=MESSAGE_MAX).contains(&length) {
                return Err(violation(format!("invalid message length {length}")));
            }
        }
        Ok(())
    }

    /// Reads on in a task of its own. A client that closes the connection stops what runs.
    pub fn spawn(mut self, slot: Arc<CancelSlot>, shutdown: CancellationToken) -> Inbox {
        let (sender, receiver) = mpsc::channel(INBOX);
        let task = tokio::spawn(async move {
            let mut down = false;
            loop {
                tokio::select! {
                    () = shutdown.cancelled(), if !down => {
                        down = true;
                        slot.stop(Stop::Shutdown);
                    }
                    next = self.next() => match next {
                        Ok(Some(message)) => if sender.send(Ok(message)).await.is_err() { return },
                        Ok(None) => return slot.stop(Stop::Gone),
                        Err(error) => {
                            // The connection ends by itself, and its receiver with it.
                            let _ = sender.send(Err(error)).await;
                            return;
                        }
                    },
                }
            }
        });
        Inbox { receiver, peeked: None, task }
    }
}

/// A client that doesn't keep to the protocol: the connection can't go on.
fn violation(message: impl Into<String>) -> SessionError {
    SessionError::new(SqlState("08P01"), message).fatal()
}

/// Messages as they come.
pub struct Inbox {
    receiver: mpsc::Receiver<Result<PgWireFrontendMessage, SessionError>>,
    peeked: Option<Result<PgWireFrontendMessage, SessionError>>,
    task: tokio::task::JoinHandle<()>,
}

impl Inbox {
    /// The next message; `None` at the end.
    pub async fn next(&mut self) -> Option<Result<PgWireFrontendMessage, SessionError>> {
        match self.peeked.take() {
            Some(message) => Some(message),
            None => self.receiver.recv().await,
        }
    }

    /// The next message, left where it is.
    pub async fn peek(&mut self) -> Option<&PgWireFrontendMessage> {
        if self.peeked.is_none() {
            self.peeked = self.receiver.recv().await;
        }
        self.peeked.as_ref().and_then(|message| message.as_ref().ok())
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The writing side.
pub struct Writer {
    half: OwnedWriteHalf,
    /// What is to be written.
    pub out: BytesMut,
}

impl Writer {
    /// Nothing written yet.
    pub fn new(half: OwnedWriteHalf) -> Self {
        Self { half, out: BytesMut::with_capacity(8 << 10) }
    }

    /// Adds a message.
    pub fn put(&mut self, message: &PgWireBackendMessage) -> io::Result<()> {
        message.encode(&mut self.out).map_err(|error: PgWireError| io::Error::other(error.to_string()))
    }

    /// Adds an ErrorResponse.
    pub fn put_error(&mut self, error: &SessionError) -> io::Result<()> {
        self.put(&error_response(error))
    }

    /// Writes what there is.
    pub async fn flush(&mut self) -> io::Result<()> {
        if !self.out.is_empty() {
            self.half.write_all_buf(&mut self.out).await?;
            self.out.clear();
        }
        Ok(())
    }

    /// Writes if much has gathered.
    pub async fn flush_if_full(&mut self) -> io::Result<()> {
        if self.out.len() >= FLUSH_AT { self.flush().await } else { Ok(()) }
    }
}
