//! What takes json apart, whose parts are as they were written: the operators `-> ->> #> #>>`,
//! `json_extract_path`, and the lists that `json_array_elements`, `json_each` and their kin are before
//! they are unnested. jsonb has its own of all of them ([`super::json`], [`super::json_rows`]).

use super::error::failure;
use super::json::{without_zero, zero_error};
use super::json_operator::text_list;
use super::json_text::{Parts, element, get, part_text, parts, without_nulls};
use super::scalar::{Function, Kernel, exactly};
use arrow::array::{Array, ArrayRef, AsArray, ListBuilder, StringArray, StringBuilder};
use arrow::datatypes::{DataType, Int32Type};
use datafusion_common::{DataFusionError, Result, ScalarValue};
use datafusion_expr::ScalarUDF;
use sqlparser::ast::BinaryOperator;
use std::sync::{Arc, LazyLock};
use weir_catalog::SqlState;

/// The values of `json_each`, beside `json_object_keys`.
pub const EACH_VALUES: &str = "weir_json_values";
/// The values of `json_each_text`.
pub const EACH_TEXTS: &str = "weir_json_texts";

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    let text = |types: &[DataType]| exactly(types, &[DataType::Utf8]);
    let list = |_: &[DataType], _: &[Option<&ScalarValue>]| text_list();
    let paths = |t: &[DataType]| exactly(t, &vec![DataType::Utf8; t.len()]).filter(|_| !t.is_empty());
    vec![
        part("json_extract_path", paths, Kernel::Columns(at_steps)).json(),
        part("json_extract_path_text", paths, Kernel::Columns(text_at_steps)),
        part("json_strip_nulls", text, Kernel::Columns(strip_nulls)).json(),
        Function::new("json_array_elements", text, list, Kernel::Columns(elements)),
        Function::new("json_array_elements_text", text, list, Kernel::Columns(element_texts)),
        Function::new("json_object_keys", text, list, Kernel::Columns(names)),
        Function::new(EACH_VALUES, text, list, Kernel::Columns(values)),
        Function::new(EACH_TEXTS, text, list, Kernel::Columns(value_texts)),
    ]
}

fn part(name: &'static str, coerce: fn(&[DataType]) -> Option<Vec<DataType>>, kernel: Kernel) -> Function {
    Function::new(name, coerce, |_, _| DataType::Utf8, kernel)
}

fn one_key(types: &[DataType]) -> Option<Vec<DataType>> {
    match types {
        [json, DataType::Int64] => {
            exactly(&[json.clone(), DataType::Int32], &[DataType::Utf8, DataType::Int32])
        }
        _ => exactly(types, &[DataType::Utf8, DataType::Int32])
            .or_else(|| exactly(types, &[DataType::Utf8, DataType::Utf8])),
    }
}

fn one_path(types: &[DataType]) -> Option<Vec<DataType>> {
    exactly(types, &[DataType::Utf8, text_list()])
}

static GET: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| part("->", one_key, Kernel::Columns(at_key)).json().udf());
static GET_TEXT: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| part("->>", one_key, Kernel::Columns(text_at_key)).udf());
static PATH: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| part("#>", one_path, Kernel::Columns(at_path)).json().udf());
static PATH_TEXT: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| part("#>>", one_path, Kernel::Columns(text_at_path)).udf());

/// The function of an operator of json.
pub(super) fn operator(op: &BinaryOperator) -> Option<&'static Arc<ScalarUDF>> {
    Some(match op {
        BinaryOperator::Arrow => &GET,
        BinaryOperator::LongArrow => &GET_TEXT,
        BinaryOperator::HashArrow => &PATH,
        BinaryOperator::HashLongArrow => &PATH_TEXT,
        _ => return None,
    })
}

/// The part of each row's text that `find` finds, as json or as text.
fn found(
    args: &[ArrayRef],
    as_text: bool,
    find: impl for<'t> Fn(&'t str, usize) -> Option<&'t str>,
) -> Result<ArrayRef> {
    let texts = args[0].as_string::<i32>();
    let row = |row: usize| {
        let found = find(texts.is_valid(row).then(|| texts.value(row))?, row)?;
        if as_text { part_text(found) } else { Some(found.to_owned()) }
    };
    without_zero((0..texts.len()).map(row).collect())
}

