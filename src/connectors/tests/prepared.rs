//! The prepared style against a target in memory that loses connections and answers at any step.

use super::*;
use crate::connectors::committer::{CommitterConfig, CommitterEvent, CommitterHandle, Events};
use crate::connectors::error::ConnectorError;
use crate::connectors::sink::{FateOf, Target};
use crate::connectors::sink_log::{SinkLog, SinkLogWriter};
use crate::stream::ChangeBatch;
use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use async_trait::async_trait;
use parking_lot::Mutex;
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::sync::Arc;
use std::time::Duration;
use weir_catalog::ObjectId;
use weir_catalog::sink::SinkType;
use weir_catalog::system::facts::TransactionState;

const SINK: ObjectId = ObjectId(17_000);
const PATIENCE: Duration = Duration::from_secs(20);

/// What a target holds, over the lives of its connections.
#[derive(Default)]
struct Held {
    epochs: BTreeMap<u32, Epoch>,
    numbers: Vec<i64>,
    prepared: BTreeMap<TransactionName, Vec<i64>>,
    /// In each hundred calls, so many fail before they do anything, and as many after it.
    faults: u32,
    random: Option<StdRng>,
    calls: Vec<String>,
}

impl Held {
    /// Whether a call fails: before it does anything, after it.
    fn faults(&mut self) -> (bool, bool) {
        let faults = self.faults;
        let random = self.random.get_or_insert_with(|| StdRng::seed_from_u64(7));
        (random.random_range(0..100) < faults, random.random_range(0..100) < faults)
    }
}

struct InMemory {
    held: Arc<Mutex<Held>>,
    open: Option<Vec<i64>>,
}

impl InMemory {
    fn call(
        &mut self,
        what: &str,
        act: impl FnOnce(&mut Held, &mut Option<Vec<i64>>),
    ) -> Result<(), SinkError> {
        let mut held = self.held.lock();
        let (before, after) = held.faults();
        if before {
            self.open = None;
            return Err(SinkError::Retry("down".into()));
        }
        held.calls.push(what.to_owned());
        act(&mut held, &mut self.open);
        if after {
            self.open = None;
            return Err(SinkError::Retry("the answer is lost".into()));
        }
        Ok(())
    }
}

#[async_trait]
impl PreparedTarget for InMemory {
    async fn check(&mut self) -> Result<(), ConnectorError> {
        Ok(())
    }

    async fn open(&mut self) -> Result<PreparedHeld, SinkError> {
        self.call("open", |_, _| ())?;
        self.open = None;
        let held = self.held.lock();
        Ok(PreparedHeld {
            epochs: held.epochs.clone(),
            transactions: held.prepared.keys().cloned().collect(),
        })
    }

    async fn take_over(&mut self) -> Result<(), SinkError> {
        self.call("take over", |_, _| ())
    }

    async fn lower(&mut self, epoch: Epoch) -> Result<(), SinkError> {
        self.call("lower", |held, _| held.epochs.values_mut().for_each(|e| *e = epoch.min(*e)))
    }

    async fn begin(&mut self, name: &TransactionName) -> Result<(), SinkError> {
        let held = self.held.lock();
        assert!(
            held.epochs.get(&name.actor).is_none_or(|epoch| *epoch < name.epoch),
            "{name} is there already"
        );
        assert!(held.prepared.keys().all(|other| other.epoch == name.epoch), "{name} beside another epoch");
        drop(held);
        self.call("begin", |_, open| *open = Some(Vec::new()))
    }

    async fn write(&mut self, batches: &[ChangeBatch]) -> Result<(), SinkError> {
        let numbers: Vec<i64> =
            batches.iter().flat_map(|b| b.column(0).as_primitive::<Int64Type>().values().to_vec()).collect();
        self.call("write", |_, open| open.as_mut().unwrap().extend(numbers))
    }

    async fn prepare(&mut self, name: &TransactionName) -> Result<(), SinkError> {
        let name = name.clone();
        self.call("prepare", |held, open| {
            held.prepared.insert(name, open.take().unwrap());
        })
    }

    async fn finish(&mut self, name: &TransactionName, commit: bool) -> Result<(), SinkError> {
        if !self.held.lock().prepared.contains_key(name) {
            return Err(SinkError::Retry("gone".into()));
        }
        self.call(if commit { "commit" } else { "roll back" }, |held, _| {
            let numbers = held.prepared.remove(name).unwrap();
            if commit {
                held.numbers.extend(numbers);
                held.epochs.insert(name.actor, name.epoch);
            }
        })
    }

    async fn finish_for_client(&mut self, _: &TransactionName, _: bool) -> Result<(), ConnectorError> {
        unreachable!("no client asks")
    }

    async fn forget(&mut self) -> Result<Vec<TransactionName>, SinkError> {
        unreachable!("it is not dropped")
    }

    async fn sweep(&mut self, _: &FateOf) -> Result<Vec<(TransactionName, Option<String>)>, SinkError> {
        unreachable!("other sinks have no transactions here")
    }
}

