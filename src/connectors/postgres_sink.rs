//! `connector = 'postgres'`: rows and the marker in one transaction of a PostgreSQL database.
//!
//! ```text
//!   BEGIN
//!     UPDATE weir_progress SET epoch, … WHERE sink AND generation AND the epoch that was read      fences
//!     COPY rows INTO a temporary table of the session        (append-only: into the table itself)
//!     DELETE … USING; INSERT … ON CONFLICT (key) DO UPDATE
//!   COMMIT
//! ```
//! The progress row is taken over at `open` by raising its generation: from then on the update of
//! an older server, or of a transaction of ours that was thought lost, finds no row.

use super::error::ConnectorError;
use super::options;
use super::postgres_check::Wanted;
use super::postgres_copy::CopyRows;
use super::registry::SinkContext;
use super::sink::{Delivery, Marker, Partial, SinkError, SinkTarget};
use crate::failpoint;
use crate::stream::Epoch;
use async_trait::async_trait;
use serde::Deserialize;
use std::str::FromStr;
use std::time::Duration;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error, NoTls, Transaction};
use tracing::debug;
use weir_catalog::connector::{self, ConnectorRole, ConnectorSpec, OptionSpec};
use weir_catalog::sink::{Sink, SinkType};

const NAME: &str = "postgres";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// What CREATE SINK may say.
pub const SPEC: ConnectorSpec = ConnectorSpec {
    name: NAME,
    role: ConnectorRole::Sink,
    options: &[
        OptionSpec {
            name: "jdbc.url",
            required: false,
            help: "jdbc:postgresql://host:port/db?user=…&password=…",
        },
        OptionSpec { name: "hostname", required: false, help: "Instead: the host." },
        OptionSpec { name: "port", required: false, help: "Its port. Default 5432." },
        OptionSpec { name: "username", required: false, help: "Who connects." },
        OptionSpec { name: "user", required: false, help: "Who connects." },
        OptionSpec { name: "password", required: false, help: "The password." },
        OptionSpec {
            name: "database.name",
            required: false,
            help: "The database. Default: the user's name.",
        },
        OptionSpec { name: "schema.name", required: false, help: "The table's schema. Default public." },
        OptionSpec { name: "table.name", required: true, help: "The table. It must exist." },
        OptionSpec {
            name: "commit_every",
            required: false,
            help: "Checkpoints that become one transaction, or as many seconds. Default 1.",
        },
    ],
    encodings: &[],
    delivery: connector::Delivery::ExactlyOnce,
    empties_target: true,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PostgresOptions {
    #[serde(rename = "jdbc.url")]
    url: Option<String>,
    hostname: Option<String>,
    port: Option<u16>,
    #[serde(alias = "user")]
    username: Option<String>,
    password: Option<String>,
    #[serde(rename = "database.name")]
    database: Option<String>,
    #[serde(rename = "schema.name")]
    schema: Option<String>,
    #[serde(rename = "table.name")]
    table: String,
    /// Read by the registry.
    #[serde(rename = "commit_every")]
    _commit_every: Option<usize>,
}

impl PostgresOptions {
    fn config(&self) -> Result<Config, ConnectorError> {
        let mut config = match &self.url {
            Some(url) => {
                let url = url.strip_prefix("jdbc:").unwrap_or(url);
                Config::from_str(url).map_err(|e| {
                    // The source says what; the error itself only that.
                    let reason =
                        std::error::Error::source(&e).map_or_else(|| e.to_string(), ToString::to_string);
                    options::invalid(NAME, "jdbc.url", reason)
                })?
            }
            None => Config::new(),
        };
        if self.hostname.is_none() && self.url.is_none() {
            return Err(ConnectorError::MissingOption { connector: NAME.into(), option: "hostname".into() });
        }
        if let Some(host) = &self.hostname {
            config.host(host);
        }
        if let Some(port) = self.port {
            config.port(port);
        }
        if let Some(user) = &self.username {
            config.user(user);
        }
        if let Some(password) = &self.password {
            config.password(password);
        }
        if let Some(database) = &self.database {
            config.dbname(database);
        }
        if config.get_ssl_mode() == SslMode::Require {
            let what = "encrypted connections (sslmode=require)".to_owned();
            return Err(ConnectorError::Unsupported { connector: NAME.into(), what });
        }
        config
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_user_timeout(Duration::from_secs(60))
            .application_name("weir");
        Ok(config)
    }
}

/// A table of a PostgreSQL database.
pub struct PostgresTarget {
    config: Config,
    wanted: Wanted,
    statements: Statements,
    upsert: bool,
    /// The name of the progress row.
    identity: String,
    /// The progress row of the sink whose rows are to go before ours come.
    replaces: Option<String>,
    generation: i64,

    session: Option<Session>,
}

/// A connection that has taken over the progress row.
struct Session {
    client: Client,
    /// The marker as the progress row has it.
    held: Held,
}

/// The columns of the progress row that make the marker.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Held {
    epoch: i64,
    until: Option<i64>,
    chunks: Option<i64>,
}

