//! Reads a relation's rows from a snapshot, a batch at a time, as an execution plan.
//!
//! Nothing is read ahead: each poll of the stream reads one batch on the query's own thread, so a
//! LIMIT, a cancelled query or a slow client stops the reading. Partitions are ranges of vnodes.

use super::ServeError;
use super::access::{Access, IndexLayout};
use super::layout::{DecodedRows, RowLayout, StoredRows};
use super::overlay::OverlayRows;
use crate::state::StateError;
use crate::state::store::StateRead;
use crate::stream::{Vnode, VnodeSet};
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use datafusion::common::internal_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, ReplaceChildrenOptions};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PhysicalExpr, PlanProperties,
};
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Entries read at once.
const BATCH_ROWS: usize = 8192;
/// Bytes read at once: fewer entries where rows are wide.
const BATCH_BYTES: usize = 4 << 20;

/// What every partition of a scan shares.
pub struct ScanSpec {
    /// How rows lie.
    pub layout: RowLayout,
    /// What to read.
    pub access: Access,
    /// The snapshot.
    pub state: Arc<dyn StateRead>,
    /// Changes on top of the snapshot, if the reader sees any.
    pub overlay: Option<Arc<OverlayRows>>,
    /// Ordinals of the output columns in the relation.
    pub projection: Vec<usize>,
    /// The output's columns.
    pub schema: SchemaRef,
    /// The relation's name, for EXPLAIN.
    pub relation: String,
}

/// The scan as an execution plan.
pub struct ScanExec {
    spec: Arc<ScanSpec>,
    limit: Option<usize>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl ScanExec {
    /// A scan in about `partitions` partitions that needs to give no more than `limit` rows.
    pub fn new(spec: ScanSpec, partitions: usize, limit: Option<usize>) -> Self {
        let partitions = match &spec.access {
            Access::Points(_) | Access::Index { .. } | Access::Nothing => 1,
            Access::All | Access::Range { .. } => partitions.clamp(1, 16),
        };
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&spec.schema)),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self {
            spec: Arc::new(spec),
            limit,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }
}

impl fmt::Debug for ScanExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScanExec({})", self.spec.relation)
    }
}

