//! What binding makes of a statement: data that the session acts on.

use crate::parser::statement::Statement;
use arrow::datatypes::Field;
use datafusion_expr::LogicalPlan;
use datafusion_physical_expr::PhysicalExpr;
use std::sync::Arc;
use weir_catalog::{CatalogChange, Object, ObjectId};

/// A bound statement.
#[allow(clippy::large_enum_variant, reason = "one at a time, moved once")]
#[derive(Clone, Debug)]
pub enum Bound {
    /// A SELECT. Its scans are [`crate::binder::context::RelationSource`]s; `serve` gives them rows.
    /// Placeholders (`$1`) are typed where their type can be told.
    Query(LogicalPlan),
    /// INSERT, UPDATE, DELETE.
    Dml(Dml),
    /// Creates an object. The session checks the connector's options against its spec.
    Create(Create),
    /// Changes of the catalog that start no job (schemas, comments, renames, settings, drops).
    /// Drops come readers first.
    Change {
        /// In the order to apply.
        changes: Vec<CatalogChange>,
        /// The command tag: `DROP TABLE`.
        tag: String,
        /// NOTICEs for the client: `table "t" does not exist, skipping`.
        notices: Vec<String>,
    },
    /// Nothing to do, but say so: IF NOT EXISTS of something that exists.
    Skip {
        /// The command tag.
        tag: String,
        /// The NOTICE.
        notice: String,
    },
    /// EXPLAIN: the text.
    Explain(String),
    /// EXPLAIN of what would be a job: the text of its plan.
    ExplainJob(String),
    /// A query whose rows, `(plan_type, plan)`, tell how another one is run, or ran.
    ExplainQuery(LogicalPlan),
    /// Everything that the session itself handles (SET, SHOW, BEGIN, FLUSH, …).
    Session(Statement),
}

/// CREATE of a table, source, view, index or sink.
#[derive(Clone, Debug)]
pub struct Create {
    /// What to log, with `state: Creating` where it has a job (sources and plain views: `Created`).
    pub object: Object,
    /// The stream plan of a materialized view or sink (with its final exchange in front of the
    /// key), or of an index; none for tables, sources and plain views.
    pub plan: Option<crate::plan::StreamPlan>,
    /// The command tag: `CREATE TABLE`.
    pub tag: String,
    /// NOTICEs for the client.
    pub notices: Vec<String>,
    /// The catalog's `renames` when it was bound.
    pub renames: u64,
}

/// RETURNING: expressions over a row of the table, and the columns that they give.
pub type Returning = Vec<(Arc<dyn PhysicalExpr>, Field)>;

/// A change of a table's rows.
#[derive(Clone, Debug)]
pub struct Dml {
    /// The table.
    pub table: ObjectId,
    /// What happens to the rows of `input`.
    pub kind: DmlKind,
    /// Insert: rows of all the table's columns, cast and with defaults. Delete: the rows to
    /// delete, all columns. Update: the old row's columns, then the new row's.
    pub input: LogicalPlan,
    /// RETURNING: expressions over the new row (the old one for DELETE).
    pub returning: Option<Returning>,
}

/// What a DML statement does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DmlKind {
    /// INSERT, and what a duplicate key does.
    Insert(weir_catalog::relation::OnConflict),
    /// UPDATE.
    Update,
    /// DELETE.
    Delete,
}
