//! Each sink under kills: at random moments, and at every fail point between a barrier and the
//! record of its commit. Every source event is in the target exactly once.

use crate::harness::{PATIENCE, Postgres, Weir, rows, run, seed, value, wait_for};
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// Events generated; 46 in 50 are bids.
const EVENTS: usize = 60_000;
const BIDS: usize = EVENTS / 50 * 46;

/// Where a process is killed, and at which pass.
const FAIL_POINTS: &[(&str, u32)] = &[
    ("apply.before_writes", 30),
    ("apply.after_writes", 30),
    ("apply.before_checkpoint", 3),
    ("apply.after_checkpoint", 3),
    ("checkpoint.before_manifest", 3),
    ("manifest.before_rename", 3),
    ("manifest.after_rename", 3),
    ("files_sink.before_write", 2),
    ("files_sink.before_publish", 2),
    ("files_sink.after_publish", 2),
    ("files_sink.before_commit", 2),
    ("postgres_sink.before_commit", 3),
    ("postgres_sink.after_commit", 3),
    ("gc.before_manifest", 1),
    ("gc.between_files", 1),
    ("gc.after_directory", 1),
];

async fn pipeline(client: &Client, postgres: &Postgres, files: &Path) {
    run(
        client,
        &format!(
            "CREATE SOURCE bid WITH (connector = 'nexmark', nexmark.table.type = 'Bid', events = {EVENTS}, rate = 12000);
             CREATE MATERIALIZED VIEW totals AS SELECT count(*) AS n, sum(price) AS total FROM bid;
             CREATE SINK bid_files AS SELECT auction, bidder, price, datetime FROM bid
               WITH (connector = 'file', path = '{}', type = 'append-only', commit_every = 1) FORMAT PLAIN ENCODE JSON;
             CREATE SINK bid_rows AS SELECT auction, price, datetime FROM bid
               WITH (connector = 'postgres', type = 'append-only', hostname = '127.0.0.1', port = '{port}', username = 'postgres',
                     database.name = 'postgres', table.name = 'bids');
             CREATE SINK per_auction AS SELECT auction, count(*) AS n, sum(price) AS total FROM bid GROUP BY auction
               WITH (connector = 'postgres', type = 'upsert', primary_key = 'auction', hostname = '127.0.0.1', port = '{port}',
                     username = 'postgres', database.name = 'postgres', table.name = 'per_auction');",
            files.display(),
            port = postgres.port(),
        ),
    )
    .await;
}

/// What the sinks of [`pipeline`] and its like deliver to.
pub async fn targets(postgres: &Client) {
    run(
        postgres,
        "CREATE TABLE bids (auction bigint, price bigint, datetime timestamp);
         CREATE TABLE per_auction (auction bigint PRIMARY KEY, n bigint, total numeric);",
    )
    .await;
}

fn in_files(dir: &Path) -> (usize, HashSet<String>, i64) {
    let (mut count, mut moments, mut total) = (0, HashSet::new(), 0);
    let names = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path());
    for path in names.filter(|p| p.extension().is_some_and(|e| e == "json")) {
        if path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(['.', '_'])) {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a published file is readable");
        assert!(text.is_empty() || text.ends_with('\n'), "{}: half a file is visible", path.display());
        for line in text.lines() {
            let row: serde_json::Value = serde_json::from_str(line).expect("a whole line");
            count += 1;
            moments.insert(row["datetime"].to_string());
            total += row["price"].as_i64().expect("a number");
        }
    }
    (count, moments, total)
}

