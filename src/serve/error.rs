//! What running a query can fail of, as PostgreSQL says it.
//!
//! Arrow's and DataFusion's errors are text for developers; [`ServeError`] recognizes those that a
//! user can cause and gives them PostgreSQL's SQLSTATE and words.

use crate::state::StateError;
use datafusion::arrow::error::ArrowError;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use weir_catalog::{ClientError, SqlState};
use weir_sql::SqlError;
use weir_sql::functions::error::carried;

/// Why a query failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ServeError {
    /// The SQLSTATE.
    pub state: SqlState,
    /// The primary message.
    pub message: String,
    /// A sentence with particulars.
    pub detail: Option<String>,
    /// A sentence that says what to do.
    pub hint: Option<String>,
    /// Where in the statement's text, in characters from 1.
    pub position: Option<usize>,
}

impl ServeError {
    /// An error without particulars.
    pub fn new(state: SqlState, message: impl Into<String>) -> Self {
        Self { state, message: message.into(), detail: None, hint: None, position: None }
    }

    /// The user, or CancelRequest, said stop.
    pub fn canceled() -> Self {
        Self::new(SqlState::QUERY_CANCELED, "canceling statement due to user request")
    }

    /// `statement_timeout` passed.
    pub fn timed_out() -> Self {
        Self::new(SqlState::QUERY_CANCELED, "canceling statement due to statement timeout")
    }

    /// With a hint: a sentence.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// With a detail: a sentence.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    fn of_client_error(error: &dyn ClientError) -> Self {
        Self {
            state: error.sql_state(),
            message: error.to_string(),
            detail: error.detail(),
            hint: error.hint(),
            position: error.position(),
        }
    }
}

impl ClientError for ServeError {
    fn sql_state(&self) -> SqlState {
        self.state
    }
    fn detail(&self) -> Option<String> {
        self.detail.clone()
    }
    fn hint(&self) -> Option<String> {
        self.hint.clone()
    }
    fn position(&self) -> Option<usize> {
        self.position
    }
}

impl From<SqlError> for ServeError {
    fn from(error: SqlError) -> Self {
        Self::of_client_error(&error)
    }
}

impl From<StateError> for ServeError {
    fn from(error: StateError) -> Self {
        let state = match &error {
            StateError::Corrupt { .. } | StateError::Decode(_) => SqlState("XX001"),
            StateError::Store(_) | StateError::Io(_) => SqlState::IO_ERROR,
        };
        Self::new(state, error.to_string())
    }
}

impl From<ServeError> for DataFusionError {
    fn from(error: ServeError) -> Self {
        DataFusionError::External(Box::new(error))
    }
}

impl From<DataFusionError> for ServeError {
    fn from(error: DataFusionError) -> Self {
        match error.find_root() {
            DataFusionError::External(inner) => {
                if let Some(known) = inner.downcast_ref::<ServeError>() {
                    known.clone()
                } else if let Some(known) = carried(inner.as_ref()) {
                    Self::of_client_error(&known)
                } else if let Some(arrow) = inner.downcast_ref::<ArrowError>() {
                    of_arrow(arrow)
                } else if inner.to_string().contains("regex parse error") {
                    Self::new(SqlState("2201B"), "invalid regular expression")
                } else {
                    Self::new(SqlState::INTERNAL_ERROR, inner.to_string())
                }
            }
            DataFusionError::ArrowError(arrow, _) => of_arrow(arrow),
            DataFusionError::ResourcesExhausted(reason) => {
                Self::new(SqlState::OUT_OF_MEMORY, "out of memory")
                    .with_detail(format!("{}.", reason.trim_end_matches('.')))
                    .with_hint("Raise query.memory_limit, or have a materialized view keep the result.")
            }
            DataFusionError::NotImplemented(what) if names_subquery(what) => {
                Self::new(SqlState::FEATURE_NOT_SUPPORTED, "this correlated subquery is not supported")
                    .with_hint("Write it as a join.")
            }
            DataFusionError::NotImplemented(what) => Self::new(SqlState::FEATURE_NOT_SUPPORTED, lower(what)),
            DataFusionError::SchemaError(schema, _) => of_schema(schema),
            DataFusionError::Plan(message) => Self::new(SqlState::DATATYPE_MISMATCH, lower(message)),
            DataFusionError::Execution(message) | DataFusionError::Configuration(message) => of_text(message),
            DataFusionError::ExecutionJoin(join) if join.is_cancelled() => Self::canceled(),
            other => Self::new(SqlState::INTERNAL_ERROR, lower(&other.strip_backtrace())),
        }
    }
}

