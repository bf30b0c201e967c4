//! The tables of `pg_catalog` that list what users made: `pg_class` and its kin.

use super::pg_relations::{
    self, OWNER, PgColumn, PgIndex, PgRelation, indexes, number_of, relations, schema_oid, schemas,
    system_relations,
};
use super::pg_types;
use super::system::{SYSTEM_TABLES, SystemInput, TableSpec};
use weir_catalog::system::ColumnType::{
    Bool, Char, Float8, Int2, Int2Array, Int4, Name, Oid, OidArray, Text, TextArray,
};
use weir_catalog::system::{Columns, Row, Value};
use weir_catalog::{CatalogSnapshot, ObjectBody};

const SCHEMA: &str = "pg_catalog";
/// The access method of relations, in `pg_am`.
const HEAP: i64 = 2;
/// The access method of indexes, in `pg_am`.
const BTREE: i64 = 403;

/// The tables.
pub fn tables() -> Vec<TableSpec> {
    let table = |name, columns, rows| TableSpec::computed(SCHEMA, name, columns, rows);
    vec![
        table("pg_namespace", PG_NAMESPACE, pg_namespace),
        table("pg_class", PG_CLASS, pg_class),
        table("pg_attribute", PG_ATTRIBUTE, pg_attribute),
        table("pg_attrdef", PG_ATTRDEF, pg_attrdef),
        table("pg_index", PG_INDEX, pg_index),
        table("pg_constraint", PG_CONSTRAINT, pg_constraint),
        table("pg_description", PG_DESCRIPTION, pg_description),
        table("pg_foreign_table", PG_FOREIGN_TABLE, pg_foreign_table),
        table("pg_foreign_server", PG_FOREIGN_SERVER, pg_foreign_server),
        table("pg_foreign_data_wrapper", PG_FOREIGN_DATA_WRAPPER, pg_foreign_data_wrapper),
        table("pg_parameter_acl", PG_PARAMETER_ACL, |_| Vec::new()),
    ]
}

/// Every relation with columns, users' and the system's.
fn all_relations(catalog: &CatalogSnapshot) -> Vec<PgRelation> {
    let mut all = system_relations(&SYSTEM_TABLES);
    all.extend(relations(catalog));
    all
}

const PG_NAMESPACE: Columns = &[("oid", Oid), ("nspname", Name), ("nspowner", Oid), ("nspacl", TextArray)];

fn pg_namespace(input: &SystemInput<'_>) -> Vec<Row> {
    let row = |schema: String| vec![schema_oid(&schema).into(), schema.into(), OWNER.into(), Value::Null];
    schemas(input.catalog).into_iter().map(row).collect()
}

#[rustfmt::skip]
const PG_CLASS: Columns = &[
    ("oid", Oid), ("relname", Name), ("relnamespace", Oid), ("reltype", Oid), ("reloftype", Oid),
    ("relowner", Oid), ("relam", Oid), ("relfilenode", Oid), ("reltablespace", Oid), ("relpages", Int4),
    ("reltuples", Float8), ("relallvisible", Int4), ("reltoastrelid", Oid), ("relhasindex", Bool),
    ("relisshared", Bool), ("relpersistence", Char), ("relkind", Char), ("relnatts", Int2),
    ("relchecks", Int2), ("relhasrules", Bool), ("relhastriggers", Bool), ("relhassubclass", Bool),
    ("relrowsecurity", Bool), ("relforcerowsecurity", Bool), ("relispopulated", Bool),
    ("relreplident", Char), ("relispartition", Bool), ("relrewrite", Oid), ("relfrozenxid", Oid),
    ("relminmxid", Oid), ("relacl", TextArray), ("reloptions", TextArray), ("relpartbound", Text),
];

fn pg_class(input: &SystemInput<'_>) -> Vec<Row> {
    let indexes = indexes(input.catalog);
    let mut rows: Vec<Row> = all_relations(input.catalog)
        .iter()
        .map(|r| {
            let indexed = r.object.as_ref().is_some_and(|o| indexes.iter().any(|i| i.relation.id == o.id));
            let method = if matches!(r.kind, "r" | "m") { HEAP } else { 0 };
            class_row((r.oid, &r.name, &r.schema), r.kind, method, r.columns.len(), indexed)
        })
        .collect();
    rows.extend(
        indexes
            .iter()
            .map(|i| class_row((i.oid, &i.name, &i.schema), "i", BTREE, i.all_columns().len(), false)),
    );
    rows
}

fn class_row(
    (oid, name, schema): (i64, &str, &str),
    kind: &str,
    method: i64,
    columns: usize,
    indexed: bool,
) -> Row {
    let zero = || Value::Int(0);
    let no = || Value::Bool(false);
    vec![
        oid.into(),
        name.into(),
        schema_oid(schema).into(),
        zero(),
        zero(),
        OWNER.into(),
        method.into(),
        oid.into(),
        zero(),
        zero(),
        Value::Float(-1.0),
        zero(),
        zero(),
        indexed.into(),
        no(),
        "p".into(),
        kind.into(),
        columns.into(),
        zero(),
        no(),
        no(),
        no(),
        no(),
        no(),
        true.into(),
        if kind == "i" { "n" } else { "d" }.into(),
        no(),
        zero(),
        zero(),
        zero(),
        Value::Null,
        Value::Null,
        Value::Null,
    ]
}

