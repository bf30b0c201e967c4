//! The database's dataflow while it runs: workers, actors, coordinator. One incarnation: it ends
//! with a failure or the server, and the next one starts from the last checkpoint.
//!
//! Every change of the graph is a mutation at a barrier, the start too: its first barrier attaches
//! every job of the restored checkpoint.

use super::assemble::{Assembled, Site};
use super::build::{BuildContext, OpenSource, assign_tables};
use super::change::{Change, begin};
use super::edges::{self, edges_to, fills, inject, reads, restore_actors};
use super::graph::{self, Fragment, cut};
use super::manager::JobError;
use super::tail::{self, Tails};
use crate::checkpoint::coordinator::{CoordinatorHandle, Message as Told, MutationRequest, Overtaker, Shown};
use crate::checkpoint::participant::{ActorReport, ChannelState, Offset, OffsetKey};
use crate::connectors::registry;
use crate::dataflow::actor::{ActorEvents, ActorShared};
use crate::dataflow::chain::StateSource;
use crate::dataflow::exchange::ActorIds;
use crate::dataflow::operator::OperatorError;
use crate::dataflow::worker::Worker;
use crate::operators::dml::DmlReader;
use crate::operators::expr::ErrorCounter;
use crate::operators::source::{SourceReader, SourceShared, SourceSpec};
use crate::state::store::StateRead;
use crate::state::table::TableLayout;
use crate::stream::{ActorId, Epoch};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tokio::sync::oneshot;
use weir_catalog::{JobId, Object, ObjectBody, ObjectId, TableId};
use weir_sql::plan::StreamPlan;

/// A job to start.
pub struct JobSpec {
    /// Its object.
    pub object: Arc<Object>,
    /// Its plan; none for a table.
    pub plan: Option<StreamPlan>,
    /// Whether the restored checkpoint holds its state.
    pub restored: bool,
}

/// What restored jobs start from.
pub struct RestoredState {
    /// The state.
    pub state: Arc<dyn StateRead>,
    /// Offsets of all splits.
    pub offsets: HashMap<OffsetKey, Offset>,
    /// The restored epoch.
    pub epoch: Epoch,
    /// The DML position that its tables hold.
    pub dml_position: u64,
    /// Rows that lay before its barrier, by the job that they were on their way in.
    pub channels: HashMap<JobId, Vec<ChannelState>>,
}

pub(super) struct RunningJob {
    /// How many actors each fragment has that is not a single one.
    pub(super) parallelism: usize,
    pub(super) actors: Vec<ActorId>,
    pub(super) outputs: Vec<ActorId>,
    /// The key columns of the relation, by which its changes are routed.
    pub(super) key: Vec<usize>,
    /// Sources and relations that it reads, with the columns.
    pub(super) reads: Vec<(ObjectId, Vec<usize>)>,
    pub(super) source: Option<OpenSource>,
    pub(super) errors: ErrorCounter,
    /// Of a table: rows that came below its watermark.
    pub(super) late_rows: Arc<AtomicU64>,
}

/// How many actors each fragment of an object's job is to have.
pub type Parallelism = Arc<dyn Fn(ObjectId) -> usize + Send + Sync>;

/// What the dataflow stands on.
pub struct Ground {
    /// How many threads run the actors.
    pub workers: usize,
    /// What the catalog says of it now.
    pub parallelism: Parallelism,
    /// Bytes that a channel between actors takes before it is full.
    pub channel_bytes: usize,
    /// The newest published snapshot.
    pub state: StateSource,
    /// The coordinator.
    pub coordinator: CoordinatorHandle,
    /// What it shows.
    pub shown: Arc<Shown>,
    /// Set when something moved.
    pub moved: Arc<std::sync::atomic::AtomicBool>,
    /// What the last operators of jobs need.
    pub tails: Tails,
    /// The objects that exist, and those being created.
    pub layouts: super::build::Lookup<Arc<TableLayout>>,
}

/// One incarnation of the database's dataflow.
pub struct Running {
    pub(super) ground: Ground,
    pub(super) shared: Arc<ActorShared>,
    ids: ActorIds,

    pub(super) workers: Vec<Worker>,
    /// The tables of each job that ever ran here.
    tables: Arc<Mutex<HashMap<JobId, Vec<TableId>>>>,
    pub(super) jobs: Mutex<HashMap<JobId, RunningJob>>,
}

struct Reports(CoordinatorHandle);

impl ActorEvents for Reports {
    fn reported(&self, report: ActorReport) {
        self.0.send(Told::Report(report));
    }

    fn failed(&self, actor: ActorId, job: JobId, error: OperatorError) {
        tracing::error!(actor = actor.0, %job, %error, "actor failed");
        self.0.send(Told::Failed(format!("job {job}: {error}")));
    }
}

