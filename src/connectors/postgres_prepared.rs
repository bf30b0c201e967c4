//! `connector = 'postgres'` with `commit_mode = 'two_phase'`: one prepared transaction for each actor and
//! epoch of a PostgreSQL database.
//!
//! ```text
//!   BEGIN
//!     SELECT FROM weir_progress WHERE sink AND generation FOR SHARE         fences: held until it is over
//!     INSERT INTO weir_progress (sink/actor, epoch) … WHERE epoch is lower  the actor's marker
//!     COPY rows                        append-only
//!     DELETE …; INSERT … ON CONFLICT   upsert: rows as arrays, since what has touched a temporary table
//!   PREPARE TRANSACTION 'weir:<database uuid>:<sink>:<generation>:<epoch>:<actor>'    can't be prepared
//!   COMMIT PREPARED …                  once the checkpoint is durable
//! ```
//! The sink's row is taken over by raising its generation, which waits for every transaction that is
//! fenced by a lower one: those are committed or rolled back first, and no more of them can begin.
//! Nobody else's lock is waited for longer than [`LOCK_TIMEOUT`].

use super::error::ConnectorError;
use super::postgres_options::{Declared, NAME};
use super::postgres_sink::copy;
use super::postgres_statements::{PreparedStatements, Statements, fault};
use super::sink::{FateOf, PreparedHeld, PreparedTarget, SinkError};
use super::transaction::{Fate, TransactionName};
use crate::formats::text::{plain_in_zone, write_text};
use crate::stream::{ChangeBatch, Epoch};
use arrow::array::{Array, ArrayRef};
use async_trait::async_trait;
use bytes::BytesMut;
use std::collections::{BTreeMap, HashMap};
use tokio_postgres::error::SqlState as PgState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error};
use weir_catalog::{ObjectId, SqlState};

/// How long a lock of somebody else's in the target is waited for.
const LOCK_TIMEOUT: &str = "5s";
/// Rows that are sent at a time.
const ROWS_MAX: usize = 4096;

/// A table of a PostgreSQL database, in two phases.
pub struct PreparedPostgres {
    declared: Declared,
    sink: ObjectId,
    /// The sink whose rows are to go before ours come.
    replaces: Option<ObjectId>,
    statements: Statements,

    session: Option<Session>,
}

struct Session {
    client: Client,
    statements: PreparedStatements,
    /// The generation of the sink's row when it was opened.
    generation: Option<i64>,
}

/// A value for each row, as text.
type Texts = Vec<Option<String>>;

impl PreparedPostgres {
    /// From a declaration.
    pub(super) fn new(declared: Declared, sink: ObjectId, replaces: Option<ObjectId>) -> Self {
        let wanted = &declared.wanted;
        let statements = Statements::new(&wanted.schema, &wanted.table, &declared.columns, &wanted.key);
        Self { declared, sink, replaces, statements, session: None }
    }

    fn session(&self) -> Result<&Session, SinkError> {
        self.session.as_ref().ok_or_else(|| SinkError::Retry("not connected".into()))
    }

    /// What was `tried`; after a failure the connection, and what is open on it, is given up.
    fn settled<T>(&mut self, tried: Result<T, SinkError>) -> Result<T, SinkError> {
        if tried.is_err() {
            self.session = None;
        }
        tried
    }

    async fn connect(&self) -> Result<Client, Error> {
        let client = self.declared.connect().await?;
        client.batch_execute(&format!("SET lock_timeout = '{LOCK_TIMEOUT}'")).await?;
        Ok(client)
    }

    /// Does what `open` would do, and takes it back.
    async fn rehearse(&self, client: &mut Client) -> Result<(), Error> {
        let transaction = client.transaction().await?;
        transaction.batch_execute(&self.statements.create_progress).await?;
        let (identity, generation) = (&self.declared.identity, self.declared.generation);
        transaction.query_opt(&self.statements.take_over, &[identity, &generation]).await?;
        transaction.rollback().await
    }

