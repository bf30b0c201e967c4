//! The chain: long rows go through it in pieces, and what operators hold is counted.

use super::*;
use crate::state::memory::MemoryStore;
use crate::state::store::StateStore;
use arrow::array::{AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};

/// Makes a text of 10 kB of each number; holds what comes in until a checkpoint.
struct Spread;

const TEXT_BYTES: usize = 10_000;

impl Operator for Spread {
    fn name(&self) -> &'static str {
        "spread"
    }

    fn on_change(
        &mut self,
        _: usize,
        batch: ChangeBatch,
        out: &mut Output,
    ) -> Result<Progress, OperatorError> {
        let numbers = batch.column(0).as_primitive::<Int64Type>().values();
        let text = StringArray::from_iter_values(numbers.iter().map(|n| format!("{n:0TEXT_BYTES$}")));
        let schema = Arc::new(Schema::new(vec![Field::new("t", DataType::Utf8, true)]));
        let rows = RecordBatch::try_new(schema, vec![Arc::new(text)]).expect("one column");
        out.push(ChangeBatch::insertions(rows));
        Ok(Progress::Done)
    }

    fn held_until(&self) -> Option<BarrierKind> {
        Some(BarrierKind::Checkpoint)
    }
}

fn chain() -> Chain {
    let nodes = vec![ChainNode { operator: Box::new(Spread), parent: None }];
    let state = MemoryStore::new().snapshot();
    let source: StateSource = Arc::new(move || (Epoch::ZERO, Arc::clone(&state)));
    Chain::new(nodes, vec![(0, 0)], Vec::new(), VnodeSet::all(), source)
}

fn numbers(n: i64) -> ChangeBatch {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
    let column = Arc::new(Int64Array::from_iter_values(0..n));
    ChangeBatch::insertions(RecordBatch::try_new(schema, vec![column]).expect("one column"))
}

#[test]
fn rows_that_grow_go_on_in_pieces_in_their_order() {
    let mut chain = chain();
    let mut seen = 0;
    for round in 0..2 {
        chain.change(0, numbers(4096));
        while chain.is_busy() {
            let Effect::Output(OutputItem::Changes(batch)) = chain.step().expect("no failure") else {
                continue;
            };
            // Until it is known how long the rows become they are few.
            let most = if round == 0 && seen == 0 { FIRST_ROWS * TEXT_BYTES } else { OUTPUT_BYTES_MAX };
            assert!(batch.slice_memory() <= most * 11 / 10, "{} bytes", batch.slice_memory());
            for row in batch.column(0).as_string::<i32>() {
                assert_eq!(row.and_then(|text| text.parse().ok()), Some(seen % 4096));
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 2 * 4096);
}

#[test]
fn what_is_held_is_told_once_and_taken_away_by_its_barrier() {
    let mut chain = chain();
    let rows = numbers(1000);
    let bytes = rows.slice_memory();
    chain.change(0, rows);
    while chain.is_busy() {
        chain.step().expect("no failure");
    }
    assert_eq!((chain.take_changed(), chain.take_changed()), (bytes, 0));
    assert_eq!(chain.take_sealed(BarrierKind::Tick), 0);
    assert_eq!(chain.take_sealed(BarrierKind::Checkpoint), bytes);
    assert_eq!(chain.take_sealed(BarrierKind::Checkpoint), 0);
}

/// Keeps the lengths of the changes that it takes, and says a long row at every barrier.
struct Gather(Arc<std::sync::Mutex<Vec<usize>>>);

impl Operator for Gather {
    fn name(&self) -> &'static str {
        "gather"
    }

    fn on_change(&mut self, _: usize, batch: ChangeBatch, _: &mut Output) -> Result<Progress, OperatorError> {
        self.0.lock().expect("no panic").push(batch.num_rows());
        Ok(Progress::Done)
    }

    fn on_barrier(&mut self, _: &Barrier, out: &mut Output) -> Result<Progress, OperatorError> {
        Spread.on_change(0, numbers(1), out)
    }
}

#[test]
fn long_rows_said_at_a_barrier_cut_no_change() {
    let taken = Arc::default();
    let nodes = vec![ChainNode { operator: Box::new(Gather(Arc::clone(&taken))), parent: None }];
    let state = MemoryStore::new().snapshot();
    let source: StateSource = Arc::new(move || (Epoch::ZERO, Arc::clone(&state)));
    let mut chain = Chain::new(nodes, vec![(0, 0)], Vec::new(), VnodeSet::all(), source);
    for epoch in 1..=3 {
        chain.change(0, numbers(4096));
        while chain.is_busy() {
            chain.step().expect("no failure");
        }
        chain.barrier(&Arc::new(Barrier {
            epoch: Epoch(epoch),
            previous: Epoch(epoch - 1),
            kind: BarrierKind::Tick,
            dml_position: 0,
            now_us: 0,
            mutation: None,
            unaligned: false,
            after_unaligned: false,
        }));
        while chain.is_busy() {
            chain.step().expect("no failure");
        }
    }
    assert_eq!(*taken.lock().expect("no panic"), [FIRST_ROWS, 4096 - FIRST_ROWS, 4096, 4096]);
}
