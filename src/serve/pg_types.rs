//! The types that columns have, as PostgreSQL's catalogs describe them.

use arrow::datatypes::DataType;
use weir_catalog::Column;
use weir_catalog::system::ColumnType;

/// A type of PostgreSQL's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PgType {
    /// Its number.
    pub oid: i64,
    /// The number of the type of arrays of it.
    pub array: i64,
    /// Its name in `pg_type`.
    pub name: &'static str,
    /// How SQL spells it.
    pub sql: &'static str,
    /// Bytes, -1: varies.
    pub len: i64,
    /// `c`, `s`, `i`, `d`
    pub align: &'static str,
    /// `p` plain, `x` extended, `m` main
    pub storage: &'static str,
}

const fn pg(
    oid: i64,
    array: i64,
    name: &'static str,
    sql: &'static str,
    len: i64,
    align: &'static str,
    storage: &'static str,
) -> PgType {
    PgType { oid, array, name, sql, len, align, storage }
}

/// The types that Weir has values of, and those of system columns.
#[rustfmt::skip]
pub const TYPES: &[PgType] = &[
    pg(16, 1000, "bool", "boolean", 1, "c", "p"),
    pg(17, 1001, "bytea", "bytea", -1, "i", "x"),
    pg(18, 1002, "char", "\"char\"", 1, "c", "p"),
    pg(19, 1003, "name", "name", 64, "c", "p"),
    pg(20, 1016, "int8", "bigint", 8, "d", "p"),
    pg(21, 1005, "int2", "smallint", 2, "s", "p"),
    pg(23, 1007, "int4", "integer", 4, "i", "p"),
    pg(24, 1008, "regproc", "regproc", 4, "i", "p"),
    pg(25, 1009, "text", "text", -1, "i", "x"),
    pg(26, 1028, "oid", "oid", 4, "i", "p"),
    pg(114, 199, "json", "json", -1, "i", "x"),
    pg(700, 1021, "float4", "real", 4, "i", "p"),
    pg(701, 1022, "float8", "double precision", 8, "d", "p"),
    pg(1042, 1014, "bpchar", "character", -1, "i", "x"),
    pg(1043, 1015, "varchar", "character varying", -1, "i", "x"),
    pg(1082, 1182, "date", "date", 4, "i", "p"),
    pg(1083, 1183, "time", "time without time zone", 8, "d", "p"),
    pg(1114, 1115, "timestamp", "timestamp without time zone", 8, "d", "p"),
    pg(1184, 1185, "timestamptz", "timestamp with time zone", 8, "d", "p"),
    pg(1186, 1187, "interval", "interval", 16, "d", "p"),
    pg(1700, 1231, "numeric", "numeric", -1, "i", "m"),
    pg(2205, 2210, "regclass", "regclass", 4, "i", "p"),
    pg(2206, 2211, "regtype", "regtype", 4, "i", "p"),
    pg(2249, 2287, "record", "record", -1, "d", "x"),
    pg(2278, 0, "void", "void", 4, "i", "p"),
    pg(2950, 2951, "uuid", "uuid", 16, "c", "p"),
    pg(3802, 3807, "jsonb", "jsonb", -1, "i", "x"),
    pg(4089, 4090, "regnamespace", "regnamespace", 4, "i", "p"),
];

/// The text type: what everything can be written as.
pub const TEXT: i64 = 25;

/// The collation of text types.
pub const DEFAULT_COLLATION: i64 = 100;

/// The type of this number.
pub fn by_oid(oid: i64) -> Option<&'static PgType> {
    TYPES.iter().find(|t| t.oid == oid)
}

/// The type of this name, as SQL or `pg_type` spells it, without its modifier.
pub fn by_name(name: &str) -> Option<&'static PgType> {
    let name = name.trim().trim_start_matches("pg_catalog.").to_ascii_lowercase();
    let alias = match name.as_str() {
        "int" => "int4",
        "decimal" | "dec" => "numeric",
        "float" => "float8",
        "char" | "character" => "bpchar",
        "\"char\"" => "char",
        "string" => "text",
        "time" => "time",
        "timestamp" => "timestamp",
        other => other,
    };
    TYPES.iter().find(|t| t.name == alias || t.sql == alias)
}

/// The number of the type, of its arrays where `array`.
fn oid_of(t: &PgType, array: bool) -> i64 {
    if array { t.array } else { t.oid }
}

/// The number and the modifier of a column's type.
pub fn of_column(column: &Column) -> (i64, i64) {
    let declared = column.sql_type.trim();
    let (element, array) = match declared.strip_suffix("[]") {
        Some(element) => (element.trim_end_matches("[]"), true),
        None => (declared, false),
    };
    let (base, modifier) = match element.split_once('(') {
        Some((base, rest)) => {
            let (arguments, suffix) = rest.split_once(')').unwrap_or((rest, ""));
            (format!("{}{suffix}", base.trim_end()), Some(arguments))
        }
        None => (element.to_owned(), None),
    };
    let Some(t) = by_name(&base) else { return (of_arrow(&column.data_type), -1) };
    (oid_of(t, array), modifier.map_or(-1, |m| modifier_of(t, m)))
}

