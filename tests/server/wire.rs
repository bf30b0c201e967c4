//! The protocol byte by byte: messages that are not what they say, text that is none, encryption.

use crate::harness::{PATIENCE, Weir, seed, words};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

/// A client that sends what it likes.
struct Raw(TcpStream);

impl Raw {
    fn connect(port: u16) -> Raw {
        let mut raw = Raw(TcpStream::connect(("127.0.0.1", port)).expect("connects"));
        raw.0.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let body = b"\0\x03\0\0user\0root\0database\0dev\0\0";
        raw.0.write_all(&(body.len() as u32 + 4).to_be_bytes()).expect("written");
        raw.0.write_all(body).expect("written");
        assert!(raw.answers().ends_with('Z'), "a session");
        raw
    }

    fn send(&mut self, kind: u8, body: &[u8]) -> &mut Raw {
        let mut message = vec![kind];
        message.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        message.extend_from_slice(body);
        self.0.write_all(&message).expect("written");
        self
    }

    /// The kind of the next answer; of an error, its SQLSTATE. None at the end.
    fn answer(&mut self) -> Option<String> {
        let mut head = [0; 5];
        self.0.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4;
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).expect("a whole message");
        if head[0] != b'E' {
            return Some((head[0] as char).to_string());
        }
        let state = body.split(|b| *b == 0).find(|field| field.first() == Some(&b'C'));
        Some(String::from_utf8_lossy(&state.expect("a SQLSTATE")[1..]).into_owned())
    }

    /// The answers up to ReadyForQuery or the end.
    fn answers(&mut self) -> String {
        let mut told = Vec::new();
        loop {
            let answer = self.answer().unwrap_or_else(|| "end".to_owned());
            let last = answer == "Z" || answer == "end";
            told.push(answer);
            if last {
                return told.join(" ");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_message_is_an_error_and_the_session_lives() {
    let weir = Weir::start().await;
    let mut raw = Raw::connect(weir.port());
    assert_eq!(raw.send(b'Q', b"SELECT 1\0").answers(), "T D C Z");
    assert_eq!(raw.send(b'Q', b"SELECT '\xff'\0").answers(), "22021 Z");
    assert_eq!(raw.send(b'Q', b"SELECT 1").answers(), "08P01 Z");
    assert_eq!(raw.send(b'Q', b"SELECT 1\0SELECT 2\0").answers(), "08P01 Z");
    // The rest up to Sync is skipped, as after any error.
    raw.send(b'P', b"\0SELECT $1::text\0\0\0");
    raw.send(b'B', b"\0\0\0\0\0\x01\0\0\0\x02\xc3(\0\0").send(b'E', b"\0\0\0\0\0");
    assert_eq!(raw.send(b'S', b"").answers(), "1 22021 Z");
    raw.send(b'B', b"\0\0\0\0\0\x01\0\0\0\x7fx\0\0").send(b'D', b"P\0");
    assert_eq!(raw.send(b'S', b"").answers(), "08P01 Z");
    raw.send(b'P', b"\0SELECT 1\0\0\x09").send(b'D', b"S\0");
    assert_eq!(raw.send(b'S', b"").answers(), "08P01 Z");
    raw.send(b'D', b"").send(b'H', b"").send(b'E', b"");
    assert_eq!(raw.send(b'S', b"").answers(), "08P01 Z");
    raw.send(b'B', b"\0\0\0\x02\0\0\0\x01\0\x01\0\0\0\x01x\0\0");
    assert_eq!(raw.send(b'S', b"").answers(), "08P01 Z");
    // The error comes though the client asks by Flush, and sends Sync only after it.
    raw.send(b'P', b"\0SELECT nope\0\0\0").send(b'H', b"");
    assert_eq!(raw.answer(), Some("42703".to_owned()));
    assert_eq!(raw.send(b'S', b"").answers(), "Z");
    assert_eq!(raw.send(b'S', b"x").answers(), "08P01 Z");
    assert_eq!(raw.send(b'F', b"\0\0\0\x01\0\0\0\0\0\0").answers(), "0A000 Z");
    assert_eq!(raw.send(b'Q', b"SELECT $0\0").answers(), "42P02 Z");
    raw.send(b'P', b"\0SELECT $0\0\0\0");
    assert_eq!(raw.send(b'S', b"").answers(), "42P02 Z");

    assert_eq!(raw.send(b'Q', b"CREATE TABLE t (v text)\0").answers(), "C Z");
    raw.send(b'Q', b"COPY t FROM STDIN\0").send(b'd', b"fine\n\xe2\x82\n").send(b'c', b"");
    assert_eq!(raw.answers(), "G 22021 Z");
    raw.send(b'Q', b"COPY t FROM STDIN\0").send(b'd', b"fine\n").send(b'f', b"no terminator");
    assert_eq!(raw.answers(), "G 08P01 Z");
    assert_eq!(raw.send(b'Q', b"SELECT count(*) FROM t\0").answers(), "T D C Z");

    assert_eq!(Raw::connect(weir.port()).send(b'!', b"").answers(), "08P01 end");
    let mut short = Raw::connect(weir.port());
    short.0.write_all(b"Q\0\0\0\x01").expect("written");
    assert_eq!(short.answers(), "08P01 end");
    let log = weir.log();
    assert!(!log.contains("panicked"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_client_sends_only_its_connection_ends() {
    let weir = Weir::start().await;
    let mut random = StdRng::seed_from_u64(seed());
    for _ in 0..150 {
        let mut raw = Raw::connect(weir.port());
        for _ in 0..random.random_range(1..8) {
            let kinds = b"QPBDECHSXdcfFp!";
            let kind = kinds[random.random_range(0..kinds.len())];
            let body: Vec<u8> = (0..random.random_range(0..40))
                .map(|_| if random.random_range(0..2) == 0 { 0 } else { random.random() })
                .collect();
            let mut message = vec![kind];
            message.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
            message.extend_from_slice(&body);
            // The server may have ended the connection already.
            let _ = raw.0.write_all(&message);
        }
    }
    assert_eq!(Raw::connect(weir.port()).send(b'Q', b"SELECT 1\0").answers(), "T D C Z");
    let log = weir.log();
    assert!(!log.contains("panicked"), "{log}");
}

fn psql(port: u16, options: &str) -> String {
    let address = format!("host=localhost hostaddr=127.0.0.1 port={port} user=root dbname=dev {options}");
    let output = Command::new("psql")
        .args(["-X", &address, "-Atc", "SELECT 7", "-c", "\\conninfo"])
        .env_remove("PGSSLMODE")
        .output()
        .expect("psql is installed");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// Makes a key and a certificate for `localhost` at `stem`.
fn certificate(stem: &std::path::Path) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .arg("-keyout")
        .arg(stem.with_extension("key"))
        .arg("-out")
        .arg(stem.with_extension("crt"))
        .output()
        .expect("openssl is installed");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_may_encrypt_where_there_is_a_certificate() {
    let mut weir = Weir::start().await;
    // Without one: in clear, as ever.
    assert!(psql(weir.port(), "sslmode=prefer").starts_with("7\n"));
    assert!(psql(weir.port(), "sslmode=require").contains("server does not support SSL"));
    weir.kill();
    certificate(&weir.path("server"));
    certificate(&weir.path("other"));
    let cert = format!("tls.cert={}", weir.path("server.crt").display());
    let key = format!("tls.key={}", weir.path("server.key").display());
    weir.set_options(&["--set", &cert, "--set", &key]);
    weir.begin(&[]);
    weir.wait_ready().await;
    let root = |name: &str| format!("sslmode=verify-full sslrootcert={}", weir.path(name).display());
    for options in ["sslmode=require", &root("server.crt"), "sslmode=prefer"] {
        let said = psql(weir.port(), options);
        assert!(said.starts_with("7\n") && said.contains("SSL"), "{options}: {said}");
    }
    let said = psql(weir.port(), &root("other.crt"));
    assert!(said.contains("certificate verify failed"), "{said}");
    assert!(psql(weir.port(), "sslmode=disable").starts_with("7\n"));
    // A cancel request comes encrypted too; many rows go through.
    let address = format!("host=127.0.0.1 port={} user=root dbname=dev sslmode=require", weir.port());
    let many = "SELECT count(*) FROM (SELECT i FROM generate_series(1, 3) AS g(i)) x";
    let copied = Command::new("psql")
        .args(["-X", &address, "-Atc", "SELECT repeat('x', 1000) FROM generate_series(1, 5000)", "-c", many])
        .output()
        .expect("psql is installed");
    assert_eq!(copied.stdout.len(), 5000 * 1001 + 2, "{}", String::from_utf8_lossy(&copied.stderr));

    weir.kill();
    weir.set_options(&["--set", &cert, "--set", &key, "--set", "tls.required=on"]);
    weir.begin(&[]);
    let deadline = std::time::Instant::now() + PATIENCE;
    while !psql(weir.port(), "sslmode=require").starts_with("7\n") {
        assert!(weir.is_alive() && std::time::Instant::now() < deadline, "{}", weir.log());
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let address = format!("host=127.0.0.1 port={} user=root dbname=dev sslmode=disable", weir.port());
    let clear = tokio_postgres::connect(&address, tokio_postgres::NoTls).await;
    let refused = words(&clear.err().expect("refused"));
    assert!(refused.starts_with("28000: the server takes encrypted connections only"), "{refused}");

    weir.kill();
    weir.set_options(&["--set", &cert]);
    weir.begin(&[]);
    assert!(!weir.wait_ended().await.success());
    assert!(weir.log().contains("could not use tls.key = : there is no such file"), "{}", weir.log());
}
