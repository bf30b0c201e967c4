//! System tables: what they are called, their columns, and their rows of now.

use arrow::datatypes::SchemaRef;
use weir_sql::binder::SystemSchemas;

/// The tables of `pg_catalog`, `information_schema` and `weir_catalog`.
pub struct SystemTables;

impl SystemSchemas for SystemTables {
    fn schema_of(&self, _schema: &str, _name: &str) -> Option<SchemaRef> {
        None
    }
}
