//! Consolidation: what cancels, what adds up, what stays apart.

use super::*;
use arrow::array::{AsArray, Int64Array, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("k", DataType::Utf8, true), Field::new("v", DataType::Int64, true)]))
}

fn batch(rows: &[(Option<&str>, Option<i64>, i64)]) -> ChangeBatch {
    let keys = StringArray::from_iter(rows.iter().map(|r| r.0));
    let values = Int64Array::from_iter(rows.iter().map(|r| r.1));
    let rows_only = RecordBatch::try_new(schema(), vec![Arc::new(keys), Arc::new(values)]).unwrap();
    ChangeBatch::new(rows_only, rows.iter().map(|r| r.2).collect::<Vec<_>>())
}

fn rows(batch: &ChangeBatch) -> Vec<(Option<String>, Option<i64>, i64)> {
    let keys = batch.column(0).as_string::<i32>();
    let values = batch.column(1).as_primitive::<Int64Type>();
    keys.iter()
        .zip(values.iter())
        .enumerate()
        .map(|(i, (k, v))| (k.map(str::to_owned), v, batch.diff(i)))
        .collect()
}

fn row(k: Option<&str>, v: Option<i64>, d: i64) -> (Option<String>, Option<i64>, i64) {
    (k.map(str::to_owned), v, d)
}

#[test]
fn equal_rows_are_summed_and_zeros_dropped() {
    let mut builder = ChangeBuilder::new(schema());
    builder.push(batch(&[(Some("a"), Some(3), 1), (Some("b"), Some(1), -1)]));
    builder.push(batch(&[
        (Some("a"), Some(3), 2),
        (Some("b"), Some(1), 1),
        (None, None, 1),
        (None, None, 1),
    ]));
    assert_eq!(builder.num_rows(), 6);
    let out = builder.consolidate().unwrap();
    assert_eq!(rows(&out), vec![row(Some("a"), Some(3), 3), row(None, None, 2)]);
    assert!(builder.is_empty());
    assert!(builder.consolidate().unwrap().is_empty());
}

#[test]
fn null_and_empty_and_nearby_rows_stay_apart() {
    let all = batch(&[(None, Some(0), 1), (Some(""), Some(0), -1), (None, None, 1), (Some("0"), None, -1)]);
    assert_eq!(rows(&consolidate(all.clone()).unwrap()), rows(&all));
}

#[test]
fn one_sign_is_left_alone() {
    let plain = batch(&[(Some("a"), Some(1), 1), (Some("a"), Some(1), 1)]);
    assert_eq!(consolidate(plain).unwrap().num_rows(), 2);
    let gone = batch(&[(Some("a"), Some(1), 1), (Some("a"), Some(1), -1)]);
    assert!(consolidate(gone).unwrap().is_empty());
}

#[test]
fn rows_without_columns_are_equal() {
    let schema: SchemaRef = Arc::new(Schema::empty());
    let mut builder = ChangeBuilder::new(Arc::clone(&schema));
    builder.push(ChangeBatch::new(batch_of(&schema, vec![], 3).unwrap(), vec![1, -1, 3]));
    builder.push(ChangeBatch::insertions(batch_of(&schema, vec![], 2).unwrap()));
    let out = builder.consolidate().unwrap();
    assert_eq!((out.num_rows(), out.diff(0)), (1, 5));
}

#[test]
fn concat_fills_in_the_implied_diffs() {
    let plain = batch(&[(Some("a"), Some(1), 1)]);
    let minus = batch(&[(Some("a"), Some(1), -2)]);
    let out = concat(&schema(), vec![plain, minus]).unwrap();
    assert_eq!(out.diffs(), Some(&[1, -2][..]));
}
