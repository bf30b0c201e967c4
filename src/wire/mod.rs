//! The Postgres protocol, both ways: bytes of a socket to what a session does, and back.
//!
//! ```text
//!   socket ── negotiate ── link (frame) ──> startup ──> connection ──┬─ simple    Query
//!                                                                    └─ extended  Parse, Bind, …
//!   socket <── link <── encode (rows), report (errors, notices)
//! ```
//! In: PostgreSQL's protocol, 3.0 and 3.2. Out: the same.
//! **Invariants:** only this area names pgwire; results stream, whatever their size; a running
//! statement is stopped by CancelRequest, its timeout, a client that leaves and a server that goes
//! down; a panic in a statement is an error of the statement.

mod auth;
mod connection;
mod copy;
mod copy_binary;
pub mod encode;
mod extended;
mod frame;
mod link;
mod negotiate;
mod parameters;
mod report;
mod simple;
mod startup;
pub mod types;

pub use negotiate::Encryption;

use crate::session::SessionManager;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Statements that run when the server shuts down have so long to say goodbye.
const GOODBYE_MAX: Duration = Duration::from_secs(5);

/// Serves every client that connects, until `shutdown`; returns when all have left.
pub async fn serve_connections(
    listener: TcpListener,
    sessions: Arc<SessionManager>,
    encryption: Option<Arc<Encryption>>,
    shutdown: CancellationToken,
) {
    let mut tasks = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
            Some(_) = tasks.join_next() => continue,
        };
        match accepted {
            Ok((socket, _)) => {
                let (sessions, encryption) = (Arc::clone(&sessions), encryption.clone());
                tasks.spawn(connection::serve_connection(socket, sessions, encryption, shutdown.clone()));
            }
            Err(error) => {
                // Out of file descriptors, mostly: they come back as clients leave.
                tracing::warn!(%error, "connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    let all_left = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(GOODBYE_MAX, all_left).await.is_err() {
        tracing::warn!(connections = sessions.connections(), "connections left open at shutdown");
    }
}
