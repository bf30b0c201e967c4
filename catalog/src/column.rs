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
    /// The Arrow field: a Utf8 that is not `text`, and a time that is held to a precision, say in
    /// their metadata what they are.
    pub fn field(&self) -> Field {
        let field = Field::new(&self.name, self.data_type.clone(), self.nullable);
        let marked = match self.data_type {
            DataType::Utf8 => self.sql_type != "text",
            DataType::Timestamp(..) | DataType::Time64(_) | DataType::Interval(_) => {
                self.sql_type.contains('(') || self.sql_type.starts_with("interval ")
            }
            _ => false,
        };
        match marked {
            true => field.with_metadata([(TYPE_KEY.to_owned(), self.sql_type.clone())].into()),
            false => field,
        }
    }
}

/// A type without its length, precision or fields: `timestamp(0) with time zone` is a
/// `timestamp with time zone`.
pub fn base_type(sql_type: &str) -> String {
    if sql_type.starts_with("interval ") {
        return "interval".to_owned();
    }
    match sql_type.split_once('(') {
        Some((base, rest)) => {
            let suffix = rest.split_once(')').map_or("", |(_, suffix)| suffix);
            format!("{}{suffix}", base.trim_end())
        }
        None => sql_type.to_owned(),
    }
}

/// The Arrow schema of `columns`.
pub fn arrow_schema(columns: &[Column]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(Column::field).collect::<Vec<_>>()))
}
