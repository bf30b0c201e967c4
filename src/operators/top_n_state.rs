//! A top-n's rows read back: from state, at a restore or when a cold group is wanted, and from
//! memory, for window functions over them.

use super::top_n::{ROW_OVERHEAD, Say, TopN};
use super::top_n_window::{Row, Window, window};
use crate::dataflow::operator::OperatorError;
use crate::state::StateError;
use crate::state::store::{StateRead, full_key, prefix_end};
use crate::state::table::decode_count;
use crate::stream::Vnode;
use arrow::array::RecordBatch;
use std::ops::ControlFlow;
use std::sync::Arc;

impl TopN {
    /// A group that changed since the last barrier, with what its window was and is.
    pub(super) fn take_changed(&mut self) -> Option<(u32, Window, Window)> {
        let index = self.dirty.pop_front()?;
        let group = &mut self.groups[index as usize];
        let before = group.before.take().unwrap_or_default();
        Some((index, before, window(&group.rows, self.spec.offset, self.spec.limit)))
    }

    /// The rows of a group's window, in order, each as often as it lies there.
    pub(super) fn rows_of(&self, group: u32, window: &Window) -> Result<RecordBatch, OperatorError> {
        let say = |row: &Row| Say { group, row: row.clone(), diff: 1, rank: 0 };
        let rows = window.iter().flat_map(|(row, n)| std::iter::repeat_with(|| say(row)).take(*n as usize));
        Ok(self.decode(&rows.collect::<Vec<_>>())?.rows().clone())
    }

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
