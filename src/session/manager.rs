//! All sessions of a server: numbers, secrets, and the background work that they left.

use super::Session;
use super::limits::{CancelSlot, Stop};
use crate::serve::ServeContext;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// The database that a new server has.
pub const DEFAULT_DATABASE: &str = "dev";

/// More connections than this are refused (53300).
const CONNECTIONS_MAX: usize = 1000;

/// The sessions of one server.
pub struct SessionManager {
    serve: Arc<ServeContext>,
    database: String,

    next_pid: AtomicI32,
    connections: Mutex<HashMap<i32, Connection>>,
    /// CREATEs that run in the background.
    background: AtomicUsize,
}

struct Connection {
    secret: Vec<u8>,
    slot: Arc<CancelSlot>,
}

/// A session's place among the others; given back when dropped.
pub struct Seat {
    manager: Arc<SessionManager>,
    /// The number that the client knows it by.
    pub pid: i32,
    /// What CancelRequest has to say.
    pub secret: Vec<u8>,
    /// Where its statement is stopped.
    pub slot: Arc<CancelSlot>,
}

impl SessionManager {
    /// For sessions on `serve`'s database.
    pub fn new(serve: Arc<ServeContext>) -> Arc<Self> {
        Arc::new(Self {
            serve,
            database: DEFAULT_DATABASE.to_owned(),
            next_pid: AtomicI32::new(1),
            connections: Mutex::default(),
            background: AtomicUsize::new(0),
        })
    }

    /// The read path.
    pub fn serve(&self) -> &Arc<ServeContext> {
        &self.serve
    }

    /// The database's name.
    pub fn database_name(&self) -> &str {
        &self.database
    }

    /// How many are connected.
    pub fn connections(&self) -> usize {
        self.connections.lock().len()
    }

    /// Takes a place, with a secret of `secret_len` bytes; `None`: there is none left.
    pub fn seat(self: &Arc<Self>, secret_len: usize) -> Option<Seat> {
        let mut connections = self.connections.lock();
        if connections.len() >= CONNECTIONS_MAX {
            return None;
        }
        let pid = self.next_pid.fetch_add(1, Ordering::Relaxed);
        let secret: Vec<u8> = (0..secret_len).map(|_| rand::random()).collect();
        let slot = Arc::new(CancelSlot::default());
        connections.insert(pid, Connection { secret: secret.clone(), slot: Arc::clone(&slot) });
        Some(Seat { manager: Arc::clone(self), pid, secret, slot })
    }

    /// CancelRequest: stops the statement of connection `pid`, if the secret is right.
    pub fn cancel(&self, pid: i32, secret: &[u8]) {
        if let Some(connection) = self.connections.lock().get(&pid)
            && connection.secret == secret
        {
            connection.slot.stop(Stop::User);
        }
    }

    /// Whether a CREATE runs in the background.
    pub fn has_background(&self) -> bool {
        self.background.load(Ordering::Acquire) > 0
    }

    /// Counts a CREATE in the background until the guard is dropped.
    pub(super) fn start_background(self: &Arc<Self>) -> BackgroundGuard {
        self.background.fetch_add(1, Ordering::AcqRel);
        BackgroundGuard(Arc::clone(self))
    }
}

/// Counts one CREATE in the background.
pub(super) struct BackgroundGuard(Arc<SessionManager>);

impl Drop for BackgroundGuard {
    fn drop(&mut self) {
        self.0.background.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Seat {
    /// The session of this place.
    pub fn session(&self, user: String) -> Session {
        Session::new(&self.manager, user, self.pid, Arc::clone(&self.slot))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.manager.connections.lock().remove(&self.pid);
        self.manager.serve.sessions().remove(self.pid);
    }
}
