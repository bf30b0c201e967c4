//! HashJoin: inner, outer, semi and anti joins of two changing inputs.
//!
//! ```text
//!   change of one side ──> taken up by that side
//!        │ keys
//!        └──> rows of the other side with these keys ──residual──> pairs            (inner, outer)
//!             of its own rows, those whose match decides         ──> rows alone     (outer, semi, anti)
//!             of the other side's rows, those that gained their
//!             first match or lost their last one                 ──> rows alone
//! ```
//! A join is bilinear: the change of the pairs is the changed rows times the other side as it is.
//! A row *alone* stands in the result by itself, padded with NULLs in an outer join: in outer and
//! anti joins while it has no match, in a semi join while it has one. Whether it has one is known by
//! key from the other side's totals, or, under a residual, from a count that the row carries.
//! The result is given in pieces; what is left waits in a [`Work`].
//! **Invariant:** a row with NULL in its key matches nothing and is not kept, except where NULLs
//! are equal or the join asks about them (NOT IN). Where a key column carries a watermark on both
//! sides, so do both columns of the result, the lesser one; and where that is the first key column,
//! rows below it are forgotten ([`super::join_expiry`]).

use super::expr::nullable;
use super::failures::Failures;
use super::join_residual::Residual;
use super::join_side::{JoinSide, SideSpec, stored_schema};
use super::join_work::Work;
use super::row_arena::RowId;
use crate::checkpoint::participant::Sealed;
use crate::dataflow::fill::Keyed;
use crate::dataflow::operator::{Fetched, Operator, OperatorError, Output, Progress, Restored, Wanted};
use crate::state::store::full_key;
use crate::stream::watermark::WatermarkMerge;
use crate::stream::{Barrier, ChangeBatch, Epoch, Watermark};
use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;
use std::sync::Arc;
use weir_catalog::TableId;
use weir_sql::plan::JoinKind;

/// Candidate pairs looked at in one go.
const PIECE_ROWS: usize = 8192;

/// One input of a join.
#[derive(Clone, Debug)]
pub struct JoinInput {
    /// Its columns.
    pub schema: SchemaRef,
    /// The join key.
    pub keys: Vec<usize>,
    /// Whether only insertions come.
    pub append_only: bool,
    /// Columns that are unique in it, if any are known to be.
    pub unique: Option<Vec<usize>>,
    /// The internal table that remembers its rows.
    pub table: TableId,
}

/// What a join is, as planned.
#[derive(Clone, Debug)]
pub struct JoinSpec {
    /// How rows are joined. A [`JoinKind::NullAwareAnti`] has one key column, no residual, and all
    /// rows of both inputs at one actor.
    pub kind: JoinKind,
    /// The inputs: left, right.
    pub inputs: [JoinInput; 2],
    /// Whether NULL keys match each other.
    pub null_equal: bool,
    /// What else must be true, over left columns, then right columns.
    pub residual: Option<Arc<dyn PhysicalExpr>>,
    /// The output's columns.
    pub schema: SchemaRef,
    /// Whether the first key column carries a watermark on both sides.
    pub expires: bool,
}

/// Joins two changing inputs.
#[derive(Debug)]
pub struct HashJoin {
    pub(super) kind: JoinKind,
    pub(super) residual: Option<Residual>,
    pub(super) schema: SchemaRef,
    pub(super) keys: [Vec<usize>; 2],
    pub(super) null_keys: bool,
    pub(super) piece_rows: usize,

    pub(super) sides: [JoinSide; 2],
    /// By key column: what both sides promise.
    pub(super) watermarks: Vec<WatermarkMerge>,
    work: Option<Work>,
}

/// For each side, when its rows stand alone in the result: with a match, without, or never.
pub(super) fn alone(kind: JoinKind, side: usize) -> Option<bool> {
    match (kind, side) {
        (JoinKind::Left | JoinKind::Full | JoinKind::LeftAnti | JoinKind::NullAwareAnti, 0) => Some(false),
        (JoinKind::Right | JoinKind::Full, 1) => Some(false),
        (JoinKind::LeftSemi, 0) => Some(true),
        _ => None,
    }
}

/// Whether pairs of rows are part of the result.
pub(super) fn gives_pairs(kind: JoinKind) -> bool {
    matches!(kind, JoinKind::Inner | JoinKind::Left | JoinKind::Right | JoinKind::Full)
}

