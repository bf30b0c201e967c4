//! Savepoints: taken while rows flow, brought back in place and elsewhere, at another parallelism and to
//! another store; cut off at every step, nothing is half old and half new.

use crate::harness::{PATIENCE, Weir, assert_views, rows, run, try_rows, value, wait_for, words};
use crate::storage::{CREDENTIALS, S3};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// State of every kind of operator.
const OBJECTS: &str = "\
    CREATE TABLE t (id int PRIMARY KEY, v bigint, note varchar);
    CREATE TABLE u (k bigint, w varchar) APPEND ONLY;
    CREATE MATERIALIZED VIEW sums AS SELECT v % 7 AS k, count(*) AS n, sum(v) AS total, max(note) AS m FROM t GROUP BY v % 7;
    CREATE MATERIALIZED VIEW pairs AS SELECT t.id, t.v, u.w FROM t JOIN u ON t.v = u.k;
    CREATE MATERIALIZED VIEW best AS SELECT id, v FROM t ORDER BY v DESC, id LIMIT 5;
    CREATE MATERIALIZED VIEW kinds AS SELECT DISTINCT v % 5 AS x FROM t;
    CREATE MATERIALIZED VIEW grown AS SELECT k, count(*) AS n FROM u GROUP BY k;
    CREATE MATERIALIZED VIEW of_sums AS SELECT sum(n) AS n, max(total) AS top FROM sums;
    CREATE INDEX by_v ON t (v);
    COMMENT ON TABLE t IS 'what is saved';
    ALTER DATABASE dev SET checkpoint.max_retained = 2;";

/// Each view, and the query that it is.
const VIEWS: &[(&str, &str)] = &[
    ("sums", "SELECT v % 7, count(*), sum(v), max(note) FROM t GROUP BY v % 7"),
    ("pairs", "SELECT t.id, t.v, u.w FROM t JOIN u ON t.v = u.k"),
    ("best", "SELECT * FROM (SELECT id, v FROM t ORDER BY v DESC, id LIMIT 5) b"),
    ("kinds", "SELECT DISTINCT v % 5 FROM t"),
    ("grown", "SELECT k, count(*) FROM u GROUP BY k"),
    (
        "of_sums",
        "SELECT sum(n), max(total) FROM (SELECT count(*) AS n, sum(v) AS total FROM t GROUP BY v % 7) s",
    ),
];

async fn insert(client: &Client, from: usize, to: usize) {
    run(
        client,
        &format!(
            "INSERT INTO t SELECT i, i * 3 % 101, 'note ' || i FROM generate_series({from}, {to}) AS g(i);
             INSERT INTO u SELECT i % 50, 'w' || i FROM generate_series({from}, {to}) AS g(i)"
        ),
    )
    .await;
}

/// The rows of everything.
async fn everything(client: &Client) -> Vec<Vec<Vec<String>>> {
    run(client, "FLUSH").await;
    let mut all = Vec::new();
    for name in ["t", "u"].iter().chain(VIEWS.iter().map(|(view, _)| view)) {
        let mut found = rows(client, &format!("SELECT * FROM {name}")).await;
        found.sort();
        all.push(found);
    }
    all
}

async fn assert_exact(client: &Client, what: &str) {
    assert_views(client, VIEWS, what).await;
}

/// A server that has all of it, and so many rows.
async fn filled(options: &[&str], rows: usize) -> (Weir, Client) {
    let weir = Weir::with(options, &[]).await;
    let client = weir.connect().await;
    run(&client, OBJECTS).await;
    insert(&client, 1, rows).await;
    (weir, client)
}

/// What comes after: views follow, through a kill too.
async fn goes_on(weir: &mut Weir, from: usize) {
    let client = weir.connect().await;
    insert(&client, from, from + 99).await;
    run(&client, "UPDATE t SET v = v + 1 WHERE id % 3 = 0; DELETE FROM t WHERE id % 10 = 1").await;
    assert_exact(&client, "after more changes").await;
    weir.kill_and_restart().await;
    let client = weir.connect().await;
    assert_exact(&client, "after a kill").await;
    insert(&client, from + 100, from + 120).await;
    assert_exact(&client, "after a kill and more changes").await;
}

