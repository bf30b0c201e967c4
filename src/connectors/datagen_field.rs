//! How one column of `datagen` is generated, from its `fields.COLUMN.*` options and its type.

use super::datagen::NAME;
use super::error::ConnectorError;
use super::nexmark_event::{Draw, below, follow};
use super::options;
use arrow::array::{ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, StringArray};
use arrow::compute::{cast, nullif};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use serde::Deserialize;
use std::sync::Arc;
use weir_catalog::Column;
use weir_catalog::source::Options;
use xxhash_rust::xxh3::xxh3_64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FieldKind {
    Sequence,
    Random,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FieldOptions {
    kind: Option<FieldKind>,
    start: Option<i64>,
    end: Option<i64>,
    min: Option<f64>,
    max: Option<f64>,
    length: Option<usize>,
    max_past_ms: Option<i64>,
    null_rate: Option<f64>,
    seed: Option<u64>,
}

/// What is made for a row number.
#[derive(Clone, Debug)]
enum Values {
    /// `start + row`; for times in milliseconds since 2015-07-15.
    Sequence { start: i64 },
    /// Whole numbers of `min..=max`.
    Whole { min: i64, max: i64 },
    /// Fractions of `min..max`.
    Fraction { min: f64, max: f64 },
    /// Letters.
    Text { length: usize },
    /// Either.
    Boolean,
}

/// A column's generator.
#[derive(Clone, Debug)]
pub struct FieldPlan {
    data_type: DataType,
    values: Values,
    end: Option<u64>,
    draw: Draw,
    null_rate: f64,
}

/// 2015-07-15 00:00:00 UTC, in milliseconds: where generated times start.
const BASE_TIME_MS: i64 = super::nexmark_event::BASE_TIME_US / 1000;
const DAY_MS: i64 = 86_400_000;

impl FieldPlan {
    /// The generator of `column`, whose options are among `all`.
    pub fn new(column: &Column, all: &Options, seed: u64) -> Result<Self, ConnectorError> {
        let start = format!("fields.{}.", column.name);
        let own: Options = all
            .iter()
            .filter_map(|(name, value)| Some((name.strip_prefix(&start)?.to_owned(), value.clone())))
            .filter(|(name, _)| !name.contains('.'))
            .collect();
        let options: FieldOptions = options::read(NAME, &own).map_err(|e| e.with_prefix(&start))?;
        let part = options.null_rate.is_none_or(|rate| (0.0..=1.0).contains(&rate));
        options::check(NAME, all, &[&format!("{start}null_rate")], part, "it is at least 0 and at most 1")?;
        let values = values_of(&column.data_type, &options).ok_or_else(|| ConnectorError::Column {
            connector: NAME.into(),
            column: column.name.clone(),
            reason: format!("it can't generate {}", column.sql_type),
        })?;
        if matches!(values, Values::Whole { min, max } if min > max) {
            return Err(options::invalid(NAME, &format!("{start}max"), "it is below min"));
        }
        let end = match values {
            Values::Sequence { start } => {
                options.end.map(|end| u64::try_from(end.saturating_sub(start).saturating_add(1)).unwrap_or(0))
            }
            _ => None,
        };
        let seed = options.seed.unwrap_or(seed);
        Ok(Self {
            data_type: column.data_type.clone(),
            values,
            end,
            draw: Draw::new(seed, xxh3_64(column.name.as_bytes())),
            null_rate: options.null_rate.unwrap_or(0.0),
        })
    }

    /// How many rows it has values for, if it ends.
    pub fn rows(&self) -> Option<u64> {
        self.end
    }

    /// The values of the rows `numbers`.
    pub fn generate(&self, numbers: &[u64]) -> Result<ArrayRef, ArrowError> {
        let draw = self.draw;
        let array: ArrayRef = match self.values {
            Values::Sequence { start } => Arc::new(Int64Array::from_iter_values(
                numbers.iter().map(|n| start.saturating_add(*n as i64)),
            )),
            Values::Whole { min, max } => {
                let width = (max.wrapping_sub(min) as u64 as u128) + 1;
                Arc::new(Int64Array::from_iter_values(
                    numbers.iter().map(|n| min.wrapping_add(((draw.at(*n) as u128 * width) >> 64) as i64)),
                ))
            }
            Values::Fraction { min, max } => Arc::new(Float64Array::from_iter_values(
                numbers
                    .iter()
                    .map(|n| min + (max - min) * ((draw.at(*n) >> 11) as f64 / (1u64 << 53) as f64)),
            )),
            Values::Text { length } => {
                Arc::new(StringArray::from_iter_values(numbers.iter().map(|n| text(draw.at(*n), length))))
            }
            Values::Boolean => {
                Arc::new(numbers.iter().map(|n| Some(draw.at(*n) & 1 == 1)).collect::<BooleanArray>())
            }
        };
        let array = self.cast(array)?;
        if self.null_rate <= 0.0 {
            return Ok(array);
        }
        let limit = (self.null_rate * 1e9) as u64;
        let absent: BooleanArray =
            numbers.iter().map(|n| Some(below(follow(draw.at(*n), 77), 1_000_000_000) < limit)).collect();
        nullif(&array, &absent)
    }

    fn cast(&self, array: ArrayRef) -> Result<ArrayRef, ArrowError> {
        match (&self.data_type, &self.values) {
            (DataType::Timestamp(_, zone), Values::Sequence { .. } | Values::Whole { .. }) => {
                let times = shift(&array, BASE_TIME_MS);
                let ms = cast(
                    &times,
                    &DataType::Timestamp(arrow::datatypes::TimeUnit::Millisecond, zone.clone()),
                )?;
                cast(&ms, &self.data_type)
            }
            (DataType::Date32, _) => {
                cast(&cast(&shift(&array, BASE_TIME_MS / DAY_MS), &DataType::Int32)?, &self.data_type)
            }
            (wanted, _) => cast(&array, wanted),
        }
    }
}

fn shift(array: &ArrayRef, by: i64) -> ArrayRef {
    let values = array.as_primitive::<arrow::datatypes::Int64Type>();
    Arc::new(Int64Array::from_iter_values(values.values().iter().map(|v| v.saturating_add(by))))
}

fn values_of(data_type: &DataType, options: &FieldOptions) -> Option<Values> {
    let whole = |min: i64, max: i64| Values::Whole {
        min: options.min.map_or(min, |v| v as i64),
        max: options.max.map_or(max, |v| v as i64),
    };
    let sequence = Values::Sequence { start: options.start.unwrap_or(0) };
    let is_sequence = options.kind == Some(FieldKind::Sequence);
    Some(match data_type {
        DataType::Boolean => Values::Boolean,
        DataType::Utf8 if is_sequence => sequence,
        DataType::Utf8 => Values::Text { length: options.length.unwrap_or(10) },
        DataType::Int16 | DataType::Int32 | DataType::Int64 if is_sequence => sequence,
        DataType::Int16 => whole(0, i64::from(i16::MAX)),
        DataType::Int32 => whole(0, i64::from(i32::MAX)),
        DataType::Int64 => whole(0, i64::MAX),
        DataType::Decimal128(..) | DataType::Float32 | DataType::Float64 if is_sequence => sequence,
        DataType::Decimal128(..) | DataType::Float32 | DataType::Float64 => {
            Values::Fraction { min: options.min.unwrap_or(0.0), max: options.max.unwrap_or(1000.0) }
        }
        DataType::Timestamp(..) | DataType::Date32 if is_sequence => sequence,
        DataType::Timestamp(..) => {
            Values::Whole { min: -options.max_past_ms.unwrap_or(DAY_MS).max(0), max: 0 }
        }
        DataType::Date32 => {
            Values::Whole { min: -options.max_past_ms.map_or(365, |ms| ms.max(0) / DAY_MS), max: 0 }
        }
        _ => return None,
    })
}

fn text(draw: u64, length: usize) -> String {
    (0..length).map(|i| (b'a' + below(follow(draw, i as u64), 26) as u8) as char).collect()
}
