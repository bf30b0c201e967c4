//! A source's watermark: which rows are late, what each actor promises, and that a restore and a
//! reader of the past find the same.

use super::*;
use crate::connectors::source::SourceError;
use crate::dataflow::operator::OutputItem;
use crate::operators::source_scan::{SourceScan, SourceScanSpec};
use crate::state::memory::MemoryStore;
use crate::state::store::{StateRead, StateStore};
use crate::state::writes::RunPool;
use crate::stream::{BarrierKind, Mutation, VnodeSet};
use arrow::array::{ArrayRef, Int64Array, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit};
use std::sync::atomic::AtomicUsize;

const DELAY: i64 = 5;

/// Splits of times; a row's number is split * 1000 + its place.
#[derive(Clone, Default)]
struct Fake {
    splits: Arc<Mutex<Vec<Vec<Option<i64>>>>>,
    grows: bool,
    batch: usize,
    /// Rows of each split that can be read so far.
    allowed: Arc<AtomicUsize>,
}

fn fields(columns: &[usize]) -> SchemaRef {
    let all = [
        Field::new("n", DataType::Int64, true),
        Field::new("ts", DataType::Timestamp(TimeUnit::Microsecond, None), true),
    ];
    Arc::new(Schema::new(columns.iter().map(|c| all[*c].clone()).collect::<Vec<_>>()))
}

struct FakeReader {
    fake: Fake,
    split: usize,
    at: usize,
    until: usize,
    columns: Vec<usize>,
}

impl SplitReader for FakeReader {
    fn poll(&mut self, _: usize, _: i64) -> Result<SplitPoll, SourceError> {
        let times = self.fake.splits.lock()[self.split].clone();
        let end = times.len().min(self.until);
        if self.at == end {
            return Ok(if self.fake.grows {
                SplitPoll::Idle { until_us: None }
            } else {
                SplitPoll::Finished
            });
        }
        let end = end.min(self.at + self.fake.batch).min(self.fake.allowed.load(Ordering::Relaxed));
        if self.at >= end {
            return Ok(SplitPoll::Idle { until_us: None });
        }
        let rows = self.at..end;
        let numbers = rows.clone().map(|row| (self.split * 1000 + row) as i64);
        let all: [ArrayRef; 2] = [
            Arc::new(Int64Array::from_iter_values(numbers)),
            Arc::new(rows.map(|row| times[row]).collect::<TimestampMicrosecondArray>()),
        ];
        self.at = end;
        let columns = self.columns.iter().map(|c| all[*c].clone()).collect();
        let rows = RecordBatch::try_new(fields(&self.columns), columns).expect("columns");
        Ok(SplitPoll::Rows(rows, Vec::new()))
    }

    fn offset(&self) -> Offset {
        Offset(self.at.to_string())
    }
}

impl Source for Fake {
    fn splits(&self) -> Result<Vec<Split>, SourceError> {
        Ok((0..self.splits.lock().len()).map(|i| Split { name: i.to_string() }).collect())
    }

    fn grows(&self) -> bool {
        self.grows
    }

    fn reader(
        &self,
        split: &Split,
        from: Option<&Offset>,
        until: Option<&Offset>,
        columns: &[usize],
        _: Waker,
    ) -> Result<Box<dyn SplitReader>, SourceError> {
        let number = |o: &Offset| o.0.parse::<usize>().expect("a number");
        Ok(Box::new(FakeReader {
            fake: self.clone(),
            split: split.name.parse().expect("a number"),
            at: from.map_or(0, number),
            until: until.map_or(usize::MAX, number),
            columns: columns.to_vec(),
        }))
    }
}

/// The actors of the source, and all that they gave.
struct Actors {
    fake: Fake,
    shared: Arc<SourceShared>,
    readers: Vec<SourceReader>,
    epoch: Epoch,
    rows: Vec<i64>,
    promises: Vec<Option<i64>>,
    letters: usize,
    now_us: i64,
}

impl Actors {
    fn new(fake: &Fake, actors: usize) -> Self {
        let spec = WatermarkSpec { column: 1, delay_us: DELAY, late_rows: LateRows::DeadLetter };
        let shared = Arc::new(SourceShared::new(Some(spec)));
        shared.want(ObjectId(20001), &[0]);
        let reader = |actor| {
            SourceReader::new(SourceSpec {
                id: ObjectId(20000),
                name: "s".to_owned(),
                source: Arc::new(fake.clone()),
                actor: (actor, actors),
                shared: shared.clone(),
                waker: Arc::new(|| {}),
            })
        };
        let readers = (0..actors).map(reader).collect();
        let promises = vec![None; actors];
        Self {
            fake: fake.clone(),
            shared,
            readers,
            epoch: Epoch::ZERO,
            rows: Vec::new(),
            promises,
            letters: 0,
            now_us: 0,
        }
    }

