//! How fast aggregates are, by shape: run it optimized, by hand.
//!
//! `cargo test --release -p weir --lib aggregate::speed -- --ignored --nocapture`

use super::tests::{call, make};
use super::*;
use crate::operators::script::schema;
use crate::stream::BarrierKind;
use arrow::array::{BooleanArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::DataType;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::time::Instant;
use weir_sql::plan::AggregateFunction::{Avg, Count, Max, Min, Sum};

const BATCHES: usize = 250;
const BATCH_ROWS: usize = 4096;

fn batches(input: &SchemaRef, keys: i64) -> Vec<ChangeBatch> {
    let mut rng = StdRng::seed_from_u64(1);
    let mut numbers =
        |below: i64| -> Vec<i64> { (0..BATCH_ROWS).map(|_| rng.random_range(0..below)).collect() };
    (0..BATCHES)
        .map(|_| {
            let key = numbers(keys);
            let text = StringArray::from_iter_values(key.iter().map(|k| format!("channel-{k}")));
            let columns: Vec<ArrayRef> = vec![
                Arc::new(Int64Array::from(key)),
                Arc::new(text),
                Arc::new(Int64Array::from(numbers(1_000_000))),
                Arc::new(BooleanArray::from_iter(numbers(2).iter().map(|n| Some(*n == 0)))),
            ];
            ChangeBatch::insertions(RecordBatch::try_new(input.clone(), columns).unwrap())
        })
        .collect()
}

fn measure(what: &str, group: &[usize], calls: &[AggregateCall], keys: i64, append_only: bool) {
    let input = input();
    let batches = batches(&input, keys);
    let mut aggregate = make(group, calls, &input, append_only);
    let started = Instant::now();
    let mut emitted = 0;
    for (index, batch) in batches.into_iter().enumerate() {
        let mut out = Output::default();
        aggregate.on_change(0, batch, &mut out).unwrap();
        if index % 50 == 49 {
            let epoch = Epoch(index as u64);
            let kind = BarrierKind::Checkpoint;
            let barrier = Barrier {
                epoch,
                previous: Epoch(0),
                kind,
                dml_position: 0,
                now_us: 0,
                mutation: None,
                unaligned: false,
                after_unaligned: false,
            };
            let mut progress = aggregate.on_barrier(&barrier, &mut out).unwrap();
            while progress == Progress::More {
                emitted += out.take().len();
                progress = aggregate.resume(&mut out).unwrap();
            }
            emitted += out.take().len();
            aggregate.seal(&barrier, &mut Sealed::default()).unwrap();
        }
    }
    let rate = (BATCHES * BATCH_ROWS) as f64 / started.elapsed().as_secs_f64() / 1e6;
    eprintln!("{what:40} {keys:>9} keys {rate:8.2} M rows/s, {emitted} batches out");
}

fn input() -> SchemaRef {
    schema(&[("k", DataType::Int64), ("t", DataType::Utf8), ("v", DataType::Int64), ("f", DataType::Boolean)])
}

#[test]
#[ignore = "a measurement, for optimized builds"]
fn rows_a_second() {
    let input = input();
    let count_sum = [call(Count, None, &input), call(Sum, Some(2), &input)];
    let bids = [
        call(Count, None, &input),
        call(Min, Some(2), &input),
        call(Max, Some(2), &input),
        call(Avg, Some(2), &input),
        call(Sum, Some(2), &input),
    ];
    let mut distinct = call(Count, Some(2), &input);
    distinct.distinct = true;
    let mut filtered = distinct.clone();
    filtered.filter = Some(3);
    for keys in [1_000, 100_000, 1_000_000] {
        measure("count, sum by bigint", &[0], &count_sum, keys, true);
        measure("count, sum by text", &[1], &count_sum, keys, true);
        measure("count, min, max, avg, sum by bigint", &[0], &bids, keys, true);
        measure("the same, retractable", &[0], &bids, keys, false);
    }
    measure("distinct counts, one group", &[], &[distinct.clone(), filtered.clone()], 1, true);
    measure("distinct counts, by text", &[1], &[distinct, filtered], 1_000, true);
}
