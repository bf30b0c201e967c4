//! What a client says before it says who it is: whether it wants encryption.
//!
//! ```text
//!   SSLRequest ─>  <─ S   TLS …        GSSENCRequest ─>  <─ N        (not there: N; go on in clear)
//!   TLS at once, for the protocol "postgresql" (sslnegotiation=direct)
//!   anything else is its first message
//! ```
//! **Invariant:** nothing that came in clear after a request for encryption is taken for what came
//! encrypted: at most the request itself is read before the handshake.

use super::frame::{self, First, HEAD, violation};
use super::link::{Reader, Writer};
use super::report::error_response;
use crate::config::TlsSettings;
use crate::error::ServerError;
use crate::session::SessionError;
use bytes::BytesMut;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};
use weir_catalog::SqlState;

/// What TLS is spoken for, as clients name it that speak it at once.
const PROTOCOL: &[u8] = b"postgresql";
/// The first byte of a TLS handshake.
const HANDSHAKE: u8 = 0x16;

/// The server's certificate and key, ready for handshakes.
pub struct Encryption {
    acceptor: TlsAcceptor,
    required: bool,
}

impl Encryption {
    /// Reads the files that the settings name.
    pub fn read(settings: &TlsSettings) -> Result<Self, ServerError> {
        let failed = |setting, path: &String, reason: &dyn std::fmt::Display| ServerError::Tls {
            setting,
            path: path.clone(),
            reason: reason.to_string(),
        };
        for (setting, path) in [("tls.cert", &settings.cert), ("tls.key", &settings.key)] {
            if !Path::new(path).is_file() {
                return Err(failed(setting, path, &"there is no such file"));
            }
        }
        let certificates = CertificateDer::pem_file_iter(&settings.cert).and_then(Iterator::collect);
        let certificates: Vec<CertificateDer<'static>> =
            certificates.map_err(|e| failed("tls.cert", &settings.cert, &e))?;
        let key = PrivateKeyDer::from_pem_file(&settings.key);
        let key = key.map_err(|e| failed("tls.key", &settings.key, &e))?;
        let made = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(certificates, key));
        let mut config = made.map_err(|e: rustls::Error| failed("tls.cert", &settings.cert, &e))?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), required: settings.required })
    }
}

/// Speaks about encryption; then the connection's two sides, the first message unread. `None`: the
/// client has gone, or was sent away.
pub async fn negotiate(
    mut socket: TcpStream,
    encryption: Option<&Encryption>,
) -> io::Result<Option<(Reader, Writer)>> {
    if let Some(encryption) = encryption {
        let mut byte = [0];
        if socket.peek(&mut byte).await? == 1 && byte[0] == HANDSHAKE {
            let stream = encryption.acceptor.accept(socket).await?;
            // Who speaks TLS at once has to say what for.
            if stream.get_ref().1.alpn_protocol() != Some(PROTOCOL) {
                return Ok(None);
            }
            return encrypted(stream).await;
        }
    }
    let mut asked = [false; 2];
    loop {
        let Some(head) = head(&mut socket).await? else { return Ok(None) };
        let found = match frame::first(head) {
            Ok((found, _)) => found,
            Err(error) => return refuse(&mut socket, &error).await,
        };
        let again = match found {
            First::Ssl => std::mem::replace(&mut asked[0], true),
            First::Gss => std::mem::replace(&mut asked[1], true),
            First::Startup if encryption.is_some_and(|encryption| encryption.required) => {
                let error =
                    SessionError::new(SqlState("28000"), "the server takes encrypted connections only");
                return refuse(&mut socket, &error.hint("Connect with sslmode=require.").fatal()).await;
            }
            First::Startup | First::Cancel => {
                let (read, write) = socket.into_split();
                return Ok(Some((Reader::new(read, &head), Writer::new(write))));
            }
        };
        if again {
            return refuse(&mut socket, &violation("encryption was asked for twice").fatal()).await;
        }
        match encryption.filter(|_| found == First::Ssl) {
            Some(encryption) => {
                socket.write_all(b"S").await?;
                return encrypted(encryption.acceptor.accept(socket).await?).await;
            }
            None => socket.write_all(b"N").await?,
        }
    }
}

/// The two sides of an encrypted connection, on which nobody may ask for encryption again.
async fn encrypted(
    mut stream: impl AsyncRead + AsyncWrite + Send + Sync + Unpin + 'static,
) -> io::Result<Option<(Reader, Writer)>> {
    let Some(head) = head(&mut stream).await? else { return Ok(None) };
    let (read, write) = tokio::io::split(stream);
    Ok(Some((Reader::new(read, &head), Writer::new(write))))
}

async fn head(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<[u8; HEAD]>> {
    let mut head = [0; HEAD];
    match stream.read_exact(&mut head).await {
        Ok(_) => Ok(Some(head)),
        // A client that looks whether somebody is there.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

async fn refuse(socket: &mut TcpStream, error: &SessionError) -> io::Result<Option<(Reader, Writer)>> {
    let mut out = BytesMut::new();
    error_response(error).encode(&mut out).map_err(|error| io::Error::other(error.to_string()))?;
    socket.write_all(&out).await?;
    Ok(None)
}
