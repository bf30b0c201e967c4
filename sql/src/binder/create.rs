//! CREATE TABLE and CREATE SOURCE to the objects that they make.

use super::names::plain;
use super::options::{check_format, check_options, invalid, take_connector};
use super::types::{sql_type_name, sql_type_to_arrow};
use super::{BindContext, Bound, Create, at, query};
use crate::error::SqlError;
use crate::parser::Text;
use crate::parser::statement::{ColumnDef, CreateRelation};
use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion_common::{DFSchema, ScalarValue};
use datafusion_expr::{Expr, ExprSchemable};
use sqlparser::ast::{self, Spanned};
use std::collections::HashSet;
use weir_catalog::connector::ConnectorRole;
use weir_catalog::name::DEFAULT_SCHEMA;
use weir_catalog::relation::{OnConflict, RowKey, Table};
use weir_catalog::source::{FormatSpec, LateRows, Source, WatermarkSpec};
use weir_catalog::{Column, Key, Object, ObjectBody, ObjectName, ObjectState, SqlState};

pub(super) fn create_table(
    table: &CreateRelation,
    context: &BindContext,
    text: &str,
) -> Result<Bound, SqlError> {
    let name = new_name(&table.name, context)?;
    if let Some(skip) = existing(&name, table.if_not_exists, "CREATE TABLE", context)? {
        return Ok(skip);
    }
    let mut options = table.options.clone();
    let late_rows = options.remove(LATE_ROWS);
    if !options.is_empty() || table.format.is_some() {
        return Err(SqlError::not_supported("a table with a connector").hint(
            "Use CREATE SOURCE, and CREATE MATERIALIZED VIEW … AS SELECT * FROM it to store its rows.",
        ));
    }
    if table.watermark.is_some() && !table.append_only {
        return Err(SqlError::not_supported("a watermark on a table whose rows may change")
            .hint("Declare the table APPEND ONLY."));
    }
    if table.columns.is_empty() {
        return Err(definition_error(format!("table \"{}\" has no columns", name.name)));
    }
    let mut columns = columns(&table.columns, context, text)?;
    let key = primary_key(&table.primary_key, &mut columns)?;
    if table.append_only && table.on_conflict == OnConflict::DoUpdateFull {
        return Err(definition_error("an append-only table can't update on conflict")
            .hint("Use ON CONFLICT DO NOTHING, or leave APPEND ONLY out."));
    }
    if key.is_none() && table.on_conflict != OnConflict::Error {
        return Err(definition_error("ON CONFLICT needs a primary key"));
    }
    let row_key = key.map_or(RowKey::WholeRow, RowKey::Columns);
    check_key_types(&row_key, &columns)?;
    let watermark = declared_watermark(table, late_rows, &columns, context, text)?;
    let body = ObjectBody::Table(Table {
        columns,
        key: row_key,
        append_only: table.append_only,
        on_conflict: table.on_conflict,
        watermark,
    });
    Ok(created(name, body, ObjectState::Creating, "CREATE TABLE", text, context))
}

pub(super) fn create_source(
    source: &CreateRelation,
    context: &BindContext,
    text: &str,
) -> Result<Bound, SqlError> {
    let name = new_name(&source.name, context)?;
    if let Some(skip) = existing(&name, source.if_not_exists, "CREATE SOURCE", context)? {
        return Ok(skip);
    }
    if source.append_only || source.on_conflict != OnConflict::Error {
        return Err(SqlError::new(
            SqlState::SYNTAX_ERROR,
            "APPEND ONLY and ON CONFLICT are clauses of CREATE TABLE, not of CREATE SOURCE",
        ));
    }
    if let Some(column) = source.columns.iter().find(|c| c.default.is_some()) {
        return Err(SqlError::not_supported(format_args!("a DEFAULT of source column \"{}\"", column.name)));
    }
    let mut options = source.options.clone();
    let late_rows = options.remove(LATE_ROWS);
    let spec = take_connector(&mut options, ConnectorRole::Source, context)?;
    check_options(spec, &options)?;
    let format = check_source_format(check_format(spec, source.format.clone())?)?;
    let mut columns = match source.columns.as_slice() {
        [] => (context.connector_columns)(spec.name, &options).ok_or_else(|| {
            definition_error(format!("source \"{}\" has no columns", name.name))
                .hint(format!("Connector \"{}\" needs them to be declared.", spec.name))
        })?,
        declared => self::columns(declared, context, text)?,
    };
    let primary_key = primary_key(&source.primary_key, &mut columns)?;
    let watermark = declared_watermark(source, late_rows, &columns, context, text)?;
    let connector = spec.name.to_owned();
    let body = ObjectBody::Source(Source { columns, primary_key, connector, options, format, watermark });
    Ok(created(name, body, ObjectState::Created, "CREATE SOURCE", text, context))
}

