//! Runs the operators of a fragment in one actor, by plain calls.
//!
//! A fragment is a tree: each operator feeds one port of its parent, the root feeds the actor's
//! outputs. Work is a stack of small steps, so that a turn can end after any of them: what an
//! operator emits is put on top of the stack, its `resume` below, so that nothing piles up.
//!
//! ```text
//!   barrier:  leaves first, each operator `on_barrier` → its output runs up to the root → … → seal
//! ```

use super::fill::Fill;
use super::operator::{
    FIRST_ROWS, Fetched, OUTPUT_BYTES_MAX, OUTPUT_ROWS_MAX, Operator, OperatorError, Output, OutputItem,
    Polled, Progress, Restored, Wanted,
};
use super::room::Room;
use crate::checkpoint::participant::Sealed;
use crate::state::store::{StateRead, full_key};
use crate::stream::{Barrier, BarrierKind, ChangeBatch, Epoch, VnodeSet, Watermark};
use std::sync::Arc;

/// One operator in its place.
pub struct ChainNode {
    /// The operator.
    pub operator: Box<dyn Operator>,
    /// The node and port that it feeds; none for the root.
    pub parent: Option<(usize, usize)>,
}

enum Step {
    Change(usize, usize, ChangeBatch),
    Watermark(usize, usize, Watermark),
    Resume(usize),
    Barrier(usize, Arc<Barrier>),
    Seal(Arc<Barrier>),
    Emit(OutputItem),
}

/// What a step led to.
pub enum Effect {
    /// Nothing that concerns the actor.
    None,
    /// The root emitted this.
    Output(OutputItem),
    /// All operators have handed over their part of the epoch.
    Sealed(Arc<Barrier>, Sealed),
}

/// How far an operator's fill is.
#[derive(Default)]
struct Filling {
    fill: Option<Fill>,
    /// Whether what it would take up was forgotten for want of memory.
    evicted: bool,
}

/// What came of a wish to fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// A piece was taken up.
    Piece,
    /// There is something to take up, but no memory for it.
    NoRoom,
    /// All operators are complete.
    Nothing,
}

/// Where cold state is read from: the newest published snapshot.
pub type StateSource = Arc<dyn Fn() -> (Epoch, Arc<dyn StateRead>) + Send + Sync>;

/// The operators of an actor. **Invariant:** children come before their parent; the last is the root.
pub struct Chain {
    nodes: Vec<ChainNode>,
    /// By input of the actor: the node and port that it feeds.
    inputs: Vec<(usize, usize)>,
    /// Nodes that have work without input.
    polled: Vec<usize>,
    vnodes: VnodeSet,
    state: StateSource,

    /// By node.
    filling: Vec<Filling>,
    /// By node: bytes of a row that it emitted last; 0: none yet.
    row_bytes: Vec<usize>,
    /// By node: bytes that it made at once of each row of the last change that it took; none: it took
    /// none yet.
    made_bytes: Vec<Option<usize>>,
    /// By node: which barrier takes away what changes leave behind.
    held_until: Vec<Option<BarrierKind>>,
    /// Bytes that are held until any barrier, until a checkpoint, and of both what was not told of.
    until_tick: usize,
    until_checkpoint: usize,
    changed: usize,
    stack: Vec<Step>,
    output: Output,
    next_poll: usize,
}

impl Chain {
    /// Of `nodes`, children first. `inputs` says what the actor's inputs feed, `polled` which nodes
    /// have work of their own, `vnodes` which part of their state tables is the actor's.
    pub fn new(
        nodes: Vec<ChainNode>,
        inputs: Vec<(usize, usize)>,
        polled: Vec<usize>,
        vnodes: VnodeSet,
        state: StateSource,
    ) -> Self {
        for (i, node) in nodes.iter().enumerate() {
            let ordered = node.parent.map_or(i + 1 == nodes.len(), |(parent, _)| parent > i);
            assert!(ordered, "children come before their parent, the root is last");
        }
        let filling = nodes.iter().map(|_| Filling::default()).collect();
        let (row_bytes, made_bytes) = (vec![0; nodes.len()], vec![None; nodes.len()]);
        let held_until = nodes.iter().map(|node| node.operator.held_until()).collect();
        let (stack, output) = (Vec::new(), Output::default());
        Self {
            nodes,
            inputs,
            polled,
            vnodes,
            state,
            filling,
            row_bytes,
            made_bytes,
            held_until,
            until_tick: 0,
            until_checkpoint: 0,
            changed: 0,
            stack,
            output,
            next_poll: 0,
        }
    }

    /// Lets every operator take up restored state.
    pub fn restore(&mut self, restored: &Restored<'_>) -> Result<(), OperatorError> {
        self.nodes.iter_mut().try_for_each(|node| node.operator.restore(restored))
    }

    /// Bytes of changes that operators took since this was asked last, and hold until a barrier.
    pub fn take_changed(&mut self) -> usize {
        std::mem::take(&mut self.changed)
    }

