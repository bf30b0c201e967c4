//! Savepoints of databases with sinks: what was promised goes along, nothing is delivered twice, and a
//! target that is ahead is refused.

use crate::harness::{PATIENCE, Postgres, Weir, rows, run, try_rows, value, wait_for, words};
use crate::savepoint::misfit;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio_postgres::Client;

const STATUS: &str = "SELECT status FROM weir_catalog.sinks WHERE name = 'k'";

fn url(weir: &Weir, name: &str) -> String {
    format!("file://{}", weir.path(name).display())
}

/// A table, and a sink of it.
async fn pipeline(client: &Client, port: u16, more: &str) {
    run(
        client,
        &format!(
            "CREATE TABLE t (id int PRIMARY KEY, v text) APPEND ONLY;
             CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM t;
             CREATE SINK k FROM t WITH (connector = 'postgres', hostname = '127.0.0.1', port = {port},
               username = 'postgres', database.name = 'postgres', table.name = 'target', {more})"
        ),
    )
    .await;
}

/// Waits until the delivery of the sink is so, and says so.
async fn wait_alert(client: &Client, part: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let sql = "SELECT coalesce(message, '') FROM weir_catalog.alerts WHERE object = 'k'";
        let alert = rows(client, sql).await.concat().join("\n");
        if alert.contains(part) {
            return;
        }
        assert!(Instant::now() < deadline, "{part} is not in {alert}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_promised_and_not_delivered_goes_along() {
    for mode in ["progress", "two_phase"] {
        let mut postgres = Postgres::start().await;
        run(&postgres.connect().await, "CREATE TABLE target (id int, v text)").await;
        let mut weir = Weir::with(&["--parallelism", "2"], &[]).await;
        let client = weir.connect().await;
        let options = format!("type = 'append-only', commit_mode = '{mode}'");
        pipeline(&client, postgres.port(), &options).await;
        run(&client, "INSERT INTO t SELECT i, 'x' FROM generate_series(1, 50) AS g(i)").await;
        wait_for(&postgres.connect().await, "SELECT count(*) FROM target", "50").await;
        postgres.kill();
        for i in 0..5 {
            let (from, to) = (100 + i * 10, 109 + i * 10);
            run(
                &client,
                &format!("INSERT INTO t SELECT i, 'away' FROM generate_series({from}, {to}) AS g(i)"),
            )
            .await;
            run(&client, "CHECKPOINT").await;
        }
        let to = url(&weir, "saved");
        let notices = weir.notices(&format!("SAVEPOINT TO '{to}' AND STOP")).await;
        assert!(notices.contains("sink \"k\" does not have everything"), "{notices}");
        weir.kill();
        postgres.restart().await;
        // Elsewhere, with other actors.
        let mut moved = Weir::with(&["--restore", &to, "--parallelism", "3"], &[]).await;
        moved.set_options(&["--parallelism", "3"]);
        let there = moved.connect().await;
        let target = postgres.connect().await;
        run(&there, "INSERT INTO t VALUES (1000, 'after')").await;
        wait_for(&target, "SELECT count(*) FROM target", "101").await;
        moved.kill_and_restart().await;
        let there = moved.connect().await;
        run(&there, "INSERT INTO t VALUES (1001, 'after')").await;
        wait_for(&target, "SELECT count(*) FROM target", "102").await;
        assert_eq!(value(&target, "SELECT count(DISTINCT id) FROM target").await, "102", "{mode}");
        wait_for(&there, STATUS, "running").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_that_is_stopped_and_moved_delivers_each_row_once() {
    let out = tempfile::tempdir().expect("a temporary directory");
    let files = out.path().join("bids");
    let mut weir = Weir::with(&["--parallelism", "2", "--set", "checkpoint.interval=200ms"], &[]).await;
    let client = weir.connect().await;
    run(
        &client,
        &format!(
            "CREATE SOURCE bid WITH (connector = 'nexmark', nexmark.table.type = 'Bid', events = 50000, rate = 10000);
             CREATE SINK bid_files AS SELECT auction, bidder, price, datetime FROM bid
               WITH (connector = 'file', path = '{}', type = 'append-only', commit_every = 1) FORMAT PLAIN ENCODE JSON",
            files.display()
        ),
    )
    .await;
    for round in 0..3 {
        // Somewhere in the middle.
        let before = lines(&files).len();
        let deadline = Instant::now() + PATIENCE;
        while lines(&files).len() < before + 2000 {
            assert!(Instant::now() < deadline, "nothing is delivered");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let client = weir.connect().await;
        let to = format!("file://{}", out.path().join(format!("savepoint{round}")).display());
        let notices = weir.notices(&format!("SAVEPOINT TO '{to}' AND STOP")).await;
        assert_eq!(notices, "", "everything is delivered");
        drop(client);
        assert!(weir.terminate().await.success());
        let parallelism = ["1", "3", "2"][round];
        let options = ["--parallelism", parallelism, "--set", "checkpoint.interval=200ms"];
        weir = Weir::with(&[&options[..], &["--restore", &to]].concat(), &[]).await;
        weir.set_options(&options);
        if round == 1 {
            weir.kill_and_restart().await;
        }
    }
    let deadline = Instant::now() + PATIENCE;
    while lines(&files).len() < 46_000 {
        assert!(Instant::now() < deadline, "{} rows", lines(&files).len());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    run(&weir.connect().await, "CHECKPOINT; CHECKPOINT").await;
    let all = lines(&files);
    let distinct: std::collections::HashSet<&String> = all.iter().collect();
    // Two bids may be the same; none is there twice that was made once.
    let alone = Weir::with(&[], &[]).await;
    let client = alone.connect().await;
    run(
        &client,
        "CREATE SOURCE bid WITH (connector = 'nexmark', nexmark.table.type = 'Bid', events = 50000);
         CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM (SELECT DISTINCT auction, bidder, price, datetime FROM bid) d",
    )
    .await;
    wait_for(&client, "SELECT n FROM v", &distinct.len().to_string()).await;
    assert_eq!(all.len(), 46_000);
}

fn lines(dir: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    for path in std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".json") && !name.starts_with(['.', '_']) {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            lines.extend(text.lines().map(str::to_owned));
        }
    }
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_is_ahead_of_the_savepoint_is_refused_alone() {
    let mut postgres = Postgres::start().await;
    let target = postgres.connect().await;
    run(&target, "CREATE TABLE target (id int, v text)").await;
    let mut weir = Weir::start().await;
    let client = weir.connect().await;
    pipeline(&client, postgres.port(), "type = 'append-only'").await;
    run(&client, "INSERT INTO t VALUES (1, 'before')").await;
    wait_for(&target, "SELECT count(*) FROM target", "1").await;
    let to = url(&weir, "saved");
    run(&client, &format!("SAVEPOINT TO '{to}'")).await;
    run(&client, "INSERT INTO t VALUES (2, 'after')").await;
    wait_for(&target, "SELECT count(*) FROM target", "2").await;
    drop(target);
    // The target is away at first: later checkpoints do not make it good.
    postgres.kill();
    run(&client, &format!("RESTORE DATABASE dev FROM '{to}' WITH (replace = true)")).await;
    assert_eq!(value(&client, "SELECT n FROM n").await, "1", "everything else comes up");
    run(&client, "INSERT INTO t VALUES (3, 'new'); CHECKPOINT").await;
    wait_for(&client, STATUS, "retrying").await;
    weir.kill_and_restart().await;
    let client = weir.connect().await;
    run(&client, "INSERT INTO t VALUES (4, 'new'); CHECKPOINT").await;
    postgres.restart().await;
    run(&client, "ALTER SINK k RESUME").await;
    wait_alert(&client, "RESUME AT LEAST ONCE").await;
    let target = postgres.connect().await;
    assert_eq!(value(&target, "SELECT count(*) FROM target").await, "2");
    assert_eq!(value(&client, "SELECT n FROM n").await, "3");
    // A savepoint does not forget it, though it is of a later epoch than what the target holds.
    let again = url(&weir, "again");
    run(&client, &format!("SAVEPOINT TO '{again}'")).await;
    run(&client, &format!("RESTORE DATABASE dev FROM '{again}' WITH (replace = true)")).await;
    wait_alert(&client, "RESUME AT LEAST ONCE").await;
    assert_eq!(value(&target, "SELECT count(*) FROM target").await, "2");
    run(&client, "ALTER SINK k RESUME AT LEAST ONCE").await;
    wait_for(&target, "SELECT count(*) FROM target", "4").await;
    wait_for(&client, STATUS, "running").await;
    run(&client, "INSERT INTO t VALUES (5, 'new')").await;
    wait_for(&target, "SELECT count(*) FROM target", "5").await;
    let found = rows(&target, "SELECT id FROM target ORDER BY id").await.concat();
    assert_eq!(found, ["1", "2", "3", "4", "5"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_another_sink_had_since_the_savepoint_is_refused() {
    let postgres = Postgres::start().await;
    let target = postgres.connect().await;
    for how in ["type = 'append-only'", "type = 'append-only', commit_mode = 'two_phase', commit_every = 1"] {
        for again in [false, true] {
            run(&target, "DROP TABLE IF EXISTS target, weir_progress; CREATE TABLE target (id int, v text)")
                .await;
            let weir = Weir::start().await;
            let client = weir.connect().await;
            pipeline(&client, postgres.port(), how).await;
            run(&client, "INSERT INTO t VALUES (1, 'before'); CHECKPOINT").await;
            wait_for(&target, "SELECT count(*) FROM target", "1").await;
            // That it is known to be delivered is what the savepoint has to tell.
            wait_for(
                &client,
                "SELECT committed_epoch IS NOT NULL FROM weir_catalog.sinks WHERE name = 'k'",
                "t",
            )
            .await;
            let to = url(&weir, "saved");
            run(&client, &format!("SAVEPOINT TO '{to}'")).await;
            run(&client, "INSERT INTO t VALUES (2, 'after'); CHECKPOINT").await;
            wait_for(&target, "SELECT count(*) FROM target", "2").await;
            if again {
                run(&client, "DROP SINK k").await;
                wait_for(&target, "SELECT count(*) FROM pg_prepared_xacts", "0").await;
                run(&target, "DELETE FROM weir_progress; DELETE FROM target").await;
            } else {
                run(&client, "ALTER SINK k REBUILD").await;
                wait_for(&client, STATUS, "running").await;
                wait_for(&target, "SELECT count(*) FROM target", "2").await;
            }
            run(&client, &format!("RESTORE DATABASE dev FROM '{to}' WITH (replace = true)")).await;
            wait_alert(&client, "lacks what was delivered up to epoch").await;
            run(&client, "INSERT INTO t VALUES (2, 'again'); CHECKPOINT").await;
            assert_eq!(
                value(&target, "SELECT count(*) FROM target").await,
                if again { "0" } else { "2" },
                "{how}"
            );
            run(&client, "ALTER SINK k REBUILD").await;
            wait_for(&target, "SELECT count(*) FROM target WHERE v IN ('before', 'again')", "2").await;
            assert_eq!(value(&target, "SELECT count(*) FROM target").await, "2", "{how}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sinks_of_another_database_need_a_word() {
    let postgres = Postgres::start().await;
    let target = postgres.connect().await;
    run(&target, "CREATE TABLE target (id int, v text)").await;
    let weir = Weir::start().await;
    let client = weir.connect().await;
    pipeline(&client, postgres.port(), "type = 'append-only'").await;
    run(&client, "INSERT INTO t VALUES (1, 'x')").await;
    wait_for(&target, "SELECT count(*) FROM target", "1").await;
    let to = url(&weir, "saved");
    run(&client, &format!("SAVEPOINT TO '{to}'")).await;
    let other = Weir::start().await;
    let there = other.connect().await;
    let error = there.batch_execute(&format!("RESTORE DATABASE dev FROM '{to}'")).await.expect_err("sinks");
    let error = words(&error);
    assert!(
        error.starts_with("55000: the savepoint is of another database") && error.contains("--restore"),
        "{error}"
    );
    assert!(try_rows(&there, "SELECT * FROM t").await.is_err(), "nothing happened");
    run(&there, &format!("RESTORE DATABASE dev FROM '{to}' WITH (sinks = 'at_least_once')")).await;
    assert_eq!(value(&there, "SELECT n FROM n").await, "1");
    run(&there, "INSERT INTO t VALUES (2, 'y')").await;
    wait_for(&target, "SELECT count(*) FROM target WHERE id = 2", "1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promise_that_is_longer_than_a_file_goes_along() {
    const ROWS: usize = 120_000;
    let mut postgres = Postgres::start().await;
    run(&postgres.connect().await, "CREATE TABLE target (id int, v text)").await;
    let mut weir = Weir::start().await;
    let client = weir.connect().await;
    pipeline(&client, postgres.port(), "type = 'append-only'").await;
    postgres.kill();
    let insert =
        format!("INSERT INTO t SELECT i, repeat(md5(i::text), 20) FROM generate_series(1, {ROWS}) AS g(i)");
    run(&client, &insert).await;
    let to = url(&weir, "saved");
    run(&client, &format!("SAVEPOINT TO '{to}'")).await;
    let manifest = std::fs::read_to_string(weir.path("saved").join("savepoint.json")).expect("a manifest");
    assert!(manifest.matches("\"log\":\"000000.log\"").count() > 1, "one promise, several files");
    weir.kill();
    postgres.restart().await;
    let moved = Weir::with(&["--restore", &to], &[]).await;
    let target = postgres.connect().await;
    wait_for(&target, "SELECT count(*) FROM target", &ROWS.to_string()).await;
    let whole = "SELECT count(DISTINCT id) FROM target WHERE v = repeat(md5(id::text), 20)";
    assert_eq!(value(&target, whole).await, ROWS.to_string());
    wait_for(&moved.connect().await, STATUS, "running").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_of_what_is_rebuilt_empties_its_target_if_that_is_said() {
    for mode in ["progress", "two_phase"] {
        let postgres = Postgres::start().await;
        let target = postgres.connect().await;
        run(&target, "CREATE TABLE target (g int PRIMARY KEY, n bigint)").await;
        let mut weir = Weir::with(&["--parallelism", "2"], &[]).await;
        let client = weir.connect().await;
        run(
            &client,
            &format!(
                "CREATE TABLE t (id int PRIMARY KEY, v int);
                 CREATE MATERIALIZED VIEW sums AS SELECT v % 10 AS g, count(*) AS n FROM t GROUP BY v % 10;
                 CREATE SINK k FROM sums WITH (connector = 'postgres', hostname = '127.0.0.1', port = {},
                   username = 'postgres', database.name = 'postgres', table.name = 'target', type = 'upsert',
                   primary_key = 'g', commit_mode = '{mode}')",
                postgres.port()
            ),
        )
        .await;
        run(&client, "INSERT INTO t SELECT i, i % 7 FROM generate_series(1, 100) AS g(i)").await;
        wait_for(&target, "SELECT count(*) FROM target", "7").await;
        let to = url(&weir, "saved");
        run(&client, &format!("SAVEPOINT TO '{to}'")).await;
        // This comes after it, and is not to be in the target any more.
        run(&client, "INSERT INTO t VALUES (1000, 8), (1001, 9)").await;
        wait_for(&target, "SELECT count(*) FROM target", "9").await;
        misfit(&weir.path("saved"), "sums");
        let restore = |more: &str| {
            format!("RESTORE DATABASE dev FROM '{to}' WITH (replace = true, on_mismatch = 'rebuild'{more})")
        };
        let error = words(&client.batch_execute(&restore("")).await.expect_err("it has a sink"));
        assert!(
            error.starts_with("55000: sink \"k\" can't be rebuilt") && error.contains("sinks = 'rebuild'"),
            "{error}"
        );
        let notices = weir.notices(&restore(", sinks = 'rebuild'")).await;
        assert!(notices.contains("sink \"k\" is rebuilt: its target is emptied"), "{notices}");
        let client = weir.connect().await;
        run(&client, "WAIT").await;
        let expected = rows(&client, "SELECT v % 10, count(*) FROM t GROUP BY v % 10 ORDER BY 1").await;
        assert_eq!(expected.len(), 7);
        let held = "SELECT g, n FROM target ORDER BY 1";
        let deadline = Instant::now() + PATIENCE;
        while rows(&target, held).await != expected {
            assert!(Instant::now() < deadline, "{:?}", rows(&target, held).await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        weir.kill_and_restart().await;
        let client = weir.connect().await;
        run(&client, "INSERT INTO t VALUES (2000, 8)").await;
        wait_for(&target, "SELECT coalesce(max(n), 0) FROM target WHERE g = 8", "1").await;
        wait_for(&client, STATUS, "running").await;
        assert_eq!(value(&target, "SELECT count(*) FROM pg_prepared_xacts").await, "0", "{mode}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_whose_target_can_not_be_emptied_is_dropped_or_nothing_is_restored() {
    let weir = Weir::start().await;
    let client = weir.connect().await;
    let sink = format!(
        "CREATE TABLE t (a int) APPEND ONLY; CREATE MATERIALIZED VIEW s AS SELECT sum(a) AS s FROM t;
         CREATE SINK k FROM s WITH (connector = 'file', path = '{}', type = 'append-only', force_append_only = true)
           FORMAT PLAIN ENCODE JSON",
        weir.path("out").display()
    );
    run(&client, &sink).await;
    run(&client, "INSERT INTO t VALUES (1)").await;
    let to = url(&weir, "saved");
    run(&client, &format!("SAVEPOINT TO '{to}'")).await;
    misfit(&weir.path("saved"), "s");
    let restore = |more: &str| format!("RESTORE DATABASE dev FROM '{to}' WITH (replace = true, {more})");
    let error = client.batch_execute(&restore("on_mismatch = 'rebuild', sinks = 'rebuild'")).await;
    let error = words(&error.expect_err("files can't be emptied"));
    assert!(
        error.starts_with("55000: sink \"k\" can't be rebuilt") && error.contains("'drop' drops it"),
        "{error}"
    );
    assert_eq!(value(&client, "SELECT s FROM s").await, "1");
}