    async fn begin_fenced(&self, name: &TransactionName) -> Result<(), SinkError> {
        let Session { client, statements, .. } = self.session()?;
        client.batch_execute("BEGIN").await.map_err(fault)?;
        let (identity, generation) = (&self.declared.identity, self.declared.generation);
        let fenced = client.query_opt(&statements.fence, &[identity, &generation]).await.map_err(fault)?;
        if fenced.is_none() {
            // `open` tells who it is.
            return Err(SinkError::Retry("the progress row was taken over by another server".into()));
        }
        let (actor, epoch) = (format!("{identity}/{}", name.actor), name.epoch.0 as i64);
        let claimed =
            client.execute(&statements.claim, &[&actor, &generation, &epoch]).await.map_err(fault)?;
        match claimed {
            1 => Ok(()),
            _ => Err(SinkError::Retry(format!("epoch {} is in the target already", name.epoch))),
        }
    }

    async fn write_rows(&self, batches: &[ChangeBatch]) -> Result<(), SinkError> {
        let Session { client, statements, .. } = self.session()?;
        if !self.declared.upsert {
            let rows = client.copy_in(&self.statements.copy_rows).await.map_err(fault)?;
            return copy(rows, batches, false).await;
        }
        let key: Vec<usize> = (self.declared.wanted.key.iter())
            .filter_map(|k| self.declared.columns.iter().position(|c| c == k))
            .collect();
        let all: Vec<usize> = (0..self.declared.columns.len()).collect();
        // As a whole: a row that goes may be in the way of one that comes.
        for (sign, columns, statement) in [(-1, &key, &statements.delete), (1, &all, &statements.upsert)] {
            for batch in batches {
                let rows: Vec<usize> =
                    (0..batch.num_rows()).filter(|row| batch.diff(*row).signum() == sign).collect();
                for rows in rows.chunks(ROWS_MAX) {
                    let texts = texts(batch, columns, rows)?;
                    let parameters: Vec<&(dyn ToSql + Sync)> =
                        texts.iter().map(|texts| texts as &(dyn ToSql + Sync)).collect();
                    client.execute(statement, &parameters).await.map_err(fault)?;
                }
            }
        }
        Ok(())
    }

    /// Rolls back everything of a sink, takes its progress away, and so keeps it from preparing more.
    async fn forget_sink(&self, client: &Client, sink: ObjectId) -> Result<Vec<TransactionName>, SinkError> {
        let statements = self.prepared_statements(HashMap::new());
        let found = self.found(client, &statements, sink).await?;
        for name in &found {
            finish(client, name, false).await?;
        }
        let there = client.query_one(&statements.progress_exists, &[]).await.map_err(fault)?;
        if there.get(0) {
            let identity = format!("{}/{}", self.declared.database, sink);
            client.execute(&statements.forget, &[&identity]).await.map_err(fault)?;
        }
        match self.found(client, &statements, sink).await?.first() {
            Some(name) => Err(SinkError::Retry(format!("transaction \"{name}\" was prepared just now"))),
            None => Ok(found),
        }
    }

    async fn found(
        &self,
        client: &Client,
        statements: &PreparedStatements,
        sink: ObjectId,
    ) -> Result<Vec<TransactionName>, SinkError> {
        let prefix = TransactionName::prefix(&self.declared.database, sink);
        self.named(client, statements, &prefix).await
    }

    /// What is prepared under names that start so.
    async fn named(
        &self,
        client: &Client,
        statements: &PreparedStatements,
        prefix: &String,
    ) -> Result<Vec<TransactionName>, SinkError> {
        let rows = client.query(statements.found, &[prefix]).await.map_err(fault)?;
        Ok(rows.iter().filter_map(|row| row.get::<_, String>(0).parse().ok()).collect())
    }

    fn prepared_statements(&self, types: HashMap<String, String>) -> PreparedStatements {
        let wanted = &self.declared.wanted;
        PreparedStatements::new(&wanted.schema, &wanted.table, &self.declared.columns, &wanted.key, &types)
    }

