//! A transactional target in memory, for simulations: it outlives the server, may be slow, down, or
//! lose its answer, and keeps watch over what it is given.

use super::error::ConnectorError;
use super::registry::SinkContext;
use super::sink::{Delivery, Marker, SinkError, SinkTarget, Target};
use crate::clock;
use crate::stream::{ChangeBatch, Epoch};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use async_trait::async_trait;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;
use weir_catalog::connector::{ConnectorRole, ConnectorSpec, Contract};
use weir_catalog::sink::{Sink, SinkType};
use weir_catalog::{Key, ObjectId};

/// What CREATE SINK may say.
pub const SPEC: ConnectorSpec = ConnectorSpec {
    name: "simulated",
    role: ConnectorRole::Sink,
    options: &[],
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
}

/// What a target holds.
#[derive(Clone, Debug, Default)]
pub struct Held {
    /// How far it has come.
    pub marker: Option<Marker>,
    /// Its rows, as text: of a keyed sink by their keys, of another one how often each.
    pub rows: BTreeMap<String, (String, i64)>,
}

thread_local! {
    static RULES: RefCell<Option<Rules>> = const { RefCell::new(None) };
    static TARGETS: RefCell<BTreeMap<ObjectId, Held>> = const { RefCell::new(BTreeMap::new()) };
    static WRONG: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Begins anew: no target holds anything.
pub fn begin(rules: Rules) {
    RULES.set(Some(rules));
    TARGETS.take();
    WRONG.take();
}

/// What was done that must not be.
pub fn wrong() -> Vec<String> {
    WRONG.take()
}

/// What the target of `sink` holds.
pub fn held(sink: ObjectId) -> Held {
    TARGETS.with_borrow(|targets| targets.get(&sink).cloned().unwrap_or_default())
}

/// Opens a target as declared.
pub fn open(sink: &Sink, context: &SinkContext<'_>) -> Result<Target, ConnectorError> {
    Ok(Target::Logged(Box::new(SimulatedTarget {
        sink: context.id,
        sink_type: sink.sink_type,
        key: sink.primary_key.clone().unwrap_or_default(),
    })))
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
        let durable = RULES.with_borrow(|rules| rules.as_ref().map_or(Epoch::ZERO, |r| (r.durable)()));
        if delivery.until > durable {
            let until = delivery.until;
            wrongly(format!("sink {} delivers epoch {until}; {durable} is durable", self.sink));
        }
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

fn wrongly(what: String) {
    WRONG.with_borrow_mut(|wrong| wrong.push(what));
}
