//! jsonb: its normal form, the operators `-> ->> #> #>>`, and what reads it.
//!
//! A jsonb is text in the normal form: keys in PostgreSQL's order (shorter first, then by bytes), the
//! last of equal keys, one space after `:` and `,`.

use super::error::external;
use super::json_operator::text_list;
use super::json_part;
use super::json_value::Json;
use super::parse::ParseError;
use super::scalar::{Function, Kernel, exactly, marked};
use crate::error::SqlError;
use arrow::array::{Array, ArrayRef, AsArray, Int32Array, StringArray};
use arrow::datatypes::{DataType, Field, FieldRef, Int32Type};
use datafusion_common::{DFSchema, DataFusionError, Result};
use datafusion_expr::expr::{Cast, ScalarFunction};
use datafusion_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr, RawFieldAccessExpr};
use datafusion_expr::{Expr, ExprSchemable, GetFieldAccess, ScalarUDF};
use sqlparser::ast::BinaryOperator;
use std::sync::{Arc, LazyLock};
use weir_catalog::SqlState;
use weir_catalog::column::TYPE_KEY;

/// The normal form of a JSON text; `None` if it is none, or holds what no jsonb does.
pub fn normalized(text: &str) -> Option<String> {
    normal_form(text).ok()
}

/// The same, and what is wrong. A `\u0000` is in no jsonb, as a zero is in no text.
pub(super) fn normal_form(text: &str) -> Result<String, ParseError> {
    let value = Json::parse(text).ok_or(ParseError::Syntax)?;
    if text.contains("u0000") && value.has_zero() {
        return Err(ParseError::Unicode);
    }
    Ok(value.shown())
}

/// The error of a `\u0000`.
pub(super) fn zero_error() -> DataFusionError {
    let detail = "\\u0000 cannot be converted to text.";
    external(SqlError::new(SqlState("22P05"), "unsupported Unicode escape sequence").detail(detail))
}

/// Texts that were parts of a json, which may hold a `\u0000`: no text does.
pub(super) fn without_zero(texts: StringArray) -> Result<ArrayRef> {
    if texts.value_data().contains(&0) { Err(zero_error()) } else { Ok(Arc::new(texts)) }
}

const KEY: [DataType; 2] = [DataType::Utf8, DataType::Utf8];
const INDEX: [DataType; 2] = [DataType::Utf8, DataType::Int32];

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    let text = |t: &[DataType]| exactly(t, &[DataType::Utf8]);
    vec![
        get_function("jsonb_get", false),
        get_function("jsonb_get_text", true),
        path_function("jsonb_extract_path", false),
        path_function("jsonb_extract_path_text", true),
        Function::new("jsonb_typeof", text, |_, _| DataType::Utf8, Kernel::Columns(type_of))
            .aliases(&["json_typeof"]),
        Function::new("jsonb_array_length", text, |_, _| DataType::Int32, Kernel::Columns(array_length))
            .aliases(&["json_array_length"]),
    ]
}

/// A member by name, or an element by number, from the end if it is negative.
fn get_function(name: &'static str, as_text: bool) -> Function {
    let coerce = |t: &[DataType]| match t {
        [json, DataType::Int64] => exactly(&[json.clone(), DataType::Int32], &INDEX),
        _ => exactly(t, &INDEX).or_else(|| exactly(t, &KEY)),
    };
    let kernel = if as_text { get_text } else { get };
    let function = Function::new(name, coerce, |_, _| DataType::Utf8, Kernel::Columns(kernel));
    if as_text { function } else { function.jsonb() }
}

fn path_function(name: &'static str, as_text: bool) -> Function {
    let coerce = |t: &[DataType]| exactly(t, &vec![DataType::Utf8; t.len()]).filter(|_| !t.is_empty());
    let kernel = if as_text { path_text } else { path };
    let function = Function::new(name, coerce, |_, _| DataType::Utf8, Kernel::Columns(kernel));
    if as_text { function } else { function.jsonb() }
}

static GET: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| get_function("->", false).udf());
static GET_TEXT: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| get_function("->>", true).udf());
static PATH: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| list_path_function("#>", false).udf());
static PATH_TEXT: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| list_path_function("#>>", true).udf());

