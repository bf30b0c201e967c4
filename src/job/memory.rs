//! Keeps a running dataflow within the process's memory budget: what it forgets, when it makes a
//! checkpoint early, and when its sources wait. [`crate::state::budget`] has the shares.

use super::incarnation::Incarnation;
use crate::allocator;
use crate::checkpoint::coordinator::Message;
use crate::clock;
use crate::state::budget::{Budget, held_bytes};
use std::sync::Weak;
use std::time::Duration;

/// From one look at the process's memory to the next.
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// From one eviction to the next: its effect is to be seen first.
const EVICTION_PAUSE: Duration = Duration::from_millis(500);
/// From one checkpoint that memory asks for to the next.
const CHECKPOINT_PAUSE: Duration = Duration::from_millis(200);

/// Compares what the process holds with its budget, as long as the dataflow lives.
pub async fn keep_budget(incarnation: Weak<Incarnation>, budget: Budget) {
    let (dirty_asks, dirty_waits) = budget.dirty();
    let mut evicted = None;
    let mut asked = None;
    let past = |at: Option<Duration>, pause| at.is_none_or(|at| clock::monotonic() >= at + pause);
    loop {
        let Some(incarnation) = incarnation.upgrade() else { return };
        let running = &incarnation.running;
        // Where the kernel does not tell, there is no limit to keep.
        let held = held_bytes().unwrap_or(0);
        allocator::set_ample(budget.is_ample(held));
        let excess = budget.excess(held);
        if excess > 0 && past(evicted, EVICTION_PAUSE) {
            tracing::debug!(held, excess, "asking operators to forget cold state");
            running.evict(excess);
            evicted = Some(clock::monotonic());
        }
        let (fill, refill) = budget.room(held);
        running.room().set(fill, refill);
        running.room().limit(dirty_waits, budget.is_full(held));
        if running.room().dirty() > dirty_asks && past(asked, CHECKPOINT_PAUSE) {
            // Nobody waits for the answer: if it fails, the next look asks again.
            running.coordinator().send(Message::Checkpoint(tokio::sync::oneshot::channel().0));
            asked = Some(clock::monotonic());
        }
        drop(incarnation);
        clock::sleep(LOOK_PAUSE).await;
    }
}
