//! Runs a batch plan, with limits.
//!
//! ```text
//!   caller's runtime                     query threads (lower priority)
//!   execute ── resolve ─────────────────> physical plan ── batches ──┐
//!      └── a lookup: plan, read ──┐                                  │
//!   stream <── cancel? timeout? <─┴────── channel of two batches <───┘
//! ```
//! Dropping the stream ends the query.

use super::interrupt::{Waiting, interruptible};
use super::lookup::LookupPlanner;
use super::snapshot::{QuerySnapshot, ReadPoint};
use super::window::WindowQueryPlanner;
use super::{QueryOptions, ServeContext, ServeError};
use crate::config::Config;
use crate::telemetry::METRICS;
use crate::threads::ThreadKind;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::ParamValues;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::execute_stream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::prelude::SessionConfig;
use futures::StreamExt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use weir_sql::functions::batch_analyzer_rules;
use weir_sql::plan::optimize::planning_options;

/// Threads beside those that one query is spread over. What runs in one poll for long (a join without
/// rows to give) keeps its thread: others go on on these, and the system shares the processors out.
const SPARE_THREADS: usize = 16;

/// The threads that run queries, and what all queries' plans are made with.
pub struct QueryEngine {
    runtime: Option<tokio::runtime::Runtime>,
    planners: Arc<Planners>,
}

/// What plans are made with.
struct Planners {
    lookups: LookupPlanner,
    all: SessionState,
}

impl QueryEngine {
    /// Starts the threads.
    pub fn new(config: &Config) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(config.query_threads + SPARE_THREADS)
            .max_blocking_threads(config.query_threads)
            .thread_name("weir-query")
            .thread_stack_size(crate::config::STACK_BYTES)
            .enable_time()
            .on_thread_start(|| ThreadKind::Query.apply())
            .build()?;
        let mut options = planning_options();
        // A scalar subquery over a few rows is cheaper run once than joined.
        options.optimizer.enable_physical_uncorrelated_scalar_subquery = true;
        let mut session = SessionConfig::from(options).with_target_partitions(config.query_threads);
        session.options_mut().execution.collect_statistics = false;
        let lookups = LookupPlanner::new(session.clone());
        let all = SessionStateBuilder::new()
            .with_optimizer_rules(weir_sql::binder::optimize::batch_rules())
            .with_config(session)
            .with_analyzer_rules(batch_analyzer_rules())
            .with_query_planner(Arc::new(WindowQueryPlanner))
            .build();
        Ok(Self { runtime: Some(runtime), planners: Arc::new(Planners { lookups, all }) })
    }

    fn handle(&self) -> &tokio::runtime::Handle {
        self.runtime.as_ref().expect("taken by drop only").handle()
    }
}

impl Planners {
    /// The rows of `plan`, of which at most `memory_limit` bytes are held, until `ended`.
    async fn start(
        &self,
        plan: &LogicalPlan,
        memory_limit: usize,
        ended: &Arc<AtomicBool>,
    ) -> Result<SendableRecordBatchStream, DataFusionError> {
        let session = self.session(memory_limit)?;
        let physical = session.create_physical_plan(plan).await?;
        execute_stream(interruptible(physical, ended)?, session.task_ctx())
    }

    /// What one query is planned and run with.
    fn session(&self, memory_limit: usize) -> Result<SessionState, DataFusionError> {
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(GreedyMemoryPool::new(memory_limit)))
            .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled))
            .build_arc()?;
        let mut state =
            SessionStateBuilder::new_from_existing(self.all.clone()).with_runtime_env(runtime).build();
        state.mark_start_execution();
        Ok(state)
    }
}

