//! The oracle: what a query gives as a batch over the tables of one visible epoch.
//!
//! Statements are bound once for each catalog that looks alike to them: planning costs more than a
//! seed's whole simulation.

use crate::config::Config;
use crate::connectors::dead_letter;
use crate::connectors::registry;
use crate::job::manager::Visible;
use crate::serve::snapshot::{QuerySnapshot, ReadPoint, SystemRows};
use crate::serve::window::WindowQueryPlanner;
use crate::serve::{Binding, Connectors, ServeError, SessionInfo};
use crate::state::rows::KeyRange;
use crate::state::table::TableLayout;
use crate::stream::VnodeSet;
use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_optimizer::output_requirements::OutputRequirements;
use datafusion::physical_plan::collect;
use datafusion::prelude::SessionConfig;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use weir_catalog::{CatalogSnapshot, Object, ObjectId, ObjectName};
use weir_sql::binder::{BindContext, Bound, bind};
use weir_sql::functions::batch_analyzer_rules;
use weir_sql::plan::StreamPlan;
use weir_sql::plan::optimize::planning_options;

/// A statement, and the relations that it names: their ids and how they were made.
type Key = (String, Vec<(u32, String)>);

pub struct Oracle {
    session: SessionState,
    runtime: tokio::runtime::Runtime,
    binding: Binding,
    bound: RefCell<HashMap<Key, Bound>>,
    optimized: RefCell<HashMap<Key, LogicalPlan>>,
}

thread_local!(static ORACLE: Rc<Oracle> = Rc::new(Oracle::new()));

struct NoSystem;

impl SystemRows for NoSystem {
    fn rows(&self, _: &str, name: &str, _: &CatalogSnapshot) -> Result<RecordBatch, ServeError> {
        panic!("system table {name} in a simulation")
    }
}

/// As whom statements are bound.
pub fn session_info() -> SessionInfo {
    SessionInfo { search_path: vec!["public".to_owned()], ..SessionInfo::default() }
}

/// What binds statements on a server with `config`.
pub fn binding(config: Arc<Config>) -> Binding {
    let connectors =
        Connectors { specs: Arc::new(registry::specs()), columns: Arc::new(registry::connector_columns) };
    Binding::new(config, connectors)
}

/// What a physical plan needs to be right. What makes it fast costs more time than it saves.
fn required() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    vec![
        Arc::new(OutputRequirements::new_add_mode()),
        Arc::new(EnsureRequirements::new()),
        Arc::new(OutputRequirements::new_remove_mode()),
    ]
}

impl Oracle {
    /// This thread's.
    pub fn get() -> Rc<Oracle> {
        ORACLE.with(Rc::clone)
    }

    fn new() -> Self {
        let mut options = planning_options();
        options.optimizer.enable_physical_uncorrelated_scalar_subquery = true;
        let session = SessionStateBuilder::new()
            .with_optimizer_rules(weir_sql::binder::optimize::batch_rules())
            .with_config(SessionConfig::from(options).with_target_partitions(1))
            .with_analyzer_rules(batch_analyzer_rules())
            .with_query_planner(Arc::new(WindowQueryPlanner))
            .with_physical_optimizer_rules(required())
            .build();
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let config = Arc::new(Config::new([]).expect("defaults"));
        Self {
            session,
            runtime,
            binding: binding(config),
            bound: RefCell::default(),
            optimized: RefCell::default(),
        }
    }

    fn key(sql: &str, catalog: &CatalogSnapshot) -> Key {
        let word = |c: char| !(c.is_alphanumeric() || c == '_');
        let object = |name: &str| {
            let object = catalog.get(&ObjectName::public(name))?;
            Some((object.id.0, format!("{:?}", object.body)))
        };
        let mut named: Vec<(u32, String)> = sql.split(word).filter_map(object).collect();
        if sql.starts_with("CREATE") {
            // It is bound to the names of its time.
            named.push((u32::MAX, catalog.renames.to_string()));
        }
        named.sort();
        named.dedup();
        (sql.to_owned(), named)
    }

    /// Binds a statement over `catalog`.
    pub fn bind(&self, sql: &str, catalog: &Arc<CatalogSnapshot>) -> Result<Bound, String> {
        let key = Self::key(sql, catalog);
        if let Some(bound) = self.bound.borrow().get(&key) {
            return Ok(bound.clone());
        }
        let context: BindContext = self.binding.context(Arc::clone(catalog), &session_info());
        let parsed = weir_sql::parser::parse(sql).map_err(|e| format!("{sql}: {e}"))?;
        let bound = bind(&parsed[0], &context).map_err(|e| format!("{sql}: {e}"))?;
        if !matches!(bound, Bound::Change { .. }) {
            self.bound.borrow_mut().insert(key, bound.clone());
        }
        Ok(bound)
    }

