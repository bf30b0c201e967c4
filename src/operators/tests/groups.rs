//! Group keys: what is equal, what comes back, what is reused.

use super::*;
use arrow::array::{Array, AsArray, Float64Array, Int32Array, Int64Array, StringArray};
use arrow::datatypes::{Float64Type, Int64Type};
use std::sync::Arc;

fn numbers(groups: &mut Groups, columns: &[ArrayRef]) -> Vec<u32> {
    let mut lookup = Lookup::default();
    groups.find_or_insert(columns, columns[0].len(), &mut lookup).unwrap();
    let found = lookup.groups.clone();
    groups.find(columns, columns[0].len(), &mut lookup).unwrap();
    assert_eq!(found, lookup.groups, "what was inserted is found");
    found
}

#[test]
fn one_integer_column() {
    let mut groups = Groups::new(&[DataType::Int64]).unwrap();
    let column: ArrayRef = Arc::new(Int64Array::from(vec![Some(7), None, Some(0), Some(7), None, Some(0)]));
    assert_eq!(numbers(&mut groups, &[Arc::clone(&column)]), vec![0, 1, 2, 0, 1, 2]);
    let back = groups.keys(&[2, 1, 0]).unwrap();
    let back: Vec<_> = back[0].as_primitive::<Int64Type>().iter().collect();
    assert_eq!(back, vec![Some(0), None, Some(7)]);
    assert_eq!(groups.len(), 3);
}

#[test]
fn wide_keys_of_every_width() {
    for width in 1..=8 {
        let mut groups = Groups::new(&vec![DataType::Int32; width]).unwrap();
        let columns: Vec<ArrayRef> = (0..width)
            .map(|c| {
                let values = (0..100).map(|row| (row % (c + 2) != 0).then_some((row / (c + 1)) as i32));
                Arc::new(values.collect::<Int32Array>()) as ArrayRef
            })
            .collect();
        let found = numbers(&mut groups, &columns);
        let back = groups.keys(&found).unwrap();
        assert_eq!(back, columns, "width {width}");
    }
}

#[test]
fn floats_are_equal_as_in_sql() {
    for with_text in [false, true] {
        let mut types = vec![DataType::Float64];
        let floats = Float64Array::from(vec![0.0, -0.0, f64::NAN, -f64::NAN, 1.0]);
        let mut columns: Vec<ArrayRef> = vec![Arc::new(floats)];
        if with_text {
            types.push(DataType::Utf8);
            columns.push(Arc::new(StringArray::from(vec!["x"; 5])));
        }
        let mut groups = Groups::new(&types).unwrap();
        assert_eq!(numbers(&mut groups, &columns), vec![0, 0, 1, 1, 2]);
        let back = groups.keys(&[1]).unwrap();
        assert!(back[0].as_primitive::<Float64Type>().value(0).is_nan());
    }
}

#[test]
fn text_keys_come_back_and_are_reused_after_removal() {
    let mut groups = Groups::new(&[DataType::Utf8, DataType::Int64]).unwrap();
    let text: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), Some(""), None, Some("a")]));
    let ints: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), Some(1), Some(1), None]));
    let columns = vec![text, ints];
    assert_eq!(numbers(&mut groups, &columns), vec![0, 1, 2, 3]);
    assert_eq!(groups.keys(&[0, 1, 2, 3]).unwrap(), columns);
    groups.remove(1);
    assert_eq!((groups.len(), groups.iter().collect::<Vec<_>>()), (3, vec![0, 2, 3]));
    let mut lookup = Lookup::default();
    groups.find(&columns, 4, &mut lookup).unwrap();
    assert_eq!(lookup.groups, vec![0, NO_GROUP, 2, 3]);
    let other: Vec<ArrayRef> =
        vec![Arc::new(StringArray::from(vec!["longer than before"])), Arc::new(Int64Array::from(vec![5]))];
    assert_eq!(numbers(&mut groups, &other), vec![1], "the free number is given again");
    assert_eq!(groups.keys(&[1]).unwrap(), other);
}

#[test]
fn garbage_of_removed_keys_is_given_back() {
    let mut groups = Groups::new(&[DataType::Utf8]).unwrap();
    for round in 0..20 {
        let text: Vec<String> = (0..1000).map(|i| format!("{round} {i} {}", "x".repeat(200))).collect();
        let column: ArrayRef = Arc::new(StringArray::from(text));
        let found = numbers(&mut groups, &[Arc::clone(&column)]);
        assert_eq!(groups.keys(&found).unwrap(), vec![column]);
        for group in found {
            groups.remove(group);
        }
    }
    assert!(groups.memory() < 6 << 20, "{} bytes for 0.2 MB of keys", groups.memory());
}

#[test]
fn no_columns_are_one_group_for_good() {
    let mut groups = Groups::new(&[]).unwrap();
    let mut lookup = Lookup::default();
    groups.find_or_insert(&[], 3, &mut lookup).unwrap();
    assert_eq!(lookup.groups, vec![0, 0, 0]);
    groups.remove(0);
    assert_eq!((groups.slots(), groups.vnode(0)), (1, Vnode::SINGLE));
}
