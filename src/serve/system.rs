//! System tables: what they are called, their columns, and their rows of now.
//!
//! Three sources: `weir_catalog` from the catalog package; `pg_catalog` and `information_schema`
//! computed here ([`super::pg_catalog`], [`super::pg_views`], [`super::information_schema`]); and
//! what never changes (types, functions, operators, and tables that are always empty) from
//! PostgreSQL's own catalogs as `datafusion-pg-catalog` ships them.

use super::layout::RowLayout;
use super::{
    ServeError, SessionInfo, information_schema, pg_catalog, pg_keywords, pg_static, pg_types, pg_views,
};
use crate::config::Config;
use crate::connectors::dead_letter;
use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int16Array, Int32Array, Int64Array, Int64Builder, ListBuilder,
    RecordBatch, RecordBatchOptions, StringArray, StringBuilder, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use weir_catalog::relation::RowKey;
use weir_catalog::system::facts::RuntimeFacts;
use weir_catalog::system::{ColumnType, Columns, Row, SystemTable, TABLES, Value, WEIR_CATALOG};
use weir_catalog::{CatalogSnapshot, SqlState};
use weir_sql::binder::SystemSchemas;

/// What the rows of a system table may depend on.
pub struct SystemInput<'a> {
    /// The catalog.
    pub catalog: &'a CatalogSnapshot,
    /// What is running.
    pub facts: &'a RuntimeFacts,
    /// Who asks.
    pub session: &'a SessionInfo,
    /// What the server was started with.
    pub config: &'a Config,
}

/// Where a system table's rows come from.
#[derive(Clone)]
pub enum RowSource {
    /// The catalog and the facts.
    Weir(SystemTable),
    /// Computed by the server.
    Computed(Columns, fn(&SystemInput<'_>) -> Vec<Row>),
    /// They never change.
    Fixed(RecordBatch),
    /// They are state, like a relation's.
    Stored(RowLayout),
}

/// A system table.
#[derive(Clone)]
pub struct TableSpec {
    /// Its schema.
    pub schema: &'static str,
    /// Its name.
    pub name: String,
    /// Its rows.
    pub source: RowSource,
}

impl TableSpec {
    /// A table that the server computes.
    pub fn computed(
        schema: &'static str,
        name: &str,
        columns: Columns,
        rows: fn(&SystemInput<'_>) -> Vec<Row>,
    ) -> Self {
        Self { schema, name: name.to_owned(), source: RowSource::Computed(columns, rows) }
    }

    /// Whether PostgreSQL has it as a view rather than a table.
    pub fn is_view(&self) -> bool {
        self.schema != "pg_catalog" || pg_views::is_view(&self.name)
    }

    /// Whether it never has rows.
    pub fn is_always_empty(&self) -> bool {
        matches!(&self.source, RowSource::Fixed(batch) if batch.num_rows() == 0)
    }

    /// Its columns: name and the number of the type.
    pub fn columns(&self) -> Vec<(String, i64)> {
        match &self.source {
            RowSource::Weir(SystemTable { columns, .. }) | RowSource::Computed(columns, _) => {
                columns.iter().map(|(name, kind)| ((*name).to_owned(), pg_types::of_system(*kind))).collect()
            }
            RowSource::Fixed(_) | RowSource::Stored(_) => {
                let oid = |f: &Field| match f.metadata().get("weir.type").map(String::as_str) {
                    Some("oid") => 26,
                    _ => pg_types::of_arrow(f.data_type()),
                };
                self.arrow_schema().fields().iter().map(|f| (f.name().clone(), oid(f))).collect()
            }
        }
    }

    /// Its columns as Arrow has them.
    pub fn arrow_schema(&self) -> SchemaRef {
        match &self.source {
            RowSource::Weir(SystemTable { columns, .. }) | RowSource::Computed(columns, _) => {
                Arc::new(Schema::new(columns.iter().map(|(n, k)| field(n, *k)).collect::<Vec<_>>()))
            }
            RowSource::Fixed(batch) => batch.schema(),
            RowSource::Stored(layout) => Arc::clone(&layout.schema),
        }
    }

    fn rows(&self, input: &SystemInput<'_>) -> Result<RecordBatch, ServeError> {
        let rows = match &self.source {
            RowSource::Weir(table) => (table.rows)(input.catalog, input.facts),
            RowSource::Computed(_, rows) => rows(input),
            RowSource::Fixed(batch) => return Ok(batch.clone()),
            RowSource::Stored(_) => return Ok(RecordBatch::new_empty(self.arrow_schema())),
        };
        to_batch(self.arrow_schema(), &rows)
    }
}

/// Every system table, in order of schema and name.
pub static SYSTEM_TABLES: LazyLock<Vec<TableSpec>> = LazyLock::new(|| {
    let mut all: Vec<TableSpec> = TABLES
        .iter()
        .map(|t| TableSpec { schema: WEIR_CATALOG, name: t.name.to_owned(), source: RowSource::Weir(*t) })
        .collect();
    all.extend(pg_views::weir_tables());
    all.push(dead_letters());
    all.extend(pg_catalog::tables());
    all.extend(pg_views::tables());
    all.extend(pg_keywords::tables());
    all.extend(information_schema::tables());
    for fixed in pg_static::tables() {
        if !all.iter().any(|t| t.schema == fixed.schema && t.name == fixed.name) {
            all.push(fixed);
        }
    }
    all.sort_by(|a, b| (a.schema, &a.name).cmp(&(b.schema, &b.name)));
    all
});

/// What could not be decoded: written by sources, read like a table.
fn dead_letters() -> TableSpec {
    let key = RowKey::Columns(dead_letter::KEY.to_vec());
    let layout = RowLayout::new(dead_letter::RELATION.table(), dead_letter::schema(), &key);
    TableSpec { schema: WEIR_CATALOG, name: "dead_letters".to_owned(), source: RowSource::Stored(layout) }
}

/// How a system table that is state lies in the store.
pub fn stored_layout(schema: &str, name: &str) -> Option<&'static RowLayout> {
    let table = SYSTEM_TABLES.iter().find(|t| t.schema == schema && t.name == name)?;
    match &table.source {
        RowSource::Stored(layout) => Some(layout),
        _ => None,
    }
}

/// The tables of `pg_catalog`, `information_schema` and `weir_catalog`.
pub struct SystemTables {
    by_name: HashMap<(&'static str, &'static str), &'static TableSpec>,
}

impl Default for SystemTables {
    fn default() -> Self {
        Self { by_name: SYSTEM_TABLES.iter().map(|t| ((t.schema, t.name.as_str()), t)).collect() }
    }
}

impl SystemTables {
    /// The rows of a system table.
    pub fn rows(&self, schema: &str, name: &str, input: &SystemInput<'_>) -> Result<RecordBatch, ServeError> {
        match self.by_name.get(&(schema, name)) {
            Some(table) => table.rows(input),
            None => Err(ServeError::new(
                SqlState::UNDEFINED_TABLE,
                format!("relation \"{schema}.{name}\" does not exist"),
            )),
        }
    }
}

impl SystemSchemas for SystemTables {
    fn schema_of(&self, schema: &str, name: &str) -> Option<SchemaRef> {
        self.by_name.get(&(schema, name)).map(|table| table.arrow_schema())
    }
}

/// The Arrow field of a system column; the metadata names PostgreSQL's type where Arrow has none.
fn field(name: &str, kind: ColumnType) -> Field {
    let list = |item| DataType::List(Arc::new(Field::new("item", item, true)));
    let (data_type, named) = match kind {
        ColumnType::Bool => (DataType::Boolean, None),
        ColumnType::Int2 => (DataType::Int16, None),
        ColumnType::Int4 => (DataType::Int32, None),
        ColumnType::Int8 => (DataType::Int64, None),
        ColumnType::Float8 => (DataType::Float64, None),
        ColumnType::Oid => (DataType::Int64, Some("oid")),
        ColumnType::Text => (DataType::Utf8, None),
        ColumnType::Name => (DataType::Utf8, Some("name")),
        ColumnType::Char => (DataType::Utf8, Some("char")),
        ColumnType::Timestamptz => (DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())), None),
        ColumnType::TextArray => (list(DataType::Utf8), None),
        ColumnType::Int2Array => (list(DataType::Int64), None),
        ColumnType::OidArray => (list(DataType::Int64), None),
    };
    let field = Field::new(name, data_type, true);
    match named {
        Some(named) => field.with_metadata(HashMap::from([("weir.type".to_owned(), named.to_owned())])),
        None => field,
    }
}