impl Held {
    fn of(marker: &Marker) -> Self {
        let partial = marker.partial.as_ref();
        Self {
            epoch: marker.epoch.0 as i64,
            until: partial.map(|p| p.until.0 as i64),
            chunks: partial.map(|p| i64::from(p.chunks)),
        }
    }

    /// Of a row that was just made.
    fn of_nothing() -> Self {
        Self { epoch: 0, until: None, chunks: None }
    }

    /// `None` for a row that was just made.
    fn marker(self, generation: u64) -> Option<Marker> {
        let partial = self.until.zip(self.chunks).map(|(until, chunks)| Partial {
            until: Epoch(until as u64),
            chunks: u32::try_from(chunks).unwrap_or(0),
        });
        (self.epoch > 0 || partial.is_some()).then_some(Marker {
            generation,
            epoch: Epoch(self.epoch as u64),
            partial,
        })
    }
}

impl PostgresTarget {
    /// From a declaration.
    pub fn open(sink: &Sink, context: &SinkContext<'_>) -> Result<Self, ConnectorError> {
        let read: PostgresOptions = options::read(NAME, &sink.options)?;
        let unsupported = |what: String| ConnectorError::Unsupported { connector: NAME.into(), what };
        if sink.sink_type == SinkType::Debezium {
            return Err(unsupported("type = 'debezium'".into()));
        }
        if !matches!(sink.format.encode.as_str(), "NATIVE" | "") {
            return Err(unsupported(format!("ENCODE {}", sink.format.encode)));
        }
        let upsert = sink.sink_type == SinkType::Upsert;
        let columns: Vec<String> = sink.columns.iter().map(|c| c.name.clone()).collect();
        let key: Vec<String> = match &sink.primary_key {
            Some(key) if upsert => key.iter().map(|k| columns[*k].clone()).collect(),
            _ => Vec::new(),
        };
        let schema = read.schema.as_deref().unwrap_or("public");
        let config = read.config()?;
        Ok(Self {
            statements: Statements::new(schema, &read.table, &columns, &key),
            wanted: Wanted {
                sink: context.name.to_owned(),
                place: place(&config),
                schema: schema.to_owned(),
                table: read.table,
                columns: sink.columns.clone(),
                key,
                empties: sink.replaces.is_some(),
            },
            config,
            upsert,
            identity: format!("{}/{}", context.database, context.id.0),
            replaces: sink.replaces.map(|id| format!("{}/{}", context.database, id.0)),
            generation: context.generation as i64,
            session: None,
        })
    }