    fn restore(&mut self, offsets: &[(OffsetKey, Offset)]) {
        let state: Arc<dyn StateRead> = MemoryStore::new().snapshot();
        let offsets = offsets.iter().cloned().collect();
        let vnodes = VnodeSet::all();
        for reader in &mut self.readers {
            let restored = Restored { state: &state, vnodes: &vnodes, offsets: &offsets, epoch: Epoch(1) };
            reader.restore(&restored).expect("restored");
        }
    }

    fn take(&mut self, actor: usize, out: &mut Output) {
        for item in out.take() {
            match item {
                OutputItem::Changes(batch) => {
                    self.rows.extend(batch.column(0).as_primitive::<Int64Type>().values());
                }
                OutputItem::Watermark(watermark) => {
                    assert!(self.promises[actor] <= Some(watermark.time_us), "no promise is taken back");
                    self.promises[actor] = Some(watermark.time_us);
                }
            }
        }
    }

    fn barrier(&mut self) -> Vec<(OffsetKey, Offset)> {
        let previous = self.epoch;
        self.epoch = previous.next();
        let mutation = Some(Arc::new(Mutation::default()));
        let kind = BarrierKind::Checkpoint;
        let barrier = Barrier {
            epoch: self.epoch,
            previous,
            kind,
            dml_position: 0,
            now_us: 0,
            mutation,
            unaligned: false,
            after_unaligned: false,
        };
        let mut sealed = Sealed::default();
        for actor in 0..self.readers.len() {
            let mut out = Output::default();
            self.readers[actor].on_barrier(&barrier, &mut out).expect("no failure");
            self.take(actor, &mut out);
            self.readers[actor].seal(&barrier, &mut sealed).expect("sealed");
        }
        self.letters += sealed
            .runs
            .encode(&RunPool::default())
            .expect("encoded")
            .iter()
            .map(|run| run.len())
            .sum::<usize>();
        sealed.offsets
    }

    /// Reads what is allowed.
    fn read(&mut self, allowed: usize) {
        self.fake.allowed.store(allowed, Ordering::Relaxed);
        for _ in 0..2 {
            self.now_us += 2 * LIST_INTERVAL_US;
            let now_us = self.now_us;
            for actor in 0..self.readers.len() {
                let mut out = Output::default();
                while self.readers[actor].poll(now_us, &mut out).expect("no failure") == Polled::Busy {
                    self.take(actor, &mut out);
                }
                self.take(actor, &mut out);
            }
        }
    }

    fn sorted(&self) -> Vec<i64> {
        let mut rows = self.rows.clone();
        rows.sort_unstable();
        rows
    }
}

fn times(times: &[i64]) -> Vec<Option<i64>> {
    times.iter().map(|t| (*t >= 0).then_some(*t)).collect()
}

fn fake(batch: usize) -> Fake {
    let splits = vec![
        // 12, 13 and 24 are late.
        times(&[10, 20, -1, 12, 16, 13, 30, 24, 25, 40]),
        // 3 is late; times far behind the other split's are not.
        times(&[1, 2, 9, 3, 4]),
    ];
    Fake { splits: Arc::new(Mutex::new(splits)), batch, ..Fake::default() }
}

const IN_TIME: [i64; 11] = [0, 1, 2, 4, 6, 8, 9, 1000, 1001, 1002, 1004];

#[test]
fn the_same_rows_are_late_whatever_the_batches_and_actors() {
    for batch in [1, 3, 100] {
        for actors in [1, 2, 4] {
            let mut source = Actors::new(&fake(batch), actors);
            source.barrier();
            source.read(usize::MAX);
            source.barrier();
            assert_eq!(source.sorted(), IN_TIME, "batches of {batch}, {actors} actors");
            assert_eq!((source.letters, source.shared.counts().late), (4, 4));
            // All splits have ended.
            assert_eq!(source.promises, vec![Some(END_US); actors]);
        }
    }
}

