//! Which computed columns go up with a time column, so that its watermark is one of theirs:
//! `date_trunc('hour', ts)`, `ts + INTERVAL '5 seconds'`.
//!
//! Months are no such intervals: a month after January 30th at noon is later than a month after
//! January 31st.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion_common::ScalarValue;
use datafusion_physical_expr::expressions::{Column, Literal};
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use std::sync::Arc;

/// The column that `expr` goes up with, if it is known to: where the column does not go down, nor
/// does the expression.
pub fn rises_with(expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    if let Some(column) = expr.downcast_ref::<Column>() {
        return Some(column.index());
    }
    let function = expr.downcast_ref::<ScalarFunctionExpr>()?;
    if !matches!(function.return_type(), DataType::Timestamp(TimeUnit::Microsecond, _)) {
        return None;
    }
    match (function.name(), function.args()) {
        ("date_trunc", [unit, time]) if literal(unit).is_some_and(|v| !v.is_null()) => rises_with(time),
        ("+", [time, step]) | ("-", [time, step]) if is_constant_step(step) => rises_with(time),
        ("+", [step, time]) if is_constant_step(step) => rises_with(time),
        _ => None,
    }
}

fn literal(expr: &Arc<dyn PhysicalExpr>) -> Option<&ScalarValue> {
    expr.downcast_ref::<Literal>().map(Literal::value)
}

fn is_constant_step(expr: &Arc<dyn PhysicalExpr>) -> bool {
    matches!(literal(expr), Some(ScalarValue::IntervalMonthDayNano(Some(step))) if step.months == 0)
}
