//! The SQL standard's own catalog: tables, columns, schemata, views, keys.

use super::pg_relations::{OWNER_NAME, PgIndex, PgRelation, indexes, relations, schemas, system_relations};
use super::pg_types;
use super::system::{SYSTEM_TABLES, SystemInput, TableSpec};
use weir_catalog::system::ColumnType::{Int4, Name, Text};
use weir_catalog::system::{Columns, Row, Value};
use weir_catalog::{ObjectBody, ObjectKind};

const SCHEMA: &str = "information_schema";

/// The tables.
pub fn tables() -> Vec<TableSpec> {
    let table = |name, columns, rows| TableSpec::computed(SCHEMA, name, columns, rows);
    vec![
        table("schemata", SCHEMATA, schemata),
        table("tables", TABLES, tables_rows),
        table("columns", COLUMNS, columns),
        table("views", VIEWS, views),
        table("table_constraints", TABLE_CONSTRAINTS, table_constraints),
        table("key_column_usage", KEY_COLUMN_USAGE, key_column_usage),
        table("constraint_column_usage", CONSTRAINT_COLUMN_USAGE, |_| Vec::new()),
        table("referential_constraints", REFERENTIAL_CONSTRAINTS, |_| Vec::new()),
        table("routines", ROUTINES, |_| Vec::new()),
        table("sequences", SEQUENCES, |_| Vec::new()),
    ]
}

fn all_relations(input: &SystemInput<'_>) -> Vec<PgRelation> {
    let mut all = system_relations(&SYSTEM_TABLES);
    all.extend(relations(input.catalog));
    all
}

fn database(input: &SystemInput<'_>) -> Value {
    input.session.database.as_str().into()
}

#[rustfmt::skip]
const SCHEMATA: Columns = &[
    ("catalog_name", Name), ("schema_name", Name), ("schema_owner", Name),
    ("default_character_set_catalog", Name), ("default_character_set_schema", Name),
    ("default_character_set_name", Name), ("sql_path", Text),
];

fn schemata(input: &SystemInput<'_>) -> Vec<Row> {
    let row = |schema: String| {
        let mut row = vec![database(input), schema.into(), OWNER_NAME.into()];
        row.resize(SCHEMATA.len(), Value::Null);
        row
    };
    schemas(input.catalog).into_iter().map(row).collect()
}

#[rustfmt::skip]
const TABLES: Columns = &[
    ("table_catalog", Name), ("table_schema", Name), ("table_name", Name), ("table_type", Text),
    ("self_referencing_column_name", Name), ("reference_generation", Text),
    ("user_defined_type_catalog", Name), ("user_defined_type_schema", Name),
    ("user_defined_type_name", Name), ("is_insertable_into", Text), ("is_typed", Text),
    ("commit_action", Text),
];

/// PostgreSQL leaves materialized views out; Weir's users look for them here.
fn table_type(relation: &PgRelation) -> &'static str {
    match relation.kind {
        "r" => "BASE TABLE",
        "v" => "VIEW",
        "m" => "MATERIALIZED VIEW",
        _ => "FOREIGN",
    }
}

fn yes_or_no(yes: bool) -> Value {
    if yes { "YES" } else { "NO" }.into()
}

fn tables_rows(input: &SystemInput<'_>) -> Vec<Row> {
    let row = |r: &PgRelation| {
        let insertable = r.object.as_ref().is_some_and(|o| o.kind() == ObjectKind::Table);
        let mut row = vec![database(input), r.schema.as_str().into(), r.name.as_str().into()];
        row.push(table_type(r).into());
        row.resize(9, Value::Null);
        row.extend([yes_or_no(insertable), "NO".into(), Value::Null]);
        row
    };
    all_relations(input).iter().map(row).collect()
}

#[rustfmt::skip]
const COLUMNS: Columns = &[
    ("table_catalog", Name), ("table_schema", Name), ("table_name", Name), ("column_name", Name),
    ("ordinal_position", Int4), ("column_default", Text), ("is_nullable", Text), ("data_type", Text),
    ("character_maximum_length", Int4), ("character_octet_length", Int4), ("numeric_precision", Int4),
    ("numeric_precision_radix", Int4), ("numeric_scale", Int4), ("datetime_precision", Int4),
    ("interval_type", Text), ("interval_precision", Int4), ("collation_name", Name), ("udt_catalog", Name),
    ("udt_schema", Name), ("udt_name", Name), ("is_identity", Text), ("is_generated", Text),
    ("generation_expression", Text), ("is_updatable", Text),
];

fn columns(input: &SystemInput<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    for relation in all_relations(input) {
        let updatable = relation.object.as_ref().is_some_and(|o| o.kind() == ObjectKind::Table);
        for (number, column) in relation.columns.iter().enumerate() {
            let mut row = vec![
                database(input),
                relation.schema.as_str().into(),
                relation.name.as_str().into(),
                column.name.as_str().into(),
                (number + 1).into(),
                column.default.clone().into(),
                yes_or_no(!column.not_null),
            ];
            row.extend(type_columns(column.type_oid, column.type_modifier));
            row.extend([
                Value::Null,
                database(input),
                "pg_catalog".into(),
                type_name(column.type_oid).into(),
                "NO".into(),
                "NEVER".into(),
                Value::Null,
                yes_or_no(updatable),
            ]);
            rows.push(row);
        }
    }
    rows
}

fn type_name(oid: i64) -> String {
    match pg_types::by_oid(oid) {
        Some(t) => t.name.to_owned(),
        None => pg_types::TYPES
            .iter()
            .find(|t| t.array == oid)
            .map_or("text".to_owned(), |t| format!("_{}", t.name)),
    }
}

