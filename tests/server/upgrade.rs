//! What earlier versions wrote still opens: data directories with their checkpoints, and savepoints, one
//! of each format in `tests/fixtures/<format>/`.
//!
//! A new format gets a folder of its own, beside those that are there:
//! ```text
//!   WEIR_FIXTURE=v2 cargo test --test server upgrade::make -- --ignored
//! ```
//! `data/` is the data directory of a server that was killed after a checkpoint and one more INSERT,
//! `savepoint/` what it had saved before that.

use crate::harness::{Weir, assert_views, rows, run, value};
use std::path::{Path, PathBuf};

const OBJECTS: &str = "\
    CREATE TABLE t (id int PRIMARY KEY, a smallint, b bigint, c numeric(12,3), d real, e double precision, f varchar,
      g bytea, h boolean, i date, j timestamp, k timestamptz, l interval, m jsonb, n uuid, o int[]);
    CREATE TABLE u (x bigint, y varchar) APPEND ONLY;
    CREATE MATERIALIZED VIEW groups AS SELECT b % 3 AS k, count(*) AS n, sum(c) AS total, avg(e) AS mean, min(f) AS least,
      count(DISTINCT a) AS kinds FROM t GROUP BY b % 3;
    CREATE MATERIALIZED VIEW pairs AS SELECT t.id, u.y FROM t LEFT JOIN u ON t.b = u.x;
    CREATE MATERIALIZED VIEW grown AS SELECT x, count(*) AS n FROM u GROUP BY x;
    CREATE MATERIALIZED VIEW best AS SELECT id, e FROM t ORDER BY e DESC, id LIMIT 3;
    CREATE MATERIALIZED VIEW ranked AS SELECT id, b % 3 AS g, row_number() OVER (PARTITION BY b % 3 ORDER BY id) AS r FROM t;
    CREATE MATERIALIZED VIEW latest AS SELECT DISTINCT ON (x) x, y FROM u ORDER BY x, y DESC;
    CREATE INDEX by_b ON t (b);
    CREATE SINK kept FROM u WITH (connector = 'file', path = '/tmp/weir-fixture-of-a-sink', type = 'append-only',
      commit_every = 100000) FORMAT PLAIN ENCODE JSON;
    COMMENT ON TABLE t IS 'from long ago';
    ALTER DATABASE dev SET checkpoint.max_retained = 1;";

const VIEWS: &[(&str, &str)] = &[
    ("groups", "SELECT b % 3, count(*), sum(c), avg(e), min(f), count(DISTINCT a) FROM t GROUP BY b % 3"),
    ("pairs", "SELECT t.id, u.y FROM t LEFT JOIN u ON t.b = u.x"),
    ("grown", "SELECT x, count(*) FROM u GROUP BY x"),
    ("best", "SELECT * FROM (SELECT id, e FROM t ORDER BY e DESC, id LIMIT 3) b"),
    ("ranked", "SELECT id, b % 3, row_number() OVER (PARTITION BY b % 3 ORDER BY id) FROM t"),
    ("latest", "SELECT DISTINCT ON (x) x, y FROM u ORDER BY x, y DESC"),
];

fn insert(from: usize, to: usize) -> String {
    format!(
        "INSERT INTO t SELECT i, i % 5, i, i / 8.0, i / 4.0, i * 1.5, 'text ' || i, decode(lpad(to_hex(i), 4, '0'), 'hex'),
           i % 2 = 0, date '2026-01-01' + i, timestamp '2026-01-01' + i * interval '1 hour',
           timestamptz '2026-01-01 00:00:00+00' + i * interval '1 minute', i * interval '1 day',
           ('{{\"n\": ' || i || '}}')::jsonb, ('00000000-0000-0000-0000-' || lpad(i::varchar, 12, '0'))::uuid,
           ARRAY[i, i + 1] FROM generate_series({from}, {to}) AS g(i);
         INSERT INTO u SELECT i % 20, 'y' || i FROM generate_series({from}, {to}) AS g(i)"
    )
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn formats() -> Vec<PathBuf> {
    let found = std::fs::read_dir(fixtures()).expect("there are fixtures");
    let mut formats: Vec<PathBuf> = found.flatten().map(|e| e.path()).filter(|p| p.is_dir()).collect();
    formats.sort();
    assert!(!formats.is_empty());
    formats
}

fn copy(from: &Path, to: &Path, skip: &[&str]) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path();
        if skip.contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            copy(&path, &to.join(name), skip);
        } else {
            std::fs::copy(&path, to.join(name)).expect("it can be copied");
        }
    }
}

