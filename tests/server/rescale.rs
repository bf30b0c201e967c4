//! Another parallelism while everything runs: jobs of every stateful operator, sources, tables and
//! sinks, under load and through kills, are what their queries say.

use crate::harness::{PATIENCE, Postgres, Weir, rows, run, seed, try_rows, value, wait_for, words};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::Client;

const TABLES: &str = "\
    CREATE TABLE a (id int PRIMARY KEY, k int, n int, s text);\
    CREATE TABLE b (k int, x int, y text);\
    CREATE TABLE e (ts timestamp, k int, n int, WATERMARK FOR ts AS ts - INTERVAL '5 seconds') APPEND ONLY;";

/// Views of every stateful operator.
const VIEWS: &[(&str, &str)] = &[
    ("one_group", "SELECT count(*) AS n, sum(n) AS t, min(s) AS lo, max(n) AS hi FROM a"),
    (
        "groups",
        "SELECT k, count(*) AS n, count(DISTINCT s) AS d, sum(DISTINCT n) AS sd, min(n) AS lo, max(s) AS hi, \
         avg(n) AS m FROM a GROUP BY k",
    ),
    (
        "of_groups",
        "SELECT n, count(*) AS c, sum(hi) AS t FROM (SELECT k, count(*) AS n, max(n) AS hi FROM a GROUP BY k) g GROUP BY n",
    ),
    ("kinds", "SELECT DISTINCT k, s FROM a"),
    ("inner_join", "SELECT a.id, a.n, b.x, b.y FROM a JOIN b ON a.k = b.k AND a.n > b.x"),
    ("left_join", "SELECT a.id, b.x FROM a LEFT JOIN b ON a.k = b.k AND b.x > 20"),
    (
        "full_join",
        "SELECT g.k AS gk, b.k AS bk, g.n, b.x FROM (SELECT k, count(*) AS n FROM a GROUP BY k) g FULL JOIN b ON g.k = b.k",
    ),
    ("semi_join", "SELECT id, s FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k)"),
    ("anti_join", "SELECT id, s FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k)"),
    ("not_in", "SELECT id FROM a WHERE n NOT IN (SELECT x FROM b)"),
    ("self_join", "SELECT l.id AS l, r.id AS r FROM a l JOIN a r ON l.n = r.n AND l.id < r.id"),
    ("top", "SELECT id, n FROM a ORDER BY n DESC, id LIMIT 5"),
    (
        "top_of_each",
        "SELECT id, k, n FROM (SELECT id, k, n, row_number() OVER (PARTITION BY k ORDER BY n, id) AS rn FROM a) r \
         WHERE rn <= 2",
    ),
    (
        "first_of_each",
        "SELECT id, k FROM (SELECT id, k, row_number() OVER (PARTITION BY k ORDER BY n DESC, id) AS rn FROM a) r WHERE rn = 1",
    ),
    (
        "over",
        "SELECT id, k, sum(n) OVER (PARTITION BY k ORDER BY id) AS t, rank() OVER (PARTITION BY k ORDER BY n) AS r FROM a",
    ),
    (
        "windows",
        "SELECT window_start, k, count(*) AS n, max(n) AS hi FROM TUMBLE(e, ts, INTERVAL '4 seconds') GROUP BY window_start, k",
    ),
    (
        "hops",
        "SELECT window_end, count(DISTINCT k) AS d FROM HOP(e, ts, INTERVAL '2 seconds', INTERVAL '6 seconds') GROUP BY window_end",
    ),
    ("all_of", "SELECT k, n AS v FROM a UNION ALL SELECT k, x FROM b UNION ALL SELECT 1, 2"),
    ("except_of", "SELECT k FROM a EXCEPT SELECT k FROM b"),
    ("grouping", "SELECT k, s, count(*) AS n FROM a GROUP BY GROUPING SETS ((k), (s), ())"),
    (
        "other_calls",
        "SELECT k, bool_and(n > 10) AS every, bool_or(n > 60) AS some, count(*) FILTER (WHERE n > 30) AS f, \
         sum(n::double precision / 4) AS fs, avg(n::double precision) AS fa FROM a GROUP BY k",
    ),
    ("right_join", "SELECT a.id, b.x, b.y FROM a RIGHT JOIN b ON a.k = b.k AND a.n > 30"),
    ("full_residual", "SELECT a.id, b.x FROM a FULL JOIN b ON a.k = b.k AND a.n > b.x"),
    ("null_safe_join", "SELECT a.id, b.x FROM a JOIN b ON a.s IS NOT DISTINCT FROM b.y"),
    ("in_list", "SELECT id FROM a WHERE k IN (SELECT k FROM b WHERE x > 10)"),
    ("above_all", "SELECT id, n FROM a WHERE n > (SELECT avg(x) FROM b)"),
    ("greatest_of_kind", "SELECT id, n FROM a WHERE n = (SELECT max(n) FROM a i WHERE i.k = a.k)"),
    ("intersect_of", "SELECT k FROM a INTERSECT SELECT k FROM b"),
    ("intersect_all_of", "SELECT k FROM a INTERSECT ALL SELECT k FROM b"),
    ("except_all_of", "SELECT k FROM a EXCEPT ALL SELECT k FROM b"),
    ("distinct_on", "SELECT DISTINCT ON (k) k, id, n FROM a ORDER BY k, n, id"),
    ("paged", "SELECT id, n FROM a ORDER BY n, id LIMIT 4 OFFSET 3"),
    (
        "ranked",
        "SELECT id, k, rn FROM (SELECT id, k, row_number() OVER (PARTITION BY k ORDER BY n, id) AS rn FROM a) r \
         WHERE rn <= 3",
    ),
    (
        "neighbours",
        "SELECT id, lag(n) OVER (PARTITION BY k ORDER BY id) AS p, lead(s) OVER (PARTITION BY k ORDER BY id) AS q, \
         dense_rank() OVER (PARTITION BY k ORDER BY n) AS d FROM a",
    ),
    (
        "newest",
        "SELECT k, ts, n FROM (SELECT k, ts, n, row_number() OVER (PARTITION BY k ORDER BY ts DESC, n) AS rn FROM e) r \
         WHERE rn = 1",
    ),
    (
        "window_join",
        "SELECT l.window_start, l.k, l.n, r.c FROM TUMBLE(e, ts, INTERVAL '4 seconds') l JOIN (SELECT window_start, k, \
         count(*) AS c FROM TUMBLE(e, ts, INTERVAL '4 seconds') GROUP BY window_start, k) r \
         ON l.window_start = r.window_start AND l.k = r.k",
    ),
    (
        "window_top",
        "SELECT window_start, k, n FROM (SELECT window_start, k, n, row_number() OVER (PARTITION BY window_start \
         ORDER BY n DESC, k) AS rn FROM TUMBLE(e, ts, INTERVAL '4 seconds')) r WHERE rn <= 2",
    ),
    (
        "window_over",
        "SELECT window_start, k, sum(n) OVER (PARTITION BY window_start, k ORDER BY n) AS t \
         FROM TUMBLE(e, ts, INTERVAL '4 seconds')",
    ),
    ("event_kinds", "SELECT DISTINCT k, n % 3 AS m FROM e"),
    ("plain", "SELECT id, n * 2 AS m FROM a WHERE k % 2 = 0"),
    ("no_key", "SELECT y, x % 5 AS m FROM b"),
];

