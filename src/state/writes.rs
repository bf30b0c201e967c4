//! What an actor hands over at a barrier: writes, encoded or yet to be encoded.
//!
//! ```text
//!   actor          columns of what changed ── later() ──┐ at the barrier: nothing but the hand-over
//!   apply thread                                        └──> encode → sorted → written
//! ```
//! Encoding costs more than collecting, so it is left to the thread that writes. What is handed
//! over must not change any more: Arrow columns, or values of its own.

use super::StateError;
use super::store::{WriteOp, WriteRun};
use super::table::{StateTable, TableLayout};
use crate::stream::ChangeBatch;
use parking_lot::Mutex;
use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use weir_catalog::TableId;

/// A run is cut when it is this long: as much as is asked of the system once and then used again.
const RUN_BYTES: usize = 4 << 20;
/// From here on a run is given its whole length.
const LONG_BYTES: usize = 256 << 10;
/// Emptied runs that are kept for the next epoch, at most.
const RUNS_KEPT: usize = 48;
/// The part of the memory limit that they may hold.
const POOL_SHARE: usize = 64;

/// Emptied runs. Fresh memory costs about as much as what is written to it. The default keeps none.
#[derive(Debug, Default)]
pub struct RunPool {
    kept: Mutex<Vec<WriteRun>>,
    most: usize,
}

impl RunPool {
    /// Keeps what befits a process that may use `memory_limit` bytes.
    pub fn within(memory_limit: usize) -> Self {
        Self { kept: Mutex::default(), most: (memory_limit / POOL_SHARE / RUN_BYTES).min(RUNS_KEPT) }
    }

    fn take(&self, table: TableId) -> WriteRun {
        let mut run = self.kept.lock().pop().unwrap_or_else(|| WriteRun::new(table));
        run.reset(table);
        run
    }

    /// Takes back what was encoded with it, and written since.
    pub fn give_back(&self, runs: Vec<WriteRun>) {
        let mut kept = self.kept.lock();
        // Those that a tick's few rows took, or a few very long rows, are nothing to keep.
        let fitting = runs.into_iter().filter(|run| (RUN_BYTES / 4..=RUN_BYTES * 3).contains(&run.bytes()));
        let room = self.most.saturating_sub(kept.len());
        kept.extend(fitting.take(room));
    }
}

