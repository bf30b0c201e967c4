//! HashJoin: scripts for what is easy to see, then every kind against a nested loop.

use super::*;
use crate::dataflow::operator::OUTPUT_ROWS_MAX;
use crate::operators::script::{Driver, change_batch, check, schema};
use crate::stream::BarrierKind;
use arrow::datatypes::DataType;
use datafusion::logical_expr::Operator as BinaryOperator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use weir_catalog::ObjectId;

const KINDS: [JoinKind; 7] = [
    JoinKind::Inner,
    JoinKind::Left,
    JoinKind::Right,
    JoinKind::Full,
    JoinKind::LeftSemi,
    JoinKind::LeftAnti,
    JoinKind::NullAwareAnti,
];

fn input(side: u8) -> SchemaRef {
    match side {
        0 => schema(&[("k", DataType::Int64), ("s", DataType::Utf8), ("a", DataType::Int64)]),
        _ => schema(&[("b", DataType::Int64), ("k", DataType::Int64), ("s", DataType::Utf8)]),
    }
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    kind: JoinKind,
    /// How many key columns: k, then s.
    keys: usize,
    null_equal: bool,
    /// a < b
    residual: bool,
    append_only: bool,
    /// Whether keys are made to collide.
    collide: bool,
    piece_rows: usize,
    /// Whether cold keys are evicted, and how many checkpoints the state that is read lags.
    evict: Option<usize>,
}

impl Shape {
    fn of(kind: JoinKind) -> Self {
        let (null_equal, residual, append_only, collide) = (false, false, false, false);
        Self { kind, keys: 1, null_equal, residual, append_only, collide, piece_rows: 8192, evict: None }
    }

    fn make(&self) -> Box<dyn Operator> {
        let fields = input(0).fields().iter().chain(input(1).fields()).cloned().collect::<Vec<_>>();
        let pairs = Arc::new(arrow::datatypes::Schema::new(fields));
        let column = |i: usize| Arc::new(Column::new(pairs.field(i).name(), i)) as Arc<dyn PhysicalExpr>;
        let residual: Option<Arc<dyn PhysicalExpr>> =
            self.residual.then(|| Arc::new(BinaryExpr::new(column(2), BinaryOperator::Lt, column(3))) as _);
        let side = |side: u8, keys: [usize; 2]| JoinInput {
            schema: input(side),
            keys: keys[..self.keys].to_vec(),
            append_only: self.append_only,
            unique: None,
            table: ObjectId(20000).internal_table(side),
        };
        let spec = JoinSpec {
            kind: self.kind,
            inputs: [side(0, [0, 1]), side(1, [1, 2])],
            null_equal: self.null_equal,
            residual,
            schema: if gives_pairs(self.kind) { pairs } else { input(0) },
            expires: false,
        };
        let mut join = HashJoin::new(spec, Failures::default());
        join.piece_rows = self.piece_rows;
        if self.collide {
            join.sides.iter_mut().for_each(|side| side.collide());
        }
        Box::new(join)
    }
}

fn check_kind(kind: JoinKind, script: &str, expected: &str) {
    let shape = Shape::of(kind);
    check(&|| shape.make(), &[input(0), input(1)], script, expected);
}

#[test]
fn an_inner_join_multiplies_what_matches() {
    let script = "
        p0 +1 1 x 10
        p0 +2 1 y 11
        p0 +1 NULL n 0
        tick
        p1 +3 7 1 r
        p1 +1 8 2 q
        p1 +1 8 NULL q
        barrier
        p0 -1 1 y 11
        p1 -3 7 1 r
        p0 +1 2 z 12
        barrier";
    let expected = "
        tick
        +3 1 x 10 7 1 r
        +6 1 y 11 7 1 r
        barrier
        +1 2 z 12 8 2 q
        -3 1 x 10 7 1 r
        -6 1 y 11 7 1 r
        barrier";
    check_kind(JoinKind::Inner, script, expected);
}

