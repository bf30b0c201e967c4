//! Names to objects, over a catalog snapshot.

pub mod bound;
pub mod context;

pub use bound::{Bound, Create, Dml, DmlKind};

use crate::error::SqlError;
use crate::parser::statement::Parsed;
use arrow::datatypes::DataType;
use std::sync::Arc;
use weir_catalog::CatalogSnapshot;

/// What binding may know of the session and the server.
#[derive(Clone)]
pub struct BindContext {
    /// The catalog.
    pub catalog: Arc<CatalogSnapshot>,
    /// Schemas that unqualified names are looked up in, in order; `pg_catalog` is always first.
    pub search_path: Vec<String>,
    /// Tables of `pg_catalog`, `information_schema` and `weir_catalog`: schema, name, columns.
    pub system: Arc<dyn SystemSchemas>,
    /// The connectors that exist.
    pub connectors: Arc<Vec<weir_catalog::connector::ConnectorSpec>>,
    /// Functions beyond the built-in ones: those that read the catalog or the session
    /// (`current_database()`, `pg_get_userbyid()`, …), as `serve` provides them.
    pub functions: Arc<Vec<Arc<datafusion_expr::ScalarUDF>>>,
    /// Types of `$1`, `$2`, … that the client declared.
    pub parameter_types: Vec<Option<DataType>>,
    /// `CREATE SOURCE` without columns: what the connector knows (nexmark's tables), by options.
    pub connector_columns: Arc<dyn Fn(&str, &weir_catalog::source::Options) -> Option<Vec<weir_catalog::Column>> + Send + Sync>,
}

/// The system tables that exist, without their rows.
pub trait SystemSchemas: Send + Sync {
    /// The columns of a system table.
    fn schema_of(&self, schema: &str, name: &str) -> Option<arrow::datatypes::SchemaRef>;
}

/// Binds a statement.
pub fn bind(_parsed: &Parsed, _context: &BindContext) -> Result<Bound, SqlError> {
    unimplemented!()
}

/// Plans the stored query of a view or sink anew, at a start: deterministic for the same text over
/// the same inputs.
pub fn replan(_object: &weir_catalog::Object, _context: &BindContext) -> Result<crate::plan::StreamPlan, SqlError> {
    unimplemented!()
}
