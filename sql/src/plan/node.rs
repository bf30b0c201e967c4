//! One variant per operator, with its parameters. Expressions are physical (columns by ordinal of
//! the node's input; a join's residual: left columns, then right).

use super::property::{Distribution, Properties};
use arrow::array::RecordBatch;
use arrow::datatypes::{Field, SchemaRef};
use datafusion_physical_expr::PhysicalExpr;
use std::sync::Arc;
use weir_catalog::ObjectId;

/// A whole streaming plan: what a view or sink runs.
#[derive(Clone, Debug)]
pub struct StreamPlan {
    /// The last operator; its output is the view's rows.
    pub root: PlanNode,
}

/// An operator, its inputs, and what is known of its output.
#[derive(Clone, Debug)]
pub struct PlanNode {
    /// Number in pre-order from the root, dense: stable for the same text over the same catalog.
    pub id: u32,
    /// What it does.
    pub op: PlanOp,
    /// What it reads, by port.
    pub inputs: Vec<PlanNode>,
    /// Its output's columns.
    pub schema: SchemaRef,
    /// What is known of its output.
    pub properties: Properties,
}

/// What a node does.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "each variant says what its parameters are")]
pub enum PlanOp {
    /// The rows of a source, of these of its declared columns (ascending ordinals).
    Source { source: ObjectId, columns: Vec<usize> },
    /// The rows of a table or materialized view: what is there, then its changes.
    Scan { relation: ObjectId, columns: Vec<usize> },
    /// Constant rows, once.
    Values { rows: RecordBatch },
    /// Keeps rows for which the predicate is true.
    Filter { predicate: Arc<dyn PhysicalExpr> },
    /// Computes columns.
    Project { exprs: Vec<Arc<dyn PhysicalExpr>> },
    /// Each row once for each of these projections, in no order.
    Expand { projections: Vec<Vec<Arc<dyn PhysicalExpr>>> },
    /// All rows of all inputs (same types).
    Union,
    /// Groups by columns; output: the group columns, then one column a call. Without group
    /// columns there is always one row. Without calls it is DISTINCT.
    Aggregate { group: Vec<usize>, calls: Vec<AggregateCall> },
    /// Hash join on key columns, with a residual over (left columns, right columns).
    /// Inner and outer kinds give left columns then right columns; semi and anti kinds the left's.
    Join {
        kind: JoinKind,
        left_keys: Vec<usize>,
        right_keys: Vec<usize>,
        /// Whether NULL keys match each other.
        null_equal: bool,
        residual: Option<Arc<dyn PhysicalExpr>>,
    },
    /// Per group, the rows `offset..offset+limit` in this order; ties are broken by the whole row.
    /// With `rank`, an i64 column `row_number` from 1 is appended.
    TopN { group: Vec<usize>, order: Vec<SortKey>, offset: u64, limit: Option<u64>, rank: bool },
    /// Appends window functions over partitions in an order; ties are broken by the whole row.
    Over { group: Vec<usize>, order: Vec<SortKey>, calls: Vec<OverCall> },
    /// Appends `window_start` and `window_end` of the windows that each row falls in.
    Window { kind: WindowKind, time: usize },
    /// Holds rows back until the watermark has passed their time column, and gives each once, as it
    /// is then.
    EmitOnClose { time: usize },
    /// Moves rows to where the distribution says.
    Exchange { to: Distribution },
}

/// How rows are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are SQL's")]
pub enum JoinKind {
    Inner,
    Left,
    Right,
    Full,
    LeftSemi,
    LeftAnti,
    /// NOT IN: a NULL on either side makes the answer unknown.
    NullAwareAnti,
}

/// One column of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortKey {
    /// The column.
    pub column: usize,
    /// Greatest first.
    pub descending: bool,
    /// NULL before every value.
    pub nulls_first: bool,
}

/// Windows in event time, microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are SQL's")]
pub enum WindowKind {
    Tumble { size_us: i64, offset_us: i64 },
    Hop { size_us: i64, slide_us: i64, offset_us: i64 },
}

impl WindowKind {
    /// Size, slide and offset; a tumbling window slides by its size.
    pub fn parts(self) -> (i64, i64, i64) {
        match self {
            WindowKind::Tumble { size_us, offset_us } => (size_us, size_us, offset_us),
            WindowKind::Hop { size_us, slide_us, offset_us } => (size_us, slide_us, offset_us),
        }
    }
}

impl std::fmt::Display for WindowKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WindowKind::Tumble { size_us, offset_us } => {
                write!(f, "tumble(size {size_us}us, offset {offset_us}us)")
            }
            WindowKind::Hop { size_us, slide_us, offset_us } => {
                write!(f, "hop(slide {slide_us}us, size {size_us}us, offset {offset_us}us)")
            }
        }
    }
}

/// One aggregate of an [`PlanOp::Aggregate`].
#[derive(Clone, Debug)]
pub struct AggregateCall {
    /// Which.
    pub function: AggregateFunction,
    /// Input column; none for count(*).
    pub argument: Option<usize>,
    /// Only distinct values.
    pub distinct: bool,
    /// A boolean input column: only rows where it is true.
    pub filter: Option<usize>,
    /// The output column.
    pub output: Field,
}

/// One window function of an [`PlanOp::Over`].
#[derive(Clone, Debug)]
pub struct OverCall {
    /// The function, as a logical expression: columns are named by their ordinals in the input.
    pub function: datafusion_expr::Expr,
    /// The output column.
    pub output: Field,
}

/// The aggregates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are SQL's")]
pub enum AggregateFunction {
    Count,
    Sum,
    Avg,
    Min,
    Max,
    BoolAnd,
    BoolOr,
}
