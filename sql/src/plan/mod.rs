//! StreamPlan: the tree of operators, as data, and how a logical plan becomes one.

pub mod node;
pub mod property;

pub use node::{AggregateCall, AggregateFunction, JoinKind, PlanNode, PlanOp, SortKey, StreamPlan, WindowKind};
pub use property::{Distribution, Properties};
