//! One socket as messages: read ahead and bounded, written through a buffer.
//!
//! ```text
//!   socket ── Reader (a task after startup) ── at most INBOX messages ──> connection      `frame` cuts
//!   socket <── flush at 64 KiB, before waiting, at Sync and Flush ── out <── connection
//! ```
//! A client that goes away is noticed while its statement runs, because somebody always reads.

use super::frame::{self, Malformed};
use super::report::error_response;
use crate::session::{CancelSlot, SessionError, Stop};
use bytes::BytesMut;
use pgwire::error::PgWireError;
use pgwire::messages::{DecodeContext, PgWireBackendMessage, PgWireFrontendMessage};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// So many messages are read ahead.
const INBOX: usize = 32;
/// So many bytes are gathered before they are written.
const FLUSH_AT: usize = 64 << 10;

/// A message, or what was sent instead of one.
pub type Received = Result<PgWireFrontendMessage, Malformed>;

/// The reading side.
pub struct Reader {
    half: Box<dyn AsyncRead + Send + Sync + Unpin>,

    buffer: BytesMut,
    /// What kind of message comes next.
    pub context: DecodeContext,
}

impl Reader {
    /// Of a client that has said `read` so far, which is no request for encryption.
    pub fn new(half: impl AsyncRead + Send + Sync + Unpin + 'static, read: &[u8]) -> Self {
        let mut buffer = BytesMut::with_capacity(8 << 10);
        buffer.extend_from_slice(read);
        let mut context = DecodeContext::default();
        context.awaiting_frontend_ssl = false;
        Self { half: Box::new(half), buffer, context }
    }

    /// The next message; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<PgWireFrontendMessage>, Malformed> {
        loop {
            if let Some(message) = frame::next(&mut self.buffer, &self.context)? {
                return Ok(Some(message));
            }
            match self.half.read_buf(&mut self.buffer).await {
                Ok(0) | Err(_) => return Ok(None),
                Ok(_) => {}
            }
        }
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
                        Err(bad) => {
                            let is_fatal = bad.error.is_fatal();
                            // After a fatal one the connection ends by itself, its receiver with it.
                            if sender.send(Err(bad)).await.is_err() || is_fatal {
                                return;
                            }
                        }
                    },
                }
            }
        });
        Inbox { receiver, peeked: None, task }
    }
}

/// Messages as they come.
pub struct Inbox {
    receiver: mpsc::Receiver<Received>,
    peeked: Option<Received>,
    task: tokio::task::JoinHandle<()>,
}

impl Inbox {
    /// The next message; `None` at the end.
    pub async fn next(&mut self) -> Option<Received> {
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
    half: Box<dyn AsyncWrite + Send + Sync + Unpin>,
    /// What is to be written.
    pub out: BytesMut,
}

impl Writer {
    /// Nothing written yet.
    pub fn new(half: impl AsyncWrite + Send + Sync + Unpin + 'static) -> Self {
        Self { half: Box::new(half), out: BytesMut::with_capacity(8 << 10) }
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
            self.half.flush().await?;
            self.out.clear();
        }
        Ok(())
    }

    /// Writes if much has gathered.
    pub async fn flush_if_full(&mut self) -> io::Result<()> {
        if self.out.len() >= FLUSH_AT { self.flush().await } else { Ok(()) }
    }
}
