//! Starts, stops and kills real servers: Weir's own binary, and a real PostgreSQL beside it.
//!
//! Every wait has a deadline; every process that is started here is ended here.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// How long anything may take that should happen.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// The seed of this run, printed; `WEIR_SEED` sets it.
pub fn seed() -> u64 {
    let seed = std::env::var("WEIR_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(rand::random);
    println!("WEIR_SEED={seed}");
    seed
}

/// What holds the state of servers that don't say it: `WEIR_STATE_BACKEND` sets it, so that any test can be
/// run with the other store.
fn backend() -> Vec<String> {
    let backend = std::env::var("WEIR_STATE_BACKEND").ok();
    backend.map_or_else(Vec::new, |backend| vec!["--set".to_owned(), format!("state.backend={backend}")])
}

/// A port that nobody listens on.
pub fn free_port() -> u16 {
    weir::ports::free_port().expect("a free port")
}

/// A Weir server, and the data directory that outlives it.
pub struct Weir {
    dir: TempDir,
    options: Vec<String>,
    /// Bytes of data that the kernel lets the process have, if not all.
    data_max: Option<usize>,
    data: Option<PathBuf>,
    process: Option<Child>,
    port: u16,
    http: u16,
}

impl Weir {
    /// A server with an empty data directory, answering.
    pub async fn start() -> Weir {
        Weir::with(&[], &[]).await
    }

    /// The same, with command line options and environment variables.
    pub async fn with(options: &[&str], environment: &[(&str, &str)]) -> Weir {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let options = options.iter().map(|o| (*o).to_owned()).collect();
        let mut weir = Weir { dir, options, data_max: None, data: None, process: None, port: 0, http: 0 };
        weir.begin(environment);
        weir.wait_ready().await;
        weir
    }

    /// The same, with its data on another disk.
    pub async fn on_disk(disk: &Path, options: &[&str]) -> Weir {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let options = options.iter().map(|o| (*o).to_owned()).collect();
        let data = Some(disk.join("data"));
        let mut weir = Weir { dir, options, data_max: None, data, process: None, port: 0, http: 0 };
        weir.begin(&[]);
        weir.wait_ready().await;
        weir
    }

    /// The same, where the kernel refuses memory beyond `bytes`: the process aborts then.
    pub async fn within(bytes: usize, options: &[&str]) -> Weir {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let options = options.iter().map(|o| (*o).to_owned()).collect();
        let mut weir =
            Weir { dir, options, data_max: Some(bytes), data: None, process: None, port: 0, http: 0 };
        weir.begin(&[]);
        weir.wait_ready().await;
        weir
    }

    /// Starts the process again (it must have ended); does not wait for it.
    pub fn begin(&mut self, environment: &[(&str, &str)]) {
        assert!(self.process.is_none(), "one process at a time");
        (self.port, self.http) = (free_port(), free_port());
        let log = File::options().create(true).append(true).open(self.log_path()).expect("a log file");
        let binary = env!("CARGO_BIN_EXE_weir");
        let mut command = Command::new(if self.data_max.is_some() { "prlimit" } else { binary });
        if let Some(bytes) = self.data_max {
            // The allocator would reserve far more than it uses.
            command.env("MIMALLOC_ARENA_EAGER_COMMIT", "0").arg(format!("--data={bytes}")).arg(binary);
        }
        command
            .arg("serve")
            .arg("--data-dir")
            .arg(self.data_dir())
            .arg("--listen")
            .arg(format!("127.0.0.1:{}", self.port))
            .arg("--http")
            .arg(format!("127.0.0.1:{}", self.http))
            .args(backend())
            .args(&self.options)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log);
        self.process = Some(command.spawn().expect("the server starts"));
    }

    /// Other command line options from the next start on.
    pub fn set_options(&mut self, options: &[&str]) {
        self.options = options.iter().map(|o| (*o).to_owned()).collect();
    }

    /// The data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.data.clone().unwrap_or_else(|| self.dir.path().join("data"))
    }

    /// A place for other files of the test.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// The server's log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// The port of the PostgreSQL protocol.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Waits until it answers; panics with its log if it ends instead.
    pub async fn wait_ready(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while self.try_connect().await.is_none() {
            assert!(self.is_alive(), "the server ended:\n{}", self.log());
            assert!(Instant::now() < deadline, "no answer in time:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// A new session, if it answers.
    pub async fn try_connect(&self) -> Option<Client> {
        let config = format!("host=127.0.0.1 port={} user=root dbname=dev", self.port);
        let (client, connection) = tokio_postgres::connect(&config, NoTls).await.ok()?;
        tokio::spawn(connection);
        Some(client)
    }

    /// A new session.
    pub async fn connect(&self) -> Client {
        self.try_connect().await.unwrap_or_else(|| panic!("no connection:\n{}", self.log()))
    }

    /// Runs a statement in a session of its own. Returns what the server told beside the result.
    pub async fn notices(&self, sql: &str) -> String {
        let config = format!("host=127.0.0.1 port={} user=root dbname=dev", self.port);
        let (client, mut connection) = tokio_postgres::connect(&config, NoTls).await.expect("it answers");
        let told = tokio::spawn(async move {
            let mut told = String::new();
            while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                if let tokio_postgres::AsyncMessage::Notice(notice) = message {
                    told.push_str(notice.message());
                    told.push('\n');
                }
            }
            told
        });
        run(&client, sql).await;
        drop(client);
        told.await.expect("no panic")
    }

    /// Whether the process runs.
    pub fn is_alive(&mut self) -> bool {
        self.process.as_mut().is_some_and(|p| matches!(p.try_wait(), Ok(None)))
    }

    /// The sum of a metric over its labels; none if the server does not show it.
    pub fn metric(&self, name: &str) -> Option<f64> {
        let mut socket = std::net::TcpStream::connect(("127.0.0.1", self.http)).ok()?;
        socket.set_read_timeout(Some(PATIENCE)).ok()?;
        write!(socket, "GET /metrics HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).ok()?;
        let of_name = answer.lines().filter_map(|line| line.strip_prefix(name));
        let values = of_name.filter(|rest| rest.starts_with([' ', '{']));
        values.filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok()).reduce(|a, b| a + b)
    }

    /// Waits until a metric is `expected`.
    pub async fn wait_metric(&self, name: &str, expected: f64) {
        let deadline = Instant::now() + PATIENCE;
        while self.metric(name) != Some(expected) {
            assert!(Instant::now() < deadline, "{name} is {:?}, not {expected}", self.metric(name));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// SIGKILL, now.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("it is ours to kill");
            process.wait().expect("it was started here");
        }
    }

    /// Waits until the process has ended by itself (a fail point, a shutdown).
    pub async fn wait_ended(&mut self) -> std::process::ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        while self.is_alive() {
            assert!(Instant::now() < deadline, "the server did not end:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut process = self.process.take().expect("it was started");
        process.wait().expect("it was started here")
    }

    /// SIGTERM; a clean end.
    pub async fn terminate(&mut self) -> std::process::ExitStatus {
        let id = self.process.as_ref().expect("it runs").id();
        let sent = Command::new("kill").arg("-TERM").arg(id.to_string()).status().expect("kill runs");
        assert!(sent.success());
        self.wait_ended().await
    }

    /// SIGKILL, and a new process that answers.
    pub async fn kill_and_restart(&mut self) {
        self.kill();
        self.begin(&[]);
        self.wait_ready().await;
    }
}

impl Drop for Weir {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(40).collect();
            eprintln!("--- the server's log ends ---");
            tail.iter().rev().for_each(|line| eprintln!("{line}"));
        }
    }
}