/// From `data_type` to `interval_precision`.
fn type_columns(oid: i64, modifier: i64) -> Vec<Value> {
    let known = pg_types::by_oid(oid);
    let name = known.map_or("", |t| t.name);
    let data_type = known.map_or("ARRAY", |t| t.sql);
    let int = |n: i64| Value::Int(n);
    let length =
        if modifier >= 4 && matches!(name, "varchar" | "bpchar") { int(modifier - 4) } else { Value::Null };
    let (precision, radix, scale) = match name {
        "int2" => (int(16), int(2), int(0)),
        "int4" => (int(32), int(2), int(0)),
        "int8" => (int(64), int(2), int(0)),
        "float4" => (int(24), int(2), Value::Null),
        "float8" => (int(53), int(2), Value::Null),
        "numeric" if modifier >= 4 => (int((modifier - 4) >> 16), int(10), int((modifier - 4) & 0xffff)),
        "numeric" => (Value::Null, int(10), Value::Null),
        _ => (Value::Null, Value::Null, Value::Null),
    };
    let datetime = match name {
        "timestamp" | "timestamptz" | "time" | "interval" => int(6),
        "date" => int(0),
        _ => Value::Null,
    };
    vec![
        data_type.into(),
        length.clone(),
        length,
        precision,
        radix,
        scale,
        datetime,
        Value::Null,
        Value::Null,
    ]
}

#[rustfmt::skip]
const VIEWS: Columns = &[
    ("table_catalog", Name), ("table_schema", Name), ("table_name", Name), ("view_definition", Text),
    ("check_option", Text), ("is_updatable", Text), ("is_insertable_into", Text),
];

fn views(input: &SystemInput<'_>) -> Vec<Row> {
    let row = |r: &PgRelation| {
        let ObjectBody::View(view) = &r.object.as_ref()?.body else { return None };
        Some(vec![
            database(input),
            r.schema.as_str().into(),
            r.name.as_str().into(),
            view.query.as_str().into(),
            "NONE".into(),
            "NO".into(),
            "NO".into(),
        ])
    };
    relations(input.catalog).iter().filter_map(row).collect()
}

fn primary_keys(input: &SystemInput<'_>) -> Vec<PgIndex> {
    indexes(input.catalog).into_iter().filter(|i| i.constraint.is_some()).collect()
}

#[rustfmt::skip]
const TABLE_CONSTRAINTS: Columns = &[
    ("constraint_catalog", Name), ("constraint_schema", Name), ("constraint_name", Name),
    ("table_catalog", Name), ("table_schema", Name), ("table_name", Name), ("constraint_type", Text),
    ("is_deferrable", Text), ("initially_deferred", Text), ("enforced", Text),
];

fn table_constraints(input: &SystemInput<'_>) -> Vec<Row> {
    let row = |index: PgIndex| {
        vec![
            database(input),
            index.schema.as_str().into(),
            index.name.as_str().into(),
            database(input),
            index.schema.as_str().into(),
            index.relation.name.name.as_str().into(),
            "PRIMARY KEY".into(),
            "NO".into(),
            "NO".into(),
            "YES".into(),
        ]
    };
    primary_keys(input).into_iter().map(row).collect()
}

#[rustfmt::skip]
const KEY_COLUMN_USAGE: Columns = &[
    ("constraint_catalog", Name), ("constraint_schema", Name), ("constraint_name", Name),
    ("table_catalog", Name), ("table_schema", Name), ("table_name", Name), ("column_name", Name),
    ("ordinal_position", Int4), ("position_in_unique_constraint", Int4),
];

fn key_column_usage(input: &SystemInput<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    for index in primary_keys(input) {
        for (position, (column, _)) in index.columns.iter().enumerate() {
            rows.push(vec![
                database(input),
                index.schema.as_str().into(),
                index.name.as_str().into(),
                database(input),
                index.schema.as_str().into(),
                index.relation.name.name.as_str().into(),
                index.relation.columns()[*column].name.as_str().into(),
                (position + 1).into(),
                Value::Null,
            ]);
        }
    }
    rows
}

#[rustfmt::skip]
const CONSTRAINT_COLUMN_USAGE: Columns = &[
    ("table_catalog", Name), ("table_schema", Name), ("table_name", Name), ("column_name", Name),
    ("constraint_catalog", Name), ("constraint_schema", Name), ("constraint_name", Name),
];

#[rustfmt::skip]
const REFERENTIAL_CONSTRAINTS: Columns = &[
    ("constraint_catalog", Name), ("constraint_schema", Name), ("constraint_name", Name),
    ("unique_constraint_catalog", Name), ("unique_constraint_schema", Name),
    ("unique_constraint_name", Name), ("match_option", Text), ("update_rule", Text), ("delete_rule", Text),
];

#[rustfmt::skip]
const ROUTINES: Columns = &[
    ("specific_catalog", Name), ("specific_schema", Name), ("specific_name", Name),
    ("routine_catalog", Name), ("routine_schema", Name), ("routine_name", Name), ("routine_type", Text),
    ("data_type", Text), ("routine_definition", Text),
];

#[rustfmt::skip]
const SEQUENCES: Columns = &[
    ("sequence_catalog", Name), ("sequence_schema", Name), ("sequence_name", Name), ("data_type", Text),
    ("start_value", Text), ("minimum_value", Text), ("maximum_value", Text), ("increment", Text),
    ("cycle_option", Text),
];