impl HashJoin {
    /// An empty join; pairs for which the residual fails go to `failures`.
    pub fn new(spec: JoinSpec, failures: Failures) -> Self {
        let JoinSpec { kind, inputs, null_equal, residual, schema, expires } = spec;
        assert!(
            kind != JoinKind::NullAwareAnti || (inputs[0].keys.len() == 1 && residual.is_none()),
            "the planner makes another join of a NOT IN with conditions"
        );
        let key_types =
            |i: &JoinInput| i.keys.iter().map(|k| i.schema.field(*k).data_type().clone()).collect();
        let types: [Vec<_>; 2] = [key_types(&inputs[0]), key_types(&inputs[1])];
        assert_eq!(types[0], types[1], "the planner gives both keys the same types");
        let null_keys = null_equal || kind == JoinKind::NullAwareAnti;
        let [left, right] = &inputs;
        let residual = residual.map(|r| Residual::new(r, [&left.schema, &right.schema], failures));
        let specs = [0, 1].map(|side| side_spec(kind, side, &inputs[side], residual.as_ref(), null_keys));
        let residual = residual.map(|r| r.over([&specs[0].stored, &specs[1].stored]));
        let [left, right] = specs.map(|spec| JoinSide::new(spec, expires));
        Self {
            kind,
            residual,
            schema: nullable(&schema),
            watermarks: vec![WatermarkMerge::new(2); inputs[0].keys.len()],
            keys: inputs.map(|i| i.keys),
            null_keys,
            piece_rows: PIECE_ROWS,
            sides: [left, right],
            work: None,
        }
    }

    fn go_on(&mut self, mut work: Work, out: &mut Output) -> Result<Progress, OperatorError> {
        let progress = self.advance(&mut work, out)?;
        if progress == Progress::More {
            self.work = Some(work);
        }
        Ok(progress)
    }

    /// Counts the matches of restored rows: they are not stored, for a change of one row would
    /// rewrite all that it matches.
    fn recount(&mut self, side: usize) -> Result<(), OperatorError> {
        let pages: Vec<(RowId, Vec<_>, usize)> = self.sides[side]
            .arena
            .pages()
            .map(|(first, columns, rows)| (first, columns.to_vec(), rows))
            .collect();
        for (first, columns, rows) in pages {
            let matched = self.count_matches(side, &columns, rows)?;
            let first = first as usize;
            self.sides[side].matches[first..first + rows].copy_from_slice(&matched);
        }
        Ok(())
    }
}

/// What a side keeps. Of the right side of a semi or anti join nothing is shown, so only what its
/// conditions read is kept.
fn side_spec(
    kind: JoinKind,
    side: usize,
    input: &JoinInput,
    residual: Option<&Residual>,
    null_keys: bool,
) -> SideSpec {
    let arity = input.schema.fields().len();
    let stored: Vec<usize> = if side == 0 || gives_pairs(kind) {
        (0..arity).collect()
    } else {
        let read = residual.map_or(&[][..], |r| r.reads(side));
        (0..arity).filter(|c| input.keys.contains(c) || read.contains(c)).collect()
    };
    let place = |c: &usize| stored.iter().position(|s| s == c);
    let keys = input.keys.iter().filter_map(place).collect();
    let unique = input.unique.as_ref().and_then(|u| u.iter().map(place).collect::<Option<Vec<_>>>());
    SideSpec {
        table: input.table,
        schema: stored_schema(&input.schema, &stored),
        stored,
        keys,
        counted: !input.append_only,
        unique,
        totals: alone(kind, 1 - side).is_some() && residual.is_none(),
        matches: alone(kind, side).is_some() && residual.is_some(),
        null_keys,
    }
}

