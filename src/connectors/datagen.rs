//! `connector = 'datagen'`: generated rows for declared columns, deterministic by (seed, column,
//! row number), so an offset is a row number.
//!
//! Rows are dealt to the splits in runs of [`RUN`], so that splits advance together.

use super::datagen_field::FieldPlan;
use super::error::ConnectorError;
use super::options;
use super::pace::Pace;
use super::source::{Source, SourceError, Split, SplitPoll, SplitReader, Waker};
use crate::checkpoint::participant::Offset;
use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use serde::Deserialize;
use std::sync::Arc;
use weir_catalog::column::arrow_schema;
use weir_catalog::connector::{ConnectorRole, ConnectorSpec, Contract, OptionSpec};
use weir_catalog::source;
use weir_catalog::source::Options;

/// The connector's name.
pub const NAME: &str = "datagen";
/// Rows of one split in a row.
const RUN: u64 = 64;

/// What CREATE SOURCE may say.
pub const SPEC: ConnectorSpec = ConnectorSpec {
    name: NAME,
    role: ConnectorRole::Source,
    options: &[
        OptionSpec { name: "datagen.rows.per.second", required: false, help: "Rows a second. Default 10." },
        OptionSpec {
            name: "rate",
            required: false,
            help: "Rows a second; 0 is as fast as can be. Default 10.",
        },
        OptionSpec { name: "rows", required: false, help: "How many rows there are. Default: no end." },
        OptionSpec { name: "events", required: false, help: "How many rows there are. Default: no end." },
        OptionSpec { name: "datagen.split.num", required: false, help: "How many splits. Default 1." },
        OptionSpec { name: "splits", required: false, help: "How many splits. Default 1." },
        OptionSpec { name: "seed", required: false, help: "Other numbers, other values. Default 0." },
        OptionSpec {
            name: "fields.*",
            required: false,
            help: "fields.COLUMN.kind = 'sequence' (with start, end) or 'random' (with min, max, length, \
                   max_past_ms, null_rate, seed).",
        },
    ],
    encodings: &["JSON"],
    contract: Contract::Replayable,
    why: "its rows are made from their numbers: the same ones come again from an offset",
    empties_target: false,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DatagenOptions {
    #[serde(rename = "datagen.rows.per.second", alias = "rate")]
    rate: Option<f64>,
    #[serde(alias = "events")]
    rows: Option<u64>,
    #[serde(rename = "datagen.split.num", alias = "splits")]
    splits: Option<u64>,
    seed: Option<u64>,
}

const RATE_DEFAULT: f64 = 10.0;

/// A generated stream.
#[derive(Debug)]
pub struct Datagen {
    fields: Vec<FieldPlan>,
    schema: SchemaRef,
    rows: u64,
    splits: u64,
    rate: f64,
}

impl Datagen {
    /// From a declaration.
    pub fn open(declared: &source::Source) -> Result<Self, ConnectorError> {
        let (of_fields, of_all): (Options, Options) =
            declared.options.clone().into_iter().partition(|(name, _)| name.starts_with("fields."));
        let options: DatagenOptions = options::read(NAME, &of_all)?;
        for option in of_fields.keys() {
            // The column's name may hold dots; the part after the last one doesn't.
            let column = option["fields.".len()..].rsplit_once('.').map(|(column, _)| column);
            if !declared.columns.iter().any(|c| Some(c.name.as_str()) == column) {
                let known = declared.columns.iter().map(|c| format!("fields.{}.kind", c.name)).collect();
                let (connector, option) = (NAME.to_owned(), option.clone());
                return Err(ConnectorError::UnknownOption { connector, option, known });
            }
        }
        let splits = options.splits.unwrap_or(1);
        let check =
            |names: &[&str], fine: bool, reason: &str| options::check(NAME, &of_all, names, fine, reason);
        let few = (1..=256).contains(&splits);
        check(&["splits", "datagen.split.num"], few, "it is at least 1 and at most 256")?;
        let rate = options.rate.is_none_or(|rate| rate >= 0.0 && rate.is_finite());
        check(&["rate", "datagen.rows.per.second"], rate, "it is a number from 0 up")?;
        let seed = options.seed.unwrap_or(0);
        let fields = declared
            .columns
            .iter()
            .map(|column| FieldPlan::new(column, &of_fields, seed))
            .collect::<Result<Vec<_>, _>>()?;
        let ends = fields.iter().filter_map(FieldPlan::rows);
        let rows = ends.chain(options.rows).min().unwrap_or(u64::MAX);
        let schema = arrow_schema(&declared.columns);
        Ok(Self { fields, schema, rows, splits, rate: options.rate.unwrap_or(RATE_DEFAULT) })
    }
}

impl Source for Datagen {
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
            text.parse::<u64>().map_err(|_| SourceError(format!("datagen has no split or row \"{text}\"")))
        };
        let schema = self.schema.project(columns).map_err(|e| SourceError(e.to_string()))?;
        Ok(Box::new(DatagenReader {
            fields: columns.iter().map(|c| self.fields[*c].clone()).collect(),
            schema: Arc::new(schema),
            index: number(&split.name)?,
            splits: self.splits,
            end: until.map_or(Ok(self.rows), |until| number(&until.0))?.min(self.rows),
            pace: Pace::new(if until.is_some() { 0.0 } else { self.rate }),
            next: from.map_or(Ok(0), |from| number(&from.0))?,
        }))
    }
}

struct DatagenReader {
    fields: Vec<FieldPlan>,
    schema: SchemaRef,
    index: u64,
    splits: u64,
    end: u64,

    pace: Pace,
    next: u64,
}

impl DatagenReader {
    /// The first row from `self.next` on that is of this split.
    fn upcoming(&self) -> u64 {
        let run = self.next / RUN;
        match (self.index + self.splits - run % self.splits) % self.splits {
            0 => self.next,
            ahead => (run + ahead).saturating_mul(RUN),
        }
    }
}

impl SplitReader for DatagenReader {
    fn poll(&mut self, rows_max: usize, now_us: i64) -> Result<SplitPoll, SourceError> {
        let upcoming = self.upcoming();
        if upcoming >= self.end {
            return Ok(SplitPoll::Finished);
        }
        let limit = self.pace.limit(self.next, now_us).min(self.end);
        if upcoming >= limit {
            return Ok(SplitPoll::Idle { until_us: Some(self.pace.due_us(upcoming)) });
        }
        let mut numbers = Vec::new();
        while numbers.len() < rows_max.max(1) {
            let first = self.upcoming();
            if first >= limit {
                break;
            }
            let room = (rows_max.max(1) - numbers.len()) as u64;
            let end = (first - first % RUN + RUN).min(limit).min(first + room);
            numbers.extend(first..end);
            self.next = end;
        }
        let arrays = self.fields.iter().map(|f| f.generate(&numbers)).collect::<Result<Vec<_>, _>>();
        let rows = RecordBatchOptions::new().with_row_count(Some(numbers.len()));
        arrays
            .and_then(|arrays| RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &rows))
            .map(|batch| SplitPoll::Rows(batch, Vec::new()))
            .map_err(|e| SourceError(e.to_string()))
    }

    fn offset(&self) -> Offset {
        Offset(self.next.to_string())
    }
}

#[cfg(test)]
#[path = "tests/datagen.rs"]
mod tests;
