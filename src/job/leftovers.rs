//! What dropped sinks leave in their targets: prepared transactions, which hold locks there until
//! somebody rolls them back.
//!
//! ```text
//!   sinks/<id>/target.json    a sink that prepares: how its target is reached
//!   DROP SINK ── catalog log ── committer ends ── everything is rolled back ── sinks/<id> removed
//!                  │ crash                             │ the target is down: tried again
//!                  └── at the next start, also of the dataflow: a directory whose sink is not in the catalog
//! ```
//! Where that directory is gone (an older copy of the data directory was put back), the targets of the
//! sinks that there are are searched, at the start and when one is created: what is prepared there under
//! the database's name for a sink that the catalog does not have is rolled back, unless a newer server
//! prepared it. Whoever it was that prepared it has its rows in the log, and writes them again.

use super::manager::JobError;
use super::tail::SinkLogs;
use crate::clock;
use crate::connectors::registry::{self, SinkContext};
use crate::connectors::retry::Backoff;
use crate::connectors::sink::{FateOf, Target};
use crate::connectors::transaction::{Fate, TransactionName};
use crate::state::data_dir::DataDir;
use crate::state::durable::write_atomically;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;
use weir_catalog::sink::Sink;
use weir_catalog::system::facts::{TransactionFact, TransactionState};
use weir_catalog::{CatalogSnapshot, ObjectBody, ObjectId, SqlState};

const FILE_NAME: &str = "target.json";

#[derive(Clone, Serialize, Deserialize)]
struct KeptSink {
    name: String,
    sink: Sink,
}

/// Keeps how the target of a sink is reached, in the directory of its log.
pub(super) fn keep(dir: &Path, name: &str, sink: &Sink) -> io::Result<()> {
    let kept = serde_json::to_vec(&KeptSink { name: name.to_owned(), sink: sink.clone() })?;
    let path = dir.join(FILE_NAME);
    match std::fs::read(&path) {
        Ok(there) if there == kept => Ok(()),
        _ => write_atomically(&path, &kept, "sink_target"),
    }
}

