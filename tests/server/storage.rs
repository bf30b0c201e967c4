//! Checkpoints in an object store: a real S3 server that may go away, disks that are lost, kills at
//! every step, two servers on one storage.

use crate::harness::{PATIENCE, Weir, free_port, rows, run, try_rows, value, wait_for, words};
use crate::s3_server;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

const BUCKET: &str = "weir";

/// An S3 server in this process, over a directory; clients sign their requests.
pub struct S3 {
    dir: TempDir,
    port: u16,
    running: Option<CancellationToken>,
}

impl S3 {
    /// One with an empty bucket, answering.
    pub async fn start() -> S3 {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(dir.path().join(BUCKET)).expect("a bucket");
        let mut s3 = S3 { dir, port: free_port(), running: None };
        s3.begin().await;
        s3
    }

    /// It answers (again).
    pub async fn begin(&mut self) {
        let listener =
            tokio::net::TcpListener::bind(("127.0.0.1", self.port)).await.expect("its port is free");
        let (stop, dir) = (CancellationToken::new(), self.dir.path().to_owned());
        self.running = Some(stop.clone());
        tokio::spawn(async move { s3_server::serve(&dir, listener, stop).await });
    }

    /// It goes away, with all its connections.
    pub fn end(&mut self) {
        if let Some(running) = self.running.take() {
            running.cancel();
        }
    }

    /// The URL of a path in the bucket.
    pub fn url(&self, path: &str) -> String {
        let port = self.port;
        format!("s3://{BUCKET}/{path}?endpoint=http://127.0.0.1:{port}&region=eu-central-1&allow_http=true")
    }

    /// What there is in a folder below `path`.
    pub fn objects(&self, path: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut dirs = vec![self.dir.path().join(BUCKET).join(path)];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).into_iter().flatten() {
                let path = entry.expect("the directory is ours").path();
                if path.is_dir() { dirs.push(path) } else { found.push(path) }
            }
        }
        found
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        self.end();
    }
}

