//! A Source and its splits as a stream: read once per database, for every job that wants it.
//!
//! The rows have the union of the columns that its readers want, named, in order of declaration;
//! each job's [`super::source_scan`] picks its own. With a declared watermark, rows that come
//! below that of their split ([`super::lateness`]) are dropped here, counted and kept as dead
//! letters, and nobody downstream decides about lateness again.
//!
//! ```text
//!   split a   mark ─┐
//!   split b   mark ─┴─ least ──> this actor's promise ──(exchanges take the least of all)──> watermark
//! ```
//! An actor whose splits have all ended promises the end, or, where more may turn up, what the others
//! promise. Marks and promises are state: after a restore the same rows are late.

use crate::checkpoint::participant::{Offset, OffsetKey, Sealed};
use crate::connectors::dead_letter;
use crate::connectors::source::{DeadLetter, Source, Split, SplitPoll, SplitReader, Waker};
use crate::dataflow::operator::{Operator, OperatorError, Output, Polled, Progress, Restored};
use crate::operators::lateness::Mark;
use crate::state::table::StateTable;
use crate::stream::watermark::END_US;
use crate::stream::{Barrier, ChangeBatch, Epoch, Watermark};
use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::compute::{filter_record_batch, not};
use arrow::datatypes::TimestampMicrosecondType;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_catalog::source::{LateRows, WatermarkSpec};
use weir_catalog::{JobId, ObjectId};

/// Rows asked of a split at a time.
const POLL_ROWS_MAX: usize = 4096;
/// How often a growing source is asked for new splits, microseconds.
const LIST_INTERVAL_US: i64 = 1_000_000;

/// Splits, where each was read up to, and the mark that its rows start from.
pub type Positions = Vec<(Split, Option<Offset>, Mark)>;

/// What the actors of one source share with the jobs that read it.
#[derive(Default)]
pub struct SourceShared {
    /// Event time, if declared.
    pub watermark: Option<WatermarkSpec>,
    /// By actor with open splits: what it promises.
    promises: Mutex<BTreeMap<usize, Option<i64>>>,
    /// By job: the columns that it wants, from before the barrier at which it starts until the one at
    /// which it ends. Taken up by the source's actors at barriers that change the graph.
    wanted: Mutex<BTreeMap<JobId, Want>>,
    /// By actor: where its splits were at the last barrier that changed the graph.
    positions: Mutex<HashMap<usize, (Epoch, Positions)>>,
    /// Rows dropped because they came below the watermark.
    pub late_rows: AtomicU64,
    /// Rows that could not be decoded.
    pub dead_rows: Arc<AtomicU64>,
    /// Rows read.
    pub rows: Arc<AtomicU64>,
}

/// What a job wants of a source.
#[derive(Debug, Default)]
struct Want {
    columns: BTreeSet<usize>,
    /// How many of the source's actors have seen the barrier that ends it: others are behind.
    ended: usize,
}

/// What was read of a source since its shared reader started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounts {
    /// Rows read.
    pub rows: u64,
    /// Rows dropped because they came below the watermark.
    pub late: u64,
    /// Messages that could not be decoded.
    pub dead: u64,
}

impl SourceShared {
    /// Of a source with this event time.
    pub fn new(watermark: Option<WatermarkSpec>) -> Self {
        Self { watermark, ..Self::default() }
    }

    /// Of the same source, read by other actors from a barrier on: they count on. Rows that were late
    /// are restored with their splits.
    pub fn successor(&self) -> Self {
        Self {
            watermark: self.watermark.clone(),
            dead_rows: Arc::clone(&self.dead_rows),
            rows: Arc::clone(&self.rows),
            ..Self::default()
        }
    }

    /// `job` wants `columns` too, from the next barrier with a mutation on until it is removed by one.
    pub fn want(&self, job: JobId, columns: &[usize]) {
        self.wanted.lock().entry(job).or_default().columns.extend(columns);
    }