/// Rows as an Arrow batch.
pub fn to_batch(schema: SchemaRef, rows: &[Row]) -> Result<RecordBatch, ServeError> {
    let columns: Vec<ArrayRef> = schema
        .fields()
        .iter()
        .enumerate()
        .map(|(column, field)| to_array(field.data_type(), rows.iter().map(|r| &r[column])))
        .collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
}

/// Values as an Arrow array of `data_type`; what does not fit is NULL.
pub fn to_array<'a>(data_type: &DataType, values: impl Iterator<Item = &'a Value>) -> ArrayRef {
    let int = |v: &Value| match v {
        Value::Int(n) | Value::Timestamp(n) => Some(*n),
        _ => None,
    };
    match data_type {
        DataType::Boolean => Arc::new(BooleanArray::from_iter(values.map(|v| match v {
            Value::Bool(b) => Some(*b),
            _ => None,
        }))),
        DataType::Int16 => Arc::new(Int16Array::from_iter(values.map(|v| int(v).map(|n| n as i16)))),
        DataType::Int32 => Arc::new(Int32Array::from_iter(values.map(|v| int(v).map(|n| n as i32)))),
        DataType::Int64 => Arc::new(Int64Array::from_iter(values.map(int))),
        DataType::Float64 => Arc::new(Float64Array::from_iter(values.map(|v| match v {
            Value::Float(f) => Some(*f),
            _ => None,
        }))),
        DataType::Timestamp(..) => {
            Arc::new(TimestampMicrosecondArray::from_iter(values.map(int)).with_timezone("+00:00"))
        }
        DataType::List(item) if *item.data_type() == DataType::Utf8 => {
            let mut builder = ListBuilder::new(StringBuilder::new());
            for value in values {
                match value {
                    Value::Texts(texts) => builder.append_value(texts.iter().map(Some)),
                    _ => builder.append_null(),
                }
            }
            Arc::new(builder.finish())
        }
        DataType::List(_) => {
            let mut builder = ListBuilder::new(Int64Builder::new());
            for value in values {
                match value {
                    Value::Ints(ints) => builder.append_value(ints.iter().copied().map(Some)),
                    _ => builder.append_null(),
                }
            }
            Arc::new(builder.finish())
        }
        _ => Arc::new(StringArray::from_iter(values.map(|v| match v {
            Value::Text(text) => Some(text.as_str()),
            _ => None,
        }))),
    }
}
