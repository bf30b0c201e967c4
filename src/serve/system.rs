//! System tables: what they are called, their columns, and their rows of now.

use super::{ServeError, SessionInfo};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use weir_catalog::{CatalogSnapshot, SqlState};
use weir_sql::binder::SystemSchemas;

/// The tables of `pg_catalog`, `information_schema` and `weir_catalog`.
pub struct SystemTables;

impl SystemTables {
    /// The rows of a system table.
    pub fn rows(
        &self,
        schema: &str,
        name: &str,
        _catalog: &CatalogSnapshot,
        _session: &SessionInfo,
    ) -> Result<RecordBatch, ServeError> {
        Err(ServeError::new(SqlState::UNDEFINED_TABLE, format!("no system table {schema}.{name}")))
    }
}

impl SystemSchemas for SystemTables {
    fn schema_of(&self, _schema: &str, _name: &str) -> Option<SchemaRef> {
        None
    }
}
