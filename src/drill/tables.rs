//! What a table holds, as lines of COPY: of the sinks' PostgreSQL, or a view of a server.
//!
//! An append-only sink's table is seen to grow: a look copies the rows of transactions that were under way
//! at the last one, or came after it, and counts the others, which must be as many as they were.
//!
//! ```text
//!   rows by their transaction   ──────── settled ────────┃── seen, not settled ──┃── new ──>
//!                                counted, not copied     ┃ copied again          ┃ copied
//! ```

use super::DrillError;
use super::lines::{self, Ledger, LineHash, Lines};
use super::process::Process;
use futures::StreamExt;
use std::collections::HashMap;
use tokio_postgres::{Client, Config, NoTls};

/// A table of a PostgreSQL.
#[derive(Clone, Debug)]
pub struct Table {
    /// How it is reached.
    pub config: Box<Config>,
    /// The table, quoted.
    pub name: String,
}

impl Table {
    /// What it holds: `columns` of it, in their order.
    pub async fn read(&self, columns: &[String]) -> Result<Lines, DrillError> {
        let mut lines = Lines::default();
        let query = format!("SELECT {} FROM {}", quoted(columns), self.name);
        copy(&self.connect().await?, &query, &mut |line| lines.add(line)).await?;
        Ok(lines)
    }

    /// How many rows it has.
    pub async fn count(&self) -> Result<i64, DrillError> {
        let query = format!("SELECT count(*) FROM {}", self.name);
        let row = connect(&self.config).await?.query_one(&query, &[]).await;
        Ok(row.map_err(|e| failed(&query, &e))?.get(0))
    }

    async fn connect(&self) -> Result<Client, DrillError> {
        let client = connect(&self.config).await?;
        client.batch_execute("SET TimeZone = 'UTC'").await.map_err(|e| failed("SET TimeZone", &e))?;
        Ok(client)
    }
}

/// What a view of a server holds.
pub async fn of_view(process: &Process, view: &str) -> Result<Lines, DrillError> {
    let mut lines = Lines::default();
    let client = process.connect().await?;
    copy(&client, &format!("SELECT * FROM {view}"), &mut |line| lines.add(line)).await?;
    Ok(lines)
}

async fn copy(client: &Client, query: &str, take: &mut dyn FnMut(&[u8])) -> Result<(), DrillError> {
    let copy = client.copy_out(&format!("COPY ({query}) TO STDOUT")).await.map_err(|e| failed(query, &e))?;
    let mut copy = std::pin::pin!(copy);
    let mut rest = Vec::new();
    while let Some(bytes) = copy.next().await {
        rest.extend_from_slice(&bytes.map_err(|e| failed(query, &e))?);
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', &rest) {
            take(&rest[start..end]);
            start = end + 1;
        }
        rest.drain(..start);
    }
    Ok(())
}

fn quoted(columns: &[String]) -> String {
    let columns: Vec<String> = columns.iter().map(|c| format!("\"{}\"", c.replace('"', "\"\""))).collect();
    columns.join(", ")
}

/// An append-only sink's table, as it is seen to grow.
#[derive(Debug)]
pub struct TableWatch {
    table: Table,
    columns: Vec<String>,

    ledger: Ledger,
    /// Transactions before it were over at the last look, as text.
    settled_before: Option<String>,
    /// How many rows are theirs.
    settled: i64,
    /// The rows of the others.
    unsettled: Vec<LineHash>,
}

impl TableWatch {
    /// Nothing was seen so far.
    pub fn new(table: Table, columns: &[String]) -> Self {
        Self {
            table,
            columns: columns.to_vec(),
            ledger: Ledger::default(),
            settled_before: None,
            settled: 0,
            unsettled: Vec::new(),
        }
    }

    /// What is there.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Reads what is new. Returns how many rows that were there are there no more.
    pub async fn look(&mut self, expected: &Lines) -> Result<i64, DrillError> {
        let client = self.table.connect().await?;
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        client.batch_execute(begin).await.map_err(|e| failed(begin, &e))?;
        if self.is_as_it_was(&client).await? {
            return self.look_further(&client, expected).await;
        }
        let before = std::mem::take(&mut self.ledger);
        (self.settled_before, self.settled) = (None, 0);
        self.unsettled.clear();
        self.look_further(&client, expected).await?;
        Ok(self.ledger.lacks(&before))
    }

    /// Whether what was settled is still there, and no more.
    async fn is_as_it_was(&self, client: &Client) -> Result<bool, DrillError> {
        let Some(before) = &self.settled_before else { return Ok(true) };
        let query =
            format!("SELECT count(*) FROM {} WHERE age(xmin) > age('{before}'::xid)", self.table.name);
        let row = client.query_one(&query, &[]).await.map_err(|e| failed(&query, &e))?;
        Ok(row.get::<_, i64>(0) == self.settled)
    }

    async fn look_further(&mut self, client: &Client, expected: &Lines) -> Result<i64, DrillError> {
        let query = "SELECT pg_snapshot_xmin(pg_current_snapshot())::xid::text";
        let row = client.query_one(query, &[]).await.map_err(|e| failed(query, &e))?;
        let now: String = row.get(0);
        let unseen = match &self.settled_before {
            Some(before) => format!("WHERE age(xmin) <= age('{before}'::xid)"),
            None => String::new(),
        };
        let query = format!(
            "SELECT age(xmin) > age('{now}'::xid), {} FROM {} {unseen}",
            quoted(&self.columns),
            self.table.name
        );
        let mut gone: HashMap<LineHash, i64> = HashMap::new();
        for line in self.unsettled.drain(..) {
            self.ledger.take_back(line, expected);
            *gone.entry(line).or_default() += 1;
        }
        let (ledger, settled, unsettled) = (&mut self.ledger, &mut self.settled, &mut self.unsettled);
        copy(client, &query, &mut |line| {
            // The first column says whether it is settled: "t", and a tab.
            let (is_settled, line) = (line.starts_with(b"t"), line.get(2..).unwrap_or_default());
            let line = lines::hash(line);
            ledger.add(line, expected);
            gone.entry(line).and_modify(|n| *n -= 1);
            match is_settled {
                true => *settled += 1,
                false => unsettled.push(line),
            }
        })
        .await?;
        self.settled_before = Some(now);
        Ok(gone.values().map(|n| (*n).max(0)).sum())
    }
}

/// A connection to the sinks' PostgreSQL.
pub async fn connect(config: &Config) -> Result<Client, DrillError> {
    let (client, connection) =
        config.connect(NoTls).await.map_err(|e| failed("connect to PostgreSQL", &e))?;
    tokio::spawn(connection);
    Ok(client)
}

/// What a statement failed of.
pub fn failed(what: &str, error: &tokio_postgres::Error) -> DrillError {
    let reason = match error.as_db_error() {
        Some(said) => {
            let hint = said.hint().map_or_else(String::new, |hint| format!(" ({hint})"));
            format!("{}: {}{hint}", said.code().code(), said.message())
        }
        None => std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string),
    };
    DrillError::Server { what: what.to_owned(), reason }
}
