//! The statements by which a sink's rows and its progress get into a PostgreSQL database, and what its
//! errors mean for the sink.

use super::sink::SinkError;
use std::collections::HashMap;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

/// The advisory lock under which the progress table is made: "weir" in ASCII.
const PROGRESS_LOCK: i64 = 0x7765_6972;

/// The texts of all statements.
pub(super) struct Statements {
    pub create_progress: String,
    pub take_over: String,
    pub move_on: String,
    pub forget: String,
    pub empty: String,
    pub create_stage: String,
    pub copy_stage: String,
    pub copy_rows: String,
    pub delete: String,
    pub upsert: String,
}

impl Statements {
    pub fn new(schema: &str, table: &str, columns: &[String], key: &[String]) -> Self {
        let progress = format!("{}.weir_progress", quoted(schema));
        let table = format!("{}.{}", quoted(schema), quoted(table));
        let all = list(columns);
        let same = key.iter().map(|k| format!("t.{0} = s.{0}", quoted(k))).collect::<Vec<_>>().join(" AND ");
        Self {
            create_progress: format!(
                // IF NOT EXISTS alone fails where two sessions create it at the same time.
                "SELECT pg_advisory_xact_lock({PROGRESS_LOCK}); \
                 CREATE TABLE IF NOT EXISTS {progress} (sink text PRIMARY KEY, generation bigint NOT NULL, \
                 epoch bigint NOT NULL, until bigint, chunks bigint)"
            ),
            take_over: format!(
                "INSERT INTO {progress} AS p (sink, generation, epoch) VALUES ($1, $2, 0) \
                 ON CONFLICT (sink) DO UPDATE SET generation = EXCLUDED.generation \
                 WHERE p.generation <= EXCLUDED.generation RETURNING epoch, until, chunks"
            ),
            move_on: format!(
                "UPDATE {progress} SET epoch = $6, until = $7, chunks = $8 WHERE sink = $1 AND generation = $2 \
                 AND epoch = $3 AND until IS NOT DISTINCT FROM $4 AND chunks IS NOT DISTINCT FROM $5"
            ),
            forget: format!("DELETE FROM {progress} WHERE sink = $1"),
            empty: format!("DELETE FROM {table}"),
            create_stage: format!(
                "CREATE TEMPORARY TABLE weir_stage ON COMMIT DELETE ROWS \
                 AS SELECT {all}, false AS weir_deleted FROM {table} LIMIT 0"
            ),
            copy_stage: format!("COPY weir_stage ({all}, weir_deleted) FROM STDIN"),
            copy_rows: format!("COPY {table} ({all}) FROM STDIN"),
            delete: format!("DELETE FROM {table} t USING weir_stage s WHERE s.weir_deleted AND {same}"),
            upsert: format!(
                "INSERT INTO {table} ({all}) SELECT {all} FROM weir_stage WHERE NOT weir_deleted {}",
                on_conflict(columns, key)
            ),
        }
    }
}

fn list(names: &[String]) -> String {
    names.iter().map(|n| quoted(n)).collect::<Vec<_>>().join(", ")
}

/// What becomes of a row whose key is there.
fn on_conflict(columns: &[String], key: &[String]) -> String {
    let others = columns.iter().filter(|c| !key.contains(c));
    let others: Vec<String> = others.map(|c| format!("{0} = EXCLUDED.{0}", quoted(c))).collect();
    let action = match others.is_empty() {
        true => "NOTHING".to_owned(),
        false => format!("UPDATE SET {}", others.join(", ")),
    };
    format!("ON CONFLICT ({}) DO {action}", list(key))
}