/// Runs statements; panics with the server's words if one fails.
pub async fn run(client: &Client, sql: &str) {
    if let Err(error) = client.batch_execute(sql).await {
        panic!("{sql}\n  {}", words(&error));
    }
}

/// The server's words, as psql would show them.
pub fn words(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(e) => format!(
            "{}: {}{}{}",
            e.code().code(),
            e.message(),
            e.detail().map(|d| format!(" DETAIL {d}")).unwrap_or_default(),
            e.hint().map(|h| format!(" HINT {h}")).unwrap_or_default()
        ),
        None => error.to_string(),
    }
}

/// The rows of a query as text, NULL as `\N`.
pub async fn rows(client: &Client, sql: &str) -> Vec<Vec<String>> {
    try_rows(client, sql).await.unwrap_or_else(|e| panic!("{sql}\n  {}", words(&e)))
}

/// The same; an error is the caller's.
pub async fn try_rows(client: &Client, sql: &str) -> Result<Vec<Vec<String>>, tokio_postgres::Error> {
    let messages = client.simple_query(sql).await?;
    Ok(messages
        .into_iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|i| row.get(i).unwrap_or("\\N").to_owned()).collect())
            }
            _ => None,
        })
        .collect())
}

/// The one value of a query, as text.
pub async fn value(client: &Client, sql: &str) -> String {
    let rows = rows(client, sql).await;
    assert!(rows.len() == 1 && rows[0].len() == 1, "{sql}: one value is expected, not {rows:?}");
    rows[0][0].clone()
}

