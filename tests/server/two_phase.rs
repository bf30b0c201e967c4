//! Sinks that commit in two phases, against a real PostgreSQL: kills between prepare, manifest, commit
//! and its record; a target that goes away in each of these moments; what dropped sinks leave behind.

use crate::exactly_once::targets;
use crate::harness::{PATIENCE, Postgres, Weir, rows, run, seed, value, wait_for, words};
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// Events generated; 46 in 50 are bids.
const EVENTS: usize = 60_000;
const BIDS: usize = EVENTS / 50 * 46;

/// From the sealed epoch to the record of its commit.
const STEPS: &[&str] = &[
    "two_phase.before_prepare",
    "two_phase.after_prepare",
    "manifest.before_rename",
    "manifest.after_rename",
    "two_phase.before_commit",
    "two_phase.after_commit",
];

const PREPARED: &str = "SELECT count(*) FROM pg_prepared_xacts";
const STATUS: &str = "SELECT coalesce(max(status), '') FROM weir_catalog.sinks WHERE name = 'k'";

fn at(postgres: &Postgres, table: &str) -> String {
    format!(
        "connector = 'postgres', commit_mode = 'two_phase', hostname = '127.0.0.1', port = '{}', \
         username = 'postgres', database.name = 'postgres', table.name = '{table}'",
        postgres.port()
    )
}

async fn pipeline(client: &Client, postgres: &Postgres, rate: u32) {
    run(
        client,
        &format!(
            "CREATE SOURCE bid WITH (connector = 'nexmark', nexmark.table.type = 'Bid', events = {EVENTS}, rate = {rate});
             CREATE MATERIALIZED VIEW totals AS SELECT count(*) AS n, sum(price) AS total FROM bid;
             CREATE SINK bid_rows AS SELECT auction, price, datetime FROM bid
               WITH ({}, type = 'append-only');
             CREATE SINK per_auction AS SELECT auction, count(*) AS n, sum(price) AS total FROM bid GROUP BY auction
               WITH ({}, type = 'upsert', primary_key = 'auction');",
            at(postgres, "bids"),
            at(postgres, "per_auction"),
        ),
    )
    .await;
}

