//! Holds: checkpoints that retention leaves alone while somebody reads them.
//!
//! Who is going to read a checkpoint that is still to be made holds all of them first, and narrows the
//! hold to the one that it got. **Invariant:** a hold ends with its [`Hold`], whatever happens.

use super::storage::CheckpointStorage;
use crate::stream::Epoch;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is held, by the number of the hold; `None`: every checkpoint.
#[derive(Debug, Default)]
pub struct Holds {
    next: u64,
    held: BTreeMap<u64, Option<Epoch>>,
}

impl Holds {
    /// Whether the checkpoint of `epoch` is to stay.
    pub fn keep(&self, epoch: Epoch) -> bool {
        self.held.values().any(|held| held.is_none_or(|held| held == epoch))
    }
}

/// Keeps checkpoints from being removed until it is dropped.
#[derive(Debug)]
pub struct Hold {
    storage: Arc<Mutex<CheckpointStorage>>,
    number: u64,
}

impl Hold {
    /// Holds every checkpoint, those to come as well.
    pub fn of_all(storage: &Arc<Mutex<CheckpointStorage>>) -> Self {
        let number = {
            let holds = &mut storage.lock().holds;
            holds.next += 1;
            let number = holds.next;
            holds.held.insert(number, None);
            number
        };
        Self { storage: Arc::clone(storage), number }
    }

    /// Holds the checkpoint of `epoch` only, from now on.
    pub fn narrow(&self, epoch: Epoch) {
        self.storage.lock().holds.held.insert(self.number, Some(epoch));
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.storage.lock().holds.held.remove(&self.number);
    }
}
