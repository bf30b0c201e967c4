//! Worker: a thread with its actors, and the turns that it gives them.

use super::actor::{Actor, ActorEvents, Turn};
use super::exchange::{ActorSignal, WorkerSignal};
use super::operator::OperatorError;
use crate::clock::steady_us;
use crate::failpoint;
use crate::threads::ThreadKind;
use crate::work::{self, Step, Thread, Work};
use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// How long a worker without work sleeps at most.
const SLEEP_MAX: Duration = Duration::from_millis(500);

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
    thread: Mutex<Thread>,
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
        let spec = work::Spec {
            name: format!("weir-worker-{index}"),
            kind: Some(ThreadKind::Stream),
            stack_bytes: Some(crate::config::STACK_BYTES),
        };
        let seats = Seats { shared: Arc::clone(&shared), events, seats: Vec::new(), measured_us: 0 };
        let thread = work::start(spec, seats)?;
        Ok(Worker { shared, thread: Mutex::new(thread) })
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
        if !self.thread.lock().join() {
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

/// A worker's thread: its actors, each with its seat.
struct Seats {
    shared: Arc<WorkerShared>,
    events: Arc<dyn ActorEvents>,

    seats: Vec<Seat>,
    measured_us: i64,
}

impl Work for Seats {
    fn step(&mut self) -> Step {
        if self.shared.stop.load(Ordering::Acquire) {
            return Step::Ended;
        }
        let roused = self.shared.rouse.swap(false, Ordering::AcqRel);
        let arriving = self.shared.arriving.lock().drain(..).collect::<Vec<_>>();
        if !arriving.is_empty() {
            self.measured_us = 0;
            self.seats.extend(arriving.into_iter().map(|actor| Seat { actor, busy: true, wake_us: None }));
        }
        let (mut busy, mut ended) = (false, false);
        let mut wake_us: Option<i64> = None;
        for seat in &mut self.seats {
            #[cfg(test)]
            if work::testing::rests(seat.actor.id.0) {
                busy = true;
                continue;
            }
            let now_us = steady_us();
            let due = seat.wake_us.is_some_and(|t| t <= now_us);
            if seat.actor.signal.take() || seat.busy || due || roused {
                match turn(&mut seat.actor, now_us) {
                    Ok(Turn::Busy) => (seat.busy, seat.wake_us) = (true, None),
                    Ok(Turn::Idle(until_us)) => (seat.busy, seat.wake_us) = (false, until_us),
                    Ok(Turn::Ended) => (ended, seat.busy, seat.wake_us) = (true, false, Some(i64::MIN)),
                    Err(error) => {
                        // The whole dataflow goes back to its last checkpoint; nothing here runs on.
                        self.events.failed(seat.actor.id, seat.actor.job, error);
                        return Step::Ended;
                    }
                }
            }
            busy |= seat.busy;
            wake_us = [wake_us, seat.wake_us].into_iter().flatten().min();
        }
        if ended {
            self.seats.retain(|s| s.wake_us != Some(i64::MIN));
            return Step::More;
        }
        self.measured_us = look_at_memory(&self.shared, &mut self.seats, self.measured_us);
        if busy { Step::More } else { Step::Idle(wake_us) }
    }

    fn wait(&mut self, until_us: Option<i64>) {
        let sleep = until_us.map_or(SLEEP_MAX, |t| {
            Duration::from_micros(t.saturating_sub(steady_us()).max(0) as u64).min(SLEEP_MAX)
        });
        self.shared.signal.wait(sleep);
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
    let now_us = steady_us();
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
