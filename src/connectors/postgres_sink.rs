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
use super::postgres_copy::CopyRows;
use super::postgres_options::Declared;
use super::postgres_prepared::PreparedPostgres;
use super::postgres_statements::{Statements, fault};
use super::registry::SinkContext;
use super::sink::{Delivery, Marker, Partial, PreparedTarget, SinkError, SinkTarget, Target};
use crate::failpoint;
use crate::stream::{ChangeBatch, Epoch};
use async_trait::async_trait;
use bytes::Bytes;
use futures::SinkExt;
use tokio_postgres::{Client, CopyInSink, Error};
use weir_catalog::ObjectId;
use weir_catalog::sink::Sink;

/// A table of a PostgreSQL database.
pub struct PostgresTarget {
    declared: Declared,
    statements: Statements,
    /// The progress row of the sink whose rows are to go before ours come.
    replaces: Option<String>,

    /// Why the table can't take each change exactly once, if it can't.
    degraded: Option<String>,
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

/// The target of a sink as declared.
pub fn open(sink: &Sink, context: &SinkContext<'_>) -> Result<Target, ConnectorError> {
    let declared = Declared::read(sink, context)?;
    let replaces = sink.replaces;
    Ok(match declared.two_phase {
        true => Target::Prepared(Box::new(PreparedPostgres::new(declared, context.id, replaces))),
        false => Target::Logged(Box::new(PostgresTarget::new(declared, replaces))),
    })
}

/// The same as one that prepares, whatever its own style: another sink may have prepared something there.
pub fn open_prepared(
    sink: &Sink,
    context: &SinkContext<'_>,
) -> Result<Box<dyn PreparedTarget>, ConnectorError> {
    Ok(Box::new(PreparedPostgres::new(Declared::read(sink, context)?, context.id, None)))
}

impl PostgresTarget {
    /// From a declaration.
    fn new(declared: Declared, replaces: Option<ObjectId>) -> Self {
        let wanted = &declared.wanted;
        Self {
            statements: Statements::new(&wanted.schema, &wanted.table, &declared.columns, &wanted.key),
            replaces: replaces.map(|id| format!("{}/{}", declared.database, id.0)),
            declared,
            degraded: None,
            session: None,
        }
    }

    /// Does what `open` would do, and takes it back.
    async fn rehearse(&self, client: &mut Client) -> Result<(), Error> {
        let transaction = client.transaction().await?;
        transaction.batch_execute(&self.statements.create_progress).await?;
        transaction
            .query_opt(&self.statements.take_over, &[&self.declared.identity, &self.declared.generation])
            .await?;
        if self.declared.upsert {
            transaction.batch_execute(&self.statements.create_stage).await?;
        }
        transaction.rollback().await
    }

    /// Takes over the progress row.
    async fn take_over(&self, client: &Client) -> Result<Held, SinkError> {
        client.batch_execute(&self.statements.create_progress).await.map_err(fault)?;
        let taken = client
            .query_opt(&self.statements.take_over, &[&self.declared.identity, &self.declared.generation])
            .await;
        match taken.map_err(fault)? {
            Some(row) => Ok(Held { epoch: row.get(0), until: row.get(1), chunks: row.get(2) }),
            None => Err(SinkError::Fatal(format!(
                "the progress row \"{}\" is of a newer generation than {}",
                self.declared.identity, self.declared.generation
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
                    &self.declared.identity,
                    &self.declared.generation,
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
            if self.declared.upsert {
                let stage = transaction.copy_in(&statements.copy_stage).await.map_err(fault)?;
                copy(stage, &delivery.batches, true).await?;
                transaction.execute(&statements.delete, &[]).await.map_err(fault)?;
                transaction.execute(&statements.upsert, &[]).await.map_err(fault)?;
            } else {
                let rows = transaction.copy_in(&statements.copy_rows).await.map_err(fault)?;
                copy(rows, &delivery.batches, false).await?;
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

/// Sends rows by a COPY statement, within the transaction of `copying`.
pub(super) async fn copy(
    copying: CopyInSink<Bytes>,
    batches: &[ChangeBatch],
    deletions: bool,
) -> Result<(), SinkError> {
    let mut sink = std::pin::pin!(copying);
    for batch in batches {
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
        let mut client = self.declared.connect().await.map_err(|e| self.declared.wanted.refused(&e))?;
        self.degraded = self.declared.wanted.check(&client).await?;
        self.rehearse(&mut client).await.map_err(|e| self.declared.wanted.refused(&e))
    }

    fn degraded(&self) -> Option<String> {
        self.degraded.clone()
    }

    async fn open(&mut self) -> Result<Option<Marker>, SinkError> {
        self.session = None;
        let mut client = self.declared.connect().await.map_err(fault)?;
        self.degraded = self.declared.wanted.check(&client).await?;
        let held = self.take_over(&client).await?;
        if let Some(other) = self.replaces.as_ref().filter(|_| held == Held::of_nothing()) {
            self.empty(&mut client, other).await?;
        }
        if self.declared.upsert {
            client.batch_execute(&self.statements.create_stage).await.map_err(fault)?;
        }
        self.session = Some(Session { client, held });
        Ok(held.marker(self.declared.generation as u64))
    }

    async fn deliver(&mut self, delivery: Delivery) -> Result<(), SinkError> {
        let outcome = self.write(&delivery).await;
        if outcome.is_err() {
            self.session = None;
        }
        outcome
    }
}

#[cfg(test)]
#[path = "tests/postgres_sink.rs"]
mod tests;
