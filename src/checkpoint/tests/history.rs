//! The history names who was slow, outlives the process, and its file stays short.

use super::*;

fn stored(bytes: u64) -> StoredCheckpoint {
    let parts = CheckpointParts { link_us: 5, ..CheckpointParts::default() };
    StoredCheckpoint { total_bytes: bytes, new_bytes: bytes, parts }
}

fn actor(actor: u64, align_us: u64, seal_us: u64) -> ActorFact {
    let job = Some(weir_catalog::ObjectId(100 + actor as u32));
    ActorFact { actor, job, acknowledged_us: Some(50), align_us, flush_us: 2, seal_us }
}

#[test]
fn the_slowest_actors_are_named_and_who_is_missing_can_be_read() {
    let mut history = History::default();
    let actors = BTreeSet::from([ActorId(1), ActorId(2), ActorId(3)]);
    history.begin(Epoch(7), 1000, &actors);
    history.acknowledged(Epoch(7), actor(1, 30, 4));
    history.acknowledged(Epoch(7), actor(2, 20, 9));
    let pending = history.checkpoints().pop().expect("one");
    let missing: Vec<u64> =
        pending.actors.iter().filter(|a| a.acknowledged_us.is_none()).map(|a| a.actor).collect();
    assert_eq!((pending.status.as_str(), missing), ("pending", vec![3]));
    history.acknowledged(Epoch(7), actor(3, 0, 0));
    history.sealed(Epoch(7), 1500);
    history.completed(Epoch(7), 3000, &stored(9));
    history.committed(Epoch(7), 3400);
    let parts = history.checkpoints()[0].parts;
    assert_eq!((parts.align_us, parts.align_job.map(|id| id.0)), (30, Some(101)));
    assert_eq!((parts.seal_us, parts.seal_job.map(|id| id.0)), (9, Some(102)));
    assert_eq!((parts.barrier_us, parts.link_us, parts.commit_us), (500, 5, Some(400)));
    assert_eq!(history.checkpoints()[0].duration_us, 2000);
}

#[test]
fn it_outlives_the_process_and_its_file_stays_short() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("history");
    let mut history = History::open(&path);
    for epoch in 1..=2 * LINES_MAX as u64 {
        history.begin(Epoch(epoch), 0, &BTreeSet::new());
        if epoch % 10 == 0 {
            history.aborted(Epoch(epoch), 5, "disk full");
        } else {
            history.completed(Epoch(epoch), 5, &stored(epoch));
            history.committed(Epoch(epoch), 9);
        }
    }
    history.recovered(RecoveryFact { epoch: 3, reason: "kill".to_owned(), ..RecoveryFact::default() });
    history.begin(Epoch(9_999), 0, &BTreeSet::new());
    let totals = history.totals();
    assert_eq!((totals.completed, totals.aborted, totals.consecutive_failures), (3600, 400, 1));
    let lines = || std::fs::read_to_string(&path).expect("it is text").lines().count();
    assert!(lines() <= LINES_MAX + 1, "{}", lines());
    // What was pending when the process died never ended; a torn and a spoilt line are left out.
    let mut file = File::options().append(true).open(&path).expect("it is there");
    file.write_all(b"\xff{}\n{\"checkpoint\":{\"epoch\":7").expect("written");
    let mut ended = history.checkpoints();
    assert_eq!(ended.pop().map(|fact| fact.status), Some("pending".to_owned()));
    let again = History::open(&path);
    assert_eq!(again.checkpoints()[1..], ended[..]);
    assert_eq!(again.recoveries()[0].reason, "kill");
    assert_eq!(again.checkpoints().last().and_then(|c| c.parts.commit_us), None, "4000 was aborted");
    assert_eq!(again.checkpoints()[298].parts.commit_us, Some(4));
    // As long as it was, but for what is forgotten.
    assert!(lines() <= CHECKPOINTS_MAX + 1, "{}", lines());
}
