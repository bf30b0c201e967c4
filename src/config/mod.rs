//! Every setting: name, kind, default, scope, meaning. One table, from which follow `weir.toml`,
//! SET, ALTER DATABASE … SET, SHOW ALL, `pg_settings` and validation.
//!
//! Values are text, as SQL writes them; [`SettingSpec::normalize`] checks one and gives the
//! spelling that SHOW prints. [`Config`] holds what a server was started with, typed.

mod database;
mod kind;
mod storage;

use crate::units::{available_memory, distance, memory_size};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use weir_catalog::{ClientError, SqlState};

pub use crate::units::{TlsSettings, Users, format_bytes, format_duration, parse_bytes, parse_duration};
use database::or_cores;
pub use database::{DatabaseConfig, RestartSettings, RestartStrategy, StorageSettings};
use kind::POSTGRES_TIMEOUT;
pub use kind::{Kind, Off, Range};
pub use storage::{StorageScheme, StorageUrl};

/// Who may change a setting, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// At the server's start: command line, `weir.toml`.
    Server,
    /// ALTER DATABASE … SET; its default at the server's start.
    Database,
    /// SET; its default at the server's start.
    Session,
    /// Nobody: it tells what the server is.
    Internal,
}

/// A setting.
#[derive(Clone, Copy, Debug)]
pub struct SettingSpec {
    /// Its name, as SHOW ALL prints it.
    pub name: &'static str,
    /// What its text means.
    pub kind: Kind,
    /// Its value if nobody says otherwise.
    pub default: &'static str,
    /// Who may change it.
    pub scope: Scope,
    /// A sentence.
    pub help: &'static str,
}

const fn setting(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    scope: Scope,
    help: &'static str,
) -> SettingSpec {
    SettingSpec { name, kind, default, scope, help }
}

/// Stack of the threads that plan statements or evaluate expressions: what the parser lets through
/// needs 8 KiB a level at most, in a build without optimization; here is twice that.
pub const STACK_BYTES: usize = 24 << 20;