impl Operator for HashJoin {
    fn name(&self) -> &'static str {
        "join"
    }

    fn restore(&mut self, restored: &Restored<'_>) -> Result<(), OperatorError> {
        if self.keyed().is_some() {
            self.sides.iter_mut().for_each(JoinSide::begin_cold);
            return Ok(());
        }
        for side in &mut self.sides {
            side.restore(restored)?;
        }
        for side in 0..2 {
            if self.sides[side].spec.matches {
                self.recount(side)?;
            }
        }
        Ok(())
    }

    fn keyed(&self) -> Option<Keyed> {
        // NOT IN asks about the right side as a whole: it takes up all at a restore. So do joins of
        // columns that are the same on one side only, for their keys are stored unlike.
        let [left, right] = [0, 1].map(|side| self.sides[side].key_codec());
        (self.kind != JoinKind::NullAwareAnti && left.types().len() == right.types().len())
            .then(|| Keyed { tables: self.sides.iter().map(|side| side.spec.table).collect(), key: left })
    }

    fn cold(&self, table: TableId, prefixes: &[&[u8]]) -> Result<Vec<bool>, OperatorError> {
        let side = self.sides.iter().find(|side| side.spec.table == table);
        side.map_or_else(|| Ok(vec![false; prefixes.len()]), |side| Ok(side.cold_prefixes(prefixes)?))
    }

    fn filled(&mut self) {
        self.sides.iter_mut().for_each(JoinSide::take_for_complete);
    }

    fn complete(&self) -> bool {
        self.sides.iter().all(|side| side.complete)
    }

    fn wanted(&self, port: usize, batch: &ChangeBatch, wanted: &mut Wanted) -> Result<(), OperatorError> {
        let batch = match self.null_keys {
            true => batch.clone(),
            false => self.split_null_keys(port, batch.clone(), None)?,
        };
        let keys: Vec<ArrayRef> = self.keys[port].iter().map(|k| batch.column(*k).clone()).collect();
        for side in &self.sides {
            let hashes = side.key_hashes(&keys, batch.num_rows());
            wanted
                .prefixes
                .extend(side.cold(&keys, &hashes).into_iter().map(|prefix| (side.spec.table, prefix)));
        }
        Ok(())
    }

    fn supply(&mut self, wanted: &Wanted, entries: Vec<Fetched>) -> Result<(), OperatorError> {
        let mut loaded = [None, None];
        for (side, loaded) in self.sides.iter_mut().zip(&mut loaded) {
            let layout = side.table.layout().clone();
            let own = entries.iter().filter(|entry| wanted.prefixes[entry.wanted].0 == layout.id);
            let rows: Vec<(Vec<u8>, &[u8])> =
                own.map(|entry| (full_key(layout.id, &entry.key), entry.value.as_slice())).collect();
            if !rows.is_empty() {
                let rows = layout.decode_rows(rows.iter().map(|(key, value)| (key.as_slice(), *value)))?;
                *loaded = Some(side.load(&rows.into_changes())?);
            }
        }
        for (side, loaded) in loaded.into_iter().enumerate() {
            let Some((columns, ids)) = loaded.filter(|_| self.sides[side].spec.matches) else { continue };
            let matched = self.count_matches(side, &columns, ids.len())?;
            for (id, matched) in ids.into_iter().zip(matched) {
                self.sides[side].matches[id as usize] = matched;
            }
        }
        Ok(())
    }

    fn on_change(
        &mut self,
        port: usize,
        batch: ChangeBatch,
        out: &mut Output,
    ) -> Result<Progress, OperatorError> {
        debug_assert!(self.work.is_none(), "a change comes when the one before is done");
        if self.sides[port].spec.counted {
            self.sides[port].compact()?;
        }
        match self.start(port, batch, out)? {
            Some(work) => self.go_on(work, out),
            None => Ok(Progress::Done),
        }
    }

    fn on_watermark(
        &mut self,
        port: usize,
        watermark: Watermark,
        out: &mut Output,
    ) -> Result<Progress, OperatorError> {
        self.advance_watermark(port, watermark, out);
        Ok(Progress::Done)
    }

    fn resume(&mut self, out: &mut Output) -> Result<Progress, OperatorError> {
        match self.work.take() {
            Some(work) => self.go_on(work, out),
            None => Ok(Progress::Done),
        }
    }

    fn seal(&mut self, barrier: &Barrier, sealed: &mut Sealed) -> Result<(), OperatorError> {
        if barrier.is_checkpoint() {
            for side in &mut self.sides {
                side.seal(barrier.epoch, &mut sealed.runs)?;
                side.expire(&mut sealed.runs)?;
            }
        }
        self.residual.as_ref().map_or(Ok(()), |residual| residual.failures().seal(barrier, sealed))
    }

    fn state_entries(&self) -> usize {
        self.sides.iter().map(|side| side.arena.live()).sum()
    }

    fn memory(&self) -> usize {
        self.sides.iter().map(JoinSide::memory).sum::<usize>() + self.work.as_ref().map_or(0, Work::memory)
    }

    fn evict(&mut self, applied: Epoch, _bytes: usize) -> usize {
        // NOT IN asks about the right side as a whole.
        if self.work.is_some() || self.kind == JoinKind::NullAwareAnti {
            return 0;
        }
        let before = self.memory();
        for side in &mut self.sides {
            if side.evict(applied).is_err() {
                break;
            }
        }
        before.saturating_sub(self.memory())
    }
}

#[cfg(test)]
#[path = "tests/join.rs"]
mod tests;
