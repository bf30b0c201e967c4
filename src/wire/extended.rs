//! The extended query protocol: Parse, Bind, Describe, Execute, Close.
//!
//! A portal streams: Execute with a row limit leaves the rest of its rows where they are, and the
//! next Execute goes on. Nothing is collected.

use super::connection::{Connection, guard, guard_now};
use super::encode::BatchEncoder;
use super::frame::violation;
use super::parameters::decode_parameter;
use super::types::{Format, arrow_type, pg_type};
use crate::serve::ServeError;
use crate::session::{CommandTag, Outcome, Prepared, ResultRows, Session, SessionError};
use datafusion::common::ScalarValue;
use pgwire::messages::data::{NoData, ParameterDescription};
use pgwire::messages::extendedquery::{
    Bind, BindComplete, Close, CloseComplete, Describe, Execute, Parse, ParseComplete, PortalSuspended,
};
use pgwire::messages::response::EmptyQueryResponse;
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use std::io;
use std::sync::Arc;
use weir_catalog::SqlState;

/// The byte of Describe and Close that says it is about a prepared statement.
const STATEMENT: u8 = b'S';

/// json, uuid, jsonb.
const TOLD_BY_COLUMN: [u32; 3] = [114, 2950, 3802];

/// A bound statement.
pub(super) struct Portal {
    /// `None`: an empty query.
    prepared: Option<Arc<Prepared>>,
    values: Vec<ScalarValue>,
    formats: Vec<Format>,

    state: PortalState,
}

enum PortalState {
    Bound,
    Running(Box<Running>),
    /// All rows are sent: another Execute gives none.
    Done(CommandTag),
    /// A command that ran; it doesn't run twice.
    Ran,
}

struct Running {
    rows: ResultRows,
    /// The batch that is being sent, and its next row.
    batch: Option<(BatchEncoder, usize)>,
}

type Answer = io::Result<Result<(), SessionError>>;

impl Connection {
    /// Answers a message of the extended protocol.
    pub(super) async fn extended(&mut self, message: PgWireFrontendMessage) -> Answer {
        match message {
            PgWireFrontendMessage::Parse(parse) => self.parse(parse),
            PgWireFrontendMessage::Bind(bind) => self.bind(&bind),
            PgWireFrontendMessage::Describe(describe) => self.describe(&describe),
            PgWireFrontendMessage::Execute(execute) => self.execute(&execute).await,
            PgWireFrontendMessage::Close(close) => self.close(&close).map(Ok),
            _ => Ok(Err(violation("unexpected message"))),
        }
    }

    fn parse(&mut self, parse: Parse) -> Answer {
        let name = parse.name.unwrap_or_default();
        self.session.start_statement();
        let prepared = guard_now(|| self.prepare(&name, &parse.query, &parse.type_oids));
        if let Err(error) = prepared {
            return Ok(Err(error));
        }
        self.declared.insert(name, parse.type_oids);
        self.writer.put(&PgWireBackendMessage::ParseComplete(ParseComplete::new())).map(Ok)
    }

    fn prepare(&mut self, name: &str, query: &str, oids: &[u32]) -> Result<(), SessionError> {
        let mut statements = self.session.parse(query)?;
        if statements.len() > 1 {
            let message = "cannot insert multiple commands into a prepared statement";
            return Err(SessionError::new(SqlState::SYNTAX_ERROR, message));
        }
        if name.is_empty() {
            self.empty.remove(name);
            self.session.forget(name);
        }
        match statements.pop() {
            Some(parsed) => {
                // A uuid or jsonb is text that its column tells apart: the statement says which.
                let plain = |oid: &u32| arrow_type(*oid).filter(|_| !TOLD_BY_COLUMN.contains(oid));
                let types = oids.iter().map(plain).collect();
                let prepared = self.session.prepare(parsed, types)?;
                self.session.store(name, prepared)
            }
            None => {
                self.empty.insert(name.to_owned());
                Ok(())
            }
        }
    }

