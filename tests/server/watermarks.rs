//! Watermarks through kills: the same rows are late, state stays small, windows close once.

use crate::harness::{Weir, rows, run, seed, value, wait_for};
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

const DELAY_S: i64 = 5;

/// Appends lines to a file of the source, and knows which of its rows are in time.
struct Lines {
    greatest: i64,
    in_time: BTreeSet<u32>,
    late: usize,
    next: u32,
}

impl Lines {
    fn new(first: u32) -> Self {
        Self { greatest: i64::MIN / 2, in_time: BTreeSet::new(), late: 0, next: first }
    }

    fn append(&mut self, file: &Path, rng: &mut StdRng, rows: usize) {
        let mut text = String::new();
        for _ in 0..rows {
            // Backwards as far as what was just in time, and a bit more.
            let second = self.greatest.max(20) + rng.random_range(-9..5);
            if second >= self.greatest - DELAY_S {
                self.in_time.insert(self.next);
            } else {
                self.late += 1;
            }
            self.greatest = self.greatest.max(second);
            let (minute, second) = (second / 60, second % 60);
            text += &format!("{{\"id\":{},\"ts\":\"2026-01-01 00:{minute:02}:{second:02}\"}}\n", self.next);
            self.next += 1;
        }
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(file).expect("a file");
        file.write_all(text.as_bytes()).expect("written");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_row_stays_late_through_kills_and_at_any_parallelism() {
    let mut rng = StdRng::seed_from_u64(seed());
    let dir = tempfile::tempdir().expect("a directory");
    let files = [dir.path().join("a.json"), dir.path().join("b.json")];
    let mut lines = [Lines::new(0), Lines::new(100_000)];
    for (lines, file) in lines.iter_mut().zip(&files) {
        lines.append(file, &mut rng, 20);
    }
    let mut weir = Weir::with(&["--parallelism", "1"], &[]).await;
    let mut client = weir.connect().await;
    let source = format!(
        "CREATE SOURCE s (id int, ts timestamp, WATERMARK FOR ts AS ts - INTERVAL '{DELAY_S} seconds') \
         WITH (connector = 'file', path = '{}/*.json', follow = true) FORMAT PLAIN ENCODE JSON",
        dir.path().display()
    );
    run(&client, &source).await;
    let mut views = vec!["v0".to_owned()];
    run(&client, "CREATE MATERIALIZED VIEW v0 AS SELECT id FROM s").await;
    for (round, parallelism) in ["2", "1", "4", "2", "1", "1"].into_iter().enumerate() {
        if rng.random_ratio(1, 2) {
            run(&client, "CHECKPOINT").await;
        }
        for (lines, file) in lines.iter_mut().zip(&files) {
            lines.append(file, &mut rng, 30);
        }
        if rng.random_ratio(1, 2) {
            // What was read of it may be taken back, or not.
            run(&client, "FLUSH").await;
        }
        weir.kill();
        for (lines, file) in lines.iter_mut().zip(&files) {
            lines.append(file, &mut rng, 5);
        }
        weir.set_options(&["--parallelism", parallelism]);
        weir.begin(&[]);
        weir.wait_ready().await;
        client = weir.connect().await;
        let expected: Vec<String> = lines.iter().flat_map(|l| &l.in_time).map(u32::to_string).collect();
        let late: usize = lines.iter().map(|l| l.late).sum();
        for view in &views {
            wait_for(&client, &format!("SELECT count(*) FROM {view}"), &expected.len().to_string()).await;
            let found = rows(&client, &format!("SELECT id FROM {view} ORDER BY id")).await;
            assert_eq!(found.concat(), expected, "{view} in round {round}");
        }
        assert!(late > 5, "there are late rows to find");
        let late = late.to_string();
        wait_for(&client, "SELECT count(*) FROM weir_catalog.dead_letters", &late).await;
        assert_eq!(value(&client, "SELECT late_rows FROM weir_catalog.sources").await, late);
        // One more job on the source, which reads the past by itself.
        let view = format!("v{}", views.len());
        run(&client, &format!("CREATE MATERIALIZED VIEW {view} AS SELECT id FROM s")).await;
        assert_eq!(rows(&client, &format!("SELECT id FROM {view} ORDER BY id")).await.concat(), expected);
        views.push(view);
    }
}

const WINDOWED: &str = "FROM TUMBLE(bid, date_time, INTERVAL '10 seconds')";

/// Views that would remember all windows if no watermark freed them: name and query.
fn windowed() -> [(&'static str, String); 5] {
    let counts =
        format!("SELECT window_start, auction, count(*) AS n {WINDOWED} GROUP BY window_start, auction");
    [
        (
            "agg",
            format!(
                "SELECT auction, window_start, count(*) AS n, count(DISTINCT bidder) AS d, max(price) AS m \
                 {WINDOWED} GROUP BY auction, window_start"
            ),
        ),
        (
            "hottest",
            format!(
                "SELECT c.window_start, c.auction, c.n FROM ({counts}) c JOIN (SELECT window_start, max(n) AS m \
                 FROM ({counts}) x GROUP BY window_start) m ON c.window_start = m.window_start WHERE c.n >= m.m"
            ),
        ),
        (
            "best",
            format!(
                "SELECT window_start, auction, price FROM (SELECT window_start, auction, price, row_number() \
                 OVER (PARTITION BY window_start ORDER BY price DESC, auction) AS rn {WINDOWED}) r WHERE rn <= 3"
            ),
        ),
        (
            "first",
            format!(
                "SELECT window_start, bidder, price FROM (SELECT window_start, bidder, price, row_number() \
                 OVER (PARTITION BY bidder, window_start ORDER BY date_time, price) AS rn {WINDOWED}) r WHERE rn = 1"
            ),
        ),
        ("closed", counts.clone()),
    ]
}

/// The bids of ten seconds: 200 of 30 auctions and 40 bidders.
fn bids_of(window: u32) -> String {
    let row = |i: u32| {
        let (auction, bidder, price) = ((i * 7 + window) % 30, (i * 13) % 40, (i * 31 + window * 17) % 997);
        let ms = window * 10_000 + i * 50;
        let (minute, second, ms) = (ms / 60_000, ms / 1000 % 60, ms % 1000);
        format!("({auction}, {bidder}, {price}, '2026-01-01 00:{minute:02}:{second:02}.{ms:03}')")
    };
    let rows: Vec<String> = (0..200).map(row).collect();
    format!("INSERT INTO bid VALUES {}", rows.join(", "))
}

#[tokio::test(flavor = "multi_thread")]
async fn state_stays_small_however_long_the_stream() {
    const WINDOWS: u32 = 40;
    let mut weir = Weir::with(&["--parallelism", "2"], &[]).await;
    let mut client = weir.connect().await;
    run(
        &client,
        "CREATE TABLE bid (auction int, bidder int, price int, date_time timestamp, \
         WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds') APPEND ONLY",
    )
    .await;
    for (name, query) in windowed() {
        let close = if name == "closed" { " EMIT ON WINDOW CLOSE" } else { "" };
        run(&client, &format!("CREATE MATERIALIZED VIEW {name} AS {query}{close}")).await;
    }
    let entries = "SELECT name, state_entries FROM weir_catalog.jobs WHERE name <> 'bid'";
    let mut most = std::collections::BTreeMap::<String, u64>::new();
    for window in 0..WINDOWS {
        run(&client, &bids_of(window)).await;
        if window % 13 == 12 {
            weir.kill_and_restart().await;
            client = weir.connect().await;
        }
        run(&client, "CHECKPOINT").await;
        for row in rows(&client, entries).await {
            let seen = most.entry(row[0].clone()).or_default();
            *seen = (*seen).max(row[1].parse().expect("a number"));
        }
    }
    // The last windows close, too.
    run(&client, "INSERT INTO bid VALUES (1, 1, 1, '2026-01-01 01:00:00')").await;
    for (name, query) in windowed() {
        let batch = format!("SELECT * FROM ({query}) q ORDER BY 1, 2, 3");
        let batch = if name == "closed" {
            batch.replace(" q ", " q WHERE window_start < TIMESTAMP '2026-01-01 01:00:00' ")
        } else {
            batch
        };
        let view = rows(&client, &format!("SELECT * FROM {name} ORDER BY 1, 2, 3")).await;
        assert_eq!(view, rows(&client, &batch).await, "{name}");
        assert!(view.len() >= WINDOWS as usize, "{name} has rows of all windows");
    }
    // What it would remember otherwise: the groups of all windows.
    let all = |name: &str| match name {
        "best" => u64::from(WINDOWS),
        "first" => u64::from(WINDOWS) * 40,
        _ => u64::from(WINDOWS) * 30,
    };
    assert_eq!(most.len(), windowed().len());
    for (name, most) in &most {
        assert!(*most > 0 && *most <= all(name) / 4, "{name} remembered {most} of {}", all(name));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn held_rows_of_a_join_are_given_once_after_a_kill() {
    let mut weir = Weir::with(&["--parallelism", "2"], &[]).await;
    let mut client = weir.connect().await;
    run(
        &client,
        "CREATE TABLE a (k int, ts timestamp, WATERMARK FOR ts AS ts) APPEND ONLY;
         CREATE TABLE b (k int, ts timestamp, WATERMARK FOR ts AS ts) APPEND ONLY",
    )
    .await;
    // Only the right side's columns are left, while rows lie where the left side's are hashed to.
    let windows = |t: &str| format!("TUMBLE({t}, ts, INTERVAL '10 seconds')");
    run(
        &client,
        &format!(
            "CREATE MATERIALIZED VIEW v AS SELECT r.window_start, r.k FROM {} l JOIN {} r \
             ON l.window_start = r.window_start AND l.k = r.k EMIT ON WINDOW CLOSE",
            windows("a"),
            windows("b")
        ),
    )
    .await;
    for table in ["a", "b"] {
        let rows = (0..40).map(|k| format!("({k}, '2026-01-01 00:00:05')")).collect::<Vec<_>>().join(", ");
        run(&client, &format!("INSERT INTO {table} VALUES {rows}")).await;
    }
    run(&client, "CHECKPOINT").await;
    weir.kill_and_restart().await;
    client = weir.connect().await;
    // Both actors of each table have to hear of it.
    for table in ["a", "b"] {
        let rows = (0..40).map(|k| format!("({k}, '2026-01-01 00:01:00')")).collect::<Vec<_>>().join(", ");
        run(&client, &format!("INSERT INTO {table} VALUES {rows}")).await;
    }
    wait_for(&client, "SELECT count(DISTINCT k) FROM v", "40").await;
    assert_eq!(value(&client, "SELECT count(*) FROM v").await, "40");
}