/// What a server needs to know of it; the secrets are nowhere else.
pub const CREDENTIALS: [(&str, &str); 2] =
    [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret")];

fn with(more: (&'static str, &'static str)) -> [(&'static str, &'static str); 3] {
    [CREDENTIALS[0], CREDENTIALS[1], more]
}

/// A server whose checkpoints go to `url`, triggered by the test alone where `interval` is 0.
async fn weir_at(url: &str, interval: &str) -> Weir {
    let storage = format!("checkpoint.storage={url}");
    let interval = format!("checkpoint.interval={interval}");
    let options = ["--set", &storage, "--set", &interval, "--set", "checkpoint.storage_retries=1"];
    Weir::with(&options, &CREDENTIALS).await
}

async fn restart(weir: &mut Weir, environment: &[(&str, &str)]) {
    weir.begin(environment);
    weir.wait_ready().await;
}

/// As a new disk, on which only what can't be made anew was put back.
fn lose_checkpoints(weir: &Weir) {
    std::fs::remove_dir_all(weir.data_dir().join("checkpoints")).expect("there are some");
}

const TABLES: &str = "CREATE TABLE t (id int PRIMARY KEY, v bigint, note varchar);
    CREATE MATERIALIZED VIEW sums AS SELECT count(*) AS n, sum(v) AS total FROM t;
    CREATE MATERIALIZED VIEW groups AS SELECT v % 7 AS k, count(*) AS n, max(note) AS m FROM t GROUP BY v % 7;";

/// Everything that is derived is what a query computes now.
async fn assert_exact(weir: &Weir, expected: usize, what: &str) {
    let client = weir.connect().await;
    run(&client, "FLUSH").await;
    assert_eq!(value(&client, "SELECT count(*) FROM t").await, expected.to_string(), "{what}");
    let both = [
        ("SELECT n, total FROM sums", "SELECT count(*), sum(v) FROM t"),
        (
            "SELECT k, n, m FROM groups ORDER BY 1",
            "SELECT v % 7, count(*), max(note) FROM t GROUP BY v % 7 ORDER BY 1",
        ),
    ];
    for (view, batch) in both {
        assert_eq!(rows(&client, view).await, rows(&client, batch).await, "{what}: {view}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_is_to_outlive_the_data_directory_goes_there() {
    let weir = Weir::start().await;
    let client = weir.connect().await;
    let data = weir.data_dir();
    for (place, what) in [(data.clone(), "is"), (data.join("x/y"), "lies in"), (weir.path(""), "holds")] {
        let url = format!("file://{}", place.display());
        for sql in
            [format!("SAVEPOINT TO '{url}'"), format!("ALTER DATABASE dev SET checkpoint.storage = '{url}'")]
        {
            let error = client.batch_execute(&sql).await.expect_err("it would be lost with the directory");
            let error = error.as_db_error().expect("the server's");
            assert_eq!(error.code().code(), "22023");
            assert!(error.message().contains(&format!("{what} the data directory")), "{error}");
            assert!(error.hint().is_some_and(|hint| hint.contains("beside it")), "{error}");
        }
    }
    assert!(!data.join("x").exists(), "nothing was made");
    let new = weir.path("new").join("data");
    let (listen, http) = (format!("127.0.0.1:{}", free_port()), format!("127.0.0.1:{}", free_port()));
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["serve", "--listen", &listen, "--http", &http, "--data-dir"])
        .arg(&new)
        .args(["--set", &format!("checkpoint.storage=file://{}/x", new.display())])
        .output()
        .expect("it runs");
    assert!(String::from_utf8_lossy(&output.stderr).contains("lies in the data directory"), "{output:?}");
    assert!(!new.exists(), "nothing was made");
}

#[tokio::test(flavor = "multi_thread")]
async fn state_comes_back_from_s3_when_the_disk_has_lost_its_checkpoints() {
    let s3 = S3::start().await;
    let mut weir = weir_at(&s3.url("some/path"), "0").await;
    let client = weir.connect().await;
    run(&client, TABLES).await;
    let mut expected = 0;
    for round in 0..5 {
        let client = weir.connect().await;
        run(
            &client,
            &format!(
                "INSERT INTO t SELECT i, i * 3, 'note ' || i FROM generate_series({}, {}) AS g(i)",
                expected + 1,
                expected + 500
            ),
        )
        .await;
        run(&client, "CHECKPOINT").await;
        // What came after the checkpoint is in the DML log, which is on the disk.
        run(&client, &format!("INSERT INTO t VALUES ({}, 1, 'late')", expected + 501)).await;
        expected += 501;
        if round % 2 == 0 {
            weir.kill();
            lose_checkpoints(&weir);
            restart(&mut weir, &CREDENTIALS).await;
        }
        assert_exact(&weir, expected, &format!("round {round}")).await;
    }
    let client = weir.connect().await;
    let uploaded =
        "SELECT count(*) FROM weir_catalog.checkpoints WHERE status = 'completed' AND uploaded_bytes > 0";
    assert_ne!(value(&client, uploaded).await, "0");
    assert!(weir.log().contains("checkpoint downloaded"), "{}", weir.log());
    assert!(!weir.log().contains("secret"), "{}", weir.log());
    // All that is kept is what three checkpoints need.
    run(&client, "CHECKPOINT; CHECKPOINT; CHECKPOINT").await;
    let is_small = |object: &&PathBuf| object.to_string_lossy().contains("/small/");
    let checkpoints = |s3: &S3| s3.objects("some/path").iter().filter(is_small).count();
    let deadline = Instant::now() + PATIENCE;
    while checkpoints(&s3) != 3 {
        assert!(Instant::now() < deadline, "{:?}", s3.objects("some/path"));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_files_go_in_parts() {
    let s3 = S3::start().await;
    let mut weir = weir_at(&s3.url("large"), "0").await;
    let client = weir.connect().await;
    run(&client, "ALTER DATABASE dev SET checkpoint.compression = 'none'").await;
    run(&client, TABLES).await;
    let insert = "INSERT INTO t SELECT i, i, md5(i::varchar) || md5((i * 7)::varchar) || md5((i * 11)::varchar) \
                  FROM generate_series(1, 150000) AS g(i)";
    run(&client, insert).await;
    run(&client, "CHECKPOINT").await;
    let largest = s3.objects("large").iter().map(|o| std::fs::metadata(o).map_or(0, |m| m.len())).max();
    assert!(largest > Some(8 << 20), "the largest file has {largest:?} bytes");
    weir.kill();
    lose_checkpoints(&weir);
    restart(&mut weir, &CREDENTIALS).await;
    assert_exact(&weir, 150_000, "after a download").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_that_is_away_costs_checkpoints_and_nothing_else() {
    let mut s3 = S3::start().await;
    let mut weir = weir_at(&s3.url(""), "200ms").await;
    let client = weir.connect().await;
    run(&client, "ALTER DATABASE dev SET checkpoint.tolerable_failures = 0").await;
    run(&client, TABLES).await;
    run(&client, "INSERT INTO t VALUES (1, 1, 'a')").await;
    run(&client, "CHECKPOINT").await;
    s3.end();
    let failing = "SELECT count(*) FROM weir_catalog.alerts WHERE rule = 'checkpoints fail'";
    let aborted = "SELECT count(*) > 3 FROM weir_catalog.checkpoints WHERE status = 'aborted'";
    let mut id = 1;
    let deadline = Instant::now() + PATIENCE;
    // Results go on all the while.
    while value(&client, aborted).await != "t" {
        id += 1;
        run(&client, &format!("INSERT INTO t VALUES ({id}, {id}, 'b')")).await;
        assert_eq!(value(&client, "SELECT n FROM sums").await, id.to_string());
        assert!(Instant::now() < deadline, "checkpoints go on without a storage:\n{}", weir.log());
    }
    assert_eq!(value(&client, failing).await, "1");
    let error = try_rows(&client, "CHECKPOINT").await.expect_err("there is no storage");
    assert!(!words(&error).contains("secret"), "{}", words(&error));
    assert_eq!(value(&client, "SELECT DISTINCT status FROM weir_catalog.jobs").await, "running");
    assert!(!weir.log().contains("restarting the dataflow"), "{}", weir.log());
    // A start without it, from what is on the disk.
    weir.kill();
    restart(&mut weir, &CREDENTIALS).await;
    assert_exact(&weir, id, "without the storage").await;
    // It heals by itself.
    s3.begin().await;
    let client = weir.connect().await;
    run(&client, "INSERT INTO t VALUES (0, 0, 'c')").await;
    wait_for(&client, "SELECT count(*) > 0 FROM weir_catalog.checkpoints WHERE status = 'completed'", "t")
        .await;
    wait_for(&client, failing, "0").await;
    run(&client, "CHECKPOINT").await;
    weir.kill();
    lose_checkpoints(&weir);
    restart(&mut weir, &CREDENTIALS).await;
    assert_exact(&weir, id + 1, "with the storage alone").await;
    // With neither there is nothing to start from, and it does not start from nothing.
    weir.kill();
    lose_checkpoints(&weir);
    s3.end();
    weir.begin(&CREDENTIALS);
    assert!(!weir.wait_ended().await.success());
    assert!(weir.log().contains("could not read checkpoint.storage"), "{}", weir.log());
    s3.begin().await;
    restart(&mut weir, &CREDENTIALS).await;
    assert_exact(&weir, id + 1, "the storage is back").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_step_nothing_is_lost_with_or_without_the_disk() {
    let s3 = S3::start().await;
    let mut weir = weir_at(&s3.url("kills"), "50ms").await;
    let client = weir.connect().await;
    run(&client, "ALTER DATABASE dev SET checkpoint.max_retained = 2").await;
    run(&client, TABLES).await;
    run(&client, "CHECKPOINT").await;
    drop(client);
    let mut id = 0;
    let points = [
        "storage.before_take",
        "storage.after_take",
        "storage.before_shared:3",
        "storage.after_shared:3",
        "storage.before_small:3",
        "storage.after_small:3",
        "checkpoint.before_manifest:3",
        "manifest.after_rename:3",
        "storage.before_publish:3",
        "storage.after_publish:3",
        "storage.before_forget:3",
        "storage.after_forget:3",
        "storage.before_remove:4",
        "restore.between_files",
        "restore.before_rename",
        "restore.after_rename",
    ];
    for (number, point) in points.into_iter().enumerate() {
        weir.kill();
        let lost = number % 2 == 0 || point.starts_with("restore");
        if lost {
            lose_checkpoints(&weir);
        }
        let spec: &'static str = Box::leak(format!("{point}=kill").into_boxed_str());
        weir.begin(&with(("WEIR_FAILPOINT", spec)));
        let deadline = Instant::now() + PATIENCE;
        // Whatever is acknowledged until it dies counts.
        while weir.is_alive() {
            assert!(Instant::now() < deadline, "{point} was not hit:\n{}", weir.log());
            if let Some(client) = weir.try_connect().await {
                let insert = |id: usize| format!("INSERT INTO t VALUES ({id}, {id}, 'n{id}')");
                while client.batch_execute(&insert(id + 1)).await.is_ok() {
                    id += 1;
                    assert!(Instant::now() < deadline, "{point} was not hit:\n{}", weir.log());
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        weir.kill();
        restart(&mut weir, &CREDENTIALS).await;
        let client = weir.connect().await;
        // The last one may have been logged, and not acknowledged any more.
        let n: usize = value(&client, "SELECT count(*) FROM t").await.parse().expect("a number");
        assert!(n == id || n == id + 1, "{point}: {n} rows, {id} were acknowledged");
        id = n;
        assert_exact(&weir, n, point).await;
    }
    run(&weir.connect().await, "CHECKPOINT").await;
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("it is there") {
        let path = entry.expect("it is there").path();
        let target = to.join(path.file_name().expect("it has a name"));
        match path.is_dir() {
            true => copy(&path, &target),
            false => drop(std::fs::copy(&path, &target).expect("it can be copied")),
        }
    }
}

/// A server with a row and a checkpoint at `url`, and one with a copy of its data directory; both ended.
async fn copied(url: &str) -> (Weir, Weir) {
    let mut from = weir_at(url, "0").await;
    run(&from.connect().await, TABLES).await;
    run(&from.connect().await, "INSERT INTO t VALUES (1, 1, 'a')").await;
    run(&from.connect().await, "CHECKPOINT").await;
    from.kill();
    let mut to = weir_at(url, "0").await;
    to.kill();
    std::fs::remove_dir_all(to.data_dir()).expect("it has ended");
    copy(&from.data_dir(), &to.data_dir());
    (from, to)
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_servers_on_one_storage_the_later_one_writes() {
    let s3 = S3::start().await;
    let url = s3.url("both");
    let (mut first, mut second) = copied(&url).await;
    restart(&mut first, &CREDENTIALS).await;
    // The same generation is not taken twice; a later one fences the first server off.
    second.begin(&CREDENTIALS);
    assert!(!second.wait_ended().await.success());
    assert!(second.log().contains("of this database already writes to the storage"), "{}", second.log());
    run(&first.connect().await, "INSERT INTO t VALUES (2, 2, 'b')").await;
    run(&first.connect().await, "CHECKPOINT").await;
    restart(&mut second, &CREDENTIALS).await;
    run(&second.connect().await, "INSERT INTO t VALUES (3, 3, 'c')").await;
    run(&second.connect().await, "CHECKPOINT").await;
    let error = try_rows(&first.connect().await, "CHECKPOINT").await;
    let error = words(&error.expect_err("it was fenced off"));
    assert!(error.contains("was fenced off by generation"), "{error}");
    // It still answers, and says what is the matter.
    let client = first.connect().await;
    assert_eq!(value(&client, "SELECT n FROM sums").await, "2");
    let alerts = "SELECT message FROM weir_catalog.alerts WHERE rule = 'checkpoints fail'";
    assert!(value(&client, alerts).await.contains("fenced off"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_the_data_directory_goes_on_from_the_storage() {
    let s3 = S3::start().await;
    let url = s3.url("disaster");
    let (mut lost, mut new) = copied(&url).await;
    for scratch in ["checkpoints", "live"] {
        std::fs::remove_dir_all(new.data_dir().join(scratch)).expect("it is not needed");
    }
    // The server goes on for a while, and is started more than once, before its disk is lost.
    for id in 2..5 {
        restart(&mut lost, &CREDENTIALS).await;
        run(&lost.connect().await, &format!("INSERT INTO t VALUES ({id}, {id}, 'b')")).await;
        run(&lost.connect().await, "CHECKPOINT").await;
        lost.kill();
    }
    new.begin(&CREDENTIALS);
    assert!(!new.wait_ended().await.success());
    assert!(new.log().contains("checkpoint.take_over = on"), "{}", new.log());
    let storage = format!("checkpoint.storage={url}");
    new.set_options(&["--set", &storage, "--set", "checkpoint.take_over=on"]);
    restart(&mut new, &CREDENTIALS).await;
    assert_exact(&new, 4, "from the storage").await;
    run(&new.connect().await, "INSERT INTO t VALUES (5, 5, 'c')").await;
    run(&new.connect().await, "CHECKPOINT").await;
    run(&new.connect().await, "INSERT INTO t VALUES (6, 6, 'd')").await;
    new.set_options(&["--set", &storage]);
    new.kill();
    restart(&mut new, &CREDENTIALS).await;
    assert_exact(&new, 6, "as ever").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_storage_is_changed_while_the_server_runs() {
    let (one, other) = (S3::start().await, S3::start().await);
    let mut weir = Weir::with(&["--set", "checkpoint.interval=0"], &CREDENTIALS).await;
    let client = weir.connect().await;
    run(&client, TABLES).await;
    let urls = [one.url("a"), "local".to_owned(), other.url("b"), one.url("a")];
    for (number, url) in urls.iter().enumerate() {
        let client = weir.connect().await;
        run(&client, &format!("ALTER DATABASE dev SET checkpoint.storage = '{url}'")).await;
        run(&client, &format!("INSERT INTO t VALUES ({number}, {number}, 'x')")).await;
        run(&client, "CHECKPOINT").await;
        weir.kill();
        if url != "local" {
            lose_checkpoints(&weir);
        }
        restart(&mut weir, &CREDENTIALS).await;
        assert_exact(&weir, number + 1, url).await;
    }
}