/// Views on those.
const ON_VIEWS: &[(&str, &str)] = &[
    ("on_groups", "SELECT d, count(*) AS n, max(hi) AS hi FROM groups GROUP BY d"),
    ("on_join", "SELECT y, sum(n) AS t FROM inner_join GROUP BY y"),
    ("on_both", "SELECT g.k, t.id FROM groups g JOIN top_of_each t ON g.k = t.k"),
];

const CLOSED: &str = "SELECT window_start, window_end, k, count(*) AS n \
    FROM TUMBLE(e, ts, INTERVAL '4 seconds') GROUP BY window_start, window_end, k";

/// What there is with state, as EXPLAIN calls it.
const STATEFUL: [&str; 12] = [
    "Aggregate ",
    "Distinct ",
    "Join inner ",
    "Join left ",
    "Join right ",
    "Join full ",
    "Join semi ",
    "Join anti ",
    "Join null-aware anti ",
    "TopN ",
    "Over ",
    "EmitOnClose ",
];

/// Rows as a sorted multiset.
async fn multiset(client: &Client, sql: &str) -> Vec<String> {
    let mut all: Vec<String> = rows(client, sql).await.iter().map(|row| row.join("|")).collect();
    all.sort_unstable();
    all
}

/// Every view is what its query says.
async fn compare(client: &Client, context: &str) {
    run(client, "FLUSH").await;
    for (name, query) in VIEWS.iter().chain(ON_VIEWS) {
        let view = multiset(client, &format!("SELECT * FROM {name}")).await;
        assert_eq!(view, multiset(client, query).await, "{context}: {name} is not\n  {query}");
    }
    // A window is closed once the greatest time, less the delay, has come to its end.
    let due = format!(
        "SELECT * FROM ({CLOSED}) c WHERE window_end <= (SELECT max(ts) - INTERVAL '5 seconds' FROM e)"
    );
    assert_eq!(
        multiset(client, "SELECT * FROM closed").await,
        multiset(client, &due).await,
        "{context}: closed"
    );
    for k in 0..12 {
        let indexed = value(client, &format!("SELECT count(*) FROM a WHERE k = {k}")).await;
        let counted = value(client, &format!("SELECT count(*) FILTER (WHERE k = {k}) FROM a")).await;
        assert_eq!(indexed, counted, "{context}: the index, {k}");
    }
}

