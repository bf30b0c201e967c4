//! Fill: makes an operator complete again, a bounded piece at a time, while it works.
//!
//! After a restore an operator starts empty and reads through: what a change touches is fetched
//! before it. A fill walks over its tables in key order and supplies what is not in memory by the
//! same way, so that after the last vnode a miss needs no lookup any more.
//!
//! ```text
//!   table 0    ├ k1 k1 k1 │ k2 │ k3 k3 │ k4 …          each table is read up to a number of entries
//!   table 1    ├ k1 │ k3 │ k4 k4 k4 │ k5 …             from where the last piece ended; the piece ends
//!              from ─────────────────> end             where the first of them stopped, between two keys
//!   cold keys of the piece, with all their entries of all tables ──> supply
//! ```
//! A piece may be read from any snapshot published by then, for it reads only what the operator
//! would read through that same moment: a key that is not in memory is in the newest snapshot as it
//! was last. Nothing of a fill is remembered: after a crash it begins anew. **Invariant:** a key is
//! in memory whole or not at all.

use super::operator::{Fetched, Operator, OperatorError, Wanted};
use crate::state::StateError;
use crate::state::key::KeyCodec;
use crate::state::store::{StateRead, full_key, prefix_end};
use crate::stream::{Vnode, VnodeSet};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use weir_catalog::TableId;

/// Entries of one table that a piece has, unless a single key has more.
const PIECE_ENTRIES: usize = 4096;
/// Bytes of one table after which a piece ends as well.
const PIECE_BYTES: usize = 1 << 20;

/// How what an operator keeps lies in its tables: by key, the same in all of them.
#[derive(Clone, Debug)]
pub struct Keyed {
    /// Its tables. In each of them what belongs to a key starts with the vnode and that key.
    pub tables: Vec<TableId>,
    /// The key's columns. Without any there is one key, in [`Vnode::SINGLE`].
    pub key: KeyCodec,
}

impl Keyed {
    /// The length of the vnode and the key in `entry`, a key without table id.
    fn prefix_len(&self, entry: &[u8]) -> Result<usize, StateError> {
        let key = entry.get(1..).ok_or_else(|| StateError::Decode("a key without a vnode".to_owned()))?;
        Ok(1 + self.key.prefix_len(key, self.key.types().len())?)
    }
}

/// The walk over an operator's tables.
#[derive(Debug)]
pub struct Fill {
    keyed: Keyed,
    total: usize,
    piece_entries: usize,

    vnodes: VecDeque<Vnode>,
    /// Where the next piece begins: vnode and key.
    from: Vec<u8>,
}

/// What was read of one table.
#[derive(Default)]
struct Part {
    /// Keys without table id, and values; with the length of the prefix.
    entries: Vec<(Vec<u8>, Vec<u8>, usize)>,
    /// The first prefix that was not read, if any was left.
    next: Option<Vec<u8>>,
}

impl Fill {
    /// A walk over the part of the tables that an actor with `vnodes` has.
    pub fn new(keyed: Keyed, vnodes: &VnodeSet) -> Self {
        let vnodes: VecDeque<Vnode> =
            if keyed.key.types().is_empty() { [Vnode::SINGLE].into() } else { vnodes.iter().collect() };
        let from = vnodes.front().map_or_else(Vec::new, |vnode| vec![vnode.0]);
        Self { keyed, total: vnodes.len(), piece_entries: PIECE_ENTRIES, vnodes, from }
    }

    /// Pieces of this many entries a table.
    #[cfg(test)]
    pub fn in_pieces_of(self, entries: usize) -> Self {
        Self { piece_entries: entries, ..self }
    }

    /// Vnodes walked over, and all of them.
    pub fn progress(&self) -> (usize, usize) {
        (self.total - self.vnodes.len(), self.total)
    }

