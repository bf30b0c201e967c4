//! Expressions over batches, with rows that fail.

use super::*;
use crate::operators::script::schema;
use arrow::array::Int64Array;
use arrow::datatypes::Int64Type;
use datafusion::logical_expr::Operator as BinaryOperator;
use datafusion::physical_expr::expressions::{binary, col, lit};

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
    let column = evaluate(&quotient(&rows), &rows, &errors).unwrap();
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
    let keep = evaluate_predicate(&predicate, &rows, &errors).unwrap();
    assert_eq!(keep.iter().collect::<Vec<_>>(), vec![None, Some(true), None]);
    assert_eq!(errors.load(Ordering::Relaxed), 1);
}

#[test]
fn all_rows_may_fail_and_none_may_be() {
    let errors = ErrorCounter::default();
    let bad = rows(vec![Some(1); 5], vec![Some(0); 5]);
    assert_eq!(evaluate(&quotient(&bad), &bad, &errors).unwrap().null_count(), 5);
    assert_eq!(errors.load(Ordering::Relaxed), 5);
    let none = rows(vec![], vec![]);
    assert_eq!(evaluate(&quotient(&none), &none, &errors).unwrap().len(), 0);
}
