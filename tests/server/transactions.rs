//! What drivers wrap around statements: savepoints, access modes, isolation, cursors, binary COPY.

use crate::harness::{Weir, rows, run, value, wait_for, words};
use futures::{SinkExt, TryStreamExt};
use tokio_postgres::Client;

async fn refused(client: &Client, sql: &str) -> String {
    words(&client.batch_execute(sql).await.expect_err(sql))
}

#[tokio::test(flavor = "multi_thread")]
async fn savepoints_take_back_a_part_of_a_block() {
    let weir = Weir::start().await;
    let mut client = weir.connect().await;
    run(&client, "CREATE TABLE t (id int PRIMARY KEY, n int)").await;
    run(&client, "BEGIN; INSERT INTO t VALUES (1, 1); SAVEPOINT a; INSERT INTO t VALUES (2, 2)").await;
    run(&client, "SAVEPOINT b; UPDATE t SET n = 9; ROLLBACK TO b").await;
    assert_eq!(rows(&client, "SELECT * FROM t ORDER BY id").await, [["1", "1"], ["2", "2"]]);
    // A failed block is healed by going back to before the failure.
    assert!(refused(&client, "INSERT INTO t VALUES (1, 1)").await.starts_with("23505"));
    assert!(refused(&client, "SELECT 1").await.starts_with("25P02"));
    assert!(refused(&client, "SAVEPOINT c").await.starts_with("25P02"));
    run(&client, "ROLLBACK TO SAVEPOINT a").await;
    assert_eq!(value(&client, "SELECT count(*) FROM t").await, "1");
    assert!(refused(&client, "ROLLBACK TO b").await.starts_with("3B001: savepoint \"b\" does not exist"));
    run(&client, "ROLLBACK TO a; INSERT INTO t VALUES (3, 3); RELEASE a").await;
    assert!(refused(&client, "RELEASE a").await.starts_with("3B001"));
    run(&client, "ROLLBACK").await;
    assert_eq!(value(&client, "SELECT count(*) FROM t").await, "0");
    assert!(
        refused(&client, "SAVEPOINT a").await.starts_with("25P01: SAVEPOINT can only be used in transaction")
    );

    // Others see what is committed without asking for it.
    run(&client, "INSERT INTO t VALUES (5, 5)").await;
    wait_for(&weir.connect().await, "SELECT count(*) FROM t", "1").await;
    run(&client, "DELETE FROM t").await;

    // As drivers nest transactions.
    let mut outer = client.transaction().await.expect("begins");
    outer.execute("INSERT INTO t VALUES (1, 1)", &[]).await.expect("inserted");
    let inner = outer.transaction().await.expect("a savepoint");
    inner.execute("INSERT INTO t VALUES (2, 2)", &[]).await.expect("inserted");
    inner.rollback().await.expect("taken back");
    let inner = outer.savepoint("named").await.expect("a savepoint");
    inner.execute("INSERT INTO t VALUES (3, 3)", &[]).await.expect("inserted");
    inner.commit().await.expect("released");
    outer.commit().await.expect("commits");
    assert_eq!(rows(&client, "SELECT id FROM t ORDER BY 1").await, [["1"], ["3"]]);
    // What SET did after a savepoint goes back, too; what SET LOCAL did ends with the block.
    run(&client, "BEGIN; SET application_name = 'a'; SAVEPOINT s; SET application_name = 'b'; ROLLBACK TO s")
        .await;
    assert_eq!(value(&client, "SHOW application_name").await, "a");
    run(&client, "SET LOCAL statement_timeout = '5s'; SET LOCAL application_name = 'c'").await;
    assert_eq!(value(&client, "SHOW application_name").await, "c");
    run(&client, "COMMIT").await;
    assert_eq!(value(&client, "SHOW application_name").await, "a");
    assert_eq!(value(&client, "SHOW statement_timeout").await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn modes_of_transactions_hold() {
    let weir = Weir::start().await;
    let (client, other) = (weir.connect().await, weir.connect().await);
    run(&client, "CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 1)").await;
    for begin in [
        "BEGIN READ ONLY",
        "BEGIN; SET TRANSACTION READ ONLY",
        "START TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY",
    ] {
        run(&client, begin).await;
        assert_eq!(value(&client, "SELECT n FROM t").await, "1");
        let said = refused(&client, "INSERT INTO t VALUES (2, 2)").await;
        assert_eq!(said, "25006: cannot execute INSERT in a read-only transaction");
        run(&client, "ROLLBACK").await;
    }
    run(&client, "INSERT INTO t VALUES (2, 2)").await;
    run(&client, "SET default_transaction_read_only = on").await;
    for sql in
        ["DELETE FROM t", "UPDATE t SET n = 1", "COPY t FROM STDIN", "CREATE TABLE u (a int)", "DROP TABLE t"]
    {
        assert!(refused(&client, sql).await.starts_with("25006"), "{sql}");
    }
    run(&client, "BEGIN READ WRITE; DELETE FROM t WHERE id = 2; COMMIT; RESET default_transaction_read_only")
        .await;
    assert_eq!(value(&client, "SELECT count(*) FROM t").await, "1");

    // Above READ COMMITTED a block reads one epoch.
    run(&client, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    assert_eq!(value(&client, "SHOW transaction_isolation").await, "repeatable read");
    assert_eq!(value(&client, "SELECT n FROM t").await, "1");
    run(&other, "UPDATE t SET n = 5").await;
    run(&other, "FLUSH").await;
    assert_eq!(value(&other, "SELECT n FROM t").await, "5");
    assert_eq!(value(&client, "SELECT n FROM t").await, "1");
    run(&client, "INSERT INTO t VALUES (7, 7)").await;
    assert_eq!(rows(&client, "SELECT * FROM t ORDER BY id").await, [["1", "1"], ["7", "7"]]);
    run(&client, "COMMIT").await;
    assert_eq!(rows(&client, "SELECT * FROM t ORDER BY id").await, [["1", "5"], ["7", "7"]]);
    assert_eq!(value(&client, "SHOW transaction_isolation").await, "read committed");
    run(&client, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM t").await;
    run(&other, "UPDATE t SET n = 6 WHERE id = 1").await;
    run(&client, "UPDATE t SET n = n + 1 WHERE id = 1").await;
    assert!(refused(&client, "COMMIT").await.starts_with("40001"));
    assert_eq!(value(&other, "SELECT n FROM t WHERE id = 1").await, "6");
}

#[tokio::test(flavor = "multi_thread")]
async fn cursors_give_their_rows_in_steps() {
    let weir = Weir::start().await;
    let client = weir.connect().await;
    run(&client, "CREATE TABLE t (id int); INSERT INTO t SELECT i FROM generate_series(1, 10) AS g(i)").await;
    let said = refused(&client, "DECLARE c CURSOR FOR SELECT 1").await;
    assert!(said.starts_with("25P01: DECLARE CURSOR can only be used in transaction blocks"), "{said}");
    run(&client, "BEGIN; DECLARE c CURSOR FOR SELECT id FROM t ORDER BY id").await;
    assert_eq!(rows(&client, "FETCH 2 FROM c").await, [["1"], ["2"]]);
    assert_eq!(rows(&client, "FETCH c").await, [["3"]]);
    run(&client, "MOVE 5 IN c").await;
    assert_eq!(client.query("FETCH FORWARD ALL FROM c", &[]).await.expect("rows").len(), 2);
    assert_eq!(rows(&client, "FETCH NEXT FROM c").await.len(), 0);
    run(&client, "SAVEPOINT a; DECLARE d CURSOR FOR SELECT 1; ROLLBACK TO a").await;
    assert!(refused(&client, "FETCH d").await.starts_with("34000: cursor \"d\" does not exist"));
    run(&client, "ROLLBACK TO a").await;
    let said = refused(&client, "FETCH PRIOR FROM c").await;
    assert!(said.starts_with("55000: cursor can only scan forward") && said.contains("SCROLL"), "{said}");
    run(&client, "ROLLBACK").await;
    assert!(refused(&client, "FETCH c").await.starts_with("34000"));

    run(&client, "BEGIN; DECLARE s SCROLL CURSOR FOR SELECT id FROM t ORDER BY id").await;
    assert_eq!(rows(&client, "FETCH LAST FROM s").await, [["10"]]);
    assert_eq!(rows(&client, "FETCH BACKWARD 2 FROM s").await, [["9"], ["8"]]);
    assert_eq!(rows(&client, "FETCH ABSOLUTE 3 FROM s").await, [["3"]]);
    run(&client, "CLOSE s").await;
    assert!(refused(&client, "CLOSE s").await.starts_with("34000"));
    run(&client, "ROLLBACK").await;

    run(&client, "BEGIN; DECLARE h CURSOR WITH HOLD FOR SELECT id FROM t ORDER BY id; COMMIT; DELETE FROM t")
        .await;
    assert_eq!(rows(&client, "FETCH 2 FROM h").await, [["1"], ["2"]]);
    run(&client, "BEGIN; DECLARE g CURSOR WITH HOLD FOR SELECT 1; ROLLBACK").await;
    assert!(refused(&client, "FETCH g").await.starts_with("34000"));
    assert_eq!(rows(&client, "FETCH h").await, [["3"]]);
    // What pools send between two users of a connection.
    run(&client, "PREPARE p AS SELECT 1; SET application_name = 'x'").await;
    run(&client, "CLOSE ALL; UNLISTEN *; RESET ALL").await;
    run(&client, "DISCARD ALL").await;
    assert!(refused(&client, "EXECUTE p").await.starts_with("26000"));
    assert!(refused(&client, "FETCH h").await.starts_with("34000"));
    assert!(refused(&client, "BEGIN; DISCARD ALL").await.starts_with("25001"));
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_goes_both_ways_in_binary() {
    let weir = Weir::start().await;
    let client = weir.connect().await;
    let columns = "id int PRIMARY KEY, n numeric(10,2), s text, b bytea, at timestamptz, d date, f double precision, \
                   x boolean, u uuid, j jsonb, a int[]";
    run(&client, &format!("CREATE TABLE t ({columns}); CREATE TABLE back ({columns}, more int DEFAULT 7)"))
        .await;
    run(
        &client,
        "INSERT INTO t VALUES
           (1, -12.50, 'a,\tü', '\\x00ff', '2024-02-29 12:00:00.5+02', '1999-12-31', 0.1, true,
            'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{\"k\": [1]}', ARRAY[1, NULL, 3]),
           (2, NULL, '', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    )
    .await;
    let out = client
        .copy_out("COPY (SELECT * FROM t ORDER BY id) TO STDOUT (FORMAT binary)")
        .await
        .expect("starts");
    let bytes: Vec<bytes::Bytes> = out.try_collect().await.expect("rows");
    let bytes = bytes.concat();
    assert!(bytes.starts_with(b"PGCOPY\n\xff\r\n\0"));
    let list = "id, n, s, b, at, d, f, x, u, j, a";
    let sink = client.copy_in(&format!("COPY back ({list}) FROM STDIN WITH BINARY")).await.expect("starts");
    let mut sink = std::pin::pin!(sink);
    for piece in bytes.chunks(7) {
        sink.send(bytes::Bytes::copy_from_slice(piece)).await.expect("sent");
    }
    assert_eq!(sink.finish().await.expect("copied"), 2);
    let read = |table: &str| format!("SELECT {list} FROM {table} ORDER BY id");
    assert_eq!(rows(&client, &read("back")).await, rows(&client, &read("t")).await);
    assert_eq!(value(&client, "SELECT sum(more) FROM back").await, "14");
    let sink = client.copy_in("COPY back (id) FROM STDIN (FORMAT binary)").await.expect("starts");
    let mut sink = std::pin::pin!(sink);
    sink.send(bytes::Bytes::from_static(b"3\n")).await.expect("sent");
    let said = words(&sink.finish().await.expect_err("it is text"));
    assert!(said.starts_with("22P04: COPY file signature not recognized"), "{said}");
    assert_eq!(value(&client, "SELECT count(*) FROM back").await, "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn single_rows_of_many_sessions_are_exact() {
    let mut weir = Weir::start().await;
    let client = weir.connect().await;
    run(&client, "CREATE TABLE t (id int PRIMARY KEY, n int); CREATE TABLE c (id int PRIMARY KEY, n int)")
        .await;
    run(&client, "INSERT INTO c VALUES (1, 0)").await;
    let mut tasks = Vec::new();
    for session in 0..8i32 {
        let client = weir.connect().await;
        tasks.push(tokio::spawn(async move {
            let insert = client.prepare("INSERT INTO t VALUES ($1, $2)").await.expect("prepared");
            let add =
                client.prepare("UPDATE c SET n = n + 1 WHERE id = 1 RETURNING n").await.expect("prepared");
            let (mut won, mut seen) = (0, Vec::new());
            for i in 0..40i32 {
                // Two sessions want each key.
                match client.execute(&insert, &[&(i * 4 + session % 4), &session]).await {
                    Ok(n) => won += n,
                    Err(error) => assert!(words(&error).starts_with("23505"), "{}", words(&error)),
                }
                seen.push(client.query_one(&add, &[]).await.expect("a row").get::<_, i32>(0));
            }
            (won, seen)
        }));
    }
    let (mut won, mut seen) = (0, Vec::new());
    for task in tasks {
        let (w, s) = task.await.expect("no panic");
        won += w;
        seen.extend(s);
    }
    assert_eq!(won, 160, "each key went to one session");
    seen.sort_unstable();
    assert_eq!(seen, (1..=320).collect::<Vec<_>>(), "RETURNING never tells a number twice");
    // Acknowledged is durable, whoever shared the fsync.
    weir.kill_and_restart().await;
    let client = weir.connect().await;
    assert_eq!(value(&client, "SELECT count(*) FROM t").await, "160");
    assert_eq!(value(&client, "SELECT n FROM c").await, "320");
}