    /// Bytes of changes that a barrier of this kind took away; all of them were told of before.
    pub fn take_sealed(&mut self, kind: BarrierKind) -> usize {
        let until_checkpoint = match kind {
            BarrierKind::Tick => 0,
            BarrierKind::Checkpoint => std::mem::take(&mut self.until_checkpoint),
        };
        std::mem::take(&mut self.until_tick) + until_checkpoint
    }

    /// Takes note of what `node` takes.
    fn count(&mut self, node: usize, batch: &ChangeBatch) {
        let held = match self.held_until[node] {
            None => return,
            Some(BarrierKind::Tick) => &mut self.until_tick,
            Some(BarrierKind::Checkpoint) => &mut self.until_checkpoint,
        };
        let bytes = batch.slice_memory();
        *held += bytes;
        self.changed += bytes;
    }

    /// Whether it has work without input.
    pub fn polls(&self) -> bool {
        !self.polled.is_empty()
    }

    /// Whether there are steps to run before anything new may be put in.
    pub fn is_busy(&self) -> bool {
        !self.stack.is_empty()
    }

    /// Puts in rows of input `input`.
    pub fn change(&mut self, input: usize, batch: ChangeBatch) {
        let (node, port) = self.inputs[input];
        self.stack.push(Step::Change(node, port, batch));
    }

    /// Puts in a watermark of input `input`.
    pub fn watermark(&mut self, input: usize, watermark: Watermark) {
        let (node, port) = self.inputs[input];
        self.stack.push(Step::Watermark(node, port, watermark));
    }

    /// Whether the next step is the hand-over of an epoch.
    pub fn is_sealing(&self) -> bool {
        matches!(self.stack.last(), Some(Step::Seal(_)))
    }

    /// Puts rows into a port of the operator `node`.
    pub fn change_at(&mut self, node: usize, port: usize, batch: ChangeBatch) {
        self.stack.push(Step::Change(node, port, batch));
    }

    /// Puts in a barrier.
    pub fn barrier(&mut self, barrier: &Arc<Barrier>) {
        assert!(self.stack.is_empty(), "a barrier is handled only when all before it is done");
        self.stack.push(Step::Seal(Arc::clone(barrier)));
        for node in (0..self.nodes.len()).rev() {
            self.stack.push(Step::Barrier(node, Arc::clone(barrier)));
        }
    }

    /// Lets one of the polled operators work, and emit about `rows` rows at most. What it emits becomes
    /// steps.
    pub fn poll(&mut self, now_us: i64, rows: usize) -> Result<Polled, OperatorError> {
        let mut earliest: Option<i64> = None;
        for _ in 0..self.polled.len() {
            let node = self.polled[self.next_poll];
            self.next_poll = (self.next_poll + 1) % self.polled.len();
            let least = if rows < OUTPUT_ROWS_MAX { OUTPUT_BYTES_MAX / rows } else { 0 };
            self.output.expect(self.row_bytes[node].max(least));
            let polled = self.nodes[node].operator.poll(now_us, &mut self.output)?;
            let emitted = !self.output.is_empty();
            self.emit(node, Progress::Done);
            match polled {
                Polled::Idle { until_us } if !emitted => {
                    earliest = match (earliest, until_us) {
                        (Some(a), Some(b)) => Some(a.min(b)),
                        (a, b) => a.or(b),
                    };
                }
                _ => return Ok(Polled::Busy),
            }
        }
        Ok(Polled::Idle { until_us: earliest })
    }

    /// Runs one step. Must be called only while the outputs have room.
    pub fn step(&mut self) -> Result<Effect, OperatorError> {
        let Some(step) = self.stack.pop() else { return Ok(Effect::None) };
        if let Step::Change(node, ..)
        | Step::Watermark(node, ..)
        | Step::Resume(node)
        | Step::Barrier(node, _) = &step
        {
            self.output.expect(self.row_bytes[*node]);
        }
        let (node, progress) = match step {
            Step::Change(node, port, batch) => {
                let batch = self.piece(node, port, batch);
                self.count(node, &batch);
                self.fetch_cold(node, port, &batch)?;
                let rows = batch.num_rows();
                let progress = self.nodes[node].operator.on_change(port, batch, &mut self.output)?;
                self.made_bytes[node] = Some(self.output.bytes().div_ceil(rows.max(1)));
                (node, progress)
            }
            Step::Watermark(node, port, watermark) => {
                (node, self.nodes[node].operator.on_watermark(port, watermark, &mut self.output)?)
            }
            Step::Resume(node) => (node, self.nodes[node].operator.resume(&mut self.output)?),
            Step::Barrier(node, barrier) => {
                (node, self.nodes[node].operator.on_barrier(&barrier, &mut self.output)?)
            }
            Step::Seal(barrier) => {
                let mut sealed = Sealed::default();
                for node in &mut self.nodes {
                    node.operator.seal(&barrier, &mut sealed)?;
                }
                return Ok(Effect::Sealed(barrier, sealed));
            }
            Step::Emit(item) => return Ok(Effect::Output(item)),
        };
        self.emit(node, progress);
        Ok(Effect::None)
    }

