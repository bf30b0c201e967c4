//! Dispatch: which actor each row of a change batch goes to.
//!
//! ```text
//!   batch ──hash key columns once──> vnode ──owner──> actor
//!         ──counting sort of row numbers by actor──> one `take` an actor ──> a batch an actor
//! ```
//! Pure: it only cuts batches; the exchange moves them. Rows keep their order within an actor, so a
//! retraction never overtakes the insertion that it takes back.

use crate::stream::vnode::{VNODE_COUNT, hash_columns};
use crate::stream::{ChangeBatch, Vnode, VnodeSet};
use arrow::array::{ArrayRef, UInt32Array};
use arrow::buffer::ScalarBuffer;
use arrow::error::ArrowError;

/// Cuts `batch` into one batch for each of `parallelism` actors, by the hash of `columns`; `None`
/// where an actor gets nothing. Without columns every row belongs to [`Vnode::SINGLE`].
pub fn partition(
    batch: &ChangeBatch,
    columns: &[usize],
    parallelism: usize,
) -> Result<Vec<Option<ChangeBatch>>, ArrowError> {
    assert!(parallelism > 0, "somebody must take the rows");
    let mut parts = vec![None; parallelism];
    if batch.is_empty() {
        return Ok(parts);
    }
    if parallelism == 1 || columns.is_empty() {
        parts[VnodeSet::owner(Vnode::SINGLE, parallelism)] = Some(batch.clone());
        return Ok(parts);
    }
    let keys: Vec<ArrayRef> = columns.iter().map(|c| batch.column(*c).clone()).collect();
    let mut hashes = Vec::new();
    hash_columns(&keys, batch.num_rows(), &mut hashes);
    let (order, ends) = sort_by_actor(&hashes, parallelism);
    let order = ScalarBuffer::<u32>::from(order);
    let mut start = 0;
    for (part, end) in parts.iter_mut().zip(ends) {
        let rows = end - start;
        if rows == batch.num_rows() {
            *part = Some(batch.clone());
        } else if rows > 0 {
            *part = Some(batch.take(&UInt32Array::new(order.slice(start, rows), None))?);
        }
        start = end;
    }
    Ok(parts)
}

/// Row numbers in order of their actor, stable, and where each actor's end.
fn sort_by_actor(hashes: &[u64], parallelism: usize) -> (Vec<u32>, Vec<usize>) {
    let mut owner = [0u16; VNODE_COUNT];
    for (vnode, slot) in owner.iter_mut().enumerate() {
        *slot = VnodeSet::owner(Vnode(vnode as u8), parallelism) as u16;
    }
    let actor = |hash: u64| usize::from(owner[usize::from(Vnode::of_hash(hash).0)]);
    let mut next = vec![0usize; parallelism];
    for hash in hashes {
        next[actor(*hash)] += 1;
    }
    let mut start = 0;
    for slot in &mut next {
        start += std::mem::replace(slot, start);
    }
    let mut order = vec![0u32; hashes.len()];
    for (row, hash) in hashes.iter().enumerate() {
        let slot = &mut next[actor(*hash)];
        order[*slot] = row as u32;
        *slot += 1;
    }
    (order, next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{AsArray, Int64Array, RecordBatch, StringArray};
    use arrow::datatypes::Int64Type;
    use std::sync::Arc;

    fn batch(keys: Vec<Option<i64>>, diffs: Option<Vec<i64>>) -> ChangeBatch {
        let numbers: Vec<String> = (0..keys.len()).map(|i| i.to_string()).collect();
        let rows = RecordBatch::try_from_iter([
            ("k", Arc::new(Int64Array::from(keys)) as ArrayRef),
            ("n", Arc::new(StringArray::from(numbers)) as ArrayRef),
        ])
        .unwrap();
        match diffs {
            Some(diffs) => ChangeBatch::new(rows, diffs),
            None => ChangeBatch::insertions(rows),
        }
    }

    #[test]
    fn every_row_reaches_the_owner_of_its_vnode_once_and_in_order() {
        let keys: Vec<Option<i64>> = (0..1000).map(|i| (i % 7 != 0).then_some(i % 50)).collect();
        let diffs: Vec<i64> = (0..1000).map(|i| if i % 3 == 0 { -1 } else { 2 }).collect();
        let input = batch(keys, Some(diffs));
        let parts = partition(&input, &[0], 3).unwrap();
        let mut seen = vec![false; 1000];
        for (actor, part) in parts.iter().enumerate() {
            let part = part.as_ref().expect("50 keys reach 3 actors");
            let mut hashes = Vec::new();
            hash_columns(&[part.column(0).clone()], part.num_rows(), &mut hashes);
            let mut last = None;
            for (row, hash) in hashes.iter().enumerate() {
                assert_eq!(VnodeSet::owner(Vnode::of_hash(*hash), 3), actor);
                let number: usize = part.column(1).as_string::<i32>().value(row).parse().unwrap();
                assert!(last < Some(number) && !std::mem::replace(&mut seen[number], true));
                last = Some(number);
                assert_eq!(part.diff(row), input.diff(number));
            }
        }
        assert!(seen.into_iter().all(|s| s));
    }

    #[test]
    fn one_actor_or_no_key_passes_the_batch_through() {
        let input = batch(vec![Some(1), Some(2), None], None);
        for (columns, parallelism) in [(vec![0], 1), (vec![], 4)] {
            let parts = partition(&input, &columns, parallelism).unwrap();
            assert_eq!(parts[0].as_ref().unwrap().column(0).as_primitive::<Int64Type>().len(), 3);
            assert!(parts[1..].iter().all(Option::is_none));
        }
        assert!(partition(&batch(vec![], None), &[0], 2).unwrap().iter().all(Option::is_none));
    }
}
