//! The snapshot as DataFusion sees it: relations, system tables, views and functions by name.

use super::names::{nearest, not_found};
use super::types::Types;
use super::{BindContext, common_type, query};
use crate::functions::{self, error::external};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion_common::config::ConfigOptions;
use datafusion_common::{Result, TableReference, plan_err};
use datafusion_expr::planner::{ContextProvider, ExprPlanner, RelationPlanner, TypePlanner};
use datafusion_expr::{
    AggregateUDF, Expr, ExprSchemable, HigherOrderUDF, LogicalPlan, ScalarUDF, TableSource, TableType,
    WindowUDF,
};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};
use weir_catalog::{Object, ObjectBody, ObjectId, ObjectName};

/// How deep views may be nested.
const VIEW_DEPTH_MAX: usize = 64;

/// A scan of a catalog object in a logical plan. `serve` replaces it by a provider of rows.
#[derive(Clone, Debug)]
pub struct RelationSource {
    /// The object.
    pub object: Arc<Object>,
    /// Its columns.
    pub schema: SchemaRef,
}

impl TableSource for RelationSource {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// A scan of a system table in a logical plan.
#[derive(Clone, Debug)]
pub struct SystemSource {
    /// `pg_catalog`, `information_schema` or `weir_catalog`.
    pub schema_name: String,
    /// The table's name.
    pub name: String,
    /// Its columns.
    pub schema: SchemaRef,
}

impl TableSource for SystemSource {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// What a recursive query has found last, as its recursive term reads it. `serve` replaces it by
/// DataFusion's own.
#[derive(Clone, Debug)]
pub struct WorkTableSource {
    /// The name of the common table expression.
    pub name: String,
    /// Its columns.
    pub schema: SchemaRef,
}

impl TableSource for WorkTableSource {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// A plain view: its plan takes its place.
struct ViewSource {
    schema: SchemaRef,
    plan: LogicalPlan,
}

impl TableSource for ViewSource {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn get_logical_plan(&'_ self) -> Option<Cow<'_, LogicalPlan>> {
        Some(Cow::Borrowed(&self.plan))
    }
}

/// The built-in functions by name, made once.
struct Registry {
    scalar: HashMap<String, Arc<ScalarUDF>>,
    aggregate: HashMap<String, Arc<AggregateUDF>>,
    window: HashMap<String, Arc<WindowUDF>>,
    higher_order: HashMap<String, Arc<HigherOrderUDF>>,
    expr_planners: Vec<Arc<dyn ExprPlanner>>,
    relation_planners: Vec<Arc<dyn RelationPlanner>>,
    options: ConfigOptions,
}

impl Registry {
    fn is_other_function(&self, name: &str) -> bool {
        let aggregate = self.aggregate.contains_key(name);
        aggregate || self.window.contains_key(name) || self.higher_order.contains_key(name)
    }
}

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| Registry {
    scalar: scalar_by_name(&functions::scalar_functions()),
    aggregate: functions::aggregate_functions()
        .iter()
        .flat_map(|f| names_of(f.name(), f.aliases()).map(|name| (name, Arc::clone(f))))
        .collect(),
    window: functions::window_functions()
        .iter()
        .flat_map(|f| names_of(f.name(), f.aliases()).map(|name| (name, Arc::clone(f))))
        .collect(),
    higher_order: datafusion_functions_nested::all_default_higher_order_functions()
        .iter()
        .flat_map(|f| names_of(f.name(), f.aliases()).map(|name| (name, Arc::clone(f))))
        .collect(),
    expr_planners: functions::expr_planners(),
    relation_planners: functions::relation_planners()
        .into_iter()
        .chain([Arc::new(super::using::UsingPlanner) as Arc<dyn RelationPlanner>])
        .collect(),
    options: super::optimize::config(),
});

fn scalar_by_name(functions: &[Arc<ScalarUDF>]) -> HashMap<String, Arc<ScalarUDF>> {
    functions.iter().flat_map(|f| names_of(f.name(), f.aliases()).map(|name| (name, Arc::clone(f)))).collect()
}

fn names_of<'a>(name: &'a str, aliases: &'a [String]) -> impl Iterator<Item = String> + 'a {
    aliases.iter().cloned().chain([name.to_owned()])
}

/// Looks names up for DataFusion's SQL planner, and remembers what was found.
pub(super) struct Provider<'a> {
    pub(super) context: &'a BindContext,
    reads: RefCell<BTreeSet<ObjectId>>,
    view_depth: Cell<usize>,
}

impl<'a> Provider<'a> {
    pub(super) fn new(context: &'a BindContext) -> Self {
        Self { context, reads: RefCell::default(), view_depth: Cell::new(0) }
    }

    /// A function of the session's own.
    fn own(&self, name: &str) -> Option<&Arc<ScalarUDF>> {
        let is_named =
            |f: &&Arc<ScalarUDF>| f.name() == name || f.aliases().iter().any(|alias| alias == name);
        self.context.functions.iter().find(is_named)
    }

    /// The objects that were looked up so far, in views too.
    pub(super) fn reads(&self) -> Vec<ObjectId> {
        self.reads.borrow().iter().copied().collect()
    }