/// Every setting, in order of name.
#[rustfmt::skip]
pub const SETTINGS: &[SettingSpec] = &[
    setting("application_name", Kind::Text, "", Scope::Session, "The client's name for itself."),
    setting("auth.users", Kind::Users, "", Scope::Server, "Who may connect, as name:password, name:password; a password may be what PostgreSQL stores of one. None: everybody, from loopback only."),
    setting("background_ddl", Kind::Bool, "off", Scope::Session, "Whether CREATE returns before the new relation is filled."),
    setting("barrier.interval", Kind::Duration(Range { least: "1ms", most: "1h", off: Off::Never }), "100ms", Scope::Database, "The time between ticks: how fresh results are."),
    setting("bytea_output", Kind::Choice(&["hex", "escape"]), "hex", Scope::Session, "The text form of bytea."),
    setting("checkpoint.compression", Kind::Choice(&["zstd", "none"]), "zstd", Scope::Database, "How files are compressed on their way to checkpoint.storage; what is local stays as it is."),
    setting("checkpoint.interval", Kind::Duration(Range { least: "10ms", most: "1d", off: Off::Zero }), "1s", Scope::Database, "The time between checkpoints; 0 or off: only on demand."),
    setting("checkpoint.max_concurrent", Kind::Integer(1, 16), "1", Scope::Database, "How many checkpoints may be pending at once."),
    setting("checkpoint.max_retained", Kind::Integer(1, 1000), "3", Scope::Database, "How many completed checkpoints are kept."),
    setting("checkpoint.aligned_timeout", Kind::Duration(Range { least: "1ms", most: "1d", off: Off::Word }), "off", Scope::Database, "How long a checkpoint waits for its barrier to pass through full channels; then the barrier overtakes their rows, which become part of the checkpoint. off: it waits until checkpoint.timeout."),
    setting("checkpoint.min_pause", Kind::Duration(Range { least: "1ms", most: "1d", off: Off::Zero }), "0", Scope::Database, "The least time from one checkpoint's end to the next one's start."),
    setting("checkpoint.phase", Kind::DurationOrAuto(Range { least: "0", most: "1d", off: Off::Never }), "auto", Scope::Database, "Where in the interval, by the clock, checkpoints are triggered; auto: databases of one machine are spread over it."),
    setting("checkpoint.storage", Kind::StorageUrl, "local", Scope::Database, "Where checkpoints are kept: local (the data directory), or as well at a URL (s3://, gs://, az://, hdfs://, file://); credentials come from the environment."),
    setting("checkpoint.storage_retries", Kind::Integer(0, 100), "5", Scope::Database, "How often a request to checkpoint.storage is tried again, after growing pauses, before its checkpoint fails."),
    setting("checkpoint.take_over", Kind::Bool, "off", Scope::Server, "Whether a start goes on where another server, which has a copy of this data directory, has written to checkpoint.storage; that one is fenced off."),
    setting("checkpoint.timeout", Kind::Duration(Range { least: "100ms", most: "1d", off: Off::Never }), "10min", Scope::Database, "The age at which a pending checkpoint is aborted."),
    setting("checkpoint.tolerable_failures", Kind::Integer(0, 1000), "3", Scope::Database, "Failed checkpoints in a row before the dataflow restarts."),
    setting("checkpoint.transfers", Kind::Integer(1, 64), "8", Scope::Database, "Files that are uploaded to checkpoint.storage, or downloaded from there, at once."),
    setting("checkpoint.upload_limit", Kind::Bytes(Range { least: "64kB", most: "1TB", off: Off::Zero }), "0B", Scope::Database, "Bytes a second that go to checkpoint.storage at most; 0: no limit."),
    setting("client_encoding", Kind::Choice(&["UTF8"]), "UTF8", Scope::Session, "The client's character encoding."),
    setting("client_min_messages", Kind::Choice(&["debug5", "debug4", "debug3", "debug2", "debug1", "log", "notice", "warning", "error"]), "notice", Scope::Session, "The least severe messages that are sent to the client."),
    setting("data_dir", Kind::Text, "./weir-data", Scope::Server, "The directory that holds everything."),
    setting("DateStyle", Kind::DateStyle, "ISO, MDY", Scope::Session, "The text form of dates."),
    setting("default_table_access_method", Kind::Choice(&["heap"]), "heap", Scope::Session, "Accepted for compatibility."),
    setting("default_transaction_isolation", Kind::Choice(&["serializable", "repeatable read", "read committed", "read uncommitted"]), "read committed", Scope::Session, "Above read committed, all statements of a block read one epoch."),
    setting("default_transaction_read_only", Kind::Bool, "off", Scope::Session, "Whether transactions that don't say otherwise may only read."),
    setting("extra_float_digits", Kind::Integer(-15, 3), "1", Scope::Session, "Digits of floats in text; above 0: the shortest exact form."),
    setting("http", Kind::Address, "127.0.0.1:5691", Scope::Server, "The address of /healthz, /readyz and /metrics."),
    setting("idle_in_transaction_session_timeout", Kind::Duration(POSTGRES_TIMEOUT), "0", Scope::Session, "Accepted for compatibility."),
    setting("integer_datetimes", Kind::Bool, "on", Scope::Internal, "Timestamps are whole microseconds."),
    setting("IntervalStyle", Kind::Choice(&["postgres", "postgres_verbose", "sql_standard", "iso_8601"]), "postgres", Scope::Session, "The text form of intervals."),
    setting("is_superuser", Kind::Bool, "on", Scope::Internal, "Whether the user may do everything."),
    setting("lc_collate", Kind::Text, "C", Scope::Internal, "Text sorts by its bytes."),
    setting("lc_ctype", Kind::Text, "C.UTF-8", Scope::Internal, "How characters are classified."),
    setting("listen", Kind::Address, "127.0.0.1:4566", Scope::Server, "The address of the PostgreSQL protocol."),
    setting("lock_timeout", Kind::Duration(POSTGRES_TIMEOUT), "0", Scope::Session, "Accepted for compatibility; nothing is locked."),
    setting("log.filter", Kind::Text, "info", Scope::Server, "What is logged, as tracing's filters are written."),
    setting("max_identifier_length", Kind::Integer(63, 63), "63", Scope::Internal, "Bytes of a name that clients may count on."),
    setting("max_index_keys", Kind::Integer(32, 32), "32", Scope::Internal, "The most columns that a key or index has, as PostgreSQL's drivers ask."),
    setting("memory.limit", Kind::Memory(Range { least: "1MB", most: "1024TB", off: Off::Never }), "60%", Scope::Server, "Bytes that the process may use; a share is of the smaller of the machine's and the cgroup's memory."),
    setting("parallelism", Kind::Integer(0, 256), "0", Scope::Database, "Actors of a job's fragments, where ALTER … SET PARALLELISM says nothing else; 0: as many as there are cores. The server's start value is the number of workers, too."),
    setting("query.memory_limit", Kind::Memory(Range { least: "64kB", most: "1024TB", off: Off::Never }), "25%", Scope::Session, "Bytes that one query may hold; a share is of memory.limit."),
    setting("query.threads", Kind::Integer(0, 256), "0", Scope::Server, "Threads that a query is spread over, at a lower priority than the dataflow; 0: as many as there are cores."),
    setting("restart.attempts", Kind::Integer(0, 1_000_000), "10", Scope::Database, "Failures in a row (failure_rate: within its interval) after which the dataflow is left degraded; 0: never."),
    setting("restart.delay", Kind::Duration(Range { least: "1ms", most: "1h", off: Off::Never }), "100ms", Scope::Database, "The pause before a failed dataflow restarts; exponential_delay doubles it with each failure."),
    setting("restart.failure_rate_interval", Kind::Duration(Range { least: "1s", most: "30d", off: Off::Never }), "5min", Scope::Database, "The time within which the strategy failure_rate counts failures."),
    setting("restart.max_delay", Kind::Duration(Range { least: "1ms", most: "1d", off: Off::Never }), "10s", Scope::Database, "The longest pause before a failed dataflow restarts."),
    setting("restart.reset_after", Kind::Duration(Range { least: "1s", most: "30d", off: Off::Never }), "1min", Scope::Database, "The time without a failure after which failures are counted anew."),
    setting("restart.strategy", Kind::Choice(&["exponential_delay", "fixed_delay", "failure_rate"]), "exponential_delay", Scope::Database, "How soon and how often a failed dataflow restarts."),
    setting("row_security", Kind::Bool, "on", Scope::Session, "Accepted for compatibility."),
    setting("search_path", Kind::Text, "\"$user\", public", Scope::Session, "The schemas that unqualified names are looked up in."),
    setting("server_encoding", Kind::Text, "UTF8", Scope::Internal, "The encoding of stored text."),
    setting("server_version", Kind::Text, "15.0", Scope::Internal, "The PostgreSQL version whose protocol and catalogs are spoken."),
    setting("server_version_num", Kind::Integer(150000, 150000), "150000", Scope::Internal, "The same as a number."),
    setting("sink.log_limit", Kind::Bytes(Range { least: "64kB", most: "1024TB", off: Off::Never }), "10GB", Scope::Database, "Bytes that a sink whose target is down may leave in its log."),
    setting("standard_conforming_strings", Kind::Choice(&["on"]), "on", Scope::Session, "A backslash in '…' is a backslash."),
    setting("state.backend", Kind::Choice(&["rocksdb", "memory"]), "rocksdb", Scope::Server, "What holds the state: rocksdb, or memory for small state (each checkpoint writes all of it). A database moves from one to the other by a savepoint."),
    setting("statement_timeout", Kind::Duration(POSTGRES_TIMEOUT), "0", Scope::Session, "The time after which a statement is cancelled; 0: never."),
    setting("synchronous_commit", Kind::Choice(&["on", "off", "local", "remote_write", "remote_apply"]), "on", Scope::Session, "Accepted for compatibility; acknowledged is always durable."),
    setting("TimeZone", Kind::TimeZone, "UTC", Scope::Session, "The time zone of timestamptz in text."),
    setting("tls.cert", Kind::Text, "", Scope::Server, "A PEM file with the server's certificate, and those that vouch for it; clients may then encrypt."),
    setting("tls.key", Kind::Text, "", Scope::Server, "A PEM file with the certificate's private key."),
    setting("tls.required", Kind::Bool, "off", Scope::Server, "Whether clients that don't encrypt are refused."),
    setting("transaction_isolation", Kind::Choice(&["serializable", "repeatable read", "read committed", "read uncommitted"]), "read committed", Scope::Session, "Above read committed, all statements of a block read one epoch."),
    setting("transaction_read_only", Kind::Bool, "off", Scope::Session, "Whether the transaction may only read."),
];

