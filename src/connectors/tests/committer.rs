//! The committer against a target that fails, is ahead, and dies between chunks.

use super::*;
use crate::connectors::sink::{Delivery, Marker, Partial, SinkError, SinkTarget};
use crate::stream::ChangeBatch;
use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use async_trait::async_trait;
use parking_lot::Mutex;
use std::collections::VecDeque;

const SINK: ObjectId = ObjectId(17_000);

/// What a target holds, over the lives of its connections.
#[derive(Default)]
struct Held {
    marker: Option<Marker>,
    numbers: Vec<i64>,
    deliveries: usize,
    /// Outcomes of the next calls of `deliver`: 1 fails before the commit, 2 after it, 3 for ever,
    /// 4 is refused.
    faults: VecDeque<u8>,
}

struct Logged(Arc<Mutex<Held>>);

#[async_trait]
impl SinkTarget for Logged {
    async fn open(&mut self) -> Result<Option<Marker>, SinkError> {
        Ok(self.0.lock().marker)
    }

    async fn deliver(&mut self, delivery: Delivery) -> Result<(), SinkError> {
        let mut held = self.0.lock();
        let fault = held.faults.pop_front().unwrap_or(0);
        match fault {
            1 => return Err(SinkError::Retry("down".into())),
            3 => return Err(SinkError::Fatal("newer generation".into())),
            4 => return Err(SinkError::Refused("23505: row 7".into())),
            _ => {}
        }
        for batch in &delivery.batches {
            held.numbers.extend_from_slice(batch.column(0).as_primitive::<Int64Type>().values());
        }
        held.marker = Some(delivery.marker);
        held.deliveries += 1;
        if fault == 2 { Err(SinkError::Retry("connection lost".into())) } else { Ok(()) }
    }
}

struct Bench {
    _dir: tempfile::TempDir,
    log: Arc<SinkLog>,
    writer: crate::connectors::sink_log::SinkLogWriter,
    held: Arc<Mutex<Held>>,
    events: Arc<Mutex<Vec<CommitterEvent>>>,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = SinkLog::open(dir.path(), &[]).unwrap();
        let writer = log.writer(SINK, 0, 1);
        Self { _dir: dir, log, writer, held: Arc::default(), events: Arc::default() }
    }

    fn start(&self, restored: u64, handles: Vec<CommitHandle>, commit_every: usize) -> CommitterHandle {
        let config = CommitterConfig {
            sink: SINK,
            name: "k".into(),
            sink_type: SinkType::AppendOnly,
            key: Vec::new(),
            database: "d".into(),
            generation: 1,
            began: Epoch(restored),
            commit_every,
            rebuilds: true,
        };
        let events = Arc::clone(&self.events);
        let hear: Events = Arc::new(move |event| events.lock().push(event));
        let target = Target::Logged(Box::new(Logged(Arc::clone(&self.held))));
        CommitterHandle::start(config, target, Arc::clone(&self.log), Epoch(restored), handles, hear)
    }

    /// An epoch of one number: its own.
    fn epoch(&mut self, epoch: u64) -> Vec<CommitHandle> {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![epoch as i64]));
        let rows = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
        self.writer.append(&ChangeBatch::insertions(rows)).unwrap();
        self.writer.seal(Epoch(epoch)).unwrap().into_iter().collect()
    }

    fn numbers(&self) -> Vec<i64> {
        self.held.lock().numbers.clone()
    }

    fn last_committed(&self) -> Option<Epoch> {
        let events = self.events.lock();
        events.iter().rev().find_map(|e| match e {
            CommitterEvent::Committed { epoch, .. } => Some(*epoch),
            _ => None,
        })
    }
}

