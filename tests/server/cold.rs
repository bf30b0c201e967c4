//! State that is not in memory: after a restart, and where it is more than memory may hold. Operators
//! read through; results are those of the same queries as batches.

use crate::harness::{PATIENCE, Weir, rows, run, value};
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// Each view, and what it is of.
const VIEWS: [(&str, &str); 7] = [
    ("agg", "SELECT g, count(*) AS n, sum(v) AS s, min(v) AS m, count(DISTINCT v) AS d FROM t GROUP BY g"),
    ("glob", "SELECT count(*) AS n, max(v) AS m, count(DISTINCT g) AS d FROM t"),
    ("inn", "SELECT t.id, t.v, u.name FROM t JOIN u ON t.g = u.g"),
    ("outr", "SELECT t.id, u.name, u.id AS uid FROM t FULL JOIN u ON t.g = u.g AND u.id < t.v"),
    ("anti", "SELECT id, g FROM t WHERE g NOT IN (SELECT g FROM u WHERE g IS NOT NULL)"),
    ("dist", "SELECT DISTINCT v % 50 AS w, g % 3 AS h FROM t"),
    (
        "best",
        "SELECT g, id, v FROM (SELECT *, row_number() OVER (PARTITION BY g ORDER BY v DESC, id) AS rn FROM t) AS r \
         WHERE rn <= 2",
    ),
];

async fn create(client: &Client) {
    run(
        client,
        "CREATE TABLE t (id int PRIMARY KEY, g int, v int);
         CREATE TABLE u (id int PRIMARY KEY, g int, name varchar);
         INSERT INTO t SELECT i, i % 150, i * 37 % 1000 FROM generate_series(1, 3000) AS s(i);
         INSERT INTO u SELECT i, i * 2 % 170, 'n' || i FROM generate_series(1, 100) AS s(i)",
    )
    .await;
    for (name, query) in VIEWS {
        run(client, &format!("CREATE MATERIALIZED VIEW {name} AS {query}")).await;
    }
}

/// Rows that go, move and come, in keys that were not touched since the start.
async fn change(client: &Client, round: usize) {
    run(
        client,
        &format!(
            "DELETE FROM t WHERE id % 13 = {round};
             UPDATE t SET v = v + 1 WHERE id % 17 = {round};
             UPDATE t SET g = g + 1 WHERE id % 19 = {round};
             INSERT INTO t SELECT 10000 * ({round} + 1) + i, i % 160, i FROM generate_series(1, 40) AS s(i);
             DELETE FROM u WHERE id % 11 = {round};
             DELETE FROM t WHERE g = {round} * 3;
             INSERT INTO u VALUES (1000 + {round}, {round}, 'new')"
        ),
    )
    .await;
}

async fn check(client: &Client, when: &str) {
    for (name, query) in VIEWS {
        let mut view = rows(client, &format!("SELECT * FROM {name}")).await;
        let mut batch = rows(client, query).await;
        view.sort();
        batch.sort();
        assert_eq!(view, batch, "{name} {when}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_reads_through_at_any_parallelism_and_is_complete_in_the_end() {
    let mut weir = Weir::with(&["--parallelism", "2"], &[]).await;
    create(&weir.connect().await).await;
    for (round, parallelism) in ["1", "3"].into_iter().enumerate() {
        run(&weir.connect().await, "CHECKPOINT").await;
        weir.kill();
        weir.set_options(&["--parallelism", parallelism]);
        weir.begin(&[]);
        weir.wait_ready().await;
        // Twice: the second time in the middle of becoming complete, or after it.
        weir.kill_and_restart().await;
        let client = weir.connect().await;
        change(&client, round).await;
        check(&client, &format!("after the restart at parallelism {parallelism}")).await;
        weir.wait_metric("weir_dataflow_incomplete_operators", 0.0).await;
        change(&client, round + 3).await;
        check(&client, "when it is complete").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_memory_everything_is_read_through_and_right() {
    // So little that operators are made to forget all the time, and never become complete.
    let options = ["--parallelism", "2", "--set", "memory.limit=8MB"];
    let mut weir = Weir::with(&options, &[]).await;
    create(&weir.connect().await).await;
    for round in 0..2 {
        weir.kill_and_restart().await;
        let client = weir.connect().await;
        change(&client, round).await;
        check(&client, "after a restart").await;
        run(&client, "CHECKPOINT").await;
        change(&client, round + 3).await;
        check(&client, "later").await;
    }
    assert!(weir.metric("weir_dataflow_incomplete_operators").is_some_and(|n| n > 0.0));
}

/// `memory.limit`, and what the kernel lets the process have: a byte more, and it aborts. The kernel
/// counts all that may be written to, touched or not: of an idle process some 380 MB, mostly stacks.
const LIMIT_MB: usize = 64;
const HARD_MB: usize = 1024;
/// Groups, and bytes of text that each keeps twice: in the view and in its aggregate's own state.
const GROUPS: usize = 80_000;
const TEXT: usize = 4000;

#[tokio::test(flavor = "multi_thread")]
async fn state_of_ten_times_the_memory_limit_is_kept_through_a_kill() {
    let limit = format!("memory.limit={LIMIT_MB}MB");
    let mut weir = Weir::within(HARD_MB << 20, &["--parallelism", "2", "--set", &limit]).await;
    let client = weir.connect().await;
    // Every group is touched early, and again when it has long left memory.
    let rows = 2 * GROUPS;
    run(
        &client,
        &format!(
            "CREATE SOURCE s (k bigint) WITH (connector = 'datagen', rate = 20000, rows = {rows}, \
               fields.k.kind = 'sequence', fields.k.start = 0, fields.k.end = {rows}) FORMAT PLAIN ENCODE JSON;
             CREATE MATERIALIZED VIEW v AS SELECT k % {GROUPS} AS g, count(*) AS n, sum(k) AS total, \
               max(repeat(chr((65 + k % 26)::int), {TEXT})) AS text FROM s GROUP BY k % {GROUPS}"
        ),
    )
    .await;
    let rows_seen = "SELECT coalesce(sum(n), 0)::bigint FROM v";
    until(&client, rows_seen, |seen| seen > GROUPS * 5 / 4).await;
    weir.kill_and_restart().await;
    let client = weir.connect().await;
    until(&client, rows_seen, |seen| seen == rows).await;
    let sums = "SELECT count(*), min(n), max(n), sum(total)::bigint, sum(length(text))::bigint FROM v";
    let expected = [GROUPS, 2, 2, rows * (rows - 1) / 2, GROUPS * TEXT].map(|number| number.to_string());
    assert_eq!(crate::harness::rows(&client, sums).await, [expected]);
    let letter = [27, 27 + GROUPS].map(|k| char::from(b'A' + (k % 26) as u8)).into_iter().max();
    let letter = letter.expect("there are two").to_string();
    let text = "SELECT left(text, 1), length(text) FROM v WHERE g = 27";
    assert_eq!(crate::harness::rows(&client, text).await, [[letter, TEXT.to_string()]]);
}

/// Waits until the number that a query gives is as it should be.
async fn until(client: &Client, sql: &str, reached: impl Fn(usize) -> bool) {
    let deadline = Instant::now() + 2 * PATIENCE;
    loop {
        let now = value(client, sql).await;
        if now.parse().is_ok_and(&reached) {
            return;
        }
        assert!(Instant::now() < deadline, "{sql}: still {now}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
