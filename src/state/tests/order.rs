//! Writes come in the order of their keys, those of one key in theirs.

use super::*;
use weir_catalog::TableId;

#[test]
fn writes_are_sorted_by_their_keys_and_those_of_one_key_stay_in_order() {
    use rand::{Rng, SeedableRng};
    let mut random = rand::rngs::StdRng::seed_from_u64(7);
    let mut runs: Vec<WriteRun> = (0..3).map(|_| WriteRun::new(TableId(1))).collect();
    for number in 0..6000u32 {
        // Few different bytes, zeros among them, and long common beginnings.
        let common = [0, 20, 23, 24, 25, 48, 600][random.random_range(0..7)];
        let mut key = vec![b'x'; common];
        key.extend((0..random.random_range(0..40)).map(|_| random.random_range(0..2u8)));
        key.truncate(random.random_range(0..=key.len()));
        runs[random.random_range(0..3)].write(WriteOp::Put, &key, &number.to_be_bytes());
    }
    let runs: Vec<&WriteRun> = runs.iter().collect();
    let mut order = Vec::new();
    sort(&runs, &mut order);
    let sorted: Vec<(&[u8], u32, u32)> =
        order.iter().map(|place| (entry(&runs, place).1, place.1, place.2)).collect();
    assert_eq!(sorted.len(), 6000);
    assert!(sorted.is_sorted());
}

#[test]
fn what_a_range_removes_is_left_out() {
    let mut removed = WriteRun::new(TableId(1));
    removed.delete_range(&[0, 5], &[0, 9]);
    let mut written = WriteRun::new(TableId(1));
    (0..12).rev().for_each(|key| written.write(WriteOp::Put, &[0, key], &[]));
    let runs = [&removed, &written];
    let mut order = Vec::new();
    sort(&runs, &mut order);
    let left: Vec<u8> = in_order(&runs, &order).map(|(_, key, _)| key[TABLE_BYTES + 1]).collect();
    assert_eq!(left, [0, 1, 2, 3, 4, 9, 10, 11]);
}