#[test]
fn a_left_join_pads_rows_until_their_first_match() {
    let script = "
        p0 +1 1 x 10
        p0 +1 NULL n 0
        tick
        p1 +1 7 1 r
        p1 +1 8 1 r
        barrier
        p1 -1 7 1 r
        tick
        p1 -1 8 1 r
        barrier
        p0 -1 1 x 10
        p0 -1 NULL n 0
        barrier";
    let expected = "
        +1 1 x 10 NULL NULL NULL
        +1 NULL n 0 NULL NULL NULL
        tick
        +1 1 x 10 7 1 r
        +1 1 x 10 8 1 r
        -1 1 x 10 NULL NULL NULL
        barrier
        -1 1 x 10 7 1 r
        tick
        +1 1 x 10 NULL NULL NULL
        -1 1 x 10 8 1 r
        barrier
        -1 1 x 10 NULL NULL NULL
        -1 NULL n 0 NULL NULL NULL
        barrier";
    check_kind(JoinKind::Left, script, expected);
}

#[test]
fn not_in_is_unknown_as_soon_as_the_right_side_has_a_null() {
    let script = "
        p0 +1 1 x 0
        p0 +1 2 y 0
        p0 +2 NULL n 0
        barrier
        p1 +1 0 1 r
        barrier
        p1 +1 0 NULL r
        barrier
        p0 +1 3 z 0
        p1 -1 0 1 r
        barrier
        p1 -1 0 NULL r
        barrier";
    let expected = "
        +1 1 x 0
        +1 2 y 0
        +2 NULL n 0
        barrier
        -1 1 x 0
        -2 NULL n 0
        barrier
        -1 2 y 0
        barrier
        barrier
        +1 1 x 0
        +1 2 y 0
        +1 3 z 0
        +2 NULL n 0
        barrier";
    check_kind(JoinKind::NullAwareAnti, script, expected);
}

#[test]
fn one_row_that_matches_many_is_said_in_pieces() {
    let shape = Shape::of(JoinKind::Left);
    let mut operator = shape.make();
    let mut out = Output::default();
    let rows: Vec<_> =
        (0..100_000).map(|i| (1, vec![Some("5".to_owned()), None, Some(i.to_string())])).collect();
    assert_eq!(operator.on_change(0, change_batch(&input(0), &rows), &mut out).unwrap(), Progress::Done);
    out.take();
    let one = change_batch(&input(1), &[(2, vec![None, Some("5".to_owned()), None])]);
    let mut progress = operator.on_change(1, one, &mut out).unwrap();
    let (mut pieces, mut sum) = (0, 0);
    loop {
        for item in out.take() {
            let crate::dataflow::operator::OutputItem::Changes(batch) = item else { unreachable!() };
            assert!(batch.num_rows() <= OUTPUT_ROWS_MAX);
            sum += (0..batch.num_rows()).map(|row| batch.diff(row)).sum::<i64>();
            pieces += 1;
        }
        if progress == Progress::Done {
            break;
        }
        progress = operator.resume(&mut out).unwrap();
    }
    assert_eq!(sum, 200_000 - 100_000, "pairs, less the rows that stood alone");
    assert!(pieces >= 24);
}

/// A row as text, and the multiset of an input.
type Row = Vec<Option<String>>;
type Bag = BTreeMap<Row, i64>;

fn number(row: &Row, column: usize) -> Option<i64> {
    row[column].as_ref().map(|v| v.parse().unwrap())
}

