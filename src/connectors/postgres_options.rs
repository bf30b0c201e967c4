//! What a `postgres` sink may say, and how its target is connected to.

use super::error::ConnectorError;
use super::options;
use super::postgres_check::Wanted;
use super::postgres_statements::quoted;
use super::registry::SinkContext;
use serde::Deserialize;
use std::str::FromStr;
use std::time::Duration;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config, Error, NoTls};
use tracing::debug;
use weir_catalog::connector::{ConnectorRole, ConnectorSpec, Contract, OptionSpec};
use weir_catalog::sink::{Sink, SinkType};
use weir_catalog::source::Options;

/// The connector's name.
pub(super) const NAME: &str = "postgres";
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
        OptionSpec {
            name: "commit_mode",
            required: false,
            help: "progress (the default): rows and a progress row in one transaction; two_phase: a prepared \
                   transaction for each actor, which the checkpoint commits.",
        },
    ],
    encodings: &[],
    contract: Contract::Transactional,
    why: "rows and the progress row are written in one transaction",
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
    /// Read by the registry, too.
    commit_every: Option<usize>,
    #[serde(default)]
    commit_mode: CommitMode,
}

/// How rows and the record of what is there get in together.
#[derive(Clone, Copy, Default, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum CommitMode {
    #[default]
    Progress,
    TwoPhase,
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

/// How the target of a sink with these options is reached, and its table as statements spell it.
pub fn reached(options: &Options) -> Result<(Config, String), ConnectorError> {
    let read: PostgresOptions = options::read(NAME, options)?;
    let schema = read.schema.as_deref().unwrap_or("public");
    Ok((read.config()?, format!("{}.{}", quoted(schema), quoted(&read.table))))
}

/// A sink as declared.
pub(super) struct Declared {
    pub config: Config,
    pub wanted: Wanted,
    pub upsert: bool,
    pub two_phase: bool,
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The database's uuid.
    pub database: String,
    /// The name of the progress row.
    pub identity: String,
    pub generation: i64,
}

impl Declared {
    pub fn read(sink: &Sink, context: &SinkContext<'_>) -> Result<Self, ConnectorError> {
        let read: PostgresOptions = options::read(NAME, &sink.options)?;
        let unsupported = |what: String| ConnectorError::Unsupported { connector: NAME.into(), what };
        if sink.sink_type == SinkType::Debezium {
            return Err(unsupported("type = 'debezium'".into()));
        }
        if !matches!(sink.format.encode.as_str(), "NATIVE" | "") {
            return Err(unsupported(format!("ENCODE {}", sink.format.encode)));
        }
        let two_phase = read.commit_mode == CommitMode::TwoPhase;
        // Of several epochs at once two actors might have had the same key, one after the other, if their number
        // changed in between: the transaction of one would wait for the other's, which waits for it to be prepared.
        if two_phase && read.commit_every.is_some_and(|every| every != 1) {
            let reason = "with commit_mode = 'two_phase' each checkpoint is committed by itself; make them rarer with \
                          checkpoint.interval, or use commit_mode = 'progress'"
                .to_owned();
            return Err(options::invalid(NAME, "commit_every", reason));
        }
        let upsert = sink.sink_type == SinkType::Upsert;
        let columns: Vec<String> = sink.columns.iter().map(|c| c.name.clone()).collect();
        let key: Vec<String> = match &sink.primary_key {
            Some(key) if upsert => key.iter().map(|k| columns[*k].clone()).collect(),
            _ => Vec::new(),
        };
        let config = read.config()?;
        Ok(Self {
            wanted: Wanted {
                sink: context.name.to_owned(),
                place: place(&config),
                schema: read.schema.unwrap_or_else(|| "public".to_owned()),
                table: read.table,
                columns: sink.columns.clone(),
                key,
                empties: sink.replaces.is_some(),
            },
            config,
            upsert,
            two_phase,
            columns,
            database: context.database.to_owned(),
            identity: format!("{}/{}", context.database, context.id.0),
            generation: context.generation as i64,
        })
    }

    /// A connection, on which what is committed is durable and times are UTC, here and there.
    pub async fn connect(&self) -> Result<Client, Error> {
        let (client, connection) = self.config.connect(NoTls).await?;
        let identity = self.identity.clone();
        // Ends when the client is dropped.
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                debug!(sink = identity, %error, "connection ended");
            }
        });
        client.batch_execute(SESSION).await?;
        Ok(client)
    }
}

/// A commit that is acknowledged is one that the target keeps: the log forgets it.
const SESSION: &str = "SET TimeZone = 'UTC'; SELECT set_config('synchronous_commit', 'on', false) \
     WHERE current_setting('synchronous_commit') = 'off'";

/// `host:port`.
fn place(config: &Config) -> String {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(host)) => host.clone(),
        Some(Host::Unix(path)) => path.display().to_string(),
        None => "localhost".to_owned(),
    };
    format!("{host}:{}", config.get_ports().first().copied().unwrap_or(5432))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_checked() {
        let base = |options: &[(&str, &str)]| -> Result<(), ConnectorError> {
            let options = options.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
            options::read::<PostgresOptions>(NAME, &options)?.config().map(drop)
        };
        let message = |options: &[(&str, &str)]| base(options).unwrap_err().to_string();
        assert_eq!(message(&[("hostname", "h")]), "connector \"postgres\" needs option \"table.name\"");
        assert_eq!(message(&[("table.name", "t")]), "connector \"postgres\" needs option \"hostname\"");
        assert!(
            message(&[("table.name", "t"), ("jdbc.url", "jdbc:oracle:x")]).contains("option \"jdbc.url\"")
        );
        assert_eq!(
            base(&[("table.name", "t"), ("hostname", "h"), ("port", "1"), ("user", "u"), ("password", "p")]),
            Ok(())
        );
    }
}