#[rustfmt::skip]
const PG_ATTRIBUTE: Columns = &[
    ("attrelid", Oid), ("attname", Name), ("atttypid", Oid), ("attstattarget", Int4), ("attlen", Int2),
    ("attnum", Int2), ("attndims", Int4), ("attcacheoff", Int4), ("atttypmod", Int4), ("attbyval", Bool),
    ("attalign", Char), ("attstorage", Char), ("attcompression", Char), ("attnotnull", Bool),
    ("atthasdef", Bool), ("atthasmissing", Bool), ("attidentity", Char), ("attgenerated", Char),
    ("attisdropped", Bool), ("attislocal", Bool), ("attinhcount", Int4), ("attcollation", Oid),
    ("attacl", TextArray), ("attoptions", TextArray), ("attfdwoptions", TextArray), ("attmissingval", Text),
];

fn pg_attribute(input: &SystemInput<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    let relations = all_relations(input.catalog);
    for relation in &relations {
        for (number, column) in relation.columns.iter().enumerate() {
            rows.push(attribute_row(relation.oid, number + 1, column));
        }
    }
    for index in indexes(input.catalog) {
        let oid = i64::from(index.relation.id.0);
        let Some(relation) = relations.iter().find(|r| r.oid == oid) else { continue };
        for (number, column) in index.all_columns().into_iter().enumerate() {
            let column = PgColumn { not_null: false, default: None, ..relation.columns[column].clone() };
            rows.push(attribute_row(index.oid, number + 1, &column));
        }
    }
    rows
}

fn attribute_row(relation: i64, number: usize, column: &PgColumn) -> Row {
    let element = pg_types::by_oid(column.type_oid);
    let array = element.is_none();
    let collated = matches!(element.map(|t| t.name), Some("text" | "varchar" | "bpchar" | "name"));
    vec![
        relation.into(),
        column.name.as_str().into(),
        column.type_oid.into(),
        Value::Int(-1),
        element.map_or(-1, |t| t.len).into(),
        number.into(),
        Value::Int(i64::from(array)),
        Value::Int(-1),
        column.type_modifier.into(),
        element.is_some_and(|t| (1..=8).contains(&t.len)).into(),
        element.map_or("i", |t| t.align).into(),
        element.map_or("x", |t| t.storage).into(),
        "".into(),
        column.not_null.into(),
        column.default.is_some().into(),
        false.into(),
        "".into(),
        "".into(),
        false.into(),
        true.into(),
        Value::Int(0),
        if collated { pg_types::DEFAULT_COLLATION } else { 0 }.into(),
        Value::Null,
        Value::Null,
        Value::Null,
        Value::Null,
    ]
}

const PG_ATTRDEF: Columns = &[("oid", Oid), ("adrelid", Oid), ("adnum", Int2), ("adbin", Text)];

fn pg_attrdef(input: &SystemInput<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    for relation in relations(input.catalog) {
        for (number, column) in relation.columns.iter().enumerate() {
            if let Some(default) = &column.default {
                let oid = number_of(&format!("default {} {number}", relation.oid));
                rows.push(vec![
                    oid.into(),
                    relation.oid.into(),
                    (number + 1).into(),
                    default.as_str().into(),
                ]);
            }
        }
    }
    rows
}

#[rustfmt::skip]
const PG_INDEX: Columns = &[
    ("indexrelid", Oid), ("indrelid", Oid), ("indnatts", Int2), ("indnkeyatts", Int2), ("indisunique", Bool),
    ("indnullsnotdistinct", Bool), ("indisprimary", Bool), ("indisexclusion", Bool), ("indimmediate", Bool),
    ("indisclustered", Bool), ("indisvalid", Bool), ("indcheckxmin", Bool), ("indisready", Bool),
    ("indislive", Bool), ("indisreplident", Bool), ("indkey", Int2Array), ("indcollation", OidArray),
    ("indclass", OidArray), ("indoption", Int2Array), ("indexprs", Text), ("indpred", Text),
];

fn pg_index(input: &SystemInput<'_>) -> Vec<Row> {
    let row = |index: PgIndex| {
        let columns = index.all_columns();
        let primary = index.constraint.is_some();
        vec![
            index.oid.into(),
            index.relation.id.0.into(),
            columns.len().into(),
            index.columns.len().into(),
            primary.into(),
            false.into(),
            primary.into(),
            false.into(),
            true.into(),
            false.into(),
            true.into(),
            false.into(),
            true.into(),
            true.into(),
            false.into(),
            Value::Ints(columns.iter().map(|c| *c as i64 + 1).collect()),
            Value::Ints(vec![0; index.columns.len()]),
            Value::Ints(vec![0; index.columns.len()]),
            // Bit 0: descending; bit 1: NULLS FIRST, which goes with it.
            Value::Ints(index.columns.iter().map(|(_, desc)| if *desc { 3 } else { 0 }).collect()),
            Value::Null,
            Value::Null,
        ]
    };
    indexes(input.catalog).into_iter().map(row).collect()
}

