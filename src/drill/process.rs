//! A server that the drill started: its process, its log, and statements to it.

use super::lines::failed;
use super::{DrillConfig, DrillError};
use std::fs::File;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// Jobs that don't run.
const OTHER_JOBS: &str = "SELECT count(*) FROM weir_catalog.jobs WHERE status <> 'running'";

/// A server, and the data directory that outlives it.
pub struct Process {
    binary: PathBuf,
    parallelism: usize,
    dir: PathBuf,

    child: Option<Child>,
    port: u16,
    /// How long the log was when the process started.
    log_from: usize,
}

impl Process {
    /// A server that works in `name` below the drill's directory. It does not run yet.
    pub fn new(config: &DrillConfig, name: &str) -> Self {
        Self {
            binary: config.binary.clone(),
            parallelism: config.parallelism,
            dir: config.dir.join(name),
            child: None,
            port: 0,
            log_from: 0,
        }
    }

    /// Starts it, with a fail point if there is one; does not wait for it.
    pub fn begin(&mut self, fail_point: Option<&str>) -> Result<(), DrillError> {
        std::fs::create_dir_all(&self.dir)?;
        self.log_from = self.log().len();
        self.port = free_port()?;
        let log = File::options().create(true).append(true).open(self.log_path())?;
        let mut command = Command::new(&self.binary);
        command
            .arg("serve")
            .arg("--data-dir")
            .arg(self.dir.join("data"))
            .args(["--listen", &format!("127.0.0.1:{}", self.port)])
            .args(["--http", &format!("127.0.0.1:{}", free_port()?)])
            .args(["--parallelism", &self.parallelism.to_string()])
            // Its own settings, whatever those of the drill's surroundings are.
            .args(["--config", "/dev/null"])
            .env("RUST_LOG", "info")
            .env("NO_COLOR", "1")
            .env_remove("WEIR_FAILPOINT")
            .env_remove("WEIR_AUTH_USERS")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        if let Some(fail_point) = fail_point {
            command.env("WEIR_FAILPOINT", fail_point);
        }
        self.child = Some(command.spawn()?);
        Ok(())
    }

    fn log_path(&self) -> PathBuf {
        self.dir.join("log")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// What it has logged since it was started last.
    pub fn log_of_this_life(&self) -> String {
        self.log().get(self.log_from..).unwrap_or_default().to_owned()
    }

    /// The number after `name=` in the line of its log that has `text`.
    pub fn logged(&self, text: &str, name: &str) -> Option<u64> {
        let log = self.log_of_this_life();
        let line = log.lines().find(|line| line.contains(text))?;
        let value = line.split(&format!("{name}=")).nth(1)?;
        value.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    }

    /// Whether the process runs.
    pub fn is_alive(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// SIGKILL, now. Nothing if it has died by itself.
    pub fn kill(&mut self) -> Result<(), DrillError> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// SIGTERM; a clean end.
    pub async fn terminate(&mut self) -> Result<(), DrillError> {
        if let Some(child) = &self.child {
            // SAFETY: a plain system call on a process that was started here and not waited for yet.
            #[allow(unsafe_code)]
            unsafe {
                libc::kill(child.id() as i32, libc::SIGTERM)
            };
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.is_alive() {
            if Instant::now() > deadline {
                return Err(self.unwilling("end"));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.kill()
    }

    /// Waits until it answers. Errors with the end of its log if it dies instead.
    pub async fn wait_running(&mut self, patience: Duration) -> Result<(), DrillError> {
        let deadline = Instant::now() + patience;
        loop {
            // A relation is read at an epoch: the first barrier is through, and whatever was acknowledged is
            // there.
            if let Ok(client) = self.connect().await
                && let Ok(jobs) = rows(&client, OTHER_JOBS).await
                && jobs == [["0"]]
            {
                return Ok(());
            }
            if !self.is_alive() || Instant::now() > deadline {
                return Err(self.unwilling("start"));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Why it did not do what it should: the end of its log.
    pub fn unwilling(&self, what: &str) -> DrillError {
        let log = self.log_of_this_life();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(15)..].join("\n");
        DrillError::Server { what: format!("the server did not {what}; its log ends"), reason: tail }
    }

    /// A new session.
    pub async fn connect(&self) -> Result<Client, DrillError> {
        let config = format!("host=127.0.0.1 port={} user=root dbname=dev", self.port);
        let connected = tokio_postgres::connect(&config, NoTls).await;
        let (client, connection) = connected.map_err(|e| failed("connect to the server", &e))?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// Runs a statement.
    pub async fn run(&self, statement: &str) -> Result<(), DrillError> {
        let client = self.connect().await?;
        client.batch_execute(statement).await.map_err(|e| failed(statement, &e))
    }

    /// The one value of a query, as text; empty for NULL.
    pub async fn value(&self, query: &str) -> Result<String, DrillError> {
        Ok(self.rows(query).await?.into_iter().flatten().next().unwrap_or_default())
    }

    /// The rows of a query, as text.
    pub async fn rows(&self, query: &str) -> Result<Vec<Vec<String>>, DrillError> {
        rows(&self.connect().await?, query).await.map_err(|e| failed(query, &e))
    }
}

/// The rows of a query, as text; empty for NULL.
pub async fn rows(client: &Client, query: &str) -> Result<Vec<Vec<String>>, tokio_postgres::Error> {
    let messages = client.simple_query(query).await?;
    let row = |message| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|i| row.get(i).unwrap_or_default().to_owned()).collect())
        }
        _ => None,
    };
    Ok(messages.into_iter().filter_map(row).collect())
}

impl Drop for Process {
    fn drop(&mut self) {
        // Nothing more can be done about one that does not let itself be killed.
        let _ = self.kill();
    }
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
