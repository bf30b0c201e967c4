//! Arrays: the operators `&& @> <@`, and the functions that DataFusion has not or has otherwise.
//!
//! Elements are compared whatever the dimensions of their arrays are, and NULL is like no element.

use super::error::failure;
use super::scalar::{Function, Kernel};
use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, DynComparator, Int32Array, ListArray, StringArray, StructArray,
    UInt32Array, make_comparator,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{SortOptions, cast, concat, take};
use arrow::datatypes::{DataType, Field, Fields, Int32Type};
use datafusion_common::{DFSchema, Result, ScalarValue, internal_err};
use datafusion_expr::expr::{Cast, ScalarFunction};
use datafusion_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion_expr::{Expr, ExprSchemable, ScalarUDF};
use sqlparser::ast::BinaryOperator;
use std::sync::{Arc, LazyLock};
use weir_catalog::SqlState;

/// A list, empty where it is NULL.
pub const OR_EMPTY: &str = "weir_list_or_empty";

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    let boolean = |_: &[DataType], _: &[Option<&ScalarValue>]| DataType::Boolean;
    let integer = |_: &[DataType], _: &[Option<&ScalarValue>]| DataType::Int32;
    let list_of_first = |types: &[DataType], _: &[Option<&ScalarValue>]| {
        list_of(types.first().cloned().unwrap_or(DataType::Null))
    };
    let first = |types: &[DataType], _: &[Option<&ScalarValue>]| types[0].clone();
    vec![
        Function::new("array_overlap", two_lists, boolean, Kernel::Columns(overlap)),
        Function::new("array_contains_all", two_lists, boolean, Kernel::Columns(contains)),
        Function::new("array_lower", list_and_number, integer, Kernel::Columns(lower)),
        Function::new("array_length", list_and_number, integer, Kernel::Columns(length))
            .aliases(&["array_upper"]),
        Function::new("array_ndims", one_list, integer, Kernel::Columns(dimensions)),
        Function::new("cardinality", one_list, integer, Kernel::Columns(cardinality)),
        Function::new("array_dims", one_list, |_, _| DataType::Utf8, Kernel::Columns(dims)),
        Function::new("array_fill", coerce_fill, list_of_first, Kernel::Columns(fill)),
        Function::new(OR_EMPTY, one_list, first, Kernel::Columns(or_empty)),
        Function::new("trim_array", list_and_number, first, Kernel::Columns(trim)),
        Function::new("_pg_expandarray", one_list, |t, _| list_of(numbered(&t[0])), Kernel::Columns(expand)),
    ]
}

fn list_of(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(item, true)))
}

fn one_list(types: &[DataType]) -> Option<Vec<DataType>> {
    matches!(types, [DataType::List(_)]).then(|| types.to_vec())
}

fn list_and_number(types: &[DataType]) -> Option<Vec<DataType>> {
    match types {
        [list @ DataType::List(_), number] if number.is_integer() || *number == DataType::Null => {
            Some(vec![list.clone(), DataType::Int32])
        }
        _ => None,
    }
}

/// The type of the innermost elements.
fn element_type(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::List(item) => element_type(item.data_type()),
        other => other,
    }
}

/// Two lists whose elements are compared; of numbers as the wider of the two.
fn two_lists(types: &[DataType]) -> Option<Vec<DataType>> {
    let [left @ DataType::List(_), right @ DataType::List(_)] = types else { return None };
    let (l, r) = (element_type(left), element_type(right));
    match (l, r) {
        (l, r) if l == r => Some(types.to_vec()),
        (DataType::Null, _) => Some(vec![right.clone(), right.clone()]),
        (_, DataType::Null) => Some(vec![left.clone(), left.clone()]),
        (l, r) if l.is_integer() && r.is_integer() => {
            Some(vec![list_of(DataType::Int64), list_of(DataType::Int64)])
        }
        _ => None,
    }
}

fn coerce_fill(types: &[DataType]) -> Option<Vec<DataType>> {
    match types {
        [value, DataType::List(item)] if item.data_type().is_integer() => {
            Some(vec![value.clone(), list_of(DataType::Int32)])
        }
        _ => None,
    }
}

