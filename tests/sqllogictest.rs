//! Every `.slt` under `sqllogictest/` against a server of its own, in this process.
//!
//! ```text
//!   cargo test --test sqllogictest                        all files
//!   cargo test --test sqllogictest -- joins/ top_n        those whose path contains a word
//!   cargo test --test sqllogictest -- --override joins/   write what comes out into the files
//! ```
//! Rows are compared as text, NULL as `NULL`, the empty string as `(empty)`, line breaks as `\n`.
//! Errors are compared as `SQLSTATE: message`, with `DETAIL:` and `HINT:` behind. In statements
//! `$__TEST_DIR__` is a directory of the file's own, once `control substitution on` is given.

use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType, Runner};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::{NoTls, SimpleQueryMessage};
use weir::config::Config;
use weir::server::Server;

/// A file that takes longer has a statement that does not end.
const FILE_TIME_MAX: Duration = Duration::from_secs(180);

/// A connection.
struct Client {
    client: tokio_postgres::Client,
}

/// An error as the files compare it.
#[derive(Debug)]
struct Failed {
    state: Option<String>,
    text: String,
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failed {}

impl From<tokio_postgres::Error> for Failed {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(db) = error.as_db_error() else {
            return Self { state: None, text: format!("connection: {error}") };
        };
        let mut text = format!("{}: {}", db.code().code(), db.message());
        if let Some(detail) = db.detail() {
            text.push_str(&format!(" DETAIL: {detail}"));
        }
        if let Some(hint) = db.hint() {
            text.push_str(&format!(" HINT: {hint}"));
        }
        Self { state: Some(db.code().code().to_owned()), text }
    }
}

fn cell(value: Option<&str>) -> String {
    match value {
        None => "NULL".to_owned(),
        Some("") => "(empty)".to_owned(),
        Some(text) => text.replace('\n', "\\n"),
    }
}

#[async_trait::async_trait]
impl AsyncDB for Client {
    type Error = Failed;
    type ColumnType = DefaultColumnType;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, Failed> {
        let mut rows = Vec::new();
        let mut columns = None;
        for message in self.client.simple_query(sql).await? {
            match message {
                SimpleQueryMessage::RowDescription(description) => columns = Some(description.len()),
                SimpleQueryMessage::Row(row) => {
                    columns = Some(row.len());
                    rows.push((0..row.len()).map(|i| cell(row.get(i))).collect::<Vec<_>>());
                }
                SimpleQueryMessage::CommandComplete(count) if columns.is_none() => {
                    return Ok(DBOutput::StatementComplete(count));
                }
                _ => {}
            }
        }
        let types = vec![DefaultColumnType::Any; columns.unwrap_or(0)];
        Ok(DBOutput::Rows { types, rows })
    }

    async fn shutdown(&mut self) {}

    fn engine_name(&self) -> &str {
        "weir"
    }

    async fn sleep(time: Duration) {
        tokio::time::sleep(time).await;
    }

    fn error_sql_state(error: &Failed) -> Option<String> {
        error.state.clone()
    }
}

async fn connect(address: SocketAddr) -> Result<Client, Failed> {
    let options = format!("host={} port={} user=root dbname=dev", address.ip(), address.port());
    let (client, connection) = tokio_postgres::connect(&options, NoTls).await?;
    tokio::spawn(connection);
    Ok(Client { client })
}

async fn run_file(path: &Path, rewrite: bool) -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let data = dir.path().join("data").display().to_string();
    // `WEIR_STATE_BACKEND=memory` runs all of it with the other store.
    let backend = std::env::var("WEIR_STATE_BACKEND").unwrap_or_else(|_| "rocksdb".to_owned());
    let settings = [
        ("state.backend", backend.as_str()),
        ("data_dir", data.as_str()),
        ("listen", "127.0.0.1:0"),
        ("http", "127.0.0.1:0"),
        ("parallelism", "2"),
        ("query.threads", "2"),
        ("memory.limit", "1GB"),
        ("barrier.interval", "20ms"),
    ];
    let config = Config::new(settings).map_err(|e| e.to_string())?;
    let server = Server::start(config).await.map_err(|e| e.to_string())?;
    let address = server.addr;
    let mut runner = Runner::new(|| connect(address));
    let work = async {
        if rewrite {
            let (validator, normalizer) = (sqllogictest::default_validator, sqllogictest::default_normalizer);
            let columns = sqllogictest::default_column_validator;
            runner
                .update_test_file(path, " ", validator, normalizer, columns)
                .await
                .map_err(|e| e.to_string())
        } else {
            runner.run_file_async(path).await.map_err(|e| e.display(false).to_string())
        }
    };
    let outcome = match tokio::time::timeout(FILE_TIME_MAX, work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("did not end within {FILE_TIME_MAX:?}")),
    };
    drop(runner);
    let ended = server.shutdown().await.map_err(|e| format!("shutdown: {e}"));
    outcome.and(ended)
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|e| e == "slt") {
            files.push(path);
        }
    }
}

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("sqllogictest");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&String> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let rewrite = arguments.iter().any(|a| a == "--override");
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    let name = |path: &Path| path.strip_prefix(&root).unwrap_or(path).display().to_string();
    files.retain(|f| words.is_empty() || words.iter().any(|w| name(f).contains(w.as_str())));
    if arguments.iter().any(|a| a == "--list") {
        files.iter().for_each(|f| println!("{}: test", name(f)));
        return ExitCode::SUCCESS;
    }

    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .thread_stack_size(weir::config::STACK_BYTES)
                .enable_all()
                .build()
                .expect("a runtime");
            let started = Instant::now();
            let outcome = runtime.block_on(run_file(file, rewrite));
            runtime.shutdown_timeout(Duration::from_secs(2));
            let said = if outcome.is_ok() { "ok" } else { "FAILED" };
            println!("test {} ... {said} ({:.1?})", name(file), started.elapsed());
            if let Err(error) = outcome {
                failures.lock().expect("no panic before").push((name(file), error));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4.min(files.len()) {
            scope.spawn(work);
        }
    });
    let failures = failures.into_inner().expect("no panic before");
    for (file, error) in &failures {
        println!("\n---- {file} ----\n{error}");
    }
    println!("\n{} passed, {} failed", files.len() - failures.len(), failures.len());
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
