//! Top-n of both kinds: scripts for what is easy to see, then every shape against sorting anew.

use super::*;
use crate::operators::script::{Driver, change_batch, check, schema};
use crate::operators::top_n_spec::top_n;
use crate::state::key::KeyOrder;
use crate::stream::BarrierKind;
use arrow::datatypes::{DataType, Field, Schema};
use rand::Rng;
use rand::rngs::StdRng;
use std::collections::BTreeMap;
use weir_catalog::ObjectId;
use weir_sql::plan::SortKey;

fn input() -> SchemaRef {
    schema(&[("g", DataType::Utf8), ("v", DataType::Int64), ("s", DataType::Utf8)])
}

fn spec(group: &[usize], order: &[(usize, bool, bool)], offset: u64, limit: Option<u64>) -> TopNSpec {
    let order = order.iter();
    let order = order.map(|(column, descending, nulls_first)| SortKey {
        column: *column,
        descending: *descending,
        nulls_first: *nulls_first,
    });
    TopNSpec {
        input: input(),
        group: group.to_vec(),
        order: order.collect(),
        offset,
        limit,
        rank: false,
        append_only: false,
        table: ObjectId(20000).internal_table(3),
        schema: input(),
        expires: false,
    }
}

fn ranked(mut spec: TopNSpec) -> TopNSpec {
    let rank = Arc::new(Field::new("row_number", DataType::Int64, false));
    spec.schema = Arc::new(Schema::new(input().fields().iter().cloned().chain([rank]).collect::<Vec<_>>()));
    spec.rank = true;
    spec
}

fn appending(mut spec: TopNSpec) -> TopNSpec {
    spec.append_only = true;
    spec
}

fn check_spec(spec: &TopNSpec, script: &str, expected: &str) {
    check(&|| top_n(spec.clone()), &[input()], script, expected);
}

#[test]
fn the_next_row_enters_when_one_is_retracted() {
    let script = "
        +1 a 3 x
        +2 a 2 y
        +1 a 1 z
        +1 b NULL n
        tick
        -1 a 3 x
        barrier
        -2 a 2 y
        +1 b 9 m
        barrier
        -1 a 1 z
        barrier";
    let expected = "
        +1 a 2 y
        +1 a 3 x
        +1 b NULL n
        tick
        +1 a 2 y
        -1 a 3 x
        barrier
        +1 a 1 z
        -2 a 2 y
        +1 b 9 m
        barrier
        -1 a 1 z
        barrier";
    check_spec(&spec(&[0], &[(1, true, false)], 0, Some(2)), script, expected);
}

#[test]
fn ranks_move_with_the_rows_before_them() {
    let script = "
        +1 a 10 x
        +1 a 30 x
        tick
        +2 a 20 x
        barrier
        -1 a 10 x
        barrier";
    let expected = "
        +1 a 10 x 1
        +1 a 30 x 2
        tick
        +1 a 20 x 2
        +1 a 20 x 3
        -1 a 30 x 2
        barrier
        -1 a 10 x 1
        +1 a 20 x 1
        -1 a 20 x 3
        +1 a 30 x 3
        barrier";
    check_spec(&ranked(spec(&[0], &[(1, false, false)], 0, Some(3))), script, expected);
}

#[test]
fn the_best_of_appended_rows_is_replaced_by_a_better_one() {
    let script = "
        +1 a 1 x
        +1 a 3 y
        +1 NULL NULL n
        tick
        +1 a 2 z
        tick
        +1 a 4 b
        +5 a 4 a
        +1 NULL 0 n
        barrier
        +1 a 4 c
        barrier";
    let expected = "
        +1 NULL NULL n
        +1 a 3 y
        tick
        tick
        +1 NULL 0 n
        -1 NULL NULL n
        -1 a 3 y
        +1 a 4 a
        barrier
        barrier";
    check_spec(&appending(spec(&[0], &[(1, true, false)], 0, Some(1))), script, expected);
}

