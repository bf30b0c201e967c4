//! Columns and keys. A column's type is its Arrow type; how SQL spells it is the `sql` package's.

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One column of a relation or source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// The name, folded.
    pub name: String,
    /// The Arrow type of its values.
    pub data_type: DataType,
    /// The SQL spelling of the type as declared (`varchar(10)`, `numeric(10,2)`).
    pub sql_type: String,
    /// False for NOT NULL and primary key columns.
    pub nullable: bool,
    /// The SQL text of DEFAULT, if any.
    pub default: Option<String>,
}

/// The columns that identify a row: ordinals into the relation's columns, in key order.
pub type Key = Vec<usize>;

/// The Arrow schema of `columns`.
pub fn arrow_schema(columns: &[Column]) -> SchemaRef {
    Arc::new(Schema::new(
        columns.iter().map(|c| Field::new(&c.name, c.data_type.clone(), c.nullable)).collect::<Vec<_>>(),
    ))
}
