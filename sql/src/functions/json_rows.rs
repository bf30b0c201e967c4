//! jsonb taken apart into rows: the lists that `jsonb_array_elements`, `jsonb_each` and their kin are
//! before they are unnested. Their elements are text: what is jsonb, the binder casts.

use super::error::failure;
use super::json::text_of;
use super::json_value::Json;
use super::scalar::{Function, Kernel, exactly};
use arrow::array::{Array, ArrayRef, AsArray, ListBuilder, StringBuilder};
use arrow::datatypes::{DataType, Field};
use datafusion_common::{Result, ScalarValue};
use std::sync::Arc;
use weir_catalog::SqlState;

/// The values of `jsonb_each`, beside `jsonb_object_keys`.
pub const EACH_VALUES: &str = "weir_jsonb_values";
/// The values of `jsonb_each_text`.
pub const EACH_TEXTS: &str = "weir_jsonb_texts";

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    let list = |_: &[DataType], _: &[Option<&ScalarValue>]| {
        DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)))
    };
    let text = |types: &[DataType]| exactly(types, &[DataType::Utf8]);
    vec![
        Function::new("jsonb_array_elements", text, list, Kernel::Columns(elements)),
        Function::new("jsonb_array_elements_text", text, list, Kernel::Columns(element_texts)),
        Function::new("jsonb_object_keys", text, list, Kernel::Columns(keys)),
        Function::new(EACH_VALUES, text, list, Kernel::Columns(values)),
        Function::new(EACH_TEXTS, text, list, Kernel::Columns(value_texts)),
    ]
}

/// A list a row, NULL for NULL.
fn lists(args: &[ArrayRef], items: impl Fn(&Json) -> Result<Vec<Option<String>>>) -> Result<ArrayRef> {
    let jsons = args[0].as_string::<i32>();
    let mut out = ListBuilder::new(StringBuilder::new());
    for row in 0..jsons.len() {
        match jsons.is_valid(row).then(|| Json::parse(jsons.value(row))).flatten() {
            Some(value) => out.append_value(items(&value)?),
            None => out.append_null(),
        }
    }
    Ok(Arc::new(out.finish()))
}

fn shown(value: &Json) -> Option<String> {
    Some(value.shown())
}

fn items_of(value: &Json, show: fn(&Json) -> Option<String>) -> Result<Vec<Option<String>>> {
    let refused =
        |what| failure(SqlState::INVALID_PARAMETER_VALUE, format!("cannot extract elements from {what}"));
    match value {
        Json::Array(items) => Ok(items.iter().map(show).collect()),
        Json::Object(_) => Err(refused("an object")),
        _ => Err(refused("a scalar")),
    }
}

fn members_of(
    value: &Json,
    what: &str,
    show: impl Fn(&str, &Json) -> Option<String>,
) -> Result<Vec<Option<String>>> {
    let kind = match value {
        Json::Object(fields) => return Ok(fields.iter().map(|(name, value)| show(name, value)).collect()),
        Json::Array(_) => "an array",
        _ => "a scalar",
    };
    Err(failure(SqlState::INVALID_PARAMETER_VALUE, format!("cannot call {what} on {kind}")))
}

fn elements(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    lists(args, |value| items_of(value, shown))
}

fn element_texts(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    lists(args, |value| items_of(value, text_of))
}

fn keys(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    lists(args, |value| members_of(value, "jsonb_object_keys", |name, _| Some(name.to_owned())))
}

fn values(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    lists(args, |value| members_of(value, "jsonb_each", |_, value| shown(value)))
}

fn value_texts(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    lists(args, |value| members_of(value, "jsonb_each_text", |_, value| text_of(value)))
}
