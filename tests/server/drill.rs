//! `weir drill`, as a user runs it: a few kills in files and in PostgreSQL; and that it tells when a row is
//! lost.

use crate::harness::{PATIENCE, Postgres, run, seed, value};
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
        // Its servers are told to end, too, where it is still alive: SIGKILL would leave them.
        if let Ok(None) = self.child.try_wait() {
            let _ = Command::new("pkill").args(["-KILL", "-P", &self.child.id().to_string()]).status();
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_reconcile() {
    let mut drill = Drill::begin(&["--kills", "8", "--rate", "3000"]);
    let status = drill.ended().await;
    drill.assert_reconciled(status, 8);
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
           WITH (connector = 'file', path = '{}', type = 'append-only', commit_every = 1) FORMAT PLAIN ENCODE CSV;",
        dir.join("cheap").display()
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
    let mut drill = Drill::begin(&["--kills", "4", "--sql", &script]);
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
