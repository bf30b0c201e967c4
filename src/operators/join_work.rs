//! Work: a change that a join has taken up, and how much of its result is said.
//!
//! ```text
//!   Pairs ──> Alone ──> Flips ──> done        each in pieces; between two pieces the output may be full
//! ```

use super::expr::Appears;
use super::join::{HashJoin, alone, gives_pairs};
use super::join_side::{JoinSide, pick};
use super::row_arena::{NO_ROW, RowId};
use crate::dataflow::operator::{OperatorError, Output, Progress};
use crate::stream::ChangeBatch;
use crate::stream::builder::batch_of;
use arrow::array::{Array, ArrayRef, BooleanArray, UInt32Array, new_null_array};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::take;
use hashbrown::{HashMap, HashSet};
use weir_sql::plan::JoinKind;

/// Candidate pairs that one call looks at, at most, however few of them match.
const CANDIDATES_MAX: usize = 65_536;

/// Rows of the other side that enter or leave the result by themselves.
#[derive(Clone, Copy, Debug)]
struct Flip {
    /// The row; with all after it in its chain, unless there is a residual.
    row: RowId,
    /// +1 enters, -1 leaves.
    sign: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Pairs,
    Alone,
    Flips,
}

/// Where the enumeration of candidate pairs stands.
#[derive(Debug, Default)]
struct Cursor {
    row: usize,
    /// The next candidate of `row`; none: its chain is not begun.
    candidate: Option<RowId>,
}

/// A change that was taken up, and how much of its result is said.
#[derive(Debug)]
pub struct Work {
    side: usize,
    batch: ChangeBatch,
    /// The changed rows' places in their own side.
    ids: Vec<RowId>,
    /// For each, the chain of the other side's rows with its key.
    heads: Vec<RowId>,
    stage: Stage,
    cursor: Cursor,
    /// For each, how many rows of the other side it matches, as far as known.
    matched: Vec<i64>,
    /// Under a residual: rows of the other side whose matches changed, and what they were.
    before: HashMap<RowId, i64>,
    flips: Vec<Flip>,
    flip: usize,
    flip_row: Option<RowId>,
}

impl Work {
    /// Bytes held, roughly.
    pub fn memory(&self) -> usize {
        self.batch.memory() + self.batch.num_rows() * 16 + self.flips.capacity() * size_of::<Flip>()
    }
}

/// What NOT IN must know of all of the right side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RightSide {
    Empty,
    HasNull,
    Plain,
}

impl HashJoin {
    /// Takes up a change. Its rows without a key that can match are said at once.
    pub(super) fn start(
        &mut self,
        side: usize,
        batch: ChangeBatch,
        out: &mut Output,
    ) -> Result<Option<Work>, OperatorError> {
        let batch = match self.null_keys {
            true => batch,
            false => self.split_null_keys(side, batch, Some(out))?,
        };
        if batch.is_empty() {
            return Ok(None);
        }
        let other_asks = alone(self.kind, 1 - side).is_some();
        let keys: Vec<ArrayRef> = self.keys[side].iter().map(|k| batch.column(*k).clone()).collect();
        let stored = pick(batch.rows().columns(), &self.sides[side].spec.stored);
        let hashes = self.sides[side].key_hashes(&keys, batch.num_rows());
        let asks_totals = other_asks && self.residual.is_none();
        let before = if asks_totals { self.sides[side].totals(&keys, &hashes) } else { Vec::new() };
        let right_before = self.right_side();
        let ids = self.sides[side].change(&stored, batch.diffs(), &hashes)?;
        let other = &self.sides[1 - side];
        let own_totals = alone(self.kind, side).is_some() && self.residual.is_none();
        let matched = match own_totals {
            true => other.totals(&keys, &hashes),
            false => vec![0; if self.residual.is_some() { batch.num_rows() } else { 0 }],
        };
        let heads = other.find(&keys, &hashes);
        let mut flips = Vec::new();
        if asks_totals {
            let after = self.sides[side].totals(&keys, &hashes);
            let right_after = self.right_side();
            if right_before == right_after {
                flips = self.flips_by_key(side, &heads, &before, &after, right_after);
            } else {
                let before: HashMap<RowId, i64> = heads.iter().copied().zip(before).rev().collect();
                flips = self.flips_of_all(&before, right_before, right_after)?;
            }
        }
        let stage =
            if gives_pairs(self.kind) || self.residual.is_some() { Stage::Pairs } else { Stage::Alone };
        let cursor = Cursor::default();
        let before = HashMap::new();
        Ok(Some(Work {
            side,
            batch,
            ids,
            heads,
            stage,
            cursor,
            matched,
            before,
            flips,
            flip: 0,
            flip_row: None,
        }))
    }

