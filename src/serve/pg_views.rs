//! The views of `pg_catalog` (tables, views, settings, roles, activity) and what `weir_catalog`
//! has beyond the catalog package's tables.

use super::pg_relations::{DATABASE, OWNER, OWNER_NAME, PgRelation, indexes, relations};
use super::system::{SystemInput, TableSpec};
use crate::config::{Kind, SETTINGS, Scope};
use weir_catalog::system::ColumnType::{Bool, Char, Int4, Int8, Name, Oid, Text, TextArray, Timestamptz};
use weir_catalog::system::{Columns, Row, Value, WEIR_CATALOG};
use weir_catalog::{ObjectBody, ObjectState};

const SCHEMA: &str = "pg_catalog";

/// What PostgreSQL has as views.
const VIEWS: &[&str] = &[
    "pg_indexes",
    "pg_locks",
    "pg_matviews",
    "pg_prepared_statements",
    "pg_roles",
    "pg_sequences",
    "pg_settings",
    "pg_stat_activity",
    "pg_stat_user_tables",
    "pg_tables",
    "pg_user",
    "pg_views",
];

/// Whether PostgreSQL has this table of `pg_catalog` as a view.
pub fn is_view(name: &str) -> bool {
    VIEWS.contains(&name)
}

/// What `weir_catalog` has beyond the catalog package's tables.
pub fn weir_tables() -> Vec<TableSpec> {
    vec![TableSpec::computed(WEIR_CATALOG, "settings", SETTINGS_COLUMNS, settings)]
}

/// The views.
pub fn tables() -> Vec<TableSpec> {
    let table = |name, columns, rows| TableSpec::computed(SCHEMA, name, columns, rows);
    vec![
        table("pg_database", PG_DATABASE, pg_database),
        table("pg_authid", PG_AUTHID, pg_roles),
        table("pg_roles", PG_AUTHID, pg_roles),
        table("pg_user", PG_USER, pg_user),
        table("pg_tables", PG_TABLES, pg_tables),
        table("pg_views", PG_VIEWS, pg_views),
        table("pg_matviews", PG_MATVIEWS, pg_matviews),
        table("pg_indexes", PG_INDEXES, pg_indexes),
        table("pg_settings", PG_SETTINGS, pg_settings),
        table("pg_stat_activity", PG_STAT_ACTIVITY, pg_stat_activity),
        table("pg_stat_user_tables", PG_STAT_USER_TABLES, pg_stat_user_tables),
        table("pg_locks", PG_LOCKS, |_| Vec::new()),
        table("pg_sequences", PG_SEQUENCES, |_| Vec::new()),
        table("pg_prepared_statements", PG_PREPARED_STATEMENTS, |_| Vec::new()),
    ]
}

#[rustfmt::skip]
const PG_DATABASE: Columns = &[
    ("oid", Oid), ("datname", Name), ("datdba", Oid), ("encoding", Int4), ("datlocprovider", Char),
    ("datistemplate", Bool), ("datallowconn", Bool), ("datconnlimit", Int4), ("datfrozenxid", Oid),
    ("datminmxid", Oid), ("dattablespace", Oid), ("datcollate", Text), ("datctype", Text),
    ("daticulocale", Text), ("datcollversion", Text), ("datacl", TextArray),
];

fn pg_database(input: &SystemInput<'_>) -> Vec<Row> {
    // Encoding 6 is UTF8; 1663 is the default tablespace.
    vec![vec![
        DATABASE.into(),
        input.session.database.as_str().into(),
        OWNER.into(),
        Value::Int(6),
        "c".into(),
        false.into(),
        true.into(),
        Value::Int(-1),
        Value::Int(0),
        Value::Int(0),
        Value::Int(1663),
        "C".into(),
        "C.UTF-8".into(),
        Value::Null,
        Value::Null,
        Value::Null,
    ]]
}

