//! Tests of the DML log: what was acknowledged is replayed, whatever the end of the file looks like.

use super::*;
use crate::state::data_dir::DataDir;
use crate::state::frame::Frames;
use arrow::array::{Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};

const TABLE: ObjectId = ObjectId(20_000);

fn batch(i: i64) -> ChangeBatch {
    let fields = vec![Field::new("id", DataType::Int64, false), Field::new("name", DataType::Utf8, true)];
    let ids = Int64Array::from(vec![i, i + 1]);
    let names = StringArray::from(vec![None, Some("x".repeat(i as usize % 5))]);
    let rows =
        RecordBatch::try_new(Arc::new(Schema::new(fields)), vec![Arc::new(ids), Arc::new(names)]).unwrap();
    if i % 2 == 0 { ChangeBatch::insertions(rows) } else { ChangeBatch::new(rows, vec![-1, 2]) }
}

fn changes(i: i64) -> Vec<(ObjectId, ChangeBatch)> {
    (0..i % 3 + 1).map(|t| (ObjectId(TABLE.0 + t as u32), batch(i + t))).collect()
}

async fn fill(log: &DmlLog, range: std::ops::RangeInclusive<u64>) {
    for i in range {
        assert_eq!(log.append(changes(i as i64)).await.unwrap(), i);
    }
}

/// Checks that memory holds exactly the positions of `range`, as `fill` wrote them.
fn holds(log: &DmlLog, range: std::ops::RangeInclusive<u64>) {
    let found = log.range(0, u64::MAX - 1);
    assert_eq!(found.iter().map(|t| t.position).collect::<Vec<_>>(), range.collect::<Vec<_>>());
    for transaction in found {
        let expected = changes(transaction.position as i64);
        assert_eq!(transaction.changes.len(), expected.len());
        for ((table, batch), (expected_table, expected)) in transaction.changes.iter().zip(&expected) {
            assert_eq!(
                (table, batch.rows(), batch.diffs()),
                (expected_table, expected.rows(), expected.diffs())
            );
        }
    }
}

#[tokio::test]
async fn what_was_appended_is_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let log = DmlLog::open(dir.path(), 0, 0, None).unwrap();
    assert_eq!(log.position(), 0);
    fill(&log, 1..=10).await;
    assert_eq!(log.position(), 10);
    assert_eq!(log.append(vec![]).await.unwrap(), 10);
    holds(&log, 1..=10);
    let some: Vec<_> = log.range(3, 5).iter().map(|t| t.position).collect();
    assert_eq!(some, [4, 5]);
    log.forget(4);
    holds(&log, 5..=10);
    assert_eq!(log.range(2, 4).len(), 0);
    log.rewind(2).unwrap();
    holds(&log, 3..=10);
    drop(log);
    let log = DmlLog::open(dir.path(), 7, 0, None).unwrap();
    holds(&log, 8..=10);
    fill(&log, 11..=12).await;
    log.forget(12);
    log.rewind(5).unwrap();
    holds(&log, 6..=12);
}

#[tokio::test]
async fn callers_that_wait_together_share_a_frame() {
    let dir = tempfile::tempdir().unwrap();
    let log = DmlLog::open(dir.path(), 0, 0, None).unwrap();
    let tasks: Vec<_> = (0..200)
        .map(|i| {
            let log = log.clone();
            tokio::spawn(async move { log.append(vec![(TABLE, batch(i))]).await.unwrap() })
        })
        .collect();
    let mut positions = Vec::new();
    for task in tasks {
        positions.push(task.await.unwrap());
    }
    positions.sort_unstable();
    assert_eq!(positions, (1..=200).collect::<Vec<_>>());
    let frames = Frames::read(&path(dir.path(), 1), MAGIC, true).unwrap();
    assert!(frames.iter().count() <= 200);
    drop(log);
    let log = DmlLog::open(dir.path(), 0, 0, None).unwrap();
    assert_eq!(log.range(0, 1000).len(), 200);
}

#[tokio::test]
async fn files_rotate_and_are_cut() {
    let dir = tempfile::tempdir().unwrap();
    let log = DmlLog::open(dir.path(), 0, 0, None).unwrap();
    log.shared.file_bytes.store(4000, Ordering::Relaxed);
    fill(&log, 1..=50).await;
    let files = list(dir.path()).unwrap();
    assert!(files.len() > 3, "{files:?}");
    // The third file begins right after what the checkpoint holds.
    let position = files[2] - 1;
    log.cut(position).unwrap();
    assert_eq!(list(dir.path()).unwrap(), files[2..]);
    log.cut(position).unwrap();
    drop(log);
    let log = DmlLog::open(dir.path(), position, 0, None).unwrap();
    holds(&log, position + 1..=50);
    log.cut(50).unwrap();
    let left = list(dir.path()).unwrap();
    assert_eq!(left.len(), 1, "the file that is appended to stays");
    drop(log);
    let error = DmlLog::open(dir.path(), 0, 0, None).err().unwrap().to_string();
    assert!(error.contains(&format!("begins at {}, but is needed from 1", left[0])), "{error}");
    let log = DmlLog::open(dir.path(), 50, 0, None).unwrap();
    assert_eq!(log.position(), 50);
}