const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn epochs_are_delivered_in_order_through_failures_and_once() {
    let mut bench = Bench::new();
    bench.held.lock().faults = [1, 0, 2, 1, 2].into();
    let committer = bench.start(0, Vec::new(), 1);
    for epoch in 1..=20 {
        let handles = if epoch % 4 == 0 { Vec::new() } else { bench.epoch(epoch) };
        committer.durable(Epoch(epoch), handles);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(committer.drain(PATIENCE).await);
    assert_eq!(bench.numbers(), (1..=20).filter(|n| n % 4 != 0).collect::<Vec<_>>());
    assert_eq!(bench.last_committed(), Some(Epoch(20)));
    assert!(bench.events.lock().iter().any(|e| matches!(e, CommitterEvent::Retrying { .. })));
}

#[tokio::test]
async fn epochs_are_gathered() {
    let mut bench = Bench::new();
    let committer = bench.start(0, Vec::new(), 1000);
    for epoch in 1..=5 {
        let handles = bench.epoch(epoch);
        committer.durable(Epoch(epoch), handles);
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(bench.numbers(), [0; 0]);
    assert!(committer.drain(PATIENCE).await);
    assert_eq!((bench.numbers(), bench.held.lock().deliveries), (vec![1, 2, 3, 4, 5], 1));
}

#[tokio::test]
async fn a_restart_skips_what_the_target_holds() {
    let mut bench = Bench::new();
    let handles: Vec<_> = (1..=4).flat_map(|epoch| bench.epoch(epoch)).collect();
    *bench.held.lock() = Held {
        marker: Some(Marker { generation: 1, epoch: Epoch(2), partial: None }),
        numbers: vec![1, 2],
        ..Held::default()
    };
    let committer = bench.start(4, handles, 1);
    assert!(committer.drain(PATIENCE).await);
    assert_eq!(bench.numbers(), [1, 2, 3, 4]);
    assert_eq!(bench.last_committed(), Some(Epoch(4)));
    committer.stop().await;
}

#[tokio::test]
async fn a_range_in_part_is_gone_on_with_as_it_was_cut() {
    let mut bench = Bench::new();
    let handles: Vec<_> = (1..=4).flat_map(|epoch| bench.epoch(epoch)).collect();
    // All of epochs 1..=2 is one chunk, and none of it is delivered yet.
    let partial = Some(Partial { until: Epoch(2), chunks: 0 });
    bench.held.lock().marker = Some(Marker { generation: 1, epoch: Epoch(0), partial });
    let committer = bench.start(4, handles.clone(), 1);
    assert!(committer.drain(PATIENCE).await);
    assert_eq!((bench.numbers(), bench.held.lock().deliveries), (vec![1, 2, 3, 4], 2));
    committer.stop().await;

    // A part of a range that no checkpoint names any more can't be gone on with.
    bench.held.lock().marker = Some(Marker {
        generation: 1,
        epoch: Epoch(4),
        partial: Some(Partial { until: Epoch(9), chunks: 1 }),
    });
    let more = bench.epoch(10);
    let committer = bench.start(10, more, 1);
    assert!(!committer.drain(PATIENCE).await);
    assert!(matches!(bench.events.lock().last(), Some(CommitterEvent::Failed { .. })));
}

#[tokio::test]
async fn a_target_that_is_ahead_is_refused_and_one_that_never_works_ends_it() {
    let mut bench = Bench::new();
    bench.held.lock().marker = Some(Marker { generation: 1, epoch: Epoch(9), partial: None });
    let committer = bench.start(7, Vec::new(), 1);
    assert!(!committer.drain(PATIENCE).await);
    let Some(CommitterEvent::Failed { reason, .. }) = bench.events.lock().last().cloned() else {
        panic!("failed")
    };
    assert!(reason.starts_with("55000: ") && reason.contains("REBUILD"), "{reason}");
    assert!(reason.contains("holds epoch 9") && reason.contains("of epoch 7"), "{reason}");
    // Neither does it go on with a newer checkpoint, as after a restart.
    committer.stop().await;
    let handles = bench.epoch(8);
    let committer = bench.start(12, handles, 1);
    assert!(!committer.drain(PATIENCE).await);
    // Resumed as it is, it fails again; who can live with it says so.
    committer.resume(false);
    while bench.events.lock().iter().filter(|e| matches!(e, CommitterEvent::Failed { .. })).count() < 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    committer.resume(true);
    let more = bench.epoch(13);
    committer.durable(Epoch(13), more);
    assert!(committer.drain(PATIENCE).await);
    // Also what has a number that the target had already.
    assert_eq!(bench.numbers(), [8, 13]);
    committer.stop().await;

    *bench.held.lock() = Held { faults: [3].into(), ..Held::default() };
    let handles = bench.epoch(8);
    let committer = bench.start(8, handles, 1);
    assert!(!committer.drain(PATIENCE).await);
    let failed = CommitterEvent::Failed { sink: SINK, reason: "newer generation".into() };
    assert_eq!(bench.events.lock().last(), Some(&failed));
    // Who mends it says so: what came meanwhile is delivered too.
    let more = bench.epoch(9);
    committer.durable(Epoch(9), more);
    committer.resume(false);
    while bench.last_committed() != Some(Epoch(9)) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(bench.numbers(), [8, 9]);
}

#[tokio::test]
async fn what_a_target_refuses_stops_its_sink_until_it_is_mended() {
    let mut bench = Bench::new();
    bench.held.lock().faults = [4, 4].into();
    let committer = bench.start(0, Vec::new(), 1);
    for epoch in 1..=3 {
        let handles = bench.epoch(epoch);
        committer.durable(Epoch(epoch), handles);
    }
    assert!(!committer.drain(PATIENCE).await, "a shutdown does not wait for it");
    let stopped = CommitterEvent::Stopped { sink: SINK, reason: "23505: row 7".into() };
    assert_eq!(bench.events.lock().last(), Some(&stopped));
    committer.resume(false);
    // After the second refusal it goes on by itself; nothing is lost or delivered twice.
    while bench.last_committed() != Some(Epoch(3)) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(bench.numbers(), [1, 2, 3]);
    assert_eq!(bench.events.lock().iter().filter(|e| **e == stopped).count(), 2);
}