    /// The rows whose keys can match. Those with NULL in their key match nothing: they are said now
    /// to `out`, if ever.
    pub(super) fn split_null_keys(
        &self,
        side: usize,
        batch: ChangeBatch,
        out: Option<&mut Output>,
    ) -> Result<ChangeBatch, OperatorError> {
        let keys = &self.keys[side];
        let nulls = keys.iter().fold(None, |nulls: Option<NullBuffer>, k| {
            NullBuffer::union(nulls.as_ref(), batch.column(*k).nulls())
        });
        let Some(nulls) = nulls.filter(|n| n.null_count() > 0) else { return Ok(batch) };
        if let Some(out) = out.filter(|_| alone(self.kind, side) == Some(false)) {
            let without = batch.filter(&BooleanArray::new(!nulls.inner(), None))?;
            self.say_alone(side, without.rows().columns(), without.num_rows(), without.diffs(), out)?;
        }
        Ok(batch.filter(&BooleanArray::new(nulls.inner().clone(), None))?)
    }

    /// Goes on until all is said, or the output is full.
    pub(super) fn advance(&mut self, work: &mut Work, out: &mut Output) -> Result<Progress, OperatorError> {
        if work.stage == Stage::Pairs {
            let mut looked_at = 0;
            while work.cursor.row < work.batch.num_rows() {
                if out.is_full() || looked_at >= CANDIDATES_MAX {
                    return Ok(Progress::More);
                }
                looked_at += self.pairs(work, out)?;
            }
            self.settle_matches(work);
            work.stage = Stage::Alone;
        }
        if work.stage == Stage::Alone {
            if out.is_full() {
                return Ok(Progress::More);
            }
            self.rows_alone(work, out)?;
            work.stage = Stage::Flips;
        }
        while work.flip < work.flips.len() {
            if out.is_full() {
                return Ok(Progress::More);
            }
            self.flip(work, out)?;
        }
        Ok(Progress::Done)
    }

    /// The next piece of pairs. Returns how many candidates it looked at.
    fn pairs(&mut self, work: &mut Work, out: &mut Output) -> Result<usize, OperatorError> {
        let limit = if self.residual.is_some() { self.piece_rows } else { self.piece_rows.min(out.room()) };
        let other = &self.sides[1 - work.side];
        let (mut rows, mut ids) = (Vec::new(), Vec::new());
        candidates(other, &work.heads, &mut work.cursor, limit, &mut rows, &mut ids);
        let looked_at = rows.len();
        if rows.is_empty() {
            return Ok(0);
        }
        let (columns, appears) = (work.batch.rows().columns(), |row| work.batch.diff(row) > 0);
        if let Some(keep) = self.matching(work.side, columns, &appears, &rows, &ids)? {
            let mut kept = keep.iter();
            rows.retain(|_| kept.next() == Some(true));
            let mut kept = keep.iter();
            ids.retain(|_| kept.next() == Some(true));
            self.count_pairs(work, &rows, &ids);
        }
        if gives_pairs(self.kind) && !rows.is_empty() {
            self.say_pairs(work, rows, &ids, out)?;
        }
        Ok(looked_at)
    }

    /// Which candidate pairs match, if that must be asked. `columns` are those of `side`'s input.
    fn matching(
        &self,
        side: usize,
        columns: &[ArrayRef],
        appears: Appears<'_>,
        rows: &[u32],
        ids: &[RowId],
    ) -> Result<Option<BooleanBuffer>, OperatorError> {
        let Some(residual) = &self.residual else { return Ok(None) };
        let indices = UInt32Array::from(rows.to_vec());
        let own: Result<Vec<_>, _> =
            residual.reads(side).iter().map(|c| take(&columns[*c], &indices, None)).collect();
        let other = self.sides[1 - side].arena.gather(ids, residual.kept(1 - side))?;
        let both = if side == 0 { [own?, other] } else { [other, own?] };
        let keep = residual.evaluate(both, rows.len(), &|pair| appears(rows[pair] as usize))?;
        Ok(Some(match keep.nulls() {
            Some(nulls) => keep.values() & nulls.inner(),
            None => keep.values().clone(),
        }))
    }

    /// Under a residual, matched pairs count for both of their rows.
    fn count_pairs(&mut self, work: &mut Work, rows: &[u32], ids: &[RowId]) {
        let other = &mut self.sides[1 - work.side];
        for (row, id) in rows.iter().zip(ids) {
            work.matched[*row as usize] += other.count(*id);
            if other.spec.matches {
                let matches = &mut other.matches[*id as usize];
                work.before.entry(*id).or_insert(*matches);
                *matches += work.batch.diff(*row as usize);
            }
        }
    }