#[tokio::test]
async fn a_log_cut_anywhere_replays_whole_transactions_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let log = DmlLog::open(dir.path(), 0, 0, None).unwrap();
    fill(&log, 1..=4).await;
    drop(log);
    let file = path(dir.path(), 1);
    let bytes = std::fs::read(&file).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    // The test of frames cuts at every byte; here some do.
    for cut in (0..bytes.len()).step_by(97).chain([bytes.len()]) {
        std::fs::write(&file, &bytes[..cut]).unwrap();
        let log = DmlLog::open(dir.path(), 0, 0, None).unwrap();
        let position = log.position();
        holds(&log, 1..=position);
        seen.insert(position);
        fill(&log, position + 1..=position + 1).await;
        drop(log);
        holds(&DmlLog::open(dir.path(), 0, 0, None).unwrap(), 1..=position + 1);
    }
    assert_eq!(seen, (0..=4).collect());
}

#[tokio::test]
async fn damage_in_the_middle_is_an_error_that_names_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let log = DmlLog::open(dir.path(), 0, 0, None).unwrap();
    fill(&log, 1..=3).await;
    drop(log);
    let file = path(dir.path(), 1);
    let bytes = std::fs::read(&file).unwrap();
    let mut lost = 0;
    for at in (8..bytes.len()).step_by(7) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        std::fs::write(&file, damaged).unwrap();
        match DmlLog::open(dir.path(), 0, 0, None) {
            Ok(log) => {
                holds(&log, 1..=2);
                lost += 1;
            }
            Err(error) => assert!(error.to_string().contains("00001.log is damaged"), "{error}"),
        }
    }
    assert!(lost > 0);
}

#[tokio::test]
async fn damage_before_the_checkpoint_costs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let log = DmlLog::open(dir.path(), 0, 0, None).unwrap();
    fill(&log, 1..=6).await;
    drop(log);
    let file = path(dir.path(), 1);
    let bytes = std::fs::read(&file).unwrap();
    let frames = Frames::read(&file, MAGIC, true).unwrap();
    let frames: Vec<_> = frames.iter().map(|(_, payload)| 16 + payload.len()).collect();
    assert_eq!(frames.len(), 6, "one each");
    let end = |n: usize| 8 + frames[..n].iter().sum::<usize>();
    for at in (8..bytes.len()).step_by(5) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        std::fs::write(&file, damaged).unwrap();
        match DmlLog::open(dir.path(), 3, 0, None) {
            Ok(log) if at < end(3) => {
                holds(&log, 4..=6);
                fill(&log, 7..=8).await;
                log.forget(8);
                log.rewind(3).unwrap();
                holds(&log, 4..=8);
                drop(log);
                assert!(DmlLog::open(dir.path(), 0, 0, None).is_err(), "an older checkpoint needs it");
                let log = DmlLog::open(dir.path(), 3, 0, None).unwrap();
                holds(&log, 4..=8);
                log.cut(6).unwrap();
                assert!(!file.exists(), "it goes when nothing of it is needed");
                drop(log);
                holds(&DmlLog::open(dir.path(), 6, 0, None).unwrap(), 7..=8);
            }
            // Whether the last was acknowledged can't be told.
            Ok(log) => {
                assert!(at >= end(5), "{at}");
                holds(&log, 4..=5);
            }
            Err(error) => {
                assert!((end(3)..end(5)).contains(&at), "{at} {error}");
                assert!(error.to_string().contains("00001.log is damaged"), "{error}");
            }
        }
        for first in list(dir.path()).unwrap() {
            std::fs::remove_file(path(dir.path(), first)).unwrap();
        }
    }
}

#[tokio::test]
async fn a_log_that_ends_before_the_checkpoint_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let log = DmlLog::open(dir.path(), 0, 0, None).unwrap();
    fill(&log, 1..=6).await;
    drop(log);
    let file = path(dir.path(), 1);
    let bytes = std::fs::read(&file).unwrap();
    let half = bytes.len() / 2;
    for length in [0, 8, half] {
        std::fs::write(&file, &bytes[..length]).unwrap();
        let error =
            DmlLog::open(dir.path(), 5, 5, None).err().expect("acknowledged rows may be gone").to_string();
        assert!(error.contains("00001.log is damaged: it ends with position"), "{error}");
        assert_eq!(std::fs::read(&file).unwrap(), &bytes[..length], "it stays as it was");
    }
    // An older copy of the directory goes on from a checkpoint that was elsewhere, and gives no position twice.
    std::fs::write(&file, &bytes[..half]).unwrap();
    let log = DmlLog::open(dir.path(), 7, 1, None).unwrap();
    assert_eq!(log.position(), 7);
    fill(&log, 8..=9).await;
    drop(log);
    holds(&DmlLog::open(dir.path(), 7, 7, None).unwrap(), 8..=9);
    std::fs::remove_dir_all(dir.path()).unwrap();
    assert!(DmlLog::open(dir.path(), 5, 0, None).is_err(), "the log is gone");
}

