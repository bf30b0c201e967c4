//! DataFusion's errors in PostgreSQL's words, at the place where the statement is wrong.

use super::column_name::MARK;
use super::names::nearest;
use crate::error::SqlError;
use crate::parser::Text;
use datafusion_common::{Column, DataFusionError, SchemaError};
use sqlparser::tokenizer::Location;
use weir_catalog::SqlState;

/// What `error` says to a client. With the statement's text its position can be told.
pub(crate) fn sql_error(error: DataFusionError, text: Option<&Text<'_>>) -> SqlError {
    let mut found = match crate::functions::error::sql_error(&error) {
        Some(carried) => carried,
        None => described(&error),
    };
    if found.position.is_none()
        && let (Some(text), Some(span)) = (text, error.diagnostic().and_then(|d| d.span))
        && span.start.line > 0
    {
        let at = Location { line: span.start.line, column: span.start.column };
        found.position = Some(text.char(at) + 1);
    }
    found
}

/// What any error of DataFusion's says to a client: also those of running a plan.
impl From<DataFusionError> for SqlError {
    fn from(error: DataFusionError) -> Self {
        sql_error(error, None)
    }
}

fn described(error: &DataFusionError) -> SqlError {
    let root = error.find_root();
    let text = root.to_string();
    if text.contains("regex parse error") || text.contains("Regular expression did not compile") {
        return SqlError::new(SqlState("2201B"), "invalid regular expression");
    }
    match root {
        DataFusionError::SchemaError(error, _) => schema_error(error),
        DataFusionError::Plan(message) => plan_error(message),
        DataFusionError::NotImplemented(message) => {
            SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, tidy(message))
        }
        DataFusionError::Collection(errors) => errors.first().map_or_else(internal, described),
        DataFusionError::ResourcesExhausted(message) => {
            SqlError::new(SqlState::OUT_OF_MEMORY, "out of memory").detail(sentence(message))
        }
        DataFusionError::Execution(message) => SqlError::new(SqlState::DATA_EXCEPTION, tidy(message)),
        DataFusionError::Configuration(message) => {
            SqlError::new(SqlState::INVALID_PARAMETER_VALUE, tidy(message))
        }
        other => SqlError::new(SqlState::INTERNAL_ERROR, tidy(&other.strip_backtrace())),
    }
}

fn internal() -> SqlError {
    SqlError::new(SqlState::INTERNAL_ERROR, "the query could not be planned")
}

fn schema_error(error: &SchemaError) -> SqlError {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => column_not_found(field, valid_fields),
        SchemaError::AmbiguousReference { field } => SqlError::new(
            SqlState::AMBIGUOUS_COLUMN,
            format!("column reference \"{}\" is ambiguous", plain(&field.name)),
        ),
        SchemaError::DuplicateQualifiedField { qualifier, .. } => SqlError::new(
            SqlState("42712"),
            format!("table name \"{}\" specified more than once", qualifier.table()),
        )
        .hint("Give each a name of its own with AS."),
        SchemaError::DuplicateUnqualifiedField { name } => SqlError::new(
            SqlState::DUPLICATE_COLUMN,
            format!("column \"{}\" specified more than once", plain(name)),
        ),
    }
}

fn column_not_found(field: &Column, valid: &[Column]) -> SqlError {
    let name = plain(&field.name);
    let Some(relation) = &field.relation else {
        let error = SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist"));
        return with_nearest_column(error, name, valid, None);
    };
    let table = relation.table();
    if !valid.iter().any(|c| c.relation.as_ref().is_some_and(|r| r.table() == table)) {
        let error = SqlError::new(
            SqlState::UNDEFINED_TABLE,
            format!("missing FROM-clause entry for table \"{table}\""),
        );
        let tables = valid.iter().filter_map(|c| c.relation.as_ref()).map(|r| r.table());
        return match nearest(table, tables) {
            Some(near) => error.hint(format!("Perhaps you meant to reference the table \"{near}\".")),
            None => error,
        };
    }
    let error = SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column {table}.{name} does not exist"));
    with_nearest_column(error, name, valid, Some(table))
}

fn with_nearest_column(error: SqlError, name: &str, valid: &[Column], table: Option<&str>) -> SqlError {
    let of_table = |c: &&Column| match (table, &c.relation) {
        (Some(table), Some(relation)) => relation.table() == table,
        _ => true,
    };
    let candidates: Vec<&Column> = valid.iter().filter(of_table).collect();
    let Some(near) = nearest(name, candidates.iter().map(|c| c.name.as_str())) else { return error };
    let relation = candidates.iter().find(|c| c.name == near).and_then(|c| c.relation.as_ref());
    let reference = match relation {
        Some(relation) if !relation.table().contains(MARK) => format!("{}.{near}", relation.table()),
        _ => near.to_owned(),
    };
    error.hint(format!("Perhaps you meant to reference the column \"{reference}\"."))
}