static OVERLAP: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| operator("&&", Kernel::Columns(overlap)));
static CONTAINS: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| operator("@>", Kernel::Columns(contains)));
static CONTAINED: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| operator("<@", Kernel::Columns(contained)));

fn operator(symbol: &'static str, kernel: Kernel) -> Arc<ScalarUDF> {
    Function::new(symbol, two_lists, |_, _| DataType::Boolean, kernel).udf()
}

/// Plans the operators of arrays, beside which a quoted literal is an array too.
#[derive(Debug)]
pub struct ArrayPlanner;

impl ExprPlanner for ArrayPlanner {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        if is_compared(&expr.op) {
            return Ok(PlannerResult::Original(with_typed_literals(expr, schema)?));
        }
        let function = match expr.op {
            BinaryOperator::PGOverlap => Some(&OVERLAP),
            BinaryOperator::AtArrow => Some(&CONTAINS),
            BinaryOperator::ArrowAt => Some(&CONTAINED),
            BinaryOperator::StringConcat => None,
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let RawBinaryExpr { op, left, right } = expr;
        let types = (left.get_type(schema)?, right.get_type(schema)?);
        let (left, right) = match types {
            (DataType::List(_), _) => {
                let right = as_list(right, &types.0);
                (left, right)
            }
            (_, DataType::List(_)) => (as_list(left, &types.1), right),
            _ => return Ok(PlannerResult::Original(RawBinaryExpr { op, left, right })),
        };
        let Some(function) = function else {
            return Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }));
        };
        let call = ScalarFunction::new_udf(Arc::clone(function), vec![left, right]);
        Ok(PlannerResult::Planned(Expr::ScalarFunction(call)))
    }
}

fn is_compared(op: &BinaryOperator) -> bool {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq)
}

/// A quoted literal compared with an array or an interval is one: DataFusion has no such comparison.
fn with_typed_literals(expr: RawBinaryExpr, schema: &DFSchema) -> Result<RawBinaryExpr> {
    let RawBinaryExpr { op, left, right } = expr;
    let quoted = |e: &Expr| matches!(e, Expr::Literal(ScalarValue::Utf8(Some(_)), _));
    let wanted = |other: &Expr| {
        let data_type = other.get_type(schema).ok()?;
        matches!(data_type, DataType::List(_) | DataType::Interval(_)).then_some(data_type)
    };
    let typed = |literal: Expr, data_type| Expr::Cast(Cast::new(Box::new(literal), data_type));
    Ok(match (quoted(&left), quoted(&right)) {
        (true, false) => match wanted(&right) {
            Some(data_type) => RawBinaryExpr { op, left: typed(left, data_type), right },
            None => RawBinaryExpr { op, left, right },
        },
        (false, true) => match wanted(&left) {
            Some(data_type) => RawBinaryExpr { op, right: typed(right, data_type), left },
            None => RawBinaryExpr { op, left, right },
        },
        _ => RawBinaryExpr { op, left, right },
    })
}

/// A quoted literal, or NULL, as the list that stands beside it.
fn as_list(expr: Expr, list: &DataType) -> Expr {
    match &expr {
        Expr::Literal(ScalarValue::Null, _) => Expr::Cast(Cast::new(Box::new(expr), list.clone())),
        Expr::Literal(ScalarValue::Utf8(Some(text)), _) if text.trim_start().starts_with('{') => {
            Expr::Cast(Cast::new(Box::new(expr), list.clone()))
        }
        _ => expr,
    }
}

/// The innermost elements of a row of lists.
fn elements(lists: &ArrayRef, row: usize) -> Result<ArrayRef> {
    let mut level = lists.as_list::<i32>().value(row);
    while matches!(level.data_type(), DataType::List(_)) {
        let inner = level.as_list::<i32>();
        let parts: Vec<ArrayRef> = inner.iter().flatten().collect();
        level = match parts.is_empty() {
            true => arrow::array::new_empty_array(element_type(level.data_type())),
            false => concat(&parts.iter().map(AsRef::as_ref).collect::<Vec<_>>())?,
        };
    }
    Ok(level)
}

