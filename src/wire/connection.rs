//! One connection: messages in, messages out, until either side ends it.
//!
//! ```text
//!   simple     Query                            → rows, tags … ReadyForQuery
//!   extended   Parse Bind Describe Execute …    → answers;  Sync → ReadyForQuery
//!              after an error everything up to Sync is skipped
//! ```

use super::encode::BatchEncoder;
use super::extended::Portal;
use super::frame::{Malformed, violation};
use super::link::{Inbox, Writer};
use super::negotiate::{Encryption, negotiate};
use super::report::notice_response;
use super::startup;
use super::types::{Format, row_description};
use crate::session::{Message, Outcome, ResultRows, Session, SessionError, SessionManager, Status};
use arrow::array::RecordBatch;
use futures::{FutureExt, StreamExt};
use pgwire::messages::response::{CommandComplete, ReadyForQuery, TransactionStatus};
use pgwire::messages::startup::ParameterStatus;
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

/// A connection after its startup.
pub struct Connection {
    pub(super) inbox: Inbox,
    pub(super) writer: Writer,
    pub(super) session: Session,
    pub(super) portals: HashMap<String, Portal>,
    /// The parameter types that the client declared, by prepared statement.
    pub(super) declared: HashMap<String, Vec<u32>>,
    /// Prepared statements without a statement in them.
    pub(super) empty: HashSet<String>,
    /// After an error, until Sync.
    skipping: bool,
}

/// Serves a client until it leaves or the server shuts down.
pub async fn serve_connection(
    socket: TcpStream,
    manager: Arc<SessionManager>,
    encryption: Option<Arc<Encryption>>,
    shutdown: CancellationToken,
) {
    let peer = socket.peer_addr().ok();
    if let Err(error) = run(socket, &manager, encryption.as_deref(), &shutdown).await {
        tracing::debug!(?peer, %error, "connection ended");
    }
}

async fn run(
    socket: TcpStream,
    manager: &Arc<SessionManager>,
    encryption: Option<&Encryption>,
    shutdown: &CancellationToken,
) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let peer = socket.peer_addr().ok().map(|address| address.ip().to_string());
    let starting = async {
        let Some((mut reader, mut writer)) = negotiate(socket, encryption).await? else { return Ok(None) };
        let started = startup::start(&mut reader, &mut writer, manager, peer).await?;
        io::Result::Ok(started.map(|started| (reader, writer, started)))
    };
    let started = tokio::select! {
        started = tokio::time::timeout(startup::STARTUP_MAX, starting) => started,
        () = shutdown.cancelled() => return Ok(()),
    };
    let Ok(started) = started else { return Ok(()) };
    let Some((reader, writer, (seat, session))) = started? else { return Ok(()) };
    let inbox = reader.spawn(Arc::clone(&seat.slot), shutdown.clone());
    let mut connection = Connection {
        inbox,
        writer,
        session,
        portals: HashMap::new(),
        declared: HashMap::new(),
        empty: HashSet::new(),
        skipping: false,
    };
    connection.serve(shutdown).await
}

impl Connection {
    async fn serve(&mut self, shutdown: &CancellationToken) -> io::Result<()> {
        loop {
            let next = tokio::select! {
                biased;
                () = shutdown.cancelled() => Some(Err(Malformed { kind: 0, error: SessionError::shutdown() })),
                next = self.inbox.next() => next,
            };
            match next {
                None | Some(Ok(PgWireFrontendMessage::Terminate(_))) => return self.writer.flush().await,
                Some(Ok(message)) => self.receive(message).await?,
                Some(Err(bad)) if bad.error.is_fatal() => {
                    self.writer.put_error(&bad.error)?;
                    return self.writer.flush().await;
                }
                Some(Err(bad)) => self.refuse(&bad).await?,
            }
        }
    }

    async fn receive(&mut self, message: PgWireFrontendMessage) -> io::Result<()> {
        match message {
            PgWireFrontendMessage::Sync(_) => {
                self.skipping = false;
                self.sync().await
            }
            _ if self.skipping => Ok(()),
            PgWireFrontendMessage::Query(query) => self.simple_query(&query.query).await,
            PgWireFrontendMessage::Flush(_) => self.writer.flush().await,
            // What is left of a COPY that failed is read and forgotten.
            PgWireFrontendMessage::CopyData(_)
            | PgWireFrontendMessage::CopyDone(_)
            | PgWireFrontendMessage::CopyFail(_) => Ok(()),
            message if message.is_extended_query() => {
                if let Err(error) = self.extended(message).await? {
                    self.fail(&error)?;
                    self.skipping = true;
                    // A client may wait for it with a Flush, which is skipped, before it sends Sync.
                    return self.writer.flush().await;
                }
                self.writer.flush_if_full().await
            }
            _ => self.fail(&violation("unexpected message")),
        }
    }

    /// Answers a message that is not what its kind says, as one that failed.
    async fn refuse(&mut self, bad: &Malformed) -> io::Result<()> {
        self.skipping &= bad.kind != b'S';
        match bad.kind {
            _ if self.skipping => Ok(()),
            b'Q' | b'F' | b'S' => {
                self.fail(&bad.error)?;
                self.ready().await
            }
            b'B' | b'C' | b'D' | b'E' | b'H' | b'P' => {
                self.skipping = true;
                self.fail(&bad.error)?;
                self.writer.flush().await
            }
            // Of a COPY that is over.
            _ => Ok(()),
        }
    }

    /// A statement failed: the client is told, the transaction ends or has failed.
    pub(super) fn fail(&mut self, error: &SessionError) -> io::Result<()> {
        self.session.fail();
        self.put_messages()?;
        self.writer.put_error(error)
    }

