//! A top-n's rows as state: what is written at a checkpoint, and what is read back at a restore, or
//! when a cold group is wanted.

use super::top_n::{ROW_OVERHEAD, TopN};
use crate::state::StateError;
use crate::state::store::{StateRead, WriteOp, full_key, prefix_end};
use crate::state::table::decode_count;
use crate::state::writes::RunWriter;
use crate::stream::Vnode;
use hashbrown::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// A change of the rows kept.
#[derive(Debug)]
pub(super) struct Logged {
    pub vnode: u8,
    /// The group's key.
    pub group: Arc<[u8]>,
    pub row: Arc<[u8]>,
    pub diff: i64,
}

/// Writes the sum of the changes of each row.
pub(super) fn write_log(log: &[Logged], runs: &mut RunWriter) {
    let mut sums: HashMap<(u8, &[u8], &[u8]), i64> = HashMap::with_capacity(log.len());
    for Logged { vnode, group, row, diff } in log {
        *sums.entry((*vnode, group, row)).or_insert(0) += diff;
    }
    for ((vnode, group, row), diff) in sums {
        let key = |out: &mut Vec<u8>| {
            out.push(vnode);
            out.extend_from_slice(group);
            out.extend_from_slice(row);
        };
        if diff != 0 {
            runs.write_with(WriteOp::AddCount, key, |out| out.extend_from_slice(&diff.to_le_bytes()));
        }
    }
}

impl TopN {
    pub(super) fn load(&mut self, group: u32, row: &[u8], value: &[u8]) -> Result<(), StateError> {
        let count = decode_count(value)?;
        let group = &mut self.groups[group as usize];
        group.count += count;
        self.bytes += row.len() + ROW_OVERHEAD;
        group.rows.insert(row.into(), count);
        Ok(())
    }

    pub(super) fn restore_vnode(
        &mut self,
        state: &Arc<dyn StateRead>,
        vnode: Vnode,
    ) -> Result<(), StateError> {
        let lower = full_key(self.spec.table, &[vnode.0]);
        let start = lower.len();
        let mut group: Option<(Vec<u8>, u32)> = None;
        let mut failed = Ok(());
        state.scan(&lower, &prefix_end(&lower), &mut |key, value| {
            let key = &key[start..];
            let known = group.take().filter(|(prefix, _)| key.starts_with(prefix));
            let found = match known {
                Some(found) => Ok(found),
                None => self.group_codec.prefix_len(key, self.spec.group.len()).map(|len| {
                    let prefix = key[..len].to_vec();
                    let index = self.group(&prefix, vnode.0);
                    (prefix, index)
                }),
            };
            failed = found.and_then(|(prefix, index)| {
                self.load(index, &key[prefix.len()..], value)?;
                group = Some((prefix, index));
                Ok(())
            });
            if failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        failed
    }
}
