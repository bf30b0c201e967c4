//! Aggregates as scripts: groups that come, change and go.

use super::*;
use crate::operators::script::{Step, check, parse, run, schema};
use arrow::datatypes::{DataType, Field};
use weir_catalog::ObjectId;
use weir_sql::plan::AggregateFunction::{self, Avg, BoolAnd, BoolOr, Count, Max, Min, Sum};

/// A call of `function` over column `argument` of `input`, with the output type of PostgreSQL.
pub(crate) fn call(function: AggregateFunction, argument: Option<usize>, input: &SchemaRef) -> AggregateCall {
    let argument_type = argument.map_or(DataType::Null, |a| input.field(a).data_type().clone());
    let data_type = match (function, &argument_type) {
        (Count, _) => DataType::Int64,
        (Sum, DataType::Int16 | DataType::Int32) => DataType::Int64,
        (Sum, DataType::Int64) => DataType::Decimal128(38, 0),
        (Avg, DataType::Float32 | DataType::Float64) => DataType::Float64,
        (Avg, DataType::Decimal128(_, s)) => DataType::Decimal128(38, *s.max(&16)),
        (Avg, _) => DataType::Decimal128(38, 16),
        (Sum, DataType::Decimal128(_, s)) => DataType::Decimal128(38, *s),
        (_, other) => other.clone(),
    };
    let output = Field::new("x", data_type, true);
    AggregateCall { function, argument, distinct: false, filter: None, output }
}

pub(crate) fn make(
    group: &[usize],
    calls: &[AggregateCall],
    input: &SchemaRef,
    append_only: bool,
) -> Box<dyn Operator> {
    let fields: Vec<Field> =
        group.iter().map(|c| input.field(*c).clone()).chain(calls.iter().map(|c| c.output.clone())).collect();
    let output = std::sync::Arc::new(arrow::datatypes::Schema::new(fields));
    let count = Aggregate::table_count(calls, input, append_only).unwrap();
    let tables: Vec<_> = (0..count).map(|i| ObjectId(20000).internal_table(i as u8)).collect();
    let failures = Failures::default();
    Box::new(Aggregate::new(group.to_vec(), calls, input, output, append_only, &tables, failures).unwrap())
}

fn input() -> SchemaRef {
    schema(&[("k", DataType::Utf8), ("v", DataType::Int64), ("f", DataType::Boolean)])
}

#[test]
fn groups_come_change_and_go() {
    let input = input();
    let calls = [call(Count, None, &input), call(Sum, Some(1), &input)];
    check(
        &|| make(&[0], &calls, &input, false),
        std::slice::from_ref(&input),
        "+1 a 3 t
         +2 b NULL t
         +1 NULL 7 t
         barrier
         +1 a 4 t
         -1 b NULL t
         tick
         -1 a 3 t
         -1 a 4 t
         tick
         +1 a 9 t
         barrier
         -1 NULL 7 t
         +1 c 1 t
         -1 c 1 t
         barrier
         -1 a 9 t
         -1 b NULL t
         barrier
         barrier",
        "+1 a 1 3
         +1 b 2 NULL
         +1 NULL 1 7
         barrier
         -1 a 1 3
         +1 a 2 7
         -1 b 2 NULL
         +1 b 1 NULL
         tick
         -1 a 2 7
         tick
         +1 a 1 9
         barrier
         -1 NULL 1 7
         barrier
         -1 a 1 9
         -1 b 1 NULL
         barrier
         barrier",
    );
}

#[test]
fn a_change_that_cancels_is_not_emitted() {
    let input = input();
    let calls = [call(Max, Some(1), &input)];
    check(
        &|| make(&[0], &calls, &input, false),
        std::slice::from_ref(&input),
        "+1 a 3 t
         barrier
         +1 a 2 t
         tick
         -1 a 2 t
         +1 a 3 t
         barrier
         -1 a 3 t
         barrier
         -1 a 3 t
         barrier",
        "+1 a 3
         barrier
         tick
         barrier
         barrier
         -1 a 3
         barrier",
    );
}

#[test]
fn without_groups_there_is_always_one_row() {
    let input = input();
    let calls = [call(Count, None, &input), call(Sum, Some(1), &input), call(BoolAnd, Some(2), &input)];
    check(
        &|| make(&[], &calls, &input, false),
        std::slice::from_ref(&input),
        "barrier
         barrier
         +1 a 3 t
         +1 b 4 f
         tick
         -1 b 4 f
         barrier
         -1 a 3 t
         barrier",
        "+1 0 NULL NULL
         barrier
         barrier
         -1 0 NULL NULL
         +1 2 7 false
         tick
         -1 2 7 false
         +1 1 3 true
         barrier
         -1 1 3 true
         +1 0 NULL NULL
         barrier",
    );
    check(
        &|| make(&[], &calls, &input, false),
        std::slice::from_ref(&input),
        "+1 a 3 NULL
         barrier",
        "+1 1 3 NULL
         barrier",
    );
}

#[test]
fn without_calls_it_is_distinct() {
    let input = input();
    for append_only in [true, false] {
        check(
            &|| make(&[0], &[], &input, append_only),
            std::slice::from_ref(&input),
            "+1 a 3 t
             +1 a 4 t
             +2 NULL 4 t
             barrier
             +1 a 3 t
             +1 b 3 t
             barrier",
            "+1 a
             +1 NULL
             barrier
             +1 b
             barrier",
        );
    }
    check(
        &|| make(&[0], &[], &input, false),
        std::slice::from_ref(&input),
        "+2 a 3 t
         barrier
         -1 a 3 t
         barrier
         -1 a 3 t
         barrier",
        "+1 a
         barrier
         barrier
         -1 a
         barrier",
    );
}

