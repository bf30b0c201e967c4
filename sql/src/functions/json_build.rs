//! jsonb and json made of values: `to_jsonb`, `jsonb_build_object`, `jsonb_build_array`,
//! `jsonb_object`, what `jsonb_agg` and `jsonb_object_agg` make of the values that they collect, and the
//! same of json.

use super::error::failure;
use super::json::is_json;
use super::json_text;
use super::json_value::Json;
use super::scalar::{Function, Kernel, marked, no_such};
use super::text::write_text;
use arrow::array::{Array, ArrayRef, AsArray, StringArray, StructArray, new_null_array};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use std::sync::Arc;
use weir_catalog::SqlState;

/// Collects the elements of `jsonb_agg`; NULL is one.
pub const COLLECT_ARRAY: &str = "weir_jsonb_agg";
/// Collects the names and values of `jsonb_object_agg`.
pub const COLLECT_OBJECT: &str = "weir_jsonb_object_agg";
/// An element of `json_agg`: what has parts goes on a line of its own.
pub const JSON_ITEM: &str = "weir_json_item";
/// Collects the elements of `json_agg`.
pub const COLLECT_JSON_ARRAY: &str = "weir_json_agg";
/// Collects the names and values of `json_object_agg`.
pub const COLLECT_JSON_OBJECT: &str = "weir_json_object_agg";

/// Makes a record of names and values.
pub const RECORD: &str = "weir_record";

/// The functions that know the types of their arguments by their fields.
pub fn builders() -> Vec<Arc<ScalarUDF>> {
    let builder = |name, aliases: &[&str], build, json| {
        let aliases = aliases.iter().map(|a| (*a).to_owned()).collect();
        let signature = Signature::one_of(
            vec![TypeSignature::VariadicAny, TypeSignature::Nullary],
            Volatility::Immutable,
        );
        Arc::new(ScalarUDF::from(Builder { name, aliases, build, json, signature }))
    };
    vec![
        builder("to_jsonb", &[], Build::Value, false),
        builder("to_json", &["row_to_json", "array_to_json"], Build::Value, true),
        builder(JSON_ITEM, &[], Build::Item, true),
        Arc::new(ScalarUDF::from(Record { signature: Signature::variadic_any(Volatility::Immutable) })),
        builder("jsonb_build_object", &[], Build::Object, false),
        builder("json_build_object", &[], Build::Object, true),
        builder("jsonb_build_array", &[], Build::Array, false),
        builder("json_build_array", &[], Build::Array, true),
    ]
}

/// The other functions of this file.
pub fn functions() -> Vec<Function> {
    let text = |_: &[DataType], _: &[Option<&ScalarValue>]| DataType::Utf8;
    vec![
        Function::new("jsonb_object", coerce_object, text, Kernel::Columns(object_of_texts)).jsonb(),
        Function::new("json_object", coerce_object, text, Kernel::Columns(json_object_of_texts)).json(),
        Function::new(COLLECT_ARRAY, lists_of_text, text, Kernel::Columns(collected_array)).jsonb(),
        Function::new(COLLECT_OBJECT, lists_of_text, text, Kernel::Columns(collected_object)).jsonb(),
        Function::new(COLLECT_JSON_ARRAY, lists_of_text, text, Kernel::Columns(collected_json_array)).json(),
        Function::new(COLLECT_JSON_OBJECT, lists_of_text, text, Kernel::Columns(collected_json_object))
            .json(),
    ]
}

fn coerce_object(types: &[DataType]) -> Option<Vec<DataType>> {
    let list = super::json_operator::text_list();
    let fits = |t: &DataType| *t == list || matches!(t, DataType::Utf8 | DataType::Null);
    (matches!(types.len(), 1 | 2) && types.iter().all(fits)).then(|| vec![list; types.len()])
}

fn lists_of_text(types: &[DataType]) -> Option<Vec<DataType>> {
    Some(vec![super::json_operator::text_list(); types.len()])
}

/// `weir_record(name, value, …)`: a record whose members keep what their fields say of their types.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Record {
    signature: Signature,
}

