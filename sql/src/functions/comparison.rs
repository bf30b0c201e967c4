//! What values are compared by, where their own form does not tell: intervals by their length, jsonb
//! by its key; in a batch, floats with one zero and one NaN, as Arrow's kernels have two of each (keys in
//! the state store have one anyway). Comparisons, orders and partitions of such values become those of
//! their keys.
//!
//! ```text
//!   a < b                    key(a) < key(b)          BETWEEN, IN, CASE a WHEN b, nullif alike
//!   a IN (SELECT b …)        key(a) IN (SELECT key(b) …)
//!   greatest(a, b)           CASE WHEN b IS NULL OR key(a) >= key(b) THEN a ELSE b END
//!   OVER (PARTITION BY a)    OVER (PARTITION BY key(a))
//!   count(DISTINCT a)        count(DISTINCT key(a))
//! ```
//! What groups, joins and sorts whole rows is in [`super::comparison_plan`].

use super::interval::LENGTH;
use super::json::is_jsonb;
use super::json_key::JSON_KEY;
use super::operator::is_comparison;
use super::scalar::{Function, Kernel};
use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion_common::{DFSchema, Result, ScalarValue};
use datafusion_expr::expr::{
    AggregateFunction, Between, InList, InSubquery, ScalarFunction, SetComparison, Sort, WindowFunction,
};
use datafusion_expr::{
    BinaryExpr, Case, Expr, ExprSchemable, LogicalPlanBuilder, Operator, ScalarUDF, Subquery, WindowFrame,
    WindowFrameBound, WindowFrameUnits, when,
};
use std::sync::{Arc, LazyLock};

/// Which values get a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Intervals and jsonb: everywhere.
    Forms,
    /// Floats: in a batch.
    Floats,
}

/// `float_key(f)`: the float, or the zero or the NaN that stands for all of them.
static FLOAT_KEY: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    let coerce = |types: &[DataType]| matches!(types, [t] if t.is_floating()).then(|| types.to_vec());
    let kernel = |args: &[ArrayRef], _: &DataType| -> Result<ArrayRef> {
        Ok(match args[0].data_type() {
            DataType::Float32 => {
                let floats = args[0].as_primitive::<Float32Type>();
                Arc::new(floats.unary::<_, Float32Type>(|v| if v.is_nan() { f32::NAN } else { v + 0.0 }))
            }
            _ => {
                let floats = args[0].as_primitive::<Float64Type>();
                Arc::new(floats.unary::<_, Float64Type>(|v| if v.is_nan() { f64::NAN } else { v + 0.0 }))
            }
        })
    };
    Function::new("float_key", coerce, |types, _| types[0].clone(), Kernel::Columns(kernel)).udf()
});

impl Keys {
    /// What a value is compared by, if that is not the value itself.
    pub(super) fn function(self, expr: &Expr, schema: &DFSchema) -> Option<Arc<ScalarUDF>> {
        if matches!(expr, Expr::ScalarFunction(call) if call.func == *FLOAT_KEY) {
            return None;
        }
        let (_, field) = expr.to_field(schema).ok()?;
        match (self, field.data_type()) {
            (Keys::Forms, DataType::Interval(_)) => Some(Arc::clone(&LENGTH)),
            (Keys::Forms, DataType::Utf8) if is_jsonb(&field) => Some(Arc::clone(&JSON_KEY)),
            (Keys::Floats, DataType::Float32 | DataType::Float64) => Some(Arc::clone(&FLOAT_KEY)),
            _ => None,
        }
    }
}

/// Whether a constant is a float that has one form only: what is compared with it needs no key.
fn is_plain_float(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(ScalarValue::Float32(Some(v)), _) => *v != 0.0 && !v.is_nan(),
        Expr::Literal(ScalarValue::Float64(Some(v)), _) => *v != 0.0 && !v.is_nan(),
        _ => false,
    }
}

fn call(function: Arc<ScalarUDF>, expr: Expr) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![expr]))
}

/// The key of an expression; other expressions as they are.
pub(super) fn keyed(expr: Expr, keys: Keys, schema: &DFSchema) -> Expr {
    match keys.function(&expr, schema) {
        Some(function) => call(function, expr),
        None => expr,
    }
}

/// The keys of values that are compared with each other, if all of them have the same kind.
fn all_keyed(exprs: &mut [&mut Expr], keys: Keys, schema: &DFSchema) {
    if keys == Keys::Floats {
        if !exprs.iter().any(|expr| is_plain_float(expr)) {
            exprs.iter_mut().for_each(|expr| **expr = keyed(std::mem::take(*expr), keys, schema));
        }
        return;
    }
    let functions: Option<Vec<_>> = exprs.iter().map(|expr| keys.function(expr, schema)).collect();
    let Some(functions) = functions else { return };
    if functions.windows(2).any(|pair| pair[0] != pair[1]) {
        return;
    }
    for (expr, function) in exprs.iter_mut().zip(functions) {
        **expr = call(function, std::mem::take(*expr));
    }
}

