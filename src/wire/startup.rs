//! From a connection to a session: who and where, cancel keys, parameters.
//!
//! Where the server has no users, whoever reaches the port is trusted: it then listens on loopback
//! only (`server` refuses other addresses).

use super::auth::authenticate;
use super::frame::violation;
use super::link::{Reader, Writer};
use crate::session::{Seat, Session, SessionError, SessionManager};
use pgwire::messages::response::{ReadyForQuery, TransactionStatus};
use pgwire::messages::startup::{
    Authentication, BackendKeyData, NegotiateProtocolVersion, ParameterStatus, SecretKey, Startup,
};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage, ProtocolVersion};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use weir_catalog::SqlState;

/// A client has so long to say who it is.
pub const STARTUP_MAX: Duration = Duration::from_secs(60);

/// Speaks with a new client; `None` where that was all (a cancel request, an error).
pub async fn start(
    reader: &mut Reader,
    writer: &mut Writer,
    manager: &Arc<SessionManager>,
    peer: Option<String>,
) -> io::Result<Option<(Seat, Session)>> {
    match greet(reader, writer, manager, peer).await? {
        Ok(started) => Ok(started),
        Err(error) => {
            writer.put_error(&error.fatal())?;
            writer.flush().await?;
            Ok(None)
        }
    }
}

type Greeting = Result<Option<(Seat, Session)>, SessionError>;

async fn greet(
    reader: &mut Reader,
    writer: &mut Writer,
    manager: &Arc<SessionManager>,
    peer: Option<String>,
) -> io::Result<Greeting> {
    match reader.next().await {
        Ok(Some(PgWireFrontendMessage::CancelRequest(request))) => {
            manager.cancel(request.pid, &request.secret_key.to_bytes());
            Ok(Ok(None))
        }
        Ok(Some(PgWireFrontendMessage::Startup(startup))) => {
            reader.context.awaiting_frontend_startup = false;
            let user = startup.parameters.get("user").map(String::as_str).unwrap_or_default();
            let users = &manager.serve().config().users;
            if let Err(error) = authenticate(reader, writer, users, user).await? {
                return Ok(Err(error));
            }
            match admit(&startup, manager, peer) {
                Ok(admitted) => welcome(reader, writer, &startup, admitted).await.map(|s| Ok(Some(s))),
                Err(error) => Ok(Err(error)),
            }
        }
        Ok(Some(_)) => Ok(Err(violation("expected a startup message"))),
        Ok(None) => Ok(Ok(None)),
        Err(bad) => Ok(Err(bad.error)),
    }
}

/// Checks who wants to go where, and with what settings.
fn admit(
    startup: &Startup,
    manager: &Arc<SessionManager>,
    peer: Option<String>,
) -> Result<(Seat, Session), SessionError> {
    let get = |name: &str| startup.parameters.get(name).map(String::as_str).filter(|value| !value.is_empty());
    let user = get("user").ok_or_else(|| {
        SessionError::new(SqlState("28000"), "no PostgreSQL user name specified in startup packet")
    })?;
    let database = get("database").unwrap_or(manager.database_name());
    if database != manager.database_name() {
        return Err(SessionError::new(
            SqlState::INVALID_CATALOG_NAME,
            format!("database \"{database}\" does not exist"),
        )
        .hint(format!("Connect to \"{}\": psql -d {0}.", manager.database_name())));
    }
    if get("replication").is_some_and(|value| !matches!(value, "false" | "off" | "no" | "0")) {
        return Err(SessionError::new(SqlState::FEATURE_NOT_SUPPORTED, "replication is not supported"));
    }
    // 3.2 has longer keys.
    let secret_len = if startup.protocol_number_minor >= 2 { 32 } else { 4 };
    let seat = manager
        .seat(secret_len)
        .ok_or_else(|| SessionError::new(SqlState("53300"), "sorry, too many clients already"))?;
    let mut session = seat.session(user.to_owned());
    for (name, value) in startup.parameters.iter().filter(|(name, _)| !is_address(name)) {
        set_initial(&mut session, name, value)?;
    }
    for (name, value) in get("options").map(options).unwrap_or_default() {
        set_initial(&mut session, &name, &value)?;
    }
    session.note_connected(peer);
    Ok((seat, session))
}

