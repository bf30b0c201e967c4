//! DDL of several sessions at once, and while the dataflow restarts.

use crate::harness::{PATIENCE, Weir, run, value};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn views_of_one_source_come_and_go_and_leave_the_others_be() {
    let weir = Weir::with(&["--parallelism", "2"], &[]).await;
    let client = weir.connect().await;
    run(
        &client,
        "CREATE SOURCE bid WITH (connector = 'nexmark', nexmark.table.type = 'Bid', rate = 20000);
         CREATE MATERIALIZED VIEW stays AS SELECT count(*) AS n FROM bid",
    )
    .await;
    // What one reads the source must go on reading until that one has ended, whoever comes meanwhile.
    let sessions = ["auction", "bidder", "price", "channel", "url"].map(|column| {
        let weir = &weir;
        async move {
            let client = weir.connect().await;
            for _ in 0..6 {
                let query = format!("SELECT max({column}) AS most FROM bid");
                run(&client, &format!("CREATE MATERIALIZED VIEW of_{column} AS {query}")).await;
                run(&client, &format!("DROP MATERIALIZED VIEW of_{column}")).await;
            }
        }
    });
    futures::future::join_all(sessions).await;
    assert!(!weir.log().contains("actor failed"), "{}", weir.log());
    assert_eq!(value(&client, "SELECT n > 0 FROM stays").await, "t");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_dropped_while_the_dataflow_restarts_is_gone() {
    // The second start is the one that RECOVER asks for.
    let slow = [("WEIR_FAILPOINT", "restart.before_jobs:2=sleep:1500")];
    let weir = Weir::with(&["--parallelism", "2"], &slow).await;
    let client = weir.connect().await;
    run(
        &client,
        "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1);
         CREATE SINK k FROM t WITH (connector = 'blackhole', type = 'upsert', primary_key = 'id')",
    )
    .await;
    let other = weir.connect().await;
    let dropped = async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        run(&other, "DROP SINK k").await;
    };
    tokio::join!(run(&client, "RECOVER"), dropped);
    // The sink's actors would wait for the table's barriers for good.
    let rest = "DROP TABLE t; CREATE TABLE u (id int); INSERT INTO u VALUES (1); CHECKPOINT";
    tokio::time::timeout(PATIENCE, run(&client, rest)).await.expect("barriers pass");
    assert_eq!(value(&client, "SELECT count(*) FROM u").await, "1");
}