/// An expression that compares, over `schema`; others as they are.
pub(super) fn compared(mut expr: Expr, keys: Keys, schema: &DFSchema) -> Result<Expr> {
    match &mut expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(*op) => {
            all_keyed(&mut [left, right], keys, schema);
        }
        Expr::Between(Between { expr, low, high, .. }) => all_keyed(&mut [expr, low, high], keys, schema),
        Expr::InList(InList { expr, list, .. }) => {
            let mut all: Vec<&mut Expr> = list.iter_mut().collect();
            all.push(expr);
            all_keyed(&mut all, keys, schema);
        }
        Expr::Case(Case { expr: Some(operand), when_then_expr, .. }) => {
            let mut all: Vec<&mut Expr> = when_then_expr.iter_mut().map(|(when, _)| &mut **when).collect();
            all.push(operand);
            all_keyed(&mut all, keys, schema);
        }
        Expr::InSubquery(InSubquery { expr, subquery, .. })
        | Expr::SetComparison(SetComparison { expr, subquery, .. }) => {
            in_subquery(expr, subquery, keys, schema)?;
        }
        Expr::WindowFunction(function) => partitioned(function, keys, schema),
        Expr::AggregateFunction(function) => aggregated(function, keys, schema),
        Expr::ScalarFunction(function) => {
            if let Some(chosen) = chosen(function, keys, schema)? {
                expr = chosen;
            }
        }
        _ => {}
    }
    Ok(expr)
}

fn in_subquery(expr: &mut Expr, subquery: &mut Subquery, keys: Keys, schema: &DFSchema) -> Result<()> {
    let columns = subquery.subquery.schema();
    let Some(column) = columns.columns().into_iter().next().map(Expr::Column) else { return Ok(()) };
    let functions = (keys.function(expr, schema), keys.function(&column, columns));
    let (Some(left), Some(right)) = functions else { return Ok(()) };
    if left != right {
        return Ok(());
    }
    *expr = call(left, std::mem::take(expr));
    let plan = Arc::unwrap_or_clone(Arc::clone(&subquery.subquery));
    subquery.subquery = Arc::new(LogicalPlanBuilder::from(plan).project([call(right, column)])?.build()?);
    Ok(())
}

fn partitioned(function: &mut WindowFunction, keys: Keys, schema: &DFSchema) {
    for expr in &mut function.params.partition_by {
        *expr = keyed(std::mem::take(expr), keys, schema);
    }
    // A frame that reaches so far from a row's value needs that value.
    if !reaches(&function.params.window_frame) {
        ordered(&mut function.params.order_by, keys, schema);
    }
}

fn reaches(frame: &WindowFrame) -> bool {
    let offset = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::Preceding(by) | WindowFrameBound::Following(by) => !by.is_null(),
        WindowFrameBound::CurrentRow => false,
    };
    frame.units == WindowFrameUnits::Range && (offset(&frame.start_bound) || offset(&frame.end_bound))
}

/// An order by the keys of values.
pub(super) fn ordered(order: &mut [Sort], keys: Keys, schema: &DFSchema) {
    for by in order {
        by.expr = keyed(std::mem::take(&mut by.expr), keys, schema);
    }
}

fn aggregated(function: &mut AggregateFunction, keys: Keys, schema: &DFSchema) {
    let params = &mut function.params;
    match params.args.as_mut_slice() {
        [counted] if params.distinct && function.func.name() == "count" => {
            *counted = keyed(std::mem::take(counted), keys, schema);
        }
        // DISTINCT values have to be in the order of themselves.
        _ if params.distinct => {}
        _ => ordered(&mut params.order_by, keys, schema),
    }
}

/// NULLIF, GREATEST and LEAST, which choose among their arguments.
fn chosen(function: &ScalarFunction, keys: Keys, schema: &DFSchema) -> Result<Option<Expr>> {
    let better = match function.func.name() {
        "nullif" => Operator::Eq,
        "greatest" => Operator::GtEq,
        "least" => Operator::LtEq,
        _ => return Ok(None),
    };
    if function.args.is_empty() || function.args.iter().any(|arg| keys.function(arg, schema).is_none()) {
        return Ok(None);
    }
    match (better, function.args.as_slice()) {
        (Operator::Eq, [value, other]) => {
            let equal = compare(value, Operator::Eq, other, keys, schema);
            Ok(Some(when(equal, Expr::Literal(ScalarValue::Null, None)).otherwise(value.clone())?))
        }
        (Operator::Eq, _) => Ok(None),
        (better, args) => best(args, better, keys, schema).map(Some),
    }
}

fn compare(left: &Expr, op: Operator, right: &Expr, keys: Keys, schema: &DFSchema) -> Expr {
    let side = |expr: &Expr| Box::new(keyed(expr.clone(), keys, schema));
    Expr::BinaryExpr(BinaryExpr { left: side(left), op, right: side(right) })
}

/// The best of several values, by halves: what is chosen from is written twice.
fn best(args: &[Expr], better: Operator, keys: Keys, schema: &DFSchema) -> Result<Expr> {
    let [first, rest @ ..] = args else { return datafusion_common::internal_err!("the best of no values") };
    if rest.is_empty() {
        return Ok(first.clone());
    }
    let (left, right) = args.split_at(args.len() / 2);
    let (left, right) = (best(left, better, keys, schema)?, best(right, better, keys, schema)?);
    let left_wins = right.clone().is_null().or(compare(&left, better, &right, keys, schema));
    when(left_wins, left).otherwise(right)
}