/// Whether a startup parameter says who and where, rather than setting something.
fn is_address(name: &str) -> bool {
    matches!(name, "user" | "database" | "options" | "replication") || name.starts_with("_pq_.")
}

fn set_initial(session: &mut Session, name: &str, value: &str) -> Result<(), SessionError> {
    match session.set_initial(name, value) {
        // Clients announce what their locale or time zone is. They are told what it is here.
        Err(_) if ["client_encoding", "timezone", "datestyle"].contains(&name.to_lowercase().as_str()) => {
            Ok(())
        }
        other => other,
    }
}

/// `-c name=value`, `--name=value`, words separated by spaces; a backslash takes the next
/// character as it is.
fn options(text: &str) -> Vec<(String, String)> {
    let mut words = vec![String::new()];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, words.last_mut()) {
            ('\\', Some(word)) => word.extend(chars.next()),
            (c, _) if c.is_whitespace() => words.push(String::new()),
            (c, Some(word)) => word.push(c),
            (_, None) => {}
        }
    }
    let mut found = Vec::new();
    let mut after_c = false;
    for word in words.iter().filter(|word| !word.is_empty()) {
        let setting = match word.strip_prefix("--").or_else(|| word.strip_prefix("-c")) {
            Some("") => {
                after_c = true;
                continue;
            }
            Some(setting) => Some(setting),
            None => after_c.then_some(word.as_str()),
        };
        after_c = false;
        if let Some((name, value)) = setting.and_then(|setting| setting.split_once('=')) {
            found.push((name.trim().replace('-', "_"), value.to_owned()));
        }
    }
    found
}

async fn welcome(
    reader: &mut Reader,
    writer: &mut Writer,
    startup: &Startup,
    (seat, session): (Seat, Session),
) -> io::Result<(Seat, Session)> {
    let minor = startup.protocol_number_minor;
    let unknown: Vec<String> =
        startup.parameters.keys().filter(|name| name.starts_with("_pq_.")).cloned().collect();
    if !matches!(minor, 0 | 2) || !unknown.is_empty() {
        let newest = if minor >= 2 { Startup::PROTOCOL_VERSION_3_2 } else { Startup::PROTOCOL_VERSION_3_0 };
        let answer = NegotiateProtocolVersion::new(newest, unknown);
        writer.put(&PgWireBackendMessage::NegotiateProtocolVersion(answer))?;
    }
    let version = if minor >= 2 { ProtocolVersion::PROTOCOL3_2 } else { ProtocolVersion::PROTOCOL3_0 };
    reader.context.protocol_version = version;
    writer.put(&PgWireBackendMessage::Authentication(Authentication::Ok))?;
    for (name, value) in session.parameters() {
        let status = ParameterStatus::new(name.to_owned(), value);
        writer.put(&PgWireBackendMessage::ParameterStatus(status))?;
    }
    let secret = match <[u8; 4]>::try_from(seat.secret.as_slice()) {
        Ok(short) => SecretKey::I32(i32::from_be_bytes(short)),
        Err(_) => SecretKey::Bytes(seat.secret.clone().into()),
    };
    writer.put(&PgWireBackendMessage::BackendKeyData(BackendKeyData::new(seat.pid, secret)))?;
    writer.put(&PgWireBackendMessage::ReadyForQuery(ReadyForQuery::new(TransactionStatus::Idle)))?;
    writer.flush().await?;
    Ok((seat, session))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_the_command_line_has_them() {
        let read = |text| options(text);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(read("-c a=1 -cb=2 --c-d=3"), [pair("a", "1"), pair("b", "2"), pair("c_d", "3")]);
        assert_eq!(read(r"-c search_path=a,\ b"), [pair("search_path", "a, b")]);
        assert_eq!(read("-c statement_timeout=5s"), [pair("statement_timeout", "5s")]);
        assert!(read("  junk -c").is_empty());
    }
}