/// One change of one of the tables; time goes on.
fn change(rng: &mut StdRng, clock: &AtomicU64) -> String {
    let (id, k, n) = (rng.random_range(0..300), rng.random_range(0..12), rng.random_range(0..60));
    let s = ["x", "y", "z", "a longer text"].choose(rng).expect("some");
    match rng.random_range(0..9) {
        0..=2 => {
            let mut sql = "INSERT INTO a VALUES ".to_owned();
            for i in 0..8 {
                let _ = write!(
                    sql,
                    "{}({}, {k}, {}, '{s}')",
                    if i > 0 { ", " } else { "" },
                    (id + i * 37) % 300,
                    (n + i) % 60
                );
            }
            sql + " ON CONFLICT DO NOTHING"
        }
        3 => format!("UPDATE a SET n = (n + {n}) % 60, k = (k + 1) % 12 WHERE id % 30 = {}", id % 30),
        4 => format!("DELETE FROM a WHERE id % 20 = {}", id % 20),
        5 => format!(
            "INSERT INTO b VALUES ({k}, {n}, '{s}'), ({k}, {n}, '{s}'), ({}, {}, NULL)",
            (k + 5) % 15,
            (n + 7) % 40
        ),
        6 => format!("DELETE FROM b WHERE x > {} AND k = {k}", n / 2),
        _ => {
            let now = clock.fetch_add(rng.random_range(0..3), Ordering::Relaxed);
            let at = |back: u64| {
                let second = now.saturating_sub(back);
                format!("'2026-01-01 {:02}:{:02}:{:02}'", second / 3600, second / 60 % 60, second % 60)
            };
            // The last one is late, mostly.
            format!("INSERT INTO e VALUES ({}, {k}, {n}), ({}, {k}, 1), ({}, {n}, 2)", at(0), at(4), at(9))
        }
    }
}

fn parallelism(rng: &mut StdRng) -> &'static str {
    ["1", "2", "3", "4", "5", "ADAPTIVE"].choose(rng).expect("some")
}

/// ALTER of something, whose name is drawn.
fn alter(rng: &mut StdRng) -> String {
    let n = parallelism(rng);
    match rng.random_range(0..10) {
        0 => format!("ALTER DATABASE dev SET PARALLELISM = {n}"),
        1 => format!("ALTER TABLE {} SET PARALLELISM = {n}", ["a", "b", "e"].choose(rng).expect("some")),
        2 => format!("ALTER MATERIALIZED VIEW closed SET PARALLELISM = {n}"),
        3 => format!("ALTER INDEX a_k_idx SET PARALLELISM TO {n}"),
        4 => format!("ALTER MATERIALIZED VIEW groups SET PARALLELISM = {n}"),
        _ => {
            let (name, _) = VIEWS.choose(rng).expect("some");
            format!("ALTER MATERIALIZED VIEW {name} SET PARALLELISM TO {n}")
        }
    }
}

/// Changes the tables until told to stop, and a bit longer; a server that dies ends it, too.
async fn keep_changing(client: &Client, rng: &mut StdRng, clock: &AtomicU64, stop: &AtomicBool) {
    let mut left = 10;
    while left > 0 {
        left -= i32::from(stop.load(Ordering::Relaxed));
        let change = change(rng, clock);
        if let Err(error) = client.batch_execute(&change).await {
            assert!(error.is_closed() || error.as_db_error().is_none(), "{change}\n  {}", words(&error));
            return;
        }
    }
}