    fn object_source(&self, object: &Arc<Object>) -> Result<Arc<dyn TableSource>> {
        match &object.body {
            ObjectBody::View(view) => {
                let depth = self.view_depth.get();
                if depth == VIEW_DEPTH_MAX {
                    return plan_err!("views are nested too deeply");
                }
                self.view_depth.set(depth + 1);
                let plan = query::plan_view(view, self).map_err(external);
                self.view_depth.set(depth);
                let plan = plan?;
                let schema = Arc::new(plan.schema().as_arrow().clone());
                self.reads.borrow_mut().insert(object.id);
                Ok(Arc::new(ViewSource { schema, plan }))
            }
            ObjectBody::Table(_) | ObjectBody::MaterializedView(_) | ObjectBody::Source(_) => {
                self.reads.borrow_mut().insert(object.id);
                Ok(relation_source(object))
            }
            ObjectBody::Index(_) | ObjectBody::Sink(_) => Err(external(super::names::wrong_kind(
                object,
                "read from",
                "It has no rows that SELECT can read.",
            ))),
        }
    }

    fn system_source(&self, schema: &str, name: &str) -> Option<Arc<dyn TableSource>> {
        let columns = self.context.system.schema_of(schema, name)?;
        Some(Arc::new(SystemSource {
            schema_name: schema.to_owned(),
            name: name.to_owned(),
            schema: columns,
        }))
    }
}

/// A scan of `object`.
pub(super) fn relation_source(object: &Arc<Object>) -> Arc<dyn TableSource> {
    let schema = weir_catalog::column::arrow_schema(object.columns());
    Arc::new(RelationSource { object: Arc::clone(object), schema })
}

impl ContextProvider for Provider<'_> {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>> {
        let table = name.table();
        let object = match name.schema() {
            Some(schema) => {
                if let Some(source) = self.system_source(schema, table) {
                    return Ok(source);
                }
                self.context.catalog.get(&ObjectName::new(schema, table))
            }
            None => {
                if let Some(source) = self.system_source("pg_catalog", table) {
                    return Ok(source);
                }
                self.context.find(table)
            }
        };
        match object {
            Some(object) => self.object_source(object),
            None => {
                let written =
                    name.schema().map_or_else(|| table.to_owned(), |schema| format!("{schema}.{table}"));
                Err(external(not_found(self.context, &written, table)))
            }
        }
    }

    fn get_table_function_source(&self, name: &str, args: Vec<Expr>) -> Result<Arc<dyn TableSource>> {
        let types = args.iter().map(|arg| match arg.get_type(&datafusion_common::DFSchema::empty()) {
            Ok(data_type) => data_type,
            Err(_) => DataType::Null,
        });
        Err(external(super::unknown::undefined_function(name, &types.collect::<Vec<_>>(), None)))
    }

    fn create_cte_work_table(&self, name: &str, schema: SchemaRef) -> Result<Arc<dyn TableSource>> {
        Ok(Arc::new(WorkTableSource { name: name.to_owned(), schema }))
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &REGISTRY.expr_planners
    }

    fn get_relation_planners(&self) -> &[Arc<dyn RelationPlanner>] {
        &REGISTRY.relation_planners
    }

    fn get_type_planner(&self) -> Option<Arc<dyn TypePlanner>> {
        Some(Arc::new(Types))
    }

    /// An unknown function gets a stand-in that fails when its arguments' types are known, so that
    /// the error can name them.
    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        if let Some(function) = self.own(name).or_else(|| REGISTRY.scalar.get(name)) {
            return Some(common_type::lenient(Arc::clone(function)));
        }
        // `unnest` is the planner's own.
        if name == "unnest" || REGISTRY.is_other_function(name) {
            return None;
        }
        let known = REGISTRY.scalar.keys().chain(REGISTRY.aggregate.keys()).map(String::as_str);
        let hint = nearest(name, known).map(str::to_owned);
        Some(Arc::new(ScalarUDF::from(super::unknown::UnknownFunction::new(name, hint))))
    }

    fn get_higher_order_meta(&self, name: &str) -> Option<Arc<HigherOrderUDF>> {
        REGISTRY.higher_order.get(name).cloned()
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        REGISTRY.aggregate.get(name).cloned()
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        REGISTRY.window.get(name).cloned()
    }

    fn get_variable_type(&self, _variable_names: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        &REGISTRY.options
    }

    fn udf_names(&self) -> Vec<String> {
        let own = self.context.functions.iter().flat_map(|f| names_of(f.name(), f.aliases()));
        REGISTRY.scalar.keys().cloned().chain(own).collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        REGISTRY.higher_order.keys().cloned().collect()
    }

    fn udaf_names(&self) -> Vec<String> {
        REGISTRY.aggregate.keys().cloned().collect()
    }

    fn udwf_names(&self) -> Vec<String> {
        REGISTRY.window.keys().cloned().collect()
    }
}

impl BindContext {
    /// The object that an unqualified name means.
    pub fn find(&self, name: &str) -> Option<&Arc<Object>> {
        self.search_path.iter().find_map(|schema| self.catalog.get(&ObjectName::new(schema.as_str(), name)))
    }

    /// The object that a name means; an unqualified one has an empty schema.
    pub fn resolve(&self, name: &ObjectName) -> Option<&Arc<Object>> {
        if name.schema.is_empty() { self.find(&name.name) } else { self.catalog.get(name) }
    }
}
