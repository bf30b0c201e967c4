//! The last operator of a job: what becomes of its rows. Materialized for tables, views and
//! indexes; logged for sinks.

use super::build::Lookup;
use super::manager::JobError;
use crate::checkpoint::ahead::Ahead;
use crate::checkpoint::belongings::PartOnDisk;
use crate::checkpoint::participant::CommitHandle;
use crate::connectors::registry;
use crate::connectors::sink_log::{SealedPart, SinkLog, SinkLogWriter};
use crate::dataflow::dispatch;
use crate::dataflow::operator::Operator;
use crate::dml::log::DmlLog;
use crate::operators::materialize::{ConflictCounter, Materialize};
use crate::operators::sink::{Discard, SinkWriter};
use crate::state::table::TableLayout;
use crate::stream::{ChangeBatch, Epoch};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use weir_catalog::column::{Column, arrow_schema};
use weir_catalog::relation::RowKey;
use weir_catalog::sink::SinkType;
use weir_catalog::{Object, ObjectBody, ObjectId};
use weir_sql::plan::{Distribution, Properties};

/// What the last operators of jobs need.
#[derive(Clone)]
pub struct Tails {
    /// Where tables' changes come from.
    pub dml: Arc<DmlLog>,
    /// Finds objects by id.
    pub objects: Arc<dyn Fn(ObjectId) -> Option<Arc<Object>> + Send + Sync>,
    /// The logs of sinks.
    pub sink_logs: Arc<SinkLogs>,
}

/// The sinks' logs: one each, shared by its actors and its committer.
pub struct SinkLogs {
    dir: PathBuf,
    generation: u64,
    open: Mutex<HashMap<ObjectId, Arc<SinkLog>>>,
    /// The last epoch that was given before this life of the dataflow.
    began: Mutex<Epoch>,
    /// What the restored checkpoint promised and did not release: it goes with the next promise.
    carried: Mutex<Vec<CommitHandle>>,
}

impl SinkLogs {
    /// Logs below `dir`, written by the server's life `generation`.
    pub fn new(dir: PathBuf, generation: u64) -> Self {
        Self { dir, generation, open: Mutex::default(), began: Mutex::default(), carried: Mutex::default() }
    }

    /// The directory of a sink's log.
    pub fn dir(&self, sink: ObjectId) -> PathBuf {
        self.dir.join(sink.to_string())
    }

    /// Another life of the dataflow begins: all of its epochs come after `began`.
    pub fn begin(&self, began: Epoch) {
        *self.began.lock() = began;
    }

    /// Opens the log of a sink that there was before; `restored` are the promises of the restored checkpoint,
    /// by which files that nobody needs are told apart.
    pub fn restore(&self, sink: ObjectId, restored: &[CommitHandle]) -> std::io::Result<Arc<SinkLog>> {
        let mut open = self.open.lock();
        if let Some(log) = open.get(&sink) {
            return Ok(log.clone());
        }
        let log = SinkLog::open(&self.dir(sink), restored)?;
        open.insert(sink, log.clone());
        Ok(log)
    }

    /// The log of `sink`. The target of a new one must hold nothing.
    pub fn open(&self, sink: ObjectId) -> std::io::Result<Arc<SinkLog>> {
        if let Some(log) = self.open.lock().get(&sink) {
            return Ok(log.clone());
        }
        let log = self.restore(sink, &[])?;
        log.unopened().must_not_hold(&Ahead::of(Epoch::ZERO), *self.began.lock());
        Ok(log)
    }

    /// What the writers opened from now on append first.
    pub fn carry(&self, promised: Vec<CommitHandle>) {
        *self.carried.lock() = promised;
    }

    /// A writer for the log of `sink`, for its actor number `actor` of `actors`, which gets the rows that
    /// `placed` says.
    fn writer(
        &self,
        sink: ObjectId,
        (actor, actors): (usize, usize),
        placed: &Distribution,
    ) -> std::io::Result<SinkLogWriter> {
        let mut writer = self.open(sink)?.writer(sink, actor as u32, self.generation);
        let carried: Vec<CommitHandle> =
            self.carried.lock().iter().filter(|h| h.sink == sink).cloned().collect();
        if !carried.is_empty() && actor == 0 {
            tracing::info!(%sink, parts = carried.len(), "what was logged and not released goes with the next epoch");
        }
        writer.carry(&carried, &|handle, changes| share(placed, (actor, actors), handle.actor, changes))?;
        Ok(writer)
    }

    /// The sinks that have a directory.
    pub fn all(&self) -> std::io::Result<Vec<ObjectId>> {
        let mut all = Vec::new();
        for entry in std::fs::read_dir(&self.dir)? {
            all.extend(entry?.file_name().to_str().and_then(|name| name.parse().ok()).map(ObjectId));
        }
        Ok(all)
    }

    /// Where what `handles` promise is on the disk. What is delivered need not be there any more.
    pub fn promised(&self, handles: &[CommitHandle]) -> std::io::Result<Vec<PartOnDisk>> {
        let on_disk = |handle: &CommitHandle| {
            let SealedPart { file, start, end, .. } = SealedPart::of(handle)?;
            let CommitHandle { sink, actor, epoch, .. } = *handle;
            Ok(PartOnDisk { sink, actor, epoch, path: self.dir(sink).join(file), start, end })
        };
        handles.iter().map(on_disk).collect()
    }

