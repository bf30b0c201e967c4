//! A small catalog to plan over, and text to plan.

use crate::binder::{BindContext, Bound, SystemSchemas, bind, optimize};
use crate::error::SqlError;
use crate::functions::error::external;
use crate::parser::parse;
use crate::plan::explain::explain;
use crate::plan::{PlanOp, StreamPlan, lower};
use arrow::datatypes::{DataType, SchemaRef, TimeUnit};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::LogicalPlan;
use std::sync::Arc;
use weir_catalog::relation::{MaterializedView, OnConflict, RowKey, Table};
use weir_catalog::source::{FormatSpec, LateRows, Options, Source, WatermarkSpec};
use weir_catalog::{CatalogChange, CatalogSnapshot, Column, Object, ObjectBody, ObjectName, ObjectState};

/// `timestamp`.
pub fn timestamp() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, None)
}

fn columns(declared: &[(&str, DataType)]) -> Vec<Column> {
    declared
        .iter()
        .map(|(name, data_type)| Column {
            name: (*name).to_owned(),
            data_type: data_type.clone(),
            sql_type: String::new(),
            nullable: !name.ends_with("id"),
            default: None,
        })
        .collect()
}

fn nexmark(name: &str) -> Vec<Column> {
    use DataType::{Int64, Utf8};
    match name {
        "bid" => columns(&[
            ("auction", Int64),
            ("bidder", Int64),
            ("price", Int64),
            ("channel", Utf8),
            ("url", Utf8),
            ("datetime", timestamp()),
            ("extra", Utf8),
        ]),
        "auction" => columns(&[
            ("id", Int64),
            ("itemname", Utf8),
            ("description", Utf8),
            ("initialbid", Int64),
            ("reserve", Int64),
            ("datetime", timestamp()),
            ("expires", timestamp()),
            ("seller", Int64),
            ("category", Int64),
            ("extra", Utf8),
        ]),
        _ => columns(&[
            ("id", Int64),
            ("name", Utf8),
            ("emailaddress", Utf8),
            ("creditcard", Utf8),
            ("city", Utf8),
            ("state", Utf8),
            ("datetime", timestamp()),
            ("extra", Utf8),
        ]),
    }
}

fn source(name: &str) -> ObjectBody {
    let columns = nexmark(name);
    let time = columns.iter().position(|c| c.name == "datetime").expect("every event has a time");
    ObjectBody::Source(Source {
        columns,
        primary_key: None,
        connector: "nexmark".into(),
        options: Options::new(),
        format: FormatSpec { format: "NATIVE".into(), ..FormatSpec::default() },
        watermark: Some(WatermarkSpec { column: time, delay_us: 4_000_000, late_rows: LateRows::DeadLetter }),
    })
}

fn table(declared: &[(&str, DataType)], key: RowKey, append_only: bool) -> ObjectBody {
    let on_conflict = OnConflict::Error;
    ObjectBody::Table(Table { columns: columns(declared), key, append_only, on_conflict, watermark: None })
}

/// `bid`, `auction`, `person`: nexmark's sources. `t(id, v, s)` keyed by id; `u(id, t_id, w)` keyed
/// by id; `log(a, b, at)` append only, without a key; `nulls(x, y)` without a key; `mv(g, n)` keyed
/// by g.
pub fn catalog() -> Arc<CatalogSnapshot> {
    use DataType::{Int32, Int64, Utf8};
    let bodies = [
        ("bid", source("bid")),
        ("auction", source("auction")),
        ("person", source("person")),
        ("t", table(&[("id", Int32), ("v", Int64), ("s", Utf8)], RowKey::Columns(vec![0]), false)),
        ("u", table(&[("id", Int32), ("t_id", Int32), ("w", Int64)], RowKey::Columns(vec![0]), false)),
        ("log", table(&[("a", Int64), ("b", Utf8), ("at", timestamp())], RowKey::WholeRow, true)),
        ("nulls", table(&[("x", Int32), ("y", Int32)], RowKey::WholeRow, false)),
        (
            "mv",
            ObjectBody::MaterializedView(MaterializedView {
                columns: columns(&[("g", Utf8), ("n", Int64)]),
                key: RowKey::Columns(vec![0]),
                append_only: false,
                query: String::new(),
                inputs: Vec::new(),
                watermarks: Vec::new(),
                emit_on_close: false,
            }),
        ),
    ];
    let mut snapshot = CatalogSnapshot::default();
    for (name, body) in bodies {
        let object = Object {
            id: snapshot.next_id,
            name: ObjectName::public(name),
            body,
            state: ObjectState::Created,
            definition: String::new(),
            comment: None,
            parallelism: None,
        };
        snapshot = snapshot.apply(&CatalogChange::Create(object)).expect("the names are free");
    }
    Arc::new(snapshot)
}

struct NoSystemTables;

impl SystemSchemas for NoSystemTables {
    fn schema_of(&self, _schema: &str, _name: &str) -> Option<SchemaRef> {
        None
    }
}

fn context() -> BindContext {
    BindContext {
        catalog: catalog(),
        search_path: vec!["public".to_owned()],
        system: Arc::new(NoSystemTables),
        connectors: Arc::default(),
        functions: Arc::default(),
        parameter_types: Vec::new(),
        connector_columns: Arc::new(|_, _| None),
    }
}

/// The analyzed logical plan of a query over [`catalog`].
pub fn logical(sql: &str) -> Result<LogicalPlan, SqlError> {
    match bind(&parse(sql)?[0], &context())? {
        Bound::Query(plan) => Ok(plan),
        other => panic!("a query, not {other:?}"),
    }
}

fn optimized(sql: &str) -> Result<LogicalPlan, SqlError> {
    Ok(optimize(logical(sql)?)?)
}

/// The value of an expression without columns, computed as a view would.
pub fn evaluate(expr: &str) -> Result<ScalarValue> {
    let plan = optimized(&format!("SELECT {expr} AS x")).map_err(external)?;
    let node = lower(&plan, &catalog()).map_err(external)?.root;
    let (exprs, input) = match (&node.op, node.inputs.first()) {
        (PlanOp::Project { exprs }, Some(input)) => (exprs, input),
        other => panic!("a projection, not {other:?}"),
    };
    match &input.op {
        PlanOp::Values { rows } => ScalarValue::try_from_array(&exprs[0].evaluate(rows)?.into_array(1)?, 0),
        other => panic!("one row, not {other:?}"),
    }
}

/// The stream plan of a query over [`catalog`].
pub fn stream(sql: &str) -> Result<StreamPlan, SqlError> {
    lower(&optimized(sql)?, &catalog())
}

/// The text of the stream plan of a query.
pub fn explained(sql: &str) -> String {
    let plan = stream(sql).unwrap_or_else(|e| panic!("{sql}: {e} {:?} {:?}", e.hint, e.detail));
    format!("\n{}", explain(&plan, &catalog()))
}
