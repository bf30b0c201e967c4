//! System tables that never change: PostgreSQL's own rows of types, functions, operators and so
//! on, and the columns of tables that have no rows here.

use super::system::{RowSource, TableSpec};
use arrow::array::{ArrayRef, AsArray, RecordBatch, new_empty_array, new_null_array};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use datafusion_pg_catalog::pg_catalog::{ArrowTable, PgCatalogStaticTables};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// 32-bit columns that are numbers; every other one is the number of an object.
const NUMBERS: &[&str] = &[
    "typtypmod",
    "typndims",
    "rolconnlimit",
    "collencoding",
    "conforencoding",
    "contoencoding",
    "aggtransspace",
    "aggmtransspace",
];

/// Columns of arrays, in tables without rows; the number or text of their elements. They come as text.
const ARRAYS: &[(&str, DataType)] = &[
    ("polroles", DataType::Int64),
    ("prattrs", DataType::Int64),
    ("stxkeys", DataType::Int64),
    ("stxkind", DataType::Utf8),
];

/// Text that is an array in PostgreSQL.
const TEXT_ARRAYS: &[&str] = &[
    "proconfig",
    "spcoptions",
    "setconfig",
    "extconfig",
    "extcondition",
    "evttags",
    "fdwoptions",
    "umoptions",
];

/// The tables. What `datafusion-pg-catalog` can't give is missing.
pub fn tables() -> Vec<TableSpec> {
    let fixed = match PgCatalogStaticTables::try_new() {
        Ok(fixed) => fixed,
        Err(error) => {
            tracing::error!(%error, "PostgreSQL's fixed catalogs could not be read");
            return Vec::new();
        }
    };
    let with_rows = [
        ("pg_aggregate", &fixed.pg_aggregate),
        ("pg_am", &fixed.pg_am),
        ("pg_amop", &fixed.pg_amop),
        ("pg_amproc", &fixed.pg_amproc),
        ("pg_cast", &fixed.pg_cast),
        ("pg_collation", &fixed.pg_collation),
        ("pg_conversion", &fixed.pg_conversion),
        ("pg_language", &fixed.pg_language),
        ("pg_opclass", &fixed.pg_opclass),
        ("pg_operator", &fixed.pg_operator),
        ("pg_opfamily", &fixed.pg_opfamily),
        ("pg_proc", &fixed.pg_proc),
        ("pg_range", &fixed.pg_range),
        ("pg_tablespace", &fixed.pg_tablespace),
        ("pg_type", &fixed.pg_type),
    ];
    let without_rows = [
        ("pg_auth_members", &fixed.pg_auth_members),
        ("pg_db_role_setting", &fixed.pg_db_role_setting),
        ("pg_default_acl", &fixed.pg_default_acl),
        ("pg_depend", &fixed.pg_depend),
        ("pg_enum", &fixed.pg_enum),
        ("pg_event_trigger", &fixed.pg_event_trigger),
        ("pg_extension", &fixed.pg_extension),
        ("pg_inherits", &fixed.pg_inherits),
        ("pg_init_privs", &fixed.pg_init_privs),
        ("pg_largeobject", &fixed.pg_largeobject),
        ("pg_largeobject_metadata", &fixed.pg_largeobject_metadata),
        ("pg_partitioned_table", &fixed.pg_partitioned_table),
        ("pg_policy", &fixed.pg_policy),
        ("pg_publication", &fixed.pg_publication),
        ("pg_publication_namespace", &fixed.pg_publication_namespace),
        ("pg_publication_rel", &fixed.pg_publication_rel),
        ("pg_replication_origin", &fixed.pg_replication_origin),
        ("pg_rewrite", &fixed.pg_rewrite),
        ("pg_seclabel", &fixed.pg_seclabel),
        ("pg_sequence", &fixed.pg_sequence),
        ("pg_shdepend", &fixed.pg_shdepend),
        ("pg_shdescription", &fixed.pg_shdescription),
        ("pg_shseclabel", &fixed.pg_shseclabel),
        ("pg_statistic", &fixed.pg_statistic),
        ("pg_statistic_ext", &fixed.pg_statistic_ext),
        ("pg_statistic_ext_data", &fixed.pg_statistic_ext_data),
        ("pg_subscription", &fixed.pg_subscription),
        ("pg_subscription_rel", &fixed.pg_subscription_rel),
        ("pg_trigger", &fixed.pg_trigger),
        ("pg_ts_config", &fixed.pg_ts_config),
        ("pg_ts_dict", &fixed.pg_ts_dict),
        ("pg_ts_parser", &fixed.pg_ts_parser),
        ("pg_ts_template", &fixed.pg_ts_template),
        ("pg_user_mapping", &fixed.pg_user_mapping),
    ];
    let kept = with_rows.into_iter().map(|(name, table)| (name, table, true));
    let emptied = without_rows.into_iter().map(|(name, table)| (name, table, false));
    kept.chain(emptied).filter_map(|(name, table, rows)| table_spec(name, table, rows)).collect()
}