    /// `job` was not started after all.
    pub fn unwant(&self, job: JobId) {
        self.wanted.lock().remove(&job);
    }

    /// What was read so far.
    pub fn counts(&self) -> SourceCounts {
        SourceCounts {
            rows: self.rows.load(Ordering::Relaxed),
            late: self.late_rows.load(Ordering::Relaxed),
            dead: self.dead_rows.load(Ordering::Relaxed),
        }
    }

    /// Where splits were at the barrier of `epoch`: those whose past is for `reader` of `readers`
    /// actors. Where the source has as many actors, they are those of the one that feeds it.
    pub fn positions_at(&self, (reader, readers): (usize, usize), epoch: Epoch) -> Positions {
        let positions = self.positions.lock();
        let own = positions.iter().filter(|(actor, (at, _))| *actor % readers == reader && *at == epoch);
        own.flat_map(|(_, (_, splits))| splits.iter().cloned()).collect()
    }
}

/// What a source operator is made of.
pub struct SourceSpec {
    /// The source's id.
    pub id: ObjectId,
    /// Its name, for dead letters.
    pub name: String,
    /// The connector.
    pub source: Arc<dyn Source>,
    /// This actor's index, and how many there are.
    pub actor: (usize, usize),
    /// What is shared with its readers.
    pub shared: Arc<SourceShared>,
    /// Wakes the actor.
    pub waker: Waker,
}

struct OpenSplit {
    split: Split,
    reader: Box<dyn SplitReader>,
    finished: bool,
    wake_us: Option<i64>,
    /// What its rows have shown of event time.
    mark: Mark,
}

/// Reads the splits of one actor.
pub struct SourceReader {
    spec: SourceSpec,

    columns: Vec<usize>,
    /// Jobs that have ended here, and not yet at each of the source's actors.
    ended: BTreeSet<JobId>,
    splits: Vec<OpenSplit>,
    restored: HashMap<String, Offset>,
    /// Marks of restored splits.
    marks: HashMap<String, Mark>,
    /// What the source had promised when it was restored: new splits start there.
    floor_us: Option<i64>,
    next: usize,
    list_us: i64,
    started: bool,
    /// What this actor has promised.
    watermark_us: Option<i64>,
    /// Whether there may be readers that were not there when it did.
    repeats: bool,
    /// What could not be decoded in this epoch.
    dead: Vec<DeadLetter>,
    dead_table: StateTable,
}

impl SourceReader {
    /// Reads nothing before its first barrier.
    pub fn new(spec: SourceSpec) -> Self {
        Self {
            spec,
            dead: Vec::new(),
            dead_table: StateTable::new(Arc::new(dead_letter::layout())),
            columns: Vec::new(),
            ended: BTreeSet::new(),
            splits: Vec::new(),
            restored: HashMap::new(),
            marks: HashMap::new(),
            floor_us: None,
            next: 0,
            list_us: 0,
            started: false,
            watermark_us: None,
            repeats: false,
        }
    }

    fn wanted_columns(&self) -> Vec<usize> {
        let wanted = self.spec.shared.wanted.lock();
        let reading = wanted.iter().filter(|(job, _)| !self.ended.contains(job));
        let mut columns: BTreeSet<usize> =
            reading.flat_map(|(_, want)| want.columns.iter().copied()).collect();
        columns.extend(self.spec.shared.watermark.as_ref().map(|w| w.column));
        columns.into_iter().collect()
    }

    /// What jobs wanted that `barrier` ends; not before, since up to here they read all of it.
    fn give_up(&mut self, barrier: &Barrier) {
        let mut wanted = self.spec.shared.wanted.lock();
        for (job, want) in wanted.iter_mut().filter(|(job, _)| barrier.ends(**job)) {
            want.ended += 1;
            self.ended.insert(*job);
        }
        wanted.retain(|_, want| want.ended < self.spec.actor.1);
        self.ended.retain(|job| wanted.contains_key(job));
    }