    async fn held(&self, session: &Session) -> Result<(Option<i64>, BTreeMap<u32, Epoch>), SinkError> {
        let identity = &self.declared.identity;
        let rows = session.client.query(&session.statements.held, &[identity]).await.map_err(fault)?;
        let (mut generation, mut epochs) = (None, BTreeMap::new());
        for row in rows {
            let (name, of_row, epoch): (String, i64, i64) = (row.get(0), row.get(1), row.get(2));
            match name.strip_prefix(identity.as_str()).and_then(|rest| rest.strip_prefix('/')) {
                Some(actor) => {
                    if let Ok(actor) = actor.parse() {
                        epochs.insert(actor, Epoch(epoch as u64));
                    }
                }
                None => generation = Some(of_row),
            }
        }
        Ok((generation, epochs))
    }

    async fn look(&mut self) -> Result<PreparedHeld, SinkError> {
        let client = self.connect().await.map_err(fault)?;
        self.declared.wanted.check(&client).await?;
        client.batch_execute(&self.statements.create_progress).await.map_err(fault)?;
        let wanted = &self.declared.wanted;
        let relation =
            [&wanted.schema, &wanted.table].map(|n| super::postgres_statements::quoted(n)).join(".");
        let types = client.query(PreparedStatements::TYPES_OF, &[&relation]).await.map_err(fault)?;
        let types = types.iter().map(|row| (row.get(0), row.get(1))).collect();
        let statements = self.prepared_statements(types);
        let mut session = Session { client, statements, generation: None };
        let (generation, epochs) = self.held(&session).await?;
        if let Some(newer) = generation.filter(|generation| *generation > self.declared.generation) {
            return Err(SinkError::Fatal(format!(
                "the progress row \"{}\" is of generation {newer}, which is newer than {}",
                self.declared.identity, self.declared.generation
            )));
        }
        let transactions = self.found(&session.client, &session.statements, self.sink).await?;
        session.generation = generation;
        self.session = Some(session);
        Ok(PreparedHeld { epochs, transactions })
    }

    async fn raise(&mut self) -> Result<(), SinkError> {
        let session = self.session()?;
        let (identity, generation) = (&self.declared.identity, self.declared.generation);
        // Not where it is ours already: the row is locked by what is prepared.
        if session.generation != Some(generation) {
            let taken = session.client.query_opt(&self.statements.take_over, &[identity, &generation]).await;
            if taken.map_err(fault)?.is_none() {
                return Err(SinkError::Retry("the progress row was taken over by another server".into()));
            }
        }
        if let Some(other) = self.replaces
            && self.held(session).await?.1.is_empty()
        {
            // Nothing of ours is there yet, so that a crash does no harm.
            self.forget_sink(&session.client, other).await?;
            session.client.execute(&self.statements.empty, &[]).await.map_err(fault)?;
        }
        Ok(())
    }
}

#[async_trait]
impl PreparedTarget for PreparedPostgres {
    async fn check(&mut self) -> Result<(), ConnectorError> {
        let wanted = &self.declared.wanted;
        let refused = |e: Error| wanted.refused(&e);
        let mut client = self.connect().await.map_err(refused)?;
        if let Some(reason) = wanted.check(&client).await?
            && reason.contains("foreign table")
        {
            let what = format!("commit_mode = 'two_phase' here: {reason}");
            return Err(ConnectorError::Unsupported { connector: NAME.into(), what });
        }
        let row = client.query_one("SHOW max_prepared_transactions", &[]).await.map_err(refused)?;
        if row.get::<_, &str>(0) == "0" {
            let message = format!(
                "the target of sink \"{}\" at {} has no prepared transactions, which commit_mode = 'two_phase' needs",
                wanted.sink, wanted.place
            );
            let hint = "Over there: ALTER SYSTEM SET max_prepared_transactions = 64; then restart it. A sink needs \
                        as many as it has actors. Or use commit_mode = 'progress'.";
            return Err(wanted.error(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message, hint));
        }
        self.rehearse(&mut client).await.map_err(|e| self.declared.wanted.refused(&e))
    }

    async fn open(&mut self) -> Result<PreparedHeld, SinkError> {
        self.session = None;
        self.look().await
    }

    async fn take_over(&mut self) -> Result<(), SinkError> {
        let tried = self.raise().await;
        self.settled(tried)
    }

    async fn lower(&mut self, epoch: Epoch) -> Result<(), SinkError> {
        let identity = &self.declared.identity;
        let tried = match self.session() {
            Ok(Session { client, statements, .. }) => client
                .execute(&statements.lower, &[identity, &(epoch.0 as i64)])
                .await
                .map(drop)
                .map_err(fault),
            Err(error) => Err(error),
        };
        self.settled(tried)
    }

