//! Checkpoints in a real HDFS: a mini cluster from Maven Central (`scripts/hdfs.sh` fetches it).

use crate::harness::{PATIENCE, Weir, free_port, run, value};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A name node and a data node in one process.
struct Hdfs {
    dir: TempDir,
    port: u16,
    process: Child,
}

impl Hdfs {
    fn start() -> Hdfs {
        let cache = std::env::var_os("WEIR_CACHE").map(PathBuf::from);
        let cache = cache
            .unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").expect("a home")).join(".cache/weir"));
        let jars = cache.join("hadoop-minicluster-3.4.2");
        assert!(jars.is_dir(), "{} is missing: run scripts/hdfs.sh, as `make test` does", jars.display());
        let dir = tempfile::tempdir().expect("a temporary directory");
        let port = free_port();
        let log = std::fs::File::create(dir.path().join("log")).expect("a file");
        let process = Command::new("java")
            .args(["-Xmx384m", "-cp", &format!("{}/*", jars.display())])
            .args(["org.apache.hadoop.test.MiniDFSClusterManager", "-format", "-datanodes", "1"])
            .args(["-nnport", &port.to_string(), "-httpport", "0"])
            .arg("-writeDetails")
            .arg(dir.path().join("ready"))
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .expect("java runs");
        let mut hdfs = Hdfs { dir, port, process };
        let deadline = Instant::now() + PATIENCE;
        while !hdfs.dir.path().join("ready").exists() {
            let log = || std::fs::read_to_string(hdfs.dir.path().join("log")).unwrap_or_default();
            assert!(matches!(hdfs.process.try_wait(), Ok(None)), "HDFS ended:\n{}", log());
            assert!(Instant::now() < deadline, "HDFS does not start:\n{}", log());
            std::thread::sleep(Duration::from_millis(100));
        }
        hdfs
    }
}

impl Drop for Hdfs {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn state_comes_back_from_hdfs_when_the_disk_has_lost_its_checkpoints() {
    let hdfs = Hdfs::start();
    let storage = format!("checkpoint.storage=hdfs://127.0.0.1:{}/weir/dev", hdfs.port);
    let options = ["--set", &storage, "--set", "checkpoint.interval=0", "--set", "checkpoint.max_retained=2"];
    let mut weir = Weir::with(&options, &[]).await;
    let client = weir.connect().await;
    run(&client, "CREATE TABLE t (id int PRIMARY KEY, note varchar)").await;
    run(&client, "CREATE MATERIALIZED VIEW s AS SELECT count(*) AS n, max(note) AS m FROM t").await;
    let mut expected = 0;
    for _ in 0..3 {
        let client = weir.connect().await;
        for _ in 0..3 {
            let insert = "INSERT INTO t SELECT i, md5(i::varchar) FROM generate_series";
            run(&client, &format!("{insert}({}, {}) AS g(i)", expected + 1, expected + 5000)).await;
            run(&client, "CHECKPOINT").await;
            expected += 5000;
        }
        weir.kill();
        std::fs::remove_dir_all(weir.data_dir().join("checkpoints")).expect("there are some");
        weir.begin(&[]);
        weir.wait_ready().await;
        let client = weir.connect().await;
        assert_eq!(value(&client, "SELECT n FROM s").await, expected.to_string());
        assert_eq!(value(&client, "SELECT count(*) FROM t, s WHERE t.note = s.m").await, "1");
    }
    assert_eq!(weir.log().matches("checkpoint downloaded").count(), 3, "{}", weir.log());
}