async fn reconcile(weir: &Weir, postgres: &Client, files: &Path) {
    let client = weir.connect().await;
    wait_for(&client, "SELECT n FROM totals", &BIDS.to_string()).await;
    run(&client, "CHECKPOINT").await;
    let total: i64 = value(&client, "SELECT total FROM totals").await.parse().expect("a number");
    wait_for(postgres, "SELECT count(*) FROM bids", &BIDS.to_string()).await;
    wait_for(postgres, "SELECT coalesce(sum(n), 0) FROM per_auction", &BIDS.to_string()).await;
    let deadline = Instant::now() + PATIENCE;
    while in_files(files).0 < BIDS {
        assert!(Instant::now() < deadline, "only {} of {BIDS} bids are in files", in_files(files).0);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (count, moments, in_files) = in_files(files);
    assert_eq!((count, moments.len(), in_files), (BIDS, BIDS, total), "the files");
    let expected = vec![vec![BIDS.to_string(), BIDS.to_string(), total.to_string()]];
    let sql = "SELECT count(*), count(DISTINCT datetime), sum(price) FROM bids";
    assert_eq!(rows(postgres, sql).await, expected, "the append-only table");
    let sql = "SELECT sum(n), sum(total) FROM per_auction";
    assert_eq!(rows(postgres, sql).await, [[BIDS.to_string(), total.to_string()]], "the upsert table");
}

#[tokio::test(flavor = "multi_thread")]
async fn sinks_reconcile_after_kills_at_random_moments() {
    let mut rng = StdRng::seed_from_u64(seed());
    let postgres = Postgres::start().await;
    let target = postgres.connect().await;
    targets(&target).await;
    let mut weir = Weir::with(&["--parallelism", "2"], &[]).await;
    let files = weir.path("files");
    pipeline(&weir.connect().await, &postgres, &files).await;
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(rng.random_range(100..1500))).await;
        weir.kill_and_restart().await;
    }
    reconcile(&weir, &target, &files).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sinks_reconcile_whatever_parallelism_the_pipeline_gets_meanwhile() {
    let mut rng = StdRng::seed_from_u64(seed());
    let postgres = Postgres::start().await;
    let target = postgres.connect().await;
    targets(&target).await;
    let mut weir = Weir::with(&["--parallelism", "2"], &[]).await;
    let files = weir.path("files");
    let mut client = weir.connect().await;
    pipeline(&client, &postgres, &files).await;
    let whats = [
        "SOURCE bid",
        "MATERIALIZED VIEW totals",
        "SINK bid_files",
        "SINK bid_rows",
        "SINK per_auction",
        "DATABASE dev",
    ];
    for round in 0..20 {
        let (what, n) = (whats[rng.random_range(0..whats.len())], rng.random_range(1..5));
        run(&client, &format!("ALTER {what} SET PARALLELISM = {n}")).await;
        if round % 6 == 5 {
            weir.kill_and_restart().await;
            client = weir.connect().await;
        }
    }
    reconcile(&weir, &target, &files).await;
    assert!(!weir.log().contains("actor failed"), "{}", weir.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn sinks_reconcile_after_kills_at_every_step_of_a_checkpoint() {
    let postgres = Postgres::start().await;
    let target = postgres.connect().await;
    targets(&target).await;
    let mut weir = Weir::start().await;
    let files = weir.path("files");
    pipeline(&weir.connect().await, &postgres, &files).await;
    for (point, pass) in FAIL_POINTS {
        weir.kill();
        weir.begin(&[("WEIR_FAILPOINT", &format!("{point}:{pass}=kill"))]);
        // A point that is not reached any more, since the stream has ended, kills nobody.
        let deadline = Instant::now() + Duration::from_secs(6);
        while weir.is_alive() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    weir.kill_and_restart().await;
    reconcile(&weir, &target, &files).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_goes_away_delays_its_sink_and_nobody_else() {
    let mut postgres = Postgres::start().await;
    targets(&postgres.connect().await).await;
    let weir = Weir::start().await;
    let files = weir.path("files");
    pipeline(&weir.connect().await, &postgres, &files).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    postgres.kill();
    let client = weir.connect().await;
    wait_for(&client, "SELECT n FROM totals", &BIDS.to_string()).await;
    postgres.restart().await;
    reconcile(&weir, &postgres.connect().await, &files).await;
}