fn list_path_function(name: &'static str, as_text: bool) -> Function {
    let coerce = |t: &[DataType]| match t {
        [DataType::Utf8, DataType::List(item)] if item.data_type() == &DataType::Utf8 => {
            Some(vec![DataType::Utf8, text_list()])
        }
        _ => None,
    };
    let kernel = if as_text { list_path_text } else { list_path };
    let function = Function::new(name, coerce, |_, _| DataType::Utf8, Kernel::Columns(kernel));
    if as_text { function } else { function.jsonb() }
}

/// Plans the operators.
#[derive(Debug)]
pub struct JsonPlanner;

impl ExprPlanner for JsonPlanner {
    /// `j['a']` and `j[0]` are `j -> 'a'` and `j -> 0`.
    fn plan_field_access(
        &self,
        access: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawFieldAccessExpr>> {
        let is_jsonb = access.expr.to_field(schema).is_ok_and(|(_, field)| is_jsonb(&field));
        let key = match &access.field_access {
            GetFieldAccess::ListIndex { key } if is_jsonb => key.as_ref().clone(),
            GetFieldAccess::NamedStructField { name } if is_jsonb => Expr::Literal(name.clone(), None),
            _ => return Ok(PlannerResult::Original(access)),
        };
        let call = ScalarFunction::new_udf(Arc::clone(&GET), vec![access.expr, key]);
        Ok(PlannerResult::Planned(Expr::ScalarFunction(call)))
    }

    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let function = match expr.op {
            BinaryOperator::Arrow => &GET,
            BinaryOperator::LongArrow => &GET_TEXT,
            BinaryOperator::HashArrow => &PATH,
            BinaryOperator::HashLongArrow => &PATH_TEXT,
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let RawBinaryExpr { op, left, mut right } = expr;
        let of_json = left.to_field(schema).is_ok_and(|(_, field)| is_json(&field) && !is_jsonb(&field));
        let function = json_part::operator(&op).filter(|_| of_json).unwrap_or(function);
        let by_path = matches!(op, BinaryOperator::HashArrow | BinaryOperator::HashLongArrow);
        if by_path && matches!(right.get_type(schema)?, DataType::Utf8) {
            right = Expr::Cast(Cast::new(Box::new(right), text_list()));
        }
        let call = ScalarFunction::new_udf(Arc::clone(function), vec![left, right]);
        Ok(PlannerResult::Planned(Expr::ScalarFunction(call)))
    }
}

/// A field of type jsonb.
pub(super) fn jsonb() -> FieldRef {
    Arc::new(Field::new("jsonb", DataType::Utf8, true).with_metadata(marked("jsonb")))
}

/// Whether a field is of type jsonb.
pub(super) fn is_jsonb(field: &Field) -> bool {
    field.metadata().get(TYPE_KEY).is_some_and(|marker| marker == "jsonb")
}

/// Whether a field is of type json or jsonb.
pub(super) fn is_json(field: &Field) -> bool {
    field.metadata().get(TYPE_KEY).is_some_and(|marker| marker == "jsonb" || marker == "json")
}

/// The parsed JSON of each row, and what `f` makes of it.
fn each<T>(jsons: &StringArray, f: impl Fn(&Json, usize) -> Option<T>) -> Vec<Option<T>> {
    (0..jsons.len())
        .map(|row| {
            let value = jsons.is_valid(row).then(|| Json::parse(jsons.value(row)))??;
            f(&value, row)
        })
        .collect()
}

/// What `->>` gives of a value.
pub(super) fn text_of(value: &Json) -> Option<String> {
    match value {
        Json::Null => None,
        Json::Text(text) => Some(text.clone()),
        other => Some(other.shown()),
    }
}

fn element(value: &Json, index: i64) -> Option<&Json> {
    let items = value.as_array()?;
    let index =
        if index < 0 { items.len().checked_sub(index.unsigned_abs() as usize)? } else { index as usize };
    items.get(index)
}

fn member(args: &[ArrayRef], show: fn(&Json) -> Option<String>) -> ArrayRef {
    let jsons = args[0].as_string::<i32>();
    let found = |value: &Json, row: usize| match args[1].data_type() {
        DataType::Int32 => {
            let indexes = args[1].as_primitive::<Int32Type>();
            element(value, i64::from(indexes.is_valid(row).then(|| indexes.value(row))?)).and_then(show)
        }
        _ => {
            let keys = args[1].as_string::<i32>();
            value.get(keys.is_valid(row).then(|| keys.value(row))?).and_then(show)
        }
    };
    Arc::new(each(jsons, found).into_iter().collect::<StringArray>())
}

fn get(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    Ok(member(args, |v| Some(v.shown())))
}

fn get_text(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    Ok(member(args, text_of))
}

/// A step of a path: a member's name or an element's number.
fn step<'v>(value: &'v Json, name: &str) -> Option<&'v Json> {
    match value {
        Json::Object(_) => value.get(name),
        Json::Array(_) => element(value, name.parse().ok()?),
        _ => None,
    }
}

