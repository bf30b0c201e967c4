//! Worker: a thread with its actors, and the turns that it gives them.

use super::actor::{Actor, ActorEvents, Turn};
use super::exchange::{ActorSignal, WorkerSignal};
use super::operator::OperatorError;
use crate::failpoint;
use crate::threads::ThreadKind;
use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a worker without work sleeps at most.
const SLEEP_MAX: Duration = Duration::from_millis(500);

/// Microseconds since 1970, by the machine's clock.
pub fn clock_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as i64)
}

struct WorkerShared {
    signal: Arc<WorkerSignal>,
    arriving: Mutex<Vec<Actor>>,
    stop: AtomicBool,
    /// Every actor is to have a turn, whatever it waits for.
    rouse: AtomicBool,
    /// Bytes that its actors should forget about.
    evict: AtomicUsize,
    /// Bytes that its actors' operators hold.
    memory: AtomicUsize,
    /// How far its actors' incomplete operators are.
    filling: Mutex<[usize; 3]>,
}

/// A handle to a worker thread. Dropping it stops the thread and its actors where they are.
pub struct Worker {
    shared: Arc<WorkerShared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Worker {
    /// Starts worker number `index`.
    pub fn start(index: usize, events: Arc<dyn ActorEvents>) -> std::io::Result<Worker> {
        let shared = Arc::new(WorkerShared {
            signal: Arc::default(),
            arriving: Mutex::default(),
            stop: AtomicBool::new(false),
            rouse: AtomicBool::new(false),
            evict: AtomicUsize::new(0),
            memory: AtomicUsize::new(0),
            filling: Mutex::default(),
        });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name(format!("weir-worker-{index}"))
            .stack_size(crate::config::STACK_BYTES)
            .spawn(move || run(&of_thread, &*events))?;
        Ok(Worker { shared, thread: Mutex::new(Some(thread)) })
    }

    /// A signal for an actor that will run here.
    pub fn actor_signal(&self) -> Arc<ActorSignal> {
        ActorSignal::new(Arc::clone(&self.shared.signal))
    }

    /// What gives each of its actors a turn, whatever they wait for.
    pub fn rouser(&self) -> impl Fn() + Send + use<> {
        let shared = Arc::clone(&self.shared);
        move || {
            shared.rouse.store(true, Ordering::Release);
            shared.signal.notify();
        }
    }

    /// Gives the worker an actor.
    pub fn add(&self, actor: Actor) {
        self.shared.arriving.lock().push(actor);
        self.shared.signal.notify();
    }

    /// Stops the thread and its actors where they are.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.signal.notify();
        if let Some(thread) = self.thread.lock().take()
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("worker panicked");
        }
    }

    /// Bytes that its actors' operators hold, as of the last look.
    pub fn memory(&self) -> usize {
        self.shared.memory.load(Ordering::Relaxed)
    }

    /// As of the last look: how many of its actors' operators are incomplete, vnodes of theirs that
    /// were gone through to complete them, and all their vnodes.
    pub fn filling(&self) -> [usize; 3] {
        *self.shared.filling.lock()
    }

    /// Asks its actors to forget about `bytes` of cold state.
    pub fn evict(&self, bytes: usize) {
        self.shared.evict.store(bytes, Ordering::Release);
        self.shared.signal.notify();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Seat {
    actor: Actor,
    busy: bool,
    wake_us: Option<i64>,
}

fn run(shared: &WorkerShared, events: &dyn ActorEvents) {
    ThreadKind::Stream.apply();
    let mut seats: Vec<Seat> = Vec::new();
    let mut measured_us = 0;
    while !shared.stop.load(Ordering::Acquire) {
        let known = seats.len();
        seats.extend(shared.arriving.lock().drain(..).map(|actor| Seat { actor, busy: true, wake_us: None }));
        if seats.len() > known {
            measured_us = 0;
        }
        let roused = shared.rouse.swap(false, Ordering::AcqRel);
        let mut busy = false;
        let mut wake_us: Option<i64> = None;
        let mut ended = false;
        for seat in &mut seats {
            let now_us = clock_us();
            let due = seat.wake_us.is_some_and(|t| t <= now_us);
            if seat.actor.signal.take() || seat.busy || due || roused {
                match turn(&mut seat.actor, now_us) {
                    Ok(Turn::Busy) => (seat.busy, seat.wake_us) = (true, None),
                    Ok(Turn::Idle(until_us)) => (seat.busy, seat.wake_us) = (false, until_us),
                    Ok(Turn::Ended) => (ended, seat.busy, seat.wake_us) = (true, false, Some(i64::MIN)),
                    Err(error) => {
                        // The whole dataflow goes back to its last checkpoint; nothing here runs on.
                        events.failed(seat.actor.id, seat.actor.job, error);
                        return;
                    }
                }
            }
            busy |= seat.busy;
            wake_us = [wake_us, seat.wake_us].into_iter().flatten().min();
        }
        if ended {
            seats.retain(|s| s.wake_us != Some(i64::MIN));
            continue;
        }
        measured_us = look_at_memory(shared, &mut seats, measured_us);
        if !busy {
            let sleep = wake_us.map_or(SLEEP_MAX, |t| {
                Duration::from_micros(t.saturating_sub(clock_us()).max(0) as u64).min(SLEEP_MAX)
            });
            shared.signal.wait(sleep);
        }
    }
}

/// A turn whose panic is an error like any other.
fn turn(actor: &mut Actor, now_us: i64) -> Result<Turn, OperatorError> {
    if failpoint::any() {
        failpoint::hit(&format!("actor.of_job_{}", actor.job))
            .map_err(|e| OperatorError::Internal(e.to_string()))?;
    }
    catch_unwind(AssertUnwindSafe(|| actor.turn(now_us))).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<&str>()
            .map(|s| (*s).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "panic".to_owned());
        Err(OperatorError::Internal(format!("actor panicked: {text}")))
    })
}

/// Every half second: what the operators hold, and whether they should forget some of it.
fn look_at_memory(shared: &WorkerShared, seats: &mut [Seat], measured_us: i64) -> i64 {
    let now_us = clock_us();
    let evict = shared.evict.swap(0, Ordering::AcqRel);
    let mut left = evict;
    for seat in seats.iter_mut() {
        if left > 0 {
            left -= seat.actor.chain_mut().evict(left).min(left);
        }
    }
    if evict == 0 && now_us - measured_us < 500_000 {
        return measured_us;
    }
    let memory = seats.iter_mut().map(|s| s.actor.chain_mut().memory()).sum();
    shared.memory.store(memory, Ordering::Relaxed);
    let filling = seats.iter_mut().map(|s| s.actor.chain_mut().filling());
    *shared.filling.lock() = filling.fold([0; 3], |sum, of_it| std::array::from_fn(|i| sum[i] + of_it[i]));
    now_us
}
