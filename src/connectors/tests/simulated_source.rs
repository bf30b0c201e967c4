//! A replayable source in memory, for simulations: it outlives the server, its splits grow as the
//! simulation wants it, and some of what they hold can't be decoded.

use super::error::ConnectorError;
use super::source::{DeadLetter, Source, SourceError, Split, SplitPoll, SplitReader, Waker};
use crate::checkpoint::participant::Offset;
use crate::{failpoint, work};
use arrow::array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, TimestampMicrosecondArray};
use arrow::datatypes::SchemaRef;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_catalog::column::arrow_schema;
use weir_catalog::connector::{ConnectorRole, ConnectorSpec, Contract, OptionSpec};
use weir_catalog::source;

/// What CREATE SOURCE may say.
pub const SPEC: ConnectorSpec = ConnectorSpec {
    name: "simulated",
    role: ConnectorRole::Source,
    options: &[OptionSpec { name: "stream", required: true, help: "Which one it reads." }],
    encodings: &[],
    contract: Contract::Replayable,
    why: "its rows stay where they are",
    empties_target: false,
};

/// Rows given at a time at most.
const ROWS_MAX: usize = 3;

/// A message of a split: the row's time and group; none if it can't be decoded.
pub type Message = Option<(Option<i64>, i64)>;

/// The splits of a stream, and what each holds, in order.
pub type Stream = Vec<Vec<Message>>;

thread_local!(static STREAMS: RefCell<BTreeMap<String, Stream>> = const { RefCell::new(BTreeMap::new()) });

/// Begins anew: there are no streams.
pub fn begin() {
    STREAMS.take();
}

/// Looks at a stream, or lets it grow.
pub fn with<T>(stream: &str, look: impl FnOnce(&mut Stream) -> T) -> T {
    STREAMS.with_borrow_mut(|streams| look(streams.entry(stream.to_owned()).or_default()))
}

/// Opens a source as declared: its columns are split, position, time and group.
pub fn open(declared: &source::Source) -> Result<SimulatedSource, ConnectorError> {
    let stream = declared.options.get("stream").cloned().unwrap_or_default();
    Ok(SimulatedSource { stream, schema: arrow_schema(&declared.columns) })
}

/// A stream.
#[derive(Debug)]
pub struct SimulatedSource {
    stream: String,
    schema: SchemaRef,
}

fn number(text: &str) -> Result<usize, SourceError> {
    text.parse().map_err(|_| SourceError(format!("there is no split or row \"{text}\"")))
}

impl Source for SimulatedSource {
    fn splits(&self) -> Result<Vec<Split>, SourceError> {
        let splits = with(&self.stream, |stream| stream.len());
        Ok((0..splits).map(|split| Split { name: split.to_string() }).collect())
    }

    fn grows(&self) -> bool {
        true
    }

    fn reader(
        &self,
        split: &Split,
        from: Option<&Offset>,
        until: Option<&Offset>,
        columns: &[usize],
        _waker: Waker,
    ) -> Result<Box<dyn SplitReader>, SourceError> {
        let schema = self.schema.project(columns).map_err(|e| SourceError(e.to_string()))?;
        Ok(Box::new(SimulatedReader {
            stream: self.stream.clone(),
            split: number(&split.name)?,
            columns: columns.to_vec(),
            schema: Arc::new(schema),
            until: until.map(|until| number(&until.0)).transpose()?,
            next: from.map_or(Ok(0), |from| number(&from.0))?,
        }))
    }
}

struct SimulatedReader {
    stream: String,
    split: usize,
    columns: Vec<usize>,
    schema: SchemaRef,
    until: Option<usize>,

    next: usize,
}

impl SimulatedReader {
    fn rows(&self, from: usize, messages: &[Message]) -> Result<RecordBatch, SourceError> {
        let rows = || messages.iter().zip(from..).filter_map(|(m, at)| Some((at as i64, (*m)?)));
        let count = rows().count();
        let column = |column: &usize| -> ArrayRef {
            match column {
                0 => Arc::new(Int64Array::from_value(self.split as i64, count)),
                1 => Arc::new(Int64Array::from_iter_values(rows().map(|(at, _)| at))),
                2 => Arc::new(rows().map(|(_, (time, _))| time).collect::<TimestampMicrosecondArray>()),
                _ => Arc::new(Int64Array::from_iter_values(rows().map(|(_, (_, group))| group))),
            }
        };
        let columns = self.columns.iter().map(column).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
            .map_err(|e| SourceError(e.to_string()))
    }
}

impl SplitReader for SimulatedReader {
    fn poll(&mut self, rows_max: usize, now_us: i64) -> Result<SplitPoll, SourceError> {
        failpoint::hit("actor.poll_split").map_err(|e| SourceError(e.to_string()))?;
        let (from, most) = (self.next, work::bound(ROWS_MAX).min(rows_max).max(1));
        let found: Vec<Message> = with(&self.stream, |stream| {
            let all = stream.get(self.split).map_or(&[][..], Vec::as_slice);
            let end = self.until.unwrap_or(all.len()).min(all.len());
            all[from.min(end)..end].iter().take(most).copied().collect()
        });
        if found.is_empty() {
            return Ok(match self.until {
                Some(_) => SplitPoll::Finished,
                None => SplitPoll::Idle { until_us: Some(now_us + 1_000) },
            });
        }
        self.next += found.len();
        let dead = found.iter().zip(from..).filter(|(message, _)| message.is_none());
        let dead = dead.map(|(_, at)| DeadLetter {
            split: self.split.to_string(),
            offset: at.to_string(),
            payload: Vec::new(),
            reason: "noise".to_owned(),
        });
        Ok(SplitPoll::Rows(self.rows(from, &found)?, dead.collect()))
    }

    fn offset(&self) -> Offset {
        Offset(self.next.to_string())
    }
}