/// The join by a nested loop.
fn naive(shape: &Shape, left: &Bag, right: &Bag) -> BTreeMap<String, i64> {
    let key = |row: &Row, columns: [usize; 2]| {
        columns[..shape.keys].iter().map(|c| row[*c].clone()).collect::<Row>()
    };
    let matches = |l: &Row, r: &Row| {
        let (lk, rk) = (key(l, [0, 1]), key(r, [1, 2]));
        let present = shape.null_equal || lk.iter().all(Option::is_some);
        let less = matches!((number(l, 2), number(r, 0)), (Some(a), Some(b)) if a < b);
        lk == rk && present && (!shape.residual || less)
    };
    let mut result = BTreeMap::new();
    let mut add = |row: Row, count: i64| {
        let text: Vec<String> = row.iter().map(|v| v.clone().unwrap_or_else(|| "NULL".to_owned())).collect();
        *result.entry(text.join(" ")).or_insert(0) += count;
    };
    let nulls = vec![None; 3];
    let has_null = right.keys().any(|r| r[1].is_none());
    for (l, n) in left {
        let matched: i64 = right.iter().filter(|(r, _)| matches(l, r)).map(|(_, m)| *m).sum();
        let alone = match shape.kind {
            JoinKind::Left | JoinKind::Full | JoinKind::LeftAnti => matched == 0,
            JoinKind::LeftSemi => matched > 0,
            JoinKind::NullAwareAnti => right.is_empty() || (l[0].is_some() && !has_null && matched == 0),
            JoinKind::Inner | JoinKind::Right => false,
        };
        if alone && gives_pairs(shape.kind) {
            add([l.clone(), nulls.clone()].concat(), *n);
        } else if alone {
            add(l.clone(), *n);
        }
        if gives_pairs(shape.kind) {
            for (r, m) in right.iter().filter(|(r, _)| matches(l, r)) {
                add([l.clone(), r.clone()].concat(), n * m);
            }
        }
    }
    for (r, m) in right {
        let matched = left.keys().any(|l| matches(l, r));
        if matches!(shape.kind, JoinKind::Right | JoinKind::Full) && !matched {
            add([nulls.clone(), r.clone()].concat(), *m);
        }
    }
    result
}

fn random_row(random: &mut StdRng, side: usize, domain: i64) -> Row {
    let mut value = |domain: i64| random.random_bool(0.9).then(|| random.random_range(0..domain).to_string());
    let (key, text, other) = (value(domain), value(2), value(4));
    if side == 0 { vec![key, text, other] } else { vec![other, key, text] }
}

/// Random changes of a side, applied to its bag. Retractions may come before their insertion
/// within the batch.
fn random_change(random: &mut StdRng, shape: &Shape, side: usize, bag: &mut Bag) -> Vec<(i64, Row)> {
    let mut changes = Vec::new();
    for _ in 0..random.random_range(1..12) {
        let retract = !shape.append_only && !bag.is_empty() && random.random_bool(0.45);
        let (row, diff) = if retract {
            let at = random.random_range(0..bag.len());
            let (row, count) = bag.iter().nth(at).unwrap();
            (row.clone(), -random.random_range(1..=*count))
        } else {
            (random_row(random, side, 5), random.random_range(1..3))
        };
        let count = bag.entry(row.clone()).or_insert(0);
        *count += diff;
        if *count == 0 {
            bag.remove(&row);
        }
        changes.push((diff, row));
    }
    if random.random_bool(0.3) {
        changes.reverse();
    }
    changes
}

fn check_random(shape: Shape, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let make = || shape.make();
    let mut driver = Driver::new(&make);
    driver.evict = shape.evict.is_some();
    driver.lag = shape.evict.unwrap_or(0);
    driver.evict_every = 1 + seed % 4;
    driver.fill = (!seed.is_multiple_of(3)).then_some(seed as usize % 5 + 1);
    let mut bags = [Bag::new(), Bag::new()];
    let mut result: BTreeMap<String, i64> = BTreeMap::new();
    for epoch in 0..15 {
        for _ in 0..random.random_range(0..4) {
            let side = random.random_range(0..2);
            let changes = random_change(&mut random, &shape, side, &mut bags[side]);
            driver.change(side, change_batch(&input(side as u8), &changes));
        }
        let checkpoint = random.random_bool(0.5);
        let kind = if checkpoint { BarrierKind::Checkpoint } else { BarrierKind::Tick };
        for (row, diff) in driver.barrier(kind).consolidated() {
            *result.entry(row).or_insert(0) += diff;
        }
        result.retain(|_, count| *count != 0);
        assert_eq!(result, naive(&shape, &bags[0], &bags[1]), "{shape:?}, seed {seed}, epoch {epoch}");
        if checkpoint && random.random_bool(0.5) {
            driver.restore();
        }
    }
}

