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

/// The metadata key of a field whose SQL type its Arrow type does not tell.
pub const TYPE_KEY: &str = "weir.type";

impl Column {
    /// The Arrow field: a Utf8 that is not `text` says in its metadata what it is.
    pub fn field(&self) -> Field {
        let field = Field::new(&self.name, self.data_type.clone(), self.nullable);
        match self.sql_type.as_str() {
            marker if self.data_type == DataType::Utf8 && marker != "text" => {
                field.with_metadata([(TYPE_KEY.to_owned(), marker.to_owned())].into())
            }
            _ => field,
        }
    }
}

/// The Arrow schema of `columns`.
pub fn arrow_schema(columns: &[Column]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(Column::field).collect::<Vec<_>>()))
}
