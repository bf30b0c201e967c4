//! What is handed over before the checkpoint, and what is not.

use super::tests::{call, make};
use crate::operators::script::{Driver, change_batch, schema};
use crate::stream::{BarrierKind, ChangeBatch};
use arrow::datatypes::DataType;
use std::ops::Range;
use weir_sql::plan::AggregateFunction::{Count, Sum};

fn rows(numbers: Range<i64>) -> ChangeBatch {
    let input = schema(&[("k", DataType::Int64), ("v", DataType::Int64)]);
    let row = |n: i64| (1, vec![Some(n.to_string()), Some("1".to_owned())]);
    change_batch(&input, &numbers.map(row).collect::<Vec<_>>())
}

#[test]
fn groups_at_rest_do_not_wait_for_the_checkpoint() {
    let input = schema(&[("k", DataType::Int64), ("v", DataType::Int64)]);
    let calls = [call(Sum, Some(1), &input)];
    let make = || make(&[0], &calls, &input, true);
    let mut driver = Driver::new(&make);
    driver.change(0, rows(0..1000));
    driver.barrier(BarrierKind::Tick);
    assert_eq!(driver.state.entries.len(), 0, "they have just changed");
    // Some change on.
    driver.change(0, rows(900..1000));
    driver.barrier(BarrierKind::Tick);
    assert_eq!(driver.state.entries.len(), 900);
    driver.change(0, rows(900..950));
    driver.barrier(BarrierKind::Tick);
    assert_eq!(driver.state.entries.len(), 900, "few copies wait for the checkpoint");
    driver.change(0, rows(0..1));
    driver.barrier(BarrierKind::Checkpoint);
    assert_eq!(driver.state.entries.len(), 1000);
}

#[test]
fn values_that_stay_do_not_wait_for_the_checkpoint() {
    let input = schema(&[("k", DataType::Int64), ("v", DataType::Int64)]);
    let mut calls = [call(Count, Some(0), &input)];
    calls[0].distinct = true;
    for append_only in [true, false] {
        let make = || make(&[1], &calls, &input, append_only);
        let mut driver = Driver::new(&make);
        driver.change(0, rows(0..100));
        driver.barrier(BarrierKind::Tick);
        assert_eq!(!driver.state.entries.is_empty(), append_only);
        driver.barrier(BarrierKind::Checkpoint);
        assert!(!driver.state.entries.is_empty());
    }
}
