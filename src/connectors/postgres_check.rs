//! What a table of a PostgreSQL database must be so that a sink can deliver to it: asked of the
//! database itself, with PostgreSQL's SQLSTATEs and the sink, the option and the object named.

use super::error::ConnectorError;
use super::postgres_statements::quoted;
use std::collections::HashMap;
use tokio_postgres::{Client, Error};
use weir_catalog::name::quote_identifier;
use weir_catalog::{Column, SqlState};

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The sink's name.
    pub sink: String,
    /// `host:port`, for messages.
    pub place: String,
    /// The options `schema.name` and `table.name`.
    pub schema: String,
    /// The table's name.
    pub table: String,
    /// What is delivered.
    pub columns: Vec<Column>,
    /// The key of an upsert sink; empty for an append-only one.
    pub key: Vec<String>,
    /// Whether the table is to be emptied.
    pub empties: bool,
}

/// A column as the target has it.
struct Found {
    name: String,
    sql_type: String,
    /// An INSERT has to give it a value.
    required: bool,
    /// An INSERT must not give it one.
    generated: bool,
}

impl Wanted {
    /// The table, as hints spell it.
    fn relation(&self) -> String {
        format!("{}.{}", quote_identifier(&self.schema), quote_identifier(&self.table))
    }

    /// Tells what is wrong with the target's table, or why it can't take each change exactly once.
    /// Changes nothing.
    pub async fn check(&self, client: &Client) -> Result<Option<String>, ConnectorError> {
        let fault = |error| self.refused(&error);
        let relation = format!("{}.{}", quoted(&self.schema), quoted(&self.table));
        let kind = client.query_opt(KIND_OF, &[&relation, &self.schema]).await.map_err(fault)?;
        let (kind, schema, persistence): (Option<String>, bool, Option<String>) =
            kind.map_or((None, false, None), |row| (row.get(0), row.get(1), row.get(2)));
        match kind.as_deref() {
            Some("r" | "p" | "f") => {}
            Some(_) => {
                let message =
                    format!("\"{}\" of the target of sink \"{}\" is not a table", self.table, self.sink);
                return Err(self.error(
                    SqlState::WRONG_OBJECT_TYPE,
                    message,
                    "Check the option \"table.name\".",
                ));
            }
            None => return Err(self.missing(schema)),
        }
        let rows = client.query(COLUMNS_OF, &[&relation]).await.map_err(fault)?;
        let found: Vec<Found> = rows
            .iter()
            .map(|row| Found {
                name: row.get(0),
                sql_type: row.get(1),
                required: row.get(2),
                generated: row.get(3),
            })
            .collect();
        self.check_columns(&found)?;
        let rows = client.query(UNIQUES_OF, &[&relation]).await.map_err(fault)?;
        self.check_key(rows.iter().map(|row| row.get(0)).collect())?;
        let rights = match (self.key.is_empty(), self.empties) {
            (true, false) => &["INSERT"][..],
            (true, true) => &["INSERT", "DELETE"],
            (false, _) => &["INSERT", "UPDATE", "DELETE", "SELECT"],
        };
        for right in rights {
            let row = client.query_one(PRIVILEGE, &[&relation, right]).await.map_err(fault)?;
            if !row.get::<_, bool>(0) {
                let user: String = row.get(1);
                let message = format!(
                    "permission denied for table \"{}\" of the target of sink \"{}\"",
                    self.table, self.sink
                );
                let hint = format!(
                    "Over there: GRANT {right} ON {} TO {};",
                    self.relation(),
                    quote_identifier(&user)
                );
                return Err(self.error(SqlState::INSUFFICIENT_PRIVILEGE, message, hint));
            }
        }
        Ok(match (kind.as_deref(), persistence.as_deref()) {
            (Some("f"), _) => Some(format!(
                "table \"{}\" of the target is a foreign table: rows and progress are committed on two servers",
                self.table
            )),
            (_, Some("u")) => Some(format!(
                "table \"{}\" of the target is unlogged: a crash of its server empties it, and keeps the progress",
                self.table
            )),
            _ => None,
        })
    }

    /// What a statement or the connection was refused for.
    pub fn refused(&self, error: &Error) -> ConnectorError {
        let Some(reported) = error.as_db_error() else {
            let reason =
                std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
            let message = format!(
                "could not connect to PostgreSQL at {} for sink \"{}\": {reason}",
                self.place, self.sink
            );
            let hint =
                "Check the options \"hostname\" and \"port\", and that the server accepts connections.";
            return self.error(SqlState("08001"), message, hint);
        };
        let state = known(reported.code().code());
        let hint = match state.0 {
            "28P01" | "28000" => "Check the options \"username\" and \"password\".",
            "3D000" => "Check the option \"database.name\".",
            "42501" => {
                "The sink keeps its progress in the table \"weir_progress\" of the same schema: \
                        grant CREATE on the schema, or on that table SELECT, INSERT and UPDATE."
            }
            _ => "The target's server refused it.",
        };
        let message =
            format!("the target of sink \"{}\" at {} refused: {}", self.sink, self.place, reported.message());
        self.error(state, message, hint)
    }

