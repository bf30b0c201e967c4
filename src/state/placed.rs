//! Rows that lie in several batches, written from where they lie.
//!
//! ```text
//!   parts   [a b c] [d e f] …      rows   (0, 2) (1, 0) …
//!   keys    gathered and encoded ──> each row's value encoded behind its key
//! ```
//! Only the key columns are copied before they are encoded.

use super::StateError;
use super::key::EncodedKeys;
use super::store::WriteOp;
use super::table::TableLayout;
use super::writes::{RunWriter, Writes};
use arrow::array::{Array, ArrayRef};
use arrow::compute::interleave;
use std::sync::Arc;

/// Rows whose keys are gathered together.
const GATHERED: usize = 4096;

/// Rows of some batches.
#[derive(Debug)]
pub struct Placed {
    /// The columns of each batch.
    pub parts: Vec<Vec<ArrayRef>>,
    /// Part and row within it.
    pub rows: Vec<(usize, usize)>,
    /// How often each is to be added; none: once.
    pub diffs: Option<Vec<i64>>,
}

impl Writes {
    /// Adds the rows that `rows` gives, of the table of `layout`, to be written as [`super::table::StateTable::write`] does;
    /// of several with a key the later ones win.
    pub fn placed(&mut self, layout: &Arc<TableLayout>, rows: impl FnOnce() -> Placed + Send + 'static) {
        let layout = Arc::clone(layout);
        self.later(layout.id, move |runs| write(&layout, &rows(), runs));
    }
}

fn write(layout: &TableLayout, placed: &Placed, runs: &mut RunWriter<'_>) -> Result<(), StateError> {
    let value = |part: &Vec<ArrayRef>| layout.value_columns.iter().map(|c| part[*c].clone()).collect();
    let values: Vec<Vec<ArrayRef>> = placed.parts.iter().map(value).collect();
    let encoders: Vec<_> = values.iter().map(|columns| layout.value.encoder(columns)).collect();
    for start in (0..placed.rows.len()).step_by(GATHERED) {
        let rows = &placed.rows[start..placed.rows.len().min(start + GATHERED)];
        let keys = keys(layout, &placed.parts, rows)?;
        for (number, (part, row)) in rows.iter().enumerate() {
            let diff = placed.diffs.as_ref().map_or(1, |diffs| diffs[start + number]);
            let key = |out: &mut Vec<u8>| out.extend_from_slice(keys.get(number));
            if layout.counted {
                runs.write_with(WriteOp::AddCount, key, |out| out.extend_from_slice(&diff.to_le_bytes()));
            } else if diff < 0 {
                runs.write_with(WriteOp::Delete, key, |_| ());
            } else {
                runs.write_with(WriteOp::Put, key, |out| encoders[*part].encode(*row, out));
            }
        }
    }
    Ok(())
}

/// The keys of `rows`, vnode first.
fn keys(
    layout: &TableLayout,
    parts: &[Vec<ArrayRef>],
    rows: &[(usize, usize)],
) -> Result<EncodedKeys, StateError> {
    let gathered = |column: &usize| -> Result<ArrayRef, StateError> {
        let arrays: Vec<&dyn Array> = parts.iter().map(|part| part[*column].as_ref()).collect();
        interleave(&arrays, rows).map_err(|e| StateError::Store(e.to_string()))
    };
    let key: Vec<ArrayRef> = layout.key_columns.iter().map(gathered).collect::<Result<_, _>>()?;
    let of_key = |column: &usize| layout.key_columns.iter().position(|c| c == column);
    let distribution =
        layout.distribution.iter().map(|c| of_key(c).map_or_else(|| gathered(c), |at| Ok(key[at].clone())));
    let (_, vnodes) = layout.hashes_of(&distribution.collect::<Result<Vec<_>, _>>()?, rows.len());
    Ok(layout.key.encode_all(&key, rows.len(), Some(&vnodes)))
}

#[cfg(test)]
#[path = "tests/placed.rs"]
mod tests;
