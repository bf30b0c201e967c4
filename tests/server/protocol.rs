//! Real clients against a whole server in this process: what the protocol promises.

use crate::harness::words;
use futures::{SinkExt, StreamExt, TryStreamExt};
use std::process::Command;
use std::time::Duration;
use tokio_postgres::{AsyncMessage, Client, Error, NoTls, SimpleQueryMessage};
use weir::config::Config;
use weir::server::{RunningServer, Server as Weir};

struct Server {
    running: RunningServer,
    _dir: tempfile::TempDir,
}

impl Server {
    async fn start() -> Server {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("data").display().to_string();
        let settings = [
            ("data_dir", path.as_str()),
            ("listen", "127.0.0.1:0"),
            ("http", "127.0.0.1:0"),
            ("parallelism", "1"),
            ("memory.limit", "512MB"),
        ];
        let running = Weir::start(Config::new(settings).expect("settings")).await.expect("starts");
        Server { running, _dir: dir }
    }

    fn config(&self) -> tokio_postgres::Config {
        let mut config = tokio_postgres::Config::new();
        config.host("127.0.0.1").port(self.running.addr.port()).user("root").dbname("dev");
        config
    }

    async fn connect(&self) -> Client {
        let (client, connection) = self.config().connect(NoTls).await.expect("connects");
        tokio::spawn(connection);
        client
    }
}

async fn rows(client: &Client, sql: &str) -> Vec<String> {
    let messages = client.simple_query(sql).await.unwrap_or_else(|e| panic!("{sql}: {}", words(&e)));
    let text = |row: &tokio_postgres::SimpleQueryRow| {
        (0..row.len()).map(|i| row.get(i).unwrap_or("NULL")).collect::<Vec<_>>().join(",")
    };
    messages
        .iter()
        .filter_map(|m| if let SimpleQueryMessage::Row(row) = m { Some(text(row)) } else { None })
        .collect()
}

async fn run(client: &Client, sql: &str) {
    client.batch_execute(sql).await.unwrap_or_else(|e| panic!("{sql}: {}", words(&e)));
}

fn told(error: &Error) -> String {
    match error.as_db_error() {
        Some(e) => format!("{}: {}", e.code().code(), e.message()),
        None => error.to_string(),
    }
}

