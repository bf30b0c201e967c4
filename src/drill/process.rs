//! A server that the drill started: its process, its log, and statements to it.

use super::tables::failed;
use super::{DrillConfig, DrillError};
use crate::ports::free_port;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// Jobs that don't run.
const OTHER_JOBS: &str = "SELECT count(*) FROM weir_catalog.jobs WHERE status <> 'running'";

/// A server, and the data directory that outlives it.
pub struct Process {
    binary: PathBuf,
    parallelism: usize,
    /// Settings of its own.
    settings: Vec<String>,
    /// Fail points of every life.
    fail_points: Vec<String>,
    dir: PathBuf,

    child: Option<Child>,
    port: Arc<AtomicU16>,
    /// How long the log was when the process started.
    log_from: u64,
}

/// A way to a server, whichever life it is in.
#[derive(Clone)]
pub struct Address(Arc<AtomicU16>);

impl Address {
    /// A new session.
    pub async fn connect(&self) -> Result<Client, DrillError> {
        let config = format!("host=127.0.0.1 port={} user=root dbname=dev", self.0.load(Ordering::Relaxed));
        let connected = tokio_postgres::connect(&config, NoTls).await;
        let (client, connection) = connected.map_err(|e| failed("connect to the server", &e))?;
        tokio::spawn(connection);
        Ok(client)
    }
}

impl Process {
    /// The server that nobody kills. It does not run yet.
    pub fn reference(config: &DrillConfig) -> Self {
        Self::new(config, "reference", &[], &[])
    }

    /// The one that is killed. It does not run yet.
    pub fn drilled(config: &DrillConfig) -> Self {
        Self::new(config, "drilled", &config.settings, &config.fail_points)
    }

    fn new(config: &DrillConfig, name: &str, settings: &[String], fail_points: &[String]) -> Self {
        Self {
            binary: config.binary.clone(),
            parallelism: config.parallelism,
            settings: settings.to_vec(),
            fail_points: fail_points.to_vec(),
            dir: config.dir.join(name),
            child: None,
            port: Arc::default(),
            log_from: 0,
        }
    }

    /// Starts it, with a fail point if there is one; does not wait for it.
    pub fn begin(&mut self, fail_point: Option<&str>) -> Result<(), DrillError> {
        std::fs::create_dir_all(&self.dir)?;
        self.log_from = std::fs::metadata(self.log_path()).map_or(0, |about| about.len());
        let port = free_port()?;
        self.port.store(port, Ordering::Relaxed);
        let log = File::options().create(true).append(true).open(self.log_path())?;
        let mut command = Command::new(&self.binary);
        command
            .arg("serve")
            .arg("--data-dir")
            .arg(self.data_dir())
            .args(["--listen", &format!("127.0.0.1:{port}")])
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
            .stderr(log)
            // Who interrupts the drill does not interrupt the server: that is not one of its kills.
            .process_group(0);
        command.args(self.settings.iter().flat_map(|setting| ["--set", setting]));
        end_with_us(&mut command);
        let fail_points: Vec<&str> = self.fail_points.iter().map(String::as_str).chain(fail_point).collect();
        if !fail_points.is_empty() {
            command.env("WEIR_FAILPOINT", fail_points.join(", "));
        }
        self.child = Some(command.spawn()?);
        Ok(())
    }

    fn log_path(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// What it has logged since it was started last.
    pub fn log_of_this_life(&self) -> String {
        let read = || {
            let mut file = File::open(self.log_path())?;
            file.seek(SeekFrom::Start(self.log_from))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).map(|_| bytes)
        };
        String::from_utf8_lossy(&read().unwrap_or_else(|_: std::io::Error| Vec::new())).into_owned()
    }

    /// Where its data is.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// The way to it.
    pub fn address(&self) -> Address {
        Address(Arc::clone(&self.port))
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

    /// Whether it has died of SIGKILL.
    pub fn was_killed(&mut self) -> bool {
        let status = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
        status.is_some_and(|status| status.signal() == Some(libc::SIGKILL))
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
        self.address().connect().await
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

/// Sees to it that the process ends when the drill does, however that ends.
fn end_with_us(command: &mut Command) {
    // SAFETY: a plain system call, which may be made between fork and exec.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
}
