//! The harness of operator tests: scripts in, consolidated changes out, with restores in between.
//!
//! ```text
//!   +1 a 3                a row with its diff, on port 0; columns apart by spaces
//!   p1 -2 'b c' NULL      a row on port 1; quotes around text with spaces, or around 'NULL'
//!   watermark 0 1000      column 0 reached 1000; `p1 watermark ...` on port 1
//!   batch                 cuts between two batches of one port
//!   tick | barrier        ends an epoch; `barrier` is a checkpoint
//! ```
//! Times are written as microseconds, or as Arrow parses them. What comes out is written alike, one
//! line a change, in any order within an epoch, watermarks after it, then the barrier.

use crate::checkpoint::participant::Sealed;
use crate::dataflow::chain::fetch;
use crate::dataflow::fill::Fill;
use crate::dataflow::operator::{Operator, Output, OutputItem, Polled, Progress, Restored, Wanted};
use crate::state::StateError;
use crate::state::store::{StateRead, WriteOp};
use crate::state::writes::RunPool;
use crate::stream::builder::batch_of;
use crate::stream::{Barrier, BarrierKind, ChangeBatch, Epoch, Vnode, VnodeSet, Watermark};
use arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, SchemaRef};
use arrow::util::display::array_value_to_string;
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

/// State tables in memory: applied runs, read as a snapshot.
#[derive(Clone, Debug, Default)]
pub struct MemoryState {
    pub entries: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Entries that were written and removed by a range of the same epoch.
    pub written_in_vain: usize,
}

impl MemoryState {
    /// Applies the writes of one sealed epoch.
    pub fn apply(&mut self, sealed: Sealed) {
        let runs = sealed.runs.encode(&RunPool::default()).unwrap();
        for run in &runs {
            for (op, key, value) in run.iter() {
                match op {
                    WriteOp::Put => {
                        self.entries.insert(key.to_vec(), value.to_vec());
                    }
                    WriteOp::Delete => {
                        self.entries.remove(key);
                    }
                    WriteOp::AddCount => self.add(key, value),
                    WriteOp::DeleteRange => {}
                }
            }
        }
        // They hold against every write of the epoch.
        let writes = || runs.iter().flat_map(|run| run.iter());
        for run in &runs {
            for (_, lower, upper) in run.iter().filter(|(op, ..)| *op == WriteOp::DeleteRange) {
                let puts = writes().filter(|(op, _, value)| match op {
                    WriteOp::AddCount => i64::from_le_bytes((*value).try_into().unwrap()) > 0,
                    op => *op == WriteOp::Put,
                });
                self.written_in_vain += puts.filter(|(_, key, _)| (lower..upper).contains(key)).count();
                self.entries.retain(|k, _| !(lower..upper).contains(&k.as_slice()));
            }
        }
    }

    fn add(&mut self, key: &[u8], value: &[u8]) {
        let count = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().unwrap());
        let sum = count(value) + self.entries.get(key).map_or(0, |old| count(old));
        if sum == 0 {
            self.entries.remove(key);
        } else {
            self.entries.insert(key.to_vec(), sum.to_le_bytes().to_vec());
        }
    }
}

impl StateRead for MemoryState {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StateError> {
        Ok(self.entries.get(key).cloned())
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, StateError> {
        keys.iter().map(|key| self.get(key)).collect()
    }