#[test]
fn an_actor_promises_the_least_of_its_open_splits() {
    let mut source = Actors::new(&fake(1), 1);
    source.barrier();
    source.read(2);
    assert_eq!(source.promises, [Some(2 - DELAY)]);
    source.read(4);
    assert_eq!(source.promises, [Some(9 - DELAY)]);
    source.read(6);
    assert_eq!(source.promises, [Some(20 - DELAY)], "the second split has ended");
    source.promises = vec![None];
    source.barrier();
    source.read(6);
    assert_eq!(source.promises, [Some(20 - DELAY)], "who reads from this barrier on hears it too");
    source.promises = vec![None];
    source.read(6);
    assert_eq!(source.promises, [None], "once is enough");
}

#[test]
fn a_restore_at_any_place_and_parallelism_finds_the_same_rows_late() {
    for cut in 0..11 {
        for (before, after) in [(1, 1), (1, 2), (2, 1), (3, 2)] {
            let fake = fake(2);
            let mut first = Actors::new(&fake, before);
            first.barrier();
            first.read(cut);
            let offsets = first.barrier();
            let mut second = Actors::new(&fake, after);
            second.restore(&offsets);
            second.barrier();
            let promised = |actors: &Actors| actors.promises.iter().copied().min().flatten();
            assert!(promised(&second) >= promised(&first), "cut at {cut}, {before} to {after} actors");
            let late = second.shared.counts().late;
            assert_eq!(late, first.shared.counts().late, "the count goes on");
            second.read(usize::MAX);
            second.rows.extend(&first.rows);
            assert_eq!(second.sorted(), IN_TIME, "cut at {cut}, {before} to {after} actors");
            assert_eq!(second.shared.counts().late, 4);
        }
    }
}

#[test]
fn a_split_that_turns_up_starts_from_what_was_promised_and_idle_actors_follow() {
    let fake = Fake { grows: true, ..fake(100) };
    fake.splits.lock().truncate(1);
    let mut source = Actors::new(&fake, 2);
    source.barrier();
    source.read(usize::MAX);
    // The second actor has no split: it promises what the first does.
    assert_eq!(source.promises, [Some(40 - DELAY); 2]);
    let offsets = source.barrier();
    for restored in [false, true] {
        let mut source = if restored {
            let mut second = Actors::new(&fake, 2);
            second.restore(&offsets);
            second.barrier();
            assert_eq!(second.promises, [Some(40 - DELAY); 2]);
            second
        } else {
            std::mem::replace(&mut source, Actors::new(&fake, 1))
        };
        source.rows.clear();
        fake.splits.lock().truncate(1);
        fake.splits.lock().push(times(&[34, 35, 50, 44]));
        source.read(usize::MAX);
        assert_eq!(source.sorted(), [1001, 1002], "restored: {restored}");
        // A reader of the past drops them as well.
        source.barrier();
        let positions = source.shared.positions_at((1, 2), source.epoch);
        assert_eq!(positions.len(), 1);
        assert_eq!(positions[0].2.floor_us(), Some(40 - DELAY));
        // One reader has the past of all, a third one none.
        assert_eq!(source.shared.positions_at((0, 1), source.epoch).len(), 2);
        assert_eq!(source.shared.positions_at((2, 3), source.epoch).len(), 0);
    }
}

#[test]
fn a_reader_of_the_past_finds_the_same_rows_late() {
    for (cut, batch) in [(0, 3), (4, 1), (7, 2), (20, 100)] {
        let fake = fake(batch);
        let mut source = Actors::new(&fake, 1);
        source.barrier();
        source.read(cut);
        source.barrier();
        let mut scan = SourceScan::new(SourceScanSpec {
            job: ObjectId(20001),
            source: Arc::new(fake.clone()),
            shared: source.shared.clone(),
            actor: (0, 1),
            columns: vec![0],
            schema: fields(&[0]),
            waker: Arc::new(|| {}),
        });
        let barrier = Barrier {
            epoch: source.epoch,
            previous: Epoch::ZERO,
            kind: BarrierKind::Tick,
            dml_position: 0,
            now_us: 0,
            mutation: None,
            unaligned: false,
            after_unaligned: false,
        };
        let mut out = Output::default();
        scan.on_barrier(&barrier, &mut out).expect("no failure");
        let mut past = Vec::new();
        loop {
            let polled = scan.poll(0, &mut out).expect("no failure");
            for item in out.take() {
                if let OutputItem::Changes(batch) = item {
                    assert_eq!(batch.rows().num_columns(), 1);
                    past.extend(batch.column(0).as_primitive::<Int64Type>().values().to_vec());
                }
            }
            if polled != Polled::Busy {
                break;
            }
        }
        past.sort_unstable();
        assert_eq!(past, source.sorted(), "after {cut} rows of each split");
    }
}