/// For each row where both are there, what `test` finds of the elements.
fn compared(
    args: &[ArrayRef],
    test: impl Fn(&ArrayRef, &ArrayRef, &DynComparator) -> bool,
) -> Result<ArrayRef> {
    let row = |row: usize| {
        if args[0].is_null(row) || args[1].is_null(row) {
            return Ok(None);
        }
        let (left, right) = (elements(&args[0], row)?, elements(&args[1], row)?);
        let compare = make_comparator(&left, &right, SortOptions::default())?;
        Ok(Some(test(&left, &right, &compare)))
    };
    Ok(Arc::new((0..args[0].len()).map(row).collect::<Result<BooleanArray>>()?))
}

fn found(left: &ArrayRef, right: &ArrayRef, at: usize, compare: &DynComparator) -> bool {
    right.is_valid(at) && (0..left.len()).any(|i| left.is_valid(i) && compare(i, at).is_eq())
}

fn overlap(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    compared(args, |left, right, compare| (0..right.len()).any(|at| found(left, right, at, compare)))
}

fn contains(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    compared(args, |left, right, compare| (0..right.len()).all(|at| found(left, right, at, compare)))
}

fn contained(args: &[ArrayRef], output: &DataType) -> Result<ArrayRef> {
    contains(&[Arc::clone(&args[1]), Arc::clone(&args[0])], output)
}

/// The lengths of a row's dimensions; none of an empty array.
fn lengths(lists: &ArrayRef, row: usize) -> Vec<usize> {
    let mut lengths = Vec::new();
    let (mut level, mut at) = (Arc::clone(lists), row);
    while matches!(level.data_type(), DataType::List(_)) && at < level.len() && level.is_valid(at) {
        let items = level.as_list::<i32>().value(at);
        if items.is_empty() {
            break;
        }
        lengths.push(items.len());
        (level, at) = (items, 0);
    }
    lengths
}

/// The length of the dimension that is asked for, where there is one.
fn length_at(args: &[ArrayRef], row: usize) -> Option<usize> {
    let dimensions = args[1].as_primitive::<Int32Type>();
    let dimension = dimensions.is_valid(row).then(|| usize::try_from(dimensions.value(row)).ok())??;
    lengths(&args[0], row).get(dimension.checked_sub(1)?).copied()
}

fn integers(rows: usize, value: impl Fn(usize) -> Option<usize>) -> Result<ArrayRef> {
    let value = |row| value(row).map(|value| i32::try_from(value).unwrap_or(i32::MAX));
    Ok(Arc::new((0..rows).map(value).collect::<Int32Array>()))
}

fn lower(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    integers(args[0].len(), |row| length_at(args, row).map(|_| 1))
}

/// Also the last subscript: the first is 1.
fn length(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    integers(args[0].len(), |row| length_at(args, row))
}

fn dimensions(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    integers(args[0].len(), |row| Some(lengths(&args[0], row).len()).filter(|count| *count > 0))
}

fn cardinality(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    integers(args[0].len(), |row| {
        let lengths = args[0].is_valid(row).then(|| lengths(&args[0], row))?;
        Some(if lengths.is_empty() { 0 } else { lengths.iter().product() })
    })
}

fn dims(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let shown = |row: usize| {
        let lengths = lengths(&args[0], row);
        (!lengths.is_empty()).then(|| lengths.iter().map(|n| format!("[1:{n}]")).collect::<String>())
    };
    Ok(Arc::new((0..args[0].len()).map(shown).collect::<StringArray>()))
}

/// `array_fill(value, ARRAY[n])`: one dimension, as the type can't depend on how many there are.
fn fill(args: &[ArrayRef], output: &DataType) -> Result<ArrayRef> {
    let DataType::List(field) = output else { return internal_err!("array_fill gives a list") };
    let counts = args[1].as_list::<i32>();
    let mut lengths = Vec::with_capacity(counts.len());
    let mut indices: Vec<u32> = Vec::new();
    for row in 0..counts.len() {
        let count = if counts.is_valid(row) { counts.value(row) } else { counts.values().slice(0, 0) };
        let length = match count.as_primitive::<Int32Type>().values().as_ref() {
            [] if counts.is_valid(row) => 0,
            [length] if *length >= 0 => *length as usize,
            [_, _, ..] => {
                return Err(failure(SqlState::FEATURE_NOT_SUPPORTED, "array_fill of several dimensions"));
            }
            _ => return Err(failure(SqlState("22004"), "dimension values cannot be null")),
        };
        lengths.push(length);
        indices.extend(std::iter::repeat_n(row as u32, length));
    }
    let values = take(&args[0], &UInt32Array::from(indices), None)?;
    Ok(Arc::new(ListArray::try_new(Arc::clone(field), OffsetBuffer::from_lengths(lengths), values, None)?))
}

