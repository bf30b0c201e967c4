//! What reading a table gives: ranges of keys to ask for, rows, and where a scan goes on.

use super::StateError;
use super::store::prefix_end;
use crate::stream::ChangeBatch;
use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;

/// A range of full keys: `lower` is in it, `upper` is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key that may be in it.
    pub lower: Vec<u8>,
    /// The first key behind it.
    pub upper: Vec<u8>,
}

impl KeyRange {
    /// Every key that starts with `prefix`.
    pub fn of_prefix(prefix: &[u8]) -> Self {
        Self { lower: prefix.to_vec(), upper: prefix_end(prefix) }
    }

    /// What comes after `key` (a full key in it).
    pub fn after(&self, key: &[u8]) -> Self {
        let mut lower = key.to_vec();
        lower.push(0);
        Self { lower, upper: self.upper.clone() }
    }
}

/// Rows as read.
#[derive(Clone, Debug)]
pub struct Rows {
    /// The rows, of the layout's schema.
    pub rows: RecordBatch,
    /// In counted tables how often each occurs; elsewhere each occurs once.
    pub counts: Option<Vec<i64>>,
}

impl Rows {
    /// The rows as insertions.
    pub fn into_changes(self) -> ChangeBatch {
        match self.counts {
            Some(counts) => ChangeBatch::new(self.rows, counts),
            None => ChangeBatch::insertions(self.rows),
        }
    }

    /// The rows, each as often as it occurs: what SELECT shows.
    pub fn repeated(self) -> Result<RecordBatch, StateError> {
        let Some(counts) = self.counts.filter(|counts| counts.iter().any(|c| *c != 1)) else {
            return Ok(self.rows);
        };
        let mut indices = Vec::new();
        for (row, count) in counts.iter().enumerate() {
            let count = usize::try_from(*count)
                .map_err(|_| StateError::Decode(format!("a row that occurs {count} times")))?;
            indices.extend(std::iter::repeat_n(row as u32, count));
        }
        take_record_batch(&self.rows, &UInt32Array::from(indices))
            .map_err(|e| StateError::Decode(e.to_string()))
    }
}

/// Part of a scan.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// The rows.
    pub rows: Rows,
    /// The full key of the last row.
    pub last_key: Option<Vec<u8>>,
    /// What is left of the range, if anything is.
    pub next: Option<KeyRange>,
}

/// Rows looked up by key.
#[derive(Clone, Debug)]
pub struct Found {
    /// The rows that exist.
    pub rows: Rows,
    /// For each of them the index of its key among those asked for, ascending.
    pub indices: Vec<usize>,
}

/// Entries copied out of a scan, in one buffer.
#[derive(Default)]
pub(super) struct Entries {
    data: Vec<u8>,
    /// End of key, end of value.
    ends: Vec<(usize, usize)>,
}

impl Entries {
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        self.data.extend_from_slice(key);
        let end_of_key = self.data.len();
        self.data.extend_from_slice(value);
        self.ends.push((end_of_key, self.data.len()));
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> {
        (0..self.ends.len()).map(|i| {
            let start = if i == 0 { 0 } else { self.ends[i - 1].1 };
            let (end_of_key, end_of_value) = self.ends[i];
            (&self.data[start..end_of_key], &self.data[end_of_key..end_of_value])
        })
    }

    pub fn last_key(&self) -> Option<&[u8]> {
        self.iter().next_back().map(|(key, _)| key)
    }
}
