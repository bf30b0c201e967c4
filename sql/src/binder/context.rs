//! The snapshot as DataFusion sees it.

use arrow::datatypes::SchemaRef;
use datafusion_expr::TableSource;
use std::any::Any;
use std::sync::Arc;
use weir_catalog::Object;

/// A scan of a catalog object in a logical plan. `serve` replaces it by a provider of rows.
#[derive(Clone, Debug)]
pub struct RelationSource {
    /// The object.
    pub object: Arc<Object>,
    /// Its columns.
    pub schema: SchemaRef,
}

impl TableSource for RelationSource {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// A scan of a system table in a logical plan.
#[derive(Clone, Debug)]
pub struct SystemSource {
    /// `pg_catalog`, `information_schema` or `weir_catalog`.
    pub schema_name: String,
    /// The table's name.
    pub name: String,
    /// Its columns.
    pub schema: SchemaRef,
}

impl TableSource for SystemSource {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