    /// Keeps through restarts what targets must not hold that nobody has opened yet: to be done before there
    /// is a newer checkpoint to start from.
    pub fn note_unopened(&self) -> std::io::Result<()> {
        let logs: Vec<Arc<SinkLog>> = self.open.lock().values().cloned().collect();
        logs.iter().try_for_each(|log| log.unopened().note())
    }

    /// What targets must not hold, as somebody is to know it who goes on with what there is now: if nobody has
    /// opened them yet, or has chosen what becomes of what they hold.
    pub fn ahead(&self) -> Vec<(ObjectId, Ahead)> {
        self.of_logs(|log| log.unopened().to_carry())
    }

    /// The same for a savepoint of `epoch`, and what targets must hold.
    pub fn to_save(&self, epoch: Epoch) -> Vec<(ObjectId, Ahead)> {
        self.of_logs(|log| log.unopened().to_save(epoch))
    }

    fn of_logs(&self, ahead: impl Fn(&SinkLog) -> Option<Ahead>) -> Vec<(ObjectId, Ahead)> {
        let open = self.open.lock();
        let of_log = |(sink, log): (&ObjectId, &Arc<SinkLog>)| Some((*sink, ahead(log)?));
        let mut ahead: Vec<_> = open.iter().filter_map(of_log).collect();
        ahead.sort_unstable_by_key(|(sink, _)| *sink);
        ahead
    }

    /// Closes all logs: the next incarnation opens them anew.
    pub fn close(&self) {
        self.open.lock().clear();
        self.carried.lock().clear();
    }

    /// Removes the log of a dropped sink.
    pub fn remove(&self, sink: ObjectId) {
        self.open.lock().remove(&sink);
        if let Err(error) = SinkLog::remove(&self.dir(sink)) {
            tracing::warn!(%sink, %error, "could not remove sink log");
        }
    }
}

impl Tails {
    /// The source of this id, if it is one.
    pub fn source(&self, id: ObjectId) -> Option<Arc<Object>> {
        (self.objects)(id).filter(|o| o.kind() == weir_catalog::ObjectKind::Source)
    }

    /// The last operator of `object`'s job, for an actor of its root fragment: its number, of so many.
    /// `rows` is what is known of those that it gets.
    pub fn operator(
        &self,
        object: &Object,
        actor: (usize, usize),
        rows: &Properties,
        layouts: &Lookup<Arc<TableLayout>>,
    ) -> Result<Box<dyn Operator>, JobError> {
        let append_only = rows.append_only;
        match &object.body {
            ObjectBody::Sink(sink) if registry::discards(sink) => Ok(Box::new(Discard)),
            ObjectBody::Sink(sink) => {
                let writer = self.sink_logs.writer(object.id, actor, &rows.distribution);
                let writer = writer.map_err(|e| JobError::io("open the sink log", &e))?;
                let insertions_only = sink.sink_type == SinkType::AppendOnly && !append_only;
                Ok(Box::new(SinkWriter::new(writer, insertions_only)))
            }
            ObjectBody::Index(index) => {
                let relation = (self.objects)(index.relation)
                    .ok_or_else(|| JobError::internal("an index has a relation"))?;
                materialize(&(layouts)(object.id)?, relation.columns(), append_only)
            }
            _ => materialize(&(layouts)(object.id)?, object.columns(), append_only),
        }
    }
}

/// Which of `changes`, that actor `of` has logged, are those of actor `actor` of `actors`. A key has one
/// actor: where two had its rows of one epoch, the older might be committed after the newer.
fn share(
    placed: &Distribution,
    (actor, actors): (usize, usize),
    of: u32,
    changes: ChangeBatch,
) -> std::io::Result<Option<ChangeBatch>> {
    match placed {
        Distribution::Hash(columns) => {
            let mut parts = dispatch::partition(&changes, columns, actors).map_err(std::io::Error::other)?;
            Ok(parts.swap_remove(actor))
        }
        // They may be anybody's; those of actors that are no more go round.
        Distribution::Any | Distribution::Single => Ok((of as usize % actors == actor).then_some(changes)),
    }
}

/// Writes the rows of a table, view or index.
pub fn materialize(
    layout: &Arc<TableLayout>,
    columns: &[Column],
    append_only: bool,
) -> Result<Box<dyn Operator>, JobError> {
    let schema = arrow_schema(columns);
    Ok(Box::new(Materialize::new(layout.clone(), schema, append_only, ConflictCounter::default())))
}

/// The columns by whose vnodes the changes of `object` are placed.
pub fn key_columns(object: &Object) -> Vec<usize> {
    let key = match &object.body {
        ObjectBody::Table(table) => &table.key,
        ObjectBody::MaterializedView(view) => &view.key,
        _ => &RowKey::WholeRow,
    };
    key.columns(object.columns().len())
}

#[cfg(test)]
#[path = "tests/tail.rs"]
mod tests;