#[rustfmt::skip]
const PG_CONSTRAINT: Columns = &[
    ("oid", Oid), ("conname", Name), ("connamespace", Oid), ("contype", Char), ("condeferrable", Bool),
    ("condeferred", Bool), ("convalidated", Bool), ("conrelid", Oid), ("contypid", Oid), ("conindid", Oid),
    ("conparentid", Oid), ("confrelid", Oid), ("confupdtype", Char), ("confdeltype", Char),
    ("confmatchtype", Char), ("conislocal", Bool), ("coninhcount", Int4), ("connoinherit", Bool),
    ("conkey", Int2Array), ("confkey", Int2Array), ("conpfeqop", OidArray), ("conppeqop", OidArray),
    ("conffeqop", OidArray), ("confdelsetcols", Int2Array), ("conexclop", OidArray), ("conbin", Text),
];

fn pg_constraint(input: &SystemInput<'_>) -> Vec<Row> {
    let row = |index: &PgIndex| {
        let oid = index.constraint?;
        let mut row = vec![
            oid.into(),
            index.name.as_str().into(),
            schema_oid(&index.schema).into(),
            "p".into(),
            false.into(),
            false.into(),
            true.into(),
            index.relation.id.0.into(),
            Value::Int(0),
            index.oid.into(),
            Value::Int(0),
            Value::Int(0),
            " ".into(),
            " ".into(),
            " ".into(),
            true.into(),
            Value::Int(0),
            true.into(),
            Value::Ints(index.columns.iter().map(|(c, _)| *c as i64 + 1).collect()),
        ];
        row.resize(PG_CONSTRAINT.len(), Value::Null);
        Some(row)
    };
    indexes(input.catalog).iter().filter_map(row).collect()
}

const PG_DESCRIPTION: Columns =
    &[("objoid", Oid), ("classoid", Oid), ("objsubid", Int4), ("description", Text)];

fn pg_description(input: &SystemInput<'_>) -> Vec<Row> {
    let class = pg_relations::system_oid(SCHEMA, "pg_class");
    let row = |object: &std::sync::Arc<weir_catalog::Object>| {
        let comment = object.comment.as_deref()?;
        Some(vec![object.id.0.into(), class.into(), Value::Int(0), comment.into()])
    };
    input.catalog.objects().filter_map(row).collect()
}

const PG_FOREIGN_TABLE: Columns = &[("ftrelid", Oid), ("ftserver", Oid), ("ftoptions", TextArray)];

/// Sources and sinks: a foreign table each, on a server named like the connector.
fn connectors(catalog: &CatalogSnapshot) -> Vec<(i64, String)> {
    let connector = |object: &std::sync::Arc<weir_catalog::Object>| match &object.body {
        ObjectBody::Source(source) => Some((i64::from(object.id.0), source.connector.clone())),
        ObjectBody::Sink(sink) => Some((i64::from(object.id.0), sink.connector.clone())),
        _ => None,
    };
    catalog.objects().filter_map(connector).collect()
}

fn pg_foreign_table(input: &SystemInput<'_>) -> Vec<Row> {
    let row = |(oid, connector): (i64, String)| vec![oid.into(), number_of(&connector).into(), Value::Null];
    connectors(input.catalog).into_iter().map(row).collect()
}

#[rustfmt::skip]
const PG_FOREIGN_SERVER: Columns = &[
    ("oid", Oid), ("srvname", Name), ("srvowner", Oid), ("srvfdw", Oid), ("srvtype", Text),
    ("srvversion", Text), ("srvacl", TextArray), ("srvoptions", TextArray),
];

fn pg_foreign_server(input: &SystemInput<'_>) -> Vec<Row> {
    let mut names: Vec<String> = connectors(input.catalog).into_iter().map(|(_, name)| name).collect();
    names.sort();
    names.dedup();
    let row = |name: String| {
        let mut row = vec![number_of(&name).into(), name.into(), OWNER.into(), CONNECTOR.into()];
        row.resize(PG_FOREIGN_SERVER.len(), Value::Null);
        row
    };
    names.into_iter().map(row).collect()
}

/// Every connector's foreign-data wrapper.
const CONNECTOR: i64 = 16;

#[rustfmt::skip]
const PG_FOREIGN_DATA_WRAPPER: Columns = &[
    ("oid", Oid), ("fdwname", Name), ("fdwowner", Oid), ("fdwhandler", Oid), ("fdwvalidator", Oid),
    ("fdwacl", TextArray), ("fdwoptions", TextArray),
];

fn pg_foreign_data_wrapper(_: &SystemInput<'_>) -> Vec<Row> {
    let mut row = vec![CONNECTOR.into(), "connector".into(), OWNER.into(), Value::Int(0), Value::Int(0)];
    row.resize(PG_FOREIGN_DATA_WRAPPER.len(), Value::Null);
    vec![row]
}

const PG_PARAMETER_ACL: Columns = &[("oid", Oid), ("parname", Text), ("paracl", TextArray)];