    fn bind(&mut self, bind: &Bind) -> Answer {
        let name = bind.portal_name.clone().unwrap_or_default();
        let portal = match guard_now(|| self.portal(&name, bind)) {
            Ok(portal) => portal,
            Err(error) => return Ok(Err(error)),
        };
        self.portals.insert(name, portal);
        self.writer.put(&PgWireBackendMessage::BindComplete(BindComplete::new())).map(Ok)
    }

    fn portal(&self, name: &str, bind: &Bind) -> Result<Portal, SessionError> {
        if !name.is_empty() && self.portals.contains_key(name) {
            return Err(SessionError::new(SqlState("42P03"), format!("cursor \"{name}\" already exists")));
        }
        let statement = bind.statement_name.as_deref().unwrap_or_default();
        let prepared = match self.empty.contains(statement) {
            true => None,
            false => Some(self.session.lookup(statement)?),
        };
        let parameters = prepared.as_ref().map_or(&[][..], |prepared| &prepared.parameters);
        if bind.parameters.len() != parameters.len() {
            let message = format!(
                "bind message supplies {} parameters, but prepared statement \"{statement}\" requires {}",
                bind.parameters.len(),
                parameters.len()
            );
            return Err(violation(message));
        }
        let formats = Format::of_codes(&bind.parameter_format_codes, parameters.len(), "parameters")?;
        let values = parameters
            .iter()
            .zip(&bind.parameters)
            .zip(formats)
            .map(|((field, bytes), format)| decode_parameter(field, bytes.as_deref(), format))
            .collect::<Result<Vec<_>, _>>()?;
        let columns = prepared.as_ref().and_then(|prepared| prepared.columns.as_ref());
        let width = columns.map_or(0, |columns| columns.fields().len());
        let formats = Format::of_codes(&bind.result_column_format_codes, width, "columns")?;
        Ok(Portal { prepared, values, formats, state: PortalState::Bound })
    }

    fn describe(&mut self, describe: &Describe) -> Answer {
        let name = describe.name.as_deref().unwrap_or_default();
        let (prepared, formats) = if describe.target_type == STATEMENT {
            if self.empty.contains(name) {
                self.describe_parameters(Vec::new())?;
                (None, Vec::new())
            } else {
                let prepared = match self.session.lookup(name) {
                    Ok(prepared) => prepared,
                    Err(error) => return Ok(Err(error)),
                };
                self.describe_parameters(self.parameter_oids(name, &prepared))?;
                (Some(prepared), Vec::new())
            }
        } else {
            match self.portals.get(name) {
                Some(portal) => (portal.prepared.clone(), portal.formats.clone()),
                // A cursor is a portal that a statement has made.
                None => match self.session.cursor_columns(name) {
                    Ok(columns) => return self.describe_rows(&columns, &[]).map(Ok),
                    Err(_) => return Ok(Err(no_portal(name))),
                },
            }
        };
        match prepared.and_then(|prepared| prepared.columns.clone()) {
            Some(columns) => self.describe_rows(&columns, &formats).map(Ok),
            None => self.writer.put(&PgWireBackendMessage::NoData(NoData::new())).map(Ok),
        }
    }

    fn describe_parameters(&mut self, oids: Vec<u32>) -> io::Result<()> {
        let description = ParameterDescription::new(oids);
        self.writer.put(&PgWireBackendMessage::ParameterDescription(description))
    }

    /// The types of a statement's parameters: as declared, else as they were told.
    fn parameter_oids(&self, name: &str, prepared: &Prepared) -> Vec<u32> {
        let declared = self.declared.get(name).map(Vec::as_slice).unwrap_or_default();
        let told = prepared.parameters.iter().map(|field| pg_type(field).oid());
        let oid =
            |(i, told)| declared.get(i).copied().filter(|oid| arrow_type(*oid).is_some()).unwrap_or(told);
        told.enumerate().map(oid).collect()
    }

    async fn execute(&mut self, execute: &Execute) -> Answer {
        let name = execute.name.clone().unwrap_or_default();
        let Some(mut portal) = self.portals.remove(&name) else { return Ok(Err(no_portal(&name))) };
        self.session.start_statement();
        let limit = usize::try_from(execute.max_rows).ok().filter(|limit| *limit > 0);
        let answer = self.execute_portal(&mut portal, limit).await;
        // A portal that failed is gone with its transaction.
        if matches!(answer, Ok(Ok(()))) {
            self.portals.insert(name, portal);
        }
        answer
    }

