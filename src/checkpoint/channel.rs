//! Channel state: the rows that lay before the barrier of an unaligned checkpoint, as state.
//!
//! ```text
//!   key     vnode 0 │ epoch u64 │ number u32                                big endian
//!   value   job u32 │ input u32 │ a change batch (stream/encoded.rs)        little-endian
//! ```
//! They are written with the epoch of the checkpoint and removed with the next one, so that files,
//! uploads, retention and savepoints need not know of them.

use super::participant::ChannelState;
use crate::state::StateError;
use crate::state::store::{StateRead, WriteOp, WriteRun, full_key};
use crate::state::writes::Writes;
use crate::stream::{ChangeBatch, Epoch, encoded};
use std::ops::ControlFlow;
use weir_catalog::{JobId, ObjectId, TableId};

/// The object whose table they are in: not one of the catalog's.
const OBJECT: ObjectId = ObjectId(2);

fn table() -> TableId {
    OBJECT.table()
}

fn key(epoch: Epoch) -> Vec<u8> {
    [[0].as_slice(), &epoch.0.to_be_bytes()].concat()
}

/// Adds `channels`, of the checkpoint of `epoch`, to what is written with it.
pub fn store(epoch: Epoch, channels: Vec<(JobId, ChannelState)>, writes: &mut Writes) {
    let rows: Vec<(JobId, u32, ChangeBatch)> = channels
        .into_iter()
        .flat_map(|(job, state)| state.batches.into_iter().map(move |batch| (job, state.input, batch)))
        .collect();
    if rows.is_empty() {
        return;
    }
    writes.later(table(), move |runs| {
        for (number, (job, input, batch)) in rows.iter().enumerate() {
            let body = encoded::encode(std::slice::from_ref(batch))
                .map_err(|e| StateError::Store(format!("could not encode rows of a channel: {e}")))?;
            let mut at = key(epoch);
            at.extend_from_slice(&(number as u32).to_be_bytes());
            let head = [job.0.to_le_bytes(), input.to_le_bytes()].concat();
            runs.write(WriteOp::Put, &at, &[head, body].concat());
        }
        Ok(())
    });
}

/// Removes those of every epoch before `epoch`.
pub fn forget(epoch: Epoch) -> WriteRun {
    let mut run = WriteRun::new(table());
    run.delete_range(&key(Epoch::ZERO), &key(epoch));
    run
}

/// Those of the checkpoint of `epoch`, in order.
pub fn read(state: &dyn StateRead, epoch: Epoch) -> Result<Vec<(JobId, ChannelState)>, StateError> {
    let mut found: Vec<(JobId, ChannelState)> = Vec::new();
    let mut failed = None;
    let (lower, upper) = (full_key(table(), &key(epoch)), full_key(table(), &key(epoch.next())));
    state.scan(&lower, &upper, &mut |_, value| match decode(value) {
        Ok((job, input, batch)) => {
            found.push((job, ChannelState { input, batches: vec![batch] }));
            ControlFlow::Continue(())
        }
        Err(error) => {
            failed = Some(error);
            ControlFlow::Break(())
        }
    })?;
    failed.map_or(Ok(found), Err)
}

fn decode(value: &[u8]) -> Result<(JobId, u32, ChangeBatch), StateError> {
    let damaged = |why: String| StateError::Decode(format!("rows of a channel: {why}"));
    let (job, rest) = value.split_first_chunk::<4>().ok_or_else(|| damaged("cut short".to_owned()))?;
    let (input, body) = rest.split_first_chunk::<4>().ok_or_else(|| damaged("cut short".to_owned()))?;
    let batch = encoded::decode(body).map_err(|e| damaged(e.to_string()))?;
    Ok((ObjectId(u32::from_le_bytes(*job)), u32::from_le_bytes(*input), batch))
}

#[cfg(test)]
#[path = "tests/channel.rs"]
mod tests;