fn modifier_of(t: &PgType, arguments: &str) -> i64 {
    let numbers: Vec<i64> = arguments.split(',').filter_map(|n| n.trim().parse().ok()).collect();
    match (t.name, numbers.as_slice()) {
        ("numeric", [precision]) => (precision << 16) + 4,
        ("numeric", [precision, scale]) => ((precision << 16) | scale) + 4,
        ("varchar" | "bpchar", [length]) => length + 4,
        ("timestamp" | "timestamptz" | "time", [digits]) => *digits,
        _ => -1,
    }
}

/// The number of the type of Arrow values.
pub fn of_arrow(data_type: &DataType) -> i64 {
    let name = match data_type {
        DataType::Boolean => "bool",
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => "int2",
        DataType::UInt16 | DataType::Int32 => "int4",
        DataType::UInt32 | DataType::Int64 | DataType::UInt64 => "int8",
        DataType::Float16 | DataType::Float32 => "float4",
        DataType::Float64 => "float8",
        DataType::Decimal128(..) | DataType::Decimal256(..) => "numeric",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "bytea",
        DataType::Date32 | DataType::Date64 => "date",
        DataType::Time32(_) | DataType::Time64(_) => "time",
        DataType::Timestamp(_, None) => "timestamp",
        DataType::Timestamp(_, Some(_)) => "timestamptz",
        DataType::Interval(_) | DataType::Duration(_) => "interval",
        DataType::Struct(_) => "record",
        DataType::List(item) | DataType::LargeList(item) => {
            return by_oid(of_arrow(item.data_type())).map_or(1009, |t| t.array);
        }
        _ => "text",
    };
    by_name(name).map_or(TEXT, |t| t.oid)
}

/// The number of the type of a system table's column.
pub fn of_system(column: ColumnType) -> i64 {
    match column {
        ColumnType::Bool => 16,
        ColumnType::Int2 => 21,
        ColumnType::Int4 => 23,
        ColumnType::Int8 => 20,
        ColumnType::Float8 => 701,
        ColumnType::Oid => 26,
        ColumnType::Text => TEXT,
        ColumnType::Name => 19,
        ColumnType::Char => 18,
        ColumnType::Timestamptz => 1184,
        ColumnType::TextArray => 1009,
        ColumnType::Int2Array => 1005,
        ColumnType::OidArray => 1028,
    }
}

/// What `format_type` says: the type as SQL spells it.
pub fn format_type(oid: i64, modifier: Option<i64>) -> String {
    if let Some(t) = TYPES.iter().find(|t| t.array == oid && oid != 0) {
        return format!("{}[]", format_type(t.oid, modifier));
    }
    let Some(t) = by_oid(oid) else {
        return if oid == 0 { "-".to_owned() } else { "???".to_owned() };
    };
    match (t.name, modifier.filter(|m| *m >= 0)) {
        ("numeric", Some(m @ 4..)) => format!("numeric({},{})", (m - 4) >> 16, (m - 4) & 0xffff),
        ("varchar" | "bpchar", Some(m @ 4..)) => format!("{}({})", t.sql, m - 4),
        ("timestamp" | "timestamptz" | "time", Some(digits)) => {
            let (name, zone) = t.sql.split_once(' ').unwrap_or((t.sql, ""));
            format!("{name}({digits}) {zone}")
        }
        _ => t.sql.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_postgresqls_types() {
        let of = |sql_type: &str, data_type: DataType| {
            let column = Column {
                name: "c".into(),
                data_type,
                sql_type: sql_type.into(),
                nullable: true,
                default: None,
            };
            let (oid, modifier) = of_column(&column);
            format_type(oid, Some(modifier))
        };
        assert_eq!(of("numeric(10,2)", DataType::Decimal128(10, 2)), "numeric(10,2)");
        assert_eq!(of("varchar(7)", DataType::Utf8), "character varying(7)");
        assert_eq!(of("character varying(7)[]", DataType::Utf8), "character varying(7)[]");
        assert_eq!(of("int", DataType::Int32), "integer");
        assert_eq!(of("jsonb", DataType::Utf8), "jsonb");
        assert_eq!(of("timestamp with time zone", DataType::Utf8), "timestamp with time zone");
        assert_eq!(of("timestamp(3) with time zone", DataType::Utf8), "timestamp(3) with time zone");
        assert_eq!(of("struct<a int>", DataType::Struct(Default::default())), "record");
        assert_eq!(of("BIGINT[]", DataType::Int64), "bigint[]");
        assert_eq!(format_type(999_999, None), "???");
    }
}
