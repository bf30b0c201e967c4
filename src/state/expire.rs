//! Drops state below a watermark: ranges of a table whose keys start with a time.
//!
//! ```text
//!   key     vnode │ 0x01 │ time │ …            NULL is 0x02, and stays
//!   range   vnode │ 0x01 ..= vnode │ 0x01 │ watermark (not included)
//! ```
//! What an epoch writes below the watermark that it ends with is not written at all: [`Removed`].

use super::key::KeyCodec;
use super::store::{WriteOp, WriteRun};
use crate::stream::Vnode;
use arrow::array::{ArrayRef, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, TimeUnit};
use std::sync::Arc;

/// The encoding of a time as the first column of a key.
pub fn encoded_time(time_us: i64) -> Vec<u8> {
    let codec = KeyCodec::new(vec![DataType::Timestamp(TimeUnit::Microsecond, None)]);
    let column: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![time_us]));
    let mut bytes = Vec::new();
    codec.encode(&[column], 0, &mut bytes);
    bytes
}

/// Whether an encoded key (without vnode) starts with a time below the one whose encoding is `bound`.
pub fn is_below(key: &[u8], bound: &[u8]) -> bool {
    key < bound
}

/// Removes the entries of `vnodes` whose keys start with a time below `below_us`.
pub fn delete_below(run: &mut WriteRun, vnodes: impl Iterator<Item = Vnode>, below_us: i64) {
    let bound = encoded_time(below_us);
    for vnode in vnodes {
        let upper: Vec<u8> = std::iter::once(vnode.0).chain(bound.iter().copied()).collect();
        run.delete_range(&upper[..2], &upper);
    }
}

/// The ranges that an epoch removes from a table, after all its other writes. Of what it writes within
/// them nothing is left, so it need not be written.
pub struct Removed<'a> {
    /// By vnode: a range of full keys within it. Of several one, for leaving out is only a saving.
    ranges: Vec<Option<(&'a [u8], &'a [u8])>>,
}

/// Where the vnode is in a full key.
const VNODE: usize = 4;

impl<'a> Removed<'a> {
    /// The ranges among the writes of `runs`, all of one table.
    pub fn of(runs: &[&'a WriteRun]) -> Self {
        let mut ranges = Vec::new();
        let writes = runs.iter().flat_map(|run| run.iter());
        for (_, lower, upper) in writes.filter(|(op, ..)| *op == WriteOp::DeleteRange) {
            if lower.len() > VNODE && lower.get(..=VNODE) == upper.get(..=VNODE) {
                ranges.resize(usize::from(u8::MAX) + 1, None);
                ranges[usize::from(lower[VNODE])] = Some((lower, upper));
            }
        }
        Self { ranges }
    }

    /// Whether a full key is within one of them.
    #[inline]
    pub fn has(&self, key: &[u8]) -> bool {
        if self.ranges.is_empty() {
            return false;
        }
        let vnode = key.get(VNODE).map(|vnode| usize::from(*vnode));
        let range = vnode.and_then(|vnode| self.ranges.get(vnode)).copied().flatten();
        range.is_some_and(|(lower, upper)| lower <= key && key < upper)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::memory::MemoryStore;
    use crate::state::store::{StateRead, WriteOp, full_key};
    use weir_catalog::TableId;

    #[test]
    fn what_is_below_goes_in_these_vnodes_and_null_stays() {
        let table = TableId(7);
        let codec = KeyCodec::new(vec![DataType::Timestamp(TimeUnit::Microsecond, None), DataType::Int64]);
        let times = TimestampMicrosecondArray::from(vec![Some(-5), Some(9), Some(10), Some(11), None]);
        let columns: [ArrayRef; 2] =
            [Arc::new(times.clone()), Arc::new(arrow::array::Int64Array::from_value(-1, times.len()))];
        let key = |vnode: u8, row: usize| {
            let mut key = vec![vnode];
            codec.encode(&columns, row, &mut key);
            key
        };
        let mut run = WriteRun::new(table);
        for (vnode, row) in [0u8, 3, 255].into_iter().flat_map(|v| (0..times.len()).map(move |r| (v, r))) {
            run.write(WriteOp::Put, &key(vnode, row), b"x");
        }
        delete_below(&mut run, [Vnode(3), Vnode(255)].into_iter(), 10);
        let mut store = MemoryStore::new();
        store.apply(&run);
        let left = |vnode: u8| -> Vec<usize> {
            let there = |row: &usize| store.get(&full_key(table, &key(vnode, *row))).unwrap().is_some();
            (0..times.len()).filter(there).collect()
        };
        assert_eq!((left(0), left(3), left(255)), (vec![0, 1, 2, 3, 4], vec![2, 3, 4], vec![2, 3, 4]));
        assert!(
            is_below(&key(0, 1)[1..], &encoded_time(10)) && !is_below(&key(0, 4)[1..], &encoded_time(10))
        );
        assert!(!is_below(&key(0, 2)[1..], &encoded_time(10)));
    }
}
