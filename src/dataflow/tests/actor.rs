//! Actors on real workers: barriers aligned over channels, edges attached at a barrier, output in
//! pieces, and failures reported.

use super::*;
use crate::dataflow::chain::ChainNode;
use crate::dataflow::exchange::{ActorIds, CHANNEL_BYTES_MAX, Receiver, channel};
use crate::dataflow::operator::{Operator, Output, Progress};
use crate::dataflow::start::Handover;
use crate::dataflow::worker::Worker;
use crate::state::memory::MemoryStore;
use crate::state::store::StateStore;
use crate::stream::{BarrierKind, Epoch, Mutation, VnodeSet};
use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Emits each row doubled, one row a piece, so that every change needs `resume`.
struct Twice(Vec<i64>);

impl Operator for Twice {
    fn name(&self) -> &'static str {
        "twice"
    }

    fn on_change(
        &mut self,
        _: usize,
        batch: ChangeBatch,
        out: &mut Output,
    ) -> Result<Progress, OperatorError> {
        let rows = batch.column(0).as_primitive::<Int64Type>();
        if rows.values().contains(&13) {
            return Err(OperatorError::Internal("thirteen".into()));
        }
        self.0.extend(rows.values().iter().rev().flat_map(|v| [*v, *v]));
        self.resume(out)
    }

    fn on_watermark(
        &mut self,
        _: usize,
        mark: Watermark,
        out: &mut Output,
    ) -> Result<Progress, OperatorError> {
        out.push_watermark(mark);
        Ok(Progress::Done)
    }

    fn resume(&mut self, out: &mut Output) -> Result<Progress, OperatorError> {
        if let Some(value) = self.0.pop() {
            out.push(rows(&[value]));
        }
        Ok(if self.0.is_empty() { Progress::Done } else { Progress::More })
    }
}

fn rows(values: &[i64]) -> ChangeBatch {
    let schema = Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, true)]));
    let column = Arc::new(Int64Array::from(values.to_vec()));
    ChangeBatch::insertions(RecordBatch::try_new(schema, vec![column]).expect("one column"))
}

fn barrier(epoch: u64, mutation: Option<Mutation>) -> Message {
    Message::Barrier(Arc::new(Barrier {
        epoch: Epoch(epoch),
        previous: Epoch(epoch - 1),
        kind: BarrierKind::Checkpoint,
        dml_position: 0,
        now_us: 0,
        mutation: mutation.map(Arc::new),
        unaligned: false,
        after_unaligned: false,
    }))
}

struct Told(mpsc::Sender<Result<Epoch, String>>);

impl ActorEvents for Told {
    fn reported(&self, report: ActorReport) {
        let _ = self.0.send(Ok(report.epoch));
    }
    fn failed(&self, _: ActorId, _: JobId, error: OperatorError) {
        let _ = self.0.send(Err(error.to_string()));
    }
}

fn receive(receiver: &Receiver) -> Message {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(message) = receiver.try_receive() {
            return message;
        }
        assert!(Instant::now() < deadline, "nothing came");
        std::thread::yield_now();
    }
}

fn values_until_barrier(receiver: &Receiver) -> (Vec<i64>, Epoch) {
    let mut values = Vec::new();
    loop {
        match receive(receiver) {
            Message::Changes(batch) => values.extend(batch.column(0).as_primitive::<Int64Type>().values()),
            Message::Barrier(barrier) => return (values, barrier.epoch),
            Message::Watermark(_) => {}
        }
    }
}

/// Keeps reports whole.
struct Reported(mpsc::Sender<ActorReport>);

impl ActorEvents for Reported {
    fn reported(&self, report: ActorReport) {
        let _ = self.0.send(report);
    }
    fn failed(&self, _: ActorId, _: JobId, error: OperatorError) {
        panic!("{error}");
    }
}

struct Fixture<E = mpsc::Receiver<Result<Epoch, String>>> {
    _worker: Worker,
    events: E,
    shared: Arc<ActorShared>,
    inputs: Vec<crate::dataflow::exchange::Sender>,
    output: Receiver,
    actor: ActorId,
}

/// An actor with one input of two channels, and one output.
fn start() -> Fixture {
    let (sender, events) = mpsc::channel();
    start_with(Arc::new(Told(sender)), events, CHANNEL_BYTES_MAX)
}

/// The same, which replaces another one.
fn start_waiting(start: Arc<Start>) -> Fixture {
    let (sender, events) = mpsc::channel();
    start_as(Arc::new(Told(sender)), events, CHANNEL_BYTES_MAX, Some(start))
}