fn table_spec(name: &str, table: &ArrowTable, rows: bool) -> Option<TableSpec> {
    let batch = match normalized(table, rows) {
        Ok(batch) => batch,
        Err(error) => {
            tracing::error!(%error, name, "a fixed catalog could not be read");
            return None;
        }
    };
    Some(TableSpec { schema: "pg_catalog", name: name.to_owned(), source: RowSource::Fixed(batch) })
}

/// In the types that every system table here has: numbers of objects as bigint.
fn normalized(table: &ArrowTable, rows: bool) -> Result<RecordBatch, arrow::error::ArrowError> {
    let batch = concat_batches(&table.schema(), table.data())?;
    let batch = if rows { batch } else { batch.slice(0, 0) };
    let mut fields = Vec::new();
    let mut columns: Vec<ArrayRef> = Vec::new();
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        // Some tables without rows have the number of their objects as text.
        let is_oid = (*field.data_type() == DataType::Int32 && !NUMBERS.contains(&field.name().as_str()))
            || (!rows && field.name() == "oid");
        if field.name().ends_with("acl") || TEXT_ARRAYS.contains(&field.name().as_str()) {
            // Exported as text; whatever they hold is of no meaning here.
            let list = super::pg_functions::list_of(DataType::Utf8);
            columns.push(new_null_array(&list, batch.num_rows()));
            fields.push(Field::new(field.name(), list, true));
            continue;
        }
        let wanted = match field.data_type() {
            _ if is_oid => DataType::Int64,
            DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
            DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, Some("+00:00".into())),
            other => match ARRAYS.iter().find(|(name, _)| !rows && name == field.name()) {
                Some((_, item)) => DataType::List(Arc::new(Field::new_list_field(item.clone(), true))),
                None => other.clone(),
            },
        };
        let metadata =
            if is_oid { HashMap::from([("weir.type".to_owned(), "oid".to_owned())]) } else { HashMap::new() };
        let name = if field.name() == "colllocale" { "colliculocale" } else { field.name() };
        fields.push(Field::new(name, wanted.clone(), true).with_metadata(metadata));
        columns.push(if rows { cast(column, &wanted)? } else { new_empty_array(&wanted) });
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
}

/// One of PostgreSQL's functions, as far as it is shown.
#[derive(Clone, Debug)]
pub struct FixedFunction {
    /// Its name.
    pub name: String,
    /// The type of its result, as SQL spells it.
    pub result: String,
    /// The numbers of its arguments' types.
    pub arguments: Vec<i64>,
}

fn fixed(name: &str) -> Option<&'static RecordBatch> {
    let table = super::system::SYSTEM_TABLES.iter().find(|t| t.schema == "pg_catalog" && t.name == name)?;
    match &table.source {
        RowSource::Fixed(batch) => Some(batch),
        _ => None,
    }
}

fn numbers<'a>(batch: &'a RecordBatch, column: &str) -> Option<&'a [i64]> {
    Some(batch.column_by_name(column)?.as_primitive_opt::<Int64Type>()?.values())
}

static FUNCTIONS: LazyLock<HashMap<i64, FixedFunction>> = LazyLock::new(|| {
    let all = || {
        let batch = fixed("pg_proc")?;
        let (oids, results) = (numbers(batch, "oid")?, numbers(batch, "prorettype")?);
        let names = batch.column_by_name("proname")?.as_string_opt::<i32>()?;
        let arguments = batch.column_by_name("proargtypes")?.as_string_opt::<i32>()?;
        let function = |row: usize| {
            let types = arguments.value(row).split([' ', ',', '{', '}']);
            let result = results[row];
            let named = super::pg_types::by_oid(result).map(|t| t.sql.to_owned());
            FixedFunction {
                name: names.value(row).to_owned(),
                result: named.or_else(|| type_name(result)).unwrap_or_else(|| result.to_string()),
                arguments: types.filter_map(|t| t.parse().ok()).collect(),
            }
        };
        Some((0..batch.num_rows()).map(|row| (oids[row], function(row))).collect())
    };
    all().unwrap_or_default()
});

static TYPE_NAMES: LazyLock<HashMap<i64, String>> = LazyLock::new(|| {
    let all = || {
        let batch = fixed("pg_type")?;
        let oids = numbers(batch, "oid")?;
        let names = batch.column_by_name("typname")?.as_string_opt::<i32>()?;
        Some((0..batch.num_rows()).map(|row| (oids[row], names.value(row).to_owned())).collect())
    };
    all().unwrap_or_default()
});

/// The function of this number.
pub fn function(oid: i64) -> Option<&'static FixedFunction> {
    FUNCTIONS.get(&oid)
}

/// The number of a function of this name; the least of several.
pub fn function_named(name: &str) -> Option<i64> {
    FUNCTIONS.iter().filter(|(_, f)| f.name == name).map(|(oid, _)| *oid).min()
}

/// The name of a type that Weir has no values of.
pub fn type_name(oid: i64) -> Option<String> {
    let name = TYPE_NAMES.get(&oid)?;
    Some(match name.strip_prefix('_') {
        Some(element) => format!("{element}[]"),
        None => name.clone(),
    })
}
