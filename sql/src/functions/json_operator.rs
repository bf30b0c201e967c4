//! The operators of jsonb, and the functions that change it: `|| - #- @> <@ ? ?| ?&`, `jsonb_set`,
//! `jsonb_insert`, `jsonb_strip_nulls`, `jsonb_pretty`.

use super::json_change::{
    Change, changed, concatenated, contains, has_name, without_element, without_names, without_nulls,
};
use super::json_value::Json;
use super::scalar::{Function, Kernel, exactly};
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type};
use datafusion_common::{DFSchema, Result};
use datafusion_expr::expr::{Cast, ScalarFunction};
use datafusion_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion_expr::{Expr, ExprSchemable, ScalarUDF};
use sqlparser::ast::BinaryOperator;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    vec![
        Function::new("jsonb_set", coerce_change, |_, _| DataType::Utf8, Kernel::Columns(set)).jsonb(),
        Function::new("jsonb_insert", coerce_change, |_, _| DataType::Utf8, Kernel::Columns(insert)).jsonb(),
        Function::new("jsonb_strip_nulls", one_text, |_, _| DataType::Utf8, Kernel::Columns(strip_nulls))
            .jsonb(),
        Function::new("jsonb_pretty", one_text, |_, _| DataType::Utf8, Kernel::Columns(pretty)),
    ]
}

fn one_text(types: &[DataType]) -> Option<Vec<DataType>> {
    exactly(types, &[DataType::Utf8])
}

pub(super) fn text_list() -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)))
}

/// `(target, path, new [, boolean])`; a path may be written as a literal.
fn coerce_change(types: &[DataType]) -> Option<Vec<DataType>> {
    let wanted = [DataType::Utf8, text_list(), DataType::Utf8, DataType::Boolean];
    let fits = |(t, w): (&DataType, &DataType)| {
        t == w || *t == DataType::Null || (*w == text_list() && *t == DataType::Utf8)
    };
    let known = matches!(types.len(), 3 | 4) && types.iter().zip(&wanted).all(fits);
    known.then(|| wanted[..types.len()].to_vec())
}

macro_rules! operators {
    ($($symbol:literal $op:ident $coerce:expr, $output:ident, $kernel:ident;)*) => {
        static OPERATORS: LazyLock<HashMap<&'static str, Arc<ScalarUDF>>> = LazyLock::new(|| {
            HashMap::from([$(($symbol, {
                let function = Function::new($symbol, $coerce, |_, _| DataType::$output, Kernel::Columns($kernel));
                let jsonb = DataType::$output == DataType::Utf8;
                if jsonb { function.jsonb().udf() } else { function.udf() }
            })),*])
        });

        /// The operator as PostgreSQL writes it, if it is one of jsonb.
        fn symbol_of(op: &BinaryOperator) -> Option<&'static str> {
            match op {
                $(BinaryOperator::$op => Some($symbol),)*
                _ => None,
            }
        }
    };
}

operators! {
    "||" StringConcat |t| exactly(t, &[DataType::Utf8, DataType::Utf8]), Utf8, concat;
    "-" Minus coerce_minus, Utf8, minus;
    "#-" HashMinus |t| exactly(t, &[DataType::Utf8, text_list()]), Utf8, minus_path;
    "@>" AtArrow |t| exactly(t, &[DataType::Utf8, DataType::Utf8]), Boolean, contains_rows;
    "<@" ArrowAt |t| exactly(t, &[DataType::Utf8, DataType::Utf8]), Boolean, contained_rows;
    "?" Question |t| exactly(t, &[DataType::Utf8, DataType::Utf8]), Boolean, has_name_rows;
    "?|" QuestionPipe |t| exactly(t, &[DataType::Utf8, text_list()]), Boolean, has_any;
    "?&" QuestionAnd |t| exactly(t, &[DataType::Utf8, text_list()]), Boolean, has_all;
}

fn coerce_minus(types: &[DataType]) -> Option<Vec<DataType>> {
    match types {
        [_, index] if index.is_integer() => Some(vec![DataType::Utf8, DataType::Int64]),
        [_, DataType::List(_)] => Some(vec![DataType::Utf8, text_list()]),
        _ => exactly(types, &[DataType::Utf8, DataType::Utf8]),
    }
}

/// Plans the operators where an operand is jsonb.
#[derive(Debug)]
pub struct JsonOperatorPlanner;

impl ExprPlanner for JsonOperatorPlanner {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let Some(symbol) = symbol_of(&expr.op) else { return Ok(PlannerResult::Original(expr)) };
        let (left, right) = (is_jsonb(&expr.left, schema), is_jsonb(&expr.right, schema));
        let of_jsonb = match symbol {
            // A text beside jsonb is one where it is a literal; else it is text that both become.
            "||" | "@>" | "<@" => {
                (left && (right || is_literal(&expr.right))) || (right && is_literal(&expr.left))
            }
            _ => left,
        };
        if !of_jsonb {
            return Ok(PlannerResult::Original(expr));
        }
        let RawBinaryExpr { left, right, .. } = expr;
        let (left, right) = match symbol {
            "||" | "@>" | "<@" => (as_jsonb(left, schema), as_jsonb(right, schema)),
            "#-" | "?|" | "?&" if is_literal(&right) => (left, cast_to_list(right)),
            _ => (left, right),
        };
        let call = ScalarFunction::new_udf(Arc::clone(&OPERATORS[symbol]), vec![left, right]);
        Ok(PlannerResult::Planned(Expr::ScalarFunction(call)))
    }
}

