//! The contract of errors that reach a client, and the catalog's own errors.
//!
//! Every area's error implements [`ClientError`], so that `wire` reports errors it never heard of.

use crate::id::ObjectId;
use crate::name::ObjectName;
use crate::object::ObjectKind;
use std::fmt;

/// A five-character SQLSTATE.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SqlState(pub &'static str);

#[allow(missing_docs, reason = "the names are PostgreSQL's own, see its appendix A")]
impl SqlState {
    pub const SUCCESSFUL_COMPLETION: SqlState = SqlState("00000");
    pub const WARNING: SqlState = SqlState("01000");
    pub const FEATURE_NOT_SUPPORTED: SqlState = SqlState("0A000");
    pub const CARDINALITY_VIOLATION: SqlState = SqlState("21000");
    pub const NUMERIC_VALUE_OUT_OF_RANGE: SqlState = SqlState("22003");
    pub const DIVISION_BY_ZERO: SqlState = SqlState("22012");
    pub const INVALID_PARAMETER_VALUE: SqlState = SqlState("22023");
    pub const INVALID_TEXT_REPRESENTATION: SqlState = SqlState("22P02");
    pub const DATA_EXCEPTION: SqlState = SqlState("22000");
    pub const NOT_NULL_VIOLATION: SqlState = SqlState("23502");
    pub const UNIQUE_VIOLATION: SqlState = SqlState("23505");
    pub const ACTIVE_SQL_TRANSACTION: SqlState = SqlState("25001");
    pub const NO_ACTIVE_SQL_TRANSACTION: SqlState = SqlState("25P01");
    pub const IN_FAILED_SQL_TRANSACTION: SqlState = SqlState("25P02");
    pub const INVALID_SQL_STATEMENT_NAME: SqlState = SqlState("26000");
    pub const DEPENDENT_OBJECTS_STILL_EXIST: SqlState = SqlState("2BP01");
    pub const INVALID_CATALOG_NAME: SqlState = SqlState("3D000");
    pub const INVALID_SCHEMA_NAME: SqlState = SqlState("3F000");
    pub const SYNTAX_ERROR: SqlState = SqlState("42601");
    pub const INSUFFICIENT_PRIVILEGE: SqlState = SqlState("42501");
    pub const UNDEFINED_COLUMN: SqlState = SqlState("42703");
    pub const UNDEFINED_FUNCTION: SqlState = SqlState("42883");
    pub const UNDEFINED_TABLE: SqlState = SqlState("42P01");
    pub const UNDEFINED_OBJECT: SqlState = SqlState("42704");
    pub const DUPLICATE_COLUMN: SqlState = SqlState("42701");
    pub const DUPLICATE_TABLE: SqlState = SqlState("42P07");
    pub const DUPLICATE_SCHEMA: SqlState = SqlState("42P06");
    pub const AMBIGUOUS_COLUMN: SqlState = SqlState("42702");
    pub const DATATYPE_MISMATCH: SqlState = SqlState("42804");
    pub const GROUPING_ERROR: SqlState = SqlState("42803");
    pub const WRONG_OBJECT_TYPE: SqlState = SqlState("42809");
    pub const INVALID_TABLE_DEFINITION: SqlState = SqlState("42P16");
    pub const INVALID_COLUMN_REFERENCE: SqlState = SqlState("42P10");
    pub const OUT_OF_MEMORY: SqlState = SqlState("53200");
    pub const DISK_FULL: SqlState = SqlState("53100");
    pub const PROGRAM_LIMIT_EXCEEDED: SqlState = SqlState("54000");
    pub const OBJECT_NOT_IN_PREREQUISITE_STATE: SqlState = SqlState("55000");
    pub const QUERY_CANCELED: SqlState = SqlState("57014");
    pub const ADMIN_SHUTDOWN: SqlState = SqlState("57P01");
    pub const IO_ERROR: SqlState = SqlState("58030");
    pub const UNDEFINED_FILE: SqlState = SqlState("58P01");
    pub const DUPLICATE_FILE: SqlState = SqlState("58P02");
    pub const INTERNAL_ERROR: SqlState = SqlState("XX000");
    pub const DATA_CORRUPTED: SqlState = SqlState("XX001");
}

impl fmt::Debug for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// How loud an error is on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The statement failed.
    Error,
    /// The connection ends.
    Fatal,
}

/// What every error that may reach a client can tell. `Display` is the primary message: lower
/// case, no full stop, with the kind and name of the object.
pub trait ClientError: std::error::Error + Send + Sync + 'static {
    /// The SQLSTATE.
    fn sql_state(&self) -> SqlState;
    /// A sentence with particulars.
    fn detail(&self) -> Option<String> {
        None
    }
    /// A sentence that says what to do.
    fn hint(&self) -> Option<String> {
        None
    }
    /// Where in the statement's text, in characters from 1.
    fn position(&self) -> Option<usize> {
        None
    }
    /// How loud.
    fn severity(&self) -> Severity {
        Severity::Error
    }
}

/// What a change to the catalog can fail of.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum CatalogError {
    #[error("{kind} \"{}\" already exists", name.name)]
    NameTaken { kind: ObjectKind, name: ObjectName },
    #[error("schema \"{0}\" already exists")]
    SchemaExists(String),
    #[error("schema \"{0}\" does not exist")]
    NoSuchSchema(String),
    #[error("cannot drop schema \"{0}\" because other objects depend on it")]
    SchemaNotEmpty(String),
    #[error("object {0} does not exist")]
    NoSuchId(ObjectId),
    #[error("cannot drop object {id} because object {reader} depends on it")]
    StillRead { id: ObjectId, reader: ObjectId },
    #[error("object id {id} is out of order, expected {expected}")]
    IdOutOfOrder { id: ObjectId, expected: ObjectId },
}

impl ClientError for CatalogError {
    fn sql_state(&self) -> SqlState {
        match self {
            CatalogError::NameTaken { .. } => SqlState::DUPLICATE_TABLE,
            CatalogError::SchemaExists(_) => SqlState::DUPLICATE_SCHEMA,
            CatalogError::NoSuchSchema(_) => SqlState::INVALID_SCHEMA_NAME,
            CatalogError::SchemaNotEmpty(_) | CatalogError::StillRead { .. } => {
                SqlState::DEPENDENT_OBJECTS_STILL_EXIST
            }
            CatalogError::NoSuchId(_) => SqlState::UNDEFINED_TABLE,
            CatalogError::IdOutOfOrder { .. } => SqlState::INTERNAL_ERROR,
        }
    }
}
