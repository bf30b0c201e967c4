//! Whose rows of a sink's log are, when there are more or fewer actors than wrote them.

use super::*;
use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;

fn changes(keys: std::ops::Range<i64>) -> ChangeBatch {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(keys));
    ChangeBatch::insertions(RecordBatch::try_from_iter([("k", keys)]).unwrap())
}

fn keys(changes: Option<ChangeBatch>) -> Vec<i64> {
    changes.map_or_else(Vec::new, |c| c.column(0).as_primitive::<Int64Type>().values().to_vec())
}

#[test]
fn a_key_is_of_the_actor_that_has_it_now_whoever_logged_it() {
    let by_key = Distribution::Hash(vec![0]);
    for (before, after) in [(3, 2), (2, 3), (1, 4), (4, 1), (2, 2)] {
        let mut found = vec![Vec::new(); after];
        for (logged_by, part) in
            dispatch::partition(&changes(0..500), &[0], before).unwrap().into_iter().enumerate()
        {
            for (actor, found) in found.iter_mut().enumerate() {
                let part = part.clone().unwrap();
                found.extend(keys(share(&by_key, (actor, after), logged_by as u32, part).unwrap()));
            }
        }
        let now = dispatch::partition(&changes(0..500), &[0], after).unwrap();
        for (found, now) in found.iter_mut().zip(now) {
            found.sort_unstable();
            assert_eq!(*found, keys(now), "{before} to {after}");
        }
    }
}

#[test]
fn rows_without_a_key_go_to_one_actor_each() {
    for (after, owners) in [(2, [0, 1, 0]), (4, [0, 1, 2]), (1, [0, 0, 0])] {
        for (logged_by, owner) in owners.into_iter().enumerate() {
            for actor in 0..after {
                let share =
                    share(&Distribution::Any, (actor, after), logged_by as u32, changes(0..5)).unwrap();
                assert_eq!(keys(share).len(), if actor == owner { 5 } else { 0 }, "{logged_by} of {after}");
            }
        }
    }
}
