//! What each of PostgreSQL's catalog functions does: one line in [`FUNCTIONS`], one body.

use super::pg_functions::{Body, FunctionSpec, FunctionState, Returns, list_of};
use super::system::SystemInput;
use super::{ServeError, pg_static, pg_types, pg_views};
use crate::config;
use arrow::datatypes::{DataType, TimeUnit};
use std::ops::RangeInclusive;
use std::sync::LazyLock;
use weir_catalog::name::quote_identifier;
use weir_catalog::system::Value;
use weir_catalog::{ObjectBody, SqlState};

type Outcome = Result<Value, ServeError>;

fn spec(
    name: &'static str,
    arguments: RangeInclusive<usize>,
    returns: DataType,
    strict: bool,
    body: Body,
) -> FunctionSpec {
    FunctionSpec { name, arguments, returns: Returns::Always(returns), strict, body }
}

/// Every function.
pub static FUNCTIONS: LazyLock<Vec<FunctionSpec>> = LazyLock::new(|| {
    let mut all = session_functions();
    all.extend(catalog_functions());
    all.extend(constant_functions());
    all
});

fn session_functions() -> Vec<FunctionSpec> {
    use DataType::{Boolean, Int32, Int64, Utf8};
    let text = |name, body| spec(name, 0..=0, Utf8, false, body);
    let user: Body = |s, _| Ok(s.session.user.as_str().into());
    let database: Body = |s, _| Ok(s.session.database.as_str().into());
    let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into()));
    vec![
        text("current_user", user),
        text("session_user", user),
        text("user", user),
        text("current_role", user),
        text("current_database", database),
        text("current_catalog", database),
        text("current_schema", |s, _| Ok(s.own_schemas().next().into())),
        spec("current_schemas", 1..=1, list_of(Utf8), true, current_schemas),
        text("version", |_, _| Ok(version().into())),
        spec("pg_backend_pid", 0..=0, Int32, false, |s, _| Ok(Value::Int(i64::from(s.session.pid)))),
        spec("current_setting", 1..=2, Utf8, true, current_setting),
        spec("pg_client_encoding", 0..=0, Utf8, false, |_, _| Ok("UTF8".into())),
        spec("getdatabaseencoding", 0..=0, Utf8, false, |_, _| Ok("UTF8".into())),
        spec("pg_postmaster_start_time", 0..=0, utc, false, |_, _| Ok(Value::Timestamp(*STARTED_AT_US))),
        spec("pg_is_in_recovery", 0..=0, Boolean, false, |_, _| Ok(false.into())),
        spec("pg_my_temp_schema", 0..=0, Int64, false, |_, _| Ok(Value::Int(0))),
        spec("inet_server_addr", 0..=0, Utf8, false, null),
        spec("inet_client_addr", 0..=0, Utf8, false, null),
        spec("inet_server_port", 0..=0, Int32, false, null),
        spec("inet_client_port", 0..=0, Int32, false, null),
    ]
}

