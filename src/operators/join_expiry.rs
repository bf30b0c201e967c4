//! A join's rows below the watermark of both sides: freed at checkpoints, see [`super::expiry`].
//!
//! A row whose key is below what both sides promise meets no change of the other side any more, and
//! is itself not changed. What it stands for in the result stays.

use super::expiry::{Vnodes, worth_dropping};
use super::join::{HashJoin, gives_pairs};
use super::join_side::JoinSide;
use super::row_arena::{NO_ROW, RowId};
use crate::dataflow::operator::{OperatorError, Output};
use crate::state::writes::Writes;
use crate::stream::{Vnode, Watermark};
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::TimestampMicrosecondType;
use weir_sql::plan::JoinKind;

impl HashJoin {
    /// Takes up a watermark of one side; what both promise goes on, and frees rows.
    pub(super) fn advance_watermark(&mut self, port: usize, watermark: Watermark, out: &mut Output) {
        for key in 0..self.keys[port].len() {
            if self.keys[port][key] != watermark.column || self.kind == JoinKind::NullAwareAnti {
                continue;
            }
            let Some(time_us) = self.watermarks[key].advance(port, watermark.time_us) else { continue };
            out.push_watermark(Watermark { column: self.keys[0][key], time_us });
            if gives_pairs(self.kind) {
                let column = self.sides[0].all.len() + self.keys[1][key];
                out.push_watermark(Watermark { column, time_us });
            }
            for expiry in self.sides.iter_mut().filter_map(|side| side.expiry.as_mut()).filter(|_| key == 0) {
                expiry.advance(time_us);
            }
        }
    }
}

impl JoinSide {
    /// Rows of these columns come: how old they are.
    pub(super) fn note_oldest(&mut self, columns: &[ArrayRef]) {
        if self.expiry.is_some() {
            let times = columns[self.spec.keys[0]].as_primitive::<TimestampMicrosecondType>();
            self.oldest_us = arrow::compute::min(times).map_or(self.oldest_us, |t| t.min(self.oldest_us));
        }
    }

    /// The first key column of a row; the greatest for NULL.
    pub(super) fn time_us(&self, id: RowId) -> i64 {
        let (cells, at) = self.arena.cell(id);
        let times = cells[self.spec.keys[0]].as_primitive::<TimestampMicrosecondType>();
        if times.is_null(at) { i64::MAX } else { times.value(at) }
    }

    /// Frees the rows below the watermark. All changes of others are sealed.
    pub(super) fn expire(&mut self, writes: &mut Writes) -> Result<(), OperatorError> {
        let Some(expiry) = &self.expiry else { return Ok(()) };
        let Some(below_us) = expiry.due() else { return Ok(()) };
        if self.complete && below_us <= self.oldest_us {
            return Ok(());
        }
        let mut vnodes = Vnodes::of(self.complete);
        let (mut dead, mut oldest_us) = (0, i64::MAX);
        for slot in &self.index {
            let time_us = self.time_us(slot.head);
            if time_us >= below_us {
                oldest_us = oldest_us.min(time_us);
                continue;
            }
            dead += 1;
            if time_us >= expiry.deleted_us() {
                vnodes.insert(Vnode::of_hash(slot.hash));
            }
        }
        self.oldest_us = oldest_us;
        if let Some(expiry) = &mut self.expiry {
            expiry.delete(std::iter::once(self.spec.table), &vnodes, writes);
        }
        if worth_dropping(dead, self.index.len()) {
            self.keep_only(&self.rows_from(below_us))?;
        }
        Ok(())
    }

    /// The rows whose key is not below, ascending.
    fn rows_from(&self, below_us: i64) -> Vec<RowId> {
        let mut kept = Vec::new();
        for slot in self.index.iter().filter(|slot| self.time_us(slot.head) >= below_us) {
            let mut id = slot.head;
            while id != NO_ROW {
                kept.push(id);
                id = self.next[id as usize];
            }
        }
        kept.sort_unstable();
        kept
    }
}