/// Whether an expression is of type jsonb.
pub(super) fn is_jsonb(expr: &Expr, schema: &DFSchema) -> bool {
    let field = expr.to_field(schema).map(|(_, field)| field);
    field.is_ok_and(|field| super::json::is_jsonb(&field))
}

fn is_literal(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(..))
}

fn as_jsonb(expr: Expr, schema: &DFSchema) -> Expr {
    match is_jsonb(&expr, schema) {
        true => expr,
        false => Expr::Cast(Cast::new_from_field(Box::new(expr), super::json::jsonb())),
    }
}

fn cast_to_list(expr: Expr) -> Expr {
    Expr::Cast(Cast::new(Box::new(expr), text_list()))
}

/// The JSON of a row.
fn value_at(column: &ArrayRef, row: usize) -> Option<Json> {
    let texts = column.as_string::<i32>();
    texts.is_valid(row).then(|| Json::parse(texts.value(row)))?
}

/// Rows of jsonb, NULL where `f` gives none.
fn jsonb_rows(rows: usize, f: impl Fn(usize) -> Result<Option<Json>>) -> Result<ArrayRef> {
    let shown = (0..rows).map(|row| Ok(f(row)?.map(|value| value.shown())));
    Ok(Arc::new(shown.collect::<Result<StringArray>>()?))
}

fn boolean_rows(rows: usize, f: impl Fn(usize) -> Option<bool>) -> Result<ArrayRef> {
    Ok(Arc::new((0..rows).map(f).collect::<BooleanArray>()))
}

/// The elements of a row of a list of text; none if one is NULL, or the list.
fn with_names<T>(column: &ArrayRef, row: usize, f: impl FnOnce(&[&str]) -> T) -> Option<T> {
    let lists = column.as_list::<i32>();
    let names = lists.is_valid(row).then(|| lists.value(row))?;
    let names: Option<Vec<&str>> = names.as_string::<i32>().iter().collect();
    Some(f(&names?))
}

fn concat(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let both = |row| Some(concatenated(value_at(&args[0], row)?, value_at(&args[1], row)?));
    jsonb_rows(args[0].len(), |row| Ok(both(row)))
}

fn minus(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    jsonb_rows(args[0].len(), |row| {
        let Some(value) = value_at(&args[0], row).filter(|_| args[1].is_valid(row)) else { return Ok(None) };
        match args[1].data_type() {
            DataType::Int64 => {
                without_element(value, args[1].as_primitive::<Int64Type>().value(row)).map(Some)
            }
            DataType::List(_) => with_names(&args[1], row, |names| without_names(value, names)).transpose(),
            _ => without_names(value, &[args[1].as_string::<i32>().value(row)]).map(Some),
        }
    })
}

fn change_rows(args: &[ArrayRef], change: impl Fn(usize) -> Option<Change>) -> Result<ArrayRef> {
    jsonb_rows(args[0].len(), |row| {
        let Some((value, change)) = value_at(&args[0], row).zip(change(row)) else { return Ok(None) };
        with_names(&args[1], row, |path| changed(value, path, &change)).transpose()
    })
}

fn minus_path(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    change_rows(args, |_| Some(Change::Remove))
}

/// The last argument of `jsonb_set` and `jsonb_insert`.
fn flag(args: &[ArrayRef], row: usize, default: bool) -> Option<bool> {
    match args.get(3).map(|flags| flags.as_boolean()) {
        Some(flags) => flags.is_valid(row).then(|| flags.value(row)),
        None => Some(default),
    }
}

fn set(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    change_rows(args, |row| Some(Change::Set(value_at(&args[2], row)?, flag(args, row, true)?)))
}

fn insert(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    change_rows(args, |row| Some(Change::Insert(value_at(&args[2], row)?, flag(args, row, false)?)))
}

fn strip_nulls(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    jsonb_rows(args[0].len(), |row| Ok(value_at(&args[0], row).map(without_nulls)))
}

fn pretty(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let rows = (0..args[0].len()).map(|row| value_at(&args[0], row).map(|value| value.pretty()));
    Ok(Arc::new(rows.collect::<StringArray>()))
}

fn contains_rows(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    boolean_rows(args[0].len(), |row| Some(contains(&value_at(&args[0], row)?, &value_at(&args[1], row)?)))
}

fn contained_rows(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    boolean_rows(args[0].len(), |row| Some(contains(&value_at(&args[1], row)?, &value_at(&args[0], row)?)))
}

fn has_name_rows(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let names = args[1].as_string::<i32>();
    boolean_rows(args[0].len(), |row| {
        Some(has_name(&value_at(&args[0], row)?, names.is_valid(row).then(|| names.value(row))?))
    })
}

fn has_any(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    boolean_rows(args[0].len(), |row| {
        let value = value_at(&args[0], row)?;
        with_names(&args[1], row, |names| names.iter().any(|name| has_name(&value, name)))
    })
}

fn has_all(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    boolean_rows(args[0].len(), |row| {
        let value = value_at(&args[0], row)?;
        with_names(&args[1], row, |names| names.iter().all(|name| has_name(&value, name)))
    })
}