#[rustfmt::skip]
const PG_AUTHID: Columns = &[
    ("oid", Oid), ("rolname", Name), ("rolsuper", Bool), ("rolinherit", Bool), ("rolcreaterole", Bool),
    ("rolcreatedb", Bool), ("rolcanlogin", Bool), ("rolreplication", Bool), ("rolconnlimit", Int4),
    ("rolpassword", Text), ("rolvaliduntil", Timestamptz), ("rolbypassrls", Bool), ("rolconfig", TextArray),
];

/// The owner, and whoever asks: without authentication every name is let in.
fn users(input: &SystemInput<'_>) -> Vec<(i64, String)> {
    let mut users = vec![(OWNER, OWNER_NAME.to_owned())];
    if input.session.user != OWNER_NAME && !input.session.user.is_empty() {
        users.push((super::pg_relations::number_of(&input.session.user), input.session.user.clone()));
    }
    users
}

fn pg_roles(input: &SystemInput<'_>) -> Vec<Row> {
    let yes = || Value::Bool(true);
    let row = |(oid, name): (i64, String)| {
        vec![
            oid.into(),
            name.into(),
            yes(),
            yes(),
            yes(),
            yes(),
            yes(),
            yes(),
            Value::Int(-1),
            "********".into(),
            Value::Null,
            yes(),
            Value::Null,
        ]
    };
    users(input).into_iter().map(row).collect()
}

#[rustfmt::skip]
const PG_USER: Columns = &[
    ("usename", Name), ("usesysid", Oid), ("usecreatedb", Bool), ("usesuper", Bool), ("userepl", Bool),
    ("usebypassrls", Bool), ("passwd", Text), ("valuntil", Timestamptz), ("useconfig", TextArray),
];

fn pg_user(input: &SystemInput<'_>) -> Vec<Row> {
    let yes = || Value::Bool(true);
    let row = |(oid, name): (i64, String)| {
        vec![name.into(), oid.into(), yes(), yes(), yes(), yes(), "********".into(), Value::Null, Value::Null]
    };
    users(input).into_iter().map(row).collect()
}

fn of_kind<'a>(all: &'a [PgRelation], kind: &'a str) -> impl Iterator<Item = &'a PgRelation> {
    all.iter().filter(move |r| r.kind == kind)
}

#[rustfmt::skip]
const PG_TABLES: Columns = &[
    ("schemaname", Name), ("tablename", Name), ("tableowner", Name), ("tablespace", Name),
    ("hasindexes", Bool), ("hasrules", Bool), ("hastriggers", Bool), ("rowsecurity", Bool),
];

fn pg_tables(input: &SystemInput<'_>) -> Vec<Row> {
    let mut all = super::pg_relations::system_relations(&super::system::SYSTEM_TABLES);
    all.extend(relations(input.catalog));
    let indexes = indexes(input.catalog);
    let row = |r: &PgRelation| {
        let indexed = indexes.iter().any(|i| i64::from(i.relation.id.0) == r.oid);
        vec![
            r.schema.as_str().into(),
            r.name.as_str().into(),
            OWNER_NAME.into(),
            Value::Null,
            indexed.into(),
            false.into(),
            false.into(),
            false.into(),
        ]
    };
    of_kind(&all, "r").map(row).collect()
}

const PG_VIEWS: Columns =
    &[("schemaname", Name), ("viewname", Name), ("viewowner", Name), ("definition", Text)];

fn pg_views(input: &SystemInput<'_>) -> Vec<Row> {
    let row = |r: &PgRelation| {
        let query = match &r.object.as_ref()?.body {
            ObjectBody::View(view) => view.query.as_str(),
            _ => return None,
        };
        Some(vec![r.schema.as_str().into(), r.name.as_str().into(), OWNER_NAME.into(), query.into()])
    };
    of_kind(&relations(input.catalog), "v").filter_map(row).collect()
}