#[test]
fn distinct_and_filter() {
    let input = input();
    let mut distinct = call(Count, Some(1), &input);
    distinct.distinct = true;
    let mut filtered = distinct.clone();
    filtered.filter = Some(2);
    let mut sum = call(Sum, Some(1), &input);
    sum.distinct = true;
    sum.filter = Some(2);
    let mut star = call(Count, None, &input);
    star.filter = Some(2);
    let calls = [distinct, filtered, sum, star];
    check(
        &|| make(&[0], &calls, &input, false),
        std::slice::from_ref(&input),
        "+2 a 3 t
         +1 a 4 f
         +1 a NULL t
         +1 b 1 NULL
         barrier
         -1 a 3 t
         +1 a 4 t
         barrier
         -1 a 3 t
         -1 a NULL t
         tick
         -1 a 4 t
         barrier
         -1 a 4 f
         barrier
         +1 a 4 t
         barrier",
        "+1 a 2 1 3 3
         +1 b 1 0 NULL 0
         barrier
         -1 a 2 1 3 3
         +1 a 2 2 7 3
         barrier
         -1 a 2 2 7 3
         +1 a 1 1 4 1
         tick
         -1 a 1 1 4 1
         +1 a 1 0 NULL 0
         barrier
         -1 a 1 0 NULL 0
         barrier
         +1 a 1 1 4 1
         barrier",
    );
}

#[test]
fn extremes_of_text_and_the_next_best() {
    let input = schema(&[("k", DataType::Int32), ("s", DataType::Utf8), ("f", DataType::Boolean)]);
    let calls = [call(Min, Some(1), &input), call(Max, Some(1), &input), call(BoolOr, Some(2), &input)];
    check(
        &|| make(&[0], &calls, &input, false),
        std::slice::from_ref(&input),
        "+1 1 b t
         +1 1 '' f
         +1 1 zz NULL
         +1 2 NULL NULL
         barrier
         -1 1 zz NULL
         -1 1 b t
         barrier
         -1 1 '' f
         +1 1 x f
         barrier",
        "+1 1 '' zz true
         +1 2 NULL NULL NULL
         barrier
         -1 1 '' zz true
         +1 1 '' '' false
         barrier
         -1 1 '' '' false
         +1 1 x x false
         barrier",
    );
    check(
        &|| make(&[0], &calls[..2], &input, true),
        std::slice::from_ref(&input),
        "+1 1 b t
         +1 1 NULL t
         barrier
         +1 1 a t
         +1 1 aa t
         barrier",
        "+1 1 b b
         barrier
         -1 1 b b
         +1 1 a b
         barrier",
    );
}

#[test]
fn watermarks_follow_the_groups() {
    let time = DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, None);
    let input = schema(&[("k", DataType::Utf8), ("ts", time)]);
    let calls = [call(Count, None, &input)];
    check(
        &|| make(&[1, 0], &calls, &input, true),
        std::slice::from_ref(&input),
        "+1 a 10
         watermark 1 10
         watermark 0 3
         +1 b 20
         watermark 1 15
         tick
         barrier",
        "+1 10 a 1
         +1 20 b 1
         watermark 1 3
         watermark 0 15
         tick
         barrier",
    );
}

#[test]
fn many_groups_are_emitted_in_parts_and_numbers_are_reused() {
    let input = input();
    let calls = [call(Sum, Some(1), &input)];
    let rows = |diff: i64, from: usize, to: usize| -> String {
        (from..to).map(|i| format!("{diff:+} key{i} {i} t\n")).collect()
    };
    let script = [
        rows(1, 0, 20_000),
        "barrier\n".to_owned(),
        rows(-1, 5_000, 20_000),
        "barrier\n".to_owned(),
        rows(1, 10_000, 30_000),
        "barrier\n".to_owned(),
    ];
    let lines = run(
        &|| make(&[0], &calls, &input, false),
        &parse(std::slice::from_ref(&input), &script.concat()),
        &mut |i| i == 1,
    );
    let steps: Vec<usize> = lines
        .split(|line| line == "barrier")
        .map(|epoch| epoch.iter().filter(|line| line.contains("key")).count())
        .collect();
    assert_eq!(steps, vec![20_000, 15_000, 20_000, 0]);
    assert!(matches!(parse(&[input], "barrier")[0], Step::Barrier(_)));
}

#[test]
fn intervals_add_up_by_parts() {
    let interval = DataType::Interval(arrow::datatypes::IntervalUnit::MonthDayNano);
    let input = schema(&[("i", interval)]);
    let calls = [call(Sum, Some(0), &input), call(Max, Some(0), &input), call(Avg, Some(0), &input)];
    let mut calls = calls.to_vec();
    let output = calls[0].output.clone();
    calls[2].output = output;
    check(
        &|| make(&[], &calls, &input, false),
        std::slice::from_ref(&input),
        "+1 '1 month 1 day'
         +1 '3 days'
         +1 NULL
         barrier
         -1 '1 month 1 day'
         barrier",
        "+1 '1 mons 4 days' '1 mons 1 days' '17 days'
         barrier
         -1 '1 mons 4 days' '1 mons 1 days' '17 days'
         +1 '3 days' '3 days' '3 days'
         barrier",
    );
}
