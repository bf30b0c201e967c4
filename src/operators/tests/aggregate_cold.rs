//! Groups that leave memory and come back.

use super::tests::{call, make};
use super::*;
use crate::operators::script::{Driver, change_batch, schema};
use crate::stream::BarrierKind;
use arrow::datatypes::DataType;
use weir_sql::plan::AggregateFunction::{Count, Max, Sum};

fn rows(diff: i64, numbers: std::ops::Range<i64>) -> ChangeBatch {
    let input = schema(&[("k", DataType::Int64), ("v", DataType::Int64)]);
    let row = |n: i64| (diff, vec![Some((n % 1000).to_string()), Some(n.to_string())]);
    change_batch(&input, &numbers.map(row).collect::<Vec<_>>())
}

#[test]
fn cold_groups_leave_and_come_back_as_they_were() {
    let input = schema(&[("k", DataType::Int64), ("v", DataType::Int64)]);
    let mut distinct = call(Count, Some(1), &input);
    distinct.distinct = true;
    let calls = [call(Sum, Some(1), &input), call(Max, Some(1), &input), distinct];
    let make = || make(&[0], &calls, &input, false);
    let mut driver = Driver::new(&make);
    driver.change(0, rows(1, 0..3000));
    driver.barrier(BarrierKind::Tick);
    assert_eq!(driver.operator.evict(Epoch(1), usize::MAX), 0, "nothing is sealed yet");
    driver.barrier(BarrierKind::Checkpoint);
    assert_eq!(driver.operator.evict(Epoch(1), usize::MAX), 0, "nothing is applied yet");
    assert!(driver.operator.complete());
    let before = driver.operator.memory();
    driver.change(0, rows(1, 3000..3010));
    assert!(driver.operator.evict(Epoch(2), usize::MAX) > before / 2);
    assert!(driver.operator.memory() < before / 4, "{} of {before} bytes", driver.operator.memory());
    assert!(!driver.operator.complete());

    // 0..10 stayed: they have changed; 20 comes back; 30 changes and cancels; 5000 is new.
    driver.change(0, rows(-1, 2020..2021));
    driver.change(0, rows(1, 4030..4031));
    driver.change(0, rows(-1, 4030..4031));
    driver.change(0, change_batch(&input, &[(1, vec![Some("5000".to_owned()), Some("1".to_owned())])]));
    let lines = driver.barrier(BarrierKind::Checkpoint).lines();
    let of = |key: &str| -> Vec<String> {
        lines.iter().filter(|l| l.split(' ').nth(1) == Some(key)).cloned().collect()
    };
    assert_eq!(of("20"), ["-1 20 3060 2020 3", "+1 20 1040 1020 2"].map(str::to_owned).sorted());
    assert_eq!(of("5000"), ["+1 5000 1 1 1".to_owned()]);
    assert_eq!(of("3"), ["-1 3 3009 2003 3", "+1 3 6012 3003 4"].map(str::to_owned).sorted());
    assert_eq!(lines.len(), 2 + 1 + 20);
}

#[test]
fn what_was_removed_does_not_come_back_from_the_applied_state() {
    let input = schema(&[("k", DataType::Int64), ("v", DataType::Int64)]);
    let calls = [call(Count, None, &input)];
    let make = || make(&[0], &calls, &input, false);
    let mut driver = Driver::new(&make);
    driver.change(0, rows(1, 0..10));
    driver.barrier(BarrierKind::Checkpoint);
    driver.change(0, rows(-1, 3..4));
    driver.barrier(BarrierKind::Checkpoint);
    assert_eq!(driver.operator.evict(Epoch(1), usize::MAX), 0, "group 3 is still in epoch 1");
    assert!(driver.operator.evict(Epoch(2), usize::MAX) > 0);
    // Incomplete now: the applied state stays at epoch 2 while 4 goes, and comes again.
    let published = driver.state.clone();
    driver.change(0, rows(-1, 4..5));
    driver.barrier(BarrierKind::Checkpoint);
    driver.operator.evict(Epoch(2), usize::MAX);
    driver.state = published;
    driver.change(0, rows(1, 4..5));
    assert_eq!(driver.barrier(BarrierKind::Tick).lines(), vec!["+1 4 1"]);
}

/// Lines in the order in which the harness gives them.
trait Sorted {
    fn sorted(self) -> Vec<String>;
}

impl<const N: usize> Sorted for [String; N] {
    fn sorted(self) -> Vec<String> {
        let mut lines = self.to_vec();
        lines.sort_by(|a, b| a.split_once(' ').map(|p| p.1).cmp(&b.split_once(' ').map(|p| p.1)));
        lines
    }
}