fn catalog_functions() -> Vec<FunctionSpec> {
    use DataType::{Boolean, Utf8};
    let text = |name, arguments, body| spec(name, arguments, Utf8, true, body);
    let other =
        |name, body| FunctionSpec { name, arguments: 1..=1, returns: Returns::Other, strict: true, body };
    vec![
        text("pg_get_userbyid", 1..=1, |s, a| Ok(s.role(int(a, 0)).into())),
        spec("format_type", 1..=2, Utf8, true, |_, a| Ok(format_type(int(a, 0), a.get(1)).into())),
        text("pg_get_expr", 2..=3, |_, a| Ok(a[0].clone())),
        text("pg_get_indexdef", 1..=3, pg_get_indexdef),
        text("pg_get_constraintdef", 1..=2, |s, a| {
            Ok(s.constraint(int(a, 0)).map(|i| i.constraint_definition()).into())
        }),
        text("pg_get_viewdef", 1..=2, pg_get_viewdef),
        text("pg_get_function_result", 1..=1, |_, a| {
            Ok(pg_static::function(int(a, 0)).map(|f| f.result.as_str()).into())
        }),
        text("pg_get_function_arguments", 1..=1, function_arguments),
        text("pg_get_function_identity_arguments", 1..=1, function_arguments),
        text("obj_description", 1..=2, obj_description),
        text("to_regclass", 1..=1, |s, a| {
            let found = relation_named(s, &text_of(a, 0));
            Ok(found.and_then(|oid| regclass_name(s, oid)).into())
        }),
        text("to_regtype", 1..=1, |_, a| Ok(pg_types::by_name(&text_of(a, 0)).map(|t| t.sql).into())),
        spec("pg_table_is_visible", 1..=1, Boolean, true, |s, a| Ok(s.is_visible(int(a, 0)).into())),
        other("weir_regclass", regclass),
        other("weir_regtype", regtype),
        other("weir_regproc", regproc),
        other("weir_regnamespace", regnamespace),
        other("weir_regrole", regrole),
        text("pg_encoding_to_char", 1..=1, |_, a| Ok(if int(a, 0) == 6 { "UTF8" } else { "" }.into())),
        spec("pg_char_to_encoding", 1..=1, DataType::Int32, true, |_, a| {
            Ok(Value::Int(if text_of(a, 0).eq_ignore_ascii_case("utf8") { 6 } else { -1 }))
        }),
        text("pg_size_pretty", 1..=1, |_, a| Ok(pretty_size(int(a, 0)).into())),
        text("quote_ident", 1..=1, |_, a| Ok(quote_identifier(&text_of(a, 0)).into())),
        text("quote_literal", 1..=1, |_, a| Ok(quote_literal(&text_of(a, 0)).into())),
        spec("quote_nullable", 1..=1, Utf8, false, |_, a| {
            Ok(if a[0] == Value::Null { "NULL".into() } else { quote_literal(&text_of(a, 0)).into() })
        }),
    ]
}

/// Functions whose answer is the same for everything here.
fn constant_functions() -> Vec<FunctionSpec> {
    use DataType::{Boolean, Int64, Utf8};
    let yes: Body = |_, _| Ok(true.into());
    let no: Body = |_, _| Ok(false.into());
    let visible = [
        "pg_type_is_visible",
        "pg_function_is_visible",
        "pg_operator_is_visible",
        "pg_opclass_is_visible",
        "pg_opfamily_is_visible",
        "pg_collation_is_visible",
        "pg_conversion_is_visible",
        "pg_statistics_obj_is_visible",
        "pg_ts_config_is_visible",
        "pg_ts_dict_is_visible",
        "pg_ts_parser_is_visible",
        "pg_ts_template_is_visible",
    ];
    let privileges = [
        "has_table_privilege",
        "has_schema_privilege",
        "has_database_privilege",
        "has_column_privilege",
        "has_any_column_privilege",
        "has_function_privilege",
        "has_sequence_privilege",
        "has_type_privilege",
        "has_language_privilege",
        "has_server_privilege",
        "has_tablespace_privilege",
        "has_foreign_data_wrapper_privilege",
        "pg_has_role",
    ];
    let refused = ["pg_relation_is_publishable", "pg_is_other_temp_schema", "pg_jit_available"];
    let unknown_texts = [
        "col_description",
        "shobj_description",
        "pg_get_ruledef",
        "pg_get_triggerdef",
        "pg_get_functiondef",
        "pg_get_statisticsobjdef_columns",
        "pg_get_partkeydef",
        "pg_get_serial_sequence",
        "pg_tablespace_location",
    ];
    // How big one relation is on disk is not known by relation.
    let unknown_numbers = [
        "pg_table_size",
        "pg_relation_size",
        "pg_total_relation_size",
        "pg_indexes_size",
        "pg_database_size",
        "pg_stat_get_numscans",
        "pg_sequence_last_value",
    ];
    let mut all: Vec<FunctionSpec> = Vec::new();
    all.extend(visible.map(|name| spec(name, 1..=1, Boolean, true, yes)));
    all.extend(privileges.map(|name| spec(name, 2..=4, Boolean, true, yes)));
    all.extend(refused.map(|name| spec(name, 0..=1, Boolean, false, no)));
    all.extend(unknown_texts.map(|name| spec(name, 1..=3, Utf8, false, null)));
    all.extend(unknown_numbers.map(|name| spec(name, 1..=2, Int64, false, null)));
    all
}

static STARTED_AT_US: LazyLock<i64> = LazyLock::new(|| chrono::Utc::now().timestamp_micros());

/// What `version()` says.
pub fn version() -> String {
    format!("PostgreSQL 15.0 (Weir {}) on {}", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH)
}

fn null(_: &FunctionState, _: &[Value]) -> Outcome {
    Ok(Value::Null)
}

