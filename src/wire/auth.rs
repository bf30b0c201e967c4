//! Who a client is: SCRAM-SHA-256, if the server has users; nobody is asked otherwise, and then
//! only loopback addresses are listened on.
//!
//! ```text
//!   R SASL [SCRAM-SHA-256] ─>   <─ p first (nonce)
//!   R SASLContinue (salt)  ─>   <─ p final (proof)
//!   R SASLFinal (signature) ─> … R Ok
//! ```
//! A user that does not exist goes through the same steps, so that names can't be found out.

use super::frame::violation;
use super::link::{Reader, Writer};
use crate::config::Users;
use crate::session::SessionError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pgwire::api::auth::sasl::scram::{SCRAM_ITERATIONS, ScramSecret, ScramServerAuth, gen_salted_password};
use pgwire::messages::startup::{Authentication, PasswordMessageFamily};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use std::io;
use weir_catalog::SqlState;

const MECHANISM: &str = "SCRAM-SHA-256";

/// Lets the client prove that it is `user`.
pub async fn authenticate(
    reader: &mut Reader,
    writer: &mut Writer,
    users: &Users,
    user: &str,
) -> io::Result<Result<(), SessionError>> {
    if users.is_empty() {
        return Ok(Ok(()));
    }
    let failed = || {
        SessionError::new(SqlState("28P01"), format!("password authentication failed for user \"{user}\""))
    };
    ask(writer, Authentication::SASL(vec![MECHANISM.to_owned()])).await?;
    let first = match answer(reader).await {
        Ok(Some(message)) if is_initial_response(&message) => message.into_sasl_initial_response(),
        Ok(Some(_)) => return Ok(Err(unexpected())),
        Ok(None) => return Err(io::ErrorKind::UnexpectedEof.into()),
        Err(error) => return Ok(Err(error)),
    };
    let Ok(first) = first else { return Ok(Err(unexpected())) };
    if first.auth_method != MECHANISM {
        return Ok(Err(unexpected()));
    }
    let known = users.secret(user).and_then(secret_of);
    let is_known = known.is_some();
    let secret = known.unwrap_or_else(|| salted(&rand::random::<u128>().to_string()));
    let data = first.data.unwrap_or_default();
    let Ok((challenge, waiting)) = ScramServerAuth::new().on_client_first_message_with_secret(&data, secret)
    else {
        return Ok(Err(unexpected()));
    };
    ask(writer, Authentication::SASLContinue(challenge.into())).await?;
    let last = match answer(reader).await {
        Ok(Some(message)) => message.into_sasl_response(),
        Ok(None) => return Err(io::ErrorKind::UnexpectedEof.into()),
        Err(error) => return Ok(Err(error)),
    };
    let Ok(last) = last else { return Ok(Err(unexpected())) };
    match waiting.on_client_final_message(&last.data) {
        Ok(signature) if is_known => {
            writer.put(&PgWireBackendMessage::Authentication(Authentication::SASLFinal(signature.into())))?;
            Ok(Ok(()))
        }
        _ => {
            tracing::warn!(user, "password authentication failed");
            Ok(Err(failed()))
        }
    }
}

async fn ask(writer: &mut Writer, what: Authentication) -> io::Result<()> {
    writer.put(&PgWireBackendMessage::Authentication(what))?;
    writer.flush().await
}

async fn answer(reader: &mut Reader) -> Result<Option<PasswordMessageFamily>, SessionError> {
    match reader.next().await {
        Ok(Some(PgWireFrontendMessage::PasswordMessageFamily(message))) => Ok(Some(message)),
        Ok(Some(_)) => Err(unexpected()),
        Ok(None) => Ok(None),
        Err(bad) => Err(bad.error),
    }
}

fn unexpected() -> SessionError {
    violation("expected a SASL response")
}

/// Whether a message holds a mechanism's name, a length and as many bytes, as pgwire takes for
/// granted; a length of -1 is no bytes.
fn is_initial_response(message: &PasswordMessageFamily) -> bool {
    let PasswordMessageFamily::Raw(body) = message else { return false };
    let Some(end) = memchr::memchr(0, body) else { return false };
    let Some((length, data)) = body[end + 1..].split_first_chunk::<4>() else { return false };
    let length = i32::from_be_bytes(*length);
    (length == -1 && data.is_empty()) || usize::try_from(length).is_ok_and(|length| length == data.len())
}

/// The secret of a user: a password, or what PostgreSQL stores of one.
fn secret_of(secret: &str) -> Option<ScramSecret> {
    let Some(verifier) = secret.strip_prefix("SCRAM-SHA-256$") else { return Some(salted(secret)) };
    let (head, keys) = verifier.split_once('$')?;
    let ((iterations, salt), (stored_key, server_key)) = (head.split_once(':')?, keys.split_once(':')?);
    let decoded = |text: &str| STANDARD.decode(text).ok();
    Some(ScramSecret::Verifier {
        salt: decoded(salt)?,
        iterations: iterations.parse().ok()?,
        stored_key: decoded(stored_key)?,
        server_key: decoded(server_key)?,
    })
}

fn salted(password: &str) -> ScramSecret {
    let salt: [u8; 16] = rand::random();
    let salted_password = gen_salted_password(password, &salt, SCRAM_ITERATIONS);
    ScramSecret::verifier_from_salted_password(salt.to_vec(), salted_password, SCRAM_ITERATIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_verifier_is_read_and_a_broken_one_lets_nobody_in() {
        let verifier = "SCRAM-SHA-256$4096:c2FsdA==$c3RvcmVk:c2VydmVy";
        let Some(ScramSecret::Verifier { salt, iterations, stored_key, server_key }) = secret_of(verifier)
        else {
            panic!("a verifier");
        };
        assert_eq!((salt, iterations), (b"salt".to_vec(), 4096));
        assert_eq!((stored_key, server_key), (b"stored".to_vec(), b"server".to_vec()));
        assert!(secret_of("SCRAM-SHA-256$4096:c2FsdA==").is_none());
        assert!(secret_of("just a $ password").is_some());
    }
}