/// Messages of DataFusion's planner, by what they contain.
fn plan_error(message: &str) -> SqlError {
    let first = message.lines().next().unwrap_or_default();
    if message.contains("must appear in the GROUP BY clause")
        || message.contains("must be part of an aggregate function")
        || message.contains("must appear in GROUP BY clause")
        || message.contains("could not be resolved from available columns")
    {
        return grouping_error(first);
    }
    if first.contains("Aggregate functions are not allowed in the WHERE") {
        return SqlError::new(SqlState::GROUPING_ERROR, "aggregate functions are not allowed in WHERE");
    }
    if let Some(refused) = refused_place(first) {
        return refused;
    }
    if let Some(call) = between(message, "argument types '", "'")
        && !call.is_empty()
    {
        return function_mismatch(call);
    }
    for (start, end) in [("Function '", "'"), ("Invalid function '", "'"), ("for function ", " ")] {
        if let Some(name) = between(first, start, end) {
            return function_error(name, first);
        }
    }
    if first.contains("queries have different number of columns") {
        let what = first.split(' ').next().unwrap_or("UNION");
        let message = format!("each {what} query must have the same number of columns");
        return SqlError::new(SqlState::SYNTAX_ERROR, message);
    }
    if first.contains("Projections require unique expression names") {
        let name = between(first, "expression \"", "\"").map_or("", plain);
        return SqlError::new(
            SqlState::DUPLICATE_COLUMN,
            format!("column \"{name}\" specified more than once"),
        );
    }
    if first.contains("Cannot find column with position") {
        let position = between(first, "position ", " ").unwrap_or_default();
        return SqlError::new(
            SqlState("42P10"),
            format!("ORDER BY or GROUP BY position {position} is not in select list"),
        );
    }
    for (start, end) in [("arithmetic expression ", " to valid types"), (" operation ", "\n")] {
        let line = format!("{first}\n");
        if first.starts_with("Cannot ")
            && let Some([left, operator, right]) = between(&line, start, end).and_then(operands)
        {
            return no_operator(sql_name(left), operator, sql_name(right));
        }
    }
    if first.contains("Cannot coerce") || first.contains("Cannot infer") || first.contains("Incompatible") {
        return SqlError::new(SqlState::DATATYPE_MISMATCH, tidy(message));
    }
    SqlError::new(SqlState("42000"), tidy(message))
}

/// What may not stand where it does: too many columns, a position that is none, a call within a call.
fn refused_place(first: &str) -> Option<SqlError> {
    let begins = |prefix: &str| first.to_lowercase().starts_with(prefix);
    if begins("too many columns! the subquery") {
        return Some(SqlError::new(SqlState::SYNTAX_ERROR, "subquery must return only one column"));
    }
    if begins("order by column out of bounds") {
        let position = between(first, "specified: ", ",").unwrap_or_default();
        let message = format!("ORDER BY position {position} is not in select list");
        return Some(SqlError::new(SqlState("42P10"), message));
    }
    if begins("for select distinct, order by expressions") {
        let message = "for SELECT DISTINCT, ORDER BY expressions must appear in select list";
        return Some(SqlError::new(SqlState("42P10"), message));
    }
    if begins("select distinct on expressions must match initial") {
        let message = "SELECT DISTINCT ON expressions must match initial ORDER BY expressions";
        return Some(SqlError::new(SqlState("42P10"), message));
    }
    if let Some(parameter) = first.strip_prefix("Invalid placeholder, zero is not a valid index: ") {
        return Some(SqlError::new(SqlState("42P02"), format!("there is no parameter {parameter}")));
    }
    if begins("aggregate function calls cannot be nested") {
        return Some(SqlError::new(SqlState::GROUPING_ERROR, "aggregate function calls cannot be nested"));
    }
    if begins("cannot create filter with non-boolean predicate") {
        let returned = first.rsplit("returning ").next().unwrap_or_default();
        let message = format!("argument of WHERE must be type boolean, not type {}", sql_name(returned));
        return Some(SqlError::new(SqlState::DATATYPE_MISMATCH, message));
    }
    if begins("unary operator 'not' requires a boolean") {
        let given = first.rsplit("got ").next().unwrap_or_default();
        let message = format!("argument of NOT must be type boolean, not type {}", sql_name(given));
        return Some(SqlError::new(SqlState::DATATYPE_MISMATCH, message));
    }
    None
}

