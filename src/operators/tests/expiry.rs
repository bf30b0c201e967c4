//! Operators that forget what is below the watermark, against twins that forget nothing: the same
//! output, and no state below the watermark, whatever is restored and evicted in between.

use crate::dataflow::operator::Operator;
use crate::operators::aggregate::Aggregate;
use crate::operators::failures::Failures;
use crate::operators::join::{HashJoin, JoinInput, JoinSpec};
use crate::operators::script::{Driver, change_batch, schema};
use crate::operators::top_n_spec::{TopNSpec, top_n};
use crate::state::expire::{encoded_time, is_below};
use crate::stream::{BarrierKind, Watermark};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::logical_expr::Operator as BinaryOperator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use weir_catalog::ObjectId;
use weir_sql::plan::{AggregateCall, AggregateFunction, JoinKind, SortKey};

type Row = Vec<Option<String>>;

fn input() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Microsecond, None);
    schema(&[("ts", time), ("k", DataType::Int64), ("v", DataType::Int64)])
}

/// Two inputs whose times go on, and what is in them.
struct Feed {
    random: StdRng,
    append_only: bool,
    rows: [Vec<Row>; 2],
    /// What each input has promised.
    promised: [i64; 2],
}

impl Feed {
    fn time_of(row: &Row) -> i64 {
        row[0].as_ref().map_or(i64::MAX, |t| t.parse().unwrap())
    }

    /// Changes of an input, none of them below what it has promised.
    fn changes(&mut self, port: usize) -> Vec<(i64, Row)> {
        let promised = self.promised[port];
        let mut changes = Vec::new();
        for _ in 0..self.random.random_range(1..12) {
            let open: Vec<usize> = (0..self.rows[port].len())
                .filter(|i| Self::time_of(&self.rows[port][*i]) >= promised)
                .collect();
            if !self.append_only && self.random.random_bool(0.3) && !open.is_empty() {
                let at = *open.choose(&mut self.random).unwrap();
                changes.push((-1, self.rows[port].swap_remove(at)));
                continue;
            }
            let time = promised + self.random.random_range(0..4) * 10;
            let number = |n: i64| Some(n.to_string());
            let row = vec![
                self.random.random_bool(0.95).then(|| time.to_string()),
                number(self.random.random_range(0..3)),
                number(self.random.random_range(0..6)),
            ];
            changes.push((1, row.clone()));
            self.rows[port].push(row);
        }
        changes
    }
}

/// Both twins through the same random epochs.
fn check(
    ports: usize,
    append_only: bool,
    plain: &dyn Fn() -> Box<dyn Operator>,
    expiring: &dyn Fn() -> Box<dyn Operator>,
    what: &str,
) {
    for seed in 0..4 {
        let random = StdRng::seed_from_u64(seed);
        let mut feed = Feed { random, append_only, rows: [Vec::new(), Vec::new()], promised: [0, 0] };
        let (mut twin, mut driver) = (Driver::new(plain), Driver::new(expiring));
        (driver.evict, driver.lag) = (seed % 2 == 1, seed as usize / 2);
        let mut most = 0;
        for epoch in 0..30 {
            for _ in 0..feed.random.random_range(0..4) {
                let port = feed.random.random_range(0..ports);
                let changes = change_batch(&input(), &feed.changes(port));
                twin.change(port, changes.clone());
                driver.change(port, changes);
            }
            for port in 0..ports {
                if feed.random.random_bool(0.5) {
                    feed.promised[port] += feed.random.random_range(0..3) * 10;
                    driver.watermark(port, Watermark { column: 0, time_us: feed.promised[port] });
                }
            }
            let checkpoint = feed.random.random_bool(0.5);
            let kind = if checkpoint { BarrierKind::Checkpoint } else { BarrierKind::Tick };
            let (expected, found) = (twin.barrier(kind).consolidated(), driver.barrier(kind).consolidated());
            assert_eq!(expected, found, "{what}, seed {seed}, epoch {epoch}");
            if !checkpoint {
                continue;
            }
            // A port that has promised nothing holds all back.
            let least = feed.promised[..ports].iter().copied().min().unwrap();
            let bound = encoded_time(least);
            let below = driver.state.entries.keys().filter(|key| is_below(&key[5..], &bound)).count();
            assert_eq!(below, 0, "{what}, seed {seed}, epoch {epoch}: state below {least}");
            assert_eq!(driver.state.written_in_vain, 0, "{what}, seed {seed}, epoch {epoch}");
            most = most.max(driver.operator.state_entries());
            if feed.random.random_bool(0.3) {
                driver.restore();
                // What the source has promised is said again.
                for port in 0..ports {
                    driver.watermark(port, Watermark { column: 0, time_us: feed.promised[port] });
                }
            }
        }
        let live = |rows: &Vec<Row>| rows.iter().filter(|r| Feed::time_of(r) >= feed.promised[0]).count();
        let all: usize = feed.rows.iter().map(Vec::len).sum();
        assert!(
            all > 60 && most < all,
            "{what}, seed {seed}: {most} entries of {all} rows, {} live",
            live(&feed.rows[0])
        );
    }
}

