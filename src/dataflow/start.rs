//! Start: what actors that replace others wait for.
//!
//! ```text
//!   barrier 8   old actors: their last, with all that they know ──> sealed ──> visible ─┐
//!               new actors: their first, held ········································─┴─> restored from 8, go on
//! ```
//! The new actors get the barrier as their first message, as all new actors do; but they take nothing,
//! not even that, before its epoch is published, whose state is what they begin with. What follows
//! the barrier waits in their channels. So they don't report the barrier that starts them: the old ones
//! do. **Invariant:** no later epoch is published before they have begun, for that needs their report.

use super::exchange::ActorSignal;
use super::operator::Restored;
use crate::checkpoint::participant::{Offset, OffsetKey};
use crate::state::store::StateRead;
use crate::stream::{Epoch, VnodeSet};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// All that was handed over at a barrier, as of which actors begin.
pub struct Handover {
    /// The barrier's epoch.
    pub epoch: Epoch,
    /// The state as of it.
    pub state: Arc<dyn StateRead>,
    /// Where splits were read up to, and what they have shown of event time.
    pub offsets: HashMap<OffsetKey, Offset>,
}

impl Handover {
    /// What the operators of an actor with `vnodes` begin with.
    pub fn restored<'a>(&'a self, vnodes: &'a VnodeSet) -> Restored<'a> {
        Restored { state: &self.state, vnodes, offsets: &self.offsets, epoch: self.epoch }
    }
}

/// Shared by the actors that begin at one barrier.
#[derive(Default)]
pub struct Start {
    handover: OnceLock<Handover>,
    waiting: Mutex<Vec<Arc<ActorSignal>>>,
}

impl Start {
    /// Wakes the actor behind `signal` once there is something to begin with.
    pub fn wake(&self, signal: Arc<ActorSignal>) {
        self.waiting.lock().push(signal);
    }

    /// What to begin with, once it is there.
    pub fn handover(&self) -> Option<&Handover> {
        self.handover.get()
    }

    /// The barrier's epoch is published: the actors begin.
    pub fn begin(&self, handover: Handover) {
        // Told once only.
        let _ = self.handover.set(handover);
        self.waiting.lock().drain(..).for_each(|signal| signal.notify());
    }
}