impl DisplayAs for ScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match &self.spec.access {
            Access::All => "all".to_owned(),
            Access::Points(keys) if keys.len() == 1 => "one key".to_owned(),
            Access::Points(keys) => format!("{} keys", keys.len()),
            Access::Range { .. } => "key range".to_owned(),
            Access::Index { index, .. } => format!("by index {}", index.name),
            Access::Nothing => "nothing".to_owned(),
        };
        write!(f, "ScanExec: {}, {how}", self.spec.relation)?;
        match self.limit {
            Some(limit) => write!(f, ", limit={limit}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for ScanExec {
    fn name(&self) -> &str {
        "ScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if children.is_empty() { Ok(self) } else { internal_err!("a scan has no children") }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if children.is_empty() { Ok(self) } else { internal_err!("a scan has no children") }
    }

    fn execute(&self, partition: usize, _context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let partitions = self.properties.output_partitioning().partition_count();
        let reader = Reader::new(Arc::clone(&self.spec), partition, partitions, self.limit);
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let batches = futures::stream::try_unfold((reader, metrics), |(mut reader, metrics)| async move {
            let batch = {
                let _timer = metrics.elapsed_compute().timer();
                reader.next()?
            };
            metrics.record_output(batch.as_ref().map_or(0, RecordBatch::num_rows));
            Ok(batch.map(|b| (b, (reader, metrics))))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.spec.schema), batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn supports_limit_pushdown(&self) -> bool {
        true
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(Arc::new(Self {
            spec: Arc::clone(&self.spec),
            limit,
            properties: Arc::clone(&self.properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }

    fn fetch(&self) -> Option<usize> {
        self.limit
    }
}

/// Where a reader goes on.
enum Cursor {
    /// Key ranges (full keys), last first.
    Ranges(Vec<(Vec<u8>, Vec<u8>)>),
    /// The same of an index.
    Index(Vec<(Vec<u8>, Vec<u8>)>),
    /// Point lookups from this index on.
    Points(usize),
    /// Only the overlay's insertions are left.
    Insertions,
    End,
}

/// Reads one partition.
struct Reader {
    spec: Arc<ScanSpec>,
    wanted: Vec<bool>,
    first_partition: bool,
    left: usize,
    overlay: Option<super::overlay::OverlayFilter>,
    cursor: Cursor,
    stored: StoredRows,
    /// Decoded rows that occur more than once, and the next one to repeat (row, how often already).
    repeating: Option<(RecordBatch, Arc<arrow::array::Int64Array>, usize, i64)>,
}

impl Reader {
    fn new(spec: Arc<ScanSpec>, partition: usize, partitions: usize, limit: Option<usize>) -> Self {
        let mut wanted = vec![spec.overlay.is_some(); spec.layout.schema.fields().len()];
        spec.projection.iter().for_each(|c| wanted[*c] = true);
        let cursor = match &spec.access {
            Access::Nothing => Cursor::Insertions,
            Access::Points(_) => Cursor::Points(0),
            Access::Index { ranges, .. } => {
                Cursor::Index(ranges.iter().rev().map(|r| (r.lower.clone(), r.upper.clone())).collect())
            }
            Access::All => {
                let vnodes = VnodeSet::share(partition, partitions);
                let table = spec.layout.table.0.to_be_bytes();
                let bound = |vnode: Option<Vnode>| match vnode {
                    Some(vnode) => [&table[..], &[vnode.0]].concat(),
                    None => crate::state::store::prefix_end(&table),
                };
                let lower = bound(vnodes.iter().next());
                let upper = bound(vnodes.iter().last().and_then(|v| v.0.checked_add(1)).map(Vnode));
                Cursor::Ranges(vec![(lower, upper)])
            }
            Access::Range { lower, upper } => {
                let in_vnode = |vnode: Vnode| {
                    let start = [&spec.layout.table.0.to_be_bytes()[..], &[vnode.0]].concat();
                    let upper = match upper {
                        Some(upper) => [&start[..], upper].concat(),
                        None => crate::state::store::prefix_end(&start),
                    };
                    ([&start[..], lower].concat(), upper)
                };
                let mut ranges: Vec<_> =
                    VnodeSet::share(partition, partitions).iter().map(in_vnode).collect();
                ranges.reverse();
                Cursor::Ranges(ranges)
            }
        };
        Self {
            overlay: spec.overlay.as_ref().map(|o| o.filter()),
            wanted,
            first_partition: partition == 0,
            left: limit.unwrap_or(usize::MAX),
            cursor,
            stored: StoredRows::default(),
            repeating: None,
            spec,
        }
    }

    /// The next rows, in the output's columns; never an empty batch.
    fn next(&mut self) -> Result<Option<RecordBatch>> {
        while self.left > 0 {
            let batch = match self.repeat()? {
                Some(batch) => batch,
                None => {
                    if self.fetch()? {
                        self.decode()?;
                        continue;
                    }
                    match std::mem::replace(&mut self.cursor, Cursor::End) {
                        Cursor::Insertions if self.first_partition => match &self.spec.overlay {
                            Some(overlay) => overlay.insertions().project(&self.spec.projection)?,
                            None => return Ok(None),
                        },
                        _ => return Ok(None),
                    }
                }
            };
            if batch.num_rows() > 0 {
                let rows = batch.num_rows().min(self.left);
                self.left -= rows;
                let batch = batch.slice(0, rows);
                return Ok(Some(RecordBatch::try_new_with_options(
                    Arc::clone(&self.spec.schema),
                    batch.columns().to_vec(),
                    &RecordBatchOptions::new().with_row_count(Some(rows)),
                )?));
            }
        }
        Ok(None)
    }

    /// Reads entries into `stored`; false at the end of the stored rows.
    fn fetch(&mut self) -> Result<bool> {
        self.stored.clear();
        let spec = Arc::clone(&self.spec);
        // A batch for a LIMIT need not be bigger than the limit, unless rows may be dropped.
        let most = if self.overlay.is_some() { BATCH_ROWS } else { self.left.min(BATCH_ROWS) };
        match &mut self.cursor {
            Cursor::Insertions | Cursor::End => return Ok(false),
            Cursor::Points(next) => {
                let Access::Points(keys) = &spec.access else { return internal_err!("points of no points") };
                let until = keys.len().min(*next + BATCH_ROWS);
                let chunk = &keys[*next..until];
                let values = spec.state.multi_get(chunk).map_err(state_error)?;
                for (key, value) in chunk.iter().zip(values) {
                    if let Some(value) = value {
                        self.stored.push(key, &value);
                    }
                }
                if until == keys.len() { self.cursor = Cursor::Insertions } else { *next = until }
            }
            Cursor::Ranges(ranges) => {
                read_ranges(&*spec.state, ranges, most, &mut self.stored).map_err(state_error)?;
                if ranges.is_empty() {
                    self.cursor = Cursor::Insertions;
                }
            }
            Cursor::Index(ranges) => {
                let Access::Index { index, .. } = &spec.access else {
                    return internal_err!("an index of none");
                };
                let mut entries = StoredRows::default();
                read_ranges(&*spec.state, ranges, most, &mut entries).map_err(state_error)?;
                if ranges.is_empty() {
                    self.cursor = Cursor::Insertions;
                }
                self.fetch_indexed(index, &entries).map_err(state_error)?;
            }
        }
        Ok(true)
    }

    /// Reads the rows that an index's entries stand for.
    fn fetch_indexed(&mut self, index: &IndexLayout, entries: &StoredRows) -> Result<(), StateError> {
        let spec = Arc::clone(&self.spec);
        let keys = spec.layout.keys_of_index(entries, &index.codec, &index.key_columns)?;
        if spec.layout.is_counted() {
            // The index holds the whole row, and how often it occurs.
            keys.iter().zip(entries.values()).for_each(|(key, count)| self.stored.push(key, count));
            return Ok(());
        }
        for (key, value) in keys.iter().zip(spec.state.multi_get(&keys)?) {
            if let Some(value) = value {
                self.stored.push(key, &value);
            }
        }
        Ok(())
    }

    /// Makes what was fetched the rows to give, each as often as it occurs.
    fn decode(&mut self) -> Result<()> {
        if self.stored.is_empty() {
            return Ok(());
        }
        let rows = self.stored.len();
        let DecodedRows { columns, mut counts } =
            self.spec.layout.decode(&self.stored, &self.wanted).map_err(state_error)?;
        if let Some(filter) = &mut self.overlay {
            let all: Vec<ArrayRef> = columns.iter().flatten().cloned().collect();
            counts = filter.apply(&all, rows, counts)?;
        }
        let output: Vec<ArrayRef> = self.spec.projection.iter().filter_map(|c| columns[*c].clone()).collect();
        let batch = RecordBatch::try_new_with_options(
            Arc::new(self.spec.layout.schema.project(&self.spec.projection)?),
            output,
            &RecordBatchOptions::new().with_row_count(Some(rows)),
        )?;
        let counts = counts.unwrap_or_else(|| Arc::new(vec![1i64; rows].into()));
        self.repeating = Some((batch, counts, 0, 0));
        Ok(())
    }

    /// Up to a batch of the rows to give.
    fn repeat(&mut self) -> Result<Option<RecordBatch>> {
        let Some((batch, counts, row, done)) = &mut self.repeating else { return Ok(None) };
        if *row == 0 && *done == 0 && counts.values().iter().all(|n| *n == 1) {
            return Ok(self.repeating.take().map(|(batch, ..)| batch));
        }
        let mut indices: Vec<u32> = Vec::with_capacity(BATCH_ROWS);
        while *row < batch.num_rows() && indices.len() < BATCH_ROWS {
            let times = (counts.value(*row) - *done).clamp(0, (BATCH_ROWS - indices.len()) as i64);
            indices.extend(std::iter::repeat_n(*row as u32, times as usize));
            *done += times;
            if *done >= counts.value(*row) {
                (*row, *done) = (*row + 1, 0);
            }
        }
        let rows = indices.len();
        let indices = UInt32Array::from(indices);
        let columns =
            batch.columns().iter().map(|c| take(c, &indices, None)).collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let repeated = RecordBatch::try_new_with_options(batch.schema(), columns, &options)?;
        if *row == batch.num_rows() {
            self.repeating = None;
        }
        Ok(Some(repeated))
    }
}

/// Reads entries of ranges (the last one first) until there are `most` or many bytes.
fn read_ranges(
    state: &dyn StateRead,
    ranges: &mut Vec<(Vec<u8>, Vec<u8>)>,
    most: usize,
    stored: &mut StoredRows,
) -> Result<(), StateError> {
    while stored.len() < most && stored.bytes() < BATCH_BYTES {
        let Some((lower, upper)) = ranges.last_mut() else { break };
        match read_range(state, lower, upper, most, stored)? {
            Some(next) => *lower = next,
            None => {
                ranges.pop();
            }
        }
    }
    Ok(())
}

/// Reads entries of a range until there are `most` or many bytes; where to go on, if not at the end.
fn read_range(
    state: &dyn StateRead,
    lower: &[u8],
    upper: &[u8],
    most: usize,
    stored: &mut StoredRows,
) -> Result<Option<Vec<u8>>, StateError> {
    let mut next = None;
    state.scan(lower, upper, &mut |key, value| {
        stored.push(key, value);
        if stored.len() >= most || stored.bytes() >= BATCH_BYTES {
            // The least key above this one.
            next = Some([key, &[0]].concat());
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    Ok(next)
}

fn state_error(error: StateError) -> DataFusionError {
    ServeError::from(error).into()
}
