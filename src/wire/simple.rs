//! The simple query protocol: a string of statements, one transaction if there are several.

use super::connection::{Connection, guard, guard_now};
use crate::session::SessionError;
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::response::EmptyQueryResponse;
use std::io;
use weir_sql::parser::statement::Parsed;

impl Connection {
    /// Runs what a Query message says.
    pub(super) async fn simple_query(&mut self, sql: &str) -> io::Result<()> {
        self.session.start_statement();
        // The unnamed statement ends with the next simple query.
        self.session.forget("");
        match guard_now(|| self.session.parse(sql)) {
            Ok(statements) if statements.is_empty() => {
                self.writer.put(&PgWireBackendMessage::EmptyQueryResponse(EmptyQueryResponse::new()))?;
            }
            Ok(statements) => {
                if let Err(error) = self.run_all(&statements).await? {
                    self.fail(&error)?;
                }
            }
            Err(error) => self.fail(&error)?,
        }
        self.ready().await
    }

    async fn run_all(&mut self, statements: &[Parsed]) -> io::Result<Result<(), SessionError>> {
        for (i, parsed) in statements.iter().enumerate() {
            if i > 0 {
                self.session.start_statement();
            }
            let alone = statements.len() == 1;
            let outcome = match guard(self.session.run(parsed, alone)).await {
                Ok(outcome) => outcome,
                Err(error) => return Ok(Err(error)),
            };
            let tag = match self.send_outcome(outcome).await? {
                Ok(tag) => tag,
                Err(error) => return Ok(Err(error)),
            };
            if i + 1 == statements.len()
                && let Err(error) = guard(self.session.end_implicit()).await
            {
                return Ok(Err(error));
            }
            self.complete(tag)?;
        }
        Ok(Ok(()))
    }
}
