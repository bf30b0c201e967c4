//! A view over what is there already: exact while its inputs change, gone without a trace when it is
//! cancelled or cut off, and no hindrance to the others meanwhile.

use crate::harness::{PATIENCE, Weir, rows, run, try_rows, value, wait_for, words};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, NoTls};

/// Each chunk of a backfill takes so long that its middle can be met.
const SLOW: (&str, &str) = ("WEIR_FAILPOINT", "backfill.chunk=sleep:150");
const ROWS: usize = 60_000;

async fn fill(client: &Client) {
    run(
        client,
        &format!(
            "CREATE TABLE t (id int PRIMARY KEY, k int, v int);
             CREATE TABLE u (k int PRIMARY KEY, name text);
             CREATE TABLE other (a int);
             INSERT INTO t SELECT i, i % 500, i FROM generate_series(1, {ROWS}) AS g(i);
             INSERT INTO u SELECT i, 'n' || i FROM generate_series(0, 499) AS g(i);
             CREATE MATERIALIZED VIEW others AS SELECT count(*) AS n FROM other"
        ),
    )
    .await;
}

const JOIN: &str =
    "SELECT u.name, count(*) AS n, sum(t.v) AS total FROM t JOIN u ON t.k = u.k GROUP BY u.name";

/// Waits until a backfill has read something and is not done.
async fn wait_begun(client: &Client) {
    let deadline = Instant::now() + PATIENCE;
    while rows(client, "SELECT name FROM weir_catalog.ddl_progress WHERE rows_read > 0").await.is_empty() {
        assert!(Instant::now() < deadline, "nothing is read");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backfill_is_exact_while_its_inputs_change() {
    let weir = Weir::with(&["--parallelism", "2"], &[SLOW]).await;
    let (client, writer) = (weir.connect().await, weir.connect().await);
    fill(&client).await;
    run(&client, "CREATE MATERIALIZED VIEW below AS SELECT id, k, v FROM t WHERE v > 0").await;
    let create = format!("CREATE MATERIALIZED VIEW j AS {JOIN}");
    let on_view = "CREATE MATERIALIZED VIEW b AS SELECT k, count(*) AS n, max(v) AS m FROM below GROUP BY k";
    let creating = tokio::spawn(async move {
        run(&client, &create).await;
        run(&client, on_view).await;
        client
    });
    let mut meanwhile = 0;
    let mut i = 0;
    while !creating.is_finished() {
        i += 1;
        let filling = !rows(&writer, "SELECT 1 FROM weir_catalog.ddl_progress").await.is_empty();
        run(
            &writer,
            &format!(
                "UPDATE t SET v = -v, k = (k + 1) % 500 WHERE id % 97 = {};
                 DELETE FROM t WHERE id % 211 = {};
                 INSERT INTO t VALUES ({}, {}, 7);
                 UPDATE u SET name = name || '!' WHERE k = {};
                 INSERT INTO other VALUES (1)",
                i % 97,
                i % 211,
                ROWS + i,
                i % 500,
                i % 500,
            ),
        )
        .await;
        // The others' results go on while this one fills.
        wait_for(&writer, "SELECT n FROM others", &i.to_string()).await;
        let still = !rows(&writer, "SELECT 1 FROM weir_catalog.ddl_progress").await.is_empty();
        meanwhile += usize::from(filling && still);
    }
    assert!(meanwhile > 0, "no change came in the middle");
    let client = creating.await.expect("created");
    run(&client, "FLUSH").await;
    assert_eq!(
        rows(&client, "SELECT * FROM j ORDER BY 1").await,
        rows(&client, &format!("{JOIN} ORDER BY 1")).await
    );
    let batch = "SELECT k, count(*), max(v) FROM t WHERE v > 0 GROUP BY k ORDER BY 1";
    assert_eq!(rows(&client, "SELECT * FROM b ORDER BY 1").await, rows(&client, batch).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_backfill_leaves_nothing() {
    let weir = Weir::with(&[], &[SLOW]).await;
    let (client, watcher) = (weir.connect().await, weir.connect().await);
    fill(&client).await;
    let create = format!("CREATE MATERIALIZED VIEW j AS {JOIN}");
    let (token, statement) = (client.cancel_token(), create.clone());
    let running = tokio::spawn(async move {
        let error = client.batch_execute(&statement).await.expect_err("it is cancelled");
        (client, error)
    });
    wait_begun(&watcher).await;
    token.cancel_query(NoTls).await.expect("sent");
    let (client, error) = running.await.expect("it ends");
    assert_eq!(error.code().map(|c| c.code()), Some("57014"));
    wait_for(&watcher, "SELECT count(*) FROM weir_catalog.relations WHERE name = 'j'", "0").await;
    wait_for(&watcher, "SELECT count(*) FROM weir_catalog.ddl_progress", "0").await;
    let gone = watcher.batch_execute("SELECT * FROM j").await.expect_err("there is none");
    assert_eq!(gone.code().map(|c| c.code()), Some("42P01"));
    run(&client, &create).await;
    assert_eq!(
        rows(&client, "SELECT * FROM j ORDER BY 1").await,
        rows(&client, &format!("{JOIN} ORDER BY 1")).await
    );
    run(&client, "DROP TABLE t CASCADE; DROP TABLE u CASCADE").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_into_its_timeout_is_not_there_when_the_client_hears_of_it() {
    let weir = Weir::with(&[], &[SLOW]).await;
    let client = weir.connect().await;
    fill(&client).await;
    run(&client, "SET statement_timeout = '400ms'").await;
    let sink = "CREATE SINK {} j AS SELECT * FROM t WITH (connector = 'blackhole', type = 'upsert', primary_key = 'id')";
    let view = format!("CREATE MATERIALIZED VIEW {{}} j AS {JOIN}");
    for create in [&view, "CREATE INDEX {} j ON t (v)", sink] {
        for exists in ["", "IF NOT EXISTS"] {
            let statement = create.replace("{}", exists);
            let error = client.batch_execute(&statement).await.expect_err("it takes longer");
            assert_eq!(error.code().map(|c| c.code()), Some("57014"), "{statement}: {error:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backfill_that_is_cut_off_leaves_nothing() {
    let mut weir = Weir::start().await;
    fill(&weir.connect().await).await;
    weir.kill();
    weir.begin(&[("WEIR_FAILPOINT", "backfill.chunk:6=kill")]);
    weir.wait_ready().await;
    let create = format!("CREATE MATERIALIZED VIEW j AS {JOIN}");
    assert!(weir.connect().await.batch_execute(&create).await.is_err(), "the server dies");
    weir.wait_ended().await;
    weir.begin(&[]);
    weir.wait_ready().await;
    let client = weir.connect().await;
    assert_eq!(value(&client, "SELECT count(*) FROM weir_catalog.relations WHERE name = 'j'").await, "0");
    run(&client, &create).await;
    assert_eq!(
        rows(&client, "SELECT * FROM j ORDER BY 1").await,
        rows(&client, &format!("{JOIN} ORDER BY 1")).await
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backfill_in_the_background_goes_on_after_a_kill() {
    let mut weir = Weir::with(&[], &[SLOW]).await;
    let client = weir.connect().await;
    fill(&client).await;
    let files = weir.path("files");
    run(&client, "SET background_ddl = true").await;
    run(&client, &format!("CREATE MATERIALIZED VIEW j AS {JOIN}")).await;
    run(
        &client,
        &format!(
            "CREATE SINK k AS SELECT id, v FROM t WITH (connector = 'file', path = '{}', type = 'upsert',
             primary_key = 'id', commit_every = 1) FORMAT PLAIN ENCODE JSON",
            files.display()
        ),
    )
    .await;
    let error = client.batch_execute("SELECT * FROM j").await.expect_err("it is filling");
    assert_eq!(error.code().map(|c| c.code()), Some("55000"));
    wait_begun(&client).await;
    // A checkpoint in the middle, so that a restored one holds less than the catalog.
    run(&client, "CHECKPOINT").await;
    weir.kill();
    weir.begin(&[SLOW]);
    weir.wait_ready().await;
    let client = weir.connect().await;
    run(&client, "UPDATE t SET v = v + 1 WHERE id % 10 = 3").await;
    run(&client, "WAIT").await;
    assert_eq!(
        rows(&client, "SELECT * FROM j ORDER BY 1").await,
        rows(&client, &format!("{JOIN} ORDER BY 1")).await
    );
    // What was logged for the sink before the kill is not delivered beside what it logs anew.
    let deadline = Instant::now() + PATIENCE;
    let expected = ROWS + ROWS / 10;
    loop {
        let lines = lines_in(&files);
        assert!(lines <= expected, "{lines} lines: rows are there twice");
        let total = latest_total(&files);
        if total == value(&client, "SELECT sum(v) FROM t").await {
            break;
        }
        assert!(Instant::now() < deadline, "{lines} lines, sum {total}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Once more, in one that is dropped while it fills.
    run(&client, "SET background_ddl = true").await;
    run(&client, &format!("CREATE MATERIALIZED VIEW d AS {JOIN}")).await;
    run(&client, "DROP MATERIALIZED VIEW d; WAIT").await;
    assert_eq!(value(&client, "SELECT count(*) FROM weir_catalog.relations WHERE name = 'd'").await, "0");
}

fn published(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("part-")))
        .collect();
    files.sort();
    files
}

fn lines_in(dir: &std::path::Path) -> usize {
    let text = |path: &std::path::PathBuf| std::fs::read_to_string(path).expect("a published file");
    published(dir).iter().map(|path| text(path).lines().count()).sum()
}

/// The sum of the values that each key had last.
fn latest_total(dir: &std::path::Path) -> String {
    let mut latest = std::collections::HashMap::new();
    for path in published(dir) {
        for line in std::fs::read_to_string(path).expect("a published file").lines() {
            let row: serde_json::Value = serde_json::from_str(line).expect("a whole line");
            let (id, v) = (row["id"].as_i64().expect("a key"), row["v"].as_i64().expect("a value"));
            if row["weir_op"] != "delete" {
                latest.insert(id, v);
            }
        }
    }
    latest.values().sum::<i64>().to_string()
}

/// Reads the sum of a view until it can be read: it is all or nothing. Returns how often there was nothing.
async fn read_whole(client: &Client, view: &str) -> usize {
    let deadline = Instant::now() + PATIENCE;
    for nothing in 0.. {
        match try_rows(client, &format!("SELECT sum(n) FROM {view}")).await {
            Ok(found) => {
                assert_eq!(found, [[ROWS.to_string()]], "{view} after {nothing} errors");
                return nothing;
            }
            Err(error) => assert!(words(&error).starts_with("55000"), "{}", words(&error)),
        }
        assert!(Instant::now() < deadline, "{view} is not filled");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    unreachable!("it returns, or the deadline comes")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_restored_checkpoint_lacks_is_not_read_before_it_has_filled() {
    fill_again(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_on_a_view_fills_again_with_it() {
    fill_again(true).await;
}

/// The server goes on from a checkpoint that lacks a view, and with `above` also a view on it.
async fn fill_again(above: bool) {
    let mut weir = Weir::with(&["--parallelism", "2", "--set", "checkpoint.interval=0"], &[]).await;
    let client = weir.connect().await;
    run(&client, "ALTER DATABASE dev SET checkpoint.max_retained = 50").await;
    fill(&client).await;
    run(&client, "CHECKPOINT").await;
    let newest = "SELECT max(epoch) FROM weir_catalog.checkpoints WHERE status = 'completed'";
    let before: u64 = value(&client, newest).await.parse().expect("a number");
    run(
        &client,
        "CREATE MATERIALIZED VIEW late AS SELECT k, count(*) AS n FROM t GROUP BY k;
         CHECKPOINT",
    )
    .await;
    let top = if above { "on_late" } else { "late" };
    if above {
        let view =
            "CREATE MATERIALIZED VIEW on_late AS SELECT k % 10 AS k, sum(n) AS n FROM late GROUP BY k % 10";
        run(&client, &format!("{view}; CHECKPOINT")).await;
    }
    weir.kill();
    // All that is intact is from before the views.
    for entry in std::fs::read_dir(weir.data_dir().join("checkpoints")).expect("a directory").flatten() {
        let epoch = entry.file_name().to_string_lossy().parse::<u64>();
        if epoch.is_ok_and(|epoch| epoch > before) {
            std::fs::write(entry.path().join("manifest.json"), "damaged").expect("it is ours");
        }
    }
    for kills in [true, false] {
        weir.begin(&[SLOW]);
        weir.wait_ready().await;
        let client = weir.connect().await;
        let error =
            try_rows(&client, "SELECT sum(n) FROM late").await.expect_err("it has just begun to fill");
        assert!(words(&error).starts_with("55000"), "{}", words(&error));
        if kills {
            weir.kill();
            continue;
        }
        assert!(read_whole(&client, "late").await > 0);
        read_whole(&client, top).await;
        run(&client, "INSERT INTO t VALUES (0, 1, 1)").await;
        wait_for(&client, &format!("SELECT sum(n) FROM {top}"), &(ROWS + 1).to_string()).await;
        run(&client, "WAIT; CHECKPOINT").await;
    }
    weir.kill_and_restart().await;
    assert_eq!(
        value(&weir.connect().await, &format!("SELECT sum(n) FROM {top}")).await,
        (ROWS + 1).to_string()
    );
}
