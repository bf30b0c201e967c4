//! Expressions over batches, with rows that fail.

use super::*;
use crate::checkpoint::participant::Sealed;
use crate::operators::failures::Origin;
use crate::operators::script::schema;
use crate::state::writes::RunPool;
use crate::stream::{Barrier, BarrierKind, Epoch};
use arrow::array::Int64Array;
use arrow::datatypes::Int64Type;
use datafusion::logical_expr::Operator as BinaryOperator;
use datafusion::physical_expr::expressions::{binary, col, lit};
use std::sync::atomic::Ordering;
use weir_catalog::ObjectId;

fn rows(a: Vec<Option<i64>>, b: Vec<Option<i64>>) -> RecordBatch {
    let schema = schema(&[("a", DataType::Int64), ("b", DataType::Int64)]);
    RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(a)), Arc::new(Int64Array::from(b))]).unwrap()
}

fn quotient(rows: &RecordBatch) -> Arc<dyn PhysicalExpr> {
    let schema = rows.schema();
    let (a, b) = (col("a", &schema).unwrap(), col("b", &schema).unwrap());
    binary(a, BinaryOperator::Divide, b, &schema).unwrap()
}

#[test]
fn failing_rows_are_null_and_counted() {
    let rows = rows(
        vec![Some(1), Some(4), None, Some(9), Some(7)],
        vec![Some(0), Some(2), Some(0), Some(3), Some(0)],
    );
    let errors = ErrorCounter::default();
    let failures = Failures::counted(errors.clone());
    let column = evaluate(&quotient(&rows), &rows, &|_| true, &failures).unwrap();
    let values: Vec<_> = column.as_primitive::<Int64Type>().iter().collect();
    assert_eq!(values, vec![None, Some(2), None, Some(3), None]);
    assert_eq!(errors.load(Ordering::Relaxed), 2, "NULL / 0 is NULL and no error");
}

#[test]
fn a_failing_predicate_keeps_nothing() {
    let rows = rows(vec![Some(1), Some(4), Some(9)], vec![Some(0), Some(2), None]);
    let schema = rows.schema();
    let predicate = binary(quotient(&rows), BinaryOperator::Gt, lit(1i64), &schema).unwrap();
    let errors = ErrorCounter::default();
    let failures = Failures::counted(errors.clone());
    let keep = evaluate_predicate(&predicate, &rows, &|_| true, &failures).unwrap();
    assert_eq!(keep.iter().collect::<Vec<_>>(), vec![None, Some(true), None]);
    assert_eq!(errors.load(Ordering::Relaxed), 1);
}

#[test]
fn all_rows_may_fail_and_none_may_be() {
    let errors = ErrorCounter::default();
    let failures = Failures::counted(errors.clone());
    let bad = rows(vec![Some(1); 5], vec![Some(0); 5]);
    assert_eq!(evaluate(&quotient(&bad), &bad, &|_| true, &failures).unwrap().null_count(), 5);
    assert_eq!(errors.load(Ordering::Relaxed), 5);
    let none = rows(vec![], vec![]);
    assert_eq!(evaluate(&quotient(&none), &none, &|_| true, &failures).unwrap().len(), 0);
}

#[test]
fn failing_rows_that_appear_are_kept_until_the_barrier() {
    let rows = rows(vec![Some(1), Some(4), Some(7)], vec![Some(0), Some(2), Some(0)]);
    let origin = Origin { job: ObjectId(7), name: "v".into(), operator: (3, 1) };
    let failures = Failures::new(ErrorCounter::default(), origin);
    // The last row goes.
    evaluate(&quotient(&rows), &rows, &|row| row < 2, &failures).unwrap();
    let barrier = Barrier {
        epoch: Epoch(5),
        previous: Epoch(4),
        kind: BarrierKind::Tick,
        dml_position: 0,
        now_us: 0,
        mutation: None,
        unaligned: false,
        after_unaligned: false,
    };
    let mut sealed = Sealed::default();
    failures.seal(&barrier, &mut sealed).unwrap();
    failures.seal(&barrier, &mut sealed).unwrap();
    let runs = sealed.runs.encode(&RunPool::default()).unwrap();
    assert_eq!(runs.len(), 1, "nothing is handed over twice");
    assert_eq!(runs[0].len(), 1, "only the row that appeared is kept");
}
