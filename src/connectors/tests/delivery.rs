//! Cutting a range into chunks: nothing lost, nothing twice, the same cut each time.

use super::*;
use crate::stream::Epoch;
use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use std::collections::BTreeSet;
use weir_catalog::ObjectId;

fn batch(keys: std::ops::Range<i64>, value: i64, diff: i64) -> ChangeBatch {
    let count = (keys.end - keys.start) as usize;
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(keys));
    let values: ArrayRef = Arc::new(Int64Array::from(vec![value; count]));
    ChangeBatch::new(RecordBatch::try_from_iter([("k", keys), ("v", values)]).unwrap(), vec![diff; count])
}

/// Two actors, three epochs; every key of 0..30000 inserted, those below 10000 then changed.
fn handles(log: &Arc<SinkLog>, retract: bool) -> Vec<CommitHandle> {
    let mut handles = Vec::new();
    let mut writers = [0, 1].map(|actor| log.writer(ObjectId(1), actor, 1));
    for (epoch, actor, keys) in [(1, 0, 0..10_000), (1, 1, 10_000..20_000), (2, 1, 20_000..30_000)] {
        writers[actor].append(&batch(keys, 0, 1)).unwrap();
        handles.extend(writers[actor].seal(Epoch(epoch)).unwrap());
    }
    if retract {
        writers[0].append(&batch(0..10_000, 0, -1)).unwrap();
        writers[1].append(&batch(0..10_000, 1, 1)).unwrap();
        handles.extend(writers.iter_mut().filter_map(|w| w.seal(Epoch(3)).unwrap()));
    }
    handles
}

fn run(plan: DeliveryPlan, skip: u32) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    plan.run(skip, &mut |chunk| {
        chunks.push(chunk);
        true
    })
    .unwrap();
    chunks
}

fn rows(chunk: &Chunk) -> Vec<(i64, i64, i64)> {
    let row = |b: &ChangeBatch, i| {
        let value = |c: usize| b.column(c).as_primitive::<Int64Type>().value(i);
        (value(0), value(1), b.diff(i))
    };
    chunk.batches.iter().flat_map(|b| (0..b.num_rows()).map(move |i| row(b, i))).collect()
}

#[test]
fn any_cut_delivers_all_once_and_the_same_from_any_chunk_on() {
    for (sink_type, key, retract) in [
        (SinkType::AppendOnly, vec![], false),
        (SinkType::Upsert, vec![0], true),
        (SinkType::Debezium, vec![0], true),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let log = SinkLog::open(dir.path(), &[]).unwrap();
        let handles = handles(&log, retract);
        for chunk_bytes in [1, 200_000, u64::MAX] {
            let plan = || {
                DeliveryPlan::new(&log, &handles, sink_type, &key)
                    .unwrap()
                    .with_chunk_bytes(chunk_bytes.max(100_000))
            };
            let whole: Vec<_> = run(plan(), 0);
            assert!(
                whole
                    .iter()
                    .enumerate()
                    .all(|(i, c)| c.number == i as u32 && c.last == (i + 1 == whole.len()))
            );
            assert!(chunk_bytes != 1 || whole.len() >= 3, "{} chunks", whole.len());
            let all: Vec<_> = whole.iter().flat_map(rows).collect();
            let distinct: BTreeSet<_> = all.iter().copied().collect();
            assert_eq!((all.len(), distinct.len()), (30_000, 30_000), "{sink_type:?}");
            let changed = if retract { 10_000 } else { 0 };
            assert_eq!(all.iter().filter(|r| r.1 == 1).count(), changed);

            let skip = whole.len() as u32 / 2;
            let rest: Vec<_> = run(plan(), skip).iter().map(rows).collect();
            assert_eq!(rest, whole[skip as usize..].iter().map(rows).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_range_that_comes_to_nothing_has_one_empty_chunk() {
    let dir = tempfile::tempdir().unwrap();
    let log = SinkLog::open(dir.path(), &[]).unwrap();
    let mut writer = log.writer(ObjectId(1), 0, 1);
    writer.append(&batch(0..5, 0, 1)).unwrap();
    writer.append(&batch(0..5, 0, -1)).unwrap();
    let handles: Vec<_> = writer.seal(Epoch(1)).unwrap().into_iter().collect();
    let chunks = run(DeliveryPlan::new(&log, &handles, SinkType::Upsert, &vec![0]).unwrap(), 0);
    assert_eq!(chunks.len(), 1);
    assert!(chunks[0].last && chunks[0].batches.is_empty());
    assert_eq!(batch(0..2, 0, 1).column(0).len(), 2);
}
