//! A join side's rows as state: sealed at checkpoints, read back at a restore.
//!
//! Each row is an entry of the side's internal table: the join key, then the rest of the row with
//! its count; or, where columns are known to be unique, join key and these, then the rest.

use super::join_side::{JoinSide, pick};
use super::row_arena::RowId;
use crate::dataflow::operator::{OperatorError, Restored};
use crate::state::store::WriteRun;
use crate::stream::builder::batch_of;
use crate::stream::{ChangeBatch, Vnode};

/// Rows encoded, or read, at a time.
const PIECE_ROWS: usize = 4096;
/// A run is handed over when it has this many bytes.
const RUN_BYTES: usize = 256 << 20;
/// Pages that are compacted at a checkpoint, at most.
const COMPACT_PAGES: usize = 16;

impl JoinSide {
    /// Adds the writes since the last checkpoint to `runs`.
    pub fn seal(&mut self, runs: &mut Vec<WriteRun>) -> Result<(), OperatorError> {
        if self.spec.counted {
            self.seal_counted(runs)?;
            self.compact(COMPACT_PAGES)?;
        } else {
            self.seal_appended(runs)?;
        }
        if !self.table.is_empty() {
            runs.push(self.table.seal());
        }
        Ok(())
    }

    fn write(&mut self, changes: &ChangeBatch, runs: &mut Vec<WriteRun>) {
        self.table.write(changes);
        if self.table.memory() >= RUN_BYTES {
            runs.push(self.table.seal());
        }
    }

    fn seal_appended(&mut self, runs: &mut Vec<WriteRun>) -> Result<(), OperatorError> {
        let Self { arena, spec, table, unsealed, .. } = self;
        let mut end = *unsealed;
        for (first, columns, rows) in arena.pages() {
            if first + rows as RowId <= *unsealed {
                continue;
            }
            let skip = (unsealed.saturating_sub(first) as usize).min(rows);
            let columns = columns.iter().map(|c| c.slice(skip, rows - skip)).collect();
            let rows_left = batch_of(&spec.schema, columns, rows - skip)?;
            for at in (0..rows - skip).step_by(PIECE_ROWS) {
                let piece = rows_left.slice(at, PIECE_ROWS.min(rows - skip - at));
                table.write(&ChangeBatch::insertions(piece));
                if table.memory() >= RUN_BYTES {
                    runs.push(table.seal());
                }
            }
            end = end.max(first + rows as RowId);
        }
        *unsealed = end;
        Ok(())
    }

    fn seal_counted(&mut self, runs: &mut Vec<WriteRun>) -> Result<(), OperatorError> {
        let dirty = std::mem::take(&mut self.dirty);
        let keyed = self.spec.unique.is_some();
        // In a keyed table the row that takes another's key is put after that one is deleted.
        let delta = |id: RowId, delta: i64| match keyed {
            true if self.count(id) > 0 => 1,
            true => -1,
            false => delta,
        };
        let mut changed: Vec<(RowId, i64)> = dirty.into_iter().map(|(id, d)| (id, delta(id, d))).collect();
        changed.retain(|(_, d)| *d != 0);
        changed.sort_unstable_by_key(|(id, d)| (*d > 0, *id));
        for piece in changed.chunks(PIECE_ROWS) {
            let ids: Vec<RowId> = piece.iter().map(|(id, _)| *id).collect();
            let diffs: Vec<i64> = piece.iter().map(|(_, d)| *d).collect();
            let rows = batch_of(&self.spec.schema, self.gather(&ids)?, ids.len())?;
            self.write(&ChangeBatch::new(rows, diffs), runs);
        }
        for (id, _) in changed {
            if self.count(id) == 0 {
                self.arena.free(id);
            }
        }
        Ok(())
    }

    /// Reads the rows of the actor's vnodes.
    pub fn restore(&mut self, restored: &Restored<'_>) -> Result<(), OperatorError> {
        let layout = self.table.layout().clone();
        let vnodes: Vec<Vnode> = match layout.distribution.is_empty() {
            true => vec![Vnode::SINGLE],
            false => restored.vnodes.iter().collect(),
        };
        for vnode in vnodes {
            let mut range = Some(layout.range(vnode, &[]));
            while let Some(from) = range {
                let chunk = layout.scan(restored.state.as_ref(), &from, PIECE_ROWS)?;
                range = chunk.next;
                let changes = chunk.rows.into_changes();
                let columns = changes.rows().columns();
                let keys = pick(columns, &self.spec.keys);
                let hashes = self.key_hashes(&keys, changes.num_rows());
                self.change(columns, changes.diffs(), &hashes)?;
            }
        }
        self.dirty.clear();
        self.unsealed = self.arena.end();
        Ok(())
    }
}