struct Bench {
    _dir: tempfile::TempDir,
    log: Arc<SinkLog>,
    writers: Vec<SinkLogWriter>,
    held: Arc<Mutex<Held>>,
    events: Arc<Mutex<Vec<CommitterEvent>>>,
    generation: u64,
}

impl Bench {
    fn new(actors: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = SinkLog::open(dir.path(), &[]).unwrap();
        let writers = (0..actors).map(|actor| log.writer(SINK, actor, 1)).collect();
        Self { _dir: dir, log, writers, held: Arc::default(), events: Arc::default(), generation: 1 }
    }

    fn start(&self, restored: u64, began: u64, handles: Vec<CommitHandle>) -> CommitterHandle {
        let config = CommitterConfig {
            sink: SINK,
            name: "k".into(),
            database: "d".into(),
            sink_type: SinkType::AppendOnly,
            key: Vec::new(),
            generation: self.generation,
            began: Epoch(began),
            commit_every: 1,
            rebuilds: true,
        };
        let events = Arc::clone(&self.events);
        let hear: Events = Arc::new(move |event| events.lock().push(event));
        let target = InMemory { held: Arc::clone(&self.held), open: None };
        let (target, log) = (Target::Prepared(Box::new(target)), Arc::clone(&self.log));
        CommitterHandle::start(config, target, log, Epoch(restored), handles, hear)
    }

    /// An epoch in which each actor has one number: `epoch * 10 + actor`.
    fn epoch(&mut self, epoch: u64) -> Vec<CommitHandle> {
        let mut handles = Vec::new();
        for (actor, writer) in self.writers.iter_mut().enumerate() {
            let numbers: ArrayRef = Arc::new(Int64Array::from(vec![(epoch * 10) as i64 + actor as i64]));
            let rows = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
            writer.append(&ChangeBatch::insertions(rows)).unwrap();
            handles.extend(writer.seal(Epoch(epoch)).unwrap());
        }
        handles
    }

    fn name(&self, generation: u64, epoch: u64, actor: u32) -> TransactionName {
        TransactionName { database: "d".into(), sink: SINK, epoch: Epoch(epoch), actor, generation }
    }

