//! Bounded channels between actors, and the signals that wake their workers.
//!
//! A channel is bounded in rows and bytes. A sender asks for room before it makes more; what it
//! made already may overshoot by one output. Barriers and watermarks always go in, so that a
//! barrier can't be held up by a full channel. When a channel is full its sender's actor is not
//! given turns until the receiver has taken something: that is the backpressure.

use crate::stream::{ActorId, ChangeBatch, Epoch, Message};
use crate::work;
use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use weir_catalog::JobId;

/// Rows that a channel takes before it is full.
pub const CHANNEL_ROWS_MAX: usize = 32 * 1024;
/// Bytes that a channel takes before it is full, where memory is plenty.
pub const CHANNEL_BYTES_MAX: usize = 16 << 20;
/// Bytes that a channel takes at least.
const CHANNEL_BYTES_MIN: usize = 256 << 10;
/// The part of the memory limit that one channel may hold.
const CHANNEL_SHARE: usize = 128;

/// Bytes that a channel takes before it is full, where the process may use `memory_limit`.
pub fn channel_bytes(memory_limit: usize) -> usize {
    (memory_limit / CHANNEL_SHARE).clamp(CHANNEL_BYTES_MIN, CHANNEL_BYTES_MAX)
}

/// Wakes a worker thread.
#[derive(Default)]
pub struct WorkerSignal {
    pending: Mutex<bool>,
    condition: Condvar,
}

impl WorkerSignal {
    /// Wakes the worker, now or as soon as it wants to sleep.
    pub fn notify(&self) {
        let mut pending = self.pending.lock();
        if !*pending {
            *pending = true;
            self.condition.notify_one();
        }
    }

    /// Sleeps until notified, or for `timeout`.
    pub fn wait(&self, timeout: Duration) {
        let mut pending = self.pending.lock();
        if !*pending {
            self.condition.wait_for(&mut pending, timeout);
        }
        *pending = false;
    }
}

/// Says that an actor has something to do.
pub struct ActorSignal {
    ready: AtomicBool,
    worker: Arc<WorkerSignal>,
}

impl ActorSignal {
    /// For an actor of the worker that waits on `worker`. It starts ready.
    pub fn new(worker: Arc<WorkerSignal>) -> Arc<Self> {
        Arc::new(Self { ready: AtomicBool::new(true), worker })
    }

    /// Makes the actor ready and wakes its worker.
    pub fn notify(&self) {
        if !self.ready.swap(true, Ordering::AcqRel) {
            self.worker.notify();
        }
    }

    /// Whether the actor was ready; it no longer is.
    pub fn take(&self) -> bool {
        self.ready.swap(false, Ordering::AcqRel)
    }
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<Message>,
    rows: usize,
    bytes: usize,
    record: Option<Record>,
}

/// The rows that lie in a channel before a barrier, copied for a checkpoint that does not wait for it.
struct Record {
    until: Epoch,
    batches: Vec<ChangeBatch>,
    complete: bool,
}

impl Record {
    fn take_note(&mut self, message: &Message) {
        match message {
            _ if self.complete => {}
            Message::Changes(batch) => self.batches.push(batch.clone()),
            Message::Barrier(barrier) => self.complete = barrier.epoch >= self.until,
            // Sources repeat their watermarks after a restore.
            Message::Watermark(_) => {}
        }
    }
}

struct Channel {
    queue: Mutex<Queue>,
    /// The receiver is gone: what is sent goes nowhere.
    closed: AtomicBool,
    /// The sender found it full and waits for room.
    starved: AtomicBool,
    /// Nanoseconds are not kept; how often a sender found it full.
    full_count: AtomicU64,
    bytes_max: usize,
    receiver: Arc<ActorSignal>,
    sender: Mutex<Option<Arc<ActorSignal>>>,
}

/// The sending end.
#[derive(Clone)]
pub struct Sender(Arc<Channel>);

/// The receiving end.
pub struct Receiver(Arc<Channel>);

/// A channel of `bytes_max` bytes to the actor behind `receiver`.
pub fn channel(receiver: Arc<ActorSignal>, bytes_max: usize) -> (Sender, Receiver) {
    let channel = Arc::new(Channel {
        queue: Mutex::default(),
        closed: AtomicBool::new(false),
        starved: AtomicBool::new(false),
        full_count: AtomicU64::new(0),
        bytes_max,
        receiver,
        sender: Mutex::new(None),
    });
    (Sender(Arc::clone(&channel)), Receiver(channel))
}

