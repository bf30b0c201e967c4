//! A target that is changed, refuses rows or is away for long: its sink stops and says why, nobody
//! else notices, and once the target is mended everything is there, once.

use crate::harness::{PATIENCE, Postgres, Weir, rows, run, value, wait_for, words};
use std::time::{Duration, Instant};
use tokio_postgres::Client;

const STATUS: &str = "SELECT status FROM weir_catalog.sinks WHERE name = 'k'";
const ALERT: &str =
    "SELECT rule || ': ' || object || ': ' || message FROM weir_catalog.alerts WHERE object = 'k'";

async fn pipeline(client: &Client, port: u16, sink_type: &str) {
    run(
        client,
        &format!(
            "CREATE TABLE t (id int PRIMARY KEY, v text){};
             CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM t;
             CREATE SINK k FROM t WITH (connector = 'postgres', hostname = '127.0.0.1', port = {port},
               username = 'postgres', database.name = 'postgres', table.name = 'target', {sink_type})",
            if sink_type.contains("append") { " APPEND ONLY" } else { "" },
        ),
    )
    .await;
}

const UPSERT: &str = "type = 'upsert', primary_key = 'id'";

/// Waits for an alert that says `part`, in a state.
async fn stopped(client: &Client, part: &str) {
    wait_for(client, STATUS, "stopped").await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let alert = rows(client, ALERT).await.concat().join("\n");
        if alert.starts_with("sink stopped: k: ") && alert.contains(part) {
            return;
        }
        assert!(Instant::now() < deadline, "{part} is not in {alert}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_row_stops_its_sink_alone_until_the_target_takes_it() {
    let postgres = Postgres::start().await;
    let target = postgres.connect().await;
    run(&target, "CREATE TABLE target (id int PRIMARY KEY, v text CHECK (v <> 'bad'))").await;
    let mut weir = Weir::start().await;
    let client = weir.connect().await;
    pipeline(&client, postgres.port(), UPSERT).await;
    run(&client, "INSERT INTO t VALUES (1, 'good')").await;
    wait_for(&target, "SELECT count(*) FROM target", "1").await;
    run(&client, "INSERT INTO t VALUES (2, 'bad'), (3, 'good too')").await;
    stopped(&client, "23514: new row for relation \"target\" violates check constraint").await;
    let alert = value(&client, ALERT).await;
    assert!(alert.contains("Failing row contains (2, bad)"), "{alert}");
    let shown = rows(&client, "SHOW SINKS").await;
    assert_eq!(shown[0][..3], ["k", "postgres", "stopped"]);
    // Others go on, through a crash too; what is written meanwhile waits.
    run(&client, "INSERT INTO t VALUES (4, 'meanwhile')").await;
    wait_for(&client, "SELECT n FROM n", "4").await;
    weir.kill_and_restart().await;
    let client = weir.connect().await;
    stopped(&client, "23514").await;
    assert_eq!(value(&target, "SELECT count(*) FROM target").await, "1");
    run(&target, "ALTER TABLE target DROP CONSTRAINT target_v_check").await;
    run(&client, "ALTER SINK k RESUME").await;
    wait_for(&target, "SELECT count(*) FROM target", "4").await;
    wait_for(&client, STATUS, "running").await;
    assert_eq!(rows(&client, ALERT).await, Vec::<Vec<String>>::new());
    let error = client.batch_execute("ALTER SINK t RESUME").await.expect_err("a table");
    assert!(words(&error).starts_with("42809"), "{}", words(&error));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_target_stops_its_sink_and_it_goes_on_by_itself() {
    let postgres = Postgres::start().await;
    let target = postgres.connect().await;
    run(&target, "CREATE TABLE target (id int PRIMARY KEY, v text)").await;
    let weir = Weir::start().await;
    let client = weir.connect().await;
    pipeline(&client, postgres.port(), "type = 'append-only'").await;
    let steps = [
        ("ALTER TABLE target RENAME TO elsewhere", "42P01: ", "ALTER TABLE elsewhere RENAME TO target"),
        (
            "ALTER TABLE target ADD COLUMN must int NOT NULL DEFAULT 0; ALTER TABLE target ALTER must DROP DEFAULT",
            "23502: ",
            "ALTER TABLE target ALTER must SET DEFAULT 7",
        ),
        ("ALTER TABLE target RENAME v TO w", "42703: ", "ALTER TABLE target RENAME w TO v"),
        ("ALTER TABLE target ALTER v TYPE int USING NULL", "42804: ", "ALTER TABLE target ALTER v TYPE text"),
    ];
    for (i, (breaks, says, mends)) in steps.into_iter().enumerate() {
        let last = i as i64 * 2;
        run(&client, &format!("INSERT INTO t VALUES ({last}, 'x')")).await;
        wait_for(&target, "SELECT count(*) FROM target", &(last + 1).to_string()).await;
        run(&target, breaks).await;
        run(&client, &format!("INSERT INTO t VALUES ({}, 'y')", last + 1)).await;
        stopped(&client, says).await;
        run(&target, mends).await;
        wait_for(&target, "SELECT count(*) FROM target", &(last + 2).to_string()).await;
        wait_for(&client, STATUS, "running").await;
    }
    assert_eq!(value(&target, "SELECT count(DISTINCT id) FROM target").await, "8");
    // A table that is gone: whoever makes it anew says that everything is to be delivered again.
    run(&target, "DROP TABLE target").await;
    run(&client, "INSERT INTO t VALUES (100, 'z')").await;
    stopped(&client, "42P01: relation \"target\" does not exist in the target of sink \"k\"").await;
    run(&target, "CREATE TABLE target (id int PRIMARY KEY, v text)").await;
    run(&client, "ALTER SINK k REBUILD").await;
    wait_for(&target, "SELECT count(*) FROM target", "9").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_is_away_for_long_gets_everything_once() {
    let mut postgres = Postgres::start().await;
    run(&postgres.connect().await, "CREATE TABLE target (id int PRIMARY KEY, v text)").await;
    let mut weir = Weir::start().await;
    let client = weir.connect().await;
    pipeline(&client, postgres.port(), "type = 'append-only'").await;
    run(&client, "INSERT INTO t VALUES (0, 'first')").await;
    wait_for(&postgres.connect().await, "SELECT count(*) FROM target", "1").await;
    postgres.kill();
    for i in 1..=3 {
        run(&client, &format!("INSERT INTO t VALUES ({i}, 'x')")).await;
        run(&client, "CHECKPOINT").await;
    }
    wait_for(&client, STATUS, "retrying").await;
    weir.kill_and_restart().await;
    let client = weir.connect().await;
    run(&client, "INSERT INTO t VALUES (4, 'x')").await;
    wait_for(&client, "SELECT n FROM n", "5").await;
    wait_for(&client, STATUS, "retrying").await;
    postgres.restart().await;
    run(&client, "ALTER SINK k RESUME").await;
    let target = postgres.connect().await;
    wait_for(&target, "SELECT count(*) FROM target", "5").await;
    wait_for(&client, STATUS, "running").await;
    assert!(!weir.log().contains("could not remove sink log"), "{}", weir.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuilt_sink_holds_what_its_input_holds() {
    let mut postgres = Postgres::start().await;
    let target = postgres.connect().await;
    run(&target, "CREATE TABLE target (id int PRIMARY KEY, v text)").await;
    let mut weir = Weir::start().await;
    let client = weir.connect().await;
    pipeline(&client, postgres.port(), UPSERT).await;
    run(&client, "INSERT INTO t SELECT i, 'row ' || i FROM generate_series(1, 5000) AS g(i)").await;
    wait_for(&target, "SELECT count(*) FROM target", "5000").await;
    postgres.kill();
    run(&client, "ALTER DATABASE dev SET sink.log_limit = '64kB'").await;
    let mut inserted = 5000;
    while value(&client, STATUS).await != "paused" {
        assert!(inserted < 500_000, "it is never paused");
        let (from, to) = (inserted + 1, inserted + 1000);
        run(
            &client,
            &format!("INSERT INTO t SELECT i, 'row ' || i FROM generate_series({from}, {to}) AS g(i)"),
        )
        .await;
        run(&client, "CHECKPOINT").await;
        inserted = to;
    }
    // What the paused sink does not hear of: rows that go, and rows that change.
    run(&client, "DELETE FROM t WHERE id % 10 = 0; UPDATE t SET v = 'changed' WHERE id % 10 = 1").await;
    let refused = client.batch_execute("ALTER SINK k REBUILD").await.expect_err("the target is down");
    assert!(words(&refused).starts_with("08001"), "{}", words(&refused));
    postgres.restart().await;
    run(&client, "ALTER DATABASE dev SET sink.log_limit = '1GB'").await;
    run(&client, "ALTER SINK k REBUILD").await;
    // At any moment of it.
    weir.kill_and_restart().await;
    let client = weir.connect().await;
    run(&client, "WAIT").await;
    wait_for(&client, STATUS, "running").await;
    let target = postgres.connect().await;
    let sums = |name: &str| format!("SELECT count(*) || ' ' || sum(id) || ' ' || sum(length(v)) FROM {name}");
    let expected = value(&client, &sums("t")).await;
    wait_for(&target, &sums("target"), &expected).await;
    run(&client, "DELETE FROM t WHERE id % 10 = 1").await;
    let expected = value(&client, &sums("t")).await;
    wait_for(&target, &sums("target"), &expected).await;
    assert_eq!(value(&target, "SELECT count(*) FROM weir_progress").await, "1");
    let none = "SELECT count(*) FROM weir_catalog.alerts WHERE object = 'k'";
    wait_for(&client, none, "0").await;

    run(
        &client,
        &format!(
            "CREATE SINK f FROM t WITH (connector = 'file', path = '{}', type = 'append-only',
               force_append_only = true) FORMAT PLAIN ENCODE JSON",
            weir.path("files").display()
        ),
    )
    .await;
    let error = client.batch_execute("ALTER SINK f REBUILD").await.expect_err("files stay");
    assert!(words(&error).starts_with("0A000"), "{}", words(&error));
}