fn int(arguments: &[Value], index: usize) -> i64 {
    match arguments.get(index) {
        Some(Value::Int(n)) => *n,
        // A literal without a type, as in pg_get_viewdef('16384').
        Some(Value::Text(text)) => text.trim().parse().unwrap_or(0),
        _ => 0,
    }
}

fn text_of(arguments: &[Value], index: usize) -> String {
    match arguments.get(index) {
        Some(Value::Text(text)) => text.clone(),
        Some(Value::Int(n)) => n.to_string(),
        _ => String::new(),
    }
}

fn current_schemas(state: &FunctionState, arguments: &[Value]) -> Outcome {
    let implicit = arguments[0] == Value::Bool(true);
    let system = implicit.then_some("pg_catalog");
    let own = state.own_schemas().filter(|s| Some(*s) != system);
    Ok(Value::Texts(system.into_iter().chain(own).map(str::to_owned).collect()))
}

fn current_setting(state: &FunctionState, arguments: &[Value]) -> Outcome {
    let name = text_of(arguments, 0);
    match config::find(&name) {
        Ok(spec) => {
            let input = SystemInput {
                catalog: &state.catalog,
                facts: &Default::default(),
                session: &state.session,
                config: &state.config,
            };
            Ok(pg_views::setting_value(&input, spec).into())
        }
        Err(_) if arguments.get(1) == Some(&Value::Bool(true)) => Ok(Value::Null),
        Err(error) => Err(ServeError::new(SqlState::UNDEFINED_OBJECT, error.to_string())),
    }
}

fn format_type(oid: i64, modifier: Option<&Value>) -> String {
    let modifier = match modifier {
        Some(Value::Int(n)) => Some(*n),
        _ => None,
    };
    match pg_types::format_type(oid, modifier) {
        unknown if unknown == "???" => pg_static::type_name(oid).unwrap_or(unknown),
        known => known,
    }
}

fn pg_get_indexdef(state: &FunctionState, arguments: &[Value]) -> Outcome {
    let Some(index) = state.index(int(arguments, 0)) else { return Ok(Value::Null) };
    match int(arguments, 1) {
        0 => Ok(index.definition().into()),
        number => {
            let column = usize::try_from(number - 1).ok().and_then(|n| index.all_columns().get(n).copied());
            Ok(column.map(|c| quote_identifier(&index.relation.columns()[c].name)).into())
        }
    }
}

fn pg_get_viewdef(state: &FunctionState, arguments: &[Value]) -> Outcome {
    let oid = match &arguments[0] {
        Value::Text(name) if name.trim().parse::<i64>().is_err() => relation_named(state, name),
        _ => Some(int(arguments, 0)),
    };
    let object = oid.and_then(|oid| state.relation(oid)).and_then(|r| r.object.as_ref());
    Ok(match object.map(|o| &o.body) {
        Some(ObjectBody::View(view)) => format!(" {};", view.query.trim().trim_end_matches(';')).into(),
        Some(ObjectBody::MaterializedView(view)) => {
            format!(" {};", view.query.trim().trim_end_matches(';')).into()
        }
        _ => Value::Null,
    })
}

fn function_arguments(_: &FunctionState, arguments: &[Value]) -> Outcome {
    let function = pg_static::function(int(arguments, 0));
    Ok(function
        .map(|f| f.arguments.iter().map(|t| format_type(*t, None)).collect::<Vec<_>>().join(", "))
        .into())
}

fn obj_description(state: &FunctionState, arguments: &[Value]) -> Outcome {
    let of_relations = arguments.len() < 2 || text_of(arguments, 1) == "pg_class";
    let object = state.relation(int(arguments, 0)).filter(|_| of_relations).and_then(|r| r.object.as_ref());
    Ok(object.and_then(|o| o.comment.clone()).into())
}

/// Reads `name`, `schema.name`, `"Quoted"."Name"`.
fn parts(name: &str) -> (Option<String>, String) {
    let mut found = vec![String::new()];
    let mut quoted = false;
    let mut chars = name.trim().chars().peekable();
    while let Some(c) = chars.next() {
        let last = found.len() - 1;
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                found[last].push('"');
            }
            '"' => quoted = !quoted,
            '.' if !quoted => found.push(String::new()),
            c if quoted => found[last].push(c),
            c => found[last].extend(c.to_lowercase()),
        }
    }
    let name = found.pop().unwrap_or_default();
    (found.pop(), name)
}

