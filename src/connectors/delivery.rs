//! A durable range of epochs, read from the sink log and cut into chunks of bounded size.
//!
//! ```text
//!   append-only: log order, cut where a chunk is full        keyed: as many passes over the log as
//!   [ e5 actor 0 | e5 actor 1 | e6 … ]                       there are chunks; each takes the keys
//!     chunk 0 ──────┘ chunk 1 ────┘                          whose hash falls to it
//! ```
//! **Invariant:** the same handles give the same chunks, whatever was delivered before.

use super::net;
use super::sink_log::{SealedPart, SinkLog};
use crate::checkpoint::participant::CommitHandle;
use crate::stream::ChangeBatch;
use crate::stream::vnode::hash_columns;
use arrow::array::BooleanArray;
use std::io;
use std::sync::Arc;
use tokio::sync::mpsc;
use weir_catalog::Key;
use weir_catalog::sink::SinkType;

/// Bytes of log that a chunk holds at most, roughly. Part of how ranges are cut: it may change only
/// together with the sink log's format.
const CHUNK_BYTES: u64 = 32 << 20;

/// What is to be delivered.
pub struct DeliveryPlan {
    log: Arc<SinkLog>,
    parts: Vec<SealedPart>,
    sink_type: SinkType,
    key: Key,
    chunk_bytes: u64,
}

/// A chunk of it.
#[derive(Debug)]
pub struct Chunk {
    /// Its number, from 0.
    pub number: u32,
    /// Whether it is the last one.
    pub last: bool,
    /// Its changes, as [`super::sink::Delivery`] wants them.
    pub batches: Vec<ChangeBatch>,
}

impl DeliveryPlan {
    /// The changes that `handles` name, in order of epoch and actor.
    pub fn new(
        log: &Arc<SinkLog>,
        handles: &[CommitHandle],
        sink_type: SinkType,
        key: &Key,
    ) -> io::Result<Self> {
        let mut handles: Vec<&CommitHandle> = handles.iter().collect();
        handles.sort_by_key(|h| (h.epoch, h.actor));
        let parts = handles.into_iter().map(SealedPart::of).collect::<io::Result<Vec<_>>>()?;
        Ok(Self { log: Arc::clone(log), parts, sink_type, key: key.clone(), chunk_bytes: CHUNK_BYTES })
    }

    #[cfg(test)]
    pub(super) fn with_chunk_bytes(mut self, bytes: u64) -> Self {
        self.chunk_bytes = bytes;
        self
    }

    fn batches(&self) -> impl Iterator<Item = io::Result<(ChangeBatch, u64)>> + '_ {
        self.parts.iter().flat_map(|part| match self.log.read(part) {
            Ok(reader) => Box::new(reader) as Box<dyn Iterator<Item = io::Result<(ChangeBatch, u64)>>>,
            Err(error) => Box::new(std::iter::once(Err(error))),
        })
    }

    /// Calls `give` with every chunk from `skip` on, until it returns false.
    fn run(&self, skip: u32, give: &mut dyn FnMut(Chunk) -> bool) -> io::Result<()> {
        match self.sink_type {
            SinkType::AppendOnly => self.run_in_order(skip, give),
            SinkType::Upsert | SinkType::Debezium => self.run_by_key(skip, give),
        }
    }

    fn run_in_order(&self, skip: u32, give: &mut dyn FnMut(Chunk) -> bool) -> io::Result<()> {
        let mut chunk = Chunk { number: 0, last: false, batches: Vec::new() };
        let mut bytes = 0;
        for batch in self.batches() {
            let (batch, frame_bytes) = batch?;
            if bytes > 0 && bytes + frame_bytes > self.chunk_bytes {
                let next = Chunk { number: chunk.number + 1, last: false, batches: Vec::new() };
                let full = std::mem::replace(&mut chunk, next);
                bytes = 0;
                if full.number >= skip && !give(full) {
                    return Ok(());
                }
            }
            bytes += frame_bytes;
            if chunk.number >= skip {
                let rows = net::insertions(&batch).map_err(io::Error::other)?;
                chunk.batches.extend((rows.num_rows() > 0).then(|| ChangeBatch::insertions(rows)));
            }
        }
        chunk.last = true;
        give(chunk);
        Ok(())
    }

    fn run_by_key(&self, skip: u32, give: &mut dyn FnMut(Chunk) -> bool) -> io::Result<()> {
        let bytes: u64 = self.parts.iter().map(|p| p.end - p.start).sum();
        let chunks = bytes.div_ceil(self.chunk_bytes).max(1);
        for number in u64::from(skip)..chunks {
            let mut own = Vec::new();
            for batch in self.batches() {
                own.push(self.share(&batch?.0, number, chunks)?);
            }
            let net = net::by_key(&own, &self.key, self.sink_type).map_err(io::Error::other)?;
            let chunk = Chunk {
                number: number as u32,
                last: number + 1 == chunks,
                batches: net.into_iter().collect(),
            };
            if !give(chunk) {
                break;
            }
        }
        Ok(())
    }

    /// The rows of `batch` whose keys fall to chunk `number` of `chunks`.
    fn share(&self, batch: &ChangeBatch, number: u64, chunks: u64) -> io::Result<ChangeBatch> {
        if chunks == 1 {
            return Ok(batch.clone());
        }
        let keys: Vec<_> = self.key.iter().map(|k| Arc::clone(batch.column(*k))).collect();
        let mut hashes = Vec::new();
        hash_columns(&keys, batch.num_rows(), &mut hashes);
        let own: BooleanArray = hashes.iter().map(|h| Some(h % chunks == number)).collect();
        batch.filter(&own).map_err(io::Error::other)
    }
}

/// The chunks of `plan` from `skip` on, read ahead by one on a thread for blocking work.
pub fn chunks(plan: DeliveryPlan, skip: u32) -> mpsc::Receiver<io::Result<Chunk>> {
    #[cfg(test)]
    if crate::work::testing::is_simulated() {
        return all_chunks(&plan, skip);
    }
    let (sender, receiver) = mpsc::channel(1);
    tokio::task::spawn_blocking(move || {
        let outcome = plan.run(skip, &mut |chunk| sender.blocking_send(Ok(chunk)).is_ok());
        if let Err(error) = outcome {
            // If nobody listens any more, nobody needs it.
            let _ = sender.blocking_send(Err(error));
        }
    });
    receiver
}

/// The same at once, on this thread.
#[cfg(test)]
fn all_chunks(plan: &DeliveryPlan, skip: u32) -> mpsc::Receiver<io::Result<Chunk>> {
    let mut all = Vec::new();
    let outcome = plan.run(skip, &mut |chunk| {
        all.push(Ok(chunk));
        true
    });
    all.extend(outcome.err().map(Err));
    let (sender, receiver) = mpsc::channel(all.len().max(1));
    all.into_iter().for_each(|chunk| assert!(sender.try_send(chunk).is_ok(), "there is room"));
    receiver
}

#[cfg(test)]
#[path = "tests/delivery.rs"]
mod tests;
