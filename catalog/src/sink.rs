//! A sink as declared: what goes out, where, and what its rows mean there.

use crate::column::{Column, Key};
use crate::id::ObjectId;
use crate::source::{FormatSpec, Options};
use serde::{Deserialize, Serialize};

/// What the rows delivered to the target mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SinkType {
    /// Insertions only.
    AppendOnly,
    /// The last row per key wins; a deletion removes it.
    Upsert,
    /// Change events with before and after.
    Debezium,
}

/// What CREATE SINK said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sink {
    /// The columns delivered, in order.
    pub columns: Vec<Column>,
    /// The SELECT as text; `FROM relation` is stored as a SELECT of its columns.
    pub query: String,
    /// What the query reads.
    pub inputs: Vec<ObjectId>,
    /// The connector's name in the registry.
    pub connector: String,
    /// The `WITH` options without those below.
    pub options: Options,
    /// How rows are written.
    pub format: FormatSpec,
    /// What the rows mean.
    pub sink_type: SinkType,
    /// The target's key, for upsert and debezium.
    pub primary_key: Option<Key>,
    /// Whether retractions are dropped from an append-only sink.
    pub force_append_only: bool,
    /// Whether what exists at creation is delivered first.
    pub snapshot: bool,
    /// The sink whose place this one has taken (REBUILD): its target is emptied before the first rows.
    #[serde(default)]
    pub replaces: Option<ObjectId>,
}
