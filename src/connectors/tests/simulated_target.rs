//! A transactional target in memory, for simulations: it outlives the server, may be slow, down, or
//! lose its answer, and keeps watch over what it is given.

use super::error::ConnectorError;
use super::registry::SinkContext;
use super::sink::{Delivery, FateOf, Marker, PreparedHeld, PreparedTarget, SinkError, SinkTarget, Target};
use super::transaction::{Fate, TransactionName};
use crate::checkpoint::participant::CommitHandle;
use crate::clock;
use crate::stream::{ChangeBatch, Epoch};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use async_trait::async_trait;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;
use weir_catalog::connector::{ConnectorRole, ConnectorSpec, Contract, OptionSpec};
use weir_catalog::sink::{Sink, SinkType};
use weir_catalog::{Key, ObjectId};

/// What CREATE SINK may say.
pub const SPEC: ConnectorSpec = ConnectorSpec {
    name: "simulated",
    role: ConnectorRole::Sink,
    options: &[OptionSpec { name: "commit_mode", required: false, help: "two_phase, if in two phases." }],
    encodings: &[],
    contract: Contract::Transactional,
    why: "rows and marker are taken together",
    empties_target: false,
};

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Nothing.
    None,
    /// It takes so long.
    Slow(Duration),
    /// It fails, and nothing was done.
    Before,
    /// It was done, and the answer is lost.
    After,
}

/// What targets are told by the simulation.
pub struct Rules {
    /// What goes wrong with the next call.
    pub fault: Box<dyn FnMut() -> Fault>,
    /// The newest epoch of which there is a manifest.
    pub durable: Box<dyn Fn() -> Epoch>,
    /// Whether the newest manifest promises what a transaction has.
    pub promised: Box<dyn Fn(&TransactionName) -> bool>,
}

/// What a target holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Held {
    /// How far it has come.
    pub marker: Option<Marker>,
    /// The same by actor, where it commits in two phases.
    pub epochs: BTreeMap<u32, Epoch>,
    /// Its rows, as text: of a keyed sink by their keys, of another one how often each.
    pub rows: BTreeMap<String, (String, i64)>,
}

impl Held {
    /// The last epoch that it has anything of.
    pub fn epoch(&self) -> Epoch {
        let marker = self.marker.map(|m| m.partial.map_or(m.epoch, |p| p.until.max(m.epoch)));
        marker.max(self.epochs.values().max().copied()).unwrap_or(Epoch::ZERO)
    }

    /// Whether it has what was promised.
    pub fn has(&self, handle: &CommitHandle) -> bool {
        let of_actor = self.epochs.get(&handle.actor).copied();
        self.marker.map(|marker| marker.epoch).max(of_actor).is_some_and(|epoch| epoch >= handle.epoch)
    }
}