#[tokio::test]
async fn killed_anywhere_it_keeps_what_it_acknowledged() {
    for point in ["before_write:4", "mid_write:4", "before_sync:4", "after_sync:4", "before_cut:1"] {
        let dir = tempfile::tempdir().unwrap();
        let child = "dml::log::tests::child_appends_until_it_is_killed";
        let acknowledged = failpoint::testing::run_killed(child, &format!("dml_log.{point}"), dir.path());
        let last = acknowledged.last().copied().unwrap_or(0);
        let from = list(dir.path()).unwrap()[0] - 1;
        let log = DmlLog::open(dir.path(), from, 0, None).unwrap();
        // What was not acknowledged may be there, or not.
        assert!(last >= 3 && (last..=last + 1).contains(&log.position()), "{point} {last}");
        holds(&log, from + 1..=log.position());
        let next = log.position() + 1;
        fill(&log, next..=next + 2).await;
    }
}

#[tokio::test]
#[ignore = "a child of the test above"]
async fn child_appends_until_it_is_killed() {
    let Some(dir) = failpoint::testing::child_dir() else { return };
    let log = DmlLog::open(&dir, 0, 0, None).unwrap();
    log.shared.file_bytes.store(4000, Ordering::Relaxed);
    for i in 1..100 {
        println!("done {}", log.append(changes(i)).await.unwrap());
        log.cut(i as u64 - 1).unwrap();
    }
}

#[tokio::test]
async fn what_is_queued_is_seen_before_it_is_durable() {
    let dir = tempfile::tempdir().unwrap();
    let log = DmlLog::open(dir.path(), 0, 0, None).unwrap();
    fill(&log, 1..=3).await;
    let first = log.begin(changes(4), None).unwrap().unwrap();
    let (seen, basis) = log.newest(2);
    assert_eq!(seen.iter().map(|t| t.position).collect::<Vec<_>>(), [3, 4]);
    assert_eq!(basis.position, 4);
    let second = log.begin(changes(5), Some(basis)).unwrap().unwrap();
    assert_eq!((first.durable().await.unwrap(), second.durable().await.unwrap()), (4, 5));
    log.wait_durable(basis).await.unwrap();
    assert!(log.begin(Vec::new(), Some(basis)).unwrap().is_none());
    holds(&log, 1..=5);
}

#[tokio::test]
async fn a_write_that_fails_takes_back_what_is_built_on_it() {
    let dir = tempfile::tempdir().unwrap();
    let log = DmlLog::open(dir.path(), 0, 0, None).unwrap();
    fill(&log, 1..=2).await;
    let failures = log.shared.memory.lock().failures;
    let (_, basis) = log.newest(0);
    {
        let committer = Committer {
            queue: mpsc::channel().1,
            received: None,
            shared: log.shared.clone(),
            writer: FrameWriter::create(dir.path().join("unused"), MAGIC, "dml_log").unwrap(),
        };
        committer.take_back();
    }
    assert_eq!(log.shared.memory.lock().failures, failures + 1);
    assert!(log.begin(changes(3), Some(basis)).is_err(), "it was checked against what is taken back");
    let ahead = Basis { position: 3, failures };
    assert!(log.wait_durable(ahead).await.is_err(), "it never comes");
    fill(&log, 3..=4).await;
    holds(&log, 1..=4);
}

#[tokio::test]
async fn nothing_is_acknowledged_in_a_directory_that_is_anothers() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::open(dir.path()).unwrap();
    let dml = data.subdirectory("dml").unwrap();
    let log = DmlLog::open(&dml, 0, 0, Some(Arc::clone(data.ownership()))).unwrap();
    log.shared.file_bytes.store(1, Ordering::Relaxed);
    fill(&log, 1..=3).await;
    std::fs::remove_file(dir.path().join("LOCK")).unwrap();
    let other = DataDir::open(dir.path()).unwrap();
    let of_other = DmlLog::open(&dml, 0, 0, Some(Arc::clone(other.ownership()))).unwrap();
    let error = log.append(changes(4)).await.unwrap_err().to_string();
    assert!(error.contains("no longer this server's"), "{error}");
    fill(&of_other, 4..=5).await;
    assert!(log.append(changes(4)).await.is_err());
    drop((log, of_other));
    holds(&DmlLog::open(&dml, 0, 0, None).unwrap(), 1..=5);
}