fn grouping_error(message: &str) -> SqlError {
    let column = between(message, "Expression ", " could not be resolved")
        .or_else(|| between(message, "column \"", "\""))
        .or_else(|| between(message, "'", "' must appear"))
        .or_else(|| between(message, "references: ", " must appear"));
    match column {
        Some(column) => SqlError::new(
            SqlState::GROUPING_ERROR,
            format!(
                "column \"{}\" must appear in the GROUP BY clause or be used in an aggregate function",
                plain(column)
            ),
        ),
        None => SqlError::new(SqlState::GROUPING_ERROR, tidy(message)),
    }
}

/// `name(Utf8, Int32)` as DataFusion writes a call that fits no signature.
fn function_mismatch(call: &str) -> SqlError {
    let (name, types) = call.split_once('(').unwrap_or((call, ""));
    let types: Vec<&str> = types.trim_end_matches(')').split(", ").map(sql_name).collect();
    // Some operators are functions of that name.
    if let [left, right] = types.as_slice()
        && !name.starts_with(|c: char| c.is_alphanumeric() || c == '_')
    {
        return no_operator(left, name, right);
    }
    undefined(name, &types.join(", "))
}

fn function_error(name: &str, message: &str) -> SqlError {
    let mut error = undefined(name, "");
    error.message = format!("function {name} does not exist for these arguments");
    error.detail(sentence(message))
}

fn undefined(name: &str, types: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_FUNCTION, format!("function {name}({types}) does not exist")).hint(
        "No function matches the given name and argument types. You might need to add explicit type casts.",
    )
}

/// `Int32 + Boolean` in its parts. Types may have spaces only inside parentheses.
fn operands(text: &str) -> Option<[&str; 3]> {
    let mut depth = 0;
    let mut parts = Vec::new();
    let mut start = 0;
    for (i, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ' ' if depth == 0 => {
                parts.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    <[&str; 3]>::try_from(parts).ok()
}

/// `operator does not exist: text = integer`.
pub(super) fn no_operator(left: &str, operator: &str, right: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_FUNCTION, format!("operator does not exist: {left} {operator} {right}")).hint(
        "No operator matches the given name and argument types. You might need to add explicit type casts.",
    )
}

/// The SQL name of a type as Arrow prints it.
fn sql_name(arrow: &str) -> &str {
    match arrow {
        "Boolean" => "boolean",
        "Int16" => "smallint",
        "Int32" => "integer",
        "Int64" => "bigint",
        "Float32" => "real",
        "Float64" => "double precision",
        "Utf8" | "String" => "text",
        "Binary" => "bytea",
        "Date32" => "date",
        "Null" => "unknown",
        other if other.starts_with("Decimal128") => "numeric",
        other if other.starts_with("Timestamp") && other.contains("+00:00") => "timestamp with time zone",
        other if other.starts_with("Timestamp") => "timestamp without time zone",
        other if other.starts_with("Interval") => "interval",
        other if other.starts_with("Time64") => "time without time zone",
        other => other,
    }
}

fn between<'a>(message: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let (_, tail) = message.split_once(start)?;
    tail.split_once(end).map(|(found, _)| found)
}

/// A name without DataFusion's quotes and our marks: behind a name, or a merged column's qualifier.
fn plain(name: &str) -> &str {
    match name.trim_matches('"').strip_prefix(MARK) {
        Some(merged) => merged.rsplit_once('.').map_or(merged, |(_, column)| column).trim_matches('"'),
        None => name.split(MARK).next().unwrap_or(name).trim_matches('"'),
    }
}

/// A primary message: the first line, lower case, without DataFusion's prefixes and full stop.
fn tidy(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    let line = [
        "Error during planning: ",
        "This feature is not implemented: ",
        "Internal error: ",
        "Execution error: ",
    ]
    .iter()
    .fold(line, |line, prefix| line.trim_start_matches(prefix));
    let line = line.split(". This issue was likely caused").next().unwrap_or(line).trim_end_matches('.');
    let mut chars = line.chars();
    let second_upper = line.chars().nth(1).is_some_and(char::is_uppercase);
    match chars.next() {
        Some(c) if !second_upper => c.to_lowercase().chain(chars).collect(),
        _ => line.to_owned(),
    }
}

fn sentence(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default().trim_end_matches('.');
    format!("{line}.")
}