    async fn until(&self, what: &str, reached: impl Fn(&Self) -> bool) {
        let deadline = std::time::Instant::now() + PATIENCE;
        while !reached(self) {
            assert!(std::time::Instant::now() < deadline, "{what}: {:?}", self.held.lock().calls);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    fn last_committed(&self) -> Option<Epoch> {
        let events = self.events.lock();
        events.iter().rev().find_map(|e| match e {
            CommitterEvent::Committed { epoch, .. } => Some(*epoch),
            _ => None,
        })
    }

    fn states(&self, state: TransactionState) -> usize {
        let is = |e: &&CommitterEvent| matches!(e, CommitterEvent::Transaction(fact) if fact.state == state);
        self.events.lock().iter().filter(is).count()
    }
}

#[tokio::test]
async fn an_epoch_is_prepared_before_it_is_durable_and_committed_after() {
    let mut bench = Bench::new(2);
    let committer = bench.start(0, 0, Vec::new());
    let first = bench.epoch(5);
    committer.sealed(Epoch(5), first.clone());
    bench.until("prepared", |b| b.held.lock().prepared.len() == 2).await;
    // The next one waits in the log.
    let second = bench.epoch(6);
    committer.sealed(Epoch(6), second.clone());
    assert_eq!(bench.held.lock().numbers, [0; 0]);
    committer.durable(Epoch(5), first);
    bench.until("committed", |b| b.last_committed() == Some(Epoch(5))).await;
    assert_eq!(bench.held.lock().numbers, [50, 51]);
    bench.until("prepared", |b| b.held.lock().prepared.len() == 2).await;
    committer.durable(Epoch(6), second);
    // One with nothing in it.
    committer.durable(Epoch(7), Vec::new());
    bench.until("committed", |b| b.last_committed() == Some(Epoch(7))).await;
    assert_eq!(bench.held.lock().numbers, [50, 51, 60, 61]);
    assert_eq!((bench.states(TransactionState::Prepared), bench.states(TransactionState::Committed)), (4, 4));
}

/// With several checkpoints under way an epoch may be sealed before an earlier one, without rows, is durable.
#[tokio::test]
async fn an_earlier_epoch_without_rows_commits_nothing_of_a_later_one() {
    let mut bench = Bench::new(1);
    let committer = bench.start(0, 0, Vec::new());
    let later = bench.epoch(6);
    committer.sealed(Epoch(6), later.clone());
    bench.until("prepared", |b| b.held.lock().prepared.len() == 1).await;
    committer.durable(Epoch(5), Vec::new());
    bench.until("passed", |b| b.last_committed() == Some(Epoch(5))).await;
    let held = |b: &Bench| {
        let held = b.held.lock();
        (held.numbers.clone(), held.prepared.len())
    };
    assert_eq!(held(&bench), (vec![], 1));
    committer.durable(Epoch(6), later);
    bench.until("committed", |b| b.last_committed() == Some(Epoch(6))).await;
    assert_eq!(held(&bench), (vec![60], 0));
}

#[tokio::test]
async fn each_number_is_there_once_whatever_fails() {
    let mut bench = Bench::new(3);
    bench.held.lock().faults = 6;
    let committer = bench.start(0, 0, Vec::new());
    let mut epochs = Vec::new();
    for epoch in 1..=30u64 {
        let handles = if epoch % 5 == 0 { Vec::new() } else { bench.epoch(epoch) };
        // Some checkpoints are durable before anybody was told that they are sealed; some are aborted,
        // and what they had comes with the next.
        if epoch % 3 > 0 && !handles.is_empty() {
            committer.sealed(Epoch(epoch), handles.clone());
        }
        epochs.push((epoch, handles));
        if epoch % 4 > 0 {
            epochs.drain(..).for_each(|(epoch, handles)| committer.durable(Epoch(epoch), handles));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    epochs.drain(..).for_each(|(epoch, handles)| committer.durable(Epoch(epoch), handles));
    while bench.last_committed() != Some(Epoch(30)) {
        // Nobody has the time for the pauses.
        committer.resume(false);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut numbers = bench.held.lock().numbers.clone();
    numbers.sort_unstable();
    let expected: Vec<i64> =
        (1..=30).filter(|e| e % 5 != 0).flat_map(|e| (0..3).map(move |actor| e * 10 + actor)).collect();
    assert_eq!(numbers, expected);
    assert!(bench.held.lock().prepared.is_empty());
}

#[tokio::test]
async fn a_restart_commits_what_is_promised_and_rolls_back_what_is_not() {
    let mut bench = Bench::new(3);
    let (old, promised) = (bench.epoch(7), bench.epoch(8));
    {
        let mut held = bench.held.lock();
        // Of epoch 8, which is durable: actor 0 has committed, actor 1 has prepared, actor 2 has not.
        held.epochs = [(0, Epoch(8)), (1, Epoch(7)), (2, Epoch(7))].into();
        held.numbers = vec![70, 71, 72, 80];
        let found = [(1, 8, 1, 81), (1, 9, 0, 90), (1, 6, 2, 62), (2, 9, 1, 91)];
        held.prepared = found.map(|(g, e, actor, n)| (bench.name(g, e, actor), vec![n])).into();
    }
    drop(old);
    bench.generation = 2;
    let committer = bench.start(8, 9, promised);
    assert!(committer.drain(PATIENCE).await);
    assert_eq!(bench.last_committed(), Some(Epoch(8)));
    assert!(bench.held.lock().prepared.is_empty());
    assert_eq!(bench.held.lock().numbers, [70, 71, 72, 80, 81, 82]);
    assert_eq!(bench.states(TransactionState::RolledBack), 3);
    committer.stop().await;
}

/// An older copy of the data directory was put back: what is prepared has the generation, and may have the
/// epochs, that come next here.
#[tokio::test]
async fn what_a_twin_prepared_is_never_taken_for_ours() {
    let mut bench = Bench::new(1);
    for (epoch, number) in [(12, 999), (13, 998)] {
        let name = bench.name(1, epoch, 0);
        bench.held.lock().prepared.insert(name, vec![number]);
    }
    bench.held.lock().faults = 3;
    let committer = bench.start(8, 10, Vec::new());
    let ours = bench.epoch(12);
    committer.sealed(Epoch(12), ours.clone());
    committer.durable(Epoch(12), ours);
    while bench.last_committed() != Some(Epoch(12)) {
        committer.resume(false);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let held = bench.held.lock();
    assert_eq!((&held.numbers[..], held.prepared.len()), (&[120][..], 0));
}

#[tokio::test]
async fn neither_a_newer_server_nor_a_target_that_is_ahead_is_touched() {
    let mut bench = Bench::new(1);
    let failed = |bench: &Bench| {
        bench.events.lock().iter().rev().find_map(|e| match e {
            CommitterEvent::Failed { reason, .. } => Some(reason.clone()),
            _ => None,
        })
    };
    let theirs = bench.name(3, 20, 0);
    bench.held.lock().prepared.insert(theirs, vec![200]);
    bench.generation = 2;
    let committer = bench.start(8, 9, Vec::new());
    bench.until("failed", |b| failed(b).is_some()).await;
    assert!(failed(&bench).unwrap().contains("newer generation"));
    committer.stop().await;
    bench.held.lock().prepared.clear();
    bench.events.lock().clear();

    // Its own leftovers stay as well, until somebody has chosen.
    let leftover = bench.name(1, 12, 0);
    bench.held.lock().prepared.insert(leftover, vec![120]);
    bench.held.lock().epochs.insert(0, Epoch(11));
    let committer = bench.start(8, 12, Vec::new());
    bench.until("failed", |b| failed(b).is_some()).await;
    let reason = failed(&bench).unwrap();
    assert!(reason.starts_with("55000: ") && reason.contains("holds epoch 11"), "{reason}");
    assert_eq!(bench.held.lock().prepared.len(), 1);
    committer.resume(true);
    let more = bench.epoch(13);
    committer.durable(Epoch(13), more);
    bench.until("committed", |b| b.last_committed() == Some(Epoch(13))).await;
    let held = bench.held.lock();
    assert_eq!((&held.numbers[..], held.prepared.len()), (&[130][..], 0));
}
