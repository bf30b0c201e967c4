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
