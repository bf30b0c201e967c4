//! Barriers that overtake: slow jobs hold no checkpoint up, and a restore from such a checkpoint loses
//! nothing and repeats nothing, at the same parallelism or another one.

use crate::harness::{PATIENCE, Postgres, Weir, rows, run, value, wait_for};
use crate::storage::{CREDENTIALS, S3};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// What makes each batch of the view and of the sink on the source slow.
const SLOW: (&str, &str) = ("WEIR_FAILPOINT", "batch.of_job_16385=sleep:400, batch.of_job_16386=sleep:400");
/// The same, where checkpoints may be elsewhere.
const ENVIRONMENT: [(&str, &str); 3] = [SLOW, CREDENTIALS[0], CREDENTIALS[1]];
const ROWS: usize = 60_000;

const TOTALS: &str = "SELECT bidder, count(*) AS n, sum(price) AS total, max(id) AS newest FROM bid \
                      GROUP BY bidder";

/// Puts rows `range` where the source finds them.
fn offer(weir: &Weir, name: &str, range: std::ops::Range<usize>) {
    let rows: String = range.map(|id| format!("{id},{},{}\n", id % 97, id % 1013)).collect();
    let unseen = weir.path(name);
    std::fs::write(&unseen, rows).expect("written");
    std::fs::rename(unseen, weir.path("in").join(format!("{name}.csv"))).expect("renamed");
}

async fn pipeline(weir: &Weir, postgres: &Postgres, files: &Path) {
    run(
        &weir.connect().await,
        &format!(
            "CREATE SOURCE bid (id bigint, bidder bigint, price bigint) WITH (connector = 'file', path = '{}/*.csv', follow = true)
               FORMAT PLAIN ENCODE CSV (header = false);
             CREATE MATERIALIZED VIEW totals AS {TOTALS};
             CREATE SINK bids AS SELECT id, bidder, price FROM bid
               WITH (connector = 'file', path = '{}', type = 'append-only', commit_every = 1)
               FORMAT PLAIN ENCODE JSON;
             CREATE SINK per_bidder FROM totals
               WITH (connector = 'postgres', type = 'upsert', primary_key = 'bidder', hostname = '127.0.0.1',
                     port = '{}', username = 'postgres', database.name = 'postgres', table.name = 'per_bidder');
             ALTER DATABASE dev SET barrier.interval = '5min';
             CHECKPOINT;",
            weir.path("in").display(),
            files.display(),
            postgres.port(),
        ),
    )
    .await;
}

/// The lines of the published files, sorted.
fn lines_in(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path());
    let mut lines = Vec::new();
    for path in names.filter(|p| p.extension().is_some_and(|e| e == "json")) {
        if path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(['.', '_'])) {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a published file is readable");
        lines.extend(text.lines().map(str::to_owned));
    }
    lines.sort_unstable();
    lines
}

/// Waits until the source has read so much that the slow jobs have a queue.
async fn wait_queue(weir: &Weir) -> Client {
    let client = weir.connect().await;
    let read = "SELECT rows_read >= 20000 FROM weir_catalog.sources WHERE name = 'bid'";
    wait_for(&client, read, "t").await;
    client
}

const NEWEST: &str = "SELECT kind, status FROM weir_catalog.checkpoints ORDER BY epoch DESC LIMIT 1";

fn checkpoints_in(log: &str) -> usize {
    log.matches("checkpoint completed").count()
}