    fn say_pairs(
        &self,
        work: &Work,
        rows: Vec<u32>,
        ids: &[RowId],
        out: &mut Output,
    ) -> Result<(), OperatorError> {
        let other = &self.sides[1 - work.side];
        let plain = work.batch.diffs().is_none() && !other.spec.counted;
        let diffs: Option<Vec<i64>> = (!plain).then(|| {
            rows.iter().zip(ids).map(|(row, id)| work.batch.diff(*row as usize) * other.count(*id)).collect()
        });
        let n = rows.len();
        let once_each =
            n == work.batch.num_rows() && rows.iter().enumerate().all(|(i, row)| i == *row as usize);
        let columns = work.batch.rows().columns();
        let own = if once_each {
            columns.to_vec()
        } else {
            let indices = UInt32Array::from(rows);
            columns.iter().map(|c| take(c, &indices, None)).collect::<Result<Vec<_>, _>>()?
        };
        let other = other.gather(ids)?;
        let (left, right) = if work.side == 0 { (own, other) } else { (other, own) };
        let rows = batch_of(&self.schema, left.into_iter().chain(right).collect(), n)?;
        out.push(match diffs {
            Some(diffs) => ChangeBatch::new(rows, diffs),
            None => ChangeBatch::insertions(rows),
        });
        Ok(())
    }

    /// All pairs are counted: changed rows remember their matches, and the other side's rows whose
    /// matches came or went are known.
    fn settle_matches(&mut self, work: &mut Work) {
        if self.sides[work.side].spec.matches {
            for (id, matched) in work.ids.iter().zip(&work.matched) {
                self.sides[work.side].matches[*id as usize] = *matched;
            }
        }
        if let Some(when) = alone(self.kind, 1 - work.side) {
            let other = &self.sides[1 - work.side];
            for (row, before) in work.before.drain() {
                let (before, after) = (before > 0, other.matches[row as usize] > 0);
                if before != after {
                    work.flips.push(Flip { row, sign: if after == when { 1 } else { -1 } });
                }
            }
        }
    }

    /// Changed rows that stand alone.
    fn rows_alone(&self, work: &Work, out: &mut Output) -> Result<(), OperatorError> {
        let Some(when) = alone(self.kind, work.side) else { return Ok(()) };
        let right = self.right_side();
        let key = &work.batch.column(*self.keys[work.side].first().unwrap_or(&0));
        let has_match = |row: usize| match self.kind {
            JoinKind::NullAwareAnti => not_in_has_match(right, key.is_null(row), work.matched[row]),
            _ => work.matched[row] > 0,
        };
        let rows: BooleanBuffer = (0..work.batch.num_rows()).map(|row| has_match(row) == when).collect();
        match rows.count_set_bits() {
            0 => Ok(()),
            n if n == work.batch.num_rows() => {
                self.say_alone(work.side, work.batch.rows().columns(), n, work.batch.diffs(), out)
            }
            n => {
                let rows = work.batch.filter(&BooleanArray::new(rows, None))?;
                self.say_alone(work.side, rows.rows().columns(), n, rows.diffs(), out)
            }
        }
    }

    /// Emits rows of `side` by themselves: padded with NULLs where the result has both sides.
    fn say_alone(
        &self,
        side: usize,
        columns: &[ArrayRef],
        rows: usize,
        diffs: Option<&[i64]>,
        out: &mut Output,
    ) -> Result<(), OperatorError> {
        let mut columns = columns.to_vec();
        if gives_pairs(self.kind) {
            let fields = self.schema.fields();
            let own = columns.len();
            let missing = if side == 0 { own..fields.len() } else { 0..fields.len() - own };
            let padding: Vec<ArrayRef> =
                missing.map(|f| new_null_array(fields[f].data_type(), rows)).collect();
            columns = match side {
                0 => columns.into_iter().chain(padding).collect(),
                _ => padding.into_iter().chain(columns).collect(),
            };
        }
        let rows = batch_of(&self.schema, columns, rows)?;
        out.push(match diffs {
            Some(diffs) => ChangeBatch::new(rows, diffs),
            None => ChangeBatch::insertions(rows),
        });
        Ok(())
    }

    /// The keys of the other side that gained their first match or lost their last one.
    fn flips_by_key(
        &self,
        side: usize,
        heads: &[RowId],
        before: &[i64],
        after: &[i64],
        right: RightSide,
    ) -> Vec<Flip> {
        if self.kind == JoinKind::NullAwareAnti && right != RightSide::Plain {
            return Vec::new(); // no key's matches decide anything
        }
        let Some(when) = alone(self.kind, 1 - side) else { return Vec::new() };
        let mut seen = HashSet::new();
        let mut flips = Vec::new();
        for ((head, before), after) in heads.iter().zip(before).zip(after) {
            let (before, after) = (*before > 0, *after > 0);
            if *head != NO_ROW && before != after && seen.insert(*head) {
                flips.push(Flip { row: *head, sign: if after == when { 1 } else { -1 } });
            }
        }
        flips
    }

