//! A consistent epoch for one query: which rows each scan of its plan reads.

use super::access::IndexLayout;
use super::layout::RowLayout;
use super::overlay::OverlayRows;
use super::provider::RelationProvider;
use super::system::stored_layout;
use super::{Overlay, ServeError};
use crate::job::manager::{Database, Visible};
use crate::state::table::TableLayout;
use crate::stream::Epoch;
use arrow::array::RecordBatch;
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNodeRecursion};
use datafusion::datasource::cte_worktable::CteWorkTable;
use datafusion::datasource::provider_as_source;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{LogicalPlan, TableScan, TableSource};
use std::sync::Arc;
use weir_catalog::relation::RowKey;
use weir_catalog::{CatalogSnapshot, Object, ObjectBody, ObjectId, ObjectState, SqlState};
use weir_sql::binder::context::{RelationSource, SystemSource, WorkTableSource};

/// Gives the rows of system tables.
pub trait SystemRows {
    /// The rows of a table, over `catalog`.
    fn rows(&self, schema: &str, name: &str, catalog: &CatalogSnapshot) -> Result<RecordBatch, ServeError>;
}

/// An epoch to read at.
///
/// **Invariant:** the catalog was looked at before the epoch: what it shows as created is filled
/// there. What it shows may have been dropped since, and its rows with it.
#[derive(Clone, Debug)]
pub struct ReadPoint {
    /// The catalog of before.
    pub catalog: Arc<CatalogSnapshot>,
    /// The epoch.
    pub visible: Visible,
}

impl ReadPoint {
    /// The newest.
    pub fn newest(db: &Database) -> Self {
        let catalog = db.catalog();
        Self { catalog, visible: db.visible() }
    }
}

/// Whether a plan, or a subquery of it, reads rows of the state: not only what is known without it.
pub fn reads_state(plan: &LogicalPlan) -> bool {
    let mut found = false;
    let walked = plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            let system = scan.source.downcast_ref::<SystemSource>();
            found |= system.is_none_or(|table| stored_layout(&table.schema_name, &table.name).is_some());
        }
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    found || walked.is_err()
}

/// What one query reads: objects that were there before its epoch and are there still. A drop is
/// logged before its rows go, so what `now` has, its rows are in the epoch.
pub struct QuerySnapshot {
    catalog: Arc<CatalogSnapshot>,
    now: Arc<CatalogSnapshot>,
    visible: Visible,
    overlay: Option<Arc<dyn Overlay>>,
}

impl QuerySnapshot {
    /// Reads at `at`; `now` is the catalog of after that epoch.
    pub fn new(at: ReadPoint, now: Arc<CatalogSnapshot>, overlay: Option<Arc<dyn Overlay>>) -> Self {
        Self { catalog: at.catalog, now, visible: at.visible, overlay }
    }

    /// An object that was there before the epoch and is there still.
    fn lasting(&self, id: ObjectId) -> Option<&Arc<Object>> {
        self.catalog.by_id(id).filter(|_| self.now.by_id(id).is_some())
    }

    /// Gives every scan of `plan`, also in subqueries, its rows.
    pub fn resolve(&self, plan: LogicalPlan, system: &dyn SystemRows) -> Result<LogicalPlan, ServeError> {
        let resolved = plan.transform_up_with_subqueries(|node| {
            let LogicalPlan::TableScan(scan) = node else { return Ok(Transformed::no(node)) };
            let provider = match self.provider(&*scan.source, system)? {
                Some(provider) => provider,
                None => return Ok(Transformed::no(LogicalPlan::TableScan(scan))),
            };
            let scan = TableScan { source: provider_as_source(provider), ..scan };
            Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
        });
        Ok(resolved.data()?)
    }