/// The same, with an output that takes `output_bytes`.
fn start_with<E>(told: Arc<dyn ActorEvents>, events: E, output_bytes: usize) -> Fixture<E> {
    start_as(told, events, output_bytes, None)
}

fn start_as<E>(
    told: Arc<dyn ActorEvents>,
    events: E,
    output_bytes: usize,
    start: Option<Arc<Start>>,
) -> Fixture<E> {
    let worker = Worker::start(0, told.clone()).expect("a thread");
    let shared = Arc::new(ActorShared {
        events: told,
        pending: Arc::default(),
        moved: Arc::default(),
        room: Arc::default(),
        overtake: Arc::default(),
        state_entries: Default::default(),
    });
    let signal = worker.actor_signal();
    let (inputs, receivers): (Vec<_>, Vec<_>) =
        (0..2).map(|_| channel(signal.clone(), CHANNEL_BYTES_MAX)).unzip();
    let (to_output, output) = channel(worker.actor_signal(), output_bytes);
    let state: crate::dataflow::chain::StateSource =
        Arc::new(|| (Epoch::ZERO, MemoryStore::default().snapshot()));
    let node = ChainNode { operator: Box::new(Twice(Vec::new())), parent: None };
    let chain = Chain::new(vec![node], vec![(0, 0)], Vec::new(), VnodeSet::all(), state);
    let edge = Edge { job: JobId::FIRST_USER, routing: Routing::Forward(to_output) };
    let actor = ActorIds::default().next();
    let aligner = Aligner::new(vec![receivers]);
    let mut new = Actor::new(actor, JobId::FIRST_USER, signal, shared.clone(), aligner, chain, vec![edge]);
    if let Some(start) = start {
        new.wait_for(start, VnodeSet::all());
    }
    worker.add(new.with_inputs(vec![4]));
    Fixture { _worker: worker, events, shared, inputs, output, actor }
}

#[test]
fn a_barrier_waits_until_it_is_on_every_channel() {
    let fixture = start();
    fixture.inputs[0].send(rows_message(&[1]));
    fixture.inputs[0].send(barrier(1, None));
    fixture.inputs[0].send(rows_message(&[2]));
    fixture.inputs[1].send(rows_message(&[3]));
    fixture.inputs[1].send(barrier(1, None));
    fixture.inputs[1].send(barrier(2, None));
    fixture.inputs[0].send(barrier(2, None));
    let (mut first, epoch) = values_until_barrier(&fixture.output);
    first.sort_unstable();
    assert_eq!((first, epoch), (vec![1, 1, 3, 3], Epoch(1)));
    assert_eq!(values_until_barrier(&fixture.output), (vec![2, 2], Epoch(2)));
    assert_eq!(fixture.events.recv_timeout(Duration::from_secs(20)), Ok(Ok(Epoch(1))));
    assert_eq!(fixture.events.recv_timeout(Duration::from_secs(20)), Ok(Ok(Epoch(2))));
}

#[test]
fn what_lies_before_an_overtaken_barrier_is_in_the_checkpoint_and_goes_on() {
    let (sender, reports) = mpsc::channel();
    // Anything fills the output.
    let fixture = start_with(Arc::new(Reported(sender)), reports, 1);
    fixture.inputs.iter().for_each(|input| input.send(barrier(1, None)));
    let report = || fixture.events.recv_timeout(Duration::from_secs(20)).expect("a report");
    assert_eq!(report().epoch, Epoch(1));
    for value in 2..6 {
        fixture.inputs[0].send(rows_message(&[value]));
    }
    fixture.inputs[0].send(barrier(2, None));
    fixture.inputs[1].send(rows_message(&[6]));
    let Message::Barrier(second) = barrier(2, None) else { unreachable!("it is one") };
    fixture.shared.overtake.set(&second);
    fixture._worker.rouser()();
    // Not before it is known what comes before it on the other channel.
    assert!(fixture.events.recv_timeout(Duration::from_millis(50)).is_err());
    fixture.inputs[1].send(rows_message(&[7]));
    fixture.inputs[1].send(barrier(2, None));
    fixture.inputs[1].send(rows_message(&[8]));
    let unaligned = report();
    assert_eq!(unaligned.epoch, Epoch(2));
    let mut kept = Vec::new();
    for state in &unaligned.channels {
        assert_eq!(state.input, 4);
        let values = |b: &ChangeBatch| b.column(0).as_primitive::<Int64Type>().values().to_vec();
        kept.extend(state.batches.iter().flat_map(values));
    }
    // The output was full at once: most of them were still to come.
    assert!(kept.len() >= 3 && kept.ends_with(&[7]), "{kept:?}");
    fixture.inputs[0].send(barrier(3, None));
    fixture.inputs[1].send(barrier(3, None));
    assert_eq!(values_until_barrier(&fixture.output), (vec![], Epoch(1)));
    let (mut before, second) = values_until_barrier(&fixture.output);
    let (mut after, third) = values_until_barrier(&fixture.output);
    assert_eq!((second, third), (Epoch(2), Epoch(3)));
    before.extend(kept.iter().flat_map(|v| [*v, *v]));
    before.sort_unstable();
    assert_eq!(before, (2..8).flat_map(|v| [v, v]).collect::<Vec<_>>(), "each once in the checkpoint");
    after.sort_unstable();
    kept.push(8);
    kept.sort_unstable();
    assert_eq!(after, kept.iter().flat_map(|v| [*v, *v]).collect::<Vec<_>>(), "each once further on");
    assert!(report().channels.is_empty());
}