/// The setting of this name, in any case.
pub fn find(name: &str) -> Result<&'static SettingSpec, ConfigError> {
    SETTINGS
        .iter()
        .find(|s| s.name.eq_ignore_ascii_case(name))
        .ok_or_else(|| ConfigError::Unknown { name: name.to_owned(), nearest: nearest(name) })
}

/// The setting whose name is most like `name`, if one is like it at all.
fn nearest(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let likeness = |s: &&SettingSpec| distance(&name, &s.name.to_ascii_lowercase());
    let best = SETTINGS.iter().min_by_key(likeness)?;
    (likeness(&best) <= 3).then_some(best.name)
}

/// What can be wrong with a setting.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum ConfigError {
    #[error("unrecognized configuration parameter \"{name}\"")]
    Unknown { name: String, nearest: Option<&'static str> },
    #[error("invalid value for parameter \"{name}\": \"{value}\"")]
    Invalid { name: &'static str, value: String, hint: Option<String> },
    #[error("parameter \"{name}\" requires a Boolean value")]
    NotBool { name: &'static str },
    #[error("{value} is outside the valid range for parameter \"{name}\" ({least} .. {most})")]
    OutOfRange { name: &'static str, value: String, least: String, most: String, hint: String },
    #[error("parameter \"{name}\" cannot be changed")]
    ReadOnly { name: &'static str },
    #[error("parameter \"{name}\" cannot be changed without restarting the server")]
    NeedsRestart { name: &'static str },
    #[error("parameter \"{name}\" belongs to the database")]
    BelongsToDatabase { name: &'static str },
    #[error("could not read \"{path}\": {reason}")]
    File { path: String, reason: String },
}

impl ClientError for ConfigError {
    fn sql_state(&self) -> SqlState {
        match self {
            ConfigError::Unknown { .. } => SqlState::UNDEFINED_OBJECT,
            ConfigError::Invalid { .. } | ConfigError::NotBool { .. } | ConfigError::OutOfRange { .. } => {
                SqlState::INVALID_PARAMETER_VALUE
            }
            ConfigError::ReadOnly { .. }
            | ConfigError::NeedsRestart { .. }
            | ConfigError::BelongsToDatabase { .. } => SqlState("55P02"),
            ConfigError::File { .. } => SqlState("F0000"),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            ConfigError::Unknown { nearest: Some(nearest), .. } => {
                Some(format!("Perhaps you meant \"{nearest}\"."))
            }
            ConfigError::Invalid { hint, .. } => hint.clone(),
            ConfigError::OutOfRange { hint, .. } => Some(hint.clone()),
            ConfigError::NotBool { .. } => Some("Write on or off.".to_owned()),
            ConfigError::NeedsRestart { name } => {
                Some(format!("Set \"{name}\" in weir.toml or on the command line."))
            }
            ConfigError::BelongsToDatabase { name } => {
                Some(format!("Use ALTER DATABASE dev SET {name} = '…'."))
            }
            _ => None,
        }
    }
}

/// Checks `SET name = value` of a session; gives the setting and the value as SHOW prints it.
pub fn check_session(name: &str, value: &str) -> Result<(&'static SettingSpec, String), ConfigError> {
    let spec = find(name)?;
    match spec.scope {
        Scope::Session => Ok((spec, spec.normalize(value)?)),
        Scope::Internal => Err(ConfigError::ReadOnly { name: spec.name }),
        Scope::Server => Err(ConfigError::NeedsRestart { name: spec.name }),
        Scope::Database => Err(ConfigError::BelongsToDatabase { name: spec.name }),
    }
}

/// Checks `ALTER DATABASE … SET name = value`; gives the setting and the value as SHOW prints it.
pub fn check_database(name: &str, value: &str) -> Result<(&'static SettingSpec, String), ConfigError> {
    let spec = find(name)?;
    match spec.scope {
        Scope::Database | Scope::Session => Ok((spec, spec.normalize(value)?)),
        Scope::Internal => Err(ConfigError::ReadOnly { name: spec.name }),
        Scope::Server => Err(ConfigError::NeedsRestart { name: spec.name }),
    }
}

/// What is shown instead of a secret.
const HIDDEN: &str = "********";

/// What a server was started with.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The directory that holds everything.
    pub data_dir: PathBuf,
    /// The address of the PostgreSQL protocol.
    pub listen: SocketAddr,
    /// The address of health and metrics.
    pub http: SocketAddr,
    /// Workers that run the dataflow, at least one.
    pub parallelism: usize,
    /// Bytes that the process may use.
    pub memory_limit: usize,
    /// Bytes that one query may hold.
    pub query_memory_limit: usize,
    /// Threads that run queries, at least one.
    pub query_threads: usize,
    /// Who may connect; nobody is asked if there are none.
    pub users: Users,
    /// Defaults of the databases' settings.
    pub database: DatabaseConfig,
    /// The URL of a savepoint that a new database is to be made of.
    pub restore: Option<String>,
    values: BTreeMap<&'static str, String>,
}

impl Config {
    /// A config of `values` (names in any case), the rest being defaults.
    pub fn new<'a>(values: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Config, ConfigError> {
        let mut all: BTreeMap<&'static str, String> =
            SETTINGS.iter().map(|s| Ok((s.name, s.normalize(s.default)?))).collect::<Result<_, _>>()?;
        for (name, value) in values {
            let spec = find(name)?;
            if spec.scope == Scope::Internal {
                return Err(ConfigError::ReadOnly { name: spec.name });
            }
            all.insert(spec.name, spec.normalize(value)?);
        }
        Ok(Self::from_values(all))
    }

    /// The settings in the TOML file at `path`, by dotted name.
    pub fn read_file(path: &Path) -> Result<BTreeMap<String, String>, ConfigError> {
        let failed = |reason: String| ConfigError::File { path: path.display().to_string(), reason };
        let text = std::fs::read_to_string(path).map_err(|e| failed(e.to_string()))?;
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| failed(e.message().to_owned()))?;
        let mut found = BTreeMap::new();
        flatten("", &table, &mut found);
        Ok(found)
    }

    fn from_values(mut values: BTreeMap<&'static str, String>) -> Config {
        let users = Users::parse(&values["auth.users"]).unwrap_or_default();
        if !users.is_empty() {
            values.insert("auth.users", HIDDEN.to_owned());
        }
        let number = |name| values[name].parse::<usize>().unwrap_or(0);
        let memory_limit = memory_size(&values["memory.limit"], available_memory());
        let address = |name| values[name].parse().unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0)));
        Config {
            data_dir: PathBuf::from(&values["data_dir"]),
            listen: address("listen"),
            http: address("http"),
            parallelism: or_cores(number("parallelism")),
            memory_limit,
            query_memory_limit: memory_size(&values["query.memory_limit"], memory_limit),
            query_threads: or_cores(number("query.threads")),
            users,
            database: DatabaseConfig::of(|name| values[name].clone()),
            restore: None,
            values,
        }
    }

    /// The value of a setting as the server was started, as SHOW prints it.
    pub fn value(&self, spec: &SettingSpec) -> &str {
        &self.values[spec.name]
    }

    /// `log.filter`
    pub fn log_filter(&self) -> &str {
        &self.values["log.filter"]
    }

    /// `checkpoint.take_over`
    pub fn take_over(&self) -> bool {
        self.values["checkpoint.take_over"] == "on"
    }

    /// `state.backend`
    pub fn state_backend(&self) -> &str {
        &self.values["state.backend"]
    }

    /// `tls.*`, if anything is said.
    pub fn tls(&self) -> Option<TlsSettings> {
        TlsSettings::of(|name| &self.values[name])
    }

    /// The settings of a database whose own are `settings` (`CatalogSnapshot::settings`).
    pub fn of_database(&self, settings: &BTreeMap<String, String>) -> DatabaseConfig {
        DatabaseConfig::of(|name| settings.get(name).unwrap_or(&self.values[name]).clone())
    }

    /// The bytes that `query.memory_limit = value` means.
    pub fn query_memory(&self, value: &str) -> usize {
        memory_size(value, self.memory_limit)
    }
}

fn flatten(prefix: &str, table: &toml::Table, found: &mut BTreeMap<String, String>) {
    for (key, value) in table {
        let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            toml::Value::Table(inner) => flatten(&name, inner, found),
            toml::Value::String(text) => drop(found.insert(name, text.clone())),
            other => drop(found.insert(name, other.to_string())),
        }
    }
}

#[cfg(test)]
#[path = "tests/config.rs"]
mod tests;