fn or_empty(args: &[ArrayRef], output: &DataType) -> Result<ArrayRef> {
    let DataType::List(field) = output else { return internal_err!("a list is a list") };
    let lists = args[0].as_list::<i32>();
    if lists.null_count() == 0 {
        return Ok(Arc::clone(&args[0]));
    }
    let parts: Vec<ArrayRef> = lists.iter().flatten().collect();
    let lengths = lists.iter().map(|list| list.map_or(0, |list| list.len()));
    let values = match parts.is_empty() {
        true => lists.values().slice(0, 0),
        false => concat(&parts.iter().map(AsRef::as_ref).collect::<Vec<_>>())?,
    };
    Ok(Arc::new(ListArray::try_new(Arc::clone(field), OffsetBuffer::from_lengths(lengths), values, None)?))
}

/// `trim_array(a, n)`: without the last n elements.
fn trim(args: &[ArrayRef], output: &DataType) -> Result<ArrayRef> {
    let DataType::List(field) = output else { return internal_err!("trim_array gives a list") };
    let (lists, counts) = (args[0].as_list::<i32>(), args[1].as_primitive::<Int32Type>());
    let (mut parts, mut valid) = (Vec::with_capacity(lists.len()), Vec::with_capacity(lists.len()));
    for row in 0..lists.len() {
        let there = lists.is_valid(row) && counts.is_valid(row);
        let items = if there { lists.value(row) } else { lists.values().slice(0, 0) };
        let dropped = if there { counts.value(row) } else { 0 };
        let kept = usize::try_from(dropped).ok().and_then(|dropped| items.len().checked_sub(dropped));
        let Some(kept) = kept else {
            let message = format!("number of elements to trim must be between 0 and {}", items.len());
            return Err(failure(SqlState("2202E"), message));
        };
        parts.push(items.slice(0, kept));
        valid.push(there);
    }
    let offsets = OffsetBuffer::from_lengths(parts.iter().map(|p| p.len()));
    let values = match parts.is_empty() {
        true => lists.values().slice(0, 0),
        false => concat(&parts.iter().map(AsRef::as_ref).collect::<Vec<_>>())?,
    };
    Ok(Arc::new(ListArray::try_new(Arc::clone(field), offsets, values, Some(NullBuffer::from(valid)))?))
}

fn numbered_fields(list: &DataType) -> Fields {
    Fields::from(vec![
        Field::new("x", element_type(list).clone(), true),
        Field::new("n", DataType::Int32, true),
    ])
}

fn numbered(list: &DataType) -> DataType {
    DataType::Struct(numbered_fields(list))
}

/// `information_schema._pg_expandarray(a)`: each element with its number, as drivers ask for the
/// columns of a key.
fn expand(args: &[ArrayRef], output: &DataType) -> Result<ArrayRef> {
    let DataType::List(field) = output else { return internal_err!("an array of numbered elements") };
    let lists = args[0].as_list::<i32>();
    let start = lists.value_offsets()[0];
    let end = lists.value_offsets()[lists.len()];
    let values = lists.values().slice(start as usize, (end - start) as usize);
    let numbers: Int32Array =
        (0..lists.len()).flat_map(|row| (1..=lists.value_length(row)).map(Some)).collect();
    let fields = numbered_fields(args[0].data_type());
    let values = cast(&values, fields[0].data_type())?;
    let members = StructArray::try_new(fields, vec![values, Arc::new(numbers)], None)?;
    let offsets = OffsetBuffer::from_lengths((0..lists.len()).map(|row| lists.value_length(row) as usize));
    Ok(Arc::new(ListArray::try_new(Arc::clone(field), offsets, Arc::new(members), lists.nulls().cloned())?))
}