impl Running {
    /// Starts the workers; no jobs yet.
    pub fn start(ground: Ground) -> std::io::Result<Running> {
        let events = Arc::new(Reports(ground.coordinator.clone()));
        let shared = Arc::new(ActorShared {
            events: events.clone(),
            pending: Arc::default(),
            moved: ground.moved.clone(),
            room: Arc::default(),
            overtake: Arc::default(),
            state_entries: Default::default(),
        });
        let workers = (0..ground.workers)
            .map(|index| Worker::start(index, events.clone()))
            .collect::<std::io::Result<_>>()?;
        Ok(Running {
            ground,
            shared,
            ids: ActorIds::default(),
            workers,
            tables: Arc::default(),
            jobs: Mutex::default(),
        })
    }

    /// What lets all actors handle a barrier before it comes.
    pub fn overtaker(&self) -> Overtaker {
        let overtake = self.shared.overtake.clone();
        let rousers: Vec<_> = self.workers.iter().map(Worker::rouser).collect();
        Box::new(move |barrier| {
            overtake.set(barrier);
            rousers.iter().for_each(|rouse| rouse());
        })
    }

    /// The coordinator.
    pub fn coordinator(&self) -> &CoordinatorHandle {
        &self.ground.coordinator
    }

    /// Adds and removes jobs at one barrier; inputs come before what reads them. Returns the
    /// answer to wait for: the epoch from which the change is visible.
    pub fn change(
        &self,
        add: Vec<JobSpec>,
        remove: &[JobId],
        restored: Option<&RestoredState>,
    ) -> Result<oneshot::Receiver<Result<Epoch, String>>, JobError> {
        let mut jobs = self.jobs.lock();
        let mut change = Change::default();
        for spec in add {
            let added = self.build(&mut jobs, &mut change, &spec, restored);
            if let Err(error) = added {
                // Nothing was sent: the jobs built so far are forgotten, their channels close.
                for job in change.mutation.added.iter().chain([&spec.object.id]) {
                    self.forget(&mut jobs, *job);
                    let sources = jobs.values().filter_map(|j| j.source.as_ref());
                    sources.for_each(|(_, shared)| shared.unwant(*job));
                }
                return Err(error);
            }
        }
        for job in remove {
            change.removed_actors.extend(self.forget(&mut jobs, *job));
            change.mutation.removed.push(*job);
        }
        self.drop_unread_sources(&mut jobs, &mut change);
        Ok(self.send(change))
    }

    /// Starts the actors of `change` and has it put on a barrier.
    pub(super) fn send(&self, mut change: Change) -> oneshot::Receiver<Result<Epoch, String>> {
        let (done, answer) = oneshot::channel();
        let roots = change
            .actors
            .iter_mut()
            .filter_map(|new| new.control.take().map(|control| (new.actor.id, inject(control))))
            .collect();
        let request = MutationRequest {
            added: change.actors.iter().map(|new| new.actor.id).collect(),
            roots,
            removed: change.removed_actors,
            filling: change.filling,
            mutation: change.mutation,
            begin: change.start.map(begin),
            done,
        };
        for new in change.actors {
            self.workers[new.worker].add(new.actor);
        }
        self.ground.coordinator.send(Told::Mutate(request));
        answer
    }

    /// Takes a job off the books. Returns its actors.
    pub(super) fn forget(&self, jobs: &mut HashMap<JobId, RunningJob>, id: JobId) -> Vec<ActorId> {
        jobs.remove(&id).map_or_else(Vec::new, |job| job.actors)
    }

    pub(super) fn drop_unread_sources(&self, jobs: &mut HashMap<JobId, RunningJob>, change: &mut Change) {
        let unread: Vec<JobId> = jobs
            .iter()
            .filter(|(id, job)| {
                job.source.is_some() && !jobs.values().any(|j| j.reads.iter().any(|(read, _)| read == *id))
            })
            .map(|(id, _)| *id)
            .collect();
        for source in unread {
            change.removed_actors.extend(self.forget(jobs, source));
            change.mutation.removed.push(source);
        }
    }

