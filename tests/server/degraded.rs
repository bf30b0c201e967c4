//! A job that fails again and again: the dataflow is given up, SQL answers, dropping the job heals.

use crate::harness::{Weir, rows, run, try_rows, value, wait_for, words};

/// A database with a good and a bad view, started again with the bad one's actors failing at once.
async fn with_a_bad_job() -> Weir {
    let mut weir = Weir::start().await;
    let client = weir.connect().await;
    run(
        &client,
        "CREATE TABLE t (id int PRIMARY KEY, v int);
         CREATE MATERIALIZED VIEW good AS SELECT count(*) AS n, sum(v) AS total FROM t;
         CREATE MATERIALIZED VIEW bad AS SELECT max(v) AS m FROM t;
         INSERT INTO t VALUES (1, 10), (2, 20);
         ALTER DATABASE dev SET restart.attempts = 2;
         ALTER DATABASE dev SET restart.delay = '10ms';
         CHECKPOINT;
         INSERT INTO t VALUES (3, 30)",
    )
    .await;
    let id = value(&client, "SELECT id FROM weir_catalog.jobs WHERE name = 'bad'").await;
    weir.kill();
    weir.begin(&[("WEIR_FAILPOINT", &format!("actor.of_job_{id}=error"))]);
    weir.wait_ready().await;
    weir
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_job_at_fault_heals_a_degraded_dataflow() {
    let mut weir = with_a_bad_job().await;
    let client = weir.connect().await;
    let alerts = "SELECT count(*) FROM weir_catalog.alerts WHERE rule = 'dataflow degraded'";
    wait_for(&client, alerts, "1").await;
    let why =
        value(&client, "SELECT message FROM weir_catalog.alerts WHERE rule = 'dataflow degraded'").await;
    assert!(why.contains("fail point actor.of_job_"), "{why}");
    assert_eq!(value(&client, "SELECT DISTINCT status FROM weir_catalog.jobs").await, "degraded");

    // What was acknowledged is not restored yet: no relation is read without it, none is changed.
    for sql in ["SELECT n FROM good", "SELECT * FROM t", "INSERT INTO t VALUES (3, 31)", "FLUSH"] {
        let error = try_rows(&client, sql).await.expect_err("it can't be done");
        assert_eq!(error.code().map(|c| c.code().to_owned()).as_deref(), Some("55000"), "{}", words(&error));
    }
    assert_eq!(value(&client, "SELECT 1 + 1").await, "2");

    run(&client, "DROP MATERIALIZED VIEW bad").await;
    wait_for(&client, alerts, "0").await;
    wait_for(&client, "SELECT count(*) FROM weir_catalog.jobs WHERE status = 'degraded'", "0").await;
    assert_eq!(rows(&client, "SELECT n, total FROM good").await, [["3", "60"]]);
    run(&client, "INSERT INTO t VALUES (4, 40)").await;
    assert_eq!(rows(&client, "SELECT n, total FROM good").await, [["4", "100"]]);
    assert!(weir.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_degraded_dataflow_survives_a_restart_without_the_fault() {
    let mut weir = with_a_bad_job().await;
    let client = weir.connect().await;
    wait_for(&client, "SELECT count(*) FROM weir_catalog.alerts WHERE rule = 'dataflow degraded'", "1").await;
    let error = try_rows(&client, "RECOVER").await.expect_err("the fault is still there");
    assert!(words(&error).contains("fail point"), "{}", words(&error));
    weir.kill_and_restart().await;
    let client = weir.connect().await;
    assert_eq!(rows(&client, "SELECT n, total, m FROM good, bad").await, [["3", "60", "30"]]);
}
