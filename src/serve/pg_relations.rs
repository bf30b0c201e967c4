//! The catalog's objects as PostgreSQL's catalogs count them: relations, indexes, columns, with
//! numbers that are stable while the object lives.
//!
//! A primary key has an index in PostgreSQL; here it is the table's own order, so its index and
//! its constraint get numbers derived from the table's.

use super::pg_types;
use super::system::TableSpec;
use std::sync::Arc;
use weir_catalog::name::quote_identifier;
use weir_catalog::relation::{Index, RowKey};
use weir_catalog::{CatalogSnapshot, Object, ObjectBody, ObjectState};

/// The owner of everything, in `pg_authid`.
pub const OWNER: i64 = 10;
/// The owner's name.
pub const OWNER_NAME: &str = "root";
/// The database, in `pg_database`.
pub const DATABASE: i64 = 5;

const PG_CATALOG: i64 = 11;
const PUBLIC: i64 = 2200;
const INFORMATION_SCHEMA: i64 = 13_000;
const WEIR_CATALOG: i64 = 13_001;

/// A column of a relation.
#[derive(Clone, Debug)]
pub struct PgColumn {
    /// Its name.
    pub name: String,
    /// The number and modifier of its type.
    pub type_oid: i64,
    /// See `pg_attribute.atttypmod`.
    pub type_modifier: i64,
    /// NOT NULL.
    pub not_null: bool,
    /// The text of DEFAULT.
    pub default: Option<String>,
}

/// What `pg_class` lists.
#[derive(Clone, Debug)]
pub struct PgRelation {
    /// Its number.
    pub oid: i64,
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// `r`, `v`, `m`, `f`, `i`
    pub kind: &'static str,
    /// Its columns.
    pub columns: Vec<PgColumn>,
    /// The object, for what users made.
    pub object: Option<Arc<Object>>,
}

/// What `pg_index` lists.
#[derive(Clone, Debug)]
pub struct PgIndex {
    /// Its number in `pg_class`.
    pub oid: i64,
    /// The number of its constraint, for a primary key.
    pub constraint: Option<i64>,
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// The indexed relation.
    pub relation: Arc<Object>,
    /// Ordinals of the indexed columns, and whether descending.
    pub columns: Vec<(usize, bool)>,
    /// Ordinals of further stored columns.
    pub include: Vec<usize>,
}