#[test]
fn an_edge_starts_with_the_barrier_that_attaches_it() {
    let fixture = start();
    let (to_late, late) = channel(fixture._worker.actor_signal(), CHANNEL_BYTES_MAX);
    let job = JobId::FIRST_USER;
    let number = fixture.shared.pending.add(Edge { job, routing: Routing::Forward(to_late) });
    let attach = [(fixture.actor, vec![number])].into_iter().collect();
    let mutation = Mutation { attach, ..Mutation::default() };
    for input in &fixture.inputs {
        input.send(rows_message(&[7]));
        input.send(Message::Watermark(Watermark { column: 0, time_us: 3 }));
        input.send(Message::Watermark(Watermark { column: 0, time_us: 5 }));
        input.send(Message::Watermark(Watermark { column: 1, time_us: 4 }));
        input.send(barrier(1, Some(mutation.clone())));
        input.send(rows_message(&[8]));
        input.send(barrier(2, None));
    }
    assert_eq!(values_until_barrier(&late), (vec![], Epoch(1)));
    // What was promised before holds for it too.
    let mut promised = Vec::new();
    for _ in 0..2 {
        match receive(&late) {
            Message::Watermark(watermark) => promised.push((watermark.column, watermark.time_us)),
            other => panic!("a watermark, not {other:?}"),
        }
    }
    promised.sort_unstable();
    assert_eq!(promised, [(0, 5), (1, 4)]);
    assert_eq!(values_until_barrier(&late), (vec![8; 4], Epoch(2)));
    assert_eq!(values_until_barrier(&fixture.output), (vec![7; 4], Epoch(1)));
}

#[test]
fn an_actor_that_replaces_another_waits_for_what_that_hands_over() {
    let waits_for = Arc::<Start>::default();
    let fixture = start_waiting(waits_for.clone());
    let job = JobId::FIRST_USER;
    let mutation = Mutation { added: vec![job], removed: vec![job], ..Mutation::default() };
    for input in &fixture.inputs {
        input.send(barrier(1, Some(mutation.clone())));
        input.send(rows_message(&[7]));
        input.send(barrier(2, None));
    }
    assert!(fixture.events.recv_timeout(Duration::from_millis(100)).is_err());
    assert!(fixture.output.is_empty(), "nothing is taken before there is something to begin with");
    let state: Arc<dyn crate::state::store::StateRead> = MemoryStore::default().snapshot();
    waits_for.begin(Handover { epoch: Epoch(1), state, offsets: HashMap::new() });
    // Its edges stay, and it goes on, where the one before ended.
    assert_eq!(values_until_barrier(&fixture.output), (vec![], Epoch(1)));
    assert_eq!(values_until_barrier(&fixture.output), (vec![7; 4], Epoch(2)));
    assert_eq!(
        fixture.events.recv_timeout(Duration::from_secs(20)),
        Ok(Ok(Epoch(2))),
        "1 is not its to report"
    );
}

#[test]
fn a_failure_is_reported_and_the_actor_does_nothing_more() {
    let fixture = start();
    fixture.inputs[0].send(rows_message(&[13]));
    let told = fixture.events.recv_timeout(Duration::from_secs(20));
    assert_eq!(told, Ok(Err("thirteen".to_owned())));
    fixture.inputs.iter().for_each(|i| i.send(barrier(1, None)));
    assert!(fixture.events.recv_timeout(Duration::from_millis(100)).is_err());
}

fn rows_message(values: &[i64]) -> Message {
    Message::Changes(rows(values))
}
