//! Assignment casts: what PostgreSQL lets a value become when it is written into a column.

use super::literals::{is_unknown, retype};
use super::{query, report};
use crate::error::SqlError;
use crate::functions::type_name;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{Column as DfColumn, DFSchema, ScalarValue};
use datafusion_expr::expr::{Cast, Placeholder};
use datafusion_expr::{Expr, ExprSchemable, LogicalPlan, Projection};
use sqlparser::ast;
use std::sync::Arc;
use weir_catalog::column::{TYPE_KEY, arrow_schema, base_type};
use weir_catalog::{Column, SqlState};

/// NULL of a column's type.
pub(super) fn null_of(column: &Column) -> Expr {
    cast(Expr::Literal(ScalarValue::Null, None), &field_of(column))
}

fn cast(expr: Expr, to: &FieldRef) -> Expr {
    Expr::Cast(Cast::new_from_field(Box::new(expr), Arc::clone(to)))
}

/// `expr` over `schema` as a value of `column`: cast if PostgreSQL would, in the normal form of its
/// type, no longer than declared.
pub(super) fn assigned(expr: Expr, schema: &DFSchema, column: &Column) -> Result<Expr, SqlError> {
    let value = typed(expr, schema, column)?;
    let to = field_of(column);
    let sized = column.sql_type.starts_with("character") || to.data_type().is_temporal();
    match sized && to.metadata().contains_key(TYPE_KEY) {
        true => Ok(cast(value, &to)),
        false => Ok(value),
    }
}

fn typed(expr: Expr, schema: &DFSchema, column: &Column) -> Result<Expr, SqlError> {
    let reported = |error| report::sql_error(error, None);
    let expr = retype(expr, schema).map_err(reported)?;
    let to = field_of(column);
    let marked = distinct_mark(&to);
    match expr {
        Expr::Placeholder(Placeholder { id, field: None }) => {
            return Ok(Expr::Placeholder(Placeholder { id, field: Some(to) }));
        }
        Expr::Literal(ScalarValue::Null, _) => return Ok(cast(expr, &to)),
        _ => {}
    }
    if is_unknown(&expr) {
        return Ok(if *to.data_type() == DataType::Utf8 && marked.is_none() {
            expr
        } else {
            cast(expr, &to)
        });
    }
    let from = expr.to_field(schema).map_err(reported)?.1;
    let same_mark = distinct_mark(&from) == marked;
    let is_json = |mark: Option<&str>| matches!(mark, Some("json" | "jsonb"));
    if from.data_type() == to.data_type() && (same_mark || marked.is_none()) {
        Ok(expr)
    } else if (is_json(distinct_mark(&from)) && is_json(marked))
        || (assignable(from.data_type(), to.data_type())
            && (marked.is_none() || *from.data_type() == DataType::Null))
    {
        Ok(cast(expr, &to))
    } else {
        Err(mismatch(column, &from))
    }
}

/// What a field is instead of text: text of any length is text, a time of any precision a time.
fn distinct_mark(field: &Field) -> Option<&str> {
    let marker = field.metadata().get(TYPE_KEY)?;
    (*field.data_type() == DataType::Utf8
        && !marker.starts_with("character")
        && !matches!(marker.as_str(), "varchar" | "bpchar" | "name"))
    .then_some(marker)
}

/// A nullable field of the column's type, marked where Arrow's does not tell it.
fn field_of(column: &Column) -> FieldRef {
    let schema = arrow_schema(std::slice::from_ref(column));
    Arc::new(schema.field(0).clone().with_name("").with_nullable(true))
}

/// `column "a" is of type integer but expression is of type text`.
fn mismatch(column: &Column, from: &Field) -> SqlError {
    let to = base_type(&column.sql_type);
    let from = match from.metadata().get(TYPE_KEY) {
        Some(marker) => marker.clone(),
        None => type_name(from.data_type()),
    };
    SqlError::new(
        SqlState::DATATYPE_MISMATCH,
        format!("column \"{}\" is of type {to} but expression is of type {from}", column.name),
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
        let expr = assigned(expr, input.schema(), column)?;
        exprs[*ordinal] = expr.alias_qualified(qualifier.clone(), field.name());
    }
    query::project(Arc::unwrap_or_clone(input), exprs)
}

/// `SET (a, b) = (1, 2)` as `SET a = 1, b = 2`.
pub(super) fn single_assignments(
    assignments: &[ast::Assignment],
) -> Result<Vec<(&ast::ObjectName, &ast::Expr)>, SqlError> {
    let mut single = Vec::with_capacity(assignments.len());
    for assignment in assignments {
        match (&assignment.target, &assignment.value) {
            (ast::AssignmentTarget::ColumnName(name), value) => single.push((name, value)),
            (ast::AssignmentTarget::Tuple(names), ast::Expr::Tuple(values)) => {
                if names.len() != values.len() {
                    let message = "number of columns does not match number of values";
                    return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
                }
                single.extend(names.iter().zip(values));
            }
            _ => {
                let error = SqlError::not_supported("SET (a, b) = (SELECT …)");
                return Err(error.hint("Write SET a = …, b = …."));
            }
        }
    }
    Ok(single)
}
