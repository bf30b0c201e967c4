//! Errors of expressions: a [`SqlError`] that travels inside a [`DataFusionError`], and the way back.
//!
//! Functions raise [`SqlFailure`]s; kernels of Arrow raise their own errors. [`sql_error`] makes of
//! either what PostgreSQL would have said.

use crate::error::SqlError;
use arrow::error::ArrowError;
use datafusion_common::DataFusionError;
use weir_catalog::SqlState;

/// A [`SqlError`] on its way through DataFusion.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SqlFailure(pub SqlError);

/// An error that an expression raises.
pub fn failure(state: SqlState, message: impl Into<String>) -> DataFusionError {
    external(SqlError::new(state, message))
}

/// `error` as DataFusion carries it.
pub fn external(error: SqlError) -> DataFusionError {
    DataFusionError::External(Box::new(SqlFailure(error)))
}

/// The same, where an Arrow kernel's closure has to return it.
pub fn arrow_failure(state: SqlState, message: impl Into<String>) -> ArrowError {
    ArrowError::ExternalError(Box::new(SqlFailure(SqlError::new(state, message))))
}

/// What `error` is in SQL: the carried [`SqlError`], or the nearest SQLSTATE of an Arrow error.
/// `None` for errors that say nothing of the data (plan errors, resources, internal ones).
pub fn sql_error(error: &DataFusionError) -> Option<SqlError> {
    match error {
        DataFusionError::External(inner) => carried(inner.as_ref()),
        DataFusionError::ArrowError(inner, _) => arrow_error(inner),
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => sql_error(inner),
        DataFusionError::Shared(inner) => sql_error(inner),
        DataFusionError::Collection(errors) => errors.iter().find_map(sql_error),
        _ => None,
    }
}

/// The same of an error that another one carries.
pub fn carried(error: &(dyn std::error::Error + 'static)) -> Option<SqlError> {
    if let Some(SqlFailure(inner)) = error.downcast_ref::<SqlFailure>() {
        return Some(inner.clone());
    }
    if let Some(inner) = error.downcast_ref::<SqlError>() {
        return Some(inner.clone());
    }
    if let Some(inner) = error.downcast_ref::<ArrowError>() {
        return arrow_error(inner);
    }
    error.downcast_ref::<DataFusionError>().and_then(sql_error)
}

fn arrow_error(error: &ArrowError) -> Option<SqlError> {
    match error {
        ArrowError::ExternalError(inner) => carried(inner.as_ref()),
        ArrowError::DivideByZero => Some(SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero")),
        ArrowError::ArithmeticOverflow(_) => {
            Some(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range"))
        }
        ArrowError::CastError(message) => Some(cast_error(message)),
        ArrowError::ParseError(message) => {
            Some(SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, lower_first(message)))
        }
        ArrowError::ComputeError(message) | ArrowError::InvalidArgumentError(message) => {
            // Arrow has no kind of its own for a decimal that doesn't fit.
            let state = if message.contains("too large to store") || message.contains("overflow") {
                SqlState::NUMERIC_VALUE_OUT_OF_RANGE
            } else {
                SqlState::DATA_EXCEPTION
            };
            Some(SqlError::new(state, lower_first(message)))
        }
        _ => None,
    }
}

/// Casts by Arrow's own kernels fail with "Cannot cast string 'x' to value of Int32 type" or
/// "Can't cast value 300 to type Int8".
fn cast_error(message: &str) -> SqlError {
    let state = if message.contains("Can't cast value") || message.contains("overflow") {
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE
    } else {
        SqlState::INVALID_TEXT_REPRESENTATION
    };
    SqlError::new(state, lower_first(message))
}

/// PostgreSQL's primary messages start in lower case and end without a full stop.
fn lower_first(message: &str) -> String {
    let message = message.trim_end_matches('.');
    let mut chars = message.chars();
    chars.next().map_or_else(String::new, |c| c.to_lowercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_carried_error_comes_back_whole() {
        let error = SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, "bad").hint("Write it well.");
        let carried = external(error).context("while testing");
        let back = sql_error(&carried).expect("it carries one");
        assert_eq!(back.state, SqlState::INVALID_TEXT_REPRESENTATION);
        assert_eq!(back.hint.as_deref(), Some("Write it well."));
    }

    #[test]
    fn arrow_errors_get_the_nearest_state() {
        let zero = DataFusionError::from(ArrowError::DivideByZero);
        let back = sql_error(&zero).expect("a data error");
        assert_eq!((back.state, back.message.as_str()), (SqlState::DIVISION_BY_ZERO, "division by zero"));
        let overflow = DataFusionError::from(ArrowError::ArithmeticOverflow("x".into()));
        assert_eq!(sql_error(&overflow).map(|e| e.state), Some(SqlState::NUMERIC_VALUE_OUT_OF_RANGE));
        let nested = ArrowError::ExternalError(Box::new(failure(SqlState::DATA_EXCEPTION, "deep")));
        assert_eq!(sql_error(&nested.into()).map(|e| e.message), Some("deep".to_owned()));
        assert!(sql_error(&DataFusionError::Internal("bug".into())).is_none());
    }
}