#[test]
fn evicted_keys_are_read_again() {
    for kind in KINDS.into_iter().filter(|kind| *kind != JoinKind::NullAwareAnti) {
        for seed in 100..112 {
            let shape = Shape {
                keys: seed as usize % 3,
                null_equal: seed % 5 == 1,
                residual: seed % 2 == 1,
                append_only: seed % 4 == 2,
                collide: seed % 6 < 2,
                evict: Some(seed as usize % 3),
                ..Shape::of(kind)
            };
            check_random(shape, seed);
        }
    }
}

#[test]
fn every_kind_is_what_a_nested_loop_says() {
    for kind in KINDS {
        for seed in 0..12 {
            let not_in = kind == JoinKind::NullAwareAnti;
            let shape = Shape {
                keys: if not_in { 1 } else { seed as usize % 3 },
                null_equal: !not_in && seed % 5 == 1,
                residual: !not_in && seed % 2 == 1,
                append_only: seed % 4 == 2,
                collide: seed % 6 < 2,
                piece_rows: if seed % 3 == 0 { 3 } else { 8192 },
                ..Shape::of(kind)
            };
            check_random(shape, seed);
        }
    }
}

#[test]
fn eviction_gives_memory_back() {
    for append_only in [false, true] {
        let shape = Shape { append_only, ..Shape::of(JoinKind::Left) };
        let make = || shape.make();
        let mut driver = Driver::new(&make);
        let rows: Vec<(i64, Row)> =
            (0..50_000).map(|i| (1, vec![Some(i.to_string()), Some("text".to_owned()), None])).collect();
        driver.change(0, change_batch(&input(0), &rows));
        driver.barrier(BarrierKind::Checkpoint);
        let full = driver.operator.memory();
        driver.evict = true;
        driver.barrier(BarrierKind::Checkpoint);
        assert!(driver.operator.memory() < full / 4, "{} of {full}", driver.operator.memory());
        driver.change(1, change_batch(&input(1), &[(1, vec![None, Some("77".to_owned()), None])]));
        let said = driver.barrier(BarrierKind::Tick).lines();
        assert_eq!(said, ["+1 77 text NULL NULL 77 NULL", "-1 77 text NULL NULL NULL NULL"]);
    }
}

#[test]
fn room_of_rows_that_went_is_used_again() {
    let shape = Shape::of(JoinKind::Full);
    let make = || shape.make();
    let mut driver = Driver::new(&make);
    let rows = |diff: i64, round: i64| -> Vec<(i64, Row)> {
        let row = |i: i64| vec![Some((i % 7000).to_string()), Some(round.to_string()), Some(i.to_string())];
        (0..10_000).map(|i| (diff, row(i))).collect()
    };
    let mut early = 0;
    for round in 0..30 {
        driver.change(0, change_batch(&input(0), &rows(1, round)));
        if round > 0 {
            driver.change(0, change_batch(&input(0), &rows(-1, round - 1)));
        }
        driver.barrier(BarrierKind::Checkpoint);
        if round == 5 {
            early = driver.operator.memory();
        }
    }
    assert!(driver.operator.memory() < early * 3 / 2, "{} after {early}", driver.operator.memory());
    driver.change(0, change_batch(&input(0), &rows(-1, 29)));
    let said = driver.barrier(BarrierKind::Checkpoint);
    assert_eq!(said.changes.iter().map(ChangeBatch::num_rows).sum::<usize>(), 10_000);
    assert!(driver.state.entries.is_empty());
}