    /// Builds a job's actors, and those of the sources that it is the first to read.
    pub(super) fn build(
        &self,
        jobs: &mut HashMap<JobId, RunningJob>,
        change: &mut Change,
        spec: &JobSpec,
        restored: Option<&RestoredState>,
    ) -> Result<(), JobError> {
        let id = spec.object.id;
        // Other actors count on where those that they replace end.
        let counters = change.replaced.get(&id).map(|job| (job.errors.clone(), job.late_rows.clone()));
        let (errors, late_rows) = counters.unwrap_or_default();
        let parallelism = self.parallelism(change, id);
        let (assembled, reads) = match (&spec.object.body, &spec.plan) {
            (ObjectBody::Table(table), _) => {
                let layout = (self.ground.layouts)(id)?;
                let position = match &change.start {
                    Some(_) => None,
                    None => Some(restored.map_or(0, |r| r.dml_position)),
                };
                let key = table.key.columns(table.columns.len());
                let assembled = self.site(jobs).roots(id, parallelism, &|actor, vnodes, _| {
                    let log = self.ground.tails.dml.clone();
                    let mut reader = DmlReader::new(id, log, key.clone(), vnodes.clone(), position);
                    if let Some(watermark) = table.watermark.clone() {
                        let name = spec.object.name.to_string();
                        reader = reader.with_watermark(watermark, name, actor, late_rows.clone());
                    }
                    Ok(vec![Box::new(reader), tail::materialize(&layout, &table.columns, table.append_only)?])
                })?;
                (assembled, Vec::new())
            }
            (_, Some(plan)) => {
                let reads = reads(&plan.root);
                self.open_sources(jobs, change, (id, &reads), restored)?;
                (self.build_planned(jobs, spec, (plan, parallelism), (&errors, restored))?, reads)
            }
            (_, None) => return Err(JobError::internal("a job needs a plan")),
        };
        let key = tail::key_columns(&spec.object);
        self.enlist(jobs, change, id, assembled, spec.restored.then_some(restored).flatten(), |job| {
            RunningJob { parallelism, reads, key, errors, late_rows, ..job }
        })?;
        change.filling.extend((!spec.restored && fills(spec.plan.as_ref())).then_some(id));
        Ok(())
    }

    fn parallelism(&self, change: &Change, id: ObjectId) -> usize {
        change.parallelism.as_ref().unwrap_or(&self.ground.parallelism)(id)
    }

    fn site<'a>(&'a self, jobs: &'a HashMap<JobId, RunningJob>) -> SiteOf<'a> {
        SiteOf { running: self, jobs }
    }

    fn build_planned(
        &self,
        jobs: &HashMap<JobId, RunningJob>,
        spec: &JobSpec,
        (plan, parallelism): (&StreamPlan, usize),
        (errors, restored): (&ErrorCounter, Option<&RestoredState>),
    ) -> Result<Assembled, JobError> {
        let id = spec.object.id;
        let fragments: Vec<Fragment> = cut(&plan.root, parallelism);
        let tables = Arc::new(assign_tables(id, &plan.root)?);
        self.tables.lock().insert(id, tables.values().flatten().copied().collect());
        let open: HashMap<ObjectId, OpenSource> =
            jobs.iter().filter_map(|(id, j)| j.source.clone().map(|s| (*id, s))).collect();
        let open = Arc::new(open);
        let name: Arc<str> = spec.object.name.to_string().into();
        let context = |(actor, actors), vnodes, waker| {
            let open = open.clone();
            BuildContext {
                job: id,
                name: name.clone(),
                actor,
                actors,
                vnodes,
                tables: tables.clone(),
                state: self.ground.state.clone(),
                errors: errors.clone(),
                waker,
                layouts: self.ground.layouts.clone(),
                sources: Arc::new(move |source| {
                    open.get(&source)
                        .cloned()
                        .ok_or_else(|| JobError::internal("a source is open before it is read"))
                }),
            }
        };
        let rows = &plan.root.properties;
        let actors = fragments.last().map_or(1, |root| root.parallelism);
        let tail = |actor: usize, _: &_| {
            let actor = (actor, actors);
            self.ground.tails.operator(&spec.object, actor, rows, &self.ground.layouts).map(Some)
        };
        let inputs = graph::inputs(&plan.root);
        let mut assembled = self.site(jobs).fragments(id, (&fragments, &inputs), &context, &tail)?;
        if let Some(channels) = restored.filter(|_| spec.restored).and_then(|r| r.channels.get(&id)) {
            let key_of =
                |relation: ObjectId| jobs.get(&relation).map_or_else(Vec::new, |job| job.key.clone());
            edges::replay(&mut assembled.actors, &fragments, &inputs, channels, &key_of)?;
        }
        Ok(assembled)
    }