/// A name as a statement spells it, reserved or not.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Whether it may pass by itself, or the target has to be changed: where the statement, the login or
/// a row can't work.
pub(super) fn fault(error: Error) -> SinkError {
    let Some(reported) = error.as_db_error() else {
        let reason =
            std::error::Error::source(&error).map_or_else(|| error.to_string(), |s| format!("{error}: {s}"));
        return SinkError::Retry(reason);
    };
    let code = reported.code().code();
    // A rule's violation tells the row, and so does what COPY was doing.
    let particulars: Vec<&str> = [reported.detail(), reported.where_()].into_iter().flatten().collect();
    let particulars = match particulars.is_empty() {
        true => String::new(),
        false => format!(" ({})", particulars.join("; ").replace('\n', " ")),
    };
    let reason = format!("{code}: {}{particulars}", reported.message());
    // Two servers that create the progress table at once: one of them loses.
    let raced = matches!(*reported.code(), SqlState::DUPLICATE_TABLE | SqlState::DUPLICATE_OBJECT);
    match &code[..2] {
        "0A" | "21" | "22" | "23" | "28" | "3D" | "3F" | "42" | "44" | "P0" if !raced => {
            SinkError::Refused(reason)
        }
        _ => SinkError::Retry(reason),
    }
}

/// The texts of the statements that only prepared transactions need.
pub(super) struct PreparedStatements {
    pub fence: String,
    pub claim: String,
    pub held: String,
    pub lower: String,
    pub progress_exists: String,
    pub forget: String,
    pub delete: String,
    pub upsert: String,
    pub found: &'static str,
}

impl PreparedStatements {
    /// Each column's type, as a cast from text needs it: without a modifier, which would cut.
    pub const TYPES_OF: &str = "SELECT attname::text, format_type(coalesce(nullif(typbasetype, 0), atttypid), -1) \
         FROM pg_attribute JOIN pg_type t ON t.oid = atttypid \
         WHERE attrelid = to_regclass($1::text) AND attnum > 0 AND NOT attisdropped";

    /// `types` are those of the target's columns.
    pub fn new(
        schema: &str,
        table: &str,
        columns: &[String],
        key: &[String],
        types: &HashMap<String, String>,
    ) -> Self {
        let progress = format!("{}.weir_progress", quoted(schema));
        let table = format!("{}.{}", quoted(schema), quoted(table));
        // Arrays of texts as rows, cast to the target's types: (… AS s (c1, c2)).
        let rows = |names: &[String]| {
            let join = |each: &dyn Fn(usize, &String) -> String| {
                names.iter().enumerate().map(|(i, n)| each(i + 1, n)).collect::<Vec<_>>().join(", ")
            };
            let cast = |i: usize, n: &String| {
                let sql_type = types.get(n).map_or("text", String::as_str);
                format!("c{i}::{sql_type} AS {}", quoted(n))
            };
            let arrays = join(&|i, _| format!("${i}::text[]"));
            format!("SELECT {} FROM unnest({arrays}) AS s ({})", join(&cast), join(&|i, _| format!("c{i}")))
        };
        let same = key.iter().map(|k| format!("t.{0} = s.{0}", quoted(k))).collect::<Vec<_>>().join(" AND ");
        Self {
            fence: format!("SELECT FROM {progress} WHERE sink = $1 AND generation = $2 FOR SHARE"),
            claim: format!(
                "INSERT INTO {progress} AS p (sink, generation, epoch) VALUES ($1, $2, $3) ON CONFLICT (sink) \
                 DO UPDATE SET generation = EXCLUDED.generation, epoch = EXCLUDED.epoch \
                 WHERE p.epoch < EXCLUDED.epoch"
            ),
            held: format!(
                "SELECT sink, generation, epoch FROM {progress} WHERE sink = $1 OR starts_with(sink, $1 || '/')"
            ),
            lower: format!(
                "UPDATE {progress} SET epoch = least(epoch, $2) WHERE starts_with(sink, $1 || '/')"
            ),
            progress_exists: format!("SELECT to_regclass('{}') IS NOT NULL", progress.replace('\'', "''")),
            forget: format!("DELETE FROM {progress} WHERE sink = $1 OR starts_with(sink, $1 || '/')"),
            delete: format!("DELETE FROM {table} t USING ({}) s WHERE {same}", rows(key)),
            upsert: format!(
                "INSERT INTO {table} ({}) {} {}",
                list(columns),
                rows(columns),
                on_conflict(columns, key)
            ),
            found: "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() \
                    AND starts_with(gid, $1::text)",
        }
    }
}
