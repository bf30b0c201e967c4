//! CREATE SINK says at once what can never work; a target that is down delays only its own sink.

use crate::harness::{Postgres, Weir, free_port, rows, run, value, wait_for, words};
use tokio_postgres::Client;

async fn refused(client: &Client, name: &str, options: &str) -> String {
    let sql = format!("CREATE SINK {name} FROM t WITH (connector = 'postgres', {options})");
    let error = client.batch_execute(&sql).await.expect_err(&sql);
    words(&error)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_never_work_is_said_by_create_sink() {
    let postgres = Postgres::start().await;
    let target = postgres.connect().await;
    run(
        &target,
        "CREATE TABLE fits (id int PRIMARY KEY, v bigint, note text, more int DEFAULT 1);
         CREATE TABLE keyless (id int, v int);
         CREATE TABLE narrow (id int PRIMARY KEY, v int);
         CREATE TABLE other_type (id int PRIMARY KEY, v int, note date);
         CREATE TABLE needs (id int PRIMARY KEY, v int, note text, must int NOT NULL);
         CREATE TABLE made (id int PRIMARY KEY, v int, note text GENERATED ALWAYS AS ('x') STORED);
         CREATE VIEW seen AS SELECT * FROM fits;
         CREATE ROLE reader LOGIN; GRANT SELECT ON fits TO reader;
         CREATE SCHEMA closed; CREATE TABLE closed.fits (LIKE fits INCLUDING ALL);
         GRANT USAGE ON SCHEMA closed TO reader; GRANT ALL ON closed.fits TO reader",
    )
    .await;
    let weir = Weir::start().await;
    let client = weir.connect().await;
    run(&client, "CREATE TABLE t (id int PRIMARY KEY, v int, note text)").await;
    let at = |table: &str| {
        let (host, port) = ("hostname = '127.0.0.1'", postgres.port());
        format!(
            "{host}, port = {port}, username = 'postgres', database.name = 'postgres', table.name = '{table}', \
             type = 'upsert', primary_key = 'id'"
        )
    };
    let said = refused(&client, "k", &at("nothing")).await;
    assert!(
        said.starts_with("42P01: relation \"nothing\" does not exist in the target of sink \"k\""),
        "{said}"
    );
    assert!(
        said.contains("table.name") && said.contains("CREATE TABLE public.nothing (id integer, v integer"),
        "{said}"
    );
    let said = refused(&client, "k", &at("narrow")).await;
    assert!(
        said.starts_with("42703: column \"note\" of sink \"k\" does not exist in table \"narrow\""),
        "{said}"
    );
    let said = refused(&client, "k", &at("other_type")).await;
    assert!(
        said.starts_with("42804: column \"note\" of sink \"k\" is of type text, but of type date"),
        "{said}"
    );
    let said = refused(&client, "k", &at("needs")).await;
    assert!(said.starts_with("23502: column \"must\""), "{said}");
    let said = refused(&client, "k", &at("made")).await;
    assert!(said.starts_with("428C9: column \"note\""), "{said}");
    let said = refused(&client, "k", &at("seen")).await;
    assert!(said.starts_with("42809: \"seen\" of the target of sink \"k\" is not a table"), "{said}");
    let said = refused(&client, "k", &at("fits").replace("primary_key = 'id'", "primary_key = 'v'")).await;
    assert!(
        said.starts_with("42P10: table \"fits\" of the target of sink \"k\" has no primary key"),
        "{said}"
    );
    let said =
        refused(&client, "k", &at("fits").replace("username = 'postgres'", "username = 'reader'")).await;
    assert!(
        said.starts_with("42501: permission denied for table \"fits\"") && said.contains("GRANT INSERT"),
        "{said}"
    );
    let closed = format!("{}, schema.name = 'closed'", at("fits"))
        .replace("username = 'postgres'", "username = 'reader'");
    let said = refused(&client, "k", &closed).await;
    assert!(said.starts_with("42501: the target of sink \"k\"") && said.contains("weir_progress"), "{said}");
    let said = refused(&client, "k", &format!("{}, schema.name = 'none'", at("fits"))).await;
    assert!(said.starts_with("3F000: schema \"none\""), "{said}");
    let said =
        refused(&client, "k", &at("fits").replace("database.name = 'postgres'", "database.name = 'none'"))
            .await;
    assert!(said.starts_with("3D000: ") && said.contains("database.name"), "{said}");
    let nobody = at("fits").replace(&postgres.port().to_string(), &free_port().to_string());
    let said = refused(&client, "k", &nobody).await;
    assert!(said.starts_with("08001: could not connect to PostgreSQL at 127.0.0.1:"), "{said}");
    assert!(said.contains("for sink \"k\"") && said.contains("\"port\""), "{said}");
    let said =
        refused(&client, "k", "jdbc.url = 'jdbc:postgresql://h/d?sslmode=require', table.name = 'fits'")
            .await;
    assert!(said.starts_with("0A000: "), "{said}");
    // None of them left anything, here or there.
    assert_eq!(value(&client, "SELECT count(*) FROM weir_catalog.sinks").await, "0");
    let left = "SELECT count(*) FROM pg_class WHERE relname LIKE 'weir%'";
    assert_eq!(value(&target, left).await, "0");
    run(&client, &format!("CREATE SINK k FROM t WITH (connector = 'postgres', {})", at("fits"))).await;
    run(&client, "INSERT INTO t VALUES (1, 2, 'three')").await;
    wait_for(&target, "SELECT count(*) FROM fits", "1").await;
    assert_eq!(rows(&target, "SELECT * FROM fits").await, [["1", "2", "three", "1"]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_can_not_be_written_is_refused() {
    let weir = Weir::start().await;
    let client = weir.connect().await;
    run(&client, "CREATE TABLE t (id int) APPEND ONLY").await;
    std::fs::write(weir.path("file"), "x").expect("written");
    let create = |dir: &str| {
        format!(
            "CREATE SINK k FROM t WITH (connector = 'file', path = '{}', type = 'append-only') \
             FORMAT PLAIN ENCODE JSON",
            weir.path(dir).display()
        )
    };
    let error = client.batch_execute(&create("file/below")).await.expect_err("a file is no directory");
    let said = words(&error);
    assert!(
        said.starts_with("42809: sink \"k\" could not write to directory") && said.contains("\"path\""),
        "{said}"
    );
    run(&client, &create("new/below")).await;
    run(&client, "DROP SINK k").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_whose_log_is_full_is_paused_alone() {
    let mut postgres = Postgres::start().await;
    run(&postgres.connect().await, "CREATE TABLE target (id int PRIMARY KEY, v text)").await;
    let mut weir = Weir::start().await;
    let client = weir.connect().await;
    let create = format!(
        "CREATE SINK k FROM t WITH (connector = 'postgres', hostname = '127.0.0.1', port = {}, username = 'postgres',
         database.name = 'postgres', table.name = 'target', type = 'upsert', primary_key = 'id')",
        postgres.port()
    );
    run(
        &client,
        &format!(
            "CREATE TABLE t (id int PRIMARY KEY, v text);
             CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM t;
             {create};
             ALTER DATABASE dev SET sink.log_limit = '64kB';
             INSERT INTO t VALUES (0, 'first')"
        ),
    )
    .await;
    wait_for(&postgres.connect().await, "SELECT count(*) FROM target", "1").await;
    postgres.kill();
    let status = "SELECT coalesce(max(status), '') FROM weir_catalog.sinks";
    let mut inserted = 1;
    while value(&client, status).await != "paused" {
        assert!(inserted < 500_000, "it is never paused");
        run(
            &client,
            &format!(
                "INSERT INTO t SELECT i, 'row ' || i FROM generate_series({inserted}, {}) AS g(i)",
                inserted + 999
            ),
        )
        .await;
        run(&client, "CHECKPOINT").await;
        inserted += 1000;
        wait_for(&client, "SELECT n FROM n", &inserted.to_string()).await;
    }
    let error = value(&client, "SELECT error FROM weir_catalog.sinks").await;
    assert!(error.contains("sink.log_limit"), "{error}");
    let alerts = "SELECT count(*) FROM weir_catalog.alerts WHERE rule = 'sink paused'";
    assert_eq!(value(&client, alerts).await, "1");
    // Nothing more is logged; the others go on, through a crash too.
    run(&client, "INSERT INTO t VALUES (-1, 'not delivered')").await;
    run(&client, "CHECKPOINT").await;
    weir.kill_and_restart().await;
    let client = weir.connect().await;
    assert_eq!(value(&client, "SELECT n FROM n").await, (inserted + 1).to_string());
    postgres.restart().await;
    let target = postgres.connect().await;
    // What was logged arrives: an exact prefix, cut at a checkpoint.
    wait_for(&target, "SELECT (count(*) > 1000)::text FROM target", "true").await;
    wait_for(&client, status, "paused").await;
    let whole = "SELECT (count(*) = max(id) + 1 AND min(id) = 0)::text FROM target";
    wait_for(&target, whole, "true").await;
    run(&target, "TRUNCATE target").await;
    run(&client, &format!("DROP SINK k; {create}")).await;
    wait_for(&target, "SELECT count(*) FROM target", &(inserted + 1).to_string()).await;
}
