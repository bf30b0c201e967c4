//! A lost machine: the database comes back from its checkpoints in a real S3 server and nothing else, with
//! its objects, its rows, its sources' offsets and what its sinks had not delivered.

use crate::harness::{PATIENCE, Postgres, Weir, rows, run, value, wait_for, words};
use crate::storage::{CREDENTIALS, S3};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// A server that keeps its checkpoints at `url`, made by the test alone.
async fn weir_at(url: &str, parallelism: &str) -> Weir {
    let storage = format!("checkpoint.storage={url}");
    let options =
        ["--set", &storage, "--set", "checkpoint.interval=0", "--set", "checkpoint.storage_retries=1"];
    Weir::with(&[&options[..], &["--parallelism", parallelism]].concat(), &CREDENTIALS).await
}

/// What a machine that has nothing is started with.
fn restoring<'a>(url: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let options = ["--restore", url, "--set", "checkpoint.take_over=on", "--set", "checkpoint.interval=0"];
    [&options[..], &["--set", "checkpoint.storage_retries=1"], more].concat()
}

/// A new machine on which the database comes back; started again it is an ordinary server.
async fn comes_back(url: &str) -> Weir {
    let mut weir = Weir::with(&restoring(url, &["--parallelism", "3"]), &CREDENTIALS).await;
    weir.set_options(&["--parallelism", "3", "--set", "checkpoint.interval=0"]);
    weir
}

/// The server is killed, and its disk is gone.
fn lose(mut weir: Weir) {
    weir.kill();
    std::fs::remove_dir_all(weir.data_dir()).expect("it has ended");
}

async fn restart(weir: &mut Weir, environment: &[(&str, &str)]) {
    weir.kill();
    weir.begin(environment);
    weir.wait_ready().await;
}

async fn fails(weir: &mut Weir, options: &[&str], expected: &str) {
    weir.set_options(options);
    weir.begin(&CREDENTIALS);
    assert!(!weir.wait_ended().await.success(), "{expected}");
    assert!(weir.log().contains(expected), "{expected} is not in\n{}", weir.log());
}

fn append(file: &Path, numbers: std::ops::Range<u32>) {
    let mut file = std::fs::File::options().create(true).append(true).open(file).expect("a file");
    for n in numbers {
        writeln!(file, "{{\"n\": {n}}}").expect("it takes a line");
    }
}

const OBJECTS: &str = "CREATE TABLE t (id int PRIMARY KEY, v bigint);
    CREATE TABLE log (id int PRIMARY KEY, v bigint) APPEND ONLY;
    CREATE INDEX by_v ON t (v);
    CREATE MATERIALIZED VIEW sums AS SELECT v % 7 AS k, count(*) AS n, sum(v) AS total FROM t GROUP BY v % 7;
    CREATE MATERIALIZED VIEW joined AS SELECT t.id, t.v, log.v AS w FROM t JOIN log ON t.id = log.id;
    CREATE VIEW named AS SELECT id FROM t;";

async fn sinks(client: &Client, port: u16, mode: &str) {
    let with = format!(
        "connector = 'postgres', hostname = '127.0.0.1', port = {port}, username = 'postgres',
         database.name = 'postgres', commit_mode = '{mode}'"
    );
    run(
        client,
        &format!(
            "CREATE SINK appended FROM log WITH ({with}, table.name = 'appended', type = 'append-only');
             CREATE SINK upserted FROM t WITH ({with}, table.name = 'upserted', type = 'upsert', primary_key = 'id')"
        ),
    )
    .await;
}

async fn source(client: &Client, files: &Path) {
    run(
        client,
        &format!(
            "CREATE SOURCE lines (n int) WITH (connector = 'file', path = '{}/*.json', follow = true)
               FORMAT PLAIN ENCODE JSON;
             CREATE MATERIALIZED VIEW read AS SELECT count(*) AS n, sum(n) AS total FROM lines",
            files.display()
        ),
    )
    .await;
}

async fn insert(client: &Client, from: u32, to: u32) {
    for table in ["t", "log"] {
        let sql = format!("INSERT INTO {table} SELECT i, i * 3 FROM generate_series({from}, {to}) AS g(i)");
        run(client, &sql).await;
    }
}