/// Starts it slow, and kills it once it has made a checkpoint of what it replays.
async fn killed_while_it_replays(weir: &mut Weir) {
    let before = checkpoints_in(&weir.log());
    weir.begin(&ENVIRONMENT);
    let deadline = Instant::now() + PATIENCE;
    while checkpoints_in(&weir.log()) == before {
        assert!(Instant::now() < deadline, "no checkpoint after the restart:\n{}", weir.log());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    weir.kill();
}

/// With `s3` the disk is lost as well.
async fn overtaken_and_restored(before: usize, after: usize, s3: Option<&S3>) {
    let (before, after) = (format!("parallelism={before}"), format!("parallelism={after}"));
    let common = ["--set", "checkpoint.interval=0", "--set"];
    let options = |parallelism| [common.as_slice(), &[parallelism]].concat();
    let postgres = Postgres::start().await;
    let target = postgres.connect().await;
    run(
        &target,
        "CREATE TABLE per_bidder (bidder bigint PRIMARY KEY, n bigint, total numeric, newest bigint)",
    )
    .await;
    let url = s3.map(|s3| s3.url("overtaken")).unwrap_or_default();
    let storage = format!("checkpoint.storage={url}");
    let mut weir = Weir::with(&[&options(&before), &["--set", &storage][..]].concat(), &CREDENTIALS).await;
    let files = weir.path("bids");
    std::fs::create_dir(weir.path("in")).expect("a directory");
    offer(&weir, "a", 0..1000);
    pipeline(&weir, &postgres, &files).await;
    weir.kill();
    weir.begin(&ENVIRONMENT);
    weir.wait_ready().await;
    offer(&weir, "b", 1000..ROWS);
    let client = wait_queue(&weir).await;
    run(&client, "ALTER DATABASE dev SET checkpoint.timeout = '1s'").await;
    let error = client.batch_execute("CHECKPOINT").await.expect_err("it takes seconds");
    let message = error.as_db_error().expect("the server's").message().to_owned();
    assert!(message.contains("timed out"), "{message}");
    // What follows may take as long as it likes, on a machine that has much else to do.
    let settings = "ALTER DATABASE dev SET checkpoint.aligned_timeout = '100ms';
                    ALTER DATABASE dev SET checkpoint.timeout = '10min'";
    run(&client, settings).await;
    let released = lines_in(&files).len();
    // From here on again: in the queue that there is, the barrier would still be waited for.
    weir.kill();
    weir.begin(&ENVIRONMENT);
    weir.wait_ready().await;
    let client = wait_queue(&weir).await;
    run(&client, "CHECKPOINT").await;
    assert_eq!(rows(&client, NEWEST).await, [["unaligned", "completed"]]);
    let visible: usize =
        value(&client, "SELECT coalesce(sum(n), 0) FROM totals").await.parse().expect("a number");
    assert!(visible < 20_000, "{visible} rows are visible of what was not waited for");
    weir.kill();
    assert_eq!(lines_in(&files).len(), released, "nothing is released by it");
    if s3.is_some() {
        std::fs::remove_dir_all(weir.data_dir()).expect("it has ended");
        let restoring = ["--restore", &url, "--set", "checkpoint.take_over=on"];
        weir.set_options(&[&options(&after), &restoring[..]].concat());
        weir.begin(&ENVIRONMENT);
        weir.wait_ready().await;
        weir.kill();
    }
    weir.set_options(&options(&after));
    killed_while_it_replays(&mut weir).await;
    killed_while_it_replays(&mut weir).await;
    weir.begin(&CREDENTIALS);
    weir.wait_ready().await;
    let client = weir.connect().await;
    // On a machine that has much else to do a barrier may take long.
    run(&client, "ALTER DATABASE dev SET barrier.interval = '100ms'").await;
    run(&client, "ALTER DATABASE dev SET checkpoint.aligned_timeout = '10min'").await;
    wait_for(&client, "SELECT sum(n) FROM totals", &ROWS.to_string()).await;
    run(&client, &format!("CREATE MATERIALIZED VIEW anew AS {TOTALS}; CHECKPOINT")).await;
    assert_eq!(rows(&client, NEWEST).await, [["aligned", "completed"]]);
    let expected = rows(&client, "SELECT * FROM anew ORDER BY bidder").await;
    assert_eq!(rows(&client, "SELECT * FROM totals ORDER BY bidder").await, expected);
    wait_for(&target, "SELECT sum(n) FROM per_bidder", &ROWS.to_string()).await;
    assert_eq!(rows(&target, "SELECT * FROM per_bidder ORDER BY bidder").await, expected);
    let deadline = Instant::now() + PATIENCE;
    while lines_in(&files).len() < ROWS {
        assert!(Instant::now() < deadline, "{} bids", lines_in(&files).len());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut lines = lines_in(&files);
    assert_eq!(lines.len(), ROWS);
    lines.dedup();
    assert_eq!(lines.len(), ROWS, "each once");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overtaken_checkpoint_is_restored_exactly() {
    overtaken_and_restored(2, 2, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overtaken_checkpoint_is_restored_with_more_actors() {
    overtaken_and_restored(1, 2, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overtaken_checkpoint_is_restored_with_fewer_actors() {
    overtaken_and_restored(3, 1, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overtaken_checkpoint_is_restored_on_another_machine() {
    overtaken_and_restored(2, 3, Some(&S3::start().await)).await;
}

/// A sink has logged rows of keys of which more are in its queue, and gets other actors: the rows of a key
/// are one actor's, or the older might be committed after the newer. (With three actors and then two they were.)
#[tokio::test(flavor = "multi_thread")]
async fn keys_stay_together_in_two_phases_with_other_actors() {
    let options = |parallelism| ["--parallelism", parallelism, "--set", "checkpoint.interval=0"];
    let postgres = Postgres::start().await;
    let target = postgres.connect().await;
    run(&target, "CREATE TABLE target (id int PRIMARY KEY, v int)").await;
    let mut weir = Weir::with(&options("3"), &[]).await;
    let create = format!(
        "CREATE TABLE t (id int PRIMARY KEY, v int);
         CREATE SINK k FROM t WITH (connector = 'postgres', commit_mode = 'two_phase', type = 'upsert',
           primary_key = 'id', hostname = '127.0.0.1', port = '{}', username = 'postgres',
           database.name = 'postgres', table.name = 'target');
         INSERT INTO t SELECT i, 0 FROM generate_series(1, 300) AS g(i)",
        postgres.port()
    );
    run(&weir.connect().await, &create).await;
    run(&weir.connect().await, "CHECKPOINT").await;
    wait_for(&target, "SELECT count(*) FROM target", "300").await;
    run(&weir.connect().await, "ALTER DATABASE dev SET checkpoint.aligned_timeout = '100ms'").await;
    weir.kill();
    weir.begin(&[("WEIR_FAILPOINT", "batch.of_job_16385=sleep:600")]);
    weir.wait_ready().await;
    let client = weir.connect().await;
    for _ in 0..5 {
        run(&client, "UPDATE t SET v = v + 1").await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    run(&client, "CHECKPOINT").await;
    assert_eq!(rows(&client, NEWEST).await, [["unaligned", "completed"]]);
    assert_eq!(value(&target, "SELECT sum(v) FROM target").await, "0", "nothing is released by it");
    run(&client, "ALTER DATABASE dev SET checkpoint.aligned_timeout = '0'").await;
    for parallelism in ["4", "1", "2"] {
        weir.kill();
        weir.set_options(&options(parallelism));
        weir.begin(&[]);
        weir.wait_ready().await;
    }
    assert!(weir.log().contains("what was logged and not released"), "{}", weir.log());
    let client = weir.connect().await;
    run(&client, "UPDATE t SET v = v + 1 WHERE id <= 150; DELETE FROM t WHERE id = 7").await;
    run(&client, "CHECKPOINT").await;
    let all = "SELECT string_agg(id || ' ' || v, ', ' ORDER BY id) FROM";
    let expected = value(&client, &format!("{all} t")).await;
    assert!(expected.starts_with("1 6, 2 6, ") && expected.ends_with(", 300 5"), "{expected}");
    wait_for(&target, &format!("{all} target"), &expected).await;
    wait_for(&target, "SELECT count(*) FROM pg_prepared_xacts", "0").await;
}