    async fn connect(&self) -> Result<Client, Error> {
        let (client, connection) = self.config.connect(NoTls).await?;
        let identity = self.identity.clone();
        // Ends when the client is dropped.
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                debug!(sink = identity, %error, "connection ended");
            }
        });
        // A timestamp without a zone is one of UTC, here and there.
        client.batch_execute("SET TimeZone = 'UTC'").await?;
        Ok(client)
    }

    /// Does what `open` would do, and takes it back.
    async fn rehearse(&self, client: &mut Client) -> Result<(), Error> {
        let transaction = client.transaction().await?;
        transaction.batch_execute(&self.statements.create_progress).await?;
        transaction.query_opt(&self.statements.take_over, &[&self.identity, &self.generation]).await?;
        if self.upsert {
            transaction.batch_execute(&self.statements.create_stage).await?;
        }
        transaction.rollback().await
    }

    /// Takes over the progress row.
    async fn take_over(&self, client: &Client) -> Result<Held, SinkError> {
        client.batch_execute(&self.statements.create_progress).await.map_err(fault)?;
        let taken = client.query_opt(&self.statements.take_over, &[&self.identity, &self.generation]).await;
        match taken.map_err(fault)? {
            Some(row) => Ok(Held { epoch: row.get(0), until: row.get(1), chunks: row.get(2) }),
            None => Err(SinkError::Fatal(format!(
                "the progress row \"{}\" is of a newer generation than {}",
                self.identity, self.generation
            ))),
        }
    }

    /// Empties the table where another sink's rows are in it. Nothing of ours is there yet, so that
    /// a crash does no harm. Taking the other's progress row away ends what it may still have under
    /// way: its transaction is waited for, or finds no row.
    async fn empty(&self, client: &mut Client, other: &str) -> Result<(), SinkError> {
        let transaction = client.transaction().await.map_err(fault)?;
        transaction.execute(&self.statements.forget, &[&other]).await.map_err(fault)?;
        transaction.execute(&self.statements.empty, &[]).await.map_err(fault)?;
        transaction.commit().await.map_err(fault)
    }

    async fn write(&mut self, delivery: &Delivery) -> Result<(), SinkError> {
        let statements = &self.statements;
        let session = self.session.as_mut().ok_or_else(|| SinkError::Retry("not connected".into()))?;
        let (was, is) = (session.held, Held::of(&delivery.marker));
        let transaction = session.client.transaction().await.map_err(fault)?;
        let moved = transaction
            .execute(
                &statements.move_on,
                &[
                    &self.identity,
                    &self.generation,
                    &was.epoch,
                    &was.until,
                    &was.chunks,
                    &is.epoch,
                    &is.until,
                    &is.chunks,
                ],
            )
            .await
            .map_err(fault)?;
        if moved != 1 {
            // `open` tells which of the two it is.
            return Err(SinkError::Retry("the progress row was changed by somebody else".into()));
        }
        if delivery.batches.iter().any(|b| !b.is_empty()) {
            if self.upsert {
                copy(&transaction, &statements.copy_stage, delivery, true).await?;
                transaction.execute(&statements.delete, &[]).await.map_err(fault)?;
                transaction.execute(&statements.upsert, &[]).await.map_err(fault)?;
            } else {
                copy(&transaction, &statements.copy_rows, delivery, false).await?;
            }
        }
        let broken = |e: std::io::Error| SinkError::Retry(e.to_string());
        failpoint::hit("postgres_sink.before_commit").map_err(broken)?;
        transaction.commit().await.map_err(fault)?;
        failpoint::hit("postgres_sink.after_commit").map_err(broken)?;
        session.held = is;
        Ok(())
    }
}

async fn copy(
    transaction: &Transaction<'_>,
    statement: &str,
    delivery: &Delivery,
    deletions: bool,
) -> Result<(), SinkError> {
    use futures::SinkExt;
    let sink = transaction.copy_in(statement).await.map_err(fault)?;
    let mut sink = std::pin::pin!(sink);
    for batch in &delivery.batches {
        let rows = CopyRows::new(batch, deletions).map_err(|e| SinkError::Fatal(e.to_string()))?;
        for text in rows {
            sink.send(text).await.map_err(fault)?;
        }
    }
    sink.finish().await.map(drop).map_err(fault)
}

#[async_trait]
impl SinkTarget for PostgresTarget {
    async fn check(&mut self) -> Result<(), ConnectorError> {
        let mut client = self.connect().await.map_err(|e| self.wanted.refused(&e))?;
        self.wanted.check(&client).await?;
        self.rehearse(&mut client).await.map_err(|e| self.wanted.refused(&e))
    }

    async fn open(&mut self) -> Result<Option<Marker>, SinkError> {
        self.session = None;
        let mut client = self.connect().await.map_err(fault)?;
        self.wanted.check(&client).await?;
        let held = self.take_over(&client).await?;
        if let Some(other) = self.replaces.as_ref().filter(|_| held == Held::of_nothing()) {
            self.empty(&mut client, other).await?;
        }
        if self.upsert {
            client.batch_execute(&self.statements.create_stage).await.map_err(fault)?;
        }
        self.session = Some(Session { client, held });
        Ok(held.marker(self.generation as u64))
    }

    async fn deliver(&mut self, delivery: Delivery) -> Result<(), SinkError> {
        let outcome = self.write(&delivery).await;
        if outcome.is_err() {
            self.session = None;
        }
        outcome
    }
}

/// The advisory lock under which the progress table is made: "weir" in ASCII.
const PROGRESS_LOCK: i64 = 0x7765_6972;

/// The texts of all statements.
struct Statements {
    create_progress: String,
    take_over: String,
    move_on: String,
    forget: String,
    empty: String,
    create_stage: String,
    copy_stage: String,
    copy_rows: String,
    delete: String,
    upsert: String,
}