/// Everything that is derived is what a query computes now, and sinks have exactly that.
async fn assert_exact(weir: &Weir, target: &Client, expected: u32) {
    let client = weir.connect().await;
    run(&client, "FLUSH; CHECKPOINT").await;
    assert_eq!(value(&client, "SELECT count(*) FROM t").await, expected.to_string());
    let both = [
        (
            "SELECT k, n, total FROM sums ORDER BY 1",
            "SELECT v % 7, count(*), sum(v) FROM t GROUP BY v % 7 ORDER BY 1",
        ),
        (
            "SELECT id, v, w FROM joined ORDER BY 1",
            "SELECT t.id, t.v, log.v FROM t JOIN log ON t.id = log.id ORDER BY 1",
        ),
        ("SELECT id FROM named ORDER BY 1", "SELECT id FROM t ORDER BY 1"),
    ];
    for (view, batch) in both {
        assert_eq!(rows(&client, view).await, rows(&client, batch).await, "{view}");
    }
    for (there, table) in [("appended", "log"), ("upserted", "t")] {
        let own = rows(&client, &format!("SELECT id, v FROM {table} ORDER BY 1")).await;
        wait_for(target, &format!("SELECT count(*) FROM {there}"), &own.len().to_string()).await;
        assert_eq!(rows(target, &format!("SELECT id, v FROM {there} ORDER BY 1")).await, own, "{there}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_comes_back_from_s3_alone() {
    for mode in ["progress", "two_phase"] {
        let (s3, mut postgres) = (S3::start().await, Postgres::start().await);
        let files = tempfile::tempdir().expect("a temporary directory");
        append(&files.path().join("a.json"), 1..101);
        run(&postgres.connect().await, "CREATE TABLE appended (id int, v bigint)").await;
        run(&postgres.connect().await, "CREATE TABLE upserted (id int PRIMARY KEY, v bigint)").await;
        let url = s3.url("lost/machine");
        let mut weir = weir_at(&url, "2").await;
        let client = weir.connect().await;
        run(&client, OBJECTS).await;
        sinks(&client, postgres.port(), mode).await;
        source(&client, files.path()).await;
        insert(&client, 1, 100).await;
        wait_for(&client, "SELECT n FROM read", "100").await;
        assert_exact(&weir, &postgres.connect().await, 100).await;
        let (mut id, mut lines) = (100, 101);
        for round in 0..3 {
            let client = weir.connect().await;
            // What is promised while the target is away is in the storage alone.
            postgres.kill();
            for _ in 0..2 {
                insert(&client, id + 1, id + 40).await;
                run(&client, &format!("DELETE FROM t WHERE id = {}", id + 1)).await;
                run(&client, &format!("INSERT INTO t VALUES ({}, 7)", id + 1)).await;
                append(&files.path().join("a.json"), lines..lines + 10);
                (id, lines) = (id + 40, lines + 10);
                wait_for(&client, "SELECT n FROM read", &(lines - 1).to_string()).await;
                run(&client, "CHECKPOINT").await;
            }
            // This is lost, and said to be.
            insert(&client, id + 1, id + 5).await;
            run(&client, "CREATE VIEW late AS SELECT id FROM t").await;
            append(&files.path().join("a.json"), lines..lines + 10);
            lines += 10;
            let before = value(&client, "SELECT count(*) FROM weir_catalog.relations").await;
            lose(weir);
            postgres.restart().await;
            weir = comes_back(&url).await;
            let client = weir.connect().await;
            assert_ne!(value(&client, "SELECT count(*) FROM weir_catalog.relations").await, before);
            let reason =
                "SELECT reason FROM weir_catalog.recoveries WHERE error IS NULL ORDER BY started_at LIMIT 1";
            let reason = value(&client, reason).await;
            assert!(
                reason.contains(
                    "what clients were told after it is lost: of tables what was written after DML position"
                ),
                "{reason}"
            );
            assert_exact(&weir, &postgres.connect().await, id).await;
            // Sources go on from their offsets.
            append(&files.path().join("b.json"), lines..lines + 10);
            lines += 10;
            wait_for(&client, "SELECT n FROM read", &(lines - 1).to_string()).await;
            let total = u64::from(lines) * u64::from(lines - 1) / 2;
            assert_eq!(value(&client, "SELECT total FROM read").await, total.to_string());
            // From now on it is a server like any other, which keeps its checkpoints there.
            insert(&client, id + 1, id + 10).await;
            id += 10;
            restart(&mut weir, &CREDENTIALS).await;
            assert_exact(&weir, &postgres.connect().await, id).await;
            let client = weir.connect().await;
            assert!(value(&client, "SHOW checkpoint.storage").await.contains("lost/machine"), "{round}");
            let uploaded = "SELECT count(*) > 0 FROM weir_catalog.checkpoints WHERE status = 'completed' AND uploaded_bytes > 0";
            assert_eq!(value(&client, uploaded).await, "t");
        }
        assert_eq!(value(&postgres.connect().await, "SELECT count(*) FROM pg_prepared_xacts").await, "0");
        assert!(!weir.log().contains("secret"), "{}", weir.log());
    }
}

/// The objects of the newest checkpoint whose paths have `part` in them.
fn newest_objects(s3: &S3, part: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        s3.objects("fall").into_iter().filter(|o| o.to_string_lossy().contains(part)).collect();
    found.sort_by_key(|path| std::fs::metadata(path).and_then(|m| m.modified()).expect("a file"));
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_newest_checkpoint_gives_way_to_the_one_before_for_good() {
    for part in ["/small/", "/catalog/", "/sinks/", "/log/"] {
        let (s3, mut postgres) = (S3::start().await, Postgres::start().await);
        run(&postgres.connect().await, "CREATE TABLE appended (id int, v bigint)").await;
        run(&postgres.connect().await, "CREATE TABLE upserted (id int PRIMARY KEY, v bigint)").await;
        let url = s3.url("fall");
        let weir = weir_at(&url, "1").await;
        let client = weir.connect().await;
        run(&client, OBJECTS).await;
        sinks(&client, postgres.port(), "progress").await;
        insert(&client, 1, 10).await;
        assert_exact(&weir, &postgres.connect().await, 10).await;
        postgres.kill();
        run(&client, "CREATE TABLE late (a int)").await;
        insert(&client, 11, 20).await;
        run(&client, "CHECKPOINT").await;
        lose(weir);
        let damaged = newest_objects(&s3, part).pop().expect("there is one");
        let content = std::fs::read(&damaged).expect("it is there");
        std::fs::write(&damaged, &content[..content.len() / 2]).expect("it is ours");
        postgres.restart().await;
        let mut back = comes_back(&url).await;
        let told = if part == "/log/" { "A MANIFEST IS DAMAGED" } else { "CHECKPOINT IS DAMAGED" };
        assert!(back.log().contains(told), "{part}:\n{}", back.log());
        if part != "/log/" {
            assert!(back.log().contains("at least 2 transactions"), "{}", back.log());
        }
        assert_eq!(value(&back.connect().await, "SELECT count(*) FROM t").await, "10", "{part}");
        // Somebody mends it: it does not come between, whatever is lost.
        if damaged.exists() {
            std::fs::write(&damaged, &content).expect("it is ours");
        }
        restart(&mut back, &CREDENTIALS).await;
        assert_eq!(value(&back.connect().await, "SELECT count(*) FROM t").await, "10", "{part}");
        back.kill();
        std::fs::remove_dir_all(back.data_dir().join("checkpoints")).expect("there are some");
        restart(&mut back, &CREDENTIALS).await;
        insert(&back.connect().await, 30, 31).await;
        assert_exact(&back, &postgres.connect().await, 12).await;
        lose(back);
        assert_exact(&comes_back(&url).await, &postgres.connect().await, 12).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_holds_what_the_damaged_checkpoint_had_is_refused() {
    let (s3, postgres) = (S3::start().await, Postgres::start().await);
    let target = postgres.connect().await;
    run(
        &target,
        "CREATE TABLE appended (id int, v bigint); CREATE TABLE upserted (id int PRIMARY KEY, v bigint)",
    )
    .await;
    let url = s3.url("fall");
    let weir = weir_at(&url, "1").await;
    let client = weir.connect().await;
    run(&client, OBJECTS).await;
    sinks(&client, postgres.port(), "progress").await;
    for (from, to) in [(1, 10), (11, 20)] {
        insert(&client, from, to).await;
        assert_exact(&weir, &target, to).await;
    }
    lose(weir);
    let damaged = newest_objects(&s3, "/small/").pop().expect("there is one");
    std::fs::write(damaged, "x").expect("it is ours");
    let mut back = comes_back(&url).await;
    let alert = "SELECT count(*) FROM weir_catalog.alerts WHERE message LIKE '%55000: the target of sink%restored checkpoint%'";
    wait_for(&back.connect().await, alert, "2").await;
    run(&back.connect().await, "CHECKPOINT").await;
    // That somebody has to choose is in the checkpoints as well: another lost disk does not forget it.
    lose(std::mem::replace(&mut back, weir_at(&s3.url("unused"), "1").await));
    let back = comes_back(&url).await;
    let client = back.connect().await;
    wait_for(&client, alert, "2").await;
    assert_eq!(value(&target, "SELECT count(*) FROM appended").await, "20");
    run(&client, "ALTER SINK appended REBUILD; ALTER SINK upserted REBUILD").await;
    wait_for(&client, alert, "0").await;
    insert(&client, 30, 40).await;
    assert_exact(&back, &target, 21).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_had_the_database_before_is_fenced_off() {
    let (s3, postgres) = (S3::start().await, Postgres::start().await);
    let target = postgres.connect().await;
    run(
        &target,
        "CREATE TABLE appended (id int, v bigint); CREATE TABLE upserted (id int PRIMARY KEY, v bigint)",
    )
    .await;
    let url = s3.url("both");
    let old = weir_at(&url, "1").await;
    let client = old.connect().await;
    run(&client, OBJECTS).await;
    sinks(&client, postgres.port(), "progress").await;
    insert(&client, 1, 10).await;
    assert_exact(&old, &target, 10).await;
    let new = comes_back(&url).await;
    insert(&client, 11, 20).await;
    let error = client.batch_execute("CHECKPOINT").await.expect_err("another server has the storage");
    assert!(words(&error).contains("was fenced off by generation"), "{}", words(&error));
    insert(&new.connect().await, 100, 104).await;
    assert_exact(&new, &target, 15).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_target_gets_what_a_lost_disk_would_take_back() {
    // Killed between the two manifests of a checkpoint.
    for away in [false, true] {
        let (mut s3, postgres) = (S3::start().await, Postgres::start().await);
        let target = postgres.connect().await;
        run(
            &target,
            "CREATE TABLE appended (id int, v bigint); CREATE TABLE upserted (id int PRIMARY KEY, v bigint)",
        )
        .await;
        let url = s3.url("window");
        let mut weir = weir_at(&url, "1").await;
        let client = weir.connect().await;
        run(&client, OBJECTS).await;
        sinks(&client, postgres.port(), "progress").await;
        insert(&client, 1, 10).await;
        assert_exact(&weir, &target, 10).await;
        weir.kill();
        let environment =
            [CREDENTIALS[0], CREDENTIALS[1], ("WEIR_FAILPOINT", "storage.before_publish:2=kill")];
        restart(&mut weir, &environment).await;
        let client = weir.connect().await;
        insert(&client, 11, 20).await;
        assert!(client.batch_execute("CHECKPOINT").await.is_err(), "it dies");
        weir.wait_ended().await;
        if away {
            s3.end();
        }
        weir.begin(&CREDENTIALS);
        weir.wait_ready().await;
        assert_eq!(value(&weir.connect().await, "SELECT count(*) FROM t").await, "20");
        if away {
            // The disk has the checkpoint, but nobody else.
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert_eq!(value(&target, "SELECT count(*) FROM appended").await, "10");
            s3.begin().await;
            let deadline = Instant::now() + PATIENCE;
            while weir.connect().await.batch_execute("CHECKPOINT").await.is_err() {
                assert!(Instant::now() < deadline, "the storage is back:\n{}", weir.log());
            }
        }
        wait_for(&target, "SELECT count(*) FROM appended", "20").await;
        wait_for(&target, "SELECT count(*) FROM upserted", "20").await;
        lose(weir);
        let back = comes_back(&url).await;
        insert(&back.connect().await, 21, 22).await;
        assert_exact(&back, &target, 22).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_created_is_there_soon_though_nothing_moves() {
    let s3 = S3::start().await;
    let url = s3.url("");
    let weir = weir_at(&url, "1").await;
    let client = weir.connect().await;
    run(&client, "CREATE TABLE t (a int); CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM t").await;
    run(&client, "INSERT INTO t VALUES (1); CHECKPOINT").await;
    // By its setting, in the catalog, it goes on.
    run(&client, "ALTER DATABASE dev SET checkpoint.interval = '200ms'").await;
    run(
        &client,
        "CREATE MATERIALIZED VIEW w AS SELECT sum(a) AS s FROM t; CREATE VIEW last AS SELECT a FROM t",
    )
    .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    lose(weir);
    let back = Weir::with(&["--restore", &url, "--set", "checkpoint.take_over=on"], &CREDENTIALS).await;
    let client = back.connect().await;
    assert_eq!(
        rows(&client, "SELECT (SELECT n FROM v), (SELECT s FROM w), a FROM last").await,
        [["1", "1", "1"]]
    );
    assert_eq!(value(&client, "SHOW checkpoint.interval").await, "200ms");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_come_back_is_said_and_what_was_cut_off_begins_anew() {
    let s3 = S3::start().await;
    let url = s3.url("several");
    let weir = weir_at(&url, "1").await;
    run(&weir.connect().await, "CREATE TABLE t (a int); INSERT INTO t VALUES (1); CHECKPOINT").await;
    let mut other = weir_at(&s3.url("other"), "1").await;
    other.kill();
    std::fs::remove_dir_all(other.data_dir()).expect("it has ended");
    let nothing = s3.url("nothing");
    fails(&mut other, &restoring(&nothing, &[]), "there is no savepoint at").await;
    fails(&mut other, &["--restore", &url], "whose server may still write there").await;
    fails(&mut other, &["--restore", &url], "checkpoint.take_over = on").await;
    let another = weir_at(&url, "1").await;
    run(&another.connect().await, "CREATE TABLE t (a int); INSERT INTO t VALUES (2), (3); CHECKPOINT").await;
    fails(&mut other, &restoring(&url, &[]), "holds checkpoints of several databases").await;
    let database = std::fs::read_to_string(weir.data_dir().join("database")).expect("it has one");
    lose(weir);
    let named = s3.url(&format!("several/{}", database.trim()));
    fails(&mut other, &restoring(&named, &["--set", "state.backend=memory"]), "state.backend").await;
    other.set_options(&restoring(&named, &[]));
    for point in
        ["storage.after_take", "restore.between_files", "restore.after_rename", "comeback.before_arrived"]
    {
        let spec: &'static str = Box::leak(format!("{point}=kill").into_boxed_str());
        other.begin(&[CREDENTIALS[0], CREDENTIALS[1], ("WEIR_FAILPOINT", spec)]);
        assert!(!other.wait_ended().await.success(), "{point}");
        fails(&mut other, &[], "start with --restore again").await;
        other.set_options(&restoring(&named, &[]));
    }
    other.begin(&CREDENTIALS);
    other.wait_ready().await;
    let client = other.connect().await;
    assert_eq!(rows(&client, "SELECT a FROM t").await, [["1"]]);
    run(&client, "INSERT INTO t VALUES (4); CHECKPOINT").await;
    other.kill();
    fails(&mut other, &restoring(&named, &[]), "is not empty").await;
    other.set_options(&[]);
    restart(&mut other, &CREDENTIALS).await;
    assert_eq!(value(&other.connect().await, "SELECT count(*) FROM t").await, "2");
    assert_eq!(value(&another.connect().await, "SELECT count(*) FROM t").await, "2");
}