#[test]
fn one_group_skips_an_offset() {
    let script = "+1 c 1 x\n+1 a 1 x\n+1 b 1 x\ntick\n+1 a 0 x\nbarrier\n+1 z 0 x\nbarrier";
    let expected = "+1 b 1 x\ntick\n+1 a 1 x\n-1 b 1 x\nbarrier\nbarrier";
    for append_only in [false, true] {
        let mut spec = spec(&[], &[(0, false, false)], 1, Some(1));
        spec.append_only = append_only;
        check_spec(&spec, script, expected);
    }
}

type Row = Vec<Option<String>>;
type Bag = BTreeMap<Row, i64>;

/// The result by sorting every group.
fn naive(spec: &TopNSpec, bag: &Bag) -> BTreeMap<String, i64> {
    let mut groups: BTreeMap<Row, Vec<&Row>> = BTreeMap::new();
    for (row, count) in bag {
        let key = spec.group.iter().map(|c| row[*c].clone()).collect();
        groups.entry(key).or_default().extend(std::iter::repeat_n(row, *count as usize));
    }
    let compare = |a: &Row, b: &Row, column: usize, order: KeyOrder| {
        let number = |v: &str| if column == 1 { v.parse().unwrap() } else { 0i64 };
        let null_first =
            if order.nulls_first { std::cmp::Ordering::Less } else { std::cmp::Ordering::Greater };
        match (&a[column], &b[column]) {
            (None, None) => std::cmp::Ordering::Equal,
            (None, Some(_)) => null_first,
            (Some(_), None) => null_first.reverse(),
            (Some(x), Some(y)) => {
                let ordering = (number(x), x).cmp(&(number(y), y));
                if order.descending { ordering.reverse() } else { ordering }
            }
        }
    };
    let (columns, orders) = spec.row_columns();
    let mut result = BTreeMap::new();
    for mut rows in groups.into_values() {
        rows.sort_by(|a, b| {
            let by = |(c, o): (&usize, &KeyOrder)| compare(a, b, *c, *o);
            columns.iter().zip(&orders).map(by).find(|o| o.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
        });
        let limit = spec.limit.map_or(usize::MAX, |limit| limit as usize);
        for (at, row) in rows.into_iter().enumerate().skip(spec.offset as usize).take(limit) {
            let mut text: Vec<String> =
                row.iter().map(|v| v.clone().unwrap_or_else(|| "NULL".to_owned())).collect();
            if spec.rank {
                text.push((at + 1).to_string());
            }
            *result.entry(text.join(" ")).or_insert(0) += 1;
        }
    }
    result
}

fn random_changes(random: &mut StdRng, spec: &TopNSpec, bag: &mut Bag) -> Vec<(i64, Row)> {
    let mut changes = Vec::new();
    for _ in 0..random.random_range(0..25) {
        let (row, diff) = if !spec.append_only && !bag.is_empty() && random.random_bool(0.45) {
            let (row, count) = bag.iter().nth(random.random_range(0..bag.len())).unwrap();
            (row.clone(), -random.random_range(1..=*count))
        } else {
            let mut value =
                |domain: i64| random.random_bool(0.9).then(|| random.random_range(0..domain).to_string());
            (vec![value(4), value(12), value(3)], random.random_range(1..3))
        };
        let count = bag.entry(row.clone()).or_insert(0);
        *count += diff;
        bag.retain(|_, count| *count != 0);
        changes.push((diff, row));
    }
    if random.random_bool(0.3) {
        changes.reverse();
    }
    changes
}

fn check_random(spec: &TopNSpec, evict: bool, lag: usize) {
    let mut random = crate::state::random::rng();
    let make = || top_n(spec.clone());
    let mut driver = Driver::new(&make);
    (driver.evict, driver.lag) = (evict, lag);
    driver.evict_every = random.random_range(1..5);
    driver.fill = random.random::<bool>().then(|| random.random_range(1..6));
    let mut bag = Bag::new();
    let mut result: BTreeMap<String, i64> = BTreeMap::new();
    for epoch in 0..12 {
        for _ in 0..random.random_range(0..3) {
            driver.change(0, change_batch(&input(), &random_changes(&mut random, spec, &mut bag)));
        }
        let checkpoint = random.random_bool(0.5);
        for (row, diff) in driver
            .barrier(if checkpoint { BarrierKind::Checkpoint } else { BarrierKind::Tick })
            .consolidated()
        {
            *result.entry(row).or_insert(0) += diff;
        }
        result.retain(|_, count| *count != 0);
        assert_eq!(result, naive(spec, &bag), "{spec:?}, epoch {epoch}");
        if checkpoint && random.random_bool(0.3) {
            driver.restore();
        }
    }
}

#[test]
fn every_shape_is_what_sorting_says() {
    let orders: [&[(usize, bool, bool)]; 4] = [
        &[(1, true, false)],
        &[(1, false, true), (2, true, true)],
        &[],
        &[(0, true, true), (1, false, false)],
    ];
    for group in [&[0][..], &[2, 0], &[]] {
        for order in orders {
            // The last is more than is written whole.
            for (offset, limit) in
                [(0, Some(1)), (0, Some(3)), (2, Some(2)), (1, None), (0, Some(0)), (0, Some(40))]
            {
                let plain = spec(group, order, offset, limit);
                for spec in
                    [plain.clone(), appending(plain.clone()), ranked(plain.clone()), appending(ranked(plain))]
                {
                    check_random(&spec, offset == 0, order.len());
                }
            }
        }
    }
}

#[test]
fn cold_groups_are_read_again() {
    for spec in
        [spec(&[0], &[(1, true, false)], 0, Some(2)), appending(spec(&[0], &[(1, true, false)], 0, Some(1)))]
    {
        let make = || top_n(spec.clone());
        let mut driver = Driver::new(&make);
        driver.evict = true;
        let rows = |from: usize, n: usize| -> Vec<(i64, Row)> {
            (from..from + n)
                .map(|i| (1, vec![Some((i % 500).to_string()), Some(i.to_string()), None]))
                .collect()
        };
        driver.change(0, change_batch(&input(), &rows(0, 500)));
        driver.barrier(BarrierKind::Checkpoint);
        let full = driver.operator.memory();
        assert!(!driver.operator.complete(), "everything was evicted");
        driver.change(0, change_batch(&input(), &rows(507, 1)));
        let said = driver.barrier(BarrierKind::Tick).lines();
        let expected: &[&str] =
            if spec.append_only { &["+1 7 507 NULL", "-1 7 7 NULL"] } else { &["+1 7 507 NULL"] };
        assert_eq!(said, expected);
        assert!(driver.operator.memory() <= full + 4096);
    }
}

#[test]
fn a_top_one_reuses_the_room_of_rows_that_lost() {
    let spec = appending(spec(&[0], &[(1, true, false)], 0, Some(1)));
    let make = || top_n(spec.clone());
    let mut driver = Driver::new(&make);
    let mut after_first = 0;
    for round in 0..40 {
        let rows: Vec<(i64, Row)> = (0..5000)
            .map(|i| (1, vec![Some(i.to_string()), Some(round.to_string()), Some("some text".to_owned())]))
            .collect();
        driver.change(0, change_batch(&input(), &rows));
        let said = driver.barrier(BarrierKind::Checkpoint);
        let sum: i64 = said.changes.iter().flat_map(|b| (0..b.num_rows()).map(|row| b.diff(row))).sum();
        assert_eq!(sum, if round == 0 { 5000 } else { 0 });
        if round == 4 {
            after_first = driver.operator.memory();
        }
    }
    assert!(driver.operator.memory() < 2 * after_first, "{} {after_first}", driver.operator.memory());
}
