//! A source as declared: where rows come from, and how they are read. Not stored.

use crate::column::{Column, Key};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `WITH (name = 'value')`, lower-cased names, in order of name.
pub type Options = BTreeMap<String, String>;

/// `FORMAT … ENCODE … (options)`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FormatSpec {
    /// `PLAIN`, `UPSERT`, `DEBEZIUM`, `NATIVE`, upper case.
    pub format: String,
    /// `JSON`, `CSV`, `PARQUET`, … upper case; `NATIVE` for generators.
    pub encode: String,
    /// The encoding's own options.
    pub options: Options,
}

/// `WATERMARK FOR column AS column - delay`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WatermarkSpec {
    /// Ordinal of the timestamp column.
    pub column: usize,
    /// How far the watermark stays behind the greatest timestamp seen, in microseconds.
    pub delay_us: i64,
    /// What becomes of rows that come below it.
    #[serde(default)]
    pub late_rows: LateRows,
}

/// What becomes of rows that come below the watermark: they are dropped and counted, and may be kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LateRows {
    /// Kept as dead letters.
    #[default]
    DeadLetter,
    /// Only counted.
    Skip,
}

/// What CREATE SOURCE said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Source {
    /// Its columns, in order.
    pub columns: Vec<Column>,
    /// A declared key: what the user promises to be unique. Not checked.
    pub primary_key: Option<Key>,
    /// The connector's name in the registry.
    pub connector: String,
    /// The `WITH` options without `connector`.
    pub options: Options,
    /// How messages are read.
    pub format: FormatSpec,
    /// Event time, if declared.
    pub watermark: Option<WatermarkSpec>,
}