/// Each view is what its query gives now, by name and query.
pub async fn assert_views(client: &Client, views: &[(&str, &str)], what: &str) {
    run(client, "FLUSH").await;
    for (view, query) in views {
        let mut kept = rows(client, &format!("SELECT * FROM {view}")).await;
        let mut computed = rows(client, query).await;
        kept.sort();
        computed.sort();
        assert_eq!(kept, computed, "{what}: {view}");
    }
}

/// Waits until the one value of a query is `expected`.
pub async fn wait_for(client: &Client, sql: &str, expected: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let now = value(client, sql).await;
        if now == expected {
            return;
        }
        assert!(Instant::now() < deadline, "{sql}: still {now}, not {expected}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A real PostgreSQL in a temporary directory.
pub struct Postgres {
    dir: TempDir,
    /// How many transactions it can prepare.
    prepares: usize,
    process: Child,
    port: u16,
}

fn postgres_bin() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND
        .get_or_init(|| {
            let mut found: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
                .expect("the Debian package postgresql is installed; `make test` sees to it")
                .filter_map(|e| Some(e.ok()?.path().join("bin")))
                .collect();
            found.sort();
            found.pop().expect("a PostgreSQL version")
        })
        .clone()
}

/// A command that runs as the user `postgres` where we are root: PostgreSQL refuses root.
fn as_postgres(program: &Path) -> Command {
    let root = Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout.starts_with(b"0"));
    if root {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
        command
    } else {
        Command::new(program)
    }
}

impl Postgres {
    /// A server with an empty database `postgres`, answering.
    pub async fn start() -> Postgres {
        Postgres::with_prepared(20).await
    }

    /// The same, which can prepare so many transactions.
    pub async fn with_prepared(prepares: usize) -> Postgres {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let _ = Command::new("chown").arg("postgres").arg(dir.path()).status();
        let data = dir.path().join("data");
        let made = as_postgres(&postgres_bin().join("initdb"))
            .args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync", "-D"])
            .arg(&data)
            .output()
            .expect("initdb runs");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let port = free_port();
        let process = Self::spawn(&dir, port, prepares);
        let mut postgres = Postgres { dir, prepares, process, port };
        postgres.wait_ready().await;
        postgres
    }

    fn spawn(dir: &TempDir, port: u16, prepares: usize) -> Child {
        as_postgres(&postgres_bin().join("postgres"))
            .arg("-D")
            .arg(dir.path().join("data"))
            .args(["-c", &format!("max_prepared_transactions={prepares}")])
            .args(["-p", &port.to_string(), "-h", "127.0.0.1", "-c", "fsync=off", "-c", "timezone=UTC", "-k"])
            .arg(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("PostgreSQL starts")
    }

    async fn wait_ready(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while tokio_postgres::connect(&self.config(), NoTls).await.is_err() {
            assert!(Instant::now() < deadline, "PostgreSQL does not answer");
            // After a kill it ends at once as long as processes of the one before are there.
            if self.process.try_wait().is_ok_and(|ended| ended.is_some()) {
                self.process = Self::spawn(&self.dir, self.port, self.prepares);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn config(&self) -> String {
        format!("host=127.0.0.1 port={} user=postgres dbname=postgres", self.port)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A new session.
    pub async fn connect(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.config(), NoTls).await.expect("it answers");
        tokio::spawn(connection);
        client
    }

    /// It goes away, as if killed.
    pub fn kill(&mut self) {
        let _ = Command::new("pkill").args(["-KILL", "-P", &self.process.id().to_string()]).status();
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// It comes back, on the same port with the same data.
    pub async fn restart(&mut self) {
        self.kill();
        let _ = std::fs::remove_file(self.dir.path().join("data/postmaster.pid"));
        self.process = Self::spawn(&self.dir, self.port, self.prepares);
        self.wait_ready().await;
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
    }
}