#[rustfmt::skip]
const PG_MATVIEWS: Columns = &[
    ("schemaname", Name), ("matviewname", Name), ("matviewowner", Name), ("tablespace", Name),
    ("hasindexes", Bool), ("ispopulated", Bool), ("definition", Text),
];

fn pg_matviews(input: &SystemInput<'_>) -> Vec<Row> {
    let indexes = indexes(input.catalog);
    let row = |r: &PgRelation| {
        let object = r.object.as_ref()?;
        let ObjectBody::MaterializedView(view) = &object.body else { return None };
        Some(vec![
            r.schema.as_str().into(),
            r.name.as_str().into(),
            OWNER_NAME.into(),
            Value::Null,
            indexes.iter().any(|i| i.relation.id == object.id).into(),
            (object.state == ObjectState::Created).into(),
            view.query.as_str().into(),
        ])
    };
    of_kind(&relations(input.catalog), "m").filter_map(row).collect()
}

#[rustfmt::skip]
const PG_INDEXES: Columns = &[
    ("schemaname", Name), ("tablename", Name), ("indexname", Name), ("tablespace", Name), ("indexdef", Text),
];

fn pg_indexes(input: &SystemInput<'_>) -> Vec<Row> {
    let row = |index: super::pg_relations::PgIndex| {
        vec![
            index.schema.as_str().into(),
            index.relation.name.name.as_str().into(),
            index.name.as_str().into(),
            Value::Null,
            index.definition().into(),
        ]
    };
    indexes(input.catalog).into_iter().map(row).collect()
}

#[rustfmt::skip]
const PG_SETTINGS: Columns = &[
    ("name", Text), ("setting", Text), ("unit", Text), ("category", Text), ("short_desc", Text),
    ("extra_desc", Text), ("context", Text), ("vartype", Text), ("source", Text), ("min_val", Text),
    ("max_val", Text), ("enumvals", TextArray), ("boot_val", Text), ("reset_val", Text),
    ("sourcefile", Text), ("sourceline", Int4), ("pending_restart", Bool),
];

/// The value of a setting for whoever asks: the session's, else the database's, else the server's.
pub fn setting_value(input: &SystemInput<'_>, spec: &crate::config::SettingSpec) -> String {
    let session = input.session.settings.get(spec.name);
    let database = input.catalog.settings.get(spec.name);
    session.or(database).map_or_else(|| input.config.value(spec).to_owned(), Clone::clone)
}

fn pg_settings(input: &SystemInput<'_>) -> Vec<Row> {
    let row = |spec: &crate::config::SettingSpec| {
        let context = match spec.scope {
            Scope::Server => "postmaster",
            Scope::Database => "sighup",
            Scope::Session => "user",
            Scope::Internal => "internal",
        };
        let (vartype, bounds, words) = match spec.kind {
            Kind::Bool => ("bool", None, None),
            Kind::Integer(least, most) => ("integer", Some((least.to_string(), most.to_string())), None),
            Kind::Choice(words) => ("enum", None, Some(words.iter().map(|w| (*w).to_owned()).collect())),
            _ => ("string", None, None),
        };
        let (least, most) = bounds.unzip();
        vec![
            spec.name.into(),
            setting_value(input, spec).into(),
            spec.unit().into(),
            "Weir".into(),
            spec.help.into(),
            Value::Null,
            context.into(),
            vartype.into(),
            if input.session.settings.contains_key(spec.name) { "session" } else { "default" }.into(),
            least.into(),
            most.into(),
            words.map_or(Value::Null, Value::Texts),
            spec.default.into(),
            input.config.value(spec).into(),
            Value::Null,
            Value::Null,
            false.into(),
        ]
    };
    SETTINGS.iter().map(row).collect()
}

#[rustfmt::skip]
const SETTINGS_COLUMNS: Columns = &[
    ("name", Text), ("setting", Text), ("default", Text), ("scope", Text), ("description", Text),
];