    pub(super) fn error(&self, state: SqlState, message: String, hint: impl Into<String>) -> ConnectorError {
        ConnectorError::Unfit { state, message, hint: hint.into() }
    }

    fn missing(&self, schema: bool) -> ConnectorError {
        if !schema {
            let message =
                format!("schema \"{}\" does not exist in the target of sink \"{}\"", self.schema, self.sink);
            let hint = "Check the options \"schema.name\" and \"database.name\".";
            return self.error(SqlState::INVALID_SCHEMA_NAME, message, hint);
        }
        let mut parts: Vec<String> =
            self.columns.iter().map(|c| format!("{} {}", quote_identifier(&c.name), c.sql_type)).collect();
        if !self.key.is_empty() {
            parts.push(format!("PRIMARY KEY ({})", self.quoted_key()));
        }
        let message =
            format!("relation \"{}\" does not exist in the target of sink \"{}\"", self.table, self.sink);
        let hint = format!(
            "Check the option \"table.name\", or create it there: CREATE TABLE {} ({});",
            self.relation(),
            parts.join(", ")
        );
        self.error(SqlState::UNDEFINED_TABLE, message, hint)
    }

    fn quoted_key(&self) -> String {
        self.key.iter().map(|k| quote_identifier(k)).collect::<Vec<_>>().join(", ")
    }

    fn check_columns(&self, found: &[Found]) -> Result<(), ConnectorError> {
        let by_name: HashMap<&str, &Found> = found.iter().map(|f| (f.name.as_str(), f)).collect();
        for column in &self.columns {
            let name = &column.name;
            let Some(theirs) = by_name.get(name.as_str()) else {
                let message = format!(
                    "column \"{name}\" of sink \"{}\" does not exist in table \"{}\" of its target",
                    self.sink, self.table
                );
                let names: Vec<&str> = found.iter().map(|f| f.name.as_str()).collect();
                let hint = format!(
                    "The table's columns are: {}. Rename it by AS in the sink's query.",
                    names.join(", ")
                );
                return Err(self.error(SqlState::UNDEFINED_COLUMN, message, hint));
            };
            if theirs.generated {
                let message = format!(
                    "column \"{name}\" of table \"{}\" of the target of sink \"{}\" is generated there",
                    self.table, self.sink
                );
                return Err(self.error(SqlState("428C9"), message, "Leave it out of the sink's query."));
            }
            if !fits(&column.sql_type, &theirs.sql_type) {
                let message = format!(
                    "column \"{name}\" of sink \"{}\" is of type {}, but of type {} in table \"{}\" of its target",
                    self.sink, column.sql_type, theirs.sql_type, self.table
                );
                let hint =
                    format!("Cast it in the sink's query: {}::{}.", quote_identifier(name), theirs.sql_type);
                return Err(self.error(SqlState::DATATYPE_MISMATCH, message, hint));
            }
        }
        let ours = |f: &&Found| !self.columns.iter().any(|c| c.name == f.name);
        match found.iter().filter(ours).find(|f| f.required) {
            Some(f) => {
                let message = format!(
                    "column \"{}\" of table \"{}\" of the target needs a value, and sink \"{}\" has none for it",
                    f.name, self.table, self.sink
                );
                let hint = "Add the column to the sink's query, or give it a default over there.";
                Err(self.error(SqlState::NOT_NULL_VIOLATION, message, hint))
            }
            None => Ok(()),
        }
    }

    fn check_key(&self, uniques: Vec<Vec<String>>) -> Result<(), ConnectorError> {
        let mut key = self.key.clone();
        key.sort();
        if key.is_empty() || uniques.contains(&key) {
            return Ok(());
        }
        let message = format!(
            "table \"{}\" of the target of sink \"{}\" has no primary key or unique index on ({})",
            self.table,
            self.sink,
            self.key.join(", ")
        );
        let hint = format!(
            "Over there: ALTER TABLE {} ADD PRIMARY KEY ({}); or choose another primary_key for the sink.",
            self.relation(),
            self.quoted_key()
        );
        Err(self.error(SqlState::INVALID_COLUMN_REFERENCE, message, hint))
    }
}

const KIND_OF: &str = "SELECT (SELECT relkind::text FROM pg_class WHERE oid = to_regclass($1::text)), \
     EXISTS (SELECT FROM pg_namespace WHERE nspname = $2::text), \
     (SELECT relpersistence::text FROM pg_class WHERE oid = to_regclass($1::text))";

