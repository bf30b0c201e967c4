//! The server as a process: what it refuses at its start, what it says, how it ends.

use crate::harness::{PATIENCE, Weir, free_port};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Runs `weir` to its end.
fn weir(arguments: &[&str]) -> Output {
    let mut process = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let deadline = Instant::now() + PATIENCE;
    while process.try_wait().expect("it can be asked").is_none() {
        if Instant::now() > deadline {
            process.kill().expect("it ends");
            panic!("`weir {}` did not end", arguments.join(" "));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    process.wait_with_output().expect("its output")
}

fn refused(arguments: &[&str], expected: &str) {
    let output = weir(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(expected), "expected \"{expected}\" in: {said}");
}

/// The status line and the body of a GET.
fn get(port: u16, path: &str) -> (String, String) {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    write!(socket, "GET {path} HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.lines().next().unwrap_or_default().to_owned(), body.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_server_on_a_data_directory_is_refused() {
    let mut first = Weir::start().await;
    let data = first.data_dir().display().to_string();
    let (listen, http) = (format!("127.0.0.1:{}", free_port()), format!("127.0.0.1:{}", free_port()));
    let arguments = ["--data-dir", data.as_str(), "--listen", &listen, "--http", &http];
    refused(&arguments, "is in use by process");
    first.wait_ready().await;
    assert!(first.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_lock_is_gone_acknowledges_nothing_and_ends() {
    let mut first = Weir::with(&["--set", "checkpoint.interval=0"], &[]).await;
    let client = first.connect().await;
    client
        .batch_execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
        .await
        .expect("rows");
    std::fs::remove_file(first.data_dir().join("LOCK")).expect("it is there");
    let mut second = Weir::on_disk(&first.path(""), &[]).await;
    // Whether it is told why or finds the server gone.
    assert!(client.batch_execute("INSERT INTO t VALUES (2)").await.is_err());
    assert!(!first.wait_ended().await.success());
    assert!(first.log().contains("its file LOCK was removed or replaced"), "{}", first.log());
    let client = second.connect().await;
    client
        .batch_execute("INSERT INTO t VALUES (3); CHECKPOINT; INSERT INTO t VALUES (4)")
        .await
        .expect("rows");
    second.kill();
    second.begin(&[]);
    second.wait_ready().await;
    let rows = second.connect().await.query("SELECT id FROM t ORDER BY id", &[]).await.expect("rows");
    assert_eq!(rows.iter().map(|row| row.get::<_, i32>(0)).collect::<Vec<_>>(), [1, 3, 4]);
    // An idle one ends as well.
    std::fs::remove_file(second.data_dir().join("LOCK")).expect("it is there");
    assert!(!second.wait_ended().await.success());
}

#[test]
fn wrong_settings_are_refused() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let data = dir.path().join("data").display().to_string();
    refused(&["--data-dir", &data, "--listen", "0.0.0.0:0"], "without authentication only loopback");
    refused(
        &["--data-dir", &data, "--set", "checkpoint.intervall=1s"],
        "unrecognized configuration parameter",
    );
    refused(&["--data-dir", &data, "--set", "memory.limit=lots"], "invalid value for parameter");
    refused(&["--data-dir", &data, "--set", "checkpoint.timeout=0"], "hint: Write a time from 100ms to 1d.");
    let file = dir.path().join("weir.toml");
    std::fs::write(&file, "[checkpoint]\nmax_retained = 0\n").expect("written");
    refused(&["--data-dir", &data, "--config", &file.display().to_string()], "outside the valid range");
    assert!(!dir.path().join("data").exists(), "nothing was made");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_ends_cleanly_when_told() {
    let mut weir = Weir::start().await;
    let client = weir.connect().await;
    client.batch_execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1), (2)").await.expect("rows");
    client.batch_execute("CREATE MATERIALIZED VIEW v AS SELECT sum(a) AS s FROM t").await.expect("a view");
    assert!(weir.terminate().await.success(), "{}", weir.log());
    assert!(weir.log().contains("last checkpoint"), "{}", weir.log());
    weir.begin(&[]);
    weir.wait_ready().await;
    let row = weir.connect().await.query_one("SELECT s FROM v", &[]).await.expect("a row");
    assert_eq!(row.get::<_, i64>(0), 3);
    assert!(weir.terminate().await.success());
}

#[test]
fn health_and_metrics_answer() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (listen, http) = (free_port(), free_port());
    let mut process = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["--data-dir", &dir.path().display().to_string()])
        .args(["--listen", &format!("127.0.0.1:{listen}"), "--http", &format!("127.0.0.1:{http}")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(("127.0.0.1", listen)).is_err() {
        assert!(Instant::now() < deadline, "it does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
    while !get(http, "/readyz").0.contains("200") {
        assert!(Instant::now() < deadline, "it is not ready");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(get(http, "/healthz"), ("HTTP/1.1 200 OK".to_owned(), "ok\n".to_owned()));
    let names = ["weir_dataflow_ready 1", "weir_serve_queries_total", "weir_wire_connections 0"];
    // The connections that found out whether it listens may still be closing.
    loop {
        let metrics = get(http, "/metrics").1;
        if names.iter().all(|name| metrics.contains(name)) {
            break;
        }
        assert!(Instant::now() < deadline, "{names:?} in:\n{metrics}");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(get(http, "/nosuch").0.contains("404"));
    // It answers before it says so: the line is awaited (its end of file, were it to end, fails the
    // assertion), and only then is the process ended.
    let mut said = String::new();
    let mut lines = BufReader::new(process.stdout.take().expect("its output")).lines();
    while !said.contains("psql -h") {
        let Some(line) = lines.next() else { break };
        said.push_str(&line.expect("a line"));
    }
    process.kill().expect("it ends");
    process.wait().expect("it ended");
    assert!(said.contains(&format!("psql -h 127.0.0.1 -p {listen} -U root -d dev")), "{said}");
}
