//! Kill the server at any moment: the same answer after a restart.

use crate::harness::{Weir, rows, run, seed, value, wait_for};
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_a_kill_right_after() {
    let mut weir = Weir::start().await;
    let mut client = weir.connect().await;
    run(&client, "CREATE TABLE t (id int PRIMARY KEY, v int)").await;
    run(&client, "CREATE MATERIALIZED VIEW s AS SELECT count(*) AS n, sum(v) AS total FROM t").await;
    for i in 0..20 {
        run(&client, &format!("INSERT INTO t VALUES ({i}, {})", i * 10)).await;
        if i % 5 == 4 {
            weir.kill_and_restart().await;
            client = weir.connect().await;
            let n = i + 1;
            let total = (0..n).map(|i| i * 10).sum::<i32>();
            assert_eq!(rows(&client, "SELECT n, total FROM s").await, [[n.to_string(), total.to_string()]]);
            assert_eq!(value(&client, "SELECT count(*) FROM t").await, n.to_string());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_are_slow_to_start_miss_no_replayed_change() {
    let mut weir = Weir::with(&["--set", "checkpoint.interval=20ms"], &[]).await;
    let mut client = weir.connect().await;
    run(
        &client,
        "CREATE TABLE t (id int PRIMARY KEY, v int);
         CREATE MATERIALIZED VIEW copy AS SELECT * FROM t;
         CREATE MATERIALIZED VIEW pairs AS SELECT a.id, b.v FROM t a FULL JOIN t b ON a.id = b.id;
         INSERT INTO t SELECT i, i FROM generate_series(1, 100) AS g(i);
         CHECKPOINT",
    )
    .await;
    for i in 1..=4 {
        run(&client, &format!("INSERT INTO t VALUES ({0}, {0}); DELETE FROM t WHERE id = {i}", 1000 + i))
            .await;
        weir.kill();
        weir.begin(&[("WEIR_FAILPOINT", "restart.before_jobs=sleep:300")]);
        weir.wait_ready().await;
        client = weir.connect().await;
        run(&client, "FLUSH").await;
        for view in ["copy", "pairs"] {
            let wrong = format!(
                "SELECT count(*) FROM t FULL JOIN {view} w ON t.id = w.id WHERE t.id IS NULL OR w.id IS NULL"
            );
            assert_eq!(value(&client, &wrong).await, "0", "{view} after kill {i}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nexmark_view_counts_every_event_once_through_kills() {
    let mut rng = StdRng::seed_from_u64(seed());
    let mut weir = Weir::start().await;
    let client = weir.connect().await;
    run(
        &client,
        "CREATE SOURCE bid WITH (connector = 'nexmark', nexmark.table.type = 'Bid', events = 100000, rate = 20000)",
    )
    .await;
    run(
        &client,
        "CREATE MATERIALIZED VIEW totals AS \
         SELECT count(*) AS n, count(DISTINCT datetime) AS moments, sum(price) AS total FROM bid",
    )
    .await;
    let mut least = 0u64;
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(rng.random_range(50..900))).await;
        weir.kill_and_restart().await;
        let client = weir.connect().await;
        let n: u64 = value(&client, "SELECT n FROM totals").await.parse().expect("a number");
        assert!(n <= 92_000 && n + 40_000 >= least, "{n} bids after {least}");
        least = n;
    }
    let client = weir.connect().await;
    wait_for(&client, "SELECT n FROM totals", "92000").await;
    assert_eq!(value(&client, "SELECT moments FROM totals").await, "92000");
    let before = value(&client, "SELECT total FROM totals").await;
    weir.kill_and_restart().await;
    let client = weir.connect().await;
    wait_for(&client, "SELECT n FROM totals", "92000").await;
    assert_eq!(value(&client, "SELECT total FROM totals").await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clean_end_keeps_everything_and_another_parallelism_reads_it() {
    let mut weir = Weir::with(&["--parallelism", "2"], &[]).await;
    let client = weir.connect().await;
    run(
        &client,
        "CREATE TABLE t (id int PRIMARY KEY, k int, v numeric(10,2));
         CREATE TABLE u (k int, name varchar);
         INSERT INTO t SELECT i, i % 7, i / 4.0 FROM generate_series(1, 500) AS g(i);
         INSERT INTO u SELECT i % 9, 'n' || i FROM generate_series(1, 30) AS g(i);
         CREATE MATERIALIZED VIEW j AS SELECT t.id, u.name FROM t LEFT JOIN u ON t.k = u.k;
         CREATE MATERIALIZED VIEW a AS SELECT k, count(*) AS n, max(v) AS m, count(DISTINCT v) AS d FROM t GROUP BY k;
         CREATE MATERIALIZED VIEW b AS SELECT * FROM t ORDER BY v DESC, id LIMIT 5;
         CREATE MATERIALIZED VIEW c AS SELECT sum(n) AS n FROM a",
    )
    .await;
    let views = [
        "SELECT * FROM j ORDER BY 1, 2",
        "SELECT * FROM a ORDER BY 1",
        "SELECT * FROM b ORDER BY 1",
        "SELECT * FROM c",
    ];
    for parallelism in ["4", "1", "3"] {
        let client = weir.connect().await;
        run(&client, "DELETE FROM t WHERE id % 50 = 3; UPDATE t SET k = k + 1 WHERE id % 40 = 7").await;
        let mut before = Vec::new();
        for view in views {
            before.push(rows(&client, view).await);
        }
        assert!(weir.terminate().await.success(), "a clean end:\n{}", weir.log());
        weir.set_options(&["--parallelism", parallelism]);
        weir.begin(&[]);
        weir.wait_ready().await;
        let client = weir.connect().await;
        for (view, before) in views.iter().zip(&before) {
            assert_eq!(rows(&client, view).await, *before, "{view} at parallelism {parallelism}");
        }
        run(&client, &format!("INSERT INTO t VALUES (100{parallelism}, 3, 999)")).await;
        let batch = "SELECT k, count(*), max(v), count(DISTINCT v) FROM t GROUP BY k ORDER BY 1";
        assert_eq!(rows(&client, views[1]).await, rows(&client, batch).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_whose_creation_was_cut_off_leaves_nothing() {
    let mut weir = Weir::start().await;
    let client = weir.connect().await;
    run(&client, "CREATE TABLE t (id int PRIMARY KEY)").await;
    weir.kill();
    weir.begin(&[("WEIR_FAILPOINT", "create.logged=kill")]);
    weir.wait_ready().await;
    let create = "CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM t";
    assert!(weir.connect().await.batch_execute(create).await.is_err(), "the server dies");
    weir.wait_ended().await;
    weir.begin(&[]);
    weir.wait_ready().await;
    let client = weir.connect().await;
    assert!(client.batch_execute("SELECT * FROM v").await.is_err(), "it was not acknowledged");
    run(&client, create).await;
    run(&client, "INSERT INTO t VALUES (1)").await;
    assert_eq!(value(&client, "SELECT n FROM v").await, "1");
    run(&client, "DROP TABLE t CASCADE").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_expression_or_query_never_stops_the_server() {
    let weir = Weir::start().await;
    let client = weir.connect().await;
    run(&client, "CREATE TABLE t (id int PRIMARY KEY, v int)").await;
    run(&client, "CREATE MATERIALIZED VIEW q AS SELECT id, 10 / v AS x FROM t").await;
    run(&client, "INSERT INTO t VALUES (1, 2), (2, 0), (3, NULL)").await;
    assert_eq!(rows(&client, "SELECT * FROM q ORDER BY id").await, [["1", "5"], ["2", "\\N"], ["3", "\\N"]]);
    let error =
        client.batch_execute("SELECT 10 / v FROM t").await.expect_err("an error is an error in SELECT");
    assert_eq!(error.code().map(|c| c.code()), Some("22012"));
    run(&client, "RECOVER").await;
    assert_eq!(value(&client, "SELECT count(*) FROM q").await, "3");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalog_that_has_lost_its_end_is_said_to_be_damaged() {
    let mut weir = Weir::start().await;
    let client = weir.connect().await;
    run(&client, "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)").await;
    run(&client, "INSERT INTO u VALUES (1); CHECKPOINT").await;
    weir.kill();
    let log = weir.data_dir().join("catalog/catalog.log");
    let whole = std::fs::read(&log).expect("the catalog's log");
    std::fs::write(&log, &whole[..whole.len() - 1]).expect("it is cut");
    weir.begin(&[]);
    assert!(!weir.wait_ended().await.success());
    assert!(weir.log().contains("catalog.log or catalog.image is damaged"), "{}", weir.log());
    // Nothing was lost by trying.
    std::fs::write(&log, &whole).expect("it is whole again");
    std::fs::remove_file(weir.data_dir().join("epochs")).expect("there is such a file");
    weir.begin(&[]);
    weir.wait_ready().await;
    let client = weir.connect().await;
    run(&client, "INSERT INTO u VALUES (2); CHECKPOINT").await;
    assert_eq!(value(&client, "SELECT count(*) FROM u").await, "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_that_are_missing_altogether_are_damage() {
    let mut weir = Weir::start().await;
    let client = weir.connect().await;
    run(&client, "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1); CHECKPOINT").await;
    run(&client, "INSERT INTO t VALUES (2)").await;
    weir.kill();
    let (dir, aside) = (weir.data_dir().join("checkpoints"), weir.path("aside"));
    std::fs::rename(&dir, &aside).expect("it is there");
    // The second time there is an empty one.
    for _ in 0..2 {
        weir.begin(&[]);
        assert!(!weir.wait_ended().await.success());
        assert!(weir.log().contains("checkpoints is damaged: it has no checkpoint"), "{}", weir.log());
    }
    std::fs::remove_dir_all(&dir).expect("it was made");
    std::fs::rename(&aside, &dir).expect("it is there");
    weir.begin(&[]);
    weir.wait_ready().await;
    assert_eq!(value(&weir.connect().await, "SELECT count(*) FROM t").await, "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn how_checkpoints_and_recoveries_went_can_be_read_after_a_kill() {
    let mut weir = Weir::with(&["--set", "parallelism=2"], &[]).await;
    let mut client = weir.connect().await;
    run(
        &client,
        "CREATE TABLE t (id int PRIMARY KEY, v int);
         CREATE MATERIALIZED VIEW pairs AS SELECT a.id, b.v FROM t a JOIN t b ON a.id = b.id;
         INSERT INTO t VALUES (1, 2); CHECKPOINT",
    )
    .await;
    let newest = "SELECT max(epoch) FROM weir_catalog.checkpoints WHERE status = 'completed'";
    let epoch = value(&client, newest).await;
    // Every actor of the view acknowledged it: each has a join and two inputs.
    let actors = format!(
        "SELECT count(*), count(acknowledged_ms), count(align_ms) FROM weir_catalog.checkpoint_actors
         WHERE epoch = {epoch} AND job = 'pairs'"
    );
    let actors = rows(&client, &actors).await.remove(0);
    assert!(actors[0] != "0" && actors.iter().all(|n| *n == actors[0]), "{actors:?}");
    weir.kill_and_restart().await;
    client = weir.connect().await;
    let kept = format!(
        "SELECT kind, status, total_bytes > 0, align_ms >= 0 FROM weir_catalog.checkpoints WHERE epoch = {epoch}"
    );
    assert_eq!(rows(&client, &kept).await, [["aligned", "completed", "t", "t"]]);
    let recoveries =
        "SELECT reason, epoch, error IS NULL, total_ms >= build_ms + first_barrier_ms + replay_ms
         FROM weir_catalog.recoveries ORDER BY started_at";
    let found = rows(&client, recoveries).await;
    let of = |epoch: &str| ["the server started", epoch, "t", "t"].map(str::to_owned).to_vec();
    assert_eq!(found, [of("0"), of(&epoch)]);
    run(&client, "RECOVER").await;
    let reason = "SELECT reason FROM weir_catalog.recoveries ORDER BY started_at DESC LIMIT 1";
    assert_eq!(value(&client, reason).await, "RECOVER was asked for");
}