type Encode = Box<dyn FnOnce(&mut RunWriter<'_>) -> Result<(), StateError> + Send>;

/// Writes to a table that are not encoded yet, in order.
struct Later {
    table: TableId,
    encode: Vec<Encode>,
}

/// Writes of an epoch.
#[derive(Default)]
pub struct Writes {
    runs: Vec<WriteRun>,
    later: Vec<Later>,
    held: Vec<Held>,
}

/// What is dropped when writes are applied, or go some other way.
type Held = Box<dyn Any + Send>;

impl Writes {
    /// Adds a run.
    pub fn push(&mut self, run: WriteRun) {
        self.runs.push(run);
    }

    /// Adds what `encode` will write to `table`, on another thread. What was added before for the same
    /// table, here, is written before; the order to runs, and to what another actor writes, is not kept.
    pub fn later(
        &mut self,
        table: TableId,
        encode: impl FnOnce(&mut RunWriter<'_>) -> Result<(), StateError> + Send + 'static,
    ) {
        let encode: Encode = Box::new(encode);
        match self.later.iter_mut().find(|later| later.table == table) {
            Some(later) => later.encode.push(encode),
            None => self.later.push(Later { table, encode: vec![encode] }),
        }
    }

    /// Adds `changes` of the rows of a table, to be written as [`StateTable::write`] does.
    pub fn rows(
        &mut self,
        layout: &Arc<TableLayout>,
        changes: impl Iterator<Item = Result<ChangeBatch, StateError>> + Send + 'static,
    ) {
        let layout = Arc::clone(layout);
        self.later(layout.id, move |runs| {
            let id = layout.id;
            let mut table = StateTable::with_run(layout, runs.pool.take(id));
            for change in changes {
                table.write(&change?);
                if table.is_full(RUN_BYTES) {
                    runs.push(table.seal_into(runs.pool.take(id)));
                }
            }
            runs.push(table.seal());
            Ok(())
        });
    }

    /// Keeps `what` until these writes are applied: it may count them by its life.
    pub fn hold(&mut self, what: impl Any + Send) {
        self.held.push(Box::new(what));
    }

    /// What is to be kept until they are applied.
    pub fn take_held(&mut self) -> Vec<Held> {
        std::mem::take(&mut self.held)
    }

    /// Adds those of another actor.
    pub fn extend(&mut self, other: Writes) {
        self.runs.extend(other.runs);
        self.later.extend(other.later);
        self.held.extend(other.held);
    }

    /// The tables written to.
    pub fn tables(&self) -> impl Iterator<Item = TableId> {
        self.runs.iter().map(WriteRun::table).chain(self.later.iter().map(|later| later.table))
    }

    /// All of them, encoded; those of internal state, which are many at once, by several threads.
    pub fn encode(self, pool: &RunPool) -> Result<Vec<WriteRun>, StateError> {
        let mut runs = self.runs;
        let (internal, other): (VecDeque<Later>, VecDeque<Later>) =
            self.later.into_iter().partition(|later| later.table.is_internal());
        for later in other {
            runs.extend(later.encode(pool)?);
        }
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(internal.len());
        let queue = Mutex::new(internal);
        let work = || {
            let mut runs = Vec::new();
            loop {
                let later = queue.lock().pop_front();
                let Some(later) = later else { return Ok(runs) };
                runs.extend(later.encode(pool)?);
            }
        };
        let encoded: Vec<Result<Vec<WriteRun>, StateError>> = std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let own = work();
            let panicked = || Err(StateError::Store("encoding panicked".to_owned()));
            let others = others.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panicked()));
            std::iter::once(own).chain(others).collect()
        });
        for encoded in encoded {
            runs.extend(encoded?);
        }
        Ok(runs)
    }
}

impl Later {
    fn encode(self, pool: &RunPool) -> Result<Vec<WriteRun>, StateError> {
        let mut writer = RunWriter { run: WriteRun::new(self.table), pool, done: Vec::new() };
        self.encode.into_iter().try_for_each(|encode| encode(&mut writer))?;
        Ok(writer.finish())
    }
}

impl From<Vec<WriteRun>> for Writes {
    fn from(runs: Vec<WriteRun>) -> Self {
        Self { runs, ..Self::default() }
    }
}

impl std::fmt::Debug for Writes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writes").field("runs", &self.runs).field("later", &self.later.len()).finish()
    }
}

/// Writes to one table, as runs of bounded length.
pub struct RunWriter<'a> {
    /// Empty until something is written.
    run: WriteRun,
    pool: &'a RunPool,
    done: Vec<WriteRun>,
}

impl RunWriter<'_> {
    /// Adds a write whose key and value are appended by the two closures.
    pub fn write_with(
        &mut self,
        op: WriteOp,
        key: impl FnOnce(&mut Vec<u8>),
        value: impl FnOnce(&mut Vec<u8>),
    ) {
        if self.run.bytes() == 0 {
            self.run = self.pool.take(self.run.table());
        }
        self.run.write_with(op, key, value);
        if self.run.is_full(LONG_BYTES) {
            // It is going to be long: once is cheaper than by doubling.
            self.run.reserve(RUN_BYTES + RUN_BYTES / 8);
        }
        if self.run.is_full(RUN_BYTES) {
            self.done.push(self.run.take());
        }
    }

    /// Adds a write of `key`, vnode first; `value` is ignored by Delete.
    pub fn write(&mut self, op: WriteOp, key: &[u8], value: &[u8]) {
        self.write_with(op, |out| out.extend_from_slice(key), |out| out.extend_from_slice(value));
    }

    /// Adds a whole run.
    pub fn push(&mut self, run: WriteRun) {
        if !run.is_empty() {
            self.done.push(run);
        }
    }

    fn finish(mut self) -> Vec<WriteRun> {
        if !self.run.is_empty() {
            self.done.push(self.run);
        }
        self.done
    }
}