    fn provider(
        &self,
        source: &dyn TableSource,
        system: &dyn SystemRows,
    ) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        if let Some(relation) = source.downcast_ref::<RelationSource>() {
            return Ok(Some(self.relation(relation)?));
        }
        if let Some(work) = source.downcast_ref::<WorkTableSource>() {
            return Ok(Some(Arc::new(CteWorkTable::new(&work.name, Arc::clone(&work.schema)))));
        }
        if let Some(table) = source.downcast_ref::<SystemSource>() {
            if let Some(layout) = stored_layout(&table.schema_name, &table.name) {
                let provider =
                    RelationProvider::new(table.name.clone(), layout.clone(), self.visible.clone(), None);
                return Ok(Some(Arc::new(provider)));
            }
            let rows = system.rows(&table.schema_name, &table.name, &self.catalog)?;
            let table = MemTable::try_new(Arc::clone(&table.schema), vec![vec![rows]])?;
            return Ok(Some(Arc::new(table)));
        }
        Ok(None)
    }

    fn relation(&self, source: &RelationSource) -> Result<Arc<dyn TableProvider>, DataFusionError> {
        // The statement was bound before the snapshot was taken; the object may be further, or gone.
        let object = match self.lasting(source.object.id) {
            Some(object) => object,
            None => return Err(gone(&source.object).into()),
        };
        let row_key = readable(object)?;
        if self.visible.epoch == Epoch::ZERO {
            return Err(not_started(object).into());
        }
        let layout = RowLayout::new(object.id.table(), Arc::clone(&source.schema), row_key);
        let changes = self.overlay.as_ref().map(|o| o.changes(object.id)).unwrap_or_default();
        let overlay =
            if changes.is_empty() { None } else { OverlayRows::new(&layout, &changes)?.map(Arc::new) };
        let provider = RelationProvider::new(object.name.to_string(), layout, self.visible.clone(), overlay);
        Ok(Arc::new(provider.with_indexes(self.indexes(object.id))))
    }
}

impl QuerySnapshot {
    /// The indexes of a relation that are filled.
    fn indexes(&self, relation: ObjectId) -> Vec<Arc<IndexLayout>> {
        let index = |object: &Arc<Object>| {
            let ObjectBody::Index(index) = &object.body else { return None };
            if index.relation != relation || object.state != ObjectState::Created {
                return None;
            }
            self.lasting(object.id)?;
            let layout = TableLayout::of_object(object, |id| self.catalog.by_id(id))?;
            // As the layout has it: a column that is named twice is indexed once.
            let mut columns: Vec<(usize, bool)> = Vec::new();
            for (column, descending) in &index.columns {
                if !columns.iter().any(|(c, _)| c == column) {
                    columns.push((*column, *descending));
                }
            }
            Some(Arc::new(IndexLayout {
                name: object.name.to_string(),
                table: layout.id,
                columns,
                key_columns: layout.key_columns,
                codec: layout.key,
            }))
        };
        self.catalog.objects().filter_map(index).collect()
    }
}

/// The dataflow could not start in this process: what was acknowledged is not yet there to be read.
fn not_started(object: &Object) -> ServeError {
    ServeError::new(
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("{} \"{}\" cannot be read before the dataflow has started", object.kind(), object.name),
    )
    .with_hint("Why it has not: SELECT * FROM weir_catalog.alerts.".to_owned())
}

fn gone(object: &Object) -> ServeError {
    ServeError::new(
        SqlState::UNDEFINED_TABLE,
        format!("{} \"{}\" was dropped while the statement ran", object.kind(), object.name),
    )
}

/// How the rows of `object` are keyed, if they can be read.
fn readable(object: &Object) -> Result<&RowKey, ServeError> {
    let key = match &object.body {
        ObjectBody::Table(table) => &table.key,
        ObjectBody::MaterializedView(view) => &view.key,
        ObjectBody::Source(_) => {
            return Err(ServeError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                format!("source \"{}\" is not stored and cannot be read by SELECT", object.name),
            )
            .with_hint(format!(
                "Create a materialized view on it: CREATE MATERIALIZED VIEW v AS SELECT … FROM {}.",
                object.name
            )));
        }
        ObjectBody::Sink(_) | ObjectBody::Index(_) | ObjectBody::View(_) => {
            return Err(ServeError::new(
                SqlState::WRONG_OBJECT_TYPE,
                format!("cannot read {} \"{}\"", object.kind(), object.name),
            ));
        }
    };
    if object.state.is_filling() {
        return Err(ServeError::new(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("{} \"{}\" is still being filled", object.kind(), object.name),
        )
        .with_hint("See weir_catalog.ddl_progress for how far it is."));
    }
    Ok(key)
}

#[cfg(test)]
#[path = "tests/read.rs"]
mod tests;
