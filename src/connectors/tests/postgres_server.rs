//! A real PostgreSQL server for the tests of its sinks, if one is installed.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio_postgres::{Client, NoTls};
use weir_catalog::Column;
use weir_catalog::sink::{Sink, SinkType};
use weir_catalog::source::FormatSpec;

/// A PostgreSQL server of one test.
pub struct Server {
    dir: tempfile::TempDir,
    process: Child,
    port: u16,
}

impl Server {
    /// `None` where PostgreSQL is not installed.
    pub async fn start() -> Option<Self> {
        let bin = glob::glob("/usr/lib/postgresql/*/bin").unwrap().filter_map(Result::ok).last()?;
        let dir = tempfile::tempdir().unwrap();
        let port = crate::ports::free_port().unwrap();
        let data = dir.path().join("data");
        // PostgreSQL refuses to run as root. SAFETY: a plain system call.
        let root = unsafe { libc::geteuid() } == 0;
        let command = |program: &str| {
            let program = bin.join(program);
            let mut command = if root { Command::new("setpriv") } else { Command::new(&program) };
            if root {
                command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]).arg(&program);
            }
            command.stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        if root {
            Command::new("chown").arg("postgres").arg(dir.path()).status().unwrap();
        }
        let made = command("initdb")
            .args(["-U", "u", "-A", "trust", "--no-sync", "-D"])
            .arg(&data)
            .status()
            .unwrap();
        assert!(made.success(), "initdb");
        let process = command("postgres")
            .arg("-D")
            .arg(&data)
            .args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"])
            .args(["-c", "max_prepared_transactions=20", "-k"])
            .arg(dir.path())
            .spawn()
            .unwrap();
        let server = Self { dir, process, port };
        for _ in 0..200 {
            if server.try_client().await.is_ok() {
                return Some(server);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("postgres does not start in {:?}", PathBuf::from(server.dir.path()));
    }

    pub async fn try_client(&self) -> Result<Client, tokio_postgres::Error> {
        let text = format!("host=127.0.0.1 port={} user=u dbname=postgres", self.port);
        let (client, connection) = tokio_postgres::connect(&text, NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// The one text column of a query.
    pub async fn rows(&self, query: &str) -> Vec<String> {
        let client = self.try_client().await.unwrap();
        client.query(query, &[]).await.unwrap().iter().map(|r| r.get::<_, String>(0)).collect()
    }

    /// Runs statements.
    pub async fn run(&self, statements: &str) {
        self.try_client().await.unwrap().batch_execute(statements).await.unwrap();
    }

    /// Columns are `name` or `name type`; bigint otherwise.
    pub fn sink(&self, columns: &[&str], sink_type: SinkType, table: &str) -> Sink {
        let column = |column: &&str| Column {
            name: column.split_once(' ').map_or(*column, |(name, _)| name).into(),
            data_type: arrow::datatypes::DataType::Int64,
            sql_type: column.split_once(' ').map_or("bigint", |(_, sql_type)| sql_type).into(),
            nullable: true,
            default: None,
        };
        let url = format!("jdbc:postgresql://127.0.0.1:{}/postgres?user=u", self.port);
        Sink {
            columns: columns.iter().map(column).collect(),
            query: String::new(),
            inputs: Vec::new(),
            connector: "postgres".into(),
            options: [("jdbc.url".to_owned(), url), ("table.name".to_owned(), table.to_owned())].into(),
            format: FormatSpec { encode: "NATIVE".into(), ..FormatSpec::default() },
            sink_type,
            primary_key: (sink_type == SinkType::Upsert).then(|| vec![0]),
            force_append_only: false,
            snapshot: true,
            replaces: None,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = self.process.id() as i32;
        // SAFETY: a plain system call on a process that we started.
        unsafe { libc::kill(pid, libc::SIGINT) };
        let _ = self.process.wait();
    }
}
