//! Builds each part once, in journey order; owns the shutdown.
//!
//! ```text
//!   config ─> binding ─> Database::open (restores, replays) ─> ServeContext ─> sessions
//!                                                                  │              │
//!                                                        http listener    protocol listener
//! ```
//! Shutdown goes the other way: clients first, then a last checkpoint, then everything stops.

use crate::config::Config;
use crate::connectors::registry;
use crate::error::ServerError;
use crate::job::manager::Database;
use crate::serve::http::serve_http;
use crate::serve::{Binding, Connectors, ServeContext, SessionInfo};
use crate::session::SessionManager;
use crate::wire::{Encryption, serve_connections};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A server, before it runs.
pub struct Server;

/// A server that runs. Dropping it without [`RunningServer::shutdown`] is what a crash is to its
/// data directory.
pub struct RunningServer {
    /// Where clients connect.
    pub addr: SocketAddr,
    /// Where health and metrics are.
    pub http_addr: SocketAddr,
    serve: Arc<ServeContext>,
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts a server; returns when it answers. Port 0 takes a free one.
    pub async fn start(config: Config) -> Result<RunningServer, ServerError> {
        if !config.listen.ip().is_loopback() && config.users.is_empty() {
            return Err(ServerError::NotLoopback(config.listen));
        }
        let encryption = match config.tls() {
            Some(tls) => Some(Arc::new(Encryption::read(&tls)?)),
            None => None,
        };
        let config = Arc::new(config);
        let listener = listen(config.listen).await?;
        let http = listen(config.http).await?;
        let connectors =
            Connectors { specs: Arc::new(registry::specs()), columns: Arc::new(registry::connector_columns) };
        let binding = Binding::new(Arc::clone(&config), connectors.clone());
        let bind: crate::job::manager::Binding =
            Arc::new(move |catalog| binding.context(catalog, &stored_queries()));
        let db = Database::open(Arc::clone(&config), bind).await?;
        let serve = Arc::new(ServeContext::new(db, config)?.with_connectors(connectors));
        let sessions = SessionManager::new(Arc::clone(&serve));
        let stop = CancellationToken::new();
        let running = RunningServer {
            addr: listener.local_addr()?,
            http_addr: http.local_addr()?,
            serve: Arc::clone(&serve),
            stop: stop.clone(),
            tasks: vec![
                tokio::spawn(serve_connections(listener, sessions, encryption, stop.clone())),
                tokio::spawn(async move {
                    if let Err(error) = serve_http(http, serve, stop).await {
                        tracing::error!(%error, "health and metrics are not served any more");
                    }
                }),
            ],
        };
        Ok(running)
    }
}

/// As whom stored queries are bound: their names are looked up where CREATE looked.
fn stored_queries() -> SessionInfo {
    SessionInfo { search_path: vec![weir_catalog::name::DEFAULT_SCHEMA.to_owned()], ..SessionInfo::default() }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, ServerError> {
    TcpListener::bind(address).await.map_err(|reason| ServerError::Listen { address, reason })
}

impl RunningServer {
    /// The read path, for tests and embedding.
    pub fn serve(&self) -> &Arc<ServeContext> {
        &self.serve
    }

    /// Returns once another process may use the data directory. Then end the process: what is left of it
    /// promises nothing more, but what it still writes is in the other's way.
    pub async fn lost(&self) -> std::io::Error {
        self.serve.database().lost().await
    }

    /// Ends cleanly: clients are told, a last checkpoint is taken, everything stops.
    pub async fn shutdown(self) -> Result<(), ServerError> {
        self.stop.cancel();
        for task in self.tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a part of the server failed");
            }
        }
        Ok(self.serve.database().shutdown().await?)
    }
}