fn at_path(args: &[ArrayRef], show: fn(&Json) -> Option<String>) -> ArrayRef {
    let found = |value: &Json, row: usize| {
        let steps = args[1..].iter().map(|s| s.as_string::<i32>());
        let mut at = value;
        for names in steps {
            at = step(at, names.is_valid(row).then(|| names.value(row))?)?;
        }
        show(at)
    };
    Arc::new(each(args[0].as_string(), found).into_iter().collect::<StringArray>())
}

fn path(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    Ok(at_path(args, |v| Some(v.shown())))
}

fn path_text(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    Ok(at_path(args, text_of))
}

fn at_list_path(args: &[ArrayRef], show: fn(&Json) -> Option<String>) -> ArrayRef {
    let lists = args[1].as_list::<i32>();
    let found = |value: &Json, row: usize| {
        let names = lists.is_valid(row).then(|| lists.value(row))?;
        let mut at = value;
        for name in names.as_string::<i32>() {
            at = step(at, name?)?;
        }
        show(at)
    };
    Arc::new(each(args[0].as_string(), found).into_iter().collect::<StringArray>())
}

fn list_path(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    Ok(at_list_path(args, |v| Some(v.shown())))
}

fn list_path_text(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    Ok(at_list_path(args, text_of))
}

fn type_of(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let name = |value: &Json, _row: usize| {
        Some(match value {
            Json::Null => "null",
            Json::Bool(_) => "boolean",
            Json::Number(_) => "number",
            Json::Text(_) => "string",
            Json::Array(_) => "array",
            Json::Object(_) => "object",
        })
    };
    Ok(Arc::new(each(args[0].as_string(), name).into_iter().collect::<StringArray>()))
}

fn array_length(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let length = |value: &Json, _row: usize| value.as_array().map(|items| items.len() as i32);
    Ok(Arc::new(each(args[0].as_string(), length).into_iter().collect::<Int32Array>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ordered_and_the_last_wins() {
        let text = normalized(r#" {"bb":1,"a":[1,2.50,{}],"a":[true,null,"x\ny"]} "#);
        assert_eq!(text.as_deref(), Some(r#"{"a": [true, null, "x\ny"], "bb": 1}"#));
        assert_eq!(normalized("{"), None);
        assert_eq!(normalized("3").as_deref(), Some("3"));
    }

    #[test]
    fn members_elements_and_paths() {
        let json: ArrayRef = Arc::new(StringArray::from(vec![Some(r#"{"a": {"b": ["x", null]}}"#), None]));
        let key = |k: &str| -> ArrayRef { Arc::new(StringArray::from(vec![k, k])) };
        let text =
            |a: ArrayRef| a.as_string::<i32>().iter().map(|v| v.map(str::to_owned)).collect::<Vec<_>>();
        let some = |s: &str| vec![Some(s.to_owned()), None];
        let inner = get(&[Arc::clone(&json), key("a")], &DataType::Utf8).expect("json");
        assert_eq!(text(Arc::clone(&inner)), some(r#"{"b": ["x", null]}"#));
        assert_eq!(text(get_text(&[inner, key("c")], &DataType::Utf8).expect("json")), [None, None]);
        let path = path_text(&[json, key("a"), key("b"), key("0")], &DataType::Utf8).expect("json");
        assert_eq!(text(path), some("x"));
    }
}