/// Whether what can't be planned is what is left of a subquery.
fn names_subquery(what: &str) -> bool {
    ["OuterReferenceColumn", "logical expression Exists", "logical expression InSubquery"]
        .iter()
        .any(|expression| what.contains(expression))
}

impl From<ArrowError> for ServeError {
    fn from(error: ArrowError) -> Self {
        of_arrow(&error)
    }
}

fn of_arrow(error: &ArrowError) -> ServeError {
    match error {
        ArrowError::DivideByZero => division_by_zero(),
        ArrowError::ArithmeticOverflow(message) => overflow(message),
        ArrowError::ExternalError(inner) => {
            if let Some(known) = inner.downcast_ref::<ServeError>() {
                known.clone()
            } else if let Some(known) = carried(inner.as_ref()) {
                ServeError::of_client_error(&known)
            } else if let Some(DataFusionError::External(_)) = inner.downcast_ref::<DataFusionError>() {
                ServeError::new(SqlState::INTERNAL_ERROR, inner.to_string())
            } else {
                of_text(&inner.to_string())
            }
        }
        ArrowError::CastError(m)
        | ArrowError::ParseError(m)
        | ArrowError::ComputeError(m)
        | ArrowError::InvalidArgumentError(m) => of_text(m),
        ArrowError::NotYetImplemented(what) => ServeError::new(SqlState::FEATURE_NOT_SUPPORTED, lower(what)),
        other => ServeError::new(SqlState::INTERNAL_ERROR, lower(&other.to_string())),
    }
}

fn of_schema(error: &SchemaError) -> ServeError {
    let state = match error {
        SchemaError::AmbiguousReference { .. } => SqlState::AMBIGUOUS_COLUMN,
        SchemaError::DuplicateQualifiedField { .. } | SchemaError::DuplicateUnqualifiedField { .. } => {
            SqlState::DUPLICATE_COLUMN
        }
        SchemaError::FieldNotFound { field, .. } => {
            return ServeError::new(
                SqlState::UNDEFINED_COLUMN,
                format!("column \"{}\" does not exist", field.name()),
            );
        }
    };
    ServeError::new(state, lower(&error.to_string()))
}

fn division_by_zero() -> ServeError {
    ServeError::new(SqlState::DIVISION_BY_ZERO, "division by zero")
}

/// Recognizes the texts of Arrow's kernels and DataFusion's operators.
fn of_text(message: &str) -> ServeError {
    let is = |part: &str| message.contains(part);
    if is("Divide by zero") || is("division by zero") {
        division_by_zero()
    } else if is("Overflow happened") {
        overflow(message)
    } else if let Some((value, kind)) = bad_text(message) {
        ServeError::new(
            SqlState::INVALID_TEXT_REPRESENTATION,
            format!("invalid input syntax for type {kind}: \"{value}\""),
        )
    } else if let Some(kind) =
        message.strip_prefix("Can't cast value ").and_then(|m| m.rsplit_once(" to type "))
    {
        out_of_range(sql_name(kind.1))
    } else if is("too large to store in a Decimal") || is("is greater than max") || is("too small to store") {
        ServeError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow")
    } else if is("Scalar subquery") || is("returned more than one row") || is("more than one row") {
        ServeError::new(
            SqlState::CARDINALITY_VIOLATION,
            "more than one row returned by a subquery used as an expression",
        )
    } else if is("egular expression") || is("regex parse error") {
        ServeError::new(SqlState("2201B"), format!("invalid regular expression: {}", last_line(message)))
    } else {
        ServeError::new(SqlState::DATA_EXCEPTION, lower(message))
    }
}