impl ScalarUDFImpl for Record {
    fn name(&self) -> &str {
        RECORD
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        datafusion_common::internal_err!("a record's type depends on its names")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let members = args.arg_fields.chunks_exact(2).zip(args.scalar_arguments.chunks_exact(2));
        let fields = members.map(|(fields, names)| {
            let name = match names[0] {
                Some(ScalarValue::Utf8(Some(name))) => name.clone(),
                _ => String::new(),
            };
            let data_type = match fields[1].data_type() {
                DataType::Null => DataType::Utf8,
                other => other.clone(),
            };
            Field::new(name, data_type, true).with_metadata(fields[1].metadata().clone())
        });
        Ok(Arc::new(Field::new(RECORD, DataType::Struct(fields.collect()), false)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let DataType::Struct(fields) = args.return_field.data_type() else {
            return datafusion_common::internal_err!("a record is a struct");
        };
        let rows = args.number_rows;
        let values = args.args.into_iter().skip(1).step_by(2).zip(fields);
        let columns = values.map(|(value, field)| {
            let column = value.into_array(rows)?;
            Ok(if *column.data_type() == DataType::Null {
                new_null_array(field.data_type(), rows)
            } else {
                column
            })
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        Ok(ColumnarValue::Array(Arc::new(StructArray::try_new(fields.clone(), columns, None)?)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Build {
    Value,
    Item,
    Object,
    Array,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Builder {
    name: &'static str,
    aliases: Vec<String>,
    build: Build,
    /// Whether it is json that is built, and not jsonb.
    json: bool,
    signature: Signature,
}

impl Builder {
    /// The JSON of a row; none is NULL.
    fn built(&self, columns: &[ArrayRef], fields: &[FieldRef], row: usize) -> Result<Option<String>> {
        if self.json {
            return self.built_json(columns, fields, row);
        }
        let mut values = columns.iter().zip(fields).map(|(column, field)| value_at(column, field, row));
        Ok(match self.build {
            Build::Value | Build::Item if is_null(&columns[0], row) => None,
            Build::Value | Build::Item => values.next_back().map(|value| value.shown()),
            Build::Array => Some(Json::Array(values.collect()).shown()),
            Build::Object => Some(object(columns, values.collect(), row)?.shown()),
        })
    }

    fn built_json(&self, columns: &[ArrayRef], fields: &[FieldRef], row: usize) -> Result<Option<String>> {
        let values = columns.iter().zip(fields).map(|(column, field)| {
            let mut text = String::new();
            json_text::put(column, field, row, &mut text);
            text
        });
        let values: Vec<String> = values.collect();
        let own_line =
            matches!(columns.first().map(|c| c.data_type()), Some(DataType::List(_) | DataType::Struct(_)));
        Ok(match self.build {
            Build::Value if is_null(&columns[0], row) => None,
            Build::Value => values.into_iter().next(),
            Build::Item if own_line => Some(format!("\n {}", values.join(""))),
            Build::Item => values.into_iter().next(),
            Build::Array => Some(format!("[{}]", values.join(", "))),
            Build::Object => {
                let names = names(columns, row)?;
                let values = values.iter().skip(1).step_by(2).map(String::as_str);
                Some(json_text::object("{", names.iter().map(String::as_str).zip(values), "}"))
            }
        })
    }
}

fn is_null(column: &ArrayRef, row: usize) -> bool {
    column.is_null(row) || *column.data_type() == DataType::Null
}

impl ScalarUDFImpl for Builder {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match (self.build, types) {
            (Build::Value | Build::Item, [_]) | (Build::Object | Build::Array, _) => Ok(DataType::Utf8),
            _ => Err(no_such(self.name, types)),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types: Vec<DataType> = args.arg_fields.iter().map(|f| f.data_type().clone()).collect();
        let field = Field::new(self.name, self.return_type(&types)?, true);
        Ok(Arc::new(field.with_metadata(marked(if self.json { "json" } else { "jsonb" }))))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = args.args.iter().all(|a| matches!(a, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let columns: Vec<ArrayRef> =
            args.args.into_iter().map(|a| a.into_array(rows)).collect::<Result<_>>()?;
        let built = (0..rows).map(|row| self.built(&columns, &args.arg_fields, row));
        let built = built.collect::<Result<StringArray>>()?;
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&built, 0)?));
        }
        Ok(ColumnarValue::Array(Arc::new(built)))
    }
}

/// `jsonb_build_object(name, value, …)`.
fn object(columns: &[ArrayRef], values: Vec<Json>, row: usize) -> Result<Json> {
    let names = names(columns, row)?;
    Ok(Json::object(names.into_iter().zip(values.into_iter().skip(1).step_by(2)).collect()))
}

/// The names among names and values.
fn names(columns: &[ArrayRef], row: usize) -> Result<Vec<String>> {
    if !columns.len().is_multiple_of(2) {
        let message = "argument list must have even number of elements";
        return Err(failure(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    let name = |(i, column): (usize, &ArrayRef)| {
        if is_null(column, row) {
            let message = format!("argument {}: key must not be null", i + 1);
            return Err(failure(SqlState::INVALID_PARAMETER_VALUE, message));
        }
        let mut text = String::new();
        write_text(column.as_ref(), row, &mut text);
        Ok(text)
    };
    columns.iter().enumerate().step_by(2).map(name).collect()
}

/// A value as JSON, by its type.
pub(super) fn value_at(column: &ArrayRef, field: &Field, row: usize) -> Json {
    if column.is_null(row) {
        return Json::Null;
    }
    let text = || {
        let mut text = String::new();
        write_text(column.as_ref(), row, &mut text);
        text
    };
    match column.data_type() {
        DataType::Null => Json::Null,
        DataType::Boolean => Json::Bool(column.as_boolean().value(row)),
        t if t.is_numeric() => Json::number(&text()),
        DataType::Utf8 if is_json(field) => {
            Json::parse(column.as_string::<i32>().value(row)).unwrap_or(Json::Null)
        }
        DataType::Timestamp(_, zone) => {
            let zone = if zone.is_some() { ":00" } else { "" };
            Json::Text(format!("{}{zone}", text().replacen(' ', "T", 1)))
        }
        DataType::List(item) => {
            let items = column.as_list::<i32>().value(row);
            Json::Array((0..items.len()).map(|i| value_at(&items, item, i)).collect())
        }
        DataType::Struct(members) => {
            let columns = column.as_struct().columns().iter().zip(members);
            Json::object(columns.map(|(c, f)| (f.name().clone(), value_at(c, f, row))).collect())
        }
        _ => Json::Text(text()),
    }
}

/// The elements of a row of a list of text.
fn texts(column: &ArrayRef, row: usize) -> Option<Vec<Option<String>>> {
    let lists = column.as_list::<i32>();
    let items = lists.is_valid(row).then(|| lists.value(row))?;
    Some(items.as_string::<i32>().iter().map(|text| text.map(str::to_owned)).collect())
}

/// Names and values.
type Pairs<V> = Vec<(Option<String>, V)>;

/// Rows of objects made of names and values.
fn objects<V>(
    rows: usize,
    pairs: impl Fn(usize) -> Result<Option<Pairs<V>>>,
    show: impl Fn(Vec<(String, V)>) -> String,
) -> Result<ArrayRef> {
    let null_name = || failure(SqlState("22004"), "null value not allowed for object key");
    let object = |row| -> Result<Option<String>> {
        let Some(pairs) = pairs(row)? else { return Ok(None) };
        let named = pairs.into_iter().map(|(name, value)| Ok((name.ok_or_else(null_name)?, value)));
        Ok(Some(show(named.collect::<Result<_>>()?)))
    };
    Ok(Arc::new((0..rows).map(object).collect::<Result<StringArray>>()?))
}

fn shown(members: Vec<(String, Json)>) -> String {
    Json::object(members).shown()
}

/// Members as they come, between these.
fn written(open: &str, members: &[(String, String)], close: &str) -> String {
    json_text::object(open, members.iter().map(|(n, v)| (n.as_str(), v.as_str())), close)
}

/// `jsonb_object('{a, 1, b, 2}')` and `jsonb_object(names, values)`.
fn object_of_texts(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let value = |text: Option<String>| text.map_or(Json::Null, Json::Text);
    objects(args[0].len(), |row| pairs_of_texts(args, row, value), shown)
}

/// The same of json.
fn json_object_of_texts(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let value = |text: Option<String>| text.map_or(Json::Null, Json::Text).shown();
    objects(args[0].len(), |row| pairs_of_texts(args, row, value), |members| written("{", &members, "}"))
}

/// The names and values of a row of texts.
fn pairs_of_texts<V>(
    args: &[ArrayRef],
    row: usize,
    value: impl Fn(Option<String>) -> V,
) -> Result<Option<Pairs<V>>> {
    let refused = |message: &str| failure(SqlState("2202E"), message);
    let Some(mut names) = texts(&args[0], row) else { return Ok(None) };
    let values = match args.get(1) {
        Some(values) => match texts(values, row) {
            Some(values) if values.len() == names.len() => values,
            Some(_) => return Err(refused("mismatched array dimensions")),
            None => return Ok(None),
        },
        None if !names.len().is_multiple_of(2) => {
            return Err(refused("array must have even number of elements"));
        }
        None => {
            let (even, odd): (Vec<_>, Vec<_>) = names.into_iter().enumerate().partition(|(i, _)| i % 2 == 0);
            names = even.into_iter().map(|(_, name)| name).collect();
            odd.into_iter().map(|(_, value)| value).collect()
        }
    };
    Ok(Some(names.into_iter().zip(values.into_iter().map(value)).collect()))
}

fn parsed(text: Option<String>) -> Json {
    text.and_then(|text| Json::parse(&text)).unwrap_or(Json::Null)
}

fn collected_array(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let array = |row| Some(Json::Array(texts(&args[0], row)?.into_iter().map(parsed).collect()).shown());
    Ok(Arc::new((0..args[0].len()).map(array).collect::<StringArray>()))
}

fn collected_object(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    objects(args[0].len(), |row| Ok(collected_pairs(args, row, parsed)), shown)
}

fn collected_pairs<V>(
    args: &[ArrayRef],
    row: usize,
    value: impl Fn(Option<String>) -> V,
) -> Option<Pairs<V>> {
    let (names, values) = texts(&args[0], row).zip(texts(&args[1], row))?;
    Some(names.into_iter().zip(values.into_iter().map(value)).collect())
}

fn null_or(text: Option<String>) -> String {
    text.unwrap_or_else(|| "null".to_owned())
}

fn collected_json_array(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let array = |row| {
        let items: Vec<String> = texts(&args[0], row)?.into_iter().map(null_or).collect();
        Some(format!("[{}]", items.join(", ").trim_start_matches("\n ")))
    };
    Ok(Arc::new((0..args[0].len()).map(array).collect::<StringArray>()))
}

fn collected_json_object(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let pairs = |row| Ok(collected_pairs(args, row, null_or));
    objects(args[0].len(), pairs, |members| written("{ ", &members, " }"))
}
