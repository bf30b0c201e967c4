//! What starting and running a server can fail of: whose fault, and whether to try again.

use crate::config::ConfigError;
use crate::job::manager::JobError;
use std::net::SocketAddr;
use weir_catalog::ClientError;

/// Why a server does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The user's; never: a setting is wrong.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// The user's; never.
    #[error(
        "refused to listen on {0}: without authentication only loopback addresses are allowed; \
         set auth.users (or the environment variable WEIR_AUTH_USERS) to name:password"
    )]
    NotLoopback(SocketAddr),
    /// The user's; never: what `tls.cert` and `tls.key` name can't be used.
    #[error("could not use {setting} = {path}: {reason}")]
    Tls {
        /// The setting.
        setting: &'static str,
        /// What it says.
        path: String,
        /// Why not.
        reason: String,
    },
    /// External; retry when the other has gone: a port is taken.
    #[error("could not listen on {address}: {reason}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        reason: std::io::Error,
    },
    /// As the job manager says: the data directory is in use, or damaged.
    #[error("{0}")]
    Database(#[from] JobError),
    /// The user's or external, as it says.
    #[error("{0}")]
    Drill(#[from] crate::drill::DrillError),
    /// External.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl ServerError {
    /// What to do.
    pub fn hint(&self) -> Option<String> {
        match self {
            ServerError::Config(error) => error.hint(),
            ServerError::Database(error) => error.hint(),
            _ => None,
        }
    }
}
