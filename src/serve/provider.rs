//! Stored relations as DataFusion tables: pushdown of keys, bounds and limits.

use super::access::{self, Access, IndexLayout};
use super::layout::RowLayout;
use super::overlay::OverlayRows;
use super::scan::{ScanExec, ScanSpec};
use crate::job::manager::Visible;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::TableType;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use std::fmt;
use std::sync::Arc;

/// The rows of a table or materialized view at one epoch, and what the reader sees on top.
pub struct RelationProvider {
    name: String,
    layout: RowLayout,
    indexes: Vec<Arc<IndexLayout>>,
    visible: Visible,
    overlay: Option<Arc<OverlayRows>>,
}

impl RelationProvider {
    /// The rows of the relation `name`, which lie as `layout` says.
    pub fn new(name: String, layout: RowLayout, visible: Visible, overlay: Option<Arc<OverlayRows>>) -> Self {
        Self { name, layout, indexes: Vec::new(), visible, overlay }
    }

    /// With indexes that may be read instead.
    #[must_use]
    pub fn with_indexes(mut self, indexes: Vec<Arc<IndexLayout>>) -> Self {
        self.indexes = indexes;
        self
    }
}

impl fmt::Debug for RelationProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelationProvider({} at {:?})", self.name, self.visible.epoch)
    }
}

#[async_trait]
impl TableProvider for RelationProvider {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.layout.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let useful = |filter: &&Expr| {
            if access::is_useful(filter, &self.layout, &self.indexes) {
                TableProviderFilterPushDown::Inexact
            } else {
                TableProviderFilterPushDown::Unsupported
            }
        };
        Ok(filters.iter().map(useful).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let access = if filters.is_empty() {
            Access::All
        } else {
            access::choose(filters, &self.layout, &self.indexes)?
        };
        let projection =
            projection.cloned().unwrap_or_else(|| (0..self.layout.schema.fields().len()).collect());
        let spec = ScanSpec {
            schema: Arc::new(self.layout.schema.project(&projection)?),
            layout: self.layout.clone(),
            access,
            state: Arc::clone(&self.visible.state),
            overlay: self.overlay.clone(),
            projection,
            relation: self.name.clone(),
        };
        // A limit with filters is the filter's to keep: what is read here may be too much.
        let limit = if filters.is_empty() { limit } else { None };
        Ok(Arc::new(ScanExec::new(spec, state.config().target_partitions(), limit)))
    }
}
