//! A small catalog to plan over, and text to plan.

use crate::binder::context::RelationSource;
use crate::error::SqlError;
use crate::functions;
use crate::plan::explain::explain;
use crate::plan::optimize::planning_options;
use crate::plan::{PlanOp, StreamPlan, analyze, lower, optimize};
use arrow::datatypes::{DataType, TimeUnit};
use datafusion_common::config::ConfigOptions;
use datafusion_common::{DataFusionError, Result, ScalarValue, TableReference, plan_err};
use datafusion_expr::planner::{ContextProvider, ExprPlanner, RelationPlanner};
use datafusion_expr::{AggregateUDF, HigherOrderUDF, LogicalPlan, ScalarUDF, TableSource, WindowUDF};
use datafusion_sql::planner::SqlToRel;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use std::sync::Arc;
use weir_catalog::relation::{MaterializedView, OnConflict, RowKey, Table};
use weir_catalog::source::{FormatSpec, Options, Source, WatermarkSpec};
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
        watermark: Some(WatermarkSpec { column: time, delay_us: 4_000_000 }),
    })
}

fn table(declared: &[(&str, DataType)], key: RowKey, append_only: bool) -> ObjectBody {
    ObjectBody::Table(Table { columns: columns(declared), key, append_only, on_conflict: OnConflict::Error })
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
        };
        snapshot = snapshot.apply(&CatalogChange::Create(object)).expect("the names are free");
    }
    Arc::new(snapshot)
}

struct Provider {
    catalog: Arc<CatalogSnapshot>,
    options: ConfigOptions,
    exprs: Vec<Arc<dyn ExprPlanner>>,
    relations: Vec<Arc<dyn RelationPlanner>>,
}

impl ContextProvider for Provider {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>> {
        match self.catalog.get(&ObjectName::public(name.table())) {
            Some(object) => Ok(Arc::new(RelationSource {
                object: Arc::clone(object),
                schema: weir_catalog::column::arrow_schema(object.columns()),
            })),
            None => plan_err!("relation \"{name}\" does not exist"),
        }
    }
    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &self.exprs
    }
    fn get_relation_planners(&self) -> &[Arc<dyn RelationPlanner>] {
        &self.relations
    }
    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        let named = |f: &Arc<ScalarUDF>| f.name() == name || f.aliases().iter().any(|a| a == name);
        functions::scalar_functions().into_iter().find(named)
    }
    fn get_higher_order_meta(&self, _name: &str) -> Option<Arc<HigherOrderUDF>> {
        None
    }
    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        let named = |f: &Arc<AggregateUDF>| f.name() == name || f.aliases().iter().any(|a| a == name);
        functions::aggregate_functions().into_iter().find(named)
    }
    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        functions::window_functions().into_iter().find(|f| f.name() == name)
    }
    fn get_variable_type(&self, _names: &[String]) -> Option<DataType> {
        None
    }
    fn options(&self) -> &ConfigOptions {
        &self.options
    }
    fn udf_names(&self) -> Vec<String> {
        Vec::new()
    }
    fn higher_order_function_names(&self) -> Vec<String> {
        Vec::new()
    }
    fn udaf_names(&self) -> Vec<String> {
        Vec::new()
    }
    fn udwf_names(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The analyzed logical plan of a query over [`catalog`].
pub fn logical(sql: &str) -> Result<LogicalPlan> {
    let provider = Provider {
        catalog: catalog(),
        options: planning_options(),
        exprs: functions::expr_planners(),
        relations: functions::relation_planners(),
    };
    let statement = Parser::parse_sql(&PostgreSqlDialect {}, sql)?.pop().expect("one statement");
    let options = datafusion_sql::planner::ParserOptions::from(&provider.options.sql_parser);
    let plan = SqlToRel::new_with_options(&provider, options).sql_statement_to_plan(statement)?;
    analyze(plan, &provider.options)
}

/// The value of an expression without columns, computed as a view would.
pub fn evaluate(expr: &str) -> Result<ScalarValue> {
    let plan = optimize(logical(&format!("SELECT {expr} AS x"))?, &planning_options())?;
    let node = lower(&plan, &catalog()).map_err(functions::error::external)?.root;
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
    let failed = |e: DataFusionError| {
        functions::error::sql_error(&e).unwrap_or_else(|| panic!("can't plan {sql}: {e}"))
    };
    let plan = optimize(logical(sql).map_err(failed)?, &planning_options()).map_err(failed)?;
    lower(&plan, &catalog())
}

/// The text of the stream plan of a query.
pub fn explained(sql: &str) -> String {
    let plan = stream(sql).unwrap_or_else(|e| panic!("{sql}: {e} {:?}", e.hint));
    format!("\n{}", explain(&plan, &catalog()))
}