async fn reconcile(weir: &Weir, postgres: &Client) {
    let client = weir.connect().await;
    wait_for(&client, "SELECT n FROM totals", &BIDS.to_string()).await;
    run(&client, "CHECKPOINT").await;
    let total = value(&client, "SELECT total FROM totals").await;
    wait_for(postgres, "SELECT count(*) FROM bids", &BIDS.to_string()).await;
    wait_for(postgres, "SELECT coalesce(sum(n), 0) FROM per_auction", &BIDS.to_string()).await;
    let sql = "SELECT count(*), count(DISTINCT datetime), sum(price) FROM bids";
    assert_eq!(rows(postgres, sql).await, [[BIDS.to_string(), BIDS.to_string(), total.clone()]]);
    let sql = "SELECT sum(n), sum(total) FROM per_auction";
    assert_eq!(rows(postgres, sql).await, [[BIDS.to_string(), total]]);
    wait_for(postgres, PREPARED, "0").await;
    let open = "SELECT count(*) FROM weir_catalog.sink_transactions WHERE state IN ('open', 'prepared')";
    wait_for(&client, open, "0").await;
    let committed = "SELECT count(*) > 0 FROM weir_catalog.sink_transactions WHERE state = 'committed'";
    assert_eq!(value(&client, committed).await, "t");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_is_there_once_wherever_the_server_is_killed() {
    let mut rng = StdRng::seed_from_u64(seed());
    let postgres = Postgres::start().await;
    let target = postgres.connect().await;
    targets(&target).await;
    let mut weir = Weir::with(&["--parallelism", "2"], &[]).await;
    pipeline(&weir.connect().await, &postgres, 2500).await;
    for step in STEPS.iter().chain(STEPS) {
        weir.kill();
        // Manifests that take their time are overtaken by what is prepared.
        let slow = if step.starts_with("manifest") { "apply.before_checkpoint=sleep:100, " } else { "" };
        let spec = format!("{slow}{step}:{}=kill", rng.random_range(1..5));
        weir.begin(&[("WEIR_FAILPOINT", &spec)]);
        let deadline = Instant::now() + Duration::from_secs(6);
        while weir.is_alive() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    weir.kill_and_restart().await;
    reconcile(&weir, &target).await;
}

/// A step of a server that waits until its file is removed.
struct Held(PathBuf);

impl Held {
    fn at(weir: &Weir, step: &str, nth: u32) -> (Held, String) {
        let file = weir.path(&format!("{step}.waits"));
        let spec = format!("{step}:{nth}=wait:{}", file.display());
        (Held(file), spec)
    }

    async fn reached(&self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.0.exists() {
            assert!(Instant::now() < deadline, "{} is not reached", self.0.display());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn let_go(&self) {
        std::fs::remove_file(&self.0).expect("it waits");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_may_go_away_at_every_step() {
    let mut postgres = Postgres::start().await;
    targets(&postgres.connect().await).await;
    let mut weir = Weir::with(&["--parallelism", "2"], &[]).await;
    pipeline(&weir.connect().await, &postgres, 1500).await;
    for (i, step) in STEPS.iter().enumerate() {
        weir.kill();
        let (held, spec) = Held::at(&weir, step, 2);
        weir.begin(&[("WEIR_FAILPOINT", &spec)]);
        held.reached().await;
        postgres.kill();
        held.let_go();
        if i % 2 == 0 {
            // It stays away for some checkpoints, or comes back at once.
            weir.wait_ready().await;
            let client = weir.connect().await;
            for _ in 0..2 {
                run(&client, "CHECKPOINT").await;
            }
        }
        postgres.restart().await;
        weir.wait_ready().await;
        let client = weir.connect().await;
        run(&client, "ALTER SINK bid_rows RESUME; ALTER SINK per_auction RESUME").await;
    }
    reconcile(&weir, &postgres.connect().await).await;
}

/// Few keys, whose rows move from one to the other, and actors that change with every start.
#[tokio::test(flavor = "multi_thread")]
async fn actors_that_take_over_each_others_keys_keep_them_right() {
    let mut rng = StdRng::seed_from_u64(seed());
    let postgres = Postgres::start().await;
    let target = postgres.connect().await;
    run(&target, "CREATE TABLE owners (place int PRIMARY KEY, id int, v int)").await;
    let mut weir = Weir::with(&["--parallelism", "3"], &[]).await;
    let client = weir.connect().await;
    run(
        &client,
        &format!(
            "CREATE TABLE t (id int PRIMARY KEY, place int, v int);
             CREATE SINK owners AS SELECT place, id, v FROM t
               WITH ({}, type = 'upsert', primary_key = 'place');",
            at(&postgres, "owners")
        ),
    )
    .await;
    let values: Vec<String> = (0..12).map(|i| format!("({i}, {i}, 0)")).collect();
    run(&client, &format!("INSERT INTO t VALUES {}", values.join(", "))).await;
    for round in 1..=8 {
        let client = weir.connect().await;
        for _ in 0..10 {
            // Every row goes to another place, all in one transaction; some places are left empty.
            let (by, gone) = (rng.random_range(1..12), rng.random_range(0..12));
            run(
                &client,
                &format!(
                    "UPDATE t SET place = (place + {by}) % 12, v = v + 1;
                     DELETE FROM t WHERE id = {gone};
                     INSERT INTO t SELECT id, id, {round} FROM generate_series(0, 11) AS g(id)
                       WHERE id NOT IN (SELECT id FROM t) AND id NOT IN (SELECT place FROM t);"
                ),
            )
            .await;
        }
        weir.kill();
        weir.set_options(&["--parallelism", &rng.random_range(1..5).to_string()]);
        let step = STEPS[rng.random_range(0..STEPS.len())];
        weir.begin(&[("WEIR_FAILPOINT", &format!("{step}:{}=kill", rng.random_range(1..3)))]);
        let deadline = Instant::now() + Duration::from_secs(4);
        while weir.is_alive() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        weir.kill_and_restart().await;
    }
    let client = weir.connect().await;
    run(&client, "CHECKPOINT").await;
    let all = "SELECT string_agg(place || ' ' || id || ' ' || v, ', ' ORDER BY place) FROM";
    let expected = value(&client, &format!("{all} t")).await;
    wait_for(&target, &format!("{all} owners"), &expected).await;
    wait_for(&target, PREPARED, "0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn create_sink_checks_what_two_phases_need() {
    let none = Postgres::with_prepared(0).await;
    run(&none.connect().await, "CREATE TABLE target (id int PRIMARY KEY)").await;
    let weir = Weir::start().await;
    let client = weir.connect().await;
    run(&client, "CREATE TABLE t (id int PRIMARY KEY)").await;
    let create = |options: &str| {
        format!(
            "CREATE SINK k FROM t WITH ({}, type = 'upsert', primary_key = 'id'{options})",
            at(&none, "target")
        )
    };
    let error = client.batch_execute(&create("")).await.expect_err("it prepares nothing");
    let said = words(&error);
    assert!(said.starts_with("55000: the target of sink \"k\" at 127.0.0.1:"), "{said}");
    assert!(said.contains("max_prepared_transactions") && said.contains("'progress'"), "{said}");
    let error = client.batch_execute(&create(", commit_every = 3")).await.expect_err("each by itself");
    let said = words(&error);
    assert!(said.starts_with("22023: option \"commit_every\""), "{said}");
    let error =
        client.batch_execute(&create("").replace("'two_phase'", "'both'")).await.expect_err("no mode");
    let said = words(&error);
    assert!(said.starts_with("22023: ") && said.contains("commit_mode"), "{said}");
    run(&client, &create("").replace("'two_phase'", "'progress'")).await;
    assert_eq!(value(&client, "SELECT count(*) FROM weir_catalog.sinks").await, "1");
}

/// A server with a sink `k` of table `t`, which has prepared a row and waits before it commits it.
async fn with_prepared_row(postgres: &Postgres) -> (Weir, Held) {
    let target = postgres.connect().await;
    run(&target, "CREATE TABLE target (id int PRIMARY KEY, v text)").await;
    let mut weir = Weir::start().await;
    let client = weir.connect().await;
    run(
        &client,
        &format!(
            "ALTER DATABASE dev SET checkpoint.interval = '0';
             CREATE TABLE t (id int PRIMARY KEY, v text);
             CREATE SINK k FROM t WITH ({}, type = 'upsert', primary_key = 'id')",
            at(postgres, "target")
        ),
    )
    .await;
    run(&client, "INSERT INTO t VALUES (1, 'first')").await;
    run(&client, "CHECKPOINT").await;
    wait_for(&target, "SELECT count(*) FROM target", "1").await;
    weir.kill();
    let (held, spec) = Held::at(&weir, "two_phase.before_commit", 1);
    weir.begin(&[("WEIR_FAILPOINT", &spec)]);
    weir.wait_ready().await;
    let client = weir.connect().await;
    run(&client, "INSERT INTO t VALUES (2, 'second')").await;
    run(&client, "CHECKPOINT").await;
    held.reached().await;
    wait_for(&target, PREPARED, "1").await;
    (weir, held)
}

fn sink_directories(weir: &Weir) -> usize {
    std::fs::read_dir(weir.data_dir().join("sinks")).expect("it is there").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dropped_sink_left_is_rolled_back_when_its_target_is_back() {
    let mut postgres = Postgres::start().await;
    let (mut weir, held) = with_prepared_row(&postgres).await;
    let client = weir.connect().await;
    let name = "SELECT max(transaction) FROM weir_catalog.sink_transactions WHERE state = 'prepared'";
    let gid = value(&postgres.connect().await, "SELECT max(gid) FROM pg_prepared_xacts").await;
    wait_for(&client, name, &gid).await;
    let id = value(&client, "SELECT id FROM weir_catalog.sinks").await;
    assert!(gid.starts_with("weir:") && gid.contains(&format!(":{id}:")) && gid.ends_with(":0"), "{gid}");
    postgres.kill();
    held.let_go();
    wait_for(&client, STATUS, "retrying").await;
    run(&client, "DROP SINK k").await;
    let left = "SELECT count(*) FROM weir_catalog.sink_transactions WHERE note LIKE 'the sink is dropped%down%' \
                OR note LIKE 'the sink is dropped%connect%'";
    wait_for(&client, left, "1").await;
    weir.kill_and_restart().await;
    let client = weir.connect().await;
    wait_for(&client, left, "1").await;
    postgres.restart().await;
    let target = postgres.connect().await;
    wait_for(&target, PREPARED, "0").await;
    wait_for(&client, "SELECT count(*) FROM weir_catalog.sink_transactions", "0").await;
    assert_eq!(rows(&target, "SELECT id FROM target").await, [["1"]]);
    assert_eq!(value(&target, "SELECT count(*) FROM weir_progress").await, "0");
    assert_eq!(sink_directories(&weir), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn leftovers_can_be_committed_and_rolled_back_by_hand() {
    let postgres = Postgres::start().await;
    let target = postgres.connect().await;
    let (weir, held) = with_prepared_row(&postgres).await;
    let client = weir.connect().await;
    let gid = value(&target, "SELECT gid FROM pg_prepared_xacts").await;
    let refused = async |sql: &str| words(&client.batch_execute(sql).await.expect_err(sql));
    let name = "SELECT max(transaction) FROM weir_catalog.sink_transactions WHERE state = 'prepared'";
    wait_for(&client, name, &gid).await;
    let said = refused(&format!("COMMIT PREPARED '{gid}'")).await;
    assert!(said.starts_with("55000: ") && said.contains("waits for its checkpoint"), "{said}");
    let said = refused("COMMIT PREPARED 'weir:x:1:2:3:4'").await;
    assert!(said.starts_with("42704: prepared transaction with identifier"), "{said}");
    let said = refused(&format!("ROLLBACK PREPARED '{gid}0'")).await;
    assert!(said.starts_with("42704: "), "{said}");
    let said = refused(&format!("BEGIN; ROLLBACK PREPARED '{gid}'")).await;
    assert!(said.starts_with("25001: "), "{said}");
    run(&client, "ROLLBACK").await;
    // Its rows are in the log: they are written again.
    run(&client, &format!("ROLLBACK PREPARED '{gid}'")).await;
    wait_for(&target, PREPARED, "0").await;
    held.let_go();
    wait_for(&target, "SELECT count(*) FROM target", "2").await;
    // One that nobody waits for, as of a server that is gone.
    let mut parts: Vec<&str> = gid.split(':').collect();
    parts[3] = "1";
    parts[5] = "7";
    let lost = parts.join(":");
    run(&target, &format!("BEGIN; INSERT INTO target VALUES (9, 'lost'); PREPARE TRANSACTION '{lost}'"))
        .await;
    run(&client, &format!("COMMIT PREPARED '{lost}'")).await;
    assert_eq!(value(&target, "SELECT count(*) FROM target").await, "3");
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("made");
    for entry in std::fs::read_dir(from).expect("readable") {
        let entry = entry.expect("readable");
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        match from.is_dir() {
            true => copy_dir(&from, &to),
            false => drop(std::fs::copy(&from, &to).expect("copied")),
        }
    }
}

/// Puts an older copy of the data directory in the place of the one that there is.
fn put_back(weir: &Weir, copy: &Path) {
    std::fs::remove_dir_all(weir.data_dir()).expect("removed");
    copy_dir(copy, &weir.data_dir());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_sink_left_that_an_older_copy_does_not_know_is_found() {
    let postgres = Postgres::start().await;
    let target = postgres.connect().await;
    run(&target, "CREATE TABLE one (id int PRIMARY KEY); CREATE TABLE two (id int PRIMARY KEY)").await;
    let mut weir = Weir::start().await;
    run(
        &weir.connect().await,
        &format!(
            "CREATE TABLE t (id int PRIMARY KEY);
             CREATE SINK one FROM t WITH ({}, type = 'upsert', primary_key = 'id');",
            at(&postgres, "one").replace("'two_phase'", "'progress'")
        ),
    )
    .await;
    assert!(weir.terminate().await.success());
    let copy = weir.path("copy");
    copy_dir(&weir.data_dir(), &copy);
    // What comes now is lost, but for what it has prepared.
    let (held, spec) = Held::at(&weir, "two_phase.before_commit", 1);
    weir.begin(&[("WEIR_FAILPOINT", &spec)]);
    weir.wait_ready().await;
    let create = format!(
        "CREATE SINK two FROM t WITH ({}, type = 'upsert', primary_key = 'id')",
        at(&postgres, "two")
    );
    let client = weir.connect().await;
    run(&client, &format!("{create}; INSERT INTO t VALUES (1); CHECKPOINT")).await;
    held.reached().await;
    wait_for(&target, PREPARED, "1").await;
    let gid = value(&target, "SELECT gid FROM pg_prepared_xacts").await;
    weir.kill();
    // Of a newer server, and of another database: nobody's to touch but the user's.
    let mut parts: Vec<&str> = gid.split(':').collect();
    parts[3] = "4000";
    let newer = parts.join(":");
    parts[1] = "00000000-0000-4000-8000-000000000000";
    let other = parts.join(":");
    for (id, gid) in [(7, &newer), (8, &other)] {
        run(&target, &format!("BEGIN; INSERT INTO two VALUES ({id}); PREPARE TRANSACTION '{gid}'")).await;
    }
    put_back(&weir, &copy);
    weir.begin(&[]);
    weir.wait_ready().await;
    wait_for(&target, "SELECT string_agg(gid, ' ' ORDER BY gid) FROM pg_prepared_xacts", &{
        let mut left = [newer.clone(), other.clone()];
        left.sort();
        left.join(" ")
    })
    .await;
    let client = weir.connect().await;
    let shown = "SELECT transaction, state FROM weir_catalog.sink_transactions \
                 WHERE note LIKE 'in the target of sink \"one\"; its own sink is not known here;%newer generation%'";
    assert_eq!(rows(&client, shown).await, [[newer.clone(), "prepared".to_owned()]]);
    let error = client.batch_execute(&format!("COMMIT PREPARED '{other}'")).await.expect_err("another's");
    assert!(words(&error).starts_with("42704: "), "{}", words(&error));
    run(&client, &format!("COMMIT PREPARED '{newer}'")).await;
    assert_eq!(value(&target, "SELECT id FROM two").await, "7");
    assert_eq!(value(&client, &shown.replace("transaction, state", "count(*)")).await, "0");
    run(&target, &format!("ROLLBACK PREPARED '{other}'")).await;
}

/// The copy that was put back goes on with the same generation and the same epochs.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_same_sink_left_in_the_life_that_is_lost_is_rolled_back() {
    let postgres = Postgres::start().await;
    let target = postgres.connect().await;
    run(&target, "CREATE TABLE one (id int PRIMARY KEY)").await;
    let mut weir = Weir::start().await;
    run(
        &weir.connect().await,
        &format!(
            "CREATE TABLE t (id int PRIMARY KEY);
             CREATE SINK one FROM t WITH ({}, type = 'upsert', primary_key = 'id');
             INSERT INTO t VALUES (1); CHECKPOINT",
            at(&postgres, "one")
        ),
    )
    .await;
    wait_for(&target, "SELECT count(*) FROM one", "1").await;
    assert!(weir.terminate().await.success());
    let copy = weir.path("copy");
    copy_dir(&weir.data_dir(), &copy);
    let (held, spec) = Held::at(&weir, "two_phase.before_commit", 1);
    weir.begin(&[("WEIR_FAILPOINT", &spec)]);
    weir.wait_ready().await;
    run(&weir.connect().await, "INSERT INTO t VALUES (2); CHECKPOINT").await;
    held.reached().await;
    wait_for(&target, PREPARED, "1").await;
    weir.kill();
    put_back(&weir, &copy);
    weir.begin(&[]);
    weir.wait_ready().await;
    run(&weir.connect().await, "INSERT INTO t VALUES (3); CHECKPOINT").await;
    wait_for(&target, "SELECT string_agg(id::text, ' ' ORDER BY id) FROM one", "1 3").await;
    wait_for(&target, PREPARED, "0").await;
}

/// The data directory of yesterday, and the targets of today.
#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_is_ahead_of_what_is_restored_is_refused_alone() {
    let postgres = Postgres::start().await;
    let target = postgres.connect().await;
    run(&target, "CREATE TABLE one (id int PRIMARY KEY); CREATE TABLE two (id int PRIMARY KEY)").await;
    let mut weir = Weir::start().await;
    let client = weir.connect().await;
    run(
        &client,
        &format!(
            "CREATE TABLE t (id int PRIMARY KEY);
             CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM t;
             CREATE SINK one FROM t WITH ({}, type = 'upsert', primary_key = 'id');
             CREATE SINK two FROM t WITH ({}, type = 'upsert', primary_key = 'id');
             CREATE SINK files FROM t WITH (connector = 'file', path = '{}', type = 'append-only',
               force_append_only = true, commit_every = 1) FORMAT PLAIN ENCODE JSON;
             INSERT INTO t VALUES (1); CHECKPOINT",
            at(&postgres, "one"),
            at(&postgres, "two").replace("'two_phase'", "'progress'"),
            weir.path("files").display()
        ),
    )
    .await;
    assert!(weir.terminate().await.success());
    let yesterday = weir.path("yesterday");
    copy_dir(&weir.data_dir(), &yesterday);
    weir.begin(&[]);
    weir.wait_ready().await;
    let client = weir.connect().await;
    run(&client, "INSERT INTO t VALUES (2); CHECKPOINT").await;
    for table in ["one", "two"] {
        wait_for(&target, &format!("SELECT count(*) FROM {table}"), "2").await;
    }
    wait_for(&client, "SELECT count(*) FROM weir_catalog.sinks WHERE committed_epoch IS NOT NULL", "3").await;
    assert!(weir.terminate().await.success());
    put_back(&weir, &yesterday);
    weir.begin(&[]);
    weir.wait_ready().await;
    let client = weir.connect().await;
    let failed = "SELECT count(*) FROM weir_catalog.sinks WHERE status = 'failed' AND error LIKE '55000: the target of \
                  sink \"' || name || '\" holds epoch % but the restored checkpoint is of epoch %'";
    wait_for(&client, failed, "3").await;
    // Everything else is up.
    run(&client, "INSERT INTO t VALUES (3)").await;
    assert_eq!(value(&client, "SELECT n FROM n").await, "2");
    let says =
        "SELECT string_agg(name, ' ' ORDER BY name) FROM weir_catalog.sinks WHERE error LIKE '%REBUILD%'";
    assert_eq!(value(&client, says).await, "one two");
    let hints = "SELECT count(*) FROM weir_catalog.alerts WHERE object = 'files' AND rule = 'sink failed' \
                 AND hint LIKE '%CREATE it again%' AND hint NOT LIKE '%REBUILD%'";
    assert_eq!(value(&client, hints).await, "1");
    run(
        &client,
        "ALTER SINK one REBUILD; ALTER SINK two RESUME AT LEAST ONCE; ALTER SINK files RESUME AT LEAST ONCE",
    )
    .await;
    run(&client, "CHECKPOINT").await;
    // Rebuilt, it holds what its input holds; the other has what was there, and what is new.
    wait_for(&target, "SELECT string_agg(id::text, ' ' ORDER BY id) FROM one", "1 3").await;
    wait_for(&target, "SELECT string_agg(id::text, ' ' ORDER BY id) FROM two", "1 2 3").await;
    wait_for(&client, "SELECT count(*) FROM weir_catalog.sinks WHERE status = 'running'", "3").await;
    let lines = || {
        let files = std::fs::read_dir(weir.path("files")).expect("readable").flatten().map(|e| e.path());
        let files = files.filter(|p| p.extension().is_some_and(|e| e == "json"));
        files.map(|p| std::fs::read_to_string(p).expect("readable").lines().count()).sum::<usize>()
    };
    let deadline = Instant::now() + PATIENCE;
    while lines() < 3 {
        assert!(Instant::now() < deadline, "{} lines", lines());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(weir.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_hold_is_said() {
    let postgres = Postgres::start().await;
    run(&postgres.connect().await, "CREATE UNLOGGED TABLE target (id int)").await;
    let weir = Weir::start().await;
    let client = weir.connect().await;
    run(
        &client,
        &format!(
            "CREATE TABLE t (id int) APPEND ONLY; CREATE SINK k FROM t WITH ({}, type = 'append-only');
             CREATE SINK nowhere FROM t WITH (connector = 'blackhole', type = 'append-only')",
            at(&postgres, "target").replace("'two_phase'", "'progress'")
        ),
    )
    .await;
    let expected = [
        ["table", "t", "\\N", "replayable", "yes"],
        ["engine", "\\N", "\\N", "consistent", "yes"],
        ["sink", "k", "postgres", "at least once", "no"],
        ["sink", "nowhere", "blackhole", "at least once", "no"],
    ];
    let deadline = Instant::now() + PATIENCE;
    loop {
        let shown = rows(&client, "SHOW EXACTLY ONCE").await;
        let parties: Vec<&[String]> = shown.iter().map(|row| &row[..5]).collect();
        if parties == expected {
            assert!(shown[2][5].contains("unlogged"), "{shown:?}");
            break;
        }
        assert!(Instant::now() < deadline, "{shown:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(
        value(&client, "SELECT count(*) FROM weir_catalog.sinks WHERE delivery = 'at least once'").await,
        "2"
    );
}
