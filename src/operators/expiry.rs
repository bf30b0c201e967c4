//! Expiry: state below a watermark goes, from memory and from the state tables.
//!
//! Where the first column of an operator's key carries a watermark, no change of a key below it can
//! come any more, insertion or deletion, so nothing can make use of what is remembered of it. What
//! it has given stays with the reader. At a checkpoint, after everything is sealed:
//!
//! ```text
//!   changes  of what is still there below it are not written (what is gone is: no range may come for it)
//!   tables   one range a vnode, deleted                       (cold state too: keys start with time)
//!   memory   dropped when it is a quarter of what is held     (dropping costs a copy of the rest)
//! ```

use crate::state::expire::delete_below;
use crate::state::store::WriteRun;
use crate::state::writes::Writes;
use crate::stream::{Vnode, VnodeSet};
use std::collections::BTreeSet;
use weir_catalog::TableId;

/// At least one part in so many is dropped from memory at once.
const PART_MIN: usize = 4;

/// How far the state of an operator is freed.
#[derive(Debug, Default)]
pub struct Expiry {
    /// The watermark of the first key column.
    watermark_us: Option<i64>,
    /// The tables hold nothing below this.
    deleted_us: Option<i64>,
}

impl Expiry {
    /// The first key column's watermark is `time_us`.
    pub fn advance(&mut self, time_us: i64) {
        self.watermark_us = self.watermark_us.max(Some(time_us));
    }

    /// The watermark, if it has moved since the tables were freed.
    pub fn due(&self) -> Option<i64> {
        self.watermark_us.filter(|_| self.watermark_us > self.deleted_us)
    }

    /// The time that is freed next starts here.
    pub fn deleted_us(&self) -> i64 {
        self.deleted_us.unwrap_or(i64::MIN)
    }

    /// Frees `tables` below the watermark. `vnodes`: where there may be something.
    pub fn delete(&mut self, tables: impl Iterator<Item = TableId>, vnodes: &Vnodes, sealed: &mut Writes) {
        let Some(below_us) = self.due() else { return };
        for table in tables {
            let mut run = WriteRun::new(table);
            match vnodes {
                Vnodes::All => delete_below(&mut run, VnodeSet::all().iter(), below_us),
                Vnodes::Some(some) => delete_below(&mut run, some.iter().copied(), below_us),
            }
            if !run.is_empty() {
                sealed.push(run);
            }
        }
        self.deleted_us = Some(below_us);
    }
}

/// Whether `dead` of `all` that are in memory are worth dropping.
pub fn worth_dropping(dead: usize, all: usize) -> bool {
    dead > 0 && dead * PART_MIN >= all
}

/// Vnodes that may have state below a watermark.
#[derive(Debug)]
pub enum Vnodes {
    /// Any: not all state is in memory. Those of other actors are free below it as well.
    All,
    /// These.
    Some(BTreeSet<Vnode>),
}

impl Vnodes {
    /// None yet if all state is in memory (`complete`), all if not.
    pub fn of(complete: bool) -> Self {
        if complete { Vnodes::Some(BTreeSet::new()) } else { Vnodes::All }
    }

    /// This one.
    pub fn insert(&mut self, vnode: Vnode) {
        if let Vnodes::Some(some) = self {
            some.insert(vnode);
        }
    }
}

#[cfg(test)]
#[path = "tests/expiry.rs"]
mod tests;