async fn refused(client: &Client, sql: &str) -> String {
    told(&client.batch_execute(sql).await.expect_err(sql))
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_are_answered_with_rows_tags_and_errors() {
    let server = Server::start().await;
    let client = server.connect().await;
    run(&client, "CREATE TABLE t (id int PRIMARY KEY, name text NOT NULL, n numeric(10,2))").await;
    let tags = client.simple_query("INSERT INTO t VALUES (1, 'a', 1.5), (2, 'b', NULL)").await.unwrap();
    assert!(matches!(tags[..], [SimpleQueryMessage::CommandComplete(2)]));
    assert_eq!(rows(&client, "SELECT * FROM t ORDER BY id").await, ["1,a,1.50", "2,b,NULL"]);
    assert_eq!(rows(&client, "UPDATE t SET n = 7 WHERE id = 2 RETURNING id, n").await, ["2,7.00"]);
    assert_eq!(rows(&client, "DELETE FROM t WHERE id = 1 RETURNING name").await, ["a"]);
    assert_eq!(rows(&client, "SELECT count(*) FROM t").await, ["1"]);
    assert_eq!(rows(&client, "").await.len(), 0);

    let error = client.batch_execute("INSERT INTO t VALUES (2, 'x', 1)").await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code().code(), "23505");
    assert_eq!(error.message(), "duplicate key value violates unique constraint \"t_pkey\"");
    assert_eq!(error.detail(), Some("Key (id)=(2) already exists."));
    let nothing = refused(&client, "INSERT INTO t (id) VALUES (3)").await;
    assert!(nothing.starts_with("23502: null value in column \"name\""), "{nothing}");
    let error = client.batch_execute("SELECT 1;\n SELECT nope FROM t").await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code().code(), "42703");
    assert_eq!(error.position(), Some(&tokio_postgres::error::ErrorPosition::Original(19)));
    assert_eq!(refused(&client, "SELEC 1").await, "42601: syntax error at or near \"SELEC\"");
    assert!(refused(&client, "SELECT 1/0").await.starts_with("22012"));
    assert_eq!(rows(&client, "SELECT 1").await, ["1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_and_results_are_binary_and_typed() {
    let server = Server::start().await;
    let client = server.connect().await;
    run(&client, "CREATE TABLE t (a bigint PRIMARY KEY, b text, c timestamp, d boolean, e double precision)")
        .await;
    let time =
        chrono::NaiveDate::from_ymd_opt(2015, 7, 15).unwrap().and_hms_micro_opt(0, 0, 0, 40_000).unwrap();
    let insert = client.prepare("INSERT INTO t VALUES ($1, $2, $3, $4, $5)").await.unwrap();
    for i in 0..3i64 {
        let done = client.execute(&insert, &[&i, &format!("row {i}"), &time, &(i == 1), &0.5f64]).await;
        assert_eq!(done.unwrap(), 1);
    }
    let none: Option<&str> = None;
    client
        .execute(&insert, &[&3i64, &none, &None::<chrono::NaiveDateTime>, &false, &f64::NAN])
        .await
        .unwrap();
    let found = client.query("SELECT a, b, c, d, e FROM t WHERE a >= $1 ORDER BY a", &[&1i64]).await.unwrap();
    assert_eq!(found.len(), 3);
    assert_eq!(found[0].get::<_, i64>(0), 1);
    assert_eq!(found[0].get::<_, &str>(1), "row 1");
    assert_eq!(found[0].get::<_, chrono::NaiveDateTime>(2), time);
    assert!(found[0].get::<_, bool>(3));
    assert_eq!(found[2].get::<_, Option<&str>>(1), None);
    assert!(found[2].get::<_, f64>(4).is_nan());
    let one = client.query_one("SELECT $1::int + 1, $2::text", &[&41i32, &"x"]).await.unwrap();
    assert_eq!((one.get::<_, i32>(0), one.get::<_, &str>(1)), (42, "x"));
    let error = client.query("SELECT 1 FROM t WHERE a = $1", &[&"text"]).await.unwrap_err();
    assert!(error.as_db_error().is_none(), "the client knows the type: {error}");
    // The catalog changes under a prepared statement.
    let select = client.prepare("SELECT b FROM t WHERE a = $1").await.unwrap();
    run(&client, "CREATE TABLE other (x int)").await;
    assert_eq!(client.query(&select, &[&0i64]).await.unwrap()[0].get::<_, &str>(0), "row 0");
    run(&client, "DROP TABLE t").await;
    assert_eq!(
        told(&client.query(&select, &[&0i64]).await.unwrap_err()),
        "42P01: relation \"t\" does not exist"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_hold_back_see_their_own_and_are_taken_back() {
    let server = Server::start().await;
    let (client, other) = (server.connect().await, server.connect().await);
    run(&client, "CREATE TABLE t (id int PRIMARY KEY, n int)").await;
    run(&client, "BEGIN; INSERT INTO t VALUES (1, 1), (2, 2)").await;
    assert_eq!(rows(&client, "SELECT count(*) FROM t").await, ["2"]);
    assert_eq!(rows(&other, "SELECT count(*) FROM t").await, ["0"]);
    run(&client, "UPDATE t SET n = n + 10 WHERE id = 1; DELETE FROM t WHERE id = 2; COMMIT").await;
    assert_eq!(rows(&client, "SELECT * FROM t").await, ["1,11"]);
    run(&other, "FLUSH").await;
    assert_eq!(rows(&other, "SELECT * FROM t").await, ["1,11"]);

    run(&client, "BEGIN; DELETE FROM t; ROLLBACK").await;
    assert_eq!(rows(&client, "SELECT count(*) FROM t").await, ["1"]);
    run(&client, "BEGIN; INSERT INTO t VALUES (5, 5)").await;
    assert!(refused(&client, "INSERT INTO t VALUES (1, 1)").await.starts_with("23505"));
    assert!(refused(&client, "SELECT 1").await.starts_with("25P02"));
    run(&client, "COMMIT").await;
    assert_eq!(rows(&client, "SELECT count(*) FROM t").await, ["1"]);
    // Several statements in one string are one transaction.
    assert!(
        refused(&client, "INSERT INTO t VALUES (6, 6); INSERT INTO t VALUES (1, 1)")
            .await
            .starts_with("23505")
    );
    assert_eq!(rows(&client, "SELECT count(*) FROM t").await, ["1"]);

    // What another session did meanwhile is in what the block's statements find.
    run(&client, "BEGIN; UPDATE t SET n = n + 1 WHERE id = 1").await;
    run(&other, "UPDATE t SET n = 20 WHERE id = 1").await;
    run(&client, "COMMIT").await;
    assert_eq!(rows(&client, "SELECT n FROM t").await, ["21"]);
    run(&client, "BEGIN; SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; UPDATE t SET n = 1 WHERE id = 1")
        .await;
    run(&other, "UPDATE t SET n = 2 WHERE id = 1").await;
    assert!(refused(&client, "COMMIT").await.starts_with("40001"));
    run(&client, "BEGIN; UPDATE t SET n = 3 WHERE id = 1").await;
    run(&other, "DELETE FROM t WHERE id = 1").await;
    assert!(refused(&client, "COMMIT").await.starts_with("40001"));
    assert_eq!(rows(&other, "SELECT count(*) FROM t").await, ["0"]);
    assert!(refused(&client, "BEGIN; CREATE TABLE u (a int)").await.starts_with("0A000"));
    assert!(refused(&client, "ROLLBACK; BEGIN; CHECKPOINT").await.starts_with("25001"));
    run(&client, "ROLLBACK; CHECKPOINT").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_of_many_sessions_all_count() {
    let server = Server::start().await;
    let client = server.connect().await;
    run(&client, "CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 0)").await;
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let client = server.connect().await;
        tasks.push(tokio::spawn(async move {
            let update = client.prepare("UPDATE t SET n = n + $1 WHERE id = 1").await.unwrap();
            for _ in 0..10 {
                assert_eq!(client.execute(&update, &[&1i32]).await.unwrap(), 1);
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    run(&client, "FLUSH").await;
    assert_eq!(rows(&client, "SELECT n FROM t").await, ["40"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_statement_can_be_stopped() {
    let server = Server::start().await;
    let client = server.connect().await;
    let values: Vec<String> = (0..500).map(|i| format!("({i})")).collect();
    run(&client, &format!("CREATE TABLE t (i bigint); INSERT INTO t VALUES {}", values.join(", "))).await;
    let endless = "SELECT count(*) FROM t a, t b, t c, t d, t e WHERE a.i + b.i + c.i + d.i + e.i > 10";
    let token = client.cancel_token();
    let running = tokio::spawn(async move {
        let error = client.query_one(endless, &[]).await.unwrap_err();
        (client, told(&error))
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    token.cancel_query(NoTls).await.unwrap();
    let (client, error) = running.await.unwrap();
    assert_eq!(error, "57014: canceling statement due to user request");

    run(&client, "SET statement_timeout = '100ms'").await;
    assert_eq!(refused(&client, endless).await, "57014: canceling statement due to statement timeout");
    run(&client, "RESET statement_timeout").await;

    // Rows that are being streamed: the query itself has answered already.
    let long = "SELECT a.i FROM t a, t b, t c";
    let mut stream = std::pin::pin!(client.query_raw(long, Vec::<i32>::new()).await.unwrap());
    assert!(stream.next().await.unwrap().unwrap().get::<_, i64>(0) >= 0);
    token.cancel_query(NoTls).await.unwrap();
    let error = loop {
        match stream.next().await.expect("it never ends by itself") {
            Ok(_) => {}
            Err(error) => break told(&error),
        }
    };
    assert!(error.starts_with("57014"), "{error}");
    assert_eq!(rows(&client, "SELECT 1").await, ["1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn portals_give_their_rows_in_steps() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    run(&client, "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2), (3), (4), (5)").await;
    let transaction = client.transaction().await.unwrap();
    let portal = transaction.bind("SELECT id FROM t ORDER BY id", &[]).await.unwrap();
    let mut sizes = Vec::new();
    loop {
        let step = transaction.query_portal(&portal, 2).await.unwrap();
        sizes.push(step.len());
        if step.len() < 2 {
            break;
        }
    }
    assert_eq!(sizes, [2, 2, 1]);
    transaction.commit().await.unwrap();
    let transaction = client.transaction().await.unwrap();
    transaction.execute("INSERT INTO t VALUES ($1)", &[&6i32]).await.unwrap();
    transaction.rollback().await.unwrap();
    assert_eq!(rows(&client, "SELECT count(*) FROM t").await, ["5"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_goes_both_ways() {
    let server = Server::start().await;
    let client = server.connect().await;
    run(&client, "CREATE TABLE t (id int PRIMARY KEY, name text, n int DEFAULT 7)").await;
    let sink = client.copy_in("COPY t (id, name) FROM STDIN").await.unwrap();
    let mut sink = std::pin::pin!(sink);
    for piece in ["1\ta\n2\t", "\\N\n", "3\ttab\\t'quote'\n"] {
        sink.send(bytes::Bytes::from_static(piece.as_bytes())).await.unwrap();
    }
    assert_eq!(sink.finish().await.unwrap(), 3);
    assert_eq!(rows(&client, "SELECT * FROM t ORDER BY id").await, ["1,a,7", "2,NULL,7", "3,tab\t'quote',7"]);

    let sink = client.copy_in("COPY t FROM STDIN (FORMAT csv)").await.unwrap();
    let mut sink = std::pin::pin!(sink);
    sink.send(bytes::Bytes::from_static(b"4,x,1\n1,again,2\n")).await.unwrap();
    assert!(told(&sink.finish().await.unwrap_err()).starts_with("23505"));
    assert_eq!(rows(&client, "SELECT count(*) FROM t").await, ["3"]);

    let out =
        client.copy_out("COPY (SELECT id, name FROM t ORDER BY id) TO STDOUT (FORMAT csv, HEADER)").await;
    let pieces: Vec<bytes::Bytes> = out.unwrap().try_collect().await.unwrap();
    assert_eq!(pieces.concat(), b"id,name\n1,a\n2,\n3,tab\t'quote'\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_is_told_what_it_should_know() {
    let server = Server::start().await;
    let (client, mut connection) = server
        .config()
        .application_name("tester")
        .options("-c statement_timeout=9s")
        .connect(NoTls)
        .await
        .unwrap();
    assert_eq!(connection.parameter("server_version"), Some("15.0"));
    assert_eq!(connection.parameter("client_encoding"), Some("UTF8"));
    assert_eq!(connection.parameter("application_name"), Some("tester"));
    let (sender, mut notices) = futures::channel::mpsc::unbounded();
    tokio::spawn(async move {
        while let Some(message) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            if let Ok(AsyncMessage::Notice(notice)) = message {
                let _ = sender.unbounded_send(format!("{}: {}", notice.severity(), notice.message()));
            }
        }
    });
    assert_eq!(rows(&client, "SHOW statement_timeout").await, ["9s"]);
    run(&client, "DROP TABLE IF EXISTS nothing").await;
    assert_eq!(notices.next().await.unwrap(), "NOTICE: table \"nothing\" does not exist, skipping");
    run(&client, "COMMIT").await;
    assert_eq!(notices.next().await.unwrap(), "WARNING: there is no transaction in progress");

    let mut elsewhere = server.config();
    let error = elsewhere.dbname("elsewhere").connect(NoTls).await.err().unwrap();
    assert_eq!(told(&error), "3D000: database \"elsewhere\" does not exist");
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_are_prepared_by_sql_too() {
    let server = Server::start().await;
    let client = server.connect().await;
    run(&client, "CREATE TABLE t (id int PRIMARY KEY, name text)").await;
    run(
        &client,
        "PREPARE ins AS INSERT INTO t VALUES ($1, $2); PREPARE sel (int) AS SELECT name FROM t WHERE id = $1",
    )
    .await;
    run(&client, "EXECUTE ins(1, 'a')").await;
    run(&client, "EXECUTE ins(2, 'b')").await;
    assert_eq!(rows(&client, "EXECUTE sel(1 + 1)").await, ["b"]);
    assert!(refused(&client, "EXECUTE sel").await.starts_with("42601"));
    assert!(refused(&client, "PREPARE sel AS SELECT 1").await.starts_with("42P05"));
    run(&client, "DEALLOCATE sel").await;
    assert!(refused(&client, "EXECUTE sel(1)").await.starts_with("26000"));
    assert_eq!(rows(&client, "SHOW TABLES").await, ["t"]);
    assert_eq!(rows(&client, "DESCRIBE t").await, ["id,integer,no,1,NULL", "name,text,yes,NULL,NULL"]);
    assert!(rows(&client, "EXPLAIN SELECT * FROM t").await.concat().contains('t'));
    assert!(refused(&client, "SHOW nonsense").await.starts_with("42704"));
}

#[tokio::test(flavor = "multi_thread")]
async fn declared_types_are_kept_and_told() {
    let server = Server::start().await;
    let client = server.connect().await;
    run(
        &client,
        "CREATE TABLE t (id int PRIMARY KEY, j jsonb, u uuid, v varchar(3), n numeric, d numeric(10,2))",
    )
    .await;
    let row = "(1, '{\"b\":1,  \"a\":[1,2]}', 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', 'abc', 1.50, 1.5)";
    run(&client, &format!("INSERT INTO t VALUES {row}")).await;
    let types: Vec<String> = client
        .prepare("SELECT * FROM t")
        .await
        .unwrap()
        .columns()
        .iter()
        .map(|column| column.type_().name().to_owned())
        .collect();
    assert_eq!(types, ["int4", "jsonb", "uuid", "varchar", "numeric", "numeric"]);
    let row = client.query_one("SELECT j, u FROM t", &[]).await.unwrap();
    assert_eq!(row.get::<_, serde_json::Value>(0), serde_json::json!({"a": [1, 2], "b": 1}));
    assert_eq!(row.get::<_, uuid::Uuid>(1).to_string(), "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11");
    assert_eq!(rows(&client, "SELECT n, d, n::text FROM t").await, ["1.5,1.50,1.5"]);
    let one = client.query_one("SELECT $1::jsonb", &[&serde_json::json!([1])]).await.unwrap();
    assert_eq!(one.get::<_, serde_json::Value>(0), serde_json::json!([1]));
    let long = refused(&client, "UPDATE t SET v = 'abcd'").await;
    assert_eq!(long, "22001: value too long for type character varying(3)");
    assert!(refused(&client, "INSERT INTO t (id, j) VALUES (2, '{')").await.starts_with("22P02"));
}

#[tokio::test(flavor = "multi_thread")]
async fn arrays_and_json_have_their_types() {
    let server = Server::start().await;
    let client = server.connect().await;
    run(&client, "CREATE TABLE t (id int PRIMARY KEY, j json)").await;
    run(&client, "INSERT INTO t VALUES (1, '{\"b\" : 1}'), (2, NULL)").await;
    let ids = async |condition: &str, array: Vec<i32>| -> Vec<i32> {
        let found = client.query(&format!("SELECT id FROM t WHERE {condition} ORDER BY id"), &[&array]).await;
        found.unwrap().iter().map(|row| row.get(0)).collect()
    };
    assert_eq!(ids("id = ANY ($1)", vec![1, 2, 7]).await, [1, 2]);
    assert_eq!(ids("id <> ALL ($1)", vec![1]).await, [2]);
    assert_eq!(ids("id > ALL ($1)", vec![0, 1]).await, [2]);
    let prepared = client.prepare("SELECT j, to_json(id), to_jsonb(id) FROM t").await.unwrap();
    let types: Vec<&str> = prepared.columns().iter().map(|column| column.type_().name()).collect();
    assert_eq!(types, ["json", "json", "jsonb"]);
    assert_eq!(rows(&client, "SELECT j FROM t WHERE id = 1").await, ["{\"b\" : 1}"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn psql_finds_its_way() {
    let server = Server::start().await;
    let port = server.running.addr.port().to_string();
    let psql = |input: &'static str| {
        let mut command = Command::new("psql");
        command.args(["-X", "-h", "127.0.0.1", "-p", &port, "-U", "root", "-d", "dev", "-c", input]);
        tokio::task::spawn_blocking(move || {
            let output = command.output().expect("psql is installed");
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
        })
    };
    psql("CREATE TABLE t (id int PRIMARY KEY, name text NOT NULL DEFAULT 'x')").await.unwrap();
    let described = psql("\\d t").await.unwrap();
    for part in ["Table \"public.t\"", "id     | integer", "not null", "'x'", "\"t_pkey\" PRIMARY KEY"] {
        assert!(described.contains(part), "{part} in {described}");
    }
    assert!(psql("\\dt").await.unwrap().contains("public | t    | table"));
    let error = psql("SELECT nme FROM t").await.unwrap();
    assert!(error.contains("LINE 1: SELECT nme FROM t") && error.contains("HINT:"), "{error}");
}
