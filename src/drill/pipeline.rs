//! The drill's own pipelines, into files or into tables of a PostgreSQL.
//!
//! ```text
//!   bids      the bids of an auction site: each of them, and per auction
//!   windows   windows that watermarks close, joins of two streams, the best bids of each auction
//!   tables    tables that a client writes to, updates and deletes from; sinks of joins and aggregates
//! ```
//! A pipeline has a bit more than the kills need, so that it ends soon after the last.

use super::kills::{self, Kill};
use super::script::{OwnSchema, Script};
use super::{DrillConfig, DrillError};
use std::time::Duration;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the module's picture says what they are")]
pub enum Pipeline {
    Bids,
    Windows,
    Tables,
}

/// How the files of sinks are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the formats'")]
pub enum FileFormat {
    Json,
    Csv,
    Parquet,
    /// JSON; sinks that retract write each change.
    Debezium,
}

/// What a restart takes back of the stream, at least.
const REPLAYED: Duration = Duration::from_millis(300);
/// What is left of it when the last kill is through, at least.
const LEFT: Duration = Duration::from_secs(5);
/// Writes a second, while the server runs.
pub const WRITES_A_SECOND: u64 = 40;

/// How far the stream has come when the server was killed so often.
fn streamed(kills: &[Kill]) -> Duration {
    let replayed = u32::try_from(kills.len()).unwrap_or(u32::MAX);
    kills::running(kills).saturating_sub(REPLAYED * replayed) + LEFT
}

/// The drill's own pipeline, which is enough for `kills`.
pub fn own(config: &DrillConfig, kills: &[Kill]) -> Result<Script, DrillError> {
    let streamed = streamed(kills);
    let events = config.events.unwrap_or((config.rate as f64 * streamed.as_secs_f64()) as u64);
    let own = OwnPipeline { config, events };
    let rated = own.text(&format!(", rate = {}", config.rate));
    let mut script = Script::read(config, &rated, &own.text(""))?;
    if config.pipeline == Pipeline::Tables {
        let seconds = streamed.as_secs() + 1;
        let writes = config.events.unwrap_or(seconds * WRITES_A_SECOND);
        script.writes = (0..writes).map(write).collect();
    }
    if let Some(url) = &config.postgres {
        let config = url.parse::<tokio_postgres::Config>().map_err(|e| {
            let reason = std::error::Error::source(&e).map_or_else(|| e.to_string(), ToString::to_string);
            DrillError::Unfit(format!("--postgres is no URL of a PostgreSQL: {reason}"))
        })?;
        let tables = own.sinks().iter().map(|sink| sink.table()).collect::<Vec<_>>().join("; ");
        script.schema = Some(OwnSchema { config: Box::new(config), name: own.schema(), tables });
    }
    Ok(script)
}

/// A sink: its name, its query, its columns as PostgreSQL declares them, and the key of an upsert.
struct OwnSink {
    name: &'static str,
    query: &'static str,
    columns: &'static str,
    key: &'static str,
}

impl OwnSink {
    fn table(&self) -> String {
        let key = if self.key.is_empty() { String::new() } else { format!(", PRIMARY KEY ({})", self.key) };
        format!("CREATE TABLE {} ({}{key})", self.name, self.columns)
    }
}

const BIDS: &[OwnSink] = &[
    OwnSink {
        name: "bids",
        query: "SELECT auction, bidder, price, datetime FROM bid",
        columns: "auction bigint, bidder bigint, price bigint, datetime timestamp",
        key: "",
    },
    OwnSink {
        name: "per_auction",
        query: "SELECT auction, count(*) AS bids, sum(price) AS total FROM bid GROUP BY auction",
        columns: "auction bigint, bids bigint, total numeric",
        key: "auction",
    },
];

const WINDOWS: &[OwnSink] = &[
    OwnSink {
        name: "windows",
        query: "SELECT window_start, auction, bids, total FROM closed",
        columns: "window_start timestamp, auction bigint, bids bigint, total numeric",
        key: "",
    },
    OwnSink {
        name: "sold",
        query: "SELECT b.auction, a.category, b.bidder, b.price, b.date_time \
                FROM bid b JOIN auction a ON b.auction = a.id WHERE b.price > 100000",
        columns: "auction bigint, category bigint, bidder bigint, price bigint, date_time timestamp",
        key: "",
    },
    OwnSink {
        name: "best",
        query: "SELECT auction, rank, bidder, price FROM (SELECT auction, bidder, price, row_number() OVER \
                (PARTITION BY auction ORDER BY price DESC, date_time) AS rank FROM bid) ranked WHERE rank <= 3",
        columns: "auction bigint, rank bigint, bidder bigint, price bigint",
        key: "auction, rank",
    },
];

const TABLES: &[OwnSink] = &[
    OwnSink {
        name: "accounts",
        query: "SELECT a.id, a.region, a.name, b.transfers, b.total FROM account a JOIN balance b ON b.account = a.id",
        columns: "id bigint, region bigint, name text, transfers bigint, total numeric",
        key: "id",
    },
    OwnSink {
        name: "regions",
        query: "SELECT a.region, count(*) AS transfers, sum(t.amount) AS total \
                FROM transfer t JOIN account a ON a.id = t.account GROUP BY a.region",
        columns: "region bigint, transfers bigint, total numeric",
        key: "region",
    },
    OwnSink {
        name: "transfers",
        query: "SELECT id, account, amount FROM transfer",
        columns: "id bigint, account bigint, amount bigint",
        key: "id",
    },
];

