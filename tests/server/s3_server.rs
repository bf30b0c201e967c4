//! An S3 server over a directory, whose clients sign their requests: for the tests, and for
//! `bench/s3`.

use hyper_util::rt::{TokioExecutor, TokioIo};
use std::path::Path;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Answers at `listener` until `stop`: the directories in `dir` are buckets, the credentials are `key` and
/// `secret`.
pub async fn serve(dir: &Path, listener: TcpListener, stop: CancellationToken) {
    let files = s3s_fs::FileSystem::new(dir).expect("a directory that exists");
    let mut service = s3s::service::S3ServiceBuilder::new(files);
    service.set_auth(s3s::auth::SimpleAuth::from_single("key", "secret"));
    let service = service.build();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        let Ok((socket, _)) = accepted else { continue };
        let (service, stop) = (service.clone(), stop.clone());
        tokio::spawn(async move {
            let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            tokio::select! {
                _ = server.serve_connection(TokioIo::new(socket), service) => {}
                () = stop.cancelled() => {}
            }
        });
    }
}