    /// Ends what was sent since the last Sync.
    async fn sync(&mut self) -> io::Result<()> {
        self.session.start_statement();
        if let Err(error) = guard(self.session.end_implicit()).await {
            self.fail(&error)?;
        }
        self.ready().await
    }

    /// Tells the client that it is its turn.
    pub(super) async fn ready(&mut self) -> io::Result<()> {
        let status = match self.session.status() {
            Status::Idle => {
                // A portal lives as long as the transaction that it was made in.
                self.portals.clear();
                TransactionStatus::Idle
            }
            Status::Open => TransactionStatus::Transaction,
            Status::Failed => TransactionStatus::Error,
        };
        self.session.note_idle();
        self.put_messages()?;
        self.writer.put(&PgWireBackendMessage::ReadyForQuery(ReadyForQuery::new(status)))?;
        self.writer.flush().await
    }

    /// Passes on what the session has to tell.
    pub(super) fn put_messages(&mut self) -> io::Result<()> {
        for message in self.session.take_messages() {
            match message {
                Message::Notice(notice) => self.writer.put(&notice_response(&notice))?,
                Message::Parameter(name, value) => {
                    let status = ParameterStatus::new(name.to_owned(), value);
                    self.writer.put(&PgWireBackendMessage::ParameterStatus(status))?;
                }
            }
        }
        Ok(())
    }

    /// Says that a statement is done.
    pub(super) fn complete(&mut self, tag: String) -> io::Result<()> {
        self.put_messages()?;
        self.writer.put(&PgWireBackendMessage::CommandComplete(CommandComplete::new(tag)))
    }

    /// Tells the columns of rows to come.
    pub(super) fn describe_rows(
        &mut self,
        schema: &arrow::datatypes::Schema,
        formats: &[Format],
    ) -> io::Result<()> {
        let description = row_description(schema.fields(), formats);
        self.writer.put(&PgWireBackendMessage::RowDescription(description))
    }

    /// The next batch of a result. While there is none, what was written so far is sent.
    pub(super) async fn next_batch(
        &mut self,
        rows: &mut ResultRows,
    ) -> io::Result<Result<Option<RecordBatch>, SessionError>> {
        let limits = self.session.limits().clone();
        let mut next = Box::pin(guard(limits.run(async { rows.stream.next().await.transpose() })));
        match next.as_mut().now_or_never() {
            Some(batch) => Ok(batch),
            None => {
                self.writer.flush().await?;
                Ok(next.await)
            }
        }
    }

    /// Sends all rows; returns how many.
    pub(super) async fn send_rows(
        &mut self,
        rows: &mut ResultRows,
        formats: &[Format],
    ) -> io::Result<Result<u64, SessionError>> {
        let zone = self.session.time_zone();
        let mut sent = 0;
        loop {
            let batch = match self.next_batch(rows).await? {
                Ok(Some(batch)) => batch,
                Ok(None) => return Ok(Ok(sent)),
                Err(error) => return Ok(Err(error)),
            };
            let encoder = match BatchEncoder::new(&batch, formats, &zone) {
                Ok(encoder) => encoder,
                Err(error) => return Ok(Err(crate::serve::ServeError::from(error).into())),
            };
            for row in 0..encoder.rows() {
                encoder.write_row(row, &mut self.writer.out);
                self.writer.flush_if_full().await?;
            }
            sent += encoder.rows() as u64;
        }
    }

    /// Sends what a statement of the simple protocol gave, up to its tag.
    pub(super) async fn send_outcome(
        &mut self,
        outcome: Outcome,
    ) -> io::Result<Result<String, SessionError>> {
        let Outcome::Rows(mut rows) = outcome else { return self.send_command(outcome).await };
        let formats = vec![Format::Text; rows.schema.fields().len()];
        self.describe_rows(&Arc::clone(&rows.schema), &formats)?;
        let sent = self.send_rows(&mut rows, &formats).await?;
        Ok(sent.map(|sent| rows.tag.after(sent)))
    }

    /// Sends what a statement without result columns gave, up to its tag.
    pub(super) async fn send_command(
        &mut self,
        outcome: Outcome,
    ) -> io::Result<Result<String, SessionError>> {
        match outcome {
            Outcome::Done(tag) => Ok(Ok(tag)),
            Outcome::CopyOut(rows, options) => self.copy_out(rows, &options).await,
            Outcome::CopyIn(copy) => self.copy_in(*copy).await,
            Outcome::Rows(mut rows) => {
                // Rows that nobody described are read and not sent.
                while let Ok(Some(_)) = self.next_batch(&mut rows).await? {}
                Ok(Ok(rows.tag.after(0)))
            }
        }
    }
}

/// Does `work`; a panic in it is an internal error, and the session lives.
pub(super) async fn guard<T>(work: impl Future<Output = Result<T, SessionError>>) -> Result<T, SessionError> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|panic| Err(internal(panic.as_ref())))
}

/// Does `work` that waits for nothing; a panic in it is an internal error.
pub(super) fn guard_now<T>(work: impl FnOnce() -> Result<T, SessionError>) -> Result<T, SessionError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(internal(panic.as_ref())))
}

fn internal(panic: &(dyn Any + Send)) -> SessionError {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    tracing::error!(panic = text, "statement panicked");
    SessionError::internal()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_error_of_its_statement() {
        let error = guard::<()>(async { panic!("a secret") }).await.unwrap_err();
        assert_eq!((error.fault().state.0, error.to_string().as_str()), ("XX000", "internal error"));
        let error = guard_now::<()>(|| panic!("{}", "another")).unwrap_err();
        assert_eq!(error.to_string(), "internal error");
    }
}