impl Statements {
    fn new(schema: &str, table: &str, columns: &[String], key: &[String]) -> Self {
        let progress = format!("{}.weir_progress", quoted(schema));
        let table = format!("{}.{}", quoted(schema), quoted(table));
        let list = |names: &[String]| names.iter().map(|n| quoted(n)).collect::<Vec<_>>().join(", ");
        let all = list(columns);
        let same = key.iter().map(|k| format!("t.{0} = s.{0}", quoted(k))).collect::<Vec<_>>().join(" AND ");
        let others: Vec<String> = columns
            .iter()
            .filter(|c| !key.contains(c))
            .map(|c| format!("{0} = EXCLUDED.{0}", quoted(c)))
            .collect();
        let action = if others.is_empty() {
            "NOTHING".to_owned()
        } else {
            format!("UPDATE SET {}", others.join(", "))
        };
        Self {
            create_progress: format!(
                // IF NOT EXISTS alone fails where two sessions create it at the same time.
                "SELECT pg_advisory_xact_lock({PROGRESS_LOCK}); \
                 CREATE TABLE IF NOT EXISTS {progress} (sink text PRIMARY KEY, generation bigint NOT NULL, \
                 epoch bigint NOT NULL, until bigint, chunks bigint)"
            ),
            take_over: format!(
                "INSERT INTO {progress} AS p (sink, generation, epoch) VALUES ($1, $2, 0) \
                 ON CONFLICT (sink) DO UPDATE SET generation = EXCLUDED.generation \
                 WHERE p.generation <= EXCLUDED.generation RETURNING epoch, until, chunks"
            ),
            move_on: format!(
                "UPDATE {progress} SET epoch = $6, until = $7, chunks = $8 WHERE sink = $1 AND generation = $2 \
                 AND epoch = $3 AND until IS NOT DISTINCT FROM $4 AND chunks IS NOT DISTINCT FROM $5"
            ),
            forget: format!("DELETE FROM {progress} WHERE sink = $1"),
            empty: format!("DELETE FROM {table}"),
            create_stage: format!(
                "CREATE TEMPORARY TABLE weir_stage ON COMMIT DELETE ROWS \
                 AS SELECT {all}, false AS weir_deleted FROM {table} LIMIT 0"
            ),
            copy_stage: format!("COPY weir_stage ({all}, weir_deleted) FROM STDIN"),
            copy_rows: format!("COPY {table} ({all}) FROM STDIN"),
            delete: format!("DELETE FROM {table} t USING weir_stage s WHERE s.weir_deleted AND {same}"),
            upsert: format!(
                "INSERT INTO {table} ({all}) SELECT {all} FROM weir_stage WHERE NOT weir_deleted \
                 ON CONFLICT ({}) DO {action}",
                list(key)
            ),
        }
    }
}

/// `host:port`.
fn place(config: &Config) -> String {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(host)) => host.clone(),
        Some(Host::Unix(path)) => path.display().to_string(),
        None => "localhost".to_owned(),
    };
    format!("{host}:{}", config.get_ports().first().copied().unwrap_or(5432))
}

/// A name as a statement spells it, reserved or not.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Whether it may pass by itself, or the target has to be changed: where the statement, the login or
/// a row can't work.
fn fault(error: Error) -> SinkError {
    let Some(reported) = error.as_db_error() else {
        let reason =
            std::error::Error::source(&error).map_or_else(|| error.to_string(), |s| format!("{error}: {s}"));
        return SinkError::Retry(reason);
    };
    let code = reported.code().code();
    // A rule's violation tells the row, and so does what COPY was doing.
    let particulars: Vec<&str> = [reported.detail(), reported.where_()].into_iter().flatten().collect();
    let particulars = match particulars.is_empty() {
        true => String::new(),
        false => format!(" ({})", particulars.join("; ").replace('\n', " ")),
    };
    let reason = format!("{code}: {}{particulars}", reported.message());
    // Two servers that create the progress table at once: one of them loses.
    let raced = matches!(*reported.code(), SqlState::DUPLICATE_TABLE | SqlState::DUPLICATE_OBJECT);
    match &code[..2] {
        "0A" | "21" | "22" | "23" | "28" | "3D" | "3F" | "42" | "44" | "P0" if !raced => {
            SinkError::Refused(reason)
        }
        _ => SinkError::Retry(reason),
    }
}

#[cfg(test)]
#[path = "tests/postgres_sink.rs"]
mod tests;