fn relation_named(state: &FunctionState, name: &str) -> Option<i64> {
    let (schema, name) = parts(name);
    state.oid_of(schema.as_deref(), &name)
}

/// As `regclass` prints: qualified where the path does not find it.
fn regclass_name(state: &FunctionState, oid: i64) -> Option<String> {
    let (schema, name) = state.name_of(oid)?;
    Some(if state.is_visible(oid) == Some(true) {
        quote_identifier(name)
    } else {
        format!("{}.{}", quote_identifier(schema), quote_identifier(name))
    })
}

/// What an oid alias does: the name of a number, the number of a name; a number as text is itself.
fn alias(
    argument: &Value,
    name_of: impl FnOnce(i64) -> Option<String>,
    number_of: impl FnOnce(&str) -> Option<i64>,
    missing: impl FnOnce(&str) -> ServeError,
) -> Outcome {
    match argument {
        Value::Int(0) => Ok("-".into()),
        Value::Int(oid) => Ok(name_of(*oid).unwrap_or_else(|| oid.to_string()).into()),
        Value::Text(text) if text == "-" => Ok(Value::Int(0)),
        Value::Text(text) => match text.trim().parse::<i64>() {
            Ok(oid) => Ok(Value::Int(oid)),
            Err(_) => number_of(text).map(Value::Int).ok_or_else(|| missing(text)),
        },
        _ => Ok(Value::Null),
    }
}

fn regclass(state: &FunctionState, arguments: &[Value]) -> Outcome {
    let missing = |name: &str| {
        ServeError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"))
    };
    alias(&arguments[0], |oid| regclass_name(state, oid), |name| relation_named(state, name), missing)
}

fn regtype(_: &FunctionState, arguments: &[Value]) -> Outcome {
    let number = |name: &str| match name.trim().strip_suffix("[]") {
        Some(element) => pg_types::by_name(element).map(|t| t.array),
        None => pg_types::by_name(name).map(|t| t.oid),
    };
    let missing =
        |name: &str| ServeError::new(SqlState::UNDEFINED_OBJECT, format!("type \"{name}\" does not exist"));
    alias(&arguments[0], |oid| Some(format_type(oid, None)), number, missing)
}

fn regproc(_: &FunctionState, arguments: &[Value]) -> Outcome {
    let missing = |name: &str| {
        ServeError::new(SqlState::UNDEFINED_FUNCTION, format!("function \"{name}\" does not exist"))
    };
    let name_of = |oid| pg_static::function(oid).map(|f| f.name.clone());
    alias(&arguments[0], name_of, |name| pg_static::function_named(&parts(name).1), missing)
}

fn regnamespace(state: &FunctionState, arguments: &[Value]) -> Outcome {
    let name_of = |oid| {
        let all = super::pg_relations::schemas(&state.catalog);
        all.into_iter().find(|s| super::pg_relations::schema_oid(s) == oid).map(|s| quote_identifier(&s))
    };
    let missing = |name: &str| {
        ServeError::new(SqlState::INVALID_SCHEMA_NAME, format!("schema \"{name}\" does not exist"))
    };
    alias(&arguments[0], name_of, |name| state.schema(&parts(name).1), missing)
}

fn regrole(state: &FunctionState, arguments: &[Value]) -> Outcome {
    let number = |name: &str| {
        let name = parts(name).1;
        if name == super::pg_relations::OWNER_NAME {
            Some(super::pg_relations::OWNER)
        } else {
            (name == state.session.user).then(|| super::pg_relations::number_of(&name))
        }
    };
    let missing =
        |name: &str| ServeError::new(SqlState::UNDEFINED_OBJECT, format!("role \"{name}\" does not exist"));
    alias(&arguments[0], |oid| Some(state.role(oid)), number, missing)
}

fn quote_literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if text.contains('\\') { format!("E'{}'", quoted.replace('\\', "\\\\")) } else { format!("'{quoted}'") }
}

/// As PostgreSQL's `pg_size_pretty`: bytes to 10 kB, then the next unit.
fn pretty_size(bytes: i64) -> String {
    let mut size = bytes as f64;
    if size.abs() < 10.0 * 1024.0 {
        return format!("{bytes} bytes");
    }
    for unit in ["kB", "MB", "GB", "TB"] {
        size /= 1024.0;
        if size.abs() < 10.0 * 1024.0 - 0.5 {
            return format!("{size:.0} {unit}");
        }
    }
    format!("{:.0} PB", size / 1024.0)
}