fn url(weir: &Weir, name: &str) -> String {
    format!("file://{}", weir.path(name).display())
}

async fn refused(client: &Client, sql: &str) -> String {
    words(&client.batch_execute(sql).await.expect_err(sql))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_savepoint_is_restored_in_place() {
    let (mut weir, client) = filled(&["--parallelism", "2"], 500).await;
    let to = url(&weir, "first");
    run(&client, &format!("SAVEPOINT TO '{to}'")).await;
    let saved = everything(&client).await;
    let kinds =
        "SELECT count(*) FROM weir_catalog.checkpoints WHERE kind = 'savepoint' AND status = 'completed'";
    assert_eq!(value(&client, kinds).await, "1");

    // What comes after it goes: rows, objects, settings.
    insert(&client, 501, 600).await;
    run(
        &client,
        "DROP MATERIALIZED VIEW of_sums; DROP INDEX by_v;
         CREATE TABLE later (a int); CREATE MATERIALIZED VIEW of_later AS SELECT count(*) FROM later;
         CREATE TABLE of_sums (other text);
         ALTER DATABASE dev SET checkpoint.max_retained = 5; DELETE FROM t WHERE id < 300",
    )
    .await;
    let error = refused(&client, &format!("RESTORE DATABASE dev FROM '{to}'")).await;
    assert!(
        error.starts_with("55000: the database is not empty") && error.contains("replace = true"),
        "{error}"
    );
    let open = weir.connect().await;
    run(&open, "BEGIN; INSERT INTO t VALUES (9999, 1)").await;
    let notices = weir.notices(&format!("RESTORE DATABASE dev FROM '{to}' WITH (replace = true)")).await;
    let error = refused(&open, "COMMIT").await;
    assert!(error.starts_with("40001: a savepoint was put in the place of the database"), "{error}");
    assert!(notices.contains("table \"later\" is not in the savepoint: it is dropped"), "{notices}");
    assert_eq!(everything(&client).await, saved, "the session that asked");
    let client = weir.connect().await;
    assert_eq!(everything(&client).await, saved);
    assert_eq!(value(&client, "SHOW checkpoint.max_retained").await, "2");
    assert!(try_rows(&client, "SELECT * FROM later").await.is_err());
    let plan = rows(&client, "EXPLAIN SELECT * FROM t WHERE v = 3").await.concat().join("\n");
    assert!(plan.contains("by_v"), "{plan}");
    goes_on(&mut weir, 501).await;
    // Again, and from a savepoint of the restored database.
    let client = weir.connect().await;
    let second = url(&weir, "second");
    run(&client, &format!("SAVEPOINT TO '{second}'")).await;
    let more = everything(&client).await;
    run(&client, &format!("RESTORE DATABASE dev FROM '{to}' WITH (replace = true)")).await;
    assert_eq!(everything(&client).await, saved);
    weir.kill_and_restart().await;
    let client = weir.connect().await;
    run(&client, &format!("RESTORE DATABASE dev FROM '{second}' WITH (replace = true)")).await;
    assert_eq!(everything(&client).await, more);
    goes_on(&mut weir, 1001).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_savepoint_goes_to_another_machine_parallelism_and_store() {
    let weir = Weir::with(&["--parallelism", "2"], &[]).await;
    let client = weir.connect().await;
    run(&client, OBJECTS).await;
    run(
        &client,
        "CREATE SOURCE bid WITH (connector = 'nexmark', nexmark.table.type = 'Bid', events = 50000, rate = 30000);
         CREATE MATERIALIZED VIEW totals AS SELECT count(*) AS n, count(DISTINCT datetime) AS moments FROM bid",
    )
    .await;
    insert(&client, 1, 300).await;
    // While rows flow.
    let to = url(&weir, "moved");
    run(&client, &format!("SAVEPOINT TO '{to}'")).await;
    let mut saved = everything(&client).await;
    let mut from = to.clone();
    let mut here = None;
    for (round, (parallelism, backend)) in
        [("1", "memory"), ("4", "memory"), ("3", "rocksdb")].into_iter().enumerate()
    {
        let setting = format!("state.backend={backend}");
        let options = ["--parallelism", parallelism, "--set", &setting];
        let mut moved = Weir::with(&[&options[..], &["--restore", &from]].concat(), &[]).await;
        moved.set_options(&options);
        let client = moved.connect().await;
        assert_eq!(everything(&client).await, saved, "{parallelism} {backend}");
        assert_eq!(value(&client, "SHOW state.backend").await, backend);
        goes_on(&mut moved, 1000 * (round + 1)).await;
        let client = moved.connect().await;
        // 46 in 50 events are bids.
        wait_for(&client, "SELECT n FROM totals", "46000").await;
        from = url(&moved, "again");
        run(&client, &format!("SAVEPOINT TO '{from}'")).await;
        saved = everything(&client).await;
        here = Some(moved);
    }
    // A data directory that has something is not overwritten.
    let mut last = here.expect("there was a round");
    last.kill();
    last.set_options(&["--restore", &to]);
    last.begin(&[]);
    assert!(!last.wait_ended().await.success());
    assert!(last.log().contains("is not empty"), "{}", last.log());
    // Another kind of store does not read what is there.
    last.set_options(&["--set", "state.backend=memory"]);
    last.begin(&[]);
    assert!(!last.wait_ended().await.success());
    let log = last.log();
    assert!(log.contains("'rocksdb'") && log.contains("'memory'") && log.contains("SAVEPOINT TO"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_is_cut_off_leaves_the_old_database_or_the_new_one() {
    let (mut weir, client) = filled(&["--parallelism", "2"], 100).await;
    let to = url(&weir, "saved");
    run(&client, &format!("SAVEPOINT TO '{to}'")).await;
    let new = everything(&client).await;
    let restore = format!("RESTORE DATABASE dev FROM '{to}' WITH (replace = true)");
    let steps = [
        ("restore.prepared", false),
        ("restore.logs_placed", false),
        ("restore.before_switch", false),
        ("catalog_log.mid_write", false),
        ("catalog_log.before_sync", true),
        ("catalog_log.after_sync", true),
        ("restore.after_switch", true),
        ("restore.after_rename", true),
        ("restore.adopted", true),
        ("restart.before_jobs", true),
    ];
    let mut next = 1000;
    for (point, switched) in steps {
        // What is there before is something else each time.
        let client = weir.connect().await;
        run(&client, &format!("CREATE TABLE only{next} (a int); INSERT INTO only{next} VALUES (7)")).await;
        insert(&client, next, next + 50).await;
        run(&client, "CHECKPOINT").await;
        let old = everything(&client).await;
        weir.kill();
        // The start comes by some of these itself.
        let passes = if point == "restart.before_jobs" { 2 } else { 1 };
        let spec = format!("{point}:{passes}=kill");
        weir.begin(&[("WEIR_FAILPOINT", &spec)]);
        weir.wait_ready().await;
        let client = weir.connect().await;
        assert!(client.batch_execute(&restore).await.is_err(), "{point}: the server dies");
        weir.wait_ended().await;
        weir.begin(&[]);
        weir.wait_ready().await;
        let client = weir.connect().await;
        let expected = if switched { &new } else { &old };
        assert_eq!(&everything(&client).await, expected, "{point}");
        let only = try_rows(&client, &format!("SELECT a FROM only{next}")).await;
        assert_eq!(only.is_ok(), !switched, "{point}: the catalog goes with the state");
        let left = weir.data_dir().join("checkpoints/restoring");
        assert!(!left.exists(), "{point}: what was prepared is gone");
        assert_exact(&client, point).await;
        next += 1000;
        insert(&client, next, next + 10).await;
        assert_exact(&client, point).await;
        next += 1000;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_fails_leaves_a_database_that_runs() {
    for (point, switched) in [
        ("restore.prepared", false),
        ("restore.logs_placed", false),
        ("restore.before_switch", false),
        ("restore.after_switch", true),
        ("restore.after_rename", true),
        ("restore.adopted", true),
    ] {
        let fails = format!("{point}:1=error");
        let weir = Weir::with(&[], &[("WEIR_FAILPOINT", &fails)]).await;
        let client = weir.connect().await;
        run(&client, OBJECTS).await;
        insert(&client, 1, 100).await;
        let to = url(&weir, "saved");
        run(&client, &format!("SAVEPOINT TO '{to}'")).await;
        let new = everything(&client).await;
        insert(&client, 200, 250).await;
        let old = everything(&client).await;
        let restore = format!("RESTORE DATABASE dev FROM '{to}' WITH (replace = true)");
        let error = refused(&client, &restore).await;
        assert!(error.contains(&format!("fail point {point}")), "{error}");
        let n = if switched { new[0].len() } else { old[0].len() };
        // After the switch it is the new one that restarts until it runs.
        let deadline = std::time::Instant::now() + crate::harness::PATIENCE;
        let is_there = async || {
            let counted = try_rows(&client, "SELECT count(*) FROM t").await.ok();
            counted == Some(vec![vec![n.to_string()]]) && client.batch_execute("FLUSH").await.is_ok()
        };
        while !is_there().await {
            assert!(std::time::Instant::now() < deadline, "{point}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(everything(&client).await, if switched { new.clone() } else { old }, "{point}");
        insert(&client, 300, 350).await;
        assert_exact(&client, point).await;
        run(&client, &restore).await;
        assert_eq!(everything(&client).await, new, "{point}: it can be had again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_savepoint_that_is_cut_off_does_not_exist_and_the_database_goes_on() {
    let (mut weir, _) = filled(&[], 100).await;
    let mut next = 1000;
    for (number, (point, stop, exists)) in [
        ("savepoint.before_file", false, false),
        ("savepoint.before_manifest", true, false),
        ("savepoint.after_manifest", false, true),
        ("savepoint.before_stop", true, true),
    ]
    .into_iter()
    .enumerate()
    {
        for effect in ["error", "kill"] {
            weir.kill();
            weir.begin(&[("WEIR_FAILPOINT", &format!("{point}:1={effect}"))]);
            weir.wait_ready().await;
            let client = weir.connect().await;
            let name = format!("{number}-{effect}");
            let to = url(&weir, &name);
            let sql = format!("SAVEPOINT TO '{to}'{}", if stop { " AND STOP" } else { "" });
            assert!(client.batch_execute(&sql).await.is_err(), "{point} {effect}");
            if effect == "kill" {
                weir.wait_ended().await;
                weir.begin(&[]);
                weir.wait_ready().await;
            }
            let client = weir.connect().await;
            insert(&client, next, next + 20).await;
            assert_exact(&client, &sql).await;
            let found = weir.path(&name).join("savepoint.json").exists();
            assert_eq!(found, exists, "{point} {effect}");
            if !exists {
                // Where it was killed the next start removes what is left.
                let deadline = Instant::now() + PATIENCE;
                while !walk(&weir.path(&name)).is_empty() {
                    let waits = effect == "kill" && Instant::now() < deadline;
                    assert!(waits, "{point}: {:?} are left", walk(&weir.path(&name)));
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                // The place is free. What somebody else has left there stays, and is said to be there.
                let left = weir.path(&name).join("0badcafe/state");
                std::fs::create_dir_all(&left).expect("a directory");
                std::fs::write(left.join("000000.entries"), "x").expect("a file");
                let notices = weir.notices(&format!("SAVEPOINT TO '{to}'")).await;
                assert!(notices.contains("files of 1 savepoints that were cut off"), "{notices}");
                assert!(left.join("000000.entries").exists());
            }
            let deadline = Instant::now() + PATIENCE;
            while !walk(&weir.data_dir().join("savepoints")).is_empty() {
                assert!(Instant::now() < deadline, "{point} {effect}: it is still noted");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            next += 100;
        }
    }
}

fn walk(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { found.extend(walk(&path)) } else { found.push(path) }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn the_data_path_goes_on_while_a_savepoint_is_written_and_its_checkpoint_stays() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let waiting = dir.path().join("waiting");
    let point = format!("savepoint.before_file:1=wait:{}", waiting.display());
    let options = ["--set", "checkpoint.max_retained=1", "--set", "checkpoint.interval=0"];
    let weir = Weir::with(&options, &[("WEIR_FAILPOINT", &point)]).await;
    let client = weir.connect().await;
    run(&client, OBJECTS).await;
    run(&client, "ALTER DATABASE dev RESET checkpoint.max_retained").await;
    insert(&client, 1, 100).await;
    let saved = everything(&client).await;
    let to = url(&weir, "slow");
    let other = weir.connect().await;
    let sql = format!("SAVEPOINT TO '{to}'");
    let taking = tokio::spawn(async move { other.batch_execute(&sql).await });
    let deadline = std::time::Instant::now() + crate::harness::PATIENCE;
    while !waiting.exists() {
        assert!(std::time::Instant::now() < deadline && !taking.is_finished(), "it gets there");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for i in 0..5 {
        insert(&client, 1000 + i * 20, 1019 + i * 20).await;
        run(&client, "CHECKPOINT").await;
        assert_exact(&client, "meanwhile").await;
    }
    run(&client, "CREATE TABLE meanwhile (a int)").await;
    let kept =
        || std::fs::read_dir(weir.data_dir().join("checkpoints")).expect("it is there").flatten().count();
    // The one that is read, the newest, and the mark of the generation.
    assert!(kept() >= 3, "the checkpoint that is read stays");
    std::fs::remove_file(&waiting).expect("it waits");
    taking.await.expect("no panic").expect("the savepoint is taken");
    run(&client, "CHECKPOINT; CHECKPOINT").await;
    let deadline = std::time::Instant::now() + crate::harness::PATIENCE;
    while kept() > 2 {
        assert!(std::time::Instant::now() < deadline, "nobody reads it any more");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    run(&client, &format!("RESTORE DATABASE dev FROM '{to}' WITH (replace = true)")).await;
    assert_eq!(everything(&client).await, saved);
    assert!(try_rows(&client, "SELECT * FROM meanwhile").await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_database_answers_and_takes_nothing_until_it_is_let_go_on() {
    let mut weir = Weir::start().await;
    let client = weir.connect().await;
    run(&client, OBJECTS).await;
    run(
        &client,
        "CREATE SOURCE bid WITH (connector = 'nexmark', nexmark.table.type = 'Bid', rate = 5000);
         CREATE MATERIALIZED VIEW totals AS SELECT count(*) AS n FROM bid",
    )
    .await;
    insert(&client, 1, 100).await;
    let to = url(&weir, "stopped");
    run(&client, &format!("SAVEPOINT TO '{to}' AND STOP")).await;
    let n = value(&client, "SELECT n FROM totals").await;
    let t = rows(&client, "SELECT * FROM t ORDER BY id").await;
    for refused_sql in
        ["INSERT INTO t VALUES (5000, 1, 'x')", "DELETE FROM t", "FLUSH", "CREATE TABLE x (a int)"]
    {
        let error = refused(&client, refused_sql).await;
        let says = error.starts_with("55000: the database is stopped") && error.contains("RECOVER");
        assert!(says, "{refused_sql}: {error}");
    }
    assert_eq!(value(&client, "SELECT n FROM totals").await, n, "nothing more is processed");
    let again = refused(&client, &format!("SAVEPOINT TO '{to}2'")).await;
    assert!(again.starts_with("55000: the database is stopped"), "{again}");
    // It stays so, and ends cleanly.
    assert!(weir.terminate().await.success(), "{}", weir.log());
    weir.begin(&[]);
    weir.wait_ready().await;
    let client = weir.connect().await;
    let error = refused(&client, "INSERT INTO t VALUES (5000, 1, 'x')").await;
    assert!(error.starts_with("55000: the database is stopped"), "{error}");
    assert_eq!(rows(&client, "SELECT * FROM t ORDER BY id").await, t, "it is shown after a restart as well");
    assert_eq!(value(&client, "SELECT n FROM totals").await, n);
    // Elsewhere it goes on with just that.
    let moved = Weir::with(&["--restore", &to], &[]).await;
    let there = moved.connect().await;
    assert_eq!(rows(&there, "SELECT * FROM t ORDER BY id").await, t);
    assert_exact(&there, "moved").await;
    // And here, if somebody says so.
    run(&client, "RECOVER").await;
    assert_eq!(rows(&client, "SELECT * FROM t ORDER BY id").await, t);
    insert(&client, 200, 250).await;
    assert_exact(&client, "recovered").await;
    weir.kill_and_restart().await;
    insert(&weir.connect().await, 300, 350).await;
    assert_exact(&weir.connect().await, "recovered and killed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_said() {
    let weir = Weir::start().await;
    let client = weir.connect().await;
    run(&client, "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)").await;
    let to = url(&weir, "there");
    run(&client, &format!("SAVEPOINT TO '{to}'")).await;
    for (sql, expected) in [
        (format!("SAVEPOINT TO '{to}'"), "58P02: there is a savepoint at"),
        (format!("RESTORE DATABASE dev FROM '{to}2'"), "58P01: there is no savepoint at"),
        (format!("RESTORE DATABASE other FROM '{to}'"), "3D000: database \"other\" does not exist"),
        ("SAVEPOINT TO 'somewhere'".to_owned(), "22023: invalid URL of a savepoint"),
        (
            "SAVEPOINT TO 's3://key:secret@bucket/x'".to_owned(),
            "22023: invalid URL of a savepoint HINT Credentials",
        ),
        (
            format!("RESTORE DATABASE dev FROM '{to}' WITH (force = true)"),
            "22023: unrecognized option \"force\"",
        ),
    ] {
        let error = refused(&client, &sql).await;
        assert!(error.starts_with(expected), "{sql}: {error}");
    }
    for sql in [format!("SAVEPOINT TO '{to}3'"), format!("RESTORE DATABASE dev FROM '{to}'")] {
        run(&client, "BEGIN").await;
        let error = refused(&client, &sql).await;
        assert!(error.starts_with("25001: ") && error.contains("transaction block"), "{error}");
        run(&client, "ROLLBACK").await;
    }
    // PostgreSQL's own savepoints are as they were.
    run(&client, "BEGIN; SAVEPOINT a; INSERT INTO t VALUES (2); ROLLBACK TO a; COMMIT").await;
    assert_eq!(value(&client, "SELECT count(*) FROM t").await, "1");
    // A damaged file is named, and changes nothing.
    let file = walk(&weir.path("there")).into_iter().find(|p| p.extension().is_some_and(|e| e == "entries"));
    let file = file.expect("there is state");
    let mut content = std::fs::read(&file).expect("a file");
    let middle = content.len() / 2;
    content[middle] ^= 1;
    std::fs::write(&file, content).expect("it is ours");
    let error = refused(&client, &format!("RESTORE DATABASE dev FROM '{to}' WITH (replace = true)")).await;
    assert!(error.starts_with("XX001: ") && error.contains("000000.entries"), "{error}");
    run(&client, "INSERT INTO t VALUES (3)").await;
    assert_eq!(value(&client, "SELECT count(*) FROM t").await, "2");
}

/// Changes the fingerprint of one job in a savepoint, as a plan that came out otherwise would.
pub fn misfit(savepoint: &Path, object: &str) {
    let path = savepoint.join("savepoint.json");
    let content = std::fs::read_to_string(&path).expect("a manifest");
    let line = content.lines().next().expect("a line");
    let mut manifest: serde_json::Value = serde_json::from_str(line).expect("JSON");
    let objects = manifest["catalog"]["objects"].as_array().expect("objects").clone();
    let id = objects.iter().find(|o| o["name"]["name"] == object).expect("it is there")["id"].clone();
    let jobs = manifest["jobs"].as_array_mut().expect("jobs");
    let job = jobs.iter_mut().find(|job| job["job"] == id).expect("it has a job");
    job["fingerprints"][0][1] = "0123456789abcdef".into();
    let line = manifest.to_string();
    let sum = format!("{:08x}", crc32fast::hash(line.as_bytes()));
    std::fs::write(&path, format!("{line}\n{sum}\n")).expect("it is ours");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_is_an_error_or_rebuilt_or_dropped() {
    let (mut weir, client) = filled(&[], 200).await;
    let to = url(&weir, "saved");
    run(&client, &format!("SAVEPOINT TO '{to}'")).await;
    let saved = everything(&client).await;
    misfit(&weir.path("saved"), "sums");
    insert(&client, 300, 350).await;
    let restore = |mismatch: &str| {
        format!("RESTORE DATABASE dev FROM '{to}' WITH (replace = true, on_mismatch = '{mismatch}')")
    };
    let error = refused(&client, &restore("error")).await;
    assert!(
        error.starts_with("55000: the state of materialized view \"public.sums\"")
            || error.starts_with("55000: the state of materialized view \"sums\""),
        "{error}"
    );
    assert!(
        error.contains("operator") && error.contains("0123456789abcdef") && error.contains("rebuild"),
        "{error}"
    );
    assert_exact(&client, "nothing happened").await;
    let notices = weir.notices(&restore("rebuild")).await;
    assert!(
        notices.contains("\"sums\" is rebuilt") && notices.contains("\"of_sums\", which reads"),
        "{notices}"
    );
    run(&client, "WAIT").await;
    assert_eq!(everything(&client).await, saved);
    goes_on(&mut weir, 1000).await;
    let notices = weir.notices(&restore("drop")).await;
    assert!(
        notices.contains("\"sums\" is dropped") && notices.contains("\"of_sums\", which reads"),
        "{notices}"
    );
    let client = weir.connect().await;
    assert!(try_rows(&client, "SELECT * FROM sums").await.is_err());
    assert_eq!(value(&client, "SELECT count(*) FROM t").await, "200");
    assert_eq!(
        rows(&client, "SELECT count(*) FROM pairs").await,
        rows(&client, VIEWS[1].1.replace("t.id, t.v, u.w", "count(*)").as_str()).await
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_savepoint_goes_to_an_object_store_and_comes_from_there() {
    let s3 = S3::start().await;
    let weir = Weir::with(&[], &CREDENTIALS).await;
    let client = weir.connect().await;
    run(&client, OBJECTS).await;
    insert(&client, 1, 2000).await;
    let to = s3.url("some/savepoint");
    run(&client, &format!("SAVEPOINT TO '{to}'")).await;
    let saved = everything(&client).await;
    assert!(s3.objects("some/savepoint").iter().any(|o| o.ends_with("savepoint.json")));
    let error = refused(&client, &format!("SAVEPOINT TO '{to}'")).await;
    assert!(error.starts_with("58P02"), "{error}");
    insert(&client, 3000, 3100).await;
    run(&client, &format!("RESTORE DATABASE dev FROM '{to}' WITH (replace = true)")).await;
    assert_eq!(everything(&client).await, saved);
    let moved = Weir::with(&["--restore", &to, "--set", "state.backend=memory"], &CREDENTIALS).await;
    let there = moved.connect().await;
    assert_eq!(everything(&there).await, saved);
    assert!(!weir.log().contains("secret") && !moved.log().contains("secret"));
}

#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_elsewhere_are_those_of_the_restored_database_after_it() {
    let s3 = S3::start().await;
    let storage = format!("checkpoint.storage={}", s3.url("kept"));
    let options = ["--set", &storage, "--set", "checkpoint.interval=0"];
    let mut weir = Weir::with(&options, &CREDENTIALS).await;
    let client = weir.connect().await;
    run(&client, OBJECTS).await;
    insert(&client, 1, 100).await;
    let to = url(&weir, "saved");
    run(&client, &format!("SAVEPOINT TO '{to}'")).await;
    let saved = everything(&client).await;
    insert(&client, 200, 300).await;
    run(&client, "CHECKPOINT").await;
    run(&client, &format!("RESTORE DATABASE dev FROM '{to}' WITH (replace = true)")).await;
    assert_eq!(everything(&client).await, saved);
    run(&client, "CHECKPOINT").await;
    // The disk loses its checkpoints: what comes back is not what was before the RESTORE.
    weir.kill();
    std::fs::remove_dir_all(weir.data_dir().join("checkpoints")).expect("there are some");
    weir.begin(&CREDENTIALS);
    weir.wait_ready().await;
    let client = weir.connect().await;
    assert_eq!(everything(&client).await, saved);
    assert_exact(&client, "downloaded").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_now_get_the_state_of_what_they_were() {
    let (mut weir, client) = filled(&["--parallelism", "2"], 200).await;
    let to = url(&weir, "saved");
    run(&client, &format!("SAVEPOINT TO '{to}'")).await;
    let saved = everything(&client).await;
    // Made anew under other ids: with the same operators, with others, and what was not there at all.
    run(
        &client,
        "DROP MATERIALIZED VIEW of_sums; DROP MATERIALIZED VIEW sums;
         CREATE MATERIALIZED VIEW sums AS SELECT v % 7 AS k, count(*) AS n, sum(v) AS total, max(note) AS m FROM t WHERE v <> 7777
           GROUP BY v % 7;
         CREATE MATERIALIZED VIEW of_sums AS SELECT sum(n) AS n, max(total) AS top FROM sums;
         CREATE MATERIALIZED VIEW new_one AS SELECT count(*) AS n FROM t;
         ALTER TABLE u RENAME TO renamed",
    )
    .await;
    run(&client, "DELETE FROM t WHERE id > 50; INSERT INTO renamed VALUES (3, 'z')").await;
    let restore = |more: &str| {
        format!("RESTORE DATABASE dev FROM '{to}' WITH (replace = true, definitions = 'current'{more})")
    };
    let notices = weir.notices(&restore("")).await;
    assert!(notices.contains("\"sums\" goes on with the state of another query"), "{notices}");
    assert!(
        notices.contains("\"new_one\" is rebuilt") && !notices.contains("\"of_sums\" is rebuilt"),
        "{notices}"
    );
    run(&client, "WAIT; ALTER TABLE renamed RENAME TO u").await;
    assert_eq!(everything(&client).await, saved);
    assert_eq!(value(&client, "SELECT n FROM new_one").await, "200");
    goes_on(&mut weir, 1000).await;
    // Other operators do not get what is not theirs.
    let client = weir.connect().await;
    run(
        &client,
        "DROP MATERIALIZED VIEW kinds; CREATE MATERIALIZED VIEW kinds AS SELECT v % 5 AS x, count(*) AS n FROM t GROUP BY v % 5",
    )
    .await;
    let error = refused(&client, &restore("")).await;
    assert!(error.starts_with("55000: ") && error.contains("\"kinds\""), "{error}");
    let notices = weir.notices(&restore(", on_mismatch = 'rebuild'")).await;
    assert!(notices.contains("\"kinds\" is rebuilt"), "{notices}");
    run(&client, "WAIT").await;
    let counted = "SELECT sum(n) FROM kinds";
    assert_eq!(value(&client, counted).await, "200");
}