    fn open(&self, split: &Split, from: Option<&Offset>) -> Result<Box<dyn SplitReader>, OperatorError> {
        self.spec
            .source
            .reader(split, from, None, &self.columns, Arc::clone(&self.spec.waker))
            .map_err(|e| OperatorError::Source(format!("{} of source {}: {e}", split.name, self.spec.id)))
    }

    /// Opens the splits that are dealt to this actor and not yet open.
    fn list_splits(&mut self) -> Result<bool, OperatorError> {
        let splits = self
            .spec
            .source
            .splits()
            .map_err(|e| OperatorError::Source(format!("splits of source {}: {e}", self.spec.id)))?;
        let (actor, actors) = self.spec.actor;
        let mut added = false;
        // What is left is of splits that are not listed any more; others have theirs elsewhere.
        let listed: BTreeSet<String> = splits.iter().map(|s| s.name.clone()).collect();
        let mut gone = std::mem::take(&mut self.restored);
        let mut found: HashMap<String, Offset> = HashMap::new();
        gone.retain(|name, offset| {
            let known = listed.contains(name);
            if known {
                found.insert(name.clone(), offset.clone());
            }
            !known
        });
        self.restored = gone;
        for (index, split) in splits.into_iter().enumerate() {
            if index % actors != actor || self.splits.iter().any(|s| s.split == split) {
                continue;
            }
            let from = found.remove(&split.name);
            let reader = self.open(&split, from.as_ref())?;
            let floor = || Mark::from_floor(self.watermark_us.max(self.floor_us));
            let mark = self.marks.remove(&split.name).unwrap_or_else(floor);
            self.spec.shared.late_rows.fetch_add(mark.late, Ordering::Relaxed);
            self.splits.push(OpenSplit { split, reader, finished: false, wake_us: None, mark });
            added = true;
        }
        Ok(added)
    }

    /// Reads on with other columns, from where each split is.
    fn reopen(&mut self, columns: Vec<usize>) -> Result<(), OperatorError> {
        self.columns = columns;
        for index in 0..self.splits.len() {
            let at = self.splits[index].reader.offset();
            self.splits[index].reader = self.open(&self.splits[index].split, Some(&at))?;
            self.splits[index].finished = false;
        }
        Ok(())
    }

    fn emit(&mut self, index: usize, rows: RecordBatch, out: &mut Output) -> Result<(), OperatorError> {
        self.spec.shared.rows.fetch_add(rows.num_rows() as u64, Ordering::Relaxed);
        let Some(watermark) = self.spec.shared.watermark.clone() else {
            out.push(ChangeBatch::insertions(rows));
            return Ok(());
        };
        let position = self.columns.iter().position(|c| *c == watermark.column);
        let position = position.ok_or_else(|| OperatorError::Internal("watermark column is read".into()))?;
        let times = rows.column(position).as_primitive::<TimestampMicrosecondType>();
        let split = &mut self.splits[index];
        let late_before = split.mark.late;
        match split.mark.pass(times, watermark.delay_us) {
            None => out.push(ChangeBatch::insertions(rows)),
            Some(in_time) => {
                out.push(ChangeBatch::insertions(filter_record_batch(&rows, &in_time)?));
                self.keep_late(index, late_before, watermark.late_rows, &rows, &in_time)?;
            }
        }
        self.promise(out);
        Ok(())
    }

    /// Counts and keeps the rows of a split's batch that are not in time.
    fn keep_late(
        &mut self,
        index: usize,
        before: u64,
        policy: LateRows,
        rows: &RecordBatch,
        in_time: &BooleanArray,
    ) -> Result<(), OperatorError> {
        let split = &self.splits[index];
        self.spec.shared.late_rows.fetch_add(split.mark.late - before, Ordering::Relaxed);
        if policy == LateRows::DeadLetter {
            let rows = filter_record_batch(rows, &not(in_time)?)?;
            self.dead.extend(dead_letter::late(&split.split.name, before + 1.., &rows));
        }
        Ok(())
    }