    /// Supplies `operator` with the next piece. Returns whether that was the last one: the operator
    /// is complete then.
    pub fn step(
        &mut self,
        operator: &mut dyn Operator,
        state: &dyn StateRead,
    ) -> Result<bool, OperatorError> {
        // Many vnodes may be all but empty: a piece goes over several.
        let mut read = 0;
        while let Some(vnode) = self.vnodes.front() {
            if read >= self.piece_entries {
                return Ok(false);
            }
            let tables = &self.keyed.tables;
            let mut parts =
                tables.iter().map(|t| self.read(state, *t, *vnode)).collect::<Result<Vec<_>, _>>()?;
            let end = parts.iter().filter_map(|part| part.next.clone()).min();
            if let Some(end) = &end {
                for part in &mut parts {
                    let within = part.entries.partition_point(|(key, ..)| key < end);
                    part.entries.truncate(within);
                }
            }
            read += parts.iter().map(|part| part.entries.len()).sum::<usize>();
            supply(operator, tables, parts)?;
            self.from = match end {
                Some(end) => end,
                None => {
                    self.vnodes.pop_front();
                    self.vnodes.front().map_or_else(Vec::new, |vnode| vec![vnode.0])
                }
            };
        }
        operator.filled();
        Ok(true)
    }

    /// Reads `table` from where this piece begins, to the end of a key.
    fn read(&self, state: &dyn StateRead, table: TableId, vnode: Vnode) -> Result<Part, StateError> {
        let (lower, upper) = (full_key(table, &self.from), prefix_end(&full_key(table, &[vnode.0])));
        let mut part = Part::default();
        let mut bytes = 0;
        let mut failed = None;
        state.scan(&lower, &upper, &mut |key, value| {
            let key = &key[4..];
            let last = part.entries.last();
            let same = last.filter(|(k, _, len)| key.starts_with(&k[..*len])).map(|(_, _, len)| *len);
            let len = match same.map_or_else(|| self.keyed.prefix_len(key), Ok) {
                Ok(len) => len,
                Err(error) => {
                    failed = Some(error);
                    return ControlFlow::Break(());
                }
            };
            if same.is_none() && (part.entries.len() >= self.piece_entries || bytes >= PIECE_BYTES) {
                part.next = Some(key[..len].to_vec());
                return ControlFlow::Break(());
            }
            bytes += key.len() + value.len();
            part.entries.push((key.to_vec(), value.to_vec(), len));
            ControlFlow::Continue(())
        })?;
        failed.map_or(Ok(part), Err)
    }
}

/// Supplies what the operator does not have in memory.
fn supply(operator: &mut dyn Operator, tables: &[TableId], parts: Vec<Part>) -> Result<(), OperatorError> {
    let mut wanted = Wanted::default();
    let mut fetched = Vec::new();
    for (table, part) in tables.iter().zip(parts) {
        let mut prefixes: Vec<&[u8]> = part.entries.iter().map(|(key, _, len)| &key[..*len]).collect();
        prefixes.dedup();
        let cold = operator.cold(*table, &prefixes)?;
        debug_assert_eq!(cold.len(), prefixes.len(), "an answer for each");
        let first = wanted.prefixes.len();
        let numbers = cold.iter().scan(first, |next, cold| {
            *next += usize::from(*cold);
            Some(cold.then(|| *next - 1))
        });
        let numbers: Vec<Option<usize>> = numbers.collect();
        let found = prefixes.iter().zip(&cold).filter(|(_, cold)| **cold);
        wanted.prefixes.extend(found.map(|(prefix, _)| (*table, prefix.to_vec())));
        let mut at = 0;
        let mut places = Vec::with_capacity(part.entries.len());
        for (key, _, len) in &part.entries {
            at += usize::from(prefixes[at] != &key[..*len]);
            places.push(numbers[at]);
        }
        drop(prefixes);
        for ((key, value, _), place) in part.entries.into_iter().zip(places) {
            fetched.extend(place.map(|wanted| Fetched { wanted, key, value }));
        }
    }
    if wanted.prefixes.is_empty() { Ok(()) } else { operator.supply(&wanted, fetched) }
}
