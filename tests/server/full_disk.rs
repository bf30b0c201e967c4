//! A disk that is full: checkpoints and DML fail clearly, nothing is lost, and all goes on when there is
//! space again.

use crate::harness::{PATIENCE, Weir, run, try_rows, value, wait_for, words};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// A small disk of its own.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn new(megabytes: u32) -> SmallDisk {
        let path = tempfile::tempdir().expect("a directory").keep();
        let size = format!("size={megabytes}m");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "weir-test"]).arg(&path).status();
        assert!(mounted.expect("mount runs").success(), "mounting a small disk takes root");
        SmallDisk(path)
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    fn fill(&self) {
        use std::io::Write;
        let mut file = std::fs::File::create(self.filler()).expect("a file");
        // To the last byte.
        for piece in [1 << 16, 512, 1] {
            while file.write_all(&vec![0; piece]).is_ok() {}
        }
    }

    fn clear(&self) {
        std::fs::remove_file(self.filler()).expect("it is there");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: the server may still be at its end.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_loses_nothing_and_heals() {
    let disk = SmallDisk::new(64);
    let mut weir = Weir::on_disk(&disk.0, &["--set", "parallelism=2"]).await;
    let client = weir.connect().await;
    run(
        &client,
        "CREATE SOURCE bid WITH (connector = 'nexmark', nexmark.table.type = 'Bid', events = 300000, rate = 40000);
         CREATE MATERIALIZED VIEW v AS SELECT auction, bidder, count(*) AS n, sum(price) AS total FROM bid GROUP BY 1, 2;
         CREATE TABLE t (id int PRIMARY KEY, pad text);
         CREATE MATERIALIZED VIEW c AS SELECT count(*) AS n FROM t;
         INSERT INTO t VALUES (0, 'before'); CHECKPOINT",
    )
    .await;
    disk.fill();
    wait_for(&client, "SELECT count(*) FROM weir_catalog.alerts WHERE rule = 'disk full'", "1").await;
    // What was visible can be read, in another session; what can't be written is refused.
    assert_eq!(value(&weir.connect().await, "SELECT count(*) FROM t WHERE id = 0").await, "1");
    let mut acknowledged = 1;
    let deadline = Instant::now() + PATIENCE;
    for id in 1.. {
        let insert = format!("INSERT INTO t VALUES ({id}, repeat('x', 10000))");
        match client.batch_execute(&insert).await {
            Ok(()) => acknowledged += 1,
            Err(error) => {
                assert_eq!(error.code().map(|c| c.code()), Some("53100"), "{}", words(&error));
                break;
            }
        }
        assert!(Instant::now() < deadline, "the log takes everything");
    }
    let other = weir.connect().await;
    let refused = other.batch_execute("CREATE MATERIALIZED VIEW w AS SELECT * FROM t").await;
    assert_eq!(refused.expect_err("no space").code().map(|c| c.code()), Some("53100"));
    // Longer than a few restarts would take: none is counted against it.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(weir.is_alive());
    disk.clear();
    wait_for(&other, "SELECT count(*) FROM weir_catalog.alerts WHERE rule = 'disk full'", "0").await;
    wait_for(&other, "SELECT sum(n) FROM v", "276000").await;
    assert_eq!(value(&client, "SELECT n FROM c").await, acknowledged.to_string());
    run(&client, "INSERT INTO t VALUES (-1, 'after'); CHECKPOINT").await;
    weir.kill_and_restart().await;
    let client = weir.connect().await;
    assert_eq!(value(&client, "SELECT n FROM c").await, (acknowledged + 1).to_string());
    assert_eq!(value(&client, "SELECT sum(n) FROM v").await, "276000");
    assert!(try_rows(&client, "SELECT * FROM w").await.is_err());
}
