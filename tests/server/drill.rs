//! `weir drill`, as a user runs it: a few kills of each of its pipelines, in files of each kind and in
//! PostgreSQL, and of a pipeline of the user's; and that it tells when a row is lost.

use crate::harness::{PATIENCE, Postgres, run, seed, value};
use crate::storage::{CREDENTIALS, S3};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

struct Drill {
    dir: tempfile::TempDir,
    child: Child,
}

impl Drill {
    fn begin(options: &[&str]) -> Drill {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let log = std::fs::File::create(dir.path().join("log")).expect("a log file");
        let child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .arg("drill")
            .args(["--seed", &(seed() % 1_000_000).to_string()])
            .arg("--dir")
            .arg(dir.path().join("work"))
            .arg("--json")
            .arg(dir.path().join("report.json"))
            .args(options)
            .envs(CREDENTIALS)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .expect("the drill starts");
        Drill { dir, child }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Waits until it has said so.
    async fn says(&mut self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.said().contains(text) {
            assert!(Instant::now() < deadline, "not \"{text}\":\n{}", self.said());
            assert!(self.child.try_wait().is_ok_and(|ended| ended.is_none()), "{}", self.said());
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    async fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE * 4;
        loop {
            if let Some(status) = self.child.try_wait().expect("it was started here") {
                return status;
            }
            assert!(Instant::now() < deadline, "the drill does not end:\n{}", self.said());
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }

    fn report(&self) -> serde_json::Value {
        let text = std::fs::read_to_string(self.dir.path().join("report.json")).expect("a report");
        serde_json::from_str(&text).expect("JSON")
    }

    fn assert_reconciled(&self, status: ExitStatus, kills: usize) {
        assert!(status.success(), "{}", self.said());
        let report = self.report();
        let of_kills = report["kills"].as_array().expect("kills");
        assert_eq!(of_kills.len(), kills);
        assert!(of_kills.iter().any(|kill| kill["running_ms"].as_u64() > Some(0)), "{report}");
        for sink in report["sinks"].as_array().expect("sinks") {
            assert!(sink["expected"].as_i64() > Some(0), "{report}");
            assert_eq!(sink["expected_checksum"], sink["found_checksum"], "{report}");
        }
        assert!(self.said().contains("every row is there exactly once"), "{}", self.said());
        assert!(!self.dir.path().join("work").exists(), "it cleans up");
    }
}

impl Drop for Drill {
    fn drop(&mut self) {
        // Its servers end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_reconcile() {
    let mut drill = Drill::begin(&["--kills", "8", "--rate", "3000"]);
    let status = drill.ended().await;
    drill.assert_reconciled(status, 8);
}

/// Parquet and each change by itself; windows, joins and top-n; jobs that get other parallelisms.
#[tokio::test(flavor = "multi_thread")]
async fn windows_reconcile_in_parquet_and_as_changes() {
    let options = ["--pipeline", "windows", "--kills", "4", "--rate", "2000", "--rescale", "--format"];
    let mut parquet = Drill::begin(&[&options[..], &["parquet"]].concat());
    let status = parquet.ended().await;
    parquet.assert_reconciled(status, 4);
    let mut debezium = Drill::begin(&[&options[..], &["debezium"]].concat());
    let status = debezium.ended().await;
    debezium.assert_reconciled(status, 4);
}

/// A client writes meanwhile, checkpoints go to an object store, and the local ones are lost with some kills.
#[tokio::test(flavor = "multi_thread")]
async fn tables_that_are_written_to_reconcile_from_a_storage_elsewhere() {
    let (postgres, s3) = (Postgres::start().await, S3::start().await);
    let url = format!("postgresql://postgres@127.0.0.1:{}/postgres", postgres.port());
    let storage = format!("checkpoint.storage={}", s3.url("drill"));
    let mut drill =
        Drill::begin(&["--pipeline", "tables", "--kills", "8", "--postgres", &url, "--set", &storage]);
    let status = drill.ended().await;
    drill.assert_reconciled(status, 8);
    assert!(s3.objects("drill").len() > 3);
}

fn signal(child: &Child, signal: &str) {
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status();
    assert!(sent.expect("it can be sent").success());
}

/// The servers that a drill has started and that are alive.
fn servers_of(drill: &Drill) -> String {
    let found = Command::new("pgrep").args(["-f", &drill.dir.path().display().to_string()]).output();
    let found = String::from_utf8(found.expect("it runs").stdout).expect("numbers");
    let own = drill.child.id().to_string();
    found.lines().filter(|pid| *pid != own).collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_interrupted_reports_what_it_had() {
    let mut drill = Drill::begin(&["--kills", "1000", "--rate", "10", "--events", "500"]);
    drill.says(" 2 of 1000 ").await;
    assert_ne!(servers_of(&drill), "");
    signal(&drill.child, "-INT");
    assert_eq!(drill.ended().await.code(), Some(130), "{}", drill.said());
    let report = drill.report();
    let kills = report["kills"].as_array().expect("kills").len();
    assert!((2..20).contains(&kills) && report["planned"] == 1000, "{report}");
    let said = format!("{kills} of 1000 kills: it was interrupted");
    assert!(drill.said().contains(&said), "{}", drill.said());
    assert!(drill.said().contains("no row was lost or there twice so far"), "{}", drill.said());
    assert_eq!(servers_of(&drill), "");
    assert!(!drill.dir.path().join("work").exists(), "it cleans up");
    // One that is killed leaves no server behind either.
    let mut drill = Drill::begin(&["--kills", "1000", "--rate", "10", "--events", "500"]);
    drill.says(" 1 of 1000 ").await;
    drill.child.kill().expect("it is killed");
    drill.child.wait().expect("it was started here");
    let deadline = Instant::now() + PATIENCE;
    while !servers_of(&drill).is_empty() {
        assert!(Instant::now() < deadline, "{} are left", servers_of(&drill));
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_reconcile_in_two_phases() {
    let postgres = Postgres::start().await;
    let url = format!("postgresql://postgres@127.0.0.1:{}/postgres", postgres.port());
    let mut drill =
        Drill::begin(&["--kills", "6", "--rate", "3000", "--postgres", &url, "--commit-mode", "two_phase"]);
    let status = drill.ended().await;
    drill.assert_reconciled(status, 6);
    let target = postgres.connect().await;
    let left = "SELECT (SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'weir_drill%') \
                + (SELECT count(*) FROM pg_prepared_xacts)";
    assert_eq!(value(&target, left).await, "0");
}

fn own_script(dir: &Path, port: u16) -> String {
    format!(
        "CREATE TABLE names (auction bigint PRIMARY KEY, name text);
         INSERT INTO names SELECT i, 'auction ' || i FROM generate_series(1000, 1100) AS g(i);
         CREATE SOURCE bid WITH (connector = 'nexmark', nexmark.table.type = 'Bid', events = 20000, rate = 3000);
         CREATE MATERIALIZED VIEW high AS SELECT auction, max(price) AS price FROM bid GROUP BY auction;
         CREATE SINK named AS SELECT h.auction, n.name, h.price FROM high h JOIN names n ON n.auction = h.auction
           WITH (connector = 'postgres', hostname = '127.0.0.1', port = '{port}', username = 'postgres',
                 database.name = 'postgres', table.name = 'named', type = 'upsert', primary_key = 'auction');
         CREATE SINK cheap AS SELECT auction, price, datetime FROM bid WHERE price < 1000
           WITH (connector = 'file', path = '{cheap}', type = 'append-only', commit_every = 1) FORMAT PLAIN ENCODE CSV;
         CREATE TABLE notes (id bigint PRIMARY KEY, note text) ON CONFLICT DO UPDATE FULL;
         CREATE SINK noted FROM notes WITH (connector = 'file', path = '{noted}', type = 'upsert', primary_key = 'id',
                                            commit_every = 1, compression = 'gzip')
           FORMAT PLAIN ENCODE CSV (header = true);",
        cheap = dir.join("cheap").display(),
        noted = dir.join("noted").display(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_of_the_users_reconciles_and_a_target_that_is_not_empty_is_refused() {
    let postgres = Postgres::start().await;
    let target = postgres.connect().await;
    run(&target, "CREATE TABLE named (auction bigint PRIMARY KEY, name text, price bigint)").await;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let script = dir.path().join("pipeline.sql");
    std::fs::write(&script, own_script(dir.path(), postgres.port())).expect("written");
    let script = script.display().to_string();
    let notes = |i: usize| {
        format!(
            "INSERT INTO notes VALUES ({}, 'a \"note\", {i}');
             BEGIN; DELETE FROM notes WHERE id = {}; INSERT INTO notes VALUES ({i}, NULL); COMMIT;\n",
            i % 40,
            i % 40 + 1
        )
    };
    let writes = dir.path().join("writes.sql");
    std::fs::write(&writes, (0..200).map(notes).collect::<String>()).expect("written");
    let writes = writes.display().to_string();
    let mut drill = Drill::begin(&["--kills", "4", "--sql", &script, "--writes", &writes]);
    let status = drill.ended().await;
    drill.assert_reconciled(status, 4);
    // What is in the targets now is none of a second drill's.
    let mut drill = Drill::begin(&["--kills", "1", "--sql", &script]);
    assert!(!drill.ended().await.success());
    assert!(drill.said().contains("choose an empty one"), "{}", drill.said());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_lost_is_told() {
    let postgres = Postgres::start().await;
    let target = postgres.connect().await;
    let url = format!("postgresql://postgres@127.0.0.1:{}/postgres", postgres.port());
    let mut drill = Drill::begin(&["--kills", "2", "--rate", "3000", "--postgres", &url]);
    let deadline = Instant::now() + PATIENCE;
    let schema = "SELECT coalesce(max(nspname::text), '') FROM pg_namespace WHERE nspname LIKE 'weir_drill%'";
    let mut lost = 0;
    while lost == 0 {
        assert!(Instant::now() < deadline, "no rows to lose:\n{}", drill.said());
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        let schema = value(&target, schema).await;
        if !schema.is_empty() {
            let sql =
                format!("DELETE FROM {schema}.bids WHERE ctid IN (SELECT min(ctid) FROM {schema}.bids)");
            lost = target.execute(&sql, &[]).await.unwrap_or(0);
        }
    }
    assert!(!drill.ended().await.success());
    assert!(drill.said().contains("IT DOES NOT RECONCILE"), "{}", drill.said());
    let sinks = drill.report()["sinks"].clone();
    assert_eq!((sinks[0]["losses"].as_i64(), sinks[0]["duplicates"].as_i64()), (Some(1), Some(0)), "{sinks}");
}
