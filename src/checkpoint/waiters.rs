//! Those who wait for the coordinator, and what they are told.

use super::message::Message;
use crate::stream::Epoch;
use tokio::sync::oneshot;

/// Who waits for an epoch.
pub struct Waiter {
    /// Of this epoch or a later one.
    pub from: Epoch,
    /// Where the answer goes.
    pub answer: oneshot::Sender<Result<Epoch, String>>,
}

/// After it gave up nobody is kept waiting.
pub fn refuse(message: Message, why: &str) {
    let reason = || Err(why.to_owned());
    let _ = match message {
        Message::Tick(answer)
        | Message::Checkpoint(answer)
        | Message::AlignedCheckpoint(answer)
        | Message::LastCheckpoint(answer) => answer.send(reason()),
        Message::Mutate(request) => request.done.send(reason()),
        _ => return,
    };
}

/// Tells those who wait for `epoch` or one before it.
pub fn answer(waiters: &mut Vec<Waiter>, epoch: Epoch) {
    for waiter in std::mem::take(waiters) {
        if waiter.from <= epoch {
            let _ = waiter.answer.send(Ok(epoch));
        } else {
            waiters.push(waiter);
        }
    }
}
