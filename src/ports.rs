//! Where a server may listen that a drill or a test starts. Not where the system's choice is (port 0): what it
//! gives to a listener that is closed again, it may give to whoever connects to something next.

use std::io;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where ports are looked for: below those that the system gives to whoever connects to something, for one
/// of these may be gone again before a server listens on it.
const PORTS: std::ops::Range<u16> = 10_000..30_000;

/// A port that nobody listens on. A process gets each but once, as long as there are others.
pub fn free_port() -> io::Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let count = PORTS.len() as u32;
    // Processes that look at the same time begin at different ones.
    let first = std::process::id().wrapping_mul(7919);
    for _ in PORTS {
        let next = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % count;
        let port = PORTS.start + next as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, "no port is free"))
}
