//! StreamPlan: the tree of operators, as data, and how a logical plan becomes one.
//!
//! ```text
//!   bound LogicalPlan ── optimize ── LogicalPlan ── lower ── PlanNode tree ── place exchanges ── StreamPlan
//! ```
//! Pure and deterministic: the same text over the same catalog gives the same plan with the same
//! node numbers, which is how a restart finds the state of its operators again.

mod aggregate;
pub(crate) mod decorrelate;
pub mod derive;
pub mod explain;
mod exprs;
pub mod fingerprint;
mod grouping;
mod join;
pub mod lower;
mod monotone;
pub mod node;
pub mod optimize;
mod over;
pub mod property;
mod scan;
mod top_n;
mod window;

pub use lower::lower;
pub use monotone::rises_with;
pub use node::{
    AggregateCall, AggregateFunction, JoinKind, OverCall, PlanNode, PlanOp, SortKey, StreamPlan, WindowKind,
};
pub use optimize::optimize;
pub use property::{Distribution, Properties};

use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::Column;
use std::sync::Arc;

/// The ordinal of the input column that `expr` is, if it is nothing more.
pub fn column_index(expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    expr.downcast_ref::<Column>().map(Column::index)
}

/// Whether values of this type can be grouped, joined and sorted by: what `state::key` encodes.
pub fn key_type(data_type: &DataType) -> bool {
    match data_type {
        DataType::Boolean
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Decimal128(_, _)
        | DataType::Float32
        | DataType::Float64
        | DataType::Utf8
        | DataType::Binary
        | DataType::Date32
        | DataType::Time64(TimeUnit::Microsecond)
        | DataType::Timestamp(TimeUnit::Microsecond, _)
        | DataType::Interval(IntervalUnit::MonthDayNano) => true,
        DataType::List(item) => key_type(item.data_type()),
        DataType::Struct(fields) => fields.iter().all(|f| key_type(f.data_type())),
        _ => false,
    }
}

#[cfg(test)]
pub(crate) mod tests;
