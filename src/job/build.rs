//! Plan nodes to operators: the one match.

use super::graph::FragmentNode;
use super::manager::JobError;
use crate::connectors::source::{Source, Waker};
use crate::dataflow::chain::StateSource;
use crate::dataflow::operator::Operator;
use crate::operators::backfill::{Backfill, BackfillSpec};
use crate::operators::emit_on_close::EmitOnClose;
use crate::operators::expand::Expand;
use crate::operators::expr::ErrorCounter;
use crate::operators::failures::{Failures, Origin};
use crate::operators::filter::Filter;
use crate::operators::project::Project;
use crate::operators::source::SourceShared;
use crate::operators::source_scan::{SourceScan, SourceScanSpec};
use crate::operators::union::Union;
use crate::operators::values::Values;
use crate::operators::window::Window;
use crate::state::table::TableLayout;
use crate::stream::VnodeSet;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_catalog::{JobId, ObjectId, TableId};
use weir_sql::plan::{Distribution, PlanNode, PlanOp};

/// What an operator is built with, beside its plan node.
pub struct BuildContext {
    /// The job.
    pub job: JobId,
    /// The name of what it fills.
    pub name: Arc<str>,
    /// The actor's index in its fragment.
    pub actor: usize,
    /// How many actors the fragment has.
    pub actors: usize,
    /// The actor's vnodes.
    pub vnodes: VnodeSet,
    /// The internal tables of each plan node.
    pub tables: Arc<BTreeMap<u32, Vec<TableId>>>,
    /// The newest published snapshot.
    pub state: StateSource,
    /// Counts expressions that failed.
    pub errors: ErrorCounter,
    /// Wakes the actor.
    pub waker: Waker,
    /// Stored relations that the plan scans.
    pub layouts: Lookup<Arc<TableLayout>>,
    /// Sources that the plan reads.
    pub sources: Lookup<OpenSource>,
}

impl BuildContext {
    /// What takes the failing rows of the operator of plan node `node`.
    pub fn failures(&self, node: u32) -> Failures {
        let origin = Origin { job: self.job, name: self.name.clone(), operator: (node, self.actor) };
        Failures::new(self.errors.clone(), origin)
    }
}

/// Finds what belongs to an object.
pub type Lookup<T> = Arc<dyn Fn(ObjectId) -> Result<T, JobError> + Send + Sync>;

/// A source that is read: its connector, and what its readers share.
pub type OpenSource = (Arc<dyn Source>, Arc<SourceShared>);

/// How many internal tables a node needs.
fn table_count(node: &PlanNode) -> Result<usize, JobError> {
    Ok(match &node.op {
        PlanOp::Aggregate { calls, .. } => super::build_stateful::aggregate_tables(node, calls)?,
        PlanOp::Join { .. } => 2,
        PlanOp::TopN { .. } | PlanOp::Over { .. } | PlanOp::EmitOnClose { .. } => 1,
        _ => 0,
    })
}

/// Gives each stateful node of a plan its internal tables: in order of node number, so that the
/// same plan finds the same state.
pub fn assign_tables(job: JobId, root: &PlanNode) -> Result<BTreeMap<u32, Vec<TableId>>, JobError> {
    let mut counts = BTreeMap::new();
    count_tables(root, &mut counts)?;
    let mut next = 0usize;
    let mut tables = BTreeMap::new();
    for (node, count) in counts {
        let of_node = (next..next + count)
            .map(|index| u8::try_from(index).map(|index| job.internal_table(index)))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| JobError::limit("the query needs more than 256 state tables"))?;
        next += count;
        tables.insert(node, of_node);
    }
    Ok(tables)
}

fn count_tables(node: &PlanNode, counts: &mut BTreeMap<u32, usize>) -> Result<(), JobError> {
    counts.insert(node.id, table_count(node)?);
    node.inputs.iter().try_for_each(|input| count_tables(input, counts))
}

/// Whether an operator has work without input.
pub fn is_polled(op: &PlanOp) -> bool {
    matches!(op, PlanOp::Source { .. } | PlanOp::Scan { .. } | PlanOp::Values { .. })
}

/// Builds the operator of `fragment_node`.
pub fn operator(fragment_node: &FragmentNode, context: &BuildContext) -> Result<Box<dyn Operator>, JobError> {
    let node = &fragment_node.node;
    let inputs = &fragment_node.inputs;
    let schema = node.schema.clone();
    let failures = || context.failures(node.id);
    let tables = context.tables.get(&node.id).map_or(&[][..], Vec::as_slice);
    Ok(match &node.op {
        PlanOp::Source { source, columns } => {
            let (source, shared) = (context.sources)(*source)?;
            Box::new(SourceScan::new(SourceScanSpec {
                job: context.job,
                source,
                shared,
                actor: (context.actor, context.actors),
                columns: columns.clone(),
                schema,
                waker: context.waker.clone(),
            }))
        }
        PlanOp::Scan { relation, columns } => Box::new(Backfill::new(BackfillSpec {
            job: context.job,
            layout: (context.layouts)(*relation)?,
            columns: columns.clone(),
            vnodes: context.vnodes.clone(),
            state: context.state.clone(),
        })),
        PlanOp::Values { rows } => {
            // One actor says them.
            let rows = if context.actor == 0 { rows.clone() } else { rows.slice(0, 0) };
            Box::new(Values::new(rows))
        }
        PlanOp::Filter { predicate } => Box::new(Filter::new(predicate.clone(), failures())),
        PlanOp::Project { exprs } => Box::new(Project::new(exprs.clone(), schema, failures())),
        PlanOp::Expand { projections } => Box::new(Expand::new(projections.clone(), schema, failures())),
        PlanOp::Union => Box::new(Union::new(inputs.len(), schema)),
        PlanOp::Window { kind, time } => Box::new(Window::new(*kind, *time, schema)),
        PlanOp::Aggregate { .. } => super::build_stateful::aggregate(node, inputs, tables, context)?,
        PlanOp::Join { .. } => super::build_stateful::join(node, inputs, tables, context)?,
        PlanOp::TopN { .. } => super::build_stateful::top_n(node, inputs, tables)?,
        PlanOp::Over { .. } => super::build_stateful::over(node, inputs, tables, context)?,
        PlanOp::EmitOnClose { time } => {
            let distribution = match &node.properties.distribution {
                Distribution::Hash(columns) => columns.clone(),
                Distribution::Single => Vec::new(),
                Distribution::Any => return Err(JobError::internal("held rows need a place of their own")),
            };
            Box::new(EmitOnClose::new(&schema, *time, distribution, tables[0]))
        }
        PlanOp::Exchange { .. } => {
            return Err(JobError::internal("an exchange is a cut between fragments, not an operator"));
        }
    })
}