impl Drop for QueryEngine {
    fn drop(&mut self) {
        // A runtime must not wait for its threads where its owner may be async.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// When a query ends whether it is done or not.
struct Ending {
    cancel: CancellationToken,
    deadline: Option<Instant>,
    waiting: Waiting,
}

impl Ending {
    /// Waits for `work`, unless the query has to end.
    async fn or<T>(&self, work: impl Future<Output = T>) -> Result<T, ServeError> {
        let deadline = async {
            match self.deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(ServeError::canceled()),
            () = deadline => Err(ServeError::timed_out()),
            done = work => Ok(done),
        }
    }
}

impl ServeContext {
    /// Runs `plan` at the newest visible epoch. What fails while rows are computed comes in the
    /// stream, as a `DataFusionError` that `ServeError::from` understands.
    pub async fn execute(
        &self,
        plan: LogicalPlan,
        options: QueryOptions,
    ) -> Result<SendableRecordBatchStream, ServeError> {
        METRICS.queries.inc();
        let at = options.at.unwrap_or_else(|| ReadPoint::newest(&self.db));
        let snapshot = QuerySnapshot::new(at, self.db.catalog(), options.overlay);
        let plan = with_params(plan, options.params)?;
        let plan = snapshot.resolve(plan, &self.system_rows(&options.session))?;
        let memory_limit = options.memory_limit.unwrap_or(self.config.query_memory_limit);
        self.engine.execute(plan, memory_limit, options.cancel, options.timeout).await
    }
}

impl QueryEngine {
    /// Runs a plan whose scans are resolved.
    pub async fn execute(
        &self,
        plan: LogicalPlan,
        memory_limit: usize,
        cancel: CancellationToken,
        timeout: Option<Duration>,
    ) -> Result<SendableRecordBatchStream, ServeError> {
        let deadline = timeout.filter(|t| *t > Duration::ZERO).map(|t| Instant::now() + t);
        let ending = Ending { cancel, deadline, waiting: Waiting::default() };
        let (schema_sender, schema) = oneshot::channel();
        let (sender, batches) = mpsc::channel(2);
        // A set, because dropping it aborts the task.
        let mut task = JoinSet::new();
        // What a key answers is not worth the way to the query threads.
        match self.planners.lookups.execute(&plan).await? {
            Some(rows) => task.spawn(send(rows, schema_sender, sender)),
            None => {
                let planners = Arc::clone(&self.planners);
                let query = (plan, memory_limit, ending.waiting.ended());
                task.spawn_on(run(planners, query, schema_sender, sender), self.handle())
            }
        };
        let schema = match ending.or(schema).await? {
            Ok(schema) => schema?,
            Err(_) => return Err(panicked(task).await),
        };
        Ok(answer(schema, batches, ending, task))
    }
}

fn with_params(plan: LogicalPlan, params: Option<ParamValues>) -> Result<LogicalPlan, ServeError> {
    match params {
        Some(params) => Ok(plan.with_param_values(params)?),
        None => Ok(plan),
    }
}

/// Plans and runs the query, on the query threads.
async fn run(
    planners: Arc<Planners>,
    (plan, memory_limit, ended): (LogicalPlan, usize, Arc<AtomicBool>),
    schema: oneshot::Sender<Result<SchemaRef, ServeError>>,
    sender: mpsc::Sender<Result<RecordBatch, DataFusionError>>,
) {
    match planners.start(&plan, memory_limit, &ended).await {
        Ok(rows) => send(rows, schema, sender).await,
        Err(error) => drop(schema.send(Err(error.into()))),
    }
}

/// Sends rows as they come.
async fn send(
    mut stream: SendableRecordBatchStream,
    schema: oneshot::Sender<Result<SchemaRef, ServeError>>,
    sender: mpsc::Sender<Result<RecordBatch, DataFusionError>>,
) {
    if schema.send(Ok(stream.schema())).is_err() {
        return;
    }
    while let Some(batch) = stream.next().await {
        let failed = batch.is_err();
        if sender.send(batch).await.is_err() || failed {
            return;
        }
    }
}

fn answer(
    schema: SchemaRef,
    batches: mpsc::Receiver<Result<RecordBatch, DataFusionError>>,
    ending: Ending,
    task: JoinSet<()>,
) -> SendableRecordBatchStream {
    let stream = futures::stream::unfold(Some((batches, ending, task)), |running| async move {
        let (mut batches, ending, mut task) = running?;
        match ending.or(batches.recv()).await {
            Ok(Some(Ok(batch))) => Some((Ok(batch), Some((batches, ending, task)))),
            Ok(Some(Err(error))) => Some((Err(error), None)),
            Err(ended) => Some((Err(ended.into()), None)),
            // The sender is gone: the query is done, or its task panicked.
            Ok(None) => match task.join_next().await {
                Some(Err(error)) => Some((Err(died(&error).into()), None)),
                Some(Ok(())) | None => None,
            },
        }
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, stream))
}

async fn panicked(mut task: JoinSet<()>) -> ServeError {
    match task.join_next().await {
        Some(Err(error)) => died(&error),
        Some(Ok(())) | None => ServeError::canceled(),
    }
}

fn died(error: &JoinError) -> ServeError {
    if error.is_cancelled() {
        return ServeError::new(
            weir_catalog::SqlState::ADMIN_SHUTDOWN,
            "terminating connection due to administrator command",
        );
    }
    tracing::error!(%error, "a query panicked");
    ServeError::new(weir_catalog::SqlState::INTERNAL_ERROR, "the query could not be computed")
        .with_hint("This is a bug in Weir; its log has the particulars.")
}