    async fn execute_portal(&mut self, portal: &mut Portal, limit: Option<usize>) -> Answer {
        let Some(prepared) = portal.prepared.clone() else {
            let empty = PgWireBackendMessage::EmptyQueryResponse(EmptyQueryResponse::new());
            return self.writer.put(&empty).map(Ok);
        };
        if matches!(portal.state, PortalState::Bound) {
            // What writes, and is followed by Sync, is a transaction of its own. Nobody sends
            // Execute and nothing after it: the answer would not come.
            let alone = Session::writes(&prepared)
                && matches!(self.inbox.peek().await, Some(PgWireFrontendMessage::Sync(_)));
            match guard(self.session.execute(&prepared, &portal.values, alone)).await {
                Ok(Outcome::Rows(rows)) => {
                    portal.state = PortalState::Running(Box::new(Running { rows, batch: None }));
                }
                Ok(outcome) => {
                    portal.state = PortalState::Ran;
                    return match self.send_command(outcome).await? {
                        Ok(tag) => self.complete(tag).map(Ok),
                        Err(error) => Ok(Err(error)),
                    };
                }
                Err(error) => return Ok(Err(error)),
            }
        }
        match &mut portal.state {
            PortalState::Running(running) => {
                let (sent, ended) = match self.send_portal(running, &portal.formats, limit).await? {
                    Ok(sent) => sent,
                    Err(error) => return Ok(Err(error)),
                };
                if !ended {
                    let suspended = PgWireBackendMessage::PortalSuspended(PortalSuspended::new());
                    return self.writer.put(&suspended).map(Ok);
                }
                let tag = running.rows.tag.clone();
                let said = tag.after(sent);
                portal.state = PortalState::Done(tag);
                self.complete(said).map(Ok)
            }
            PortalState::Done(tag) => {
                let said = tag.after(0);
                self.complete(said).map(Ok)
            }
            PortalState::Ran | PortalState::Bound => Ok(Err(SessionError::new(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "portal cannot be run anymore",
            ))),
        }
    }

    /// Sends rows up to `limit`; tells how many, and whether these were the last.
    async fn send_portal(
        &mut self,
        running: &mut Running,
        formats: &[Format],
        limit: Option<usize>,
    ) -> io::Result<Result<(u64, bool), SessionError>> {
        let zone = self.session.time_zone();
        let mut sent = 0;
        loop {
            if let Some((encoder, next)) = &mut running.batch {
                while *next < encoder.rows() && limit.is_none_or(|limit| sent < limit) {
                    encoder.write_row(*next, &mut self.writer.out);
                    *next += 1;
                    sent += 1;
                    self.writer.flush_if_full().await?;
                }
                if limit.is_some_and(|limit| sent >= limit) {
                    return Ok(Ok((sent as u64, false)));
                }
                running.batch = None;
            }
            match self.next_batch(&mut running.rows).await? {
                Ok(Some(batch)) => match BatchEncoder::new(&batch, formats, &zone) {
                    Ok(encoder) => running.batch = Some((encoder, 0)),
                    Err(error) => return Ok(Err(ServeError::from(error).into())),
                },
                Ok(None) => return Ok(Ok((sent as u64, true))),
                Err(error) => return Ok(Err(error)),
            }
        }
    }

    fn close(&mut self, close: &Close) -> io::Result<()> {
        let name = close.name.as_deref().unwrap_or_default();
        if close.target_type == STATEMENT {
            self.session.forget(name);
            self.declared.remove(name);
            self.empty.remove(name);
        } else {
            self.portals.remove(name);
        }
        self.writer.put(&PgWireBackendMessage::CloseComplete(CloseComplete::new()))
    }
}

fn no_portal(name: &str) -> SessionError {
    SessionError::new(SqlState("34000"), format!("portal \"{name}\" does not exist"))
}
