//! RowArena against a plain vector of rows.

use super::*;
use arrow::array::{AsArray, Int64Array, StringArray};
use arrow::datatypes::Int64Type;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;

fn rows(from: i64, n: usize) -> Vec<ArrayRef> {
    let numbers: Vec<i64> = (from..from + n as i64).collect();
    let texts: Vec<Option<String>> = numbers.iter().map(|v| (v % 5 != 0).then(|| format!("t{v}"))).collect();
    vec![Arc::new(Int64Array::from(numbers)), Arc::new(StringArray::from(texts))]
}

fn check(arena: &RowArena, model: &BTreeMap<RowId, i64>) {
    let ids: Vec<RowId> = model.keys().rev().copied().collect();
    let columns = arena.gather(&ids, &[1, 0]).unwrap();
    let numbers = columns[1].as_primitive::<Int64Type>();
    let texts = columns[0].as_string::<i32>();
    for (i, id) in ids.iter().enumerate() {
        let value = model[id];
        assert_eq!(numbers.value(i), value);
        assert_eq!(texts.is_null(i), value % 5 == 0);
        let (cells, row) = arena.cell(*id);
        assert_eq!(cells[0].as_primitive::<Int64Type>().value(row), value);
    }
    assert_eq!(arena.live(), model.len());
}

#[test]
fn rows_keep_their_number_while_chunks_merge_and_pages_close() {
    let seed = 7;
    let mut random = StdRng::seed_from_u64(seed);
    let mut arena = RowArena::new(vec![DataType::Int64, DataType::Utf8]);
    let mut model = BTreeMap::new();
    let mut next = 0;
    while next < 3 * PAGE_ROWS as i64 {
        let n =
            if random.random_bool(0.2) { random.random_range(1..9000) } else { random.random_range(0..30) };
        let mut ids = Vec::new();
        arena.append(&rows(next, n), n, &mut ids).unwrap();
        assert_eq!(ids.len(), n);
        for (i, id) in ids.into_iter().enumerate() {
            assert!(model.insert(id, next + i as i64).is_none());
        }
        next += n as i64;
    }
    assert!(arena.chunks.len() < 30, "small chunks are merged");
    check(&arena, &model);
    let paged: usize = arena.pages().map(|(_, _, rows)| rows).sum();
    assert_eq!(paged, model.len());
}

#[test]
fn a_sparse_page_is_emptied_and_used_again() {
    let mut arena = RowArena::new(vec![DataType::Int64, DataType::Utf8]);
    let mut ids = Vec::new();
    arena.append(&rows(0, 2 * PAGE_ROWS), 2 * PAGE_ROWS, &mut ids).unwrap();
    let mut model: BTreeMap<RowId, i64> = ids.iter().map(|id| (*id, i64::from(*id))).collect();
    for id in ids.iter().filter(|id| **id < PAGE_ROWS as u32 && **id % 3 != 0) {
        arena.free(*id);
        model.remove(id);
    }
    assert_eq!(arena.sparse_page(), Some(0));
    let kept: Vec<u32> = arena.page_ids(0).filter(|id| id % 3 == 0).collect();
    let mut moved = Vec::new();
    let columns = arena.gather(&kept, &[0, 1]).unwrap();
    arena.append(&columns, kept.len(), &mut moved).unwrap();
    for (old, new) in kept.iter().zip(&moved) {
        let value = model.remove(old).unwrap();
        model.insert(*new, value);
    }
    let before = arena.memory();
    arena.empty_page(0);
    assert!(arena.memory() < before);
    check(&arena, &model);
    let mut more = Vec::new();
    arena.append(&rows(1_000_000, PAGE_ROWS), PAGE_ROWS, &mut more).unwrap();
    assert!(more.contains(&0), "page 0 is filled again");
    model.extend(more.iter().enumerate().map(|(i, id)| (*id, 1_000_000 + i as i64)));
    check(&arena, &model);
}

#[test]
fn rows_without_columns_are_counted() {
    let mut arena = RowArena::new(vec![]);
    let mut ids = Vec::new();
    arena.append(&[], 5, &mut ids).unwrap();
    assert_eq!((arena.live(), ids.len()), (5, 5));
    assert!(arena.gather(&ids, &[]).unwrap().is_empty());
}