    fn scan(
        &self,
        lower: &[u8],
        upper: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StateError> {
        for (key, value) in self.entries.range(lower.to_vec()..upper.to_vec()) {
            if visit(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// What an operator said in one epoch.
#[derive(Debug, Default)]
pub struct EpochOutput {
    /// The changes, as emitted.
    pub changes: Vec<ChangeBatch>,
    /// The watermarks, as emitted.
    pub watermarks: Vec<Watermark>,
}

impl EpochOutput {
    /// The changes summed: each row as text, and its diff.
    pub fn consolidated(&self) -> BTreeMap<String, i64> {
        let mut sums = BTreeMap::new();
        for batch in &self.changes {
            for row in 0..batch.num_rows() {
                *sums.entry(row_text(batch.rows().columns(), row)).or_insert(0) += batch.diff(row);
            }
        }
        sums.retain(|_, diff| *diff != 0);
        sums
    }

    /// The lines of a script's expectation.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .consolidated()
            .iter()
            .map(|(row, diff)| format!("{diff:+} {row}").trim_end().to_owned())
            .collect();
        for watermark in &self.watermarks {
            lines.push(format!("watermark {} {}", watermark.column, watermark.time_us));
        }
        lines
    }
}

/// Makes a new instance of the operator under test.
pub type Make<'a> = &'a dyn Fn() -> Box<dyn Operator>;

/// Runs one operator as an actor would, with its state in memory.
pub struct Driver<'a> {
    make: Make<'a>,
    vnodes: VnodeSet,
    /// Where the driver, at every barrier, also asks the operator to evict.
    pub evict: bool,
    /// It evicts only at every so many barriers.
    pub evict_every: u64,
    /// How many barriers the published state is behind, when it evicts.
    pub lag: usize,
    /// Where the driver, before every change and barrier, takes up a piece of so many entries a table
    /// of what an incomplete operator lacks.
    pub fill: Option<usize>,
    filling: Option<Fill>,
    /// The state and epoch of the last checkpoints.
    published: Vec<(MemoryState, Epoch)>,
    pub operator: Box<dyn Operator>,
    pub state: MemoryState,
    epoch: Epoch,
    /// The last checkpoint: what a restore starts from.
    saved: (MemoryState, Epoch),
    output: EpochOutput,
}

impl<'a> Driver<'a> {
    /// A new job's operator that has all vnodes.
    pub fn new(make: Make<'a>) -> Self {
        Self::with_vnodes(make, VnodeSet::all())
    }

    /// A new job's operator with these vnodes.
    pub fn with_vnodes(make: Make<'a>, vnodes: VnodeSet) -> Self {
        let saved = (MemoryState::default(), Epoch::ZERO);
        let state = MemoryState::default();
        let operator = make();
        let mut driver = Self {
            make,
            vnodes,
            evict: false,
            evict_every: 1,
            lag: 0,
            fill: None,
            filling: None,
            published: vec![(MemoryState::default(), Epoch::ZERO)],
            operator,
            state,
            epoch: Epoch::ZERO,
            saved,
            output: EpochOutput::default(),
        };
        driver.poll();
        driver
    }

    fn finish(&mut self, mut out: Output, mut progress: Progress) {
        loop {
            for item in out.take() {
                match item {
                    OutputItem::Changes(batch) => self.output.changes.push(batch),
                    OutputItem::Watermark(watermark) => self.output.watermarks.push(watermark),
                }
            }
            if progress == Progress::Done {
                return;
            }
            progress = self.operator.resume(&mut out).unwrap();
        }
    }

    fn poll(&mut self) {
        for _ in 0..1000 {
            let mut out = Output::default();
            let polled = self.operator.poll(0, &mut out).unwrap();
            self.finish(out, Progress::Done);
            if matches!(polled, Polled::Idle { .. }) {
                return;
            }
        }
        panic!("still busy after 1000 polls");
    }

    /// Fetches what `wanted` asks for before a change, as the actor would.
    fn supply(&mut self, port: usize, batch: &ChangeBatch) {
        if self.operator.complete() {
            return;
        }
        let mut wanted = Wanted::default();
        self.operator.wanted(port, batch, &mut wanted).unwrap();
        let state = if self.evict { &self.published().0 } else { &self.state };
        let fetched = fetch(state, &mut wanted).unwrap();
        self.operator.supply(&wanted, fetched).unwrap();
    }

    /// Takes up a piece of what the operator lacks, as the actor would.
    fn take_up_piece(&mut self) {
        let Some(entries) = self.fill else { return };
        if self.operator.complete() {
            self.filling = None;
            return;
        }
        let Some(keyed) = self.operator.keyed() else { return };
        let mut filling =
            self.filling.take().unwrap_or_else(|| Fill::new(keyed, &self.vnodes).in_pieces_of(entries));
        let state = if self.evict { self.published().0.clone() } else { self.state.clone() };
        if !filling.step(&mut *self.operator, &state).unwrap() {
            self.filling = Some(filling);
        } else {
            assert!(self.operator.complete(), "it was filled");
        }
    }

    /// A change on `port`.
    pub fn change(&mut self, port: usize, batch: ChangeBatch) {
        if batch.is_empty() {
            return;
        }
        self.take_up_piece();
        self.supply(port, &batch);
        let mut out = Output::default();
        let progress = self.operator.on_change(port, batch, &mut out).unwrap();
        self.finish(out, progress);
    }

    /// What is published: the last barrier, or one before it.
    fn published(&self) -> &(MemoryState, Epoch) {
        &self.published[self.published.len().saturating_sub(1 + self.lag)]
    }

    /// A watermark on `port`.
    pub fn watermark(&mut self, port: usize, watermark: Watermark) {
        let mut out = Output::default();
        let progress = self.operator.on_watermark(port, watermark, &mut out).unwrap();
        self.finish(out, progress);
    }

    /// A barrier: what came out of its epoch. A checkpoint's state is what a restore starts from.
    pub fn barrier(&mut self, kind: BarrierKind) -> EpochOutput {
        self.poll();
        self.take_up_piece();
        let previous = self.epoch;
        self.epoch = previous.next();
        let barrier = Barrier {
            epoch: self.epoch,
            previous,
            kind,
            dml_position: 0,
            now_us: 0,
            mutation: None,
            unaligned: false,
            after_unaligned: false,
        };
        let mut out = Output::default();
        let progress = self.operator.on_barrier(&barrier, &mut out).unwrap();
        self.finish(out, progress);
        let mut sealed = Sealed::default();
        self.operator.seal(&barrier, &mut sealed).unwrap();
        self.state.apply(sealed);
        if kind == BarrierKind::Checkpoint {
            self.saved = (self.state.clone(), self.epoch);
        }
        if self.evict {
            self.published.push((self.state.clone(), self.epoch));
            if self.epoch.0.is_multiple_of(self.evict_every) {
                let (_, epoch) = self.published();
                self.operator.evict(*epoch, usize::MAX);
                self.filling = None;
            }
        }
        std::mem::take(&mut self.output)
    }

    /// The entries of the last checkpoint's state that belong to its vnodes.
    pub fn own_saved(&self) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
        let own = |(key, _): &(&Vec<u8>, &Vec<u8>)| self.vnodes.contains(Vnode(key[4]));
        self.saved.0.entries.iter().filter(own).map(|(key, value)| (key.clone(), value.clone()))
    }

    /// An operator with these vnodes that starts from the state of `epoch`, which may hold others'.
    pub fn from_state(make: Make<'a>, vnodes: VnodeSet, state: MemoryState, epoch: u64) -> Self {
        let epoch = Epoch(epoch);
        let mut driver = Self {
            make,
            vnodes,
            evict: false,
            evict_every: 1,
            lag: 0,
            fill: None,
            filling: None,
            published: Vec::new(),
            operator: make(),
            state: state.clone(),
            epoch,
            saved: (state, epoch),
            output: EpochOutput::default(),
        };
        driver.restore();
        driver
    }

    /// The actor is lost; a new one starts from the last checkpoint (which must be the last barrier).
    pub fn restore(&mut self) {
        assert_eq!(self.saved.1, self.epoch, "restore right after a checkpoint");
        self.operator = (self.make)();
        self.filling = None;
        self.state = self.saved.0.clone();
        self.published = vec![self.saved.clone()];
        let state: Arc<dyn StateRead> = Arc::new(self.state.clone());
        let restored =
            Restored { state: &state, vnodes: &self.vnodes, offsets: &HashMap::new(), epoch: self.epoch };
        self.operator.restore(&restored).unwrap();
        self.poll();
    }
}

/// One step of a script.
#[derive(Clone, Debug)]
pub enum Step {
    Change(usize, ChangeBatch),
    Watermark(usize, Watermark),
    Barrier(BarrierKind),
}

/// Parses a script over inputs of these schemas.
pub fn parse(inputs: &[SchemaRef], script: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut rows: Vec<(i64, Vec<Option<String>>)> = Vec::new();
    let mut rows_port = 0;
    for line in script.lines() {
        let mut words = words(line);
        if words.is_empty() {
            continue;
        }
        let first = words[0].clone().unwrap_or_default();
        let port = first.strip_prefix('p').and_then(|p| p.parse::<usize>().ok());
        if port.is_some() {
            words.remove(0);
        }
        let port = port.unwrap_or(0);
        let verb = words.remove(0).unwrap();
        if let Ok(diff) = verb.parse::<i64>() {
            if port != rows_port {
                flush(inputs, rows_port, &mut rows, &mut steps);
                rows_port = port;
            }
            rows.push((diff, words));
            continue;
        }
        flush(inputs, rows_port, &mut rows, &mut steps);
        let number = |i: usize| words[i].as_ref().unwrap().parse::<i64>().unwrap();
        match verb.as_str() {
            "batch" => {}
            "tick" => steps.push(Step::Barrier(BarrierKind::Tick)),
            "barrier" => steps.push(Step::Barrier(BarrierKind::Checkpoint)),
            "watermark" => {
                let watermark = Watermark { column: number(0) as usize, time_us: number(1) };
                steps.push(Step::Watermark(port, watermark));
            }
            other => panic!("a script has no {other}"),
        }
    }
    flush(inputs, rows_port, &mut rows, &mut steps);
    steps
}

fn flush(
    inputs: &[SchemaRef],
    port: usize,
    rows: &mut Vec<(i64, Vec<Option<String>>)>,
    steps: &mut Vec<Step>,
) {
    if !rows.is_empty() {
        steps.push(Step::Change(port, change_batch(&inputs[port], &std::mem::take(rows))));
    }
}

/// A batch of rows given as text, with their diffs.
pub fn change_batch(schema: &SchemaRef, rows: &[(i64, Vec<Option<String>>)]) -> ChangeBatch {
    for (_, values) in rows {
        assert_eq!(values.len(), schema.fields().len(), "a value for each column: {values:?}");
    }
    let columns = (0..schema.fields().len())
        .map(|c| column(schema.field(c).data_type(), rows.iter().map(|r| r.1[c].clone()).collect()))
        .collect();
    let diffs: Vec<i64> = rows.iter().map(|r| r.0).collect();
    ChangeBatch::new(batch_of(schema, columns, rows.len()).unwrap(), diffs)
}

fn column(data_type: &DataType, values: Vec<Option<String>>) -> ArrayRef {
    let numbers: Option<Vec<Option<i64>>> = values
        .iter()
        .map(|v| v.as_ref().map(|v| v.parse().ok()).map_or(Some(None), |n| n.map(Some)))
        .collect();
    let strings: ArrayRef = Arc::new(StringArray::from(values));
    match (data_type, numbers) {
        (DataType::Timestamp(..) | DataType::Time64(_), Some(numbers)) => {
            cast(&(Arc::new(Int64Array::from(numbers)) as ArrayRef), data_type).unwrap()
        }
        _ => {
            let options = arrow::compute::CastOptions { safe: false, ..Default::default() };
            arrow::compute::cast_with_options(&strings, data_type, &options).unwrap()
        }
    }
}

/// Splits a line at spaces; quotes keep them; NULL without quotes is none; `--` starts a comment.
fn words(line: &str) -> Vec<Option<String>> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() && !rest.starts_with("--") {
        if let Some(quoted) = rest.strip_prefix('\'') {
            let end = quoted.find('\'').expect("a closing quote");
            words.push(Some(quoted[..end].to_owned()));
            rest = quoted[end + 1..].trim_start();
        } else {
            let end = rest.find(' ').unwrap_or(rest.len());
            let word = &rest[..end];
            words.push((word != "NULL").then(|| word.to_owned()));
            rest = rest[end..].trim_start();
        }
    }
    words
}

/// A row as scripts write it.
pub fn row_text(columns: &[ArrayRef], row: usize) -> String {
    let values: Vec<String> = columns.iter().map(|column| value_text(column, row)).collect();
    values.join(" ")
}

fn value_text(column: &ArrayRef, row: usize) -> String {
    if column.is_null(row) {
        return "NULL".to_owned();
    }
    let text = match column.data_type() {
        DataType::Timestamp(..) => {
            let numbers = cast(column, &DataType::Int64).unwrap();
            numbers.as_primitive::<Int64Type>().value(row).to_string()
        }
        _ => array_value_to_string(column, row).unwrap(),
    };
    let quote = text.is_empty() || text.contains(' ') || text == "NULL";
    if quote { format!("'{text}'") } else { text }
}

/// Runs steps; after the checkpoints for which `restore` says so the operator is lost and restored.
pub fn run(make: Make<'_>, steps: &[Step], restore: &mut dyn FnMut(usize) -> bool) -> Vec<String> {
    run_filling(make, steps, None, restore)
}

/// The same; what is incomplete is filled in pieces of so many entries.
fn run_filling(
    make: Make<'_>,
    steps: &[Step],
    fill: Option<usize>,
    restore: &mut dyn FnMut(usize) -> bool,
) -> Vec<String> {
    let mut driver = Driver::new(make);
    driver.fill = fill;
    let mut lines = Vec::new();
    let mut checkpoints = 0;
    for step in steps {
        match step.clone() {
            Step::Change(port, batch) => driver.change(port, batch),
            Step::Watermark(port, watermark) => driver.watermark(port, watermark),
            Step::Barrier(kind) => {
                lines.extend(driver.barrier(kind).lines());
                lines.push(if kind == BarrierKind::Tick { "tick" } else { "barrier" }.to_owned());
                if kind == BarrierKind::Checkpoint {
                    if restore(checkpoints) {
                        driver.restore();
                    }
                    checkpoints += 1;
                }
            }
        }
    }
    lines
}

/// Checks a script's output: as it is, with a restore after each single checkpoint, after all of
/// them, and with single-row batches.
pub fn check(make: Make<'_>, inputs: &[SchemaRef], script: &str, expected: &str) {
    let steps = parse(inputs, script);
    let expected: Vec<String> = expected
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|line| !line.is_empty() && !line.starts_with("--"))
        .collect();
    let expected = sorted(expected);
    let check_run = |what: &str, steps: &[Step], restore: &mut dyn FnMut(usize) -> bool| {
        let lines = run(make, steps, restore);
        assert_eq!(lines.join("\n"), expected.join("\n"), "{what}");
    };
    check_run("as it is", &steps, &mut |_| false);
    check_run("in single rows", &single_rows(&steps), &mut |_| false);
    let checkpoints = steps.iter().filter(|s| matches!(s, Step::Barrier(BarrierKind::Checkpoint))).count();
    for only in 0..checkpoints {
        check_run(&format!("restored after checkpoint {only}"), &steps, &mut |i| i == only);
    }
    check_run("restored after every checkpoint", &steps, &mut |_| true);
    for entries in [1, 2, 1000] {
        for (what, steps) in [("", &steps), ("in single rows, ", &single_rows(&steps))] {
            let lines = run_filling(make, steps, Some(entries), &mut |_| true);
            let what = format!("{what}restored after every checkpoint, filled {entries} at a time");
            assert_eq!(lines.join("\n"), expected.join("\n"), "{what}");
        }
    }
}

/// The lines of each epoch in the order of [`EpochOutput::lines`].
fn sorted(lines: Vec<String>) -> Vec<String> {
    let mut sorted = Vec::with_capacity(lines.len());
    let mut start = 0;
    for line in lines {
        let ends = line == "tick" || line == "barrier";
        if ends || line.starts_with("watermark") {
            sorted[start..].sort_by(|a: &String, b: &String| row_of(a).cmp(row_of(b)));
            sorted.push(line);
            start = sorted.len();
        } else {
            sorted.push(line);
        }
    }
    sorted
}

/// A line of output without its diff.
fn row_of(line: &str) -> &str {
    line.split_once(' ').map_or("", |(_, row)| row)
}

/// The same steps, with each row a batch of its own.
pub fn single_rows(steps: &[Step]) -> Vec<Step> {
    let mut cut = Vec::new();
    for step in steps {
        match step {
            Step::Change(port, batch) => {
                cut.extend((0..batch.num_rows()).map(|row| Step::Change(*port, batch.slice(row, 1))));
            }
            other => cut.push(other.clone()),
        }
    }
    cut
}

/// A schema of nullable columns.
pub fn schema(columns: &[(&str, DataType)]) -> SchemaRef {
    use arrow::datatypes::{Field, Schema};
    Arc::new(Schema::new(columns.iter().map(|(n, t)| Field::new(*n, t.clone(), true)).collect::<Vec<_>>()))
}
