//! Assignment casts: what PostgreSQL lets a value become when it is written into a column.

use super::literals::{is_unknown, retype};
use super::types::{TYPE_KEY, type_name};
use super::{query, report};
use crate::error::SqlError;
use arrow::datatypes::{DataType, Field};
use datafusion_common::{Column as DfColumn, DFSchema, ScalarValue};
use datafusion_expr::expr::{Cast, Placeholder};
use datafusion_expr::{Expr, ExprSchemable, LogicalPlan, Projection};
use std::collections::HashMap;
use std::sync::Arc;
use weir_catalog::{Column, SqlState};

/// NULL of a type.
pub(super) fn null_of(data_type: &DataType) -> Expr {
    cast(Expr::Literal(ScalarValue::Null, None), data_type)
}

fn cast(expr: Expr, to: &DataType) -> Expr {
    Expr::Cast(Cast::new(Box::new(expr), to.clone()))
}

/// `expr` over `schema` as a value of column `name` of type `to`: cast if PostgreSQL would.
pub(super) fn assigned(expr: Expr, schema: &DFSchema, name: &str, to: &DataType) -> Result<Expr, SqlError> {
    let expr = retype(expr, schema).map_err(|error| report::sql_error(error, None))?;
    match expr {
        Expr::Placeholder(Placeholder { id, field: None }) => {
            let field = Some(Arc::new(Field::new("", to.clone(), true)));
            return Ok(Expr::Placeholder(Placeholder { id, field }));
        }
        Expr::Literal(ScalarValue::Null, _) => return Ok(null_of(to)),
        _ => {}
    }
    if is_unknown(&expr) {
        return Ok(if *to == DataType::Utf8 { expr } else { cast(expr, to) });
    }
    let from = expr.get_type(schema).map_err(|error| report::sql_error(error, None))?;
    if from == *to {
        Ok(expr)
    } else if assignable(&from, to) {
        Ok(cast(expr, to))
    } else {
        Err(mismatch(name, to, &from))
    }
}

/// `expr` as the value that `column` stores: [`assigned`], in the normal form of its type. A text that
/// is longer than a `varchar(n)` is refused.
pub(super) fn stored(expr: Expr, schema: &DFSchema, column: &Column) -> Result<Expr, SqlError> {
    let expr = assigned(expr, schema, &column.name, &column.data_type)?;
    let sized = column.sql_type.starts_with("character varying(");
    if !sized && !matches!(column.sql_type.as_str(), "jsonb" | "uuid") {
        return Ok(expr);
    }
    let (_, from) = expr.to_field(schema).map_err(|error| report::sql_error(error, None))?;
    if from.metadata().get(TYPE_KEY).is_some_and(|known| *known == column.sql_type) {
        return Ok(expr);
    }
    let marker = HashMap::from([(TYPE_KEY.to_owned(), column.sql_type.clone())]);
    let field = Field::new("", column.data_type.clone(), true).with_metadata(marker);
    Ok(Expr::Cast(Cast::new_from_field(Box::new(expr), Arc::new(field))))
}

/// `column "a" is of type integer but expression is of type text`.
fn mismatch(name: &str, to: &DataType, from: &DataType) -> SqlError {
    SqlError::new(
        SqlState::DATATYPE_MISMATCH,
        format!(
            "column \"{name}\" is of type {} but expression is of type {}",
            type_name(to),
            type_name(from)
        ),
    )
    .hint("You will need to rewrite or cast the expression.")
}

/// Whether PostgreSQL has an implicit or assignment cast.
fn assignable(from: &DataType, to: &DataType) -> bool {
    match (from, to) {
        (DataType::Null, _) => true,
        (_, DataType::Utf8) => true,
        (from, to) if from.is_numeric() && to.is_numeric() => true,
        (DataType::Date32, DataType::Timestamp(..)) => true,
        (DataType::Timestamp(..), DataType::Timestamp(..) | DataType::Date32 | DataType::Time64(_)) => true,
        (DataType::Time64(_) | DataType::Time32(_), DataType::Time64(_) | DataType::Interval(_)) => true,
        (DataType::Interval(_), DataType::Interval(_) | DataType::Time64(_)) => true,
        (DataType::List(from), DataType::List(to)) => {
            from.data_type() == to.data_type() || assignable(from.data_type(), to.data_type())
        }
        _ => false,
    }
}

/// The plan with the columns at these ordinals cast for the columns that they are written to. A
/// literal or parameter that the plan's projection computes takes the column's type.
pub(super) fn assign_columns(
    plan: LogicalPlan,
    targets: &[(usize, &Column)],
) -> Result<LogicalPlan, SqlError> {
    let fields: Vec<_> = plan.schema().iter().map(|(q, f)| (q.cloned(), Arc::clone(f))).collect();
    let (mut exprs, input) = match plan {
        LogicalPlan::Projection(Projection { expr, input, .. }) => (expr, input),
        other => {
            let columns = fields.iter().map(|(q, f)| Expr::Column(DfColumn::from((q.as_ref(), f))));
            (columns.collect(), Arc::new(other))
        }
    };
    for (ordinal, column) in targets {
        let (qualifier, field) = &fields[*ordinal];
        let expr = std::mem::take(&mut exprs[*ordinal]).unalias();
        let expr = stored(expr, input.schema(), column)?;
        exprs[*ordinal] = expr.alias_qualified(qualifier.clone(), field.name());
    }
    query::project(Arc::unwrap_or_clone(input), exprs)
}
