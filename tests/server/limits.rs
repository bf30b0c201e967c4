//! Statements that are too much: refused by name, and nobody else notices.

use crate::harness::{PATIENCE, Weir, run, try_rows, value};
use std::time::{Duration, Instant};
use tokio_postgres::NoTls;

fn chain(first: &str, next: &str, times: usize) -> String {
    format!("{first}{}", next.repeat(times))
}

#[tokio::test(flavor = "multi_thread")]
async fn deep_statements_are_answered_or_refused() {
    let mut weir = Weir::start().await;
    let client = weir.connect().await;
    run(&client, "CREATE TABLE t (x int PRIMARY KEY); INSERT INTO t VALUES (1), (2)").await;
    let shapes: [(&str, &dyn Fn(usize) -> String); 6] = [
        ("or", &|n| chain("SELECT count(*) FROM t WHERE x = 0", " OR x = 1", n)),
        ("plus", &|n| chain("SELECT 1", " + 1", n)),
        ("concatenation", &|n| chain("SELECT 'a'", " || 'a'", n)),
        ("casts", &|n| chain("SELECT 1", "::int", n)),
        ("union", &|n| chain("SELECT 1", " UNION ALL SELECT 1", n)),
        ("exists", &|n| format!("{}SELECT 1{}", "SELECT 1 WHERE EXISTS (".repeat(n), ")".repeat(n))),
    ];
    for (name, shape) in shapes {
        // Planning doubles its work with each subquery in an expression.
        let fits = if name == "exists" { 6 } else { 200 };
        let rows = try_rows(&client, &shape(fits)).await;
        assert!(rows.is_ok(), "{name}: {rows:?}\n{}", weir.log());
        let error = try_rows(&client, &shape(20_000)).await.expect_err(name);
        let code = error.code().map(|c| c.code().to_owned());
        assert_eq!(code.as_deref(), Some("54001"), "{name}: {error}\n{}", weir.log());
    }
    let view = format!(
        "CREATE MATERIALIZED VIEW v AS SELECT x FROM t WHERE {}",
        chain("x = 0", " OR x + 0 = 1", 250)
    );
    run(&client, &view).await;
    assert_eq!(value(&client, "SELECT count(*) FROM v").await, "1");
    weir.kill_and_restart().await;
    let client = weir.connect().await;
    assert_eq!(value(&client, "SELECT count(*) FROM v").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn joins_that_find_nothing_stop_nobody_and_end_when_they_are_cancelled() {
    let weir = Weir::with(&["--set", "query.threads=1"], &[]).await;
    let client = weir.connect().await;
    run(
        &client,
        "CREATE TABLE t (x int, y int); INSERT INTO t SELECT i, 1 FROM generate_series(1, 100000) g(i)",
    )
    .await;
    // Thousands of millions of pairs, none of which is one; more such queries than there are threads.
    let queries = ["a.x + b.x = -1", "a.y = b.y AND a.x + b.x = -1"];
    for query in (0..24).map(|i| queries[i % 2]) {
        let long = weir.connect().await;
        let cancel = long.cancel_token();
        let sql = format!("SELECT count(*) FROM t a JOIN t b ON {query}");
        let asked = tokio::spawn(async move { try_rows(&long, &sql).await });
        tokio::time::sleep(Duration::from_millis(100)).await;
        let other = value(&client, "SELECT count(*) FROM t");
        assert_eq!(tokio::time::timeout(PATIENCE, other).await.expect("others go on"), "100000");
        cancel.cancel_query(NoTls).await.expect("it is asked");
        // One may be done by then.
        if let Err(ended) = asked.await.expect("it is answered") {
            assert_eq!(ended.code().map(|c| c.code()), Some("57014"), "{ended}");
        }
    }
    let started = Instant::now();
    assert_eq!(value(&client, "SELECT sum(x) FROM t").await, "5000050000");
    assert!(started.elapsed() < PATIENCE / 3, "{:?}", started.elapsed());
}