impl Sender {
    /// Names the actor to wake when a full channel has room again.
    pub fn set_sender(&self, signal: Arc<ActorSignal>) {
        *self.0.sender.lock() = Some(signal);
    }

    /// Whether more rows may be made for it. If not, the sending actor is woken when there is room.
    pub fn has_room(&self) -> bool {
        let queue = self.0.queue.lock();
        let room = queue.rows < work::bound(CHANNEL_ROWS_MAX) && queue.bytes < self.0.bytes_max;
        if !room && !self.is_closed() {
            self.0.starved.store(true, Ordering::Release);
            self.0.full_count.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Whether the receiver is gone.
    pub fn is_closed(&self) -> bool {
        self.0.closed.load(Ordering::Acquire)
    }

    /// Sends `message`.
    pub fn send(&self, message: Message) {
        if self.is_closed() {
            return;
        }
        {
            let mut queue = self.0.queue.lock();
            if let Message::Changes(batch) = &message {
                queue.rows += batch.num_rows();
                queue.bytes += batch.memory();
            }
            if let Some(record) = &mut queue.record {
                record.take_note(&message);
            }
            queue.messages.push_back(message);
        }
        self.0.receiver.notify();
    }
}

impl Receiver {
    /// The next message, if there is one.
    pub fn try_receive(&self) -> Option<Message> {
        let message = {
            let mut queue = self.0.queue.lock();
            let message = queue.messages.pop_front()?;
            if let Message::Changes(batch) = &message {
                queue.rows -= batch.num_rows();
                // A sum that is back at zero rows is zero bytes, whatever slices were counted.
                queue.bytes = if queue.rows == 0 { 0 } else { queue.bytes.saturating_sub(batch.memory()) };
            }
            message
        };
        if self.0.starved.swap(false, Ordering::AcqRel)
            && let Some(sender) = &*self.0.sender.lock()
        {
            sender.notify();
        }
        Some(message)
    }

    /// Copies the rows that wait, and those that are still sent, up to the barrier of `until`.
    pub fn record(&self, until: Epoch) {
        let mut queue = self.0.queue.lock();
        let mut record = Record { until, batches: Vec::new(), complete: false };
        queue.messages.iter().for_each(|message| record.take_note(message));
        queue.record = Some(record);
    }

    /// Whether the barrier that is recorded up to was sent, or nothing is recorded.
    pub fn is_recorded(&self) -> bool {
        self.0.queue.lock().record.as_ref().is_none_or(|record| record.complete)
    }

    /// Takes what was recorded.
    pub fn take_record(&self) -> Vec<ChangeBatch> {
        self.0.queue.lock().record.take().map_or_else(Vec::new, |record| record.batches)
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.0.queue.lock().messages.is_empty()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Release);
        *self.0.queue.lock() = Queue::default();
        if let Some(sender) = &*self.0.sender.lock() {
            sender.notify();
        }
    }
}

/// How an actor's output reaches the next fragment.
#[derive(Clone)]
pub enum Routing {
    /// To one actor.
    Forward(Sender),
    /// To one actor after the other: rows that have no place of their own.
    InTurn(Arc<AtomicUsize>, Vec<Sender>),
    /// To the actor that has the vnode of these columns.
    Hash(Vec<usize>, Vec<Sender>),
}

impl Routing {
    /// The channels.
    pub fn senders(&self) -> &[Sender] {
        match self {
            Routing::Forward(sender) => std::slice::from_ref(sender),
            Routing::InTurn(_, senders) | Routing::Hash(_, senders) => senders,
        }
    }
}

/// One output of an actor: to a fragment of a job.
#[derive(Clone)]
pub struct Edge {
    /// The job that receives.
    pub job: JobId,
    /// How.
    pub routing: Routing,
}

/// Edges that wait for the barrier that attaches them.
#[derive(Default)]
pub struct Pending {
    next: AtomicU64,
    edges: Mutex<HashMap<u64, Edge>>,
}

impl Pending {
    /// Keeps `edge` until the actor that gains it takes it; returns its number.
    pub fn add(&self, edge: Edge) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.edges.lock().insert(number, edge);
        number
    }

    /// Takes the edge `number`. `None` if the job behind it was given up meanwhile.
    pub fn take(&self, number: u64) -> Option<Edge> {
        self.edges.lock().remove(&number)
    }
}

/// Gives actors their identities.
#[derive(Default)]
pub struct ActorIds(AtomicU64);

impl ActorIds {
    /// A new one.
    pub fn next(&self) -> ActorId {
        ActorId(self.0.fetch_add(1, Ordering::Relaxed))
    }
}