thread_local! {
    static RULES: RefCell<Option<Rules>> = const { RefCell::new(None) };
    static TARGETS: RefCell<BTreeMap<ObjectId, Held>> = const { RefCell::new(BTreeMap::new()) };
    static PREPARED: RefCell<BTreeMap<TransactionName, Vec<ChangeBatch>>> = const { RefCell::new(BTreeMap::new()) };
    /// By sink: the generation that may prepare.
    static OWNERS: RefCell<BTreeMap<ObjectId, u64>> = const { RefCell::new(BTreeMap::new()) };
    /// What was promised and rolled back by a later server.
    static BROKEN: RefCell<Vec<TransactionName>> = const { RefCell::new(Vec::new()) };
    static WRONG: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Begins anew: no target holds anything.
pub fn begin(rules: Rules) {
    RULES.set(Some(rules));
    TARGETS.take();
    PREPARED.take();
    OWNERS.take();
    BROKEN.take();
    WRONG.take();
}

/// What is prepared, and neither committed nor rolled back.
pub fn prepared() -> Vec<TransactionName> {
    PREPARED.with_borrow(|prepared| prepared.keys().cloned().collect())
}

/// Promises that were rolled back since this was asked last: nobody may do that unless the sink is dropped.
pub fn broken() -> Vec<TransactionName> {
    BROKEN.take()
}

/// A server of this generation rolls back a transaction. One of its own generation it may have begun to
/// write anew.
fn roll_back(name: &TransactionName, generation: u64) -> Option<Vec<ChangeBatch>> {
    let promised = RULES.with_borrow(|rules| rules.as_ref().is_some_and(|rules| (rules.promised)(name)));
    if promised && name.generation < generation {
        BROKEN.with_borrow_mut(|broken| broken.push(name.clone()));
    }
    PREPARED.with_borrow_mut(|prepared| prepared.remove(name))
}

/// What was done that must not be.
pub fn wrong() -> Vec<String> {
    WRONG.take()
}

/// What the target of `sink` holds.
pub fn held(sink: ObjectId) -> Held {
    TARGETS.with_borrow(|targets| targets.get(&sink).cloned().unwrap_or_default())
}

/// What all targets hold.
pub fn all() -> BTreeMap<ObjectId, Held> {
    TARGETS.with_borrow(Clone::clone)
}

/// Opens a target as declared.
pub fn open(sink: &Sink, context: &SinkContext<'_>) -> Result<Target, ConnectorError> {
    let target = SimulatedTarget {
        sink: context.id,
        sink_type: sink.sink_type,
        key: sink.primary_key.clone().unwrap_or_default(),
    };
    if !sink.options.contains_key("commit_mode") {
        return Ok(Target::Logged(Box::new(target)));
    }
    let prefix = TransactionName::prefix(context.database, context.id);
    Ok(Target::Prepared(Box::new(InTwoPhases { target, prefix, generation: context.generation, open: None })))
}

struct SimulatedTarget {
    sink: ObjectId,
    sink_type: SinkType,
    key: Key,
}

fn fault() -> Fault {
    RULES.with_borrow_mut(|rules| rules.as_mut().map_or(Fault::None, |rules| (rules.fault)()))
}

/// Waits, and fails, as the simulation wants it.
async fn before() -> Result<Fault, SinkError> {
    match fault() {
        Fault::Slow(time) => {
            clock::sleep(time).await;
            Ok(Fault::None)
        }
        Fault::Before => Err(SinkError::Retry("the target is down".into())),
        fault => Ok(fault),
    }
}

fn after(fault: Fault) -> Result<(), SinkError> {
    match fault {
        Fault::After => Err(SinkError::Retry("the answer was lost".into())),
        _ => Ok(()),
    }
}

#[async_trait]
impl SinkTarget for SimulatedTarget {
    async fn open(&mut self) -> Result<Option<Marker>, SinkError> {
        after(before().await?)?;
        Ok(held(self.sink).marker)
    }

    async fn deliver(&mut self, delivery: Delivery) -> Result<(), SinkError> {
        let fault = before().await?;
        self.take(&delivery)?;
        if fault == Fault::After {
            clock::sleep(Duration::from_millis(1)).await;
        }
        after(fault)
    }
}

impl SimulatedTarget {
    fn take(&self, delivery: &Delivery) -> Result<(), SinkError> {
        self.require_durable(delivery.until);
        TARGETS.with_borrow_mut(|targets| {
            let held = targets.entry(self.sink).or_default();
            if let Some(marker) = held.marker {
                if marker.generation > delivery.marker.generation {
                    return Err(SinkError::Fatal("a newer server has taken over".into()));
                }
                let partly =
                    marker.partial.is_some_and(|p| p.until == delivery.until && delivery.chunk < p.chunks);
                if marker.epoch >= delivery.until || partly {
                    return Ok(());
                }
            }
            for batch in &delivery.batches {
                self.apply(held, batch);
            }
            held.marker = Some(delivery.marker);
            Ok(())
        })
    }

    fn require_durable(&self, epoch: Epoch) {
        let durable = RULES.with_borrow(|rules| rules.as_ref().map_or(Epoch::ZERO, |r| (r.durable)()));
        if epoch > durable {
            wrongly(format!("sink {} delivers epoch {epoch}; {durable} is durable", self.sink));
        }
    }

    fn apply(&self, held: &mut Held, batch: &ChangeBatch) {
        let options = FormatOptions::default().with_null("NULL");
        let columns: Vec<_> = batch
            .rows()
            .columns()
            .iter()
            .map(|c| ArrayFormatter::try_new(c.as_ref(), &options).expect("it can be shown"))
            .collect();
        for row in 0..batch.num_rows() {
            let cells: Vec<String> = columns.iter().map(|c| c.value(row).to_string()).collect();
            let (text, diff) = (cells.join("|"), batch.diff(row));
            match self.sink_type {
                SinkType::AppendOnly if diff < 0 => wrongly(format!("an append-only sink deletes {text}")),
                SinkType::AppendOnly => held.rows.entry(text.clone()).or_insert((text, 0)).1 += diff,
                SinkType::Upsert | SinkType::Debezium => {
                    let key: Vec<&str> = self.key.iter().map(|k| cells[*k].as_str()).collect();
                    let key = key.join("|");
                    match diff {
                        1.. => drop(held.rows.insert(key, (text, 1))),
                        _ if held.rows.remove(&key).is_none() => {
                            wrongly(format!("sink {} deletes {key}, which is not there", self.sink));
                        }
                        _ => {}
                    }
                }
            }
        }
    }
}

/// The same target, where it commits in two phases.
struct InTwoPhases {
    target: SimulatedTarget,
    prefix: String,
    generation: u64,

    /// The transaction that is being written; gone with the connection.
    open: Option<Vec<ChangeBatch>>,
}

impl InTwoPhases {
    async fn call<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T, SinkError>) -> Result<T, SinkError> {
        let fault = before().await.inspect_err(|_| self.open = None)?;
        let done = act(self)?;
        tracing::debug!(sink = %self.target.sink, ?fault, prepared = ?self.own(), held = ?held(self.target.sink).epochs, "called");
        after(fault).inspect_err(|_| self.open = None)?;
        Ok(done)
    }

    fn own(&self) -> Vec<TransactionName> {
        let own = |name: &TransactionName| name.to_string().starts_with(&self.prefix);
        prepared().into_iter().filter(own).collect()
    }
}