    /// Gives out the watermark, where it has moved: the least over the splits that have not ended.
    fn promise(&mut self, out: &mut Output) {
        let shared = &self.spec.shared;
        let Some(watermark) = &shared.watermark else { return };
        let open = || self.splits.iter().filter(|s| !s.finished);
        let mut promises = shared.promises.lock();
        let time_us = if open().next().is_some() {
            let least = open().map(|s| s.mark.watermark_us(watermark.delay_us)).min().flatten();
            let time_us = least.max(self.floor_us);
            promises.insert(self.spec.actor.0, time_us);
            time_us
        } else {
            promises.remove(&self.spec.actor.0);
            let ended = (!self.spec.source.grows()).then_some(END_US);
            ended.or_else(|| promises.values().copied().min().flatten()).max(self.floor_us)
        };
        drop(promises);
        if (time_us > self.watermark_us || self.repeats)
            && let Some(time_us) = time_us.max(self.watermark_us)
        {
            self.repeats = false;
            self.watermark_us = Some(time_us);
            out.push_watermark(Watermark { column: watermark.column, time_us });
        }
    }

    fn restore_mark(&mut self, key: &OffsetKey, value: &Offset) -> Result<(), OperatorError> {
        let damaged = |e: serde_json::Error| OperatorError::Internal(format!("mark of {}: {e}", key.split));
        if key.scan == OffsetKey::MARK {
            self.marks.insert(key.split.clone(), serde_json::from_str(&value.0).map_err(damaged)?);
        }
        Ok(())
    }

    /// The marks of this actor's splits and what it has promised, for the checkpoint.
    fn seal_marks(&self, sealed: &mut Sealed) -> Result<(), OperatorError> {
        if self.spec.shared.watermark.is_none() {
            return Ok(());
        }
        let key = |scan: u32, split: String| OffsetKey { reader: self.spec.id, scan, split };
        let json = |e: serde_json::Error| OperatorError::Internal(format!("a mark as JSON: {e}"));
        let own = self.splits.iter().map(|s| (&s.split.name, &s.mark));
        // Those of splits that were not listed again stay, as their offsets do.
        let gone =
            self.marks.iter().filter(|(name, _)| self.spec.actor.0 == 0 && self.restored.contains_key(*name));
        for (name, mark) in own.chain(gone) {
            let mark = serde_json::to_string(mark).map_err(json)?;
            sealed.offsets.push((key(OffsetKey::MARK, name.clone()), Offset(mark)));
        }
        let promise = serde_json::to_string(&self.watermark_us.max(self.floor_us)).map_err(json)?;
        let actor = self.spec.actor.0.to_string();
        sealed.offsets.push((key(OffsetKey::PROMISE, actor), Offset(promise)));
        Ok(())
    }
}

/// The least of the watermarks that the actors of `source` had given out.
fn restored_promise(
    source: ObjectId,
    offsets: &HashMap<OffsetKey, Offset>,
) -> Result<Option<i64>, OperatorError> {
    let promises = offsets.iter().filter(|(k, _)| k.reader == source && k.scan == OffsetKey::PROMISE);
    let promises: Vec<Option<i64>> = promises
        .map(|(_, value)| serde_json::from_str(&value.0))
        .collect::<Result<_, _>>()
        .map_err(|e| OperatorError::Internal(format!("promise of source {source}: {e}")))?;
    Ok(promises.into_iter().min().flatten())
}