const COLUMNS_OF: &str = "SELECT attname::text, format_type(coalesce(nullif(typbasetype, 0), atttypid), NULL), \
     attnotnull AND NOT atthasdef AND attidentity = '', attgenerated <> '' OR attidentity = 'a' \
     FROM pg_attribute JOIN pg_type t ON t.oid = atttypid \
     WHERE attrelid = to_regclass($1::text) AND attnum > 0 AND NOT attisdropped ORDER BY attnum";

/// The columns of each unique index, in order of name.
const UNIQUES_OF: &str = "SELECT array_agg(a.attname::text ORDER BY a.attname::text) \
     FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid \
     AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]) \
     WHERE i.indrelid = to_regclass($1::text) AND i.indisunique AND i.indimmediate \
     AND i.indpred IS NULL AND i.indexprs IS NULL GROUP BY i.indexrelid";

const PRIVILEGE: &str = "SELECT has_table_privilege(to_regclass($1::text), $2::text), current_user::text";

/// The states that a target's refusal may have, ours to pass on; others are a system's error.
fn known(code: &str) -> SqlState {
    const STATES: &[&str] = &[
        "08001", "08004", "08006", "0A000", "22003", "22P02", "23502", "23505", "25006", "28000", "28P01",
        "3D000", "3F000", "40001", "40P01", "42501", "42601", "42703", "42804", "42809", "42P01", "42P07",
        "42P10", "42704", "42710", "53100", "53200", "53300", "55000", "55P03", "57P01", "57P02", "57P03",
        "57014",
    ];
    SqlState(STATES.iter().find(|known| **known == code).copied().unwrap_or("58000"))
}

/// Whether the text of a value of type `ours` is read as one of `theirs`. What Weir has no type
/// like (an enum, an address) takes text.
fn fits(ours: &str, theirs: &str) -> bool {
    if let (Some(ours), Some(theirs)) = (ours.strip_suffix("[]"), theirs.strip_suffix("[]")) {
        return fits(ours, theirs);
    }
    match (family(ours), family(theirs)) {
        (_, Family::Text) => true,
        (Family::Whole, theirs) => matches!(theirs, Family::Whole | Family::Number),
        (Family::Moment, Family::Moment)
        | (Family::Number, Family::Number)
        | (Family::Json, Family::Json) => true,
        (Family::Text, Family::Other) => !is_ours(theirs),
        (ours_family, theirs_family) => ours_family == theirs_family && bare(ours) == bare(theirs),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Family {
    Whole,
    Number,
    Text,
    Moment,
    Json,
    Other,
}

fn family(sql_type: &str) -> Family {
    match bare(sql_type).as_str() {
        "smallint" | "integer" | "bigint" => Family::Whole,
        "numeric" | "real" | "double precision" => Family::Number,
        "text" | "character varying" | "character" | "name" => Family::Text,
        "date" | "timestamp without time zone" | "timestamp with time zone" => Family::Moment,
        "json" | "jsonb" => Family::Json,
        _ => Family::Other,
    }
}

/// Other types that Weir has: text is no value of theirs.
fn is_ours(sql_type: &str) -> bool {
    matches!(bare(sql_type).as_str(), "boolean" | "bytea" | "uuid" | "interval" | "time without time zone")
        || sql_type.ends_with("[]")
}

/// Without the modifier: `numeric(10,2)`, `timestamp(3) without time zone`.
fn bare(sql_type: &str) -> String {
    match (sql_type.find('('), sql_type.find(')')) {
        (Some(start), Some(end)) if start < end => format!("{}{}", &sql_type[..start], &sql_type[end + 1..]),
        _ => sql_type.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_fits_where_its_text_is_read_as_it_was_meant() {
        for (ours, theirs) in [
            ("integer", "bigint"),
            ("bigint", "integer"),
            ("bigint", "numeric"),
            ("numeric(10,2)", "double precision"),
            ("character varying(3)", "text"),
            ("timestamp without time zone", "text"),
            ("date", "timestamp without time zone"),
            ("jsonb", "json"),
            ("integer[]", "bigint[]"),
            ("text", "mood"),
            ("boolean", "boolean"),
        ] {
            assert!(fits(ours, theirs), "{ours} into {theirs}");
        }
        for (ours, theirs) in [
            ("numeric(10,2)", "integer"),
            ("text", "integer"),
            ("text", "uuid"),
            ("text", "jsonb"),
            ("timestamp without time zone", "date[]"),
            ("boolean", "integer"),
            ("integer", "boolean"),
            ("integer[]", "integer"),
            ("text", "integer[]"),
            ("uuid", "bytea"),
        ] {
            assert!(!fits(ours, theirs), "{ours} into {theirs}");
        }
    }
}