    /// As much of `batch` as `node` makes no more than one output of, if it makes as much of a row as
    /// it did of those before; the rest becomes a step.
    fn piece(&mut self, node: usize, port: usize, batch: ChangeBatch) -> ChangeBatch {
        let rows = match self.made_bytes[node] {
            None => FIRST_ROWS,
            Some(bytes) => OUTPUT_BYTES_MAX.checked_div(bytes).map_or(usize::MAX, |rows| rows.max(1)),
        };
        if rows >= batch.num_rows() {
            return batch;
        }
        self.stack.push(Step::Change(node, port, batch.slice(rows, batch.num_rows() - rows)));
        batch.slice(0, rows)
    }

    /// Makes steps of what `node` emitted.
    fn emit(&mut self, node: usize, progress: Progress) {
        if !self.output.is_empty() {
            self.row_bytes[node] = self.output.row_bytes();
        }
        if progress == Progress::More {
            self.stack.push(Step::Resume(node));
        }
        let parent = self.nodes[node].parent;
        for item in self.output.take().into_iter().rev() {
            self.stack.push(match (parent, item) {
                (None, item) => Step::Emit(item),
                (Some((target, port)), OutputItem::Changes(batch)) => Step::Change(target, port, batch),
                (Some((target, port)), OutputItem::Watermark(watermark)) => {
                    Step::Watermark(target, port, watermark)
                }
            });
        }
    }

    /// Supplies `node` with the cold state that `batch` will touch.
    fn fetch_cold(&mut self, node: usize, port: usize, batch: &ChangeBatch) -> Result<(), OperatorError> {
        let operator = &mut self.nodes[node].operator;
        if operator.complete() {
            return Ok(());
        }
        let mut wanted = Wanted::default();
        operator.wanted(port, batch, &mut wanted)?;
        if wanted.prefixes.is_empty() {
            return Ok(());
        }
        let (_, state) = (self.state)();
        let fetched = fetch(&*state, &mut wanted)?;
        operator.supply(&wanted, fetched)
    }

    /// Takes up a piece of what an incomplete operator lacks, if `room` is left. Must be called only
    /// between steps of different changes.
    pub fn fill(&mut self, room: &Room) -> Result<Filled, OperatorError> {
        debug_assert!(self.stack.is_empty(), "an operator is supplied only when it is done");
        let mut found = Filled::Nothing;
        for (node, filling) in self.nodes.iter_mut().zip(&mut self.filling) {
            let operator = &mut *node.operator;
            if operator.complete() {
                *filling = Filling::default();
                continue;
            }
            if filling.fill.is_none() {
                filling.fill = operator.keyed().map(|keyed| Fill::new(keyed, &self.vnodes));
            }
            let Some(fill) = &mut filling.fill else { continue };
            let begun = fill.progress().0 > 0;
            if !room.is_left(filling.evicted && !begun) {
                found = Filled::NoRoom;
                continue;
            }
            let (_, state) = (self.state)();
            let before = operator.memory();
            fill.step(operator, &*state)?;
            room.take(operator.memory().saturating_sub(before));
            return Ok(Filled::Piece);
        }
        Ok(found)
    }

    /// How far the incomplete operators are: how many there are, vnodes of theirs that were gone
    /// through, and all their vnodes.
    pub fn filling(&self) -> [usize; 3] {
        let incomplete = self.nodes.iter().zip(&self.filling).filter(|(node, _)| !node.operator.complete());
        incomplete.fold([0; 3], |[operators, done, all], (_, filling)| {
            let (of_it, all_of_it) = filling.fill.as_ref().map_or((0, 0), Fill::progress);
            [operators + 1, done + of_it, all + all_of_it]
        })
    }

    /// Groups and rows that the operators remember in memory.
    pub fn state_entries(&self) -> usize {
        self.nodes.iter().map(|n| n.operator.state_entries()).sum()
    }

    /// Bytes of memory that the operators hold.
    pub fn memory(&self) -> usize {
        self.nodes.iter().map(|n| n.operator.memory()).sum()
    }

    /// Asks the operators to forget about `bytes` of cold state. Returns what they freed.
    pub fn evict(&mut self, bytes: usize) -> usize {
        let (applied, _) = (self.state)();
        let mut freed = 0;
        for (node, filling) in self.nodes.iter_mut().zip(&mut self.filling) {
            if freed < bytes {
                freed += node.operator.evict(applied, bytes - freed);
                // What was gone through may be gone again.
                *filling = Filling { fill: None, evicted: true };
            }
        }
        freed
    }
}

/// Reads what is wanted, whose order becomes that of the store.
pub fn fetch(state: &dyn StateRead, wanted: &mut Wanted) -> Result<Vec<Fetched>, OperatorError> {
    wanted.prefixes.sort_unstable();
    let prefixes: Vec<Vec<u8>> =
        wanted.prefixes.iter().map(|(table, prefix)| full_key(*table, prefix)).collect();
    let mut fetched = Vec::new();
    state.scan_prefixes(&prefixes, &mut |wanted, key, value| {
        fetched.push(Fetched { wanted, key: key[4..].to_vec(), value: value.to_vec() });
    })?;
    Ok(fetched)
}

#[cfg(test)]
#[path = "tests/chain.rs"]
mod tests;