/// The value and the SQL type of a text that could not be read as a value of the type.
fn bad_text(message: &str) -> Option<(&str, &'static str)> {
    if let Some(rest) = message.strip_prefix("Cannot cast string '") {
        let (value, kind) = rest.rsplit_once("' to value of ")?;
        return Some((value, sql_name(kind.trim_end_matches(" type"))));
    }
    if let Some(rest) = message.strip_prefix("Cannot cast value '") {
        let (value, kind) = rest.rsplit_once("' to value of ")?;
        return Some((value, sql_name(kind.trim_end_matches(" type"))));
    }
    if let Some(rest) = message.strip_prefix("Error parsing timestamp from '") {
        return Some((rest.split_once('\'')?.0, "timestamp"));
    }
    if let Some(rest) = message.strip_prefix("Invalid input syntax for type ") {
        let (kind, value) = rest.split_once(": \"")?;
        return Some((value.trim_end_matches('"'), sql_name(kind)));
    }
    None
}

/// PostgreSQL's name of an Arrow type as Arrow prints it.
fn sql_name(arrow: &str) -> &'static str {
    let arrow = arrow.trim();
    let starts = |prefix: &str| arrow.starts_with(prefix);
    match arrow {
        "Int8" | "Int16" | "UInt8" => "smallint",
        "Int32" | "UInt16" => "integer",
        "Int64" | "UInt64" => "bigint",
        "UInt32" => "oid",
        "Float32" => "real",
        "Float64" => "double precision",
        "Boolean" => "boolean",
        "Date32" => "date",
        _ if starts("Timestamp") && arrow.contains("None") => "timestamp",
        _ if starts("Timestamp") => "timestamp with time zone",
        _ if starts("Time64") || starts("Time32") => "time",
        _ if starts("Decimal") => "numeric",
        _ if starts("Interval") => "interval",
        _ => "text",
    }
}

fn out_of_range(kind: &str) -> ServeError {
    ServeError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("{kind} out of range"))
}

/// Arrow tells the operands ("Overflow happened on: 2147483647 + 1") and not the type: it is the
/// narrowest one that the exact result does not fit and both operands do.
fn overflow(message: &str) -> ServeError {
    let operands = message.rsplit("on: ").next().unwrap_or(message);
    let mut words = operands.split_whitespace();
    let (a, op, b) = (words.next(), words.next(), words.next());
    let parse = |word: Option<&str>| word.and_then(|w| w.trim_end_matches([',', '.']).parse::<i128>().ok());
    let kind = match (parse(a), op, parse(b)) {
        (Some(a), Some(op), Some(b)) => {
            let exact = match op {
                "+" => a.checked_add(b),
                "-" => a.checked_sub(b),
                "*" => a.checked_mul(b),
                _ => None,
            };
            let fits = |v: i128, bits: u32| v >= -(1 << (bits - 1)) && v < 1 << (bits - 1);
            let narrowest =
                |bits: u32| fits(a, bits) && fits(b, bits) && exact.is_none_or(|v| !fits(v, bits));
            match [(16, "smallint"), (32, "integer"), (64, "bigint")]
                .iter()
                .find(|(bits, _)| narrowest(*bits))
            {
                Some((_, name)) => name,
                None => {
                    return ServeError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow");
                }
            }
        }
        _ if parse(a).is_some_and(|v| v == i128::from(i32::MIN)) => "integer",
        _ => "bigint",
    };
    out_of_range(kind)
}

fn last_line(message: &str) -> &str {
    message.lines().rfind(|l| !l.trim().is_empty()).unwrap_or(message).trim()
}

/// As PostgreSQL writes: lower case first, no full stop.
fn lower(message: &str) -> String {
    let message = message.trim().trim_end_matches('.');
    let mut chars = message.chars();
    match (chars.next(), chars.next()) {
        (Some(first), Some(second)) if !second.is_uppercase() => {
            first.to_lowercase().chain(message.chars().skip(1)).collect()
        }
        _ => message.to_owned(),
    }
}

#[cfg(test)]
#[path = "tests/error.rs"]
mod tests;