    async fn begin(&mut self, name: &TransactionName) -> Result<(), SinkError> {
        let tried = self.begin_fenced(name).await;
        self.settled(tried)
    }

    async fn write(&mut self, batches: &[ChangeBatch]) -> Result<(), SinkError> {
        let tried = self.write_rows(batches).await;
        self.settled(tried)
    }

    async fn prepare(&mut self, name: &TransactionName) -> Result<(), SinkError> {
        let statement = format!("PREPARE TRANSACTION '{name}'");
        let tried = match self.session() {
            Ok(session) => session.client.batch_execute(&statement).await.map_err(fault),
            Err(error) => Err(error),
        };
        self.settled(tried)
    }

    async fn finish(&mut self, name: &TransactionName, commit: bool) -> Result<(), SinkError> {
        let tried = match self.session() {
            Ok(session) => finish(&session.client, name, commit).await,
            Err(error) => Err(error),
        };
        self.settled(tried)
    }

    async fn finish_for_client(
        &mut self,
        name: &TransactionName,
        commit: bool,
    ) -> Result<(), ConnectorError> {
        let wanted = &self.declared.wanted;
        let client = self.connect().await.map_err(|e| wanted.refused(&e))?;
        client.batch_execute(&finishing(name, commit)).await.map_err(|e| wanted.refused(&e))
    }

    async fn forget(&mut self) -> Result<Vec<TransactionName>, SinkError> {
        let client = self.connect().await.map_err(fault)?;
        self.forget_sink(&client, self.sink).await
    }

    async fn sweep(&mut self, fate: &FateOf) -> Result<Vec<(TransactionName, Option<String>)>, SinkError> {
        let client = self.connect().await.map_err(fault)?;
        let statements = self.prepared_statements(HashMap::new());
        let prefix = TransactionName::prefix_of_database(&self.declared.database);
        let mut swept = Vec::new();
        for name in self.named(&client, &statements, &prefix).await? {
            let there_still = match fate(&name) {
                Fate::RollBack => finish(&client, &name, false).await.err().map(|error| error.to_string()),
                Fate::Stranger => Some("a server of a newer generation prepared it".to_owned()),
                Fate::Keep | Fate::Commit => continue,
            };
            swept.push((name, there_still));
        }
        Ok(swept)
    }
}

fn finishing(name: &TransactionName, commit: bool) -> String {
    format!("{} PREPARED '{name}'", if commit { "COMMIT" } else { "ROLLBACK" })
}

async fn finish(client: &Client, name: &TransactionName, commit: bool) -> Result<(), SinkError> {
    match client.batch_execute(&finishing(name, commit)).await {
        Err(error) if error.code() == Some(&PgState::UNDEFINED_OBJECT) && !commit => Ok(()),
        // It was committed, and the answer was lost; or somebody rolled it back: `open` tells which.
        Err(error) if error.code() == Some(&PgState::UNDEFINED_OBJECT) => {
            Err(SinkError::Retry(format!("transaction \"{name}\" is gone from the target")))
        }
        outcome => outcome.map_err(fault),
    }
}

/// The values of some rows, column by column.
fn texts(batch: &ChangeBatch, columns: &[usize], rows: &[usize]) -> Result<Vec<Texts>, SinkError> {
    let mut value = BytesMut::new();
    let mut of_column = |column: &ArrayRef| -> Texts {
        let text = |row: &usize| {
            (!column.is_null(*row)).then(|| {
                value.clear();
                write_text(column.as_ref(), *row, &mut value);
                String::from_utf8_lossy(&value).into_owned()
            })
        };
        rows.iter().map(text).collect()
    };
    let plain = |column: &usize| plain_in_zone(batch.column(*column), "+00:00");
    let plain = columns.iter().map(plain).collect::<Result<Vec<_>, _>>();
    Ok(plain.map_err(|e| SinkError::Fatal(e.to_string()))?.iter().map(&mut of_column).collect())
}

#[cfg(test)]
#[path = "tests/postgres_prepared.rs"]
mod tests;
