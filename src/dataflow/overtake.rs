//! The barrier that need not be waited for any more, as the coordinator says and all actors see.

use crate::stream::{Barrier, Epoch};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Told by the coordinator, looked at by each actor before each of its steps.
#[derive(Default)]
pub struct Overtake {
    epoch: AtomicU64,
    barrier: Mutex<Option<Arc<Barrier>>>,
}

impl Overtake {
    /// From now on actors handle `barrier` before it reaches them.
    pub fn set(&self, barrier: &Arc<Barrier>) {
        *self.barrier.lock() = Some(Arc::clone(barrier));
        self.epoch.store(barrier.epoch.0, Ordering::Release);
    }

    /// The barrier to overtake, for an actor whose last one was that of `last`. An actor that has had
    /// none starts with a later one.
    pub fn due(&self, last: Epoch) -> Option<Arc<Barrier>> {
        if last == Epoch::ZERO || self.epoch.load(Ordering::Acquire) <= last.0 {
            return None;
        }
        self.barrier.lock().clone()
    }
}
