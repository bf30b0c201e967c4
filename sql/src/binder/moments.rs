//! Constants of date and time that are told by the clock: `'today'::date`, `timestamp 'now'`.

use super::rewrite::{call, cast_to};
use sqlparser::ast::{BinaryOperator, DataType, Expr, Value};

/// The same as a function of the clock; other expressions as they are.
pub(super) fn rewrite(expr: &mut Expr) {
    let (text, data_type) = match &*expr {
        Expr::TypedString(typed) => (&typed.value.value, &typed.data_type),
        Expr::Cast { expr, data_type, .. } => match expr.as_ref() {
            Expr::Value(value) => (&value.value, data_type),
            _ => return,
        },
        _ => return,
    };
    let Value::SingleQuotedString(text) = text else { return };
    if !matches!(data_type, DataType::Date | DataType::Timestamp(..)) {
        return;
    }
    let moment = match text.trim().to_ascii_lowercase().as_str() {
        "now" => call("now", Vec::new()),
        "today" => day(0),
        "tomorrow" => day(1),
        "yesterday" => day(-1),
        _ => return,
    };
    *expr = cast_to(moment, data_type.clone());
}

/// So many days from today.
fn day(offset: i64) -> Expr {
    let op = if offset < 0 { BinaryOperator::Minus } else { BinaryOperator::Plus };
    let days = Expr::Value(Value::Number(offset.abs().to_string(), false).with_empty_span());
    let today = call("current_date", Vec::new());
    Expr::Nested(Box::new(Expr::BinaryOp { left: Box::new(today), op, right: Box::new(days) }))
}