    /// The rows of a query at an epoch, as text, sorted.
    pub fn rows(
        &self,
        sql: &str,
        catalog: &Arc<CatalogSnapshot>,
        visible: &Visible,
    ) -> Result<Vec<String>, String> {
        let key = Self::key(sql, catalog);
        let known = self.optimized.borrow().get(&key).cloned();
        let plan = match known {
            Some(plan) => plan,
            None => {
                let Bound::Query(plan) = self.bind(sql, catalog)? else {
                    return Err(format!("{sql} is no query"));
                };
                let plan = self.session.optimize(&plan).map_err(|e| format!("{sql}: {e}"))?;
                self.optimized.borrow_mut().insert(key, plan.clone());
                plan
            }
        };
        let at = ReadPoint { catalog: Arc::clone(catalog), visible: visible.clone() };
        let snapshot = QuerySnapshot::new(at, Arc::clone(catalog), None);
        let plan = snapshot.resolve(plan, &NoSystem).map_err(|e| format!("{sql}: {e}"))?;
        let batches = self.runtime.block_on(async {
            let planner = self.session.query_planner();
            let physical = planner.create_physical_plan(&plan, &self.session).await?;
            collect(physical, self.session.task_ctx()).await
        });
        let batches = batches.map_err(|e| format!("{sql}: {e}"))?;
        let mut rows: Vec<String> = batches.iter().flat_map(text_of).collect();
        rows.sort_unstable();
        Ok(rows)
    }
}

thread_local!(static PLANS: RefCell<HashMap<String, StreamPlan>> = RefCell::default());

/// The plan of an object that starts again, as it was made for one that was the same, and read the same.
pub fn planned_once<E>(
    object: &Object,
    catalog: &CatalogSnapshot,
    plan: impl FnOnce() -> Result<StreamPlan, E>,
) -> Result<StreamPlan, E> {
    let inputs: Vec<_> =
        object.inputs().into_iter().map(|id| (id, catalog.by_id(id).map(|o| &o.body))).collect();
    let key = format!("{} {:?} {inputs:?}", object.id, object.body);
    if let Some(plan) = PLANS.with_borrow(|plans| plans.get(&key).cloned()) {
        return Ok(plan);
    }
    let plan = plan()?;
    PLANS.with_borrow_mut(|plans| plans.insert(key, plan.clone()));
    Ok(plan)
}

/// The rows of a stored relation at an epoch, as text, sorted: what is there, read without a plan.
pub fn stored(object: &Object, catalog: &CatalogSnapshot, visible: &Visible) -> Vec<String> {
    let layout = TableLayout::of_object(object, |id| catalog.by_id(id)).expect("it is stored");
    stored_as(&layout, visible)
}

/// The dead letters of a source: split and position.
pub fn stored_letters(source: ObjectId, visible: &Visible) -> Vec<String> {
    let rows = stored_as(&dead_letter::layout(), visible).into_iter();
    let letter = |row: String| {
        let cells: Vec<&str> = row.split('|').collect();
        let [id, split, position] = dead_letter::KEY.map(|column| cells[column]);
        (id == source.to_string()).then(|| format!("{split}|{position}"))
    };
    rows.filter_map(letter).collect()
}

fn stored_as(layout: &TableLayout, visible: &Visible) -> Vec<String> {
    let vnodes: Vec<_> = VnodeSet::all().iter().collect();
    let [first, .., last] = vnodes.as_slice() else { panic!("there are vnodes") };
    // All at once: most vnodes have no row.
    let (lower, upper) = (layout.range(*first, &[]).lower, layout.range(*last, &[]).upper);
    let chunk = layout.scan(&*visible.state, &KeyRange { lower, upper }, usize::MAX).expect("rows decode");
    let mut rows = text_of(&chunk.rows.repeated().expect("rows repeat"));
    rows.sort_unstable();
    rows
}

/// Rows as text.
pub fn text_of(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let columns: Vec<_> = batch
        .columns()
        .iter()
        .map(|c| ArrayFormatter::try_new(c.as_ref(), &options).expect("it can be shown"))
        .collect();
    (0..batch.num_rows())
        .map(|row| columns.iter().map(|c| c.value(row).to_string()).collect::<Vec<_>>().join("|"))
        .collect()
}