fn check_source_format(format: FormatSpec) -> Result<FormatSpec, SqlError> {
    match format.format.as_str() {
        "PLAIN" | "NATIVE" => Ok(format),
        other => {
            Err(SqlError::not_supported(format_args!("FORMAT {other} of a source")).hint("Use FORMAT PLAIN."))
        }
    }
}

/// What logs a new object. Its id is the next of the snapshot's.
pub(super) fn created(
    name: ObjectName,
    body: ObjectBody,
    state: ObjectState,
    tag: &str,
    text: &str,
    context: &BindContext,
) -> Bound {
    let id = context.catalog.next_id;
    let object =
        Object { id, name, body, state, definition: text.to_owned(), comment: None, parallelism: None };
    let renames = context.catalog.renames;
    Bound::Create(Create { object, plan: None, tag: tag.to_owned(), notices: Vec::new(), renames })
}

/// The name that an object is created under: unqualified ones go to the first schema of the path.
pub(super) fn new_name(name: &ObjectName, context: &BindContext) -> Result<ObjectName, SqlError> {
    if name.schema.is_empty() {
        let schema = context.search_path.iter().find(|s| context.catalog.schemas.contains(*s));
        return match schema {
            Some(schema) => Ok(ObjectName::new(schema.as_str(), name.name.as_str())),
            None => {
                Err(SqlError::new(SqlState::INVALID_SCHEMA_NAME, "no schema has been selected to create in")
                    .hint(format!("SET search_path to \"{DEFAULT_SCHEMA}\", or qualify the name.")))
            }
        };
    }
    if ["pg_catalog", "information_schema", "weir_catalog"].contains(&name.schema.as_str()) {
        let message = format!("permission denied to create \"{}\"", plain(name));
        return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message)
            .detail("System catalog modifications are disallowed."));
    }
    if !context.catalog.schemas.contains(&name.schema) {
        let message = format!("schema \"{}\" does not exist", name.schema);
        return Err(SqlError::new(SqlState::INVALID_SCHEMA_NAME, message));
    }
    Ok(name.clone())
}

/// What to do if the name is taken: nothing with IF NOT EXISTS, an error without.
pub(super) fn existing(
    name: &ObjectName,
    if_not_exists: bool,
    tag: &str,
    context: &BindContext,
) -> Result<Option<Bound>, SqlError> {
    if context.catalog.get(name).is_none() {
        return Ok(None);
    }
    let message = format!("relation \"{}\" already exists", plain(name));
    if if_not_exists {
        return Ok(Some(Bound::Skip { tag: tag.to_owned(), notice: format!("{message}, skipping") }));
    }
    Err(SqlError::new(SqlState::DUPLICATE_TABLE, message))
}

fn columns(declared: &[ColumnDef], context: &BindContext, text: &str) -> Result<Vec<Column>, SqlError> {
    let mut seen = HashSet::new();
    let mut columns = Vec::with_capacity(declared.len());
    for column in declared {
        if !seen.insert(column.name.as_str()) {
            let message = format!("column \"{}\" specified more than once", column.name);
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
        }
        let made = Column {
            name: column.name.clone(),
            data_type: sql_type_to_arrow(&column.data_type)?,
            sql_type: sql_type_name(&column.data_type)?,
            nullable: !column.not_null,
            default: column.default.as_ref().map(ToString::to_string),
        };
        if let Some(default) = &column.default {
            check_default(&made, default, context).map_err(|e| at(e, &Text::new(text), default.span()))?;
        }
        columns.push(made);
    }
    Ok(columns)
}

/// A default reads no column and no table, and can be assigned to its column.
fn check_default(column: &Column, default: &ast::Expr, context: &BindContext) -> Result<(), SqlError> {
    let planned =
        query::ExprPlanner::new(context).plan(default, &DFSchema::empty(), None).map_err(|error| {
            if error.state == SqlState::UNDEFINED_COLUMN {
                return SqlError::not_supported("a column reference in a DEFAULT expression");
            }
            error
        })?;
    if matches!(planned, Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_)) {
        return Err(SqlError::not_supported("a subquery in a DEFAULT expression"));
    }
    if !datafusion_expr::utils::find_aggregate_exprs([&planned]).is_empty() {
        let message = "aggregate functions are not allowed in DEFAULT expressions";
        return Err(SqlError::new(SqlState::GROUPING_ERROR, message));
    }
    super::assign::assigned(planned, &DFSchema::empty(), column)?;
    Ok(())
}

/// The ordinals of the key's columns, which are NOT NULL from now on. None without a key.
fn primary_key(names: &[String], columns: &mut [Column]) -> Result<Option<Key>, SqlError> {
    let mut key = Key::new();
    for name in names {
        let Some(ordinal) = columns.iter().position(|c| c.name == *name) else {
            let message = format!("column \"{name}\" named in key does not exist");
            return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message));
        };
        if key.contains(&ordinal) {
            let message = format!("column \"{name}\" appears twice in primary key constraint");
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
        }
        columns[ordinal].nullable = false;
        key.push(ordinal);
    }
    Ok((!key.is_empty()).then_some(key))
}