/// A stable number for a name that has none.
pub fn number_of(name: &str) -> i64 {
    // FNV-1a, into a range that objects and built-in numbers leave free.
    let hash = name.bytes().fold(0x811c_9dc5u32, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
    0x2000_0000 | i64::from(hash & 0x0fff_ffff)
}

/// The number of a schema.
pub fn schema_oid(schema: &str) -> i64 {
    match schema {
        "pg_catalog" => PG_CATALOG,
        "public" => PUBLIC,
        "information_schema" => INFORMATION_SCHEMA,
        "weir_catalog" => WEIR_CATALOG,
        other => number_of(other),
    }
}

/// Every schema, in order of name.
pub fn schemas(catalog: &CatalogSnapshot) -> Vec<String> {
    let system = ["pg_catalog", "information_schema", "weir_catalog"].map(str::to_owned);
    let mut all: Vec<String> = catalog.schemas.iter().cloned().chain(system).collect();
    all.sort();
    all.dedup();
    all
}

/// The number of a system table; PostgreSQL's own where clients know it by heart.
pub fn system_oid(schema: &str, name: &str) -> i64 {
    match (schema, name) {
        ("pg_catalog", "pg_type") => 1247,
        ("pg_catalog", "pg_attribute") => 1249,
        ("pg_catalog", "pg_proc") => 1255,
        ("pg_catalog", "pg_class") => 1259,
        ("pg_catalog", "pg_authid") => 1260,
        ("pg_catalog", "pg_database") => 1262,
        ("pg_catalog", "pg_am") => 2601,
        ("pg_catalog", "pg_attrdef") => 2604,
        ("pg_catalog", "pg_constraint") => 2606,
        ("pg_catalog", "pg_description") => 2609,
        ("pg_catalog", "pg_index") => 2610,
        ("pg_catalog", "pg_namespace") => 2615,
        ("pg_catalog", "pg_operator") => 2617,
        ("pg_catalog", "pg_rewrite") => 2618,
        ("pg_catalog", "pg_trigger") => 2620,
        ("pg_catalog", "pg_extension") => 3079,
        ("pg_catalog", "pg_collation") => 3456,
        _ => number_of(&format!("{schema}.{name}")),
    }
}

/// The objects that can be seen: those whose creation is acknowledged, and views being filled.
fn objects(catalog: &CatalogSnapshot) -> impl Iterator<Item = &Arc<Object>> {
    catalog.objects().filter(|o| o.state == ObjectState::Created || o.is_stored())
}

/// The relations that users made, without indexes.
pub fn relations(catalog: &CatalogSnapshot) -> Vec<PgRelation> {
    let relation = |object: &Arc<Object>| {
        let kind = match &object.body {
            ObjectBody::Table(_) => "r",
            ObjectBody::MaterializedView(_) => "m",
            ObjectBody::View(_) => "v",
            ObjectBody::Source(_) | ObjectBody::Sink(_) => "f",
            ObjectBody::Index(_) => return None,
        };
        let columns = object.columns().iter().map(|column| {
            let (type_oid, type_modifier) = pg_types::of_column(column);
            PgColumn {
                name: column.name.clone(),
                type_oid,
                type_modifier,
                not_null: !column.nullable && kind == "r",
                default: column.default.clone(),
            }
        });
        Some(PgRelation {
            oid: i64::from(object.id.0),
            schema: object.name.schema.clone(),
            name: object.name.name.clone(),
            kind,
            columns: columns.collect(),
            object: Some(Arc::clone(object)),
        })
    };
    objects(catalog).filter_map(relation).collect()
}

/// The system tables as relations.
pub fn system_relations(tables: &[TableSpec]) -> Vec<PgRelation> {
    let relation = |table: &TableSpec| PgRelation {
        oid: system_oid(table.schema, &table.name),
        schema: table.schema.to_owned(),
        name: table.name.clone(),
        kind: if table.is_view() { "v" } else { "r" },
        columns: table
            .columns()
            .into_iter()
            .map(|(name, type_oid)| PgColumn {
                name,
                type_oid,
                type_modifier: -1,
                not_null: false,
                default: None,
            })
            .collect(),
        object: None,
    };
    tables.iter().map(relation).collect()
}

/// Indexes: those that users made, and primary keys.
pub fn indexes(catalog: &CatalogSnapshot) -> Vec<PgIndex> {
    let mut found = Vec::new();
    for object in objects(catalog) {
        match &object.body {
            ObjectBody::Table(table) => {
                if let RowKey::Columns(key) = &table.key
                    && !key.is_empty()
                {
                    found.push(PgIndex {
                        oid: 0x4000_0000 | i64::from(object.id.0),
                        constraint: Some(0x6000_0000 | i64::from(object.id.0)),
                        schema: object.name.schema.clone(),
                        name: format!("{}_pkey", object.name.name),
                        relation: Arc::clone(object),
                        columns: key.iter().map(|c| (*c, false)).collect(),
                        include: Vec::new(),
                    });
                }
            }
            ObjectBody::Index(Index { relation, columns, include }) => {
                if let Some(relation) = catalog.by_id(*relation) {
                    found.push(PgIndex {
                        oid: i64::from(object.id.0),
                        constraint: None,
                        schema: object.name.schema.clone(),
                        name: object.name.name.clone(),
                        relation: Arc::clone(relation),
                        columns: columns.clone(),
                        include: include.clone(),
                    });
                }
            }
            _ => {}
        }
    }
    found
}

impl PgIndex {
    /// The names of the indexed columns, quoted, with their direction.
    pub fn column_list(&self) -> Vec<String> {
        let name = |(column, descending): &(usize, bool)| {
            let name = quote_identifier(&self.relation.columns()[*column].name);
            if *descending { format!("{name} DESC") } else { name }
        };
        self.columns.iter().map(name).collect()
    }

    /// `CREATE [UNIQUE] INDEX …`, as `pg_get_indexdef` writes it.
    pub fn definition(&self) -> String {
        let unique = if self.constraint.is_some() { "UNIQUE " } else { "" };
        let mut text = format!(
            "CREATE {unique}INDEX {} ON {}.{} USING btree ({})",
            quote_identifier(&self.name),
            quote_identifier(&self.relation.name.schema),
            quote_identifier(&self.relation.name.name),
            self.column_list().join(", ")
        );
        if !self.include.is_empty() {
            let columns = self.relation.columns();
            let names: Vec<_> = self.include.iter().map(|c| quote_identifier(&columns[*c].name)).collect();
            text.push_str(&format!(" INCLUDE ({})", names.join(", ")));
        }
        text
    }

    /// `PRIMARY KEY (…)`.
    pub fn constraint_definition(&self) -> String {
        format!("PRIMARY KEY ({})", self.column_list().join(", "))
    }

    /// All stored columns: ordinals.
    pub fn all_columns(&self) -> Vec<usize> {
        self.columns.iter().map(|(c, _)| *c).chain(self.include.iter().copied()).collect()
    }
}
