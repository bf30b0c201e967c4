//! Messages that are wrong in every way: an error each time, a panic never.

use super::*;
use bytes::BufMut;
use pgwire::messages::ProtocolVersion;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

fn started() -> DecodeContext {
    let mut context = DecodeContext::new(ProtocolVersion::PROTOCOL3_2);
    context.awaiting_frontend_ssl = false;
    context.awaiting_frontend_startup = false;
    context
}

fn message(kind: u8, body: &[u8]) -> BytesMut {
    let mut bytes = BytesMut::new();
    bytes.put_u8(kind);
    bytes.put_u32(4 + body.len() as u32);
    bytes.put_slice(body);
    bytes
}

fn told(kind: u8, body: &[u8]) -> String {
    let mut bytes = message(kind, body);
    let told = match next(&mut bytes, &started()) {
        Ok(Some(_)) => "ok".to_owned(),
        Ok(None) => "more".to_owned(),
        Err(bad) => format!("{} {}", bad.error.fault().state.0, bad.error),
    };
    assert!(bytes.is_empty() || told.contains("length") || told.contains("type"), "{told} leaves {bytes:?}");
    told
}

/// A right message of each kind that a client sends.
fn right() -> Vec<(u8, Vec<u8>)> {
    let bind = [b"p\0s\0".as_slice(), &[0, 1, 0, 1], &[0, 2, 0, 0, 0, 2, 7, 7, 255, 255, 255, 255], &[0, 0]];
    vec![
        (b'Q', b"SELECT 1\0".to_vec()),
        (b'Q', b"\0".to_vec()),
        (b'P', b"s\0SELECT $1\0\0\x01\0\0\0\x17".to_vec()),
        (b'B', bind.concat()),
        (b'D', b"Ss\0".to_vec()),
        (b'C', b"P\0".to_vec()),
        (b'E', b"p\0\0\0\0\0".to_vec()),
        (b'H', Vec::new()),
        (b'S', Vec::new()),
        (b'X', Vec::new()),
        (b'd', b"1\t2\n".to_vec()),
        (b'c', Vec::new()),
        (b'f', b"why\0".to_vec()),
        (b'p', b"SCRAM-SHA-256\0\0\0\0\x01n".to_vec()),
    ]
}

#[test]
fn right_messages_are_read() {
    for (kind, body) in right() {
        assert_eq!(told(kind, &body), "ok", "{}", kind as char);
    }
}

#[test]
fn wrong_ones_are_told_as_postgresql_does() {
    for (kind, body, expected) in [
        (b'Q', b"SELECT 1".as_slice(), "08P01 invalid string in message"),
        (b'Q', b"SELECT 1\0;\0", "08P01 invalid message format"),
        (b'Q', b"SELECT '\xff'\0", "22021 invalid byte sequence for encoding \"UTF8\": 0xff"),
        (b'Q', b"SELECT '\xc3('\0", "22021 invalid byte sequence for encoding \"UTF8\": 0xc3 0x28"),
        (b'P', b"s\0\xe2\x82\0\0\0", "22021 invalid byte sequence for encoding \"UTF8\": 0xe2 0x82"),
        (b'P', b"s\0SELECT 1\0\0\x02\0\0\0\x17", "08P01 insufficient data left in message"),
        (b'B', b"p\0s\0\0\0\0\x01\0\0\0\x09x\0\0", "08P01 insufficient data left in message"),
        (b'B', b"p\0s\0\0\0\0\x01\xff\xff\xff\xfe\0\0", "08P01 insufficient data left in message"),
        (b'B', b"p\0s\0\0\0\xff\xff", "08P01 insufficient data left in message"),
        (b'D', b"Xs\0", "08P01 invalid DESCRIBE message subtype 88"),
        (b'D', b"", "08P01 insufficient data left in message"),
        (b'C', b"S", "08P01 invalid string in message"),
        (b'E', b"p\0\0\0", "08P01 insufficient data left in message"),
        (b'S', b"x", "08P01 invalid message format"),
        (b'F', b"", "0A000 function calls by protocol are not supported"),
        (b'!', b"", "08P01 invalid frontend message type 33"),
    ] {
        assert_eq!(told(kind, body), expected, "{} {body:?}", kind as char);
    }
    let mut short = BytesMut::from(b"S\0\0\0\x03".as_slice());
    let bad = next(&mut short, &started()).unwrap_err();
    assert_eq!(bad.error.to_string(), "invalid message length 3");
}

#[test]
fn first_messages_are_told_apart_and_checked() {
    let startup = |body: &[u8]| {
        let mut bytes = BytesMut::new();
        bytes.put_u32(4 + body.len() as u32);
        bytes.put_slice(body);
        let mut context = DecodeContext::default();
        context.awaiting_frontend_ssl = false;
        match next(&mut bytes, &context) {
            Ok(Some(message)) => format!("{message:?}").chars().take(7).collect(),
            Ok(None) => "more".to_owned(),
            Err(bad) => bad.error.to_string(),
        }
    };
    assert_eq!(startup(b"\0\x03\0\0user\0root\0options\0\0\0"), "Startup");
    assert_eq!(startup(b"\x04\xd2\x16\x2e\0\0\0\x01\0\0\0\x02"), "CancelR");
    let terminator = "invalid startup packet layout: expected terminator as last byte";
    assert_eq!(startup(b"\0\x03\0\0user\0root\0\0x"), terminator);
    assert_eq!(startup(b"\x04\xd2\x16\x2e\0\0\0"), "invalid length of startup packet");
    assert_eq!(startup(b"\0\x02\0\0\0"), "unsupported frontend protocol 2.0: server supports 3.0 to 3.2");
    assert_eq!(startup(b"\0\x03\0\0\xff\0"), "invalid byte sequence for encoding \"UTF8\": 0xff");
}

#[test]
fn no_bytes_whatever_make_it_panic() {
    let seed = std::env::var("WEIR_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(rand::random);
    println!("WEIR_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let right = right();
    for _ in 0..50_000 {
        let (kind, body) = &right[random.random_range(0..right.len())];
        let mut body = body.clone();
        for _ in 0..random.random_range(0..4) {
            let at = random.random_range(0..=body.len());
            match random.random_range(0..4) {
                0 => body.truncate(at),
                1 => body.insert(at, random.random()),
                2 if at < body.len() => body[at] = random.random(),
                _ => body.extend((0..at).map(|_| random.random::<u8>())),
            }
        }
        let mut bytes = message(*kind, &body);
        if random.random_range(0..8) == 0 {
            let at = random.random_range(0..5);
            bytes[at] = random.random();
        }
        let mut context = started();
        context.awaiting_frontend_startup = random.random_range(0..8) == 0;
        // Whatever comes next, something of it is taken, more is wanted, or the connection ends.
        for _ in 0..64 {
            let before = bytes.len();
            match next(&mut bytes, &context) {
                Ok(None) => break,
                Err(bad) if bad.error.is_fatal() => break,
                Ok(Some(_)) | Err(_) => assert!(bytes.len() < before),
            }
        }
    }
}
