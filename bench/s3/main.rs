//! The tests' S3 server as a process of its own, for the benches and for drills by hand: over a directory,
//! on a free port of loopback that it prints, until it is killed. Its bucket is `weir`, its credentials are
//! `key` and `secret`.

#[path = "../../tests/server/s3_server.rs"]
mod s3_server;

use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let dir = std::env::args().nth(1).map(std::path::PathBuf::from);
    let dir = dir.ok_or_else(|| std::io::Error::other("usage: s3 DIRECTORY"))?;
    std::fs::create_dir_all(dir.join("weir"))?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?.port());
    s3_server::serve(&dir, listener, CancellationToken::new()).await;
    Ok(())
}