async fn make_all(client: &Client) {
    run(client, TABLES).await;
    run(client, "CREATE INDEX ON a (k)").await;
    for (name, query) in VIEWS.iter().chain(ON_VIEWS) {
        run(client, &format!("CREATE MATERIALIZED VIEW {name} AS {query}")).await;
    }
    run(client, &format!("CREATE MATERIALIZED VIEW closed AS {CLOSED} EMIT ON WINDOW CLOSE")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operator_with_state_is_among_them() {
    let weir = Weir::start().await;
    let client = weir.connect().await;
    make_all(&client).await;
    let mut plans = String::new();
    let closed = ("closed", CLOSED);
    for (name, query) in VIEWS.iter().chain(ON_VIEWS).chain([&closed]) {
        let more = if *name == "closed" { " EMIT ON WINDOW CLOSE" } else { "" };
        let explained = rows(&client, &format!("EXPLAIN CREATE MATERIALIZED VIEW x AS {query}{more}")).await;
        let lines = explained.concat();
        assert!(lines.last().is_some_and(|line| line.starts_with("Parallelism ")), "{name}");
        plans.extend(lines.iter().map(|line| format!("{line}\n")));
    }
    for operator in STATEFUL {
        assert!(plans.contains(operator), "no view has {operator}in its plan:\n{plans}");
    }
}

fn rounds(by_default: usize) -> usize {
    std::env::var("WEIR_ROUNDS").ok().and_then(|r| r.parse().ok()).unwrap_or(by_default)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operator_is_exact_while_its_parallelism_changes() {
    scenario(&["--parallelism", "2"], rounds(8)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_that_are_never_complete_are_exact_too() {
    // So little memory that they are made to forget all the time.
    scenario(&["--parallelism", "2", "--set", "memory.limit=8MB"], rounds(4)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn barriers_that_overtake_change_nothing_of_that() {
    let often = ["--set", "checkpoint.aligned_timeout=1ms", "--set", "checkpoint.interval=50ms"];
    let weir = scenario(&[&["--parallelism", "2"], &often[..]].concat(), rounds(6)).await;
    let log = weir.log();
    // The name of the field is coloured, its value is not.
    let overtaken = log.matches("\"unaligned\"").count();
    println!("{overtaken} of {} checkpoints were overtaken", log.matches("checkpoint completed").count());
    assert!(overtaken > 0, "{log}");
}

async fn scenario(options: &[&str], rounds: usize) -> Weir {
    let mut rng = StdRng::seed_from_u64(seed());
    let mut weir = Weir::with(options, &[]).await;
    let mut client = weir.connect().await;
    make_all(&client).await;
    let (clock, mut changing) = (AtomicU64::new(100), StdRng::seed_from_u64(rng.random()));
    for _ in 0..30 {
        run(&client, &change(&mut changing, &clock)).await;
    }
    for round in 0..rounds {
        let (stop, writer) = (AtomicBool::new(false), weir.connect().await);
        let alters: Vec<String> = (0..rng.random_range(1..4)).map(|_| alter(&mut rng)).collect();
        let kill_after = rng.random_ratio(1, 3).then(|| Duration::from_millis(rng.random_range(0..300)));
        println!("{alters:?}, killed after {kill_after:?}");
        let writing = keep_changing(&writer, &mut changing, &clock, &stop);
        let altering = async {
            for alter in &alters {
                let before = Instant::now();
                if let Err(error) = client.batch_execute(alter).await {
                    assert!(error.as_db_error().is_none(), "{alter}\n  {}", words(&error));
                    break;
                }
                println!("  {alter} took {:?}", before.elapsed());
            }
            stop.store(true, Ordering::Relaxed);
        };
        match kill_after {
            None => drop(tokio::join!(writing, altering)),
            Some(after) => {
                let both = async { tokio::join!(writing, altering) };
                let _ = tokio::time::timeout(after, both).await;
                weir.kill_and_restart().await;
                client = weir.connect().await;
            }
        }
        compare(&client, &format!("round {round}, {alters:?}, killed after {kill_after:?}")).await;
    }
    assert!(!weir.log().contains("actor failed"), "{}", weir.log());
    assert!(weir.log().contains("jobs go on with another parallelism"), "{}", weir.log());
    weir
}

const LARGE: &[(&str, &str)] = &[
    (
        "groups",
        "SELECT g, count(*) AS n, sum(v) AS t, min(v) AS lo, count(DISTINCT v) AS d FROM big GROUP BY g",
    ),
    ("sizes", "SELECT n, count(*) AS c FROM (SELECT g, count(*) AS n FROM big GROUP BY g) x GROUP BY n"),
    ("joined", "SELECT big.id, o.name FROM big JOIN o ON big.g = o.g WHERE big.v % 3 = 0"),
    ("outer_joined", "SELECT big.id, o.id AS o FROM big LEFT JOIN o ON big.g = o.g AND o.id < big.v"),
    (
        "best",
        "SELECT g, id FROM (SELECT g, id, row_number() OVER (PARTITION BY g ORDER BY v DESC, id) AS rn FROM big) r WHERE rn <= 2",
    ),
    ("summed", "SELECT id, sum(v) OVER (PARTITION BY g ORDER BY id) AS t FROM big"),
];

/// State of so many keys that those who take over read through for a while, and are changed meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn much_state_is_read_through_by_those_who_take_over() {
    const ROWS: usize = 30_000;
    let weir = Weir::with(&["--parallelism", "2"], &[]).await;
    let (client, writer) = (weir.connect().await, weir.connect().await);
    run(
        &client,
        &format!(
            "CREATE TABLE big (id int PRIMARY KEY, g int, v int);
             CREATE TABLE o (id int PRIMARY KEY, g int, name text);
             INSERT INTO big SELECT i, i % 9973, i * 37 % 1009 FROM generate_series(1, {ROWS}) AS s(i);
             INSERT INTO o SELECT i, i * 3, 'n' || i FROM generate_series(1, 2000) AS s(i)"
        ),
    )
    .await;
    for (name, query) in LARGE {
        run(&client, &format!("CREATE MATERIALIZED VIEW {name} AS {query}")).await;
    }
    let stop = AtomicBool::new(false);
    let writes = async {
        let mut round = 0;
        while !stop.load(Ordering::Relaxed) {
            round += 1;
            let sql = format!(
                "UPDATE big SET v = v + 1 WHERE id % 211 = {};
                 UPDATE big SET g = g + 1 WHERE id % 307 = {};
                 DELETE FROM big WHERE id % 997 = {};
                 UPDATE o SET g = g + 2 WHERE id % 101 = {}",
                round % 211,
                round % 307,
                round % 997,
                round % 101
            );
            run(&writer, &sql).await;
        }
    };
    let rescales = async {
        for n in [3, 1, 4] {
            for (name, _) in LARGE {
                run(&client, &format!("ALTER MATERIALIZED VIEW {name} SET PARALLELISM = {n}")).await;
            }
            run(&client, &format!("ALTER TABLE big SET PARALLELISM = {n}")).await;
            run(&client, &format!("ALTER DATABASE dev SET PARALLELISM = {}", 5 - n)).await;
        }
        stop.store(true, Ordering::Relaxed);
    };
    tokio::join!(writes, rescales);
    run(&client, "FLUSH").await;
    for (name, query) in LARGE {
        let view = multiset(&client, &format!("SELECT * FROM {name}")).await;
        assert!(view == multiset(&client, query).await, "{name} is not\n  {query}");
    }
    assert!(!weir.log().contains("actor failed"), "{}", weir.log());
}

/// What `weir_catalog.jobs` says of a job: actual and wanted parallelism.
async fn shown(client: &Client, name: &str) -> [String; 2] {
    let sql = format!("SELECT parallelism, wanted_parallelism FROM weir_catalog.jobs WHERE name = '{name}'");
    let found = rows(client, &sql).await;
    assert_eq!(found.len(), 1, "{name} has a job");
    [found[0][0].clone(), found[0][1].clone()]
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wanted_and_what_runs_is_shown_and_lasts() {
    let mut weir = Weir::with(&["--parallelism", "2"], &[]).await;
    let mut client = weir.connect().await;
    run(
        &client,
        "CREATE TABLE t (id int PRIMARY KEY, k int); INSERT INTO t SELECT g, g % 7 FROM generate_series(1, 500) g;
         CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS n FROM t GROUP BY k;
         CREATE MATERIALIZED VIEW w AS SELECT n, count(*) AS c FROM v GROUP BY n;
         CREATE VIEW plain AS SELECT * FROM t;
         CREATE SOURCE s (id int) WITH (connector = 'datagen', rows = 10) FORMAT PLAIN ENCODE JSON;
         CREATE SINK k FROM v WITH (connector = 'blackhole', type = 'upsert', primary_key = 'k')",
    )
    .await;
    for name in ["t", "v", "w", "k"] {
        assert_eq!(shown(&client, name).await, ["2", "adaptive"]);
    }
    run(&client, "ALTER MATERIALIZED VIEW v SET PARALLELISM = 3").await;
    assert_eq!(shown(&client, "v").await, ["3", "3"]);
    assert_eq!(shown(&client, "w").await, ["2", "adaptive"]);
    run(&client, "ALTER DATABASE dev SET PARALLELISM = 4; ALTER SINK k SET PARALLELISM = 1").await;
    assert_eq!(value(&client, "SHOW parallelism").await, "4");
    let expected = [("t", ["4", "adaptive"]), ("v", ["3", "3"]), ("w", ["4", "adaptive"]), ("k", ["1", "1"])];
    for restart in [false, true] {
        if restart {
            weir.kill_and_restart().await;
            client = weir.connect().await;
        }
        for (name, of_it) in expected {
            assert_eq!(shown(&client, name).await, of_it, "{name}, restarted: {restart}");
        }
    }
    run(
        &client,
        "ALTER DATABASE dev RESET parallelism; ALTER MATERIALIZED VIEW v SET PARALLELISM = ADAPTIVE",
    )
    .await;
    assert_eq!(shown(&client, "v").await, ["2", "adaptive"]);
    // The same data on a machine with another number of cores.
    weir.set_options(&["--parallelism", "5"]);
    weir.kill_and_restart().await;
    client = weir.connect().await;
    for (name, of_it) in [("t", "5"), ("v", "5"), ("w", "5"), ("k", "1")] {
        assert_eq!(shown(&client, name).await[0], of_it, "{name}");
    }
    run(&client, "INSERT INTO t SELECT g, g % 7 FROM generate_series(501, 600) g").await;
    let query = "SELECT n, count(*) AS c FROM (SELECT k, count(*) AS n FROM t GROUP BY k) v GROUP BY n";
    assert_eq!(multiset(&client, "SELECT * FROM w").await, multiset(&client, query).await);
    for (sql, says) in [
        ("ALTER VIEW plain SET PARALLELISM = 2", "42809: view \"plain\" has no dataflow of its own HINT "),
        (
            "ALTER MATERIALIZED VIEW v SET PARALLELISM = 0",
            "22023: invalid parallelism: \"0\" HINT Write a number",
        ),
        ("ALTER MATERIALIZED VIEW v SET PARALLELISM = 257", "22023: invalid parallelism: \"257\""),
        ("ALTER DATABASE dev SET PARALLELISM = 257", "22023: 257 is outside the valid range"),
        ("ALTER TABLE v SET PARALLELISM = 2", "42809: "),
        ("ALTER TABLE nobody SET PARALLELISM = 2", "42P01: "),
    ] {
        let error = client.batch_execute(sql).await.expect_err(sql);
        assert!(words(&error).starts_with(says), "{sql}: {}", words(&error));
    }
    run(&client, "ALTER SOURCE s SET PARALLELISM = 3; ALTER TABLE t SET PARALLELISM = 256").await;
    assert_eq!(shown(&client, "t").await, ["256", "256"]);
    assert_eq!(value(&client, "SELECT count(*) FROM t").await, "600");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_still_filling_keeps_its_actors() {
    let slow = [("WEIR_FAILPOINT", "backfill.chunk:1=sleep:3000")];
    let weir = Weir::with(&["--parallelism", "2"], &slow).await;
    let (client, other) = (weir.connect().await, weir.connect().await);
    run(&client, "CREATE TABLE t (id int PRIMARY KEY, k int); INSERT INTO t VALUES (1, 1), (2, 1)").await;
    run(&client, "CREATE TABLE other (id int)").await;
    let created = async {
        run(&client, "CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS n FROM t GROUP BY k").await;
    };
    let refused = async {
        let deadline = Instant::now() + PATIENCE;
        while value(&other, "SELECT count(*) FROM weir_catalog.jobs WHERE name = 'v'").await == "0" {
            assert!(Instant::now() < deadline, "the view is being created");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for sql in ["ALTER TABLE t SET PARALLELISM = 3", "ALTER MATERIALIZED VIEW v SET PARALLELISM = 3"] {
            let error = other.batch_execute(sql).await.expect_err(sql);
            let says = "55000: materialized view \"v\" is still being created HINT ";
            assert!(words(&error).starts_with(says), "{sql}: {}", words(&error));
        }
        // All of them get it, one after the other: those that can, now.
        let told = weir.notices("ALTER DATABASE dev SET PARALLELISM = 3").await;
        let says = "table \"t\", materialized view \"v\" get the new parallelism when materialized view \"v\" is created";
        assert_eq!(told.trim(), says);
        assert_eq!(shown(&other, "other").await, ["3", "adaptive"]);
        assert_eq!(shown(&other, "t").await, ["2", "adaptive"]);
    };
    tokio::join!(created, refused);
    run(&client, "INSERT INTO t VALUES (3, 1)").await;
    for job in ["t", "v"] {
        let deadline = Instant::now() + PATIENCE;
        while shown(&client, job).await != ["3", "adaptive"] {
            assert!(Instant::now() < deadline, "{job} is {:?}", shown(&client, job).await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    run(&client, "INSERT INTO t VALUES (4, 1)").await;
    assert_eq!(value(&client, "SELECT n FROM v").await, "4");
}

/// Where a rescale is cut off, and whether what it was to bring lasts all the same.
const HALF_WAY: [(&str, bool); 6] = [
    ("rescale.built:1=kill", false),
    ("rescale.built:2=error", false),
    ("rescale.logged:1=kill", true),
    ("actor.begins:1=kill", true),
    ("actor.begins:2=kill", true),
    ("actor.begins:2=error", true),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_rescale_that_fails_half_way_is_all_or_nothing() {
    for (point, lasts) in HALF_WAY {
        let mut weir = Weir::with(&["--parallelism", "2"], &[("WEIR_FAILPOINT", point)]).await;
        let mut client = weir.connect().await;
        run(
            &client,
            "CREATE TABLE t (id int PRIMARY KEY, k int); INSERT INTO t SELECT g, g % 7 FROM generate_series(1, 500) g;
             CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS n FROM t GROUP BY k;
             CREATE MATERIALIZED VIEW w AS SELECT n, count(*) AS c FROM v GROUP BY n",
        )
        .await;
        let altered = client.batch_execute("ALTER MATERIALIZED VIEW v SET PARALLELISM = 3").await;
        if point.ends_with("kill") {
            weir.wait_ended().await;
            weir.begin(&[]);
            weir.wait_ready().await;
            client = weir.connect().await;
        } else {
            assert_eq!(altered.is_ok(), lasts, "{point}: {altered:?}");
        }
        let sql =
            "SELECT parallelism || ' of ' || wanted_parallelism FROM weir_catalog.jobs WHERE name = 'v'";
        wait_for(&client, sql, if lasts { "3 of 3" } else { "2 of adaptive" }).await;
        again(&client, "INSERT INTO t SELECT g, g % 5 FROM generate_series(501, 600) g").await;
        for (view, query) in [
            ("v", "SELECT k, count(*) AS n FROM t GROUP BY k"),
            ("w", "SELECT n, count(*) AS c FROM (SELECT k, count(*) AS n FROM t GROUP BY k) v GROUP BY n"),
        ] {
            let found = multiset(&client, &format!("SELECT * FROM {view}")).await;
            assert_eq!(found, multiset(&client, query).await, "{point}: {view}");
        }
        // Nothing is left that would be in the way.
        run(&client, "ALTER TABLE t SET PARALLELISM = 1; ALTER MATERIALIZED VIEW v SET PARALLELISM = 4")
            .await;
        assert_eq!(shown(&client, "v").await, ["4", "4"], "{point}");
        assert_eq!(value(&client, "SELECT sum(n) FROM v").await, "600", "{point}");
    }
}

/// Lines for a file of the source, of seconds that go on with 3 back at most, and 12 back now and then.
fn lines(rng: &mut StdRng, second: &mut i64, next: &mut u32, rows: usize) -> String {
    let mut text = String::new();
    for _ in 0..rows {
        *second += rng.random_range(0..2);
        let back = if rng.random_ratio(1, 10) { 12 } else { rng.random_range(0..4) };
        let at = (*second - back).max(0);
        let (k, n) = (rng.random_range(0..6), rng.random_range(0..100));
        let _ = writeln!(
            text,
            "{{\"id\":{next},\"k\":{k},\"n\":{n},\"ts\":\"2026-01-01 {:02}:{:02}:{:02}\"}}",
            at / 3600,
            at / 60 % 60,
            at % 60
        );
        *next += 1;
    }
    text
}

const OF_SOURCE: &[(&str, &str)] = &[
    (
        "by_window",
        "SELECT window_start, k, count(*) AS c, sum(n) AS t FROM TUMBLE(raw, ts, INTERVAL '4 seconds') GROUP BY window_start, k",
    ),
    ("by_k", "SELECT k, count(*) AS c, max(n) AS hi, count(DISTINCT n) AS d FROM raw GROUP BY k"),
    (
        "best",
        "SELECT id, k FROM (SELECT id, k, row_number() OVER (PARTITION BY k ORDER BY n DESC, id) AS rn FROM raw) r WHERE rn <= 3",
    ),
    ("pairs", "SELECT l.id AS l, r.id AS r FROM raw l JOIN raw r ON l.n = r.n AND l.k = r.k AND l.id < r.id"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_source_is_read_once_whoever_reads_it_from_then_on() {
    let mut rng = StdRng::seed_from_u64(seed());
    let dir = tempfile::tempdir().expect("a directory");
    let files: Vec<_> = (0..3).map(|i| dir.path().join(format!("{i}.json"))).collect();
    let mut at = [(100i64, 0u32), (100, 100_000), (100, 200_000)];
    let append = |rng: &mut StdRng, at: &mut [(i64, u32); 3], rows: usize| {
        for (file, (second, next)) in files.iter().zip(at) {
            let mut file = std::fs::OpenOptions::new().create(true).append(true).open(file).expect("a file");
            file.write_all(lines(rng, second, next, rows).as_bytes()).expect("written");
        }
    };
    append(&mut rng, &mut at, 50);
    let mut weir = Weir::with(&["--parallelism", "2"], &[]).await;
    let mut client = weir.connect().await;
    let source = format!(
        "CREATE SOURCE s (id int, k int, n int, ts timestamp, WATERMARK FOR ts AS ts - INTERVAL '5 seconds') \
         WITH (connector = 'file', path = '{}/*.json', follow = true) FORMAT PLAIN ENCODE JSON",
        dir.path().display()
    );
    run(&client, &source).await;
    run(&client, "CREATE MATERIALIZED VIEW raw AS SELECT id, k, n, ts FROM s").await;
    for (name, query) in OF_SOURCE {
        run(&client, &format!("CREATE MATERIALIZED VIEW {name} AS {}", query.replace("raw", "s"))).await;
    }
    let closes =
        "SELECT window_end, k, count(*) AS c FROM TUMBLE(s, ts, INTERVAL '4 seconds') GROUP BY window_end, k";
    run(&client, &format!("CREATE MATERIALIZED VIEW closed AS {closes} EMIT ON WINDOW CLOSE")).await;
    for round in 0..8 {
        let alters: Vec<String> = (0..3)
            .map(|_| {
                let n = parallelism(&mut rng);
                match rng.random_range(0..4) {
                    0 | 1 => format!("ALTER SOURCE s SET PARALLELISM = {n}"),
                    2 => format!("ALTER DATABASE dev SET PARALLELISM = {n}"),
                    _ => {
                        let names = ["raw", "by_window", "by_k", "best", "pairs", "closed"];
                        let name = names.choose(&mut rng).expect("some");
                        format!("ALTER MATERIALIZED VIEW {name} SET PARALLELISM = {n}")
                    }
                }
            })
            .collect();
        println!("{alters:?}");
        for alter in &alters {
            append(&mut rng, &mut at, 40);
            run(&client, alter).await;
        }
        if round % 3 == 2 {
            weir.kill_and_restart().await;
            client = weir.connect().await;
        }
        // A job that reads the past by itself, whatever the parallelism of the source.
        let view = format!("again{round}");
        run(&client, &format!("CREATE MATERIALIZED VIEW {view} AS SELECT id, k, n, ts FROM s")).await;
        let read: u32 = at.iter().zip([0, 100_000, 200_000]).map(|((_, next), first)| next - first).sum();
        let seen = "SELECT (SELECT count(*) FROM raw) + (SELECT count(*) FROM weir_catalog.dead_letters)";
        wait_for(&client, seen, &read.to_string()).await;
        run(&client, "FLUSH").await;
        let context = format!("round {round}, {alters:?}");
        for (name, query) in OF_SOURCE {
            let found = multiset(&client, &format!("SELECT * FROM {name}")).await;
            assert_eq!(found, multiset(&client, query).await, "{context}: {name}");
        }
        let raw = multiset(&client, "SELECT id, k, n, ts FROM raw").await;
        assert_eq!(multiset(&client, &format!("SELECT * FROM {view}")).await, raw, "{context}: {view}");
        run(&client, &format!("DROP MATERIALIZED VIEW {view}")).await;
        assert_eq!(value(&client, "SELECT count(DISTINCT id) = count(*) FROM raw").await, "t", "{context}");
        let early = format!(
            "SELECT count(*) FROM (SELECT * FROM closed EXCEPT {}) d",
            closes.replace("TUMBLE(s", "TUMBLE(raw")
        );
        assert_eq!(value(&client, &early).await, "0", "{context}: a window closed before it was whole");
    }
    assert!(value(&client, "SELECT count(*) FROM closed").await.parse::<u32>().is_ok_and(|n| n > 20));
    assert!(!weir.log().contains("actor failed"), "{}", weir.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn sinks_deliver_once_while_their_parallelism_changes() {
    let mut rng = StdRng::seed_from_u64(seed());
    let postgres = Postgres::start().await;
    let target = postgres.connect().await;
    run(&target, "CREATE TABLE all_rows (id int, k int); CREATE TABLE counts (k int PRIMARY KEY, n bigint)")
        .await;
    let mut weir = Weir::with(&["--parallelism", "2"], &[]).await;
    let mut client = weir.connect().await;
    run(
        &client,
        "CREATE TABLE t (id int, k int) APPEND ONLY;
         CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS n FROM t GROUP BY k",
    )
    .await;
    let sink = |name: &str, from: &str, table: &str, options: &str| {
        format!(
            "CREATE SINK {name} FROM {from} WITH (connector = 'postgres', hostname = '127.0.0.1', port = {}, \
             username = 'postgres', database.name = 'postgres', table.name = '{table}', {options})",
            postgres.port()
        )
    };
    run(&client, &sink("rows_of_t", "t", "all_rows", "type = 'append-only'")).await;
    let upsert = "commit_mode = 'two_phase', type = 'upsert', primary_key = 'k'";
    run(&client, &sink("rows_of_v", "v", "counts", upsert)).await;
    let mut next = 0;
    for round in 0..10 {
        let n = parallelism(&mut rng);
        let alter = match rng.random_range(0..5) {
            0 => format!("ALTER SINK rows_of_t SET PARALLELISM = {n}"),
            1 => format!("ALTER SINK rows_of_v SET PARALLELISM = {n}"),
            2 => format!("ALTER MATERIALIZED VIEW v SET PARALLELISM = {n}"),
            3 => format!("ALTER TABLE t SET PARALLELISM = {n}"),
            _ => format!("ALTER DATABASE dev SET PARALLELISM = {n}"),
        };
        println!("{alter}");
        let writer = weir.connect().await;
        let writes = async {
            for _ in 0..10 {
                let values: Vec<String> =
                    (0..20).map(|i| format!("({}, {})", next + i, (next + i) % 17)).collect();
                run(&writer, &format!("INSERT INTO t VALUES {}", values.join(", "))).await;
                next += 20;
            }
        };
        tokio::join!(writes, run(&client, &alter));
        if round % 4 == 3 {
            weir.kill_and_restart().await;
            client = weir.connect().await;
        }
    }
    run(&client, "CHECKPOINT").await;
    let expected = next.to_string();
    wait_for(&target, "SELECT count(*) FROM all_rows", &expected).await;
    assert_eq!(value(&target, "SELECT count(DISTINCT id) FROM all_rows").await, expected);
    wait_for(&target, "SELECT coalesce(sum(n), 0) FROM counts", &expected).await;
    let wanted = multiset(&client, "SELECT k, n FROM v").await;
    assert_eq!(multiset(&target, "SELECT k, n FROM counts").await, wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_ddl_and_recovery_may_come_at_the_same_time() {
    let weir = Weir::with(&["--parallelism", "2"], &[]).await;
    let client = weir.connect().await;
    run(
        &client,
        "CREATE TABLE t (id int PRIMARY KEY, k int); INSERT INTO t SELECT g, g % 7 FROM generate_series(1, 300) g;
         CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS n FROM t GROUP BY k",
    )
    .await;
    let sessions = (0..4).map(|session| {
        let weir = &weir;
        async move {
            let client = weir.connect().await;
            for i in 0..6 {
                let statements = match session {
                    0 => vec![format!("ALTER TABLE t SET PARALLELISM = {}", i % 3 + 1)],
                    1 => vec![
                        format!("CREATE MATERIALIZED VIEW w{i} AS SELECT n, count(*) AS c FROM v GROUP BY n"),
                        format!("DROP MATERIALIZED VIEW w{i}"),
                    ],
                    2 => vec![format!("ALTER DATABASE dev SET PARALLELISM = {}", i % 4 + 1)],
                    _ if i % 3 == 2 => vec!["RECOVER".to_owned()],
                    _ => vec![format!("INSERT INTO t VALUES ({}, {i})", 1000 + i)],
                };
                for sql in statements {
                    again(&client, &sql).await;
                }
            }
        }
    });
    tokio::time::timeout(PATIENCE, futures::future::join_all(sessions)).await.expect("barriers pass");
    run(&client, "CHECKPOINT").await;
    let query = "SELECT k, count(*) AS n FROM t GROUP BY k";
    assert_eq!(multiset(&client, "SELECT * FROM v").await, multiset(&client, query).await);
    // What was refused or came while the dataflow restarted is caught up with.
    wait_for(&client, "SELECT count(DISTINCT parallelism) FROM weir_catalog.jobs WHERE name = 'v'", "1")
        .await;
    assert!(!weir.log().contains("actor failed"), "{}", weir.log());
}

/// Runs a statement until it is not refused because of what others are doing.
async fn again(client: &Client, sql: &str) {
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = try_rows(client, sql).await {
        let said = words(&error);
        // A CREATE whose answer was lost in a restart may have left nothing, or all.
        if said.starts_with("42P07") || (said.starts_with("42P01") && sql.starts_with("DROP")) {
            return;
        }
        assert!(said.starts_with("55000") && Instant::now() < deadline, "{sql}\n  {said}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