fn gone(name: &TransactionName) -> SinkError {
    SinkError::Retry(format!("there is no transaction {name}"))
}

#[async_trait]
impl PreparedTarget for InTwoPhases {
    async fn check(&mut self) -> Result<(), ConnectorError> {
        Ok(())
    }

    async fn open(&mut self) -> Result<PreparedHeld, SinkError> {
        self.open = None;
        self.call(|s| Ok(PreparedHeld { epochs: held(s.target.sink).epochs, transactions: s.own() })).await
    }

    async fn take_over(&mut self) -> Result<(), SinkError> {
        self.call(|s| {
            OWNERS.with_borrow_mut(|owners| {
                let owner = owners.entry(s.target.sink).or_default();
                if *owner > s.generation {
                    return Err(SinkError::Fatal("a newer server has taken over".into()));
                }
                *owner = s.generation;
                Ok(())
            })
        })
        .await
    }

    async fn lower(&mut self, epoch: Epoch) -> Result<(), SinkError> {
        self.call(|s| {
            TARGETS.with_borrow_mut(|targets| {
                let epochs = &mut targets.entry(s.target.sink).or_default().epochs;
                epochs.values_mut().for_each(|e| *e = epoch.min(*e));
            });
            Ok(())
        })
        .await
    }

    async fn begin(&mut self, name: &TransactionName) -> Result<(), SinkError> {
        if held(self.target.sink).epochs.get(&name.actor).is_some_and(|epoch| *epoch >= name.epoch) {
            wrongly(format!("{name} begins, and is there already"));
        }
        if self.own().iter().any(|other| other.generation == self.generation && other.epoch != name.epoch) {
            wrongly(format!("{name} begins beside {:?}", self.own()));
        }
        self.call(|s| {
            s.open = Some(Vec::new());
            Ok(())
        })
        .await
    }

    async fn write(&mut self, batches: &[ChangeBatch]) -> Result<(), SinkError> {
        let batches = batches.to_vec();
        self.call(|s| {
            let open = s.open.as_mut().ok_or_else(|| SinkError::Retry("no transaction is open".into()))?;
            open.extend(batches);
            Ok(())
        })
        .await
    }

    async fn prepare(&mut self, name: &TransactionName) -> Result<(), SinkError> {
        let name = name.clone();
        self.call(|s| {
            let owner = OWNERS.with_borrow(|owners| owners.get(&s.target.sink).copied().unwrap_or(0));
            if owner > name.generation {
                return Err(SinkError::Fatal("a newer server has taken over".into()));
            }
            let open = s.open.take().ok_or_else(|| SinkError::Retry("no transaction is open".into()))?;
            PREPARED.with_borrow_mut(|prepared| prepared.insert(name, open));
            Ok(())
        })
        .await
    }

    async fn finish(&mut self, name: &TransactionName, commit: bool) -> Result<(), SinkError> {
        let name = name.clone();
        self.call(|s| {
            if !commit {
                return roll_back(&name, s.generation).map(drop).ok_or_else(|| gone(&name));
            }
            let rows = PREPARED.with_borrow_mut(|prepared| prepared.remove(&name));
            let rows = rows.ok_or_else(|| gone(&name))?;
            s.target.require_durable(name.epoch);
            TARGETS.with_borrow_mut(|targets| {
                let held = targets.entry(s.target.sink).or_default();
                rows.iter().for_each(|batch| s.target.apply(held, batch));
                held.epochs.insert(name.actor, name.epoch);
            });
            Ok(())
        })
        .await
    }

    async fn finish_for_client(&mut self, _: &TransactionName, _: bool) -> Result<(), ConnectorError> {
        unreachable!("no client asks")
    }

    async fn forget(&mut self) -> Result<Vec<TransactionName>, SinkError> {
        self.call(|s| {
            let own = s.own();
            PREPARED.with_borrow_mut(|prepared| prepared.retain(|name, _| !own.contains(name)));
            TARGETS.with_borrow_mut(|targets| targets.remove(&s.target.sink));
            Ok(own)
        })
        .await
    }

    async fn sweep(&mut self, fate: &FateOf) -> Result<Vec<(TransactionName, Option<String>)>, SinkError> {
        self.call(|s| {
            let mut swept = Vec::new();
            for name in prepared() {
                let there_still = match fate(&name) {
                    Fate::RollBack => {
                        roll_back(&name, s.generation);
                        None
                    }
                    Fate::Stranger => Some("a server of a newer generation prepared it".to_owned()),
                    Fate::Keep | Fate::Commit => continue,
                };
                swept.push((name, there_still));
            }
            Ok(swept)
        })
        .await
    }
}

fn wrongly(what: String) {
    WRONG.with_borrow_mut(|wrong| wrong.push(what));
}