fn by_key(args: &[ArrayRef], as_text: bool) -> Result<ArrayRef> {
    match args[1].data_type() {
        DataType::Int32 => {
            let indexes = args[1].as_primitive::<Int32Type>();
            found(args, as_text, |text, row| {
                element(text, i64::from(indexes.is_valid(row).then(|| indexes.value(row))?))
            })
        }
        _ => {
            let keys = args[1].as_string::<i32>();
            found(args, as_text, |text, row| get(text, keys.is_valid(row).then(|| keys.value(row))?))
        }
    }
}

/// A step of a path: a member's name or an element's number.
fn step<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    get(text, name).or_else(|| element(text, name.parse().ok()?))
}

fn by_steps(args: &[ArrayRef], as_text: bool) -> Result<ArrayRef> {
    found(args, as_text, |text, row| {
        let mut at = text;
        for names in args[1..].iter().map(|s| s.as_string::<i32>()) {
            at = step(at, names.is_valid(row).then(|| names.value(row))?)?;
        }
        Some(at)
    })
}

fn by_path(args: &[ArrayRef], as_text: bool) -> Result<ArrayRef> {
    let lists = args[1].as_list::<i32>();
    found(args, as_text, |text, row| {
        let names = lists.is_valid(row).then(|| lists.value(row))?;
        let mut at = text;
        for name in names.as_string::<i32>() {
            at = step(at, name?)?;
        }
        Some(at)
    })
}

fn at_key(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    by_key(args, false)
}

fn text_at_key(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    by_key(args, true)
}

fn at_steps(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    by_steps(args, false)
}

fn text_at_steps(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    by_steps(args, true)
}

fn at_path(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    by_path(args, false)
}

fn text_at_path(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    by_path(args, true)
}

fn strip_nulls(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let texts = args[0].as_string::<i32>().iter();
    Ok(Arc::new(texts.map(|text| text.map(without_nulls)).collect::<StringArray>()))
}

/// A list a row, NULL for NULL.
fn lists(args: &[ArrayRef], items: impl Fn(&str) -> Result<Vec<Option<String>>>) -> Result<ArrayRef> {
    let mut out = ListBuilder::new(StringBuilder::new());
    for text in args[0].as_string::<i32>() {
        match text {
            Some(text) => {
                let items = items(text)?;
                if items.iter().flatten().any(|item| item.contains('\0')) {
                    return Err(zero_error());
                }
                out.append_value(items);
            }
            None => out.append_null(),
        }
    }
    Ok(Arc::new(out.finish()))
}

fn refused(message: String) -> DataFusionError {
    failure(SqlState::INVALID_PARAMETER_VALUE, message)
}

fn items_of(text: &str, function: &str, show: fn(&str) -> Option<String>) -> Result<Vec<Option<String>>> {
    match parts(text) {
        Parts::Array(items) => Ok(items.into_iter().map(show).collect()),
        Parts::Object(_) => Err(refused(format!("cannot call {function} on a non-array"))),
        Parts::Scalar => Err(refused(format!("cannot call {function} on a scalar"))),
    }
}

fn written(part: &str) -> Option<String> {
    Some(part.to_owned())
}

fn elements(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    lists(args, |text| items_of(text, "json_array_elements", written))
}

fn element_texts(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    lists(args, |text| items_of(text, "json_array_elements_text", part_text))
}

fn names(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    lists(args, |text| match parts(text) {
        Parts::Object(members) => Ok(members.into_iter().map(|(name, _)| Some(name)).collect()),
        Parts::Array(_) => Err(refused("cannot call json_object_keys on an array".to_owned())),
        Parts::Scalar => Err(refused("cannot call json_object_keys on a scalar".to_owned())),
    })
}

fn values_of(text: &str, show: fn(&str) -> Option<String>) -> Result<Vec<Option<String>>> {
    match parts(text) {
        Parts::Object(members) => Ok(members.into_iter().map(|(_, value)| show(value)).collect()),
        Parts::Array(_) => Err(refused("cannot deconstruct an array as an object".to_owned())),
        Parts::Scalar => Err(refused("cannot deconstruct a scalar".to_owned())),
    }
}

fn values(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    lists(args, |text| values_of(text, written))
}

fn value_texts(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    lists(args, |text| values_of(text, part_text))
}