    /// Starts the shared readers of sources that nobody has read so far.
    fn open_sources(
        &self,
        jobs: &mut HashMap<JobId, RunningJob>,
        change: &mut Change,
        (job, reads): (JobId, &[(ObjectId, Vec<usize>)]),
        restored: Option<&RestoredState>,
    ) -> Result<(), JobError> {
        for (id, columns) in reads {
            let Some(object) = self.ground.tails.source(*id) else { continue };
            let ObjectBody::Source(declared) = &object.body else { continue };
            if !jobs.contains_key(id) {
                let source = registry::open_source(declared).map_err(JobError::from_client)?;
                let replaced = change.replaced.get(id).and_then(|job| job.source.as_ref());
                let shared = Arc::new(match replaced {
                    Some((_, shared)) => shared.successor(),
                    None => SourceShared::new(declared.watermark.clone()),
                });
                let parallelism = self.parallelism(change, *id);
                let assembled = self.site(jobs).roots(*id, parallelism, &|actor, _, waker| {
                    Ok(vec![Box::new(SourceReader::new(SourceSpec {
                        id: *id,
                        name: object.name.to_string(),
                        source: source.clone(),
                        actor: (actor, parallelism),
                        shared: shared.clone(),
                        waker,
                    })) as _])
                })?;
                let open = Some((source, shared));
                self.enlist(jobs, change, *id, assembled, restored, |job| RunningJob {
                    parallelism,
                    source: open,
                    ..job
                })?;
            }
            if let Some((_, shared)) = jobs.get(id).and_then(|j| j.source.as_ref()) {
                shared.want(job, columns);
            }
        }
        Ok(())
    }

    /// Restores the actors of a job, attaches it to what it reads, and puts it on the books.
    fn enlist(
        &self,
        jobs: &mut HashMap<JobId, RunningJob>,
        change: &mut Change,
        id: JobId,
        mut assembled: Assembled,
        restored: Option<&RestoredState>,
        complete: impl FnOnce(RunningJob) -> RunningJob,
    ) -> Result<(), JobError> {
        match (&change.start, restored) {
            (Some(start), _) => {
                let actors = assembled.actors.iter_mut();
                actors.for_each(|new| new.actor.wait_for(Arc::clone(start), new.vnodes.clone()));
            }
            (None, Some(restored)) => restore_actors(&mut assembled.actors, restored)?,
            (None, None) => {}
        }
        for external in assembled.externals {
            let upstream = jobs
                .get(&external.relation)
                .ok_or_else(|| JobError::internal(format!("object {} is not running", external.relation)))?;
            let key = upstream.source.is_none().then_some(upstream.key.as_slice());
            for (actor, edge) in edges_to(id, (&upstream.outputs, key), external.senders) {
                let number = self.shared.pending.add(edge);
                change.mutation.attach.entry(actor).or_default().push(number);
            }
        }
        let job = RunningJob {
            parallelism: 0,
            actors: assembled.actors.iter().map(|new| new.actor.id).collect(),
            outputs: assembled.outputs,
            key: Vec::new(),
            reads: Vec::new(),
            source: None,
            errors: ErrorCounter::default(),
            late_rows: Arc::default(),
        };
        jobs.insert(id, complete(job));
        change.mutation.added.push(id);
        change.actors.extend(assembled.actors);
        Ok(())
    }

    /// Tells the tables of an object: its rows, and its job's internal ones.
    pub fn tables_of(&self) -> Box<dyn Fn(ObjectId) -> Vec<TableId> + Send + Sync> {
        let tables = self.tables.clone();
        Box::new(move |id| {
            let internal = tables.lock().remove(&id).unwrap_or_default();
            std::iter::once(id.table()).chain(internal).collect()
        })
    }

    /// The jobs that run, and the sources that they read.
    pub fn job_ids(&self) -> Vec<JobId> {
        self.jobs.lock().keys().copied().collect()
    }

    /// Stops the workers where they are.
    pub fn stop(&self) {
        self.workers.iter().for_each(Worker::stop);
    }
}

struct SiteOf<'a> {
    running: &'a Running,
    jobs: &'a HashMap<JobId, RunningJob>,
}

impl SiteOf<'_> {
    fn run<T>(&self, build: impl FnOnce(&Site<'_>) -> T) -> T {
        let upstream_actors = |id: ObjectId| self.jobs.get(&id).map_or(1, |j| j.outputs.len());
        build(&Site {
            workers: &self.running.workers,
            shared: &self.running.shared,
            ids: &self.running.ids,
            state: &self.running.ground.state,
            upstream_actors: &upstream_actors,
            channel_bytes: self.running.ground.channel_bytes,
        })
    }

    fn roots(
        &self,
        job: JobId,
        parallelism: usize,
        operators: super::assemble::Roots<'_>,
    ) -> Result<Assembled, JobError> {
        self.run(|site| site.roots(job, parallelism, operators))
    }

    fn fragments(
        &self,
        job: JobId,
        fragments: (&[Fragment], &[(u32, usize)]),
        context: super::assemble::Contexts<'_>,
        tail: super::assemble::Tail<'_>,
    ) -> Result<Assembled, JobError> {
        self.run(|site| site.fragments(job, fragments, context, tail))
    }
}