fn settings(input: &SystemInput<'_>) -> Vec<Row> {
    let row = |spec: &crate::config::SettingSpec| {
        let scope = match spec.scope {
            Scope::Server => "server",
            Scope::Database => "database",
            Scope::Session => "session",
            Scope::Internal => "internal",
        };
        vec![
            spec.name.into(),
            setting_value(input, spec).into(),
            spec.default.into(),
            scope.into(),
            spec.help.into(),
        ]
    };
    SETTINGS.iter().map(row).collect()
}

#[rustfmt::skip]
const PG_STAT_ACTIVITY: Columns = &[
    ("datid", Oid), ("datname", Name), ("pid", Int4), ("leader_pid", Int4), ("usesysid", Oid),
    ("usename", Name), ("application_name", Text), ("client_addr", Text), ("client_hostname", Text),
    ("client_port", Int4), ("backend_start", Timestamptz), ("xact_start", Timestamptz),
    ("query_start", Timestamptz), ("state_change", Timestamptz), ("wait_event_type", Text),
    ("wait_event", Text), ("state", Text), ("backend_xid", Oid), ("backend_xmin", Oid), ("query_id", Int8),
    ("query", Text), ("backend_type", Text),
];

fn pg_stat_activity(input: &SystemInput<'_>) -> Vec<Row> {
    let row = |session: &weir_catalog::system::facts::SessionFact| {
        vec![
            DATABASE.into(),
            input.session.database.as_str().into(),
            Value::Int(i64::from(session.pid)),
            Value::Null,
            OWNER.into(),
            session.user.as_str().into(),
            session.application_name.as_str().into(),
            session.client.clone().into(),
            Value::Null,
            Value::Null,
            Value::Timestamp(session.started_at_us),
            Value::Null,
            Value::Null,
            Value::Null,
            Value::Null,
            Value::Null,
            session.state.as_str().into(),
            Value::Null,
            Value::Null,
            Value::Null,
            session.query.as_str().into(),
            "client backend".into(),
        ]
    };
    input.facts.sessions.iter().map(row).collect()
}

#[rustfmt::skip]
const PG_STAT_USER_TABLES: Columns = &[
    ("relid", Oid), ("schemaname", Name), ("relname", Name), ("seq_scan", Int8), ("seq_tup_read", Int8),
    ("idx_scan", Int8), ("n_tup_ins", Int8), ("n_tup_upd", Int8), ("n_tup_del", Int8), ("n_live_tup", Int8),
    ("n_dead_tup", Int8),
];

fn pg_stat_user_tables(input: &SystemInput<'_>) -> Vec<Row> {
    let all = relations(input.catalog);
    let stored = all.iter().filter(|r| matches!(r.kind, "r" | "m"));
    stored
        .map(|r| {
            let mut row = vec![r.oid.into(), r.schema.as_str().into(), r.name.as_str().into()];
            row.resize(PG_STAT_USER_TABLES.len(), Value::Null);
            row
        })
        .collect()
}

#[rustfmt::skip]
const PG_LOCKS: Columns = &[
    ("locktype", Text), ("database", Oid), ("relation", Oid), ("transactionid", Oid), ("pid", Int4),
    ("mode", Text), ("granted", Bool),
];

#[rustfmt::skip]
const PG_SEQUENCES: Columns = &[
    ("schemaname", Name), ("sequencename", Name), ("sequenceowner", Name), ("data_type", Text),
    ("start_value", Int8), ("min_value", Int8), ("max_value", Int8), ("increment_by", Int8), ("cycle", Bool),
    ("cache_size", Int8), ("last_value", Int8),
];

#[rustfmt::skip]
const PG_PREPARED_STATEMENTS: Columns = &[
    ("name", Text), ("statement", Text), ("prepare_time", Timestamptz), ("parameter_types", TextArray),
    ("from_sql", Bool),
];
