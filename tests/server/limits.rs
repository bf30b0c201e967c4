//! Statements that are too much: refused by name, and nobody else notices.

use crate::harness::{Weir, run, try_rows, value};

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