/// Accounts of the tables pipeline.
const ACCOUNTS: u64 = 500;

/// Write number `n`: one that may be executed twice.
fn write(n: u64) -> String {
    let (account, amount) = (n * 7919 % ACCOUNTS, n * 31 % 1000);
    let transfers = format!(
        "INSERT INTO transfer VALUES ({}, {account}, {amount}), ({}, {}, -{amount})",
        2 * n,
        2 * n + 1,
        (account + 1) % ACCOUNTS
    );
    let opened = format!("INSERT INTO account VALUES ({account}, {}, 'account {n}')", n % 7);
    match n % 10 {
        0 | 5 => format!("BEGIN; {opened}; {transfers}; COMMIT"),
        3 => format!("UPDATE account SET region = {} WHERE id % 50 = {}", n % 11, n % 50),
        6 => format!("DELETE FROM transfer WHERE id % 97 = {} AND id < {}", n % 97, n),
        8 => format!("UPDATE transfer SET amount = {amount} WHERE account = {account}"),
        _ => transfers,
    }
}

struct OwnPipeline<'a> {
    config: &'a DrillConfig,
    events: u64,
}

impl OwnPipeline<'_> {
    /// A schema that is only this drill's.
    fn schema(&self) -> String {
        format!("weir_drill_{}_{}", self.config.seed, std::process::id())
    }

    fn sinks(&self) -> &'static [OwnSink] {
        match self.config.pipeline {
            Pipeline::Bids => BIDS,
            Pipeline::Windows => WINDOWS,
            Pipeline::Tables => TABLES,
        }
    }

    fn text(&self, rate: &str) -> String {
        let nexmark = |kind: &str| {
            format!("connector = 'nexmark', nexmark.table.type = '{kind}', events = {}{rate}", self.events)
        };
        let mut text = match self.config.pipeline {
            Pipeline::Bids => format!("CREATE SOURCE bid WITH ({});", nexmark("Bid")),
            Pipeline::Windows => format!(
                "CREATE SOURCE bid (auction bigint, bidder bigint, price bigint, channel varchar, url varchar, \
                   date_time timestamp, extra varchar, WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
                   WITH ({});
                 CREATE SOURCE auction WITH ({});
                 CREATE MATERIALIZED VIEW closed AS
                   SELECT window_start, auction, count(*) AS bids, sum(price) AS total
                   FROM TUMBLE(bid, date_time, INTERVAL '10 seconds') GROUP BY window_start, auction
                   EMIT ON WINDOW CLOSE;",
                nexmark("Bid"),
                nexmark("Auction")
            ),
            Pipeline::Tables => "
                CREATE TABLE account (id bigint PRIMARY KEY, region bigint, name varchar) ON CONFLICT DO UPDATE FULL;
                CREATE TABLE transfer (id bigint PRIMARY KEY, account bigint, amount bigint) ON CONFLICT DO UPDATE FULL;
                CREATE MATERIALIZED VIEW balance AS
                  SELECT account, count(*) AS transfers, sum(amount) AS total FROM transfer GROUP BY account;"
                .to_owned(),
        };
        for sink in self.sinks() {
            text.push_str(&self.sink(sink));
        }
        text
    }

    fn sink(&self, sink: &OwnSink) -> String {
        let quoted = |text: &str| text.replace('\'', "''");
        let (target, format) = match &self.config.postgres {
            Some(url) => {
                let mode = if self.config.two_phase { "two_phase" } else { "progress" };
                let target = format!(
                    "connector = 'postgres', jdbc.url = 'jdbc:{}', schema.name = '{}', table.name = '{}', \
                     commit_mode = '{mode}'",
                    quoted(url),
                    self.schema(),
                    sink.name
                );
                (target, "")
            }
            None => {
                let dir = self.config.dir.join("files").join(sink.name);
                let path = quoted(&dir.display().to_string());
                (format!("connector = 'file', path = '{path}', commit_every = 1"), self.format())
            }
        };
        let kind = match (sink.key, self.config.format) {
            ("", _) => "type = 'append-only'".to_owned(),
            (key, FileFormat::Debezium) => format!("type = 'debezium', primary_key = '{key}'"),
            (key, _) => format!("type = 'upsert', primary_key = '{key}'"),
        };
        format!("CREATE SINK {} AS {} WITH ({target}, {kind}) {format};", sink.name, sink.query)
    }

    fn format(&self) -> &'static str {
        match self.config.format {
            FileFormat::Json | FileFormat::Debezium => "FORMAT PLAIN ENCODE JSON",
            FileFormat::Csv => "FORMAT PLAIN ENCODE CSV (header = true)",
            FileFormat::Parquet => "FORMAT PLAIN ENCODE PARQUET",
        }
    }
}

#[cfg(test)]
#[path = "tests/pipeline.rs"]
mod tests;