/// Whether the state store can sort by the key.
pub(super) fn check_key_types(key: &RowKey, columns: &[Column]) -> Result<(), SqlError> {
    let keyed = key.columns(columns.len());
    match keyed.iter().map(|c| &columns[*c]).find(|c| !crate::plan::key_type(&c.data_type)) {
        None => Ok(()),
        Some(column) => {
            let what = match key {
                RowKey::Columns(_) => {
                    format!("column \"{}\" of type {} in a key", column.name, column.sql_type)
                }
                RowKey::WholeRow => {
                    format!(
                        "column \"{}\" of type {} in a relation without a key",
                        column.name, column.sql_type
                    )
                }
            };
            Err(SqlError::not_supported(what))
        }
    }
}

/// The option that says what becomes of late rows, whatever the connector.
const LATE_ROWS: &str = "late_rows";

/// A relation's watermark, with the option `late_rows`.
fn declared_watermark(
    relation: &CreateRelation,
    late_rows: Option<String>,
    columns: &[Column],
    context: &BindContext,
    text: &str,
) -> Result<Option<WatermarkSpec>, SqlError> {
    let Some((column, expr)) = &relation.watermark else {
        return match late_rows {
            None => Ok(None),
            Some(_) => Err(invalid("late_rows is for relations with a watermark")
                .hint("Declare WATERMARK FOR column AS column - INTERVAL '5 seconds'.")),
        };
    };
    let late_rows = match late_rows.as_deref() {
        None | Some("dead_letter") => LateRows::DeadLetter,
        Some("skip") => LateRows::Skip,
        Some(other) => {
            return Err(invalid(format!("unknown value of late_rows: \"{other}\""))
                .hint("Use late_rows = 'dead_letter' or 'skip'."));
        }
    };
    let spec = watermark(column, expr, columns, context, text)?;
    Ok(Some(WatermarkSpec { late_rows, ..spec }))
}

/// `WATERMARK FOR column AS column [- INTERVAL '…']`.
fn watermark(
    name: &str,
    expr: &ast::Expr,
    columns: &[Column],
    context: &BindContext,
    text: &str,
) -> Result<WatermarkSpec, SqlError> {
    let Some(column) = columns.iter().position(|c| c.name == name) else {
        let error = SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist"));
        return Err(match super::names::nearest(name, columns.iter().map(|c| c.name.as_str())) {
            Some(near) => error.hint(format!("Perhaps you meant the column \"{near}\".")),
            None => error,
        });
    };
    if !matches!(columns[column].data_type, DataType::Timestamp(TimeUnit::Microsecond, _)) {
        let message = format!("the watermark column \"{name}\" is of type {}", columns[column].sql_type);
        return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message).hint("It must be a timestamp."));
    }
    let is_column = |e: &ast::Expr| matches!(e, ast::Expr::Identifier(i) if crate::parser::fold(i) == name);
    let delay = match expr {
        e if is_column(e) => 0,
        ast::Expr::BinaryOp { left, op: ast::BinaryOperator::Minus, right } if is_column(left) => {
            delay_us(right, context).map_err(|e| at(e, &Text::new(text), right.span()))?
        }
        other => {
            let error = SqlError::not_supported(format_args!("WATERMARK FOR {name} AS {other}"))
                .hint(format!("Write WATERMARK FOR {name} AS {name} - INTERVAL '5 seconds'."));
            return Err(at(error, &Text::new(text), other.span()));
        }
    };
    Ok(WatermarkSpec { column, delay_us: delay, late_rows: LateRows::default() })
}

/// A constant interval in microseconds.
fn delay_us(expr: &ast::Expr, context: &BindContext) -> Result<i64, SqlError> {
    let interval = DataType::Interval(IntervalUnit::MonthDayNano);
    let constant = || invalid("the delay of a watermark must be a constant interval");
    let planned = query::ExprPlanner::new(context).plan(expr, &DFSchema::empty(), None)?;
    let value = match planned {
        Expr::Literal(value, _) => value,
        Expr::Cast(cast) => match *cast.expr {
            Expr::Literal(value, _) => value,
            _ => return Err(constant()),
        },
        other => match other.get_type(&DFSchema::empty()) {
            Ok(_) | Err(_) => return Err(constant()),
        },
    };
    let value = value.cast_to(&interval).map_err(|_| constant())?;
    let ScalarValue::IntervalMonthDayNano(Some(value)) = value else { return Err(constant()) };
    if value.months != 0 {
        return Err(invalid("the delay of a watermark must not be in months or years").hint("Use days."));
    }
    let delay = i64::from(value.days) * 86_400_000_000 + value.nanoseconds / 1_000;
    if delay < 0 {
        return Err(invalid("the delay of a watermark must not be negative"));
    }
    Ok(delay)
}

fn definition_error(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message)
}