fn call(function: AggregateFunction, argument: Option<usize>, distinct: bool) -> AggregateCall {
    let data_type = match function {
        AggregateFunction::Sum => DataType::Decimal128(38, 0),
        _ => DataType::Int64,
    };
    AggregateCall { function, argument, distinct, filter: None, output: Field::new("x", data_type, true) }
}

#[test]
fn aggregates_give_the_same_without_groups_below() {
    for append_only in [true, false] {
        let calls = [
            call(AggregateFunction::Count, None, false),
            call(AggregateFunction::Sum, Some(2), true),
            call(AggregateFunction::Min, Some(2), false),
        ];
        for calls in [&calls[..], &[]] {
            let make = || {
                let fields = [0, 1].map(|c| input().field(c).clone()).into_iter();
                let fields: Vec<Field> = fields.chain(calls.iter().map(|c| c.output.clone())).collect();
                let count = Aggregate::table_count(calls, &input(), append_only).unwrap();
                let tables: Vec<_> = (0..count).map(|i| ObjectId(20000).internal_table(i as u8)).collect();
                let output = Arc::new(Schema::new(fields));
                let failures = Failures::default();
                Aggregate::new(vec![0, 1], calls, &input(), output, append_only, &tables, failures).unwrap()
            };
            let what = format!("{} calls, append-only {append_only}", calls.len());
            check(1, append_only, &|| Box::new(make()), &|| Box::new(make().expiring()), &what);
        }
    }
}

#[test]
fn joins_give_the_same_without_rows_below() {
    use JoinKind::{Full, Inner, Left, LeftAnti, LeftSemi, Right};
    for kind in [Inner, Left, Right, Full, LeftSemi, LeftAnti] {
        for (append_only, with_residual) in [(true, false), (false, false), (true, true), (false, true)] {
            let make = |expires: bool| {
                let both: Vec<_> = input().fields().iter().chain(input().fields()).cloned().collect();
                let one_sided = matches!(kind, LeftSemi | LeftAnti);
                let column = |name: &str, i: usize| Arc::new(Column::new(name, i)) as Arc<dyn PhysicalExpr>;
                let residual = BinaryExpr::new(column("v", 2), BinaryOperator::LtEq, column("v", 5));
                let side = |side: u8| JoinInput {
                    schema: input(),
                    keys: vec![0, 1],
                    append_only,
                    unique: None,
                    table: ObjectId(20000).internal_table(side),
                };
                let spec = JoinSpec {
                    kind,
                    inputs: [side(0), side(1)],
                    null_equal: false,
                    residual: with_residual.then(|| Arc::new(residual) as Arc<dyn PhysicalExpr>),
                    schema: if one_sided { input() } else { Arc::new(Schema::new(both)) },
                    expires,
                };
                Box::new(HashJoin::new(spec, Failures::default()))
            };
            let what = format!("{kind:?}, append-only {append_only}, residual {with_residual}");
            check(2, append_only, &|| make(false), &|| make(true), &what);
        }
    }
}

#[test]
fn top_n_gives_the_same_without_groups_below() {
    for (append_only, limit) in [(true, 1), (true, 3), (false, 2)] {
        let make = |expires: bool| {
            top_n(TopNSpec {
                input: input(),
                group: vec![0, 1],
                order: vec![SortKey { column: 2, descending: true, nulls_first: false }],
                offset: 0,
                limit: Some(limit),
                rank: false,
                append_only,
                table: ObjectId(20000).internal_table(0),
                schema: input(),
                expires,
            })
        };
        let what = format!("top {limit}, append-only {append_only}");
        check(1, append_only, &|| make(false), &|| make(true), &what);
    }
}

#[test]
fn a_join_promises_what_both_sides_do() {
    let mut join = {
        let side = |side: u8| JoinInput {
            schema: input(),
            keys: vec![1, 0],
            append_only: true,
            unique: None,
            table: ObjectId(20000).internal_table(side),
        };
        let both: Vec<_> = input().fields().iter().chain(input().fields()).cloned().collect();
        let schema = Arc::new(Schema::new(both));
        let inputs = [side(0), side(1)];
        let spec = JoinSpec {
            kind: JoinKind::Left,
            inputs,
            null_equal: false,
            residual: None,
            schema,
            expires: false,
        };
        HashJoin::new(spec, Failures::default())
    };
    let mut said = Vec::new();
    for (port, time_us) in [(0, 50), (1, 20), (1, 30), (0, 60), (1, 100)] {
        let mut out = crate::dataflow::operator::Output::default();
        join.on_watermark(port, Watermark { column: 0, time_us }, &mut out).unwrap();
        for item in out.take() {
            if let crate::dataflow::operator::OutputItem::Watermark(w) = item {
                said.push((w.column, w.time_us));
            }
        }
    }
    assert_eq!(said, [(0, 20), (3, 20), (0, 30), (3, 30), (0, 60), (3, 60)]);
}
