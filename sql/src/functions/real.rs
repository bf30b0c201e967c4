//! Numbers beside floats are floats, as in PostgreSQL, where `double precision` is the preferred type
//! of its category: DataFusion would compare them as decimals, which know no infinity and few digits.

use super::operator::is_comparison;
use arrow::datatypes::DataType;
use datafusion_common::{DFSchema, Result};
use datafusion_expr::expr::{Between, InList};
use datafusion_expr::{BinaryExpr, Case, Expr, ExprSchemable};

fn is_numeric(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Decimal128(..))
}

/// The type that two types have in common, if one of them is a float and the other numeric.
pub fn common(a: &DataType, b: &DataType) -> Option<DataType> {
    let mixed = (a.is_floating() && is_numeric(b)) || (is_numeric(a) && b.is_floating());
    mixed.then_some(DataType::Float64)
}

/// `types` with numeric taken for double precision if a float is among them.
pub fn preferred(types: Vec<DataType>) -> Vec<DataType> {
    if !types.iter().any(DataType::is_floating) {
        return types;
    }
    types.into_iter().map(|t| if is_numeric(&t) { DataType::Float64 } else { t }).collect()
}

/// Casts those of `exprs` that are numeric, if one of them is a float.
pub fn align(exprs: &mut [&mut Expr], schema: &DFSchema) -> Result<()> {
    let types = exprs.iter().map(|e| e.get_type(schema)).collect::<Result<Vec<_>>>()?;
    if !types.iter().any(DataType::is_floating) {
        return Ok(());
    }
    for (expr, data_type) in exprs.iter_mut().zip(types) {
        if is_numeric(&data_type) {
            let numeric = std::mem::take(*expr);
            **expr = numeric.cast_to(&DataType::Float64, schema)?;
        }
    }
    Ok(())
}

/// A comparison of a float with a numeric as one of floats; other operators as they are.
pub fn comparable(mut binary: BinaryExpr, schema: &DFSchema) -> Result<BinaryExpr> {
    if is_comparison(binary.op) {
        align(&mut [&mut binary.left, &mut binary.right], schema)?;
    }
    Ok(binary)
}

/// The same of `BETWEEN`.
pub fn between(mut between: Between, schema: &DFSchema) -> Result<Expr> {
    align(&mut [&mut between.expr, &mut between.low, &mut between.high], schema)?;
    Ok(Expr::Between(between))
}

/// The same of `IN (…)`.
pub fn in_list(mut list: InList, schema: &DFSchema) -> Result<Expr> {
    let mut all: Vec<&mut Expr> = list.list.iter_mut().collect();
    all.push(&mut list.expr);
    align(&mut all, schema)?;
    Ok(Expr::InList(list))
}

/// The same of a CASE's results, and of what it compares.
pub fn case(mut case: Case, schema: &DFSchema) -> Result<Expr> {
    let (whens, mut results): (Vec<_>, Vec<_>) =
        case.when_then_expr.iter_mut().map(|(when, then)| (&mut **when, &mut **then)).unzip();
    results.extend(case.else_expr.as_deref_mut());
    align(&mut results, schema)?;
    if let Some(compared) = case.expr.as_deref_mut() {
        let mut all = whens;
        all.push(compared);
        align(&mut all, schema)?;
    }
    Ok(Expr::Case(case))
}