impl Operator for SourceReader {
    fn name(&self) -> &'static str {
        "source"
    }

    fn restore(&mut self, restored: &Restored<'_>) -> Result<(), OperatorError> {
        let id = self.spec.id;
        for (key, offset) in restored.offsets.iter().filter(|(key, _)| key.reader == id) {
            if key.scan == 0 {
                self.restored.insert(key.split.clone(), offset.clone());
            }
            self.restore_mark(key, offset)?;
        }
        self.floor_us = restored_promise(self.spec.id, restored.offsets)?;
        Ok(())
    }

    fn on_change(&mut self, port: usize, _: ChangeBatch, _: &mut Output) -> Result<Progress, OperatorError> {
        Err(OperatorError::Internal(format!("a source has no input {port}")))
    }

    fn on_barrier(&mut self, barrier: &Barrier, out: &mut Output) -> Result<Progress, OperatorError> {
        if !self.started {
            self.started = true;
            self.columns = self.wanted_columns();
            self.list_splits()?;
            self.promise(out);
        } else if barrier.mutation.is_some() {
            self.give_up(barrier);
            let columns = self.wanted_columns();
            if columns != self.columns {
                self.reopen(columns)?;
            }
            let position = |s: &OpenSplit| {
                (s.split.clone(), Some(s.reader.offset()), Mark::from_floor(s.mark.floor_us()))
            };
            let positions = self.splits.iter().map(position).collect();
            self.spec.shared.positions.lock().insert(self.spec.actor.0, (barrier.epoch, positions));
        }
        // Who reads from this barrier on hears after it what was promised before.
        self.repeats |= barrier.mutation.is_some() && self.spec.shared.watermark.is_some();
        Ok(Progress::Done)
    }

    fn poll(&mut self, now_us: i64, out: &mut Output) -> Result<Polled, OperatorError> {
        if !self.started {
            return Ok(Polled::Idle { until_us: None });
        }
        if self.repeats {
            self.promise(out);
        }
        let mut until_us: Option<i64> = None;
        if self.spec.source.grows() {
            if now_us >= self.list_us {
                self.list_us = now_us + LIST_INTERVAL_US;
                self.list_splits()?;
                self.promise(out);
            }
            until_us = Some(self.list_us);
        }
        let splits = self.splits.len();
        for _ in 0..splits {
            let index = self.next;
            let split = &mut self.splits[index];
            if split.finished || split.wake_us.is_some_and(|t| t > now_us) {
                until_us = [until_us, split.wake_us].into_iter().flatten().min();
                self.next = (index + 1) % splits;
                continue;
            }
            split.wake_us = None;
            let polled = split.reader.poll(POLL_ROWS_MAX.min(out.room()), now_us).map_err(|e| {
                OperatorError::Source(format!("{} of source {}: {e}", split.split.name, self.spec.id))
            })?;
            if split.reader.between() || !matches!(polled, SplitPoll::Rows(..)) {
                self.next = (index + 1) % splits;
            }
            match polled {
                SplitPoll::Rows(rows, dead) => {
                    if !dead.is_empty() {
                        self.spec.shared.dead_rows.fetch_add(dead.len() as u64, Ordering::Relaxed);
                        self.dead.extend(dead);
                    }
                    self.emit(index, rows, out)?;
                    return Ok(Polled::Busy);
                }
                SplitPoll::Idle { until_us: split_us } => {
                    split.wake_us = split_us;
                    until_us = [until_us, split_us].into_iter().flatten().min();
                }
                SplitPoll::Finished => {
                    split.finished = true;
                    self.promise(out);
                }
            }
        }
        Ok(Polled::Idle { until_us })
    }

    fn seal(&mut self, barrier: &Barrier, sealed: &mut Sealed) -> Result<(), OperatorError> {
        if !self.dead.is_empty() {
            let dead = std::mem::take(&mut self.dead);
            self.dead_table.put(&dead_letter::rows(self.spec.id, &self.spec.name, barrier.epoch, &dead)?);
            sealed.runs.push(self.dead_table.seal());
        }
        if barrier.is_checkpoint() {
            let key = |split: &str| OffsetKey { reader: self.spec.id, scan: 0, split: split.to_owned() };
            sealed.offsets.extend(self.splits.iter().map(|s| (key(&s.split.name), s.reader.offset())));
            // Splits that were not listed again (a file that is gone) keep their offsets.
            let gone = self.restored.iter().filter(|_| self.spec.actor.0 == 0);
            sealed.offsets.extend(gone.map(|(split, offset)| (key(split), offset.clone())));
            self.seal_marks(sealed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "tests/source.rs"]
mod tests;