/// The rows that were there, as a digest, and that views follow what comes.
async fn assert_opens(weir: &Weir, inserted: usize, what: &str) {
    let client = weir.connect().await;
    let id_and_text = "SELECT count(*), sum(id), min(f), max(c), max(m), max(n), bool_and(h = (id % 2 = 0)), max(o[2]) FROM t";
    let expected = vec![
        inserted.to_string(),
        (inserted * (inserted + 1) / 2).to_string(),
        "text 1".to_owned(),
        format!("{:.3}", inserted as f64 / 8.0),
    ];
    assert_eq!(rows(&client, id_and_text).await[0][..4], expected, "{what}");
    assert_eq!(value(&client, "SELECT j FROM t WHERE id = 25").await, "2026-01-02 01:00:00", "{what}");
    assert_eq!(value(&client, "SELECT o FROM t WHERE id = 7").await, "{7,8}", "{what}");
    assert_eq!(value(&client, "SELECT obj_description('t'::regclass)").await, "from long ago", "{what}");
    assert_views(&client, VIEWS, what).await;
    run(&client, &insert(1001, 1100)).await;
    run(&client, "UPDATE t SET b = b + 1, e = e + 1 WHERE id % 4 = 0; DELETE FROM t WHERE id % 9 = 0").await;
    assert_views(&client, VIEWS, what).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_of_every_format_open() {
    for format in formats() {
        let what = format!("{}, checkpoint", format.display());
        let mut weir = Weir::with(&["--set", "state.backend=rocksdb"], &[]).await;
        weir.kill();
        std::fs::remove_dir_all(weir.data_dir()).expect("it is ours");
        copy(&format.join("data"), &weir.data_dir(), &[]);
        weir.begin(&[]);
        weir.wait_ready().await;
        assert_opens(&weir, 120, &what).await;
        weir.kill_and_restart().await;
        assert_views(&weir.connect().await, VIEWS, &what).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn savepoints_of_every_format_open() {
    for format in formats() {
        for backend in ["rocksdb", "memory"] {
            let what = format!("{}, savepoint, {backend}", format.display());
            let url = format!("file://{}", format.join("savepoint").display());
            let setting = format!("state.backend={backend}");
            let mut weir = Weir::with(&["--restore", &url, "--set", &setting], &[]).await;
            weir.set_options(&["--set", &setting]);
            let logs = std::fs::read_dir(weir.data_dir().join("sinks")).expect("a directory").flatten();
            let logs: Vec<_> = logs.flat_map(|d| std::fs::read_dir(d.path())).flatten().flatten().collect();
            let promised = |e: &std::fs::DirEntry| e.file_name().to_string_lossy().starts_with("restored-");
            assert!(logs.iter().any(promised), "{what}: what the sink promised is there");
            assert_opens(&weir, 100, &what).await;
            weir.kill_and_restart().await;
            assert_views(&weir.connect().await, VIEWS, &what).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes the fixtures of a format"]
async fn make() {
    let name = std::env::var("WEIR_FIXTURE").expect("WEIR_FIXTURE names the format");
    let to = fixtures().join(name);
    std::fs::create_dir_all(&to).expect("a directory");
    let mut weir = Weir::with(&["--parallelism", "2"], &[]).await;
    let client = weir.connect().await;
    run(&client, OBJECTS).await;
    run(&client, &insert(1, 100)).await;
    run(&client, &format!("SAVEPOINT TO 'file://{}'", to.join("savepoint").display())).await;
    run(&client, &insert(101, 110)).await;
    run(&client, "CHECKPOINT").await;
    run(&client, &insert(111, 120)).await;
    weir.kill();
    copy(&weir.data_dir(), &to.join("data"), &["live", "scratch", "LOCK"]);
}
