//! `connector = 'nexmark'`: the auction benchmark's three streams, generated.
//!
//! Deterministic by (seed, event number), so an offset is the number of the split's next event.
//! Cycles of 50 events are dealt to the splits in turn, so that each split has every kind and
//! splits advance together in event time:
//!
//! ```text
//!   cycle      0    1    2    3    4    5   …        (each: 1 person, 3 auctions, 46 bids)
//!   split      0    1    2    3    0    1   …        with 4 splits
//! ```

use super::error::ConnectorError;
use super::nexmark_columns;
use super::nexmark_event::{CYCLE, Kind, World};
use super::options;
use super::pace::Pace;
use super::source::{Source, SourceError, Split, SplitPoll, SplitReader, Waker};
use crate::checkpoint::participant::Offset;
use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::{can_cast_types, cast};
use arrow::datatypes::SchemaRef;
use serde::Deserialize;
use std::sync::Arc;
use weir_catalog::column::arrow_schema;
use weir_catalog::connector::{ConnectorRole, ConnectorSpec, Contract, OptionSpec};
use weir_catalog::source::Options;
use weir_catalog::{Column, source};

const NAME: &str = "nexmark";
const SPLITS_MAX: u64 = 256;

/// What CREATE SOURCE may say.
pub const SPEC: ConnectorSpec = ConnectorSpec {
    name: NAME,
    role: ConnectorRole::Source,
    options: &[
        OptionSpec { name: "nexmark.table.type", required: false, help: "Person, Auction or Bid." },
        OptionSpec { name: "type", required: false, help: "Person, Auction or Bid." },
        OptionSpec {
            name: "nexmark.event.num",
            required: false,
            help: "How many events there are, over all three kinds. Default: no end.",
        },
        OptionSpec {
            name: "events",
            required: false,
            help: "How many events there are, over all three kinds. Default: no end.",
        },
        OptionSpec { name: "nexmark.split.num", required: false, help: "How many splits. Default 4." },
        OptionSpec { name: "splits", required: false, help: "How many splits. Default 4." },
        OptionSpec {
            name: "rate",
            required: false,
            help: "Events a second over all three kinds; 0 is as fast as can be. Default 10000, or 0 with `events`.",
        },
        OptionSpec {
            name: "nexmark.min.event.gap.in.ns",
            required: false,
            help: "The rate as nanoseconds from one event to the next.",
        },
        OptionSpec {
            name: "event.gap.ms",
            required: false,
            help: "Event time from one event to the next. Default 10.",
        },
        OptionSpec { name: "seed", required: false, help: "Other numbers, other values. Default 0." },
    ],
    encodings: &[],
    contract: Contract::Replayable,
    why: "its events are made from their numbers: the same ones come again from an offset",
    empties_target: false,
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NexmarkOptions {
    #[serde(rename = "nexmark.table.type", alias = "type")]
    kind: Kind,
    #[serde(rename = "nexmark.event.num", alias = "events")]
    events: Option<u64>,
    #[serde(rename = "nexmark.split.num", alias = "splits")]
    splits: Option<u64>,
    rate: Option<f64>,
    #[serde(rename = "nexmark.min.event.gap.in.ns")]
    gap_ns: Option<u64>,
    #[serde(rename = "event.gap.ms")]
    event_gap_ms: Option<f64>,
    seed: Option<u64>,
}

const RATE_DEFAULT: f64 = 10_000.0;

impl NexmarkOptions {
    fn read(options: &Options) -> Result<Self, ConnectorError> {
        let read: Self = options::read(NAME, options)?;
        let check =
            |names: &[&str], fine: bool, reason: &str| options::check(NAME, options, names, fine, reason);
        let splits = read.splits.is_none_or(|splits| (1..=SPLITS_MAX).contains(&splits));
        check(&["splits", "nexmark.split.num"], splits, "it is at least 1 and at most 256")?;
        let rate = read.rate.is_none_or(|rate| rate >= 0.0 && rate.is_finite());
        check(&["rate"], rate, "it is a number from 0 up")?;
        let gap = read.event_gap_ms.is_none_or(|gap| (0.001..=86_400_000.0).contains(&gap));
        check(&["event.gap.ms"], gap, "it is at least 0.001 and at most a day")?;
        let once = read.rate.is_none() || read.gap_ns.is_none();
        check(&["nexmark.min.event.gap.in.ns"], once, "the rate is given by \"rate\" already")?;
        Ok(read)
    }

    /// Events a second; 0: no limit.
    fn rate(&self) -> f64 {
        match (self.rate, self.gap_ns, self.events) {
            (Some(rate), _, _) => rate,
            (None, Some(0), _) | (None, None, Some(_)) => 0.0,
            (None, Some(gap_ns), _) => 1e9 / gap_ns as f64,
            (None, None, None) => RATE_DEFAULT,
        }
    }
}

/// The columns of a source that declares none. Where the options don't tell the kind, some: opening
/// it says what is wrong with them.
pub fn columns(options: &Options) -> Option<Vec<Column>> {
    let text = ["nexmark.table.type", "type"].iter().find_map(|name| options.get(*name));
    let named = |kind: &Kind| text.is_some_and(|text| text.eq_ignore_ascii_case(&format!("{kind:?}")));
    let kind = [Kind::Person, Kind::Auction, Kind::Bid].into_iter().find(named).unwrap_or(Kind::Bid);
    Some(nexmark_columns::columns(kind))
}

/// One of the three streams.
#[derive(Debug)]
pub struct Nexmark {
    kind: Kind,
    world: World,
    events: u64,
    splits: u64,
    rate: f64,
    /// The generated column behind each declared one.
    columns: Vec<&'static str>,
    schema: SchemaRef,
}

impl Nexmark {
    /// From a declaration: its columns are found by name, whatever their case and underscores.
    pub fn open(declared: &source::Source) -> Result<Self, ConnectorError> {
        let options = NexmarkOptions::read(&declared.options)?;
        let known = nexmark_columns::columns(options.kind);
        let mut columns = Vec::with_capacity(declared.columns.len());
        for column in &declared.columns {
            let plain = column.name.to_lowercase().replace('_', "");
            let fault = |reason: String| ConnectorError::Column {
                connector: NAME.into(),
                column: column.name.clone(),
                reason,
            };
            let at = known.iter().position(|k| k.name == plain).ok_or_else(|| {
                fault(format!("its columns are {}", nexmark_columns::names(options.kind).join(", ")))
            })?;
            if !can_cast_types(&known[at].data_type, &column.data_type) {
                return Err(fault(format!("{} can't be {}", known[at].sql_type, column.sql_type)));
            }
            columns.push(nexmark_columns::names(options.kind)[at]);
        }
        let gap_us = (options.event_gap_ms.unwrap_or(10.0) * 1000.0).round() as i64;
        Ok(Self {
            kind: options.kind,
            world: World { seed: options.seed.unwrap_or(0), gap_us },
            events: options.events.unwrap_or(u64::MAX),
            splits: options.splits.unwrap_or(4),
            rate: options.rate(),
            columns,
            schema: arrow_schema(&declared.columns),
        })
    }
}

impl Source for Nexmark {
    fn splits(&self) -> Result<Vec<Split>, SourceError> {
        Ok((0..self.splits).map(|k| Split { name: k.to_string() }).collect())
    }

    fn reader(
        &self,
        split: &Split,
        from: Option<&Offset>,
        until: Option<&Offset>,
        columns: &[usize],
        _waker: Waker,
    ) -> Result<Box<dyn SplitReader>, SourceError> {
        let number = |text: &str| {
            text.parse::<u64>().map_err(|_| SourceError(format!("nexmark has no split or event \"{text}\"")))
        };
        let index = number(&split.name)?;
        let next = from.map_or(Ok(0), |from| number(&from.0))?;
        let end = until.map_or(Ok(self.events), |until| number(&until.0))?.min(self.events);
        let schema = self.schema.project(columns).map_err(|e| SourceError(e.to_string()))?;
        Ok(Box::new(NexmarkReader {
            kind: self.kind,
            world: self.world,
            index,
            splits: self.splits,
            columns: columns.iter().map(|c| self.columns[*c]).collect(),
            schema: Arc::new(schema),
            end,
            // The past is replayed as fast as can be.
            pace: Pace::new(if until.is_some() { 0.0 } else { self.rate }),
            next,
            events: Vec::new(),
        }))
    }
}

struct NexmarkReader {
    kind: Kind,
    world: World,
    index: u64,
    splits: u64,
    columns: Vec<&'static str>,
    schema: SchemaRef,
    end: u64,

    pace: Pace,
    /// The first event not read yet; not always one of this split or kind.
    next: u64,
    events: Vec<u64>,
}

impl NexmarkReader {
    /// The first event from `self.next` on that is of this split and kind.
    fn upcoming(&self) -> u64 {
        let positions = self.kind.positions();
        let (mut cycle, mut position) = (self.next / CYCLE, self.next % CYCLE);
        if cycle % self.splits != self.index || position >= positions.end {
            let ahead = (self.index + self.splits - cycle % self.splits) % self.splits;
            cycle += if ahead == 0 { self.splits } else { ahead };
            position = 0;
        }
        cycle.saturating_mul(CYCLE).saturating_add(position.max(positions.start))
    }

    /// Collects up to `rows_max` events below `limit`.
    fn collect(&mut self, rows_max: usize, limit: u64) {
        let positions = self.kind.positions();
        self.events.clear();
        while self.events.len() < rows_max {
            let first = self.upcoming();
            if first >= limit {
                break;
            }
            let last = first - first % CYCLE + positions.end;
            let end = last.min(limit).min(first + (rows_max - self.events.len()) as u64);
            self.events.extend(first..end);
            self.next = end;
        }
    }
}

impl SplitReader for NexmarkReader {
    fn poll(&mut self, rows_max: usize, now_us: i64) -> Result<SplitPoll, SourceError> {
        let upcoming = self.upcoming();
        if upcoming >= self.end {
            return Ok(SplitPoll::Finished);
        }
        let limit = self.pace.limit(self.next, now_us).min(self.end);
        if upcoming >= limit {
            return Ok(SplitPoll::Idle { until_us: Some(self.pace.due_us(upcoming)) });
        }
        self.collect(rows_max.max(1), limit);
        let fault = |e: arrow::error::ArrowError| SourceError(e.to_string());
        let mut arrays = Vec::with_capacity(self.columns.len());
        for (name, field) in self.columns.iter().zip(self.schema.fields()) {
            let array = nexmark_columns::column(&self.world, self.kind, name, &self.events);
            arrays.push(if array.data_type() == field.data_type() {
                array
            } else {
                cast(&array, field.data_type()).map_err(fault)?
            });
        }
        let rows = RecordBatchOptions::new().with_row_count(Some(self.events.len()));
        let batch =
            RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &rows).map_err(fault)?;
        Ok(SplitPoll::Rows(batch, Vec::new()))
    }

    fn offset(&self) -> Offset {
        Offset(self.next.to_string())
    }
}

#[cfg(test)]
#[path = "tests/nexmark.rs"]
mod tests;