    /// The keys of the left side of NOT IN whose answer changes as the right side changes as a
    /// whole. `before` has the totals, before, of keys whose totals changed.
    fn flips_of_all(
        &self,
        before: &HashMap<RowId, i64>,
        right_before: RightSide,
        right_after: RightSide,
    ) -> Result<Vec<Flip>, OperatorError> {
        let [left, right] = &self.sides;
        let mut flips = Vec::new();
        for heads in left.heads().chunks(self.piece_rows) {
            let keys = left.arena.gather(heads, &left.spec.keys)?;
            let totals = right.totals(&keys, &right.key_hashes(&keys, heads.len()));
            for (i, row) in heads.iter().enumerate() {
                let null = keys[0].is_null(i);
                let total_before = before.get(row).copied().unwrap_or(totals[i]);
                let was = not_in_has_match(right_before, null, total_before);
                let is = not_in_has_match(right_after, null, totals[i]);
                if was != is {
                    flips.push(Flip { row: *row, sign: if is { -1 } else { 1 } });
                }
            }
        }
        Ok(flips)
    }

    fn right_side(&self) -> RightSide {
        if self.kind != JoinKind::NullAwareAnti {
            return RightSide::Plain;
        }
        let right = &self.sides[1];
        let null = [new_null_array(&right.arena.types()[right.spec.keys[0]], 1)];
        let nulls = right.totals(&null, &right.key_hashes(&null, 1))[0];
        match (right.occurrences > 0, nulls > 0) {
            (false, _) => RightSide::Empty,
            (true, true) => RightSide::HasNull,
            (true, false) => RightSide::Plain,
        }
    }

    /// The next piece of the other side's rows that enter or leave.
    fn flip(&self, work: &mut Work, out: &mut Output) -> Result<(), OperatorError> {
        let other = &self.sides[1 - work.side];
        let (mut ids, mut diffs) = (Vec::new(), Vec::new());
        let limit = self.piece_rows.min(out.room());
        while ids.len() < limit && work.flip < work.flips.len() {
            let Flip { row, sign } = work.flips[work.flip];
            let id = work.flip_row.unwrap_or(row);
            ids.push(id);
            diffs.push(sign * other.count(id));
            let next = if self.residual.is_some() { NO_ROW } else { other.next[id as usize] };
            work.flip_row = (next != NO_ROW).then_some(next);
            work.flip += usize::from(next == NO_ROW);
        }
        let columns = other.gather(&ids)?;
        self.say_alone(1 - work.side, &columns, ids.len(), Some(&diffs), out)
    }

    /// How many rows of the other side each of these rows of `side` matches.
    pub(super) fn count_matches(
        &self,
        side: usize,
        columns: &[ArrayRef],
        rows: usize,
    ) -> Result<Vec<i64>, OperatorError> {
        let own = &self.sides[side];
        let other = &self.sides[1 - side];
        let keys = pick(columns, &own.spec.keys);
        let heads = other.find(&keys, &own.key_hashes(&keys, rows));
        let mut matched = vec![0; rows];
        let mut cursor = Cursor::default();
        while cursor.row < rows {
            let (mut pair_rows, mut ids) = (Vec::new(), Vec::new());
            candidates(other, &heads, &mut cursor, self.piece_rows, &mut pair_rows, &mut ids);
            let keep = self.matching(side, columns, &|_| false, &pair_rows, &ids)?;
            for (i, (row, id)) in pair_rows.iter().zip(&ids).enumerate() {
                if keep.as_ref().is_none_or(|k| k.value(i)) {
                    matched[*row as usize] += other.count(*id);
                }
            }
        }
        Ok(matched)
    }
}

/// Whether NOT IN is not true of a row: it has a match, or it can't be said that it has none.
fn not_in_has_match(right: RightSide, key_is_null: bool, total: i64) -> bool {
    match right {
        RightSide::Empty => false,
        RightSide::HasNull => true,
        RightSide::Plain => key_is_null || total > 0,
    }
}

/// The next candidate pairs, at most `limit`: changed rows, and rows of `other` with their keys.
fn candidates(
    other: &JoinSide,
    heads: &[RowId],
    cursor: &mut Cursor,
    limit: usize,
    rows: &mut Vec<u32>,
    ids: &mut Vec<RowId>,
) {
    while cursor.row < heads.len() {
        let mut id = cursor.candidate.take().unwrap_or(heads[cursor.row]);
        while id != NO_ROW {
            if ids.len() == limit {
                cursor.candidate = Some(id);
                return;
            }
            rows.push(cursor.row as u32);
            ids.push(id);
            id = other.next[id as usize];
        }
        cursor.row += 1;
    }
}