fn kept(dir: &Path) -> io::Result<Option<KeptSink>> {
    match std::fs::read(dir.join(FILE_NAME)) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Cleans up after dropped sinks.
pub struct Leftovers {
    data_dir: Arc<DataDir>,
    logs: Arc<SinkLogs>,

    /// Dropped sinks that are not cleaned up yet, and why not.
    waiting: Mutex<BTreeMap<ObjectId, Option<String>>>,
    /// Where targets were searched, or are.
    searched: Mutex<HashSet<String>>,
    /// Transactions of unknown sinks that are there still: why, and in whose target.
    strangers: Mutex<BTreeMap<String, Stranger>>,
}

/// Tells what the catalog has now; nothing once the database is closed.
pub type CatalogNow = Arc<dyn Fn() -> Option<Arc<CatalogSnapshot>> + Send + Sync>;

struct Stranger {
    name: TransactionName,
    reason: String,
    beside: KeptSink,
}

impl Leftovers {
    /// Of the database in `data_dir`.
    pub fn new(data_dir: Arc<DataDir>, logs: Arc<SinkLogs>) -> Self {
        Self {
            data_dir,
            logs,
            waiting: Mutex::default(),
            searched: Mutex::default(),
            strangers: Mutex::default(),
        }
    }

    /// Cleans up in the background after sinks that were dropped before, or while no dataflow ran: all but those
    /// whose jobs are `running` still, which are cleaned up after when they have ended.
    pub fn clean_all(self: &Arc<Self>, catalog: &CatalogSnapshot, running: &[ObjectId]) -> io::Result<()> {
        for sink in self.logs.all()? {
            let under_way = running.contains(&sink) || self.waiting.lock().contains_key(&sink);
            if catalog.by_id(sink).is_none() && !under_way {
                tokio::spawn(Self::clean(Arc::downgrade(self), sink));
            }
        }
        Ok(())
    }

    /// Cleans up after a dropped sink, however long its target is down; while the server runs.
    pub async fn clean(leftovers: Weak<Self>, sink: ObjectId) {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60), u64::from(sink.0));
        while let Some(leftovers) = leftovers.upgrade() {
            leftovers.waiting.lock().entry(sink).or_default();
            match leftovers.try_clean(sink).await {
                Ok(()) => {
                    leftovers.waiting.lock().remove(&sink);
                    return;
                }
                Err(reason) => {
                    tracing::warn!(%sink, reason, "could not clean up after a dropped sink");
                    leftovers.waiting.lock().insert(sink, Some(reason));
                }
            }
            drop(leftovers);
            clock::sleep(backoff.wait()).await;
        }
    }

    async fn try_clean(&self, sink: ObjectId) -> Result<(), String> {
        if let Some(kept) = kept(&self.logs.dir(sink)).map_err(|e| e.to_string())?
            && let Target::Prepared(mut target) = self.open(sink, &kept)?
        {
            for name in target.forget().await.map_err(|e| e.to_string())? {
                tracing::info!(transaction = %name, "a dropped sink's transaction is rolled back");
            }
        }
        self.logs.remove(sink);
        Ok(())
    }

    fn open(&self, sink: ObjectId, kept: &KeptSink) -> Result<Target, String> {
        let database = self.data_dir.database().to_string();
        let context = self.context(&database, sink, &kept.name);
        registry::open_sink_target(&kept.sink, &context).map_err(|e| e.to_string())
    }

    /// Searches the targets of the sinks that `catalog` has now for what unknown sinks left, each target once,
    /// in the background.
    pub fn search(self: &Arc<Self>, catalog: &CatalogNow) {
        let Some(now) = catalog() else { return };
        for object in now.objects() {
            let ObjectBody::Sink(sink) = &object.body else { continue };
            if !registry::prepares(sink) {
                continue;
            }
            let place = format!("{}{:?}", sink.connector, registry::whereabouts(sink));
            if self.searched.lock().insert(place) {
                let beside = KeptSink { name: object.name.name.clone(), sink: sink.clone() };
                tokio::spawn(Self::search_target(Arc::downgrade(self), Arc::clone(catalog), beside));
            }
        }
    }

    async fn search_target(leftovers: Weak<Self>, catalog: CatalogNow, beside: KeptSink) {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60), 0);
        while let Some(leftovers) = leftovers.upgrade() {
            let (generation, logs) = (leftovers.data_dir.generation(), Arc::clone(&leftovers.logs));
            let catalog = Arc::clone(&catalog);
            // Asked when the names are known: a sink is in the catalog before it prepares anything, and has its
            // directory until nothing of it is prepared.
            let fate = move |name: &TransactionName| match catalog() {
                Some(catalog) if catalog.by_id(name.sink).is_none() && !logs.dir(name.sink).exists() => {
                    if name.generation > generation {
                        Fate::Stranger
                    } else {
                        Fate::RollBack
                    }
                }
                _ => Fate::Keep,
            };
            match leftovers.sweep(&beside, &fate).await {
                Ok(()) => return,
                // Its own committer says so loudly.
                Err(reason) => tracing::debug!(sink = beside.name, reason, "could not search a target"),
            }
            drop(leftovers);
            clock::sleep(backoff.wait()).await;
        }
    }

    async fn sweep(&self, beside: &KeptSink, fate: &FateOf) -> Result<(), String> {
        let database = self.data_dir.database().to_string();
        let target =
            registry::open_prepared(&beside.sink, &self.context(&database, ObjectId(0), &beside.name));
        let Some(mut target) = target.map_err(|e| e.to_string())? else { return Ok(()) };
        for (name, reason) in target.sweep(fate).await.map_err(|e| e.to_string())? {
            let Some(reason) = reason else {
                tracing::info!(transaction = %name, "a transaction of a sink that is not known is rolled back");
                continue;
            };
            tracing::warn!(transaction = %name, reason, "a transaction of a sink that is not known");
            let beside = beside.clone();
            self.strangers.lock().insert(name.to_string(), Stranger { name, reason, beside });
        }
        Ok(())
    }

    fn context<'a>(&self, database: &'a str, id: ObjectId, name: &'a str) -> SinkContext<'a> {
        SinkContext { database, id, name, generation: self.data_dir.generation() }
    }

    /// Commits or rolls back a transaction in the target of its sink, dropped or not. `facts` are what
    /// the committers say of theirs.
    pub async fn finish(
        &self,
        catalog: &CatalogSnapshot,
        facts: &[TransactionFact],
        transaction: &str,
        commit: bool,
    ) -> Result<(), JobError> {
        let missing = || {
            let message = format!("prepared transaction with identifier \"{transaction}\" does not exist");
            let mut error = JobError::new(SqlState::UNDEFINED_OBJECT, message);
            error.hint = Some("See weir_catalog.sink_transactions.".to_owned());
            error
        };
        let name: TransactionName = transaction.parse().map_err(|()| missing())?;
        if name.database != self.data_dir.database().to_string() {
            return Err(missing());
        }
        let fact = facts.iter().find(|fact| fact.name.as_deref() == Some(transaction));
        // What is there of a sink that is not known waits for nobody.
        let waits = fact.is_some_and(|fact| fact.state == TransactionState::Prepared)
            && !self.strangers.lock().contains_key(transaction);
        if commit && waits {
            let message = format!("transaction \"{transaction}\" waits for its checkpoint");
            let mut error = JobError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message);
            error.hint =
                Some("It is committed as soon as the checkpoint is durable; run CHECKPOINT.".to_owned());
            return Err(error);
        }
        let kept = match catalog.by_id(name.sink).map(|object| (&object.name.name, &object.body)) {
            Some((sink_name, ObjectBody::Sink(sink))) => {
                Some(KeptSink { name: sink_name.clone(), sink: sink.clone() })
            }
            _ => kept(&self.logs.dir(name.sink)).map_err(|e| JobError::io("read the sink's target", &e))?,
        };
        let kept = kept.or_else(|| self.strangers.lock().get(transaction).map(|s| s.beside.clone()));
        let database = self.data_dir.database().to_string();
        let kept = kept.ok_or_else(missing)?;
        let target = registry::open_prepared(&kept.sink, &self.context(&database, name.sink, &kept.name));
        let Some(mut target) = target.map_err(JobError::from_client)? else { return Err(missing()) };
        target.finish_for_client(&name, commit).await.map_err(JobError::from_client)?;
        self.strangers.lock().remove(transaction);
        Ok(())
    }

    /// What unknown sinks left and is there still.
    fn strangers(&self) -> Vec<TransactionFact> {
        let fact = |Stranger { name, reason, beside }: &Stranger| TransactionFact {
            sink: name.sink,
            name: Some(name.to_string()),
            state: TransactionState::Prepared,
            generation: name.generation,
            epoch: name.epoch.0,
            actor: Some(name.actor),
            chunk: None,
            changed_at_us: clock::now_us(),
            note: Some(format!(
                "in the target of sink \"{}\"; its own sink is not known here; it is not rolled back: {reason}",
                beside.name
            )),
        };
        self.strangers.lock().values().map(fact).collect()
    }

    /// Dropped sinks that are not cleaned up yet, and transactions of unknown ones.
    pub fn facts(&self) -> Vec<TransactionFact> {
        let waiting = self.waiting.lock();
        let fact = |(sink, reason): (&ObjectId, &Option<String>)| TransactionFact {
            sink: *sink,
            name: None,
            state: TransactionState::Prepared,
            generation: self.data_dir.generation(),
            epoch: 0,
            actor: None,
            chunk: None,
            changed_at_us: clock::now_us(),
            note: Some(match reason {
                Some(reason) => format!("the sink is dropped; what it left is not rolled back yet: {reason}"),
                None => "the sink is dropped; what it left is being rolled back".to_owned(),
            }),
        };
        let mut facts: Vec<TransactionFact> = waiting.iter().map(fact).collect();
        facts.extend(self.strangers());
        facts
    }
}
